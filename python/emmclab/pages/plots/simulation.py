"""Figures of simulated runs: one function each, from rows with `trace` and `device` to a chart."""

from collections import Counter
from typing import Any

import altair as alt

from emmclab.pages.plots.chart_parts import chart_of, in_order, op_colour, symlog, tooltip, traces_of
from emmclab.pages.plots.figure import Chart, Rows
from emmclab.pages.theme import CAUSE_COLOURS
from emmclab.simulation.result_fields import shown_fields

_MEAN, _SPACE, _WAF = shown_fields(("response.mean_response_ms", "space.space_utilisation", "write_amplification.waf"))
#: Ratio of means above which the axis is logarithmic.
_FAR_APART = 50


def _devices(rows: Rows) -> list[str]:
    return in_order(rows, "device")


def _colour(rows: Rows) -> alt.Color:
    legend = alt.Legend(columns=3, orient="bottom") if len(_devices(rows)) > 1 else None
    return alt.Color("device:N", title=None, sort=_devices(rows), legend=legend)


def _by_device(rows: Rows, value: str, title: str, **scale: Any) -> Chart:
    """Draw columns: one group for each trace, one colour for each device."""
    return (
        chart_of(rows)
        .mark_bar()
        .encode(
            x=alt.X("trace:N", title=None, sort=traces_of(rows), axis=alt.Axis(labelAngle=-30, labelLimit=120)),
            y=alt.Y(f"{value}:Q", title=title, **scale),
            xOffset=alt.XOffset("device:N", sort=_devices(rows)),
            color=_colour(rows),
            tooltip=tooltip(rows),
        )
    )


def mean_response(rows: Rows) -> Chart:
    """Figure 8 (IISWC 2015, section V-B): mean response time by trace and device."""
    values = [row["mean_response_ms"] for row in rows]
    # Like in the paper: very different workloads need a logarithmic axis.
    far_apart = max(values) > _FAR_APART * min((value for value in values if value > 0), default=1)
    if far_apart:
        log = symlog(rows, "mean_response_ms", 1.0)
        return _by_device(rows, "mean_response_ms", _MEAN.axis, scale=log.scale, axis=log.axis)
    return _by_device(rows, "mean_response_ms", _MEAN.axis, scale=alt.Scale(zero=True))


def space_utilisation(rows: Rows) -> Chart:
    """Figure 9 (IISWC 2015, section V-B): space utilisation by trace and device."""
    return _by_device(rows, "space_utilisation", _SPACE.axis, scale=alt.Scale(domain=[0, 1]))


def response_cdf(rows: Rows) -> Chart:
    """Share of requests by response time, a line for each device; a point if all take the same time."""
    base = chart_of(rows).encode(
        x=_log_ms("up_to_ms"),
        y=alt.Y("cumulative_pct:Q", title="requests at most as long, %", scale=alt.Scale(domain=[0, 100])),
        color=op_colour(rows) if len(_devices(rows)) == 1 else _colour(rows),
        tooltip=tooltip(rows),
    )
    lines = base.mark_line(interpolate="step-after")
    if len(_devices(rows)) > 1:
        lines = lines.encode(strokeDash=alt.StrokeDash("op:N", title=None))
    # A line through one point would be invisible.
    line = ["trace", "device", "op"]
    if 1 not in Counter(tuple(row[name] for name in line) for row in rows).values():
        return lines
    alone = base.transform_joinaggregate(steps="count()", groupby=line)
    return lines + alone.transform_filter("datum.steps == 1").mark_point(filled=True, size=45)


def _log_ms(field: str) -> alt.X:
    return alt.X(
        f"{field}:Q",
        title="response, ms",
        scale=alt.Scale(type="log", nice=False),
        axis=alt.Axis(format="~r", tickCount=6),
    )


def response_histogram(rows: Rows) -> Chart:
    """Share of requests by response time, in ranges of equal width on the axis."""
    bins = sorted({row["up_to_ms"] for row in rows})
    labels = "format(datum.value, '.3~r')"
    return (
        chart_of(rows)
        .mark_bar()
        .encode(
            x=alt.X(
                "up_to_ms:O",
                title="response up to, ms",
                sort=bins,
                axis=alt.Axis(labelAngle=-40, labelOverlap=True, labelExpr=labels),
            ),
            y=alt.Y("pct:Q", title="share of requests, %"),
            xOffset=alt.XOffset("device:N", sort=_devices(rows)),
            color=_colour(rows),
            tooltip=tooltip(rows),
        )
    )


def _stacked(rows: Rows, value: str, title: str) -> Chart:
    causes = in_order(rows, "cause")
    scale = alt.Scale(domain=causes, range=[CAUSE_COLOURS[cause] for cause in causes])
    runs = {(row["device"], row["trace"]) for row in rows}
    # The trace is below the device; next to it, neither label would fit.
    lines = alt.Axis(labelLimit=160, labelExpr="split(datum.label, '\\n')")
    return (
        chart_of(rows, 44 * len(runs))
        .transform_calculate(
            run="datum.device + (length(datum.trace) ? '\\n' + datum.trace : '')",
            place=f"indexof({causes!r}, datum.cause)",
        )
        .mark_bar()
        .encode(
            y=alt.Y("run:N", title=None, sort=None, axis=lines),
            x=alt.X(f"{value}:Q", title=title, stack="zero"),
            color=alt.Color("cause:N", title=None, scale=scale, legend=alt.Legend(columns=3)),
            order="place:Q",
            tooltip=tooltip(rows),
        )
    )


def waits(rows: Rows) -> Chart:
    """Parts of the mean response time, in ms; a longer bar means a slower device."""
    return _stacked(rows, "wait_ms", _MEAN.axis)


def waf_by_cause(rows: Rows) -> Chart:
    """Write amplification by cause."""
    return _stacked(rows, "waf", _WAF.axis)


def utilisation(rows: Rows) -> Chart:
    """Share of the time in which channels, dies and planes are busy."""
    parts = in_order(rows, "part")
    return (
        chart_of(rows)
        .mark_bar()
        .encode(
            x=alt.X("part:N", title=None, sort=parts, axis=alt.Axis(labelAngle=-40)),
            y=alt.Y("busy_pct:Q", title="busy, %"),
            xOffset=alt.XOffset("device:N", sort=_devices(rows)),
            color=_colour(rows),
            tooltip=tooltip(rows),
        )
    )


def _histogram(rows: Rows, title: str) -> Chart:
    return (
        chart_of(rows)
        .mark_bar()
        .encode(
            x=alt.X("from:O", title=title, axis=alt.Axis(labelAngle=-40, labelOverlap=True)),
            y=alt.Y("blocks:Q", title="blocks", axis=alt.Axis(tickMinStep=1)),
            xOffset=alt.XOffset("device:N", sort=_devices(rows)),
            color=_colour(rows),
            tooltip=tooltip(rows),
        )
    )


def erase_counts(rows: Rows) -> Chart:
    """Distribution of erase counts over blocks."""
    return _histogram(rows, "erases, from")


def valid_units(rows: Rows) -> Chart:
    """Distribution of valid units in full blocks."""
    return _histogram(rows, "valid map units, from")
