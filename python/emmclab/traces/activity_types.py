"""Types of the activity in a recording besides its requests (`crates/trace/src/events/activity.rs`)."""

from typing import NotRequired, TypedDict


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
