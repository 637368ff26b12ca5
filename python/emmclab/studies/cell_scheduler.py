"""Schedules the cells of a study in tasks of about a second; cells that crash their process are set aside."""

import contextlib
import functools
import json
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from emmclab.runtime.executors import Crash, Executor
from emmclab.runtime.local_copies import scratch
from emmclab.studies.cell import Cell
from emmclab.studies.kinds import Images
from emmclab.studies.result_rows import StoredCell
from emmclab.studies.store import image_folders, lines_of
from emmclab.studies.stored_types import Entry

#: Target duration of a task in seconds, and maximum number of cells in a task.
_TASK_S, _TOGETHER = 1.0, 256
#: Number of results that are converted to rows together; they stay in memory until then.
_FLATTENED = 64
#: Number of cells of each grid that are run for a sample.
_SAMPLE = 4
#: Number of crashes of worker processes after which a single run of a study (cell) is not tried again.
CRASHES = 3


class Task(NamedTuple):
    """Cells that a worker gets together.

    If `wait` is set, the worker waits while other processes precondition the devices of the cells.
    """

    cells: tuple[Cell, ...]
    wait: bool = False


class Outcome(NamedTuple):
    """Outcome of a cell: the result to store, or None if another process is preconditioning the device."""

    results: StoredCell | None
    took_s: float = 0.0
    failed: bool = False


@dataclass(frozen=True)
class Progress:
    """Progress of a study."""

    #: Number of finished cells of the study. `total` counts all cells, `before` cells finished before this run,
    #: `failed` failed cells, and `quarantined` cells given up without a result.
    done: int
    total: int
    before: int
    failed: int
    quarantined: int
    #: Sum of the run times of the study cells that were run, seconds.
    cells_s: float
    #: Estimated remaining time, seconds, from the mean run time in each grid; None before the first result.
    left_s: float | None
    jobs: int


def run_task(images_limit: int, images: Images | None, task: Task) -> list[Outcome]:
    """Run the cells of a task; without `images`, preconditioned devices are stored in this machine's scratch folder."""
    if images is None:
        images = image_folders(scratch(), images_limit)
    outcomes: list[Outcome] = []
    for begin in range(0, len(task.cells), _FLATTENED):
        done = [_done(cell, images, task) for cell in task.cells[begin : begin + _FLATTENED]]
        # Convert results in batches, because each simulation evicts the conversion code from the processor's caches.
        outcomes += [Outcome(None) if finished is None else finished.outcome() for finished in done]
    return outcomes


class _Done(NamedTuple):
    """A finished run of a study: its result, the result as JSON, and the time needed."""

    key: str
    entry: Entry
    text: str
    took_s: float

    def outcome(self) -> Outcome:
        stored = StoredCell.of(self.key, self.text, lines_of(self.entry))
        return Outcome(stored, self.took_s, "failed" in self.entry)


def _done(cell: Cell, images: Images, task: Task) -> _Done | None:
    """Run a cell of a study; return None if another process preconditions its device and the task does not wait."""
    started = time.monotonic()
    if not task.wait and not cell.prepare(images):
        return None
    entry = cell.outcome(images)
    text = json.dumps(entry, ensure_ascii=False, allow_nan=False)
    return _Done(cell.key, entry, text, time.monotonic() - started)


class _Queue:
    """The waiting runs of a study, grouped by the preconditioned device or else the input that they need.

    A process keeps its last preconditioned device and input in memory. A worker therefore continues with the same
    group, and then begins a group on which no other worker has started, if there is any.
    """

    def __init__(self) -> None:
        """Create an empty queue."""
        self._count = 0
        self._fresh: dict[tuple[object, ...], deque[Cell]] = {}
        self._begun: dict[tuple[object, ...], deque[Cell]] = {}

    def __len__(self) -> int:
        """Return the number of waiting cells."""
        return self._count

    def extend(self, cells: Sequence[Cell]) -> None:
        """Add cells of a study to the queue; one group of each grid comes first, to learn the run time of each grid."""
        self._count += len(cells)
        for cell in cells:
            groups = self._begun if cell.preparation_key in self._begun else self._fresh
            groups.setdefault(cell.preparation_key, deque()).append(cell)
        early = {waiting[0].grid: prepared for prepared, waiting in reversed(self._fresh.items())}
        self._fresh = {prepared: self._fresh[prepared] for prepared in [*early.values(), *self._fresh]}

    def following(self, last: Cell | None) -> Cell:
        """Return the next cell for a worker without removing it; there must be one.

        `last` is the previous cell of the worker. Cells with the same preparation are preferred.
        """
        return self._group_for(last)[0]

    def take(self, last: Cell | None) -> Cell:
        """Remove and return the next cell for a worker whose previous cell is `last`."""
        group = self._group_for(last)
        cell = group.popleft()
        self._count -= 1
        self._fresh.pop(cell.preparation_key, None)
        self._begun[cell.preparation_key] = group
        if not group:
            del self._begun[cell.preparation_key]
        return cell

    def _group_for(self, last: Cell | None) -> deque[Cell]:
        if last is not None and last.preparation_key in self._begun:
            return self._begun[last.preparation_key]
        if self._fresh:
            return next(iter(self._fresh.values()))
        # Other workers already work on all remaining groups of cells: help with the largest group.
        return max(self._begun.values(), key=len)


class Sweep:
    """Distributes the cells of a study over workers, and tracks their outcomes."""

    def __init__(
        self, cells: Sequence[Cell], total: int, *, is_sample: bool = False, more: Callable[[], Sequence[Cell]] = tuple
    ) -> None:
        """Set the runs (cells) of a study to execute; if `is_sample` is set, only a few cells of each grid are run.

        `more` returns further cells when all earlier ones are finished, or an empty list if there are none.
        """
        self._more = more
        self.total, self._before = total, total - len(cells)
        self._queue = _Queue()
        self._queue.extend(_sampled(cells, _SAMPLE) if is_sample else cells)
        self._alone: deque[Cell] = deque()
        self._waiting: deque[Cell] = deque()
        self._crashes: Counter[str] = Counter()
        #: Reasons for cells without a result, by key of the cell.
        self.quarantined: dict[str, str] = {}
        self._open = 0
        self._left = Counter(cell.grid for cell in cells)
        self._took: defaultdict[str, float] = defaultdict(float)
        self._measured: Counter[str] = Counter()
        self._done = self._failed = 0
        self._jobs = 1

    def run(self, executor: Executor, images: Images, files: Sequence[str]) -> Generator[list[StoredCell]]:
        """Run all cells; yield results as they arrive."""
        self._jobs = executor.jobs
        shared = images if executor.is_local else None
        work = functools.partial(run_task, images.limit, shared)
        with contextlib.closing(executor.run(work, self._next_task, files)) as outcomes:
            for task, outcome in outcomes:
                yield self._recorded(executor, task, outcome)

    def _recorded(self, executor: Executor, task: Task, outcome: list[Outcome] | Crash) -> list[StoredCell]:
        """Record the outcome of a task; return the results to store."""
        self._jobs = executor.jobs
        self._open -= 1
        if isinstance(outcome, Crash):
            self._crashed(task, outcome)
            return []
        finished = []
        for cell, cell_outcome in zip(task.cells, outcome, strict=True):
            if cell_outcome.results is None:
                self._waiting.append(cell)
                continue
            self._took[cell.grid] += cell_outcome.took_s
            self._measured[cell.grid] += 1
            self._left[cell.grid] -= 1
            self._done += 1
            self._failed += cell_outcome.failed
            finished.append(cell_outcome.results)
        return finished

    @property
    def progress(self) -> Progress:
        """Return the progress."""
        return Progress(
            done=self._before + self._done,
            total=self.total,
            before=self._before,
            failed=self._failed,
            quarantined=len(self.quarantined),
            cells_s=sum(self._took.values()),
            left_s=self._left_s(),
            jobs=self._jobs,
        )

    def _left_s(self) -> float | None:
        if not self._done:
            return None
        usual = sum(self._took.values()) / self._done
        each = {grid: self._mean(grid) or usual for grid, count in self._left.items() if count}
        return sum(self._left[grid] * mean for grid, mean in each.items()) / self._jobs

    def _mean(self, grid: str) -> float | None:
        return self._took[grid] / self._measured[grid] if self._measured[grid] else None

    def add(self, cells: Sequence[Cell]) -> None:
        """Add cells to run."""
        self.total += len(cells)
        self._queue.extend(cells)
        self._left.update(cell.grid for cell in cells)

    def _next_task(self, previous: Task | None) -> Task | None:
        task = self._waiting_task(previous)
        if task is None and not self._open:
            self.add(self._more())
            task = self._waiting_task(previous)
        self._open += task is not None
        return task

    def _waiting_task(self, previous: Task | None) -> Task | None:
        if self._alone:
            return Task((self._alone.popleft(),), wait=True)
        if self._queue:
            return Task(self._take(previous.cells[-1] if previous else None))
        if not self._waiting:
            return None
        return Task((self._waiting.popleft(),), wait=True)

    def _take(self, last: Cell | None) -> tuple[Cell, ...]:
        """Take runs of the study from the queue that together need about a second.

        Towards the end fewer runs are taken, so that all workers finish together.
        """
        most = min(_TOGETHER, max(1, len(self._queue) // (2 * self._jobs)))
        batch: list[Cell] = []
        expected = 0.0
        while self._queue and len(batch) < most:
            cell = self._queue.following(last)
            # A cell with another device needs a slow preparation. It starts a new task if the current one is more than
            # half full.
            if batch and expected > _TASK_S / 2 and cell.preparation_key != batch[-1].preparation_key:
                break
            mean = self._mean(cell.grid)
            expected += _TASK_S if mean is None else mean
            if batch and expected > _TASK_S:
                break
            last = self._queue.take(last)
            batch.append(last)
        return tuple(batch)

    def _crashed(self, task: Task, crash: Crash) -> None:
        """Schedule the cells of a crashed task again, each alone; a cell that crashes repeatedly is set aside."""
        if len(task.cells) > 1:
            self._alone.extend(task.cells)
            return
        (cell,) = task.cells
        self._crashes[cell.key] += 1
        if self._crashes[cell.key] < CRASHES:
            self._alone.append(cell)
            return
        self.quarantined[cell.key] = f"it crashed its process {CRASHES} times: {crash.reason}"
        self._left[cell.grid] -= 1


def _sampled(cells: Sequence[Cell], each: int) -> list[Cell]:
    """Return a sample of the cells of a study: `each` cells of each grid, evenly spaced, in order."""
    grids: dict[str, list[int]] = {}
    for number, cell in enumerate(cells):
        grids.setdefault(cell.grid, []).append(number)
    chosen = {places[len(places) * step // each] for places in grids.values() for step in range(min(each, len(places)))}
    return [cells[number] for number in sorted(chosen)]
