"""`emmclab run STUDY`."""

from __future__ import annotations

import typer

from emmclab.cli.console import print_json, stdout
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
    """Run a study. Finished cells are kept, so an interrupted run continues."""
    from emmclab.study import Study

    chosen = Study.named(study)
    folder = results / chosen.name
    found = run_with_meter(chosen, folder, jobs, fresh)
    if as_json:
        print_json({**found.about, "results": str(folder), "digest": found.digest})
        return
    console = stdout()
    console.print(
        f"{chosen.name}: {found.about['cells']:,} cells, {len(found.profiles)} inputs; results "
        f"{found.digest} in {folder}",
        markup=False,
        soft_wrap=True,
    )
    console.print(f'Next: emmclab query "describe runs" --results {results}', markup=False, soft_wrap=True)
