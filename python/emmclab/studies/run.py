"""Runs a study and collects its results; finished cells are not run again, so that an interrupted study continues."""

import contextlib
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, cast

import duckdb

from emmclab import __version__
from emmclab.calibration.fit_sources import Fitted
from emmclab.errors import ConfigError, InputError, UnsupportedError
from emmclab.runtime.checksummed import is_intact
from emmclab.runtime.executors import Executor
from emmclab.runtime.files import (
    digest,
    folder_aside,
    folder_for_reading,
    move_into_place,
    note_written_files,
    printable,
)
from emmclab.runtime.local_copies import build_digest, file_digest, local_path
from emmclab.runtime.parquet import TableFile, database, questions, quoted
from emmclab.runtime.result_storage import Folder, Place
from emmclab.simulation.device import Device
from emmclab.simulation.run_options import split_precondition
from emmclab.simulation.stored_result import run_of
from emmclab.studies.bundled import bundled
from emmclab.studies.cell import Cell
from emmclab.studies.cell_scheduler import Progress, Sweep
from emmclab.studies.definition import Study
from emmclab.studies.grid import FILES
from emmclab.studies.input import Input
from emmclab.studies.kinds import CellKind
from emmclab.studies.result_rows import ask
from emmclab.studies.results import Results
from emmclab.studies.store import IMAGES_BYTES, Finished, Keeper, Store, missing_about, missing_cell, row_of_cell
from emmclab.studies.stored_types import About, FittedTo, FurtherAbout, MissingCell, Run

#: Parquet metadata key under which a table stores its provenance.
MADE_OF = "emmclab_made_of"
#: Maximum size of files that are always hashed, bytes. Larger files are hashed only if they changed after the results
#: were stored.
_SMALL = 16 << 20


class _TableProvenance(TypedDict):
    """Provenance of a table of results: `files` contains the digest of each file that the study names."""

    study: str
    build: str
    files: dict[str, str]


def table_provenance(study: Study) -> dict[str, str]:
    """Return the provenance metadata of tables of results: the study, the build, and the digest of each named file.

    Files have the names used in the study, so that the same study results in the same bytes on every machine.

    Raises:
        InputError: a file cannot be read.
    """
    files = {name: file_digest(name) for name in _named_files(study)}
    is_bundled = study.name in bundled() and study.file == f"{study.name}.toml"
    named = study.name if is_bundled else study.file or study.name
    provenance: _TableProvenance = {"study": named, "build": build_digest(), "files": files}
    return {MADE_OF: json.dumps(provenance, sort_keys=True)}


def _named_files(study: Study) -> list[str]:
    """Return the names of all files that a study uses as inputs, devices, hosts or preconditionings."""
    named = set(study.inputs)
    for grid in study.grids:
        named |= {*grid.inputs, *grid.devices, grid.host}
        named |= {split_precondition(str(value))[1] for option in FILES for value in grid.values(option)}
    files = {name.partition(" --only ")[0] for name in named if name}
    return sorted(name for name in files if Path(name).is_file())


def changes(table: Path) -> list[str]:
    """Return a phrase for each change of the build or of a file since a table of results was written.

    Files that no longer exist are ignored: the results are still those of their former content.
    """
    provenance = _read_provenance(table)
    if provenance is None:
        return []
    phrases = [] if provenance["build"] == build_digest() else ["another build of emmclab wrote them"]
    since_ns = table.stat().st_mtime_ns
    phrases += [f"{name} has changed since" for name in provenance["files"] if _has_changed(name, provenance, since_ns)]
    return phrases


def study_of(table: Path) -> str:
    """Return the study from which a table of results was made: its file, or the name of a bundled study."""
    provenance = _read_provenance(table)
    return "STUDY" if provenance is None else provenance["study"]


def _has_changed(name: str, provenance: _TableProvenance, since_ns: int) -> bool:
    path = Path(name)
    try:
        status = path.stat()
    except OSError:
        return False
    if status.st_size > _SMALL and status.st_ctime_ns < since_ns:
        return False
    return digest([path]) not in (None, provenance["files"][name])


def _read_provenance(table: Path) -> _TableProvenance | None:
    """Read the provenance metadata of a table of results; None if it has none."""
    with contextlib.suppress(duckdb.Error, ValueError), questions() as connection:
        ask = "select decode(value) from parquet_kv_metadata($path) where decode(key) = $key"
        row = connection.execute(ask, {"path": str(table), "key": MADE_OF}).fetchone()
        provenance = json.loads(row[0]) if row else None
        if isinstance(provenance, dict) and set(provenance) >= _TableProvenance.__required_keys__:
            return cast("_TableProvenance", provenance)
    return None


#: Callback that gets the progress whenever cells finish.
StudyProgress = Callable[[Progress], None]
#: Callback that gets messages about stored results, for example that some are damaged.
Note = Callable[[str], None]
#: Reason for a missing result of a grid that was not requested.
_LEFT_OUT = "the command that ran the study does not need this grid"


def unheard(_sentence: str) -> None:
    """Ignore a message; default of parameters named `note`."""


@dataclass(frozen=True)
class Shard:
    """A part of the cells of a study: every `of`-th cell in the order of keys, starting with the `number`-th."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}-of-{self.of}"

    @staticmethod
    def parse(text: str) -> "Shard":
        """Parse a text such as `3/16` (third of 16 shards).

        >>> str(Shard.parse("3/16"))
        '3-of-16'
        """
        number, _, of = text.partition("/")
        if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
            raise ConfigError(
                f"`{text}` is not a shard",
                field="--shard",
                hint="write the number of the shard, counted from 1, and the number of shards, for example 3/16",
            )
        return Shard(int(number), int(of))

    def share(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the cells of this shard, in the order of the study."""
        keys = {cell.key for cell in sorted(cells, key=lambda cell: cell.key)[self.number - 1 :: self.of]}
        return [cell for cell in cells if cell.key in keys]


def run_study(
    study: Study,
    folder: Path,
    executor: Executor,
    *,
    fresh: bool = False,
    images_limit: int = IMAGES_BYTES,
    cells: Sequence[Cell] | None = None,
    progress: StudyProgress | None = None,
) -> Results:
    r"""Run every unfinished cell (unit of work) of a study, and store each result at once; then write the tables.

    Cells share preconditioned devices, of which at most `images_limit` bytes are stored. The results have the same
    bytes with every executor and limit, even after an interruption. A caller that already has the cells of the study
    can pass them as `cells`.

    >>> import pathlib, tempfile
    >>> from emmclab.studies import Serial, Study
    >>> study = Study.parse('name = "mine"\ninputs = ["Idle", "Movie"]', "mine.toml")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = run_study(study, pathlib.Path(folder), Serial())
    >>> results.of(["Idle"], "requests")
    {'Idle': 6932}
    """
    place = Folder(folder)
    run_cells(study, place, executor, fresh=fresh, images_limit=images_limit, cells=cells, progress=progress)
    return Results.load(place)


def run_cells(
    study: Study,
    place: Place,
    executor: Executor,
    *,
    fresh: bool = False,
    images_limit: int = IMAGES_BYTES,
    cells: Sequence[Cell] | None = None,
    without: Collection[str] = (),
    progress: StudyProgress | None = None,
    note: Note = unheard,
) -> Finished:
    """Run the cells of a study that have no result, like `run_study`; return the outcome without the results.

    Cells of the grids `without` are not run. `missing` lists those of them that have no earlier result, and cells that
    repeatedly crash their process. Cells whose stored result is damaged are run again; `note` is called with a message
    about them.

    Raises:
        ConfigError: another run stores results in the same place.
    """
    cells = study.cells() if cells is None else cells
    # Files are hashed before the run, so that a change during the run is detected later.
    provenance, description = table_provenance(study), about(study, cells)
    with place.lock(""):
        store = Store(place, images_limit)
        store.sweep()
        if fresh:
            store.forget()
        left_out = {cell.key: _LEFT_OUT for cell in cells if cell.grid in without}
        selected = [cell for cell in cells if cell.key not in left_out]
        reasons = left_out | _run(store, executor, selected, progress, note)
        finished = store.finish(description, cells, reasons, provenance)
        # Remove files again: worker processes of a killed run may have written some after the first sweep.
        store.sweep()
    return finished


def run_part(
    place: Place,
    executor: Executor,
    part: str,
    cells: Sequence[Cell],
    *,
    images_limit: int = IMAGES_BYTES,
    progress: StudyProgress | None = None,
    note: Note = unheard,
) -> dict[str, str]:
    """Run the cells (single runs) of one part of a study that have no result yet.

    `part` is the name of the part, such as `3-of-16`. Parts may be stored in one place or in several; `collect` or a
    later run joins them. Returns the reasons for cells without a result, by cell key.

    Raises:
        ConfigError: another run of the same part, or of all cells, stores results in the same place.
    """
    with place.lock(part):
        return _run(Store(place, images_limit), executor, cells, progress, note)


def estimate(
    place: Place, executor: Executor, cells: Sequence[Cell], *, images_limit: int = IMAGES_BYTES, note: Note = unheard
) -> Progress:
    """Run a few cells of each grid of a study, store their results, and estimate the time for all other cells."""
    last: list[Progress] = []
    with place.lock("estimate"):
        _run(Store(place, images_limit), executor, cells, last.append, note, is_sample=True)
    total = len(cells)
    return last[-1] if last else Progress(total, total, total, 0, 0, 0.0, 0.0, executor.jobs)


def _run(
    store: Store,
    executor: Executor,
    cells: Sequence[Cell],
    progress: StudyProgress | None,
    note: Note,
    *,
    is_sample: bool = False,
) -> dict[str, str]:
    """Run the cells without a stored result; return the reasons for missing results, by cell key."""
    have = store.mend(note)
    remaining = [cell for cell in cells if cell.key not in have]
    require_all(remaining, executor)
    if not remaining:
        return {}
    sweep = Sweep(remaining, len(cells), is_sample=is_sample)
    files = [] if executor.is_local else list(dict.fromkeys(path for cell in remaining for path in cell.files()))
    keeper = Keeper(store)
    try:
        with contextlib.closing(sweep.run(executor, store.images, files)) as batches:
            for results in batches:
                keeper.keep(results)
                if progress is not None:
                    progress(sweep.progress)
    finally:
        keeper.close()
    return sweep.quarantined


def require_all(cells: Sequence[Cell], executor: Executor) -> None:
    """Raise an error for cells (units of work) that this machine or a cluster cannot run, before any cell starts."""
    inputs: dict[CellKind, dict[Input, None]] = {}
    for cell in cells:
        inputs.setdefault(cell.kind, {})[cell.input] = None
    if any(kind.is_of_machine for kind in inputs) and not executor.is_local:
        raise UnsupportedError(
            "a study of served devices depends on the kernel and tools of the machine that runs it",
            hint="run the study with --on local, or in shards on identical machines",
        )
    for kind, named in inputs.items():
        kind.require(list(named))


def about(study: Study, cells: Sequence[Cell]) -> About:
    """Return the description that is stored with a study's results: study and software."""
    sources = dict.fromkeys(printable(cell.input.source) for cell in cells if not cell.input.synthetic)
    return {
        "name": study.name,
        "about": study.about,
        "version": __version__,
        "definition": study.definition,
        "reading": dict(study.reading),
        "percentiles": list(study.percentiles),
        "cells": len(cells),
        "recorded": list(dict.fromkeys(Path(source).name for source in sources)),
        "sources": list(sources),
        "fitted": _fitted(cells),
        **_recordings(study, cells),
        "recorded_inputs": _recorded_inputs(cells),
    }


def _recorded_inputs(cells: Sequence[Cell]) -> list[str]:
    """Return the names of the inputs that are recorded traces; files written by simulations are left out."""
    files = dict.fromkeys((cell.input.name, cell.input.source) for cell in cells if not cell.input.synthetic)
    return list(dict.fromkeys(name for name, source in files if run_of(Path(source)) is None))


def _recordings(study: Study, cells: Sequence[Cell]) -> FurtherAbout:
    """Return the stored fields about recorded traces: those that replace workloads, and the folder of traces."""
    description: FurtherAbout = {}
    if study.recordings is not None:
        inputs = {cell.input.source: cell.input.name for cell in cells if not cell.input.synthetic}
        description["recordings"] = study.recordings.about(inputs)
    if study.traces is not None:
        description["traces_folder"] = study.traces.folder
    return description


def _fitted(cells: Sequence[Cell]) -> dict[str, FittedTo]:
    """Return the sources to which each device of a study was fitted, by name."""
    devices = dict.fromkeys((cell.device_name, cell.device) for cell in cells if cell.device)
    fitted_by_device: dict[str, FittedTo] = {}
    for name, device in devices:
        fitted = Fitted.device(Device.named(local_path(device)))
        fitted_by_device[name] = {"sources": list(fitted.sources), "costs_us": list(fitted.costs_us)}
    return fitted_by_device


#: Parquet metadata key of the description of the study.
_ABOUT = "emmclab"
_HINT = "write one with `emmclab collect STUDY RESULTS... -o all.parquet`"


def collect(study: Study, cells: Sequence[Cell], places: Sequence[Place], output: Path) -> list[MissingCell]:
    """Write the results of all cells, from all places in which they are stored, as one Parquet file, ordered by key.

    A row contains the `key` of its cell, its `number` in the study, its `kind` (the table with its figures), the
    columns of this table, and the complete `result` as JSON. Returns the cells without a result.
    """
    try:
        with note_written_files(output):
            return _collect(study, cells, places, output)
    except OSError as error:
        if isinstance(error, InputError):
            raise
        raise InputError.of(error, output) from error


def _collect(study: Study, cells: Sequence[Cell], places: Sequence[Place], output: Path) -> list[MissingCell]:
    numbers = {cell.key: number for number, cell in enumerate(cells)}
    missing = []
    with folder_aside(output.absolute().parent) as aside:
        parts: list[Path] = []
        for number, place in enumerate(places):
            copies = aside / str(number)
            copies.mkdir()
            copied = Store(place).copies(copies)
            if not copied:
                raise InputError(
                    "the folder contains no results of a study",
                    hint="give the --results folder of `emmclab run`, which contains a folder for each study",
                ).in_file(str(place))
            parts += copied
        with TableFile(aside, "all") as table:
            for key, result, text in ask(parts, aside, sorted(numbers), ("result", "rows")):
                if result is None:
                    missing.append(missing_cell(cells[numbers[key]]))
                    continue
                kind, row = row_of_cell(text)
                table.add({"key": key, "number": numbers[key], "kind": kind, "result": result} | row)
            meta = about(study, cells) | (missing_about(missing) if missing else {})
            if not table.rows:
                table.name_columns({"key": "", "number": 0, "kind": "", "result": ""})
            move_into_place(table.write({_ABOUT: json.dumps(meta, sort_keys=True), **table_provenance(study)}), output)
    return missing


def collected(path: Path, *, of_run: Callable[[Run], Run] | None = None) -> Results:
    """Read a file that `collect` wrote; `of_run` selects the needed part of each run."""
    if not path.is_file():
        raise InputError("file not found", hint="check the path").in_file(str(path))
    if not is_intact(path):
        raise InputError(
            "this is not a file of collected results, or it is damaged, or of an earlier version", hint=_HINT
        ).in_file(str(path))
    source = f"'{quoted(path)}'"
    with folder_for_reading(path.absolute().parent) as aside, database(aside) as connection:
        row = connection.execute(
            f"select decode(value) from parquet_kv_metadata({source}) where decode(key) = '{_ABOUT}'"  # noqa: S608
        ).fetchone()
        if row is None:
            raise InputError("this is not a file of collected results", hint=_HINT).in_file(str(path))
        keys = connection.execute(f"select key from {source} order by number").fetchall()  # noqa: S608
        texts = (text for _, text in ask([path], aside, [key for (key,) in keys], ["result"]))
        return Results.of_entries(json.loads(row[0]), texts, of_run=of_run)
