"""Drawings of pages: a chart with its rows, and files for a paper."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from emmclab.pages import plots
from emmclab.pages.plots import Chart, Rows


@dataclass(frozen=True)
class Drawing:
    """A chart with its rows. `source` names the claims that it shows, as in the published list.

    `of_all` says that the rows are of all traces together: that some have none is no lack.
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
        """The drawing in the form that pages take."""
        return plots.Figure(
            self.name, self.title, self.about, lambda _rows: self.chart, wide=self.wide, of_all=self.of_all
        )


def write_drawings(drawn: Iterable[Drawing], folder: Path) -> int:
    """Write each chart as SVG and PDF, and its rows as CSV; return how many there are."""
    return plots.write_charts(((one.name, one.chart, one.rows) for one in drawn), folder)
