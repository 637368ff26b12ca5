"""Profiles the parts of a trace in parallel, such as those that Spark or DuckDB writes, and merges the profiles."""

import itertools
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emmclab import _core
from emmclab.errors import ConfigError, EmmclabError, FormatError, InputError
from emmclab.runtime.files import digest, printable
from emmclab.traces.profile import Estimate, Profile
from emmclab.traces.profile_options import profiler
from emmclab.traces.reading import read, read_slice, trace_name
from emmclab.traces.recording_files import recordings
from emmclab.traces.trace import Header, Ledger, Trace

#: Progress callback. Its arguments are the numbers of merged parts, of all parts, and of reused parts (always 0).
PartsProgress = Callable[[int, int, int], None]

#: Figures that are only estimated, because each part is profiled separately, with the resulting error.
_ESTIMATES = {
    "reuse_distance": "the first touch of a page in each part counts as its first touch in the trace",
    "update_interval": "an overwrite of a page that was last written in an earlier part has no interval",
    "working_set": "over time a page is counted again in each part; the last value is exact",
    "journal": "a commit that continues in the next part is not recognised by addresses",
    "queue_depth": "requests that are unfinished at the end of a part do not count in the next one; the same "
    "holds for no-wait, busy and idle time, wake-ups and re-issues",
}


#: Minimum number of requests in a slice of a Parquet file, and the maximum number of slices.
_SLICE_REQUESTS, _MOST_SLICES = 1 << 22, 64


@dataclass(frozen=True, order=True)
class Part:
    """A part of a trace with at least one request; parts are ordered by time."""

    first_ns: int
    """Time of its first arrival, ns."""
    path: Path
    groups: tuple[int, int] | None = None
    """Row groups of a Parquet file: the first, and the one after the last; None for all."""

    def __str__(self) -> str:
        if self.groups is None:
            return str(self.path)
        return f"{self.path}: row groups {self.groups[0] + 1} to {self.groups[1]}"


def slices_of(path: Path) -> list[tuple[int, int]]:
    """Divide the row groups of a Parquet file into slices of millions of requests; empty for other files.

    The slices depend only on the file, so that its profile does not depend on the number of threads.

    >>> slices_of(Path("trace.txt"))
    []
    """
    try:
        with path.open("rb") as file:
            if file.read(4) != b"PAR1":
                return []
    except OSError:
        return []
    requests = _core.row_groups(path)
    least = max(_SLICE_REQUESTS, -(-sum(requests) // _MOST_SLICES))
    slices: list[tuple[int, int]] = []
    begin = size = 0
    for number, count in enumerate(requests, 1):
        size += count
        if size >= least or number == len(requests):
            slices.append((begin, number))
            begin, size = number, 0
    return slices


def profile_parts(
    place: Path,
    jobs: int,
    progress: PartsProgress | None = None,
    *,
    reading: Mapping[str, Any] | None = None,
    **measures: Any,
) -> Profile:
    """Profile a trace in parallel: its parts are files below a folder in order of time, or slices of a file.

    Parts are profiled by `jobs` threads and merged in order. Counts, sizes, localities, response times, gaps
    between arrivals and unique pages are those of one pass over the whole. Figures that depend on earlier
    parts start again in each part and are estimates: `estimates` lists them, with their error if it is known.

    Args:
        place: a folder, whose files and those of folders in it are the parts, whatever their names; or a
            Parquet file, whose parts are row groups (`slices_of`).
        jobs: parts that are profiled in parallel; each needs the memory of a profile.
        progress: called after each part.
        reading: options of `emmclab.read`.
        measures: options of `Trace.profile`.

    Raises:
        InputError: there are no parts.
        FormatError: parts overlap in time, or a part cannot be read.
        ConfigError: `mend_clock`, which needs one pass, or `only` selects no request.
    """
    options = dict(reading or {})
    if options.get("mend_clock"):
        raise ConfigError(
            f"{place}: clock jumps can be mended only in one pass, not in parts",
            field="--mend-clock",
            hint="leave out --jobs, or convert each part with --mend-clock beforehand",
        )
    is_file = place.is_file()
    name = trace_name(place) if is_file else printable(place.resolve().name)
    merged = profiler(name, **measures)
    traces: list[Trace] = []
    stop = threading.Event()
    paths = _paths(place)
    digests: list[str | None] = []
    # The digest is computed in a daemon thread, so that an interruption does not wait for it.
    hashing = threading.Thread(target=lambda: digests.append(digest(paths)), daemon=True)
    hashing.start()
    with ThreadPoolExecutor(jobs) as threads:
        try:
            parts = _parts(place, paths, options, threads)
            origin_ns = min((part.first_ns for part in parts), default=0)

            def profiled(part: Part) -> tuple[_core.Profiler, Trace]:
                trace = read_slice(part.path, options, origin_ns, part.groups)
                profile = profiler("", **measures)
                for batch in trace.batches():
                    if stop.is_set():
                        break
                    profile.update(batch)
                return profile, trace

            remaining = iter(parts)
            running: deque[tuple[Part, Future[tuple[_core.Profiler, Trace]]]] = deque()
            for number in range(1, len(parts) + 1):
                # One part more than there are threads is submitted, so that no thread is idle during a merge.
                for part in itertools.islice(remaining, jobs + 1 - len(running)):
                    running.append((part, threads.submit(profiled, part)))
                part, future = running.popleft()
                profile, trace = future.result()
                _merge(merged, profile, part)
                traces.append(trace)
                if progress is not None:
                    progress(number, len(parts), 0)
        except BaseException:
            stop.set()
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    if not traces:
        raise InputError("no part of the trace contains a request", hint="check the path").in_file(str(place))
    header, ledger = _of_file(place, options, traces) if is_file else _of_folder(place, traces)
    _refuse_empty_selection(place, ledger)
    # Clock jumps can be recognised only after the merge, by comparing all gaps of the whole trace.
    jumps = len(merged.finish(ledger, header)["clock_jumps"])
    ledger["clock_jumps"] = max(jumps, ledger["clock_jumps"] or 0) if is_file else jumps
    fields = merged.finish(ledger, header)
    hashing.join()
    about = {"name": fields.pop("name"), "trace_digest": digests[0]}
    return Profile({**about, "parts": len(traces), "estimates": estimates(fields, len(traces)), **fields})


def _paths(place: Path) -> list[Path]:
    """Return the files of a trace."""
    if place.is_file():
        return [place]
    # Files that begin with an underscore are Spark's additional files, not parts of the trace.
    paths = [place / recording.path for recording in recordings(place) if not Path(recording.path).name.startswith("_")]
    if not paths:
        message = f"{place}: there is no part of a trace"
        raise InputError(message, file=str(place), hint="name the folder that contains the parts of the trace")
    return paths


def _parts(place: Path, paths: Sequence[Path], options: Mapping[str, Any], threads: ThreadPoolExecutor) -> list[Part]:
    """Find the parts of a trace that contain at least one request, before any selection of requests."""
    # Options that select requests are left out, because a part begins at its first request, selected or not.
    plain = {name: value for name, value in options.items() if name not in ("only", "drop_reissued")}

    def opened(piece: tuple[Path, tuple[int, int] | None]) -> Part | None:
        path, groups = piece
        requests = read_slice(path, plain, 0, groups).rows(1)
        return Part(requests[0]["arrival_ns"], path, groups) if requests else None

    if place.is_file():
        # If the requests of a file are not in the order of their arrivals, merging the slices of the file raises an
        # error.
        return [part for part in threads.map(opened, [(place, groups) for groups in slices_of(place)]) if part]
    return sorted(part for part in threads.map(opened, [(path, None) for path in paths]) if part)


def _merge(merged: _core.Profiler, profile: _core.Profiler, part: Part) -> None:
    try:
        merged.merge(profile, consecutive=True)
    except EmmclabError as error:
        raise FormatError(
            f"{part}: {error}",
            kind="order",
            file=str(part.path),
            hint="use another command for recordings that are not parts of one trace: `emmclab fleet FOLDER`"
            if part.groups is None
            else "the file is not in order of arrival; sort it, as DuckDB does: `copy (from 'trace.parquet' "
            "order by arrival_ns) to 'sorted.parquet'`",
        ) from error


def _of_folder(folder: Path, traces: Sequence[Trace]) -> tuple[Header, Ledger]:
    """Return the common header of all parts of a trace, and the sums of their record counts (ledgers).

    The parts must have the same clock. A count that is unknown for one part is unknown for the whole trace.
    """
    values = {field: {trace.header[field] for trace in traces} for field in traces[0].header}
    if len(values["clock"]) > 1:
        clocks = " and ".join(sorted(map(str, values["clock"])))
        raise FormatError(
            f"the parts of the trace have different clocks: {clocks}",
            kind="order",
            hint="use another command for recordings that are not parts of one trace: `emmclab fleet FOLDER`",
        ).in_file(str(folder))
    header: Header = {field: next(iter(values[field])) if len(values[field]) == 1 else None for field in values}
    formats = ", ".join(sorted(map(str, values["format"])))
    header |= {"source": printable(folder.resolve().name), "format": formats, "clock_jumps": None}
    coarse = [trace.header["coarse_clock"] for trace in traces if trace.header["coarse_clock"]]
    header["coarse_clock"] = coarse[0] if coarse else None
    recorded = [(trace.header["recorded"] or "").split() for trace in traces]
    header["recorded"] = " ".join(name for name in recorded[0] if all(name in names for names in recorded))
    counts: dict[str, list[int | None]] = {}
    for trace in traces:
        for field, count in trace.ledger.items():
            counts.setdefault(field, []).append(count)
    ledger = {field: None if None in numbers else sum(filter(None, numbers)) for field, numbers in counts.items()}
    return header, ledger


def _of_file(path: Path, options: Mapping[str, Any], slices: Sequence[Trace]) -> tuple[Header, Ledger]:
    """Return the header of a file, and its record counts (ledger) combined from its slices."""
    reader = read(path, **options).open()
    ledger: Ledger = reader.ledger()
    for field, before in reader.ledger().items():
        # The counts of each slice include the counts of the whole file. They are subtracted from each slice and added
        # once. Clock jumps are left out, because they are known only for the whole trace.
        counts = [count for trace in slices if (count := trace.ledger[field]) is not None]
        if counts and field != "clock_jumps":
            ledger[field] = (before or 0) + sum(count - (before or 0) for count in counts)
    # The header of the whole file may lack the list of recorded features. The lists of all slices are therefore
    # combined.
    names = [name for trace in slices for name in (trace.header["recorded"] or "").split()]
    return reader.header() | {"recorded": " ".join(dict.fromkeys(names))}, ledger


def _refuse_empty_selection(place: Path, ledger: Ledger) -> None:
    """Raise an error if the option `only` selects no request."""
    if not ledger["kept"]:
        raise ConfigError(
            "no request satisfies all conditions together",
            field="--only",
            hint="use fewer conditions, or a longer range of times",
        ).in_file(str(place))


def estimates(fields: Mapping[str, Any], parts: int) -> list[Estimate]:
    """Return the figures that are estimates if a trace is profiled in parts, with the cause and any known error.

    `error_pct` of reuse distances is the share of page touches that are wrongly counted as first touches, because the
    page was touched in an earlier part. It is exact up to 16,384 unique pages; for more, pages are sampled.
    """
    if parts < 2:
        return []
    rows = fields["figures"]["reuse_distance"]
    first_touches = sum(row["accesses"] for row in rows if row["high_kb"] is None)
    pages = fields["working_set"]["unique_pages"] if fields["working_set"] else 0
    error_pct = 100 * max(0, first_touches - pages) / max(1, sum(row["accesses"] for row in rows))
    return [
        {"figure": figure, "why": cause, "error_pct": error_pct if figure == "reuse_distance" else None}
        for figure, cause in _ESTIMATES.items()
        if fields["figures"].get(figure) or (figure == "journal" and fields[figure] and fields[figure]["found"])
    ]
