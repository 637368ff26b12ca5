"""What a study varies: grids (inputs on devices, for all combinations of all axes), and the space of a search."""

import itertools
import math
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


@dataclass(frozen=True)
class Range:
    """The values of a setting: `choices`, or numbers from `low` to `high`, on a linear or log scale."""

    name: str
    low: int | float = 0
    high: int | float = 0
    step: int | float | None = None
    log: bool = False
    choices: tuple[Setting, ...] = ()
    #: Settings that each choice represents; empty if the choices are values of the setting `name`.
    means: Mapping[Setting, Mapping[str, Setting]] = field(default_factory=dict)

    def settings(self, value: Setting) -> dict[str, Setting]:
        """Return the device settings that correspond to a value of this search range.

        >>> Range("gc.policy", choices=("greedy", "fifo")).settings("fifo")
        {'gc.policy': 'fifo'}
        """
        return dict(self.means[value]) if self.means else {self.name: value}

    @property
    def is_integer(self) -> bool:
        """Whether the values of the range are whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int) and not isinstance(self.step, float)

    def suggest(self, trial: Any) -> Setting:
        """Let a trial of optuna choose a value of the range."""
        chosen: Setting
        if self.choices:
            chosen = trial.suggest_categorical(self.name, list(self.choices))
        elif self.is_integer:
            step = 1 if self.step is None else self.step
            chosen = trial.suggest_int(self.name, self.low, self.high, step=step, log=self.log)
        else:
            chosen = trial.suggest_float(self.name, self.low, self.high, step=self.step, log=self.log)
        return chosen

    def levels(self, most: int) -> list[Setting]:
        """Return at most this many values, evenly spaced; choices are always returned in full.

        >>> Range("a", 1, 9).levels(3), Range("a", 1, 100, log=True).levels(3)
        ([1, 5, 9], [1, 10, 100])
        >>> Range("a", 0.0, 1.0, step=0.5).levels(9)
        [0.0, 0.5, 1.0]
        """
        if self.choices:
            return list(self.choices)
        if most < 2 or self.low == self.high:
            return [self.low]
        shares = [number / (most - 1) for number in range(most)]
        if self.log:
            ratio = math.log(self.high / self.low)
            values = [self.low * math.exp(ratio * share) for share in shares]
        else:
            values = [self.low + (self.high - self.low) * share for share in shares]
        step = self.step or (1 if self.is_integer else None)
        if step is not None:
            values = [self.low + round((value - self.low) / step) * step for value in values]
        within = (min(max(value, self.low), self.high) for value in values)
        return list(dict.fromkeys(int(value) if self.is_integer else value for value in within))


@dataclass(frozen=True)
class Bound:
    """The allowed range of a figure; infinite for an open end."""

    metric: str
    most: float = math.inf
    least: float = -math.inf

    def excess(self, value: float) -> float:
        """Return the distance of a value from the allowed range; 0 or less if it is inside.

        >>> Bound("waf", most=2.0).excess(2.5), Bound("waf", least=1.0).excess(1.5)
        (0.5, -0.5)
        """
        return max(value - self.most, self.least - value)


@dataclass(frozen=True)
class Space:
    """A search space: the searched grid, the ranges of its settings, and bounds on the figures."""

    grid: str
    ranges: tuple[Range, ...]
    bounds: tuple[Bound, ...] = ()
    #: Points of the search grid, if they are not evenly spaced; all of them are tried, regardless of the budget.
    fixed: tuple[dict[str, Setting], ...] = ()

    def settings(self, values: Mapping[str, Setting]) -> dict[str, Setting]:
        """Return the device settings that a trial represents."""
        return {key: setting for part in self.ranges for key, setting in part.settings(values[part.name]).items()}

    def suggest(self, trial: Any) -> dict[str, Setting]:
        """Let a trial of optuna choose a value for each setting."""
        return {parameter.name: parameter.suggest(trial) for parameter in self.ranges}

    def points(self, budget: int) -> list[dict[str, Setting]]:
        """Return the points of a full grid with at most `budget` points.

        Each setting has as many levels as possible, but at least two.

        >>> Space("g", (Range("a", 1, 9), Range("b", choices=("x", "y")))).points(7)[-1]
        {'a': 9, 'b': 'y'}
        """
        if self.fixed:
            return list(self.fixed)
        levels = [1 if not parameter.choices else len(parameter.choices) for parameter in self.ranges]
        while True:
            more = None
            for place, parameter in sorted(enumerate(self.ranges), key=lambda pair: levels[pair[0]]):
                grown = len(parameter.levels(levels[place] + 1))
                rest = math.prod(count for other, count in enumerate(levels) if other != place)
                if grown > levels[place] and grown * rest <= budget:
                    more = (place, grown)
                    break
            if more is None:
                break
            levels[more[0]] = more[1]
        values = [parameter.levels(count) for parameter, count in zip(self.ranges, levels, strict=True)]
        names = [parameter.name for parameter in self.ranges]
        points = itertools.islice(itertools.product(*values), budget)
        return [dict(zip(names, point, strict=True)) for point in points]


def read_space(read: TomlTable, grids: Mapping[str, Grid]) -> Space:
    """Read the section `[search]`; `grids` are those of the study by name, with their axes."""
    grid = read.text("grid", next(iter(grids), ""))
    if grid not in grids:
        raise read.fault("grid", f"there is no grid `{grid}`", f"choose one of: {', '.join(grids) or 'none'}")
    ranges, bounds = tuple(_ranges(read)), tuple(_bounds(read))
    # Report misspelt keys first, because a setting may be missing only because its key is misspelt.
    read.reject_unknown()
    if not ranges:
        raise read.fault("setting", "the section has no setting to choose", "add `[[search.setting]]` with a name")
    for parameter in ranges:
        if parameter.name in grids[grid].axes or parameter.name in grids[grid].set:
            raise read.fault(
                "setting", f"the grid `{grid}` has `{parameter.name}` already", "remove it from `set` and `axes`"
            )
        if [other.name for other in ranges].count(parameter.name) > 1:
            raise read.fault("setting", f"`{parameter.name}` is given twice", "give each setting once")
    return Space(grid, ranges, bounds)


def _ranges(read: TomlTable) -> Iterator[Range]:
    number = (int, float)
    for part in read.tables("setting"):
        name = part.text("name")
        if part.has("choices"):
            choices = once(part.value("choices", (list, tuple)))
            if len(choices) < 2:
                raise part.fault(
                    "choices", "there is only one value", "give at least two values, or put the setting into `set`"
                )
            yield Range(name, choices=tuple(choices))
        else:
            low, high = part.value("low", number), part.value("high", number)
            step = part.value("step", number) if part.has("step") else None
            log = part.value("log", bool, False)
            if low > high:
                raise part.fault("high", f"{high} is below low = {low}", "give the smaller number as `low`")
            if log and (low <= 0 or step is not None):
                raise part.fault("log", "a log scale needs values above 0 and no step", "leave out `log` or `step`")
            if step is not None and step <= 0:
                raise part.fault("step", f"{step} is not a step", "give a number above 0")
            yield Range(name, low, high, step, log)
        part.reject_unknown()


def _bounds(read: TomlTable) -> Iterator[Bound]:
    number = (int, float)
    for part in read.tables("constraint"):
        metric = part.text("metric")
        bound = Bound(
            metric, float(part.value("most", number, math.inf)), float(part.value("least", number, -math.inf))
        )
        if bound == Bound(metric) or bound.least > bound.most:
            raise part.fault("most", "this is not a bound", "give `most`, `least`, or both in order")
        yield bound
        part.reject_unknown()
