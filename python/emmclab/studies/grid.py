"""Grids of a study: inputs on devices, for all combinations of the values of all axes."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from emmclab.errors import ConfigError
from emmclab.runtime.lists import once
from emmclab.runtime.toml_table import TomlTable
from emmclab.simulation.layers import Setting
from emmclab.simulation.run_options import DEFAULTS, RUN_OPTIONS, check

#: Modes of grids whose inputs are traces.
REPLAYS = RUN_OPTIONS["mode"].words
#: Options whose value may be the name of a file.
FILES: tuple[Literal["second", "precondition"], ...] = ("second", "precondition")
#: Run options that a grid of a study can set or vary, with their defaults.
AXES: Mapping[str, Setting] = {
    name: "" if name == "second" else option.default
    for name, option in RUN_OPTIONS.items()
    if option.stored != "never"
    and name not in ("mode", "seed")
    and (name == "second" or isinstance(option.default, (str, int, float)))
}


@dataclass(frozen=True)
class Grid:
    """A grid of a study: every input on every device, for every value of every axis, in every mode, with every seed."""

    name: str
    devices: tuple[str, ...]
    #: Place of the grid in the study file, such as `grid[1].`, for error messages.
    place: str = ""
    #: Inputs of this grid, if they differ from those of the study.
    inputs: tuple[str, ...] = ()
    modes: tuple[str, ...] = (DEFAULTS["mode"],)
    seeds: tuple[int, ...] = ()
    #: Swept settings of device and layers (dotted keys) and swept options (`AXES`), each with its values.
    axes: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict)
    #: Settings of the device and of layers that all cells share.
    set: Mapping[str, Setting] = field(default_factory=dict)
    #: Run options of the grid; missing options have their defaults.
    options: Mapping[str, Setting] = field(default_factory=dict)
    #: Capacity to which devices are scaled, such as `128GB`; empty = unchanged.
    capacity: str = ""
    #: Number of requests of synthetic inputs; 0 to keep their own number.
    requests: int = 0
    #: Layers above the device, with their settings.
    layers: tuple[str, ...] = DEFAULTS["layers"]
    layer_settings: Mapping[str, Setting] = field(default_factory=dict)
    #: Only for grids of power-cut tests: names of the file systems (`file_systems`), and the share of the study's power
    #: cuts that the grid uses (`share`).
    file_systems: tuple[str, ...] = ()
    share: float = 1.0
    #: Only for grids that run applications: names of the simulated networks (`networks`), and of the host model
    #: (`host`).
    networks: tuple[str, ...] = ()
    host: str = ""

    def by_options(self) -> "Iterator[Grid]":
        """Yield a grid for each combination of the varied run options.

        The options have a fixed value in each of these grids. Only settings of devices and layers are still varied.
        """
        options = {key: values for key, values in self.axes.items() if key in AXES}
        settings = {key: values for key, values in self.axes.items() if key not in AXES}
        for values in itertools.product(*options.values()):
            chosen: dict[str, Any] = dict(zip(options, values, strict=True))
            yield replace(self, axes=settings, options={**self.options, **chosen})

    def option(self, name: str) -> Any:
        """Return the grid's value of a run option."""
        return self.options.get(name, AXES[name])

    def values(self, option: str) -> tuple[Setting, ...]:
        """Return the values of an option in the grid: those of its axis, or the single value."""
        return self.axes.get(option, (self.option(option),))


def shared_fields(read: TomlTable, options: Iterable[str] = (), **defaults: Setting) -> dict[str, Any]:
    """Read the fields that all kinds of grids have, and the run options that this kind of grid supports.

    `defaults` contains the defaults that differ from those of a run.
    """
    return {
        "name": read.text("name"),
        "place": read.place,
        "devices": read.alternatives("devices", str),
        "modes": read.alternatives("modes", str, Grid.modes),
        "seeds": read.alternatives("seeds", int, ()),
        "axes": _axes(read, options),
        "set": read.table("set", (str, int, float, bool)),
        "layers": read.all_values("layers", str, ()),
        "layer_settings": read.table("layer_settings", (str, int, float, bool)),
        "options": {name: read.value(name, *_kind_and_default(name, defaults)) for name in options},
    }


def _kind_and_default(option: str, defaults: Mapping[str, Setting]) -> tuple[Any, Setting]:
    default: Setting = defaults.get(option, AXES[option])
    return (int, float) if isinstance(default, float) else type(default), default


def _axes(read: TomlTable, options: Iterable[str]) -> dict[str, tuple[Setting, ...]]:
    """Read the settings and options that a grid varies (its axes); other keys of the grid are not axes."""
    axes = read.table("axes", list)
    grid_fields = {grid_field.name: grid_field for grid_field in fields(Grid)}
    for key in axes:
        if key in options:
            _check_option(read, key, axes[key])
        elif key in grid_fields:
            has_list = isinstance(grid_fields[key].default, tuple) or key == "devices"
            hint = f"`{key} = [...]` of the grid" if has_list else f"a [[grid]] with its own `{key}` for each value"
            raise read.fault(f"axes.{key}", "this is a key of the grid, not a setting of a device", f"write {hint}")
    return {key: tuple(once(values)) for key, values in axes.items()}


def _check_option(read: TomlTable, option: str, values: Sequence[Setting]) -> None:
    """Reject an option that cannot vary in the grid, or that has a value of the wrong type or out of range."""
    if read.has(option):
        raise read.fault(f"axes.{option}", f"the grid has `{option}` already", f"take out `{option} = ...`")
    if RUN_OPTIONS[option].panel == "Layers" and not read.has("layers"):
        raise read.fault(f"axes.{option}", "this option acts on layers, and the grid has none", "add `layers`")
    kind, _ = _kind_and_default(option, {})
    for value in values:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            about = RUN_OPTIONS[option].about
            raise read.fault(f"axes.{option}", f"`{value}` is of the wrong type", about)
        try:
            check(option, value)
        except ConfigError as error:
            raise read.fault(f"axes.{option}", str(error), error.hint or "") from error
