"""Recognises kernel threads that write for a file system by their names, if a trace has process names."""

from collections.abc import Iterable
from typing import NamedTuple, TypedDict


class Kind(NamedTuple):
    """A kind of thread: the prefix of its name, its file system, and what it writes."""

    begins: str
    file_system: str
    role: str


#: Description of writes of metadata that makes earlier data reachable, like the commits of a journal.
CHECKPOINT = "checkpoint"
#: Description of a thread that sends only discards. If it reads, a recorder or converter took discards for
#: reads.
DISCARDS = "discards"
#: Names have at most 15 characters, and usually end with the device: `f2fs_ckpt-254:4`.
KINDS = (
    Kind("f2fs_ckpt", "f2fs", CHECKPOINT),
    Kind("f2fs_flush", "f2fs", "flushes"),
    Kind("f2fs_gc", "f2fs", "cleaning of segments"),
    Kind("f2fs_discard", "f2fs", DISCARDS),
    Kind("jbd2/", "ext4", "journal"),
    Kind("xfsaild/", "xfs", "metadata written back"),
    Kind("btrfs-transacti", "btrfs", "commit of a transaction"),
)


class ProcessRow(TypedDict):
    """The fields that are read from a row of the figure `process_share`; it has more."""

    process: str | None
    reads: int
    writes: int
    others: int
    read_kb: float
    write_kb: float


class KernelThread(TypedDict):
    """A thread of a file system: its task, its requests, and its share of all bytes written."""

    thread: str
    file_system: str
    role: str
    requests: int
    reads: int
    writes: int
    read_kb: float
    written_kb: float
    written_pct: float | None


def kernel_threads(processes: Iterable[ProcessRow], written_kb: float) -> list[KernelThread]:
    """Return the threads of file systems among processes (rows of the figure `process_share`), largest first.

    >>> row = {"process": "f2fs_ckpt-254:4", "reads": 1, "writes": 9, "others": 0}
    >>> row |= {"read_kb": 4.0, "write_kb": 36.0}
    >>> [(one["file_system"], one["role"], one["written_pct"]) for one in kernel_threads([row], 72.0)]
    [('f2fs', 'checkpoint', 50.0)]
    """
    found: list[KernelThread] = []
    for row in processes:
        name = str(row["process"])
        kind = next((kind for kind in KINDS if name.startswith(kind.begins)), None)
        if kind is not None:
            found.append(
                {
                    "thread": name,
                    "file_system": kind.file_system,
                    "role": kind.role,
                    "requests": row["reads"] + row["writes"] + row["others"],
                    "reads": row["reads"],
                    "writes": row["writes"],
                    "read_kb": row["read_kb"],
                    "written_kb": row["write_kb"],
                    "written_pct": 100 * row["write_kb"] / written_kb if written_kb else None,
                }
            )
    return sorted(found, key=lambda one: (-one["written_kb"], one["thread"]))
