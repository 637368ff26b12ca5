"""Compares two explorations: which loses data at more of its cuts, and whether that may be chance."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from emmclab.crash.explore import Exploration

#: Significance level: p-values below it count as a difference.
ALPHA = 0.01
#: Maximum number of cuts of each run that is considered for `enough`.
_MOST_CUTS = 10_000


class DifferenceFields(TypedDict):
    """A `Difference` with the limit of `p`, as `emmclab crash --against --json` prints it."""

    cuts: tuple[int, int]
    losing: tuple[int, int]
    p: float
    enough: int | None
    alpha: float


@dataclass(frozen=True)
class Difference:
    """Comparison of the losses of two runs.

    Attributes:
        cuts: number of cuts tried, for each run.
        losing: number of cuts with a state that breaks a promise, for each run.
        p: probability of a difference as large as this one if both lose the same share (Fisher's exact test,
            two-sided).
        enough: least number of cuts of each run that shows a difference of these shares with `p` below
            `ALPHA`; `None` if the shares are equal, or more than 10,000 cuts would be needed.
    """

    cuts: tuple[int, int]
    losing: tuple[int, int]
    p: float
    enough: int | None

    def as_json(self) -> DifferenceFields:
        """Return the difference as a dictionary of JSON values."""
        return {
            "cuts": self.cuts,
            "losing": self.losing,
            "p": self.p,
            "enough": self.enough,
            "alpha": ALPHA,
        }


def difference(one: Sequence[Exploration], other: Sequence[Exploration]) -> Difference:
    """Compare the recordings of two runs, cut by cut."""
    cuts = _cuts(one), _cuts(other)
    losing = _losing(one), _losing(other)
    return Difference(cuts, losing, fisher(losing, cuts), _enough(losing, cuts))


def fisher(losing: tuple[int, int], cuts: tuple[int, int]) -> float:
    """Return the two-sided p-value of Fisher's exact test: the sum over all tables that are no likelier.

    >>> round(fisher((0, 5), (5, 5)), 6)
    0.007937
    >>> fisher((3, 3), (10, 10))
    1.0
    """
    (first, second), lost = cuts, sum(losing)
    least, most = max(0, lost - second), min(first, lost)
    if least == most:
        return 1.0
    # The ratio of each table's probability to the first one's, as integers over a common denominator.
    weight = 1
    for i in range(least):
        weight = weight * (first - i) // (i + 1)
    for i in range(lost - least):
        weight = weight * (second - i) // (i + 1)
    weights = [weight]
    for i in range(least, most):
        weight = weight * (first - i) * (lost - i) // ((i + 1) * (second - lost + i + 1))
        weights.append(weight)
    own = weights[losing[0] - least]
    return sum(one for one in weights if one <= own) / sum(weights)


def _cuts(runs: Sequence[Exploration]) -> int:
    return sum(run.covered.get("cuts", 0) for run in runs)


def _losing(runs: Sequence[Exploration]) -> int:
    return sum(tally.broken > 0 for run in runs for tally in run.verdicts.values())


def _enough(losing: tuple[int, int], cuts: tuple[int, int]) -> int | None:
    if not all(cuts) or losing[0] * cuts[1] == losing[1] * cuts[0]:
        return None
    shares = losing[0] / cuts[0], losing[1] / cuts[1]

    def shows(each: int) -> bool:
        return fisher((round(shares[0] * each), round(shares[1] * each)), (each, each)) < ALPHA

    most = 2
    while not shows(most):
        most *= 2
        if most > _MOST_CUTS:
            return None
    return bisect_left(range(most + 1), True, lo=most // 2, key=shows)
