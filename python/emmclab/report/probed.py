"""The page for a probed device."""

from __future__ import annotations

from dataclasses import asdict

import altair as alt

from emmclab.plots import Chart, Figure, Rows, chart_of, tooltip
from emmclab.probe import Probe
from emmclab.report.assemble import assemble


def _curves(rows: Rows) -> Chart:
    """Draw bandwidth by size, one line for each operation and order."""
    return (
        chart_of(rows)
        .mark_line(point=True)
        .encode(
            x=alt.X("size_kb:Q", title="size, KB", scale=alt.Scale(type="log", base=2)),
            y=alt.Y("mb_per_s:Q", title="MB/s", scale=alt.Scale(type="log")),
            color=alt.Color("op:N", title=None),
            strokeDash=alt.StrokeDash("order:N", title=None),
            tooltip=tooltip(rows),
        )
    )


def _places(rows: Rows) -> Chart:
    """Draw the time of a small request by its offset."""
    return (
        chart_of(rows)
        .mark_line(point=True)
        .encode(
            x=alt.X("offset_kb:Q", title="offset, KB"),
            y=alt.Y("time_ms:Q", title="median time, ms", scale=alt.Scale(zero=False)),
            color=alt.Color("op:N", title=None),
            tooltip=tooltip(rows),
        )
    )


_FIGURES = (
    Figure(
        "curves", "Bandwidth by size", "Synchronous direct I/O, one request at a time.", _curves, wide=True
    ),
    Figure(
        "places",
        "Where a small request is dear",
        "Requests of 8 KB at every offset; those that cross the border of a clustered page take longer.",
        _places,
        wide=True,
    ),
)


def render(probe: Probe) -> str:
    """Give the page; the same probe gives the same bytes."""
    rows = {
        "curves": [{"trace": probe.target, **asdict(point)} for point in probe.points],
        "places": [{"trace": probe.target, **asdict(place)} for place in probe.places],
    }
    return assemble(
        "probed.html.j2", _FIGURES, rows, [probe.target], title=f"Probe of {probe.target}", probe=probe
    )
