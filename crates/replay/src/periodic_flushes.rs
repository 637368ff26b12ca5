//! Flushes that a run adds to a trace (`flush_every`), for traces that record none.

use std::borrow::Cow;

use emmclab_trace::{Batch, BatchBuilder, Op, Request, Sector};

/// Puts a flush behind every so many writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeriodicFlushes {
    /// Writes from one flush to the next; 0 for no flush.
    every: u32,
    /// Writes since the last one.
    writes: u32,
}

impl PeriodicFlushes {
    pub fn new(every: u32) -> Self {
        Self { every, writes: 0 }
    }

    /// The batch with its flushes. A flush arrives with the write before it, and waits for that write in the device. What waited for the
    /// write in the recording waits for the flush, so it has the recorded completion of the write.
    pub fn insert<'a>(&mut self, batch: &'a Batch) -> Cow<'a, Batch> {
        if self.every == 0 {
            return Cow::Borrowed(batch);
        }
        let mut with = BatchBuilder::of_noted(batch.has_notes());
        for (row, request) in batch.iter().enumerate() {
            with.push_noted(&request, batch.notes(row));
            self.writes += u32::from(request.op == Op::Write);
            if self.writes == self.every {
                self.writes = 0;
                let Request { arrival, complete, .. } = request;
                with.push(&Request { complete, ..Request::new(arrival, Op::Flush, Sector(0), 0) });
            }
        }
        Cow::Owned(with.finish(batch.processes_shared(), batch.devices_shared()))
    }
}
