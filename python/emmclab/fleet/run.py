"""Profiles a fleet from a folder or a bucket: new or changed recordings, in batches; each row is stored at once."""

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
from emmclab.runtime.build import build_digest
from emmclab.runtime.executors import Crash, Executor
from emmclab.runtime.files import digest, folder_aside, printable, sweep
from emmclab.runtime.local_copies import scratch
from emmclab.traces.recording_files import Recording, among, is_in_parts, metadata_keys, parts_of, recordings

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


#: Maximum bytes or files of a batch of recordings: about a second of work, so that an interruption loses no
#: more and the overhead of a task is negligible.
_BATCH_BYTES = 16 << 20
_BATCH_FILES = 64

#: Called with the numbers of recordings done, in all, and already done before this run.
FleetProgress = Callable[[int, int, int], None]


class Doubtful(NamedTuple):
    """A recording that may have changed, with the digest of its earlier profile, if any."""

    recording: Recording
    digest: str | None


@dataclass(frozen=True)
class Counts:
    """Counts of a run."""

    recordings: int
    profiled: int
    refused: int
    #: Whether the table of the last run was damaged or of an earlier version, so that nothing of it was used.
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
    """Profile every recording below a folder that the table does not contain yet, then write the table.

    A recording is unchanged if its size and times of change (in a bucket, the ETag) are those of the last run, or else
    if its digest is. An interrupted run leaves its rows next to the table (`.NAME.state`; for a bucket, on this
    machine), and the next run continues from there. The table does not depend on the executor or on earlier runs.

    Args:
        folder: searched recursively; or a bucket, as `s3://BUCKET/PREFIX`.
        table: the Parquet file, on this machine or in a bucket.
        executor: runs the tasks.
        files: pattern of file names.
        options: those of `emmclab.read`.
        progress: called as recordings are done.

    Raises:
        InputError: there are no recordings, or a bucket cannot be reached.
        ConfigError: another process is working on the table, or an option is invalid.
    """
    options = dict(options or {})
    identity: Identity = {"version": __version__, "build": build_digest(), "reading": options}
    source, copy = source_of(folder), Copy(table)
    own = copy.name if "://" in copy.name else str(copy.path.absolute())
    found = [one for one in source.recordings(files) if source.address(one.path) != own]
    description: Description = {"identity": identity, "metadata": metadata_keys(found), "bins": bins()}
    if not found:
        raise InputError(
            f"{source}: there is no recording",
            file=str(source),
            hint="name the folder that contains the recordings, or a pattern of their names with --files",
        )
    with copy.alone():
        sweep(copy.path.absolute().parent)
        with _keeping(copy), State(copy.path, identity) as state:
            former, was_damaged = _former(copy, identity)
            profiled = _brought_up(source, copy, state, found, description, former, executor, progress)
        copy.put_state()
    made = Table(copy.path, copy.name)
    return made, Counts(len(found), profiled, len(made.refused()), was_damaged)


@contextlib.contextmanager
def _keeping(copy: Copy) -> Iterator[None]:
    """Add to errors that the finished rows are kept, for example if the disk is full."""
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


def _brought_up(
    source: Source,
    copy: Copy,
    state: State,
    found: Sequence[Recording],
    description: Description,
    former: Table | None,
    executor: Executor,
    progress: FleetProgress | None,
) -> int:
    """Update the table; return how many recordings were profiled."""
    identity = description["identity"]
    there = dict(former.digests()) if former else {}
    doubtful = [doubt for one in found if (doubt := _doubt(one, state, there)) is not None]
    before = len(found) - len(doubtful)
    profiled = 0

    def tell() -> None:
        if progress is not None:
            progress(before + state.added, len(found), before)

    work = functools.partial(_profile, source, identity["reading"])
    waiting = deque(_batches(doubtful))
    try:
        for task, outcome in executor.run(work, lambda _previous: waiting.popleft() if waiting else None):
            if isinstance(outcome, Crash):
                if len(task) > 1:
                    # One of them is the cause; the others are still profiled.
                    waiting.extend((one,) for one in task)
                    continue
                outcome = _crashed(source, task[0].recording, outcome)
            state.add(outcome)
            profiled += sum(one.row is not None for one in outcome)
            tell()
    except KeyboardInterrupt:
        # The interrupt may have arrived before the rows of a batch were counted.
        state.count()
        tell()
        raise
    paths = [one.path for one in found]
    kept = [
        (printable(path), there[printable(path)])
        for path in paths
        if not state.has_row(path) and printable(path) in there
    ]
    write(copy.made, description, state.rows(paths), former, kept)
    copy.put()
    state.settle(paths)
    return profiled


def _former(copy: Copy, identity: Identity) -> tuple[Table | None, bool]:
    """Open the table of an earlier run if its rows are valid for this run; return whether it is damaged."""
    if not copy.path.exists():
        return None, False
    try:
        former = Table(copy.path, copy.name)
    except DamagedError:
        return None, True
    return (former if former.description["identity"] == identity else None), False


def _doubt(recording: Recording, state: State, there: Mapping[str, str]) -> Doubtful | None:
    """Return the recording if it may have changed; None if it is unchanged by size and time."""
    name = printable(recording.path)
    before, known = state.known.get(recording.path, (None, there.get(name)))
    has_row = state.has_row(recording.path) or (known is not None and there.get(name) == known)
    if not has_row:
        return Doubtful(recording, None)
    return None if before == recording else Doubtful(recording, known)


def _batches(doubtful: Sequence[Doubtful]) -> list[tuple[Doubtful, ...]]:
    """Divide recordings into tasks, the largest first, so that no long one is left for the end."""
    batches: list[tuple[Doubtful, ...]] = []
    batch: list[Doubtful] = []
    size = 0
    for one in sorted(doubtful, key=lambda one: -one.recording.bytes):
        if batch and (len(batch) == _BATCH_FILES or size + one.recording.bytes > _BATCH_BYTES):
            batches.append(tuple(batch))
            batch, size = [], 0
        batch.append(one)
        size += one.recording.bytes
    return [*batches, tuple(batch)] if batch else batches


def _crashed(source: Source, recording: Recording, crash: Crash) -> list[Profiled]:
    """Return the row of a recording whose reading crashed the process."""
    return [
        _refused(recording, place, f"reading it crashed: {crash.reason}")
        for _, place in source.local_files([recording])
    ]


def _refused(recording: Recording, place: Path | InputError, why: str) -> Profiled:
    row = refused_row(place if isinstance(place, Path) else None, recording.path, why)
    return Profiled(recording, row["digest"], json.dumps(row | {"bytes": recording.bytes}))


def _profile(source: Source, options: Mapping[str, Any], batch: Sequence[Doubtful]) -> list[Profiled]:
    """Make the rows of a batch; a recording with an unchanged digest needs none."""
    done = []
    opened = source.local_files([one.recording for one in batch])
    for (recording, known), (_, place) in zip(batch, opened, strict=True):
        if isinstance(place, InputError):
            why = reason(place, source.address(recording.path), recording.path)
            done.append(_refused(recording, place, why))
        elif known is not None and digest([place]) == known:
            done.append(Profiled(recording, known, None))
        else:
            row = row_of(place, recording.path, options) | {"bytes": recording.bytes}
            done.append(Profiled(recording, row["digest"], json.dumps(row)))
    return done
