"""Applications on storage devices: the measures of the claims on `fast12`, and the fit of its one free parameter."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from math import log2
from statistics import median
from typing import cast

from emmclab.core_types import ReadWriteCounts, RequestCounts, RequestGroup
from emmclab.papers.measures import Measurement, measure, table
from emmclab.runtime.number_format import signed
from emmclab.studies.results import Results
from emmclab.studies.stored_types import Run

#: The applications of the talk (slide 16).
APPLICATIONS = ("webbench", "maps", "email", "facebook", "pulse", "appinstall", "rlbench", "applaunch")
#: The internal flash; its speed is an assumption.
INTERNAL = "nexusone"
#: Device presets of the cards by their names in the talk, in the order of its table.
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
#: The cards except Kingston, which slides 18 to 20 leave out.
OTHERS = tuple(name for name in CARDS.values() if name != KINGSTON)
NETWORKS = ("wifi", "usb")
WEBBENCH = "webbench"
#: Grids of the study: the presets unchanged, and the other mapping scheme that fits the published figures.
GRID, LOG_BLOCKS = "cards", "log-blocks"
#: The setting for the number of log blocks of a card, and its value in the presets.
LOG_BLOCKS_KEY, PRESET_LOG_BLOCKS = "mapping.log_blocks", 4
#: Block size of the file systems, bytes.
_BLOCK = 4096
#: The share of a run that counts as its start.
_START = 0.25


def seconds(run: Run) -> float:
    """Return the run time, which is the time that the user waited, in s."""
    return run["app"]["runtime_s"]


def runs_of(results: Results, name: str, network: str, log_blocks: int = 0) -> dict[str, Run]:
    """Return the run of an application on each device; `log_blocks` above 0 selects `bast` with as many."""
    found = {run["device"]: run for run in results.select(GRID, input=name, network=network)}
    if log_blocks:
        others = results.select(LOG_BLOCKS, input=name, network=network)
        found |= {run["device"]: run for run in others if run["settings"][LOG_BLOCKS_KEY] == log_blocks}
    return found


def spread(runs: Mapping[str, Run], devices: Iterable[str]) -> float:
    """Return (slowest / fastest - 1) of the run times on these devices, in percent."""
    times = [seconds(runs[device]) for device in devices]
    return 100 * (max(times) / min(times) - 1)


def _waiting(run: Run) -> float:
    """Return the run time without the application's own processor time, in s."""
    return seconds(run) - float(run["app"]["states"]["running"]) / 1e9


@measure
def webbench_spread(results: Results) -> Measurement:
    """Measure how much the run time of WebBench differs between devices."""
    found = {network: runs_of(results, WEBBENCH, network) for network in NETWORKS}
    other = runs_of(results, WEBBENCH, "wifi", PRESET_LOG_BLOCKS)
    wifi, usb = (spread(found[network], OTHERS) for network in NETWORKS)
    internal = spread(found["wifi"], (INTERNAL, KINGSTON))
    waiting = [_waiting(found["wifi"][device]) for device in OTHERS]
    running = float(found["wifi"][KINGSTON]["app"]["states"]["running"]) / 1e9
    return Measurement(
        f"{wifi:.0f} % over WiFi, {usb:.0f} % over USB without Kingston; {internal:.0f} % between internal "
        "flash and Kingston",
        {"wifi_pct": wifi, "usb_pct": usb},
        f"With a log block for each block written (`bast`) on six cards {spread(other, OTHERS):.0f} % and "
        f"{spread(other, (INTERNAL, KINGSTON)):.0f} %. The assumed work of the browser takes {running:.0f} s "
        f"of each run: the rest alone varies by {100 * (max(waiting) / min(waiting) - 1):,.0f} %. Kingston "
        "is not an outlier here, as its published figures are those of the cards of class 6 and 10.",
    )


def fits_axis(slowest_s: float, axis_s: float) -> bool:
    """Return whether the longest bar of a chart is longer than half of the axis, and not longer than it."""
    return axis_s / 2 <= slowest_s <= axis_s


def slowest_against_axes(results: Results) -> list[tuple[str, float, float]]:
    """Return name, the slowest card's run time and the axis length (s) for each chart of slides 18 to 20."""
    found = []
    for row in table("fast12_axes"):
        runs = runs_of(results, row["application"], "wifi")
        with_kingston = row["with_kingston"] == "yes"
        cards = tuple(CARDS.values()) if with_kingston else OTHERS
        name = f"{row['application']} with Kingston" if with_kingston else row["application"]
        found.append((name, max(seconds(runs[card]) for card in cards), float(row["axis_s"])))
    return found


@measure
def axes(results: Results) -> Measurement:
    """Compare the run times on the slowest card with the axes of the talk's charts."""
    charts = slowest_against_axes(results)
    within = sum(fits_axis(slowest, axis) for _, slowest, axis in charts)
    said = ", ".join(f"{name} {slowest:,.0f} of {axis:,.0f} s" for name, slowest, axis in charts)
    above = [name for name, slowest, axis in charts if slowest > axis]
    below = [name for name, slowest, axis in charts if slowest < axis / 2]
    return Measurement(
        f"{within} of {len(charts)} charts",
        {"within": within},
        f"Slowest card: {said}. Too slow: {', '.join(above) or 'none'}; too fast: "
        f"{', '.join(below) or 'none'}. The cards are fitted to two figures each, and the programs to none "
        "of the talk's. The page has what fitting the number of log blocks to axes and spreads gives.",
    )


@measure
def network(results: Results) -> Measurement:
    """Measure how much a network that is ten times as fast changes the run time of WebBench."""
    wifi, usb = (runs_of(results, WEBBENCH, name) for name in NETWORKS)
    change = {card: 100 * (seconds(wifi[card]) / seconds(usb[card]) - 1) for card in CARDS.values()}
    others = {
        name: median(
            100 * (seconds(one[card]) / seconds(two[card]) - 1)
            for one, two in [(runs_of(results, name, "wifi"), runs_of(results, name, "usb"))]
            for card in CARDS.values()
        )
        for name in APPLICATIONS
    }
    most = max(change.values(), key=abs)
    return Measurement(
        f"{signed(min(change.values()))} to {signed(max(change.values()))} %",
        {"most_pct": abs(most)},
        "How much longer it takes over WiFi. Below 0 it is faster: the network decides when write-back meets "
        "a sync, and on these cards one such meeting takes seconds. Medians over the cards of all "
        f"applications: {_said(others)}.",
    )


def _requests(run: Run) -> ReadWriteCounts:
    """Return the requests of a run in the model, which has them."""
    return cast("RequestCounts", run["app"]["requests"])["all"]


def _writes(run: Run) -> RequestGroup:
    return _requests(run)["write"]


def _ratio(run: Run) -> float:
    """Return the number of sequential writes for each random write."""
    group = _writes(run)
    return float(group["sequential"] / max(1, group["requests"] - group["sequential"]))


def _ratio_of_blocks(run: Run) -> float:
    """Return the same ratio in blocks of 4 KB; of a random write, only the first block counts as random."""
    group = _writes(run)
    random = group["requests"] - group["sequential"]
    return float((group["bytes"] / _BLOCK - random) / max(1, random))


def _cards(results: Results) -> dict[str, Run]:
    runs = runs_of(results, WEBBENCH, "wifi")
    return {card: runs[card] for card in CARDS.values()}


@measure
def random_time(results: Results) -> Measurement:
    """Measure which share of the time of writes random writes take on each card."""
    runs = _cards(results)
    shares = {
        card: 100 * (1 - _writes(run)["sequential_device_ns"] / _writes(run)["device_ns"]) for card, run in runs.items()
    }
    ratio = median(map(_ratio, runs.values()))
    return Measurement(
        f"{min(shares.values()):.0f} to {max(shares.values()):.0f} % of the time of writes; {ratio:.2f} "
        "sequential writes for a random one",
        {"least_pct": min(shares.values())},
        f"{_said(shares, '{:.0f}'.format)}.",
    )


@measure
def speed_class(results: Results) -> Measurement:
    """Measure the rank correlation between the speed class of cards and the speed of applications."""
    classes = {row["vendor"]: float(row["speed_class"]) for row in table("fast12_sdcards")}
    found = {}
    for name in APPLICATIONS:
        runs = runs_of(results, name, "wifi")
        pairs = [(classes[vendor], -seconds(runs[card])) for vendor, card in CARDS.items()]
        found[name] = rank_correlation(pairs)
    open_ = {}
    for name in APPLICATIONS:
        runs = runs_of(results, name, "wifi", PRESET_LOG_BLOCKS)
        open_[name] = rank_correlation([(classes[vendor], -seconds(runs[card])) for vendor, card in CARDS.items()])
    return Measurement(
        f"{signed(min(found.values()), 2)} to {signed(max(found.values()), 2)}",
        {"most": max(found.values())},
        "Spearman's, of eight cards; 1 if a higher class is always faster. The fastest two cards are of "
        f"class 2 and 4. {_said(found, partial(signed, digits=2), '')}. With log blocks "
        f"{signed(min(open_.values()), 2)} to {signed(max(open_.values()), 2)}.",
    )


def rank_correlation(pairs: Iterable[tuple[float, float]]) -> float:
    """Return Spearman's rank correlation; equal values get the mean of their ranks.

    >>> rank_correlation([(1, 10), (2, 20), (3, 30)]), rank_correlation([(1, 3), (2, 2), (3, 1)])
    (1.0, -1.0)
    """
    first, second = (_ranks(values) for values in zip(*pairs, strict=True))
    mean = (len(first) + 1) / 2
    covariance = sum((a - mean) * (b - mean) for a, b in zip(first, second, strict=True))
    spreads = [sum((rank - mean) ** 2 for rank in ranks) for ranks in (first, second)]
    return covariance / (spreads[0] * spreads[1]) ** 0.5 if all(spreads) else 0.0


def _ranks(values: Iterable[float]) -> list[float]:
    known = list(values)
    return [sum(other < value for other in known) + (sum(other == value for other in known) + 1) / 2 for value in known]


@measure
def spreads(results: Results) -> Measurement:
    """Measure how much the run time of each application differs between the cards other than Kingston."""
    found, open_ = (
        {name: spread(runs_of(results, name, "wifi", count), OTHERS) for name in APPLICATIONS}
        for count in (0, PRESET_LOG_BLOCKS)
    )
    return Measurement(
        f"{min(found.values()):.0f} to {max(found.values()):,.0f} %",
        {"least_pct": min(found.values()), "most_pct": max(found.values())},
        f"{_said(found, '{:,.0f}'.format)}. With log blocks {_said(open_, '{:,.0f}'.format)}. What the "
        "scheme of a card does where one place is rewritten decides more than its published figures.",
    )


@measure
def webbench_writes(results: Results) -> Measurement:
    """Measure the reads and writes of WebBench."""
    runs = _cards(results)
    counts = [_requests(run) for run in runs.values()]
    reads = [100 * one["read"]["requests"] / (one["read"]["requests"] + one["write"]["requests"]) for one in counts]
    early = [_early(run) for run in runs.values()]
    ratio = median(map(_ratio, runs.values()))
    blocks = median(map(_ratio_of_blocks, runs.values()))
    return Measurement(
        f"{median(reads):.0f} % reads, {median(early):.0f} % of their time in the first quarter; "
        f"{ratio:.2f} sequential writes for a random one",
        {"reads_pct": median(reads), "early_pct": median(early), "ratio": ratio},
        f"Counted in blocks of 4 KB, {blocks:.1f} sequential ones for a random one. "
        "The program's files are small and SQLite syncs each transaction, so that most "
        "writes begin anew.",
    )


def _early(run: Run) -> float:
    """Return the share of the time of reads that falls into the first quarter of the run, in percent."""
    lane = run["app"]["over_time"]["lanes"][0]["states"].get("read", [])
    first = max(1, round(len(lane) * _START))
    return float(100 * sum(lane[:first]) / max(1, sum(lane)))


def processor_s(run: Run) -> float:
    """Return the processor time of cores and kernel threads, in s."""
    return float(run["app"]["cpu_ns"] + (run["app"]["kernel_cpu_ns"] or 0)) / 1e9


@measure
def processor(results: Results) -> Measurement:
    """Compare the processor time on the slow card with that on the fast card."""
    found, on_cores = {}, {}
    for name in APPLICATIONS:
        runs = runs_of(results, name, "wifi")
        slow, fast = runs[KINGSTON], runs[CARDS["Transcend"]]
        found[name] = processor_s(slow) / processor_s(fast)
        on_cores[name] = slow["app"]["cpu_ns"] / fast["app"]["cpu_ns"]
    return Measurement(
        f"{min(found.values()):.2f} to {max(found.values()):.2f}",
        {"least": min(found.values())},
        f"{_said(found, '{:.2f}'.format, '')}; on cores alone {_said(on_cores, '{:.2f}'.format, '')}. "
        "The prices are assumed: the driver of Linux 2.6.35 asks a card every 100 us whether a write is "
        "done, 20 us of the core each time; a progress indicator takes 1 ms of the core 20 times a "
        "second; a switch of threads 10 us. That a slower card then costs more follows from the "
        "mechanisms; their size is not published.",
    )


def _said(found: Mapping[str, float], text: Callable[[float], str] = signed, unit: str = " %") -> str:
    return ", ".join(f"{name} {text(value)}{unit}" for name, value in found.items())


# The published figures of six cards do not determine how many log blocks they have (`bast`). Each number of the study's
# grid is tried on all six cards: how far are the applications from the axes of slides 18 to 20, and from the published
# spreads? As a cross-validation, one application at a time is held out: the number is chosen on the others, and judged
# on the figures of that one.

#: The published spreads, percent, widened by 20 % at both ends as in the claims on them.
_SPREADS, _SPREAD_OF_WEBBENCH = (80.0, 360.0), (160.0, 240.0)


def _octaves(value: float, least: float, most: float) -> float:
    """Return how far a value is outside of its bounds, in octaves: 1 if it is off by a factor of two."""
    return max(0.0, log2(least / value), log2(value / most))


@dataclass(frozen=True)
class Point:
    """Run times of an application on the seven cards other than Kingston, for one number of log blocks."""

    slowest_s: float
    #: The length of the chart's axis. The longest bar should be between half of the axis and the whole axis.
    axis_s: float
    spread_pct: float
    published_pct: tuple[float, float]

    @property
    def on_axis(self) -> bool:
        """Whether the slowest card fits the axis."""
        return fits_axis(self.slowest_s, self.axis_s)

    @property
    def as_spread(self) -> bool:
        """Whether the spread is within the published range."""
        return self.published_pct[0] <= self.spread_pct <= self.published_pct[1]

    @property
    def miss(self) -> float:
        """How far run time and spread are from the published values, in octaves."""
        least, most = (1 + pct / 100 for pct in self.published_pct)
        axis = _octaves(self.slowest_s, self.axis_s / 2, self.axis_s)
        return axis + _octaves(1 + self.spread_pct / 100, least, most)

    @property
    def length(self) -> float:
        """The factor on the program's length with which the slowest card ends at 3/4 of the axis."""
        return 0.75 * self.axis_s / self.slowest_s


#: Points by application, then by number of log blocks.
Points = Mapping[str, Mapping[int, Point]]


def counts(results: Results) -> list[int]:
    """Return the numbers of log blocks that were tried."""
    return sorted({run["settings"][LOG_BLOCKS_KEY] for run in results.select(LOG_BLOCKS)})


def points(results: Results) -> Points:
    """Return the points of every application that has an axis, for every number of log blocks."""
    found: dict[str, dict[int, Point]] = {}
    for row in table("fast12_axes"):
        if row["with_kingston"] == "yes":
            continue
        name = row["application"]
        found[name] = {}
        for count in counts(results):
            runs = runs_of(results, name, "wifi", count)
            found[name][count] = Point(
                max(seconds(runs[card]) for card in OTHERS),
                float(row["axis_s"]),
                spread(runs, OTHERS),
                _SPREAD_OF_WEBBENCH if name == WEBBENCH else _SPREADS,
            )
    return found


def miss(found: Points, count: int, without: Iterable[str] = ()) -> float:
    """Return how far all applications are from the talk with this number of log blocks, in octaves."""
    return sum(by_count[count].miss for name, by_count in found.items() if name not in without)


def best(found: Points, without: Iterable[str] = ()) -> int:
    """Return the number of log blocks that is closest to the talk; of equal ones the smaller."""
    tried = sorted(next(iter(found.values())))
    return min(tried, key=lambda count: miss(found, count, without))


def held_out(found: Points) -> dict[str, tuple[int, Point]]:
    """Return for each application the number that is best for the others, and its own point with it."""
    chosen = {name: best(found, (name,)) for name in found}
    return {name: (count, found[name][count]) for name, count in chosen.items()}


def kingston(results: Results) -> list[tuple[int, float, float]]:
    """Return WebBench on Kingston by log blocks: run time in s, and its ratio to the internal flash."""
    rows = []
    for count in counts(results):
        runs = runs_of(results, WEBBENCH, "wifi", count)
        slow = seconds(runs[KINGSTON])
        rows.append((count, slow, slow / seconds(runs[INTERNAL])))
    return rows
