"""`emmclab run STUDY`."""

from __future__ import annotations

import typer

from emmclab.cli.console import print_json, say, stdout
from emmclab.cli.options import AsJson, Reading, with_groups
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


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: [cyan]emmclab run iiswc15 --jobs 2[/]")(with_groups(run))


def run(
    *,
    study: StudyName,
    jobs: Jobs = 0,
    fresh: Fresh = False,
    images_gb: ImagesSpace = 4.0,
    results: ResultsFolder = RESULTS,
    reading: Reading,
    as_json: AsJson = False,
) -> None:
    """Run a study. Finished cells are kept, so an interrupted run continues."""
    from emmclab.study import Study

    chosen = Study.named(study).with_reading(reading.given())
    folder = results / chosen.name
    found = run_with_meter(chosen, folder, jobs, fresh, images_limit=round(images_gb * 2**30), failures=True)
    if as_json:
        failures = {"failures": found.failures} if found.failures else {}
        print_json({**found.about, "results": str(folder), "digest": found.digest, **failures})
    else:
        console = stdout()
        console.print(
            f"{chosen.name}: {found.about['cells']:,} cells, {len(found.profiles)} inputs; results "
            f"{found.digest} in {folder}",
            markup=False,
            soft_wrap=True,
        )
        page, tables = f"emmclab report {study}", f'emmclab query "describe runs" --study {study}'
        place = "" if results == RESULTS else f" --results {results}"
        console.print(f"Next: {page}{place}; {tables}{place}", markup=False, soft_wrap=True)
    stopped = sum(run["run"]["stopped"] is not None for run in found.runs if "run" in run)
    if stopped:
        say(f"note: {stopped:,} of {len(found.runs):,} runs ended early; the report names them")
    if found.failures:
        _fail(found.failures, found.about["cells"], everything=not found.runs)


def _fail(failures: list[dict[str, str]], cells: int, *, everything: bool) -> None:
    first = failures[0]
    device = f" on {first['device']}" if "device" in first else ""
    place = f"{first['input']}{device}"
    message = f"{len(failures):,} of {cells:,} cells failed; the first, {place}: {first['message']}"
    if everything:
        raise ConfigError(message, kind="config", hint=first["hint"])
    raise EmmclabError(message, kind="failed", hint=first["hint"])
