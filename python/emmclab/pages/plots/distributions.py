"""Charts of distributions: the paper's figures 3 to 6 and their like."""

import altair as alt

from emmclab.pages.plots.chart_parts import chart_of, in_order, op_colour, over_ranges, tooltip, trace_colour, traces_of
from emmclab.pages.plots.figure import Chart, Rows


def throughput_by_size(rows: Rows) -> Chart:
    """Figure 3 (IISWC 2015, section III-A): rate against request size."""
    one = len(traces_of(rows)) == 1
    chart = chart_of(rows).transform_filter("datum.high_kb != null")
    base = chart.encode(
        x=alt.X("high_kb:Q", title="request size up to, KB", scale=alt.Scale(type="log", base=2)),
        y=alt.Y("mb_per_s:Q", title="MB/s of service time", scale=alt.Scale(type="log")),
        color=op_colour(rows) if one else trace_colour(rows),
        tooltip=tooltip(rows),
    )
    if not one:
        base = base.encode(strokeDash=alt.StrokeDash("op:N", legend=None), shape=alt.Shape("op:N", title=None))
    return base.mark_line() + base.mark_point(filled=True, size=45)


def size_distribution(rows: Rows) -> Chart:
    """Figure 4 (section III-B): request sizes."""
    return over_ranges(rows, "pct", "share of requests, %", "request size")


def response_distribution(rows: Rows) -> Chart:
    """Figure 5 (section III-C): response times."""
    return over_ranges(rows, "pct", "share of requests, %", "response time")


def response_by_size(rows: Rows) -> Chart:
    """Response times against request size: the median, and from the 10th to the 90th percentile."""
    one = len(traces_of(rows)) == 1
    chart = chart_of([row for row in rows if row["op"] != "all"]).transform_filter("datum.high_kb != null")
    base = chart.encode(
        x=alt.X("high_kb:Q", title="request size up to, KB", scale=alt.Scale(type="log", base=2)),
        color=op_colour(rows) if one else trace_colour(rows),
        tooltip=tooltip(rows),
    )
    if not one:
        base = base.encode(strokeDash=alt.StrokeDash("op:N", legend=None))
    middle = base.encode(y=alt.Y("p50_ms:Q", title="response time, ms", scale=alt.Scale(type="log")))
    shown = middle.mark_line() + middle.mark_point(filled=True, size=45)
    if not one:
        return shown
    return base.mark_area(opacity=0.15).encode(y="p10_ms:Q", y2="p90_ms:Q") + shown


def service_distribution(rows: Rows) -> Chart:
    """Service times in the bins of figure 5."""
    return over_ranges(rows, "pct", "share of requests, %", "service time")


def inter_arrival_distribution(rows: Rows) -> Chart:
    """Figure 6 (section III-C): times from one arrival to the next."""
    return over_ranges(rows, "pct", "share of gaps, %", "inter-arrival time")


def idle_gaps(rows: Rows) -> Chart:
    """Distribution of the idle time."""
    return over_ranges(rows, "idle_pct", "share of idle time, %", "length of the idle gap")


def queue_depth(rows: Rows) -> Chart:
    """Distribution of the number of unfinished requests at an arrival."""
    return over_ranges(rows, "pct", "share of requests, %", "unfinished requests on arrival")


def sequential_runs(rows: Rows) -> Chart:
    """Requests in sequential runs, by the length of the run."""
    return over_ranges(rows, "requests_pct", "share of requests, %", "requests in the run")


def reissue_by_idle(rows: Rows) -> Chart:
    """Share of re-issued requests, by the preceding time without requests."""
    chart = chart_of(rows).encode(
        x=alt.X(
            "bin:N",
            sort=in_order(rows, "bin"),
            title="idle time before",
            axis=alt.Axis(labelAngle=-40, labelOverlap=False),
        ),
        y=alt.Y("pct:Q", title="issued again, % of requests", scale=alt.Scale(domain=[0, 100])),
        color=trace_colour(rows),
        tooltip=tooltip(rows),
    )
    return chart.mark_line() + chart.mark_point(filled=True, size=45)


def wake_up(rows: Rows) -> Chart:
    """Delay of requests by the idle gap before them."""
    bins = in_order(rows, "bin")
    base = (
        chart_of(rows)
        .transform_calculate(median="datum.median_delay_ms", slow="datum.p90_delay_ms")
        .transform_fold(["median", "slow"], ["of", "delay_ms"])
        .transform_calculate(of="datum.of == 'slow' ? '90th percentile' : 'median'")
        .transform_calculate(shown_ms="max(datum.delay_ms, 0.001)")
        .encode(
            x=alt.X(
                "bin:N",
                sort=bins,
                title="idle gap before the request",
                axis=alt.Axis(labelAngle=-40, labelOverlap=False),
            ),
            y=alt.Y("shown_ms:Q", title="delay, ms", scale=alt.Scale(type="log"), axis=alt.Axis(format="~r")),
            color=alt.Color("of:N", title=None),
            tooltip=tooltip(rows),
        )
    )
    return base.mark_line() + base.mark_point(filled=True, size=45)
