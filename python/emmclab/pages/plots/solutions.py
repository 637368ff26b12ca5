"""The figure of solutions: the gain of each compared with the plain device."""

import altair as alt

from emmclab.pages.plots.chart_parts import chart_of, in_order, tooltip
from emmclab.pages.plots.figure import Chart, Figure, Rows


def gains(rows: Rows) -> Chart:
    """Draw the gain of each run as a point, a row for each solution; the plain device is the line at 1."""
    solutions = in_order(rows, "solution")
    base = chart_of(rows, 28 * len(solutions))
    points = base.mark_point(filled=True, size=70, opacity=0.8).encode(
        x=alt.X("gain:Q", title="gain, times (plain runtime / runtime)", scale=alt.Scale(type="log")),
        y=alt.Y("solution:N", title=None, sort=solutions),
        color=alt.Color("application:N", legend=alt.Legend(columns=4, title=None)),
        tooltip=tooltip(rows),
    )
    plain = base.transform_aggregate(count="count()").mark_rule(strokeDash=[4, 3]).encode(x=alt.datum(1))
    return alt.layer(plain, points)


FIGURES = (
    Figure(
        "gains",
        "Gain by solution",
        "A point for each application, device and network; right of the dashed line it is faster than plain.",
        gains,
        wide=True,
    ),
)
