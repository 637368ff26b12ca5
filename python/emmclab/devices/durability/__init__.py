"""Tests whether a real device keeps acknowledged data when its power is cut: records, a log, a verdict."""

from __future__ import annotations

from emmclab.devices.durability.log import Log, Run, Session, line, read_log
from emmclab.devices.durability.loss_probability import bounds, clean_cuts_needed
from emmclab.devices.durability.readback import judge
from emmclab.devices.durability.summary import Report, report_of
from emmclab.devices.durability.targets import Closing, Target, opened, refuse_same_disk
from emmclab.devices.durability.verdict import FINDINGS, WEAKNESSES, Verdict
from emmclab.devices.durability.writer import Ended, write

__all__ = [
    "FINDINGS",
    "WEAKNESSES",
    "Closing",
    "Ended",
    "Log",
    "Report",
    "Run",
    "Session",
    "Target",
    "Verdict",
    "bounds",
    "clean_cuts_needed",
    "judge",
    "line",
    "opened",
    "read_log",
    "refuse_same_disk",
    "report_of",
    "write",
]
