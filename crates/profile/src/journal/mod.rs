//! The cost of journaling. It is computed from notes on the roles of blocks; for traces without notes, it is derived from flags and
//! addresses.

mod block_roles;
mod over_time;
mod write_pointer;
mod write_signs;

use emmclab_trace::{Batch, BlockNote, Nanos, Op, RecordedActivity, Request, RequestFlags, TraceHeader};

use crate::bins::pct;
use crate::elapsed;
use crate::options::MergeRelation;
use crate::processes::NameMap;
use crate::report::{BlockKindRow, CommitSummary, JournalReport, SignRow};
use block_roles::{RoleCounters, TransactionCounters};
use over_time::{JournalEvidence, JournalOverTime};
use write_pointer::{FoundJournals, WritePointers};
use write_signs::{SignCounters, SyncWriteCounters};

/// Sectors per KB.
const SECTORS_PER_KB: f64 = 2.0;

/// Measures the cost of journaling in a trace, in one pass over its batches in order of arrival. Memory does not grow with the trace.
#[derive(Clone, Debug, Default)]
pub struct JournalProfile {
    devices: NameMap,
    cost: JournalCost,
}

impl JournalProfile {
    /// Adds a batch. Batches must be added in order of arrival.
    pub fn update(&mut self, batch: &Batch) {
        self.devices.follow(batch.devices());
        for (row, request) in batch.iter().enumerate() {
            self.cost.add(&request, batch.notes(row), self.devices.index(request.device));
        }
    }

    /// Reports on all batches added so far. `header` is the trace's header after reading has ended.
    pub fn finish(&self, header: &TraceHeader) -> JournalReport {
        self.cost.report(header, self.cost.found(&self.devices))
    }
}

/// The counters of a [`JournalProfile`], in which devices have numbers instead of names.
#[derive(Clone, Debug, Default)]
pub(crate) struct JournalCost {
    first: Option<Nanos>,
    last: Nanos,
    requests: u64,
    writes: u64,
    written_sectors: u64,
    noted: u64,
    roles: RoleCounters,
    transactions: TransactionCounters,
    synchronous: SyncWriteCounters,
    signs: SignCounters,
    pointers: WritePointers,
    over_time: JournalOverTime,
}

impl JournalCost {
    pub fn add(&mut self, request: &Request, notes: &[BlockNote], space: u32) {
        self.first.get_or_insert(request.arrival);
        self.last = self.last.max(request.complete.unwrap_or(request.arrival));
        self.requests += 1;
        self.synchronous.add(request);
        let bin = self.over_time.bin(request.arrival);
        bin.add(request);
        if request.op != Op::Write {
            return;
        }
        self.writes += 1;
        self.written_sectors += u64::from(request.sectors);
        self.noted += u64::from(!notes.is_empty());
        self.signs.add(request, space);
        self.pointers.add(request, space);
        if notes.is_empty() {
            return;
        }
        bin.add_notes(notes);
        self.roles.add(notes);
        self.transactions.add(notes, space);
    }

    pub fn merge(&mut self, other: Self, join: MergeRelation, space_of: impl Fn(u32) -> u32) {
        self.first = match (self.first, other.first) {
            (Some(mine), Some(theirs)) => Some(mine.min(theirs)),
            (mine, theirs) => mine.or(theirs),
        };
        self.last = self.last.max(other.last);
        self.requests += other.requests;
        self.writes += other.writes;
        self.written_sectors += other.written_sectors;
        self.noted += other.noted;
        self.roles.merge(&other.roles);
        self.transactions.merge(other.transactions, join, &space_of);
        self.pointers.merge(other.pointers, join, &space_of);
        self.synchronous.merge(&other.synchronous);
        self.signs.merge(&other.signs);
        self.over_time.merge(other.over_time, join == MergeRelation::Separate);
    }

    /// Returns a report on a trace with notes on blocks, or with a journal or checkpoints that are found by their addresses; `None`
    /// otherwise.
    pub fn report_if_found(&self, header: &TraceHeader, devices: &NameMap) -> Option<JournalReport> {
        let found = self.found(devices);
        (self.noted > 0 || !found.rows.is_empty()).then(|| self.report(header, found))
    }

    /// Finds journals and checkpoints by their addresses; nothing if the roles of blocks are known.
    fn found(&self, devices: &NameMap) -> FoundJournals {
        if self.noted > 0 { FoundJournals::default() } else { self.pointers.found(devices, self.written_sectors) }
    }

    fn report(&self, header: &TraceHeader, found: FoundJournals) -> JournalReport {
        let by_roles = self.noted > 0;
        let duration_s = self.first.map_or(0.0, |first| elapsed(first, self.last) as f64 / 1e9);
        let evidence = if by_roles {
            JournalEvidence::Roles
        } else if header.recorded().has(RequestFlags::JOURNAL) && self.signs.has_journal() {
            JournalEvidence::Thread
        } else if found.commits > 0 {
            JournalEvidence::Addresses
        } else {
            JournalEvidence::Flags
        };
        let journal_sectors = match evidence {
            JournalEvidence::Roles => Some(self.roles.journal_sectors()),
            JournalEvidence::Addresses => Some(found.sectors),
            JournalEvidence::Thread => self.signs.journal_sectors(true),
            JournalEvidence::Flags => self.signs.journal_sectors(false),
        };
        let activity = header.activity.as_deref().and_then(RecordedActivity::from_json).unwrap_or_default();
        let commits = match evidence {
            JournalEvidence::Roles => Some(self.transactions.report(&self.roles, duration_s)),
            JournalEvidence::Addresses => Some(counted("groups of writes that a single block ends", found.commits, duration_s)),
            JournalEvidence::Thread => self.signs.commits(&activity, true, duration_s),
            JournalEvidence::Flags => self.signs.commits(&activity, false, duration_s),
        };
        let counted = commits.as_ref().map(|commits| commits.commits);
        let mut over_time = self.over_time.clone();
        over_time.merge(found.over_time, false);
        let over_time = over_time.rows(self.first.unwrap_or_default(), evidence, header.recorded);
        let by_sign = match evidence {
            JournalEvidence::Roles => Vec::new(),
            JournalEvidence::Addresses => write_pointer_rows((found.writes, found.sectors), (self.writes, self.written_sectors)),
            JournalEvidence::Thread | JournalEvidence::Flags => self.signs.rows(self.written_sectors),
        };
        JournalReport {
            known_by: evidence.name(),
            found: found.rows,
            duration_s,
            requests: self.requests,
            writes: self.writes,
            written_kb: self.written_sectors as f64 / SECTORS_PER_KB,
            journal_kb: journal_sectors.map(|sectors| sectors as f64 / SECTORS_PER_KB),
            journal_pct: journal_sectors.and_then(|sectors| pct(sectors, self.written_sectors)),
            by_kind: if by_roles { self.kinds() } else { Vec::new() },
            by_role: if by_roles { self.roles.rows(self.written_sectors) } else { Vec::new() },
            by_sign,
            logged: by_roles.then(|| self.roles.logged()),
            changed_sectors: if by_roles { self.roles.changed_rows() } else { Vec::new() },
            synchronous: self.synchronous.rows(counted),
            flush_fua_time_pct: self.synchronous.flush_fua_time_pct(),
            synchronous_writes: self.synchronous.all(),
            by_commit_rate: over_time::by_rate(&over_time),
            over_time,
            commits,
        }
    }

    /// Returns rows for the written data by kind: journal, file data, metadata in place, and writes of unknown role.
    fn kinds(&self) -> Vec<BlockKindRow> {
        let mut rows = self.roles.kinds(self.written_sectors);
        let unknown = self.written_sectors.saturating_sub(self.roles.sectors());
        if unknown > 0 {
            rows.push(BlockKindRow {
                kind: "without notes",
                requests: self.writes - self.noted,
                kb: unknown as f64 / SECTORS_PER_KB,
                written_pct: pct(unknown, self.written_sectors),
            });
        }
        rows
    }
}

/// Rows for the writes that follow the write pointer of a journal or begin a checkpoint, and for all others. Both arguments are numbers of
/// requests and of sectors.
fn write_pointer_rows((found, found_sectors): (u64, u64), (writes, sectors): (u64, u64)) -> Vec<SignRow> {
    let row = |sign, about, requests, sectors_of: u64| SignRow {
        sign,
        about,
        requests,
        kb: sectors_of as f64 / SECTORS_PER_KB,
        written_pct: pct(sectors_of, sectors),
    };
    vec![
        row("write pointer", "groups that a single block ends, in a circular log or in checkpoint packs", found, found_sectors),
        row("none", "all other writes", writes - found, sectors - found_sectors),
    ]
}

/// A rate per second; `None` if the duration is 0.
fn per_s(count: u64, duration_s: f64) -> Option<f64> {
    (duration_s > 0.0).then(|| count as f64 / duration_s)
}

/// The summary of commits that were counted by other means than commit blocks. `by` names these means.
fn counted(by: &'static str, commits: u64, duration_s: f64) -> CommitSummary {
    CommitSummary {
        counted_by: by,
        commits,
        commits_per_s: per_s(commits, duration_s),
        fast_commits: None,
        transactions: None,
        not_committed: None,
        logged_blocks: None,
        journal_blocks: None,
        journal_kb: None,
    }
}
