"""Figures of simulated runs: the rows of each figure, and how it is drawn."""

from collections import Counter
from collections.abc import Callable

from emmclab.pages.plots import Figure, Row, Rows, simulation
from emmclab.pages.plots.time_line import time_line
from emmclab.simulation.result import Result, wait_figures

#: Drawn fields of a time step.
_STEP = (
    *("time_s", "width_s", "reads", "writes", "read_kb", "write_kb"),
    *("response_mean_ms", "response_p99_ms", "response_max_ms"),
    *("queue_ms", "gc_ms", "wake_up_ms", "collections", "wake_ups"),
)


def _mean(result: Result, first: Result) -> Rows:
    base, mean = first.fields["response"]["mean_response_ms"], result.fields["response"]["mean_response_ms"]
    return [{"mean_response_ms": mean, "against_first_pct": 100 * mean / base if base else None}]


def _space(result: Result, _first: Result) -> Rows:
    used = result.fields["space"]["space_utilisation"]
    return [{"space_utilisation": used}] if result.fields["requests"]["bytes_written"] else []


def _cdf(result: Result, _first: Result) -> Rows:
    return [dict(row) for row in result.get("response_distribution", ())]


def _histogram(result: Result, _first: Result) -> Rows:
    """Sum the bins of reads and writes into bins that end at powers of two nanoseconds."""
    counts: Counter[int] = Counter()
    for row in result.get("response_distribution", ()):
        counts[round(row["up_to_ms"] * 1e6).bit_length()] += row["requests"]
    total = counts.total()
    return [
        {"up_to_ms": 2**power / 1e6, "requests": counts[power], "pct": 100 * counts[power] / total}
        for power in (range(min(counts), max(counts) + 1) if counts else ())
    ]


def _steps_of_time(result: Result, _first: Result) -> Rows:
    rows: Rows = []
    for row in result.get("over_time", ()):
        busy_ms = (row["reads"] + row["writes"]) * (row["response_mean_ms"] or 0.0)
        rows.append({name: row[name] for name in _STEP} | {"unfinished": busy_ms / 1e3 / row["width_s"]})
    # Without any request, the axes would have no range.
    return rows if any(row["response_mean_ms"] is not None for row in rows) else []


def _waits(result: Result, _first: Result) -> Rows:
    return [{"cause": field.short, "wait_ms": value} for field, value in wait_figures(result)]


def _programmed(result: Result, _first: Result) -> Rows:
    shares = dict(result.fields["write_amplification"])
    return [{"cause": cause, "waf": share} for cause, share in shares.items() if cause != "waf" and shares["waf"]]


def _busy(result: Result, _first: Result) -> Rows:
    parts = (("channel", "channels_pct"), ("die", "dies_pct"), ("plane", "planes_pct"))
    return [
        {"part": f"{part} {number}", "busy_pct": share}
        for part, field in parts
        for number, share in enumerate(result[f"utilisation.{field}"])
    ]


def _blocks(path: str) -> Callable[[Result, Result], Rows]:
    def rows(result: Result, _first: Result) -> Rows:
        found = result[path]
        pairs = zip(found["from"], found["blocks"], strict=True)
        made: list[Row] = [{"from": low, "blocks": blocks} for low, blocks in pairs]
        return made if found["max"] else []

    return rows


#: Functions for the rows of each figure, given a result and the first result of its trace.
_ROWS: dict[str, Callable[[Result, Result], Rows]] = {
    "response_cdf": _cdf,
    "waits": _waits,
    "time_line": _steps_of_time,
    "response_histogram": _histogram,
    "mean_response": _mean,
    "space_utilisation": _space,
    "waf_by_cause": _programmed,
    "utilisation": _busy,
    "erase_counts": _blocks("wear.erase_counts"),
    "valid_units": _blocks("gc.valid_units"),
}

FIGURES = (
    Figure(
        "response_cdf",
        "Cumulative distribution of response times",
        "Share of reads or writes whose response (arrival to completion) took at most this long; the further "
        "left, the faster.",
        simulation.response_cdf,
        each=True,
        wide=True,
    ),
    Figure(
        "waits",
        "Where the time goes",
        "Parts of the mean response in ms; they add up to it, so that a longer bar is a slower device.",
        simulation.waits,
        wide=True,
    ),
    Figure(
        "time_line",
        "Over time",
        "For the requests that arrive in a step: response times (p99 at most 3 % too high); for one device "
        "the causes of their waits; the mean number of unfinished requests (sum of response times over the "
        "length of the step); data of the host; blocks that the device collected, and its wake-ups. Drag to "
        "move, Ctrl and the wheel (or a pinch) to zoom, double click to reset.",
        time_line,
        each=True,
        wide=True,
    ),
    Figure(
        "response_histogram",
        "Distribution of response times",
        "Reads and writes together, in ranges that double.",
        simulation.response_histogram,
        each=True,
    ),
    Figure(
        "mean_response",
        "Mean response time by trace",
        "Mean of completion - arrival; Figure 8 of IISWC 2015.",
        simulation.mean_response,
        paper=True,
    ),
    Figure(
        "space_utilisation",
        "Space utilisation by trace",
        "Bytes the host wrote over flash bytes that they took; a device of 4 KB pages has 1. Figure 9 of IISWC 2015.",
        simulation.space_utilisation,
        paper=True,
    ),
    Figure(
        "waf_by_cause",
        "Write amplification by cause",
        "Bytes programmed over bytes the host wrote.",
        simulation.waf_by_cause,
    ),
    Figure(
        "utilisation",
        "Utilisation of channels, dies and planes",
        "Share of the simulated time in which each works.",
        simulation.utilisation,
        each=True,
        wide=True,
    ),
    Figure(
        "erase_counts",
        "Wear: blocks by their erases",
        "Blocks by how often each was erased, in equal steps.",
        simulation.erase_counts,
        each=True,
    ),
    Figure(
        "valid_units",
        "Valid data in full blocks",
        "Full blocks by valid map units, which a collection would have to move.",
        simulation.valid_units,
        each=True,
    ),
)

#: Figures that compare runs.
OF_SEVERAL = ("mean_response", "space_utilisation")


def rows_of(results: list[Result], first: dict[str, Result]) -> dict[str, Rows]:
    """Return the rows of all figures; `first` is the first run of each trace."""
    return {
        name: [
            {"trace": result.fields["trace"], "device": result.run_name, **row}
            for result in results
            for row in rows(result, first[result.fields["trace"]])
        ]
        for name, rows in _ROWS.items()
    }
