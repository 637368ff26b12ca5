"""Charts of a metric by the values of a varied setting, with the confidence interval over the seeds."""

import altair as alt

from emmclab.pages.plots import Chart, Rows, chart_of, in_order
from emmclab.pages.theme import CATEGORIES, GREY

#: Ratio of the largest to the smallest value above which the axis is logarithmic.
_FAR_APART = 30


def over_values(rows: Rows, key: str, title: str) -> Chart:
    """Draw `value` by `setting`, a colour for each `trace`, with vertical bars from `low` to `high`.

    Numeric settings are joined by lines, with a dash pattern for each combination of `others` (further settings).
    Non-numeric settings have no order: each is drawn as a bar, or as a point if the axis is logarithmic, where bars
    would have no base.
    """
    values = [row["value"] for row in rows]
    logarithmic = min(values) > 0 and max(values) > _FAR_APART * min(values)
    return _lines(rows, key, title, logarithmic) if is_numeric(rows) else _bars(rows, key, title, logarithmic)


def is_numeric(rows: Rows) -> bool:
    """Return whether all settings are numbers, so that lines between them are meaningful.

    >>> is_numeric([{"setting": "5"}, {"setting": "7.5"}]), is_numeric([{"setting": "fifo"}])
    (True, False)
    """
    return all(_is_number(row["setting"]) for row in rows)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _base(rows: Rows, key: str) -> Chart:
    return chart_of(rows).encode(
        x=alt.X(
            "setting:N",
            sort=in_order(rows, "setting"),
            title=key,
            # Every setting keeps its label, even on a narrow screen.
            axis=alt.Axis(labelAngle=-20, labelLimit=120, labelOverlap=False),
        ),
        color=alt.Color(
            "trace:N",
            title=None,
            sort=in_order(rows, "trace"),
            legend=alt.Legend(columns=2, orient="bottom", labelLimit=180),
        ),
    )


def _legend_of_others(rows: Rows, symbol: str) -> alt.Legend | None:
    """Return the legend of the settings that are not on the axis; None if all rows have equal values of them."""
    if len(in_order(rows, "others")) < 2:
        return None
    colour = CATEGORIES[0] if len(in_order(rows, "trace")) == 1 else GREY
    return alt.Legend(
        columns=1, orient="bottom", labelLimit=320, symbolType=symbol, symbolFillColor=colour, symbolStrokeColor=colour
    )


def _lines(rows: Rows, key: str, title: str, logarithmic: bool) -> Chart:
    scale = alt.Scale(type="log") if logarithmic else alt.Scale(zero=False, padding=8)
    axis = alt.Axis(tickCount=5, format="~r") if logarithmic else alt.Undefined
    others = in_order(rows, "others")
    chart = _base(rows, key).encode(
        strokeDash=alt.StrokeDash("others:N", title=None, sort=others, legend=_legend_of_others(rows, "stroke"))
    )
    y = alt.Y("value:Q", title=title, scale=scale, axis=axis)
    lines = chart.mark_line().encode(y=y)
    points = chart.mark_point(filled=True, size=45).encode(y=y)
    spread = chart.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q", title=title, scale=scale, axis=axis), y2="high:Q")
    return lines + spread + points


def _bars(rows: Rows, key: str, title: str, logarithmic: bool) -> Chart:
    """Draw a value by setting, with bars or points side by side for each trace and combination of other settings."""
    others = in_order(rows, "others")
    chart = (
        _base(rows, key)
        .transform_calculate(place="datum.trace + ', ' + datum.others")
        .encode(xOffset=alt.XOffset("place:N", sort=[f"{row['trace']}, {row['others']}" for row in rows], title=None))
    )
    scale = alt.Scale(type="log") if logarithmic else alt.Undefined
    axis = alt.Axis(tickCount=5, format="~r") if logarithmic else alt.Undefined
    y = alt.Y("value:Q", title=title, scale=scale, axis=axis)
    if logarithmic:
        shape = alt.Shape("others:N", title=None, sort=others, legend=_legend_of_others(rows, "circle"))
        values = chart.mark_point(filled=True, size=45).encode(y=y, shape=shape)
    else:
        opacity = alt.Opacity(
            "others:N",
            title=None,
            sort=others,
            scale=alt.Scale(range=[1.0, 0.35]),
            legend=_legend_of_others(rows, "square"),
        )
        values = chart.mark_bar().encode(y=y, opacity=opacity)
    # Error bars are grey, because they would be invisible in the colour of the bar.
    rule = chart if logarithmic else chart.encode(color=alt.value("#888"))
    spread = rule.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q", title=title, scale=scale, axis=axis), y2="high:Q")
    return values + spread
