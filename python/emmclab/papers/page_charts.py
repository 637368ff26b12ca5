"""Drawings of pages: a chart with its rows, which can also be written as files for a paper."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from emmclab.pages import plots
from emmclab.pages.plots import Chart, Rows


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


def write_drawings(drawn: Iterable[Drawing], folder: Path) -> int:
    """Write each chart as SVG and PDF, and its rows as CSV; return the number of charts."""
    return plots.write_charts(((one.name, one.chart, one.rows) for one in drawn), folder)
