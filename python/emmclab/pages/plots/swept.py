"""Charts over a swept key: one point for each input and value, and the spread over the seeds."""

from __future__ import annotations

import altair as alt

from emmclab.pages.plots.figure import Chart, Rows
from emmclab.pages.plots.marks import chart_of, in_order, tooltip

#: Ratio of values from which the axis is logarithmic.
_FAR_APART = 30


def over_values(rows: Rows, key: str, title: str) -> Chart:
    """Draw `value` by `setting`, a colour for each `trace`, a dash for each of the `others`.

    The bars from `low` to `high` are the spread over the seeds.
    """
    values = [row["value"] for row in rows]
    logarithmic = min(values) > 0 and max(values) > _FAR_APART * min(values)
    scale = alt.Scale(type="log") if logarithmic else alt.Scale(zero=False, padding=8)
    legend = alt.Legend(columns=2, orient="bottom", labelLimit=180)
    others = in_order(rows, "others")
    chart = chart_of(rows).encode(
        x=alt.X(
            "setting:N",
            sort=in_order(rows, "setting"),
            title=key,
            axis=alt.Axis(labelAngle=-20, labelLimit=120),
        ),
        color=alt.Color("trace:N", title=None, sort=in_order(rows, "trace"), legend=legend),
        strokeDash=alt.StrokeDash(
            "others:N",
            title=None,
            sort=others,
            legend=alt.Legend(columns=1, orient="bottom", labelLimit=320, symbolType="stroke")
            if len(others) > 1
            else None,
        ),
        tooltip=tooltip(rows),
    )
    axis = alt.Axis(tickCount=5, format="~r") if logarithmic else alt.Undefined
    y = alt.Y("value:Q", title=title, scale=scale, axis=axis)
    lines = chart.mark_line().encode(y=y)
    points = chart.mark_point(filled=True, size=45).encode(y=y)
    spread = chart.mark_rule(strokeWidth=2).encode(
        y=alt.Y("low:Q", title=title, scale=scale, axis=axis), y2="high:Q"
    )
    return lines + spread + points
