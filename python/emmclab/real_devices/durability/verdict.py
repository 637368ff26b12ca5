"""Verdict on a target after one cut."""

from dataclasses import asdict, dataclass, field

#: Forbidden behaviour of a device, in the order of the output, with its meaning.
FINDINGS = {
    "lost": "acknowledged by a flush, but older data or no data is present",
    "lost_through": "acknowledged by a write through the cache, but older data or no data is present",
    "order": "of these, a later write of the same writer is present",
    "corrupt": "durable before, but neither old nor new data is present",
    "torn": "not flushed, and only some sectors of the 4 KB are new",
    "garbled": "not flushed, and some sectors are neither old nor new",
}
#: Findings that break no promise: no standard of eMMC, SD or UFS requires that 4 KB are written atomically.
WEAKNESSES = ("torn", "garbled")


@dataclass
class Verdict:
    """State of the target after a cut, in blocks of 4 KB.

    Attributes:
        is_cut: whether there is evidence that the power was cut; other verdicts are not counted.
        syncs: syncs that were acknowledged before the cut.
        promised: blocks that a sync after the first pass had made durable.
        lost: promised by a flush, but missing.
        lost_through: promised by a write-through write, but missing.
        order: of both, those where data written after the promise is present.
        corrupt: durable before the cut, but with neither old nor new content.
        torn: not promised: a block with sectors of old and of new data.
        garbled: not promised: a block with sectors of neither.
        unflushed: writes of blocks that were not promised.
        unflushed_lost: of these, the missing ones: this is allowed.
        trimmed: blocks whose trim was followed by an acknowledged flush.
        trimmed_old: of these, blocks that return their data from before the trim: this is allowed.
        examples: descriptions of the first findings.
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
        """Return all fields as JSON values."""
        return asdict(self)
