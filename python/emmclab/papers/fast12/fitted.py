"""The cards of the talk under one free parameter: which number of log blocks meets axes and spreads best.

The published figures of six cards leave open how many blocks of theirs are written as logs (`bast`). The
search tries each number of the study's grid on all six at once and asks how far the applications are from the
axes of slides 18 to 20 and from the published spreads. One application at a time is held out: the number is
chosen on the others, and the talk's figures of this one are what the choice is judged by.
"""

from __future__ import annotations

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
from emmclab.papers.measuring import table
from emmclab.studies.results import Results

#: The published spreads, percent, with 20 % at both ends as the claims on them have it.
_SPREADS, _SPREAD_OF_WEBBENCH = (80.0, 360.0), (160.0, 240.0)


def _octaves(value: float, least: float, most: float) -> float:
    """Return how far a value is outside of its bounds, in octaves: 1 for twice as much or half as much."""
    return max(0.0, log2(least / value), log2(value / most))


@dataclass(frozen=True)
class Point:
    """An application over the seven cards without Kingston, with one number of log blocks."""

    slowest_s: float
    #: The end of the axis of its chart, which the longest bar is between half of and the whole.
    axis_s: float
    spread_pct: float
    published_pct: tuple[float, float]

    @property
    def on_axis(self) -> bool:
        """Whether the slowest card fits the axis."""
        return fits_axis(self.slowest_s, self.axis_s)

    @property
    def as_spread(self) -> bool:
        """Whether the spread is as published."""
        return self.published_pct[0] <= self.spread_pct <= self.published_pct[1]

    @property
    def miss(self) -> float:
        """How far run time and spread are from what is published, in octaves."""
        least, most = (1 + pct / 100 for pct in self.published_pct)
        axis = _octaves(self.slowest_s, self.axis_s / 2, self.axis_s)
        return axis + _octaves(1 + self.spread_pct / 100, least, most)

    @property
    def length(self) -> float:
        """How much longer the program had to be for the slowest card to end at three quarters of the axis."""
        return 0.75 * self.axis_s / self.slowest_s


#: Points by application and number of log blocks.
Points = Mapping[str, Mapping[int, Point]]


def counts(results: Results) -> list[int]:
    """Return the numbers of log blocks that were tried."""
    return sorted({run["settings"][LOG_BLOCKS_KEY] for run in results.select(LOG_BLOCKS)})


def points(results: Results) -> Points:
    """Return every application that has an axis, with every number of log blocks."""
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
    """Return how far all applications are from the talk with a number of log blocks, in octaves."""
    return sum(by_count[count].miss for name, by_count in found.items() if name not in without)


def best(found: Points, without: Iterable[str] = ()) -> int:
    """Return the number of log blocks that misses the talk least; the smaller one of two that are equal."""
    tried = sorted(next(iter(found.values())))
    return min(tried, key=lambda count: miss(found, count, without))


def held_out(found: Points) -> dict[str, tuple[int, Point]]:
    """Return for each application the number that is best for the others, and where it puts this one."""
    chosen = {name: best(found, (name,)) for name in found}
    return {name: (count, found[name][count]) for name, count in chosen.items()}


def kingston(results: Results) -> list[tuple[int, float, float]]:
    """Return WebBench on Kingston by log blocks: run time, s, and times that of the internal flash."""
    rows = []
    for count in counts(results):
        runs = runs_of(results, WEBBENCH, "wifi", count)
        slow = seconds(runs[KINGSTON])
        rows.append((count, slow, slow / seconds(runs[INTERNAL])))
    return rows
