"""Types of the counts of a recorder (`crates/record/src/statistics.rs`), and of the view of `emmclab top`."""

from typing import TypedDict

from emmclab.traces.activity import SyncCounts
from emmclab.traces.trace import Ledger


class ProcessCounts(TypedDict):
    """The requests of one process by one operation since the last view."""

    process: str
    op: str
    requests: int
    bytes: int
    largest_bytes: int
    response_p50_ns: int
    response_p99_ns: int
    no_wait: int


class ProcessRates(ProcessCounts):
    """`ProcessCounts` with rates by the clock of this host."""

    requests_per_s: float
    bytes_per_s: int


class _Counts(TypedDict):
    requests: int
    no_wait: int
    gaps: int
    idle_ns: int
    longest_gap_ns: int
    syncs: list[SyncCounts]


class RecorderStats(_Counts):
    """The counts since the last view, and the ledger since the start."""

    span_ns: int
    response_sum_ns: int
    processes: list[ProcessCounts]
    ledger: Ledger


class Interval(_Counts):
    """The view of one interval; `lost` counts events since the start."""

    interval_s: float
    requests_per_s: float
    bytes_per_s: int
    queue_depth: float
    lost: int
    processes: list[ProcessRates]
