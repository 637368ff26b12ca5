"""The page of a paper's study: what all of them share, and which one belongs to a study."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from emmclab.claims import DIRECTION, NOT, REPRODUCED, RESTATED, Claim, counts, headline
from emmclab.files import write_whole
from emmclab.papers import studies
from emmclab.papers.drawing import Drawing, write_drawings
from emmclab.report.assemble import assemble
from emmclab.study.results import Results

_BADGES = {REPRODUCED: "yes", DIRECTION: "near", NOT: "no", RESTATED: "restated"}


def write_page(results: Results, judged: Sequence[Claim], html: Path | None, figures: Path | None) -> int:
    """Write the page and, where a folder is given, each figure as SVG, PDF and CSV; count the figures."""
    page = page_of(results.about["name"])
    drawn = page.drawings(results)
    if html is not None:
        write_whole(html, page.render(results, judged, drawn))
    return write_drawings(drawn, figures) if figures is not None else 0


def page_of(study: str) -> Any:
    """Give the module with the `drawings` and `render` of a study's page, in the folder of its paper."""
    return import_module(f"emmclab.papers.{studies()[study].name}.{_module(study)}_page")


def _module(study: str) -> str:
    return study.replace("-", "_")


def assemble_page(results: Results, judged: Sequence[Claim], drawn: Sequence[Drawing], **parts: Any) -> str:
    """Give the page of a template with its own `parts`; the same results give the same bytes."""
    rows = {drawing.name: drawing.rows for drawing in drawn}
    study = results.about["name"]
    return assemble(
        f"{studies()[study].name}/{_module(study)}.html.j2",
        [drawing.figure for drawing in drawn],
        rows,
        list(dict.fromkeys(row["trace"] for part in rows.values() for row in part)),
        title=results.about["about"],
        about=results.about,
        counts=counts(judged),
        headline=headline(judged),
        badges=_BADGES,
        digest=results.digest,
        **parts,
    )
