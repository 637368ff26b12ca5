"""Writes one file with all results of a study from all its parts, independent of how the cells were run."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from emmclab.errors import InputError
from emmclab.runtime.checksummed import is_intact
from emmclab.runtime.files import folder_aside, folder_for_reading, move_into_place, note_written_files
from emmclab.runtime.parquet import TableFile, database, quoted
from emmclab.runtime.result_storage import Place
from emmclab.studies.cell import Cell
from emmclab.studies.definition import Study
from emmclab.studies.result_rows import ask
from emmclab.studies.results import Results
from emmclab.studies.run import about
from emmclab.studies.staleness import table_provenance
from emmclab.studies.store import Missing, Store, missing_about
from emmclab.studies.stored_types import Run
from emmclab.studies.tables import row_of_cell

#: Metadata key of the description of the study.
_ABOUT = "emmclab"
_HINT = "write one with `emmclab collect STUDY RESULTS... -o all.parquet`"


def collect(study: Study, cells: Sequence[Cell], places: Sequence[Place], output: Path) -> list[Missing]:
    """Write the results of all cells, from all places, as one Parquet file in the order of their keys.

    A row has the `key` of its cell, its `number` in the study, its `kind` (the table with its figures), the
    columns of that table, and the whole `result` as JSON. Returns the cells without a result.

    Raises:
        InputError: a place cannot be read, or contains no results.
    """
    try:
        with note_written_files(output):
            return _collect(study, cells, places, output)
    except OSError as error:
        if isinstance(error, InputError):
            raise
        raise InputError.of(error, output) from error


def _collect(study: Study, cells: Sequence[Cell], places: Sequence[Place], output: Path) -> list[Missing]:
    numbers = {cell.key: number for number, cell in enumerate(cells)}
    missing = []
    with folder_aside(output.absolute().parent) as aside:
        parts: list[Path] = []
        for number, place in enumerate(places):
            copies = aside / str(number)
            copies.mkdir()
            found = Store(place).copies(copies)
            if not found:
                raise InputError(
                    f"{place}: there are no results",
                    file=str(place),
                    hint="name the --results folder of `emmclab run`, which holds a folder for each study",
                )
            parts += found
        with TableFile(aside, "all") as table:
            for key, result, text in ask(parts, aside, sorted(numbers), ("result", "rows")):
                if result is None:
                    missing.append(Missing.of(cells[numbers[key]]))
                    continue
                kind, row = row_of_cell(text)
                table.add({"key": key, "number": numbers[key], "kind": kind, "result": result} | row)
            said = about(study, cells) | (missing_about(missing) if missing else {})
            if not table.rows:
                table.name_columns({"key": "", "number": 0, "kind": "", "result": ""})
            move_into_place(table.write({_ABOUT: json.dumps(said, sort_keys=True), **table_provenance(study)}), output)
    return missing


def collected(path: Path, *, of_run: Callable[[Run], Run] | None = None) -> Results:
    """Read a file that `collect` wrote; `of_run` selects the needed part of each run.

    Raises:
        InputError: it is not such a file, or it is damaged.
    """
    if not path.is_file():
        raise InputError(f"{path}: file not found", file=str(path), hint="check the path")
    if not is_intact(path):
        raise InputError(
            f"{path}: this is not a file of collected results, or it is damaged, or of an earlier version",
            file=str(path),
            hint=_HINT,
        )
    source = f"'{quoted(path)}'"
    with folder_for_reading(path.absolute().parent) as aside, database(aside) as asked:
        found = asked.execute(
            f"select decode(value) from parquet_kv_metadata({source}) where decode(key) = '{_ABOUT}'"  # noqa: S608
        ).fetchone()
        if found is None:
            raise InputError(f"{path}: this is not a file of collected results", file=str(path), hint=_HINT)
        keys = asked.execute(f"select key from {source} order by number").fetchall()  # noqa: S608
        texts = (text for _, text in ask([path], aside, [key for (key,) in keys], ["result"]))
        return Results.of_entries(json.loads(found[0]), texts, of_run=of_run)
