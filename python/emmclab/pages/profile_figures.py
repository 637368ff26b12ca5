"""All figures of a profile, in the order of the page."""

import json
from functools import partial
from typing import Any

import altair as alt

from emmclab.pages.plots import (
    Chart,
    Figure,
    Rows,
    bare_chart,
    bins_axis,
    chart_of,
    figure,
    in_order,
    op_colour,
    over_ranges,
    symlog,
    tooltip,
    trace_colour,
    traces_of,
)
from emmclab.pages.theme import FSYNC_COLOURS, OP_COLOURS
from emmclab.traces.profile_fields import FSYNC_PARTS

#: Maximum number of processes that have a colour of their own in a chart.
_COLOURED = 8


def _by_range(
    name: str, title: str, about: str, legend: str, axis: str = "share of requests, %", value: str = "pct", **how: Any
) -> Figure:
    return Figure(name, title, about, partial(over_ranges, value=value, axis=axis, legend=legend), **how)


def _colour(rows: Rows) -> alt.Color:
    """Return the colours of operations for a single trace, and those of traces for several."""
    return op_colour(rows) if len(traces_of(rows)) == 1 else trace_colour(rows)


def _line(base: Chart, size: int = 45) -> Chart:
    return base.mark_line() + base.mark_point(filled=True, size=size)


@figure(
    "Figure 3: throughput by request size",
    "Total data divided by total service time, by range of sizes. The published axis ends at 16 MB.",
    paper=True,
    needs="high_kb",
)
def throughput_by_size(rows: Rows) -> Chart:
    """Draw Figure 3 (IISWC 2015, section III-A): rate by request size."""
    base = _by_size(chart_of(rows), rows).encode(
        y=alt.Y("mb_per_s:Q", title="MB/s of service time", scale=alt.Scale(type="log"))
    )
    return _line(base if len(traces_of(rows)) == 1 else base.encode(shape=alt.Shape("op:N", title=None)))


def _by_size(chart: Chart, rows: Rows) -> Chart:
    base = chart.transform_filter("datum.high_kb != null").encode(
        x=alt.X("high_kb:Q", title="request size up to, KB", scale=alt.Scale(type="log", base=2)), color=_colour(rows)
    )
    return base if len(traces_of(rows)) == 1 else base.encode(strokeDash=alt.StrokeDash("op:N", legend=None))


@figure(
    "Response times by request size",
    "Median, and 10th to 90th percentile: upper edges of ranges a quarter of an octave wide.",
    needs="high_kb",
)
def response_by_size(rows: Rows) -> Chart:
    """Draw response times by request size: the median, and the range from the 10th to the 90th percentile."""
    base = _by_size(bare_chart([row for row in rows if row["op"] != "all"]).encode(tooltip=tooltip(rows)), rows)
    median = _line(base.encode(y=alt.Y("p50_ms:Q", title="response time, ms", scale=alt.Scale(type="log"))))
    if len(traces_of(rows)) > 1:
        return median
    return base.mark_area(opacity=0.15).encode(y="p10_ms:Q", y2="p90_ms:Q") + median


def _reads_and_writes(rows: Rows, reads: str, writes: str, title: str) -> Chart:
    """Draw amounts per second in each time bin, writes on top of reads."""
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
        )
        .properties(height=200)
    )


@figure("I/O over time", "Data read and written in equal steps of time.", each=True, wide=True)
def io_over_time(rows: Rows) -> Chart:
    """Draw data read and written over time."""
    return _reads_and_writes(rows, "datum.read_kb / 1024", "datum.write_kb / 1024", "MB/s")


@figure(
    "IOPS over time",
    "Reads and writes per second.",
    each=True,
    wide=True,
    source="io_over_time",
    fields=("time_s", "width_s", "reads", "writes"),
)
def iops_over_time(rows: Rows) -> Chart:
    """Draw reads and writes per second over time."""
    return _reads_and_writes(rows, "datum.reads", "datum.writes", "requests per second")


@figure(
    "Response times over time",
    "Mean and 99th percentile (at most 3 % too high) of the requests that arrive in a step.",
    each=True,
    wide=True,
    needs="response_mean_ms",
    source="io_over_time",
    fields=("time_s", "width_s", "response_mean_ms", "response_p99_ms", "response_max_ms"),
)
def response_over_time(rows: Rows) -> Chart:
    """Draw mean and 99th percentile of the response times of the requests that arrive in a bin."""
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
        )
    )
    # Points are drawn besides the line, because a line does not show an isolated bin between two pauses.
    return (base.mark_line(strokeWidth=1) + base.mark_point(filled=True, size=14)).properties(height=200)


@figure(
    "Addresses over time",
    "Start addresses of requests; darker cells contain more requests. Lines are streams, bands are hot regions.",
    each=True,
    wide=True,
)
def address_time(rows: Rows) -> Chart:
    """Draw a heat map of the number of requests by time and address."""
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
        )
    )


@figure(
    "Waking up",
    "Delay between fetch and submission (or service time) by the preceding idle gap: a step shows the device's "
    "power-saving threshold and the cost of waking up.",
    each=True,
)
def wake_up(rows: Rows) -> Chart:
    """Draw the additional delay of requests after an idle gap, by the length of the gap."""
    return _line(
        chart_of(rows)
        .transform_calculate(median="datum.median_delay_ms", slow="datum.p90_delay_ms")
        .transform_fold(["median", "slow"], ["of", "delay_ms"])
        .transform_calculate(of="datum.of == 'slow' ? '90th percentile' : 'median'")
        .transform_calculate(shown_ms="max(datum.delay_ms, 0.001)")
        .encode(
            x=bins_axis(rows, "idle gap before the request"),
            y=alt.Y("shown_ms:Q", title="delay, ms", scale=alt.Scale(type="log"), axis=alt.Axis(format="~r")),
            color=alt.Color("of:N", title=None),
        )
    )


@figure("Queue depth over time", "At arrivals. Bars: mean. Points: maximum.", each=True, wide=True)
def queue_depth_over_time(rows: Rows) -> Chart:
    """Draw unfinished requests over time: the mean as bars, the maximum as points."""
    base = chart_of(rows).transform_calculate(
        end_s="datum.time_s + datum.width_s", middle_s="datum.time_s + datum.width_s / 2", bottom="0"
    )
    y = alt.Y("mean_depth:Q", title="unfinished requests on arrival")
    mean = base.mark_rect().encode(x=alt.X("time_s:Q", title="time, s"), x2="end_s:Q", y=y, y2="bottom:Q")
    maximum = base.mark_point(size=14, opacity=0.6, color=OP_COLOURS["write"]).encode(x="middle_s:Q", y="max_depth:Q")
    return (mean + maximum).properties(height=200)


@figure("Working set", "Unique 4 KB pages accessed so far.")
def working_set(rows: Rows) -> Chart:
    """Draw the number of different pages accessed so far, and for a single trace also of those written.

    For several traces, the time axis is logarithmic, because their lengths may differ much.
    """
    chart = chart_of(rows).transform_calculate(touched="datum.unique_kb / 1024", written="datum.written_kb / 1024")
    if is_single := len(traces_of(rows)) == 1:
        chart = chart.transform_fold(["touched", "written"], ["pages", "mb"])
    return chart.mark_line(interpolate="step-after").encode(
        x=alt.X("time_s:Q", title="time, s", scale=alt.Scale(type="linear" if is_single else "log")),
        y=alt.Y("mb:Q" if is_single else "touched:Q", title="unique pages so far, MB"),
        color=alt.Color("pages:N", title=None) if is_single else trace_colour(rows),
    )


@figure(
    "Hit rate of a buffer",
    "Share of page accesses that hit an LRU buffer of this size, from reuse distances.",
    needs="high_kb",
)
def reuse_distance(rows: Rows) -> Chart:
    """Draw the hit rate of a least-recently-used cache by its size (SHARDS: Waldspurger et al., FAST 2015)."""
    base = (
        chart_of(rows)
        .transform_filter("datum.high_kb != null")
        .transform_calculate(size_mb="datum.high_kb / 1024")
        .encode(
            x=alt.X("size_mb:Q", title="cache size, MB", scale=alt.Scale(type="log"), axis=alt.Axis(format="~r")),
            y=alt.Y("hit_pct:Q", title="page accesses that hit, %", scale=alt.Scale(domain=[0, 100])),
            color=trace_colour(rows),
        )
    )
    return _line(base, 30)


@figure("Hot pages", "Share of page accesses to the hottest 1, 5 and 20 % of pages.")
def hot_pages(rows: Rows) -> Chart:
    """Draw the share of accesses to the hottest pages."""
    accesses = "accesses" if len(traces_of(rows)) == 1 else "writes"
    return _of_writes(rows, "pages_pct", "hottest pages, %", alt.Y("share_pct:Q", title=f"share of page {accesses}, %"))


def _of_writes(rows: Rows, x: str, title: str, y: alt.Y) -> Chart:
    """Draw columns by operation for a single trace; those of writes by trace for several."""
    is_single = len(traces_of(rows)) == 1
    chart = chart_of(rows) if is_single else chart_of(rows).transform_filter("datum.op == 'write'")
    return chart.mark_bar().encode(
        x=alt.X(f"{x}:O", title=title, axis=alt.Axis(labelAngle=0)),
        y=y,
        xOffset=alt.XOffset("op:N") if is_single else alt.XOffset("trace:N", sort=traces_of(rows)),
        color=_colour(rows),
    )


@figure(
    "Page size and space",
    "Space utilisation: data divided by the space of its flash pages, if each request is padded to whole pages.",
)
def alignment(rows: Rows) -> Chart:
    """Draw space utilisation by flash page size (section V-A); for several traces, that of writes only."""
    title = "space utilisation, %" if len(traces_of(rows)) == 1 else "space utilisation of writes, %"
    y = alt.Y("space_utilisation_pct:Q", title=title, scale=alt.Scale(domain=[0, 100]))
    return _of_writes(rows, "page_kb", "flash page, KB", y)


@figure(
    "Requests issued twice",
    "Share of requests that are issued again, by the preceding idle time: a step shows after which idle time the link "
    "to the device sleeps.",
)
def reissue_by_idle(rows: Rows) -> Chart:
    """Draw the share of re-issued requests by the length of the idle time before them."""
    base = chart_of(rows).encode(
        x=bins_axis(rows, "idle time before"),
        y=alt.Y("pct:Q", title="issued again, % of requests", scale=alt.Scale(domain=[0, 100])),
        color=trace_colour(rows),
    )
    return _line(base)


@figure(
    "Waits for durability",
    "The longest waits of processes in fsync, fdatasync and msync, at most 256; lines from start to end.",
    each=True,
    wide=True,
)
def sync_stalls(rows: Rows) -> Chart:
    """Draw the longest waits for durability over time, by process; processes with short waits share one colour."""
    waits: dict[str, float] = {}
    for row in rows:
        waits[row["process"]] = waits.get(row["process"], 0.0) + row["wait_ms"]
    coloured = sorted(waits, key=lambda name: -waits[name])[:_COLOURED]
    base = (
        chart_of(rows)
        .transform_calculate(
            of=f"indexof({json.dumps(coloured)}, datum.process) < 0 ? '(others)' : datum.process",
            shown_ms="max(datum.wait_ms, 0.001)",
        )
        .encode(
            x=alt.X("start_s:Q", title="time, s", scale=alt.Scale(nice=False)),
            y=alt.Y("shown_ms:Q", title="wait, ms", scale=alt.Scale(type="log"), axis=alt.Axis(format="~r")),
            color=alt.Color("of:N", title=None, sort=[*coloured, "(others)"]),
        )
    )
    return base.mark_rule(strokeWidth=3).encode(x2="end_s:Q") + base.mark_point(filled=True, size=18)


@figure(
    "Parts of the longest waits for durability",
    "At most 24 waits in fsync, the longest first.",
    each=True,
    wide=True,
    optional=True,
)
def fsync_parts(rows: Rows) -> Chart:
    """Draw the parts of the longest waits for durability: a stacked bar for each wait."""
    names = {field.name: field.label.lower() for field in FSYNC_PARTS}
    return (
        chart_of(rows, 22 * len(in_order(rows, "rank")))
        .transform_calculate(
            wait="datum.rank + '. ' + datum.process + ', ' + format(datum.start_s, ',.3f') + ' s'",
            of=f"({json.dumps(names)})[datum.part]",
            place=f"indexof({json.dumps(list(names))}, datum.part)",
        )
        .mark_bar()
        .encode(
            y=alt.Y("wait:N", title=None, sort=alt.SortField("rank")),
            x=alt.X("part_ms:Q", title="wait, ms", stack="zero"),
            color=alt.Color(
                "of:N",
                title=None,
                scale=alt.Scale(domain=list(names.values()), range=[FSYNC_COLOURS[name] for name in names]),
                legend=alt.Legend(columns=3),
            ),
            order="place:Q",
        )
    )


@figure("Processes", "Data read and written by the twelve most active processes.", each=True)
def process_share(rows: Rows) -> Chart:
    """Draw data read and written by process."""
    count = 12
    return (
        chart_of(rows)
        .transform_calculate(all_kb="datum.read_kb + datum.write_kb")
        .transform_window(rank="row_number()", sort=[alt.SortField("all_kb", order="descending")])
        .transform_filter(f"datum.rank <= {count}")
        .transform_calculate(read="datum.read_kb / 1024", write="datum.write_kb / 1024")
        .transform_fold(["read", "write"], ["op", "mb"])
        .mark_bar()
        .encode(
            y=alt.Y("process:N", sort=alt.SortField("rank"), title=None),
            x=alt.X("mb:Q", title="data, MB"),
            color=op_colour([{"op": "read"}, {"op": "write"}]),
        )
        .properties(height=20 * min(count, len({row["process"] for row in rows})))
    )


@figure("Flags and flushes", "Requests with a flag, and flush requests.", needs="pct")
def flags(rows: Rows) -> Chart:
    """Draw the share of requests with each flag, and of flushes."""
    offset = {"xOffset": alt.XOffset("trace:N", sort=traces_of(rows))} if len(traces_of(rows)) > 1 else {}
    base = bare_chart(rows).encode(
        x=alt.X("flag:N", sort=in_order(rows, "flag"), title=None, axis=alt.Axis(labelAngle=0)),
        color=trace_colour(rows),
        **offset,
    )
    bars = base.mark_bar().encode(y=alt.Y("pct:Q", title="share of requests, %"), tooltip=tooltip(rows))
    # A dash instead of an empty bar marks a flag that the format of a trace cannot record.
    dashes = base.transform_filter("datum.pct === null").mark_text(text="–", baseline="bottom")
    return bars + dashes.encode(y=alt.datum(0))


FIGURES = (
    throughput_by_size,
    _by_range("size_distribution", "Figure 4: request sizes", "Share of requests by size.", "request size", paper=True),
    _by_range(
        "response_distribution", "Figure 5: response times", "From arrival to completion.", "response time", paper=True
    ),
    response_by_size,
    _by_range(
        "inter_arrival_distribution",
        "Figure 6: inter-arrival times",
        "From one arrival to the next.",
        "inter-arrival time",
        "share of gaps, %",
        paper=True,
    ),
    io_over_time,
    iops_over_time,
    response_over_time,
    address_time,
    wake_up,
    _by_range(
        "idle_gaps",
        "Idle time",
        "Idle time by the length of the gap; garbage collection fits into long gaps.",
        "length of the idle gap",
        "share of idle time, %",
        value="idle_pct",
    ),
    _by_range("service_distribution", "Service times", "From fetch by the driver to completion.", "service time"),
    _by_range(
        "queue_depth",
        "Queue depth",
        "Number of unfinished requests at an arrival; 0 is no-wait.",
        "unfinished requests on arrival",
    ),
    queue_depth_over_time,
    working_set,
    reuse_distance,
    hot_pages,
    _by_range(
        "update_interval",
        "Update intervals",
        "Time between two writes of the same 4 KB page.",
        "time since the last write",
        "share of overwrites, %",
    ),
    _by_range(
        "sequential_runs",
        "Sequential runs",
        "Requests by the length of their run; in a run, each request starts where its predecessor ended.",
        "requests in the run",
        value="requests_pct",
    ),
    alignment,
    reissue_by_idle,
    sync_stalls,
    fsync_parts,
    process_share,
    flags,
)
