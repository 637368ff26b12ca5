//! Tracks which writes are not durable yet, and so decides when a flush is needed.

/// Whether a plain write may stay in the device's cache, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlainWriteKind {
    /// It may not: the next flush must make it durable.
    Asked,
    /// It may not, and it belongs to the journal: until that flush, nothing that the journal holds counts as durable.
    Journal,
    /// It may: the journal holds the same bytes durably. It must become durable before the journal releases them.
    Left,
}

/// Plain writes that no flush has made durable yet. Writes are numbered from 1 in the order in which they were planned.
#[derive(Debug, Default)]
pub(super) struct UnflushedWrites {
    planned: u64,
    /// In flight: number of the request, number of the write, and its kind.
    open: Vec<(u64, u64, PlainWriteKind)>,
    /// The last complete write of each kind.
    complete: [u64; 3],
    /// Flushes in flight: number of the request, and the last write that they make durable.
    flushes: Vec<(u64, u64)>,
    /// Every write up to this one is durable.
    durable: u64,
}

impl UnflushedWrites {
    /// Adds a plain write of request `id`.
    pub fn write(&mut self, id: u64, kind: PlainWriteKind) {
        self.planned += 1;
        self.open.push((id, self.planned, kind));
    }

    /// Notes that the plan of request `id` starts with a flush of the device. A flush covers only what was complete when it
    /// arrived, so it covers the writes before the oldest one in flight.
    pub fn flush(&mut self, id: u64) {
        let covers = self.open.iter().map(|(_, write, _)| write - 1).min().unwrap_or(self.planned);
        self.flushes.push((id, covers));
    }

    /// Called when request `id` is complete.
    pub fn completed(&mut self, id: u64) {
        let Self { open, complete, flushes, durable, .. } = self;
        open.retain(|(request, write, kind)| {
            if *request == id {
                let last = &mut complete[*kind as usize];
                *last = (*last).max(*write);
            }
            *request != id
        });
        flushes.retain(|(request, covers)| {
            if *request == id {
                *durable = (*durable).max(*covers);
            }
            *request != id
        });
    }

    /// Whether a flush that arrives now need not make anything durable, except blocks that the journal holds.
    pub fn is_clean(&self) -> bool {
        self.complete[..PlainWriteKind::Left as usize].iter().all(|write| *write <= self.durable)
    }

    /// Whether every block that was written to the journal is durable; false while such a write is in flight.
    pub fn is_journal_durable(&self) -> bool {
        self.complete[PlainWriteKind::Journal as usize] <= self.durable
            && !self.open.iter().any(|(.., kind)| *kind == PlainWriteKind::Journal)
    }

    /// Whether all complete writes are durable, including blocks that the journal holds.
    pub fn is_durable(&self) -> bool {
        self.complete.iter().all(|write| *write <= self.durable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_counts_for_what_was_complete_when_it_came() {
        let mut unflushed = UnflushedWrites::default();
        unflushed.write(1, PlainWriteKind::Asked);
        assert!(unflushed.is_clean(), "a flush promises nothing of writes in flight");
        unflushed.completed(1);
        assert!(!unflushed.is_clean());
        unflushed.write(2, PlainWriteKind::Asked);
        unflushed.flush(3);
        unflushed.completed(2);
        assert!(!unflushed.is_clean(), "the flush is not complete");
        unflushed.completed(3);
        assert!(!unflushed.is_clean(), "write 2 was in flight when the flush came");
        unflushed.flush(4);
        unflushed.completed(4);
        assert!(unflushed.is_clean());
    }

    #[test]
    fn blocks_that_the_journal_holds_ask_for_no_flush() {
        let mut unflushed = UnflushedWrites::default();
        unflushed.write(1, PlainWriteKind::Left);
        unflushed.completed(1);
        assert!(unflushed.is_clean() && !unflushed.is_durable());
        unflushed.flush(2);
        unflushed.completed(2);
        assert!(unflushed.is_durable());
    }
}
