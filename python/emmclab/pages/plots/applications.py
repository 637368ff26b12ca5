"""Figures of applications: what their users waited for over time, and what each thread did."""

import altair as alt

from emmclab.pages.plots.chart_parts import chart_of, in_order, tooltip
from emmclab.pages.plots.figure import Chart, Figure, Rows
from emmclab.pages.theme import STATE_COLOURS

_LANE_PX = 22


def _colours(rows: Rows) -> alt.Color:
    there = {row["state"] for row in rows}
    states = [state for state in STATE_COLOURS if state in there]
    shades = [STATE_COLOURS[state] for state in states]
    scale = alt.Scale(domain=states, range=shades)
    return alt.Color("state:N", scale=scale, legend=alt.Legend(columns=4, title=None))


def path(rows: Rows) -> Chart:
    """Draw the share of each state in each bin of the user's waiting time."""
    return (
        chart_of(rows, 180)
        .mark_rect(strokeWidth=0)
        .encode(
            x=alt.X("from_s:Q", title="time, s", scale=alt.Scale(nice=False)),
            x2="to_s:Q",
            y=alt.Y("from_pct:Q", title="share of the time, %", scale=alt.Scale(domain=[0, 100])),
            y2="to_pct:Q",
            color=_colours(rows),
            tooltip=tooltip(rows),
        )
    )


def threads(rows: Rows) -> Chart:
    """Draw each thread as a lane; each bin has the colour of the state with the largest share."""
    lanes = in_order(rows, "thread")
    return (
        chart_of(rows, max(60, _LANE_PX * len(lanes)))
        .mark_bar(strokeWidth=0, height=_LANE_PX - 6)
        .encode(
            x=alt.X("from_s:Q", title="time, s", scale=alt.Scale(nice=False)),
            x2="to_s:Q",
            y=alt.Y("thread:N", title=None, sort=lanes),
            color=_colours(rows),
            tooltip=tooltip(rows),
        )
    )


def runtimes(rows: Rows) -> Chart:
    """Draw the runtime of each run, divided into parts."""
    runs = in_order(rows, "run")
    return (
        chart_of(rows, 24 * len(runs))
        .mark_bar()
        .encode(
            x=alt.X("seconds:Q", title="runtime, s"),
            y=alt.Y("run:N", title=None, sort=runs, axis=alt.Axis(labelLimit=320)),
            color=_colours(rows),
            order=alt.Order("order:Q"),
            tooltip=tooltip(rows),
        )
    )


FIGURES = (
    Figure(
        "runtimes",
        "Runtime by device and network",
        "Parts of the time that the user waited, along the critical path.",
        runtimes,
        wide=True,
    ),
    Figure(
        "path",
        "Waits of the user over time",
        "Waits for other threads are replaced by what those did.",
        path,
        wide=True,
        each=True,
    ),
    Figure(
        "threads",
        "States of each thread over time",
        "Each bin has the colour of the state that took most of it.",
        threads,
        wide=True,
        each=True,
    ),
)
