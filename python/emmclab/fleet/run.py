"""Profiles the new and changed recordings of a fleet in batches, and stores the rows of each finished batch."""

import contextlib
import errno
import functools
import json
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from emmclab import __version__
from emmclab.errors import InputError
from emmclab.fleet.table import DamagedError, Description, Identity, Table, bins, reason, refused_row, row_of, write
from emmclab.fleet.table_state import Copy, Profiled, State, state_of
from emmclab.runtime.bucket import Bucket
from emmclab.runtime.executors import Crash, Executor
from emmclab.runtime.files import digest, folder_aside, printable, sweep
from emmclab.runtime.local_copies import build_digest, scratch
from emmclab.traces.recording_files import Recording, among, is_in_parts, metadata_keys, parts_of, recordings

#: Maximum number and total bytes of recordings that are copied before they are profiled.
_AHEAD, _AHEAD_BYTES = 8, 64 << 20
#: Maximum length of the name of a copy, bytes: object names may be too long for a file system. Longer names lose
#: their beginning, because the end shows the format.
_NAME_BYTES = 100


class Source(Protocol):
    """A folder or bucket that contains recordings; it can be pickled and sent to worker processes."""

    def recordings(self, files: str) -> list[Recording]:
        """Return the recordings whose file names match the pattern `files`, sorted by path.

        Raises:
            InputError: the source cannot be read.
        """

    def address(self, path: str) -> str:
        """Return the full address of a recording."""

    def local_files(self, batch: Sequence[Recording]) -> Iterator[tuple[Recording, Path | InputError]]:
        """Yield each recording with its local path, valid until the next is requested, or with the error.

        Raises:
            InputError: no recording can be read at the moment, for example without a network.
        """


def source_of(place: str | Path) -> Source:
    """Return the source for a folder, or for the address of a bucket such as `s3://BUCKET/PREFIX`."""
    return InBucket(str(place).rstrip("/")) if "://" in str(place) else InFolder(Path(place))


class InFolder:
    """A local folder that contains recordings."""

    def __init__(self, folder: Path) -> None:
        """Set the path of the folder."""
        self._folder = folder

    def __str__(self) -> str:
        return str(self._folder)

    def recordings(self, files: str) -> list[Recording]:
        """Return the recordings below the folder."""
        return recordings(self._folder, files)

    def address(self, path: str) -> str:
        """Return the absolute path."""
        return str((self._folder / path).absolute())

    def local_files(self, batch: Sequence[Recording]) -> Iterator[tuple[Recording, Path | InputError]]:
        """Return the paths of the files in the folder."""
        return ((recording, self._folder / recording.path) for recording in batch)


class InBucket:
    """The objects below a prefix of a bucket; recordings are copied to this machine before they are profiled."""

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
        """Return the recordings below the address, with version tags (ETags) instead of modification times."""
        entries = self._bucket.list_objects()
        return among(
            (
                Recording(entry["path"], entry["size"], 0, entry["e_tag"] or entry["last_modified"].isoformat())
                for entry in entries
            ),
            files,
        )

    def address(self, path: str) -> str:
        """Return the address."""
        return f"{self._address}/{path}"

    def local_files(self, batch: Sequence[Recording]) -> Iterator[tuple[Recording, Path | InputError]]:
        """Yield each recording with a temporary copy, removed after use; some recordings are copied in advance."""
        remaining = deque(enumerate(batch))
        copies: deque[tuple[Recording, Future[Path | InputError]]] = deque()
        size = 0
        with folder_aside(scratch()) as aside, ThreadPoolExecutor(_AHEAD) as threads:
            while remaining or copies:
                while remaining and (not copies or (len(copies) < _AHEAD and size < _AHEAD_BYTES)):
                    number, recording = remaining.popleft()
                    copies.append((recording, threads.submit(self._copied, recording.path, aside / str(number))))
                    size += recording.bytes
                recording, future = copies.popleft()
                copy = future.result()
                yield recording, copy
                size -= recording.bytes
                if isinstance(copy, Path):
                    shutil.rmtree(copy.parent)

    def _copied(self, path: str, folder: Path) -> Path | InputError:
        """Copy a recording; return its path, or the reason why it cannot be copied."""
        bucket = self._bucket
        folder.mkdir()
        try:
            parent = path.rpartition("/")[0]
            names = (entry["path"] for entry in bucket.list_objects(parent)) if is_in_parts(path) else ()
            for name in parts_of(path, names):
                bucket.copy(name, folder / _name(name))
        except InputError as error:
            if error.errno not in (errno.ENOENT, errno.EACCES):
                raise
            return error
        return folder / _name(path)


def _name(path: str) -> str:
    return path.rpartition("/")[2].encode()[-_NAME_BYTES:].decode("utf-8", "ignore")


#: Maximum size of a batch of recordings, bytes. A batch takes about a second, so that an interruption loses little
#: work.
_BATCH_BYTES = 16 << 20
_BATCH_FILES = 64

#: Called with the numbers of finished recordings, of all recordings, and of those that were finished before this run.
FleetProgress = Callable[[int, int, int], None]


class Doubtful(NamedTuple):
    """A recording that may have changed since it was profiled, with the digest of its earlier contents, if known."""

    recording: Recording
    digest: str | None


@dataclass(frozen=True)
class Counts:
    """Numbers of recordings: in the fleet, profiled by this run, and unreadable (`refused`)."""

    recordings: int
    profiled: int
    refused: int
    #: Whether the table of the last run was damaged or of an earlier version, and was therefore not used.
    was_damaged: bool = False


def profile_fleet(
    folder: str | Path,
    table: str | Path,
    executor: Executor,
    *,
    files: str = "*",
    options: Mapping[str, Any] | None = None,
    progress: FleetProgress | None = None,
) -> tuple[Table, Counts]:
    """Profile the new and changed recordings below a folder, then write the table.

    A recording is unchanged if its size and times of change (in a bucket, its ETag), or its digest, are those of the
    last run. An interrupted run leaves its rows next to the table (`.NAME.state`; for a bucket, on this
    machine), and the next run continues from there. The table does not depend on the executor or on earlier runs.

    Args:
        folder: a folder, which is searched recursively, or the address of a bucket, such as `s3://BUCKET/PREFIX`.
        table: path of the Parquet file, on this machine or in a bucket.
        executor: runs the tasks.
        files: pattern of the file names of recordings.
        options: options of `emmclab.read`.
        progress: called as recordings are finished.

    Raises:
        InputError: there are no recordings, or a bucket cannot be reached.
        ConfigError: another process is working on the table, or an option is invalid.
    """
    options = dict(options or {})
    identity: Identity = {"version": __version__, "build": build_digest(), "reading": options}
    source, copy = source_of(folder), Copy(table)
    own_address = copy.name if "://" in copy.name else str(copy.path.absolute())
    in_fleet = [recording for recording in source.recordings(files) if source.address(recording.path) != own_address]
    description: Description = {"identity": identity, "metadata": metadata_keys(in_fleet), "bins": bins()}
    if not in_fleet:
        raise InputError(
            "the folder contains no recording",
            hint="give the folder that contains the recordings, or a pattern of their names with --files",
        ).in_file(str(source))
    with copy.locked():
        sweep(copy.path.absolute().parent)
        with _full_disk_hint(copy), State(copy.path, identity) as state:
            former, was_damaged = _former(copy, identity)
            profiled = _update(source, copy, state, in_fleet, description, former, executor, progress)
        copy.put_state()
    written = Table(copy.path, copy.name)
    return written, Counts(len(in_fleet), profiled, len(written.refused()), was_damaged)


@contextlib.contextmanager
def _full_disk_hint(copy: Copy) -> Iterator[None]:
    """Add a hint to the error of a full disk: the finished rows are stored."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        hint = (
            f"finished rows are stored in {state_of(copy.path)}; free some space, and run the same command "
            "again to continue"
        )
        raise InputError.of(error, copy.name, hint) from error


def _update(
    source: Source,
    copy: Copy,
    state: State,
    in_fleet: Sequence[Recording],
    description: Description,
    former: Table | None,
    executor: Executor,
    progress: FleetProgress | None,
) -> int:
    """Profile the recordings that may have changed, and update the table; return how many were profiled."""
    identity = description["identity"]
    in_table = dict(former.digests()) if former else {}
    doubtful = [doubt for recording in in_fleet if (doubt := _doubt(recording, state, in_table)) is not None]
    before = len(in_fleet) - len(doubtful)
    profiled = 0

    def report() -> None:
        if progress is not None:
            progress(before + state.added, len(in_fleet), before)

    work = functools.partial(_profile, source, identity["reading"])
    waiting = deque(_batches(doubtful))
    try:
        for task, outcome in executor.run(work, lambda _previous: waiting.popleft() if waiting else None):
            if isinstance(outcome, Crash):
                if len(task) > 1:
                    # One recording of the task caused the crash. Retry each recording in a task of its own to find it.
                    waiting.extend((doubt,) for doubt in task)
                    continue
                outcome = _crashed(source, task[0].recording, outcome)
            state.add(outcome)
            profiled += sum(result.row is not None for result in outcome)
            report()
    except KeyboardInterrupt:
        # The interrupt may have come before the rows of the last batch were counted, so they are counted here.
        state.count()
        report()
        raise
    paths = [recording.path for recording in in_fleet]
    kept = [
        (printable(path), in_table[printable(path)])
        for path in paths
        if not state.has_row(path) and printable(path) in in_table
    ]
    write(copy.new_path, description, state.rows(paths), former, kept)
    copy.put()
    state.remove_rows(paths)
    return profiled


def _former(copy: Copy, identity: Identity) -> tuple[Table | None, bool]:
    """Return the table of an earlier run if its rows can be reused, else None; and whether the table is damaged."""
    if not copy.path.exists():
        return None, False
    try:
        former = Table(copy.path, copy.name)
    except DamagedError:
        return None, True
    return (former if former.description["identity"] == identity else None), False


def _doubt(recording: Recording, state: State, in_table: Mapping[str, str]) -> Doubtful | None:
    """Return the recording if it may have changed since it was profiled.

    Return None if its size and its time of change are the same as in the last run.
    """
    name = printable(recording.path)
    before, digest = state.profiled.get(recording.path, (None, in_table.get(name)))
    has_row = state.has_row(recording.path) or (digest is not None and in_table.get(name) == digest)
    if not has_row:
        return Doubtful(recording, None)
    return None if before == recording else Doubtful(recording, digest)


def _batches(doubtful: Sequence[Doubtful]) -> list[tuple[Doubtful, ...]]:
    """Divide recordings into batches, large recordings first, so that the run does not end with a long batch."""
    batches: list[tuple[Doubtful, ...]] = []
    batch: list[Doubtful] = []
    size = 0
    for doubt in sorted(doubtful, key=lambda doubt: -doubt.recording.bytes):
        if batch and (len(batch) == _BATCH_FILES or size + doubt.recording.bytes > _BATCH_BYTES):
            batches.append(tuple(batch))
            batch, size = [], 0
        batch.append(doubt)
        size += doubt.recording.bytes
    return [*batches, tuple(batch)] if batch else batches


def _crashed(source: Source, recording: Recording, crash: Crash) -> list[Profiled]:
    """Return a row for a recording whose reading crashed the worker process."""
    return [
        _refused(recording, place, f"reading it crashed: {crash.reason}")
        for _, place in source.local_files([recording])
    ]


def _refused(recording: Recording, place: Path | InputError, reason: str) -> Profiled:
    row = refused_row(place if isinstance(place, Path) else None, recording.path, reason)
    return Profiled(recording, row["digest"], json.dumps(row | {"bytes": recording.bytes}))


def _profile(source: Source, options: Mapping[str, Any], batch: Sequence[Doubtful]) -> list[Profiled]:
    """Profile the recordings of a batch; a recording whose digest is unchanged keeps its row."""
    results = []
    opened = source.local_files([doubt.recording for doubt in batch])
    for (recording, former), (_, place) in zip(batch, opened, strict=True):
        if isinstance(place, InputError):
            text = reason(place, source.address(recording.path), recording.path)
            results.append(_refused(recording, place, text))
        elif former is not None and digest([place]) == former:
            results.append(Profiled(recording, former, None))
        else:
            row = row_of(place, recording.path, options) | {"bytes": recording.bytes}
            results.append(Profiled(recording, row["digest"], json.dumps(row)))
    return results
