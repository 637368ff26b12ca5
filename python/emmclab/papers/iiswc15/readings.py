"""The hybrid page size under every reading of the open points of the paper (IISWC 2015, section V)."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from emmclab.studies.results import Results

#: The paper's -24.0, -61.9 and -86 %, over 18 applications.
PUBLISHED = {"worst": 24.0, "mean": 61.9, "best": 86.0}
PARTS: dict[str, Callable[[list[float]], float]] = {"worst": min, "mean": statistics.mean, "best": max}
_WAYS = {"none": "chip", "interleave": "die", "multi_plane": "die's planes", "both": "plane"}


@dataclass(frozen=True)
class Reading:
    """Points that the paper leaves open: parallelism, completion of writes, loop."""

    parallelism: str
    write_complete: str
    mode: str
    #: SSDsim's rules: its bus, and its order of reads before writes.
    ssdsim: bool = False

    @property
    def text(self) -> str:
        """The reading in words."""
        if self.ssdsim:
            return f"SSDsim's bus, reads first, complete when transferred, parallel by {self.way}"
        return f"{self.mode} loop, writes complete when {self.write_complete}, parallel by {self.way}"

    @property
    def label(self) -> str:
        """The reading in a few words, for an axis."""
        return f"SSDsim, {self.way}" if self.ssdsim else f"{self.mode}, {self.write_complete}, {self.way}"

    @property
    def way(self) -> str:
        """The way, which does one thing at a time, in words."""
        return _WAYS[self.parallelism]


#: "We implement the HPS scheme in SSDsim" (section V): its rules, and its replay of recorded times.
PRIMARY = Reading("none", "transferred", "open", ssdsim=True)
#: The same but for bus, aligned pages and order: the nearest of the readings that leave SSDsim out.
SIMPLE = Reading("none", "transferred", "open")
#: Completion as on a device without a write buffer; the setting of the presets.
STRICT = Reading("none", "programmed", "open")
ALL = [
    Reading(way, complete, mode)
    for mode, complete, way in itertools.product(("open", "closed"), ("programmed", "transferred"), _WAYS)
] + [Reading(way, "transferred", "open", ssdsim=True) for way in _WAYS]
#: Grids of the devices under SSDsim's rules.
_SSDSIM = {"iiswc15-4ps": "ssdsim-4k", "iiswc15-8ps": "ssdsim-8k", "iiswc15-hps": "ssdsim-hps"}


def _runs(results: Results, reading: Reading, device: str) -> dict[str, dict[str, Any]]:
    if reading.ssdsim:
        return {
            run["input"]: run
            for run in results.select(_SSDSIM[device])
            if run["settings"]["timing.parallelism"] == reading.parallelism
        }
    wanted = {"timing.parallelism": reading.parallelism, "timing.write_complete": reading.write_complete}
    runs = results.select("hybrid", device=device, mode=reading.mode)
    return {run["input"]: run for run in runs if run["settings"] == wanted}


def mean_responses(results: Results, reading: Reading, device: str) -> dict[str, float]:
    """Mean response in ms by input."""
    return {
        name: run["response"]["mean_response_ms"] for name, run in _runs(results, reading, device).items()
    }


def reductions(results: Results, reading: Reading, against: str = "iiswc15-4ps") -> dict[str, float]:
    """Percent by which hybrid pages shorten the mean response, by application."""
    base, hybrid = (mean_responses(results, reading, device) for device in (against, "iiswc15-hps"))
    return {name: 100 * (1 - hybrid[name] / base[name]) for name in results.applications}


def readings(results: Results) -> dict[Reading, dict[str, float]]:
    """The three published figures under every reading."""
    found = {reading: [*reductions(results, reading).values()] for reading in ALL}
    return {reading: {part: of(gains) for part, of in PARTS.items()} for reading, gains in found.items()}


def nearest(found: dict[Reading, dict[str, float]]) -> Reading:
    """The reading with the smallest distance from the three published figures, in points."""
    return min(
        found,
        key=lambda reading: math.dist(
            list(found[reading].values()), [PUBLISHED[part] for part in found[reading]]
        ),
    )


def utilisation(results: Results, name: str) -> dict[str, float]:
    """Space utilisation of the three devices; it does not depend on the reading."""
    return {
        device: _runs(results, STRICT, f"iiswc15-{device}")[name]["space"]["space_utilisation"]
        for device in ("4ps", "8ps", "hps")
    }
