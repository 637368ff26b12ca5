"""Charts of a search: its trials by two objectives, and the best value so far."""

import altair as alt

from emmclab.pages.plots.chart_parts import chart_of, in_order, tooltip
from emmclab.pages.plots.figure import Chart, Rows


def over_objectives(rows: Rows, x: str, y: str) -> Chart:
    """Draw each trial by its values `x` and `y`, a colour for each way; Pareto-optimal ones are large."""
    shared = alt.Scale(zero=False, padding=8)
    ways = in_order(rows, "trace")
    legend = alt.Legend(columns=3, orient="bottom")
    sizes = alt.Scale(domain=["no", "yes"], range=[25, 140])
    return (
        chart_of(rows, 320)
        .mark_point(filled=True)
        .encode(
            x=alt.X("x:Q", title=x, scale=shared),
            y=alt.Y("y:Q", title=y, scale=shared),
            color=alt.Color("trace:N", title=None, sort=ways, legend=legend),
            shape=alt.Shape("trace:N", title=None, sort=ways, legend=legend),
            size=alt.Size("best:O", sort=["no", "yes"], legend=None, scale=sizes),
            tooltip=tooltip(rows),
        )
    )


def best_so_far(rows: Rows, title: str) -> Chart:
    """Draw the best `value` up to each `trial`, a colour for each way."""
    return (
        chart_of(rows)
        .mark_line(interpolate="step-after")
        .encode(
            x=alt.X("trial:Q", title="trial"),
            y=alt.Y("value:Q", title=title, scale=alt.Scale(zero=False, padding=8)),
            color=alt.Color(
                "trace:N", title=None, sort=in_order(rows, "trace"), legend=alt.Legend(columns=3, orient="bottom")
            ),
            tooltip=tooltip(rows),
        )
    )
