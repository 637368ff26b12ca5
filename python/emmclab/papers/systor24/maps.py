"""The measures that test the claims on the results of `systor24`, and figures as functions of the memory size."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import NamedTuple

from emmclab.papers.measures import Measurement, measure
from emmclab.studies.results import Results
from emmclab.studies.stored_types import Run

#: Grids of the study by application, with the application's name on the page.
APPLICATIONS = {"cod": "Call of Duty", "genshin_impact": "Genshin Impact", "pubg": "PUBG", "telegram": "Telegram"}
#: The device on which claims are judged, and the device that packs small writes.
DEVICE, PACKED = "systor24-clustered", "systor24-packed"
#: LeaFTL with approximate segments, in addition to the schemes themselves.
GAMMA = "leaftl, gamma 4"
SCHEMES = ("dftl", "tpftl", "leaftl", GAMMA, "rqftl")
#: Size of a map entry of DFTL, bytes.
_ENTRY_BYTES = 8


class Point(NamedTuple):
    """A run, and its memory for entries of the map, KB."""

    kb: int
    run: Run


#: A function that returns a figure of a run.
Figure = Callable[[Run], float]


def miss_pct(run: Run) -> float:
    """Return the percentage of requests that needed a read of a map page; 0 if the whole map is in memory."""
    return float(run["map"]["request_miss_pct"] or 0.0)


def map_reads(run: Run) -> float:
    """Return the number of map pages that were read."""
    return float(run["flash"]["page_reads"]["map"])


def points(results: Results, application: str, scheme: str, device: str = DEVICE) -> list[Point]:
    """Return the runs of a scheme on a trace, in ascending order of memory."""
    if scheme == "dftl":
        runs = results.select(f"{application}-dftl", device=device)
        found = [Point(run["settings"]["mapping.cached_entries"] * _ENTRY_BYTES // 1024, run) for run in runs]
    else:
        of = {DEVICE: "", PACKED: "-packed"}[device] if scheme != GAMMA else "-gamma"
        wanted = "leaftl" if scheme == GAMMA else scheme
        found = [
            Point(run["settings"]["mapping.map_cache_kb"], run)
            for run in results.select(application + of, device=device)
            if run["settings"]["mapping.scheme"] == wanted
        ]
    return sorted(found, key=lambda point: point.kb)


def at(found: Sequence[Point], kb: int) -> Run:
    """Return the run with this much memory."""
    return next(point.run for point in found if point.kb == kb)


class Needed(NamedTuple):
    """Memory that a scheme needs, KB. If `beyond`, the true value is outside of the tried range."""

    kb: float
    beyond: bool = False


def needed(found: Sequence[Point], wanted: float, figure: Figure = miss_pct) -> Needed:
    """Return the least memory at which a figure is at most `wanted`.

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
    for point in found:
        value = figure(point.run)
        if value <= wanted:
            if before is None:
                return Needed(float(point.kb), beyond=value < wanted)
            above = figure(before.run)
            part = (above - wanted) / (above - value)
            return Needed(before.kb * math.pow(point.kb / before.kb, part))
        before = point
    return Needed(float(found[-1].kb), beyond=True)


#: Memory sizes at which claims are judged, in KB. They were chosen before there were any results.
SIZES_KB = (64, 128, 256, 512, 1024)


class Found(NamedTuple):
    """The value for a trace with this much memory. `beyond`: it is a bound, outside of the tried sizes."""

    application: str
    kb: int
    value: float
    beyond: bool = False


def lower_miss(results: Results, other: str, device: str = DEVICE, figure: Figure = miss_pct) -> list[Found]:
    """Return by how many percent RQFTL's figure is lower than that of another scheme with the same memory."""
    found = []
    for application in APPLICATIONS:
        ours = points(results, application, "rqftl", device)
        theirs = points(results, application, other, device)
        for kb in SIZES_KB:
            base = figure(at(theirs, kb))
            lower = 100 * (1 - figure(at(ours, kb)) / base) if base else 0.0
            found.append(Found(application, kb, lower))
    return found


def effective(results: Results, other: str, device: str = DEVICE) -> list[Found]:
    """Return the memory that another scheme needs for the same miss rate, as a multiple of that of RQFTL."""
    found = []
    for application in APPLICATIONS:
        ours = points(results, application, "rqftl", device)
        theirs = points(results, application, other, device)
        for kb in SIZES_KB:
            same = needed(theirs, miss_pct(at(ours, kb)))
            found.append(Found(application, kb, same.kb / kb, same.beyond))
    return found


def saved(results: Results, device: str = DEVICE) -> list[Found]:
    """Return how much of LeaFTL's memory RQFTL saves at the same miss rate, in percent."""
    found = []
    for application in APPLICATIONS:
        ours = points(results, application, "rqftl", device)
        theirs = points(results, application, "leaftl", device)
        for kb in SIZES_KB:
            same = needed(ours, miss_pct(at(theirs, kb)))
            found.append(Found(application, kb, 100 * (1 - same.kb / kb), same.beyond))
    return found


def _values(found: Iterable[Found]) -> list[float]:
    return [one.value for one in found]


def _range(found: Iterable[Found], unit: str) -> str:
    values = _values(found)
    return f"{min(values):.1f} to {max(values):.1f}{unit}"


def _by_application(found: list[Found], unit: str) -> str:
    """Describe the mean and the range of each trace."""
    said = []
    for application, name in APPLICATIONS.items():
        own = [one for one in found if one.application == application]
        said.append(f"{name} {fmean(_values(own)):.1f}{unit} ({_range(own, unit)})")
    return ", ".join(said)


def _beyond(found: list[Found]) -> Iterator[str]:
    """Describe how many values are only bounds."""
    count = sum(one.beyond for one in found)
    if count:
        yield (
            f"In {count} of {len(found)} cases the memory lies beyond the sizes that were tried, and the "
            "nearest counts."
        )


def _than(lower: float, less: str = "lower", more: str = "higher") -> str:
    """Describe by how much a figure is lower, or higher if the difference is negative."""
    return f"{abs(lower):.0f} % {less if lower >= 0 else more}"


def _miss(results: Results, other: str) -> Measurement:
    own, packed = lower_miss(results, other), lower_miss(results, other, PACKED)
    reads = fmean(_values(lower_miss(results, other, figure=map_reads)))
    lower = fmean(_values(own))
    return Measurement(
        f"{_than(lower)} (mean of {len(own)}; reductions of {_range(own, ' %')})",
        {"lower_pct": lower},
        f"Reduction by trace, over {_sizes()}: {_by_application(own, ' %')}. Of page reads of the map "
        f"there are {_than(reads, 'fewer', 'more')}. Where small writes are packed, on {PACKED}, the "
        f"miss rate is {_than(fmean(_values(packed)))} (reductions of {_range(packed, ' %')}).",
    )


def _written(results: Results) -> str:
    """Describe the share of writes of each trace, and in how many cases neither scheme had a miss."""
    shares = ", ".join(
        f"{name} {results.profiles[f'{application}_exec']['write_requests_pct']:.0f} %"
        for application, name in APPLICATIONS.items()
    )
    return (
        "RQFTL misses less than LeaFTL where applications mostly read, and more where they write (share of "
        f"writes in the requests: {shares}). A small write is a run of 11 bytes for RQFTL and a segment of 8 "
        "for LeaFTL, and a miss of LeaFTL brings the segments of 256 units along, one of RQFTL a single run."
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
    found = _miss(results, "leaftl")
    none = sum(
        not miss_pct(at(points(results, application, "leaftl"), kb)) for application in APPLICATIONS for kb in SIZES_KB
    )
    return replace(
        found,
        note=f"{found.note} {_written(results)} In {none} of {len(APPLICATIONS) * len(SIZES_KB)} cases "
        "LeaFTL misses nothing, and the reduction counts as 0.",
    )


@measure
def effective_dftl(results: Results) -> Measurement:
    """Measure the memory that DFTL needs for RQFTL's miss rate."""
    own, packed = effective(results, "dftl"), effective(results, "dftl", PACKED)
    return Measurement(
        f"{median(_values(own)):.1f} times (median of {len(own)}; {_range(own, '')})",
        {"times": median(_values(own))},
        " ".join(
            [
                f"By trace, over {_sizes()}: {_by_application(own, '')}.",
                *_beyond(own),
                f"On {PACKED} {median(_values(packed)):.1f} times ({_range(packed, '')}).",
            ]
        ),
    )


@measure
def effective_leaftl(results: Results) -> Measurement:
    """Measure the memory that LeaFTL needs for RQFTL's miss rate."""
    own, packed = effective(results, "leaftl"), effective(results, "leaftl", PACKED)
    most = max(own, key=lambda one: one.value)
    return Measurement(
        f"up to {most.value:.1f} times ({APPLICATIONS[most.application]}, {most.kb} KB; "
        f"median {median(_values(own)):.1f})",
        {"most_times": most.value},
        " ".join(
            [
                f"By trace, over {_sizes()}: {_by_application(own, '')}.",
                *_beyond(own),
                f"On {PACKED} up to {max(_values(packed)):.1f} times (median {median(_values(packed)):.1f}).",
            ]
        ),
    )


@measure
def memory_saved(results: Results) -> Measurement:
    """Measure the memory that RQFTL saves compared with LeaFTL."""
    own, packed = saved(results), saved(results, PACKED)
    less = median(_values(own))
    return Measurement(
        f"{_than(less, 'less', 'more')} (median of {len(own)}; savings of {_range(own, ' %')})",
        {"saved_pct": less},
        " ".join(
            [
                f"Memory with which RQFTL has the miss rate of LeaFTL; by trace, over {_sizes()}: "
                f"{_by_application(own, ' %')}.",
                *_beyond(own),
                f"On {PACKED} {_than(median(_values(packed)), 'less', 'more')} ({_range(packed, ' %')}).",
            ]
        ),
    )
