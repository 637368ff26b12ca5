"""Tests the paper's claims with the results of the study `systor24`: figures as functions of the memory size."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median
from typing import NamedTuple

from emmclab.papers.measures import Measurement, measure
from emmclab.simulation.run_options import split_precondition
from emmclab.studies.results import Results
from emmclab.studies.stored_types import Run

#: Names of applications on the page, by the word that their traces have in common; others are shown by this word.
_NAMES = {"cod": "Call of Duty", "pubg": "PUBG"}
#: The preset on which the claims are checked, and the preset whose device packs small writes into one page.
DEVICE, PACKED = "systor24-clustered", "systor24-packed"
#: RQFTL with misses that load all runs of a page of the map.
WHOLE_PAGE = "rqftl, whole page"
#: Grid of the study with the runs of each scheme, and the grids on the packed device.
_GRIDS = {"dftl": "dftl", "leaftl": "compressed", "rqftl": "compressed", WHOLE_PAGE: "page"}
_PACKED_GRIDS = {"dftl": "packed-dftl", "leaftl": "packed", "rqftl": "packed"}
SCHEMES = tuple(_GRIDS)
#: States of a device before the installation of the application: the begin of the option `precondition`, and its name.
INSTALLED, FILLED, USED = "", "sequential:100 then ", "used:1y then "
STATES = {INSTALLED: "with the installation alone", FILLED: "filled in order before", USED: "used for a year before"}
#: Size of an entry of DFTL's mapping table, bytes.
_ENTRY_BYTES = 8


@dataclass(frozen=True)
class Case:
    """A state of the device, what a miss of RQFTL loads (the name of a scheme), and a device."""

    state: str = USED
    ours: str = "rqftl"
    device: str = DEVICE

    @property
    def text(self) -> str:
        """Description of the case."""
        loads = "all runs of its page" if self.ours == WHOLE_PAGE else "one run"
        packed = f"{PACKED} " if self.device == PACKED else ""
        return f"{packed}{STATES[self.state]}, a miss loads {loads}"


#: The case on which the claims are judged. The README of the traces says that the SSD of the phone "had been heavily
#: utilized, leading to a high degree of fragmentation", which only a used device has. The abstract does not say what a
#: miss loads; one run is the least.
JUDGED = Case()
CASES = [*(Case(state, ours) for state in STATES for ours in ("rqftl", WHOLE_PAGE)), Case(device=PACKED)]


class Point(NamedTuple):
    """A run, and its memory for mapping entries in KB."""

    kb: int
    run: Run


#: A function that returns a figure of a run.
Figure = Callable[[Run], float]


def miss_pct(run: Run) -> float:
    """Return the percentage of requests that needed a read of a map page; 0 if the whole map is in memory."""
    return float(run.map.request_miss_pct or 0.0)


def map_reads(run: Run) -> float:
    """Return the number of map pages that were read."""
    return float(run.flash.page_reads.map)


def applications(results: Results) -> dict[str, str]:
    """Return the names of the applications whose traces were run, by the word that their traces have in common."""
    words = [name.removesuffix("_exec") for name in results.profiles if name.endswith("_exec")]
    return {word: _NAMES.get(word, word.replace("_", " ").title()) for word in words}


def points(results: Results, application: str, scheme: str, case: Case = JUDGED) -> list[Point]:
    """Return the runs of a mapping scheme on a trace, sorted by memory size."""
    grid = (_PACKED_GRIDS if case.device == PACKED else _GRIDS)[scheme]
    name = "rqftl" if scheme == WHOLE_PAGE else scheme
    runs_by_memory = []
    for run in results.select(grid, among=[f"{application}_exec"]):
        memory = run.settings
        if split_precondition(run.options["precondition"])[0] == case.state and memory["mapping.scheme"] == name:
            entries = memory.get("mapping.cached_entries")
            kb = memory["mapping.map_cache_kb"] if entries is None else entries * _ENTRY_BYTES // 1024
            runs_by_memory.append(Point(kb, run))
    return sorted(runs_by_memory, key=lambda point: point.kb)


def unwritten_reads(results: Results, case: Case) -> str:
    """Describe the share of the read requests that touch data that neither the traces nor the state wrote."""
    shares = [
        points(results, application, "dftl", case)[0].run.map.unwritten_request_pct or 0.0
        for application in applications(results)
    ]
    return f"{min(shares):.0f} to {max(shares):.0f} %"


def at(sorted_points: Sequence[Point], kb: int) -> Run:
    """Return the run with this much memory."""
    return next(point.run for point in sorted_points if point.kb == kb)


class Needed(NamedTuple):
    """Memory in KB that a mapping scheme needs; with `beyond`, even this largest tried size is not sufficient."""

    kb: float
    beyond: bool = False


def needed(sorted_points: Sequence[Point], target: float, figure: Figure = miss_pct) -> Needed:
    """Return the least memory at which a figure is at most `target`.

    Between two sizes the figure is interpolated linearly over the logarithm of the memory.

    >>> runs = [Point(64, {"miss": 40.0}), Point(128, {"miss": 20.0}), Point(256, {"miss": 10.0})]
    >>> needed(runs, 20.0, lambda run: run["miss"]).kb
    128.0
    >>> round(needed(runs, 30.0, lambda run: run["miss"]).kb, 1)
    90.5
    >>> needed(runs, 5.0, lambda run: run["miss"])
    Needed(kb=256.0, beyond=True)
    """
    before: Point | None = None
    for point in sorted_points:
        value = figure(point.run)
        if value <= target:
            if before is None:
                return Needed(float(point.kb), beyond=value < target)
            above = figure(before.run)
            part = (above - target) / (above - value)
            return Needed(before.kb * math.pow(point.kb / before.kb, part))
        before = point
    return Needed(float(sorted_points[-1].kb), beyond=True)


#: Memory sizes in KB at which the claims of the paper are judged. They were chosen before there were any results.
SIZES_KB = (64, 128, 256, 512, 1024)


class MemoryValue(NamedTuple):
    """A value for an application with `kb` KB of memory.

    If `beyond` is set, the exact value is outside of the tried sizes, and `value` is only a bound.
    """

    application: str
    kb: int
    value: float
    beyond: bool = False


def lower_miss(results: Results, other: str, case: Case = JUDGED, figure: Figure = miss_pct) -> list[MemoryValue]:
    """Return the reduction of a figure by RQFTL in percent, compared with another scheme with equal memory."""
    reductions = []
    for application in applications(results):
        ours, theirs = (points(results, application, scheme, case) for scheme in (case.ours, other))
        for kb in SIZES_KB:
            base = figure(at(theirs, kb))
            lower = 100 * (1 - figure(at(ours, kb)) / base) if base else 0.0
            reductions.append(MemoryValue(application, kb, lower))
    return reductions


def effective(results: Results, other: str, case: Case = JUDGED) -> list[MemoryValue]:
    """Return the memory that another scheme needs for RQFTL's miss rate, as a multiple of RQFTL's memory."""
    ratios = []
    for application in applications(results):
        ours, theirs = (points(results, application, scheme, case) for scheme in (case.ours, other))
        for kb in SIZES_KB:
            needed_memory = needed(theirs, miss_pct(at(ours, kb)))
            ratios.append(MemoryValue(application, kb, needed_memory.kb / kb, needed_memory.beyond))
    return ratios


def saved(results: Results, case: Case = JUDGED) -> list[MemoryValue]:
    """Return how much of LeaFTL's memory RQFTL saves at the same miss rate, in percent."""
    savings = []
    for application in applications(results):
        ours, theirs = (points(results, application, scheme, case) for scheme in (case.ours, "leaftl"))
        for kb in SIZES_KB:
            needed_memory = needed(ours, miss_pct(at(theirs, kb)))
            savings.append(MemoryValue(application, kb, 100 * (1 - needed_memory.kb / kb), needed_memory.beyond))
    return savings


def _values(memory_values: Iterable[MemoryValue]) -> list[float]:
    return [memory_value.value for memory_value in memory_values]


def _range(memory_values: Iterable[MemoryValue], unit: str) -> str:
    values = _values(memory_values)
    return f"{min(values):.1f} to {max(values):.1f}{unit}"


def _by_application(results: Results, memory_values: list[MemoryValue], unit: str) -> str:
    """Return a text with the mean and the range of the values for each trace, and the values outside tried sizes."""
    texts = []
    for application, name in applications(results).items():
        of_application = [memory_value for memory_value in memory_values if memory_value.application == application]
        texts.append(f"{name} {fmean(_values(of_application)):.1f}{unit} ({_range(of_application, unit)})")
    count = sum(memory_value.beyond for memory_value in memory_values)
    beyond = (
        f" In {count} of {len(memory_values)} cases the memory is outside the tried sizes, and the nearest is used."
    )
    return f"By trace, over {SIZES_KB[0]} KB to {SIZES_KB[-1] // 1024} MB: {', '.join(texts)}.{beyond if count else ''}"


def _than(lower: float, less: str = "lower", more: str = "higher") -> str:
    """Describe by how much a figure is lower, or higher if the difference is negative."""
    return f"{abs(lower):.0f} % {less if lower >= 0 else more}"


@dataclass(frozen=True)
class ClaimFigure:
    """The figure of a claim: its name in the checks, its values, how they are combined, and the combination as text."""

    value: str
    of: Callable[[Results, Case], list[MemoryValue]]
    combine: Callable[[list[float]], float]
    text: Callable[[float], str]
    about: str
    unit: str = " %"

    def in_case(self, results: Results, case: Case) -> float:
        """Return the figure of the claim in a case."""
        return self.combine(_values(self.of(results, case)))

    def measurement(self, results: Results, note: str = "") -> Measurement:
        """Return the figure in the judged case, and those in the other cases beside it."""
        values = self.of(results, JUDGED)
        value = self.combine(_values(values))
        beside = {}
        for case in CASES:
            if case != JUDGED:
                other = self.in_case(results, case)
                share = f"{unwritten_reads(results, case)} of the read requests touch data that nobody wrote"
                beside[f"{case.text} ({share}): {self.text(other)}"] = {self.value: other}
        return Measurement(
            f"{self.text(value)} ({self.about} {len(values)}; {_range(values, self.unit)}; "
            f"{unwritten_reads(results, JUDGED)} of the read requests touch data that nobody wrote)",
            {self.value: value},
            f"{_by_application(results, values, self.unit)}{note}",
            beside=beside,
        )


def _miss(other: str) -> ClaimFigure:
    return ClaimFigure("lower_pct", partial(_lower_miss, other=other), fmean, _than, "mean of", " % lower")


def _lower_miss(results: Results, case: Case, other: str) -> list[MemoryValue]:
    return lower_miss(results, other, case)


def _effective(results: Results, case: Case, other: str) -> list[MemoryValue]:
    return effective(results, other, case)


def _times(times: float) -> str:
    return f"{times:.1f} times"


#: The figures of the claims of the paper.
FIGURES = {
    "systor24-effective-dftl": ClaimFigure(
        "times", partial(_effective, other="dftl"), median, _times, "median of", " times"
    ),
    "systor24-effective-leaftl": ClaimFigure(
        "most_times", partial(_effective, other="leaftl"), max, _times, "largest of", " times"
    ),
    "systor24-miss-dftl": _miss("dftl"),
    "systor24-miss-leaftl": _miss("leaftl"),
    "systor24-sram": ClaimFigure(
        "saved_pct", saved, median, partial(_than, less="less", more="more"), "median of", " % less"
    ),
}


@measure
def miss_dftl(results: Results) -> Measurement:
    """Compare the miss rate of RQFTL with that of DFTL."""
    return FIGURES["systor24-miss-dftl"].measurement(results)


@measure
def miss_leaftl(results: Results) -> Measurement:
    """Compare the miss rate of RQFTL with that of LeaFTL."""
    none = sum(
        not miss_pct(at(points(results, application, "leaftl"), kb))
        for application in applications(results)
        for kb in SIZES_KB
    )
    return FIGURES["systor24-miss-leaftl"].measurement(
        results,
        " A miss of LeaFTL reads the segments of 256 units, a miss of RQFTL one run, so that the number of runs in a "
        "page of the map decides. RQFTL stores data that nobody wrote as one run, LeaFTL without a segment."
        + (f" In {none} cases LeaFTL has no misses, and the reduction is counted as 0." if none else ""),
    )


@measure
def effective_dftl(results: Results) -> Measurement:
    """Measure the memory that DFTL needs for RQFTL's miss rate."""
    return FIGURES["systor24-effective-dftl"].measurement(results)


@measure
def effective_leaftl(results: Results) -> Measurement:
    """Measure the memory that LeaFTL needs for RQFTL's miss rate."""
    return FIGURES["systor24-effective-leaftl"].measurement(results)


@measure
def memory_saved(results: Results) -> Measurement:
    """Measure the memory that RQFTL saves compared with LeaFTL."""
    return FIGURES["systor24-sram"].measurement(results)
