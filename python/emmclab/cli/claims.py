"""`emmclab claims`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from emmclab.cli.console import print_json, stdout
from emmclab.cli.helping import examples
from emmclab.cli.names import paper_names
from emmclab.cli.options import AsJson, Reading, with_groups
from emmclab.cli.show import framed
from emmclab.cli.studies import (
    RESULTS,
    Jobs,
    ResultsFolder,
    TraceInputs,
    note_reading,
    recorded_traces,
    run_with_meter,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from emmclab.papers.claims import Claim
    from emmclab.papers.registry import Paper
    from emmclab.studies import Results, Study


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=examples("emmclab claims --paper iiswc15 --json"))(with_groups(claims))


def claims(
    *,
    paper: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="One paper (`emmclab papers`); default: all.",
            autocompletion=paper_names,
        ),
    ] = None,
    traces: TraceInputs = [],  # noqa: B006
    jobs: Jobs = 0,
    results: ResultsFolder = RESULTS,
    reading: Reading,
    as_json: AsJson = False,
) -> None:
    """Judge the claims of the papers on the results of their studies; runs missing cells.

    A claim whose study needs root is judged if its results are there; otherwise the table names the command.

    Options of reading are for the recorded traces; workloads that are made do not change.
    """
    from emmclab.papers.claims import judge
    from emmclab.papers.registry import paper as find
    from emmclab.papers.registry import papers

    chosen = list(papers().values()) if paper is None else [find(paper)]
    recorded = recorded_traces(traces)
    note_reading(reading, recorded)
    judged = judge(results_of(chosen, recorded, reading.given(), results, jobs), chosen)
    if as_json:
        print_json([claim.to_dict() for claim in judged])
    else:
        console = stdout()
        show_claims(console, judged)
        show_headline(console, judged)


def results_of(
    chosen: Sequence[Paper], recorded: Sequence[str], reading: Mapping[str, Any], folder: Path, jobs: int
) -> dict[str, Results]:
    """Run the missing cells of the studies that the claims of these papers need.

    Those that not every machine can run are taken where their results are kept.
    """
    from emmclab.papers.claims import kept_beside, studies_of
    from emmclab.studies import Study

    kept = {name: _kept(Study.named(name), folder / name) for name in kept_beside(chosen)}
    return {name: found for name, found in kept.items() if found is not None} | {
        name: run_with_meter(
            Study.named(name).with_inputs(recorded).with_reading(reading), folder / name, jobs, fresh=False
        )
        for name in studies_of(chosen)
    }


def _kept(study: Study, folder: Path) -> Results | None:
    """Return the results of a study that are kept; None where a cell has none, or another version ran."""
    from emmclab.studies import Results

    if not (folder / "index.json").is_file():
        return None
    found = Results.load(folder)
    return None if found.missing or found.about.get("definition") != study.definition else found


def show_claims(console: Console, judged: list[Claim]) -> None:
    """Print the ledger."""
    from emmclab.papers.claims import CANNOT, DIRECTION, NOT, NOT_YET, REPRODUCED, RESTATED

    styles = {
        REPRODUCED: "green",
        DIRECTION: "cyan",
        NOT: "yellow",
        RESTATED: "dim",
        CANNOT: "dim",
        NOT_YET: "dim",
    }
    table = framed("Claims", tall=True)
    for heading in ("Claim", "Published", "Measured", "Verdict"):
        table.add_column(heading)
    for claim in judged:
        table.add_row(
            Text.assemble((claim.id, "bold"), f"\n{claim.claim}"),
            Text(claim.published),
            Text(claim.reason if claim.verdict in (CANNOT, NOT_YET) else claim.measured),
            Text(claim.verdict, styles[claim.verdict]),
        )
    console.print(table)


def show_headline(console: Console, judged: list[Claim]) -> None:
    """Print the numbers of tested claims and verdicts: the last line of a command."""
    from emmclab.papers.claims import headline

    console.print(headline(judged), markup=False, soft_wrap=True)
