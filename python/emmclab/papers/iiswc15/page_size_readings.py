"""The hybrid page size under every reading of the open points of the paper (IISWC 2015, section V)."""

import itertools
import math
import statistics
from collections.abc import Callable, Collection
from dataclasses import dataclass

from emmclab.studies.results import Results
from emmclab.studies.stored_types import Run

#: The paper's -24.0, -61.9 and -86 %, over 18 applications.
PUBLISHED = {"worst": 24.0, "mean": 61.9, "best": 86.0}
PARTS: dict[str, Callable[[list[float]], float]] = {"worst": min, "mean": statistics.mean, "best": max}
_WAYS = {"none": "chip", "interleave": "die", "multi_plane": "die's planes", "both": "plane"}


@dataclass(frozen=True)
class Reading:
    """One interpretation of what the paper leaves open: parallelism, completion of writes, loop."""

    parallelism: str
    write_complete: str
    mode: str
    #: Whether SSDsim's rules apply: its bus, and its order of reads before writes.
    ssdsim: bool = False

    @property
    def text(self) -> str:
        """The reading in words."""
        if self.ssdsim:
            return f"SSDsim's bus, reads first, complete when transferred, parallel by {self.way}"
        return f"{self.mode} loop, writes complete when {self.write_complete}, parallel by {self.way}"

    @property
    def label(self) -> str:
        """The reading in a few words, for the axis of a chart."""
        return f"SSDsim, {self.way}" if self.ssdsim else f"{self.mode}, {self.write_complete}, {self.way}"

    @property
    def way(self) -> str:
        """The unit of parallelism, which does one thing at a time, in words."""
        return _WAYS[self.parallelism]


#: "We implement the HPS scheme in SSDsim" (section V): its rules, and its replay of recorded times.
PRIMARY = Reading("none", "transferred", "open", ssdsim=True)
#: The same except for bus and order: the nearest of the readings without SSDsim's rules.
SIMPLE = Reading("none", "transferred", "open")
#: Completion as on a device without a write buffer, which is the setting of the presets.
STRICT = Reading("none", "programmed", "open")
ALL = [
    Reading(way, complete, mode)
    for mode, complete, way in itertools.product(("open", "closed"), ("programmed", "transferred"), _WAYS)
] + [Reading(way, "transferred", "open", ssdsim=True) for way in _WAYS]
FOUR, EIGHT, HYBRID = "iiswc15-4ps", "iiswc15-8ps", "iiswc15-hps"
#: The other reading of the 8 KB device, only under SSDsim's rules: its pages begin at multiples of 8 KB, and
#: a partial page is read, modified and written. The paper splits a write by its size alone ("20 KB ... 3
#: sub-requests"), so all claims are judged on `EIGHT`, whose pages take units of 4 KB from any address.
EIGHT_ALIGNED = "iiswc15-8ps, aligned"
#: Grids of the devices under SSDsim's rules.
_SSDSIM = {FOUR: "ssdsim-4k", EIGHT: "ssdsim-8k", EIGHT_ALIGNED: "ssdsim-8k-aligned", HYBRID: "ssdsim-hps"}


def _runs(results: Results, reading: Reading, device: str, among: Collection[str] | None) -> dict[str, Run]:
    if reading.ssdsim:
        return {
            run["input"]: run
            for run in results.select(_SSDSIM[device], among=among)
            if run["settings"]["timing.parallelism"] == reading.parallelism
        }
    wanted = {"timing.parallelism": reading.parallelism, "timing.write_complete": reading.write_complete}
    runs = results.select("hybrid", among=among, device=device, mode=reading.mode)
    return {run["input"]: run for run in runs if run["settings"] == wanted}


def mean_responses(
    results: Results, reading: Reading, device: str, among: Collection[str] | None = None
) -> dict[str, float]:
    """Return the mean response in ms by input; `among` restricts the inputs."""
    runs = _runs(results, reading, device, among)
    return {name: run["response"]["mean_response_ms"] for name, run in runs.items()}


def reductions(results: Results, reading: Reading, against: str = FOUR) -> dict[str, float]:
    """Return by how many percent hybrid pages shorten the mean response, by application."""
    base, hybrid = (mean_responses(results, reading, device, results.applications) for device in (against, HYBRID))
    return {name: 100 * (1 - hybrid[name] / base[name]) for name in results.applications}


def readings(results: Results) -> dict[Reading, dict[str, float]]:
    """Return the three published figures as computed under every reading."""
    found = {reading: [*reductions(results, reading).values()] for reading in ALL}
    return {reading: {part: of(gains) for part, of in PARTS.items()} for reading, gains in found.items()}


def nearest(found: dict[Reading, dict[str, float]]) -> Reading:
    """Return the reading that is closest to the three published figures, in percentage points."""
    return min(
        found,
        key=lambda reading: math.dist(list(found[reading].values()), [PUBLISHED[part] for part in found[reading]]),
    )


def utilisation(results: Results, name: str, eight: str = EIGHT) -> dict[str, float]:
    """Return the space utilisation of the three devices; of the open points, only the 8 KB device matters."""
    return {
        label: _runs(results, PRIMARY, device, [name])[name]["space"]["space_utilisation"]
        for label, device in (("4ps", FOUR), ("8ps", eight), ("hps", HYBRID))
    }


def over_8ps(results: Results, eight: str = EIGHT) -> dict[str, list[float]]:
    """Return how much better hybrid pages use space than 8 KB pages, in percentage points and in percent.

    Both lists are in the order of the applications.
    """
    use = [utilisation(results, name, eight) for name in results.applications]
    return {
        "points": [100 * (one["hps"] - one["8ps"]) for one in use],
        "ratio": [100 * (one["hps"] / one["8ps"] - 1) for one in use],
    }


def mean_gains_over_8ps(results: Results) -> dict[str, float]:
    """Return by how many percent hybrid pages shorten the mean response of 8 KB pages, over all readings."""
    devices = [(reading, EIGHT) for reading in ALL]
    devices += [(reading, EIGHT_ALIGNED) for reading in ALL if reading.ssdsim]
    return {
        reading.text + (", aligned pages" if eight == EIGHT_ALIGNED else ""): statistics.mean(
            reductions(results, reading, eight).values()
        )
        for reading, eight in devices
    }
