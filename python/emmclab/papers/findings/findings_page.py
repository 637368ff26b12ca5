"""The page of the findings: question, answer, chart, method, limits and command of each."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

import altair as alt

from emmclab import __version__
from emmclab.pages.assemble import assemble
from emmclab.pages.first_screen import Head, Provenance, Tile
from emmclab.pages.plots import Rows, dots
from emmclab.papers.findings import NAME
from emmclab.papers.findings.findings import Finding, Found
from emmclab.papers.pages import Drawing
from emmclab.runtime.document import Charts, Note, Part, Section, Terms
from emmclab.runtime.files import write_atomically
from emmclab.studies.results import Results

Answered = Sequence[tuple[Finding, Found | None]]


def drawings(answered: Answered) -> list[Drawing]:
    """Draw the chart of each finding whose answer has values."""
    return [
        Drawing(
            one.id,
            f"{found.axis[:1].upper()}{found.axis[1:]}",
            f"Finding {one.id}.",
            found.rows,
            dots(found.rows, "trace", alt.X("value:Q", title=found.axis), "option"),
            wide=True,
            of_all=True,
        )
        for one, found in answered
        if found is not None and found.rows
    ]


def write_findings(answered: Answered, results: Mapping[str, Results], path: Path) -> None:
    """Write the page atomically: the file is either complete or absent."""
    write_atomically(path, render(answered, results))


def render(answered: Answered, results: Mapping[str, Results]) -> str:
    """Return the page; the same results give the same bytes."""
    drawn = drawings(answered)
    rows = {one.name: one.rows for one in drawn}
    known = [found for _, found in answered if found is not None]
    lines = [(name, f"SHA-256 {found.digest} of {found.about['cells']:,} results") for name, found in results.items()]
    return assemble(
        "document.html.j2",
        [one.figure for one in drawn],
        rows,
        list(dict.fromkeys(row["trace"] for part in rows.values() for row in part)),
        trace_names=[],
        title="findings",
        head=Head(
            answer=f"{len(known)} of {len(answered)} questions that no paper here answers have an answer",
            lead=[
                "Each finding has a question, an answer with its figures, how it was found, what limits it, "
                f"and the command that shows it again. To cite: emmclab {__version__}, with the name of the "
                "finding."
            ],
            tiles=[Tile("Findings", f"{len(known):,}"), Tile("Studies", f"{len(results):,}")],
        ),
        provenance=Provenance(f"emmclab reproduce {NAME}", lines, made={"version": __version__}),
        sections=[_section(one, found) for one, found in answered],
    )


def _section(one: Finding, found: Found | None) -> Section:
    missing = "– This needs recorded traces: `emmclab reproduce findings --trace FILE`."
    terms = [("Method", one.method, ""), ("Limits", one.limits, ""), ("Shown again by", f"`{one.command}`", "")]
    parts: list[Part] = [Note(found.answer if found else missing, "lead"), Terms(terms), Charts(only=[one.id])]
    return Section(f"finding-{one.id}", one.question, parts, one.id)


class AnsweredFinding(TypedDict):
    """A finding; answer, axis and values are None or empty if the results of its study are missing."""

    id: str
    question: str
    answer: str | None
    method: str
    limits: str
    study: str | None
    command: str
    axis: str | None
    values: Rows


def to_dict(answered: Answered) -> list[AnsweredFinding]:
    """Return the findings in the form that `emmclab reproduce findings --json` prints."""
    return [
        {
            "id": one.id,
            "question": one.question,
            "answer": None if found is None else found.answer,
            "method": one.method,
            "limits": one.limits,
            "study": one.study or None,
            "command": one.command,
            "axis": None if found is None else found.axis,
            "values": [] if found is None else list(found.rows),
        }
        for one, found in answered
    ]
