"""Definition of a study: a TOML file of inputs and of grids of devices, settings, modes and seeds."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from emmclab.devices.layers import Setting
from emmclab.errors import ConfigError
from emmclab.runtime.files import read_text
from emmclab.runtime.toml_table import TomlTable
from emmclab.studies.bundled import bundled, bundled_text
from emmclab.studies.cell import Cell
from emmclab.studies.cuts import Cuts, read_cuts
from emmclab.studies.expansion import expand
from emmclab.studies.folder_traces import FolderTraces, read_traces
from emmclab.studies.grid import Grid
from emmclab.studies.kinds import has_own_inputs, read_grid
from emmclab.studies.kinds.profile import PROFILE
from emmclab.studies.notebook import study_html
from emmclab.studies.program import Program, read_programs
from emmclab.studies.recordings import Recordings
from emmclab.studies.space import Space, read_space
from emmclab.traces.profile_options import percentiles_of
from emmclab.traces.reading import reading_options

#: The name of a study, which is a folder's and an argument's; and names of folders within those of results.
_NAME = re.compile(r"[^\W_][\w-]*")
_TAKEN = frozenset({"cells", "images", "crash", "running"})


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
    #: Recorded traces that take the place of its workloads.
    recordings: Recordings | None = None
    #: Recorded traces that it is of and that do not come with it.
    traces: FolderTraces | None = None
    #: What `emmclab search` may choose.
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
        except (ValueError, RecursionError) as error:
            deep = isinstance(error, RecursionError)
            raise ConfigError(
                f"{file}: {'lists in it lie too deep in each other' if deep else error}",
                kind="config",
                file=file,
                hint="correct the TOML; docs/guides/reproduce.md describes a study",
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
            definition=hashlib.sha256(json.dumps(table, sort_keys=True, default=str).encode()).hexdigest()[
                :16
            ],
        )
        if read.has("search"):
            by_name = {grid.name: grid for grid in study.grids}
            study = replace(study, search=read_space(read.inner("search"), by_name))
        read.done()
        if not _NAME.fullmatch(study.name) or study.name in _TAKEN:
            raise ConfigError(
                f"{file}: `{study.name}` is not a valid name of a study",
                kind="config",
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
                kind="config",
                file=file,
                field="grid",
                hint="choose another one: the profiles of the inputs are called so",
            )
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

    def with_recordings(self, found: Recordings) -> Study:
        """Add recorded traces, on which claims are judged in the place of workloads."""

        def more(grid: Grid) -> Grid:
            # A recording cannot be made longer or shorter.
            return grid if grid.requests else replace(grid, inputs=(*grid.inputs, *found.of(grid.inputs)))

        return replace(
            self,
            inputs=(*self.inputs, *found.of(self.inputs)),
            grids=tuple(more(grid) if grid.inputs else grid for grid in self.grids),
            recordings=found,
        )

    def with_traces(self, folder: str) -> Study:
        """Take the recorded traces that the study is of from a folder.

        Raises:
            ConfigError: the study has its own inputs alone, or the folder lacks a file.
        """
        if self.traces is None:
            raise ConfigError(
                f"{self.name} takes no folder of traces",
                kind="config",
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
                precondition=paths.get(grid.precondition, grid.precondition),
                axes={
                    key: tuple(paths.get(str(one), one) for one in values)
                    if key == "precondition"
                    else values
                    for key, values in grid.axes.items()
                },
            )
            for grid in self.grids
        )
        return replace(self, inputs=placed(self.inputs), grids=grids, traces=found)

    def with_reading(self, options: Mapping[str, Setting]) -> Study:
        """Read recorded inputs with these options of `emmclab.read`, beside those of the study itself."""
        return replace(self, reading={**self.reading, **options})

    def with_scale(self, scale: float) -> Study:
        """Cut power this many times as often in every cell.

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
        """Return these percentiles of response times too, beside those of the study itself.

        Raises:
            ConfigError: one is not a number above 0 and up to 100.
        """
        more = percentiles_of(percentiles)
        return replace(self, percentiles=tuple(percentiles_of([*self.percentiles, *more])))

    def cells(self) -> list[Cell]:
        """Expand into cells, input by input, so that an input is prepared once; profiles come first.

        Raises:
            ConfigError: a device, setting or input is wrong, there are too many cells, or the folder of the
                recorded traces that the study is of was not named.
        """
        if self.traces is not None:
            self.traces.require(self.name)
        return expand(self)


def _refuse_large_numbers(value: object, file: str, place: str) -> None:
    """Refuse whole numbers of more than 64 bits, which TOML does not have and no table holds.

    Raises:
        ConfigError: there is one.
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
            kind="config",
            file=file,
            field=place,
            hint=f"give one up to {2**63 - 1}",
        )


def _refuse_negative_seeds(study: Study) -> None:
    """Refuse seeds that no generator takes.

    Raises:
        ConfigError: one is below 0.
    """
    for place, seeds in [("", study.seeds), *((grid.place, grid.seeds) for grid in study.grids)]:
        if seeds and min(seeds) < 0:
            raise ConfigError(
                f"{study.file}: `{place}seeds`: {min(seeds)} is below 0",
                kind="config",
                file=study.file,
                field=f"{place}seeds",
                hint="give numbers from 0 on",
            )


def _reading(read: TomlTable) -> dict[str, Setting]:
    """Read the options of reading; `emmclab.read` checks their values."""
    options: dict[str, Setting] = read.table("reading", (str, int, bool))
    for key in options:
        if key not in reading_options():
            near = difflib.get_close_matches(key, reading_options(), n=1)
            known = f"did you mean `{near[0]}`?" if near else f"choose one of: {', '.join(reading_options())}"
            raise read.fault(f"reading.{key}", "this is not an option of reading", known)
    return options


def _percentiles(read: TomlTable) -> tuple[float, ...]:
    """Read the percentiles that the results hold beside the usual ones."""
    try:
        return tuple(percentiles_of(read.one("percentiles", (list, tuple), ())))
    except ConfigError as error:
        raise read.fault("percentiles", str(error), error.hint or "") from error
