"""Running a study: finished cells are never run again, so an interrupted study continues."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

from emmclab import __version__
from emmclab.files import printable
from emmclab.study.cell import Cell, Input, run_cells
from emmclab.study.definition import Study
from emmclab.study.executors import Executor
from emmclab.study.results import Results
from emmclab.study.store import Store

#: Cells that go to a worker at once: few enough to lose little, enough to share the making of a trace.
_TOGETHER = 16

#: Called with cells done, cells in all, and cells that were there before.
StudyProgress = Callable[[int, int, int], None]


def run_study(
    study: Study,
    folder: Path,
    executor: Executor,
    *,
    fresh: bool = False,
    progress: StudyProgress | None = None,
) -> Results:
    r"""Run every cell of a study that is not finished, keep each as it finishes, then write the tables.

    The results are the same bytes for every executor, and whether or not the run was interrupted.

    >>> import pathlib, tempfile
    >>> from emmclab.study import Serial, Study
    >>> study = Study.parse('name = "mine"\ninputs = ["Idle", "Movie"]', "mine.toml")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = run_study(study, pathlib.Path(folder), Serial())
    >>> results.of(["Idle"], "requests")
    {'Idle': 6932}
    """
    store = Store(folder)
    store.sweep()
    if fresh:
        store.forget()
    cells = study.cells()
    left = [cell for cell in cells if not store.has(cell)]
    before = len(cells) - len(left)
    done = before
    for task, texts in executor.run(run_cells, _tasks(left)):
        for cell, text in zip(task, texts, strict=True):
            store.put(cell, text)
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
        "cells": len(cells),
        "recorded": list(recorded),
    }
    store.finish(about, cells)
    return Results.load(folder)


def _tasks(cells: list[Cell]) -> list[tuple[Cell, ...]]:
    """Put cells of one input together."""

    def source(cell: Cell) -> Input:
        return cell.input

    return [batch for _, group in itertools.groupby(cells, source) for batch in _batched(list(group))]


def _batched(cells: list[Cell]) -> list[tuple[Cell, ...]]:
    return [tuple(cells[start : start + _TOGETHER]) for start in range(0, len(cells), _TOGETHER)]
