//! Free space, as runs of blocks.

use emmclab_base::SectorRangeMap;

/// Maximum number of runs that a search for a long run examines in a range, before it takes the longest of them.
const SEARCH: usize = 256;

/// The free blocks of a file system.
#[derive(Debug, Default)]
pub(super) struct FreeBlocks {
    runs: SectorRangeMap<()>,
    blocks: u64,
}

impl FreeBlocks {
    /// Number of free blocks.
    pub fn len(&self) -> u64 {
        self.blocks
    }

    /// Adds blocks that are not free.
    pub fn give(&mut self, from: u64, to: u64) {
        self.runs.set(from, to, ());
        self.blocks += to - from;
    }

    /// Removes blocks that are free.
    pub fn take(&mut self, from: u64, to: u64) {
        self.runs.remove(from, to);
        self.blocks -= to - from;
    }

    /// Removes the free blocks of a range, which may contain others.
    pub fn take_any(&mut self, from: u64, to: u64) {
        let free: u64 = self.runs.find(from, to).map(|(from, to, ())| to - from).sum();
        self.runs.remove(from, to);
        self.blocks -= free;
    }

    /// Number of contiguous free blocks from `block` on, at most `most`.
    pub fn free_at(&self, block: u64, most: u64) -> u64 {
        self.runs
            .find(block, block + most)
            .next()
            .filter(|(from, ..)| *from == block)
            .map_or(0, |(from, to, ())| to - from)
    }

    /// The first block of the smallest buddy in `low..high` that holds `want` blocks; the lowest if there are several. Buddies are aligned
    /// runs with a power of two of blocks, into which free runs are divided.
    pub fn find_buddy(&self, low: u64, high: u64, want: u64) -> Option<u64> {
        let least = want.next_power_of_two();
        let mut best: Option<(u64, u64)> = None;
        for (from, to, ()) in self.runs.find(low, high) {
            if to - from < least {
                continue;
            }
            let mut at = from;
            while at < to {
                let aligned = if at == 0 { u64::MAX } else { 1 << at.trailing_zeros() };
                let fits = 1 << (to - at).ilog2();
                let size = aligned.min(fits);
                if size >= least && best.is_none_or(|(found, _)| size < found) {
                    best = Some((size, at));
                }
                at += size;
            }
            if best.is_some_and(|(size, _)| size == least) {
                break;
            }
        }
        best.map(|(_, at)| at)
    }

    /// Finds a run of `want` blocks whose first block is a multiple of `align`: the first one from `goal` on, or else from the beginning.
    /// If there is none, returns the longest run found, without alignment and cut to `want`.
    pub fn find(&self, goal: u64, want: u64, align: u64) -> Option<(u64, u64)> {
        let mut best: Option<(u64, u64)> = None;
        for (low, high) in [(goal, u64::MAX), (0, goal)] {
            for (from, to, ()) in self.runs.find(low, high).take(SEARCH) {
                let at = from.next_multiple_of(align);
                if at + want <= to {
                    return Some((at, want));
                }
                if best.is_none_or(|(_, length)| to - from > length) {
                    best = Some((from, to - from));
                }
            }
        }
        best.map(|(from, length)| (from, length.min(want)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aligned_run_behind_the_goal_is_preferred_and_the_longest_one_taken_else() {
        let mut free = FreeBlocks::default();
        free.give(3, 10);
        free.give(20, 60);
        assert_eq!(free.find(5, 16, 16), Some((32, 16)));
        assert_eq!(free.find(50, 16, 16), Some((32, 16)));
        assert_eq!(free.find(0, 100, 4), Some((20, 40)));
        assert_eq!(
            (free.find_buddy(0, 64, 4), free.find_buddy(0, 64, 16), free.find_buddy(0, 64, 33)),
            (Some(4), Some(32), None)
        );
        free.take(20, 60);
        assert_eq!((free.find(30, 4, 1), free.free_at(4, 100), free.len()), (Some((3, 4)), 6, 7));
    }
}
