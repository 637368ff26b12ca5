"""The page of a reproduction: the answer first, then every table and figure beside the published one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emmclab.papers.claims import Claim
from emmclab.papers.drawing import Drawing
from emmclab.papers.iiswc15.findings import findings
from emmclab.papers.iiswc15.plots import drawings
from emmclab.papers.iiswc15.readings import PUBLISHED, nearest, readings
from emmclab.papers.iiswc15.twins import twins
from emmclab.papers.measuring import table
from emmclab.papers.pages import assemble_page
from emmclab.studies.results import Results
from emmclab.traces.ledger import ledger_line
from emmclab.traces.profile_fields import TABLES, Field
from emmclab.traces.published import doubts, published, published_row
from emmclab.traces.workload import difference_text


def render(results: Results, judged: Sequence[Claim], drawn: Sequence[Drawing] | None = None) -> str:
    """Return the page; the same results give the same bytes."""
    drawn = drawings(results) if drawn is None else drawn
    found = readings(results)
    best = nearest(found)
    return assemble_page(
        results,
        judged,
        drawn,
        beside={
            drawing.name: [claim for claim in judged if drawing.source and claim.source == drawing.source]
            for drawing in drawn
        },
        lead=[
            f"{results.about['about']}, run again: {results.about['cells']:,} profiles and simulations of "
            f"{len(results.profiles)} workloads.",
            f"Of the original traces only Messaging is public{_recorded(results)}. 25 workloads made from "
            "the paper's published figures stand for the rest. A claim about statistics that went into these "
            "workloads is restated: it says that the paper's text and tables fit together, and no more. Only "
            "what could have failed counts as tested.",
        ],
        definitions=table("iiswc15_table1_workloads"),
        tables=[(title, fields, _rows(results, fields)) for title, fields in TABLES],
        contradictions=published()["inconsistencies"],
        devices=table("iiswc15_table5_devices"),
        readings=[(reading, parts, reading == best) for reading, parts in found.items()],
        parts=PUBLISHED,
        findings=findings(results),
        twins=twins(results),
        fields={field.name: field for _, fields in TABLES for field in fields},
        difference_text=difference_text,
        inputs=[
            (name, profile["requests"], ledger_line(profile["ledger"]), profile["header"])
            for name, profile in results.profiles.items()
        ],
    )


def _recorded(results: Results) -> str:
    names = results.about["recorded"]
    return f"; recorded here: {', '.join(names)}" if names else ""


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
