"""Traces: streams of requests with a header and a ledger (counts of records that were kept, changed and lost)."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired, Protocol, TypedDict, cast

from emmclab import _core
from emmclab.core_types import ClockJumpRow
from emmclab.errors import ConfigError, UnsupportedError
from emmclab.runtime.files import digest, folder_aside, note_written_files, written_files
from emmclab.runtime.optional_libraries import EXTRAS, library, missing
from emmclab.traces.activity import activity_of, require_waits
from emmclab.traces.journal import Journal, kernel_threads
from emmclab.traces.notebook import trace_html
from emmclab.traces.profile import Profile
from emmclab.traces.profile_options import profiler

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import pandas
    import polars
    import pyarrow


class RequestRow(TypedDict):
    """A request: times in ns, addresses and sizes in sectors; unknown times and names are None.

    In a trace with notes attached to blocks, the keys from `role` on contain lists with an entry for each run of equal
    blocks.
    """

    arrival_ns: int
    start_ns: int | None
    issue_ns: int | None
    served_ns: int | None
    complete_ns: int | None
    sector: int
    sectors: int
    op: str
    flags: list[str]
    pid: int | None
    process: str | None
    device: str | None
    role: NotRequired[list[str]]
    role_sectors: NotRequired[list[int]]
    home_sector: NotRequired[list[int | None]]
    changed_sectors: NotRequired[list[int | None]]
    transaction: NotRequired[list[int | None]]


class ArrowTable(Protocol):
    """A table in memory that supports Arrow's interface: of polars, pandas, pyarrow or DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the table as an Arrow C stream."""


def is_stream(table: object) -> bool:
    """Return whether a table can be read only once, because it is an iterator."""
    return hasattr(table, "__next__") or hasattr(table, "read_next_batch")


def opener(table: ArrowTable, name: str) -> Callable[[], _core.Reader]:
    """Return a function that opens a table as a stream of batches, each time from its beginning.

    Raises:
        ConfigError: on opening, if this is not a table.
        UnsupportedError: on opening, if a library is missing.
    """
    # A frame is passed as a reader here, because it has the same methods.
    return cast("Callable[[], _core.Reader]", lambda: _frame(table, name))


def _frame(table: Any, name: str) -> _core.Frame:
    if not (hasattr(table, "__arrow_c_stream__") or hasattr(table, "__arrow_c_array__")):
        lazy = hasattr(table, "collect")
        raise ConfigError(
            f"a {type(table).__name__} is not a table of Arrow columns",
            field="table",
            hint="call its `collect()` first" if lazy else "give a frame of polars or pandas, or a table of pyarrow",
        )
    try:
        return _core.Frame(table, name)
    except ImportError as error:
        # pandas needs pyarrow to export Arrow streams.
        if error.name in EXTRAS:
            raise missing(error.name) from error
        raise
    except (TypeError, ValueError) as error:
        if isinstance(error, ConfigError) or hasattr(error, "kind"):
            raise
        raise ConfigError(
            f"this table cannot be converted to Arrow columns: {error}",
            field="table",
            hint="give a table with columns of whole numbers and text",
        ) from error


Header = dict[str, str | None]
#: The format of fio's job files.
JOB_FILE = "fio-job"
#: Counts of what the reader of a trace did, by name; None for counts that the input format cannot provide.
Ledger = dict[str, int | None]
#: Callback after each batch: bytes read, total bytes (None = unknown), and requests so far.
Progress = Callable[[int, int | None, int], None]


class WriteResult(NamedTuple):
    """Result of writing a trace."""

    ledger: Ledger
    """Counts of requests that were read, kept and changed."""
    left_out: int
    """Requests whose operation the target format cannot store."""
    lost: dict[str, int]
    """By column, requests whose value the target format cannot store."""


class Trace:
    """A recorded stream of requests; each use reads it again, with bounded memory.

    >>> import emmclab
    >>> trace = emmclab.read(emmclab.bundled()[0])
    >>> trace.ledger["kept"] > 0
    True
    """

    def __init__(
        self,
        name: str,
        open_stream: Callable[[], _core.Reader],
        *,
        once: bool = False,
        path: str | None = None,
        reading: Mapping[str, Any] | None = None,
        parts: Sequence[Trace] = (),
    ) -> None:
        """Create a trace from a stream that can be opened repeatedly, unless `once` is set; opening detects bad input.

        Results contain the `path` of the trace, the options of `reading` that differ from the defaults, and the `parts`
        of a combined trace.
        """
        self.name = name
        self.path, self.reading, self.parts = path, dict(reading or {}), tuple(parts)
        self._once = once
        self._open_stream = open_stream
        stream = open_stream()
        self._unread: _core.Reader | None = stream
        self.header: Header = stream.header()
        """Where the trace comes from: source, format, device, clock, note."""
        self._ledger: Ledger | None = None
        self._devices: dict[str, int] = {}
        self._of_files = isinstance(stream, _core.Reader)
        self._can_repeat = hasattr(stream, "repeat")
        self.recognised: list[tuple[str, str]] = stream.recognised() if self._of_files else []
        """For each file its format, and how it was recognised: `content`, `--format` or `--columns`."""
        self._files = stream.files() if self._of_files else []
        self.whole: int | None = stream.whole() if self._of_files else None
        """Number of requests of the whole trace, if this file is marked as a part of it; else None."""
        self._aside: AbstractContextManager[Path] | None = None
        self._copy: Path | None = None

    def __repr__(self) -> str:
        return f"<Trace {self.name!r} ({self.header['format']})>"

    def _repr_html_(self) -> str:
        return trace_html(self)

    @staticmethod
    def from_arrow(table: ArrowTable, name: str = "frame") -> Trace:
        """Make a trace from a table in memory: of pyarrow, polars, pandas, DuckDB, or any Arrow library.

        Columns are those of `to_arrow`: `arrival_ns`, `sector`, `sectors` and `op` are needed, rows are in
        order of arrival, times are whole nanoseconds. Other columns are ignored, and listed in the note of
        the header. The table is streamed, and columns that have the type of a trace are not copied. A stream
        (`pyarrow.RecordBatchReader`) can be read only once.

        Args:
            table: has `__arrow_c_stream__` or `__arrow_c_array__`.
            name: name of the trace in results and errors.

        Raises:
            FormatError: a column is missing or has an impossible type, or, in a pass, a value is missing or
                impossible, or rows are out of order; `line` is the row, from 1.
            ConfigError: this is not a table of columns.
            UnsupportedError: a library that the table needs is missing, or a stream is read again.

        >>> import emmclab
        >>> trace = emmclab.read(emmclab.bundled()[0])
        >>> again = Trace.from_arrow(trace.to_arrow(), "again")
        >>> again.profile()["requests"] == trace.profile()["requests"]
        True
        """
        return Trace(name, opener(table, name), once=is_stream(table))

    @staticmethod
    def from_polars(frame: polars.DataFrame, name: str = "frame") -> Trace:
        """Make a trace from a polars frame, like `from_arrow`.

        >>> import emmclab
        >>> trace = emmclab.read(emmclab.bundled()[0])
        >>> Trace.from_polars(trace.to_polars()).ledger["kept"] == trace.ledger["kept"]
        True
        """
        return Trace.from_arrow(frame, name)

    @staticmethod
    def from_pandas(frame: pandas.DataFrame, name: str = "frame") -> Trace:
        """Make a trace from a pandas frame, like `from_arrow`; missing times need an integer type.

        By default pandas converts integers with gaps to floats, which cannot represent nanoseconds and are
        rejected; `Int64` and Arrow types keep integers.

        >>> import emmclab
        >>> trace = emmclab.read(emmclab.bundled()[0])
        >>> Trace.from_pandas(trace.to_pandas()).ledger["kept"] == trace.ledger["kept"]
        True
        """
        return Trace.from_arrow(frame, name)

    @property
    def ledger(self) -> Ledger:
        """Counts of requests (seen, kept, skipped, reordered, lost) and of clock jumps. Reads the trace once.

        `reissued` is None if the trace cannot show re-issues.

        >>> import emmclab
        >>> emmclab.read(emmclab.bundled()[0]).ledger["skipped"]
        0
        """
        if self._ledger is None:
            for _ in self.batches():
                pass
        return dict(self._ledger or {})

    @property
    def counted(self) -> Ledger | None:
        """The ledger (counts of requests), if the trace has been read to its end; otherwise None.

        >>> import emmclab
        >>> emmclab.read(emmclab.bundled()[0]).counted is None
        True
        """
        return None if self._ledger is None else dict(self._ledger)

    @property
    def clock_jumps(self) -> list[ClockJumpRow]:
        """Places where the clock jumps or the recording paused; at most the first 64. Reads the trace once.

        Each has `direction` (`forward` or `backward`), `time_s` (last arrival before it, seconds from the first),
        `request` (number of the first one after it), `length_s` and `mended` (whether it was removed).

        >>> import emmclab
        >>> emmclab.read(emmclab.bundled()[0]).clock_jumps
        []
        """
        _ = self.ledger
        return jumps_of(self.header)

    @property
    def devices(self) -> dict[str, int]:
        """Number of requests by device, largest first; empty if no devices are recorded. Reads the trace once.

        >>> import emmclab
        >>> len(emmclab.read(emmclab.bundled()[0]).devices)
        1
        """
        _ = self.ledger
        return dict(self._devices)

    @functools.cached_property
    def digest(self) -> str | None:
        """SHA-256 of the file's bytes, first 16 digits; None if the trace is generated, or comes from a pipe.

        >>> import emmclab
        >>> emmclab.read(emmclab.bundled()[0]).digest == emmclab.read(emmclab.bundled()[1]).digest
        False
        """
        return digest(self._files)

    @property
    def is_pipe(self) -> bool:
        """Whether the trace comes from a pipe or another stream, which can be read only once.

        >>> import emmclab
        >>> emmclab.read(emmclab.bundled()[0]).is_pipe
        False
        """
        return self._once or not all(path.is_file() for path in self._files)

    @property
    def is_synthetic(self) -> bool:
        """Whether the trace was generated by a model or benchmark instead of recorded; trace files store this.

        >>> import emmclab
        >>> emmclab.read(emmclab.bundled()[0]).is_synthetic
        False
        """
        is_generated = self.header["format"] in ("synthetic", JOB_FILE)
        return is_generated or (self._can_repeat and not self._of_files)

    @property
    def is_job_file(self) -> bool:
        """Whether the trace is a job file of fio, whose requests depend on the device in a simulated run.

        >>> import emmclab
        >>> emmclab.read(emmclab.bundled()[0]).is_job_file
        False
        """
        return [name for name, _ in self.recognised] == [JOB_FILE]

    def open(self, *, one_device: bool = False) -> _core.Reader:
        """Open the trace at its beginning, as a stream of batches.

        Args:
            one_device: reject a trace of several devices, because each has its own address space.

        Raises:
            UnsupportedError: a pipe has been read before.

        >>> import emmclab
        >>> len(emmclab.read(emmclab.bundled()[0]).open().next()) > 0
        True
        """
        # Use the stream that was opened to detect bad input, if it has not been read yet.
        stream, self._unread = self._unread, None
        if stream is None:
            refuse_pipes([self], "read twice")
            stream = self._open_stream()
        if one_device and isinstance(stream, _core.Reader):
            stream.refuse_several_devices()
        return stream

    def batches(self, progress: Progress | None = None, *, one_device: bool = False) -> Iterator[_core.Batch]:
        """Yield the requests in order of arrival, as batches that Arrow libraries import without a copy.

        With `one_device`, a trace of several devices is rejected.

        >>> import emmclab
        >>> trace = emmclab.read(emmclab.bundled()[0])
        >>> sum(len(batch) for batch in trace.batches()) == trace.ledger["kept"]
        True

        Raises:
            EmmclabError: at the first bad record, with file, line, field and a hint.
        """
        stream = self.open(one_device=one_device)
        requests = 0
        while (batch := stream.next()) is not None:
            yield batch
            requests += len(batch)
            if progress is not None:
                progress(*stream.progress(), requests)
        self.header, self._ledger = stream.header(), stream.ledger()
        if isinstance(stream, _core.Reader):
            self._devices = dict(stream.devices())

    def rows(self, limit: int = 10) -> list[RequestRow]:
        """Return the first requests as dictionaries; times in nanoseconds, addresses and sizes in sectors.

        >>> import emmclab
        >>> sorted(emmclab.read(emmclab.bundled()[0]).rows(1)[0])[:3]
        ['arrival_ns', 'complete_ns', 'device']
        """
        rows: list[RequestRow] = []
        stream = self.open()
        while len(rows) < limit and (batch := stream.next()) is not None:
            rows += batch.rows(limit - len(rows))
        return rows

    def profile(
        self,
        progress: Progress | None = None,
        *,
        percentiles: Iterable[float] | str | None = None,
        bin: str | float | None = None,
        fsync: bool = False,
    ) -> Profile:
        """Characterise the trace in one pass: tables, figures and findings (IISWC 2015, sections III and IV).

        Args:
            progress: called after each batch.
            percentiles: additional percentiles of response and service times, within 0.1 %, in `percentiles` of each
                row of `by_operation`, and of response times, at most 1/32 too high, in `process_share`.
            bin: width of the bins of figures over time, as `"1s"` or in seconds; automatic if None (at most 256 bins).
                The width is doubled if there would be more than 16,384 bins.
            fsync: also divide each wait for durability into parts (`Profile.fsync`). A trace in text form is then read
                twice.

        Raises:
            ConfigError: an option is invalid.
            UnsupportedError: `fsync` is set, but the trace has no waits for durability.

        >>> import emmclab
        >>> trace = emmclab.read(emmclab.bundled()[0])
        >>> trace.profile()["write_requests_pct"] <= 100
        True
        >>> trace.profile(percentiles=[99.9])["by_operation"][-1]["percentiles"][0]["percentile"]
        99.9
        """
        profiling = profiler(self.name, percentiles=percentiles, bin=bin, activity=self._waits() if fsync else None)
        # The digest is computed in a thread, in parallel with the reading of the trace.
        hashing = threading.Thread(target=lambda: self.digest, daemon=True)
        hashing.start()
        for batch in self.batches(progress):
            profiling.update(batch)
        fields = profiling.finish(self.ledger, self.header)
        hashing.join()
        return Profile({"name": fields.pop("name"), "trace_digest": self.digest, **fields})

    def _waits(self) -> str:
        """Return the recorded activity (JSON), which contains the waits for durability.

        Text formats contain it at their end, so such a trace is first read completely.
        """
        if self.header["activity"] is None and self._ledger is None:
            refuse_pipes([self], "read twice, as --fsync needs")
            _ = self.ledger
        activity = self.header["activity"] or "{}"
        require_waits(self.name, activity_of(self.header))
        return activity

    def journal(self, progress: Progress | None = None) -> Journal:
        """Analyse the cost of journaling.

        It is computed from notes on the roles of blocks; without notes, it is estimated from flags and addresses.

        The result's `kernel_threads` are the threads of file systems, such as the one that writes f2fs checkpoints.

        >>> import emmclab
        >>> emmclab.read(emmclab.bundled()[0]).journal()["known_by"]
        'flags'
        """
        profiler, processes = _core.JournalProfiler(), _core.Profiler(self.name)
        for batch in self.batches(progress):
            profiler.update(batch)
            processes.update(batch)
        fields = profiler.finish(self.header)
        by = processes.finish(self.ledger, self.header)
        fields["kernel_threads"] = kernel_threads(by["figures"]["process_share"], fields["written_kb"])
        whence = {"name": self.name, "trace_digest": self.digest, "ledger": self.ledger}
        header = {**self.header, "clock_jumps": None}
        return Journal({**whence, "header": header, **fields})

    def write(
        self, path: str | PathLike[str], format: str | None = None, progress: Progress | None = None
    ) -> WriteResult:
        """Write the trace in another format, by default the format that the extension of `path` selects.

        The file appears only when it is complete. Values that the format cannot store are counted.

        >>> import emmclab
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     written = emmclab.read(emmclab.bundled()[0]).write(Path(folder, "trace.csv"))
        >>> written.left_out, written.lost
        (0, {})
        """
        writer = _core.Writer(path, self.header, format=format)
        try:
            for batch in self.batches(progress):
                writer.write(batch)
            left_out, lost = writer.losses()
            with note_written_files(path):
                writer.finish(self.ledger, self.header)
        except BaseException:
            writer.abort()
            raise
        return WriteResult(self.ledger, left_out, dict(lost))

    def repeated(self, passes: int) -> Trace:
        """Return a trace that repeats this one; each pass starts one mean inter-arrival time after the previous pass.

        >>> import emmclab
        >>> trace = emmclab.read(emmclab.bundled()[0])
        >>> trace.repeated(3).profile()["requests"] == 3 * trace.profile()["requests"]
        True
        """
        refuse_pipes([self], "read twice")
        # A reader of a table in memory cannot repeat its requests, so the trace is first written to a file.
        source = self.open if self._can_repeat else self.stored
        return Trace(self.name, lambda: source().repeat(passes))

    def stored(self) -> _core.Reader:
        """Return a reader of the files of the trace. A trace in memory is first written to a temporary file.

        >>> from emmclab.traces.workload import Workload
        >>> Workload.preset("Music").trace().stored().next() is not None
        True
        """
        if self._of_files:
            return self.open()
        if self._copy is None:
            import tempfile

            # This generator keeps the temporary folder alive, so that it is removed together with the trace.
            self._aside = folder_aside(Path(tempfile.gettempdir()))
            self._copy = self._aside.__enter__() / "copy.parquet"
            self.write(self._copy)
            written_files.pop()  # A temporary file is not an output of a command.
        return _core.Reader(self._copy)

    def to_arrow(self) -> pyarrow.Table:
        """Return the whole trace as a pyarrow table, without a copy.

        >>> import emmclab
        >>> trace = emmclab.read(emmclab.bundled()[0])
        >>> trace.to_arrow().num_rows == trace.ledger["kept"]
        True
        """
        arrow = library("pyarrow")
        return arrow.Table.from_batches([arrow.record_batch(batch) for batch in self.batches()])

    def to_polars(self) -> polars.DataFrame:
        """Return the whole trace as a polars frame, without a copy.

        >>> import emmclab
        >>> frame = emmclab.read(emmclab.bundled()[0]).to_polars()
        >>> frame.columns[:2]
        ['arrival_ns', 'start_ns']
        """
        module = library("polars")
        frame: polars.DataFrame = module.concat([module.DataFrame(b) for b in self.batches()], rechunk=False)
        return frame

    def to_pandas(self) -> pandas.DataFrame:
        """Return the whole trace as a pandas frame on Arrow columns, so that missing times stay missing.

        >>> import emmclab
        >>> trace = emmclab.read(emmclab.bundled()[0])
        >>> len(trace.to_pandas()) == trace.ledger["kept"]
        True
        """
        return self.to_arrow().to_pandas(types_mapper=library("pandas").ArrowDtype)


def jumps_of(header: Header) -> list[ClockJumpRow]:
    """Return the clock jumps in a header (JSON), in seconds.

    >>> jumps_of({"clock_jumps": None})
    []
    """
    jumps = json.loads(header.get("clock_jumps") or "{}").get("jumps", [])
    return [
        ClockJumpRow(
            {
                "direction": jump["direction"],
                "time_s": jump["at_ns"] / 1e9,
                "request": jump["request"],
                "length_s": jump["length_ns"] / 1e9,
                "mended": jump["mended"],
            }
        )
        for jump in jumps
    ]


def refuse_pipes(traces: Sequence[Trace], action: str) -> None:
    """Reject traces that cannot be read again.

    Raises:
        UnsupportedError: one of the traces comes from a pipe.
    """
    for trace in traces:
        if trace.is_pipe:
            raise UnsupportedError(
                f"{trace.name} is a pipe or another stream and cannot be {action}",
                hint="write the trace to a file first, or convert it to a table",
            )


def refuse_coarse_clock(name: str, header: Header, figures: str) -> None:
    """Raise an error if a trace's clock is too coarse for `figures`; the header shows this after reading.

    Raises:
        UnsupportedError: the clock of the trace is coarse.

    >>> refuse_coarse_clock("log", {"coarse_clock": None}, "its service times")
    """
    if step := header["coarse_clock"]:
        raise UnsupportedError(
            f"{name}: the clock has steps of {step}, longer than a usual response: {figures} are unknown",
            hint="give a trace with finer time stamps, such as those of `emmclab record`",
        )
