"""Tests the paper's claims with the results of the study `systor24`: figures as functions of the memory size."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import NamedTuple

from emmclab.papers.measures import Measurement, measure
from emmclab.studies.results import Results
from emmclab.studies.stored_types import Run

#: Groups of runs (grids) of the study, one for each application, with the application's name on the page.
APPLICATIONS = {"cod": "Call of Duty", "genshin_impact": "Genshin Impact", "pubg": "PUBG", "telegram": "Telegram"}
#: The preset on which the claims are checked, and the preset whose device packs small writes into one page.
DEVICE, PACKED = "systor24-clustered", "systor24-packed"
#: LeaFTL with approximate segments.
GAMMA = "leaftl, gamma 4"
SCHEMES = ("dftl", "tpftl", "leaftl", GAMMA, "rqftl")
#: Size of an entry of DFTL's mapping table, bytes.
_ENTRY_BYTES = 8


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


def points(results: Results, application: str, scheme: str, device: str = DEVICE) -> list[Point]:
    """Return the runs of a mapping scheme on a trace, sorted by memory size."""
    if scheme == "dftl":
        runs = results.select(f"{application}-dftl", device=device)
        runs_by_memory = [Point(run.settings["mapping.cached_entries"] * _ENTRY_BYTES // 1024, run) for run in runs]
    else:
        of = {DEVICE: "", PACKED: "-packed"}[device] if scheme != GAMMA else "-gamma"
        mapping_scheme = "leaftl" if scheme == GAMMA else scheme
        runs_by_memory = [
            Point(run.settings["mapping.map_cache_kb"], run)
            for run in results.select(application + of, device=device)
            if run.settings["mapping.scheme"] == mapping_scheme
        ]
    return sorted(runs_by_memory, key=lambda point: point.kb)


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


def lower_miss(results: Results, other: str, device: str = DEVICE, figure: Figure = miss_pct) -> list[MemoryValue]:
    """Return the reduction of a figure by RQFTL in percent, compared with another scheme with equal memory."""
    reductions = []
    for application in APPLICATIONS:
        ours = points(results, application, "rqftl", device)
        theirs = points(results, application, other, device)
        for kb in SIZES_KB:
            base = figure(at(theirs, kb))
            lower = 100 * (1 - figure(at(ours, kb)) / base) if base else 0.0
            reductions.append(MemoryValue(application, kb, lower))
    return reductions


def effective(results: Results, other: str, device: str = DEVICE) -> list[MemoryValue]:
    """Return the memory that another scheme needs for RQFTL's miss rate, as a multiple of RQFTL's memory."""
    ratios = []
    for application in APPLICATIONS:
        ours = points(results, application, "rqftl", device)
        theirs = points(results, application, other, device)
        for kb in SIZES_KB:
            needed_memory = needed(theirs, miss_pct(at(ours, kb)))
            ratios.append(MemoryValue(application, kb, needed_memory.kb / kb, needed_memory.beyond))
    return ratios


def saved(results: Results, device: str = DEVICE) -> list[MemoryValue]:
    """Return how much of LeaFTL's memory RQFTL saves at the same miss rate, in percent."""
    savings = []
    for application in APPLICATIONS:
        ours = points(results, application, "rqftl", device)
        theirs = points(results, application, "leaftl", device)
        for kb in SIZES_KB:
            needed_memory = needed(ours, miss_pct(at(theirs, kb)))
            savings.append(MemoryValue(application, kb, 100 * (1 - needed_memory.kb / kb), needed_memory.beyond))
    return savings


def _values(memory_values: Iterable[MemoryValue]) -> list[float]:
    return [memory_value.value for memory_value in memory_values]


def _range(memory_values: Iterable[MemoryValue], unit: str) -> str:
    values = _values(memory_values)
    return f"{min(values):.1f} to {max(values):.1f}{unit}"


def _by_application(memory_values: list[MemoryValue], unit: str) -> str:
    """Return a text with the mean and the range of the values for each trace."""
    texts = []
    for application, name in APPLICATIONS.items():
        of_application = [memory_value for memory_value in memory_values if memory_value.application == application]
        texts.append(f"{name} {fmean(_values(of_application)):.1f}{unit} ({_range(of_application, unit)})")
    return ", ".join(texts)


def _beyond(memory_values: list[MemoryValue]) -> Iterator[str]:
    """Yield a sentence that counts the values outside the tried memory sizes; nothing if there are none."""
    count = sum(memory_value.beyond for memory_value in memory_values)
    if count:
        yield (
            f"In {count} of {len(memory_values)} cases the memory is outside the tried sizes, and the nearest "
            "size is used."
        )


def _than(lower: float, less: str = "lower", more: str = "higher") -> str:
    """Describe by how much a figure is lower, or higher if the difference is negative."""
    return f"{abs(lower):.0f} % {less if lower >= 0 else more}"


def _miss(results: Results, other: str) -> Measurement:
    reductions, packed = lower_miss(results, other), lower_miss(results, other, PACKED)
    reads = fmean(_values(lower_miss(results, other, figure=map_reads)))
    lower = fmean(_values(reductions))
    return Measurement(
        f"{_than(lower)} (mean of {len(reductions)}; reductions of {_range(reductions, ' %')})",
        {"lower_pct": lower},
        f"Reduction by trace, over {_sizes()}: {_by_application(reductions, ' %')}. Page reads of the map "
        f"are {_than(reads, 'fewer', 'more')}. On {PACKED}, which packs small writes, the "
        f"miss rate is {_than(fmean(_values(packed)))} (reductions of {_range(packed, ' %')}).",
    )


def _written(results: Results) -> str:
    """Describe each trace's share of writes, and what a small write and a miss cost in RQFTL and LeaFTL."""
    shares = ", ".join(
        f"{name} {results.profiles[f'{application}_exec']['write_requests_pct']:.0f} %"
        for application, name in APPLICATIONS.items()
    )
    return (
        "RQFTL misses less than LeaFTL where applications mostly read, and more where they write (share of "
        f"writes in the requests: {shares}). A small write is a run of 11 bytes for RQFTL and a segment of 8 "
        "for LeaFTL, and a miss of LeaFTL reads the segments of 256 units, a miss of RQFTL a single run."
    )


def _sizes() -> str:
    return f"{SIZES_KB[0]} KB to {SIZES_KB[-1] // 1024} MB"


@measure
def miss_dftl(results: Results) -> Measurement:
    """Compare the miss rate of RQFTL with that of DFTL."""
    return _miss(results, "dftl")


@measure
def miss_leaftl(results: Results) -> Measurement:
    """Compare the miss rate of RQFTL with that of LeaFTL."""
    measurement = _miss(results, "leaftl")
    none = sum(
        not miss_pct(at(points(results, application, "leaftl"), kb)) for application in APPLICATIONS for kb in SIZES_KB
    )
    return replace(
        measurement,
        note=f"{measurement.note} {_written(results)} In {none} of {len(APPLICATIONS) * len(SIZES_KB)} cases "
        "LeaFTL has no misses, and the reduction is counted as 0.",
    )


@measure
def effective_dftl(results: Results) -> Measurement:
    """Measure the memory that DFTL needs for RQFTL's miss rate."""
    ratios, packed = effective(results, "dftl"), effective(results, "dftl", PACKED)
    return Measurement(
        f"{median(_values(ratios)):.1f} times (median of {len(ratios)}; {_range(ratios, '')})",
        {"times": median(_values(ratios))},
        " ".join(
            [
                f"By trace, over {_sizes()}: {_by_application(ratios, '')}.",
                *_beyond(ratios),
                f"On {PACKED} {median(_values(packed)):.1f} times ({_range(packed, '')}).",
            ]
        ),
    )


@measure
def effective_leaftl(results: Results) -> Measurement:
    """Measure the memory that LeaFTL needs for RQFTL's miss rate."""
    ratios, packed = effective(results, "leaftl"), effective(results, "leaftl", PACKED)
    most = max(ratios, key=lambda ratio: ratio.value)
    return Measurement(
        f"up to {most.value:.1f} times ({APPLICATIONS[most.application]}, {most.kb} KB; "
        f"median {median(_values(ratios)):.1f})",
        {"most_times": most.value},
        " ".join(
            [
                f"By trace, over {_sizes()}: {_by_application(ratios, '')}.",
                *_beyond(ratios),
                f"On {PACKED} up to {max(_values(packed)):.1f} times (median {median(_values(packed)):.1f}).",
            ]
        ),
    )


@measure
def memory_saved(results: Results) -> Measurement:
    """Measure the memory that RQFTL saves compared with LeaFTL."""
    savings, packed = saved(results), saved(results, PACKED)
    less = median(_values(savings))
    return Measurement(
        f"{_than(less, 'less', 'more')} (median of {len(savings)}; savings of {_range(savings, ' %')})",
        {"saved_pct": less},
        " ".join(
            [
                f"Memory that RQFTL needs for the miss rate of LeaFTL; by trace, over {_sizes()}: "
                f"{_by_application(savings, ' %')}.",
                *_beyond(savings),
                f"On {PACKED} {_than(median(_values(packed)), 'less', 'more')} ({_range(packed, ' %')}).",
            ]
        ),
    )
