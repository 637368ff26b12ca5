"""Tests on a real device whether acknowledged data survives a power cut: writer, log of syncs, and check."""

from emmclab.real_devices.durability.log import (
    FINDINGS,
    WEAKNESSES,
    Log,
    Report,
    Run,
    Session,
    Verdict,
    clean_cuts_needed,
    line,
    read_log,
    report_of,
)
from emmclab.real_devices.durability.readback import judge
from emmclab.real_devices.durability.targets import Closing, Target, open_target, refuse_same_disk
from emmclab.real_devices.durability.writer import RunEnd, write

__all__ = [
    "FINDINGS",
    "WEAKNESSES",
    "Closing",
    "Log",
    "Report",
    "Run",
    "RunEnd",
    "Session",
    "Target",
    "Verdict",
    "clean_cuts_needed",
    "judge",
    "line",
    "open_target",
    "read_log",
    "refuse_same_disk",
    "report_of",
    "write",
]
