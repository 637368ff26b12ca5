"""Profiles a fleet: new or changed recordings, in batches; each row is stored as soon as it is made."""

import contextlib
import errno
import functools
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from emmclab import __version__
from emmclab.errors import InputError
from emmclab.fleet.recording_source import Source, source_of
from emmclab.fleet.table import DamagedError, Description, Identity, Table, bins, reason, refused_row, row_of, write
from emmclab.fleet.table_state import Copy, Profiled, State, state_of
from emmclab.runtime.build import build_digest
from emmclab.runtime.executors import Crash, Executor
from emmclab.runtime.files import digest, printable, sweep
from emmclab.traces.recording_files import Recording, metadata_keys

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

    A recording is unchanged if its size and times of change (in a bucket, the ETag) are those of the last
    run, or else if its digest is. An interrupted run leaves its rows next to the table (`.NAME.state`; for a
    bucket, on this machine), and the next run continues from there. The table does not depend on the executor
    or on earlier runs.

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
