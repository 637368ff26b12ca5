//! Rows of the report that divides waits for durability into parts. `docs/concepts/fsync.md` defines the parts.

use serde::Serialize;

/// The report on waits for durability (`fsync`, `fdatasync`, `msync`), by process and by part.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FsyncReport {
    /// Calls that ended during the recording.
    pub calls: u64,
    /// Number of calls whose start and length are stored. If there are too many calls, only the longest are stored.
    pub stored: u64,
    /// Number of stored calls whose parts are known.
    pub split: u64,
    /// Number of calls whose parts are unknown, for each reason.
    pub unknown: Vec<UnknownCauseRow>,
    /// Names of ext4 devices whose journal thread is unknown: the commits of these journals are not explained.
    pub journals_without_thread: Vec<String>,
    /// Names of ext4 devices without recorded start and end of commits. For these devices, the time in which the journal thread runs
    /// without a request is not explained.
    pub journals_without_times: Vec<String>,
    /// Number of requests of which only the issue was recorded. The task that issued such a request may not be the one that submitted it.
    pub unqueued: u64,
    /// Calls by process and file system, the longest total first.
    pub by_process: Vec<FsyncRow>,
    /// The three longest calls, with their requests.
    pub longest: Vec<ExplainedWait>,
    /// Calls that had not ended when the recording ended.
    pub unfinished: Vec<UnfinishedWaitRow>,
}

/// Time of each part of a wait for durability (`fsync` and similar calls), or the sums over many waits; a part is `None` if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct FsyncParts {
    /// Requests of the process itself that are neither flushes nor durable on completion, ms.
    pub data_ms: Option<f64>,
    /// Time for the commit of the journal or for the checkpoint, without flushes and durable writes, ms.
    pub commit_ms: Option<f64>,
    /// Flushes, and writes with preflush or FUA, ms.
    pub flush_ms: Option<f64>,
    /// Time in which requests of the call are queued at the host because the device works for other processes, ms.
    pub queue_ms: Option<f64>,
    /// Time that belongs to no other part, ms.
    pub unexplained_ms: Option<f64>,
    /// Time in `data_ms`, `commit_ms` and `flush_ms` during which the device also had requests of other processes, ms.
    pub shared_ms: Option<f64>,
}

/// Parts of calls as percentages of the total length of the calls; `None` if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct FsyncShares {
    /// [`FsyncParts::data_ms`] as a percentage.
    pub data_pct: Option<f64>,
    /// [`FsyncParts::commit_ms`] as a percentage.
    pub commit_pct: Option<f64>,
    /// [`FsyncParts::flush_ms`] as a percentage.
    pub flush_pct: Option<f64>,
    /// [`FsyncParts::queue_ms`] as a percentage.
    pub queue_pct: Option<f64>,
    /// [`FsyncParts::unexplained_ms`] as a percentage.
    pub unexplained_pct: Option<f64>,
    /// [`FsyncParts::shared_ms`] as a percentage.
    pub shared_pct: Option<f64>,
}

impl FsyncParts {
    /// Converts the parts to percentages of the duration `length` in ms.
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

/// The calls of one process on one kind of file system.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FsyncRow {
    /// Name of the process.
    pub process: String,
    /// The kind of file system, such as `ext4`.
    pub file_system: String,
    /// Calls that ended during the recording.
    pub calls: u64,
    /// Calls that returned an error.
    pub errors: u64,
    /// Sum of the lengths of the calls, ms.
    pub total_ms: f64,
    /// Mean length of the calls, ms.
    pub mean_ms: f64,
    /// Median length, ms; `None` if the median call is not among the calls whose lengths are stored.
    pub p50_ms: Option<f64>,
    /// 99th percentile of the length, ms; `None` if that call is not among the calls whose lengths are stored.
    pub p99_ms: Option<f64>,
    /// The longest call, ms.
    pub max_ms: f64,
    /// Number of stored calls whose parts are known.
    pub split: u64,
    /// Total length of the calls whose parts are known, ms.
    pub split_ms: f64,
    /// The sums of the parts over the calls with known parts.
    #[serde(flatten)]
    pub parts: FsyncParts,
    /// The sums of the parts as percentages of `split_ms`.
    #[serde(flatten)]
    pub shares: FsyncShares,
}

/// A cause for which the parts of some calls are unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnknownCauseRow {
    /// The cause.
    pub cause: UnknownCause,
    /// Number of stored calls whose parts are unknown for this cause.
    pub calls: u64,
}

/// Why the parts of a call are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownCause {
    /// Events were lost, so requests may be missing.
    Lost,
    /// The reader left out requests (filters, dropped re-issues).
    LeftOut,
    /// Clock jumps were removed, so the times of requests are shifted but those of the calls are not.
    Clock,
    /// The clock has steps that are longer than a usual response time.
    CoarseClock,
    /// Some requests have no completion.
    Completions,
    /// More requests ran during the calls than fit into the memory limit.
    Memory,
}

/// One of the longest calls, with its parts and requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExplainedWait {
    /// Name of the process.
    pub process: String,
    /// Id of the task.
    pub pid: i32,
    /// The kind of file system, such as `ext4`.
    pub file_system: String,
    /// The device on which the file system is.
    pub device: String,
    /// Start of the call, in seconds after the first arrival; negative if it began before.
    pub start_s: f64,
    /// Length of the call, ms.
    pub wait_ms: f64,
    /// The parts of the call.
    #[serde(flatten)]
    pub parts: FsyncParts,
    /// Requests of the call, and requests of other processes during the time that counts as `queue_ms` or `unexplained_ms`; in order of
    /// arrival.
    pub requests: Vec<WaitRequestRow>,
    /// Number of further requests that ran during the call and are omitted from `requests`.
    pub requests_left_out: u64,
}

/// A request that ran during a call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitRequestRow {
    /// Arrival of the request, ms after the start of the call; negative if the request arrived before the call.
    pub at_ms: f64,
    /// Name of the process that submitted the request.
    pub process: String,
    /// Id of the process.
    pub pid: Option<i32>,
    /// Name of the device.
    pub device: String,
    /// The operation and the flags, such as `write sync fua`.
    pub what: String,
    /// The part of the call to which the request belongs: `data`, `commit` or `flush`. `other` if it does not belong to the call.
    pub part: &'static str,
    /// First sector.
    pub sector: u64,
    /// Length in sectors.
    pub sectors: u32,
    /// Time from arrival until the device received the request, ms; `None` if it was not recorded.
    pub queued_ms: Option<f64>,
    /// Time at the device, ms.
    pub service_ms: Option<f64>,
    /// Completion, ms after the start of the call.
    pub end_ms: f64,
}

/// A call that had not ended when the recording ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UnfinishedWaitRow {
    /// Name of the process.
    pub process: String,
    /// Id of the task.
    pub pid: i32,
    /// The kind of file system, such as `ext4`.
    pub file_system: String,
    /// The device on which the file system is.
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
    /// The kind of file system, such as `ext4`.
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
