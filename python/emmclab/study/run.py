"""Running a study: finished cells are never run again, so an interrupted study continues."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

from emmclab import __version__
from emmclab.files import printable
from emmclab.live import require_loop, require_tools
from emmclab.study.cell import Cell, Input
from emmclab.study.definition import Study
from emmclab.study.executors import Executor
from emmclab.study.program import Program, require
from emmclab.study.results import Results
from emmclab.study.store import IMAGES_BYTES, Store

#: Most cells that go to a worker at once: enough to share the making of a trace.
_TOGETHER = 16
#: Least tasks that the cells of a study are put into, so that its progress can be seen.
_TASKS = 64

#: Called with cells done, cells in all, and cells that were there before.
StudyProgress = Callable[[int, int, int], None]


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
    r"""Run every cell of a study that is not finished, keep each as it finishes, then write the tables.

    Several runs in one folder share the cells between them, and preconditioned devices, of which at most
    `images_limit` bytes are kept. The results are the same bytes for every executor and limit, and whether or
    not the run was interrupted. `cells` are those of the study, where they are known already.

    >>> import pathlib, tempfile
    >>> from emmclab.study import Serial, Study
    >>> study = Study.parse('name = "mine"\ninputs = ["Idle", "Movie"]', "mine.toml")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = run_study(study, pathlib.Path(folder), Serial())
    >>> results.of(["Idle"], "requests")
    {'Idle': 6932}
    """
    store = Store(folder, images_limit)
    store.sweep()
    if fresh:
        store.forget()
    cells = study.cells() if cells is None else cells
    left = [cell for cell in cells if not store.has(cell)]
    require_all(left)
    before = len(cells) - len(left)
    done = before
    for task, _ in executor.run(functools.partial(_fill, folder, images_limit), _tasks(left)):
        done += len(task)
        if progress is not None:
            progress(done, len(cells), before)
    recorded = dict.fromkeys(
        printable(Path(cell.input.source).name) for cell in cells if not cell.input.synthetic
    )
    about = {
        "name": study.name,
        "about": study.about,
        "version": __version__,
        "definition": study.definition,
        "reading": dict(study.reading),
        "percentiles": list(study.percentiles),
        "cells": len(cells),
        "recorded": list(recorded),
        "recorded_inputs": list(dict.fromkeys(cell.input.name for cell in cells if not cell.input.synthetic)),
    }
    store.finish(about, cells)
    # Workers of a run that was killed a moment ago were still there when this one began.
    store.sweep()
    return Results.load(folder)


def require_all(cells: Sequence[Cell]) -> None:
    """Refuse to begin what this machine cannot run.

    Raises:
        UnsupportedError: no root, FUSE or loop devices, or a tool is missing.
    """
    if programs := {cell.input.program for cell in cells if cell.input.program}:
        require(map(Program.of, sorted(programs)))
    if any(cell.cuts_power for cell in cells):
        require_loop()
        require_tools({"mkfs.ext4": "e2fsprogs"})


def _fill(folder: Path, images_limit: int, cells: tuple[Cell, ...]) -> None:
    """Run cells in order and keep each; those that another process is at are waited for at the end.

    Cells of one input share its trace.
    """
    store = Store(folder, images_limit)
    elsewhere = [cell for cell in cells if not store.fill(cell, wait=False)]
    for cell in elsewhere:
        store.fill(cell, wait=True)


def _tasks(cells: list[Cell]) -> list[tuple[Cell, ...]]:
    """Put cells of one input together."""

    def source(cell: Cell) -> Input:
        return cell.input

    most = min(max(len(cells) // _TASKS, 1), _TOGETHER)
    return [task for _, group in itertools.groupby(cells, source) for task in _batched(list(group), most)]


def _batched(cells: list[Cell], most: int) -> list[tuple[Cell, ...]]:
    return [tuple(cells[start : start + most]) for start in range(0, len(cells), most)]
