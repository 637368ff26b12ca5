"""Charts for report pages and `--figures`: the declaration of a figure, and common parts of charts.

Rows are those of `figures` in a profile's JSON, each with the name of its `trace`. A chart contains all of them, so
that a figure shows exactly the data that is stored with it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import altair as alt

from emmclab.pages.theme import OP_COLOURS
from emmclab.runtime.document import Row
from emmclab.traces.profile import Profile

Rows = list[Row]
#: A chart of Altair; its type is `Any`, because Altair's chained methods have no type annotations.
Chart = Any


@dataclass(frozen=True)
class Figure:
    """Declaration of a figure.

    Attributes:
        name: field of the figure in a profile, unless `source` is set.
        paper: whether the figure is in the IISWC 2015 paper.
        each: whether there is one chart per trace, instead of one for all.
        wide: whether the figure has the width of the page.
        needs: field without which a row cannot be drawn.
        source: field in a profile if it differs from `name`.
        fields: fields of rows that are drawn; empty means all.
        optional: whether the figure is left out if it has no rows.
        of_all: whether each row describes all traces together, whatever its `trace`.
    """

    name: str
    title: str
    about: str
    draw: Callable[[Rows], Chart]
    paper: bool = False
    each: bool = False
    wide: bool = False
    needs: str = "trace"
    source: str = ""
    fields: tuple[str, ...] = ()
    optional: bool = False
    of_all: bool = False

    def rows(self, profiles: Iterable[Profile]) -> Rows:
        """Return the rows of these profiles that the figure draws."""
        rows = []
        for profile in profiles:
            for row in profile["figures"][self.source or self.name]:
                values = {name: row.get(name) for name in self.fields} if self.fields else row
                rows.append({"trace": profile.name, **values})
        return rows

    def can_draw(self, rows: Rows) -> bool:
        """Return whether any row has the values that the chart needs."""
        return any(row.get(self.needs) is not None for row in rows)


def figure(title: str, about: str, *, name: str = "", **fields: Any) -> Callable[[Callable[[Rows], Chart]], Figure]:
    """Declare a figure by the function that draws its rows; `fields` are further fields of `Figure`."""
    return lambda draw: Figure(name or getattr(draw, "__name__", ""), title, about, draw, **fields)


def specification(chart: Chart) -> dict[str, Any]:
    """Return the Vega-Lite specification of a chart.

    It is not validated against the schema, which would take longer than the rest of a page; tests validate it.
    """
    spec: dict[str, Any] = chart.to_dict(validate=False)
    return spec


#: Default height of a chart, pixels; the width is that of the page's column.
_HEIGHT = 240


def chart_of(rows: Rows, height: int = _HEIGHT) -> Chart:
    """Create a chart for rows of data, with a tooltip of all values of a row."""
    return bare_chart(rows, height).encode(tooltip=tooltip(rows))


def bare_chart(rows: Rows, height: int = _HEIGHT) -> Chart:
    """Create a chart without tooltips for rows of data, as wide as the text column of the page."""
    return alt.Chart({"values": rows, "name": "rows"}).properties(width="container", height=height)


def in_order(rows: Rows, field: str) -> list[Any]:
    """Return the distinct values of a field in the order of the rows; rows of size ranges are ordered by size."""
    return list(dict.fromkeys(row[field] for row in rows))


def traces_of(rows: Rows) -> list[str]:
    """Return the names of the traces, in the order of their rows."""
    return in_order(rows, "trace")


class SymLog(NamedTuple):
    """Scale and axis of a chart for a field whose values span several powers of ten."""

    scale: alt.Scale
    axis: alt.Axis


def symlog(rows: Rows, field: str, constant: float) -> SymLog:
    """Return scale and axis of a field that spans decades and may be <= 0; linear between +-`constant`.

    Ticks are at 1 and 3 times each power of ten; by default, Vega draws them only in the highest decade.
    """
    present = [row[field] for row in rows if row[field] is not None]
    steps = [float(f"{constant * factor * 10**power:.1g}") for power in range(12) for factor in (1, 3)]
    values = [-step for step in reversed(steps) if -step >= min(present)]
    values += [0.0, *(step for step in steps if step <= max(present))]
    axis = alt.Axis(values=values, labelOverlap=True, format=",~r")
    return SymLog(alt.Scale(type="symlog", constant=constant), axis)


def dots(rows: Rows, name: str, x: alt.X, colour: str, sort: list[str] | None = None) -> Chart:
    """Draw a line of points for each value of the field `name`, in the order of the rows.

    `colour` is the field that determines the colour.
    """
    names = in_order(rows, name)
    shades = sort or in_order(rows, colour)
    return (
        bare_chart(rows, 20 * len(names))
        .mark_point(filled=True, size=70)
        .encode(
            y=alt.Y(f"{name}:N", sort=names, title=None), x=x, color=alt.Color(f"{colour}:N", title=None, sort=shades)
        )
    )


def ratio_axis(rows: Rows) -> dict[str, Any]:
    """Return scale and axis, on a logarithmic scale, for the column `ratio`; they include at least 0.5 to 2."""
    ratios = [row["ratio"] for row in rows]
    ticks = [part * 10.0**power for power in range(-4, 5) for part in (1, 2, 5)]
    return {
        "scale": alt.Scale(type="log", domain=[min(*ratios, 0.5), max(*ratios, 2.0)]),
        "axis": alt.Axis(format="~r", values=ticks, labelOverlap=True),
    }


def op_colour(rows: Rows) -> alt.Color:
    """Return the colour scale of operations."""
    ops = [op for op in OP_COLOURS if any(row.get("op") == op for row in rows)]
    scale = alt.Scale(domain=ops, range=[OP_COLOURS[op] for op in ops])
    return alt.Color("op:N", title=None, scale=scale)


def trace_colour(rows: Rows) -> alt.Color:
    """Return the colour scale of traces, with a legend if there are several."""
    legend = alt.Legend(columns=3, orient="bottom") if len(traces_of(rows)) > 1 else None
    return alt.Color("trace:N", title=None, sort=traces_of(rows), legend=legend)


def tooltip(rows: Rows) -> list[alt.Tooltip]:
    """Return a tooltip with all values of a row."""
    tips = []
    for name, value in rows[0].items():
        number = not isinstance(value, str)
        form = ",.3~f" if number else alt.Undefined
        tips.append(alt.Tooltip(f"{name}:{'Q' if number else 'N'}", format=form))
    return tips


def bins_axis(rows: Rows, title: str) -> alt.X:
    """Return the horizontal axis of ranges, each with its label."""
    axis = alt.Axis(labelAngle=-40, labelOverlap=False)
    return alt.X("bin:N", sort=in_order(rows, "bin"), title=title, axis=axis)


def over_ranges(rows: Rows, value: str, axis: str, legend: str) -> Chart:
    """Draw a distribution over ranges: columns by operation for a single trace, stacked bars for several traces."""
    bins = in_order(rows, "bin")
    by_op = any("op" in row for row in rows)
    chart = chart_of(rows)
    if len(traces_of(rows)) == 1:
        marks = chart.mark_bar().encode(x=bins_axis(rows, legend), y=alt.Y(f"{value}:Q", title=axis))
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
                "bin:O", sort=bins, title=legend, legend=alt.Legend(columns=3, symbolType="square", orient="bottom")
            ),
            order="place:Q",
        )
        .properties(height=28 * len(traces_of(rows)))
    )
