"""Judges the findings of IISWC 2015 again: the page's content for each, and the rules of the verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

STILL = "still true"
PART = "in part"
NO = "no longer"
BADGES = {STILL: "yes", PART: "near", NO: "no"}

RULE = (
    "Still true: as large a share of the applications as in 2015, in whole applications; in part: at least "
    "half of that; no longer: fewer."
)


@dataclass(frozen=True)
class Finding:
    """A finding of 2015, the value of today, and the verdict.

    Attributes:
        id: the id of its row on the page.
        number: the number of the characteristic or implication to which it belongs.
        finding: the statement of the paper.
        published: the figures of 2015.
        measured: the figures of today.
        verdict: one of the three verdicts.
        note: further remarks.
        recorded: the figures for the traces as recorded, with re-issues and clock jumps; may be empty.
    """

    id: str
    number: int
    finding: str
    published: str
    measured: str
    verdict: str
    note: str = ""
    recorded: str = ""

    @property
    def badge(self) -> str:
        """The kind of the verdict's badge."""
        return BADGES[self.verdict]

    def to_dict(self) -> dict[str, str | int]:
        """Return the judgement as a dictionary of JSON values."""
        return {
            "id": self.id,
            "number": self.number,
            "finding": self.finding,
            "published": self.published,
            "measured": self.measured,
            "verdict": self.verdict,
            "note": self.note,
            "as_recorded": self.recorded,
        }


def by_share(count: int, of: int, then: int, then_of: int) -> str:
    """Judge a finding that `count` of `of` applications show; in 2015 `then` of `then_of` showed it.

    >>> [by_share(count, 4, 15, 18) for count in (4, 3, 2, 1, 0)]
    ['still true', 'still true', 'in part', 'no longer', 'no longer']
    """
    needed = max(1, round(of * then / then_of))
    return STILL if count >= needed else PART if 2 * count >= needed else NO


def by_majority(count: int, of: int) -> str:
    """Judge a finding that has to hold for more than half of the applications.

    >>> [by_majority(count, 4) for count in (4, 3, 2, 1)]
    ['still true', 'still true', 'no longer', 'no longer']
    """
    return STILL if 2 * count > of else NO


def of_parts(verdicts: Sequence[str]) -> str:
    """Judge a finding of several parts by whether all of them hold, some, or none."""
    if all(verdict == STILL for verdict in verdicts):
        return STILL
    return NO if all(verdict == NO for verdict in verdicts) else PART


def verdicts_of(findings: Sequence[Finding]) -> dict[int, str]:
    """Return the verdict of each characteristic or implication by its number."""
    numbers = dict.fromkeys(finding.number for finding in findings)
    return {
        number: of_parts([finding.verdict for finding in findings if finding.number == number])
        for number in numbers
    }


def counted(verdicts: dict[int, str]) -> dict[str, int]:
    """Count each of the three verdicts."""
    return {verdict: sum(one == verdict for one in verdicts.values()) for verdict in BADGES}


def listed(values: dict[str, float], text: Callable[[float], str]) -> str:
    """Return values with their names in one line, the largest first.

    >>> listed({"PUBG": 23.31, "Telegram": 89.62}, lambda value: f"{value:.1f}")
    'Telegram 89.6, PUBG 23.3'
    """
    order = sorted(values, key=lambda name: -values[name])
    return ", ".join(f"{name} {text(values[name])}" for name in order)
