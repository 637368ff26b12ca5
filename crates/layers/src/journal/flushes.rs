//! Decides when a flush of the device is necessary, and when a write is made durable at once (forced) instead.

/// Whether a plain (not forced) write may stay in the cache of the device after the next flush request, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlainWriteKind {
    /// The next flush must make the write durable.
    Asked,
    /// The write belongs to the journal, and the next flush must make it durable. Until this flush, nothing in the journal counts as
    /// durable.
    Journal,
    /// The write may stay in the cache, because the journal contains a durable copy of its data. The write must become durable before the
    /// journal releases this copy.
    Left,
}

/// Plain writes that no flush has made durable yet. They are numbered from 1 in the order in which they are planned.
#[derive(Debug, Default)]
pub(super) struct UnflushedWrites {
    planned: u64,
    /// Writes in flight, each with the number of its request, its own number and its kind.
    open: Vec<(u64, u64, PlainWriteKind)>,
    /// Number of the last complete write of each kind.
    complete: [u64; 3],
    /// Flushes in flight: (number of the request, last write that the flush makes durable).
    flushes: Vec<(u64, u64)>,
    /// All writes up to this number are durable.
    durable: u64,
}

impl UnflushedWrites {
    /// Adds a plain write of request `id`.
    pub fn write(&mut self, id: u64, kind: PlainWriteKind) {
        self.planned += 1;
        self.open.push((id, self.planned, kind));
    }

    /// Records that the plan of request `id` starts with a flush of the device. The flush covers only writes that are complete when it
    /// arrives: all writes before the oldest write in flight.
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

    /// Whether a flush that arrives now has no data to make durable, except home blocks that are also in the journal.
    pub fn is_clean(&self) -> bool {
        self.complete[..PlainWriteKind::Left as usize].iter().all(|write| *write <= self.durable)
    }

    /// Whether all blocks that were written to the journal are durable; false while such a write is in flight.
    pub fn is_journal_durable(&self) -> bool {
        self.complete[PlainWriteKind::Journal as usize] <= self.durable
            && !self.open.iter().any(|(.., kind)| *kind == PlainWriteKind::Journal)
    }

    /// Whether all complete writes are durable, including home blocks that are also in the journal.
    pub fn is_durable(&self) -> bool {
        self.complete.iter().all(|write| *write <= self.durable)
    }
}

// Chooses how a write that must be durable by the next flush becomes durable: by a forced write at once, or by that flush. The policy
// chooses the way with fewer program operations of the flash.
//
// A forced write needs its own program operations, and the next write waits for them. A flush programs all data in the cache, on all planes
// of the device in parallel. When the first write arrives, the number of further writes before the next flush is unknown. The write is
// forced if, in each of the last [`REMEMBERED`] intervals between flushes, forced writes needed at most as many programs as a flush.

/// Number of past intervals between flushes from which the next one is predicted.
const REMEMBERED: usize = 8;

/// Number of sectors that the flash programs at a time, and number of sectors that the cache can hold.
#[derive(Clone, Copy, Debug)]
struct FlashSizes {
    program_sectors: u64,
    cache_sectors: u64,
}

/// The writes between two flushes that the second flush must make durable.
#[derive(Clone, Copy, Debug, Default)]
struct FlushInterval {
    /// Number of program operations that the writes of the interval need if each of them is forced to the flash.
    programs: u64,
    sectors: u64,
}

impl FlushInterval {
    fn add(&mut self, sectors: u64, flash: FlashSizes) {
        self.programs += sectors.div_ceil(flash.program_sectors);
        self.sectors += sectors;
    }

    /// Returns how many more program operations forced writes need than a flush; negative if they need fewer. The flush also programs the
    /// `left` sectors, which could otherwise stay in the cache.
    fn excess(self, left: u64, flash: FlashSizes) -> i64 {
        // Data beyond the cache size is programmed before the flush, so it is not counted.
        let flushed = (self.sectors + left).min(flash.cache_sectors);
        self.programs.cast_signed() - flushed.div_ceil(flash.program_sectors).cast_signed()
    }
}

/// Chooses between forced writes and a flush, by the predicted number of program operations.
#[derive(Debug)]
pub(super) struct ForcedWritePolicy {
    flash: FlashSizes,
    last: [FlushInterval; REMEMBERED],
    /// Index of the oldest interval in `last`.
    oldest: usize,
    current: FlushInterval,
    /// Number of sectors that were left in the cache since the last flush. The next flush programs them as well.
    writes_until_flush: u64,
}

impl ForcedWritePolicy {
    /// Creates the policy for a device that programs `program_sectors` at a time and has a cache of `cache_sectors`.
    pub fn new(program_sectors: u32, cache_sectors: u64) -> Self {
        Self {
            flash: FlashSizes { program_sectors: program_sectors.max(1).into(), cache_sectors },
            last: [FlushInterval::default(); REMEMBERED],
            oldest: 0,
            current: FlushInterval::default(),
            writes_until_flush: 0,
        }
    }

    /// Counts a write that the next flush must make durable. Returns whether forcing writes to the flash needs at most as many program
    /// operations as a flush. This assumes that no flush is needed for another reason.
    pub fn prefers_force(&mut self, sectors: u32) -> bool {
        self.current.add(sectors.into(), self.flash);
        let intervals = self.last.iter().chain([&self.current]);
        intervals.map(|interval| interval.excess(self.writes_until_flush, self.flash)).all(|excess| excess <= 0)
    }

    /// Counts a write that may stay in the cache.
    pub fn leave(&mut self, sectors: u32) {
        self.writes_until_flush += u64::from(sectors);
    }

    /// Called when the file system flushes. Ends the current interval between two flushes.
    pub fn flush_asked(&mut self) {
        if self.current.sectors > 0 {
            self.last[self.oldest] = std::mem::take(&mut self.current);
            self.oldest = (self.oldest + 1) % REMEMBERED;
        }
    }

    /// Called when the device is flushed and its cache is empty.
    pub fn flushed(&mut self) {
        self.writes_until_flush = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_counts_for_what_was_complete_when_it_came() {
        let mut unflushed = UnflushedWrites::default();
        unflushed.write(1, PlainWriteKind::Asked);
        assert!(unflushed.is_clean(), "a flush does not cover writes in flight");
        unflushed.completed(1);
        assert!(!unflushed.is_clean());
        unflushed.write(2, PlainWriteKind::Asked);
        unflushed.flush(3);
        unflushed.completed(2);
        assert!(!unflushed.is_clean(), "the flush is not complete");
        unflushed.completed(3);
        assert!(!unflushed.is_clean(), "write 2 was in flight when the flush arrived");
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

    /// Returns for each of these writes whether the policy writes it durably at once (forces it). After the writes, the file system
    /// requests a flush.
    fn forced(forcing: &mut ForcedWritePolicy, writes: &[u32]) -> Vec<bool> {
        let forced = writes.iter().map(|sectors| forcing.prefers_force(*sectors)).collect();
        forcing.flush_asked();
        forced
    }

    #[test]
    fn one_write_from_flush_to_flush_is_forced() {
        let mut forcing = ForcedWritePolicy::new(64, 512);
        for _ in 0..3 {
            assert_eq!(forced(&mut forcing, &[8]), [true]);
        }
    }

    #[test]
    fn several_small_writes_go_into_one_program_of_a_flush() {
        let mut forcing = ForcedWritePolicy::new(64, 512);
        // When the first write arrives, it is unknown that other writes will follow.
        assert_eq!(forced(&mut forcing, &[8, 8, 8]), [true, false, false]);
        assert!(forced(&mut forcing, &[]).is_empty());
        for _ in 0..REMEMBERED - 1 {
            assert_eq!(forced(&mut forcing, &[8]), [false], "other writes may follow");
        }
        assert_eq!(forced(&mut forcing, &[8]), [false]);
        assert_eq!(forced(&mut forcing, &[8]), [true], "the interval with three writes is forgotten");
    }

    #[test]
    fn writes_as_long_as_a_program_are_forced_as_far_as_the_cache_holds_them() {
        let mut forcing = ForcedWritePolicy::new(64, 128);
        assert_eq!(forced(&mut forcing, &[64, 64, 64]), [true, true, false]);
    }

    #[test]
    fn home_blocks_in_the_cache_make_a_flush_dear() {
        let mut forcing = ForcedWritePolicy::new(64, 512);
        forced(&mut forcing, &[8, 8, 8]);
        forcing.leave(160);
        assert_eq!(forced(&mut forcing, &[8, 8, 8]), [true; 3]);
        forcing.flushed();
        assert_eq!(forced(&mut forcing, &[8, 8, 8]), [false; 3]);
    }
}
