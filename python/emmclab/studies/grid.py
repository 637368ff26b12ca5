"""Grids of a study: inputs on devices, for all values of all axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from emmclab.devices.layers import Setting
from emmclab.runtime.toml_table import TomlTable

#: Modes of grids whose inputs are traces.
REPLAYS = ("auto", "open", "closed", "back_to_back")
#: Options that may name a file.
FILES = ("second", "precondition")


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


def shared_fields(read: TomlTable) -> dict[str, Any]:
    """Read the fields that grids of every kind have."""
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
