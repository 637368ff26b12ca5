"""Figures of simulated runs: functions that draw data with columns `trace` and `device`, and the data itself."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import altair as alt

from emmclab.pages.plots import Chart, Figure, Rows, chart_of, figure, in_order, op_colour, symlog, traces_of
from emmclab.pages.theme import CAUSE_COLOURS
from emmclab.pages.time_line import time_line
from emmclab.runtime.document import Row
from emmclab.simulation.result import Result, wait_figures
from emmclab.simulation.result_fields import shown_fields

_MEAN, _SPACE, _WAF = shown_fields(("response.mean_response_ms", "space.space_utilisation", "write_amplification.waf"))
#: Ratio of the largest to the smallest mean above which the axis is logarithmic.
_FAR_APART = 50


def _devices(rows: Rows) -> list[str]:
    return in_order(rows, "device")


def _colour(rows: Rows) -> alt.Color:
    legend = alt.Legend(columns=3, orient="bottom") if len(_devices(rows)) > 1 else None
    return alt.Color("device:N", title=None, sort=_devices(rows), legend=legend)


def _by_device(rows: Rows, value: str, title: str, **scale: Any) -> Chart:
    """Draw columns: one group for each trace, one colour for each device."""
    return (
        chart_of(rows)
        .mark_bar()
        .encode(
            x=alt.X("trace:N", title=None, sort=traces_of(rows), axis=alt.Axis(labelAngle=-30, labelLimit=120)),
            y=alt.Y(f"{value}:Q", title=title, **scale),
            xOffset=alt.XOffset("device:N", sort=_devices(rows)),
            color=_colour(rows),
        )
    )


@figure("Mean response time by trace", "Mean of completion - arrival; Figure 8 of IISWC 2015.", paper=True)
def mean_response(rows: Rows) -> Chart:
    """Draw Figure 8 (IISWC 2015, section V-B): mean response time by trace and device."""
    values = [row["mean_response_ms"] for row in rows]
    # As in the paper's figure, the axis is logarithmic if the values of the workloads differ by a large factor.
    far_apart = max(values) > _FAR_APART * min((value for value in values if value > 0), default=1)
    if far_apart:
        log = symlog(rows, "mean_response_ms", 1.0)
        return _by_device(rows, "mean_response_ms", _MEAN.axis, scale=log.scale, axis=log.axis)
    return _by_device(rows, "mean_response_ms", _MEAN.axis, scale=alt.Scale(zero=True))


@figure(
    "Space utilisation by trace",
    "Bytes that the host wrote divided by bytes of flash that they occupied; 1 for 4 KB pages. Figure 9 of IISWC 2015.",
    paper=True,
)
def space_utilisation(rows: Rows) -> Chart:
    """Draw Figure 9 (IISWC 2015, section V-B): space utilisation by trace and device."""
    return _by_device(rows, "space_utilisation", _SPACE.axis, scale=alt.Scale(domain=[0, 1]))


@figure(
    "Cumulative distribution of response times",
    "Share of reads or writes up to each response time (arrival to completion); lines further left are faster.",
    each=True,
    wide=True,
)
def response_cdf(rows: Rows) -> Chart:
    """Draw the cumulative share of requests by response time, a line per device; a single time is drawn as a point."""
    base = chart_of(rows).encode(
        x=_log_ms("up_to_ms"),
        y=alt.Y("cumulative_pct:Q", title="requests up to this response time, %", scale=alt.Scale(domain=[0, 100])),
        color=op_colour(rows) if len(_devices(rows)) == 1 else _colour(rows),
    )
    lines = base.mark_line(interpolate="step-after")
    if len(_devices(rows)) > 1:
        lines = lines.encode(strokeDash=alt.StrokeDash("op:N", title=None))
    # A line with a single point would be invisible, so a dot is added.
    line = ["trace", "device", "op"]
    if 1 not in Counter(tuple(row[name] for name in line) for row in rows).values():
        return lines
    counted = base.transform_joinaggregate(steps="count()", groupby=line)
    return lines + counted.transform_filter("datum.steps == 1").mark_point(filled=True, size=45)


def _log_ms(field: str) -> alt.X:
    return alt.X(
        f"{field}:Q",
        title="response, ms",
        scale=alt.Scale(type="log", nice=False),
        axis=alt.Axis(format="~r", tickCount=6),
    )


@figure("Distribution of response times", "Reads and writes together, in ranges that double.", each=True)
def response_histogram(rows: Rows) -> Chart:
    """Draw a histogram of response times, with bins of equal width on the axis."""
    bins = sorted({row["up_to_ms"] for row in rows})
    labels = "format(datum.value, '.3~r')"
    return (
        chart_of(rows)
        .mark_bar()
        .encode(
            x=alt.X(
                "up_to_ms:O",
                title="response up to, ms",
                sort=bins,
                axis=alt.Axis(labelAngle=-40, labelOverlap=True, labelExpr=labels),
            ),
            y=alt.Y("pct:Q", title="share of requests, %"),
            xOffset=alt.XOffset("device:N", sort=_devices(rows)),
            color=_colour(rows),
        )
    )


def _stacked(rows: Rows, value: str, title: str) -> Chart:
    causes = in_order(rows, "cause")
    scale = alt.Scale(domain=causes, range=[CAUSE_COLOURS[cause] for cause in causes])
    runs = {(row["device"], row["trace"]) for row in rows}
    # The label has two lines, device and trace, because one line would be too long.
    lines = alt.Axis(labelLimit=160, labelExpr="split(datum.label, '\\n')")
    return (
        chart_of(rows, 44 * len(runs))
        .transform_calculate(
            run="datum.device + (length(datum.trace) ? '\\n' + datum.trace : '')",
            place=f"indexof({causes!r}, datum.cause)",
        )
        .mark_bar()
        .encode(
            y=alt.Y("run:N", title=None, sort=None, axis=lines),
            x=alt.X(f"{value}:Q", title=title, stack="zero"),
            color=alt.Color("cause:N", title=None, scale=scale, legend=alt.Legend(columns=3)),
            order="place:Q",
        )
    )


@figure("Where the time goes", "Parts of the mean response time, ms; a longer bar is a slower device.", wide=True)
def waits(rows: Rows) -> Chart:
    """Draw the parts of the mean response time as a stacked bar for each run."""
    return _stacked(rows, "wait_ms", _MEAN.axis)


@figure("Write amplification by cause", "Bytes programmed divided by bytes that the host wrote.")
def waf_by_cause(rows: Rows) -> Chart:
    """Draw write amplification by cause."""
    return _stacked(rows, "waf", _WAF.axis)


@figure(
    "Utilisation of channels, dies and planes", "Share of the simulated time in which each works.", each=True, wide=True
)
def utilisation(rows: Rows) -> Chart:
    """Draw the share of the time in which channels, dies and planes are busy."""
    parts = in_order(rows, "part")
    return (
        chart_of(rows)
        .mark_bar()
        .encode(
            x=alt.X("part:N", title=None, sort=parts, axis=alt.Axis(labelAngle=-40)),
            y=alt.Y("busy_pct:Q", title="busy, %"),
            xOffset=alt.XOffset("device:N", sort=_devices(rows)),
            color=_colour(rows),
        )
    )


def _by_blocks(rows: Rows, title: str) -> Chart:
    return (
        chart_of(rows)
        .mark_bar()
        .encode(
            x=alt.X("from:O", title=title, axis=alt.Axis(labelAngle=-40, labelOverlap=True)),
            y=alt.Y("blocks:Q", title="blocks", axis=alt.Axis(tickMinStep=1)),
            xOffset=alt.XOffset("device:N", sort=_devices(rows)),
            color=_colour(rows),
        )
    )


@figure("Wear: blocks by their erases", "Number of blocks by erase count, in equal steps.", each=True)
def erase_counts(rows: Rows) -> Chart:
    """Draw the distribution of erase counts over blocks."""
    return _by_blocks(rows, "erases, from")


@figure(
    "Valid data in full blocks", "Number of full blocks by valid map units, which a collection would move.", each=True
)
def valid_units(rows: Rows) -> Chart:
    """Draw the distribution of the number of valid mapping units in full blocks."""
    return _by_blocks(rows, "valid map units, from")


#: Fields of a time step that the chart draws.
_STEP = (
    *("time_s", "width_s", "reads", "writes", "read_kb", "write_kb"),
    *("response_mean_ms", "response_p99_ms", "response_max_ms"),
    *("queue_ms", "gc_ms", "wake_up_ms", "collections", "wake_ups"),
)


def _mean(result: Result, first: Result) -> Rows:
    base, mean = first.response.mean_response_ms, result.response.mean_response_ms
    return [{"mean_response_ms": mean, "against_first_pct": 100 * mean / base if base else None}]


def _space(result: Result, _first: Result) -> Rows:
    used = result.space.space_utilisation
    return [{"space_utilisation": used}] if result.requests.bytes_written else []


def _cdf(result: Result, _first: Result) -> Rows:
    return [dict(row) for row in result.response_distribution]


def _histogram(result: Result, _first: Result) -> Rows:
    """Add up the histograms of reads and writes in bins whose upper edges are powers of two, in ns."""
    counts: Counter[int] = Counter()
    for row in result.response_distribution:
        counts[round(row.up_to_ms * 1e6).bit_length()] += row.requests
    total = counts.total()
    return [
        {"up_to_ms": 2**power / 1e6, "requests": counts[power], "pct": 100 * counts[power] / total}
        for power in (range(min(counts), max(counts) + 1) if counts else ())
    ]


def _steps_of_time(result: Result, _first: Result) -> Rows:
    rows: Rows = []
    for row in result.over_time:
        busy_ms = (row.reads + row.writes) * (row.response_mean_ms or 0.0)
        rows.append({name: row[name] for name in _STEP} | {"unfinished": busy_ms / 1e3 / row.width_s})
    # Without requests, the axes would have no range, so the chart gets no rows.
    return rows if any(row["response_mean_ms"] is not None for row in rows) else []


def _waits(result: Result, _first: Result) -> Rows:
    return [{"cause": field.short, "wait_ms": value} for field, value in wait_figures(result)]


def _programmed(result: Result, _first: Result) -> Rows:
    shares = dict(result.write_amplification)
    return [{"cause": cause, "waf": share} for cause, share in shares.items() if cause != "waf" and shares["waf"]]


def _busy(result: Result, _first: Result) -> Rows:
    parts = (("channel", "channels_pct"), ("die", "dies_pct"), ("plane", "planes_pct"))
    return [
        {"part": f"{part} {number}", "busy_pct": share}
        for part, field in parts
        for number, share in enumerate(result[f"utilisation.{field}"])
    ]


def _blocks(path: str, result: Result, _first: Result) -> Rows:
    histogram = result[path]
    bins = zip(histogram["from"], histogram["blocks"], strict=True)
    drawn: list[Row] = [{"from": low, "blocks": blocks} for low, blocks in bins]
    return drawn if histogram["max"] else []


#: Functions that return the chart rows of a figure. The arguments are a result and the first result of the same trace.
_ROWS: dict[str, Callable[[Result, Result], Rows]] = {
    "response_cdf": _cdf,
    "waits": _waits,
    "time_line": _steps_of_time,
    "response_histogram": _histogram,
    "mean_response": _mean,
    "space_utilisation": _space,
    "waf_by_cause": _programmed,
    "utilisation": _busy,
    "erase_counts": partial(_blocks, "wear.erase_counts"),
    "valid_units": partial(_blocks, "gc.valid_units"),
}

FIGURES = (
    response_cdf,
    waits,
    Figure(
        "time_line",
        "Over time",
        "For the requests that arrive in a step: response times (p99 at most 3 % too high); for one device the causes "
        "of their waits; the mean number of unfinished requests (sum of response times over the length of the step); "
        "data of the host; blocks that the device collected, and its wake-ups. Drag to move, Ctrl and the wheel (or a "
        "pinch) to zoom, double click to reset.",
        time_line,
        each=True,
        wide=True,
    ),
    response_histogram,
    mean_response,
    space_utilisation,
    waf_by_cause,
    utilisation,
    erase_counts,
    valid_units,
)
#: Figures that are drawn only on pages with several runs.
OF_SEVERAL = ("mean_response", "space_utilisation")


def rows_of(results: list[Result], first: dict[str, Result]) -> dict[str, Rows]:
    """Return the rows of all figures; `first` is the first run of each trace."""
    return {
        name: [
            {"trace": result.trace, "device": result.run_name, **row}
            for result in results
            for row in rows(result, first[result.trace])
        ]
        for name, rows in _ROWS.items()
    }
