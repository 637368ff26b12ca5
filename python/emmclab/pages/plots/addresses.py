"""Charts about addresses: pages, buffers, alignment and space."""

from __future__ import annotations

import altair as alt

from emmclab.pages.plots.chart_parts import (
    chart_of,
    in_order,
    op_colour,
    over_ranges,
    tooltip,
    trace_colour,
    traces_of,
)
from emmclab.pages.plots.figure import Chart, Rows


def update_interval(rows: Rows) -> Chart:
    """Time between two writes of the same page."""
    return over_ranges(rows, "pct", "share of overwrites, %", "time since the last write")


def reuse_distance(rows: Rows) -> Chart:
    """Hit rate of a least-recently-used cache by its size (SHARDS: Waldspurger et al., FAST 2015)."""
    base = (
        chart_of(rows)
        .transform_filter("datum.high_kb != null")
        .transform_calculate(size_mb="datum.high_kb / 1024")
        .encode(
            x=alt.X(
                "size_mb:Q", title="cache size, MB", scale=alt.Scale(type="log"), axis=alt.Axis(format="~r")
            ),
            y=alt.Y("hit_pct:Q", title="page touches that hit, %", scale=alt.Scale(domain=[0, 100])),
            color=trace_colour(rows),
            tooltip=tooltip(rows),
        )
    )
    return base.mark_line() + base.mark_point(filled=True, size=30)


def miss_ratio(rows: Rows) -> Chart:
    """Miss ratios of caches by size: a line for each policy, with dash patterns for several traces."""
    several = {"strokeDash": alt.StrokeDash("trace:N", title=None, sort=traces_of(rows))}
    base = (
        chart_of(rows)
        .transform_calculate(
            size_mb="datum.cache_kb / 1024",
            low="datum.miss_pct - datum.error_pct",
            high="datum.miss_pct + datum.error_pct",
        )
        .encode(
            x=alt.X(
                "size_mb:Q",
                title="cache size, MB",
                scale=alt.Scale(type="log", base=2),
                axis=alt.Axis(format="~r"),
            ),
            y=alt.Y("miss_pct:Q", title="page touches that miss, %", scale=alt.Scale(zero=False)),
            color=alt.Color(
                "policy:N", title=None, sort=in_order(rows, "policy"), legend=alt.Legend(columns=3)
            ),
            tooltip=tooltip(rows),
            **(several if len(traces_of(rows)) > 1 else {}),
        )
    )
    error = base.mark_rule().encode(y="low:Q", y2="high:Q")
    return base.mark_line() + error + base.mark_point(filled=True, size=25)


def hot_pages(rows: Rows) -> Chart:
    """Share of the accesses that go to the hottest pages."""
    one = len(traces_of(rows)) == 1
    chart = chart_of(rows) if one else chart_of(rows).transform_filter("datum.op == 'write'")
    return chart.mark_bar().encode(
        x=alt.X("pages_pct:O", title="hottest pages, %", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("share_pct:Q", title="share of page touches, %" if one else "share of page writes, %"),
        xOffset=alt.XOffset("op:N") if one else alt.XOffset("trace:N", sort=traces_of(rows)),
        color=op_colour(rows) if one else trace_colour(rows),
        tooltip=tooltip(rows),
    )


def alignment(rows: Rows) -> Chart:
    """Space utilisation of writes by flash page size (section V-A)."""
    one = len(traces_of(rows)) == 1
    chart = chart_of(rows) if one else chart_of(rows).transform_filter("datum.op == 'write'")
    return chart.mark_bar().encode(
        x=alt.X("page_kb:O", title="flash page, KB", axis=alt.Axis(labelAngle=0)),
        y=alt.Y(
            "space_utilisation_pct:Q",
            title="data over pages taken, %" if one else "written data over pages taken, %",
            scale=alt.Scale(domain=[0, 100]),
        ),
        xOffset=alt.XOffset("op:N") if one else alt.XOffset("trace:N", sort=traces_of(rows)),
        color=op_colour(rows) if one else trace_colour(rows),
        tooltip=tooltip(rows),
    )
