"""The page of a reproduction: the answer first, then every table and figure beside the published one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import vl_convert

from emmclab import __version__
from emmclab.claims import DIRECTION, NOT, REPRODUCED, Claim, counts, rules
from emmclab.fields import TABLES, Field
from emmclab.files import write_whole
from emmclab.profile import ledger_line
from emmclab.published import doubts, published, published_row
from emmclab.report import page as report
from emmclab.study.findings import findings
from emmclab.study.measures import table
from emmclab.study.plots import Drawing, drawings, write_drawings
from emmclab.study.readings import PUBLISHED, nearest, readings
from emmclab.study.results import Results
from emmclab.study.twins import twins
from emmclab.theme import DARK, LIGHT

#: The drawings that the page opens with.
_FIRST = ("reduction", "readings", "utilisation")
_BADGES = {REPRODUCED: "yes", DIRECTION: "near", NOT: "no"}


def write_page(
    results: Results, judged: Sequence[Claim], command: str, html: Path | None, figures: Path | None
) -> int:
    """Write the page and, where a folder is given, each figure as SVG, PDF and CSV; count the figures."""
    drawn = drawings(results)
    if html is not None:
        write_whole(html, render(results, judged, command, drawn))
    return write_drawings(drawn, figures) if figures is not None else 0


def render(
    results: Results, judged: Sequence[Claim], command: str, drawn: Sequence[Drawing] | None = None
) -> str:
    """Give the page; the same results give the same bytes. `command` is what reproduces it."""
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(
            [jinja2.PackageLoader("emmclab", "study"), jinja2.PackageLoader("emmclab", "report")]
        ),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    drawn = drawings(results) if drawn is None else drawn
    cards = {drawing.name: _card(drawing, judged) for drawing in drawn}
    specs, data = {}, {}
    for drawing in drawn:
        spec = drawing.chart.to_dict() | {"autosize": {"type": "fit-x", "contains": "padding"}}
        report._forget_rows(spec)
        specs[f"{drawing.name}-0"] = {"trace": None, "vega": spec}
        data[drawing.name] = [_columns(drawing)]
    found = readings(results)
    best = nearest(found)
    held = [claim for claim in judged if claim.verdict in (REPRODUCED, DIRECTION)]
    restated = {rule.id for rule in rules(results.about["name"]) if rule.restated}
    return environment.get_template("reproduction.html.j2").render(
        version=__version__,
        about=results.about,
        counts=counts(list(judged)),
        badges=_BADGES,
        claims=judged,
        held=len(held),
        restated=sum(claim.id in restated for claim in held),
        first=[cards[name] for name in _FIRST],
        cards=[card for name, card in cards.items() if name not in _FIRST],
        definitions=table("iiswc15_table1_workloads"),
        tables=[(title, fields, _rows(results, fields)) for title, fields in TABLES],
        contradictions=published()["inconsistencies"],
        devices=table("iiswc15_table5_devices"),
        readings=[(reading, parts, reading == best) for reading, parts in found.items()],
        parts=PUBLISHED,
        findings=findings(results),
        twins=twins(results),
        fields={field.name: field for _, fields in TABLES for field in fields},
        inputs=[
            (name, profile["requests"], ledger_line(profile["ledger"]), profile["header"])
            for name, profile in results.profiles.items()
        ],
        digest=results.digest,
        command=command,
        library=report._script(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")),
        page_data=report._json({"themes": {"light": LIGHT, "dark": DARK}, "specs": specs, "data": data}),
    )


def _columns(drawing: Drawing) -> dict[str, Any]:
    rows = drawing.rows
    return {
        "rows": len(rows),
        "columns": {name: report._shorten([report._round(row[name]) for row in rows]) for name in rows[0]},
    }


def _card(drawing: Drawing, judged: Sequence[Claim]) -> dict[str, Any]:
    """Give a drawing with the claims that the paper makes of it."""
    return {
        "drawing": drawing,
        "claims": [claim for claim in judged if drawing.source and claim.source == drawing.source],
    }


def _rows(results: Results, fields: Sequence[Field]) -> list[dict[str, Any]]:
    rows = []
    for name, profile in results.profiles.items():
        row = published_row(name)
        cells = []
        for field in fields:
            value = profile[field.name]
            paper = None if row is None else row[field.name]
            cells.append(
                {
                    "text": field.text(value),
                    "value": "" if value is None else value,
                    "published": "–" if paper is None else f"{paper:,.10g}",
                    "doubt": "" if row is None else doubts(row, field.name),
                }
            )
        rows.append({"name": name, "cells": cells, "recorded": name in results.recorded})
    return rows
