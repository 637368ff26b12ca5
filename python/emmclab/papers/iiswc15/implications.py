"""Measures the implications of IISWC 2015 and Characteristic 4 with the study `implications`."""

import math
import statistics
import tomllib
from collections.abc import Collection, Iterable

from emmclab.papers.measures import Measurement, measure, table
from emmclab.runtime.document import signed
from emmclab.simulation.device import Device
from emmclab.studies.results import Results
from emmclab.studies.stored_types import Run

#: The five applications that the paper names in Characteristic 4.
_SLEEPY = ("Idle", "CallIn", "CallOut", "YouTube", "WebBrowsing")
#: Mean wait for garbage collection below which the wait counts as not noticeable, ms.
_UNFELT_MS = 0.1
#: SD card of each grid that adds a card to the phone: the best cards of FAST 2012 for sequential and for random writes.
_CARDS = {"card-pny": "pny-c10", "card-transcend": "transcend-c2"}
#: Reduction of the mean response time above which a design option counts as helpful, percent.
HELPS_PCT = 5.0
#: The device that was fitted to Figure 3, in which large requests are packed commands.
_FITTED_TO_FIGURE_3 = "nexus5"
#: RAM size in KB at which the claims of the paper are judged. The study also simulates other sizes.
_RAM_KB = 4096


def by_input(
    results: Results, grid: str, *, among: Collection[str] | None = None, **settings: object
) -> dict[str, Run]:
    """Return the runs of a study's grid with these settings, by input; `among` restricts the inputs."""
    return {
        run.input: run
        for run in results.select(grid, among=among)
        if all(run.settings.get(key.replace("__", ".")) == value for key, value in settings.items())
    }


def by_routing(results: Results) -> dict[str, dict[str, dict[str, Run]]]:
    """Return the runs with an external card: for each card and each routing of requests, the runs by input."""
    runs_by_card: dict[str, dict[str, dict[str, Run]]] = {}
    for grid, card in _CARDS.items():
        for run in results.select(grid):
            routing = str(run.options["layer_settings"]["pair.routing"])
            runs_by_card.setdefault(card, {}).setdefault(routing, {})[run.input] = run
    return runs_by_card


def change_pct(before: Run, after: Run) -> float:
    """Return the change of the mean response time in percent; positive means slower."""
    return 100 * (_mean_ms(after) / _mean_ms(before) - 1)


def _mean_ms(run: Run) -> float:
    return float(run.response.mean_response_ms)


def unevenness(run: Run) -> float:
    """Return the erase count of the most worn block divided by the mean erase count."""
    counts = run.wear.erase_counts
    return float(counts.max / max(counts.mean, 1e-9))


def _workloads(results: Results, names: Iterable[str]) -> list[str]:
    return [name for name in names if name not in results.recorded]


def _recorded_text(results: Results, values: dict[str, float], unit: str) -> str:
    """Return a sentence with the values of recorded traces; empty without recorded traces."""
    parts = [f"{name} {signed(values[name])} {unit}" for name in results.recorded if name in values]
    return f" Recorded: {', '.join(parts)}." if parts else ""


@measure
def low_rate_service(results: Results) -> Measurement:
    """Measure the mean service time of a device that falls asleep between requests (Characteristic 4)."""
    runs = by_input(results, "new", among=results.applications)
    service = {name: runs[name].service.mean_service_ms for name in results.applications}
    sleepy = [service[name] for name in _SLEEPY]
    rest = [value for name, value in service.items() if name not in _SLEEPY]
    asleep = statistics.median(100 * runs[name].power.wake_ups / runs[name].requests.total for name in _SLEEPY)
    published = {row["application"]: row for row in table("iiswc15_table4_timing")}
    beyond = [
        name
        for name in _SLEEPY
        if _every_idle_wakes_ms(runs[name], published[name]) < float(published[name]["mean_service_ms"])
    ]
    out_of_reach = (
        f"Even if every request that finds the device idle had to wake it, {' and '.join(beyond)} would stay "
        "below Table IV: the phone of the paper wakes up more slowly than the one whose wake-ups are known."
        if beyond
        else "With more wake-ups each of the five could reach Table IV; their number is not published."
    )
    return Measurement(
        f"{min(sleepy):.2f} - {max(sleepy):.2f} ms against a median of {statistics.median(rest):.2f} ms",
        {"low": min(sleepy), "high": max(sleepy), "ratio": min(sleepy) / statistics.median(rest)},
        f"Below one request a second the device sleeps before {asleep:.0f} % of the requests (median of the "
        f"five), and the request that wakes it waits. {out_of_reach}",
    )


def _every_idle_wakes_ms(run: Run, published: dict[str, str]) -> float:
    """Return the mean service time in ms if each request that arrives at an idle device had to wake the device."""
    wait_ms, wake_ups = run.waits.wake_up_ms, run.power.wake_ups
    awake: float = run.service.mean_service_ms - wait_ms
    wake = wait_ms * run.requests.total / wake_ups if wake_ups else 0.0
    return awake + float(published["no_wait_pct"]) / 100 * wake


@measure
def card_beside(results: Results) -> Measurement:
    """Measure how an external card beside the internal device changes response times (IISWC 2015, Implication 1)."""
    base = by_input(results, "new")
    slower, total, parts = 0, 0, []
    for card, by_way in by_routing(results).items():
        ways = []
        for routing, runs in by_way.items():
            names = _workloads(results, runs)
            mean = [_mean_ms(runs[name]) / _mean_ms(base[name]) for name in names]
            count = sum(value > 1 for value in mean)
            slower, total = slower + count, total + len(names)
            ways.append(f"{routing} {count} of {len(names)} (median x{statistics.median(mean):.2f})")
        parts.append(f"{card}: {', '.join(ways)}")
    return Measurement(
        f"slower with {'; '.join(parts)}",
        {"slower_pct": 100 * slower / total},
        "A request is slower on the card if the card takes longer for it than the phone's eMMC. A card helps "
        "if it serves the requests routed to it as fast as the eMMC would, or if requests would otherwise queue.",
    )


@measure
def pauses_for_collection(results: Results) -> Measurement:
    """Compare garbage collection during idle time with collection while requests wait (Implication 2)."""
    aged, idle, stubborn = (
        by_input(results, "aged"),
        by_input(results, "idle-gc", gc__hpi=True),
        by_input(results, "idle-gc", gc__hpi=False),
    )
    names = _workloads(results, idle)
    unfelt = [name for name in names if idle[name].waits.gc_ms < _UNFELT_MS]
    before = sum(aged[name].waits.gc_ms < _UNFELT_MS for name in names)

    def median(runs: dict[str, Run], path: str) -> float:
        return float(statistics.median(runs[name][path] for name in names))

    foreground = 100 * statistics.median(
        1 - gc.idle_blocks / gc.blocks for gc in (idle[name].gc for name in names) if gc.blocks
    )
    waits = {name: idle[name].waits.gc_ms - aged[name].waits.gc_ms for name in idle}
    return Measurement(
        f"unfelt in {len(unfelt)} of {len(names)} ({before} without); median p99 "
        f"{median(aged, 'response.p99_ms'):.1f} -> {median(idle, 'response.p99_ms'):.1f} ms, WAF "
        f"{median(aged, 'write_amplification.waf'):.2f} -> {median(idle, 'write_amplification.waf'):.2f}",
        {"unfelt": len(unfelt)},
        f"With collection in pauses, {foreground:.0f} % of the collections still delay a request (median). "
        f"Without interruption the median p99 is {median(stubborn, 'response.p99_ms'):.1f} ms."
        + _recorded_text(results, waits, "ms mean wait"),
    )


@measure
def ram_for_data(results: Results) -> Measurement:
    """Measure the hit rates of a data cache in the device's RAM (Implication 3)."""
    writes = by_input(results, "ram-write", cache__size_kb=_RAM_KB, cache__policy="lru")
    reads = by_input(results, "ram-read", cache__read_kb=_RAM_KB)
    new = by_input(results, "new")
    names = _workloads(results, writes)
    write_hit = statistics.median(writes[name]["cache.write_hit_pct"] for name in names)
    read_hit = statistics.median(reads[name]["cache.read_hit_pct"] for name in names)
    gains = {name: change_pct(new[name], writes[name]) for name in writes}
    read_gains = [change_pct(new[name], reads[name]) for name in names]
    return Measurement(
        f"median at {_RAM_KB // 1024} MB: {write_hit:.1f} % of written and {read_hit:.1f} % of read units were in RAM",
        {"write_hit": write_hit, "read_hit": read_hit},
        f"A write buffer gains little from hits: it completes writes before the flash is programmed, and the mean "
        f"response changes by {signed(statistics.median(gains[name] for name in names), 0)} % (median); a "
        f"read cache of the same size changes it by {signed(statistics.median(read_gains))} %. Data in a "
        "write buffer is lost with the power. Hits follow from the temporal locality of Table IV and from assumed "
        "distances of reuse." + _recorded_text(results, gains, "% mean response with a write buffer"),
    )


@measure
def levelling(results: Results) -> Measurement:
    """Compare the most worn block under no, dynamic (simple) and static levelling (Implication 4)."""
    runs = {level: by_input(results, "wear", wear__levelling=level) for level in ("none", "dynamic", "static")}
    names = _workloads(results, runs["static"])
    most = {level: {name: max(runs[level][name].wear.erase_counts.max, 1) for name in names} for level in runs}
    ratio = {name: most["dynamic"][name] / most["static"][name] for name in names}
    without = {name: most["none"][name] / most["dynamic"][name] for name in names}
    worst = max(names, key=lambda name: ratio[name])
    waf = {level: statistics.median(runs[level][name].write_amplification.waf for name in names) for level in runs}
    spread = {level: statistics.median(unevenness(runs[level][name]) for name in names) for level in runs}
    return Measurement(
        f"most worn block under simple levelling x{statistics.median(ratio.values()):.2f} (median) of that "
        f"under static levelling, at most x{ratio[worst]:.2f} ({worst})",
        {"worst": ratio[worst]},
        f"Without any levelling it is x{statistics.median(without.values()):.2f} of that under simple levelling, "
        "so that simple levelling has an effect here. Evenness (most worn over mean, medians): "
        + ", ".join(f"{level} x{value:.2f}" for level, value in spread.items())
        + "; write amplification "
        + ", ".join(f"{level} {value:.2f}" for level, value in waf.items())
        + ". Cold data that stays for years is not in these workloads.",
    )


@measure
def slc_for_small_writes(results: Results) -> Measurement:
    """Measure the effect of serving small writes in SLC mode, with half of the capacity (Implication 5)."""
    values, parts, notes = {}, [], []
    recorded: dict[str, float] = {}
    for state in ("new", "aged"):
        base, half, cache = (by_input(results, grid) for grid in (state, f"slc-half-{state}", f"slc-{state}"))
        names = _workloads(results, half)
        gains = {name: change_pct(base[name], half[name]) for name in half}
        faster, median = _faster(gains, names)
        values[f"faster_{state}"] = float(faster)
        parts.append(f"{state}: {faster} of {len(names)} faster, median {signed(median)} %")
        cached, median = _faster({name: change_pct(base[name], cache[name]) for name in cache}, names)
        waf, of_half, of_cache = (
            statistics.median(runs[name].write_amplification.waf for name in names) for runs in (base, half, cache)
        )
        notes.append(
            f"{state}: {cached} of {len(names)} faster, median {signed(median)} %, WAF {waf:.2f} -> "
            f"{of_cache:.2f} (with half of the pages {of_half:.2f})"
        )
        if state == "new":
            before, after = (runs[names[0]].configuration.capacity_bytes for runs in (base, half))
            lost = _lost_of_slc_blocks(base[names[0]], before - after)
            parts.append(f"the host loses {lost:.0f} % of these blocks")
            recorded = {name: gains[name] for name in results.recorded if name in gains}
    return Measurement(
        "; ".join(parts),
        values,
        "A program of 200 us in SLC mode is assumed, as the paper gives no time. The other interpretation, a quarter"
        f" of the blocks as a cache, whose whole capacity the host loses: {'; '.join(notes)}."
        + _recorded_text(results, recorded, "% mean response, new"),
    )


def _faster(changes: dict[str, float], names: Iterable[str]) -> tuple[int, float]:
    """Return the number of workloads that became faster, and the median change of all workloads."""
    values = [changes[name] for name in names]
    return sum(value < 0 for value in values), statistics.median(values)


def _lost_of_slc_blocks(base: Run, lost_bytes: float) -> float:
    """Return the share of the SLC blocks (the first block group) that the host cannot use, in percent."""
    settings = tomllib.loads(Device.named(base.device).set(base.settings).to_toml())
    shape = settings["geometry"]
    group = shape["block_groups"][0]
    parts = ("channels", "chips_per_channel", "dies_per_chip", "planes_per_die")
    planes = math.prod(shape.get(part, 1) for part in parts)
    raw = planes * group["blocks"] * group["pages_per_block"] * group["page_kb"] * 1024
    return float(100 * lost_bytes / (raw / (1 + settings["capacity"]["over_provisioning_pct"] / 100)))


def queued_changes(results: Results, *, closed: bool = True) -> dict[str, float]:
    """Return the change of the mean response time with 32 requests inside the device, in percent, by input.

    In closed loop, requests wait for those for which they waited in the recording; in open loop, they do not.
    """
    base, queues = ("closed", "queues-closed") if closed else ("new", "queues")
    runs = by_input(results, base)
    return {name: change_pct(runs[name], run) for name, run in by_input(results, queues).items()}


def published_waits() -> list[float]:
    """Return the share of the mean response time in Table IV that is not service time, in percent, by workload."""
    times = [(float(row["mean_service_ms"]), float(row["mean_response_ms"])) for row in table("iiswc15_table4_timing")]
    return [100 * (1 - service / response) for service, response in times]


def helps(changes: Iterable[float]) -> int:
    """Count the noticeable improvements among changes of the mean response time, in percent."""
    return sum(change < -HELPS_PCT for change in changes)


@measure
def parallel_queues(results: Results) -> Measurement:
    """Measure the effect of many requests inside the device at once (Implication 1)."""
    changes, open_loop = queued_changes(results), queued_changes(results, closed=False)
    names = _workloads(results, changes)
    helped, helped_open = (helps(values[name] for name in names) for values in (changes, open_loop))
    _, median = _faster(changes, names)
    _, median_open = _faster(open_loop, names)
    waits = published_waits()
    return Measurement(
        f"faster by more than {HELPS_PCT:g} % in {helped} of {len(names)}, median {signed(median)} %",
        {"helped": float(helped)},
        f"In open loop, where a slower device makes queues that the phone had not, {helped_open} of {len(names)}, "
        f"median {signed(median_open)} %. The words contradict Table IV of the paper: there requests wait for more "
        f"than {HELPS_PCT:g} % of the mean response time in {sum(wait > HELPS_PCT for wait in waits)} of {len(waits)} "
        f"workloads ({statistics.median(waits):.0f} % in the median), which is what queues can save."
        + _recorded_text(results, changes, "% mean response"),
    )


def packing_gains(results: Results) -> dict[str, float]:
    """Return by how many percent packed commands speed up long writes, by device."""
    rates: dict[str, dict[int, float]] = {}
    for run in results.select("packing"):
        rate = run.requests.bytes_written / run.run.simulated_s
        rates.setdefault(run.device, {})[run.settings["host.packed_writes"]] = rate
    return {device: 100 * (by_size[max(by_size)] / by_size[0] - 1) for device, by_size in rates.items()}


@measure
def packing(results: Results) -> Measurement:
    """Measure how much faster packed commands make long writes (Section III-A)."""
    gains = packing_gains(results)
    fitted = gains.pop(_FITTED_TO_FIGURE_3)
    faster = sum(gain > HELPS_PCT for gain in gains.values())
    gain_texts = ", ".join(f"{device} {signed(gain)} %" for device, gain in gains.items())
    return Measurement(
        f"faster by more than {HELPS_PCT:g} % on {faster} of {len(gains)}: {gain_texts}",
        {"faster": float(faster)},
        f"{_FITTED_TO_FIGURE_3} gains {signed(fitted)} %: only parallel programs match Figure 3, and a longer "
        "command uses more of its planes.",
    )


def waf_by_pages(results: Results) -> dict[str, dict[str, float]]:
    """Return the write amplification of full devices by page size, and by input."""
    grids = {"4 KB": "pages-4k", "8 KB": "pages-8k", "both sizes": "pages-hps"}
    return {
        pages: {name: run.write_amplification.waf for name, run in by_input(results, grid).items()}
        for pages, grid in grids.items()
    }


@measure
def page_sizes_worn(results: Results) -> Measurement:
    """Compare how many bytes are written to the flash, and thus its wear, with pages of 8 KB and 4 KB (Section V)."""
    waf = waf_by_pages(results)
    names = _workloads(results, waf["8 KB"])
    wear, hybrid = ([waf[pages][name] / waf["4 KB"][name] for name in names] for pages in ("8 KB", "both sizes"))
    small, large = (by_input(results, grid) for grid in ("pages-4k", "pages-8k"))
    collections = statistics.median(large[name].gc.blocks / small[name].gc.blocks for name in names)
    more = sum(ratio > 1 for ratio in wear)
    return Measurement(
        f"more written to the flash in {more} of {len(names)} (median x{statistics.median(wear):.2f})",
        {"more": float(more)},
        f"There are x{collections:.2f} as many collections (median), of blocks twice as large. Pages of both sizes "
        f"write x{statistics.median(hybrid):.2f} as much (median), and more in {sum(ratio > 1 for ratio in hybrid)} "
        f"of {len(names)}.",
    )
