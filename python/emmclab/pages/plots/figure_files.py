"""Writes figures as files: SVG and PDF, and their rows as CSV."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from emmclab.pages.plots.figure import Chart, Rows, specification
from emmclab.pages.plots.profile_figures import FIGURES
from emmclab.pages.plots.vega import convert
from emmclab.pages.theme import LIGHT
from emmclab.runtime.files import to_csv, write_atomically
from emmclab.traces.profile import Profile

#: Fonts that can be embedded into PDF here, unlike those of the page.
_PDF = {**LIGHT, "font": "Liberation Sans, DejaVu Sans, sans-serif"}
#: Width of a chart in pixels.
_WIDTH = 560


def write_charts(charts: Iterable[tuple[str, Chart, Rows]], folder: Path) -> int:
    """Write each chart as SVG and PDF, and its rows as CSV, by name; return the number of charts."""
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for name, chart, rows in charts:
        stem = re.sub(r"[^\w.-]+", "_", name)
        spec = specification(chart.properties(width=_WIDTH))
        write_atomically(folder / f"{stem}.svg", convert("vegalite_to_svg", spec, config=LIGHT))
        write_atomically(folder / f"{stem}.pdf", convert("vegalite_to_pdf", spec, config=_PDF))
        write_atomically(folder / f"{stem}.csv", to_csv(rows))
        count += 1
    return count


def write_figures(profiles: Sequence[Profile], folder: Path) -> int:
    """Write each figure of profiles; return the number of figures."""

    def charts() -> Iterable[tuple[str, Chart, Rows]]:
        for figure in FIGURES:
            rows = figure.rows(profiles)
            parts = [rows]
            if figure.each:
                parts = [[row for row in rows if row["trace"] == profile.name] for profile in profiles]
            for part in filter(figure.can_draw, parts):
                name = f"{figure.name}-{part[0]['trace']}" if figure.each else figure.name
                yield name, figure.draw(part), part

    return write_charts(charts(), folder)
