"""Reads the definition of a study: TOML with inputs, and grids of devices, settings, modes and seeds."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from emmclab import _core
from emmclab.errors import ConfigError
from emmclab.runtime.files import read_text
from emmclab.runtime.lists import Names, several
from emmclab.runtime.toml_table import TomlTable
from emmclab.simulation.layers import Setting
from emmclab.studies.bundled import bundled, bundled_text
from emmclab.studies.cell import Cell
from emmclab.studies.expansion import expand
from emmclab.studies.folder_traces import FolderTraces, read_traces
from emmclab.studies.grid import Grid
from emmclab.studies.kinds import has_own_inputs, read_grid
from emmclab.studies.kinds.profile import PROFILE
from emmclab.studies.notebook import study_html
from emmclab.studies.power_cut_settings import Cuts, read_cuts
from emmclab.studies.program import Program, read_programs
from emmclab.studies.recordings import Recordings
from emmclab.studies.search_space import Space, read_space
from emmclab.traces.profile_options import percentiles_of
from emmclab.traces.reading import reading_options

#: Allowed names of studies, which are also names of folders and arguments; and of folders among results.
_NAME = re.compile(r"[^\W_][\w-]*")
_TAKEN = frozenset({"cells", "images", "crash", "running"})


@dataclass(frozen=True)
class Study:
    """Inputs, each profiled once, and grids of runs."""

    name: str
    about: str
    inputs: tuple[str, ...]
    grids: tuple[Grid, ...]
    seeds: tuple[int, ...] = (1,)
    #: Options of `emmclab.read` for recorded inputs.
    reading: Mapping[str, Setting] = field(default_factory=dict)
    #: Scripts that run on served devices: the inputs of grids whose mode is `live`.
    programs: tuple[Program, ...] = ()
    #: Settings shared by all grids whose mode is `cuts`.
    cuts: Cuts | None = None
    #: Additional percentiles of response times, ascending; they become columns of the results.
    percentiles: tuple[float, ...] = ()
    #: Recorded traces that replace its workloads.
    recordings: Recordings | None = None
    #: Recorded traces on which the study is based and that are not bundled with it.
    traces: FolderTraces | None = None
    #: What `emmclab search` may vary.
    search: Space | None = None
    file: str = ""
    #: SHA-256 of the definition, first 16 digits; spaces and comments do not matter.
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
                f"there is no study `{name}`", field="STUDY", hint=f"choose one of: {', '.join(bundled())}"
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
                f"{file}: {'lists in it are nested too deeply' if deep else error}",
                file=file,
                hint="correct the TOML; docs/guides/studies.md describes a study",
            ) from error
        _refuse_large_numbers(table, file, "")
        read = TomlTable(table, file, "")
        programs, cuts = read_programs(read), read_cuts(read)
        study = Study(
            name=read.text("name"),
            about=read.text("about", ""),
            inputs=read.many("inputs", str, () if programs or cuts or has_own_inputs(read) else None),
            programs=programs,
            cuts=cuts,
            seeds=read.many("seeds", int, (1,)),
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
        read.done()
        if not _NAME.fullmatch(study.name) or study.name in _TAKEN:
            raise ConfigError(
                f"{file}: `{study.name}` is not a valid name of a study",
                file=file,
                field="name",
                hint="use letters, digits, - and _, first a letter or digit"
                if study.name not in _TAKEN
                else f"choose another one: {', '.join(sorted(_TAKEN))} are folders of results themselves",
            )
        _refuse_negative_seeds(study)
        names = [grid.name for grid in study.grids]
        if PROFILE in names:
            raise ConfigError(
                f"{file}: `{PROFILE}` is not a valid name of a grid",
                file=file,
                field="grid",
                hint="choose another one: this is the name of the inputs' profiles",
            )
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(
                    f"{file}: there are two grids `{name}`", file=file, field="grid", hint="give each grid its own name"
                )
        return study

    def with_inputs(self, more: Names) -> Study:
        """Return the study with more inputs, such as traces that the reader of a paper has recorded."""
        return replace(self, inputs=(*self.inputs, *several(more)))

    def with_recordings(self, found: Recordings) -> Study:
        """Return the study with recorded traces, on which claims are judged instead of on workloads."""

        def more(grid: Grid) -> Grid:
            # The length of a recording cannot be changed.
            return grid if grid.requests else replace(grid, inputs=(*grid.inputs, *found.of(grid.inputs)))

        return replace(
            self,
            inputs=(*self.inputs, *found.of(self.inputs)),
            grids=tuple(more(grid) if grid.inputs else grid for grid in self.grids),
            recordings=found,
        )

    def with_traces(self, folder: str) -> Study:
        """Return the study with its recorded traces from a folder.

        Raises:
            ConfigError: the study needs no such traces, or the folder lacks a file.
        """
        if self.traces is None:
            raise ConfigError(
                f"{self.name} accepts no folder of traces",
                field="--traces",
                hint="add a trace of your own with --trace FILE",
            )
        found = replace(self.traces, folder=folder)
        found.refuse_missing()
        paths = found.paths()

        def placed(names: Sequence[str]) -> tuple[str, ...]:
            return tuple(paths.get(name, name) for name in names)

        grids = tuple(
            replace(
                grid,
                inputs=placed(grid.inputs),
                options={
                    name: paths.get(str(one), one) if name == "precondition" else one
                    for name, one in grid.options.items()
                },
                axes={
                    key: tuple(paths.get(str(one), one) for one in values) if key == "precondition" else values
                    for key, values in grid.axes.items()
                },
            )
            for grid in self.grids
        )
        return replace(self, inputs=placed(self.inputs), grids=grids, traces=found)

    def with_reading(self, options: Mapping[str, Setting]) -> Study:
        """Return the study with these options of `emmclab.read`, in addition to its own."""
        return replace(self, reading={**self.reading, **options})

    def with_scale(self, scale: float) -> Study:
        """Return the study with the number of power cuts multiplied in every cell.

        Raises:
            ConfigError: the scale is not above 0, or the study cuts no power.
        """
        if self.cuts is None:
            raise ConfigError(
                f"{self.name} cuts no power",
                field="scale",
                hint="use it with a study of power cuts, for example `emmclab run power-cuts`",
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
        """Expand the study into cells, input by input, so that each is prepared once; profiles come first.

        Raises:
            ConfigError: a device, setting or input is wrong, there are too many cells, or the folder of the
                recorded traces of the study was not given.
        """
        if self.traces is not None:
            self.traces.require(self.name)
        return expand(self)


def _refuse_large_numbers(value: object, file: str, place: str) -> None:
    """Reject whole numbers of more than 64 bits, which TOML does not support and no table can store.

    Raises:
        ConfigError: the value contains one.
    """
    if isinstance(value, dict):
        for name, inner in value.items():
            _refuse_large_numbers(inner, file, f"{place}.{name}" if place else name)
    elif isinstance(value, list):
        for inner in value:
            _refuse_large_numbers(inner, file, place)
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ConfigError(
            f"{file}: `{place}`: a number of {value.bit_length()} bits is too large",
            file=file,
            field=place,
            hint=f"give one up to {2**63 - 1}",
        )


def _refuse_negative_seeds(study: Study) -> None:
    """Reject negative seeds, which no generator supports.

    Raises:
        ConfigError: one is below 0.
    """
    for place, seeds in [("", study.seeds), *((grid.place, grid.seeds) for grid in study.grids)]:
        if seeds and min(seeds) < 0:
            raise ConfigError(
                f"{study.file}: `{place}seeds`: {min(seeds)} is below 0",
                file=study.file,
                field=f"{place}seeds",
                hint="give numbers of 0 or more",
            )


def _reading(read: TomlTable) -> dict[str, Setting]:
    """Read the options of reading; `emmclab.read` checks their values."""
    options: dict[str, Setting] = read.table("reading", (str, int, bool))
    for key in options:
        if key not in reading_options():
            near = _core.closest(key, list(reading_options()))
            known = f"did you mean `{near}`?" if near else f"choose one of: {', '.join(reading_options())}"
            raise read.fault(f"reading.{key}", "this is not an option of reading", known)
    return options


def _percentiles(read: TomlTable) -> tuple[float, ...]:
    """Read the additional percentiles for the results."""
    try:
        return tuple(percentiles_of(read.value("percentiles", (list, tuple), ())))
    except ConfigError as error:
        raise read.fault("percentiles", str(error), error.hint or "") from error
