"""Definition of a study: a TOML file of inputs and of grids of devices, settings, modes and seeds."""

from __future__ import annotations

import contextlib
import difflib
import functools
import hashlib
import itertools
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from emmclab.apps import HOST, PRECONDITION, program_of, setup_of
from emmclab.crash import workloads as workload_programs
from emmclab.crash.judging import RECOVERIES
from emmclab.device import Device, parse_precondition, parse_routing
from emmclab.errors import ConfigError, EmmclabError
from emmclab.files import read_text
from emmclab.layers import stack
from emmclab.measures import percentiles_of
from emmclab.reading import reading_options
from emmclab.study.app import APP, digest_of
from emmclab.study.bundled import bundled, bundled_text
from emmclab.study.cell import CUTS, Cell, Input
from emmclab.study.cuts import Cuts, FileSystem, workload_digest
from emmclab.study.program import FileSystem as LiveFileSystem
from emmclab.study.program import Program, expanded
from emmclab.study.space import Space, read_space
from emmclab.workload import workload_groups

Setting = str | int | float | bool

#: Words that stand for many inputs.
GROUPS = workload_groups()
#: The mode of a grid whose inputs are programs.
_LIVE = "live"
#: More cells than this are a slip, not a study.
MOST_CELLS = 1_000_000


@dataclass(frozen=True)
class Grid:
    """Every input on every device, for every value of every axis, in every mode and with every seed."""

    name: str
    devices: tuple[str, ...]
    #: Where it stands in the file, for messages: `grid[1].`.
    place: str = ""
    #: Inputs of this grid, where not those of the study.
    inputs: tuple[str, ...] = ()
    modes: tuple[str, ...] = ("open",)
    seeds: tuple[int, ...] = ()
    #: Dotted keys of device settings, each with its values.
    axes: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict)
    #: Device settings that all cells share.
    set: Mapping[str, Setting] = field(default_factory=dict)
    precondition: str = "none"
    rate: float = 1.0
    wrap_addresses: bool = False
    #: Capacity that devices are scaled to, as `128GB`; empty = their own.
    capacity: str = ""
    #: Length of synthetic inputs in requests; 0 = their own.
    requests: int = 0
    #: A second device beside each, and the ways of sharing requests with it.
    card: str = ""
    routings: tuple[str, ...] = ()
    #: Layers above the device, with their settings, and the device beside it.
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
        return self.modes == (_LIVE,)

    @property
    def cuts_power(self) -> bool:
        """Whether workloads run on served devices and power is cut, in place of a simulation."""
        return self.modes == (CUTS,)


@dataclass(frozen=True)
class Study:
    """Inputs, each profiled once, and grids of simulations."""

    name: str
    about: str
    inputs: tuple[str, ...]
    grids: tuple[Grid, ...]
    seeds: tuple[int, ...] = (1,)
    #: How recorded inputs are read: options of `emmclab.read`.
    reading: Mapping[str, Setting] = field(default_factory=dict)
    #: Scripts that run on served devices: the inputs of grids whose mode is `live`.
    programs: tuple[Program, ...] = ()
    #: What grids whose mode is `cuts` have in common.
    cuts: Cuts | None = None
    #: Percentiles of response times beside the usual ones, ascending; columns of the results.
    percentiles: tuple[float, ...] = ()
    #: What `emmclab search` may choose.
    search: Space | None = None
    file: str = ""
    #: SHA-256 of the definition, first 16 digits; spaces and comments do not matter.
    definition: str = ""

    def __repr__(self) -> str:
        return f"<Study {self.name!r}: {len(self.inputs)} inputs, {len(self.grids)} grids>"

    def _repr_html_(self) -> str:
        from emmclab.notebook import study_html

        return study_html(self)

    @staticmethod
    def named(name: str) -> Study:
        """Take a study that comes with emmclab by its name, or a file by its path (ending in `.toml`)."""
        if name.endswith(".toml") or "/" in name:
            return Study.parse(read_text(name), name)
        if name not in bundled():
            raise ConfigError(
                f"there is no study `{name}`",
                kind="config",
                field="STUDY",
                hint=f"choose one of: {', '.join(bundled())}",
            )
        return Study.parse(bundled_text(name), f"{name}.toml")

    @staticmethod
    def parse(text: str, file: str) -> Study:
        """Read a study from TOML.

        Raises:
            ConfigError: the text is not TOML, or a key is unknown, missing or of the wrong type.
        """
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(
                f"{file}: {error}",
                kind="config",
                file=file,
                hint="correct the TOML; docs/guides/reproduce.md describes a study",
            ) from error
        read = _Table(table, file, "")
        programs, cuts = _programs(read), _cuts(read)
        study = Study(
            name=read.text("name"),
            about=read.text("about", ""),
            inputs=read.many("inputs", str, () if programs or cuts or _all_apps(read) else None),
            programs=programs,
            cuts=cuts,
            seeds=read.many("seeds", int, (1,)),
            grids=tuple(_grid(part, cuts) for part in read.tables("grid")),
            reading=_reading(read),
            percentiles=_percentiles(read),
            file=file,
            definition=hashlib.sha256(json.dumps(table, sort_keys=True, default=str).encode()).hexdigest()[
                :16
            ],
        )
        if read.has("search"):
            by_name = {grid.name: grid for grid in study.grids}
            study = replace(study, search=read_space(read.inner("search"), by_name))
        read.done()
        if not study.name or not study.name.replace("-", "").replace("_", "").isalnum():
            raise ConfigError(
                f"{file}: `{study.name}` is not a valid name of a study",
                kind="config",
                file=file,
                field="name",
                hint="use letters, digits, - and _",
            )
        names = [grid.name for grid in study.grids]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(
                    f"{file}: there are two grids `{name}`",
                    kind="config",
                    file=file,
                    field="grid",
                    hint="give each grid its own name",
                )
        return study

    def with_inputs(self, more: Sequence[str]) -> Study:
        """Add inputs, as traces recorded by the reader."""
        return replace(self, inputs=(*self.inputs, *more))

    def with_reading(self, options: Mapping[str, Setting]) -> Study:
        """Read recorded inputs with these options of `emmclab.read`, beside those of the study itself."""
        return replace(self, reading={**self.reading, **options})

    def with_scale(self, scale: float) -> Study:
        """Cut power so many times as often in every cell.

        Raises:
            ConfigError: not above 0, or the study cuts no power.
        """
        if self.cuts is None:
            raise ConfigError(
                f"{self.name} cuts no power",
                kind="config",
                field="scale",
                hint="use it with a study of power cuts, as `emmclab run power-cuts`",
            )
        return replace(self, cuts=self.cuts.scaled(scale))

    def with_percentiles(self, percentiles: Iterable[float] | str | None) -> Study:
        """Give these percentiles of response times too, beside those of the study itself.

        Raises:
            ConfigError: one is not a number above 0 and up to 100.
        """
        more = percentiles_of(percentiles)
        return replace(self, percentiles=tuple(percentiles_of([*self.percentiles, *more])))

    def cells(self) -> list[Cell]:
        """Expand into cells, input by input, so that an input is prepared once; profiles come first.

        Raises:
            ConfigError: a device, setting or input is wrong, or there are too many cells.
        """
        wanted: dict[Input, list[Cell]] = {}
        sources_of: dict[str, str] = {}
        programs = {program.name: program for program in self.programs}

        asked = {"percentiles": list(self.percentiles)} if self.percentiles else {}

        def find_program(name: str, seed: int) -> Input:
            if name not in programs:
                raise ConfigError(
                    f"{self.file}: there is no program `{name}`",
                    kind="config",
                    file=self.file,
                    field="inputs",
                    hint=f"choose one of: {', '.join(programs)}",
                )
            program = programs[name]
            return Input(
                name, name, synthetic=True, digest=program.digest, seed=seed, program=program.to_json()
            )

        def find_workload(name: str, seed: int) -> Input:
            return Input(name, name, synthetic=True, digest=workload_digest(), seed=seed)

        def find_app(name: str, seed: int) -> Input:
            return Input(name, name, synthetic=True, digest=digest_of(program_of(name)), seed=seed)

        def find(name: str, seed: int, requests: int = 0) -> Input:
            """Find an input; a trace and its twin of the same name are distinguished by their files."""
            found = Input.of(name, seed, requests, self.reading)
            if sources_of.setdefault(found.name, found.source) != found.source:
                found = replace(found, name=f"{found.name} ({Path(name).name})")
            return found

        for name, seed in itertools.product(_resolved(self.inputs), self.seeds):
            source = find(name, seed)
            # A recording is the same for every seed.
            if source.synthetic or seed == self.seeds[0]:
                wanted.setdefault(source, []).append(Cell("profile", source, options=json.dumps(asked)))
        known: dict[str, tuple[str, str]] = {}
        count = 0
        for grid in self.grids:
            with self._naming(grid):
                parse_precondition(grid.precondition)
                stack(grid.layers, grid.layer_settings)
                for beside in filter(None, (grid.card, grid.second)):
                    Device.named(beside)
                hosted = {}
                if grid.runs_apps:
                    setup = setup_of(grid.host)
                    for network in grid.networks:
                        setup.check_network(network)
                    hosted = {"host": grid.host, "host_digest": digest_of(setup)}
                found_by = (
                    find_program
                    if grid.is_live
                    else find_workload
                    if grid.cuts_power
                    else find_app
                    if grid.runs_apps
                    else functools.partial(find, requests=grid.requests)
                )
                chosen = itertools.product(_resolved(grid.inputs or self.inputs), grid.seeds or self.seeds)
                sources = [found_by(name, seed) for name, seed in chosen]
            points = list(
                itertools.product(
                    grid.devices,
                    itertools.product(*grid.axes.values()),
                    grid.modes,
                    grid.routings or grid.file_systems or grid.networks or ("",),
                )
            )
            count += len(points) * len(sources)
            if count > MOST_CELLS:
                raise ConfigError(f"more than {MOST_CELLS:,} cells", kind="config", hint="take out an axis")
            for device, values, mode, variant in points:
                settings = json.dumps({**grid.set, **dict(zip(grid.axes, values, strict=True))})
                point = f"{device} {grid.capacity} {settings}"
                if point not in known:
                    with self._naming(grid):
                        made = Device.named(device)
                        if settings != "{}":
                            made = made.set(json.loads(settings))
                        if grid.capacity:
                            made = made.with_capacity(grid.capacity)
                    known[point] = (made.name, made.digest)
                options = {
                    "mode": mode,
                    "precondition": grid.precondition,
                    "rate": grid.rate,
                    "wrap_addresses": grid.wrap_addresses,
                }
                if grid.capacity:
                    options["capacity"] = grid.capacity
                if grid.card:
                    digest = Device.named(grid.card).digest
                    options |= {"card": grid.card, "card_digest": digest, "routing": variant}
                elif grid.cuts_power and self.cuts is not None:
                    options |= self.cuts.options(variant, grid.share)
                elif grid.runs_apps:
                    options |= {"network": variant, **hosted}
                else:
                    options |= asked
                if grid.layers:
                    options |= {
                        "layers": list(grid.layers),
                        "layer_settings": dict(grid.layer_settings),
                        "second": grid.second or None,
                        "first_writes": grid.first_writes,
                        "drain": grid.drain,
                    }
                # One text for all: a study may have a million cells.
                said = json.dumps(options)
                for source in sources:
                    wanted.setdefault(source, []).append(
                        Cell(grid.name, source, device, settings, *known[point], said)
                    )
        return [cell for cells in wanted.values() for cell in cells]

    @contextlib.contextmanager
    def _naming(self, grid: Grid) -> Iterator[None]:
        """Name file, grid and, where the message tells it, the key in errors about devices and settings."""
        try:
            yield
        except EmmclabError as error:
            said = str(error)
            tables = {"set": grid.set, "axes": grid.axes, "layer_settings": grid.layer_settings}
            keys = [
                f"{table}.{key}"
                for table, values in tables.items()
                for key in values
                if re.search(rf"(?<![\w.]){re.escape(key)}(?![\w.])", said)
            ]
            if error.field == "precondition":
                keys = ["precondition"]
            place = f"{grid.place}{keys[0]}" if keys else grid.place.rstrip(".")
            raise type(error)(
                f"{self.file}: grid `{grid.name}`: `{place}`: {said}",
                kind=error.kind,
                file=self.file,
                field=place,
                hint=error.hint,
                errno=error.errno,
            ) from error


def _resolved(names: Sequence[str]) -> list[str]:
    """Replace the words for groups by their members; each input once, in order."""
    return list(dict.fromkeys(one for name in names for one in GROUPS.get(name, [name])))


def _reading(read: _Table) -> dict[str, Setting]:
    """Read the options of reading; `emmclab.read` checks their values."""
    options: dict[str, Setting] = read.table("reading", (str, int, bool))
    for key in options:
        if key not in reading_options():
            near = difflib.get_close_matches(key, reading_options(), n=1)
            known = f"did you mean `{near[0]}`?" if near else f"choose one of: {', '.join(reading_options())}"
            raise read.fault(f"reading.{key}", "this is not an option of reading", known)
    return options


def _all_apps(read: _Table) -> bool:
    """Whether every grid runs applications, so that the study itself needs no inputs."""
    grids = read.tables("grid")
    return bool(grids) and all(APP in part.one("modes", (list, tuple), ()) for part in grids)


def _percentiles(read: _Table) -> tuple[float, ...]:
    """Read the percentiles that the results hold beside the usual ones."""
    try:
        return tuple(percentiles_of(read.one("percentiles", (list, tuple), ())))
    except ConfigError as error:
        raise read.fault("percentiles", str(error), error.hint or "") from error


def _programs(read: _Table) -> tuple[Program, ...]:
    """Read the programs of a live study, which share a file system and numbers."""
    parts = read.tables("program")
    if not parts:
        return ()
    shared = read.inner("live")
    scale = shared.one("scale", (int, float), 1.0)
    if not 0 < scale <= 1:
        raise shared.fault(
            "scale", f"{scale} is not a share of the numbers", "give a number above 0, at most 1"
        )
    # The one place where a study is made smaller.
    numbers = {key: max(1, round(value * scale)) for key, value in shared.table("numbers", int).items()}
    file_system = LiveFileSystem(
        format=shared.text("format"),
        mount_options=shared.text("mount_options", ""),
        dirty_mb=shared.one("dirty_mb", int, 0),
    )
    shared.done()
    made = []
    for part in parts:
        program = Program(
            name=part.text("name"),
            about=part.text("about", ""),
            run=part.text("run"),
            prepare=part.text("prepare", ""),
            needs=part.table("needs", str),
            numbers=numbers,
            file_system=file_system,
        )
        axes = {key: tuple(values) for key, values in part.table("each", list).items()}
        for key in (*numbers, *axes):
            if not key.isidentifier():
                raise part.fault("each", f"`{key}` is not a name of a variable", "use letters, digits and _")
        for values in axes.values():
            for value in values:
                if not (isinstance(value, int) or (isinstance(value, str) and value.isalnum())):
                    raise part.fault("each", f"`{value}` is not a number or a word", "use letters and digits")
        made += expanded(program, axes)
        part.done()
    names = [program.name for program in made]
    for name in names:
        if names.count(name) > 1:
            raise read.fault("program", f"there are two programs `{name}`", "name them apart")
    return tuple(made)


def _cuts(read: _Table) -> Cuts | None:
    """Read what all cells of a study of power cuts have in common."""
    if not read.has("cuts"):
        return None
    part = read.inner("cuts")
    named = part.inner("file_systems")
    file_systems = {}
    for name in named.names():
        how = named.inner(name)
        file_systems[name] = FileSystem(
            name,
            mkfs=how.many("mkfs", str, ()),
            mount=how.text("mount", ""),
            recovery=how.text("recovery", "process"),
            share=how.one("share", (int, float), 1.0),
        )
        if file_systems[name].recovery not in RECOVERIES:
            raise how.fault("recovery", "this is not a way of recovery", f"use {', '.join(RECOVERIES)}")
        how.done()
    found = Cuts(
        capacity=part.text("capacity"),
        operations=part.one("operations", int),
        cuts=part.one("cuts", int),
        states=part.text("states"),
        recovery_cuts=part.one("recovery_cuts", int, 0),
        file_systems=file_systems,
    )
    for key in ("operations", "cuts"):
        if getattr(found, key) < 1:
            raise part.fault(key, f"{getattr(found, key)} is too few", "give at least 1")
    part.done()
    return found


def _shared(read: _Table) -> dict[str, Any]:
    """Read what grids of every mode have."""
    return {
        "name": read.text("name"),
        "place": read.place,
        "devices": read.many("devices", str),
        "modes": read.many("modes", str, ("open",)),
        "seeds": read.many("seeds", int, ()),
        "axes": {key: tuple(values) for key, values in read.table("axes", list).items()},
        "set": read.table("set", (str, int, float, bool)),
        "layers": read.many("layers", str, ()),
        "layer_settings": read.table("layer_settings", (str, int, float, bool)),
    }


def _cuts_grid(read: _Table, cuts: Cuts | None) -> Grid:
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
        if not workload_programs.is_known(name):
            raise read.fault(
                "inputs",
                f"there is no workload `{name}`",
                f"choose one of: {', '.join(workload_programs.ABOUT)}",
            )
    read.done()
    return grid


def _app_grid(read: _Table) -> Grid:
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


def _live_grid(read: _Table) -> Grid:
    """Read a grid of served devices: requests come from programs, so nothing says how a trace is replayed."""
    grid = Grid(
        **_shared(read),
        inputs=read.many("inputs", str),
        precondition=read.text("precondition", "none"),
        second=read.text("second", ""),
    )
    read.done()
    return grid


def _grid(read: _Table, cuts: Cuts | None) -> Grid:
    modes = read.many("modes", str, ("open",))
    for alone in (_LIVE, CUTS, APP):
        if alone in modes and len(modes) > 1:
            raise read.fault(
                "modes", f"a grid of mode {alone} has no other", f'give it alone: `modes = ["{alone}"]`'
            )
    if modes == (_LIVE,):
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
        # `fold` is the deprecated name.
        wrap_addresses=read.one("wrap_addresses", bool, False) or read.one("fold", bool, False),
        capacity=read.text("capacity", ""),
        requests=read.one("requests", int, 0),
        card=read.text("card", ""),
        routings=read.many("routings", str, ()),
        second=read.text("second", ""),
        first_writes=read.one("first_writes", int, 0),
        drain=read.one("drain", bool, False),
    )
    for routing in grid.routings:
        parse_routing(routing)
    if bool(grid.card) != bool(grid.routings):
        raise read.fault("card", "a card and ways of sharing go together", 'as `routings = ["striping:64"]`')
    if grid.card and (grid.modes != ("open",) or grid.precondition != "none" or grid.rate != 1.0):
        raise read.fault(
            "card", "a device beside a card is new, in open loop at the recorded rate", "drop the rest"
        )
    for mode in grid.modes:
        if mode not in ("open", "closed", "back_to_back"):
            known = "use open, closed, back_to_back, live, cuts or app"
            raise read.fault("modes", f"there is no mode `{mode}`", known)
    if grid.requests < 0:
        raise read.fault(
            "requests",
            f"{grid.requests} requests are impossible",
            "give 1 or more, or 0 for the length of the input",
        )
    read.done()
    return grid


#: Hints by the type of a key, and of the elements of its list.
_FORMS = {
    str: 'write text: `{key} = "..."`',
    int: "write a number: `{key} = 1`",
    bool: "write `{key} = true` or `{key} = false`",
    list: 'write a list: `{key} = ["...", "..."]`',
    dict: "write a table: `[{key}]`",
}
_LISTS = {
    str: 'write a list of text: `{key} = ["...", "..."]`',
    int: "write a list of numbers: `{key} = [1, 2]`",
}


class _Table:
    """A TOML table being read; keys that are never asked for are unknown."""

    def __init__(self, table: dict[str, Any], file: str, place: str) -> None:
        self._table, self.file, self.place = table, file, place
        self._asked: list[str] = []

    def one(self, key: str, kind: Any, default: Any = None) -> Any:
        """Take a value of a type; `default` None means that it has to be there."""
        self._asked.append(key)
        if key not in self._table:
            if default is None:
                near = difflib.get_close_matches(key, self._table, n=1)
                said = f"there is `{near[0]}`; did you mean `{key}`?" if near else f"add `{key} = ...`"
                raise self.fault(key, "this key is missing", said)
            return default
        value = self._table[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            kinds = kind if isinstance(kind, tuple) else (kind,)
            raise self.fault(key, f"`{value}` is of the wrong type", _FORMS[kinds[0]].format(key=key))
        return value

    def has(self, key: str) -> bool:
        """Whether there is such a key."""
        return key in self._table

    def names(self) -> list[str]:
        """Give the keys, where each names something."""
        return list(self._table)

    def text(self, key: str, default: str | None = None) -> str:
        """Take a string."""
        return cast("str", self.one(key, str, default))

    def many(self, key: str, kind: type, default: tuple[Any, ...] | None = None) -> tuple[Any, ...]:
        """Take a list of a type, not empty."""
        values = self.one(key, (list, tuple), default)
        for value in values:
            if not isinstance(value, kind) or isinstance(value, bool):
                raise self.fault(key, f"`{value}` is of the wrong type", _LISTS[kind].format(key=key))
        if not values and default is None:
            raise self.fault(key, "this list is empty", "name at least one")
        return tuple(values)

    def table(self, key: str, kind: Any) -> dict[str, Any]:
        """Take a table whose values are of a type; lists in it are not empty."""
        table: dict[str, Any] = self.one(key, dict, {})
        for name, value in table.items():
            if not isinstance(value, kind) or value == []:
                hint = "see docs/guides/reproduce.md"
                if key in ("set", "axes"):
                    hint = "`[grid.axes]` has a list of values to try for each key, `[grid.set]` one value"
                raise self.fault(f"{key}.{name}", f"`{value}` is of the wrong type", hint)
        return table

    def tables(self, key: str) -> list[_Table]:
        """Take a list of tables; none is none."""
        parts = self.one(key, (list, tuple), ())
        for part in parts:
            if not isinstance(part, dict):
                raise self.fault(key, "this is not a table", f"write `[[{key}]]`")
        return [
            _Table(part, self.file, f"{self.place}{key}[{number}].") for number, part in enumerate(parts, 1)
        ]

    def inner(self, key: str) -> _Table:
        """Take a table that has to be there, with its own keys."""
        return _Table(self.one(key, dict), self.file, f"{self.place}{key}.")

    def done(self) -> None:
        """Refuse keys that were never asked for."""
        for key in self._table:
            if key not in self._asked:
                near = difflib.get_close_matches(key, self._asked, n=1)
                known = f"did you mean `{near[0]}`?" if near else f"known are: {', '.join(self._asked)}"
                raise self.fault(key, "there is no such key", known)

    def fault(self, key: str, problem: str, hint: str) -> ConfigError:
        """Make the error for a key."""
        return ConfigError(
            f"{self.file}: `{self.place}{key}`: {problem}",
            kind="config",
            file=self.file,
            field=f"{self.place}{key}",
            hint=hint,
        )
