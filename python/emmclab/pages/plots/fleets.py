"""Charts of fleets: figures over recordings, all requests together, and comparisons of two fleets."""

import altair as alt

from emmclab.pages.plots.chart_parts import chart_of, in_order, tooltip, trace_colour
from emmclab.pages.plots.figure import Chart, Rows
from emmclab.pages.theme import VERDICT_COLOURS

#: Ratio of the values above which the axis is logarithmic.
_FAR_APART = 30


def over_recordings(rows: Rows, title: str) -> Chart:
    """Draw the share of recordings with at most a `value`, a line for each group."""
    values = [row["value"] for row in rows]
    logarithmic = min(values) > 0 and max(values) > _FAR_APART * min(values)
    scale = alt.Scale(type="log") if logarithmic else alt.Scale(zero=False)
    axis = alt.Axis(format="~r", labelOverlap=True) if logarithmic else alt.Undefined
    return _shares(rows).encode(x=alt.X("value:Q", title=title, scale=scale, axis=axis))


def over_requests(rows: Rows, title: str) -> Chart:
    """Draw the cumulative share of a histogram at each upper edge, a line for each group."""
    axis = alt.Axis(format="~s", labelOverlap=True)
    return _shares(rows).encode(x=alt.X("up_to:Q", title=title, scale=alt.Scale(type="log"), axis=axis))


def _shares(rows: Rows) -> Chart:
    return (
        chart_of(rows)
        .mark_line(interpolate="step-after", point=alt.OverlayMarkDef(size=12) if len(rows) < 3 else False)
        .encode(
            y=alt.Y("share_pct:Q", title="share up to here, %", scale=alt.Scale(domain=[0, 100])),
            color=trace_colour(rows),
            tooltip=tooltip(rows),
        )
    )


def effects(rows: Rows) -> Chart:
    """Draw Cliff's delta of each figure, coloured by the verdict."""
    names = in_order(rows, "figure")
    there = [verdict for verdict in VERDICT_COLOURS if any(row["verdict"] == verdict for row in rows)]
    return (
        chart_of(rows, 22 * len(names))
        .mark_bar()
        .encode(
            y=alt.Y("figure:N", sort=names, title=None),
            x=alt.X("delta:Q", title="Cliff's delta", scale=alt.Scale(domain=[-1, 1])),
            color=alt.Color(
                "verdict:N",
                title=None,
                sort=there,
                scale=alt.Scale(domain=there, range=[VERDICT_COLOURS[verdict] for verdict in there]),
                legend=alt.Legend(columns=2, orient="bottom", labelLimit=180),
            ),
            tooltip=tooltip(rows),
        )
    )
