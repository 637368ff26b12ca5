"""Applications on storage devices: measures the claims with the study `fast12`, and fits numbers of log blocks."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from math import log2
from statistics import median
from typing import cast

from emmclab.core_types import ReadWriteCounts, RequestCounts, RequestGroup
from emmclab.papers.measures import Measurement, measure, table
from emmclab.runtime.document import signed
from emmclab.studies.results import Results
from emmclab.studies.stored_types import Run

#: The applications of the talk (slide 16).
APPLICATIONS = ("webbench", "maps", "email", "facebook", "pulse", "appinstall", "rlbench", "applaunch")
#: Preset of the phone's internal flash; its speed is an assumption.
INTERNAL = "nexusone"
#: Device presets of the SD cards by their names in the talk, in the order of its table.
CARDS = {
    "Transcend": "transcend-c2",
    "RiData": "ridata-c2",
    "Sandisk": "sandisk-c4",
    "Kingston": "kingston-c4",
    "Wintec": "wintec-c6",
    "A-Data": "adata-c6",
    "Patriot": "patriot-c10",
    "PNY": "pny-c10",
}
KINGSTON = CARDS["Kingston"]
#: SD cards except Kingston. Slides 18 to 20 of the FAST 2012 talk leave out this card.
OTHERS = tuple(name for name in CARDS.values() if name != KINGSTON)
NETWORKS = ("wifi", "usb")
WEBBENCH = "webbench"
#: Grids of the study: the unchanged device presets, and another mapping scheme that also fits the published figures.
GRID, LOG_BLOCKS = "cards", "log-blocks"
#: Setting for the number of log blocks of an SD card, and its value in the presets.
LOG_BLOCKS_KEY, PRESET_LOG_BLOCKS = "mapping.log_blocks", 4
#: Block size of the file systems, bytes.
_BLOCK = 4096
#: The share of a run that counts as its start.
_START = 0.25


def seconds(run: Run) -> float:
    """Return the run time in s, which is the time that the user waits."""
    return run.app.runtime_s


def runs_of(results: Results, name: str, network: str, log_blocks: int = 0) -> dict[str, Run]:
    """Return an application's run on each device.

    If `log_blocks` is above 0, the devices with the mapping scheme `bast` have this number of log blocks.
    """
    runs = {run.device: run for run in results.select(GRID, input=name, network=network)}
    if log_blocks:
        others = results.select(LOG_BLOCKS, input=name, network=network)
        runs |= {run.device: run for run in others if run.settings[LOG_BLOCKS_KEY] == log_blocks}
    return runs


def spread(runs: Mapping[str, Run], devices: Iterable[str]) -> float:
    """Return by how many percent the longest run time on these devices exceeds the shortest one."""
    times = [seconds(runs[device]) for device in devices]
    return 100 * (max(times) / min(times) - 1)


def _waiting(run: Run) -> float:
    """Return the run time without the application's own processor time, in s."""
    return seconds(run) - float(run.app.states["running"]) / 1e9


@measure
def webbench_spread(results: Results) -> Measurement:
    """Measure how much the run time of WebBench differs between devices."""
    runs_by_network = {network: runs_of(results, WEBBENCH, network) for network in NETWORKS}
    other = runs_of(results, WEBBENCH, "wifi", PRESET_LOG_BLOCKS)
    wifi, usb = (spread(runs_by_network[network], OTHERS) for network in NETWORKS)
    internal = spread(runs_by_network["wifi"], (INTERNAL, KINGSTON))
    waiting = [_waiting(runs_by_network["wifi"][device]) for device in OTHERS]
    running = float(runs_by_network["wifi"][KINGSTON].app.states["running"]) / 1e9
    return Measurement(
        f"{wifi:.0f} % over WiFi, {usb:.0f} % over USB without Kingston; {internal:.0f} % between internal "
        "flash and Kingston",
        {"wifi_pct": wifi, "usb_pct": usb},
        f"With a log block for each block written (`bast`) on six cards {spread(other, OTHERS):.0f} % and "
        f"{spread(other, (INTERNAL, KINGSTON)):.0f} %. The assumed work of the browser takes {running:.0f} s "
        f"of each run: the rest alone varies by {100 * (max(waiting) / min(waiting) - 1):,.0f} %. Kingston "
        "is not an outlier here, because its published figures are like those of the cards of class 6 and 10.",
    )


def fits_axis(slowest_s: float, axis_s: float) -> bool:
    """Return whether the longest bar of a chart has between half and all of the length of the axis."""
    return axis_s / 2 <= slowest_s <= axis_s


def slowest_against_axes(results: Results) -> list[tuple[str, float, float]]:
    """Return, for each chart of slides 18 to 20, its name, the slowest card's run time (s) and its axis length (s)."""
    charts = []
    for row in table("fast12_axes"):
        runs = runs_of(results, row["application"], "wifi")
        with_kingston = row["with_kingston"] == "yes"
        cards = tuple(CARDS.values()) if with_kingston else OTHERS
        name = f"{row['application']} with Kingston" if with_kingston else row["application"]
        charts.append((name, max(seconds(runs[card]) for card in cards), float(row["axis_s"])))
    return charts


@measure
def axes(results: Results) -> Measurement:
    """Compare the run times on the slowest card with the axis lengths of the charts in the FAST 2012 talk."""
    charts = slowest_against_axes(results)
    within = sum(fits_axis(slowest, axis) for _, slowest, axis in charts)
    times_text = ", ".join(f"{name} {slowest:,.0f} of {axis:,.0f} s" for name, slowest, axis in charts)
    above = [name for name, slowest, axis in charts if slowest > axis]
    below = [name for name, slowest, axis in charts if slowest < axis / 2]
    return Measurement(
        f"{within} of {len(charts)} charts",
        {"within": within},
        f"Slowest card: {times_text}. Too slow: {', '.join(above) or 'none'}; too fast: "
        f"{', '.join(below) or 'none'}. Each card is fitted to two figures; the programs are not fitted to the "
        "talk. The page shows the result of fitting the number of log blocks to axes and spreads. "
        f"{_synced_writes(results)}",
    )


@measure
def network(results: Results) -> Measurement:
    """Measure how much a network that is ten times as fast changes the run time of WebBench.

    The processor time of the browser is assumed, so that the claim is judged with it and with a tenth of it.
    """
    wifi, usb = (runs_of(results, WEBBENCH, name) for name in NETWORKS)
    on_fast_core = [
        {run.device: run for run in results.select("fast-core", input=WEBBENCH, network=name)} for name in NETWORKS
    ]
    change, without = (
        {card: 100 * (seconds(over_wifi[card]) / seconds(over_usb[card]) - 1) for card in CARDS.values()}
        for over_wifi, over_usb in ((wifi, usb), on_fast_core)
    )
    others = {
        name: median(
            100 * (seconds(over_wifi[card]) / seconds(over_usb[card]) - 1)
            for over_wifi, over_usb in [(runs_of(results, name, "wifi"), runs_of(results, name, "usb"))]
            for card in CARDS.values()
        )
        for name in APPLICATIONS
    }
    most = max(change.values(), key=abs)
    running = {
        card: 100 * run.app.states["running"] / run.app.runtime_ns for card, run in wifi.items() if card in change
    }
    return Measurement(
        f"{signed(min(change.values()))} to {signed(max(change.values()))} %; with a tenth of the browser's assumed "
        f"processor time {signed(min(without.values()))} to {signed(max(without.values()))} %",
        {"most_pct": abs(most)},
        "How much longer it takes over WiFi. Below 0 it is faster: the network affects when write-back "
        "coincides with a sync, which takes seconds on these cards. Median over the cards, for each "
        f"application: {_values_text(others)}. Share of the browser's assumed processor time: "
        f"{_values_text(running, '{:.0f}'.format)}. With a tenth of it: {_values_text(without)}.",
        beside={"With a tenth of the browser's processor time": {"most_pct": max(map(abs, without.values()))}},
    )


def _synced_writes(results: Results) -> str:
    """Return how many random writes a second each card completes if each is synced through a file system."""
    rates = [
        {run.device: run.app.file_syncs / seconds(run) for run in results.select(grid, input="random-writes")}
        for grid in ("ext4", "fat32")
    ]
    rows = {row["vendor"]: row["random_write_iops"] for row in table("fast12_sdcards")}
    cards = (f"{card} {rates[0][card]:.3g} and {rates[1][card]:.3g} ({rows[name]})" for name, card in CARDS.items())
    return (
        "The cards have the published rates of random writes without a file system. With a sync for each through "
        f"ext4 and FAT32, they make as many a second (published): {', '.join(cards)}."
    )


def _requests(run: Run) -> ReadWriteCounts:
    """Return the request counts of an application run; they are never missing in a simulated run."""
    return cast("RequestCounts", run.app.requests).all


def _writes(run: Run) -> RequestGroup:
    return _requests(run).write


def _ratio(run: Run) -> float:
    """Return the number of sequential writes for each random write."""
    group = _writes(run)
    return float(group.sequential / max(1, group.requests - group.sequential))


def _ratio_of_blocks(run: Run) -> float:
    """Return the ratio of sequential to random blocks of 4 KB; only the first block of a random write is random."""
    group = _writes(run)
    random = group.requests - group.sequential
    return float((group.bytes / _BLOCK - random) / max(1, random))


def _cards(results: Results) -> dict[str, Run]:
    runs = runs_of(results, WEBBENCH, "wifi")
    return {card: runs[card] for card in CARDS.values()}


@measure
def random_time(results: Results) -> Measurement:
    """Measure the share of random writes in the time of all writes, on each card."""
    runs = _cards(results)
    shares = {
        card: 100 * (1 - _writes(run).sequential_device_ns / _writes(run).device_ns) for card, run in runs.items()
    }
    ratio = median(map(_ratio, runs.values()))
    return Measurement(
        f"{min(shares.values()):.0f} to {max(shares.values()):.0f} % of the time of writes; {ratio:.2f} "
        "sequential writes for a random one",
        {"least_pct": min(shares.values())},
        f"{_values_text(shares, '{:.0f}'.format)}.",
    )


@measure
def speed_class(results: Results) -> Measurement:
    """Measure the rank correlation between the speed class of cards and the speed of applications."""
    classes = {row["vendor"]: float(row["speed_class"]) for row in table("fast12_sdcards")}
    correlations = {}
    for name in APPLICATIONS:
        runs = runs_of(results, name, "wifi")
        pairs = [(classes[vendor], -seconds(runs[card])) for vendor, card in CARDS.items()]
        correlations[name] = rank_correlation(pairs)
    bast = {}
    for name in APPLICATIONS:
        runs = runs_of(results, name, "wifi", PRESET_LOG_BLOCKS)
        bast[name] = rank_correlation([(classes[vendor], -seconds(runs[card])) for vendor, card in CARDS.items()])
    return Measurement(
        f"{signed(min(correlations.values()), 2)} to {signed(max(correlations.values()), 2)}",
        {"most": max(correlations.values())},
        "Spearman's rank correlation of eight cards, 1 if a higher class is always faster. The fastest two are of "
        f"class 2 and 4. {_values_text(correlations, partial(signed, digits=2), '')}. With log blocks "
        f"{signed(min(bast.values()), 2)} to {signed(max(bast.values()), 2)}.",
    )


def rank_correlation(pairs: Iterable[tuple[float, float]]) -> float:
    """Return Spearman's rank correlation; equal values have the mean of their ranks.

    >>> rank_correlation([(1, 10), (2, 20), (3, 30)]), rank_correlation([(1, 3), (2, 2), (3, 1)])
    (1.0, -1.0)
    """
    first, second = (_ranks(values) for values in zip(*pairs, strict=True))
    mean = (len(first) + 1) / 2
    covariance = sum((a - mean) * (b - mean) for a, b in zip(first, second, strict=True))
    spreads = [sum((rank - mean) ** 2 for rank in ranks) for ranks in (first, second)]
    return covariance / (spreads[0] * spreads[1]) ** 0.5 if all(spreads) else 0.0


def _ranks(values: Iterable[float]) -> list[float]:
    items = list(values)
    return [sum(other < value for other in items) + (sum(other == value for other in items) + 1) / 2 for value in items]


@measure
def spreads(results: Results) -> Measurement:
    """Measure how much the run time of each application differs between the cards other than Kingston."""
    spread_by_name, bast = (
        {name: spread(runs_of(results, name, "wifi", count), OTHERS) for name in APPLICATIONS}
        for count in (0, PRESET_LOG_BLOCKS)
    )
    other_spreads = _values_text(bast, "{:,.0f}".format)
    return Measurement(
        f"{min(spread_by_name.values()):.0f} to {max(spread_by_name.values()):,.0f} %",
        {"least_pct": min(spread_by_name.values()), "most_pct": max(spread_by_name.values())},
        f"{_values_text(spread_by_name, '{:,.0f}'.format)}. With log blocks {other_spreads}. How the "
        "scheme of a card handles rewrites of one place matters more than its published figures.",
    )


@measure
def webbench_writes(results: Results) -> Measurement:
    """Measure the share of reads in WebBench's requests, and how many writes are sequential."""
    runs = _cards(results)
    counts = [_requests(run) for run in runs.values()]
    reads = [100 * row.read.requests / (row.read.requests + row.write.requests) for row in counts]
    early = [_early(run) for run in runs.values()]
    ratio = median(map(_ratio, runs.values()))
    blocks = median(map(_ratio_of_blocks, runs.values()))
    return Measurement(
        f"{median(reads):.0f} % reads, {median(early):.0f} % of their time in the first quarter; "
        f"{ratio:.2f} sequential writes for a random one",
        {"reads_pct": median(reads), "early_pct": median(early), "ratio": ratio},
        f"Counted in blocks of 4 KB, {blocks:.1f} sequential ones for a random one. "
        "The program's files are small and SQLite syncs each transaction, so that most writes start at a new place.",
    )


def _early(run: Run) -> float:
    """Return the share of the time of reads that falls into the first quarter of the run, in percent."""
    lane = run.app.over_time.lanes[0].states.get("read", [])
    first = max(1, round(len(lane) * _START))
    return float(100 * sum(lane[:first]) / max(1, sum(lane)))


def processor_s(run: Run) -> float:
    """Return the processor time of the program and of kernel threads, in s."""
    return float(run.app.cpu_ns + (run.app.kernel_cpu_ns or 0)) / 1e9


@measure
def processor(results: Results) -> Measurement:
    """Compare the processor time on the slow card with that on the fast card."""
    ratios, on_cores = {}, {}
    for name in APPLICATIONS:
        runs = runs_of(results, name, "wifi")
        slow, fast = runs[KINGSTON], runs[CARDS["Transcend"]]
        ratios[name] = processor_s(slow) / processor_s(fast)
        on_cores[name] = slow.app.cpu_ns / fast.app.cpu_ns
    return Measurement(
        f"{min(ratios.values()):.2f} to {max(ratios.values()):.2f}",
        {"least": min(ratios.values())},
        f"{_values_text(ratios, '{:.2f}'.format, '')}; on cores alone {_values_text(on_cores, '{:.2f}'.format, '')}. "
        "The processor times are assumed: the driver of Linux 2.6.35 polls a card every 100 us until a write is "
        "done, which takes 20 us of the core each time; a progress indicator takes 1 ms of the core 20 times "
        "a second; a context switch takes 10 us. That a slower card costs more follows from these mechanisms; "
        "their times are not published.",
    )


def _values_text(value_by_name: Mapping[str, float], text: Callable[[float], str] = signed, unit: str = " %") -> str:
    return ", ".join(f"{name} {text(value)}{unit}" for name, value in value_by_name.items())


# The published figures of six SD cards do not determine the number of log blocks of their mapping (`bast`). Each number
# in the study is tried on all six cards. The application times are compared with the axes of slides 18 to 20, and their
# spreads over the cards with the published spreads. For cross-validation, each application is held out once: the number
# is chosen by the other applications, and compared with the figures of this one.

#: Published spreads of the run time over the cards, in percent. Both ends are widened by 20 %, as in the claims.
_SPREADS, _SPREAD_OF_WEBBENCH = (80.0, 360.0), (160.0, 240.0)


def _octaves(value: float, least: float, most: float) -> float:
    """Return the distance of a value from a range in octaves: 0 inside, 1 if outside by a factor of two."""
    return max(0.0, log2(least / value), log2(value / most))


@dataclass(frozen=True)
class Point:
    """Run times of an application on the seven cards other than Kingston, for one number of log blocks."""

    slowest_s: float
    #: Length of the published chart's time axis, seconds. The longest bar should fill at least half of the axis.
    axis_s: float
    spread_pct: float
    published_pct: tuple[float, float]

    @property
    def on_axis(self) -> bool:
        """Whether the slowest card's run time fits the axis of the published chart."""
        return fits_axis(self.slowest_s, self.axis_s)

    @property
    def as_spread(self) -> bool:
        """Whether the spread of the run times is within the published range."""
        return self.published_pct[0] <= self.spread_pct <= self.published_pct[1]

    @property
    def miss(self) -> float:
        """How far the longest run time and the spread are from the published values, in octaves."""
        least, most = (1 + pct / 100 for pct in self.published_pct)
        axis = _octaves(self.slowest_s, self.axis_s / 2, self.axis_s)
        return axis + _octaves(1 + self.spread_pct / 100, least, most)

    @property
    def length(self) -> float:
        """Factor by which to lengthen the program so that the slowest card's bar fills 3/4 of the chart's axis."""
        return 0.75 * self.axis_s / self.slowest_s


#: Results for each application, then for each number of log blocks.
Points = Mapping[str, Mapping[int, Point]]


def counts(results: Results) -> list[int]:
    """Return the numbers of log blocks that were tried."""
    return sorted({run.settings[LOG_BLOCKS_KEY] for run in results.select(LOG_BLOCKS)})


def points(results: Results) -> Points:
    """Return the point of each application with a published time axis, for every number of log blocks."""
    points_by_name: dict[str, dict[int, Point]] = {}
    for row in table("fast12_axes"):
        if row["with_kingston"] == "yes":
            continue
        name = row["application"]
        points_by_name[name] = {}
        for count in counts(results):
            runs = runs_of(results, name, "wifi", count)
            points_by_name[name][count] = Point(
                max(seconds(runs[card]) for card in OTHERS),
                float(row["axis_s"]),
                spread(runs, OTHERS),
                _SPREAD_OF_WEBBENCH if name == WEBBENCH else _SPREADS,
            )
    return points_by_name


def miss(points_by_name: Points, count: int, without: Iterable[str] = ()) -> float:
    """Return the distance of the run times with `count` log blocks from the published run times, in octaves.

    The distances of all applications are added.
    """
    return sum(by_count[count].miss for name, by_count in points_by_name.items() if name not in without)


def best(points_by_name: Points, without: Iterable[str] = ()) -> int:
    """Return the number of log blocks with run times closest to the published ones; if two are equal, the smaller."""
    counts_tried = sorted(next(iter(points_by_name.values())))
    return min(counts_tried, key=lambda count: miss(points_by_name, count, without))


def held_out(points_by_name: Points) -> dict[str, tuple[int, Point]]:
    """Return for each application the number of log blocks that fits all other applications best.

    The second value of each pair is the application's point for this number of log blocks.
    """
    chosen = {name: best(points_by_name, (name,)) for name in points_by_name}
    return {name: (count, points_by_name[name][count]) for name, count in chosen.items()}


def kingston(results: Results) -> list[tuple[int, float, float]]:
    """Return for each number of log blocks WebBench's run time on Kingston (s), and its ratio to the internal flash."""
    rows = []
    for count in counts(results):
        runs = runs_of(results, WEBBENCH, "wifi", count)
        slow = seconds(runs[KINGSTON])
        rows.append((count, slow, slow / seconds(runs[INTERNAL])))
    return rows
