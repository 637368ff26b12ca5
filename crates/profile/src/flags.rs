//! Counts requests by their flags: flushes, FUA, synchronous requests, and so on.

use emmclab_trace::{Op, RecordedFeatures, Request, RequestFlags};

use crate::bins::pct;
use crate::report::FlagRow;

/// Number of combinations of the counted flags: all except the last one, `append`, which is not shown.
const COMBINATIONS: usize = 1 << (RequestFlags::NAMES.len() - 1);
/// Flags without a row: those about the recording rather than the request; re-issues, which have their own figure; failures, which are in
/// the ledger; and zone appends, which are writes.
const NOT_SHOWN: [&str; 5] = ["no_wait", "no_wait_known", "reissued", "failed", "append"];

/// Requests by their flags.
#[derive(Clone, Debug)]
pub(crate) struct FlagCounters {
    by_flags: [u64; COMBINATIONS],
    flushes: u64,
}

impl Default for FlagCounters {
    fn default() -> Self {
        Self { by_flags: [0; COMBINATIONS], flushes: 0 }
    }
}

impl FlagCounters {
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

    /// Rows for flushes, then for each flag. Rows have no values if the trace does not record the flag; a trace that does not state what
    /// it records does record what it contains.
    pub fn rows(&self, duration_s: f64, recorded: Option<RecordedFeatures>) -> Vec<FlagRow> {
        let all: u64 = self.by_flags.iter().sum();
        if all == 0 {
            return Vec::new();
        }
        let with = |bit: usize| -> u64 {
            (0..COMBINATIONS).filter(|flags| flags >> bit & 1 == 1).map(|at| self.by_flags[at]).sum()
        };
        let shown = RequestFlags::NAMES.into_iter().enumerate().filter(|(_, name)| !NOT_SHOWN.contains(name));
        let named =
            shown.map(|(bit, name)| (name, with(bit), recorded.map(|recorded| recorded.has(RequestFlags(1 << bit)))));
        let flushes = (Op::Flush.name(), self.flushes, recorded.map(|recorded| recorded.has_op(Op::Flush)));
        std::iter::once(flushes)
            .chain(named)
            .map(|(flag, requests, is_recorded)| {
                let requests = is_recorded.unwrap_or(requests > 0).then_some(requests);
                let share = requests.and_then(|requests| pct(requests, all));
                let per_s = requests.filter(|_| duration_s > 0.0).map(|requests| requests as f64 / duration_s);
                FlagRow { flag, requests, pct: share, per_s }
            })
            .collect()
    }
}
