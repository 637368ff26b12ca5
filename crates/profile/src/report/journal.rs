//! The cost of journaling.

use serde::Serialize;

use super::Quantiles;

/// The cost of journaling in a trace: by the roles of blocks where it has block notes, else by flags and addresses.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JournalReport {
    /// `roles` where the trace has block notes, else `flags`.
    pub known_by: &'static str,
    /// From the first arrival to the last completion, seconds.
    pub duration_s: f64,
    /// All requests.
    pub requests: u64,
    /// Writes among them.
    pub writes: u64,
    /// Bytes written, KB.
    pub written_kb: f64,
    /// Bytes of blocks in the journal, KB; by flags those of the journal's thread, or else those of writes with fua or
    /// preflush and of the writes that end where one of these begins. `None` if no sign tells of a journal.
    pub journal_kb: Option<f64>,
    /// Their share of written bytes, percent.
    pub journal_pct: Option<f64>,
    /// Journal, data and home metadata; nothing if roles are not known.
    pub by_kind: Vec<KindRow>,
    /// Roles that occur; nothing if roles are not known.
    pub by_role: Vec<RoleRow>,
    /// The signs in flags and addresses; nothing if roles are known.
    pub by_sign: Vec<SignRow>,
    /// Commits; `None` if nothing tells of one.
    pub commits: Option<Commits>,
    /// Logged blocks, compared with their copies before; `None` if roles are not known.
    pub logged: Option<Logged>,
    /// Logged blocks by the number of their changed sectors.
    pub changed_sectors: Vec<ChangedRow>,
    /// Synchronous writes by kind.
    pub synchronous: Vec<SynchronousRow>,
    /// Service times of flushes and of writes with preflush or fua in those of all synchronous writes, percent; `None`
    /// without service times.
    pub flush_fua_time_pct: Option<f64>,
    /// All synchronous writes.
    pub synchronous_writes: SynchronousWrites,
    /// Bins of time of a second or wider.
    pub over_time: Vec<JournalTimeRow>,
    /// These bins by the rate of commits.
    pub by_commit_rate: Vec<CommitRateRow>,
}

/// Blocks of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KindRow {
    /// `journal`, `data`, `home metadata`, or `without notes`.
    pub kind: &'static str,
    /// Writes that hold such blocks.
    pub requests: u64,
    /// Their bytes, KB.
    pub kb: f64,
    /// Share of written bytes, percent.
    pub written_pct: Option<f64>,
}

/// Blocks of one role.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoleRow {
    /// The role.
    pub role: &'static str,
    /// Writes that hold such blocks.
    pub requests: u64,
    /// How many; `None` for data, which is noted in runs of any length.
    pub blocks: Option<u64>,
    /// Their bytes, KB.
    pub kb: f64,
    /// Share of written bytes, percent.
    pub written_pct: Option<f64>,
}

/// Writes of one sign.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SignRow {
    /// Flag or place.
    pub sign: &'static str,
    /// The part of a journal that it points to.
    pub about: &'static str,
    /// Writes.
    pub requests: u64,
    /// Their bytes, KB.
    pub kb: f64,
    /// Share of written bytes, percent.
    pub written_pct: Option<f64>,
}

/// Commits of the journal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Commits {
    /// The mark that they are counted by: `commit blocks`, `events of the journal`, or `writes with fua or preflush`.
    pub counted_by: &'static str,
    /// Commits.
    pub commits: u64,
    /// Per second of the duration.
    pub commits_per_s: Option<f64>,
    /// Blocks of fast commits.
    pub fast_commits: Option<u64>,
    /// Transactions of which the trace has a block.
    pub transactions: Option<u64>,
    /// Logged blocks whose commit block is not in the trace.
    pub not_committed: Option<u64>,
    /// Logged blocks of each commit.
    pub logged_blocks: Option<Quantiles>,
    /// Blocks of the journal of each commit: descriptors, logged, revoke and commit blocks.
    pub journal_blocks: Option<Quantiles>,
    /// Bytes of these, KB.
    pub journal_kb: Option<Quantiles>,
}

/// How much of what is logged had been logged before.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Logged {
    /// Logged blocks.
    pub blocks: u64,
    /// Those with a last logged copy to compare with.
    pub compared: u64,
    /// Sectors of these that are as in their last logged copy, percent.
    pub unchanged_sectors_pct: Option<f64>,
    /// Sectors of these that differ, mean of a block.
    pub mean_changed_sectors: Option<f64>,
    /// Home blocks with a logged copy to compare with.
    pub home_compared: u64,
    /// Those that are as their last logged copy, percent.
    pub home_as_logged_pct: Option<f64>,
}

/// Logged blocks with this many changed sectors.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChangedRow {
    /// Sectors that differ from the last logged copy.
    pub changed_sectors: u32,
    /// Logged blocks.
    pub blocks: u64,
    /// Share of the blocks that have a copy to compare with, percent.
    pub pct: f64,
}

/// Synchronous writes of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SynchronousRow {
    /// `flush`, `preflush`, `fua`, `preflush and fua` or `other synchronous write`.
    pub kind: &'static str,
    /// Requests.
    pub requests: u64,
    /// Requests for each commit.
    pub per_commit: Option<f64>,
    /// Service times.
    pub service_ms: Option<Quantiles>,
    /// Sum of service times, ms; each by itself, also where several are served at once.
    pub time_ms: f64,
    /// Its share for all synchronous writes, percent.
    pub time_pct: Option<f64>,
}

/// Flushes, and writes with the flag sync, preflush or fua.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SynchronousWrites {
    /// Requests.
    pub requests: u64,
    /// Those whose service time is known: from start, or else from submission, to completion.
    pub timed: u64,
    /// Sum of these times, ms.
    pub service_ms: f64,
}

/// A bin of time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JournalTimeRow {
    /// Start from the first arrival, seconds.
    pub time_s: f64,
    /// Width, seconds.
    pub width_s: f64,
    /// Commits; where roles are not known, writes with fua or preflush.
    pub commits: u64,
    /// The same per second, over a second at least.
    pub commits_per_s: f64,
    /// Flushes.
    pub flushes: u64,
    /// Writes with fua or preflush.
    pub fua_or_preflush_writes: u64,
    /// Bytes written, KB.
    pub written_kb: f64,
    /// Bytes of the journal, KB; where roles are not known, those of the journal's thread, or of `fua_or_preflush_writes`.
    pub journal_kb: f64,
    /// Their share of written bytes, percent.
    pub journal_pct: Option<f64>,
}

/// Bins of time with about as many commits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CommitRateRow {
    /// More commits per second than this; in the first class there is none.
    pub from_per_s: f64,
    /// Upper bound of the class; `None` for the last one.
    pub to_per_s: Option<f64>,
    /// Length of these bins, seconds.
    pub seconds: f64,
    /// Commits.
    pub commits: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes written, KB.
    pub written_kb: f64,
    /// Bytes of the journal, KB.
    pub journal_kb: f64,
    /// Their share of written bytes, percent.
    pub journal_pct: Option<f64>,
}
