//! Counts requests by their flags: flushes, FUA, synchronous requests, and so on.

use emmclab_trace::formats::recorded_flags;
use emmclab_trace::{Flags, Op, Request};

use crate::bins::pct;
use crate::report::FlagRow;

/// Number of combinations of the counted flags: all except the last one, `append`, which is not shown.
const COMBINATIONS: usize = 1 << (Flags::NAMES.len() - 1);
/// Flags without a row: those about the recording rather than the request; re-issues, which have their own figure; failures, which are in
/// the ledger; and zone appends, which are writes.
const NOT_SHOWN: [&str; 5] = ["no_wait", "no_wait_known", "reissued", "failed", "append"];

/// Requests by their flags.
#[derive(Clone, Debug)]
pub(crate) struct FlagCounts {
    by_flags: [u64; COMBINATIONS],
    flushes: u64,
}

impl Default for FlagCounts {
    fn default() -> Self {
        Self { by_flags: [0; COMBINATIONS], flushes: 0 }
    }
}

impl FlagCounts {
    #[inline]
    pub fn add(&mut self, request: &Request) {
        self.by_flags[request.flags.0 as usize % COMBINATIONS] += 1;
        self.flushes += u64::from(request.op == Op::Flush);
    }

    pub fn merge(&mut self, other: &Self) {
        self.flushes += other.flushes;
        for (mine, theirs) in self.by_flags.iter_mut().zip(other.by_flags) {
            *mine += theirs;
        }
    }

    /// Rows for flushes, then for each flag. Rows have no values if the trace's format cannot record the flag.
    pub fn rows(&self, duration_s: f64, format: &str) -> Vec<FlagRow> {
        let all: u64 = self.by_flags.iter().sum();
        if all == 0 {
            return Vec::new();
        }
        let with = |bit: usize| -> u64 {
            (0..COMBINATIONS).filter(|flags| flags >> bit & 1 == 1).map(|at| self.by_flags[at]).sum()
        };
        let (recorded, flushes) = recorded_flags(format);
        let shown = Flags::NAMES.into_iter().enumerate().filter(|(_, name)| !NOT_SHOWN.contains(name));
        let named = shown.map(|(bit, name)| (name, with(bit), recorded.0 >> bit & 1 == 1));
        let rows = std::iter::once((Op::Flush.name(), self.flushes, flushes)).chain(named);
        rows.map(|(flag, requests, can)| {
            let requests = (can || requests > 0).then_some(requests);
            let share = requests.and_then(|requests| pct(requests, all));
            let per_s = requests.filter(|_| duration_s > 0.0).map(|requests| requests as f64 / duration_s);
            FlagRow { flag, requests, pct: share, per_s }
        })
        .collect()
    }
}
