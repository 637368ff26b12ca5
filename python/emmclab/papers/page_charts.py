"""Drawings of pages: a chart with its rows, which can also be written as files for a paper."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt

from emmclab.pages import plots
from emmclab.pages.plots import Chart, Rows, chart_of


@dataclass(frozen=True)
class Drawing:
    """A chart with its rows. `source` is the figure, table or section of the paper that its claims cite.

    `of_all` is true if the rows describe all traces together, so that traces without rows are not reported as
    missing.
    """

    name: str
    title: str
    about: str
    rows: Rows
    chart: Chart
    source: str = ""
    wide: bool = False
    of_all: bool = False

    @property
    def figure(self) -> plots.Figure:
        """The drawing as a figure of a page."""
        return plots.Figure(
            self.name, self.title, self.about, lambda _rows: self.chart, wide=self.wide, of_all=self.of_all
        )


def bars_by_trace(
    rows: Rows, field: str, axis: str, colour: str, *, order: Sequence[str] = (), columns: int = 2, published: str = ""
) -> Chart:
    """Draw a bar of `field` for each trace and `colour`: side by side in their `order`, without one on each other.

    Diamonds mark the values of the field `published`, where rows have it.
    """
    sort = list(order) or alt.Undefined
    chart = chart_of(rows, 260)
    places: dict[str, Any] = {
        "x": alt.X("trace:N", title=None, sort=None, axis=alt.Axis(labelAngle=-30, labelOverlap=False))
    }
    if order:
        places["xOffset"] = alt.XOffset(f"{colour}:N", sort=sort)
    legend = alt.Legend(columns=columns, orient="bottom")
    bars = chart.mark_bar().encode(
        **places,
        y=alt.Y(f"{field}:Q", title=axis),
        color=alt.Color(f"{colour}:N", title=None, sort=sort, legend=legend),
    )
    if not published:
        return bars
    return bars + (
        chart.transform_filter(f"datum.{published} != null")
        .mark_point(shape="diamond", filled=True, size=130, opacity=1, color="#e07b39", stroke="white")
        .encode(**places, y=f"{published}:Q")
    )


def write_drawings(drawn: Iterable[Drawing], folder: Path) -> int:
    """Write each chart as SVG and PDF, and its rows as CSV; return the number of charts."""
    return plots.write_charts(((one.name, one.chart, one.rows) for one in drawn), folder)
