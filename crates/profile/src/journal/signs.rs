//! Signs of the journal in flags and addresses, where roles are not known.
//!
//! Writes fall into five signs. A write of the journal's thread has the flag `journal`. Of the others, a write with the flag
//! fua or preflush may be a commit block; writes that end where it begins may be the descriptors and logged blocks of that
//! commit, which lie in front of it; a write with the flag meta is metadata at its home.

use std::collections::VecDeque;

use emmclab_trace::{Activity, Flags, Request};

use super::{SECTORS_PER_KB, counted};
use crate::bins::pct;
use crate::report::{Commits, SignRow};

/// Writes that are remembered, for a commit block behind them.
const RECENT: usize = 64;

/// A sign; what it means.
const SIGNS: [(&str, &str); 5] = [
    ("journal", "written by the thread of the journal"),
    ("fua or preflush", "a commit block, or another write that has to be durable"),
    (
        "before a durable write",
        "ends where that write begins: descriptors and logged blocks lie so before their commit block",
    ),
    ("meta", "metadata at its home"),
    ("none", "data, or writes that no flag marks"),
];
const JOURNAL: usize = 0;
const DURABLE: usize = 1;
const BEFORE: usize = 2;
const META: usize = 3;
const NONE: usize = 4;

/// Writes by sign.
#[derive(Clone, Debug, Default)]
pub(super) struct Signs {
    by_sign: [Count; SIGNS.len()],
    /// Writes of the journal's thread with the flag fua or preflush.
    journal_durable: u64,
    recent: VecDeque<Recent>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    requests: u64,
    sectors: u64,
}

/// A write that may yet turn out to lie before a commit block.
#[derive(Clone, Copy, Debug)]
struct Recent {
    space: u32,
    start: u64,
    end: u64,
    sign: usize,
}

impl Signs {
    /// Adds a write.
    pub fn add(&mut self, request: &Request, space: u32) {
        let durable = request.flags.intersects(Flags::FUA.union(Flags::PREFLUSH));
        let sign = if request.flags.contains(Flags::JOURNAL) {
            JOURNAL
        } else if durable {
            DURABLE
        } else if request.flags.contains(Flags::META) {
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
            self.recent.push_back(Recent { space, start: request.sector.0, end: request.end().0, sign });
        }
    }

    fn count(&mut self, sign: usize, sectors: u64) {
        self.by_sign[sign].requests += 1;
        self.by_sign[sign].sectors += sectors;
    }

    /// Moves the recent writes that lie one before the other up to `end` to their sign.
    fn mark_before(&mut self, mut end: u64, space: u32) {
        while let Some(place) = self.recent.iter().rposition(|write| (write.space, write.end) == (space, end))
        {
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

    /// Whether the journal's thread wrote anything that is marked.
    pub fn has_journal(&self) -> bool {
        self.by_sign[JOURNAL].requests > 0
    }

    /// Sectors that are the journal's by their flag, else by their addresses; `None` where no sign tells of a journal.
    pub fn journal_sectors(&self, by_flag: bool) -> Option<u64> {
        if by_flag {
            return Some(self.by_sign[JOURNAL].sectors);
        }
        let sectors = self.by_sign[DURABLE].sectors + self.by_sign[BEFORE].sectors;
        (sectors > 0).then_some(sectors)
    }

    /// Commits: those that the recording counted, else writes with fua or preflush.
    pub fn commits(&self, activity: &Activity, by_flag: bool, duration_s: f64) -> Option<Commits> {
        let commits: u64 = activity.journals.iter().map(|journal| journal.commits).sum();
        if commits > 0 {
            return Some(counted("events of the journal", commits, duration_s));
        }
        let durable = if by_flag { self.journal_durable } else { self.by_sign[DURABLE].requests };
        (durable > 0).then(|| counted("writes with fua or preflush", durable, duration_s))
    }

    /// Signs that occur; shares are of all written sectors.
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
