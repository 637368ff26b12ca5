"""Types and tables for recorded activity other than requests: commands, waits for durability, and journals."""

import json
from collections.abc import Mapping
from typing import TypedDict

from emmclab.core_types import RecordedActivity
from emmclab.errors import UnsupportedError
from emmclab.runtime.document import TextTable


class SyncStall(TypedDict):
    """A long wait for durability."""

    process: str
    file_system: str
    start_ns: int
    time_ns: int


_COMMAND_COUNTS = ("packed", "reliable", "retries", "errors")


def activity_of(header: Mapping[str, str | None]) -> RecordedActivity:
    """Return the recorded activity besides requests from the header of a trace; empty lists if there is none."""
    return RecordedActivity(json.loads(header.get("activity") or "{}"))


#: Maximum number of waits that `longest_waits` returns.
_LONGEST = 256


def longest_waits(activity: RecordedActivity) -> list[SyncStall]:
    """Return the longest waits for durability, at most 256, in order of their starts.

    >>> task = {"process": "dd", "pid": 7, "file_system": "ext4", "device": "sda1"}
    >>> longest_waits(RecordedActivity({"waits": [{**task, "start_ns": [5, 9], "time_ns": [3, 4]}]}))[1]["start_ns"]
    9
    """
    rows: list[SyncStall] = [
        {"process": task.process, "file_system": task.file_system, "start_ns": start, "time_ns": time}
        for task in activity.waits
        for start, time in zip(task.start_ns, task.time_ns, strict=True)
    ]
    rows.sort(key=lambda row: (-row["time_ns"], row["start_ns"]))
    return sorted(rows[:_LONGEST], key=lambda row: (row["start_ns"], row["time_ns"], row["process"]))


def require_waits(name: str, activity: RecordedActivity) -> None:
    """Raise an error for a trace whose waits for durability (fsync) cannot be divided into parts."""
    if activity.waits or activity.unfinished:
        return
    if activity.syncs:
        problem = "it has only the totals of its waits for durability (fsync)"
        hint = "record it again: `emmclab record` stores each of them"
    else:
        problem = "it has no waits for durability (fsync)"
        hint = (
            "record a machine while programs call fsync on ext4 or f2fs, as root: `emmclab record -o "
            "phone.parquet --adb --duration 60s`; other recorders need the events ext4_sync_file_enter and "
            "_exit or those of f2fs"
        )
    raise UnsupportedError(f"{name}: {problem}", field="--fsync", hint=hint)


def activity_tables(activity: RecordedActivity) -> list[TextTable]:
    """Return the tables of recorded activity: commands of each host, waits for durability, journals.

    >>> journal = {"device": "vda", "commits": 3, "blocks": 40, "handles": 9}
    >>> activity_tables(RecordedActivity({"journals": [journal]}))[0].rows
    [['vda', '3', '40', '9']]
    """
    tables = []
    for host in activity.hosts:
        rows = [
            [
                row.kind,
                f"{row.count:,}",
                f"{row.bytes / 1024:,.0f}",
                *(f"{row[name]:,}" for name in _COMMAND_COUNTS),
                f"{row.time_ns / row.count / 1e6:,.3f}",
                f"{row.longest_ns / 1e6:,.3f}",
            ]
            for row in host.commands
        ]
        title = f"Commands of {host.host}, busy for {host.busy_ns / 1e6:,.1f} ms"
        headings = ["command", "count", "KB", *_COMMAND_COUNTS, "mean ms", "longest ms"]
        tables.append(TextTable(title, headings, rows, 1))
    if syncs := activity.syncs:
        rows = [
            [
                row.process,
                row.file_system,
                f"{row.calls:,}",
                f"{row.errors:,}",
                f"{row.time_ns / 1e6:,.1f}",
                f"{row.time_ns / row.calls / 1e6:,.3f}",
                f"{row.longest_ns / 1e6:,.3f}",
            ]
            for row in sorted(syncs, key=lambda row: -row.time_ns)
        ]
        headings = ["process", "file system", "calls", "errors", "all ms", "mean ms", "longest ms"]
        tables.append(TextTable("Waits for durability (fsync)", headings, rows, 2))
    if journals := activity.journals:
        counts = ("commits", "blocks", "handles")
        rows = [[row.device, *(f"{row[name]:,}" for name in counts)] for row in journals]
        tables.append(TextTable("Commits of journals", ["device", *counts], rows, 1))
    return tables
