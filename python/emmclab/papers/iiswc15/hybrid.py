"""Section V: the measures of hybrid page sizes (Figures 8 and 9)."""

import statistics
import tempfile
from pathlib import Path

from emmclab.papers.iiswc15.page_size_readings import (
    ALL,
    EIGHT,
    EIGHT_ALIGNED,
    FOUR,
    PARTS,
    PRIMARY,
    mean_gains_over_8ps,
    mean_responses,
    over_8ps,
    readings,
    reductions,
    utilisation,
)
from emmclab.papers.measures import Measurement, measure, simulated
from emmclab.runtime.number_format import signed
from emmclab.studies.results import Results
from emmclab.traces.reading import read

#: The applications that the paper names in Figure 8.
_APPLICATION = {"best": ["Booting"], "worst": ["Movie"], "mean": []}
#: Applications whose responses the paper draws separately, on a log scale (Figure 8b).
_OUTLIERS = ("Booting", "CameraVideo", "Amazon", "Installing")
#: If the mean response is above this, the device cannot keep up with the trace, ms.
_SATURATED_MS = 1000.0


def _reduction(results: Results, part: str) -> Measurement:
    found = reductions(results, PRIMARY)
    value = PARTS[part]([*found.values()])
    who = [name for name, gain in found.items() if gain == value]
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
            f" 8 KB pages in place of hybrid ones shorten it by {gain:.1f} %; aligned to 8 KB, as in the "
            f"public copy of SSDsim, by {other:.1f} %."
        )
    return Measurement(
        f"-{value:.1f}%" + (f" ({who[0]})" if who else ""),
        {"reduction": value, "paper_application": float(who[:1] == _APPLICATION[part])},
        note + _saturated(results),
    )


def _saturated(results: Results) -> str:
    responses = mean_responses(results, PRIMARY, FOUR, results.applications)
    names = [name for name in results.applications if responses[name] > _SATURATED_MS]
    said = ", ".join(f"{name} ({responses[name] / 1000:.1f} s mean response)" for name in names)
    return f" Saturated on 4PS: {said}." if names else ""


@measure
def hybrid_best(results: Results) -> Measurement:
    """Figure 8, best application."""
    return _reduction(results, "best")


@measure
def hybrid_worst(results: Results) -> Measurement:
    """Figure 8, worst application."""
    return _reduction(results, "worst")


@measure
def hybrid_mean(results: Results) -> Measurement:
    """Figure 8, mean."""
    return _reduction(results, "mean")


@measure
def hybrid_everywhere(results: Results) -> Measurement:
    """Figure 8, hybrid shorter than 4 KB pages in every application."""
    counts = {reading: sum(gain > 0 for gain in reductions(results, reading).values()) for reading in ALL}
    shorter = counts[PRIMARY]
    return Measurement(
        f"{shorter} of {len(results.applications)}",
        {"shorter": shorter},
        f"Over all {len(counts)} readings {min(counts.values())} to {max(counts.values())}.",
    )


def _slowest(results: Results, responses: dict[str, float]) -> list[str]:
    """Return the applications, the slowest first."""
    return sorted(results.applications, key=lambda name: -responses[name])


def _outliers_among(slowest: list[str]) -> int:
    """Count the paper's outliers among the same number of the slowest applications."""
    return sum(name in _OUTLIERS for name in slowest[: len(_OUTLIERS)])


@measure
def outliers(results: Results) -> Measurement:
    """Figure 8b, applications with much higher mean responses than the others."""
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
    """Figure 8, hybrid against 8 KB pages."""
    gains = reductions(results, PRIMARY, EIGHT)
    aligned = reductions(results, PRIMARY, EIGHT_ALIGNED)
    name = max(gains, key=lambda one: abs(gains[one]))
    spread = mean_gains_over_8ps(results)
    low, high = (of(spread, key=lambda one: spread[one]) for of in (min, max))
    mean = statistics.mean(gains.values())
    return Measurement(
        f"hybrid {signed(mean)} % shorter (mean); at most {signed(gains[name])} % ({name})",
        {"mean": mean},
        f"With 8 KB pages that are aligned {signed(statistics.mean(aligned.values()))} %. Over all "
        f"{len(spread)} readings {signed(spread[low])} ({low}) to {signed(spread[high])} % ({high}).",
    )


def _utilisation(results: Results, best: bool) -> Measurement:
    of = max if best else statistics.mean
    found = over_8ps(results)
    aligned = of(over_8ps(results, EIGHT_ALIGNED)["points"])
    value, ratio = of(found["points"]), of(found["ratio"])
    text, values = f"{signed(value)} points", {"points": value}
    if best:
        name = results.applications[found["points"].index(value)]
        text += f" ({name})"
        ratio = found["ratio"][found["points"].index(value)]
        values["paper_application"] = float(name == "Music")
    return Measurement(
        text, values, f"As a ratio it is {signed(ratio)} %. With 8 KB pages that are aligned {signed(aligned)} points."
    )


@measure
def utilisation_best(results: Results) -> Measurement:
    """Figure 9, best application."""
    return _utilisation(results, best=True)


@measure
def utilisation_mean(results: Results) -> Measurement:
    """Figure 9, mean."""
    return _utilisation(results, best=False)


@measure
def utilisation_4ps(results: Results) -> Measurement:
    """Figure 9, hybrid against 4 KB pages."""
    gaps_ = [abs(use["hps"] / use["4ps"] - 1) for use in (utilisation(results, name) for name in results.applications)]
    return Measurement(f"differ by at most {100 * max(gaps_):.2f} %", {"gap": 100 * max(gaps_)})


@measure
def split_20k(_results: Results) -> Measurement:
    """Section V-A: one write of 20 KB on both devices."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "write.csv"
        path.write_text("0,write,0,40\n")
        trace = read(path, format="csv", columns="arrival,op,sector,sectors", time_unit="s")
        eight, hybrid = (simulated(name, trace) for name in ("iiswc15-8ps", "iiswc15-hps"))
    used = 100 * eight.fields["space"]["space_utilisation"]
    programs = hybrid.fields["flash"]["page_programs"]["total"]
    of_hybrid = 100 * hybrid.fields["space"]["space_utilisation"]
    return Measurement(
        f"{used:.1f}%; hybrid pages: {programs} programs, {of_hybrid:.0f}%", {"used": used, "programs": programs}
    )
