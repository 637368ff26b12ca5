"""What the charts share: size, colours, order, and the distribution over ranges."""

from __future__ import annotations

from typing import Any

import altair as alt

from emmclab.plots.figure import Chart, Rows
from emmclab.theme import OP_COLOURS

#: Height of a chart, pixels; the width is that of its place on the page.
_HEIGHT = 240


def chart_of(rows: Rows) -> Chart:
    """Start a chart on rows, as wide as its place."""
    return alt.Chart(alt.InlineData(values=rows, name="rows")).properties(width="container", height=_HEIGHT)


def traces_of(rows: Rows) -> list[str]:
    """Name the traces, in the order of their rows."""
    return list(dict.fromkeys(row["trace"] for row in rows))


def in_order(rows: Rows, field: str) -> list[Any]:
    """Give the values of a field from the smallest range to the largest; the rows of each trace stand so."""
    return list(dict.fromkeys(row[field] for row in rows))


def op_colour(rows: Rows) -> alt.Color:
    """Give each operation its colour."""
    ops = [op for op in OP_COLOURS if any(row.get("op") == op for row in rows)]
    scale = alt.Scale(domain=ops, range=[OP_COLOURS[op] for op in ops])
    return alt.Color("op:N", title=None, scale=scale)


def trace_colour(rows: Rows) -> alt.Color:
    """Give each trace a colour, and a legend where there are several."""
    legend = alt.Legend(columns=3, orient="bottom") if len(traces_of(rows)) > 1 else None
    return alt.Color("trace:N", title=None, sort=traces_of(rows), legend=legend)


def tooltip(rows: Rows) -> list[alt.Tooltip]:
    """Show every value of the row under the pointer."""
    tips = []
    for name, value in rows[0].items():
        number = not isinstance(value, str)
        form = ",.3~f" if number else alt.Undefined
        tips.append(alt.Tooltip(f"{name}:{'Q' if number else 'N'}", format=form))
    return tips


def over_ranges(rows: Rows, value: str, axis: str, legend: str) -> Chart:
    """Draw a distribution over ranges: columns by operation for one trace, a stacked bar each for several."""
    bins = in_order(rows, "bin")
    by_op = any("op" in row for row in rows)
    chart = chart_of(rows)
    if len(traces_of(rows)) == 1:
        marks = chart.mark_bar().encode(
            x=alt.X("bin:N", sort=bins, title=legend, axis=alt.Axis(labelAngle=-40, labelOverlap=False)),
            y=alt.Y(f"{value}:Q", title=axis),
            tooltip=tooltip(rows),
        )
        if not by_op:
            return marks
        split = [row for row in rows if row["op"] != "all"]
        return marks.transform_filter("datum.op != 'all'").encode(color=op_colour(split), xOffset="op:N")
    if by_op:
        chart = chart.transform_filter("datum.op == 'all'")
    chart = chart.transform_calculate(place=f"indexof({bins!r}, datum.bin)")
    return (
        chart.mark_bar()
        .encode(
            y=alt.Y("trace:N", sort=traces_of(rows), title=None),
            x=alt.X(f"{value}:Q", title=axis, scale=alt.Scale(nice=False)),
            color=alt.Color(
                "bin:O",
                sort=bins,
                title=legend,
                legend=alt.Legend(columns=3, symbolType="square", orient="bottom"),
            ),
            order="place:Q",
            tooltip=tooltip(rows),
        )
        .properties(height=28 * len(traces_of(rows)))
    )
