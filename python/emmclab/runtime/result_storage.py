"""The storage for results of a study: a folder, or a bucket of an object store."""

import contextlib
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Protocol

from emmclab.errors import ConfigError, InputError
from emmclab.runtime.files import (
    folder_aside,
    folder_for_reading,
    lock,
    move_into_place,
    open_own,
    refuse_link,
    sweep,
    write_atomically,
)

#: Suffix of the name of a damaged file that was set aside.
DAMAGED = ".damaged"
#: Name of the file that a run locks in its results folder.
_LOCK = ".running"


class Place(Protocol):
    """Stores the files of a study by name; each file is written atomically."""

    @property
    def folder(self) -> Path | None:
        """The local folder; None for a bucket."""

    def names(self, below: str) -> list[str]:
        """Return the names of the files in the subfolder `below`, in order."""

    def read(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            InputError: there is no such file, or it cannot be reached.
        """

    def write(self, name: str, content: bytes | Path, *, is_derived: bool = False) -> None:
        """Store a file; `content` is its bytes, or the path of a file in `aside`, which may be moved.

        The file is synced to disk, unless it `is_derived` from other files and can be computed again.
        """

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""

    def set_aside(self, name: str) -> str:
        """Rename a damaged file, so that it is not read again; return its new name."""

    def aside(self) -> contextlib.AbstractContextManager[Path]:
        """Return a local temporary folder for files before they are stored, and for DuckDB."""

    def reading(self) -> contextlib.AbstractContextManager[Path]:
        """Return a local temporary folder for reading stored files, even if the storage is not writable."""

    def paths(self, names: Sequence[str], aside: Path) -> list[Path]:
        """Return local paths of files; those of a bucket are copied to `aside`."""

    def lock(self, shard: str) -> contextlib.AbstractContextManager[None]:
        """Lock the study against conflicting runs: those of the same shard, and those of all cells.

        If `shard` is empty, all other runs conflict.

        Raises:
            ConfigError: another run holds the lock.
        """


def place_of(results: str | Path, study: str) -> Place:
    """Return the storage of a study below a results folder, or a bucket such as `s3://BUCKET/PREFIX`."""
    if "://" in str(results):
        from emmclab.runtime.bucket import Bucket

        return Bucket(f"{str(results).rstrip('/')}/{study}")
    return Folder(Path(results) / study)


def refused(place: object, by: str) -> ConfigError:
    """Return the error that another run of the study is in progress; `by` identifies it in the message."""
    return ConfigError(
        f"{place}: another run is writing its results to this folder{by}",
        field="--results",
        hint="wait for the other run, use another --results folder, or divide the cells: --shard 1/2 and --shard 2/2",
    )


class Folder:
    """A local folder, or one that several machines share."""

    def __init__(self, folder: Path) -> None:
        """Set the folder, which is created with its first file."""
        self.folder = folder

    def __str__(self) -> str:
        return str(self.folder)

    def names(self, below: str) -> list[str]:
        """Return the names of the files in the subfolder `below`."""
        paths = refuse_link(self.folder / below).glob("[!.]*")
        return sorted(str(PurePosixPath(below, path.name)) for path in paths if path.is_file())

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        try:
            return self.folder.joinpath(name).read_bytes()
        except OSError as error:
            raise InputError.of(error, self.folder / name) from error

    def write(self, name: str, content: bytes | Path, *, is_derived: bool = False) -> None:
        """Store a file."""
        path = refuse_link(self.folder / name)
        refuse_link(path.parent).mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            write_atomically(path, content)
            return
        if not is_derived:
            with content.open("rb") as file:
                os.fsync(file.fileno())
        move_into_place(content, path)

    def remove(self, name: str) -> None:
        """Remove a file."""
        self.folder.joinpath(name).unlink(missing_ok=True)

    def set_aside(self, name: str) -> str:
        """Rename a damaged file; return its new name."""
        path = self.folder / name
        path.replace(path.with_name(f"{path.name}{DAMAGED}"))
        return name + DAMAGED

    def aside(self) -> contextlib.AbstractContextManager[Path]:
        """Return a temporary folder on the disk that contains the results."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return folder_aside(self.folder.absolute())

    def reading(self) -> contextlib.AbstractContextManager[Path]:
        """Return a temporary folder for reading: in this folder or, if it is read-only, in the system's."""
        return folder_for_reading(self.folder.absolute())

    def paths(self, names: Sequence[str], aside: Path) -> list[Path]:
        """Return the paths of the files in the folder."""
        del aside
        return [self.folder / name for name in names]

    @contextlib.contextmanager
    def lock(self, shard: str) -> Iterator[None]:
        """Lock the result folder; runs of different shards can hold the lock at the same time.

        The lock is released even if the process is killed.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as locks:
            locks.enter_context(self._locked(_LOCK, shared=bool(shard)))
            if shard:
                locks.enter_context(self._locked(f"{_LOCK}-{shard}", shared=False))
            sweep(self.folder)
            yield

    @contextlib.contextmanager
    def _locked(self, name: str, *, shared: bool) -> Iterator[None]:
        path = self.folder / name
        while True:
            with open_own(path) as file:
                if not lock(file, wait=False, shared=shared):
                    file.seek(0)
                    raise refused(self, f" ({holder})" if (holder := file.read(200)) else "")
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(path.stat(), os.fstat(file.fileno())):
                        if not shared:
                            file.truncate(0)
                            file.write(f"process {os.getpid()} on {socket.gethostname()}")
                            file.flush()
                        try:
                            yield
                        finally:
                            # Remove the lock file of an exclusive lock. A waiting process detects this, and creates a
                            # new file.
                            if not shared:
                                path.unlink(missing_ok=True)
                        return
