"""Figures of power cuts: the cuts on the time line, and the commands before a cut."""

from typing import Any

import altair as alt

from emmclab.pages.plots.chart_parts import chart_of, in_order, tooltip
from emmclab.pages.plots.figure import Chart, Rows
from emmclab.pages.theme import CRASH_COLOURS

#: The lane of the findings, which are marked by number.
FINDINGS = "findings"
_ROW_PX = 30
#: Width for the labels of lanes, pixels.
_LABEL_PX = 260
#: The axis is logarithmic if the first command is this many times farther from the cut than the last quarter.
_FAR_APART = 60


def time_line(rows: Rows, axis: str) -> Chart:
    """Draw each cut in the lane of its verdict, the acknowledgements, and the findings by number."""
    lanes = in_order(rows, "row")
    base = chart_of(rows, _ROW_PX * len(lanes)).encode(
        x=alt.X("time:Q", title=axis, scale=alt.Scale(zero=False)),
        y=alt.Y("row:N", title=None, sort=lanes, axis=alt.Axis(grid=True)),
        color=_colours([lane for lane in lanes if lane != FINDINGS], "row", legend=False),
        tooltip=tooltip(rows),
    )
    ticks = base.transform_filter(f"datum.row != '{FINDINGS}'").mark_tick(thickness=1.5, size=18)
    numbers = base.transform_filter(f"datum.row == '{FINDINGS}'")
    marks = numbers.mark_point(shape="triangle-down", size=60, filled=True, yOffset=6).encode(
        color=alt.value(CRASH_COLOURS["promise broken"])
    )
    labels = numbers.mark_text(fontWeight="bold", yOffset=-7, fontSize=12).encode(
        text="number:N", color=alt.value(CRASH_COLOURS["promise broken"])
    )
    return alt.layer(ticks, marks, labels) if FINDINGS in lanes else ticks


def commands(rows: Rows, axis: str) -> Chart:
    """Draw each command from its arrival to its completion; time 0 is the cut."""
    names = in_order(rows, "command")
    states = [name for name in CRASH_COLOURS if any(row["state"] == name for row in rows)]
    begins = sorted(row["begin"] for row in rows)
    near = min(begins[len(begins) * 3 // 4], -1e-3)
    # A missing write may have arrived long before the other commands.
    far = begins[0] < _FAR_APART * near
    scale = alt.Scale(type="symlog", constant=-near) if far else alt.Scale(zero=True)
    base = chart_of(rows, 18 * len(names))
    bars = base.mark_bar(height=9, strokeWidth=2).encode(
        x=alt.X("begin:Q", title=axis, scale=scale, axis=alt.Axis(labelExpr="format(0 - datum.value, '~r')")),
        x2="end:Q",
        y=alt.Y("command:N", title=None, sort=names, axis=alt.Axis(labelLimit=_LABEL_PX)),
        color=_colours(states, "state"),
        stroke=_colours(states, "state"),
        tooltip=tooltip(rows),
    )
    cut = base.transform_aggregate(count="count()").mark_rule(strokeWidth=2, strokeDash=[4, 3])
    return bars + cut.encode(x=alt.datum(0), color=alt.value(CRASH_COLOURS["missing"]))


def _colours(names: list[str], field: str, *, legend: bool = True) -> Any:
    shades = [CRASH_COLOURS[name] for name in names]
    how = alt.Legend(columns=3, title=None) if legend else None
    return alt.Color(f"{field}:N", scale=alt.Scale(domain=names, range=shades), legend=how)
