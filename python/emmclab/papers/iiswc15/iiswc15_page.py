"""The page of a reproduction: the answer first, then every table and figure with the published values."""

from collections.abc import Sequence
from typing import TypedDict

from emmclab.papers.claims import Claim
from emmclab.papers.iiswc15.findings import findings
from emmclab.papers.iiswc15.page_size_readings import PUBLISHED, nearest, readings
from emmclab.papers.iiswc15.plots import drawings
from emmclab.papers.iiswc15.recorded_workload import origin
from emmclab.papers.iiswc15.twins import twins
from emmclab.papers.measures import table
from emmclab.papers.page_charts import Drawing
from emmclab.papers.pages import assemble_page
from emmclab.studies.results import Results, in_place, stand_ins, with_substitutes
from emmclab.traces.ledger_text import ledger_line
from emmclab.traces.profile import Profile
from emmclab.traces.profile_fields import TABLES, Field
from emmclab.traces.published import doubts, published, published_row
from emmclab.traces.workload import difference_text


def render(results: Results, judged: Sequence[Claim], drawn: Sequence[Drawing] | None = None) -> str:
    """Return the page; the same results give the same bytes."""
    drawn = drawings(results) if drawn is None else drawn
    placed = in_place(results)
    found = readings(placed)
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
            f"{origin(results)} A claim about statistics that went into a made workload is restated: it says "
            "that the paper's text and tables agree with each other, and no more. Only what could have "
            "failed counts as tested.",
        ],
        definitions=table("iiswc15_table1_workloads"),
        tables=[(title, fields, _rows(results, fields)) for title, fields in TABLES],
        contradictions=published()["inconsistencies"],
        devices=table("iiswc15_table5_devices"),
        readings=[(reading, parts, reading == best) for reading, parts in found.items()],
        parts=PUBLISHED,
        findings=findings(placed),
        twins=twins(results),
        fields={field.name: field for _, fields in TABLES for field in fields},
        difference_text=difference_text,
        inputs=[
            (name, profile["requests"], ledger_line(profile["ledger"]), profile["header"])
            for name, profile in results.profiles.items()
        ],
    )


class _Cell(TypedDict):
    """A figure as text, and the value by which it is sorted."""

    text: str
    value: float | str


class _Published(TypedDict):
    """A published figure, and the reason to doubt it; empty if there is none."""

    text: str
    doubt: str


class _WorkloadRow(TypedDict):
    """A workload: label and figures of each of its traces, and the published figures."""

    lines: list[tuple[str, list[_Cell]]]
    published: list[_Published]


def _rows(results: Results, fields: Sequence[Field]) -> list[_WorkloadRow]:
    """Return for each workload its lines, the recorded one first, and the published figures."""
    workload_of = stand_ins(results)
    rows: list[_WorkloadRow] = []
    for name in results.profiles:
        if name in workload_of:
            continue
        made, *recorded = with_substitutes(results, [name])
        lines = [(f"{name}, recorded", one) for one in recorded]
        label = f"{name}, made" if recorded else f"{name} (recorded)" if name in results.recorded else name
        row = published_row(name)
        rows.append(
            {
                "lines": [
                    (said, [_cell(results.profiles[one], field) for field in fields])
                    for said, one in [*lines, (label, made)]
                ],
                "published": [
                    {
                        "text": "–" if row is None or row[field.name] is None else f"{row[field.name]:,.10g}",
                        "doubt": "" if row is None else doubts(row, field.name),
                    }
                    for field in fields
                ],
            }
        )
    return rows


def _cell(profile: Profile, field: Field) -> _Cell:
    value = profile[field.name]
    return {"text": field.text(value), "value": "" if value is None else value}
