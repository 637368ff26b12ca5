"""Grids of a study: inputs on devices, for all values of all axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from emmclab.apps.closed_loop import HOST, PRECONDITION
from emmclab.crash import workloads
from emmclab.devices.layers import Setting
from emmclab.runtime.toml_table import TomlTable
from emmclab.studies.app_cell import APP
from emmclab.studies.cell import CUTS
from emmclab.studies.cuts import Cuts

#: The mode of a grid whose inputs are programs.
LIVE = "live"
#: Modes of grids whose inputs are traces.
REPLAYS = ("auto", "open", "closed", "back_to_back")


@dataclass(frozen=True)
class Grid:
    """Every input on every device, for every value of every axis, in every mode and with every seed."""

    name: str
    devices: tuple[str, ...]
    #: Where it stands in the file, for messages: `grid[1].`.
    place: str = ""
    #: Inputs of this grid, where not those of the study.
    inputs: tuple[str, ...] = ()
    modes: tuple[str, ...] = ("auto",)
    seeds: tuple[int, ...] = ()
    #: Dotted keys of settings of the device and of layers, each with its values.
    axes: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict)
    #: Settings of the device and of layers that all cells share.
    set: Mapping[str, Setting] = field(default_factory=dict)
    precondition: str = "none"
    rate: float = 1.0
    wrap_addresses: bool = False
    #: Capacity that devices are scaled to, as `128GB`; empty = their own.
    capacity: str = ""
    #: Length of synthetic inputs in requests; 0 = their own.
    requests: int = 0
    #: Layers above the device, with their settings, and the second device.
    layers: tuple[str, ...] = ()
    layer_settings: Mapping[str, Setting] = field(default_factory=dict)
    second: str = ""
    #: With layers, how many of the first writes to the device are kept.
    first_writes: int = 0
    #: With layers, whether these move all data that they keep aside after the last request.
    drain: bool = False
    #: Where power is cut: names of file systems of the study, and the share of its cuts that is tried.
    file_systems: tuple[str, ...] = ()
    share: float = 1.0
    #: Where applications run: networks of the host, and the host.
    networks: tuple[str, ...] = ()
    host: str = ""

    @property
    def runs_apps(self) -> bool:
        """Whether applications run in closed loop on the devices, in place of traces."""
        return self.modes == (APP,)

    @property
    def is_live(self) -> bool:
        """Whether programs run on the devices, which are served, in place of traces."""
        return self.modes == (LIVE,)

    @property
    def cuts_power(self) -> bool:
        """Whether workloads run on served devices and power is cut, in place of a simulation."""
        return self.modes == (CUTS,)


def _shared(read: TomlTable) -> dict[str, Any]:
    """Read what grids of every mode have."""
    return {
        "name": read.text("name"),
        "place": read.place,
        "devices": read.many("devices", str),
        "modes": read.many("modes", str, Grid.modes),
        "seeds": read.many("seeds", int, ()),
        "axes": {key: tuple(values) for key, values in read.table("axes", list).items()},
        "set": read.table("set", (str, int, float, bool)),
        "layers": read.many("layers", str, ()),
        "layer_settings": read.table("layer_settings", (str, int, float, bool)),
    }


def _cuts_grid(read: TomlTable, cuts: Cuts | None) -> Grid:
    """Read a grid whose cells cut power."""
    grid = Grid(
        **_shared(read),
        inputs=read.many("inputs", str),
        file_systems=read.many("file_systems", str),
        share=read.one("share", (int, float), 1.0),
    )
    known = () if cuts is None else tuple(cuts.file_systems)
    for name in grid.file_systems:
        if name not in known:
            hint = f"choose one of: {', '.join(known)}" if known else "describe it in `[cuts.file_systems]`"
            raise read.fault("file_systems", f"there is no file system `{name}`", hint)
    for name in grid.inputs:
        if not workloads.is_known(name):
            raise read.fault(
                "inputs",
                f"there is no workload `{name}`",
                f"choose one of: {', '.join(workloads.ABOUT)}",
            )
    read.done()
    return grid


def _app_grid(read: TomlTable) -> Grid:
    """Read a grid of applications in closed loop."""
    grid = Grid(
        **_shared(read),
        inputs=read.many("inputs", str),
        precondition=read.text("precondition", PRECONDITION),
        second=read.text("second", ""),
        networks=read.many("networks", str),
        host=read.text("host", HOST),
    )
    read.done()
    return grid


def _live_grid(read: TomlTable) -> Grid:
    """Read a grid of served devices: requests come from programs, so nothing says how a trace is replayed."""
    grid = Grid(
        **_shared(read),
        inputs=read.many("inputs", str),
        precondition=read.text("precondition", "none"),
        second=read.text("second", ""),
    )
    read.done()
    return grid


def read_grid(read: TomlTable, cuts: Cuts | None) -> Grid:
    """Read a grid of any mode; `cuts` are those of its study.

    Raises:
        ConfigError: a key is unknown, missing or wrong.
    """
    modes = read.many("modes", str, Grid.modes)
    for alone in (LIVE, CUTS, APP):
        if alone in modes and len(modes) > 1:
            raise read.fault(
                "modes", f"a grid of mode {alone} has no other", f'give it alone: `modes = ["{alone}"]`'
            )
    if modes == (LIVE,):
        return _live_grid(read)
    if modes == (CUTS,):
        return _cuts_grid(read, cuts)
    if modes == (APP,):
        return _app_grid(read)
    grid = Grid(
        **_shared(read),
        inputs=read.many("inputs", str, ()),
        precondition=read.text("precondition", "none"),
        rate=read.one("rate", (int, float), 1.0),
        wrap_addresses=read.one("wrap_addresses", bool, False),
        capacity=read.text("capacity", ""),
        requests=read.one("requests", int, 0),
        second=read.text("second", ""),
        first_writes=read.one("first_writes", int, 0),
        drain=read.one("drain", bool, False),
    )
    for mode in grid.modes:
        if mode not in REPLAYS:
            known = f"use {', '.join(REPLAYS)}, {LIVE}, {CUTS} or {APP}"
            raise read.fault("modes", f"there is no mode `{mode}`", known)
    if grid.requests < 0:
        raise read.fault(
            "requests",
            f"{grid.requests} requests are impossible",
            "give 1 or more, or 0 for the length of the input",
        )
    read.done()
    return grid
