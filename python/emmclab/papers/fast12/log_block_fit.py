"""Fits one free parameter of the talk's cards: the number of log blocks that best matches axes and spreads.

The published figures of six cards do not determine how many log blocks they have (`bast`). The search tries
each number of the study's grid on all six cards. For each number it computes how far the applications are
from the axes of slides 18 to 20 and from the published spreads. As a cross-validation, one application at a
time is held out: the number is chosen on the other applications, and the choice is judged on the talk's
figures for the held-out one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log2

from emmclab.papers.fast12.applications import (
    INTERNAL,
    KINGSTON,
    LOG_BLOCKS,
    LOG_BLOCKS_KEY,
    OTHERS,
    WEBBENCH,
    fits_axis,
    runs_of,
    seconds,
    spread,
)
from emmclab.papers.measures import table
from emmclab.studies.results import Results

#: The published spreads, percent, widened by 20 % at both ends as in the claims on them.
_SPREADS, _SPREAD_OF_WEBBENCH = (80.0, 360.0), (160.0, 240.0)


def _octaves(value: float, least: float, most: float) -> float:
    """Return how far a value is outside of its bounds, in octaves: 1 if it is off by a factor of two."""
    return max(0.0, log2(least / value), log2(value / most))


@dataclass(frozen=True)
class Point:
    """Run times of an application on the seven cards other than Kingston, for one number of log blocks."""

    slowest_s: float
    #: The length of the chart's axis. The longest bar should be between half of the axis and the whole axis.
    axis_s: float
    spread_pct: float
    published_pct: tuple[float, float]

    @property
    def on_axis(self) -> bool:
        """Whether the slowest card fits the axis."""
        return fits_axis(self.slowest_s, self.axis_s)

    @property
    def as_spread(self) -> bool:
        """Whether the spread is within the published range."""
        return self.published_pct[0] <= self.spread_pct <= self.published_pct[1]

    @property
    def miss(self) -> float:
        """How far run time and spread are from the published values, in octaves."""
        least, most = (1 + pct / 100 for pct in self.published_pct)
        axis = _octaves(self.slowest_s, self.axis_s / 2, self.axis_s)
        return axis + _octaves(1 + self.spread_pct / 100, least, most)

    @property
    def length(self) -> float:
        """The factor on the program's length with which the slowest card ends at 3/4 of the axis."""
        return 0.75 * self.axis_s / self.slowest_s


#: Points by application, then by number of log blocks.
Points = Mapping[str, Mapping[int, Point]]


def counts(results: Results) -> list[int]:
    """Return the numbers of log blocks that were tried."""
    return sorted({run["settings"][LOG_BLOCKS_KEY] for run in results.select(LOG_BLOCKS)})


def points(results: Results) -> Points:
    """Return the points of every application that has an axis, for every number of log blocks."""
    found: dict[str, dict[int, Point]] = {}
    for row in table("fast12_axes"):
        if row["with_kingston"] == "yes":
            continue
        name = row["application"]
        found[name] = {}
        for count in counts(results):
            runs = runs_of(results, name, "wifi", count)
            found[name][count] = Point(
                max(seconds(runs[card]) for card in OTHERS),
                float(row["axis_s"]),
                spread(runs, OTHERS),
                _SPREAD_OF_WEBBENCH if name == WEBBENCH else _SPREADS,
            )
    return found


def miss(found: Points, count: int, without: Iterable[str] = ()) -> float:
    """Return how far all applications are from the talk with this number of log blocks, in octaves."""
    return sum(by_count[count].miss for name, by_count in found.items() if name not in without)


def best(found: Points, without: Iterable[str] = ()) -> int:
    """Return the number of log blocks that is closest to the talk; of equal ones the smaller."""
    tried = sorted(next(iter(found.values())))
    return min(tried, key=lambda count: miss(found, count, without))


def held_out(found: Points) -> dict[str, tuple[int, Point]]:
    """Return for each application the number that is best for the others, and its own point with it."""
    chosen = {name: best(found, (name,)) for name in found}
    return {name: (count, found[name][count]) for name, count in chosen.items()}


def kingston(results: Results) -> list[tuple[int, float, float]]:
    """Return WebBench on Kingston by log blocks: run time in s, and its ratio to the internal flash."""
    rows = []
    for count in counts(results):
        runs = runs_of(results, WEBBENCH, "wifi", count)
        slow = seconds(runs[KINGSTON])
        rows.append((count, slow, slow / seconds(runs[INTERNAL])))
    return rows
