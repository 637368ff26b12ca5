"""Cells that run an application in closed loop."""

import hashlib
from dataclasses import replace
from typing import cast

from emmclab import _core
from emmclab.apps.closed_loop import PRECONDITION, host_for, program_of, run_application, setup_of
from emmclab.runtime.toml_table import TomlTable
from emmclab.simulation.device import Device
from emmclab.simulation.result import Result
from emmclab.studies.cell_options import CellOptions
from emmclab.studies.grid import Grid, shared_fields
from emmclab.studies.input import Input, Sources
from emmclab.studies.kinds.kind import Common, GridKind, Work
from emmclab.studies.power_cut_settings import Cuts
from emmclab.studies.stored_types import RunFields

#: Options of a cell that `run_application` accepts.
_CHOSEN = ("network", "host", "precondition", "layers", "layer_settings", "second")


def _digest_of(described: _core.Program | _core.HostSetup) -> str:
    """SHA-256, first 16 digits, of an application or a host; comments in its file do not matter."""
    return hashlib.sha256(described.to_json().encode()).hexdigest()[:16]


class Apps(GridKind):
    """Applications in closed loop."""

    modes = ("app",)
    has_own_inputs = True

    def read(self, read: TomlTable, cuts: Cuts | None) -> Grid:  # noqa: ARG002
        """Read a grid."""
        grid = Grid(
            **shared_fields(read, ("precondition", "second"), precondition=PRECONDITION),
            inputs=read.many("inputs", str),
            networks=read.many("networks", str),
            host=read.text("host", ""),
        )
        read.done()
        return grid if grid.host else replace(grid, host=host_for(map(Device.named, grid.devices)))

    def variants(self, grid: Grid) -> tuple[str, ...]:
        """Return the networks."""
        return grid.networks

    def input(self, name: str, seed: int, grid: Grid, sources: Sources) -> Input:  # noqa: ARG002
        """Find an application."""
        return Input(name, name, synthetic=True, digest=_digest_of(program_of(name)), seed=seed)

    def grid_options(self, grid: Grid) -> CellOptions:
        """Return the host, with the networks of the grid."""
        setup = setup_of(grid.host)
        for network in grid.networks:
            setup.check_network(network)
        return {"host": grid.host, "host_digest": _digest_of(setup)}

    def variant_options(self, grid: Grid, variant: str, common: Common) -> CellOptions:  # noqa: ARG002
        """Return the network."""
        return {"network": variant}

    def run(self, work: Work) -> RunFields:
        """Run the application; return the result of the device, with that of the application as `app`."""
        chosen = {name: work.options[name] for name in _CHOSEN if work.options.get(name)}
        found = run_application(work.input.source, work.device(), seed=work.input.seed, **chosen, **work.image_options)
        app = {**found.app, "runtime_s": found.runtime_s, "storage_s": found.storage_s}
        return cast("RunFields", {**Result(found["device"]).deterministic(), "app": app})
