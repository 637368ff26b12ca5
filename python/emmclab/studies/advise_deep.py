"""Searches combinations of design options of a device, and compares them with each option alone."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from emmclab.advice.advise import FIGURES, ORDERS, Option, options
from emmclab.comparison.seed_statistics import is_distinguished, untested
from emmclab.errors import ConfigError
from emmclab.runtime.document import change_pct, signed
from emmclab.runtime.executors import Executor
from emmclab.runtime.lists import Names, several
from emmclab.runtime.optional_libraries import library
from emmclab.runtime.result_storage import Place
from emmclab.simulation.device import Device
from emmclab.simulation.layers import Setting
from emmclab.studies.definition import Study
from emmclab.studies.grid import Grid, Range, Space
from emmclab.studies.run import StudyProgress
from emmclab.studies.search import WAYS, Objective, SearchResult, Trial, run_search, seeds_of

#: Result columns by which options can be ranked. Lifetimes are missing, because each needs a run of its own.
METRICS = {by: field.column for by, field in FIGURES.items()}
#: Result columns with the cost of a combination of options: RAM of the device, and capacity that remains for the host.
RAM, CAPACITY = "configuration_ram_kb", "configuration_capacity_bytes"
#: Value that the search uses for an option that is left out.
OFF = "no"


class DeepFields(TypedDict):
    """Result of a search of combinations, as `emmclab advise --deep --json` prints it."""

    ranked_by: str
    trials: int
    seed: int
    budget: int
    #: Figures of the device without any of the options, by name.
    device: dict[str, float]
    #: Combinations on the Pareto front: names of their options, and figures by name.
    front: list[dict[str, list[str] | float]]


@dataclass(frozen=True)
class Deep:
    """Result of a search of combinations of design options; `by` is the key in `METRICS` of the ranking figure."""

    found: SearchResult
    by: str

    @property
    def metric(self) -> str:
        """The column of the results that is minimised."""
        return METRICS[self.by]

    @property
    def base(self) -> Trial:
        """The unchanged device."""
        return next(trial for trial in self.found.trials if not trial_options(trial))

    @property
    def single(self) -> Trial | None:
        """The best trial with a single design option; None if none is possible."""
        return self._best(trial for trial in self.found.trials if len(trial_options(trial)) == 1)

    @property
    def best(self) -> Trial | None:
        """The best of all trials by the ranking; among equal trials the one with the lowest cost."""
        return self._best(iter(self.found.trials))

    @property
    def headline(self) -> str:
        """Return a sentence: the best combination and its effect, and the effect of the best single option."""
        if (best := self.best) is None or not trial_options(best):
            return f"Together: no combination of options improves the {ORDERS[self.by]}"
        names = " + ".join(trial_options(best))
        line = f"Together: {names}: {signed(self.change_pct(best))} % {ORDERS[self.by]}"
        if not self._is_distinguished(best, self.base):
            line += ", not told apart from the unchanged device"
        if single := self.single:
            line += f"; the best single option, {trial_options(single)[0]}: {signed(self.change_pct(single))} %"
            if single.values != best.values and not self._is_distinguished(best, single):
                line += ", not told apart"
        tested = len(seeds_of(best, self.metric)) > 1
        return line if tested else f"{line}; {untested('--seeds 5')}"

    def change_pct(self, trial: Trial, metric: str | None = None) -> float:
        """Return the change of a figure relative to the unchanged device, in percent."""
        name = metric or self.metric
        return change_pct(self.base.figures[name], trial.figures[name]) or 0.0

    def without_one(self) -> list[dict[str, Setting]]:
        """Return variants of the best combination, each with one option switched off; omit variants already tried."""
        best, earlier = self.best, [trial.values for trial in self.found.trials]
        if best is None:
            return []
        fewer = ({**best.values, name: OFF} for name, value in best.values.items() if value != OFF)
        return [values for values in fewer if values not in earlier]

    def to_dict(self) -> DeepFields:
        """Return the search as JSON values, with the Pareto-optimal combinations sorted by the ranking metric."""
        front = sorted(self.found.front(), key=lambda trial: trial.figures[self.metric])
        return {
            "ranked_by": self.by,
            "trials": len(self.found.trials),
            "seed": self.found.seed,
            "budget": self.found.budget,
            "device": self.base.figures,
            "front": [{"options": trial_options(trial), **trial.figures} for trial in front],
        }

    def _is_distinguished(self, first: Trial, second: Trial) -> bool:
        return is_distinguished(seeds_of(first, self.metric), seeds_of(second, self.metric))

    def _best(self, trials: Any) -> Trial | None:
        possible = [trial for trial in trials if trial.is_feasible]
        return min(possible, key=self._order, default=None)

    def _order(self, trial: Trial) -> tuple[float, float, float, int]:
        figures = trial.figures
        return figures[self.metric], figures[RAM], -figures[CAPACITY], len(trial_options(trial))


def trial_options(trial: Trial) -> list[str]:
    """Return the names of the design options that a trial combines."""
    return [str(value) for value in trial.values.values() if value != OFF]


def space_of(device: Device) -> Space:
    """Return the search space of a device's design options; options that share a setting exclude each other.

    The search is compared with fixed trials: the unchanged device, and each option alone.
    """
    groups: list[list[Option]] = []
    for option in options(device):
        shared = [group for group in groups if any(option.settings.keys() & member.settings.keys() for member in group)]
        for group in shared:
            groups.remove(group)
        groups.append([*(member for group in shared for member in group), option])
    ranges = tuple(
        Range(
            group[0].name,
            choices=(OFF, *(member.name for member in group)),
            means={OFF: {}, **{member.name: member.settings for member in group}},
        )
        for group in groups
    )
    none: dict[str, Setting] = {options.name: OFF for options in ranges}
    single = [{**none, options.name: choice} for options in ranges for choice in options.choices if choice != OFF]
    return Space("together", ranges, fixed=(none, *single))


def require_order(by: str) -> None:
    """Raise an error for a figure by which combinations cannot be ranked, before anything is simulated."""
    if by not in METRICS:
        raise ConfigError(
            f"combinations of options cannot be ranked by `{by}`",
            field="--by",
            hint=f"rank by one of {', '.join(METRICS)}; leave out --deep to rank single options by `{by}`",
        )
    library("optuna")


def advise_deep(
    device: str,
    traces: Names,
    place: Place,
    executor: Executor,
    *,
    by: str = "mean",
    settings: Mapping[str, Setting] | None = None,
    capacity: str = "",
    reading: Mapping[str, Setting] | None = None,
    budget: int = 60,
    seed: int = 1,
    seeds: int = 1,
    progress: StudyProgress | None = None,
    **replay: Any,
) -> Deep:
    """Search combinations of a device's design options for traces, and store all simulations like `emmclab search`.

    Each figure is the geometric mean over all traces and seeds. `replay` accepts the options `mode`, `precondition` and
    `wrap_addresses`.
    """
    require_order(by)
    configured = Device.named(device).set(dict(settings or {})) if settings else Device.named(device)
    space = space_of(configured.with_capacity(capacity) if capacity else configured)
    mode = replay.pop("mode", "auto")
    grid_settings = dict(settings or {})
    grid = Grid("together", (device,), modes=(mode,), set=grid_settings, capacity=capacity, options=replay)
    study = Study(
        "advise-deep",
        "Options of a device, together",
        tuple(several(traces)),
        (grid,),
        seeds=tuple(range(1, seeds + 1)),
        reading=dict(reading or {}),
        search=space,
    )
    objectives = (Objective(METRICS[by]), Objective(RAM), Objective(CAPACITY, is_maximized=True))
    result = run_search(study, place, executor, objectives, budget=budget, seed=seed, ways=WAYS, progress=progress)
    deep = Deep(result, by)
    if deep.base.reason:
        raise ConfigError(f"the simulation of {configured.name} failed: {deep.base.reason}", field="--device")
    while points := deep.without_one():
        fewer = replace(study, search=replace(space, fixed=tuple(points)))
        more = run_search(fewer, place, executor, objectives, budget=len(points), ways=("grid",))
        result.trials.extend(more.trials)
    front = result.front()
    for trial in result.trials:
        trial.is_best = trial in front
    return deep
