"""`emmclab claims`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from emmclab.cli.command import command
from emmclab.cli.console import print_json, print_stderr, stdout
from emmclab.cli.name_completion import paper_names
from emmclab.cli.options import AsJson, Reading, option
from emmclab.cli.study_options import (
    RESULTS,
    Jobs,
    PaperTraces,
    ResultsFolder,
    TraceInputs,
    note_reading,
    recorded_traces,
    recordings_of,
    run_with_meter,
)
from emmclab.cli.tables import framed
from emmclab.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from emmclab.papers.claims import Claim
    from emmclab.papers.registry import Paper
    from emmclab.studies import Results, Study


@command("emmclab claims --paper iiswc15 --json")
def claims(
    *,
    paper: Annotated[
        str | None, option("One paper (`emmclab papers`); default: all.", metavar="NAME", autocompletion=paper_names)
    ] = None,
    traces: PaperTraces = None,
    trace: TraceInputs = [],  # noqa: B006
    jobs: Jobs = 0,
    results: ResultsFolder = RESULTS,
    stored: Annotated[
        bool, option("Run no simulation; end with an error if a result that claims read is missing.")
    ] = False,
    reading: Reading,
    as_json: AsJson = False,
) -> None:
    """Check the claims of the papers against the results of their studies, after running missing simulations.

    A claim whose study needs root is checked only if its results are stored; otherwise the table shows the command.

    With --traces, the original traces of IISWC 2015 replace the workloads generated from its figures.
    Options for reading apply only to recorded traces.
    """
    from emmclab.papers.claims import judge
    from emmclab.papers.registry import paper as find
    from emmclab.papers.registry import papers

    chosen = list(papers().values()) if paper is None else [find(paper)]
    recorded = recorded_traces(trace)
    recordings = recordings_of(traces, chosen, reading)
    note_reading(reading, recorded, recordings)

    def prepared(study: Study, paper: Paper) -> Study:
        study = study.with_inputs(recorded).with_reading(reading.changed_options())
        return study.with_recordings(recordings) if recordings and paper.takes_traces else study

    judged = judge(results_of(chosen, prepared, results, jobs, stored=stored), chosen)
    if as_json:
        print_json([claim.to_dict() for claim in judged])
    else:
        console = stdout()
        show_claims(console, judged, with_reasons=paper is not None)
        if paper is None:
            hint = "`emmclab claims --paper NAME` also prints the reason of each verdict"
            console.print(hint, markup=False, soft_wrap=True, style="dim")
        show_settled(console, judged)
        show_headline(console, judged)


def results_of(
    chosen: Sequence[Paper], prepared: Callable[[Study, Paper], Study], folder: Path, jobs: int, *, stored: bool = False
) -> dict[str, Results]:
    """Return the results from which the claims of the papers are judged, by study; run missing simulations.

    The user must confirm missing simulations. Studies that not every machine can run are included only if their stored
    results are complete.
    """
    from emmclab.papers.claims import machine_bound_studies, studies_of
    from emmclab.papers.registry import studies
    from emmclab.studies import Study

    stored_results = {name: _stored_results(Study.named(name), folder / name) for name in machine_bound_studies(chosen)}
    results = {name: stored_result for name, stored_result in stored_results.items() if stored_result is not None}
    needed = []
    for name in studies_of(chosen):
        paper = studies()[name]
        needed.append((prepared(Study.named(name), paper), paper.grids_without_claims.get(name, ())))
    missing = sum(_missing(study, folder / study.name, unread) for study, unread in needed)
    if missing:
        _confirm(missing, stored)
    for study, unread in needed:
        results[study.name] = run_with_meter(study, folder / study.name, jobs, without=unread)
    return results


def _missing(study: Study, folder: Path, unread: Collection[str]) -> int:
    """Return the number of simulations that claims need and that have no stored result."""
    from emmclab.studies.store import Store

    stored = Store(folder).keys() if folder.exists() else set()
    return len({cell.key for cell in study.cells() if cell.grid not in unread} - stored)


def _confirm(missing: int, stored: bool) -> None:
    """Ask for confirmation before missing simulations are run; without a terminal, only print a message."""
    simulations = f"{missing:,} simulation{'s' if missing > 1 else ''} without a stored result"
    if stored:
        raise ConfigError(f"the claims need {simulations}", field="--stored", hint="leave out --stored to simulate")
    if not sys.stdin.isatty():
        print_stderr(f"running {simulations}, which the claims need (--stored runs none)")
    elif not typer.confirm(f"Run {simulations}, which the claims need?", err=True):
        raise typer.Exit(1)


def _stored_results(study: Study, folder: Path) -> Results | None:
    """Return the stored results of a study; None if they are incomplete, or of another version of the study."""
    from emmclab.studies import Results

    if not (folder / "index.json").is_file():
        return None
    results = Results.load(folder)
    return None if results.missing or results.about.get("definition") != study.definition else results


def show_claims(console: Console, judged: list[Claim], *, with_reasons: bool = False) -> None:
    """Print the table of claims and verdicts, tested ones first; `with_reasons` adds the reason for each verdict."""
    from emmclab.papers.claims import CANNOT, DIRECTION, HOLDS, NOT, NOT_YET, REPRODUCED, tested_first

    styles = {REPRODUCED: "green", HOLDS: "green", DIRECTION: "cyan", NOT: "yellow"}
    table = framed("Claims", "Claim", "Published", "Measured", "Verdict", tall=True, words=4)
    for claim in tested_first(judged):
        undecided = claim.verdict in (CANNOT, NOT_YET)
        measured = Text(claim.reason if undecided else claim.measured)
        if with_reasons and claim.reason and not undecided:
            measured.append(f"\n{claim.reason}", "dim")
        verdict = Text(claim.verdict, styles.get(claim.verdict, "dim"))
        if claim.fails_as_test:
            verdict.append(f"\nfails: {claim.as_test}", styles[claim.as_test])
        table.add_row(Text.assemble((claim.id, "bold"), f"\n{claim.claim}"), Text(claim.published), measured, verdict)
    console.print(table)


def show_settled(console: Console, judged: list[Claim]) -> None:
    """Print how many claims are checked with recorded traces, if such traces replace workloads."""
    from emmclab.papers.claims import settled

    if text := settled(judged):
        console.print(text, markup=False, soft_wrap=True)


def show_headline(console: Console, judged: list[Claim]) -> None:
    """Print the last line of the output: how many claims were tested, and how many have each verdict."""
    from emmclab.papers.claims import headline

    console.print(headline(judged), markup=False, soft_wrap=True)
