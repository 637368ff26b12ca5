"""Charts about addresses: pages, buffers, alignment and space."""

import altair as alt

from emmclab.pages.plots.chart_parts import chart_of, op_colour, over_ranges, tooltip, trace_colour, traces_of
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
            x=alt.X("size_mb:Q", title="cache size, MB", scale=alt.Scale(type="log"), axis=alt.Axis(format="~r")),
            y=alt.Y("hit_pct:Q", title="page touches that hit, %", scale=alt.Scale(domain=[0, 100])),
            color=trace_colour(rows),
            tooltip=tooltip(rows),
        )
    )
    return base.mark_line() + base.mark_point(filled=True, size=30)


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
