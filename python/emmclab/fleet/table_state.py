"""The state file of a fleet's table, which is also its lock, and the local copy of a table in a bucket.

Each line of the state file is JSON. The first line contains the build and the options for reading traces. Each other
line describes a profiled recording: size, times of change, digest, and `row`, its row if the table does not contain it
yet. `check` is the start (16 digits) of the SHA-256 of the line up to this key. If the file is lost, the next run only
takes longer: it compares the digests of all recordings with those in the table.
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
    #: Table row of the recording as JSON in one line; None if the table already contains the row.
    row: str | None


#: Text that precedes the checksum at the end of a line.
_CHECK = ', "check": "'


def _with_checksum(line: str) -> str:
    return f'{line}{_CHECK}{hashlib.sha256(line.encode()).hexdigest()[:16]}"}}\n'


def state_of(table: Path) -> Path:
    """Return the path of the state file of a table."""
    return table.with_name(f".{table.name}.state")


def busy(table: object) -> ConfigError:
    """Return the error that another process is working on a table."""
    return ConfigError(
        "another process is working on this table",
        hint="wait until the other process has ended, or choose another table with -o",
    ).in_file(str(table))


class State:
    """The open state file of one table; while it is open, no other process can work on the table."""

    def __init__(self, table: Path, identity: Identity) -> None:
        """Set the table and its identity: everything besides the recordings on which the rows of the table depend."""
        self.path = state_of(table)
        self._table = table
        self._identity = identity
        self._file: IO[str] | None = None
        self._size = 0
        #: Profiled recordings and their digests, by path.
        self.profiled: dict[str, tuple[Recording, str | None]] = {}
        #: By path of a recording: offset of its row in the state file. Contains only rows that are not in the table
        #: yet.
        self._row_offsets: dict[str, int] = {}
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

    def add(self, results: Iterable[Profiled]) -> None:
        """Add results; they are stored even if this process is killed afterwards."""
        for result in results:
            self._append(result)
        self._open.flush()

    def count(self) -> None:
        """Set `added` to the number of lines that were added to the file.

        The lines are counted in the file, because an interrupt may come directly after a line is written.
        """
        self._open.flush()
        self._open.seek(0)
        self.added = sum(1 for _ in self._open) - self._lines_before

    def has_row(self, path: str) -> bool:
        """Return whether the state file contains the row of a recording."""
        return path in self._row_offsets

    def rows(self, paths: Iterable[str]) -> Iterator[str]:
        """Yield the rows of these recordings as lines of JSON; skip recordings without a row in the state file."""
        for path in paths:
            if path in self._row_offsets:
                self._open.seek(self._row_offsets[path])
                yield json.dumps(json.loads(self._open.readline())["row"]) + "\n"

    def remove_rows(self, paths: Iterable[str]) -> None:
        """Remove all rows, because the table now contains them. Also remove recordings that are not in `paths`."""
        remaining = [(path, self.profiled[path]) for path in paths]
        self._clear()
        self.add(Profiled(recording, digest, None) for _, (recording, digest) in remaining)

    @property
    def _open(self) -> IO[str]:
        if self._file is None:
            raise ValueError("the state file of the fleet table is not open")
        return self._file

    def _clear(self) -> None:
        """Remove all recordings from the file. If the process is killed here, the next run only takes longer."""
        self._open.truncate(0)
        self.profiled, self._row_offsets = {}, {}
        self._size = self._open.write(json.dumps({"identity": self._identity}, sort_keys=True) + "\n")

    def _append(self, result: Profiled) -> None:
        recording, digest, row = result
        about = json.dumps([*recording, digest])
        self._record(recording, digest, row is not None)
        self._size += self._open.write(_with_checksum(f'{{"recording": {about}, "row": {row or "null"}'))
        self.added += 1

    def _record(self, recording: Recording, digest: str | None, has_row: bool) -> None:
        """Add a line of the state file to the index. The line is at the end of the part read or written so far."""
        path = recording.path
        if has_row:
            self._row_offsets[path] = self._size
        elif path in self.profiled and self.profiled[path][1] != digest:
            self._row_offsets.pop(path, None)
        self.profiled[path] = recording, digest

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
                self._record(Recording(*recording), digest, entry["row"] is not None)
                self._size += len(line)
                lines += 1
        except (ValueError, KeyError, TypeError):
            pass
        if self._size:
            self._open.truncate(self._size)
        else:
            self._clear()
            self._open.flush()
        self._lines_before = lines


class Copy:
    """The local copy of a fleet's table that is stored in a bucket; for a local table, the table itself."""

    def __init__(self, address: str | Path) -> None:
        """Set the address of the table: a path, or an address in a bucket such as `s3://BUCKET/PREFIX/NAME`."""
        self.name = str(address)
        self._bucket: Bucket | None = None
        #: Path of the table (of a local copy if the table is in a bucket), and path at which a new table is written.
        self.path = self.new_path = Path(address)
        if "://" in self.name:
            parent, _, self._object = self.name.rpartition("/")
            self._bucket = Bucket(parent, "--output")
            self._folder = scratch() / "fleets" / hashlib.sha256(self.name.encode()).hexdigest()[:32]
            self.path, self.new_path = self._folder / "fleet.parquet", self._folder / "made.parquet"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the local copy for this process, and update it from the bucket."""
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
        """Update the local copy of the table; return its path."""
        with self.locked():
            if not self.exists():
                raise InputError("file not found", hint="check the path").in_file(self.name)
            return self.path

    def exists(self) -> bool:
        """Return whether the table exists."""
        return self.path.is_file() if self._bucket is None else self._bucket.head(self._object) is not None

    def put(self) -> None:
        """Replace the table in the bucket by the new table at `new_path`."""
        if self._bucket is None:
            return
        version = self._bucket.replace(self._object, self.new_path, self._former())
        if version is None:
            raise ConfigError(
                "another process has written this fleet table during the run",
                hint="run the same command again, which continues from the finished rows",
            ).in_file(self.name)
        self.new_path.replace(self.path)
        self._note(version)
        written_files[-1] = self.name

    def put_state(self) -> None:
        """Store the state file next to the table in the bucket."""
        if self._bucket is not None:
            self._bucket.write(state_of(Path(self._object)).name, state_of(self.path))

    def _update(self) -> None:
        """Copy the table and its state file to this machine; keep a local state file of an interrupted run."""
        if self._bucket is None:
            return
        current, copied = self._bucket.head(self._object), self._former()
        if current is None:
            self.path.unlink(missing_ok=True)
            self._noted.unlink(missing_ok=True)
            return
        is_same = copied is not None and copied["e_tag"] == current["e_tag"]
        if is_same and self.path.exists() and is_intact(self.path):
            return
        state = state_of(self.path)
        with folder_aside(self._folder) as aside:
            copy = aside / "copy"
            remote_state = state_of(Path(self._object)).name
            if not _has_rows(state) and self._bucket.head(remote_state) is not None:
                self._bucket.copy(remote_state, copy)
                copy.replace(state)
            self._bucket.copy(self._object, copy)
            copy.replace(self.path)
        self._note(current)

    @property
    def _noted(self) -> Path:
        """The path of the file that records which version of the table was copied."""
        return self._folder / "copied.json"

    def _former(self) -> PutObject | None:
        with contextlib.suppress(OSError, ValueError):
            noted: PutObject = json.loads(self._noted.read_bytes())
            return noted
        return None

    def _note(self, copied: PutObject) -> None:
        write_atomically(self._noted, json.dumps({"e_tag": copied["e_tag"], "version": copied["version"]}))
        written_files.pop()  # This file is not an output of the command.


def _has_rows(state: Path) -> bool:
    with contextlib.suppress(OSError), state.open(encoding="ascii", errors="replace") as file:
        return any('"row": {' in line for line in file)
    return False
