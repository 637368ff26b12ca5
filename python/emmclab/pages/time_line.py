"""The time line of simulated runs: panels with a common time axis, which are zoomed together."""

from typing import Any

import altair as alt

from emmclab.pages.plots import Chart, Rows, chart_of, in_order, symlog, tooltip
from emmclab.pages.theme import CAUSE_COLOURS, OP_COLOURS

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
