"""Drawings of pages: a chart with its rows, and files for a paper."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from emmclab import plots
from emmclab.files import to_csv, write_whole
from emmclab.plots import Chart, Rows
from emmclab.theme import LIGHT


@dataclass(frozen=True)
class Drawing:
    """A chart with its rows. `source` names the claims that it shows, as in the published list."""

    name: str
    title: str
    about: str
    rows: Rows
    chart: Chart
    source: str = ""
    wide: bool = False

    @property
    def figure(self) -> plots.Figure:
        """The drawing in the form that pages take."""
        return plots.Figure(self.name, self.title, self.about, lambda _rows: self.chart, wide=self.wide)


def write_drawings(drawn: Iterable[Drawing], folder: Path) -> int:
    """Write each chart as SVG and PDF, and its rows as CSV; return how many there are."""
    import vl_convert

    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for drawing in drawn:
        count += 1
        spec = drawing.chart.properties(width=560).to_dict()
        write_whole(folder / f"{drawing.name}.svg", vl_convert.vegalite_to_svg(spec, config=LIGHT))
        pdf = vl_convert.vegalite_to_pdf(
            spec, config={**LIGHT, "font": "Liberation Sans, DejaVu Sans, sans-serif"}
        )
        aside = folder / f".{drawing.name}.pdf.part"
        aside.write_bytes(pdf)
        aside.replace(folder / f"{drawing.name}.pdf")
        write_whole(folder / f"{drawing.name}.csv", to_csv(drawing.rows))
    return count
