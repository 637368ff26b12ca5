"""Reads the definition of a study (TOML with inputs, and grids of settings, modes, seeds), and lists its cells."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from emmclab import _core
from emmclab.errors import ConfigError, EmmclabError
from emmclab.runtime.document import TextTable, heading_html, pairs_html, table_html
from emmclab.runtime.files import printable, read_text
from emmclab.runtime.lists import Names, several
from emmclab.runtime.toml_table import TomlTable
from emmclab.simulation.device import Device
from emmclab.simulation.layers import Setting, settings_of, stack
from emmclab.simulation.run_options import RUN_OPTIONS, parse_precondition, split_precondition
from emmclab.studies.bundled import bundled, bundled_text
from emmclab.studies.cell import Cell
from emmclab.studies.grid import AXES, Grid, Space, read_space
from emmclab.studies.input import Input, Recordings, Sources
from emmclab.studies.kinds import PROFILE, Common, has_own_inputs, kind_of_modes, read_grid
from emmclab.studies.power_cut_settings import Cuts, read_cuts
from emmclab.studies.program import Program, read_programs
from emmclab.studies.stored_types import CellOptions
from emmclab.traces.profile_options import percentiles_of
from emmclab.traces.reading import reading_options
from emmclab.traces.workload import workload_groups

#: Allowed names of studies, which are also used as folder names.
_NAME = re.compile(r"[^\W_][\w-]*")
_TAKEN = frozenset({"cells", "images", "crash", "running"})


@dataclass(frozen=True)
class Study:
    """A study: inputs, each profiled once, and grids of runs."""

    name: str
    about: str
    inputs: tuple[str, ...]
    grids: tuple[Grid, ...]
    seeds: tuple[int, ...] = (1,)
    #: Options of `emmclab.read` with which recorded inputs are read.
    reading: Mapping[str, Setting] = field(default_factory=dict)
    #: Programs that run on simulated devices which are served as block devices: inputs for the mode `live`.
    programs: tuple[Program, ...] = ()
    #: Settings shared by all grids whose mode is `cuts`.
    cuts: Cuts | None = None
    #: Additional percentiles of response times, ascending; they become columns of the results.
    percentiles: tuple[float, ...] = ()
    #: Recorded traces that replace workloads of the study.
    recordings: Recordings | None = None
    #: Recorded traces on which the study is based and that are not bundled with the study.
    traces: FolderTraces | None = None
    #: Settings and bounds for `emmclab search`.
    search: Space | None = None
    file: str = ""
    #: First 16 digits of the SHA-256 of the study's definition; spaces and comments do not affect it.
    definition: str = ""

    def __repr__(self) -> str:
        return f"<Study {self.name!r}: {len(self.inputs)} inputs, {len(self.grids)} grids>"

    def _repr_html_(self) -> str:
        return study_html(self)

    @staticmethod
    def named(name: str) -> Study:
        """Return a bundled study by its name, or read a file by its path (ending in `.toml`)."""
        if name.endswith(".toml") or "/" in name:
            return Study.parse(read_text(name), name)
        if name not in bundled():
            raise ConfigError(
                f"there is no study `{name}`", field="STUDY", hint=f"choose one of the studies: {', '.join(bundled())}"
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
        except (ValueError, RecursionError) as error:
            deep = isinstance(error, RecursionError)
            raise ConfigError(
                f"{'lists in the study are nested too deeply' if deep else error}",
                hint="correct the TOML; docs/guides/studies.md describes the file of a study",
            ).in_file(file) from error
        _refuse_large_numbers(table, file, "")
        table = _with_defaults(table, file)
        read = TomlTable(table, file, "")
        programs, cuts = read_programs(read), read_cuts(read)
        study = Study(
            name=read.text("name"),
            about=read.text("about", ""),
            inputs=read.alternatives("inputs", str, () if programs or cuts or has_own_inputs(read) else None),
            programs=programs,
            cuts=cuts,
            seeds=read.alternatives("seeds", int, (1,)),
            grids=tuple(read_grid(part, cuts) for part in read.tables("grid")),
            reading=_reading(read),
            percentiles=_percentiles(read),
            traces=read_traces(read),
            file=file,
            definition=hashlib.sha256(json.dumps(table, sort_keys=True, default=str).encode()).hexdigest()[:16],
        )
        if read.has("search"):
            by_name = {grid.name: grid for grid in study.grids}
            study = replace(study, search=read_space(read.inner("search"), by_name))
        read.reject_unknown()
        if not _NAME.fullmatch(study.name) or study.name in _TAKEN:
            raise ConfigError(
                f"`{study.name}` is not a valid name of a study",
                field="name",
                hint="use letters, digits, - and _, first a letter or digit"
                if study.name not in _TAKEN
                else f"choose another one: {', '.join(sorted(_TAKEN))} are folders of results themselves",
            ).in_file(file)
        _refuse_negative_seeds(study)
        names = [grid.name for grid in study.grids]
        if PROFILE in names:
            raise ConfigError(
                f"`{PROFILE}` is not a valid name of a grid",
                field="grid",
                hint="choose another name for this grid: emmclab uses the name for the profiles of the inputs",
            ).in_file(file)
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(
                    f"there are two grids `{name}`", field="grid", hint="give each grid its own name"
                ).in_file(file)
        return study

    def with_inputs(self, more: Names) -> Study:
        """Return the study with additional inputs, such as the user's own recordings."""
        return replace(self, inputs=(*self.inputs, *several(more)))

    def with_recordings(self, recordings: Recordings) -> Study:
        """Return the study with recorded traces, which replace synthetic workloads in the verdicts on claims."""

        def more(grid: Grid) -> Grid:
            # A grid that sets the number of requests gets no recordings, because a recording has a fixed length.
            return grid if grid.requests else replace(grid, inputs=(*grid.inputs, *recordings.of(grid.inputs)))

        return replace(
            self,
            inputs=(*self.inputs, *recordings.of(self.inputs)),
            grids=tuple(more(grid) if grid.inputs else grid for grid in self.grids),
            recordings=recordings,
        )

    def with_traces(self, folder: str) -> Study:
        """Return the study with its recorded traces, read from a folder.

        Raises:
            ConfigError: the study needs no recorded traces, or the folder lacks a file.
        """
        if self.traces is None:
            raise ConfigError(
                f"{self.name} accepts no folder of traces",
                field="--traces",
                hint="add a trace of your own with --trace FILE",
            )
        traces = replace(self.traces, folder=folder)
        traces.refuse_missing()
        grids = [placed for grid in self.grids for placed in _placed(grid, traces)]
        inputs = [paths.get(name, name) for paths in traces.sets() for name in self.inputs]
        return replace(self, inputs=tuple(dict.fromkeys(inputs)), grids=tuple(grids), traces=traces)

    def with_reading(self, options: Mapping[str, Setting]) -> Study:
        """Return the study with these options for reading traces, in addition to its own."""
        return replace(self, reading={**self.reading, **options})

    def with_scale(self, scale: float) -> Study:
        """Return the study with the number of power cuts multiplied in every cell.

        Raises:
            ConfigError: the scale is not above 0, or the study cuts no power.
        """
        if self.cuts is None:
            raise ConfigError(
                f"{self.name} is not a study of power cuts",
                field="scale",
                hint="use the option with a study of power cuts, for example `emmclab run power-cuts`",
            )
        return replace(self, cuts=self.cuts.scaled(scale))

    def with_percentiles(self, percentiles: Iterable[float] | str | None) -> Study:
        """Return the study with these additional percentiles of response times.

        Raises:
            ConfigError: one is not a number above 0 and up to 100.
        """
        more = percentiles_of(percentiles)
        return replace(self, percentiles=tuple(percentiles_of([*self.percentiles, *more])))

    def cells(self) -> list[Cell]:
        """Return the cells (units of work) of the study, grouped by input so that each input is prepared once.

        In each group, the profile of the input comes first.

        Raises:
            ConfigError: a device, setting or input is wrong, there are too many cells, or the folder of the recorded
                traces of the study was not given.
        """
        if self.traces is not None:
            self.traces.require(self.name)
        return _expand(self)


def _with_defaults(table: dict[str, Any], file: str) -> dict[str, Any]:
    """Add the keys of the table `defaults` to each grid of the study; keys of the grid itself have priority."""
    read = TomlTable(table, file, "")
    defaults, grids = read.value("defaults", dict, {}), read.value("grid", list, [])
    if not defaults:
        return table
    filled = [{**defaults, **grid} if isinstance(grid, dict) else grid for grid in grids]
    return {key: value for key, value in table.items() if key != "defaults"} | {"grid": filled}


def _refuse_large_numbers(value: object, file: str, place: str) -> None:
    """Reject integers of more than 64 bits, which TOML does not support and no table can store."""
    if isinstance(value, dict):
        for name, inner in value.items():
            _refuse_large_numbers(inner, file, f"{place}.{name}" if place else name)
    elif isinstance(value, list):
        for inner in value:
            _refuse_large_numbers(inner, file, place)
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ConfigError(
            f"`{place}`: a number of {value.bit_length()} bits is too large",
            field=place,
            hint=f"give a number up to {2**63 - 1}",
        ).in_file(file)


def _refuse_negative_seeds(study: Study) -> None:
    """Reject negative seeds, which no generator supports."""
    for place, seeds in [("", study.seeds), *((grid.place, grid.seeds) for grid in study.grids)]:
        if seeds and min(seeds) < 0:
            raise ConfigError(
                f"`{place}seeds`: {min(seeds)} is below 0", field=f"{place}seeds", hint="give seeds of 0 or more"
            ).in_file(study.file)


def _reading(read: TomlTable) -> dict[str, Setting]:
    """Read the options for reading traces from a study file; `emmclab.read` checks their values."""
    options: dict[str, Setting] = read.table("reading", (str, int, bool))
    for key in options:
        if key not in reading_options():
            near = _core.closest(key, list(reading_options()))
            hint = f"did you mean `{near}`?" if near else f"choose one of: {', '.join(reading_options())}"
            raise read.fault(f"reading.{key}", "this is not an option of reading", hint)
    return options


def _percentiles(read: TomlTable) -> tuple[float, ...]:
    """Read from a study file which additional percentiles the results contain."""
    try:
        return tuple(percentiles_of(read.value("percentiles", (list, tuple), ())))
    except ConfigError as error:
        raise read.fault("percentiles", str(error), error.hint or "") from error


#: Words that stand for groups of inputs in the definition of a study.
GROUPS = workload_groups()
#: Maximum number of cells of a study; a larger study is probably a mistake, and is refused.
MOST_CELLS = 1_000_000


def _expand(study: Study) -> list[Cell]:
    """Return the cells (units of work) of a study, grouped by input so that each input is prepared once.

    In each group, the profile of the input comes first.
    """
    _refuse_too_many(study)
    sources = Sources(study.reading, {program.name: program for program in study.programs})
    percentiles: CellOptions = {"percentiles": list(study.percentiles)} if study.percentiles else {}
    common = Common(study.cuts, percentiles)
    by_input: dict[Input, list[Cell]] = {}
    for source in _profiled(study, sources):
        by_input.setdefault(source, []).append(Cell(PROFILE, source, options=json.dumps(common.percentiles)))
    devices: dict[str, tuple[str, str]] = {}
    for grid in study.grids:
        kind = kind_of_modes(grid.modes)
        with _naming(study.file, grid):
            inputs = _inputs(study, grid, sources)
        for case, shared in _by_options(study.file, grid):
            for device, values, mode, variant in _points(case):
                of_layers = settings_of(case.layers, values)
                settings = {key: value for key, value in values.items() if key not in of_layers}
                changes = json.dumps(settings)
                point = f"{device} {case.capacity} {changes}"
                if point not in devices:
                    with _naming(study.file, grid):
                        devices[point] = _name_and_digest(device, settings, case.capacity)
                options: CellOptions = {
                    "mode": mode,
                    **shared,
                    **kind.variant_options(case, variant, common),
                    **_layer_options(case, of_layers),
                }
                # All cells with the same options share one string to save memory. A study may have a million cells.
                text = json.dumps(options)
                for source in inputs:
                    by_input.setdefault(source, []).append(
                        Cell(case.name, source, device, changes, *devices[point], text)
                    )
    return [cell for cells in by_input.values() for cell in cells]


def _refuse_too_many(study: Study) -> None:
    """Reject a study with too many cells before any is created; a short file can define more than fit into memory."""
    counts = {}
    for grid in study.grids:
        ways = [grid.devices, *grid.axes.values(), grid.modes, kind_of_modes(grid.modes).variants(grid)]
        sources = [_resolved(grid.inputs or study.inputs), grid.seeds or study.seeds]
        counts[grid.name] = math.prod(map(len, [*ways, *sources]))
    profiled = (name.partition(" --only ")[0] for name in _resolved(study.inputs))
    # A recorded input is profiled once, because it does not depend on the seed. A synthetic input is profiled once for
    # each seed.
    counts[PROFILE] = sum(
        1 if Path(name).is_file() and not name.endswith(".toml") else len(study.seeds) for name in profiled
    )
    total = sum(counts.values())
    if total > MOST_CELLS:
        largest = max(counts, key=lambda name: counts[name])
        raise ConfigError(
            f"{study.file or study.name}: this study has {total:,} cells, more than {MOST_CELLS:,}",
            file=study.file or None,
            field="grid",
            hint=f"remove axes, values or seeds: `{largest}` alone has {counts[largest]:,} cells",
        )


def _profiled(study: Study, sources: Sources) -> Iterator[Input]:
    """Yield the inputs that are profiled, except job files; a recorded trace once, independent of the seeds."""
    first, *others = study.seeds
    for name in _resolved(study.inputs):
        source = sources.trace(name, first)
        if source.is_job_file():
            continue
        yield source
        if source.synthetic:
            yield from (sources.trace(name, seed) for seed in others)


def _inputs(study: Study, grid: Grid, sources: Sources) -> list[Input]:
    """Return the inputs of a study's grid: each input once for each seed."""
    kind = kind_of_modes(grid.modes)
    names = _resolved(grid.inputs or study.inputs)
    pairs = itertools.product(names, grid.seeds or study.seeds)
    return [kind.input(name, seed, grid, sources) for name, seed in pairs]


def _resolved(names: Sequence[str]) -> list[str]:
    """Replace the names of groups of inputs by their members; return each input once, in order."""
    return list(dict.fromkeys(member for name in names for member in GROUPS.get(name, [name])))


def _check(grid: Grid) -> None:
    """Raise an error if the preconditioning, a layer or the second device of a study grid is invalid."""
    parse_precondition(grid.option("precondition"))
    stack(grid.layers, grid.layer_settings)
    if second := grid.option("second"):
        Device.named(second)


def _by_options(file: str, grid: Grid) -> Iterator[tuple[Grid, CellOptions]]:
    """Yield a copy of `grid` and the options of its runs, for each combination of the run options that it varies."""
    for case in grid.by_options():
        with _naming(file, grid):
            _check(case)
            shared: CellOptions = {**_shared_options(case), **kind_of_modes(case.modes).grid_options(case)}
        yield case, shared


def _points(grid: Grid) -> Iterator[tuple[str, dict[str, Setting], str, str]]:
    """Yield the points of a grid: device, settings, replay mode, and variant (file system or network)."""
    variants = kind_of_modes(grid.modes).variants(grid)
    for device, values, mode, variant in itertools.product(
        grid.devices, itertools.product(*grid.axes.values()), grid.modes, variants
    ):
        yield device, {**grid.set, **dict(zip(grid.axes, values, strict=True))}, mode, variant


def _name_and_digest(device: str, settings: Mapping[str, Setting], capacity: str) -> tuple[str, str]:
    configured = Device.named(device)
    if settings:
        configured = configured.set(settings)
    if capacity:
        configured = configured.with_capacity(capacity)
    return configured.name, configured.digest


def _shared_options(grid: Grid) -> CellOptions:
    """Return the options that cells of all kinds have.

    These are the options that are always stored, and all options that differ from their defaults.
    """
    run_options = {name: RUN_OPTIONS[name] for name in sorted(AXES) if RUN_OPTIONS[name].panel != "Layers"}
    options = {name: grid.option(name) for name, option in run_options.items() if option.stored == "always"}
    options |= {name: grid.option(name) for name in run_options if grid.option(name) != AXES[name]}
    return {**options, "capacity": grid.capacity} if grid.capacity else options


def _layer_options(grid: Grid, settings: Mapping[str, Setting]) -> CellOptions:
    """Return the layer options of a grid; `settings` are added to the layer settings of the grid."""
    if not grid.layers:
        return {}
    return {
        "layers": list(grid.layers),
        "layer_settings": {**grid.layer_settings, **settings},
        "second": grid.option("second") or None,
        **{name: grid.option(name) for name in AXES if RUN_OPTIONS[name].panel == "Layers" and name != "second"},
    }


@contextlib.contextmanager
def _naming(file: str, grid: Grid) -> Iterator[None]:
    """Add the study file, the grid and, if possible, the key to the message of an error about a device or setting."""
    try:
        yield
    except EmmclabError as error:
        message = str(error)
        tables = {"set": grid.set, "axes": grid.axes, "layer_settings": grid.layer_settings}
        keys = [
            f"{table}.{key}"
            for table, values in tables.items()
            for key in values
            if re.search(rf"(?<![\w.]){re.escape(key)}(?![\w.])", message)
        ]
        if error.field is not None and error.field in AXES:
            keys = [f"axes.{error.field}" if error.field in grid.axes else error.field]
        place = f"{grid.place}{keys[0]}" if keys else grid.place.rstrip(".")
        raise type(error)(
            f"{file}: grid `{grid.name}`: `{place}`: {message}",
            kind=error.kind,
            file=file,
            field=place,
            hint=error.hint,
            errno=error.errno,
        ) from error


@dataclass(frozen=True)
class FolderTraces:
    """The recorded traces of a study: file names, source, and folder (empty until the user gives it).

    The first `*` of a name stands for a word that names a set of files, such as `NAME_exec.csv` and `NAME_precond.csv`;
    a further one for any text. The folder may have any number of sets. A study without `*` needs exactly its files.
    """

    files: tuple[str, ...]
    source: str
    folder: str = ""

    def _found(self) -> dict[str, dict[str, str]]:
        """Return the paths of the files by their names in the study, for each word that `*` stands for."""
        found: dict[str, dict[str, str]] = {}
        for name in self.files:
            pattern = re.compile(re.escape(name).replace(r"\*", "(.+)", 1).replace(r"\*", ".*"))
            for file in sorted(Path(self.folder).iterdir()):
                if (match := pattern.fullmatch(file.name)) and file.is_file():
                    found.setdefault("".join(match.groups()), {}).setdefault(name, str(file))
        return found

    def sets(self) -> list[dict[str, str]]:
        """Return the paths of the files by their names in the study, for each complete set of the folder."""
        return [paths for _, paths in sorted(self._found().items()) if len(paths) == len(self.files)]

    def left_out(self) -> dict[str, list[str]]:
        """Return the files of incomplete sets, each with the names of the files that their set lacks."""
        return {
            Path(path).name: [name.replace("*", word, 1) for name in self.files if name not in paths]
            for word, paths in sorted(self._found().items())
            if len(paths) < len(self.files)
            for path in paths.values()
        }

    def require(self, study: str) -> None:
        """Raise an error if the folder of the study's recorded traces was not given.

        Raises:
            ConfigError: the folder was not given.
        """
        if not self.folder:
            raise ConfigError(
                f"{study} needs recorded traces that do not come with emmclab: {', '.join(self.files)}",
                field="--traces",
                hint=f"get the traces ({self.source}) and give their folder: `emmclab reproduce {study} --traces DIR`",
            )

    def refuse_missing(self) -> None:
        """Raise an error if the folder has no complete set of recorded traces.

        Raises:
            ConfigError: there is no such folder, or it lacks files.
        """
        folder = Path(self.folder)
        if not folder.is_dir():
            message = f"{printable(folder)}: folder not found"
        elif not self.sets():
            lacking = dict.fromkeys(name for names in self.left_out().values() for name in names)
            message = f"{printable(folder)}: {', '.join(lacking or self.files)} not found in this folder"
        else:
            return
        raise ConfigError(
            message, file=printable(folder), field="--traces", hint=f"name the folder of these traces: {self.source}"
        )


def _placed(grid: Grid, traces: FolderTraces) -> list[Grid]:
    """Return a grid for each set of the recorded traces of a study, with the paths of its files; equal ones once."""

    def placed(value: Setting, paths: Mapping[str, str]) -> Setting:
        before, name = split_precondition(str(value))
        return before + paths[name] if name in paths else value

    return list(
        {
            repr(changed): changed
            for paths in traces.sets()
            for changed in [
                replace(
                    grid,
                    inputs=tuple(paths.get(name, name) for name in grid.inputs),
                    options={key: placed(value, paths) for key, value in grid.options.items()},
                    axes={
                        key: tuple(placed(value, paths) for value in values) if key == "precondition" else values
                        for key, values in grid.axes.items()
                    },
                )
            ]
        }.values()
    )


def read_traces(read: TomlTable) -> FolderTraces | None:
    """Read the table `traces` of a study; None if there is none."""
    if not read.has("traces"):
        return None
    inner = read.inner("traces")
    traces = FolderTraces(files=inner.alternatives("files", str), source=inner.text("from"))
    inner.reject_unknown()
    return traces


def study_html(study: Study) -> str:
    """Return a study's grids as an HTML table: inputs, devices, varied settings and seeds."""
    rows = []
    for grid in study.grids:
        axes = [f"{key} = {', '.join(map(str, values))}" for key, values in grid.axes.items()]
        seeds = ", ".join(map(str, grid.seeds or study.seeds))
        rows.append([grid.name, ", ".join(grid.devices), "; ".join(axes) or "–", ", ".join(grid.modes), seeds])
    facts = [("about", study.about or "–"), ("inputs", ", ".join(study.inputs))]
    headings = ["grid", "devices", "settings", "modes", "seeds"]
    return heading_html("Study", study.name) + pairs_html(facts) + table_html(TextTable("", headings, rows, words=5))
