"""Results with recorded traces in the place of workloads, and without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from emmclab.studies.kept_types import Run
from emmclab.studies.results import Results


def stand_ins(results: Results) -> dict[str, str]:
    """Return the workloads whose place recorded traces take, by the names of the traces as inputs."""
    used = results.about.get("recordings", {}).get("used", ())
    return {one["input"]: one["workload"] for one in used}


def beside(results: Results, names: Sequence[str]) -> list[str]:
    """Return workloads by name, each with the recorded trace that takes its place after it."""
    recorded = {workload: name for name, workload in stand_ins(results).items()}
    return [one for name in names for one in (name, recorded.get(name)) if one]


def in_place(results: Results) -> Results:
    """Return the results with each recorded trace under the name of the workload whose place it takes.

    Where a grid does not run the trace, as one that makes workloads longer, the workload stays.
    """
    workload_of = stand_ins(results)
    recorded = {workload_of[name]: results.profiles[name] for name in workload_of}
    profiles = {
        name: recorded.get(name, profile)
        for name, profile in results.profiles.items()
        if name not in workload_of
    }
    replaced = {
        (run["grid"], workload_of[run["input"]]) for run in results.runs if run["input"] in workload_of
    }

    def placed(run: Run) -> Run:
        name = run["input"]
        if name not in workload_of:
            return run
        moved = run.copy()
        moved["input"], moved["recorded_as"] = workload_of[name], name
        return moved

    runs = [placed(run) for run in results.runs if (run["grid"], run["input"]) not in replaced]
    return replace(results, profiles=profiles, runs=runs)


def without(results: Results) -> Results:
    """Return the results of the workloads alone, without the recorded traces that take their place."""
    names = stand_ins(results)
    profiles = {name: profile for name, profile in results.profiles.items() if name not in names}
    return replace(
        results, profiles=profiles, runs=[run for run in results.runs if run["input"] not in names]
    )
