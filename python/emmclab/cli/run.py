"""`emmclab run STUDY`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from emmclab.cli.command import command
from emmclab.cli.console import print_json, print_stderr, print_stdout, stdout
from emmclab.cli.failures import EARLY_END
from emmclab.cli.options import AsJson, Percentiles, Reading, option
from emmclab.cli.progress import StudyMeter, estimate_text
from emmclab.cli.study_options import (
    RESULTS,
    Engine,
    Fresh,
    ImagesSpace,
    Jobs,
    ResultsPlace,
    StudyName,
    executor,
    finish_with_meter,
    incomplete,
    keeping,
    rerun_command,
)
from emmclab.errors import ConfigError, EmmclabError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emmclab.runtime.result_storage import Place
    from emmclab.studies import Study
    from emmclab.studies.store import Finished
    from emmclab.studies.stored_types import FailedRow, MissingCell

#: Maximum number of study cells (runs) that are listed as ended early or as missing.
_SHOWN = 10
#: Maximum number of overloaded simulations that a warning lists.
_OVERLOADED = 3
#: Number of digits to which messages shorten the key of a single run of a study.
_KEY_DIGITS = 12


@command(
    "emmclab run iiswc15 --jobs 2",
    "emmclab run study.toml --on auto --results s3://bucket/sweeps",
    "emmclab run study.toml --shard 3/16",
)
def run(
    *,
    study: StudyName,
    jobs: Jobs = 0,
    on: Engine = "local",
    shard: Annotated[
        str | None,
        option(
            "Run only the K-th of N parts of the cells, for example 3/16; `emmclab collect` joins the parts.",
            "Running",
            metavar="K/N",
        ),
    ] = None,
    fresh: Fresh = False,
    estimate: Annotated[
        bool, option("Run only a few cells of each grid, and estimate the time of the study.", "Running", advanced=True)
    ] = False,
    cell: Annotated[
        str | None,
        option(
            "Run only the cell whose key begins with KEY, in this process, to debug a crash.",
            "Running",
            advanced=True,
            metavar="KEY",
        ),
    ] = None,
    images_gb: ImagesSpace = 4.0,
    percentiles: Percentiles = None,
    scale: Annotated[
        float | None,
        option(
            "For a study of power cuts: multiply the number of cuts of every cell by this factor.",
            "Running",
            advanced=True,
            metavar="X",
        ),
    ] = None,
    results: ResultsPlace = str(RESULTS),
    reading: Reading,
    as_json: AsJson = False,
) -> None:
    """Run a study. The results of finished cells (single runs) are stored.

    The same command continues an interrupted study. Exit status 3: in a cell, the device stopped before the end of its
    trace (full or worn out). 1: cells failed, or crashed their process repeatedly.
    """
    from emmclab.runtime.result_storage import place_of
    from emmclab.studies import Study

    chosen = Study.named(study).with_reading(reading.changed_options()).with_percentiles(percentiles)
    if scale is not None:
        chosen = chosen.with_scale(scale)
    place = place_of(results, chosen.name)
    limit = round(images_gb * 2**30)
    results_option = "" if results == str(RESULTS) else f" --results {shlex.quote(results)}"
    rerun = rerun_command(study, results)
    if cell is not None:
        _run_cell(chosen, place, cell, limit, as_json)
    elif shard is not None:
        _run_shard(chosen, place, executor(jobs, on), shard, limit, as_json, rerun)
    elif estimate:
        _estimate(chosen, place, executor(jobs, on), limit, as_json)
    else:
        finished = finish_with_meter(chosen, place, executor(jobs, on), fresh=fresh, images_limit=limit)
        _report(finished, place, study, results_option, rerun, as_json)


def _run_cell(study: Study, place: Place, begin: str, limit: int, as_json: bool) -> None:
    from emmclab.studies import Serial
    from emmclab.studies.run import run_part

    cells = [cell for cell in study.cells() if cell.key.startswith(begin)]
    if len(cells) != 1:
        raise ConfigError(
            f"{len(cells)} cells of {study.name} have a key that begins with `{begin}`",
            field="--cell",
            hint="give more digits of the key, and the same options as for the run that has created the cell",
        )
    with keeping(study, cells, place):
        run_part(place, Serial(), f"cell-{cells[0].key}", cells, images_limit=limit, note=print_stderr)
    if as_json:
        print_json({"study": study.name, "cell": cells[0].key, "results": str(place)})
    else:
        print_stdout(f"{study.name}: the cell {cells[0].key} is stored in {place}")


def _run_shard(study: Study, place: Place, engine: Any, text: str, limit: int, as_json: bool, rerun: str) -> None:
    import contextlib

    from emmclab.studies.run import Shard, run_part
    from emmclab.studies.store import missing_cell

    shard = Shard.parse(text)
    cells = shard.share(study.cells())
    name = f"{study.name}, shard {text}"
    with contextlib.closing(engine), keeping(study, cells, place), StudyMeter(name) as meter:
        reasons = run_part(place, engine, str(shard), cells, images_limit=limit, progress=meter, note=print_stderr)
    missing = [missing_cell(cell, reasons[cell.key]) for cell in cells if cell.key in reasons]
    if as_json:
        print_json({"study": study.name, "shard": text, "cells": len(cells), "results": str(place), "missing": missing})
    else:
        print_stdout(f"{name}: {len(cells) - len(missing):,} of {len(cells):,} cells are stored in {place}")
        print_stdout("Next: emmclab collect STUDY RESULTS... -o all.parquet, when all shards have ended")
    _refuse_missing(missing, len(cells), rerun)


def _estimate(study: Study, place: Place, engine: Any, limit: int, as_json: bool) -> None:
    """Run a sample of a study's cells, and estimate how long the remaining cells will take."""
    import contextlib
    from dataclasses import asdict

    from emmclab.studies.run import estimate

    cells = study.cells()
    with contextlib.closing(engine), keeping(study, cells, place):
        progress = estimate(place, engine, cells, images_limit=limit, note=print_stderr)
    if as_json:
        print_json({"study": study.name, **asdict(progress)})
    elif progress.done == progress.total:
        print_stdout(f"{study.name}: all {progress.total:,} cells are finished")
    else:
        print_stdout(f"{study.name}: {estimate_text(progress)}")


def _report(finished: Finished, place: Place, study: str, results_option: str, rerun: str, as_json: bool) -> None:
    """Print the summary of a run and exit with its status."""
    total, counts = finished.about["cells"], finished.counts
    if as_json:
        _print_json(finished, place)
    else:
        console = stdout()
        if finished.missing:
            print_stdout(incomplete(len(finished.missing), total))
        console.print(
            f"{finished.about['name']}: {total:,} cells, {counts['profiles']} inputs; "
            f"results {finished.digest} in {place}",
            markup=False,
            soft_wrap=True,
        )
        if counts["cuts"]:
            from emmclab.cli.show_power_cut_study import show_cuts
            from emmclab.studies import Results

            show_cuts(console, Results.load(place))
        for run in finished.early[:_SHOWN]:
            reason = run["run_stopped"]
            line = f"ended early: {run['input']} on {run['device']} ({run['grid']}): {reason}"
            console.print(line, markup=False, soft_wrap=True, style="yellow")
        if len(finished.early) > _SHOWN:
            more = f"and {len(finished.early) - _SHOWN:,} more; their column run_stopped contains the reason"
            console.print(more, markup=False, soft_wrap=True, style="yellow")
        if finished.overloaded:
            _warn_of_overload(finished)
        table = "cuts" if counts["cuts"] else "runs"
        if place.folder is not None:
            page, tables = f"emmclab report {study}", f'emmclab query "describe {table}" --study {study}'
            line = f"Next: {page}{results_option}; {tables}{results_option}"
        else:
            line = f"Next: emmclab collect {study}{results_option.replace(' --results', '')} -o all.parquet"
        console.print(line, markup=False, soft_wrap=True)
    _refuse_missing(finished.missing, total, rerun)
    if finished.failures:
        _fail(finished.failures, total, everything=not counts["runs"] and not counts["cuts"])
    raise typer.Exit(EARLY_END if finished.early else 0)


def _warn_of_overload(finished: Finished) -> None:
    """Print a warning with overloaded simulations, whose response times do not characterise the device."""
    names = dict.fromkeys(f"{row['input']} on {row['device']} ({row['grid']})" for row in finished.overloaded)
    listed = ", ".join(list(names)[:_OVERLOADED])
    more = " and others" if len(names) > _OVERLOADED else ""
    print_stderr(
        f"warning: {finished.overloaded_runs:,} of {finished.counts['runs']:,} simulations were overloaded: "
        f"their response times grow with the length of the trace: {listed}{more}; use a lower rate or a faster "
        "device in the study"
    )


def _print_json(finished: Finished, place: Place) -> None:
    from emmclab.studies import Results
    from emmclab.studies.summary import summed

    early, overloaded = (
        [{name: run[name] for name in ("grid", "input", "device", "seed")} for run in rows]
        for rows in (finished.early, finished.overloaded)
    )
    about = {**finished.about, "results": str(place), "digest": finished.digest}
    about |= {"ended_early": early, "overloaded": overloaded, "overloaded_runs": finished.overloaded_runs}
    parts: dict[str, object] = {"missing_cells": finished.missing}
    if finished.counts["cuts"] or finished.failures:
        results = Results.load(place, of_run=summed)
        parts |= {"cuts": results.cuts, "failures": results.failures}
    print_json(about | {name: part for name, part in parts.items() if part})


def _refuse_missing(missing: Sequence[MissingCell], cells: int, rerun: str) -> None:
    """List study cells without a result and the commands that repeat them; raise an error if there are any."""
    if not missing:
        return
    for row in missing[:_SHOWN]:
        place = f"{row['input']} on {row['device']}" if row["device"] else row["input"]
        print_stderr(f"set aside: {place} ({row['grid']}, seed {row['seed']}): {row['reason'] or 'it was not run'}")
        print_stderr(f"  repeat it: {rerun} --cell {row['key'][:_KEY_DIGITS]}")
    if len(missing) > _SHOWN:
        print_stderr(f"and {len(missing) - _SHOWN:,} more; index.json lists them")
    raise EmmclabError(
        incomplete(len(missing), cells), kind="failed", hint="run the same command again, which repeats the failed runs"
    )


def _fail(failures: list[FailedRow], cells: int, *, everything: bool) -> None:
    first = failures[0]
    device = f" on {first['device']}" if "device" in first else ""
    place = f"{first['input']}{device}"
    message = f"{len(failures):,} of {cells:,} cells failed; the first, {place}: {first['message']}"
    if everything:
        raise ConfigError(message, hint=first["hint"])
    raise EmmclabError(message, kind="failed", hint=first["hint"])
