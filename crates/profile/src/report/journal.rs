//! Results on the cost of journaling in a trace.

use serde::Serialize;

use super::Quantiles;

/// The cost of journaling in a trace, computed from notes about block roles if the trace has them, otherwise from flags and addresses.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JournalReport {
    /// How journal writes were recognised: `roles` if the trace has notes about block roles, otherwise `flags` if the recording marks the
    /// writes of the journal's thread, otherwise `addresses` if a journal or checkpoints are found by their addresses, otherwise `flags`.
    pub known_by: &'static str,
    /// Journals and checkpoints that are found by the addresses and times of writes alone; empty if the roles of blocks are known.
    pub found: Vec<FoundJournalRow>,
    /// Time from the first arrival to the last completion, seconds.
    pub duration_s: f64,
    /// Number of requests of all operations.
    pub requests: u64,
    /// Number of writes.
    pub writes: u64,
    /// Data written, KB.
    pub written_kb: f64,
    /// Data written to the journal, KB; `None` if no journal is recognised. Without notes about block roles, it is the data of requests
    /// that are marked as writes of the journal thread. If no request has this mark, it is the data of the journals and checkpoints in
    /// `found`; if there are none, that of writes with FUA or preflush, and of writes that end where a write with FUA or preflush begins.
    pub journal_kb: Option<f64>,
    /// Journal data as a percentage of the written data.
    pub journal_pct: Option<f64>,
    /// Rows for journal, file data and metadata in place; empty if the roles of blocks are unknown.
    pub by_kind: Vec<BlockKindRow>,
    /// Rows for the block roles that occur; empty if the roles of blocks are unknown.
    pub by_role: Vec<BlockRoleRow>,
    /// Rows for classes of writes by flags and addresses; empty if the roles of blocks are known.
    pub by_sign: Vec<SignRow>,
    /// Summary of the journal commits; `None` if no commits can be recognised.
    pub commits: Option<CommitSummary>,
    /// Comparison of logged blocks with their previous logged copies; `None` if the roles of blocks are unknown.
    pub logged: Option<LoggedBlockSummary>,
    /// Logged blocks by the number of their changed sectors.
    pub changed_sectors: Vec<ChangedSectorsRow>,
    /// Synchronous writes by kind.
    pub synchronous: Vec<SyncWriteRow>,
    /// Service time of flushes and of writes with preflush or FUA, as a percentage of the service time of all synchronous writes; `None`
    /// without service times.
    pub flush_fua_time_pct: Option<f64>,
    /// The totals of all synchronous writes.
    pub synchronous_writes: SyncWriteSummary,
    /// Journal activity over time, in bins of at least a second.
    pub over_time: Vec<JournalTimeRow>,
    /// The time bins of `over_time`, combined by their rate of commits.
    pub by_commit_rate: Vec<CommitRateRow>,
}

/// Writes of blocks of one kind: journal, data or home metadata.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BlockKindRow {
    /// `journal`, `data`, `home metadata`, or `without notes`.
    pub kind: &'static str,
    /// Writes with blocks of this kind.
    pub requests: u64,
    /// Data of the blocks of this kind, KB.
    pub kb: f64,
    /// Share of written bytes, percent.
    pub written_pct: Option<f64>,
}

/// Writes of blocks of one role.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BlockRoleRow {
    /// The role.
    pub role: &'static str,
    /// Writes with blocks of this role.
    pub requests: u64,
    /// Number of blocks; `None` for file data, because a trace has only one entry for a whole run of data blocks.
    pub blocks: Option<u64>,
    /// Data of the blocks of this role, KB.
    pub kb: f64,
    /// Share of written bytes, percent.
    pub written_pct: Option<f64>,
}

/// A journal or the checkpoint packs of a file system, found by the addresses and times of writes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FoundJournalRow {
    /// The device; `None` if the trace does not name it.
    pub device: Option<String>,
    /// The file system that writes in this way: `ext4` or `f2fs`.
    pub file_system: &'static str,
    /// `journal` or `checkpoints`.
    pub kind: &'static str,
    /// First sector of the range of addresses.
    pub first_sector: u64,
    /// Size of the range, KB.
    pub size_kb: f64,
    /// Number of writes to the journal or the packs.
    pub writes: u64,
    /// Data of these writes, KB.
    pub kb: f64,
    /// Share of written bytes, percent.
    pub written_pct: Option<f64>,
    /// Number of commits or checkpoints.
    pub commits: u64,
    /// Mean data of a commit or checkpoint before its last block, KB.
    pub commit_kb: f64,
    /// Number of ascending runs of the write pointer, or of checkpoints that were written to the other pack than the previous one.
    pub passes: u64,
    /// Evidence: share of the groups of writes that a single block ended, or of checkpoints in the other pack than the previous one, percent.
    pub closed_pct: Option<f64>,
    /// Evidence: share of the writes in the range that follow the write pointer, percent; `None` for checkpoints.
    pub within_pct: Option<f64>,
}

/// Writes of one class, which is recognised by a flag or an address.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SignRow {
    /// The flag or address by which the class is recognised.
    pub sign: &'static str,
    /// The probable purpose of the writes of this class.
    pub about: &'static str,
    /// Number of writes of this class.
    pub requests: u64,
    /// Data of the writes of this class, KB.
    pub kb: f64,
    /// Share of written bytes, percent.
    pub written_pct: Option<f64>,
}

/// Summary of the journal's commits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CommitSummary {
    /// How commits were counted: `commit blocks`, `events of the journal`, `groups of writes that a single block ends`, or `writes with fua
    /// or preflush`.
    pub counted_by: &'static str,
    /// Number of commits.
    pub commits: u64,
    /// Commits per second of the duration.
    pub commits_per_s: Option<f64>,
    /// Number of blocks of fast commits; `None` if the trace has no notes about block roles.
    pub fast_commits: Option<u64>,
    /// Number of transactions with at least one block in the trace; `None` if the trace has no notes about block roles.
    pub transactions: Option<u64>,
    /// Number of logged blocks whose commit block is not in the trace; `None` if the trace has no notes about block roles.
    pub not_committed: Option<u64>,
    /// Number of logged blocks per commit.
    pub logged_blocks: Option<Quantiles>,
    /// Number of journal blocks per commit: descriptor, logged, revoke and commit blocks.
    pub journal_blocks: Option<Quantiles>,
    /// Data of the journal blocks per commit, KB.
    pub journal_kb: Option<Quantiles>,
}

/// Comparison of blocks with their previous copy in the journal. Logged blocks are those written to the journal; home blocks are those
/// written to their final place.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoggedBlockSummary {
    /// Number of logged blocks.
    pub blocks: u64,
    /// Number of logged blocks that have a previous logged copy.
    pub compared: u64,
    /// Percentage of the sectors of the compared blocks that are equal to the previous logged copy.
    pub unchanged_sectors_pct: Option<f64>,
    /// Mean number of sectors per compared block that differ from the previous logged copy.
    pub mean_changed_sectors: Option<f64>,
    /// Number of home blocks that have a logged copy.
    pub home_compared: u64,
    /// Percentage of the compared home blocks that are equal to their last logged copy.
    pub home_as_logged_pct: Option<f64>,
}

/// Number of logged blocks with a certain number of changed sectors.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChangedSectorsRow {
    /// Sectors that differ from the last logged copy.
    pub changed_sectors: u32,
    /// Number of logged blocks.
    pub blocks: u64,
    /// Share of these blocks among all logged blocks with a previous logged copy, in percent.
    pub pct: f64,
}

/// Synchronous writes of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SyncWriteRow {
    /// `flush`, `preflush`, `fua`, `preflush and fua` or `other synchronous write`.
    pub kind: &'static str,
    /// Number of requests.
    pub requests: u64,
    /// Requests per commit.
    pub per_commit: Option<f64>,
    /// Service times.
    pub service_ms: Option<Quantiles>,
    /// Sum of the service times, ms. Requests that overlap in time are counted in full.
    pub time_ms: f64,
    /// `time_ms` as a percentage of the sum for all synchronous writes.
    pub time_pct: Option<f64>,
}

/// Flushes, and writes with the flag sync, preflush or fua.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SyncWriteSummary {
    /// Number of requests.
    pub requests: u64,
    /// Number of requests with a known service time, from start (or from submission, if the start is unknown) to completion.
    pub timed: u64,
    /// Sum of the known service times, ms.
    pub service_ms: f64,
}

/// Journal activity in a time bin.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JournalTimeRow {
    /// Start of the bin, in seconds after the first arrival.
    pub time_s: f64,
    /// Width of the bin, seconds.
    pub width_s: f64,
    /// Number of commits; if the roles of blocks are unknown, number of writes with FUA or preflush.
    pub commits: u64,
    /// Commits per second; a bin shorter than one second counts as one second.
    pub commits_per_s: f64,
    /// Flushes; `None` if the trace does not record flushes.
    pub flushes: Option<u64>,
    /// Writes with fua or preflush; `None` if the trace does not record these flags.
    pub fua_or_preflush_writes: Option<u64>,
    /// Data written, KB.
    pub written_kb: f64,
    /// Data written to the journal, KB. If the roles of blocks are unknown, the data written by the journal's thread; if no write is marked
    /// with this thread, the data of `fua_or_preflush_writes`.
    pub journal_kb: f64,
    /// Journal data as a percentage of the written data.
    pub journal_pct: Option<f64>,
}

/// Time bins with a similar rate of journal commits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CommitRateRow {
    /// Exclusive lower edge of the class, in commits per second. The first class contains the bins without commits.
    pub from_per_s: f64,
    /// Inclusive upper edge of the class, in commits per second; `None` for the last class.
    pub to_per_s: Option<f64>,
    /// Total width of the bins of this class, seconds.
    pub seconds: f64,
    /// Number of commits in the bins of this class.
    pub commits: u64,
    /// Number of flushes in the bins of this class; `None` if the trace does not record flushes.
    pub flushes: Option<u64>,
    /// Data written, KB.
    pub written_kb: f64,
    /// Data of the journal, KB.
    pub journal_kb: f64,
    /// Journal data as a percentage of the written data.
    pub journal_pct: Option<f64>,
}
