"""The page of a study of power cuts: the table of losses, then each finding with the command that repeats it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from emmclab.crash.json_types import FindingFields
from emmclab.pages.assemble import Head, Tile, assemble
from emmclab.pages.study import incomplete, provenance
from emmclab.runtime.document import Bullets, Cell, Cells, Heading, Note, Part, Section, Terms, TextTable
from emmclab.studies.power_cut_settings import DOCUMENTED, KEPT, LOST, RULE, CutCell
from emmclab.studies.results import Results
from emmclab.studies.verdicts import (
    MEANING,
    NOT_JUDGED,
    Table,
    Verdict,
    cell_of,
    column_of,
    counts,
    findings,
    headline,
    tables,
)

#: CSS class of the badge of each verdict.
_BADGES = {KEPT: "yes", DOCUMENTED: "documented", RULE: "unknown", LOST: "broken", NOT_JUDGED: "plain"}
_SQLITE = "sqlite-"


def render(results: Results, study: str = "") -> str:
    """Return the HTML page; equal results produce equal bytes.

    `study` is the argument of `emmclab run`: the path of the study's file; not needed for a bundled study.
    """
    name, verdict_counts = results.about["name"], counts(results)
    host = next((", ".join(map(" ".join, run.result.host.items())) for run in results.cut_runs()), "")
    query = " ".join(['emmclab query "select * from cuts" --study', name])
    return assemble(
        [],
        {},
        [],
        title=name,
        head=Head(
            answer=headline(results),
            lead=[f"{results.about['about']}."],
            tiles=[Tile(word, f"{count:,}", kind=_BADGES[word]) for word, count in verdict_counts.items()],
            notices=incomplete(results),
        ),
        provenance=provenance(results, study, **{"As tables": query, "Host": host}),
        sections=_sections(results, f"emmclab crash --results {Path('emmclab-results', name)} --again"),
    )


def _sections(results: Results, repeat: str) -> Iterator[Section]:
    meanings = [(Cell(word, badge=_BADGES[word]), MEANING[word], "") for word in counts(results)]
    verdicts = [_verdicts(table, number) for number, table in enumerate(tables(results), 1)]
    title = "Losses by workload, file system and device"
    yield Section("tables", title, [Terms(meanings), *verdicts], nav="Tables")
    parts: list[Part] = [Note(f"Each finding with the first state that shows it: `{repeat} LOG:CUT:STATE`.", "")]
    rows = [_row(cell, finding) for cell, finding in findings(results)]
    empty = Note("No acknowledged data was lost.", "quiet")
    parts.append(_table("Table of findings", rows) if rows else empty)
    if failures := results.failures:
        where = [(f"{run['input']}, {column_of(cell_of(run))}: {run['message']}", "") for run in failures]
        parts += [Heading("Not judged"), Bullets(where)]
    yield Section("findings", "Findings", parts, nav="Findings")
    rows = [_row(cell, finding) for cell, finding in findings(results, documented=True)]
    part = _table("Table of documented losses", rows) if rows else Note("None.", "quiet")
    yield Section("documented", "Documented losses, no defects", [part], nav="Documented")


def _verdicts(table: Table, number: int) -> TextTable:
    """Return a table of verdicts by SQLite's journal mode and level of `synchronous`."""
    rows: list[Cells] = []
    for name in table.rows:
        mode, _, level = name.removeprefix(_SQLITE).partition("-")
        rows.append([mode, level, *(_verdict(table.cells.get((name, column))) for column in table.columns)])
    layers = ("no layer" if column.layer == "none" else column.layer for column in table.columns)
    heads = [
        f"{column.file_system}\n{column.device}\n{layer}" for column, layer in zip(table.columns, layers, strict=True)
    ]
    headings = ["Journal mode", "Synchronous", *heads]
    return TextTable(f"Verdicts, table {number}", headings, rows, len(headings), style="matrix")


def _verdict(verdict: Verdict | None) -> Cell:
    if verdict is None:
        return Cell("", "not tried")
    count = verdict.lost_states or verdict.documented_states
    return Cell(verdict.text, f"{f'{count:,} of ' if count else ''}{verdict.states:,} states", _BADGES[verdict.word])


def _table(title: str, rows: Sequence[Cells]) -> TextTable:
    headings = ["SQLite", "ext4, device, layer", "Promise", "First state", "Reproduced by"]
    return TextTable(title, headings, rows, style="sortable ledger")


def _row(cell: CutCell, finding: FindingFields) -> Cells:
    """Return a row for a finding: workload, setting, promise, detail, and the state that reproduces it."""
    return [
        cell.input.removeprefix(_SQLITE),
        str(column_of(cell)),
        f"{finding['level']}: {finding['promise']}",
        Cell(finding["detail"], finding.get("documented", "")),
        Cell(f"`{finding['again']}`") if finding["again"] else Cell("", "broken by commands, not by a state"),
    ]
