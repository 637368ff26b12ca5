"""The state of a fleet's table in a file next to it: provenance, pending rows, lock; and its local copy of a bucket.

Each line is JSON. The first contains what determines a row besides the recording: build and options of
reading. Each other line describes the profiled file of a recording (size, times of change, digest). `row` is
its row, until the table contains it; `check` is the SHA-256 of the line up to this key, first 16 digits. If
this file is lost, only time is lost: the digests in the table show what is unchanged.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple, Self

from emmclab.errors import ConfigError, InputError
from emmclab.fleet.table import Identity
from emmclab.runtime.bucket import Bucket, PutObject
from emmclab.runtime.checksummed import is_intact
from emmclab.runtime.files import folder_aside, lock, open_own, write_atomically, written_files
from emmclab.runtime.local_copies import scratch
from emmclab.traces.recording_files import Recording


class Profiled(NamedTuple):
    """A profiled recording; `row` is None if the table already contains the row."""

    recording: Recording
    digest: str | None
    #: The row as JSON, in one line.
    row: str | None


#: The text before the checksum of a line.
_CHECK = ', "check": "'


def _with_checksum(line: str) -> str:
    """Return a line with its checksum."""
    return f'{line}{_CHECK}{hashlib.sha256(line.encode()).hexdigest()[:16]}"}}\n'


def state_of(table: Path) -> Path:
    """Return the path of the state file of a table."""
    return table.with_name(f".{table.name}.state")


def busy(table: object) -> ConfigError:
    """Return the error that another process is working on a table."""
    return ConfigError(
        f"{table}: another process is working on this table",
        file=str(table),
        hint="wait for it, or name another table with -o",
    )


class State:
    """The state of one table; while it is open, no other process can work on the table."""

    def __init__(self, table: Path, identity: Identity) -> None:
        """Set the table, and what determines a row besides the recording."""
        self.path = state_of(table)
        self._table = table
        self._identity = identity
        self._file: IO[str] | None = None
        self._size = 0
        #: The profiled file of each path, and its digest.
        self.known: dict[str, tuple[Recording, str | None]] = {}
        #: Offset of the line of each path whose row is here and not in the table.
        self._places: dict[str, int] = {}
        #: Number of recordings added since the state was opened.
        self.added = 0
        self._lines_before = 0

    def __enter__(self) -> Self:
        self._file = open_own(self.path)
        if not lock(self._file, wait=False):
            self._file.close()
            raise busy(self._table)
        self._read()
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, done: Iterable[Profiled]) -> None:
        """Add rows; they survive the end of this process."""
        for one in done:
            self._append(one)
        self._open.flush()

    def count(self) -> None:
        """Count the added lines in the file; an interrupt may have come between a line and its count."""
        self._open.flush()
        self._open.seek(0)
        self.added = sum(1 for _ in self._open) - self._lines_before

    def has_row(self, path: str) -> bool:
        """Return whether the row of a recording is finished."""
        return path in self._places

    def rows(self, paths: Iterable[str]) -> Iterator[str]:
        """Yield the finished row of each recording that has one, as a line of JSON."""
        for path in paths:
            if path in self._places:
                self._open.seek(self._places[path])
                yield json.dumps(json.loads(self._open.readline())["row"]) + "\n"

    def settle(self, left: Iterable[str]) -> None:
        """Remove the rows, which the table now contains, and every recording except those in `left`."""
        known = [(path, self.known[path]) for path in left]
        self._begin()
        self.add(Profiled(recording, digest, None) for _, (recording, digest) in known)

    @property
    def _open(self) -> IO[str]:
        if self._file is None:
            raise ValueError("the state is not open")
        return self._file

    def _begin(self) -> None:
        """Empty the file. If the process is killed here, only time is lost."""
        self._open.truncate(0)
        self.known, self._places = {}, {}
        self._size = self._open.write(json.dumps({"identity": self._identity}, sort_keys=True) + "\n")

    def _append(self, one: Profiled) -> None:
        recording, digest, row = one
        about = json.dumps([*recording, digest])
        self._take(recording, digest, row is not None)
        self._size += self._open.write(_with_checksum(f'{{"recording": {about}, "row": {row or "null"}'))
        self.added += 1

    def _take(self, recording: Recording, digest: str | None, has_row: bool) -> None:
        """Record a line that starts at the end of the others."""
        path = recording.path
        if has_row:
            self._places[path] = self._size
        elif path in self.known and self.known[path][1] != digest:
            self._places.pop(path, None)
        self.known[path] = recording, digest

    def _read(self) -> None:
        """Read the lines of an earlier run; a damaged or unfinished line and all later lines are dropped."""
        self._open.seek(0)
        self._size, lines = 0, 1
        try:
            first = self._open.readline()
            if json.loads(first or "null") != {"identity": self._identity}:
                raise ValueError
            self._size = len(first)
            while (line := self._open.readline()).endswith("\n"):
                if line != _with_checksum(line.rpartition(_CHECK)[0]):
                    raise ValueError
                entry = json.loads(line)
                *recording, digest = entry["recording"]
                self._take(Recording(*recording), digest, entry["row"] is not None)
                self._size += len(line)
                lines += 1
        except (ValueError, KeyError, TypeError):
            pass
        if self._size:
            self._open.truncate(self._size)
        else:
            self._begin()
            self._open.flush()
        self._lines_before = lines


class Copy:
    """A local copy of the table of a fleet, which may be in a bucket."""

    def __init__(self, address: str | Path) -> None:
        """Set the table: a path, or an address such as `s3://BUCKET/PREFIX/NAME`."""
        self.name = str(address)
        self._bucket: Bucket | None = None
        #: Path of the copy, and path at which a new table is written.
        self.path = self.made = Path(address)
        if "://" in self.name:
            parent, _, self._object = self.name.rpartition("/")
            self._bucket = Bucket(parent, "--output")
            self._folder = scratch() / "fleets" / hashlib.sha256(self.name.encode()).hexdigest()[:32]
            self.path, self.made = self._folder / "fleet.parquet", self._folder / "made.parquet"

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the copy against other local processes, and update it."""
        if self._bucket is None:  # A local table is locked by its state.
            yield
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "lock").open("w") as file:
            if not lock(file, wait=False):
                raise busy(self.name)
            self._update()
            yield

    def fetch(self) -> Path:
        """Update the copy; return its path."""
        with self.alone():
            if not self.is_there():
                raise InputError(f"{self.name}: file not found", file=self.name, hint="check the path")
            return self.path

    def is_there(self) -> bool:
        """Return whether the table exists."""
        return self.path.is_file() if self._bucket is None else self._bucket.head(self._object) is not None

    def put(self) -> None:
        """Replace the table by the new one."""
        if self._bucket is None:
            return
        made = self._bucket.replace(self._object, self.made, self._former())
        if made is None:
            raise ConfigError(
                f"{self.name}: another process has written this table meanwhile",
                file=self.name,
                hint="run the same command again, which continues from what is profiled by now",
            )
        self.made.replace(self.path)
        self._note(made)
        written_files[-1] = self.name

    def put_state(self) -> None:
        """Store the state of the table next to it."""
        if self._bucket is not None:
            self._bucket.write(state_of(Path(self._object)).name, state_of(self.path))

    def _update(self) -> None:
        """Copy the table and its state, but not the state if an interrupted run has left rows here."""
        if self._bucket is None:
            return
        there, here = self._bucket.head(self._object), self._former()
        if there is None:
            self.path.unlink(missing_ok=True)
            self._noted.unlink(missing_ok=True)
            return
        is_same = here is not None and here["e_tag"] == there["e_tag"]
        if is_same and self.path.exists() and is_intact(self.path):
            return
        state = state_of(self.path)
        with folder_aside(self._folder) as aside:
            copy = aside / "copy"
            beside = state_of(Path(self._object)).name
            if not _has_rows(state) and self._bucket.head(beside) is not None:
                self._bucket.copy(beside, copy)
                copy.replace(state)
            self._bucket.copy(self._object, copy)
            copy.replace(self.path)
        self._note(there)

    @property
    def _noted(self) -> Path:
        """Return the path of the file with the version of the copied object."""
        return self._folder / "copied.json"

    def _former(self) -> PutObject | None:
        with contextlib.suppress(OSError, ValueError):
            noted: PutObject = json.loads(self._noted.read_bytes())
            return noted
        return None

    def _note(self, there: PutObject) -> None:
        write_atomically(self._noted, json.dumps({"e_tag": there["e_tag"], "version": there["version"]}))
        written_files.pop()  # This file is not an output of the command.


def _has_rows(state: Path) -> bool:
    with contextlib.suppress(OSError), state.open(encoding="ascii", errors="replace") as file:
        return any('"row": {' in line for line in file)
    return False
