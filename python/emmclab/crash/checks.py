"""Checks that compare the files after a power cut with the data that the workload reported as durable."""

import functools
import hashlib
import re
import sqlite3
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Protocol

from emmclab.crash import generated_programs, workloads
from emmclab.crash.expected_files import CheckPrograms
from emmclab.crash.promises import Files, Lost
from emmclab.crash.scratch_folders import in_memory, scratch


class Check(Protocol):
    """Compares the files after a power cut with what the workload acknowledged as durable."""

    #: Description of the lines that the check understands, for messages.
    form: str

    def reader(self) -> Callable[[str], bool]:
        """Return a function that gets each output line in order and returns whether the check understands it."""

    def file_names(self, lines: Sequence[str]) -> list[str]:
        """Return the names of the files that the check needs."""

    def folder(self, _lines: Sequence[str]) -> str | None:
        """Return the folder that the check reads completely; `None` if it reads only single files."""
        return None

    def __call__(self, files: Files, lines: Sequence[str]) -> Lost | None:
        """Return the broken durability promise that the files show; `None` if they show none."""


#: SQLite's documentation of `synchronous`.
_PRAGMA = "sqlite.org/pragma.html#pragma_synchronous"
#: SQLite's documentation of two topics: assumptions about interrupted writes, and atomic commits (section 7.6).
_PSOW, _ATOMIC = "sqlite.org/psow.html", "sqlite.org/atomiccommit.html, 7.6"
#: Suffixes of the files of a database.
_SUFFIXES = ("", "-journal", "-wal")
#: Matches a line about a file: path below the mount point, and `gone` or the size and SHA-256 of the contents.
_OF_FILE = re.compile(
    r"(?:safe|makes|grows|turns) (?!/)(?!(?:\S*/)?\.\.?(?:/|\s))\S+ (?:gone|[0-9]{1,18} [0-9a-f]{64})"
)


def _numbered(name: str) -> Callable[[str], bool]:
    """Return a function that tests whether a line is `safe NAME N`."""
    line = re.compile(rf"safe {re.escape(name)} [0-9]{{1,18}}")
    return lambda text: line.fullmatch(text) is not None


def _last_safe(lines: Sequence[str], name: str) -> int:
    """Return the last number that was acknowledged for a log or a database; -1 if none was."""
    return max((int(line.removeprefix(f"safe {name} ")) for line in lines), default=-1)


class CheckFiles(Check):
    """Checks that each file has its last acknowledged contents, or the contents of a write that began later."""

    form = "`makes|grows|turns|safe NAME SIZE SHA256`, or `gone` instead of size and SHA-256"

    def reader(self) -> Callable[[str], bool]:
        """Return a function that recognises output lines about files."""
        return lambda line: _OF_FILE.fullmatch(line) is not None

    def file_names(self, lines: Sequence[str]) -> list[str]:
        """Return the name of every file that the output lines contain."""
        safe, started = _states(lines)
        return [f"/{name}" for name in sorted(safe.keys() | started.keys())]

    def __call__(self, files: Files, lines: Sequence[str]) -> Lost | None:
        """Return the durability promise that the files of a crash state violate; `None` if they violate none."""
        safe, started = _states(lines)
        for name in sorted(safe.keys() | started.keys()):
            data, before = files.read(f"/{name}"), safe.get(name, "gone")
            if _described(data) == before or _is_begun(data, before, *started.get(name, ("", ""))):
                continue
            detail = f"{name}: is {_short(_described(data))}, acknowledged was {_short(before)}"
            return Lost("fsync", "filesystem", detail)
        return None


def _states(lines: Sequence[str]) -> tuple[dict[str, str], dict[str, tuple[str, str]]]:
    """Return the last acknowledged contents of each file, and contents whose write began after that."""
    safe: dict[str, str] = {}
    started: dict[str, tuple[str, str]] = {}
    for line in lines:
        verb, name, contents = line.split(maxsplit=2)
        if verb == "safe":
            safe[name] = contents
            started.pop(name, None)
        else:
            started[name] = (verb, contents)
    return safe, started


def _described(data: bytes | None) -> str:
    return "gone" if data is None else f"{len(data)} {hashlib.sha256(data).hexdigest()}"


def _is_begun(data: bytes | None, before: str, verb: str, after: str) -> bool:
    """Return whether a file has its new contents, or is a valid intermediate step from old to new contents."""
    if _described(data) == after:
        return True
    if data is None or verb not in ("makes", "grows"):
        return False
    old_size, new_size = (0 if state == "gone" else int(state.split()[0]) for state in (before, after))
    is_prefix = verb == "makes" or _described(data[:old_size]) == before
    return is_prefix and old_size <= len(data) <= new_size


def _short(description: str) -> str:
    size, _, digest = description.partition(" ")
    return f"{size} bytes ({digest[:8]})" if digest else description


class CheckLog(Check):
    """Checks that every acknowledged record of a log file is present, in order."""

    form = f"`safe {workloads.LOG} N`"

    def reader(self) -> Callable[[str], bool]:
        """Return a function that recognises output lines about records."""
        return _numbered(workloads.LOG)

    def file_names(self, _lines: Sequence[str]) -> list[str]:
        """Return the name of the log."""
        return [f"/{workloads.LOG}"]

    def __call__(self, files: Files, lines: Sequence[str]) -> Lost | None:
        """Return the promise that the log file of a crash state breaks; `None` if it breaks none."""
        safe = _last_safe(lines, workloads.LOG)
        data = files.read(f"/{workloads.LOG}") or b""
        for number in range(1, safe + 1):
            read = data[(number - 1) * workloads.RECORD : number * workloads.RECORD]
            if read != _record(number):
                return Lost("fdatasync", "filesystem", f"record {number} of {safe} is damaged or missing")
        return None


@functools.cache
def _record(number: int) -> bytes:
    return workloads.record(number)


class CheckSqlite(Check):
    """Checks that a database opens, is intact, and has every row of a committed transaction."""

    form = f"`safe {workloads.DATABASE} N`, N the number of rows of the table t"

    def __init__(self, mode: str | None, level: str | None, *, garbles: bool = False) -> None:
        """Set SQLite's journal mode and its level of `synchronous`; both may be unknown.

        If they are unknown, no loss counts as documented by SQLite. `garbles` states that the device may leave garbage
        in the sectors of a write in flight.
        """
        self._mode, self._level, self._garbles = mode, level, garbles
        self._verdicts: dict[bytes, tuple[str | None, int]] = {}
        end = ExitStack()
        self._folder = end.enter_context(scratch(in_memory()))
        weakref.finalize(self, end.close)

    def reader(self) -> Callable[[str], bool]:
        """Return a function that recognises output lines about rows."""
        return _numbered(workloads.DATABASE)

    def file_names(self, _lines: Sequence[str]) -> list[str]:
        """Return the names of the database file and of its journal files."""
        return [f"/{workloads.DATABASE}{suffix}" for suffix in _SUFFIXES]

    def __call__(self, files: Files, lines: Sequence[str]) -> Lost | None:
        """Return the promise that the database of a crash state breaks; `None` if it breaks none."""
        safe = _last_safe(lines, workloads.DATABASE)
        parts = {suffix: files.read(f"/{workloads.DATABASE}{suffix}") for suffix in _SUFFIXES}
        if parts[""] is None:
            return Lost("commit", "application", "there is no database") if safe >= 0 else None
        digest = hashlib.sha256()
        for part in parts.values():
            digest.update(b"-" if part is None else len(part).to_bytes(8, "little") + part)
        key = digest.digest()
        if key not in self._verdicts:
            self._verdicts[key] = self._open(parts)
        fault, last = self._verdicts[key]
        if safe < 0:
            return None
        if fault is not None:
            return Lost("integrity", "application", fault, self._documented(None))
        if last < safe:
            detail = f"row {safe} was committed, but the last row is {last}"
            return Lost("commit", "application", detail, self._documented(safe - last))
        return None

    def _open(self, parts: dict[str, bytes | None]) -> tuple[str | None, int]:
        folder = self._folder
        for suffix in (*_SUFFIXES, "-shm"):
            path = folder / f"d{suffix}"
            path.unlink(missing_ok=True)
            if (part := parts.get(suffix)) is not None:
                path.write_bytes(part)
        try:
            database = sqlite3.connect(folder / "d", isolation_level=None)
            try:
                database.execute("PRAGMA synchronous=off")
                verdict = database.execute("PRAGMA integrity_check").fetchone()[0]
                if verdict != "ok":
                    return f"integrity_check: {verdict.splitlines()[-1]}", 0
                if not database.execute("SELECT 1 FROM sqlite_schema WHERE name = 't'").fetchone():
                    return None, -1
                count, last = database.execute("SELECT count(*), coalesce(max(n), 0) FROM t").fetchone()
            finally:
                database.close()
        except sqlite3.Error as error:
            return str(error), 0
        return (f"{last - count} rows are missing before row {last}", 0) if count != last else (None, last)

    def _documented(self, rows: int | None) -> str | None:
        """Return why SQLite's documentation permits this loss, or None; `rows` is None if the database is lost."""
        # A garbled block also damages older data: the last transaction in a WAL, or saved pages in a rollback journal.
        if self._garbles and ((self._mode == "wal" and rows == 1) or (self._mode == "persist" and rows is None)):
            return (
                "SQLite takes powersafe overwrite for granted (psow=1): that a write in flight damages no "
                f"bytes but its own; here it damages others of its block ({_PSOW})"
            )
        if rows is None or self._mode is None:
            return None
        if self._mode == "wal" and self._level == "normal":
            return f"WAL with synchronous=NORMAL does not sync at commit ({_PRAGMA})"
        if self._mode == "truncate" and self._level == "normal" and rows == 1:
            return (
                "no sync follows the truncation of the journal that commits, so that the last transaction "
                f"may roll back ({_ATOMIC})"
            )
        if self._mode == "delete" and self._level in ("normal", "full") and rows == 1:
            return (
                "without synchronous=EXTRA the folder is not synced after the journal is removed, so that "
                f"the last transaction may roll back ({_PRAGMA})"
            )
        return None


def check_for(workload: str, *, garbles: bool = False) -> Check:
    """Return the check of a workload; `garbles` means that sectors of a write in flight may contain garbage."""
    if workload == generated_programs.CHECK:
        return CheckPrograms()
    base = workload.removesuffix(workloads.UNSYNCED)
    if base == "files":
        return CheckFiles()
    if base == "append-log":
        return CheckLog()
    return CheckSqlite(*(workloads.sqlite_setting(workload) or (None, None)), garbles=garbles)
