"""Types of the activity in a recording besides its requests (`crates/trace/src/events/activity.rs`)."""

from __future__ import annotations

from typing import TypedDict


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


class SyncStall(TypedDict):
    """A long wait for durability."""

    process: str
    file_system: str
    start_ns: int
    time_ns: int


class JournalCounts(TypedDict):
    """Commits of the journal of a device, with numbers of handles and blocks."""

    device: str
    commits: int
    handles: int
    blocks: int


class Activity(TypedDict, total=False):
    """The recorded activity; empty for a trace without it."""

    hosts: list[HostActivity]
    syncs: list[SyncCounts]
    stalls: list[SyncStall]
    journals: list[JournalCounts]
