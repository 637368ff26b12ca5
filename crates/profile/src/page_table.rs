//! The state of each 4 KB page: 12 bytes, in leaves that are allocated at the first access.

use rustc_hash::FxHashMap;

/// Number of pages in a leaf: 512 KB of address space.
pub(crate) const LEAF_PAGES: u64 = 128;
/// Number of leaves in one allocation.
const SLAB_LEAVES: usize = 32;
const COUNT_BITS: u32 = 24;
const COUNT_MAX: u32 = (1 << COUNT_BITS) - 1;
/// Set in the highest byte of the time if a request has started at the page's first sector.
const STARTED: u32 = 1 << 31;

/// The state of one page. Three words hold, from the low end: the time of the last write (47 bits of microseconds, 4 years), a bit for "a
/// request has started here", and the numbers of writes and reads (24 bits each, saturating at 16,777,215).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PageAccessState([u32; 3]);

impl PageAccessState {
    #[inline]
    pub fn writes(self) -> u32 {
        self.0[1] & COUNT_MAX
    }

    #[inline]
    pub fn reads(self) -> u32 {
        self.0[2] & COUNT_MAX
    }

    #[inline]
    pub fn is_new(self) -> bool {
        (self.0[1] | self.0[2]) & COUNT_MAX == 0
    }

    #[inline]
    pub fn read(&mut self) {
        self.0[2] += u32::from(self.reads() < COUNT_MAX);
    }

    /// Counts a write at this time.
    #[inline]
    pub fn write(&mut self, at_us: u64) {
        let writes = (self.writes() + 1).min(COUNT_MAX);
        self.set_last_write(at_us);
        self.0[1] = (self.0[1] & !COUNT_MAX) | writes;
    }

    #[inline]
    pub fn last_write_us(self) -> u64 {
        let middle = u64::from(self.0[1] >> COUNT_BITS) << 32;
        let high = u64::from((self.0[2] & !STARTED) >> COUNT_BITS) << 40;
        u64::from(self.0[0]) | middle | high
    }

    #[inline]
    fn set_last_write(&mut self, at_us: u64) {
        let at_us = at_us.min((1 << 47) - 1);
        self.0[0] = at_us as u32;
        self.0[1] = self.writes() | ((at_us >> 32) as u32 & 0xFF) << COUNT_BITS;
        self.0[2] = (self.0[2] & (COUNT_MAX | STARTED)) | ((at_us >> 40) as u32) << COUNT_BITS;
    }

    /// Records that a request starts at the first sector; returns whether one has started there before.
    #[inline]
    pub fn start(&mut self) -> bool {
        let before = self.has_started();
        self.0[2] |= STARTED;
        before
    }

    #[inline]
    pub fn has_started(self) -> bool {
        self.0[2] & STARTED != 0
    }

    /// Adds the page's state from a later piece of the recording, whose times are `shift_us` later than these.
    pub fn merge(&mut self, later: PageAccessState, shift_us: u64) {
        let writes = self.writes().saturating_add(later.writes()).min(COUNT_MAX);
        let reads = self.reads().saturating_add(later.reads()).min(COUNT_MAX);
        if later.writes() > 0 {
            self.set_last_write(later.last_write_us().saturating_add(shift_us));
        }
        self.0[1] = (self.0[1] & !COUNT_MAX) | writes;
        self.0[2] = (self.0[2] & !COUNT_MAX) | reads | (later.0[2] & STARTED);
    }
}

type Leaf = [PageAccessState; LEAF_PAGES as usize];

/// The pages of all devices, in two levels. It needs 12 bytes for each page of an allocated leaf.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageTable {
    /// Direct tables for the first leaves of the first devices: the leaf's index plus one, by leaf number.
    near: [Vec<u32>; NEAR_SPACES],
    /// All other leaves; the order of iteration does not affect the output.
    far: FxHashMap<(u32, u64), u32>,
    slabs: Vec<Box<[Leaf]>>,
    used: u32,
}

/// Number of devices with a direct table, and number of leaves in it: 128 GB of addresses, 1 MB of table.
const NEAR_SPACES: usize = 8;
const NEAR_LEAVES: u64 = 1 << 18;

impl PageTable {
    /// The leaf's index plus one; 0 if it is not allocated.
    #[inline]
    fn find(&self, space: u32, number: u64) -> u32 {
        match self.near.get(space as usize) {
            Some(near) if number < NEAR_LEAVES => near.get(number as usize).copied().unwrap_or(0),
            _ => self.far.get(&(space, number)).copied().unwrap_or(0),
        }
    }

    /// Allocates a leaf; returns its index plus one.
    #[cold]
    fn insert(&mut self, space: u32, number: u64) -> u32 {
        if self.used as usize / SLAB_LEAVES == self.slabs.len() {
            self.slabs.push(vec![[PageAccessState::default(); LEAF_PAGES as usize]; SLAB_LEAVES].into());
        }
        self.used += 1;
        match self.near.get_mut(space as usize) {
            Some(near) if number < NEAR_LEAVES => {
                let number = number as usize;
                near.resize(near.len().max(number + 1), 0);
                near[number] = self.used;
            }
            _ => {
                self.far.insert((space, number), self.used);
            }
        }
        self.used
    }

    /// The leaf of this device with this number (page number / [`LEAF_PAGES`]).
    #[inline]
    pub fn leaf(&mut self, space: u32, number: u64) -> &mut Leaf {
        let found = self.find(space, number);
        let found = if found == 0 { self.insert(space, number) } else { found };
        let place = found as usize - 1;
        &mut self.slabs[place / SLAB_LEAVES][place % SLAB_LEAVES]
    }

    /// Reads the page's memory, if it is allocated, to load it into the CPU cache.
    #[inline]
    pub fn peek(&self, space: u32, page: u64) -> u32 {
        let Some(place) = (self.find(space, page / LEAF_PAGES) as usize).checked_sub(1) else { return 0 };
        self.slabs[place / SLAB_LEAVES][place % SLAB_LEAVES][(page % LEAF_PAGES) as usize].0[0]
    }

    /// All allocated leaves with their device and number, in no particular order.
    pub fn leaves(&self) -> impl Iterator<Item = (u32, u64, &Leaf)> {
        let near = (0..)
            .zip(&self.near)
            .flat_map(|(space, near)| (0..).zip(near).map(move |(number, id)| (space, number, *id)));
        let far = self.far.iter().map(|(&(space, number), &id)| (space, number, id));
        near.chain(far).filter(|(_, _, id)| *id > 0).map(|(space, number, id)| {
            let place = id as usize - 1;
            (space, number, &self.slabs[place / SLAB_LEAVES][place % SLAB_LEAVES])
        })
    }

    /// All pages, in the order of allocation of their leaves.
    pub fn pages(&self) -> impl Iterator<Item = PageAccessState> + '_ {
        self.slabs.iter().flatten().flatten().copied().filter(|page| !page.is_new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_times_and_the_start_bit_do_not_disturb_each_other() {
        let mut page = PageAccessState::default();
        assert!(page.is_new() && !page.start() && page.start() && page.is_new());
        for at_us in [0, 1, u64::from(u32::MAX), 0x7FFF_FFFF_FFFF, 0x1234_5678_9ABC] {
            page.write(at_us);
            page.read();
            assert_eq!(page.last_write_us(), at_us);
        }
        assert_eq!((page.writes(), page.reads(), page.has_started()), (5, 5, true));
        page.write(u64::MAX);
        assert_eq!((page.last_write_us(), page.writes(), page.has_started()), ((1 << 47) - 1, 6, true));
    }

    #[test]
    fn counts_saturate() {
        let mut page = PageAccessState([0, COUNT_MAX, COUNT_MAX]);
        page.write(7);
        page.read();
        assert_eq!((page.writes(), page.reads(), page.last_write_us()), (COUNT_MAX, COUNT_MAX, 7));
    }
}
