"""Workloads for power cuts: each announces an operation, acknowledges it when it is durable, and may pause.

This module is also a script that uses only the standard library: `python workloads.py NAME OPERATIONS SEED`, run in the
working folder. After each line it waits for a byte on the standard input, or for the input's end.

Lines: `safe NAME WHAT` after the system has confirmed durability; before that, for a file, `makes NAME WHAT` (it may
exist in part), `grows NAME WHAT` (it may have any length up to the new one) or `turns NAME WHAT` (it has the old or the
new contents). For a file, `WHAT` is its size and SHA-256, or `gone`; for a log or database, the last record's number.

A workload without pauses ends before any timer of the kernel expires (ext4 commits every 5 s, dirty pages are written
after 30 s). Then nothing reaches the device between two system calls, and cuts miss the states of a program that waits
between them: for its user, for another program, or for a processor.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import itertools
import math
import os
import random
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable
from pathlib import Path

#: SQLite's journal modes (`MODES`) and levels of `synchronous` (`LEVELS`). The names of workloads contain both.
MODES = ("delete", "truncate", "persist", "wal")
LEVELS = ("off", "normal", "full", "extra")
#: Suffix of the names of workloads whose syncs return at once (`UNSYNCED`), and number of operations after which such a
#: workload writes back all data (`WRITE_BACK_EVERY`). A short run would end before the kernel writes anything back.
UNSYNCED, WRITE_BACK_EVERY = "-unsynced", 16
#: Workloads that come with emmclab, with a one-line description of each; SQLite's are `sqlite-MODE[-LEVEL]`.
ABOUT = {
    "files": "create, append, replace by rename, and remove files, each followed by fsync of file and folder",
    "append-log": "append records to one file, each followed by fdatasync",
    "sqlite-MODE[-LEVEL]": f"insert rows, each in a transaction; MODE is {', '.join(MODES)}, LEVEL {', '.join(LEVELS)}",
    "NAME-unsynced": "the same, but syncs return at once; all data is written back every "
    f"{WRITE_BACK_EVERY} operations",
}
#: Names of the files to which workloads write: the log of `append-log`, and the SQLite database.
LOG, DATABASE = "log", "test.db"
#: Size of a record in the log of the workload `append-log`, bytes.
RECORD = 256


def sqlite_setting(name: str) -> tuple[str, str] | None:
    """Return the journal mode and the level of `synchronous` of an SQLite workload; `None` for other workloads."""
    base = name.removesuffix(UNSYNCED)
    parts = base.split("-")
    if parts[0] != "sqlite" or not 2 <= len(parts) <= 3:
        return None
    mode, level = parts[1], parts[2] if len(parts) == 3 else "full"
    if mode not in MODES or level not in LEVELS:
        return None
    return mode, level if base == name else "off"


def is_known(name: str) -> bool:
    """Return whether there is a workload of this name."""
    return name.removesuffix(UNSYNCED) in ("files", "append-log") or sqlite_setting(name) is not None


def record(number: int) -> bytes:
    """Return a record of the log file: its number, filling, and a digest of both."""
    body = number.to_bytes(8, "little") + bytes(number * 7 % 251 for _ in range(RECORD - 40))
    return body + hashlib.sha256(body).digest()


def _say(line: str) -> None:
    """Print a line and wait for its confirmation, so that each operation is logged before it is executed."""
    print(line, flush=True)
    os.read(0, 1)
    if line.startswith("safe "):
        _done()


def _done() -> None:
    """Hook after each durable operation; replaced by `_leave_out_syncs`."""


def _leave_out_syncs() -> None:
    """Make syncs return at once, and write all data back every `WRITE_BACK_EVERY` operations."""
    global _done
    numbers = itertools.count(1)
    syncfs = ctypes.CDLL(None).syncfs

    def counted() -> None:
        if next(numbers) % WRITE_BACK_EVERY == 0:
            folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
            syncfs(folder)
            os.close(folder)

    _done = counted
    for name in ("fsync", "fdatasync"):
        setattr(os, name, lambda _file: None)


def _sync_folder() -> None:
    folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(folder)
    os.close(folder)


def _write(path: str, data: bytes, flags: int) -> None:
    file = os.open(path, flags | os.O_WRONLY, 0o644)
    while data:
        data = data[os.write(file, data) :]
    os.fsync(file)
    os.close(file)


def _described(data: bytes) -> str:
    return f"{len(data)} {hashlib.sha256(data).hexdigest()}"


def files(operations: int, dice: random.Random) -> None:
    """Create, overwrite, extend and delete small files, one at a time."""
    contents: dict[str, bytes] = {}
    for number in range(operations):
        choice = dice.random()
        fresh = dice.randbytes(dice.choice((0, 100, 4096, 5000, 20_000)))
        name = dice.choice(sorted(contents)) if contents and choice > 0.4 else f"f{number}"
        if choice <= 0.4 or not contents:
            _say(f"makes {name} {_described(fresh)}")
            _write(name, fresh, os.O_CREAT | os.O_EXCL)
            contents[name] = fresh
        elif choice <= 0.6:
            contents[name] += fresh
            _say(f"grows {name} {_described(contents[name])}")
            _write(name, fresh, os.O_APPEND)
        elif choice <= 0.85:
            contents[name] = fresh
            _say(f"turns {name} {_described(fresh)}")
            _write("new", fresh, os.O_CREAT | os.O_TRUNC)
            Path("new").rename(name)
        else:
            del contents[name]
            _say(f"turns {name} gone")
            Path(name).unlink()
        _sync_folder()
        _say(f"safe {name} {_described(contents[name]) if name in contents else 'gone'}")


def append_log(operations: int, _dice: random.Random) -> None:
    """Append records to one file."""
    file = os.open(LOG, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o644)
    os.fsync(file)
    _sync_folder()
    for number in range(1, operations + 1):
        os.write(file, record(number))
        os.fdatasync(file)
        _say(f"safe {LOG} {number}")


def sqlite(mode: str, level: str, operations: int, dice: random.Random) -> None:
    """Insert rows, each in a transaction of its own."""
    database = sqlite3.connect(DATABASE, isolation_level=None)
    actual = database.execute(f"PRAGMA journal_mode={mode}").fetchone()[0]
    if actual != mode:
        raise RuntimeError(f"SQLite has journal mode {actual}, not {mode}")
    database.execute(f"PRAGMA synchronous={level}")
    database.execute("PRAGMA wal_autocheckpoint=50")
    database.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, data BLOB)")
    _sync_folder()
    _say(f"safe {DATABASE} 0")
    for number in range(1, operations + 1):
        database.execute("BEGIN IMMEDIATE")
        database.execute("INSERT INTO t VALUES (?, ?)", (number, dice.randbytes(dice.randrange(20, 3000))))
        database.execute("COMMIT")
        _say(f"safe {DATABASE} {number}")
    database.close()


def main(name: str, operations: int, seed: int) -> None:
    """Run a workload in the current folder."""
    plain: dict[str, Callable[[int, random.Random], None]] = {"files": files, "append-log": append_log}
    dice = random.Random(seed)  # noqa: S311 - the same seed, the same operations.
    base = name.removesuffix(UNSYNCED)
    if base != name:
        _leave_out_syncs()
    if base in plain:
        plain[base](operations, dice)
    elif (setting := sqlite_setting(name)) is not None:
        sqlite(*setting, operations, dice)
    else:
        raise SystemExit(f"there is no workload {name}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))


#: Range of the mean time between two pauses of a workload, seconds; each seed draws its own mean.
_MEAN_S = (0.0005, 0.02)


def sync_file_system(folder: Path) -> None:
    """Write back everything in the file system of a folder."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        ctypes.CDLL(None, use_errno=True).syncfs(handle)
    finally:
        os.close(handle)


class Thinking:
    """Pauses the process group of a workload at random times while the context is active; seed 0 means no pauses."""

    def __init__(self, group: int, folder: Path, seed: int) -> None:
        """Set the process group, the mount point of its file system, and the seed."""
        self._group, self._folder = group, folder
        self._dice = random.Random(seed)  # noqa: S311 - the same seed, the same think times.
        low, high = (math.log(bound) for bound in _MEAN_S)
        self._mean_s = math.exp(self._dice.uniform(low, high))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True) if seed else None
        self.pauses = 0

    def __enter__(self) -> Thinking:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # The workload has ended.
            while not self._over.wait(self._dice.expovariate(1 / self._mean_s)):
                os.killpg(self._group, signal.SIGSTOP)
                try:
                    sync_file_system(self._folder)
                finally:
                    os.killpg(self._group, signal.SIGCONT)
                self.pauses += 1
