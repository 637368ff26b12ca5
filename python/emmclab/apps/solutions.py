"""The pilot solutions of a FAST 2012 paper: their gain over the plain device, and their risk of data loss."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, TypedDict

from emmclab.apps.closed_loop import AppResult, run_application
from emmclab.errors import ConfigError
from emmclab.runtime.field_mapping import FieldMapping
from emmclab.runtime.lists import Names, several
from emmclab.simulation.device import Device
from emmclab.simulation.layers import Setting

#: Value of `Solution.second` that selects a second device of the same kind.
SAME = "same"
#: Durability promises whose breach is a loss of acknowledged data. A breach of any other promise is an inconsistency.
_LOSSES = ("fsync", "fdatasync", "commit")


@dataclass(frozen=True)
class Solution:
    """A way to make storage faster while the main device stays the same.

    Attributes:
        name: name of the solution.
        about: description in one line.
        hardware: additional hardware that it needs; empty if none.
        layers: layers above the device.
        layer_settings: settings of the layers.
        second: the second device; `same` for one of the same kind, None if there is none.
        filesystems: file systems in place of the host's, as for `run_application`.
        sync: classes of files whose syncs are carried out; None for all.
    """

    name: str
    about: str
    hardware: str = ""
    layers: tuple[str, ...] = ()
    layer_settings: Mapping[str, Setting] = field(default_factory=dict)
    second: str | None = None
    filesystems: tuple[str, ...] = ()
    sync: tuple[str, ...] | None = None

    def run(self, name: str, device: Device, network: str, **options: Any) -> AppResult:
        """Run an application with this solution; `options` are those of `run_application`."""
        return run_application(
            name,
            device,
            network=network,
            layers=self.layers,
            layer_settings=self.layer_settings,
            second=device if self.second == SAME else self.second,
            filesystems=self.filesystems,
            sync=self.sync,
            **options,
        )


#: All solutions to compare; the first one is the unchanged device.
SOLUTIONS = (
    Solution("plain", "the device as it is"),
    Solution(
        "nvm-buffer",
        "a small non-volatile buffer before the device",
        "16 MB of phase-change memory",
        layers=("nvm-buffer",),
        second="pcm-16mb",
    ),
    Solution(
        "raid0",
        "stripes over two devices of the same kind",
        "a second device",
        layers=("pair",),
        layer_settings={"pair.routing": "striping"},
        second=SAME,
    ),
    Solution("lfs", "a log-structured file system on every partition", filesystems=("lfs",)),
    Solution(
        "advil",
        "small random writes are logged in a reserved area",
        layers=("advil",),
        layer_settings={"advil.recovery": True},
    ),
    Solution("selective-sync", "only databases and their journals are synced", sync=("database", "database_journal")),
    Solution("no-sync", "nothing is synced: the upper bound of the gain of selective sync", sync=("none",)),
)


def find_solutions(names: Names) -> list[Solution]:
    """Return solutions by name, the plain device first; all solutions if no name is given.

    >>> [one.name for one in find_solutions(["raid0"])]
    ['plain', 'raid0']
    """
    chosen = several(names)
    known_names = [solution.name for solution in SOLUTIONS]
    for name in chosen:
        if name not in known_names:
            hint = f"choose one of: {', '.join(known_names)}"
            raise ConfigError(f"there is no solution `{name}`", field="solution", hint=hint)
    return [solution for solution in SOLUTIONS if not chosen or solution.name in chosen or solution.name == "plain"]


class SolutionComparison(FieldMapping):
    """Runs of applications with each solution; a mapping of what `emmclab apps solutions --json` prints."""

    runs: list[dict[str, Any]]
    impossible: list[dict[str, str]]
    solutions: list[dict[str, Any]]
    risks: dict[str, Any]

    def __repr__(self) -> str:
        return f"<Comparison of {len(self.solutions)} solutions in {len(self.runs)} runs>"


def compare_solutions(
    runs: Sequence[tuple[Solution, AppResult]], impossible: Sequence[Mapping[str, str]] = ()
) -> SolutionComparison:
    """Compare runs with the plain run of the same application, device and network.

    The gain is the plain runtime divided by the runtime with the solution. Pages programmed and blocks erased
    are totals over the main device and a second one of the same kind; bytes written to a second device of
    another kind are a separate figure. Risks are from explored power cuts (`risks`). `impossible` are runs
    that a device does not allow: application, device, network, solution and the reason.
    """
    plain: dict[tuple[str, ...], AppResult] = {
        _run_key(result): result for solution, result in runs if solution.name == "plain"
    }
    rows = []
    for solution, result in runs:
        plain_run = plain.get(_run_key(result))
        if plain_run is None:
            raise ConfigError(
                "the results contain no run of the solution `plain` for comparison",
                field="solution",
                hint="run the solution `plain` on the same application, device and network",
            )
        rows.append(
            {
                "application": result.app.program,
                "device": result.device.device,
                "network": result.app.network,
                "solution": solution.name,
                "runtime_s": result.runtime_s,
                "storage_s": result.storage_s,
                "gain": plain_run.runtime_s / result.runtime_s if result.runtime_s else None,
                **_wear(solution, result),
                "plain_page_programs": plain_run.device.flash.page_programs.total,
            }
        )
    used = {solution.name: solution for solution, _ in runs}
    measured = risks()
    return SolutionComparison(
        {
            "runs": rows,
            "impossible": [dict(run) for run in impossible],
            "solutions": [
                {
                    "name": solution.name,
                    "about": solution.about,
                    "hardware": solution.hardware,
                    "loses": loses(measured, solution.name),
                    "risk": risk_of(measured, solution.name),
                }
                for solution in sorted(used.values(), key=_order)
            ],
            "risks": measured,
        }
    )


def _order(solution: Solution) -> int:
    """Return the position of a solution in tables; solutions of a user come last."""
    return SOLUTIONS.index(solution) if solution in SOLUTIONS else len(SOLUTIONS)


def _run_key(result: AppResult) -> tuple[str, ...]:
    return (result.app.program, result.device.device, result.app.network)


def _wear(solution: Solution, result: AppResult) -> dict[str, int]:
    """Return page programs and block erases of a run, and bytes written to a second device of another kind."""
    device = result.device
    flash, second = device.flash, device.second_device
    programs, erases, other = flash.page_programs.total, flash.block_erases, 0
    if second and solution.second == SAME:
        programs, erases = programs + second.page_programs, erases + second.block_erases
    elif second:
        other = second.host_bytes_written
    return {"page_programs": programs, "block_erases": erases, "second_bytes": other}


class ExploredWorkload(TypedDict):
    """Results of the simulated power cuts of a workload: crash states, broken durability promises, first data loss."""

    workload: str
    cuts: int
    states: int
    lost_states: int
    documented_states: int
    promises: list[str]
    first: str | None


class Risks(TypedDict):
    """Measured data loss of each solution after power cuts, with the command and the devices of the measurement."""

    command: str
    device: str
    second: dict[str, str]
    solutions: dict[str, list[ExploredWorkload]]


def risks() -> Risks:
    """Return the measured losses after power cuts with each solution; `command` is the command that measures them.

    >>> sorted(risks()["solutions"])[0]
    'advil'
    """
    text = resources.files("emmclab").joinpath("data/pilot-risks.json").read_text(encoding="utf-8")
    measured: Risks = json.loads(text)
    return measured


def loses(measured: Risks, name: str) -> bool | None:
    """Return whether any crash state lost data acknowledged as durable; None if no crash state was explored."""
    explored = measured["solutions"].get(name)
    return any(workload["lost_states"] for workload in explored) if explored else None


def risk_of(measured: Risks, name: str) -> str:
    """Describe in one or two sentences what a power cut may lose with a solution, from the explored crash states."""
    explored = measured["solutions"].get(name)
    if not explored:
        return "not explored"
    states = sum(workload["states"] for workload in explored)
    cuts = sum(workload["cuts"] for workload in explored)
    lost = [workload for workload in explored if workload["lost_states"]]
    tried = f"{states:,} states of {cuts:,} cuts tried"
    if not lost:
        excused = sum(workload["documented_states"] for workload in explored)
        excuse = f", {excused:,} with a loss that SQLite documents" if excused else ""
        return f"nothing that was acknowledged is lost, and all is consistent: {tried}{excuse}"
    losses = [f"{workload['workload']}: {workload['first']}" for workload in lost]
    broken = sorted({promise for workload in lost for promise in workload["promises"] if promise not in _LOSSES})
    sound = f"remaining data may be inconsistent ({', '.join(broken)})" if broken else "remaining data is consistent"
    bad = sum(workload["lost_states"] for workload in lost)
    return (
        f"acknowledged syncs are lost in {bad:,} of {tried}; {sound}; what survives may be as old as "
        f"write-back allows (dirty_expire_ms + writeback_interval_ms of the host); {'; '.join(losses)}"
    )
