"""The kinds of study cells: how their grids are read and expanded, how a cell runs, and the tables of its results.

The modes of a grid determine its kind. Profiles of inputs are cells without a grid.
"""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple, cast

import msgspec

from emmclab import _core
from emmclab.apps.closed_loop import PRECONDITION, host_for, program_of, run_application
from emmclab.crash import workloads
from emmclab.crash.explore import Exploration, Options
from emmclab.crash.promises import COMMANDS, LEVELS
from emmclab.crash.recording import Workload
from emmclab.crash.scratch_folders import exit_on_sigterm, scratch
from emmclab.crash.stored_log import Session, StoredLog, explore_in_parallel
from emmclab.crash.summary import finding_fields
from emmclab.errors import ConfigError, EmmclabError, UnsupportedError
from emmclab.live.serve import require_loop, require_tools
from emmclab.runtime.document import Row
from emmclab.runtime.toml_table import TomlTable
from emmclab.simulation.device import Device, setup_of
from emmclab.simulation.layers import Setting
from emmclab.simulation.result import Result
from emmclab.simulation.run_options import RunOptions
from emmclab.studies.flatten import flat, percentile_columns, with_settings
from emmclab.studies.grid import AXES, FILES, REPLAYS, Grid, shared_fields
from emmclab.studies.input import Input, Sources, open_cached
from emmclab.studies.power_cut_settings import (
    DOCUMENTED,
    KEPT,
    LOST,
    RULE,
    CutOptions,
    CutResult,
    Cuts,
    FirstLoss,
    host,
    workload_digest,
)
from emmclab.studies.program import Program, ServedOptions, require, run_program
from emmclab.studies.stored_types import CellFields, CellOptions, ImageOptions

#: Name of the table of runs on simulated or served devices.
RUNS = "runs"


class Images(NamedTuple):
    """A folder of preconditioned devices that study cells share, and its maximum size in bytes; 0 stores none."""

    folder: Path
    limit: int
    #: Folder for the logs of power-cut tests.
    logs: Path | None = None

    @property
    def options(self) -> ImageOptions:
        """The options of a run that make it use this folder of preconditioned devices."""
        return {"images": self.folder, "images_limit": self.limit} if self.limit else {}


class Common(NamedTuple):
    """Settings that all cells of a study share: power-cut settings, and `percentiles` if it is set."""

    cuts: Cuts | None
    percentiles: CellOptions


@dataclass(frozen=True)
class Work:
    """What a study cell runs: the input, the options with local paths of files, and the device."""

    input: Input
    options: CellOptions
    #: Options with the original file paths of the study, instead of paths of local copies.
    parts: CellOptions
    #: Function that creates the device of the cell.
    device: Callable[[], Device]
    images: Images | None

    @property
    def image_options(self) -> ImageOptions:
        """Run options with which cells share preconditioned devices; empty if this cell does not share them."""
        return {} if self.images is None else self.images.options


class CellKind(ABC):
    """A kind of study cell."""

    #: Names of the tables with the results; the first table has a row for each cell.
    tables: tuple[str, ...]
    #: Whether the results depend on the kernel and the tools of the machine on which a run of the study takes place.
    is_of_machine = False

    @abstractmethod
    def run(self, work: Work) -> Mapping[str, object]:
        """Return the result of a cell; its form depends on the kind."""

    @abstractmethod
    def rows(self, cell: CellFields, result: Row) -> Iterator[tuple[str, Row]]:
        """Yield the table rows of a result, each with the name of its table; that of the whole result is first."""

    def require(self, inputs: Sequence[Input]) -> None:  # noqa: B027 - most kinds need nothing.
        """Reject cells with these inputs if this machine cannot run them.

        Raises:
            UnsupportedError: no root, FUSE or loop devices, or a tool is missing.
        """


class GridKind(CellKind):
    """A kind of study cell (a single run) that a grid of the study defines: by default a run on a device."""

    #: Modes that a study file can specify for this kind of grid.
    modes: tuple[str, ...]
    tables = (RUNS,)
    #: Whether grids of this kind list their own inputs. Other grids use the inputs of the study.
    has_own_inputs = False

    @abstractmethod
    def read(self, read: TomlTable, cuts: Cuts | None) -> Grid:
        """Read a grid (a set of runs with varied settings) from a study file.

        `cuts` are the power-cut settings that all grids of the study share.

        Raises:
            ConfigError: a key is unknown, missing or wrong.
        """

    @abstractmethod
    def input(self, name: str, seed: int, grid: Grid, sources: Sources) -> Input:
        """Find an input of a grid.

        Raises:
            ConfigError: there is no input of this name.
        """

    def variants(self, grid: Grid) -> tuple[str, ...]:  # noqa: ARG002
        """Return the names of the grid's variants, such as file systems; these are varied besides devices and axes."""
        return ("",)

    def grid_options(self, grid: Grid) -> CellOptions:  # noqa: ARG002
        """Return the options that this kind adds to all runs of a study grid.

        Raises:
            ConfigError: the grid contains an option that none of its runs could use.
        """
        return {}

    def variant_options(self, grid: Grid, variant: str, common: Common) -> CellOptions:  # noqa: ARG002
        """Return the options of the study cells of one variant of a grid."""
        chosen = common.percentiles.get("percentiles")
        return {"percentiles": chosen} if chosen else {}

    def rows(self, cell: CellFields, result: Row) -> Iterator[tuple[str, Row]]:
        """Yield the row of a run for the table `runs`."""
        row = flat({**result, **cell}, is_run=True) | percentile_columns(result.get("percentiles", ()))
        yield RUNS, with_settings(row, cell)


#: Name that replaces the grid name for cells that profile inputs.
PROFILE = "profile"
#: Figures of profiles that are stored in tables of their own.
_FIGURES = (
    "throughput_by_size",
    "size_distribution",
    "response_distribution",
    "inter_arrival_distribution",
    "reuse_distance",
)


class Profiles(CellKind):
    """The kind of study cell that profiles an input."""

    tables = ("profiles", *_FIGURES)

    def run(self, work: Work) -> Mapping[str, object]:
        """Profile the input."""
        return open_cached(work.input).profile(percentiles=work.options.get("percentiles")).to_dict()

    def rows(self, cell: CellFields, result: Row) -> Iterator[tuple[str, Row]]:
        """Yield the row of the profile, then the rows of its figures."""
        fields = {name: value for name, value in result.items() if name not in ("name", "figures")}
        chosen = [{"op": row["op"], **part} for row in result["by_operation"] for part in row.get("percentiles", ())]
        yield "profiles", flat({**cell, **fields}) | percentile_columns(chosen)
        for name in _FIGURES:
            for row in result["figures"][name]:
                yield name, {"input": cell["input"], "seed": cell["seed"], **row}


class Replays(GridKind):
    """The kind of study cell that replays a trace."""

    modes = REPLAYS

    def read(self, read: TomlTable, cuts: Cuts | None) -> Grid:  # noqa: ARG002
        """Read a grid of trace replays."""
        grid = Grid(
            **shared_fields(read, AXES),
            inputs=read.alternatives("inputs", str, ()),
            capacity=read.text("capacity", ""),
            requests=read.value("requests", int, 0),
        )
        if grid.requests < 0:
            raise read.fault(
                "requests",
                f"{grid.requests} requests are impossible",
                "give 1 or more, or 0 for the length of the input",
            )
        read.reject_unknown()
        return grid

    def input(self, name: str, seed: int, grid: Grid, sources: Sources) -> Input:
        """Find a trace or a workload."""
        return sources.trace(name, seed, grid.requests)

    def run(self, work: Work) -> Mapping[str, object]:
        """Run the simulation."""
        trace = open_cached(work.input)
        run_options = {name: value for name, value in work.options.items() if name != "capacity"}
        # The provenance is left out, because the study stores it once for all cells.
        fixed: RunOptions = {"seed": work.input.seed, "provenance": False}
        options = cast("RunOptions", {**run_options, **work.image_options, **fixed})
        run = work.device().simulate(trace, **options)
        result = run.deterministic()
        # The result names files by the paths in the study, not by the paths of local copies.
        for name in FILES:
            if name in result["options"]:
                result["options"][name] = work.parts[name]
        if capacity := work.options.get("capacity"):
            result["options"]["capacity"] = capacity
        return result


#: Options of a study cell that `emmclab.serve` accepts.
_SERVED: tuple[Literal["precondition", "layers", "layer_settings", "second"], ...] = (
    *("precondition", "layers", "layer_settings", "second"),
)


class LivePrograms(GridKind):
    """The kind of study cell that runs a program on a served device."""

    modes = ("live",)
    is_of_machine = True

    def read(self, read: TomlTable, cuts: Cuts | None) -> Grid:  # noqa: ARG002
        """Read a grid whose inputs are programs.

        It has no replay options, because the requests come from the programs.
        """
        grid = Grid(**shared_fields(read, ("precondition", "second")), inputs=read.alternatives("inputs", str))
        read.reject_unknown()
        return grid

    def input(self, name: str, seed: int, grid: Grid, sources: Sources) -> Input:  # noqa: ARG002
        """Find a program of the study."""
        if name not in sources.programs:
            raise ConfigError(
                f"there is no program `{name}`", field="inputs", hint=f"the programs are {', '.join(sources.programs)}"
            )
        program = sources.programs[name]
        return Input(name, name, synthetic=True, digest=program.digest, seed=seed, program=program.to_json())

    def run(self, work: Work) -> Mapping[str, object]:
        """Run the program on a served device."""
        served = {name: work.options[name] for name in _SERVED if name in work.options}
        options = cast("ServedOptions", {**served, **work.image_options, "seed": work.input.seed})
        return run_program(Program.of(work.input.program), work.device(), options)

    def require(self, inputs: Sequence[Input]) -> None:
        """Raise an error if this machine cannot serve a device or lacks a tool of the programs."""
        require(map(Program.of, sorted({source.program for source in inputs})))


#: Options of a single run of a study (cell) that `run_application` accepts.
_CHOSEN = ("network", "host", "precondition", "layers", "layer_settings", "second")


def _digest_of(described: _core.Program | _core.HostSetup) -> str:
    """Return the start (16 digits) of the SHA-256 of an application's or host's settings, without comments."""
    text = json.dumps(described.to_dict(), separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Apps(GridKind):
    """The kind of study cell that runs an application in closed loop."""

    modes = ("app",)
    has_own_inputs = True

    def read(self, read: TomlTable, cuts: Cuts | None) -> Grid:  # noqa: ARG002
        """Read a grid of applications."""
        grid = Grid(
            **shared_fields(read, ("precondition", "second"), precondition=PRECONDITION),
            inputs=read.alternatives("inputs", str),
            networks=read.alternatives("networks", str),
            host=read.text("host", ""),
        )
        read.reject_unknown()
        return grid if grid.host else replace(grid, host=host_for(map(Device.named, grid.devices)))

    def variants(self, grid: Grid) -> tuple[str, ...]:
        """Return the names of the grid's networks."""
        return grid.networks

    def input(self, name: str, seed: int, grid: Grid, sources: Sources) -> Input:  # noqa: ARG002
        """Find an application."""
        return Input(name, name, synthetic=True, digest=_digest_of(program_of(name)), seed=seed)

    def grid_options(self, grid: Grid) -> CellOptions:
        """Return the host model of a grid and its digest; check that the host has all networks of the grid."""
        setup = setup_of(grid.host)
        for network in grid.networks:
            setup.check_network(network)
        return {"host": grid.host, "host_digest": _digest_of(setup)}

    def variant_options(self, grid: Grid, variant: str, common: Common) -> CellOptions:  # noqa: ARG002
        """Return the network as an option of a run."""
        return {"network": variant}

    def run(self, work: Work) -> Mapping[str, object]:
        """Run the application; return the result of the device, with the application's result in the field `app`."""
        chosen = {name: work.options[name] for name in _CHOSEN if work.options.get(name)}
        run = run_application(work.input.source, work.device(), seed=work.input.seed, **chosen, **work.image_options)
        app = {**run.app, "runtime_s": run.runtime_s, "storage_s": run.storage_s}
        return {**Result(run.device).deterministic(), "app": app}


#: Matches paths that differ from run to run: the loop device, and the folder at which it is mounted.
_OF_THIS_RUN = re.compile(r"/dev/loop\d+|/\S*/\.emmclab-[\w-]+/mount(?=\W)")
#: Options of layers that `run_cuts` accepts.
_SOFTWARE = ("layers", "layer_settings", "second")


class PowerCuts(GridKind):
    """The kind of study cell that cuts power under workloads."""

    modes = ("cuts",)
    tables = ("cuts",)
    is_of_machine = True

    def read(self, read: TomlTable, cuts: Cuts | None) -> Grid:
        """Read a grid of power cuts."""
        grid = Grid(
            **shared_fields(read),
            inputs=read.alternatives("inputs", str),
            file_systems=read.alternatives("file_systems", str),
            share=read.value("share", (int, float), 1.0),
        )
        allowed = () if cuts is None else tuple(cuts.file_systems)
        for name in grid.file_systems:
            if name not in allowed:
                hint = f"choose one of: {', '.join(allowed)}" if allowed else "describe it in `[cuts.file_systems]`"
                raise read.fault("file_systems", f"there is no file system `{name}`", hint)
        for name in grid.inputs:
            if not workloads.is_known(name):
                raise read.fault(
                    "inputs", f"there is no workload `{name}`", f"choose one of: {', '.join(workloads.ABOUT)}"
                )
        read.reject_unknown()
        return grid

    def variants(self, grid: Grid) -> tuple[str, ...]:
        """Return the names of the grid's file systems."""
        return grid.file_systems

    def input(self, name: str, seed: int, grid: Grid, sources: Sources) -> Input:  # noqa: ARG002
        """Find a workload."""
        return Input(name, name, synthetic=True, digest=workload_digest(), seed=seed)

    def variant_options(self, grid: Grid, variant: str, common: Common) -> CellOptions:
        """Return how the file system is created and recovered, and the number of power cuts."""
        if common.cuts is None:
            return super().variant_options(grid, variant, common)
        options: CellOptions = msgspec.to_builtins(common.cuts.options(variant, grid.share))
        return options

    def run(self, work: Work) -> Mapping[str, object]:
        """Record a run, and explore its crash states."""
        logs = None if work.images is None else work.images.logs
        chosen = msgspec.convert(work.options, CutOptions)
        software = {name: work.options[name] for name in _SOFTWARE if name in work.options}
        with exit_on_sigterm():
            cut_result = run_cuts(work.input.source, work.device(), chosen, work.input.seed, logs, **software)
        result: Mapping[str, object] = msgspec.to_builtins(cut_result)
        return result

    def require(self, inputs: Sequence[Input]) -> None:  # noqa: ARG002
        """Raise an error if this machine cannot serve a device or lacks the tools of ext4."""
        require_loop()
        require_tools({"mkfs.ext4": "e2fsprogs"})

    def rows(self, cell: CellFields, result: Row) -> Iterator[tuple[str, Row]]:
        """Yield the row that contains the verdict."""
        yield "cuts", with_settings(flat({**result, **cell}), cell)


def run_cuts(
    workload: str,
    device: Device,
    options: CutOptions,
    seed: int,
    logs: Path | None,
    *,
    layers: Sequence[str] = (),
    layer_settings: Mapping[str, Setting] | None = None,
    second: str | Device | None = None,
) -> CutResult:
    """Record a run on a device under layers, and explore its crash states.

    The log is stored in `logs` for `emmclab crash --again`, unless `logs` is None.
    """
    if logs is None:
        with scratch() as folder:
            return run_cuts(
                *(workload, device, options, seed, folder), layers=layers, layer_settings=layer_settings, second=second
            )
    try:
        stored_log = Session(logs).record(
            device,
            Workload(workload, operations=options.operations, seed=seed),
            layers=layers,
            layer_settings=layer_settings or {},
            second=second,
            file_system="ext4",
            mkfs_options=options.mkfs,
            mount_options=options.mount or None,
            on_message=lambda _line: None,
        )
    except ConfigError as error:
        # Tools print the folder and the disk of the run in their errors. Replace them, because results must not depend
        # on them.
        message = _OF_THIS_RUN.sub("the disk", str(error))
        raise ConfigError(message, field=error.field, hint=error.hint) from error
    if stored_log.made["status"] != 0:
        raise EmmclabError(
            f"{workload}: {'; '.join(stored_log.made['notes'])}",
            kind="failed",
            hint=f"run the workload by itself: `emmclab crash --workload {workload}`",
        )
    chosen = Options(
        cuts=options.cuts,
        states=options.states,
        seed=seed,
        recovery=options.recovery,
        check=workload,
        recovery_cuts=options.recovery_cuts if layers else 0,
    )
    stored_log.keep(chosen)
    try:
        controls = stored_log.controls(chosen)
        exploration = explore_in_parallel(str(stored_log.log), chosen, jobs=1)
    except UnsupportedError as error:
        # If a crash state cannot be judged, only this cell of the study fails. The other cells continue.
        raise EmmclabError(str(error), kind="failed", hint=error.hint) from error
    if not exploration.findings() and controls is not None and (doubts := controls.doubts()):
        raise EmmclabError(f"{workload}: {doubts[0]}", kind="failed", hint="use another workload, or more operations")
    return _result(workload, layers, stored_log, chosen, exploration)


def _result(workload: str, layers: Sequence[str], log: StoredLog, chosen: Options, outcome: Exploration) -> CutResult:
    """Return the result of power cuts in a study: counts, the verdict, and broken promises, by level."""
    mode, level = workloads.sqlite_setting(workload) or (None, None)
    findings, documented = outcome.findings(), outcome.findings(documented=True)
    in_states = [finding for finding in findings if finding.way != COMMANDS]
    lost = sum(tally.broken for tally in outcome.verdicts.values())
    word = LOST if lost else RULE if findings else DOCUMENTED if documented else KEPT
    first = next(iter(in_states or findings or documented), None)
    return CutResult(
        journal_mode=mode,
        synchronous=level,
        layer=", ".join(layers) or "none",
        log=log.short,
        commands=log.facts.commands,
        moments=log.facts.moments,
        acknowledged=log.facts.acknowledgements,
        lies=log.facts.lies,
        cuts=outcome.covered["cuts"],
        states=outcome.states,
        verdict=word,
        lost_at=first.level if first is not None and word in (LOST, RULE) else None,
        lost_states=lost,
        documented_states=sum(tally.documented for tally in outcome.verdicts.values()),
        lost={level: any(finding.level == level for finding in in_states) for level in LEVELS},
        first=FirstLoss(first.level, first.promise, first.detail) if first else FirstLoss(None, None, None),
        findings=[finding_fields(log, chosen, finding) for finding in findings],
        documented=[finding_fields(log, chosen, finding) for finding in documented],
        host=host(),
    )


#: Kinds of study grids. Only a grid of the first kind, which replays traces, can have several modes.
KINDS: tuple[GridKind, ...] = (Replays(), LivePrograms(), PowerCuts(), Apps())
PROFILES: CellKind = Profiles()
_BY_MODE = {mode: kind for kind in KINDS for mode in kind.modes}
#: Names of all tables that a study can have.
TABLES = (*dict.fromkeys(kind.tables[0] for kind in (*KINDS, PROFILES)), "failures", *PROFILES.tables[1:])


def kind_of_modes(modes: Sequence[str]) -> GridKind:
    """Return the kind of a study grid from its modes.

    >>> kind_of_modes(("open", "closed")).tables
    ('runs',)
    """
    return _BY_MODE[modes[0]]


def kind_of_cell(grid: str, options: CellOptions | None) -> CellKind:
    """Return the kind of a single run of a study (cell), from the name of its grid and its options.

    The options may be None for a profile.

    >>> kind_of_cell("profile", None).tables[0]
    'profiles'
    """
    return PROFILES if grid == PROFILE or options is None else _BY_MODE[options["mode"]]


def read_grid(read: TomlTable, cuts: Cuts | None) -> Grid:
    """Read a grid (a group of similar runs) of a study; `cuts` are the settings that all power-cut grids share."""
    modes = read.alternatives("modes", str, Grid.modes)
    if not modes:
        raise read.fault("modes", "this list is empty", "give at least one, or leave it out")
    for mode in modes:
        if mode not in _BY_MODE:
            *most, last = _BY_MODE
            raise read.fault("modes", f"there is no mode `{mode}`", f"use {', '.join(most)} or {last}")
        if len(modes) > 1 and _BY_MODE[mode] is not KINDS[0]:
            raise read.fault(
                "modes", f"a grid of mode {mode} has no other mode", f'give it alone: `modes = ["{mode}"]`'
            )
    return kind_of_modes(modes).read(read, cuts)


def has_own_inputs(read: TomlTable) -> bool:
    """Return whether every `[[grid]]` table of a study file is of a kind with its own inputs."""
    grids = read.tables("grid")
    modes = {mode for kind in KINDS if kind.has_own_inputs for mode in kind.modes}
    return bool(grids) and all(modes & {*part.value("modes", (list, tuple), ())} for part in grids)
