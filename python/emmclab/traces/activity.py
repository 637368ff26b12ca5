"""Activity in a recording besides its requests: commands, waits for durability, journals; its types and tables."""

from typing import Literal, NotRequired, TypedDict

from emmclab.errors import UnsupportedError
from emmclab.runtime.document import TextTable


class CommandCounts(TypedDict):
    """Commands of a kind that a host sent, with their data and time; some are packed or reliable writes."""

    kind: str
    count: int
    bytes: int
    packed: int
    reliable: int
    retries: int
    errors: int
    time_ns: int
    longest_ns: int


class HostActivity(TypedDict):
    """The commands of a host, and those whose start or end was not recorded."""

    host: str
    busy_ns: int
    unpaired: int
    commands: list[CommandCounts]


class SyncCounts(TypedDict):
    """Waits of a process for the durability of a file system."""

    process: str
    file_system: str
    calls: int
    errors: int
    time_ns: int
    longest_ns: int


class TaskWaits(TypedDict):
    """The waits of a task for the durability of a file system: start and length of each."""

    process: str
    pid: int
    file_system: str
    device: str
    start_ns: list[int]
    time_ns: list[int]


class SyncStall(TypedDict):
    """A long wait for durability."""

    process: str
    file_system: str
    start_ns: int
    time_ns: int


class UnfinishedWait(TypedDict):
    """A wait for durability that had not ended when the recording ended."""

    process: str
    pid: int
    file_system: str
    device: str
    start_ns: int


class Writers(TypedDict):
    """The threads of the kernel that write for a file system on behalf of processes that wait."""

    file_system: str
    device: str
    pids: list[int]


class Gap(TypedDict):
    """A stretch of time in which the recorder lost events."""

    from_ns: int
    to_ns: int
    events: int


class JournalCounts(TypedDict):
    """Commits of the journal of a device, with numbers of handles and blocks, and the times of commits."""

    device: str
    commits: int
    handles: int
    blocks: int
    commit_start_ns: NotRequired[list[int]]
    commit_time_ns: NotRequired[list[int]]


class Activity(TypedDict, total=False):
    """The recorded activity; empty for a trace without it."""

    hosts: list[HostActivity]
    syncs: list[SyncCounts]
    waits: list[TaskWaits]
    unfinished: list[UnfinishedWait]
    writers: list[Writers]
    journals: list[JournalCounts]
    gaps: list[Gap]


_COMMAND_COUNTS: tuple[Literal["packed", "reliable", "retries", "errors"], ...] = (
    "packed",
    "reliable",
    "retries",
    "errors",
)


#: Maximum number of waits of `longest_waits`.
_LONGEST = 256


def longest_waits(activity: Activity) -> list[SyncStall]:
    """Return the longest waits for durability, at most 256, in order of their starts.

    >>> task = {"process": "dd", "pid": 7, "file_system": "ext4", "device": "sda1"}
    >>> longest_waits({"waits": [{**task, "start_ns": [5, 9], "time_ns": [3, 4]}]})[1]["start_ns"]
    9
    """
    rows: list[SyncStall] = [
        {"process": task["process"], "file_system": task["file_system"], "start_ns": start, "time_ns": time}
        for task in activity.get("waits", ())
        for start, time in zip(task["start_ns"], task["time_ns"], strict=True)
    ]
    rows.sort(key=lambda row: (-row["time_ns"], row["start_ns"]))
    return sorted(rows[:_LONGEST], key=lambda row: (row["start_ns"], row["time_ns"], row["process"]))


def require_waits(name: str, activity: Activity) -> None:
    """Reject a trace whose waits for durability cannot be divided."""
    if activity.get("waits") or activity.get("unfinished"):
        return
    if activity.get("syncs"):
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


def activity_tables(activity: Activity) -> list[TextTable]:
    """Return the tables of an activity: commands of each host, waits for durability, journals.

    >>> activity_tables({"journals": [{"device": "vda", "commits": 3, "blocks": 40, "handles": 9}]})[0].rows
    [['vda', '3', '40', '9']]
    """
    tables = []
    for host in activity.get("hosts", []):
        rows = [
            [
                row["kind"],
                f"{row['count']:,}",
                f"{row['bytes'] / 1024:,.0f}",
                *(f"{row[name]:,}" for name in _COMMAND_COUNTS),
                f"{row['time_ns'] / row['count'] / 1e6:,.3f}",
                f"{row['longest_ns'] / 1e6:,.3f}",
            ]
            for row in host["commands"]
        ]
        title = f"Commands of {host['host']}, busy for {host['busy_ns'] / 1e6:,.1f} ms"
        headings = ["command", "count", "KB", *_COMMAND_COUNTS, "mean ms", "longest ms"]
        tables.append(TextTable(title, headings, rows, 1))
    if syncs := activity.get("syncs"):
        rows = [
            [
                row["process"],
                row["file_system"],
                f"{row['calls']:,}",
                f"{row['errors']:,}",
                f"{row['time_ns'] / 1e6:,.1f}",
                f"{row['time_ns'] / row['calls'] / 1e6:,.3f}",
                f"{row['longest_ns'] / 1e6:,.3f}",
            ]
            for row in sorted(syncs, key=lambda row: -row["time_ns"])
        ]
        headings = ["process", "file system", "calls", "errors", "all ms", "mean ms", "longest ms"]
        tables.append(TextTable("Waits for durability (fsync)", headings, rows, 2))
    if journals := activity.get("journals"):
        counts: tuple[Literal["commits", "blocks", "handles"], ...] = ("commits", "blocks", "handles")
        rows = [[row["device"], *(f"{row[name]:,}" for name in counts)] for row in journals]
        tables.append(TextTable("Commits of journals", ["device", *counts], rows, 1))
    return tables
