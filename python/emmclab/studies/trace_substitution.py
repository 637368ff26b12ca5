"""Selects results with recorded traces in place of workloads, or without them."""

from collections.abc import Sequence
from dataclasses import replace

from emmclab.studies.results import Results
from emmclab.studies.stored_types import Run


def stand_ins(results: Results) -> dict[str, str]:
    """Return the workloads that recorded traces replace, by the names of the traces as inputs."""
    used = results.about.get("recordings", {}).get("used", ())
    return {one["input"]: one["workload"] for one in used}


def with_substitutes(results: Results, names: Sequence[str]) -> list[str]:
    """Return workloads by name, each followed by the recorded trace that replaces it."""
    recorded = {workload: name for name, workload in stand_ins(results).items()}
    return [one for name in names for one in (name, recorded.get(name)) if one]


def in_place(results: Results) -> Results:
    """Return the results with each recorded trace under the name of the workload that it replaces.

    If a grid does not run the trace, for example because it extends workloads, the workload stays.
    """
    workload_of = stand_ins(results)
    recorded = {workload_of[name]: results.profiles[name] for name in workload_of}
    profiles = {
        name: recorded.get(name, profile) for name, profile in results.profiles.items() if name not in workload_of
    }
    replaced = {(run["grid"], workload_of[run["input"]]) for run in results.runs if run["input"] in workload_of}

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
    """Return the results of the workloads only, without the recorded traces that replace them."""
    names = stand_ins(results)
    profiles = {name: profile for name, profile in results.profiles.items() if name not in names}
    return replace(results, profiles=profiles, runs=[run for run in results.runs if run["input"] not in names])
