"""Study runs that cut power: each run is recorded, its crash states are explored, and it has one verdict."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from emmclab.crash import workloads
from emmclab.crash.explore import Exploration, Options
from emmclab.crash.promises import COMMANDS, LEVELS, Finding
from emmclab.crash.recording import Workload
from emmclab.crash.scratch_folders import exit_on_sigterm, scratch
from emmclab.crash.shards import explore_in_parallel
from emmclab.crash.stored_log import Session, StoredLog
from emmclab.crash.summary import finding_fields
from emmclab.errors import ConfigError, EmmclabError, UnsupportedError
from emmclab.live.serve import require_loop, require_tools
from emmclab.runtime.document import Row
from emmclab.runtime.toml_table import TomlTable
from emmclab.simulation.device import Device
from emmclab.simulation.layers import Setting
from emmclab.studies.flatten import flat, with_settings
from emmclab.studies.grid import Grid, shared_fields
from emmclab.studies.input import Input, Sources
from emmclab.studies.kinds.kind import Common, GridKind, Work
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
from emmclab.studies.stored_types import CellFields, CellOptions

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
        first=_first(first),
        findings=[finding_fields(log, chosen, finding) for finding in findings],
        documented=[finding_fields(log, chosen, finding) for finding in documented],
        host=host(),
    )


def _first(finding: Finding | None) -> FirstLoss:
    if finding is None:
        return FirstLoss(None, None, None)
    return FirstLoss(finding.level, finding.promise, finding.detail)
