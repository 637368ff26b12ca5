"""What a check found after one cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

#: What a device must not do, in the order of the output, and what it means.
FINDINGS = {
    "lost": "acknowledged by a flush, and older data or none is there",
    "lost_through": "acknowledged by a write through the cache, and older data or none is there",
    "order": "of these, a later write of the same writer is there",
    "corrupt": "durable before, and neither old nor new data is there",
    "torn": "not flushed, and only some sectors of the 4 KB are new",
    "garbled": "not flushed, and some sectors are neither old nor new",
}
#: Findings that are no broken promise: no standard of eMMC, SD or UFS says that 4 KB are written as a whole.
WEAKNESSES = ("torn", "garbled")


@dataclass
class Verdict:
    """What was left after a cut, in blocks of 4 KB.

    Attributes:
        is_cut: whether there is a sign that the power was cut; only then it counts.
        syncs: syncs that were acknowledged before the cut.
        promised: blocks that a sync after the first pass had made durable.
        lost: promised by a flush, and not there.
        lost_through: promised by a write through the cache, and not there.
        order: of both, those where something is there that was written after the promise.
        corrupt: durable before, and neither old nor new.
        torn: not promised: sectors of old and new data in one block.
        garbled: not promised: sectors with neither.
        unflushed: writes of blocks that were not promised.
        unflushed_lost: of these, not there: this is allowed.
        trimmed: blocks whose trim was followed by an acknowledged flush.
        trimmed_old: of these, blocks that return what they held before the trim: this is allowed.
        examples: what the first findings are.
    """

    is_cut: bool
    syncs: int = 0
    promised: int = 0
    lost: int = 0
    lost_through: int = 0
    order: int = 0
    corrupt: int = 0
    torn: int = 0
    garbled: int = 0
    unflushed: int = 0
    unflushed_lost: int = 0
    trimmed: int = 0
    trimmed_old: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def broken(self) -> list[str]:
        """The findings that break a promise.

        >>> Verdict(is_cut=True, lost=3, torn=1).broken
        ['lost']
        """
        return [name for name in self.found if name not in WEAKNESSES]

    @property
    def found(self) -> list[str]:
        """All findings.

        >>> Verdict(is_cut=True, lost=3, torn=1).found
        ['lost', 'torn']
        """
        return [name for name in FINDINGS if getattr(self, name)]

    def to_dict(self) -> dict[str, object]:
        """Return it as values of JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """Make it of values of JSON; those of a later version that are not known here are left out.

        >>> Verdict.from_dict(Verdict(is_cut=True, lost=3).to_dict()).lost
        3
        """
        known = {one.name for one in fields(cls)}
        return cls(**{name: value for name, value in given.items() if name in known})
