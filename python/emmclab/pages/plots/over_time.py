"""Charts over the time of the trace."""

import altair as alt

from emmclab.pages.plots.chart_parts import chart_of, op_colour, symlog, tooltip, trace_colour, traces_of
from emmclab.pages.plots.figure import Chart, Rows
from emmclab.pages.theme import OP_COLOURS


def working_set(rows: Rows) -> Chart:
    """Unique pages accessed so far; for one trace also those written. Traces may differ much in length."""
    chart = chart_of(rows).transform_calculate(touched="datum.unique_kb / 1024", written="datum.written_kb / 1024")
    if one := len(traces_of(rows)) == 1:
        chart = chart.transform_fold(["touched", "written"], ["pages", "mb"])
    return chart.mark_line(interpolate="step-after").encode(
        x=alt.X("time_s:Q", title="time, s", scale=alt.Scale(type="linear" if one else "log")),
        y=alt.Y("mb:Q" if one else "touched:Q", title="unique pages so far, MB"),
        color=alt.Color("pages:N", title=None) if one else trace_colour(rows),
        tooltip=tooltip(rows),
    )


def io_over_time(rows: Rows) -> Chart:
    """Data read and written over time, writes on top of reads."""
    return _reads_and_writes(rows, "datum.read_kb / 1024", "datum.write_kb / 1024", "MB/s")


def iops_over_time(rows: Rows) -> Chart:
    """Reads and writes per second over time, writes on top of reads."""
    return _reads_and_writes(rows, "datum.reads", "datum.writes", "requests per second")


def _reads_and_writes(rows: Rows, reads: str, writes: str, title: str) -> Chart:
    """Draw amounts per second in each time bin."""
    return (
        chart_of(rows)
        .transform_calculate(read=f"{reads} / datum.width_s", write=f"{writes} / datum.width_s")
        .transform_calculate(end_s="datum.time_s + datum.width_s")
        .transform_fold(["read", "write"], ["op", "per_s"])
        .transform_calculate(bottom="datum.op == 'read' ? 0 : datum.read")
        .transform_calculate(top="datum.bottom + datum.per_s")
        .mark_rect()
        .encode(
            x=alt.X("time_s:Q", title="time, s"),
            x2="end_s:Q",
            y=alt.Y("bottom:Q", title=title),
            y2="top:Q",
            color=op_colour([{"op": "read"}, {"op": "write"}]),
            tooltip=tooltip(rows),
        )
        .properties(height=200)
    )


def response_over_time(rows: Rows) -> Chart:
    """Mean and 99th percentile of the response times of the requests that arrive in a bin."""
    log = symlog(rows, "response_p99_ms", 1.0)
    base = (
        chart_of(rows)
        .transform_filter("datum.response_mean_ms != null")
        .transform_calculate(middle_s="datum.time_s + datum.width_s / 2")
        .transform_calculate(mean="datum.response_mean_ms", p99="datum.response_p99_ms")
        .transform_fold(["mean", "p99"], ["of", "response_ms"])
        .encode(
            x=alt.X("middle_s:Q", title="time, s"),
            y=alt.Y("response_ms:Q", title="response, ms", scale=log.scale, axis=log.axis),
            color=alt.Color("of:N", title=None, sort=["mean", "p99"]),
            tooltip=tooltip(rows),
        )
    )
    # A line alone would not show an isolated bin between two pauses.
    return (base.mark_line(strokeWidth=1) + base.mark_point(filled=True, size=14)).properties(height=200)


def queue_depth_over_time(rows: Rows) -> Chart:
    """Unfinished requests over time: the mean as bars, the maximum as points."""
    base = chart_of(rows).transform_calculate(
        end_s="datum.time_s + datum.width_s", middle_s="datum.time_s + datum.width_s / 2", bottom="0"
    )
    y = alt.Y("mean_depth:Q", title="unfinished requests on arrival")
    mean = base.mark_rect().encode(
        x=alt.X("time_s:Q", title="time, s"), x2="end_s:Q", y=y, y2="bottom:Q", tooltip=tooltip(rows)
    )
    most = base.mark_point(size=14, opacity=0.6, color=OP_COLOURS["write"]).encode(
        x="middle_s:Q", y="max_depth:Q", tooltip=tooltip(rows)
    )
    return (mean + most).properties(height=200)


def address_time(rows: Rows) -> Chart:
    """Requests by time and address."""
    return (
        chart_of(rows)
        .transform_calculate(end_s="datum.time_s + datum.width_s", requests="datum.reads + datum.writes")
        .mark_rect()
        .encode(
            x=alt.X("time_s:Q", title="time, s"),
            x2="end_s:Q",
            y=alt.Y("low_mb:Q", title="address, MB"),
            y2="high_mb:Q",
            color=alt.Color(
                "requests:Q", title="requests", scale=alt.Scale(type="log"), legend=alt.Legend(tickCount=3)
            ),
            tooltip=tooltip(rows),
        )
    )
