"""Grids of a study: inputs on devices, for all values of all axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal, TypedDict, cast

from emmclab.devices.layers import Setting
from emmclab.devices.run_options import DEFAULTS, RUN_OPTIONS
from emmclab.runtime.lists import once
from emmclab.runtime.toml_table import TomlTable

#: Modes of grids whose inputs are traces.
REPLAYS = RUN_OPTIONS["mode"].words
#: Options of a run that are keys of a grid, in the order in which cells keep them.
OPTIONS = ("precondition", "rate", "wrap_addresses")
#: Those that cells with layers keep.
LAYER_OPTIONS = ("second", "first_writes", "drain")
#: Options that may name a file.
FILES: tuple[Literal["second", "precondition"], ...] = ("second", "precondition")


@dataclass(frozen=True)
class Grid:
    """Every input on every device, for every value of every axis, in every mode and with every seed."""

    name: str
    devices: tuple[str, ...]
    #: Where it stands in the file, for messages: `grid[1].`.
    place: str = ""
    #: Inputs of this grid, where not those of the study.
    inputs: tuple[str, ...] = ()
    modes: tuple[str, ...] = (DEFAULTS["mode"],)
    seeds: tuple[int, ...] = ()
    #: Dotted keys of settings of the device and of layers, each with its values.
    axes: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict)
    #: Settings of the device and of layers that all cells share.
    set: Mapping[str, Setting] = field(default_factory=dict)
    precondition: str = DEFAULTS["precondition"]
    rate: float = DEFAULTS["rate"]
    wrap_addresses: bool = DEFAULTS["wrap_addresses"]
    #: Capacity that devices are scaled to, as `128GB`; empty = their own.
    capacity: str = ""
    #: Length of synthetic inputs in requests; 0 = their own.
    requests: int = 0
    #: Layers above the device, with their settings, and the second device.
    layers: tuple[str, ...] = DEFAULTS["layers"]
    layer_settings: Mapping[str, Setting] = field(default_factory=dict)
    second: str = ""
    #: With layers, how many of the first writes to the device are kept.
    first_writes: int = DEFAULTS["first_writes"]
    #: With layers, whether these move all data that they keep aside after the last request.
    drain: bool = DEFAULTS["drain"]
    #: Where power is cut: names of file systems of the study, and the share of its cuts that is tried.
    file_systems: tuple[str, ...] = ()
    share: float = 1.0
    #: Where applications run: networks of the host, and the host.
    networks: tuple[str, ...] = ()
    host: str = ""


class SharedFields(TypedDict):
    """The fields of `Grid` that grids of every kind have."""

    name: str
    place: str
    devices: tuple[str, ...]
    modes: tuple[str, ...]
    seeds: tuple[int, ...]
    axes: dict[str, tuple[Setting, ...]]
    set: dict[str, Setting]
    layers: tuple[str, ...]
    layer_settings: dict[str, Setting]


class GridRunFields(TypedDict):
    """The fields of `Grid` that are options of a run."""

    precondition: str
    rate: float
    wrap_addresses: bool
    second: str
    first_writes: int
    drain: bool


def shared_fields(read: TomlTable) -> SharedFields:
    """Read the fields that grids of every kind have."""
    return {
        "name": read.text("name"),
        "place": read.place,
        "devices": read.many("devices", str),
        "modes": read.many("modes", str, Grid.modes),
        "seeds": read.many("seeds", int, ()),
        "axes": _axes(read),
        "set": read.table("set", (str, int, float, bool)),
        "layers": read.every("layers", str, ()),
        "layer_settings": read.table("layer_settings", (str, int, float, bool)),
    }


def _axes(read: TomlTable) -> dict[str, tuple[Setting, ...]]:
    """Read the settings that are swept; keys of the grid itself are not."""
    axes = read.table("axes", list)
    own = {one.name: one for one in fields(Grid)}
    for key in axes:
        if key in own:
            has_list = isinstance(own[key].default, tuple) or key == "devices"
            hint = (
                f"`{key} = [...]` of the grid"
                if has_list
                else f"a [[grid]] with its own `{key}` for each value"
            )
            raise read.fault(
                f"axes.{key}", "this is a key of the grid, not a setting of a device", f"write {hint}"
            )
    return {key: tuple(once(values)) for key, values in axes.items()}


def run_options(read: TomlTable) -> GridRunFields:
    """Read the keys of a grid that are options of a run."""
    found = {}
    for name in (*OPTIONS, *LAYER_OPTIONS):
        default = getattr(Grid, name)
        kind = (int, float) if isinstance(default, float) else type(default)
        found[name] = read.one(name, kind, default)
    return cast("GridRunFields", found)
