"""Local copy of a table in a bucket: it is changed locally, and then replaces the table in the bucket."""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from emmclab.errors import ConfigError, InputError
from emmclab.fleet.table_state import busy, state_of
from emmclab.runtime.bucket import Bucket, PutObject
from emmclab.runtime.checksummed import is_intact
from emmclab.runtime.files import folder_aside, lock, write_atomically, written_files
from emmclab.runtime.local_copies import scratch


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
        """Lock the copy against other local processes, and update it.

        Raises:
            ConfigError: another process is working on the table.
            InputError: the bucket cannot be reached.
        """
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
        """Update the copy; return its path.

        Raises:
            ConfigError: another process is working on the table.
            InputError: the bucket cannot be reached, or has no such table.
        """
        with self.alone():
            if not self.is_there():
                raise InputError(f"{self.name}: file not found", file=self.name, hint="check the path")
            return self.path

    def is_there(self) -> bool:
        """Return whether the table exists."""
        return self.path.is_file() if self._bucket is None else self._bucket.head(self._object) is not None

    def put(self) -> None:
        """Replace the table by the new one.

        Raises:
            ConfigError: another process has replaced it meanwhile.
        """
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
