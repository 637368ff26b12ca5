"""Sources of recordings of a fleet: a local folder, or a bucket of an object store."""

import errno
import functools
import shutil
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from emmclab.errors import InputError
from emmclab.runtime.bucket import Bucket
from emmclab.runtime.files import folder_aside
from emmclab.runtime.local_copies import scratch
from emmclab.traces.recording_files import Recording, among, is_in_parts, parts_of, recordings

#: Limits of the recordings that are copied ahead of the one being profiled: number and total bytes.
_AHEAD, _AHEAD_BYTES = 8, 64 << 20
#: Maximum length of the name of a copy, because object names may be too long for a file system. The end of
#: the name is kept, because it shows the format.
_NAME_BYTES = 100


class Source(Protocol):
    """A source of recordings by path; it is pickled for workers."""

    def recordings(self, files: str) -> list[Recording]:
        """Find the recordings whose file names match, in the order of their paths.

        Raises:
            InputError: the source cannot be read.
        """
        ...

    def address(self, path: str) -> str:
        """Return the full address of a recording."""
        ...

    def local_files(self, batch: Sequence[Recording]) -> Iterator[tuple[Recording, Path | InputError]]:
        """Yield each recording as a local file, until the next one is requested, or why it is missing.

        Raises:
            InputError: no recording can be read at the moment, for example without a network.
        """
        ...


def source_of(place: str | Path) -> Source:
    """Return the source for a folder, or for the address of a bucket such as `s3://BUCKET/PREFIX`."""
    return InBucket(str(place).rstrip("/")) if "://" in str(place) else InFolder(Path(place))


class InFolder:
    """A local folder."""

    def __init__(self, folder: Path) -> None:
        """Set the path of the folder."""
        self._folder = folder

    def __str__(self) -> str:
        return str(self._folder)

    def recordings(self, files: str) -> list[Recording]:
        """Find the recordings below the folder."""
        return recordings(self._folder, files)

    def address(self, path: str) -> str:
        """Return the absolute path."""
        return str((self._folder / path).absolute())

    def local_files(self, batch: Sequence[Recording]) -> Iterator[tuple[Recording, Path | InputError]]:
        """Return the files where they are."""
        return ((one, self._folder / one.path) for one in batch)


class InBucket:
    """A part of a bucket, whose recordings are copied to this machine one after the other."""

    def __init__(self, address: str) -> None:
        """Set the address; no request is sent yet."""
        self._address = address

    def __str__(self) -> str:
        return self._address

    def __reduce__(self) -> "tuple[type[InBucket], tuple[str]]":
        """Pickle without the connection, so that a worker opens its own."""
        return InBucket, (self._address,)

    @functools.cached_property
    def _bucket(self) -> Bucket:
        return Bucket(self._address, "FOLDER")

    def recordings(self, files: str) -> list[Recording]:
        """Find the recordings below the address; the version tags of the store are used instead of times."""
        listed = self._bucket.list_objects()
        return among(
            (
                Recording(one["path"], one["size"], 0, one["e_tag"] or one["last_modified"].isoformat())
                for one in listed
            ),
            files,
        )

    def address(self, path: str) -> str:
        """Return the address."""
        return f"{self._address}/{path}"

    def local_files(self, batch: Sequence[Recording]) -> Iterator[tuple[Recording, Path | InputError]]:
        """Copy some recordings ahead, each to a folder that is removed afterwards."""
        left = deque(enumerate(batch))
        copies: deque[tuple[Recording, Future[Path | InputError]]] = deque()
        size = 0
        with folder_aside(scratch()) as aside, ThreadPoolExecutor(_AHEAD) as threads:
            while left or copies:
                while left and (not copies or (len(copies) < _AHEAD and size < _AHEAD_BYTES)):
                    number, one = left.popleft()
                    copies.append((one, threads.submit(self._copied, one.path, aside / str(number))))
                    size += one.bytes
                one, future = copies.popleft()
                copy = future.result()
                yield one, copy
                size -= one.bytes
                if isinstance(copy, Path):
                    shutil.rmtree(copy.parent)

    def _copied(self, path: str, folder: Path) -> Path | InputError:
        """Copy a recording; return its path, or the reason why it cannot be copied."""
        bucket = self._bucket
        folder.mkdir()
        try:
            parent = path.rpartition("/")[0]
            names = (one["path"] for one in bucket.list_objects(parent)) if is_in_parts(path) else ()
            for name in parts_of(path, names):
                bucket.copy(name, folder / _name(name))
        except InputError as error:
            if error.errno not in (errno.ENOENT, errno.EACCES):
                raise
            return error
        return folder / _name(path)


def _name(path: str) -> str:
    return path.rpartition("/")[2].encode()[-_NAME_BYTES:].decode("utf-8", "ignore")
