"""Figures as files: SVG, and their rows as CSV."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from emmclab.files import to_csv, write_whole
from emmclab.plots.catalogue import FIGURES
from emmclab.profile import Profile
from emmclab.theme import LIGHT


def write_figures(profiles: Sequence[Profile], folder: Path) -> int:
    """Write each figure as SVG and its rows as CSV; return how many figures there are."""
    import vl_convert

    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for figure in FIGURES:
        rows = figure.rows(profiles)
        parts = [[row for row in rows if row["trace"] == p.name] for p in profiles] if figure.each else [rows]
        for part in filter(figure.can_draw, parts):
            stem = f"{figure.name}-{_file_name(part[0]['trace'])}" if figure.each else figure.name
            spec = figure.draw(part).properties(width=560).to_dict()
            svg = vl_convert.vegalite_to_svg(spec, config=LIGHT)
            write_whole(folder / f"{stem}.svg", svg)
            write_whole(folder / f"{stem}.csv", to_csv(part))
            count += 1
    return count


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name)
