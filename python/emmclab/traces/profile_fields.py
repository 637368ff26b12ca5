"""Declares name, label, unit and meaning of the columns of Tables III and IV, and of the counts in a ledger."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from emmclab import _core
from emmclab.core_types import ClockJumpRow
from emmclab.runtime.document import Column, significant


class Field(NamedTuple):
    """A column of a published table; `name` is its field in JSON, Parquet and Python."""

    name: str
    label: str
    unit: str
    digits: int
    about: str

    @property
    def in_words(self) -> str:
        """The label for use inside a sentence.

        >>> TABLE_FIELDS["mean_response_ms"].in_words, RESPONSE_P99.in_words
        ('mean response', 'p99 response')
        """
        return self.label[:1].lower() + self.label[1:]

    @property
    def heading(self) -> str:
        """The label of the field with its unit."""
        return f"{self.label}, {self.unit}" if self.unit else self.label

    @property
    def column(self) -> Column:
        """The heading of the field in a table."""
        return Column(self.label, self.unit, about=self.about)

    def text(self, value: float | None) -> str:
        """Format a value with the field's decimals; small values get three significant digits, None a dash.

        >>> SIZE_FIELDS[0].text(63668.0), SIZE_FIELDS[4].text(None)
        ('63,668', '–')
        >>> TIMING_FIELDS[0].text(0.6534), TIMING_FIELDS[4].text(0.0042)
        ('0.653', '0.0042')
        """
        if value is None:
            return "–"
        small = value and abs(value) < (100 if self.digits == 0 else 0.1)
        return significant(value, least=self.digits) if small else f"{value:,.{self.digits}f}"


#: Columns of Table III on sizes (IISWC 2015, section III-B).
SIZE_FIELDS = (
    Field("data_size_kb", "Data", "KB", 0, "bytes read and written"),
    Field("requests", "Requests", "", 0, "reads and writes"),
    Field("max_size_kb", "Max size", "KB", 0, "the largest request"),
    Field("mean_size_kb", "Mean size", "KB", 2, "mean bytes of a request; the paper rounds down to a multiple of 0.5"),
    Field("mean_read_kb", "Mean read", "KB", 2, "mean bytes of a read"),
    Field("mean_write_kb", "Mean write", "KB", 2, "mean bytes of a write"),
    Field("write_requests_pct", "Write requests", "%", 2, "share of writes in all requests"),
    Field("written_bytes_pct", "Written bytes", "%", 2, "share of bytes written in all bytes"),
)

_LOCALITIES = (
    Field("spatial_locality_pct", "Spatial locality", "%", 2, "requests that start where their predecessor ended"),
    Field("temporal_locality_pct", "Temporal locality", "%", 2, "requests whose start address has been seen before"),
)


#: Columns of Table IV on timing and locality (IISWC 2015, section III-C).
TIMING_FIELDS = (
    Field("duration_s", "Duration", "s", 0, "first arrival to last completion"),
    Field("arrival_rate_per_s", "Arrivals", "1/s", 2, "requests per second of the duration"),
    Field("access_rate_kb_per_s", "Access rate", "KB/s", 2, "bytes per second of the duration"),
    Field("no_wait_pct", "No-wait", "%", 2, "requests that arrive when no earlier one is unfinished"),
    Field("mean_service_ms", "Mean service", "ms", 2, "complete - start"),
    Field("mean_response_ms", "Mean response", "ms", 2, "complete - arrival"),
    *_LOCALITIES,
)

#: Meaning of each count of a ledger (the record of what reading a trace did), by field.
LEDGER_MEANINGS = {
    "seen": "records of the input: lines of a text, rows of a table, events of a recording",
    "paired": "requests whose arrival and completion events were matched",
    "kept": "requests in the trace",
    "skipped": "bad records left out under `--lenient`, and records that are not requests",
    "foreign": "lines that do not belong to the trace, such as the output of a benchmark",
    "stack_lines": "lines of call stacks below events",
    "joined": "lines that a mail program or a web page had split from the previous line, joined to it again",
    "split": "requests that the block layer split",
    "merged": "requests that the block layer merged into another",
    "requeued": "requests that the driver returned to the queue and issued again",
    "reordered": "requests that were recorded out of order, and were sorted by arrival",
    "clock_jumps": "places where the clock jumps, forward or back, or the recording paused",
    "mended_jumps": "clock jumps that `--mend-clock` removed",
    "reissued": "requests that are suspected to be issued a second time; `null` if neither processes nor "
    "completions are recorded",
    "dropped_reissues": "suspected re-issues that `--drop-reissued` dropped",
    "filtered": "requests left out under `--only`",
    "filtered_before": "requests that were left out when the file was made; its header contains their number",
    "notes_left_out": "requests whose block notes were left out under `--mend-clock`",
    "headers_stripped": "header blocks of packed commands, subtracted from the size of a request",
    "rounded": "requests that do not begin and end at a multiple of 512 bytes, and were rounded to it",
    "ambiguous": "requests whose events match in more than one way",
    "unqueued": "requests whose queueing was not recorded; their arrival is their issue",
    "from_completion": "requests of which only the completion was recorded; its time is used as arrival",
    "failed": "requests that ended with an error; latency figures exclude them",
    "unpaired": "requests without a completion and completions without a request, at the edges of a recording",
    "lost": "records that the recorder reports as lost",
    "folded": "requests whose address was wrapped into a smaller device",
}

#: Both tables of the paper (IISWC 2015) with their titles.
TABLES = (("Table III: sizes", SIZE_FIELDS), ("Table IV: timing and locality", TIMING_FIELDS))

#: Columns of both tables of the paper (IISWC 2015), by name.
TABLE_FIELDS = {field.name: field for field in (*SIZE_FIELDS, *TIMING_FIELDS)}
#: The 99th percentile of response times, which the tables of the paper lack. The field has the name of a column in a
#: fleet's table.
RESPONSE_P99 = Field("all_response_p99_ms", "p99 response", "ms", 2, "99th percentile of complete - arrival")

#: Figures that a clock jump distorts: the fields of `key_figures` and `key_figures_without_jumps`.
KEY_FIELDS = (
    Field("duration_s", "Duration", "s", 0, "first arrival to last completion"),
    Field("arrival_rate_per_s", "Arrivals", "1/s", 2, "reads and writes per second of the duration"),
    Field("access_rate_kb_per_s", "Access rate", "KB/s", 2, "bytes per second of the duration"),
    Field("mean_inter_arrival_ms", "Mean inter-arrival", "ms", 2, "mean time between two reads or writes"),
    Field("busy_pct", "Busy", "%", 2, "share of the duration in which a request is unfinished"),
    Field(
        "idle_pct",
        "Idle",
        "%",
        2,
        "share of the duration in which no request is unfinished, from first to last request",
    ),
)

#: Figures that re-issues change: the fields of `figures` and `figures_without` in `reissues`.
REISSUE_FIELDS = (
    Field("requests", "Requests", "", 0, "reads and writes"),
    Field("data_size_kb", "Data", "KB", 0, "bytes read and written"),
    Field("mean_size_kb", "Mean size", "KB", 2, "mean bytes of a request"),
    Field("write_requests_pct", "Write requests", "%", 2, "share of writes in all requests"),
    Field("arrival_rate_per_s", "Arrivals", "1/s", 2, "reads and writes per second of the duration"),
    *_LOCALITIES,
)

#: Columns of the profile's table `device_share`, after the device.
DEVICE_FIELDS = (
    Field("requests_pct", "Requests", "%", 1, "share of all requests"),
    Field("reads", "Reads", "", 0, "reads"),
    Field("writes", "Writes", "", 0, "writes"),
    Field("others", "Others", "", 0, "discards, flushes and secure erases"),
    Field("read_kb", "Read", "KB", 0, "data read"),
    Field("write_kb", "Written", "KB", 0, "data written"),
    Field("data_pct", "Data", "%", 1, "share of all data"),
)

#: Columns of `by_process` in the profile's `fsync`, after the process and the file system.
FSYNC_FIELDS = (
    Field("calls", "Calls", "", 0, "calls of fsync, fdatasync and msync that ended in the recording"),
    Field("total_ms", "All", "ms", 1, "total duration of the calls"),
    Field("mean_ms", "Mean", "ms", 3, "mean duration of a call"),
    Field("p50_ms", "p50", "ms", 3, "median duration"),
    Field("p99_ms", "p99", "ms", 3, "99th percentile of the duration"),
    Field("max_ms", "Longest", "ms", 3, "the longest call"),
)

#: Parts of a wait for durability. The group `fsync` of a profile contains each part as a time (`NAME_ms`) and as a
#: share (`NAME_pct`).
FSYNC_PARTS = (
    Field("data", "Data", "ms", 3, "requests of the process itself, without flushes and durable writes"),
    Field("commit", "Commit", "ms", 3, "the commit of the journal, or the checkpoint, without its flushes"),
    Field("flush", "Flush", "ms", 3, "flushes of the device, and writes with preflush or FUA"),
    Field("queue", "Queue", "ms", 3, "queued at the host while the device works for other processes"),
    Field("unexplained", "Not explained", "ms", 3, "the rest: no recorded request or commit explains it"),
)
#: Part of the times data, commit and flush in which the device also had requests of other processes.
FSYNC_SHARED = Field("shared", "Shared", "ms", 3, "data, commit and flush while other processes have requests, too")

#: Columns of the profile's table `clock_jumps`.
JUMP_FIELDS = (
    Field("direction", "Direction", "", 0, "`forward`, or `backward` where the clock was set back"),
    Field("time_s", "At", "s", 1, "last arrival before it, since the first arrival of the recording"),
    Field("request", "Request", "", 0, "number of the first request after it, counted from 1"),
    Field("length_s", "Length", "s", 1, "time between the arrivals before and after it, in either direction"),
    Field("mended", "Mended", "", 0, "whether `--mend-clock` removed it from the trace"),
)


def jump_cells(jump: ClockJumpRow) -> list[str]:
    """Format the fields of a clock jump, in the order of `JUMP_FIELDS`.

    >>> jump = {"direction": "forward", "time_s": 12.04, "request": 1234, "length_s": 3600.0, "mended": False}
    >>> jump_cells(jump)
    ['forward', '12.0', '1,234', '3,600.0', 'no']
    """
    values: Mapping[str, Any] = {**jump}
    cells = []
    for field in JUMP_FIELDS:
        value = values[field.name]
        if isinstance(value, bool):
            value = "yes" if value else "no"
        cells.append(value if isinstance(value, str) else field.text(value))
    return cells


def jumps_text(count: int) -> str:
    """Return in words how many gaps `clock_jumps` has; each is a clock jump or a pause of the recording.

    >>> jumps_text(1), jumps_text(0)
    ('1 clock jump or pause of the recording', '0 clock jumps or pauses of the recording')
    """
    jumps = "clock jump or pause" if count == 1 else "clock jumps or pauses"
    return f"{count:,} {jumps} of the recording"


def ledger_line(ledger: Mapping[str, int | None]) -> str:
    """Return the non-zero counts of a ledger in one line of text.

    >>> ledger_line({"seen": 5702, "kept": 5702, "skipped": 0, "headers_stripped": 1155, "reissued": None})
    '5,702 seen, 5,702 kept, 1,155 headers stripped'
    """
    labels = _core.ledger_labels()
    totals = [f"{ledger[field]:,} {field}" for field in ("seen", "kept")]
    rest = [f"{count:,} {labels[field]}" for field, count in ledger.items() if count and field not in ("seen", "kept")]
    return ", ".join(totals + rest)
