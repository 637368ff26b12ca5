"""Registers of the recorded devices, as stored in a recording when it started."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from emmclab import _core
from emmclab.core_types import RegisterReport
from emmclab.errors import EmmclabError

#: Topics of the facts in the summary line of a device, in this order.
_TOPICS = (
    "product",
    "capacity",
    "volatile cache",
    "command queue",
    "queue",
    "WriteBooster",
    "life used, type A (mostly SLC)",
    "life used, type B (mostly MLC, TLC)",
    "spare blocks",
)


class RecordedDeviceFields(TypedDict):
    """The JSON form of a `RecordedDevice`; fields from its registers are None if they could not be read."""

    disks: list[str]
    kind: str
    gaps: list[str]
    problem: str | None
    standard: str | None
    #: Facts about the device, as in `RegisterReport`.
    facts: list[dict[str, Any]] | None
    fields: list[dict[str, Any]] | None
    notes: list[str] | None


class _StoredRegisters(TypedDict):
    """The registers of a device as stored in the header of a trace: the text of each file in a folder."""

    disks: list[str]
    kind: str
    gaps: list[str]
    folder: str
    files: dict[str, str]


@dataclass(frozen=True)
class RecordedDevice:
    """A recorded device, and what its registers contain.

    Attributes:
        disks: names of its recorded disks.
        kind: `emmc` or `ufs`.
        files: path and bytes of each register file that was read; messages contain the path.
        gaps: what could not be read, and why.
        report: the report on the files, in the form of `emmclab.registers`; None if they are damaged or missing.
        problem: why there is no report; empty if there is one.
    """

    disks: list[str]
    kind: str
    files: list[tuple[str, bytes]]
    gaps: list[str]
    report: RegisterReport | None
    problem: str

    @property
    def name(self) -> str:
        """The names of the device's disks."""
        return ", ".join(self.disks)

    def line(self) -> str:
        """Describe the device in one line: its standard, its features and its wear."""
        if self.report is None:
            return f"{self.name}: {self.problem}" if self.disks else self.problem
        facts = {fact.topic: fact.text for fact in self.report.facts}
        topics = [f"{topic}: {text}" for topic in _TOPICS if (text := facts.get(topic))]
        return f"{self.name}: " + "; ".join([self.report.standard, *topics])

    def to_dict(self) -> RecordedDeviceFields:
        """Return all fields as JSON values."""
        report = self.report
        return {
            "disks": self.disks,
            "kind": self.kind,
            "gaps": self.gaps,
            "problem": self.problem or None,
            "standard": None if report is None else report.standard,
            "facts": None if report is None else report["facts"],
            "fields": None if report is None else report["fields"],
            "notes": None if report is None else report.notes,
        }


def recorded_devices(header: Mapping[str, str | None], recording: str) -> list[RecordedDevice]:
    """Read the device registers that `emmclab record` has stored in a trace; empty if there are none.

    Args:
        header: header of the trace.
        recording: path of the recording, for messages.

    >>> recorded_devices({"registers": None}, "phone.parquet")
    []
    """
    try:
        stored = json.loads(header.get("registers") or "[]")
        return [_device(registers, recording) for registers in stored]
    except (ValueError, TypeError, AttributeError, KeyError):
        return [RecordedDevice([], "", [], [], None, "the registers in the header of the trace are damaged")]


def _device(stored: _StoredRegisters, recording: str) -> RecordedDevice:
    disks, kind, gaps = list(stored["disks"]), str(stored["kind"]), [str(gap) for gap in stored["gaps"]]
    folder = str(stored["folder"]).rsplit("/", 1)[-1]
    files = [(f"{recording}/{folder}/{file}", str(text).encode()) for file, text in stored["files"].items()]
    if not files:
        problem = f"no register could be read: {'; '.join(gaps)}"
        return RecordedDevice(disks, kind, files, gaps, None, problem)
    try:
        report = RegisterReport(_core.read_registers(files))
    except EmmclabError as error:
        return RecordedDevice(disks, kind, files, gaps, None, str(error))
    return RecordedDevice(disks, kind, files, gaps, report, "")
