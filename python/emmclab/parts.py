"""A trace in parts, as Spark and DuckDB write one: profiled in parallel, and merged in order of time."""

from __future__ import annotations

import itertools
import json
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emmclab import _core
from emmclab.errors import EmmclabError, FormatError, InputError
from emmclab.files import digest, printable
from emmclab.measures import profiler
from emmclab.profile import Profile
from emmclab.reading import read
from emmclab.recordings import recordings
from emmclab.trace import Header, Ledger, Trace

#: Called with the parts that are merged, all of them, and those that were there before: none.
PartsProgress = Callable[[int, int, int], None]

#: Figures that begin anew in each part, and what that changes.
_ESTIMATES = {
    "reuse_distance": "the first touch of a page in a part counts as its first of all",
    "update_interval": "an overwrite of a page that was last written in an earlier part has no interval",
    "working_set": "over time a page counts anew in each part; the last value is exact",
    "miss_ratio": "caches are empty where a part begins",
    "queue_depth": "requests that are unfinished where a part ends are not seen in the next one; the same "
    "holds for no-wait, busy and idle time, wake-ups and re-issues",
}


@dataclass(frozen=True, order=True)
class Part:
    """A part of a trace that is not empty; in the order of time."""

    first_ns: int
    """Its first arrival."""
    path: Path


def profile_parts(
    folder: Path,
    jobs: int,
    progress: PartsProgress | None = None,
    *,
    reading: Mapping[str, Any] | None = None,
    **measures: Any,
) -> Profile:
    """Characterise a trace whose parts, in order of time, are the files below a folder.

    Parts are profiled by `jobs` threads and merged in order. Counts, sizes, localities, response times, gaps
    between arrivals and unique pages are those of one pass over the whole. What a part cannot know begins
    anew in it, and is an estimate: `estimates` names those figures, with their error where it is known.

    Args:
        folder: its files, and those of folders in it, are the parts; their names do not matter.
        jobs: parts that are profiled at once; each takes the memory of a profile.
        progress: called after each part.
        reading: options of `emmclab.read`.
        measures: options of `Trace.profile`.

    Raises:
        InputError: there is no part.
        FormatError: parts overlap in time, or a part cannot be read.
    """
    options = dict(reading or {})
    # What Spark writes beside the parts begins with an underscore.
    paths = [folder / one.path for one in recordings(folder) if not Path(one.path).name.startswith("_")]
    if not paths:
        message = f"{folder}: there is no part of a trace"
        raise InputError(message, kind="io", file=str(folder), hint="name the folder that the parts lie in")
    whole = profiler(printable(folder.resolve().name), **measures)
    traces: list[Trace] = []
    stop = threading.Event()

    def profiled(part: Part) -> tuple[_core.Profiler, Trace]:
        trace = read(part.path, **options)
        profile = profiler("", **measures)
        for batch in trace.batches():
            if stop.is_set():
                break
            profile.update(batch)
        return profile, trace

    with ThreadPoolExecutor(jobs) as threads:
        try:
            opened = threads.map(lambda path: _part(path, options), paths)
            parts = sorted(part for part in opened if part is not None)
            left = iter(parts)
            running: deque[tuple[Part, Future[tuple[_core.Profiler, Trace]]]] = deque()
            for number in range(1, len(parts) + 1):
                # One more than there are threads, so that none waits for a merge.
                for part in itertools.islice(left, jobs + 1 - len(running)):
                    running.append((part, threads.submit(profiled, part)))
                part, future = running.popleft()
                profile, trace = future.result()
                _merge(whole, profile, part)
                traces.append(trace)
                if progress is not None:
                    progress(number, len(parts), 0)
        except BaseException:
            stop.set()
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    if not traces:
        raise InputError(
            f"{folder}: no part holds a request", kind="io", file=str(folder), hint="check the path"
        )
    header, ledger = _header(folder, traces), _ledger(traces)
    # Only the gaps of the whole tell which of them are jumps.
    ledger["clock_jumps"] = len(json.loads(whole.finish(ledger, header))["clock_jumps"])
    fields = json.loads(whole.finish(ledger, header))
    about = {"name": fields.pop("name"), "trace_digest": digest(paths)}
    return Profile({**about, "parts": len(traces), "estimates": estimates(fields, len(traces)), **fields})


def _part(path: Path, options: Mapping[str, Any]) -> Part | None:
    """Find where a part begins; None where it holds no request."""
    first = read(path, **options).rows(1)
    return Part(first[0]["arrival_ns"], path) if first else None


def _merge(whole: _core.Profiler, profile: _core.Profiler, part: Part) -> None:
    try:
        whole.merge(profile, consecutive=True)
    except EmmclabError as error:
        raise FormatError(
            f"{part.path}: {error}",
            kind="order",
            file=str(part.path),
            hint="profile recordings that are not parts of one trace each by itself: `emmclab fleet FOLDER`",
        ) from error


def _header(folder: Path, traces: Sequence[Trace]) -> Header:
    """Give what all parts say; the clock is that of all.

    Raises:
        FormatError: parts have different clocks.
    """
    said = {field: {trace.header[field] for trace in traces} for field in traces[0].header}
    if len(said["clock"]) > 1:
        clocks = " and ".join(sorted(map(str, said["clock"])))
        raise FormatError(
            f"{folder}: parts have different clocks: {clocks}",
            kind="order",
            file=str(folder),
            hint="profile recordings that are not parts of one trace each by itself: `emmclab fleet FOLDER`",
        )
    header: Header = {field: next(iter(said[field])) if len(said[field]) == 1 else None for field in said}
    formats = ", ".join(sorted(map(str, said["format"])))
    return header | {"source": printable(folder.resolve().name), "format": formats, "clock_jumps": None}


def _ledger(traces: Sequence[Trace]) -> Ledger:
    """Add the ledgers up; what a part does not tell, the whole does not."""
    counts: dict[str, list[int | None]] = {}
    for trace in traces:
        for field, count in trace.ledger.items():
            counts.setdefault(field, []).append(count)
    return {field: None if None in found else sum(filter(None, found)) for field, found in counts.items()}


def estimates(fields: Mapping[str, Any], parts: int) -> list[dict[str, Any]]:
    """Name the figures of a profile in parts that are estimates, with the cause, and the error where known.

    `error_pct` of reuse distances is the share of page touches that count as a first touch and are none,
    because a page was touched in an earlier part. It is exact up to 16,384 unique pages; of more, pages are
    sampled.
    """
    if parts < 2:
        return []
    rows = fields["figures"]["reuse_distance"]
    first = sum(row["accesses"] for row in rows if row["high_kb"] is None)
    pages = fields["working_set"]["unique_pages"] if fields["working_set"] else 0
    error_pct = 100 * max(0, first - pages) / max(1, sum(row["accesses"] for row in rows))
    return [
        {"figure": figure, "why": why, "error_pct": error_pct if figure == "reuse_distance" else None}
        for figure, why in _ESTIMATES.items()
        if fields["figures"].get(figure)
    ]
