//! The result of a replay on a disk.

use emmclab_replay::{DurableTimes, ReplayMode, ResponsePercentileRow, ResponseTimeSummary, TimeSummary};
use emmclab_trace::Ledger;
use schemars::JsonSchema;
use serde::Serialize;

use crate::disk_file::DiskFacts;

/// The result of a replay on a disk. Times are those of the monotonic clock of this machine.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DiskReplayResult {
    /// The disk.
    pub disk: DiskFacts,
    /// How the trace was replayed, and how the run ended.
    pub run: DiskReplayRun,
    /// Number of requests.
    pub requests: DiskRequestCounts,
    /// Response times (from sending to completion) of successful reads and writes.
    pub response: ResponseTimeSummary,
    /// The requested percentiles of the response times: a list of `op`, `percentile` and `response_ms`.
    pub percentiles: Vec<ResponsePercentileRow>,
    /// Response times of flushes; null without flushes.
    pub flush: Option<TimeSummary>,
    /// Response times of discards and secure erases; null without them.
    pub discard: Option<TimeSummary>,
    /// Response times of flushes, and of writes with FUA or preflush; null without them.
    pub durable: Option<DurableTimes>,
    /// Recorded mean response time of the same reads and writes, ms; null unless it was recorded for all of them.
    pub recorded_response_ms: Option<f64>,
    /// Delay of the sending after the planned times; null at a given depth, which has no planned times.
    pub sending_delay: Option<SendingDelay>,
    /// Requests that ended with an error, by operation and error.
    pub failed: Vec<FailedDiskRequests>,
    /// Requests that were not sent, by reason.
    pub left_out: Vec<LeftOutRequests>,
    /// Counts of the records that the reader kept, changed or skipped; `emmclab explain ledger.` lists them.
    #[schemars(with = "std::collections::BTreeMap<String, Option<u64>>")]
    pub ledger: Ledger,
}

/// How a trace was replayed on a disk, and how the run ended.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DiskReplayRun {
    /// `open`, `closed` or `back_to_back`; the last is also the mode at a given depth.
    pub mode: ReplayMode,
    /// Why this mode was chosen; null if it was requested.
    pub mode_reason: Option<String>,
    /// Number of requests that were kept unfinished; null if requests were sent at planned times.
    pub depth: Option<u32>,
    /// Factor on the rate of arrivals.
    pub rate: f64,
    /// Seed of the written data.
    pub seed: u64,
    /// Start of the used range of the disk in bytes.
    pub range_start: u64,
    /// End of the used range of the disk in bytes; the range does not contain it.
    pub range_end: u64,
    /// Time from the first request to the last completion, s.
    pub elapsed_s: f64,
    /// Bytes read and written per second of this time.
    pub throughput_mb_per_s: f64,
    /// Highest number of requests in progress.
    pub most_in_progress: u64,
    /// Why the run ended early; null if it did not.
    pub stopped: Option<String>,
}

/// Number of requests of a replay on a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct DiskRequestCounts {
    /// Requests to send: those of the trace, with added flushes, without those that were left out.
    pub planned: u64,
    /// Requests that completed without an error.
    pub completed: u64,
    /// Completed reads.
    pub read: u64,
    /// Completed writes.
    pub write: u64,
    /// Completed flushes.
    pub flush: u64,
    /// Completed discards and secure erases.
    pub discard: u64,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Bytes that were written.
    pub bytes_written: u64,
    /// Requests that ended with an error.
    pub failed: u64,
    /// Requests that were in progress when the run ended.
    pub unfinished: u64,
    /// Requests that the run did not reach.
    pub unsent: u64,
    /// Requests that were not sent, because the disk or the options exclude them.
    pub left_out: u64,
    /// Requests whose addresses were beyond the range and were wrapped.
    pub wrapped: u64,
    /// Requests that waited for an earlier request to the same sectors, because one of the two changed them.
    pub held: u64,
}

/// Delay of the sending of requests after their planned times, without the requests that were held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct SendingDelay {
    /// Requests that were sent more than 1 ms after their planned time.
    pub late_requests: u64,
    /// Mean and percentiles of the delay, ms.
    #[serde(flatten)]
    pub times: TimeSummary,
}

/// Requests of one operation that ended with the same error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FailedDiskRequests {
    /// The operation.
    pub op: &'static str,
    /// Number of the error in Linux.
    pub errno: i32,
    /// Text of the error.
    pub error: String,
    /// Number of requests.
    pub requests: u64,
    /// Byte of the disk at which the first of them began.
    pub first_at: u64,
}

/// Requests that were not sent for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LeftOutRequests {
    /// The reason.
    pub reason: String,
    /// Number of requests.
    pub requests: u64,
}
