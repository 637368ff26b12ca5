"""`emmclab run STUDY`."""

from __future__ import annotations

from typing import Any

import typer

from emmclab.cli.console import print_json, stdout
from emmclab.cli.failures import EARLY_END
from emmclab.cli.options import AsJson
from emmclab.cli.studies import RESULTS, Fresh, Jobs, ResultsFolder, StudyName, run_with_meter


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: [cyan]emmclab run iiswc15 --jobs 2[/]")(run)


def run(
    study: StudyName,
    jobs: Jobs = 0,
    fresh: Fresh = False,
    results: ResultsFolder = RESULTS,
    as_json: AsJson = False,
) -> None:
    """Run a study. Finished cells are kept, so an interrupted run continues.

    Exit status 3: a device stopped before the end of its trace (full or worn out) in some cell.
    """
    from emmclab.study import Study

    chosen = Study.named(study)
    folder = results / chosen.name
    found = run_with_meter(chosen, folder, jobs, fresh)
    early = [run for run in found.runs if _stopped(run)]
    if as_json:
        marked = [{name: run[name] for name in ("grid", "input", "device", "seed")} for run in early]
        about = {**found.about, "results": str(folder), "digest": found.digest, "ended_early": marked}
        print_json(about)
        raise typer.Exit(EARLY_END if early else 0)
    console = stdout()
    console.print(
        f"{chosen.name}: {found.about['cells']:,} cells, {len(found.profiles)} inputs; results "
        f"{found.digest} in {folder}",
        markup=False,
        soft_wrap=True,
    )
    for run in early[:_SHOWN]:
        line = f"ended early: {run['input']} on {run['device']} ({run['grid']}): {_stopped(run)}"
        console.print(line, markup=False, soft_wrap=True, style="yellow")
    if len(early) > _SHOWN:
        more = f"and {len(early) - _SHOWN:,} more; their column run_stopped gives the reason"
        console.print(more, markup=False, soft_wrap=True, style="yellow")
    console.print(f'Next: emmclab query "describe runs" --results {results}', markup=False, soft_wrap=True)
    raise typer.Exit(EARLY_END if early else 0)


#: Cells that are named where they ended early.
_SHOWN = 10


def _stopped(run: dict[str, Any]) -> str | None:
    """Give the reason why the device of a cell stopped; a device beside a card has its own form."""
    reason: str | None = run["run"]["stopped"] if "run" in run else run.get("stopped")
    return reason
