"""The page of the findings: the question, answer, chart, method, limits and command of each finding."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

import altair as alt

from emmclab import __version__
from emmclab.pages.assemble import Head, Provenance, Tile, assemble
from emmclab.pages.plots import Rows, dots
from emmclab.papers.findings import NAME
from emmclab.papers.findings.findings import Answer, Finding
from emmclab.papers.pages import Drawing
from emmclab.runtime.document import Charts, Note, Part, Section, Terms
from emmclab.runtime.files import write_atomically
from emmclab.studies.results import Results

Answered = Sequence[tuple[Finding, Answer | None]]


def drawings(answered: Answered) -> list[Drawing]:
    """Draw the chart of each finding whose answer has values."""
    return [
        Drawing(
            finding.id,
            f"{answer.axis[:1].upper()}{answer.axis[1:]}",
            f"Finding {finding.id}.",
            answer.rows,
            dots(answer.rows, "trace", alt.X("value:Q", title=answer.axis), "option"),
            wide=True,
            of_all=True,
        )
        for finding, answer in answered
        if answer is not None and answer.rows
    ]


def write_findings(answered: Answered, results: Mapping[str, Results], path: Path) -> None:
    """Write the page atomically: the file is either complete or absent."""
    write_atomically(path, render(answered, results))


def render(answered: Answered, results: Mapping[str, Results]) -> str:
    """Return the page as HTML; the same results give the same bytes."""
    drawn = drawings(answered)
    rows = {drawing.name: drawing.rows for drawing in drawn}
    count = sum(answer is not None for _, answer in answered)
    lines = [(name, f"SHA-256 {part.digest} of {part.about['cells']:,} results") for name, part in results.items()]
    return assemble(
        [drawing.figure for drawing in drawn],
        rows,
        list(dict.fromkeys(row["trace"] for part in rows.values() for row in part)),
        trace_names=[],
        title="findings",
        head=Head(
            answer=f"{count} of {len(answered)} questions that none of the papers answers have an answer",
            lead=[
                "Each finding has a question, an answer with its figures, the method, its limits, what would "
                "refute it, and the command that reproduces it. "
                f"To cite: emmclab {__version__}, with the name of the finding."
            ],
            tiles=[Tile("Findings", f"{count:,}"), Tile("Studies", f"{len(results):,}")],
        ),
        provenance=Provenance(f"emmclab reproduce {NAME}", lines, made={"version": __version__}),
        sections=[_section(finding, answer) for finding, answer in answered],
    )


def _section(finding: Finding, answer: Answer | None) -> Section:
    missing = "– This needs recorded traces: `emmclab reproduce findings --trace FILE`."
    texts = {"Method": finding.method, "Limits": finding.limits, "What would refute it": finding.refuted_by}
    terms = [(label, text, "") for label, text in (texts | {"Command": f"`{finding.command}`"}).items()]
    parts: list[Part] = [Note(answer.answer if answer else missing, "lead"), Terms(terms), Charts(only=[finding.id])]
    return Section(f"finding-{finding.id}", finding.question, parts, finding.id)


class AnsweredFinding(TypedDict):
    """A finding; answer, axis and values are None or empty if the results of its study are missing."""

    id: str
    question: str
    answer: str | None
    method: str
    limits: str
    refuted_by: str
    study: str | None
    command: str
    axis: str | None
    values: Rows


def to_dict(answered: Answered) -> list[AnsweredFinding]:
    """Return the findings in the form that `emmclab reproduce findings --json` prints."""
    return [
        {
            "id": finding.id,
            "question": finding.question,
            "answer": None if answer is None else answer.answer,
            "method": finding.method,
            "limits": finding.limits,
            "refuted_by": finding.refuted_by,
            "study": finding.study or None,
            "command": finding.command,
            "axis": None if answer is None else answer.axis,
            "values": [] if answer is None else list(answer.rows),
        }
        for finding, answer in answered
    ]
