"""Settings that all cells of a power-cut study share, and the options and results of these cells."""

import functools
import hashlib
import platform
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from emmclab import _core
from emmclab.crash import workloads
from emmclab.crash.json_types import FindingFields
from emmclab.crash.judging import RECOVERIES
from emmclab.errors import ConfigError
from emmclab.runtime.toml_table import TomlTable
from emmclab.simulation.layers import Setting
from emmclab.studies.program import package_version
from emmclab.studies.stored_types import CellOptions

#: Verdicts on a cell with power cuts, best first.
KEPT, DOCUMENTED, RULE, LOST = "kept", "documented", "rule broken", "lost"
VERDICTS = (KEPT, DOCUMENTED, RULE, LOST)


class CutOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How ext4 is created, mounted and recovered, and how many power cuts and crash states are tried."""

    file_system: str
    mkfs: list[str]
    mount: str
    recovery: str
    capacity: str
    operations: int
    cuts: int
    states: str
    recovery_cuts: int


class FirstLoss(msgspec.Struct, frozen=True):
    """The first finding of a run with power cuts; all fields are None if nothing was found."""

    level: str | None
    promise: str | None
    detail: str | None


class CutResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a power-cut cell."""

    journal_mode: str | None
    synchronous: str | None
    layer: str
    log: str
    commands: int
    moments: int
    acknowledged: int
    lies: str
    cuts: int
    states: int
    verdict: str
    lost_at: str | None
    lost_states: int
    documented_states: int
    lost: dict[str, bool]
    first: FirstLoss
    #: Findings in the form in which `emmclab crash --json` prints them.
    findings: list[FindingFields]
    documented: list[FindingFields]
    #: Versions of the software on the machine that ran the cell, by name.
    host: dict[str, str]


class CutCell(msgspec.Struct, frozen=True):
    """The single run of a study (cell) to which a result belongs: workload, device, settings and options."""

    grid: str
    input: str
    device: str
    settings: dict[str, Setting]
    options: CellOptions


class CutRun(NamedTuple):
    """The result of a power-cut cell, together with the cell."""

    cell: CutCell
    result: CutResult

    @classmethod
    def of(cls, stored: Mapping[str, object]) -> Self:
        """Convert a stored mapping, which contains both the fields of the result and those of its cell."""
        return cls(msgspec.convert(stored, CutCell), msgspec.convert(stored, CutResult))


@dataclass(frozen=True)
class FileSystem:
    """How ext4 is created, mounted and recovered.

    `share` is the fraction of the study's power cuts that are tried with this file system.
    """

    name: str
    mkfs: tuple[str, ...] = ()
    mount: str = ""
    recovery: str = "process"
    share: float = 1.0


@dataclass(frozen=True)
class Cuts:
    """Settings that all cells of a power-cut study share; `scale` multiplies the number of power cuts."""

    capacity: str
    operations: int
    cuts: int
    states: str
    recovery_cuts: int = 0
    scale: float = 1.0
    file_systems: Mapping[str, FileSystem] = field(default_factory=dict)

    def scaled(self, scale: float) -> "Cuts":
        """Return a copy of the settings with the number of power cuts multiplied by `scale`."""
        if not scale > 0:
            raise ConfigError(f"a scale of {scale:g} is impossible", field="scale", hint="give a scale above 0")
        return replace(self, scale=self.scale * scale)

    def options(self, file_system: str, share: float = 1.0) -> CutOptions:
        """Return the options of a study cell for a file system; `share` scales its number of power cuts."""
        chosen = self.file_systems[file_system]
        return CutOptions(
            file_system=chosen.name,
            mkfs=list(chosen.mkfs),
            mount=chosen.mount,
            recovery=chosen.recovery,
            capacity=self.capacity,
            operations=self.operations,
            cuts=max(1, round(self.cuts * chosen.share * share * self.scale)),
            states=self.states,
            recovery_cuts=self.recovery_cuts,
        )


def read_cuts(read: TomlTable) -> Cuts | None:
    """Read the settings that all cells of a power-cut study share."""
    if not read.has("cuts"):
        return None
    part = read.inner("cuts")
    named = part.inner("file_systems")
    file_systems = {}
    for name in named.names():
        table = named.inner(name)
        file_systems[name] = FileSystem(
            name,
            mkfs=table.all_values("mkfs", str, ()),
            mount=table.text("mount", ""),
            recovery=table.text("recovery", "process"),
            share=table.value("share", (int, float), 1.0),
        )
        if file_systems[name].recovery not in RECOVERIES:
            raise table.fault("recovery", "this is not a recovery", f"use {', '.join(RECOVERIES)}")
        table.reject_unknown()
    cuts = Cuts(
        capacity=part.text("capacity"),
        operations=part.value("operations", int),
        cuts=part.value("cuts", int),
        states=part.text("states"),
        recovery_cuts=part.value("recovery_cuts", int, 0),
        file_systems=file_systems,
    )
    try:
        _core.crash_ways(cuts.states)
    except ConfigError as error:
        problem = str(error).removeprefix("field `states`: ")
        raise part.fault("states", problem, 'write it as `states = "device,omit1:64"`') from error
    for key in ("operations", "cuts"):
        if getattr(cuts, key) < 1:
            raise part.fault(key, f"{getattr(cuts, key)} is too few", "give at least 1")
    part.reject_unknown()
    return cuts


@functools.cache
def workload_digest() -> str:
    """Return a digest of what determines the commands of a workload: program, kernel, SQLite."""
    program = Path(workloads.__file__).read_text(encoding="utf-8")
    return hashlib.sha256("\n".join([program, *host().values()]).encode()).hexdigest()[:16]


def host() -> dict[str, str]:
    """Return the versions of the software on this machine that affects power cuts, by name."""
    return {"kernel": platform.release(), "sqlite": sqlite3.sqlite_version, "e2fsprogs": package_version("e2fsprogs")}
