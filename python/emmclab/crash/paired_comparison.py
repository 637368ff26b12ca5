"""Compares two explorations: which loses data at more of its cuts, and whether that may be chance."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from emmclab.crash.explore import Exploration
from emmclab.runtime.statistics import fisher_exact

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
        return {"cuts": self.cuts, "losing": self.losing, "p": self.p, "enough": self.enough, "alpha": ALPHA}


def difference(one: Sequence[Exploration], other: Sequence[Exploration]) -> Difference:
    """Compare the recordings of two runs, cut by cut."""
    cuts = _cuts(one), _cuts(other)
    losing = _losing(one), _losing(other)
    return Difference(cuts, losing, fisher_exact(losing, cuts), _enough(losing, cuts))


def _cuts(runs: Sequence[Exploration]) -> int:
    return sum(run.covered.get("cuts", 0) for run in runs)


def _losing(runs: Sequence[Exploration]) -> int:
    return sum(tally.broken > 0 for run in runs for tally in run.verdicts.values())


def _enough(losing: tuple[int, int], cuts: tuple[int, int]) -> int | None:
    if not all(cuts) or losing[0] * cuts[1] == losing[1] * cuts[0]:
        return None
    shares = losing[0] / cuts[0], losing[1] / cuts[1]

    def shows(each: int) -> bool:
        return fisher_exact((round(shares[0] * each), round(shares[1] * each)), (each, each)) < ALPHA

    most = 2
    while not shows(most):
        most *= 2
        if most > _MOST_CUTS:
            return None
    return bisect_left(range(most + 1), True, lo=most // 2, key=shows)
