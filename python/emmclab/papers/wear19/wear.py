"""Measures how soon writing wears out a phone, with the study `wear19`."""

from collections.abc import Iterable
from statistics import median

from emmclab.papers.measures import Measurement, measure
from emmclab.simulation.device import Device
from emmclab.studies.results import Results
from emmclab.studies.stored_types import Run

_DAY_S = 86_400
_YEAR_DAYS = 365.25
#: Hours of a day for which an application is used, and years that a phone has to last.
_HOURS, _YEARS = 8, 3
#: Capacity of a small phone of 2017.
_SMALL_BYTES = 8 << 30
#: The only device of the grid with two bits in a cell.
_MLC = "nexus5"


def _host_bytes(run: Run) -> float:
    """Return the bytes that the host can write until the first kind of block is worn out, with even wear."""
    return min(kind.even_host_bytes for kind in run.wear.kinds if kind.even_host_bytes)


def _runs(results: Results) -> dict[str, Run]:
    return {run.device: run for run in results.select("worn")}


def _rate(run: Run) -> float:
    return run.run.throughput_mb_per_s * (1 << 20)


def days_by_device(results: Results) -> dict[str, float]:
    """Return the days until an application that writes without pause has worn out each device, the shortest first."""
    days = {name: _host_bytes(run) / _rate(run) / _DAY_S for name, run in _runs(results).items()}
    return dict(sorted(days.items(), key=lambda item: item[1]))


def years_by_application(results: Results) -> dict[str, float]:
    """Return the years until each application has worn out the phone at its recorded rate, the shortest first."""
    years = {}
    for run in results.select("use"):
        daily = run.requests.bytes_written / run.run.simulated_s * _HOURS * 3600
        years[run.input] = _host_bytes(run) / daily / _YEAR_DAYS
    return dict(sorted(years.items(), key=lambda item: item[1]))


def _values(days: Iterable[float]) -> dict[str, float]:
    days = list(days)
    return {"median_days": median(days), "most_days": max(days)}


@measure
def days_to_wear_out(results: Results) -> Measurement:
    """Measure the days until an application that writes without pause has worn out each device."""
    runs, days = _runs(results), days_by_device(results)
    small = [value * _SMALL_BYTES / Device.named(name).capacity_bytes for name, value in days.items()]
    each = ", ".join(f"{name} {value:.1f} at {_rate(runs[name]) / 1e6:.0f} MB/s" for name, value in days.items())
    values = _values(days.values())
    return Measurement(
        f"{min(days.values()):.1f} - {values['most_days']:.1f} days (median {values['median_days']:.1f})",
        values,
        f"Days: {each}. Half or double the erase limits change them in proportion.",
        beside={"Of phones of 8 GB, which wear out in proportion to their capacity": _values(small)},
    )


@measure
def applications_outlast(results: Results) -> Measurement:
    """Count the applications that wear out a phone within its life at their recorded rate."""
    years = years_by_application(results)
    within = sum(value < _YEARS for value in years.values())
    shortest = ", ".join(f"{name} {value:.2g} years" for name, value in list(years.items())[:3])
    return Measurement(
        f"{within} of {len(years)} wear it out in {_YEARS} years",
        {"within": within},
        f"The shortest lives, with {_HOURS} hours a day: {shortest}.",
    )


@measure
def waf_of_sequential_writes(results: Results) -> Measurement:
    """Measure the write amplification of sequential writes on flash with two bits in a cell."""
    waf = _runs(results)[_MLC].write_amplification.waf
    return Measurement(f"WAF {waf:.3f}", {"waf": waf}, f"On {_MLC}.")
