"""The results of a study in memory, for claims and pages; recorded traces may replace synthetic workloads."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from emmclab.errors import EmmclabError
from emmclab.runtime.lists import Names, several
from emmclab.runtime.result_storage import Place
from emmclab.studies.kinds import PROFILES, RUNS, kind_of_cell
from emmclab.studies.power_cut_settings import CutRun
from emmclab.studies.store import Store
from emmclab.studies.stored_types import About, Entry, FailedCell, Run
from emmclab.traces.profile import Profile
from emmclab.traces.workload import workload_groups, workloads


@dataclass(frozen=True)
class Results:
    """Results of a study: profiles by input name, and runs in the order of the study.

    If an input is profiled with several seeds, the names of the further profiles contain the seed.
    """

    about: About
    profiles: dict[str, Profile]
    runs: list[Run]
    digest: str
    """SHA-256 of all results, first 16 digits."""
    failures: list[FailedCell] = field(default_factory=list)
    """Cells that failed, each with `message` and `hint`."""
    cuts: list[Mapping[str, object]] = field(default_factory=list)
    """Cells that cut power, in the form that `CutRun.of` reads; they are not among the runs."""

    @staticmethod
    def load(place: Place | Path, *, of_run: Callable[[Run], Run] | None = None) -> "Results":
        """Read the results of the last finished run of a study from their folder or bucket.

        `of_run` reduces each run to the part that is kept in memory. With `of_run`, only the first profile of each
        input is kept. Without it, everything is kept.

        Raises:
            InputError: there is no finished run.
        """
        store = Store(place)
        return Results.of_entries(store.index()["study"], store.results(), of_run=of_run)

    @staticmethod
    def of_entries(about: About, texts: Iterable[str], *, of_run: Callable[[Run], Run] | None = None) -> "Results":
        """Create results from stored entries, which are JSON texts in the order of the study."""
        digest = hashlib.sha256()
        results = Results(about, {}, [], "")
        for text in texts:
            digest.update(hashlib.sha256(text.encode()).hexdigest().encode())
            results._take(json.loads(text), of_run)
        return replace(results, digest=digest.hexdigest()[:16])

    def _take(self, entry: Entry, of_run: Callable[[Run], Run] | None) -> None:
        cell = entry["cell"]
        kind = kind_of_cell(cell["grid"], cell.get("options"))
        if "failed" in entry:
            self.failures.append({**cell, **entry["failed"]})
        elif kind is PROFILES:
            is_repeated = cell["input"] in self.profiles
            name = f"{cell['input']} (seed {cell['seed']})" if is_repeated else cell["input"]
            if not is_repeated or of_run is None:
                self.profiles[name] = Profile({**entry["result"], "name": name})
        else:
            fields = {**entry["result"], **cell}
            if RUNS in kind.tables:
                run = Run(fields)
                self.runs.append(of_run(run) if of_run else run)
            else:
                self.cuts.append(fields)

    def cut_runs(self) -> list[CutRun]:
        """Return the results of the power-cut cells."""
        return [CutRun.of(run) for run in self.cuts]

    @property
    def missing(self) -> int:
        """Number of cells of the study without a result."""
        return int(self.about.get("missing", 0))

    def lacks(self, without: Names = ()) -> bool:
        """Return whether the study has cells without a result. Cells of the grids `without` do not count."""
        return not {*self.about.get("missing_grids", ())} <= {*several(without)}

    @property
    def inputs(self) -> list[str]:
        """Names of all inputs."""
        return list(self.profiles)

    def inputs_once(self) -> list[Profile]:
        """Return the profile of each input once, for the first seed."""
        profiles = {re.sub(r" \(seed \d+\)$", "", name): profile for name, profile in reversed(self.profiles.items())}
        return list(reversed(profiles.values()))

    @property
    def applications(self) -> list[str]:
        """Names of those of the paper's 18 applications that the study ran."""
        return [name for name in workload_groups()["applications"] if name in self.profiles]

    @property
    def combos(self) -> list[str]:
        """Names of those of the paper's seven combos of applications that the study ran."""
        return [name for name in workload_groups()["combos"] if name in self.profiles]

    @property
    def recorded(self) -> list[str]:
        """Names of the recorded traces."""
        return [name for name in self.profiles if name not in workloads()]

    def of(self, names: Names, field: str) -> dict[str, float]:
        """Return the values of a profile field by input name."""
        return {name: self.profiles[name][field] for name in several(names)}

    def select(self, grid: str, *, among: Names | None = None, **values: Any) -> Iterator[Run]:
        """Yield the runs of a study's grid whose cell fields or options have these values.

        `among` restricts the inputs.
        """
        among = None if among is None else several(among)
        for run in self.runs:
            if (
                run.grid == grid
                and (among is None or run.input in among)
                and all(run.get(field, run.options.get(field)) == value for field, value in values.items())
            ):
                yield run

    def run(self, grid: str, **values: Any) -> Run:
        """Return the only run of a study's grid whose cell fields or options have these values.

        Raises:
            EmmclabError: no run or more than one run has these values.
        """
        runs = list(self.select(grid, **values))
        if len(runs) != 1:
            raise EmmclabError(
                f"{len(runs)} runs of `{grid}` with {values}; exactly one is needed",
                hint="run the whole study, because its results lack runs that this claim or figure needs",
            )
        return runs[0]


def stand_ins(results: Results) -> dict[str, str]:
    """Return the names of the synthetic workloads that recorded traces replace, by the names of the traces."""
    used = results.about.get("recordings", {}).get("used", ())
    return {recording["input"]: recording["workload"] for recording in used}


def with_substitutes(results: Results, names: Sequence[str]) -> list[str]:
    """Return workloads by name, each followed by the recorded trace that replaces it."""
    recorded = {workload: name for name, workload in stand_ins(results).items()}
    return [input_name for name in names for input_name in (name, recorded.get(name)) if input_name]


def in_place(results: Results) -> Results:
    """Return the results in which recorded traces have the names of the workloads that they replace.

    If a grid of the study did not run the recorded trace, its results of the workload are kept.
    """
    workload_of = stand_ins(results)
    recorded = {workload_of[name]: results.profiles[name] for name in workload_of}
    profiles = {
        name: recorded.get(name, profile) for name, profile in results.profiles.items() if name not in workload_of
    }
    replaced = {(run.grid, workload_of[run.input]) for run in results.runs if run.input in workload_of}

    def placed(run: Run) -> Run:
        name = run.input
        if name not in workload_of:
            return run
        return Run({**run, "input": workload_of[name], "recorded_as": name})

    runs = [placed(run) for run in results.runs if (run.grid, run.input) not in replaced]
    return replace(results, profiles=profiles, runs=runs)


def without(results: Results) -> Results:
    """Return the results without the recorded traces that replace workloads."""
    names = stand_ins(results)
    profiles = {name: profile for name, profile in results.profiles.items() if name not in names}
    return replace(results, profiles=profiles, runs=[run for run in results.runs if run.input not in names])
