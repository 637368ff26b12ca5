"""Figures of simulated runs: functions that draw data with columns `trace` and `device`, and the data itself.

The panels of the time line have a common time axis, and are zoomed together.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import altair as alt

from emmclab.pages.plots import Chart, Figure, Rows, chart_of, figure, in_order, op_colour, symlog, tooltip, traces_of
from emmclab.pages.theme import CAUSE_COLOURS, OP_COLOURS
from emmclab.runtime.document import Row
from emmclab.simulation.result import Result, wait_figures
from emmclab.simulation.result_fields import shown_fields

#: Width of the label area, pixels; it is equal in all panels, so that they are aligned.
_LABELS_PX = 62
#: Heights of a tall panel, a low panel and a row, pixels.
_TALL_PX, _LOW_PX, _LANE_PX = 170, 80, 22
#: Colours of mean, 99th percentile and maximum of the response time, if the chart shows a single device.
_TIMES = {"mean": "#3b7dd8", "p99": "#e07b39", "max": "#c4528c"}
_FIELDS = {"mean": "response_mean_ms", "p99": "response_p99_ms", "max": "response_max_ms"}
#: Colours of the causes of waiting in a time step, in stacking order from the bottom; `work` is the remaining time.
WAITS = {
    "queue": CAUSE_COLOURS["queue"],
    "collection": CAUSE_COLOURS["gc"],
    "wake-up": CAUSE_COLOURS["wake-up"],
    "work": CAUSE_COLOURS["array"],
}


def time_line(rows: Rows) -> Chart:
    """Draw response times, causes of waiting, unfinished requests, load and background work of the device.

    The rows of data are time steps of one trace, each with its `device`. If there are several devices, the charts
    compare them; causes of waiting are drawn only for a single device.
    """
    devices = in_order(rows, "device")
    work = _work(rows, devices)
    charts = [_responses(rows, devices)]
    if len(devices) == 1:
        charts.append(_waits(rows))
    charts += [_unfinished(rows, devices), _load(rows, last=work is None)]
    if work is not None:
        charts.append(work)
    for number, chart in enumerate(charts):
        chart.name = f"panel-{number}"
    zoom = alt.TopLevelSelectionParameter(
        name="zoom",
        bind="scales",
        select={"type": "interval", "encodings": ["x"], "zoom": "wheel![event.ctrlKey]"},
        views=[chart.name for chart in charts],
    )
    panels_chart = alt.vconcat(*charts, spacing=14, params=[zoom])
    return panels_chart.resolve_scale(x="shared", color="independent", strokeDash="independent")


def _base(rows: Rows, height: int, *, middle: bool = False) -> Chart:
    at = "datum.time_s + datum.width_s / 2" if middle else "datum.time_s"
    times = {"at_s": at, "to_s": "datum.time_s + datum.width_s"}
    return chart_of(rows, height).properties(width=400).transform_calculate(**times)


def _x(rows: Rows, last: bool = False) -> alt.X:
    end = max(row["time_s"] + row["width_s"] for row in rows)
    scale = alt.Scale(domain=[0, end], nice=False)
    return alt.X("at_s:Q", title="time, s" if last else None, scale=scale, axis=alt.Axis(labels=last))


def _y(field: str, title: str, axis: alt.Axis | None = None, **scale: Any) -> alt.Y:
    axis = axis or alt.Axis(tickCount=4)
    axis.minExtent = axis.maxExtent = _LABELS_PX
    return alt.Y(f"{field}:Q", title=title, axis=axis, **scale)


def _device_colour(devices: list[str], legend: bool = False) -> alt.Color:
    legend_options = alt.Legend(columns=3) if legend and len(devices) > 1 else None
    return alt.Color("device:N", title=None, sort=devices, legend=legend_options)


def _responses(rows: Rows, devices: list[str]) -> Chart:
    statistics = list(_TIMES) if len(devices) == 1 else ["mean", "p99"]
    timed = [row for row in rows if row["response_p99_ms"] is not None]
    highest = _FIELDS[statistics[-1]]
    scaled = symlog(timed, highest, 1.0)
    base = (
        _base(rows, _TALL_PX, middle=True)
        .transform_filter("datum.response_mean_ms != null")
        .transform_calculate(**{name: f"datum.{_FIELDS[name]}" for name in statistics})
        .transform_fold(statistics, ["of", "response_ms"])
    )
    if len(devices) == 1:
        scale = alt.Scale(domain=statistics, range=[_TIMES[name] for name in statistics])
        colour = alt.Color("of:N", title=None, scale=scale)
    else:
        base = base.encode(strokeDash=alt.StrokeDash("of:N", title=None, sort=statistics))
        colour = _device_colour(devices, legend=True)

    # Points are also drawn, because a step between two pauses would not be visible as a line.
    return base.mark_line(strokeWidth=1, clip=True, point=alt.OverlayMarkDef(size=12)).encode(
        x=_x(rows),
        y=_y("response_ms", "response, ms", scaled.axis, scale=scaled.scale),
        tooltip=tooltip(timed),
        color=colour,
    )


def _waits(rows: Rows) -> Chart:
    scale = alt.Scale(domain=list(WAITS), range=list(WAITS.values()))

    return (
        _base(rows, _LOW_PX + 20)
        .transform_filter("datum.response_mean_ms != null")
        .transform_calculate(
            queue="datum.queue_ms",
            collection="datum.gc_ms",
            **{
                "wake-up": "datum.wake_up_ms",
                "work": "max(0, datum.response_mean_ms - datum.queue_ms - datum.gc_ms - datum.wake_up_ms)",
            },
        )
        .transform_fold(list(WAITS), ["part", "ms"])
        .transform_stack(stack="ms", groupby=["time_s"], sort=[alt.SortField("part")], as_=["from_ms", "upto_ms"])
        .mark_rect(clip=True, strokeWidth=0)
        .encode(
            x=_x(rows),
            x2="to_s:Q",
            y=_y("from_ms", "mean, ms"),
            y2="upto_ms:Q",
            color=alt.Color("part:N", title="wait for", scale=scale),
        )
    )


def _unfinished(rows: Rows, devices: list[str]) -> Chart:
    return (
        _base(rows, _LOW_PX, middle=True)
        .mark_line(interpolate="step", strokeWidth=1.2, clip=True)
        .encode(x=_x(rows), y=_y("unfinished", "unfinished"), color=_device_colour(devices))
    )


def _load(rows: Rows, last: bool) -> Chart:
    device = rows[0]["device"]
    scale = alt.Scale(domain=["read", "write"], range=[OP_COLOURS["read"], OP_COLOURS["write"]])

    return (
        _base(rows, _LOW_PX)
        .transform_filter(alt.datum.device == device)
        .transform_calculate(read="datum.read_kb / 1024 / datum.width_s", write="datum.write_kb / 1024 / datum.width_s")
        .transform_fold(["read", "write"], ["op", "mb_s"])
        .transform_stack(stack="mb_s", groupby=["time_s"], sort=[alt.SortField("op")], as_=["from_mb", "upto_mb"])
        .mark_rect(clip=True, strokeWidth=0)
        .encode(
            x=_x(rows, last),
            x2="to_s:Q",
            y=_y("from_mb", "MB/s"),
            y2="upto_mb:Q",
            color=alt.Color("op:N", title=None, scale=scale),
        )
    )


def _work(rows: Rows, devices: list[str]) -> Chart | None:
    """Draw a row for each kind of a device's background work; return None if there is no such work."""
    kinds = [
        (name, words)
        for name, words in (("collections", "blocks collected"), ("wake_ups", "wake-ups"))
        if any(row[name] for row in rows)
    ]
    if not kinds:
        return None
    lanes = [f"{device}\n{words}" if len(devices) > 1 else words for device in devices for _, words in kinds]
    names = [name for name, _ in kinds]
    words = "{" + ", ".join(f"{name}: {text!r}" for name, text in kinds) + "}[datum.kind]"
    before = "datum.device + '\\n' + " if len(devices) > 1 else ""
    lines = alt.Axis(labelExpr="split(datum.label, '\\n')", labelLimit=_LABELS_PX + 20, labelFontSize=9)
    lines.minExtent = lines.maxExtent = _LABELS_PX

    return (
        _base(rows, _LANE_PX * len(lanes))
        .transform_fold(names, ["kind", "count"])
        .transform_filter("datum.count > 0")
        .transform_calculate(lane=f"{before}{words}")
        .mark_rect(clip=True)
        .encode(
            x=_x(rows, last=True),
            x2="to_s:Q",
            y=alt.Y("lane:N", title=None, sort=lanes, axis=lines),
            color=alt.Color(
                "count:Q", title="in a step", scale=alt.Scale(type="symlog"), legend=alt.Legend(tickCount=2)
            ),
        )
    )


_MEAN, _SPACE, _WAF = shown_fields(("response.mean_response_ms", "space.space_utilisation", "write_amplification.waf"))
#: Ratio of the largest to the smallest mean above which the axis is logarithmic.
_FAR_APART = 50


def _colour(rows: Rows) -> alt.Color:
    devices = in_order(rows, "device")
    legend = alt.Legend(columns=3, orient="bottom") if len(devices) > 1 else None
    return alt.Color("device:N", title=None, sort=devices, legend=legend)


def _columns(rows: Rows, x: alt.X, y: alt.Y) -> Chart:
    """Draw groups of columns: one group for each value of x, one colour for each device."""
    offset = alt.XOffset("device:N", sort=in_order(rows, "device"))
    return chart_of(rows).mark_bar().encode(x=x, y=y, xOffset=offset, color=_colour(rows))


def _by_trace(rows: Rows, value: str, title: str, **scale: Any) -> Chart:
    x = alt.X("trace:N", title=None, sort=traces_of(rows), axis=alt.Axis(labelAngle=-30, labelLimit=120))
    return _columns(rows, x, alt.Y(f"{value}:Q", title=title, **scale))


@figure("Mean response time by trace", "Mean of completion - arrival; Figure 8 of IISWC 2015.", paper=True)
def mean_response(rows: Rows) -> Chart:
    """Draw Figure 8 (IISWC 2015, section V-B): mean response time by trace and device."""
    values = [row["mean_response_ms"] for row in rows]
    # As in the paper's figure, the axis is logarithmic if the values of the workloads differ by a large factor.
    far_apart = max(values) > _FAR_APART * min((value for value in values if value > 0), default=1)
    scale = symlog(rows, "mean_response_ms", 1.0)._asdict() if far_apart else {"scale": alt.Scale(zero=True)}
    return _by_trace(rows, "mean_response_ms", _MEAN.axis, **scale)


@figure(
    "Space utilisation by trace",
    "Bytes that the host wrote divided by bytes of flash that they occupied; 1 for 4 KB pages. Figure 9 of IISWC 2015.",
    paper=True,
)
def space_utilisation(rows: Rows) -> Chart:
    """Draw Figure 9 (IISWC 2015, section V-B): space utilisation by trace and device."""
    return _by_trace(rows, "space_utilisation", _SPACE.axis, scale=alt.Scale(domain=[0, 1]))


@figure(
    "Cumulative distribution of response times",
    "Share of reads or writes up to each response time (arrival to completion); lines further left are faster.",
    each=True,
    wide=True,
)
def response_cdf(rows: Rows) -> Chart:
    """Draw the cumulative share of requests by response time, a line per device; a single time is drawn as a point."""
    is_single = len(in_order(rows, "device")) == 1
    axis = alt.Axis(format="~r", tickCount=6)
    base = chart_of(rows).encode(
        x=alt.X("up_to_ms:Q", title="response, ms", scale=alt.Scale(type="log", nice=False), axis=axis),
        y=alt.Y("cumulative_pct:Q", title="requests up to this response time, %", scale=alt.Scale(domain=[0, 100])),
        color=op_colour(rows) if is_single else _colour(rows),
    )
    lines = base.mark_line(interpolate="step-after")
    if not is_single:
        lines = lines.encode(strokeDash=alt.StrokeDash("op:N", title=None))
    # A line with a single point would be invisible, so a dot is added.
    line = ["trace", "device", "op"]
    if 1 not in Counter(tuple(row[name] for name in line) for row in rows).values():
        return lines
    counted = base.transform_joinaggregate(steps="count()", groupby=line)
    return lines + counted.transform_filter("datum.steps == 1").mark_point(filled=True, size=45)


@figure("Distribution of response times", "Reads and writes together, in ranges that double.", each=True)
def response_histogram(rows: Rows) -> Chart:
    """Draw a histogram of response times, with bins of equal width on the axis."""
    bins = sorted({row["up_to_ms"] for row in rows})
    axis = alt.Axis(labelAngle=-40, labelOverlap=True, labelExpr="format(datum.value, '.3~r')")
    x = alt.X("up_to_ms:O", title="response up to, ms", sort=bins, axis=axis)
    return _columns(rows, x, alt.Y("pct:Q", title="share of requests, %"))


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
    x = alt.X("part:N", title=None, sort=in_order(rows, "part"), axis=alt.Axis(labelAngle=-40))
    return _columns(rows, x, alt.Y("busy_pct:Q", title="busy, %"))


def _by_blocks(rows: Rows, title: str) -> Chart:
    x = alt.X("from:O", title=title, axis=alt.Axis(labelAngle=-40, labelOverlap=True))
    return _columns(rows, x, alt.Y("blocks:Q", title="blocks", axis=alt.Axis(tickMinStep=1)))


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
    "response_cdf": lambda result, _first: [dict(row) for row in result.response_distribution],
    "waits": lambda result, _first: [{"cause": field.short, "wait_ms": ms} for field, ms in wait_figures(result)],
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
