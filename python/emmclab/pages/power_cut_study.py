"""The page of a study of power cuts: the table of losses, then each finding with its command."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

from emmclab.crash.json_types import FindingFields
from emmclab.pages.assemble import assemble
from emmclab.pages.first_screen import Head, Tile
from emmclab.pages.study import incomplete, provenance
from emmclab.runtime.files import write_atomically
from emmclab.studies.power_cut_cell import DOCUMENTED, KEPT, LOST, RULE, CutCell
from emmclab.studies.power_cut_table import (
    MEANING,
    NOT_JUDGED,
    Column,
    Table,
    Verdict,
    cell_of,
    column_of,
    counts,
    findings,
    headline,
    tables,
)
from emmclab.studies.results import Results

#: CSS class of the badge of each verdict.
_BADGES = {KEPT: "yes", DOCUMENTED: "documented", RULE: "unknown", LOST: "broken", NOT_JUDGED: "plain"}
_SQLITE = "sqlite-"


def write_cuts_report(results: Results, path: Path, study: str = "") -> None:
    """Write the page, atomically.

    `study` is the argument of `emmclab run`: the path of its file; not needed for a bundled study.
    """
    write_atomically(path, render(results, study))


def render(results: Results, study: str = "") -> str:
    """Return the page; the same results produce the same bytes."""
    name, found = results.about["name"], counts(results)
    host = next((", ".join(map(" ".join, run.result.host.items())) for run in results.cut_runs()), "")
    tables_of = " ".join(['emmclab query "select * from cuts" --study', name])
    return assemble(
        "cuts.html.j2",
        [],
        {},
        [],
        title=name,
        head=Head(
            answer=headline(results),
            lead=[f"{results.about['about']}."],
            tiles=[Tile(word, f"{count:,}", kind=_BADGES[word]) for word, count in found.items()],
            notices=incomplete(results),
        ),
        provenance=provenance(results, study, **{"As tables": tables_of, "Host": host}),
        meaning={word: MEANING[word] for word in found},
        badges=_BADGES,
        tables=[_table_content(table) for table in tables(results)],
        findings=[_finding(cell, one) for cell, one in findings(results)],
        documented=[_finding(cell, one) for cell, one in findings(results, documented=True)],
        failures=[(run["input"], str(column_of(cell_of(run))), run["message"]) for run in results.failures],
        again=f"emmclab crash --results {Path('emmclab-results', name)} --again",
    )


class _ShownTable(TypedDict):
    """A table of verdicts: a row has journal mode, level of `synchronous`, and the verdict by column."""

    columns: tuple[Column, ...]
    rows: list[tuple[str, str, list[Verdict | None]]]


class _ShownFinding(FindingFields):
    """A finding with its workload, and the file system, device and layers on which it was found."""

    workload: str
    place: str


def _table_content(table: Table) -> _ShownTable:
    """Return the rows with SQLite's terms: journal mode, and level of `synchronous`."""
    rows = []
    for name in table.rows:
        mode, _, level = name.removeprefix(_SQLITE).partition("-")
        rows.append((mode, level, [table.cells.get((name, column)) for column in table.columns]))
    return {"columns": table.columns, "rows": rows}


def _finding(cell: CutCell, one: FindingFields) -> _ShownFinding:
    return {
        "documented": "",
        **one,
        "workload": cell.input.removeprefix(_SQLITE),
        "place": str(column_of(cell)),
    }
