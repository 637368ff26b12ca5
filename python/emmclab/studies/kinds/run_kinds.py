"""Study cells that profile an input, replay it, run a program on a served device, or simulate an application."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, cast

from emmclab import _core
from emmclab.apps.closed_loop import PRECONDITION, host_for, program_of, run_application
from emmclab.errors import ConfigError
from emmclab.runtime.document import Row
from emmclab.runtime.toml_table import TomlTable
from emmclab.simulation.device import Device, setup_of
from emmclab.simulation.result import Result
from emmclab.simulation.run_options import RunOptions
from emmclab.studies.flatten import flat, percentile_columns
from emmclab.studies.grid import AXES, FILES, REPLAYS, Grid, shared_fields
from emmclab.studies.input import Input, Sources, open_cached
from emmclab.studies.kinds.kind import CellKind, Common, GridKind, Work
from emmclab.studies.power_cut_settings import Cuts
from emmclab.studies.program import Program, ServedOptions, require, run_program
from emmclab.studies.stored_types import CellFields, CellOptions

#: Name that replaces the grid name for cells that profile inputs.
PROFILE = "profile"
#: Figures of profiles that are stored in tables of their own.
_FIGURES = (
    "throughput_by_size",
    "size_distribution",
    "response_distribution",
    "inter_arrival_distribution",
    "reuse_distance",
)


class Profiles(CellKind):
    """The kind of study cell that profiles an input."""

    tables = ("profiles", *_FIGURES)

    def run(self, work: Work) -> Mapping[str, object]:
        """Profile the input."""
        return open_cached(work.input).profile(percentiles=work.options.get("percentiles")).to_dict()

    def rows(self, cell: CellFields, result: Row) -> Iterator[tuple[str, Row]]:
        """Yield the row of the profile, then the rows of its figures."""
        fields = {name: value for name, value in result.items() if name not in ("name", "figures")}
        chosen = [{"op": row["op"], **part} for row in result["by_operation"] for part in row.get("percentiles", ())]
        yield "profiles", flat({**cell, **fields}) | percentile_columns(chosen)
        for name in _FIGURES:
            for row in result["figures"][name]:
                yield name, {"input": cell["input"], "seed": cell["seed"], **row}


class Replays(GridKind):
    """The kind of study cell that replays a trace."""

    modes = REPLAYS

    def read(self, read: TomlTable, cuts: Cuts | None) -> Grid:  # noqa: ARG002
        """Read a grid of trace replays."""
        grid = Grid(
            **shared_fields(read, AXES),
            inputs=read.alternatives("inputs", str, ()),
            capacity=read.text("capacity", ""),
            requests=read.value("requests", int, 0),
        )
        if grid.requests < 0:
            raise read.fault(
                "requests",
                f"{grid.requests} requests are impossible",
                "give 1 or more, or 0 for the length of the input",
            )
        read.reject_unknown()
        return grid

    def input(self, name: str, seed: int, grid: Grid, sources: Sources) -> Input:
        """Find a trace or a workload."""
        return sources.trace(name, seed, grid.requests)

    def run(self, work: Work) -> Mapping[str, object]:
        """Run the simulation."""
        trace = open_cached(work.input)
        run_options = {name: value for name, value in work.options.items() if name != "capacity"}
        # The provenance is left out, because the study stores it once for all cells.
        fixed: RunOptions = {"seed": work.input.seed, "provenance": False}
        options = cast("RunOptions", {**run_options, **work.image_options, **fixed})
        run = work.device().simulate(trace, **options)
        result = run.deterministic()
        # The result names files by the paths in the study, not by the paths of local copies.
        for name in FILES:
            if name in result["options"]:
                result["options"][name] = work.parts[name]
        if capacity := work.options.get("capacity"):
            result["options"]["capacity"] = capacity
        return result


#: Options of a study cell that `emmclab.serve` accepts.
_SERVED: tuple[Literal["precondition", "layers", "layer_settings", "second"], ...] = (
    *("precondition", "layers", "layer_settings", "second"),
)


class LivePrograms(GridKind):
    """The kind of study cell that runs a program on a served device."""

    modes = ("live",)
    is_of_machine = True

    def read(self, read: TomlTable, cuts: Cuts | None) -> Grid:  # noqa: ARG002
        """Read a grid whose inputs are programs.

        It has no replay options, because the requests come from the programs.
        """
        grid = Grid(**shared_fields(read, ("precondition", "second")), inputs=read.alternatives("inputs", str))
        read.reject_unknown()
        return grid

    def input(self, name: str, seed: int, grid: Grid, sources: Sources) -> Input:  # noqa: ARG002
        """Find a program of the study."""
        if name not in sources.programs:
            raise ConfigError(
                f"there is no program `{name}`", field="inputs", hint=f"the programs are {', '.join(sources.programs)}"
            )
        program = sources.programs[name]
        return Input(name, name, synthetic=True, digest=program.digest, seed=seed, program=program.to_json())

    def run(self, work: Work) -> Mapping[str, object]:
        """Run the program on a served device."""
        served = {name: work.options[name] for name in _SERVED if name in work.options}
        options = cast("ServedOptions", {**served, **work.image_options, "seed": work.input.seed})
        return run_program(Program.of(work.input.program), work.device(), options)

    def require(self, inputs: Sequence[Input]) -> None:
        """Raise an error if this machine cannot serve a device or lacks a tool of the programs."""
        require(map(Program.of, sorted({source.program for source in inputs})))


#: Options of a single run of a study (cell) that `run_application` accepts.
_CHOSEN = ("network", "host", "precondition", "layers", "layer_settings", "second")


def _digest_of(described: _core.Program | _core.HostSetup) -> str:
    """Return the start (16 digits) of the SHA-256 of an application's or host's settings, without comments."""
    text = json.dumps(described.to_dict(), separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Apps(GridKind):
    """The kind of study cell that runs an application in closed loop."""

    modes = ("app",)
    has_own_inputs = True

    def read(self, read: TomlTable, cuts: Cuts | None) -> Grid:  # noqa: ARG002
        """Read a grid of applications."""
        grid = Grid(
            **shared_fields(read, ("precondition", "second"), precondition=PRECONDITION),
            inputs=read.alternatives("inputs", str),
            networks=read.alternatives("networks", str),
            host=read.text("host", ""),
        )
        read.reject_unknown()
        return grid if grid.host else replace(grid, host=host_for(map(Device.named, grid.devices)))

    def variants(self, grid: Grid) -> tuple[str, ...]:
        """Return the names of the grid's networks."""
        return grid.networks

    def input(self, name: str, seed: int, grid: Grid, sources: Sources) -> Input:  # noqa: ARG002
        """Find an application."""
        return Input(name, name, synthetic=True, digest=_digest_of(program_of(name)), seed=seed)

    def grid_options(self, grid: Grid) -> CellOptions:
        """Return the host model of a grid and its digest; check that the host has all networks of the grid."""
        setup = setup_of(grid.host)
        for network in grid.networks:
            setup.check_network(network)
        return {"host": grid.host, "host_digest": _digest_of(setup)}

    def variant_options(self, grid: Grid, variant: str, common: Common) -> CellOptions:  # noqa: ARG002
        """Return the network as an option of a run."""
        return {"network": variant}

    def run(self, work: Work) -> Mapping[str, object]:
        """Run the application; return the result of the device, with the application's result in the field `app`."""
        chosen = {name: work.options[name] for name in _CHOSEN if work.options.get(name)}
        run = run_application(work.input.source, work.device(), seed=work.input.seed, **chosen, **work.image_options)
        app = {**run.app, "runtime_s": run.runtime_s, "storage_s": run.storage_s}
        return {**Result(run.device).deterministic(), "app": app}
