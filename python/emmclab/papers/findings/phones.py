"""Findings on newer phones: which IISWC 2015 results hold for applications of 2022, and how UFS behaves."""

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from emmclab.core_types import WriteBoosterUse
from emmclab.papers.findings.findings import Answer, rows_of
from emmclab.papers.iiswc15.implications import change_pct
from emmclab.papers.measures import share
from emmclab.runtime.document import significant
from emmclab.simulation.device import Device
from emmclab.studies.results import Results
from emmclab.studies.stored_types import Run
from emmclab.traces.profile import Profile
from emmclab.traces.workload import workload_groups

#: The device on which settings are swept.
UFS = "ufs31"
#: Size of the WriteBooster buffer of `ufs31`, in blocks.
_BOOSTER = 60
#: Tolerance for limits that the paper has rounded, percentage points; the claims use the same tolerance.
_ROUNDING = 0.5
#: Idle time until auto-hibernate, us: default of Linux, and shortest value in the study.
_LINUX_US, _EAGER_US = 150_000, 100
#: Minimum factor by which waking up prolongs the service time. It was this large in the study of 2015: the smallest
#: mean of the five quiet applications, divided by the median of the other applications.
_RISE = 1.82
#: Mean wait for garbage collection below which the wait counts as not noticeable, ms.
_UNFELT_MS = 0.1
#: Percentage below which a hit rate is low (`_LOW_PCT`). Ratio of the maximum erase count with simple wear levelling to
#: that with full wear levelling, up to which simple levelling is enough (`_SIMPLE`).
_LOW_PCT, _SIMPLE = 50.0, 1.25
#: Differences below this percentage count as not noticeable.
_NOTICEABLE_PCT = 2
_INSTALL = "Install"
#: Flash layouts with 4 KB pages. Each entry has a text with the share of these pages, the state of the device, and the
#: name of a grid of the study.
_LAYOUTS = (
    ("an eighth of 4 KB", "new", "pages-hybrid"),
    ("4 KB", "new", "pages-4k"),
    ("an eighth of 4 KB", "80 % full", "pages-hybrid-used"),
    ("half of 4 KB", "80 % full", "pages-half-used"),
    ("an eighth of 4 KB", "WriteBooster", "pages-hybrid-booster"),
)

Runs = dict[str, Run]


@dataclass(frozen=True)
class _Characteristic:
    """A characteristic of phone I/O: `then` of 18 applications showed it in 2015; `values` are those of 2022."""

    number: int
    name: str
    then: int
    values: Mapping[str, float]
    holds: Callable[[float], bool]
    unit: str = "%"

    @property
    def count(self) -> int:
        return sum(map(self.holds, self.values.values()))

    @property
    def verdict(self) -> str:
        return by_share(self.count, len(self.values), self.then, 18)

    def text(self) -> str:
        return (
            f"{self.name}: {self.count} of {len(self.values)} (2015: {self.then} of 18), {self.verdict} "
            f"({_listed(self.values)} {self.unit})"
        )


def by_share(count: int, of: int, then: int, then_of: int) -> str:
    """Return whether a characteristic is still true, by the number of applications that show it.

    Now `count` of `of` applications show it. In 2015, `then` of `then_of` applications showed it.

    >>> [by_share(count, 4, 15, 18) for count in (4, 3, 2, 1, 0)]
    ['still true', 'still true', 'in part', 'no longer', 'no longer']
    """
    needed = max(1, round(of * then / then_of))
    return "still true" if count >= needed else "in part" if 2 * count >= needed else "no longer"


def characteristics(results: Results) -> Answer:
    """Test whether the six characteristics of IISWC 2015 still hold, by the definitions of the paper's study."""
    apps = _applications(results)

    def judge(
        number: int,
        name: str,
        then: int,
        value: Callable[[Profile], float],
        holds: Callable[[float], bool],
        unit: str = "%",
    ) -> _Characteristic:
        values = {app: float(value(results.profiles[app])) for app in apps}
        return _Characteristic(number, name, then, values, holds, unit)

    def between(low: float, high: float) -> Callable[[float], bool]:
        return lambda value: low - _ROUNDING <= value <= high + _ROUNDING

    rise = {
        idle_us: {
            name: run.service.mean_service_ms / (run.service.mean_service_ms - run.waits.wake_up_ms)
            for name, run in _runs(results, "hibernation", power__sleep_after_us=idle_us).items()
            if name in apps
        }
        for idle_us in (_LINUX_US, _EAGER_US)
    }
    no_wait = {
        device: {name: run.requests.no_wait_pct for name, run in runs.items() if name in apps}
        for device, runs in _new(results).items()
    }
    compared = [
        judge(1, "writes dominate", 15, lambda profile: profile["write_requests_pct"], lambda x: x > 50),
        judge(
            2,
            "44.9 to 57.4 % are of 4 KB",
            15,
            lambda profile: share(profile, "size_distribution", to=4),
            between(44.9, 57.4),
        ),
        _Characteristic(3, f"63 % do not wait ({UFS})", 15, no_wait[UFS], lambda x: x >= 63 - _ROUNDING),
        _Characteristic(
            4, f"waking up prolongs service {_RISE} times", 5, rise[_LINUX_US], lambda x: x >= _RISE, "times"
        ),
        judge(5, "spatial locality below 30 %", 16, lambda profile: profile["spatial_locality_pct"], lambda x: x < 30),
        judge(
            5,
            "temporal locality of 30.83 to 52.9 %",
            11,
            lambda profile: profile["temporal_locality_pct"],
            between(30.83, 52.9),
        ),
        judge(
            6, "mean gap of 200 ms", 13, lambda profile: 1000 / profile["arrival_rate_per_s"], lambda x: x >= 200, "ms"
        ),
        judge(
            6,
            "20 % of the gaps above 16 ms",
            10,
            lambda profile: share(profile, "inter_arrival_distribution", above=16),
            lambda x: x > 20,
        ),
    ]
    by_number: dict[int, set[str]] = {}
    for characteristic in compared:
        by_number.setdefault(characteristic.number, set()).add(characteristic.verdict)
    # A characteristic may have several parts. If the verdicts on its parts differ, its own verdict is "in part".
    verdicts = [next(iter(parts)) if len(parts) == 1 else "in part" for parts in by_number.values()]
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in ("still true", "in part", "no longer"))
    others = "; ".join(f"{device} {_range(pct.values(), 2)} %" for device, pct in no_wait.items() if device != UFS)
    eager = rise[_EAGER_US]
    installed = [results.profiles[name]["write_requests_pct"] for name in _workloads(results) if name not in apps]
    texts = "; ".join(characteristic.text() for characteristic in compared)
    return Answer(
        f"Of the six characteristics of 2015: {counts}. {texts}. The share of requests that do "
        f"not wait depends on the device: {others}. Hibernation after 0.1 ms prolongs service "
        f"{_range(eager.values())} times. While applications are installed, {_range(installed)} % of the "
        "requests are writes.",
        rows_of({part.name: dict(part.values) for part in compared if part.unit == "%"}),
        "% of the requests",
    )


def implications(results: Results) -> Answer:
    """Test the five implications of IISWC 2015 on UFS devices with the experiments of the study `implications`."""
    new = _new(results)[UFS]
    card: dict[str, dict[str, float]] = {}
    for run in results.select("card"):
        routing = str(run.options["layer_settings"]["pair.routing"])
        card.setdefault(routing, {})[run.input] = _mean_ms(run) / _mean_ms(new[run.input])
    ratios = [ratio for by_name in card.values() for ratio in by_name.values()]
    filled, ram = _runs(results, "filled", UFS), _runs(results, "ram")
    full = _over(filled, new)
    worst = max(full, key=lambda name: full[name])
    unfelt = sum(run.waits.gc_ms < _UNFELT_MS for run in filled.values())
    emptied = sum(_past(run) == 0 for run in filled.values())
    hits = [
        median(run[f"cache.{kind}_hit_pct"] for run in ram.values() if run[f"requests.{kind}"])
        for kind in ("write", "read")
    ]
    wear = {
        level: {
            name: max(run.wear.erase_counts.max, 1)
            for name, run in _runs(results, "wear", wear__levelling=level).items()
        }
        for level in ("dynamic", "static")
    }
    worn = [wear["dynamic"][name] / most for name, most in wear["static"].items()]
    slc = {"new": (_runs(results, "pages-16k"), new), "80 % full": (_runs(results, "no-booster"), _boosted(results))}
    gains = {
        state: [change_pct(without[name], boosted[name]) for name in without]
        for state, (without, boosted) in slc.items()
    }
    holding = (
        2 * sum(ratio > 1 for ratio in ratios) > len(ratios),
        2 * unfelt > len(filled),
        max(hits) < _LOW_PCT,
        max(worn) <= _SIMPLE,
        all(2 * sum(gain < 0 for gain in state_gains) > len(state_gains) for state_gains in gains.values()),
    )
    faster = "; ".join(
        f"{state} {sum(gain < 0 for gain in state_gains)} of {len(state_gains)}, {median(state_gains):.0f} % (median)"
        for state, state_gains in gains.items()
    )
    return Answer(
        f"{sum(holding)} of the five hold. 1, a card in parallel slows the device down: slower in "
        f"{sum(ratio > 1 for ratio in ratios)} of {len(ratios)} pairs of workload and routing, "
        f"{significant(median(ratios))} times (median), with the card of 2015. 2, pauses are long enough for "
        f"collection: not noticeable in {unfelt} of {len(filled)} workloads on {UFS}, 90 % full; {emptied} "
        f"never filled WriteBooster, but the mean response of {worst} is {full[worst]:.2f} times that on a new "
        f"device. 3, a large RAM buffer is rarely hit: {hits[0]:.1f} % of written and {hits[1]:.1f} % of "
        f"read units at 4 MB (medians); written back when full it lowers WAF from {_waf(new):.2f} to "
        f"{_waf(ram):.2f} at {median(_over(ram, new).values()):.2f} times the mean response (medians). 4, "
        f"simple wear levelling is enough: the most worn block at most {max(worn):.2f} times that under "
        f"static levelling. 5, blocks in SLC mode, of which WriteBooster consists, make writes faster: {faster}.",
        rows_of({f"card, {routing}": by_name for routing, by_name in card.items()} | {"90 % full": full}),
        f"mean response over that of {UFS} alone, new",
    )


def responses(results: Results) -> Answer:
    """Compare the mean response time of all devices, new and 90 % full, and the share of queueing on UFS."""
    new = _new(results)
    devices = ", ".join(new)
    response_texts = [
        f"{name} {', '.join(significant(_mean_ms(runs[name])) for runs in new.values())}"
        for name in _workloads(results)
    ]
    queued = [
        100 * run.waits.queue_ms / _mean_ms(run)
        for runs in new.values()
        for run in runs.values()
        if run.ufs is not None
    ]
    used = []
    for device in new:
        full = _over(_runs(results, "filled", device), new[device])
        if full:
            worst = max(full, key=lambda name: full[name])
            used.append(f"{device} {significant(full[worst])} ({worst})")
    return Answer(
        f"Mean response in ms on {devices}: {'; '.join(response_texts)}. On UFS {_range(queued, 2)} % of it is the "
        f"wait behind earlier requests. On devices that are 90 % full, it grows at most by these factors: "
        f"{', '.join(used)}.",
        rows_of({device: {name: _mean_ms(runs[name]) for name in runs} for device, runs in new.items()}),
        "mean response, ms",
    )


def write_booster(results: Results) -> Answer:
    """Measure the gain of WriteBooster, the size and fill level at which its buffer fills up, and its cost in wear."""
    without, boosted = _runs(results, "no-booster"), _boosted(results)
    sizes = {
        blocks: _runs(results, "booster", slc__blocks=blocks)
        for blocks in dict.fromkeys(run.settings["slc.blocks"] for run in results.select("booster"))
    }
    cliff = []
    for runs in sizes.values():
        full = [name for name, run in runs.items() if _past(run)]
        past = sum(map(_past, runs.values())) / 1e6
        verdict = f"too little for {', '.join(full)} ({past:,.0f} MB bypass it)" if full else "enough"
        cliff.append(f"{_size_gb(runs):.1f} GB {verdict}")
    fullest = _over(_runs(results, "full", UFS), _new(results)[UFS])
    most = max(fullest, key=lambda name: fullest[name])
    worst = max(boosted, key=lambda name: _waf_of(boosted[name]))
    costs = ", ".join(f"{name} {_waf_of(run):.2f} ({_waf_of(without[name]):.2f})" for name, run in boosted.items())
    lives = ", ".join(f"{_size_gb(runs):.1f} GB {_booster_life(runs[worst])}" for runs in sizes.values())
    return Answer(
        f"Mean response in ms on a device that is 80 % full, with 4 GB and (without): {_pairs(boosted, without)}. "
        f"Size: {'; '.join(cliff)}. On a device that is 95 % full it is at most {significant(fullest[most])} times "
        f"that of a new device ({most}). WAF with and (without): {costs}. Under {worst} the blocks of WriteBooster "
        f"endure {lives} written by the host; the other cells {_cells_life(boosted[worst])}, without "
        f"WriteBooster {_cells_life(without[worst])}.",
        rows_of(
            {"none": {name: _mean_ms(run) for name, run in without.items()}}
            | {
                f"{_size_gb(runs):.1f} GB": {name: _mean_ms(run) for name, run in runs.items()}
                for runs in sizes.values()
            }
        ),
        "mean response by size of WriteBooster, ms",
    )


def page_sizes(results: Results) -> Answer:
    """Compare pages of 16 KB, of 4 KB, and of both on the flash of a UFS, with WriteBooster and without."""
    bases = {
        "new": _runs(results, "pages-16k"),
        "80 % full": _runs(results, "no-booster"),
        "WriteBooster": _new(results)[UFS],
    }
    layouts = {f"16 KB, {state}": runs for state, runs in bases.items()}
    layout_texts = [f"{name} have {_space(runs)}" for name, runs in layouts.items()]
    for pages, state, grid in _LAYOUTS:
        runs, base = _runs(results, grid), bases[state]
        layouts[f"{pages}, {state}"] = runs
        slower = _over(runs, base)
        layout_texts.append(
            f"{pages}, {state}: {_space(runs)}, less programmed for {_fewer(runs, base)} of {len(runs)}, "
            f"mean response {_range(slower.values())} times (most for {max(slower, key=lambda name: slower[name])})"
        )
    return Answer(
        f"Compared with 16 KB pages in the same state, without WriteBooster by default: {'; '.join(layout_texts)}.",
        rows_of({name: {app: _waf_of(run) for app, run in runs.items()} for name, runs in layouts.items()}),
        "bytes programmed over bytes written",
    )


def _space(runs: Runs) -> str:
    utilisation = [run.space.space_utilisation for run in runs.values()]
    return f"WAF {_range(map(_waf_of, runs.values()))}, space utilisation {_range(utilisation)}"


def zones(results: Results) -> Answer:
    """Compare a zoned UFS below a log-structured layer with the same flash behind WriteBooster."""
    boosted, zoned = _new(results)[UFS], _runs(results, "zoned")
    faster = sum(ratio < 1 - _NOTICEABLE_PCT / 100 for ratio in _over(zoned, boosted).values())
    zone_texts = [
        f"{name} {significant(_mean_ms(boosted[name]))} ms, {_waf_of(boosted[name]):.2f}, and "
        f"{significant(_mean_ms(run))} ms, {_waf_of(run):.2f}"
        for name, run in zoned.items()
    ]
    return Answer(
        f"Zones program less for {_fewer(zoned, boosted)} and respond faster for {faster} of {len(zoned)} "
        f"workloads. Mean response and WAF with WriteBooster, and under a log: {'; '.join(zone_texts)}.",
        rows_of(
            {
                label: {name: _waf_of(run) for name, run in runs.items()}
                for label, runs in (("WriteBooster", boosted), ("zones under a log", zoned))
            }
        ),
        "bytes programmed over bytes written",
    )


def large_blocks(results: Results) -> Answer:
    """Compare file-system blocks of 16 KB with blocks of 4 KB."""
    programmed: dict[str, dict[str, float]] = {}
    booster_texts = []
    for grid, booster in (("blocks", "without WriteBooster"), ("blocks-booster", "with WriteBooster")):
        narrow, wide = (_runs(results, grid, host__block_kb=size) for size in (4, 16))
        written = {name: run.requests.bytes_written for name, run in narrow.items()}
        for label, runs in (("4 KB", narrow), ("16 KB", wide)):
            programmed[f"{label}, {booster}"] = {name: _programmed(run) / written[name] for name, run in runs.items()}
        before, after = (programmed[f"{size}, {booster}"] for size in ("4 KB", "16 KB"))
        unchanged = sum(after[name] <= (1 + _NOTICEABLE_PCT / 100) * before[name] for name in after)
        slower = {name: change_pct(narrow[name], run) for name, run in wide.items()}
        booster_texts.append(
            f"{booster} the flash is programmed with {_range(after.values())} bytes for each byte of blocks "
            f"of 4 KB, in place of {_range(before.values())} (no more for {unchanged} of {len(after)}, as a small "
            f"write takes a page of 16 KB anyway), and the mean response is {_range(slower.values())} % "
            f"longer (most for {max(slower, key=lambda name: slower[name])})"
        )
        host = [run.requests.bytes_written / written[name] for name, run in wide.items()]
    return Answer(
        f"In blocks of 16 KB the host writes {_range(host)} times as many bytes; {'; '.join(booster_texts)}.",
        rows_of(programmed),
        "bytes programmed over bytes written in blocks of 4 KB",
    )


def _workloads(results: Results) -> list[str]:
    return [name for name in workload_groups()["phones"] if name in results.profiles]


def _applications(results: Results) -> list[str]:
    """Return the traces of applications in use, without those of installations."""
    return [name for name in _workloads(results) if not name.endswith(_INSTALL)]


def _runs(results: Results, grid: str, device: str = "", **settings: Any) -> Runs:
    """Return the runs of a study's grid on a device with these settings, by input.

    In the names of settings, `__` stands for `.`.
    """
    return {
        run.input: run
        for run in results.select(grid)
        if device in ("", _device(run))
        and all(run.settings.get(key.replace("__", ".")) == value for key, value in settings.items())
    }


def _device(run: Run) -> str:
    """Return the preset of a run's device, without the capacity to which it was scaled."""
    return run.device.removesuffix(f"-{run.options.get('capacity', '')}")


def _new(results: Results) -> dict[str, Runs]:
    """Return the runs on each device in new condition."""
    devices = dict.fromkeys(_device(run) for run in results.select("new"))
    return {device: _runs(results, "new", device) for device in devices}


def _boosted(results: Results) -> Runs:
    """Return the runs on a device that is 80 % full, with the preset's WriteBooster."""
    return _runs(results, "booster", slc__blocks=_BOOSTER)


def _mean_ms(run: Run) -> float:
    return float(run.response.mean_response_ms)


def _over(runs: Runs, base: Runs) -> dict[str, float]:
    """Return the ratio of the mean response time to that of a base run, by input."""
    return {name: _mean_ms(run) / _mean_ms(base[name]) for name, run in runs.items()}


def _waf_of(run: Run) -> float:
    return float(run.write_amplification.waf)


def _waf(runs: Runs) -> float:
    return median(map(_waf_of, runs.values()))


def _fewer(runs: Runs, base: Runs) -> int:
    """Count the workloads that program noticeably fewer bytes than in `base`."""
    return sum(_waf_of(run) < (1 - _NOTICEABLE_PCT / 100) * _waf_of(base[name]) for name, run in runs.items())


def _programmed(run: Run) -> float:
    """Return the bytes that were programmed into the flash."""
    return _waf_of(run) * run.requests.bytes_written


def _past(run: Run) -> float:
    """Return the number of bytes that bypassed WriteBooster because its buffer was full."""
    return float(run["ufs.write_booster.bytes_past_it"])


def _size_gb(runs: Runs) -> float:
    return float(next(iter(runs.values()))["ufs.write_booster.size_bytes"]) / 2**30


def _booster_life(run: Run) -> str:
    """Return as text how much the host can write until all blocks of WriteBooster reach their erase limit.

    This is the data that the blocks can store over all their erases, divided by the bytes that the run wrote
    to them for each byte of the host.
    """
    booster = WriteBoosterUse(run["ufs.write_booster"])
    limit = tomllib.loads(Device.preset(_device(run)).to_toml())["slc"]["erase_limit"]
    return _terabytes(run, booster.size_bytes * limit, booster.bytes_written)


def _cells_life(run: Run) -> str:
    """Return as text how much the host can write until the blocks outside of the WriteBooster are worn out.

    The blocks are assumed to be worn evenly.
    """
    written: int | None = run["ufs.write_booster.bytes_written"]
    settings = tomllib.loads(Device.preset(_device(run)).to_toml())
    limit = settings["geometry"]["block_groups"][0]["erase_limit"]
    raw = run.configuration.capacity_bytes * (1 + settings["capacity"]["over_provisioning_pct"] / 100)
    return _terabytes(run, raw * limit, _programmed(run) - (written or 0))


def _terabytes(run: Run, endured: float, written: float) -> str:
    """Return as text how much the host can write until blocks that endure `endured` bytes are worn out."""
    if written <= 0:
        return "any amount"
    return f"{endured * run.requests.bytes_written / written / 1e12:,.0f} TB"


def _range(values: Iterable[float], digits: int = 3) -> str:
    numbers = list(values)
    low, high = significant(min(numbers), digits), significant(max(numbers), digits)
    return low if low == high else f"{low} to {high}"


def _listed(values: Mapping[str, float]) -> str:
    """Return a text of names and values, the largest value first."""
    order = sorted(values, key=lambda name: -values[name])
    return ", ".join(f"{name} {significant(values[name])}" for name in order)


def _pairs(runs: Runs, base: Runs) -> str:
    return ", ".join(
        f"{name} {significant(_mean_ms(run))} ({significant(_mean_ms(base[name]))})" for name, run in runs.items()
    )
