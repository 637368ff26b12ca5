"""Searches settings for the best figures. A trial is one choice of settings; it is simulated by runs of a study."""

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from emmclab import _core
from emmclab.comparison.seed_statistics import is_distinguished
from emmclab.errors import ConfigError
from emmclab.runtime.document import Row
from emmclab.runtime.executors import Executor
from emmclab.runtime.lists import Names, once, several
from emmclab.runtime.optional_libraries import library
from emmclab.runtime.result_storage import Place
from emmclab.simulation.layers import Setting
from emmclab.studies.cell import Cell
from emmclab.studies.cell_scheduler import Sweep
from emmclab.studies.definition import Study
from emmclab.studies.grid import Space
from emmclab.studies.kinds import PROFILE
from emmclab.studies.result_rows import StoredCell
from emmclab.studies.run import Note, StudyProgress, require_all, unheard
from emmclab.studies.store import IMAGES_BYTES, Keeper, Store, row_of_cell
from emmclab.studies.summary import average

#: Methods of choosing the settings of a trial: TPE learns from earlier trials; the others are baselines.
WAYS = ("TPE", "random", "grid")


@dataclass(frozen=True)
class Objective:
    """A figure of results that a search minimises or maximises."""

    metric: str
    is_maximized: bool = False

    @property
    def text(self) -> str:
        """The objective in the form used on the command line."""
        return f"{'maximize' if self.is_maximized else 'minimize'} {self.metric}"

    def better(self, value: float, other: float) -> bool:
        """Return whether a value of the objective is better than another."""
        return value > other if self.is_maximized else value < other


@dataclass
class Trial:
    """A choice of settings that was tried, with figures over all inputs and seeds, or the `reason` for having none."""

    way: str
    number: int
    values: dict[str, Setting]
    figures: dict[str, float] = field(default_factory=dict)
    #: For each figure by name: its value over all inputs, for each seed.
    by_seed: dict[str, dict[int, float]] = field(default_factory=dict)
    reason: str = ""
    #: Whether the figures of the trial are within all bounds.
    is_feasible: bool = False
    is_best: bool = False


@dataclass(frozen=True)
class SearchResult:
    """Result of a search of settings."""

    study: Study
    objectives: tuple[Objective, ...]
    space: Space
    trials: list[Trial]
    budget: int
    seed: int
    batch: int

    def front(self, way: str | None = None) -> list[Trial]:
        """Return the Pareto-optimal trials, best first: those of the method `way`, or of all methods."""
        chosen = [trial for trial in self.trials if trial.is_feasible and (way is None or trial.way == way)]
        front: dict[tuple[float, ...], Trial] = {}
        for trial in chosen:
            point = tuple(trial.figures[objective.metric] for objective in self.objectives)
            if not any(dominates(other, trial, self.objectives) for other in chosen):
                front.setdefault(point, trial)
        return [front[point] for point in sorted(front)]


def dominates(trial: Trial, other: Trial, objectives: Sequence[Objective]) -> bool:
    """Return whether a trial is better in at least one objective, and worse in none."""
    pairs = [(goal, trial.figures[goal.metric], other.figures[goal.metric]) for goal in objectives]
    return any(goal.better(a, b) for goal, a, b in pairs) and not any(goal.better(b, a) for goal, a, b in pairs)


def indistinguishable_trials(result: SearchResult) -> list[Trial]:
    """Return the trials that are not on the Pareto front but cannot be distinguished from it.

    A trial can be distinguished if a trial on the front dominates it, with a significant difference
    (`is_distinguished`) in at least one objective.
    """
    front = result.front()
    rest: dict[str, Trial] = {}
    for trial in result.trials:
        if trial.is_feasible and all(trial.values != best.values for best in front):
            rest.setdefault(str(sorted(trial.values.items())), trial)

    def beaten(trial: Trial) -> bool:
        return any(
            dominates(best, trial, result.objectives)
            and any(
                is_distinguished(seeds_of(best, objective.metric), seeds_of(trial, objective.metric), len(rest))
                for objective in result.objectives
            )
            for best in front
        )

    return [trial for trial in rest.values() if not beaten(trial)]


def seeds_of(trial: Trial, metric: str) -> dict[int, float]:
    """Return a figure of a trial (one choice of settings) for each seed.

    If no values by seed are known, the figure of the trial is returned as the value of seed 1.
    """
    return trial.by_seed.get(metric) or {1: trial.figures[metric]}


def run_search(
    study: Study,
    place: Place,
    executor: Executor,
    objectives: Sequence[Objective],
    *,
    budget: int,
    seed: int = 1,
    batch: int = 16,
    ways: Names = WAYS,
    images_limit: int = IMAGES_BYTES,
    progress: StudyProgress | None = None,
    note: Note = unheard,
) -> SearchResult:
    """Try `budget` choices of settings in the space of a study with each method of choosing.

    Settings are chosen in batches of `batch`; each choice uses the figures of all earlier batches. Therefore the trials
    depend on seed and batch size, but not on the number of workers or their speed. Cells with stored results are not
    run again.
    """
    space = study.search
    if space is None:
        raise ConfigError(
            f"{study.file or study.name}: there is no section `[search]`",
            field="search",
            hint="declare the settings that may vary: `[search]` with `[[search.setting]]`, see docs/guides/cluster.md",
        )
    with place.lock(""):
        store = Store(place, images_limit)
        store.sweep()
        store.mend(note)
        running = _Search(study, space, tuple(objectives), store, budget, seed, batch, several(ways))
        sweep = Sweep([], 0, more=running.more)
        first = running.more()
        require_all(first, executor)
        sweep.add(first)
        files = list(dict.fromkeys(path for cell in first for path in cell.files()))
        keeper = Keeper(store)
        try:
            shared = [] if executor.is_local else files
            with contextlib.closing(sweep.run(executor, store.images, shared)) as outcomes:
                for results in outcomes:
                    keeper.keep(results)
                    running.take(results)
                    if progress is not None:
                        progress(replace(sweep.progress, total=running.expected(sweep.total)))
        finally:
            keeper.close()
        running.leave_out(sweep.quarantined)
        store.join()
    result = SearchResult(study, tuple(objectives), space, running.trials, budget, seed, batch)
    for trial in result.front():
        trial.is_best = True
    return result


class _Search:
    """Chooses trials in batches, and reports their figures to the sampler (optuna)."""

    def __init__(
        self,
        study: Study,
        space: Space,
        objectives: tuple[Objective, ...],
        store: Store,
        budget: int,
        seed: int,
        batch: int,
        ways: Sequence[str],
    ) -> None:
        self._study, self._space, self._objectives, self._store = study, space, objectives, store
        self._budget, self._batch = budget, batch
        self._metrics = list(
            dict.fromkeys([objective.metric for objective in objectives] + [bound.metric for bound in space.bounds])
        )
        self.trials: list[Trial] = []
        self._asked: list[tuple[Trial, Any, list[Cell]]] = []
        self._rows: dict[str, tuple[str, Row]] = {}
        self._lost: dict[str, str] = {}
        self._ways = [(way, self._asking(way, seed)) for way in ways]

    def _asking(self, way: str, seed: int) -> Callable[[int], list[tuple[dict[str, Setting], Any]]]:
        """Return a function that chooses more settings, each with a handle for reporting its figures to the search."""
        if way == "grid":
            points = iter(self._space.points(self._budget))
            return lambda count: [(point, None) for point in itertools.islice(points, count)]
        optuna = library("optuna")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        if way == "TPE":
            sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        else:
            sampler = optuna.samplers.RandomSampler(seed=seed)
        directions = ["maximize" if objective.is_maximized else "minimize" for objective in self._objectives]
        optuna_study = optuna.create_study(directions=directions, sampler=sampler)

        def ask(count: int) -> list[tuple[dict[str, Setting], Any]]:
            trials = [optuna_study.ask() for _ in range(count)]
            return [(self._space.suggest(trial), (optuna_study, trial)) for trial in trials]

        return ask

    def more(self) -> list[Cell]:
        """Return the cells that must be run next; an empty list at the end of the search.

        Evaluates the finished batch of trials first. Batches whose results are already stored need no run, and are
        followed by further batches.
        """
        while True:
            for trial, handle, cells in self._asked:
                self._judge(trial, handle, cells)
            self._asked = []
            if not (cells := self._choose()):
                if self._asked:
                    continue
                return []
            have = self._store.keys()
            self._record_stored([cell.key for cell in cells if cell.key in have])
            if remaining := [cell for cell in cells if cell.key not in self._rows]:
                return remaining

    def _choose(self) -> list[Cell]:
        """Choose a batch; return its cells without duplicates."""
        while self._ways:
            way, ask = self._ways[0]
            before = sum(earlier.way == way for earlier in self.trials)
            most = len(self._space.fixed) if way == "grid" and self._space.fixed else self._budget
            chosen = ask(min(self._batch, most - before))
            if not chosen:
                self._ways.pop(0)
                continue
            for values, handle in chosen:
                trial = Trial(way, sum(earlier.way == way for earlier in self.trials), values)
                self.trials.append(trial)
                try:
                    cells = trial_cells(self._study, self._space, values)
                except ConfigError as error:
                    trial.reason, cells = str(error), []
                self._asked.append((trial, handle, cells))
            return list({cell.key: cell for _, _, cells in self._asked for cell in cells}.values())
        return []

    def take(self, results: Iterable[StoredCell]) -> None:
        """Record the results of finished cells."""
        for result in results:
            self._rows[result.key] = row_of_cell(result.rows)

    def _record_stored(self, keys: list[str]) -> None:
        """Record results that are already stored for these cells."""
        for key, text in self._store.ask([key for key in keys if key not in self._rows], "rows"):
            if text is not None:
                self._rows[key] = row_of_cell(text)

    def leave_out(self, reasons: dict[str, str]) -> None:
        """Record cells that crashed their process, with the reasons; trials that need these cells have no figures."""
        self._lost = reasons

    def expected(self, so_far: int) -> int:
        """Return the expected number of cells of the search, extrapolated from the trials so far."""
        share = len(self.trials) / (self._budget * max(1, len({trial.way for trial in self.trials})))
        return max(so_far, round(so_far / share)) if share else so_far

    def _judge(self, trial: Trial, handle: Any, cells: list[Cell]) -> None:
        """Store the figures of a trial, or the reason why there are none, and report them to optuna."""
        rows = [self._rows.get(cell.key) for cell in cells]
        if not trial.reason:
            trial.reason = next(filter(None, map(_reason, rows)), "")
        if not trial.reason:
            done = [row[1] for row in rows if row is not None]
            trial.figures = {name: _figure(name, done) for name in self._metrics}
            trial.by_seed = {name: _by_seed(name, cells, done) for name in self._metrics}
            trial.reason = next(
                (f"{name} has no value" for name, value in trial.figures.items() if math.isnan(value)), ""
            )
        excess = [] if trial.reason else [bound.excess(trial.figures[bound.metric]) for bound in self._space.bounds]
        trial.is_feasible = not trial.reason and all(distance <= 0 for distance in excess)
        if handle is None:
            return
        optuna_study, of_optuna = handle
        if trial.reason:
            optuna_study.tell(of_optuna, state=library("optuna").trial.TrialState.FAIL)
            return
        for bound, value in zip(self._space.bounds, excess, strict=True):
            of_optuna.set_constraint(f"{bound.metric} {bound.least} {bound.most}", value)
        optuna_study.tell(of_optuna, [trial.figures[objective.metric] for objective in self._objectives])


def _by_seed(name: str, cells: Sequence[Cell], rows: Sequence[Row]) -> dict[int, float]:
    """Return a figure of a trial for each seed."""
    seeds = [cell.input.seed for cell in cells]
    return {
        seed: _figure(name, [row for row, of in zip(rows, seeds, strict=True) if of == seed])
        for seed in dict.fromkeys(seeds)
    }


def trial_cells(study: Study, space: Space, values: dict[str, Setting]) -> list[Cell]:
    """Return the study cells that evaluate a trial: the searched grid, on devices with the trial's settings.

    Raises:
        ConfigError: a device does not support these settings.
    """
    (grid,) = [grid for grid in study.grids if grid.name == space.grid]
    changed = replace(
        study, inputs=grid.inputs or study.inputs, grids=(replace(grid, set={**grid.set, **space.settings(values)}),)
    )
    return [cell for cell in changed.cells() if cell.grid != PROFILE]


def _reason(row: Any) -> str:
    """Return why a cell has no figures; empty if it has figures."""
    if row is None:
        return "a cell crashed its process"
    table, columns = row
    if table == "failures":
        return str(columns["message"])
    stopped = columns.get("run_stopped")
    return f"ended early: {stopped}" if stopped else ""


def _figure(name: str, rows: list[Row]) -> float:
    """Return a figure of a trial: the geometric mean over its cells, or the arithmetic mean for a share."""
    values = [row.get(name) for row in rows]
    numbers = [float(number) for number in values if isinstance(number, (int, float)) and not isinstance(number, bool)]
    if len(numbers) == len(rows):
        if len(set(numbers)) == 1:  # Return the value exactly; the mean of logarithms would be rounded.
            return numbers[0]
        return average(numbers, arithmetic=name.endswith("_pct"))
    if any(name in row for row in rows):
        return math.nan
    names = sorted({key for row in rows for key, value in row.items() if isinstance(value, float)})
    near = _core.closest(name, names)
    raise ConfigError(
        f"`{name}` is not a figure of the results of a study",
        field="--minimize",
        hint=f"did you mean `{near}`?" if near else "give a column of `runs`, such as mean_response_ms or waf",
    )


def require_objectives(minimize: Names, maximize: Names) -> tuple[Objective, ...]:
    """Return the objectives of a search from the names of figures to minimise and maximise."""
    goals = tuple(once([*map(Objective, several(minimize)), *(Objective(name, True) for name in several(maximize))]))
    names = [name.metric for name in goals]
    if not names or len(set(names)) < len(names):
        raise ConfigError(
            "there is no figure to optimise" if not names else "a figure is minimised and maximised",
            field="--minimize",
            hint="give a column of `runs`, for example `--minimize mean_response_ms --minimize waf`",
        )
    return goals
