"""`emmclab run STUDY`."""

from __future__ import annotations

from typing import Annotated

import typer

from emmclab.cli.console import print_json, stdout
from emmclab.cli.failures import EARLY_END
from emmclab.cli.options import AsJson, Percentiles, Reading, with_groups
from emmclab.cli.studies import (
    RESULTS,
    Fresh,
    ImagesSpace,
    Jobs,
    ResultsFolder,
    StudyName,
    run_with_meter,
)
from emmclab.errors import ConfigError, EmmclabError

#: Cells that are named where they ended early.
_SHOWN = 10


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: [cyan]emmclab run iiswc15 --jobs 2[/]")(with_groups(run))


def run(
    *,
    study: StudyName,
    jobs: Jobs = 0,
    fresh: Fresh = False,
    images_gb: ImagesSpace = 4.0,
    percentiles: Percentiles = None,
    scale: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Of a study of power cuts: so many times its cuts in every cell.",
            rich_help_panel="Running",
        ),
    ] = None,
    results: ResultsFolder = RESULTS,
    reading: Reading,
    as_json: AsJson = False,
) -> None:
    """Run a study. Finished cells are kept, so an interrupted run continues.

    Exit status 3: a device stopped before the end of its trace (full or worn out) in some cell.
    """
    from emmclab.study import Study
    from emmclab.study.results import stop_of

    chosen = Study.named(study).with_reading(reading.given()).with_percentiles(percentiles)
    if scale is not None:
        chosen = chosen.with_scale(scale)
    folder = results / chosen.name
    found = run_with_meter(chosen, folder, jobs, fresh, images_limit=round(images_gb * 2**30), failures=True)
    early = [run for run in found.runs if stop_of(run)]
    if as_json:
        marked = [{name: run[name] for name in ("grid", "input", "device", "seed")} for run in early]
        about = {**found.about, "results": str(folder), "digest": found.digest, "ended_early": marked}
        parts = {"cuts": found.cuts, "failures": found.failures}
        print_json(about | {name: part for name, part in parts.items() if part})
    else:
        console = stdout()
        console.print(
            f"{chosen.name}: {found.about['cells']:,} cells, {len(found.profiles)} inputs; results "
            f"{found.digest} in {folder}",
            markup=False,
            soft_wrap=True,
        )
        if found.cuts:
            from emmclab.cli.show_cuts import show_cuts

            show_cuts(console, found)
        for run in early[:_SHOWN]:
            line = f"ended early: {run['input']} on {run['device']} ({run['grid']}): {stop_of(run)}"
            console.print(line, markup=False, soft_wrap=True, style="yellow")
        if len(early) > _SHOWN:
            more = f"and {len(early) - _SHOWN:,} more; their column run_stopped gives the reason"
            console.print(more, markup=False, soft_wrap=True, style="yellow")
        table = "cuts" if found.cuts else "runs"
        page, tables = f"emmclab report {study}", f'emmclab query "describe {table}" --study {study}'
        place = "" if results == RESULTS else f" --results {results}"
        console.print(f"Next: {page}{place}; {tables}{place}", markup=False, soft_wrap=True)
    if found.failures:
        _fail(found.failures, found.about["cells"], everything=not found.runs and not found.cuts)
    raise typer.Exit(EARLY_END if early else 0)


def _fail(failures: list[dict[str, str]], cells: int, *, everything: bool) -> None:
    first = failures[0]
    device = f" on {first['device']}" if "device" in first else ""
    place = f"{first['input']}{device}"
    message = f"{len(failures):,} of {cells:,} cells failed; the first, {place}: {first['message']}"
    if everything:
        raise ConfigError(message, kind="config", hint=first["hint"])
    raise EmmclabError(message, kind="failed", hint=first["hint"])
