"""Finds the sources of a claim's values, to tell whether agreement only restates an input.

Presets record the sources of their parameters: `made_from` of a workload (by parameter) and of a host,
`fitted_to` of a device. A claim is restated if all that its measure reads comes from published tables, from
profile fields of synthetic inputs whose recorded sources include the claim's own, from runs of inputs or on
hosts made from them or on devices fitted to them, or from layers that did nothing.
"""

import functools
import itertools
import tomllib

from emmclab.apps.closed_loop import hosts
from emmclab.papers.measures import Reads
from emmclab.simulation.device import Device
from emmclab.studies.stored_types import Run
from emmclab.traces.workload import PARAMETERS_OF, Workload, benchmark_sources, workloads

#: Counters of the bytes that layers handle themselves.
_WORK = ("logged_bytes", "moved_bytes", "padded_bytes", "hot_bytes")
#: A layer that handled less than this share of the written bytes counts as having passed all requests on.
_LEAST_WORK = 0.001


@functools.cache
def _made_from(workload: str) -> dict[str, list[str]]:
    made: dict[str, list[str]] = tomllib.loads(Workload.preset(workload).to_toml()).get("made_from", {})
    return made


@functools.cache
def fitted_to(device: str) -> frozenset[str]:
    """Return what a device preset was fitted to."""
    return frozenset(tomllib.loads(Device.named(device).to_toml()).get("fitted_to", ()))


def sources_of_field(workload: str, field: str) -> frozenset[str]:
    """Return the recorded sources of the parameters that determine a field of a workload's profile."""
    made = _made_from(workload)
    return frozenset(source for key in PARAMETERS_OF.get(field, ()) for source in made.get(key, ()))


def _idle(run: Run) -> bool:
    layers = run.get("layers") or []
    if layers and all(layer["name"] == "pass-through" for layer in layers):
        return True
    counts = [layer[count] for layer in layers for count in _WORK if count in layer]
    return bool(counts) and sum(counts) <= _LEAST_WORK * run["requests"]["bytes_written"]


@functools.cache
def _sources_of_input(name: str) -> frozenset[str]:
    """Return all sources of a synthetic input; empty for a recorded trace."""
    if name not in workloads():
        return benchmark_sources(name)
    return frozenset(source for key in _made_from(name) for source in _made_from(name)[key])


def _devices(run: Run) -> set[str]:
    options = run["options"]
    return {name for name in (run["device"], options.get("second")) if name}


@functools.cache
def _hosts_from() -> dict[str, frozenset[str]]:
    """Return the sources of each host."""
    return {host["name"]: frozenset(host["made_from"]) for host in hosts()}


def _host(run: Run) -> str:
    """Return the name of the host on which an application ran; empty for other runs."""
    return str(run["app"]["host"]) if "app" in run else ""


def recorded_in(reads: Reads) -> set[str]:
    """Return the names of the recorded traces that were read."""
    synthetic = set(workloads())
    of_profiles = {name for name, _ in reads.profiles if name not in synthetic}
    return of_profiles | {run["recorded_as"] for run in reads.runs.values() if "recorded_as" in run}


def synthetic_workloads(reads: Reads) -> set[str]:
    """Return the names of the synthetic workloads that were read."""
    names = {name for name, _ in reads.profiles}
    names |= {run["input"] for run in reads.runs.values() if "recorded_as" not in run}
    return names & set(workloads())


def _were(names: set[str]) -> str:
    return f"{', '.join(sorted(names))} {'were' if len(names) > 1 else 'was'}"


def restated(reads: Reads, own: frozenset[str]) -> str:
    """Return why the values that were read restate a claim's `own` sources; empty if they do not."""
    synthetic = set(workloads())
    fields: dict[str, set[str]] = {}
    for name, field in reads.profiles:
        if name in synthetic:
            fields.setdefault(field, set()).update(sources_of_field(name, field))
    if any(not sources & own for sources in fields.values()):
        return ""
    working = [run for run in reads.runs.values() if not _idle(run)]
    devices = {*reads.devices, *itertools.chain(*map(_devices, working))}
    fitted = {device for device in devices if fitted_to(device) & own}
    inputs = {run["input"] for run in working if "recorded_as" not in run}
    made = {name for name in inputs if _sources_of_input(name) & own}
    on = {host for host in map(_host, working) if _hosts_from().get(host, frozenset()) & own}
    if (working or reads.devices) and not (fitted or made or on):
        return ""
    reasons = []
    if fields:
        said = sorted(set().union(*fields.values()) & own)
        reasons.append(f"the synthetic workloads were made from {', '.join(said)}")
    if made:
        reasons.append(f"{_were(made)} made from it")
    if fitted:
        reasons.append(f"{_were(fitted)} fitted to it")
    if on:
        reasons.append(f"the host {', '.join(sorted(on))} has mechanisms that were made from it")
    if reads.runs and not working:
        reasons.append("the layer passed every request on, and takes no time itself")
    if reads.tables and not reasons and not recorded_in(reads):
        reasons.append("both sides are published figures")
    return f"Restated: {'; '.join(reasons)}." if reasons else ""
