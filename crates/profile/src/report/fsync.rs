//! Rows on where the time of waits for durability goes. Parts are those of `docs/concepts/fsync.md`.

use serde::Serialize;

/// Where processes wait for durability (`fsync`, `fdatasync`, `msync`).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FsyncReport {
    /// Calls that ended in the recording.
    pub calls: u64,
    /// The calls of which start and length are stored: all, or the longest.
    pub stored: u64,
    /// The calls whose parts are known.
    pub split: u64,
    /// Why parts are unknown, with the number of calls.
    pub unknown: Vec<UnknownCauseRow>,
    /// Devices with ext4 of whose journal the thread is unknown: its commits are not explained.
    pub journals_without_thread: Vec<String>,
    /// Devices with ext4 of whose commits no start and end were recorded: the time in which the thread of the journal runs
    /// without a request is not explained.
    pub journals_without_times: Vec<String>,
    /// Requests of which only the issue was recorded: the task that issued them may not be the one that submitted them.
    pub unqueued: u64,
    /// Calls by process and file system, the longest total first.
    pub by_process: Vec<FsyncRow>,
    /// The three longest calls, with their requests.
    pub longest: Vec<ExplainedWait>,
    /// Calls that had not ended when the recording ended.
    pub unfinished: Vec<UnfinishedWaitRow>,
}

/// The parts of a wait, or of many; `None` where they are unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct FsyncParts {
    /// Requests of the process itself that are neither flushes nor durable on completion, ms.
    pub data_ms: Option<f64>,
    /// The commit of the journal, or the checkpoint, without its flushes and durable writes, ms.
    pub commit_ms: Option<f64>,
    /// Flushes, and writes with preflush or FUA, ms.
    pub flush_ms: Option<f64>,
    /// Waiting at the host while the device works for other processes, ms.
    pub queue_ms: Option<f64>,
    /// The rest, ms.
    pub unexplained_ms: Option<f64>,
    /// Time of data, commit and flush in which the device had requests of other processes, too, ms. It is in those parts.
    pub shared_ms: Option<f64>,
}

/// Parts of calls as percentages of the sum of their lengths; `None` where they are unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct FsyncShares {
    /// As [`FsyncParts::data_ms`].
    pub data_pct: Option<f64>,
    /// As [`FsyncParts::commit_ms`].
    pub commit_pct: Option<f64>,
    /// As [`FsyncParts::flush_ms`].
    pub flush_pct: Option<f64>,
    /// As [`FsyncParts::queue_ms`].
    pub queue_pct: Option<f64>,
    /// As [`FsyncParts::unexplained_ms`].
    pub unexplained_pct: Option<f64>,
    /// As [`FsyncParts::shared_ms`].
    pub shared_pct: Option<f64>,
}

impl FsyncParts {
    /// The parts as percentages of a length in ms.
    pub(crate) fn shares(&self, length: f64) -> FsyncShares {
        let share = |part: Option<f64>| part.filter(|_| length > 0.0).map(|part| 100.0 * part / length);
        FsyncShares {
            data_pct: share(self.data_ms),
            commit_pct: share(self.commit_ms),
            flush_pct: share(self.flush_ms),
            queue_pct: share(self.queue_ms),
            unexplained_pct: share(self.unexplained_ms),
            shared_pct: share(self.shared_ms),
        }
    }
}

/// The calls of a process on a kind of file system.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FsyncRow {
    /// Name of the process.
    pub process: String,
    /// The kind of file system.
    pub file_system: String,
    /// Calls that ended in the recording.
    pub calls: u64,
    /// Calls that returned an error.
    pub errors: u64,
    /// Sum of the lengths of the calls, ms.
    pub total_ms: f64,
    /// Mean length, ms.
    pub mean_ms: f64,
    /// Median length, ms; `None` if the calls of that length are not stored.
    pub p50_ms: Option<f64>,
    /// 99th percentile of the length, ms; as the median.
    pub p99_ms: Option<f64>,
    /// The longest call, ms.
    pub max_ms: f64,
    /// The calls whose parts are known.
    pub split: u64,
    /// Sum of the lengths of these calls, ms.
    pub split_ms: f64,
    /// The sums of their parts.
    #[serde(flatten)]
    pub parts: FsyncParts,
    /// The shares of their parts.
    #[serde(flatten)]
    pub shares: FsyncShares,
}

/// A cause for which parts are unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnknownCauseRow {
    /// The cause.
    pub cause: UnknownCause,
    /// Number of stored calls.
    pub calls: u64,
}

/// Why the parts of a call are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownCause {
    /// Events were lost, so that requests may be missing.
    Lost,
    /// Requests were left out on reading.
    LeftOut,
    /// Clock jumps were removed: the requests have other times than the calls.
    Clock,
    /// The clock has steps longer than a usual response.
    CoarseClock,
    /// Requests have no completion.
    Completions,
    /// More requests ran during the calls than are held in memory.
    Memory,
}

/// One of the longest calls.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExplainedWait {
    /// Name of the process.
    pub process: String,
    /// Id of the task.
    pub pid: i32,
    /// The kind of file system.
    pub file_system: String,
    /// The device that is mounted.
    pub device: String,
    /// Start of the call, in seconds after the first arrival; negative if it began before.
    pub start_s: f64,
    /// Length of the call, ms.
    pub wait_ms: f64,
    /// Its parts.
    #[serde(flatten)]
    pub parts: FsyncParts,
    /// Its requests, and those of other processes that ran while it waited for another cause, in order of arrival.
    pub requests: Vec<WaitRequestRow>,
    /// Further requests of this kind, which are left out.
    pub requests_left_out: u64,
}

/// A request during a call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitRequestRow {
    /// Arrival, ms after the start of the call; negative if it arrived before.
    pub at_ms: f64,
    /// Name of the process that submitted it.
    pub process: String,
    /// Id of the process.
    pub pid: Option<i32>,
    /// The device.
    pub device: String,
    /// The operation and the flags, as `write sync fua`.
    pub what: String,
    /// `data`, `commit` or `flush`; `other` for a request that is not one of the call.
    pub part: &'static str,
    /// First sector.
    pub sector: u64,
    /// Length in sectors.
    pub sectors: u32,
    /// Time from arrival until the device got it, ms.
    pub queued_ms: Option<f64>,
    /// Time at the device, ms.
    pub service_ms: Option<f64>,
    /// Completion, ms after the start of the call.
    pub end_ms: f64,
}

/// A call without a recorded end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UnfinishedWaitRow {
    /// Name of the process.
    pub process: String,
    /// Id of the task.
    pub pid: i32,
    /// The kind of file system.
    pub file_system: String,
    /// The device that is mounted.
    pub device: String,
    /// Start of the call, in seconds after the first arrival.
    pub start_s: f64,
}

/// A part of one of the longest calls, for a chart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FsyncPartRow {
    /// Rank of the call by length, from 1.
    pub rank: u64,
    /// Name of the process.
    pub process: String,
    /// The kind of file system.
    pub file_system: String,
    /// Start of the call, in seconds after the first arrival.
    pub start_s: f64,
    /// Length of the call, ms.
    pub wait_ms: f64,
    /// `data`, `commit`, `flush`, `queue` or `unexplained`.
    pub part: &'static str,
    /// Length of the part, ms.
    pub part_ms: f64,
}
