"""The page of a paper's study: what all of them share, and which one belongs to a study."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from emmclab.claims import DIRECTION, NOT, REPRODUCED, Claim, counts
from emmclab.files import write_whole
from emmclab.report.assemble import assemble
from emmclab.study.plots import Drawing, write_drawings
from emmclab.study.results import Results

#: Modules with the `drawings` and `render` of a study's page, by the name of the study.
_PAGES = {
    "iiswc15": "emmclab.study.page",
    "implications": "emmclab.study.implications_page",
    "advil12": "emmclab.study.advil_page",
}
_BADGES = {REPRODUCED: "yes", DIRECTION: "near", NOT: "no"}


def write_page(results: Results, judged: Sequence[Claim], html: Path | None, figures: Path | None) -> int:
    """Write the page and, where a folder is given, each figure as SVG, PDF and CSV; count the figures."""
    page = import_module(_PAGES[results.about["name"]])
    drawn = page.drawings(results)
    if html is not None:
        write_whole(html, page.render(results, judged, drawn))
    return write_drawings(drawn, figures) if figures is not None else 0


def assemble_page(
    template: str, results: Results, judged: Sequence[Claim], drawn: Sequence[Drawing], **parts: Any
) -> str:
    """Give the page of a template with its own `parts`; the same results give the same bytes."""
    rows = {drawing.name: drawing.rows for drawing in drawn}
    return assemble(
        template,
        [drawing.figure for drawing in drawn],
        rows,
        list(dict.fromkeys(row["trace"] for part in rows.values() for row in part)),
        title=results.about["about"],
        about=results.about,
        counts=counts(list(judged)),
        badges=_BADGES,
        digest=results.digest,
        **parts,
    )
