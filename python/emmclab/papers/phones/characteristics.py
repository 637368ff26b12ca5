"""The six characteristics of IISWC 2015, judged for applications of 2022 by the paper's own definitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from emmclab.papers.measures import share
from emmclab.papers.phones.judging import Finding, by_share, listed
from emmclab.papers.phones.runs import UFS, as_recorded, by_input, in_use, installations, new_devices, on_new
from emmclab.studies.results import Results
from emmclab.traces.profile import Profile

#: Limits that are themselves figures of the paper are widened by this, percentage points, as in its claims.
_ROUNDING = 0.5
#: Time until auto-hibernate, us: the default of Linux, and the shortest of the study.
_LINUX_US = 150_000
_EAGER_US = 100
#: Least mean service time of the five quiet applications of 2015, divided by the median of the others.
_RISE = 1.82
#: Arrival rate below which an application is quiet, requests per second.
_QUIET = 1.0


def characteristics(results: Results) -> list[Finding]:
    """Judge each characteristic; a characteristic with two figures has two findings."""
    return [
        _writes(results),
        _small(results),
        _no_wait(results),
        _sleep(results),
        _of_profiles(
            results,
            "spatial",
            5,
            "spatial locality below 30 %",
            lambda profile: float(profile["spatial_locality_pct"]),
            lambda value: value < 30,
            16,
        ),
        _of_profiles(
            results,
            "temporal",
            5,
            "temporal locality of 30.83 to 52.9 %",
            lambda profile: float(profile["temporal_locality_pct"]),
            lambda value: 30.83 - _ROUNDING <= value <= 52.9 + _ROUNDING,
            11,
        ),
        _of_profiles(
            results,
            "gap",
            6,
            "mean gap between arrivals of 200 ms and more",
            lambda profile: 1000 / profile["arrival_rate_per_s"],
            lambda value: value >= 200,
            13,
            unit="ms",
        ),
        _of_profiles(
            results,
            "long-gaps",
            6,
            "over 20 % of the gaps longer than 16 ms",
            lambda profile: share(profile, "inter_arrival_distribution", above=16),
            lambda value: value > 20,
            10,
        ),
    ]


def _said(values: Mapping[str, float], unit: str) -> str:
    return listed(dict(values), lambda value: f"{value:,.1f}") + f" {unit}"


def _of_profiles(
    results: Results,
    name: str,
    number: int,
    finding: str,
    value: Callable[[Profile], float],
    holds: Callable[[float], bool],
    then: int,
    *,
    unit: str = "%",
    note: str = "",
) -> Finding:
    """Judge a finding by a figure of the profile of each application in use."""
    values = {app: value(results.profiles[app]) for app in in_use(results)}
    count = sum(map(holds, values.values()))
    raw = {app: value(results.profiles[model]) for app, model in as_recorded(results).items()}
    traces = {trace: value(results.profiles[trace]) for trace in results.recorded}
    notes = [note, f"Recorded here: {_said(traces, unit)}." if traces else ""]
    return Finding(
        id=name,
        number=number,
        finding=finding,
        published=f"{then} of 18",
        measured=f"{count} of {len(values)}: {_said(values, unit)}",
        verdict=by_share(count, len(values), then, 18),
        note=" ".join(filter(None, notes)),
        recorded=f"{sum(map(holds, raw.values()))} of {len(raw)}: {_said(raw, unit)}" if raw else "",
    )


def _writes(results: Results) -> Finding:
    while_installed = {name: results.profiles[name]["write_requests_pct"] for name in installations(results)}
    note = f"While they are installed: {_said(while_installed, '%')}." if while_installed else ""
    return _of_profiles(
        results,
        "writes",
        1,
        "most requests are writes",
        lambda profile: float(profile["write_requests_pct"]),
        lambda value: value > 50,
        15,
        note=note,
    )


def _small(results: Results) -> Finding:
    return _of_profiles(
        results,
        "small",
        2,
        "44.9 to 57.4 % of the requests are of 4 KB",
        lambda profile: share(profile, "size_distribution", to=4),
        lambda value: 44.9 - _ROUNDING <= value <= 57.4 + _ROUNDING,
        15,
    )


def _no_wait(results: Results) -> Finding:
    apps = in_use(results)

    def shares(device: str, names: list[str]) -> dict[str, float]:
        runs = on_new(results, device)
        return {name: runs[name]["requests"]["no_wait_pct"] for name in names if name in runs}

    def reach(values: Mapping[str, float]) -> int:
        return sum(value >= 63 - _ROUNDING for value in values.values())

    today = shares(UFS, apps)
    others = [
        f"{device} {reach(found)} of {len(found)} ({min(found.values()):.0f} to {max(found.values()):.0f} %)"
        for device in new_devices(results)
        if device != UFS and (found := shares(device, apps))
    ]
    models = as_recorded(results)
    of_models = shares(UFS, list(models.values()))
    raw = {name: of_models[model] for name, model in models.items() if model in of_models}
    return Finding(
        id="no-wait",
        number=3,
        finding="at least 63 % of the requests do not wait for another",
        published="15 of 18, on the paper's phone",
        measured=f"{reach(today)} of {len(today)} on {UFS}: {_said(today, '%')}",
        verdict=by_share(reach(today), len(today), 15, 18),
        note=f"A property of the device: {'; '.join(others)}.",
        recorded=f"{reach(raw)} of {len(raw)}: {_said(raw, '%')}" if raw else "",
    )


def _sleep(results: Results) -> Finding:
    """Judge Characteristic 4: how much wake-ups prolong the mean service time."""
    apps = in_use(results)
    rise: dict[int, dict[str, float]] = {}
    for idle_us in (_LINUX_US, _EAGER_US):
        runs = by_input(results, "hibernation", power__sleep_after_us=idle_us)
        found = {name: (runs[name]["service"]["mean_service_ms"], runs[name]["waits"]) for name in apps}
        rise[idle_us] = {
            name: service / (service - waits["wake_up_ms"]) for name, (service, waits) in found.items()
        }
    quiet = sum(results.profiles[name]["arrival_rate_per_s"] < _QUIET for name in apps)
    slower = {idle_us: sum(value >= _RISE for value in found.values()) for idle_us, found in rise.items()}

    def factors(idle_us: int) -> str:
        return listed(rise[idle_us], lambda value: f"x{value:.2f}")

    return Finding(
        id="sleep",
        number=4,
        finding="waking up makes the service of quiet applications 1.82 times as long or more",
        published="5 of 18",
        measured=f"{slower[_LINUX_US]} of {len(apps)} with Linux' hibernation after 150 ms: "
        f"{factors(_LINUX_US)}",
        verdict=by_share(slower[_LINUX_US], len(apps), 5, 18),
        note=f"{quiet} of {len(apps)} are below 1 request a second, as the five of 2015 were. Hibernation "
        f"after 0.1 ms slows {slower[_EAGER_US]}: {factors(_EAGER_US)}.",
    )
