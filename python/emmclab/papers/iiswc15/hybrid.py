"""Section V: measures hybrid pages under every interpretation of the paper, and compares recordings with copies."""

import itertools
import math
import statistics
import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

from emmclab.papers.measures import Measurement, measure, simulated
from emmclab.runtime.document import signed
from emmclab.studies.results import Results, stand_ins
from emmclab.studies.stored_types import Run
from emmclab.traces.profile import FieldDifference
from emmclab.traces.reading import read
from emmclab.traces.workload import differences

#: Reductions of the mean response time in the paper, over 18 applications, percent.
PUBLISHED = {"worst": 24.0, "mean": 61.9, "best": 86.0}
PARTS: dict[str, Callable[[list[float]], float]] = {"worst": min, "mean": statistics.mean, "best": max}
_WAYS = {"none": "chip", "interleave": "die", "multi_plane": "die's planes", "both": "plane"}


@dataclass(frozen=True)
class Reading:
    """An interpretation of what the paper leaves open.

    That is parallelism, when a write is complete, replay mode, and the pages of data that the trace reads although
    nobody wrote it.
    """

    parallelism: str
    write_complete: str
    mode: str
    #: Whether the run follows SSDsim: its model of the bus, and its order of requests, in which reads precede writes.
    ssdsim: bool = False
    #: Whether data that nobody wrote is in pages of 4 KB on the hybrid device, and not in the largest pages that a read
    #: fills.
    small: bool = False

    @property
    def text(self) -> str:
        """Description of the interpretation."""
        pages = ", unwritten data in 4 KB pages" if self.small else ""
        if self.ssdsim:
            return f"SSDsim's bus, reads first, complete when transferred, parallel by {self.way}{pages}"
        return f"{self.mode} loop, writes complete when {self.write_complete}, parallel by {self.way}{pages}"

    @property
    def label(self) -> str:
        """Short description of the interpretation, for the axis of a chart."""
        pages = ", 4 KB" if self.small else ""
        return (f"SSDsim, {self.way}" if self.ssdsim else f"{self.mode}, {self.write_complete}, {self.way}") + pages

    @property
    def way(self) -> str:
        """Name of the flash unit (such as a die) that executes one operation at a time."""
        return _WAYS[self.parallelism]


#: Main interpretation of "We implement the HPS scheme in SSDsim" (section V): the rules of SSDsim, and requests at
#: their recorded times.
PRIMARY = Reading("none", "transferred", "open", ssdsim=True)
#: The same, but data that nobody wrote is in pages of 4 KB: the public SSDsim places data that will be read before the
#: replay, logical page by logical page (`pre_process_page`).
SMALL = replace(PRIMARY, small=True)
#: An interpretation of the paper's simulation without SSDsim's model of the bus and its order of requests.
SIMPLE = Reading("none", "transferred", "open")
#: The same as `SIMPLE`, except that a write completes when it is programmed, as in presets without a write buffer.
STRICT = Reading("none", "programmed", "open")
ALL = [
    *(
        Reading(way, complete, mode, small=small)
        for small, mode, complete, way in itertools.product(
            (False, True), ("open", "closed"), ("programmed", "transferred"), _WAYS
        )
    ),
    *(Reading(way, "transferred", "open", True, small) for small in (False, True) for way in _WAYS),
]
FOUR, EIGHT, HYBRID = "iiswc15-4ps", "iiswc15-8ps", "iiswc15-hps"
#: Grid for another interpretation of the 8 KB device: pages begin at multiples of 8 KB, and a partly written page is
#: read, modified and written. The claims are judged on `EIGHT` instead. Its pages accept units of 4 KB from any
#: address, because the paper splits a write by its size alone ("20 KB ... 3 sub-requests").
EIGHT_ALIGNED = "iiswc15-8ps, aligned"
#: Name of the grid in which each device runs under the rules of SSDsim.
_SSDSIM = {FOUR: "ssdsim-4k", EIGHT: "ssdsim-8k", EIGHT_ALIGNED: "ssdsim-8k-aligned", HYBRID: "ssdsim-hps"}


def _runs(results: Results, reading: Reading, device: str, among: Collection[str] | None) -> dict[str, Run]:
    # On the other devices all pages have one size.
    small = "-small" if reading.small and device == HYBRID else ""
    if reading.ssdsim:
        return {
            run.input: run
            for run in results.select(_SSDSIM[device] + small, among=among)
            if run.settings["timing.parallelism"] == reading.parallelism
        }
    settings = {"timing.parallelism": reading.parallelism, "timing.write_complete": reading.write_complete}
    if small:
        settings["mapping.unwritten_read"] = "flash_small"
    runs = results.select(f"hybrid{small}", among=among, device=device, mode=reading.mode)
    return {run.input: run for run in runs if run.settings == settings}


def mean_responses(
    results: Results, reading: Reading, device: str, among: Collection[str] | None = None
) -> dict[str, float]:
    """Return the mean response time in ms by input; `among` restricts the inputs."""
    runs = _runs(results, reading, device, among)
    return {name: run.response.mean_response_ms for name, run in runs.items()}


def reductions(results: Results, reading: Reading, against: str = FOUR) -> dict[str, float]:
    """Return by how many percent hybrid pages shorten the mean response time, by application."""
    base, hybrid = (mean_responses(results, reading, device, results.applications) for device in (against, HYBRID))
    return {name: 100 * (1 - hybrid[name] / base[name]) for name in results.applications}


def readings(results: Results) -> dict[Reading, dict[str, float]]:
    """Return the three figures that the paper publishes, as computed under every interpretation of the paper."""
    gains_by_reading = {reading: [*reductions(results, reading).values()] for reading in ALL}
    return {reading: {part: of(gains) for part, of in PARTS.items()} for reading, gains in gains_by_reading.items()}


def nearest(figures: dict[Reading, dict[str, float]]) -> Reading:
    """Return the interpretation that is closest to the three published figures, in percentage points."""
    return min(
        figures,
        key=lambda reading: math.dist(list(figures[reading].values()), [PUBLISHED[part] for part in figures[reading]]),
    )


def utilisation(results: Results, name: str, eight: str = EIGHT) -> dict[str, float]:
    """Return the space utilisation of the devices with 4 KB, 8 KB (`eight`) and hybrid pages."""
    return {
        label: _runs(results, PRIMARY, device, [name])[name].space.space_utilisation
        for label, device in (("4ps", FOUR), ("8ps", eight), ("hps", HYBRID))
    }


def over_8ps(results: Results, eight: str = EIGHT) -> dict[str, list[float]]:
    """Return how much more space hybrid pages utilise than 8 KB pages, in percentage points and in percent.

    Both lists are in the order of the applications.
    """
    use = [utilisation(results, name, eight) for name in results.applications]
    return {
        "points": [100 * (utilised["hps"] - utilised["8ps"]) for utilised in use],
        "ratio": [100 * (utilised["hps"] / utilised["8ps"] - 1) for utilised in use],
    }


def mean_gains_over_8ps(results: Results) -> dict[str, float]:
    """Return the reduction of the mean response time by hybrid pages, compared with pages of 8 KB, in percent.

    There is a value for each interpretation of what the paper leaves open.
    """
    devices = [(reading, EIGHT) for reading in ALL]
    devices += [(reading, EIGHT_ALIGNED) for reading in ALL if reading.ssdsim]
    return {
        reading.text + (", aligned pages" if eight == EIGHT_ALIGNED else ""): statistics.mean(
            reductions(results, reading, eight).values()
        )
        for reading, eight in devices
    }


#: Applications that the paper names as the best and the worst in Figure 8.
_APPLICATION = {"best": ["Booting"], "worst": ["Movie"], "mean": []}
#: Applications whose responses the paper draws separately, on a log scale (Figure 8b).
_OUTLIERS = ("Booting", "CameraVideo", "Amazon", "Installing")
#: Mean response above which the device cannot keep up with the trace, ms.
_SATURATED_MS = 1000.0


def _reduction(results: Results, part: str) -> Measurement:
    gain_by_name = reductions(results, PRIMARY)
    value = PARTS[part]([*gain_by_name.values()])
    names = [name for name, gain in gain_by_name.items() if gain == value]
    spread = {reading: parts[part] for reading, parts in readings(results).items()}
    low, high = (of(spread, key=lambda reading: spread[reading]) for of in (min, max))
    note = f"Over all {len(spread)} readings {spread[low]:.1f} ({low.text}) to {spread[high]:.1f} % ({high.text})."
    if part == "mean":
        four, eight, aligned = (
            mean_responses(results, PRIMARY, device, results.applications) for device in (FOUR, EIGHT, EIGHT_ALIGNED)
        )
        gain, other = (
            statistics.mean(100 * (1 - pages[name] / four[name]) for name in results.applications)
            for pages in (eight, aligned)
        )
        note += (
            f" 8 KB pages instead of hybrid ones shorten it by {gain:.1f} %; if they are aligned to 8 KB, as in "
            f"the public copy of SSDsim, by {other:.1f} %."
        )
    small = reductions(results, SMALL)
    other = PARTS[part]([*small.values()])
    those = [name for name, gain in small.items() if gain == other]
    return Measurement(
        f"-{value:.1f}%" + (f" ({names[0]})" if names else ""),
        {"reduction": value, "paper_application": float(names[:1] == _APPLICATION[part])},
        note + _saturated(results),
        beside={
            f"{_IN_SMALL} -{other:.1f}%" + (f" ({those[0]})" if those else ""): {
                "reduction": other,
                "paper_application": float(those[:1] == _APPLICATION[part]),
            }
        },
    )


#: Begin of the text of a value under the reading `SMALL`.
_IN_SMALL = "if the data that nobody wrote is in pages of 4 KB, as SSDsim's public code places it, and not of 8 KB:"


def _saturated(results: Results) -> str:
    responses = mean_responses(results, PRIMARY, FOUR, results.applications)
    names = [name for name in results.applications if responses[name] > _SATURATED_MS]
    names_text = ", ".join(f"{name} ({responses[name] / 1000:.1f} s mean response)" for name in names)
    return f" Saturated on 4PS: {names_text}." if names else ""


@measure
def hybrid_best(results: Results) -> Measurement:
    """Measure the gain of hybrid pages for the application that gains most (Figure 8)."""
    return _reduction(results, "best")


@measure
def hybrid_worst(results: Results) -> Measurement:
    """Measure the gain of hybrid pages for the application that gains least (Figure 8)."""
    return _reduction(results, "worst")


@measure
def hybrid_mean(results: Results) -> Measurement:
    """Measure the mean gain of hybrid pages (Figure 8)."""
    return _reduction(results, "mean")


@measure
def hybrid_everywhere(results: Results) -> Measurement:
    """Count the applications that are faster with hybrid than with 4 KB pages (Figure 8)."""
    counts = {reading: sum(gain > 0 for gain in reductions(results, reading).values()) for reading in ALL}
    shorter = counts[PRIMARY]
    return Measurement(
        f"{shorter} of {len(results.applications)}",
        {"shorter": shorter},
        f"Over all {len(counts)} readings {min(counts.values())} to {max(counts.values())}.",
        beside={f"{_IN_SMALL} {counts[SMALL]} of {len(results.applications)}": {"shorter": counts[SMALL]}},
    )


def _slowest(results: Results, responses: dict[str, float]) -> list[str]:
    """Return the applications by mean response time, the slowest first."""
    return sorted(results.applications, key=lambda name: -responses[name])


def _outliers_among(slowest: list[str]) -> int:
    """Count how many outliers of Figure 8b are among the slowest applications.

    As many of the slowest applications are examined as there are outliers.
    """
    return sum(name in _OUTLIERS for name in slowest[: len(_OUTLIERS)])


@measure
def outliers(results: Results) -> Measurement:
    """Measure which applications have much higher mean responses than the others (Figure 8b)."""
    responses = mean_responses(results, PRIMARY, FOUR, results.applications)
    slowest = _slowest(results, responses)
    among = _outliers_among(slowest)
    counts = [
        _outliers_among(_slowest(results, mean_responses(results, reading, FOUR, results.applications)))
        for reading in ALL
    ]
    least = min(responses[name] for name in _OUTLIERS)
    most = max(responses[name] for name in results.applications if name not in _OUTLIERS)
    return Measurement(
        f"{among} of the {len(_OUTLIERS)} slowest on 4PS ({', '.join(slowest[:6])}, in this order); "
        f"least of the four {least:.1f} ms, most of the others {most:.1f} ms",
        {"among": among},
        f"Among the four slowest under all {len(counts)} readings: {min(counts)} to {max(counts)}.",
    )


@measure
def hybrid_against_8ps(results: Results) -> Measurement:
    """Compare the response times of hybrid pages with those of 8 KB pages (Figure 8)."""
    gains = reductions(results, PRIMARY, EIGHT)
    aligned = reductions(results, PRIMARY, EIGHT_ALIGNED)
    name = max(gains, key=lambda workload: abs(gains[workload]))
    spread = mean_gains_over_8ps(results)
    low, high = (of(spread, key=lambda workload: spread[workload]) for of in (min, max))
    mean, small = (statistics.mean(part.values()) for part in (gains, reductions(results, SMALL, EIGHT)))
    return Measurement(
        f"hybrid {signed(mean)} % shorter (mean); at most {signed(gains[name])} % ({name})",
        {"mean": mean},
        f"With 8 KB pages that are aligned {signed(statistics.mean(aligned.values()))} %. Over all "
        f"{len(spread)} readings {signed(spread[low])} ({low}) to {signed(spread[high])} % ({high}).",
        beside={f"{_IN_SMALL} hybrid {signed(small)} % shorter": {"mean": small}},
    )


def _utilisation(results: Results, best: bool) -> Measurement:
    of = max if best else statistics.mean
    differences = over_8ps(results)
    aligned = of(over_8ps(results, EIGHT_ALIGNED)["points"])
    value, ratio = of(differences["points"]), of(differences["ratio"])
    text, values = f"{signed(value)} points", {"points": value}
    if best:
        name = results.applications[differences["points"].index(value)]
        text += f" ({name})"
        ratio = differences["ratio"][differences["points"].index(value)]
        values["paper_application"] = float(name == "Music")
    return Measurement(
        text, values, f"As a ratio it is {signed(ratio)} %. With 8 KB pages that are aligned {signed(aligned)} points."
    )


@measure
def utilisation_best(results: Results) -> Measurement:
    """Measure the gain in space utilisation for the application that gains most (Figure 9)."""
    return _utilisation(results, best=True)


@measure
def utilisation_mean(results: Results) -> Measurement:
    """Measure the mean gain in space utilisation (Figure 9)."""
    return _utilisation(results, best=False)


@measure
def utilisation_4ps(results: Results) -> Measurement:
    """Compare the space utilisation of hybrid and 4 KB pages (Figure 9)."""
    gaps_ = [abs(use["hps"] / use["4ps"] - 1) for use in (utilisation(results, name) for name in results.applications)]
    return Measurement(f"differ by at most {100 * max(gaps_):.2f} %", {"gap": 100 * max(gaps_)})


@measure
def split_20k(_results: Results) -> Measurement:
    """Measure one write of 20 KB on the devices with 8 KB pages and with hybrid pages (Section V-A)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "write.csv"
        path.write_text("0,write,0,40\n")
        trace = read(path, format="csv", columns="arrival,op,sector,sectors", time_unit="s")
        eight, hybrid = (simulated(name, trace) for name in ("iiswc15-8ps", "iiswc15-hps"))
    used = 100 * eight.space.space_utilisation
    programs = hybrid.flash.page_programs.total
    of_hybrid = 100 * hybrid.space.space_utilisation
    return Measurement(
        f"{used:.1f}%; hybrid pages: {programs} programs, {of_hybrid:.0f}%", {"used": used, "programs": programs}
    )


_READINGS = (STRICT, Reading("both", "programmed", "open"), PRIMARY)


class TwinResponse(TypedDict):
    """Mean response times of a recording and of its synthetic twin, simulated under one interpretation and device."""

    reading: str
    device: str
    recorded_ms: float
    synthetic_ms: float
    difference_pct: float


@dataclass(frozen=True)
class Twin:
    """A recording, compared with the synthetic workload of the same name.

    Differences are in percent of the recording.
    """

    recorded: str
    synthetic: str
    profile: list[FieldDifference]
    """Fields of Tables III and IV, in the form of `emmclab.traces.workload.differences`."""
    responses: list[TwinResponse]
    """Simulated mean responses in ms by reading and device."""

    gain: tuple[float, float]
    """Percent by which hybrid pages shorten the mean response: recorded, synthetic (Figure 8)."""

    @property
    def worst(self) -> TwinResponse:
        """The mean response time with the largest difference between recording and synthetic twin."""
        return max(self.responses, key=lambda row: abs(row["difference_pct"]))


def twins(results: Results) -> list[Twin]:
    """Compare each recorded trace with the synthetic workload that it replaces."""
    compared = []
    for recorded, synthetic in stand_ins(results).items():
        profile = differences(results.profiles[recorded], results.profiles[synthetic])
        responses = _responses(results, recorded, synthetic)
        four, hybrid = (mean_responses(results, PRIMARY, device) for device in (FOUR, HYBRID))
        gain = tuple(100 * (1 - hybrid[name] / four[name]) for name in (recorded, synthetic))
        compared.append(Twin(recorded, synthetic, profile, responses, (gain[0], gain[1])))
    return compared


def _responses(results: Results, recorded: str, synthetic: str) -> list[TwinResponse]:
    rows: list[TwinResponse] = []
    for reading in _READINGS:
        for device in (FOUR, EIGHT, HYBRID):
            means = mean_responses(results, reading, device)
            recorded_ms, synthetic_ms = means[recorded], means[synthetic]
            rows.append(
                {
                    "reading": reading.text,
                    "device": device,
                    "recorded_ms": recorded_ms,
                    "synthetic_ms": synthetic_ms,
                    "difference_pct": 100 * (synthetic_ms / recorded_ms - 1),
                }
            )
    return rows
