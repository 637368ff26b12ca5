//! Synchronous writes and their times: flushes, writes with preflush or FUA, and others.

use emmclab_trace::{Nanos, Op, Request, RequestFlags};

use crate::distribution::HdrDistribution;
use crate::elapsed;
use crate::report::{SyncWriteRow, SyncWriteSummary};

const NS_PER_MS: f64 = 1e6;

/// Kinds of synchronous writes. Those of the last kind are only waited for.
const KINDS: [&str; 5] = ["flush", "preflush", "fua", "preflush and fua", "other synchronous write"];
const OTHER: usize = KINDS.len() - 1;

/// Synchronous writes by kind: flushes, and writes with the flag sync, preflush or fua.
#[derive(Clone, Debug, Default)]
pub(super) struct SyncWriteCounters([SyncWriteTimes; KINDS.len()]);

#[derive(Clone, Debug, Default)]
struct SyncWriteTimes {
    requests: u64,
    /// Service times, of requests that have one.
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

    /// Rows for the kinds that occur, with their number per commit.
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
