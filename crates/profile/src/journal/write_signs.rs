//! Recognises writes of the journal by flags and addresses, if the roles of blocks are not recorded.
//!
//! Each write belongs to the first of five classes (signs) whose condition it meets:
//!
//! - The flag `journal`: the thread of the journal wrote it.
//! - The flag FUA or preflush: it may be a commit block.
//! - It ends where a write of the second class begins, directly or through adjacent writes: it may consist of descriptors and logged
//!   blocks.
//! - The flag `meta`: it is metadata at its home location.
//! - None of these.

use std::collections::VecDeque;

use emmclab_trace::{Nanos, Op, RecordedActivity, Request, RequestFlags};

use super::{SECTORS_PER_KB, counted};
use crate::bins::{HdrDistribution, pct};
use crate::elapsed;
use crate::report::{CommitSummary, SignRow, SyncWriteRow, SyncWriteSummary};

/// Number of recent writes that are kept, to find those directly before a commit block.
const RECENT: usize = 64;

/// The name and the meaning of each class of writes.
const SIGNS: [(&str, &str); 5] = [
    ("journal", "written by the thread of the journal"),
    ("fua or preflush", "a commit block, or another write that has to be durable"),
    ("before a durable write", "ends where that write begins: descriptors and logged blocks lie so before their commit block"),
    ("meta", "metadata at its home"),
    ("none", "data, or writes that no flag marks"),
];
const JOURNAL: usize = 0;
const DURABLE: usize = 1;
const BEFORE: usize = 2;
const META: usize = 3;
const NONE: usize = 4;

/// Counts of writes by class.
#[derive(Clone, Debug, Default)]
pub(super) struct SignCounters {
    by_sign: [SignCounter; SIGNS.len()],
    /// Number of writes of the journal's thread with the flag fua or preflush.
    journal_durable: u64,
    recent: VecDeque<RecentWrite>,
}

#[derive(Clone, Copy, Debug, Default)]
struct SignCounter {
    requests: u64,
    sectors: u64,
}

/// A recent write, which a commit block may follow.
#[derive(Clone, Copy, Debug)]
struct RecentWrite {
    space: u32,
    start: u64,
    end: u64,
    sign: usize,
}

impl SignCounters {
    pub fn add(&mut self, request: &Request, space: u32) {
        let durable = request.flags.intersects(RequestFlags::FUA.union(RequestFlags::PREFLUSH));
        let sign = if request.flags.contains(RequestFlags::JOURNAL) {
            JOURNAL
        } else if durable {
            DURABLE
        } else if request.flags.contains(RequestFlags::META) {
            META
        } else {
            NONE
        };
        self.count(sign, request.sectors.into());
        self.journal_durable += u64::from(sign == JOURNAL && durable);
        if sign == DURABLE {
            self.mark_before(request.sector.0, space);
        } else if sign != JOURNAL {
            if self.recent.len() == RECENT {
                self.recent.pop_front();
            }
            self.recent.push_back(RecentWrite { space, start: request.sector.0, end: request.end().0, sign });
        }
    }

    fn count(&mut self, sign: usize, sectors: u64) {
        self.by_sign[sign].requests += 1;
        self.by_sign[sign].sectors += sectors;
    }

    /// Moves the contiguous recent writes that end at `end` to the class of writes directly before a durable write.
    fn mark_before(&mut self, mut end: u64, space: u32) {
        while let Some(place) = self.recent.iter().rposition(|write| (write.space, write.end) == (space, end)) {
            let Some(write) = self.recent.remove(place) else { return };
            let sectors = write.end - write.start;
            self.by_sign[write.sign].requests -= 1;
            self.by_sign[write.sign].sectors -= sectors;
            self.count(BEFORE, sectors);
            end = write.start;
        }
    }

    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.by_sign.iter_mut().zip(&other.by_sign) {
            mine.requests += theirs.requests;
            mine.sectors += theirs.sectors;
        }
        self.journal_durable += other.journal_durable;
        self.recent.clone_from(&other.recent);
    }

    /// Whether any write has the `journal` flag.
    pub fn has_journal(&self) -> bool {
        self.by_sign[JOURNAL].requests > 0
    }

    /// Sectors written to the journal, recognised by flag if `by_flag`, otherwise by address; `None` if no write is recognised.
    pub fn journal_sectors(&self, by_flag: bool) -> Option<u64> {
        if by_flag {
            return Some(self.by_sign[JOURNAL].sectors);
        }
        let sectors = self.by_sign[DURABLE].sectors + self.by_sign[BEFORE].sectors;
        (sectors > 0).then_some(sectors)
    }

    /// Number of commits. If the recording did not count commits, writes with fua or preflush are counted instead.
    pub fn commits(&self, activity: &RecordedActivity, by_flag: bool, duration_s: f64) -> Option<CommitSummary> {
        let commits: u64 = activity.journals.iter().map(|journal| journal.commits).sum();
        if commits > 0 {
            return Some(counted("events of the journal", commits, duration_s));
        }
        let durable = if by_flag { self.journal_durable } else { self.by_sign[DURABLE].requests };
        (durable > 0).then(|| counted("writes with fua or preflush", durable, duration_s))
    }

    /// Returns a row for each class of writes that occurs. `written` is the number of all written sectors, to which percentages refer.
    pub fn rows(&self, written: u64) -> Vec<SignRow> {
        let used = SIGNS.into_iter().zip(&self.by_sign).filter(|(_, count)| count.requests > 0);
        used.map(|((sign, about), count)| SignRow {
            sign,
            about,
            requests: count.requests,
            kb: count.sectors as f64 / SECTORS_PER_KB,
            written_pct: pct(count.sectors, written),
        })
        .collect()
    }
}

const NS_PER_MS: f64 = 1e6;

/// Kinds of synchronous writes. The last kind has only the flag sync.
const KINDS: [&str; 5] = ["flush", "preflush", "fua", "preflush and fua", "other synchronous write"];
const OTHER: usize = KINDS.len() - 1;

/// Synchronous writes by kind: flushes, and writes with the flag sync, preflush or fua.
#[derive(Clone, Debug, Default)]
pub(super) struct SyncWriteCounters([SyncWriteTimes; KINDS.len()]);

#[derive(Clone, Debug, Default)]
struct SyncWriteTimes {
    requests: u64,
    /// Service times of the requests that have a recorded service time.
    service: HdrDistribution,
}

impl SyncWriteCounters {
    pub fn add(&mut self, request: &Request) {
        let Some(kind) = kind(request) else { return };
        let kind = &mut self.0[kind];
        kind.requests += 1;
        let service = request.service().map(|service| elapsed(Nanos::ZERO, service));
        let since_issue = || Some(elapsed(request.issue?, request.succeeded()?));
        if let Some(service) = service.or_else(since_issue) {
            kind.service.add(service);
        }
    }

    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            mine.requests += theirs.requests;
            mine.service.merge(&theirs.service);
        }
    }

    fn time_ns(&self) -> u128 {
        self.0.iter().map(|kind| kind.service.sum()).sum()
    }

    /// Time of flushes and of writes with preflush or FUA, as a percentage of the time of all synchronous writes; `None` without service
    /// times.
    pub fn flush_fua_time_pct(&self) -> Option<f64> {
        let all = self.time_ns();
        (all > 0).then(|| 100.0 * (all - self.0[OTHER].service.sum()) as f64 / all as f64)
    }

    pub fn all(&self) -> SyncWriteSummary {
        SyncWriteSummary {
            requests: self.0.iter().map(|kind| kind.requests).sum(),
            timed: self.0.iter().map(|kind| kind.service.count()).sum(),
            service_ms: self.time_ns() as f64 / NS_PER_MS,
        }
    }

    /// Returns a row for each kind of synchronous writes that occurs, with the number of its writes per commit.
    pub fn rows(&self, commits: Option<u64>) -> Vec<SyncWriteRow> {
        let all = self.time_ns();
        let used = KINDS.into_iter().zip(&self.0).filter(|(_, kind)| kind.requests > 0);
        used.map(|(name, kind)| SyncWriteRow {
            kind: name,
            requests: kind.requests,
            per_commit: commits.filter(|commits| *commits > 0).map(|commits| kind.requests as f64 / commits as f64),
            service_ms: kind.service.quantiles(NS_PER_MS),
            time_ms: kind.service.sum() as f64 / NS_PER_MS,
            time_pct: (all > 0).then(|| 100.0 * kind.service.sum() as f64 / all as f64),
        })
        .collect()
    }
}

/// The index of the kind of a synchronous write in [`KINDS`]; `None` for other requests.
fn kind(request: &Request) -> Option<usize> {
    let has = |flag| request.flags.contains(flag);
    match request.op {
        Op::Flush => Some(0),
        Op::Write => match (has(RequestFlags::PREFLUSH), has(RequestFlags::FUA)) {
            (true, true) => Some(3),
            (false, true) => Some(2),
            (true, false) => Some(1),
            (false, false) => has(RequestFlags::SYNC).then_some(OTHER),
        },
        Op::Read | Op::Discard | Op::SecureErase => None,
    }
}
