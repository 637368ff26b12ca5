//! Counts what happened to each event, so that none is lost without a count.

use crate::{Ledger, Request};

/// Events of the block layer, counted by what happened to them. Once no request is open, `seen` is the sum of the other counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// Number of all events.
    pub seen: u64,
    /// Events of requests that were kept.
    pub kept: u64,
    /// Events that add nothing, because an earlier step of the same I/O is recorded.
    pub repeated: u64,
    /// Events of the kernel's flushes that belong to requests which are kept.
    pub flushes: u64,
    /// Events of commands without data, except flushes.
    pub without_data: u64,
    /// Events of requests whose beginning or end is missing.
    pub unpaired: u64,
    /// Events of I/O that a mapped device passed on.
    pub passed_on: u64,
    /// Merges, splits and requeues of an unknown request.
    pub unmatched: u64,
}

impl EventCounts {
    /// Sum of the counts except `seen`: events whose fate is known.
    pub fn classified_events(&self) -> u64 {
        self.kept + self.repeated + self.flushes + self.without_data + self.unpaired + self.passed_on + self.unmatched
    }
}

/// The outputs of pairing: the ledger, the counts and the requests.
pub(super) struct PairingOutput<'a> {
    pub(super) ledger: &'a mut Ledger,
    pub(super) counts: &'a mut EventCounts,
    pub(super) out: &'a mut Vec<Request>,
}
