"""The time bins of a run; `RunTimeRow` of `crates/replay/src/over_time.rs` has the same fields."""

from __future__ import annotations

from typing import TypedDict


class RunBin(TypedDict):
    """A time bin of a run; times of operations that did not occur are None."""

    time_s: float
    width_s: float
    reads: int
    writes: int
    read_kb: float
    write_kb: float
    iops: float
    mb_per_s: float
    response_mean_ms: float | None
    response_p99_ms: float | None
    response_max_ms: float | None
    read_mean_ms: float | None
    read_p99_ms: float | None
    write_mean_ms: float | None
    write_p99_ms: float | None
    queue_ms: float | None
    gc_ms: float | None
    wake_up_ms: float | None
    collections: int
    collecting_ms: float
    wake_ups: int
