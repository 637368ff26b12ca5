"""`emmclab collect STUDY RESULTS...`."""

from pathlib import Path
from typing import Annotated

from emmclab.cli.command import command
from emmclab.cli.console import output_option, print_json, print_stdout
from emmclab.cli.options import AsJson, Percentiles, Reading, argument
from emmclab.cli.study_options import StudyName, incomplete
from emmclab.errors import EmmclabError
from emmclab.runtime.files import digest, refuse_other_endings


@command(
    "emmclab collect study.toml emmclab-results -o all.parquet",
    "emmclab collect study.toml node-1 node-2 s3://bucket/sweeps -o all.parquet",
)
def collect(
    *,
    study: StudyName,
    results: Annotated[
        list[str], argument("RESULTS...", "Results of runs or shards (their --results): folders, s3://BUCKET/PREFIX.")
    ],
    output: Annotated[Path, output_option("Output file, which ends in .parquet.", callback=None)],
    percentiles: Percentiles = None,
    reading: Reading,
    as_json: AsJson = False,
) -> None:
    """Join the results of the shards of a study in one Parquet file.

    Each row contains the figures of a cell (one simulation or profile) as columns and its complete result as JSON;
    `emmclab report STUDY --results FILE` shows them. Rows are ordered by the keys of the cells: the bytes of the file
    do not depend on where and in which order the cells were run. Exit status 1: cells are missing; the file contains
    the others.
    """
    from emmclab.runtime.result_storage import place_of
    from emmclab.studies import Study
    from emmclab.studies.run import collect as write

    refuse_other_endings(output, (".parquet",), "--output")
    chosen = Study.named(study).with_reading(reading.changed_options()).with_percentiles(percentiles)
    cells = chosen.cells()
    missing = write(chosen, cells, [place_of(folder, chosen.name) for folder in results], output)
    hashed = digest([output])
    if as_json:
        counts = {"study": chosen.name, "cells": len(cells), "missing": len(missing)}
        print_json(counts | {"output": str(output), "sha256": hashed})
    else:
        if missing:
            print_stdout(incomplete(len(missing), len(cells)))
        print_stdout(f"{chosen.name}: {len(cells) - len(missing):,} of {len(cells):,} cells in {output}, {hashed}")
    if missing:
        raise EmmclabError(
            incomplete(len(missing), len(cells)),
            kind="failed",
            hint=f"run `emmclab run {study}` for the missing cells, or run the unfinished shards again",
        )
