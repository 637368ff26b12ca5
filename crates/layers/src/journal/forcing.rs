//! Whether writes that the next flush would make durable are written durably at once: the way that takes fewer programs.
//!
//! A forced write takes programs of its own, and the next write waits for them. A flush programs all that is in the cache, as much at a
//! time as the planes of the device take together. How many writes will come before the next flush is not known when the first one
//! does: it is forced where forcing was no dearer in any of the last [`REMEMBERED`] intervals from flush to flush.

/// Intervals from flush to flush that are taken as an example of the next one.
const REMEMBERED: usize = 8;

/// The bytes that are programmed at a time, and how much of them waits for a flush at most.
#[derive(Clone, Copy, Debug)]
struct Flash {
    program_sectors: u64,
    cache_sectors: u64,
}

/// Writes from one flush to the next that the flush has to make durable.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    /// Programs where each of them is forced.
    programs: u64,
    sectors: u64,
}

impl Interval {
    fn add(&mut self, sectors: u64, flash: Flash) {
        self.programs += sectors.div_ceil(flash.program_sectors);
        self.sectors += sectors;
    }

    /// How many programs more forced writes take than a flush that also programs `left` sectors.
    fn excess(self, left: u64, flash: Flash) -> i64 {
        // What the cache has no room for was programmed before the flush.
        let flushed = (self.sectors + left).min(flash.cache_sectors);
        self.programs.cast_signed() - flushed.div_ceil(flash.program_sectors).cast_signed()
    }
}

/// Chooses between forced writes and a flush.
#[derive(Debug)]
pub(super) struct Forcing {
    flash: Flash,
    last: [Interval; REMEMBERED],
    /// Place of the oldest of them.
    oldest: usize,
    current: Interval,
    /// Sectors in the cache that need not be durable.
    left: u64,
}

impl Forcing {
    /// For a device that programs this many sectors at a time, and whose cache has room for a number of sectors.
    pub fn new(program_sectors: u32, cache_sectors: u64) -> Self {
        Self {
            flash: Flash { program_sectors: program_sectors.max(1).into(), cache_sectors },
            last: [Interval::default(); REMEMBERED],
            oldest: 0,
            current: Interval::default(),
            left: 0,
        }
    }

    /// Counts a write that the next flush has to make durable, and says whether it is better forced where no flush is due yet.
    pub fn prefers_force(&mut self, sectors: u32) -> bool {
        self.current.add(sectors.into(), self.flash);
        let intervals = self.last.iter().chain([&self.current]);
        intervals.map(|interval| interval.excess(self.left, self.flash)).all(|excess| excess <= 0)
    }

    /// Counts a write that stays in the cache and need not be durable.
    pub fn leave(&mut self, sectors: u32) {
        self.left += u64::from(sectors);
    }

    /// The file system flushes.
    pub fn flush_asked(&mut self) {
        if self.current.sectors > 0 {
            self.last[self.oldest] = std::mem::take(&mut self.current);
            self.oldest = (self.oldest + 1) % REMEMBERED;
        }
    }

    /// The device is flushed.
    pub fn flushed(&mut self) {
        self.left = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether each of these writes is forced, and then the file system flushes.
    fn forced(forcing: &mut Forcing, writes: &[u32]) -> Vec<bool> {
        let forced = writes.iter().map(|sectors| forcing.prefers_force(*sectors)).collect();
        forcing.flush_asked();
        forced
    }

    #[test]
    fn one_write_from_flush_to_flush_is_forced() {
        let mut forcing = Forcing::new(64, 512);
        for _ in 0..3 {
            assert_eq!(forced(&mut forcing, &[8]), [true]);
        }
    }

    #[test]
    fn several_small_writes_go_into_one_program_of_a_flush() {
        let mut forcing = Forcing::new(64, 512);
        // The first is not known to have followers.
        assert_eq!(forced(&mut forcing, &[8, 8, 8]), [true, false, false]);
        assert!(forced(&mut forcing, &[]).is_empty());
        for _ in 0..REMEMBERED - 1 {
            assert_eq!(forced(&mut forcing, &[8]), [false], "it may have followers again");
        }
        assert_eq!(forced(&mut forcing, &[8]), [false]);
        assert_eq!(forced(&mut forcing, &[8]), [true], "the interval with three writes is forgotten");
    }

    #[test]
    fn writes_as_long_as_a_program_are_forced_as_far_as_the_cache_holds_them() {
        let mut forcing = Forcing::new(64, 128);
        assert_eq!(forced(&mut forcing, &[64, 64, 64]), [true, true, false]);
    }

    #[test]
    fn home_blocks_in_the_cache_make_a_flush_dear() {
        let mut forcing = Forcing::new(64, 512);
        forced(&mut forcing, &[8, 8, 8]);
        forcing.leave(160);
        assert_eq!(forced(&mut forcing, &[8, 8, 8]), [true; 3]);
        forcing.flushed();
        assert_eq!(forced(&mut forcing, &[8, 8, 8]), [false; 3]);
    }
}
