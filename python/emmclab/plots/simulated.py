"""The figures of simulated runs: one function each, from rows to a chart. Rows carry `trace` and `device`."""

from __future__ import annotations

from typing import Any, Literal

import altair as alt

from emmclab.plots.figure import Chart, Rows
from emmclab.plots.marks import chart_of, in_order, symlog, tooltip, traces_of

#: Ratio of means from which the axis is logarithmic.
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
            x=alt.X(
                "trace:N", title=None, sort=traces_of(rows), axis=alt.Axis(labelAngle=-30, labelLimit=120)
            ),
            y=alt.Y(f"{value}:Q", title=title, **scale),
            xOffset=alt.XOffset("device:N", sort=_devices(rows)),
            color=_colour(rows),
            tooltip=tooltip(rows),
        )
    )


def mean_response(rows: Rows) -> Chart:
    """Figure 8 (IISWC 2015, section V-B): mean response time by trace and device."""
    values = [row["mean_response_ms"] for row in rows]
    # As the paper does it: workloads far apart need a logarithmic axis.
    far_apart = max(values) > _FAR_APART * min((value for value in values if value > 0), default=1)
    scale = symlog(rows, "mean_response_ms", 1.0) if far_apart else {"scale": alt.Scale(zero=True)}
    return _by_device(rows, "mean_response_ms", "mean response, ms", **scale)


def space_utilisation(rows: Rows) -> Chart:
    """Figure 9 (IISWC 2015, section V-B): space utilisation by trace and device."""
    return _by_device(rows, "space_utilisation", "space utilisation", scale=alt.Scale(domain=[0, 1]))


def response_percentiles(rows: Rows) -> Chart:
    """Response times from the mean to the longest."""
    points = in_order(rows, "point")
    return (
        chart_of(rows)
        .mark_line(point=True)
        .encode(
            x=alt.X("point:N", title=None, sort=points, axis=alt.Axis(labelAngle=0)),
            y=alt.Y("response_ms:Q", title="response, ms", **symlog(rows, "response_ms", 0.1)),
            color=_colour(rows),
            strokeDash=alt.StrokeDash("op:N", title=None),
            tooltip=tooltip(rows),
        )
    )


def _stacked(rows: Rows, value: str, title: str, stack: Literal["zero", "normalize"] = "zero") -> Chart:
    causes = in_order(rows, "cause")
    runs = {(row["device"], row["trace"]) for row in rows}
    # The trace under the device: beside it, neither would be read to its end.
    lines = alt.Axis(labelLimit=160, labelExpr="split(datum.label, '\\n')")
    return (
        chart_of(rows, max(240, 34 * len(runs)))
        .transform_calculate(run="datum.device + (length(datum.trace) ? '\\n' + datum.trace : '')")
        .mark_bar()
        .encode(
            y=alt.Y("run:N", title=None, sort=None, axis=lines),
            x=alt.X(f"{value}:Q", title=title, stack=stack),
            color=alt.Color("cause:N", title=None, sort=causes, legend=alt.Legend(columns=3)),
            tooltip=tooltip(rows),
        )
    )


def waits(rows: Rows) -> Chart:
    """Parts of the mean response time."""
    return _stacked(rows, "wait_ms", "share of the mean response", "normalize")


def waf_by_cause(rows: Rows) -> Chart:
    """Parts of the write amplification."""
    return _stacked(rows, "waf", "write amplification")


def utilisation(rows: Rows) -> Chart:
    """Share of the time in which channels, dies and planes work."""
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
    """How evenly blocks are worn."""
    return _histogram(rows, "erases, from")


def valid_units(rows: Rows) -> Chart:
    """How full the full blocks still are."""
    return _histogram(rows, "valid map units, from")
