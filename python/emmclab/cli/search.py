"""`emmclab search STUDY`."""

import contextlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from emmclab.cli.command import command
from emmclab.cli.console import in_a_folder, print_json, print_stdout, stdout
from emmclab.cli.options import AsJson, Percentiles, Reading, option
from emmclab.cli.progress import StudyMeter
from emmclab.cli.study_options import RESULTS, Engine, ImagesSpace, Jobs, ResultsPlace, StudyName, executor, keeping
from emmclab.runtime.files import digest, printable, write_atomically
from emmclab.traces.inputs import InputRecord, inputs_of, provenance_here
from emmclab.traces.reading import read

if TYPE_CHECKING:
    from emmclab.studies.search import SearchResult

#: Maximum number of best trials that are printed.
_SHOWN = 20


@command("emmclab search study.toml --minimize mean_response_ms --minimize waf --budget 500 --html search.html")
def search(
    *,
    study: StudyName,
    minimize: Annotated[
        list[str], option("Figure to minimise, a column of `runs`; may be repeated.", metavar="FIGURE")
    ] = [],  # noqa: B006
    maximize: Annotated[
        list[str], option("Figure to maximise, a column of `runs`; may be repeated.", metavar="FIGURE")
    ] = [],  # noqa: B006
    budget: Annotated[int, option("Number of trials of each method: search, random trials, and grid.", min=1)] = 100,
    batch: Annotated[
        int,
        option(
            "Number of trials that are chosen at once from all earlier results, and run together.", advanced=True, min=1
        ),
    ] = 16,
    seed: Annotated[int, option("Seed of the choices.", min=0, max=2**32 - 1)] = 1,
    baselines: Annotated[
        bool,
        option(
            "For comparison, also run --budget random trials, and a grid of at most as many.",
            None,
            "--baselines/--no-baselines",
            advanced=True,
        ),
    ] = True,
    html: Annotated[Path | None, option("Output file for the page.", callback=in_a_folder)] = None,
    jobs: Jobs = 0,
    on: Engine = "local",
    images_gb: ImagesSpace = 4.0,
    percentiles: Percentiles = None,
    results: ResultsPlace = str(RESULTS),
    reading: Reading,
    as_json: AsJson = False,
) -> None:
    """Search the space of settings in the `search` section of a study for the best figures.

    Each trial runs cells of the study. Their results are stored, so the same command continues an interrupted search.
    The choices depend only on seed and batch, not on the number of processes. To search the design options of a device
    for a trace, without a study, use `emmclab advise --deep`.
    """
    from emmclab.runtime.result_storage import place_of
    from emmclab.studies import Study
    from emmclab.studies.search import WAYS, require_objectives, run_search

    objectives = require_objectives(minimize, maximize)
    chosen = Study.named(study).with_reading(reading.changed_options()).with_percentiles(percentiles)
    place = place_of(results, chosen.name)
    engine = executor(jobs, on)
    with contextlib.closing(engine), keeping(chosen, None, place), StudyMeter(f"{chosen.name}, search") as meter:
        result = run_search(
            chosen,
            place,
            engine,
            objectives,
            budget=budget,
            seed=seed,
            batch=batch,
            ways=WAYS if baselines else WAYS[:1],
            images_limit=round(images_gb * 2**30),
            progress=meter,
        )
    provenance = provenance_here(_inputs(result))
    if html is not None:
        from emmclab.pages.search import render

        write_atomically(html, render(result, provenance))
    if as_json:
        print_json(_json(result) | {"provenance": provenance})
    else:
        _show(result)
        if html is not None:
            print_stdout(f"report: {html}")


def _inputs(result: "SearchResult") -> list[InputRecord]:
    """Return name, path and digest of the study's file and of its recorded traces, for the provenance of results."""
    from emmclab.studies.bundled import bundled

    study = result.study
    file = [] if study.name in bundled() else [Path(study.file)]
    study_inputs: list[InputRecord] = [
        {"name": study.name, "path": printable(path), "sha256": digest([path]), "reading": {}} for path in file
    ]
    options: dict[str, Any] = dict(study.reading)
    recorded = [read(name, **options) for name in study.inputs if Path(name).is_file()]
    return [*study_inputs, *inputs_of(recorded)]


def _json(result: "SearchResult") -> dict[str, object]:
    from emmclab.pages.search import compared

    return {
        "study": result.study.name,
        "grid": result.space.grid,
        "objectives": [asdict(item) for item in result.objectives],
        "budget": result.budget,
        "batch": result.batch,
        "seed": result.seed,
        "front": [asdict(item) for item in result.front()],
        "ways": compared(result),
        "trials": [asdict(item) for item in result.trials],
    }


def _show(result: "SearchResult") -> None:
    from rich.text import Text

    from emmclab.cli.tables import show_table
    from emmclab.pages.search import front_table, headline, ways_table

    console = stdout()
    console.print(Text(headline(result), "bold"), soft_wrap=True)
    if front := front_table(result, _SHOWN):
        show_table(console, front)
        if (more := len(result.front()) - _SHOWN) > 0:
            print_stdout(f"and {more:,} more (--json, --html)")
    show_table(console, ways_table(result))
