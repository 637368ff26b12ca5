"""Runs a study: finished cells are never run again, so that an interrupted study continues."""

import contextlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from emmclab import __version__
from emmclab.calibration.fit_sources import Fitted
from emmclab.errors import ConfigError, UnsupportedError
from emmclab.runtime.executors import Executor
from emmclab.runtime.files import printable
from emmclab.runtime.local_copies import local_path
from emmclab.runtime.result_storage import Folder, Place
from emmclab.simulation.device import Device
from emmclab.simulation.stored_result import run_of
from emmclab.studies.cell import Cell
from emmclab.studies.cell_scheduler import Progress, Sweep
from emmclab.studies.definition import Study
from emmclab.studies.input import Input
from emmclab.studies.kinds.kind import CellKind
from emmclab.studies.results import Results
from emmclab.studies.staleness import table_provenance
from emmclab.studies.store import IMAGES_BYTES, Finished, Keeper, Store
from emmclab.studies.stored_types import About, FittedTo, FurtherAbout

#: Called as cells finish.
StudyProgress = Callable[[Progress], None]
#: Called with messages about stored results, for example that some are damaged.
Note = Callable[[str], None]
#: Why a cell of a grid that was not asked for has no result.
_LEFT_OUT = "the command that ran the study does not need this grid"


def unheard(_sentence: str) -> None:
    """Ignore a message."""


@dataclass(frozen=True)
class Shard:
    """A part of the cells of a study: every `of`-th in the order of keys, starting with the `number`-th."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}-of-{self.of}"

    @staticmethod
    def parse(text: str) -> "Shard":
        """Parse text such as `3/16`.

        Raises:
            ConfigError: it is not a valid part.

        >>> str(Shard.parse("3/16"))
        '3-of-16'
        """
        number, _, of = text.partition("/")
        if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
            raise ConfigError(
                f"`{text}` is not a shard",
                field="--shard",
                hint="write its number, counted from 1, and the number of shards, for example 3/16",
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
    r"""Run every unfinished cell of a study, store each result when its cell finishes, then write the tables.

    Preconditioned devices are shared between cells; at most `images_limit` bytes of them are stored. The
    results are the same bytes for every executor and limit, and whether or not the run was interrupted.
    `cells` are those of the study, if they are already known.

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
    """Run the missing cells of a study, like `run_study`; return the outcome without the results.

    Cells of the grids `without` are not run; those without a result from an earlier run are `missing`.
    Cells that crash their process repeatedly are left out, and named in `missing`. Cells whose stored result
    is damaged are run again; `note` is called with a message about them.

    Raises:
        ConfigError: another run is in progress in this place.
    """
    cells = study.cells() if cells is None else cells
    # Digests of the files as they are now, so that a change during the run is detected later.
    made, said = table_provenance(study), about(study, cells)
    with place.lock(""):
        store = Store(place, images_limit)
        store.sweep()
        if fresh:
            store.forget()
        left_out = {cell.key: _LEFT_OUT for cell in cells if cell.grid in without}
        wanted = [cell for cell in cells if cell.key not in left_out]
        reasons = left_out | _run(store, executor, wanted, progress, note)
        found = store.finish(said, cells, reasons, made)
        # Worker processes of a killed run may have been still alive when this one started.
        store.sweep()
    return found


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
    """Run the missing cells of a part of a study; `collect` or a later run joins the parts.

    `part` is its name, such as `3-of-16`. Parts may be stored in one place or in several. Returns the reasons
    for cells without a result, by key.

    Raises:
        ConfigError: another run of the same part, or of all cells, is in progress in this place.
    """
    with place.lock(part):
        return _run(Store(place, images_limit), executor, cells, progress, note)


def estimate(
    place: Place, executor: Executor, cells: Sequence[Cell], *, images_limit: int = IMAGES_BYTES, note: Note = unheard
) -> Progress:
    """Run a few cells of each grid, store their results, and return the estimated time for the rest."""
    last: list[Progress] = []
    with place.lock("estimate"):
        _run(Store(place, images_limit), executor, cells, last.append, note, is_sample=True)
    left = len(cells)
    return last[-1] if last else Progress(left, left, left, 0, 0, 0.0, 0.0, executor.jobs)


def _run(
    store: Store,
    executor: Executor,
    cells: Sequence[Cell],
    progress: StudyProgress | None,
    note: Note,
    *,
    is_sample: bool = False,
) -> dict[str, str]:
    """Run the cells without a stored result; return the reasons for missing results, by key."""
    have = store.mend(note)
    left = [cell for cell in cells if cell.key not in have]
    require_all(left, executor)
    if not left:
        return {}
    sweep = Sweep(left, len(cells), is_sample=is_sample)
    files = [] if executor.is_local else list(dict.fromkeys(path for cell in left for path in cell.files()))
    keeper = Keeper(store)
    try:
        with contextlib.closing(sweep.run(executor, store.images, files)) as found:
            for results in found:
                keeper.keep(results)
                if progress is not None:
                    progress(sweep.progress)
    finally:
        keeper.close()
    return sweep.quarantined


def require_all(cells: Sequence[Cell], executor: Executor) -> None:
    """Reject cells that this machine, or a cluster, cannot run, before any starts.

    Raises:
        UnsupportedError: no root, FUSE or loop devices, or a tool is missing.
    """
    inputs: dict[CellKind, dict[Input, None]] = {}
    for cell in cells:
        inputs.setdefault(cell.kind, {})[cell.input] = None
    if any(kind.is_of_machine for kind in inputs) and not executor.is_local:
        raise UnsupportedError(
            "a study of served devices depends on the kernel and tools of the machine that runs it",
            hint="run it with --on local, or in shards on machines that are alike",
        )
    for kind, named in inputs.items():
        kind.require(list(named))


def about(study: Study, cells: Sequence[Cell]) -> About:
    """Return the description of the results."""
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
    """Return the names of the inputs that are recordings, except files of simulated requests."""
    files = dict.fromkeys((cell.input.name, cell.input.source) for cell in cells if not cell.input.synthetic)
    return list(dict.fromkeys(name for name, source in files if run_of(Path(source)) is None))


def _recordings(study: Study, cells: Sequence[Cell]) -> FurtherAbout:
    """Return the recorded traces that replace workloads, and the place of those of the study."""
    said: FurtherAbout = {}
    if study.recordings is not None:
        inputs = {cell.input.source: cell.input.name for cell in cells if not cell.input.synthetic}
        said["recordings"] = study.recordings.about(inputs)
    if study.traces is not None:
        said["traces_folder"] = study.traces.folder
    return said


def _fitted(cells: Sequence[Cell]) -> dict[str, FittedTo]:
    """Return the sources to which each device of a study was fitted, by name."""
    devices = dict.fromkeys((cell.device_name, cell.device) for cell in cells if cell.device)
    found: dict[str, FittedTo] = {}
    for name, device in devices:
        fitted = Fitted.device(Device.named(local_path(device)))
        found[name] = {"sources": list(fitted.sources), "costs_us": list(fitted.costs_us)}
    return found
