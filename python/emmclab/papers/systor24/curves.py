"""Figures of maps in small memory as functions of the memory size, from the results of `systor24`."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

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
