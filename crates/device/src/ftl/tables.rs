//! The tables of the FTL: where each unit lies, which places are valid, and how blocks and pools are filled.
#![expect(clippy::inline_always, reason = "the hottest path; arguments stay in registers")]

use std::hint::black_box;
use std::ops::Range;

use super::pool::{Order, Pool, Stream};
use super::reverse::ReverseMap;
use crate::geometry::Geometry;
use crate::ids::{BlockId, Lpn, PoolId, Ppn};

/// Entries of the map with one mark in [`Tables::faulted`]: half a page of memory.
const MARKED: usize = 512;

/// The FTL's entry for a block.
#[derive(Clone, Copy, Debug)]
struct BlockEntry {
    /// Valid units.
    valid: u32,
    /// Its pool, with [`LISTED`] while the block is in the pool's lists of full blocks.
    pool: u32,
    /// Page programs of the device before the block's last page was programmed.
    closed: u64,
}

const LISTED: u32 = 1 << 31;

/// Map, reverse map with its valid bitmap, valid counts, and pools.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    /// Physical page number + 1 of each logical unit, the host's first, then those of a map on the flash; 0 = never written or
    /// discarded.
    map: Vec<u32>,
    /// Whether memory stands behind each [`MARKED`] entries of the map.
    faulted: Vec<bool>,
    reverse: ReverseMap,
    blocks: Vec<BlockEntry>,
    /// One for each plane and block group.
    pools: Vec<Pool>,
    /// Pages programmed since the device was new: the clock of ages.
    programs: u64,
    stride_shift: u32,
}

impl Tables {
    /// Empty tables for `units` logical units. Memory is taken as it is used.
    pub fn new(geometry: &Geometry, units: usize, pools: Vec<Pool>) -> Self {
        let mut blocks = Vec::with_capacity(geometry.blocks() as usize);
        for (number, pool) in (0..).zip(&pools) {
            let entry = BlockEntry { valid: 0, pool: number, closed: 0 };
            blocks.extend(std::iter::repeat_n(entry, pool.blocks as usize));
        }
        Self {
            map: vec![0; units],
            faulted: vec![false; units.div_ceil(MARKED)],
            reverse: ReverseMap::new(geometry.ppns()),
            blocks,
            pools,
            programs: 0,
            stride_shift: geometry.stride_shift,
        }
    }

    /// Where a unit lies.
    #[inline(always)]
    pub fn lookup(&self, lpn: Lpn) -> Option<Ppn> {
        self.map[lpn.index()].checked_sub(1).map(Ppn)
    }

    /// How many of at most `most` units from one on lie behind each other; 0 if the first lies nowhere.
    #[inline]
    pub fn consecutive(&self, lpn: Lpn, most: u32) -> u32 {
        let entries = &self.map[lpn.index()..][..most as usize];
        let Some(first) = entries.first().filter(|entry| **entry != 0) else { return 0 };
        entries.iter().zip(*first..).take_while(|(entry, next)| *entry == next).count() as u32
    }

    /// How many logical units there are, those of a map on the flash included.
    pub fn units(&self) -> usize {
        self.map.len()
    }

    /// How many physical page numbers there are.
    pub fn places(&self) -> usize {
        self.reverse.len()
    }

    /// Units that lie somewhere.
    pub fn mapped(&self) -> usize {
        self.map.iter().filter(|entry| **entry != 0).count()
    }

    /// The unit that is valid at a place.
    #[inline]
    pub fn unit_at(&self, ppn: Ppn) -> Option<Lpn> {
        self.reverse.get(ppn)
    }

    /// The valid places of a range in order, with their units.
    #[inline]
    pub fn valid_units(&self, places: Range<Ppn>) -> impl Iterator<Item = (Ppn, Lpn)> + '_ {
        self.reverse.valid(places)
    }

    /// The valid places of a range, in order.
    #[inline]
    pub fn valid_places(&self, places: Range<Ppn>) -> impl Iterator<Item = Ppn> + '_ {
        self.reverse.places(places)
    }

    /// How many pages of a range of whole pages hold anything valid.
    pub fn count_valid_pages(&self, places: Range<Ppn>, page_shift: u32) -> u32 {
        self.reverse.count_pages(places, page_shift)
    }

    /// How many places of a range are valid, at most `most`, and the place after the last of them.
    #[inline]
    pub fn count_valid(&self, places: Range<Ppn>, most: u32) -> (u32, Ppn) {
        self.reverse.count(places, most)
    }

    /// Valid units of a block.
    #[inline]
    pub fn valid(&self, block: BlockId) -> u32 {
        self.blocks[block.index()].valid
    }

    /// Page programs of the device before the block became full.
    #[inline]
    pub fn closed(&self, block: BlockId) -> u64 {
        self.blocks[block.index()].closed
    }

    /// Pool of a block.
    #[inline]
    pub fn pool_of(&self, block: BlockId) -> PoolId {
        PoolId(self.blocks[block.index()].pool & !LISTED)
    }

    #[inline(always)]
    pub fn pool(&self, pool: PoolId) -> &Pool {
        &self.pools[pool.index()]
    }

    #[inline]
    pub fn pool_mut(&mut self, pool: PoolId) -> &mut Pool {
        &mut self.pools[pool.index()]
    }

    pub fn pools(&self) -> &[Pool] {
        &self.pools
    }

    /// Pages programmed since the device was new.
    #[inline]
    pub fn programs(&self) -> u64 {
        self.programs
    }

    /// A unit lies at `ppn` from now on; the place it had is invalid.
    #[inline(always)]
    pub fn remap(&mut self, lpn: Lpn, ppn: Ppn) {
        let old = std::mem::replace(&mut self.map[lpn.index()], ppn.0 + 1);
        self.reverse.set(ppn, lpn);
        if old != 0 {
            self.invalidate(Ppn(old - 1));
        }
    }

    /// A unit lies nowhere from now on; false if it did already.
    pub fn unmap(&mut self, lpn: Lpn) -> bool {
        let old = std::mem::take(&mut self.map[lpn.index()]);
        if old != 0 {
            self.invalidate(Ppn(old - 1));
        }
        old != 0
    }

    #[inline(always)]
    fn invalidate(&mut self, ppn: Ppn) {
        self.reverse.clear(ppn);
        let block = ppn.0 >> self.stride_shift;
        let entry = &mut self.blocks[block as usize];
        entry.valid -= 1;
        let (pool, valid) = (entry.pool, entry.valid);
        let owner = &mut self.pools[(pool & !LISTED) as usize];
        owner.valid -= 1;
        if pool & LISTED != 0 {
            owner.lost_unit(BlockId(block), valid);
        }
    }

    /// A unit that lies nowhere lies at `ppn` again, where its data still is.
    pub fn map_again(&mut self, lpn: Lpn, ppn: Ppn) {
        self.map[lpn.index()] = ppn.0 + 1;
        self.reverse.set(ppn, lpn);
        let block = ppn.0 >> self.stride_shift;
        let entry = &mut self.blocks[block as usize];
        entry.valid += 1;
        let (pool, valid) = (entry.pool, entry.valid);
        let owner = &mut self.pools[(pool & !LISTED) as usize];
        owner.valid += 1;
        if pool & LISTED != 0 {
            owner.gained_unit(BlockId(block), valid);
        }
    }

    /// Moves the next `count` valid units of the places `from`, all of a block that is being collected, to the places from `to` on.
    #[inline]
    pub fn relocate(&mut self, from: Range<Ppn>, to: Ppn, count: u32) {
        let block = from.start.0 >> self.stride_shift;
        self.reverse.relocate(from, to, count, &mut self.map);
        self.leaves(BlockId(block), count);
    }

    /// Moves one unit of a block that is being collected; [`Tables::leaves`] counts it.
    #[inline(always)]
    pub fn move_unit(&mut self, lpn: Lpn, from: Ppn, to: Ppn) {
        self.reverse.clear(from);
        self.map[lpn.index()] = to.0 + 1;
        self.reverse.set(to, lpn);
    }

    /// `units` of a block that is being collected have been moved away.
    #[inline]
    pub fn leaves(&mut self, block: BlockId, units: u32) {
        let entry = &mut self.blocks[block.index()];
        entry.valid -= units;
        self.pools[(entry.pool & !LISTED) as usize].valid -= units;
    }

    /// Counts the units of the pages just programmed, and lists a block that became full with them.
    #[inline(always)]
    pub fn fill(&mut self, block: BlockId, pages: u32, units: u32, full: Option<Stream>) {
        self.programs += u64::from(pages);
        let entry = &mut self.blocks[block.index()];
        let pool = &mut self.pools[(entry.pool & !LISTED) as usize];
        entry.valid += units;
        pool.valid += units;
        if let Some(stream) = full {
            entry.closed = self.programs;
            entry.pool |= LISTED;
            pool.close(stream);
            pool.insert(block, entry.valid);
        }
    }

    /// Takes a full block out of its pool's lists, to collect it.
    pub fn unlist(&mut self, block: BlockId) {
        let entry = &mut self.blocks[block.index()];
        if entry.pool & LISTED != 0 {
            entry.pool &= !LISTED;
            self.pools[entry.pool as usize].remove(block);
        }
    }

    /// Keeps the full blocks of every pool in another order from now on. Those that a new list holds together stand there by the time
    /// at which they became full, ties as they stood before.
    pub fn relist(&mut self, geometry: &Geometry, order: Order) {
        for (number, pool) in (0..).map(PoolId).zip(&mut self.pools) {
            let mut listed = pool.listed();
            listed.sort_by_key(|block| self.blocks[block.index()].closed);
            let listed: Vec<_> =
                listed.into_iter().map(|block| (block, self.blocks[block.index()].valid)).collect();
            let (_, group) = geometry.of_pool(number);
            pool.relist(order, &geometry.groups[usize::from(group)], &listed);
        }
    }

    /// Reads what the tables hold of these units, so that their cache misses overlap. Has the system put memory behind entries
    /// first: memory that is read before it is written costs two page faults, the second of which interrupts every processor.
    #[inline]
    pub fn prefetch(&mut self, lpns: impl Iterator<Item = usize>) {
        let mut ppns = [0u32; super::PREFETCHED];
        for (ppn, lpn) in ppns.iter_mut().zip(lpns) {
            if self.faulted.get(lpn / MARKED) == Some(&false) {
                self.prefault(lpn / MARKED);
            }
            *ppn = self.map.get(lpn).copied().unwrap_or(0);
        }
        let mut all = 0;
        for ppn in ppns {
            // Place 0 stands in for units that lie nowhere: a branch would be unpredictable.
            let ppn = ppn.saturating_sub(1);
            all ^= self.reverse.around(Ppn(ppn));
            all ^= u64::from(self.blocks[(ppn >> self.stride_shift) as usize].valid);
        }
        black_box(all);
    }

    /// Puts memory behind entries of the map and behind those that a long request reaches from there.
    #[cold]
    fn prefault(&mut self, mark: usize) {
        self.faulted[mark] = true;
        for entry in [mark * MARKED, (mark + 1) * MARKED] {
            if let Some(entry) = self.map.get_mut(entry) {
                *entry |= black_box(0);
            }
        }
    }

    /// Map entry as an image keeps it: physical page number + 1, or 0.
    pub fn raw_entry(&self, lpn: usize) -> u32 {
        self.map[lpn]
    }

    /// Takes up an entry of an image, in either direction.
    pub fn restore_entry(&mut self, lpn: Lpn, ppn: Ppn) {
        self.map[lpn.index()] = ppn.0 + 1;
    }

    pub fn restore_unit_at(&mut self, ppn: Ppn, lpn: Lpn) {
        self.reverse.set(ppn, lpn);
    }

    /// Takes up the counts of a block, of an image.
    pub fn restore_block(&mut self, block: BlockId, valid: u32, closed: u64) {
        let entry = &mut self.blocks[block.index()];
        (entry.valid, entry.closed) = (valid, closed);
        self.pools[(entry.pool & !LISTED) as usize].valid += valid;
    }

    /// Lists a full block of an image.
    pub fn restore_listed(&mut self, block: BlockId) {
        let entry = &mut self.blocks[block.index()];
        self.pools[entry.pool as usize].insert(block, entry.valid);
        entry.pool |= LISTED;
    }

    pub fn restore_programs(&mut self, programs: u64) {
        self.programs = programs;
    }
}
