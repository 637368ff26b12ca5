//! Where the events went: no event is lost without a count.

use emmclab_base::Request;

use crate::ledger::Ledger;

/// Events of the block layer by what became of them: all that were seen are in one of the other counts, once no request is open
/// any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// All events.
    pub seen: u64,
    /// Of requests that were kept.
    pub kept: u64,
    /// Steps that say nothing new of an I/O, because an earlier step is recorded.
    pub repeated: u64,
    /// Flushes of the kernel that belong to requests which are kept by themselves.
    pub flushes: u64,
    /// Of commands without data that are no flush.
    pub without_data: u64,
    /// Of requests whose beginning or end is missing.
    pub unpaired: u64,
    /// Of I/O that a mapped device passed on.
    pub passed_on: u64,
    /// Merges, splits and returns of a request that is not known.
    pub unmatched: u64,
}

impl EventCounts {
    /// Events of which it is known what became of them.
    pub fn settled(&self) -> u64 {
        self.kept
            + self.repeated
            + self.flushes
            + self.without_data
            + self.unpaired
            + self.passed_on
            + self.unmatched
    }
}

/// What events are turned into.
pub(super) struct Books<'a> {
    pub(super) ledger: &'a mut Ledger,
    pub(super) counts: &'a mut EventCounts,
    pub(super) out: &'a mut Vec<Request>,
}
