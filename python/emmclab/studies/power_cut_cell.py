"""Options and results of cells that cut the power."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from emmclab.crash.json_types import FindingFields
from emmclab.simulation.layers import Setting
from emmclab.studies.cell_options import CellOptions

#: Verdicts on a cell, best first.
KEPT, DOCUMENTED, RULE, LOST = "kept", "documented", "rule broken", "lost"
VERDICTS = (KEPT, DOCUMENTED, RULE, LOST)


class CutOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How ext4 is created, mounted and recovered, and how many cuts and states are tried."""

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
    """The first finding of a cell; all fields are None if there is none."""

    level: str | None
    promise: str | None
    detail: str | None


class CutResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a cell."""

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
    #: Findings, as `emmclab crash --json` prints them.
    findings: list[FindingFields]
    documented: list[FindingFields]
    #: The versions of the software on the machine, by name.
    host: dict[str, str]


class CutCell(msgspec.Struct, frozen=True):
    """The cell of a result: workload, device, settings and options."""

    grid: str
    input: str
    device: str
    settings: dict[str, Setting]
    options: CellOptions


class CutRun(NamedTuple):
    """A result together with its cell."""

    cell: CutCell
    result: CutResult

    @staticmethod
    def of(kept: Mapping[str, object]) -> "CutRun":
        """Convert a stored result, which has the fields of its cell in the same mapping."""
        return CutRun(msgspec.convert(kept, CutCell), msgspec.convert(kept, CutResult))
