//! Tables of the FTL: the location of each unit, which locations are valid, and the counts of blocks and pools.

use std::hint::black_box;
use std::ops::Range;

use super::pool::{BlockPool, FullBlockOrder, WriteStream};
use super::reverse::ReverseMap;
use crate::geometry::Geometry;
use crate::ids::{BlockId, Lpn, PoolId, Ppn};

/// Number of mapping table entries for each element of [`FtlTables::faulted`]. 512 entries of 4 bytes are half a memory page.
const MARKED: usize = 512;

/// The entry of an erase block in the tables of the FTL.
#[derive(Clone, Copy, Debug)]
struct BlockEntry {
    valid: u32,
    /// Block pool of the block, combined with the flag [`LISTED`] while the block is in the lists of full blocks.
    pool: u32,
    /// Number of page programs of the device before the last page of the block was programmed.
    closed: u64,
}

const LISTED: u32 = 1 << 31;

/// The tables of the FTL: mapping table, reverse map with its valid bitmap, valid counts, and block pools.
#[derive(Clone, Debug)]
pub(crate) struct FtlTables {
    /// Physical page number + 1 of each logical unit, first of the host, then of a mapping table on the flash. 0 = no data.
    pub map: Vec<u32>,
    /// Whether the operating system has allocated memory for each group of [`MARKED`] mapping table entries.
    faulted: Vec<bool>,
    pub reverse: ReverseMap,
    blocks: Vec<BlockEntry>,
    /// The block pools, one for each plane and block group.
    pub pools: Vec<BlockPool>,
    /// Number of page programs since the device was new. The ages of blocks are measured in page programs.
    pub programs: u64,
    stride_shift: u32,
}

impl FtlTables {
    /// Creates empty tables for `units` logical units. The operating system allocates their memory when it is first used.
    pub fn new(geometry: &Geometry, units: usize, pools: Vec<BlockPool>) -> Self {
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

    /// Adds `units` unmapped units.
    pub fn extend(&mut self, units: usize) {
        self.map.resize(self.map.len() + units, 0);
        self.faulted.resize(self.map.len().div_ceil(MARKED), false);
    }

    /// The location of a unit; `None` if it is not mapped.
    #[inline(always)]
    pub fn lookup(&self, lpn: Lpn) -> Option<Ppn> {
        self.map[lpn.index()].checked_sub(1).map(Ppn)
    }

    /// Number of units from `lpn` on, at most `most`, that have consecutive locations; 0 if the first is not mapped.
    #[inline]
    pub fn consecutive(&self, lpn: Lpn, most: u32) -> u32 {
        let entries = &self.map[lpn.index()..][..most as usize];
        let Some(first) = entries.first().filter(|entry| **entry != 0) else { return 0 };
        entries.iter().zip(*first..).take_while(|(entry, next)| *entry == next).count() as u32
    }

    pub fn mapped(&self) -> usize {
        self.map.iter().filter(|entry| **entry != 0).count()
    }

    #[inline]
    pub fn valid(&self, block: BlockId) -> u32 {
        self.blocks[block.index()].valid
    }

    /// Number of page programs of the device until the block became full.
    #[inline]
    pub fn closed(&self, block: BlockId) -> u64 {
        self.blocks[block.index()].closed
    }

    #[inline]
    pub fn pool_of(&self, block: BlockId) -> PoolId {
        PoolId(self.blocks[block.index()].pool & !LISTED)
    }

    #[inline(always)]
    pub fn pool(&self, pool: PoolId) -> &BlockPool {
        &self.pools[pool.index()]
    }

    #[inline]
    pub fn pool_mut(&mut self, pool: PoolId) -> &mut BlockPool {
        &mut self.pools[pool.index()]
    }

    /// Maps a unit to `ppn`; its previous location becomes invalid.
    #[inline(always)]
    pub fn remap(&mut self, lpn: Lpn, ppn: Ppn) {
        let old = std::mem::replace(&mut self.map[lpn.index()], ppn.0 + 1);
        self.reverse.set(ppn, lpn);
        if old != 0 {
            self.invalidate(Ppn(old - 1));
        }
    }

    /// Unmaps a unit; returns false if it was not mapped.
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

    /// Maps an unmapped unit to its earlier location `ppn` again, where its data still exists.
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

    /// Moves `count` valid units in the range `from` of a block that is being collected. Their new locations begin at `to`.
    #[inline]
    pub fn relocate(&mut self, from: Range<Ppn>, to: Ppn, count: u32) {
        let block = from.start.0 >> self.stride_shift;
        self.reverse.relocate(from, to, count, &mut self.map);
        self.leaves(BlockId(block), count);
    }

    /// Moves a unit out of a block that is being collected, without updating the counts. [`FtlTables::leaves`] updates them.
    #[inline(always)]
    pub fn move_unit(&mut self, lpn: Lpn, from: Ppn, to: Ppn) {
        self.reverse.clear(from);
        self.map[lpn.index()] = to.0 + 1;
        self.reverse.set(to, lpn);
    }

    /// Updates the counts after `units` of a block that is being collected were moved away.
    #[inline]
    pub fn leaves(&mut self, block: BlockId, units: u32) {
        let entry = &mut self.blocks[block.index()];
        entry.valid -= units;
        self.pools[(entry.pool & !LISTED) as usize].valid -= units;
    }

    /// Adds the units of pages that were just programmed to the counts, and adds the block to the lists if it is full.
    #[inline(always)]
    pub fn fill(&mut self, block: BlockId, pages: u32, units: u32, full: Option<WriteStream>) {
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

    /// Removes a full block from the lists of its pool, because its collection begins.
    pub fn unlist(&mut self, block: BlockId) {
        let entry = &mut self.blocks[block.index()];
        if entry.pool & LISTED != 0 {
            entry.pool &= !LISTED;
            self.pools[entry.pool as usize].remove(block);
        }
    }

    /// Changes the order of full blocks in every pool. Blocks that belong to one list in the new order are sorted by the time at which they
    /// became full; ties keep their old order.
    pub fn relist(&mut self, geometry: &Geometry, order: FullBlockOrder) {
        for (number, pool) in (0..).map(PoolId).zip(&mut self.pools) {
            let mut listed = pool.listed();
            listed.sort_by_key(|block| self.blocks[block.index()].closed);
            let listed: Vec<_> = listed.into_iter().map(|block| (block, self.blocks[block.index()].valid)).collect();
            let (_, group) = geometry.of_pool(number);
            pool.relist(order, &geometry.groups[usize::from(group)], &listed);
        }
    }

    /// Prefetches the table entries of these units, so that their cache misses overlap. Memory that is not allocated yet is written before
    /// it is read. A read first would cause one page fault, and the next write another one.
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
            // An unmapped unit (entry 0) is treated like location 0. A branch for this case would be unpredictable.
            let ppn = ppn.saturating_sub(1);
            all ^= self.reverse.around(Ppn(ppn));
            all ^= u64::from(self.blocks[(ppn >> self.stride_shift) as usize].valid);
        }
        black_box(all);
    }

    /// Makes the operating system allocate memory for mapping table entries, and for the following entries that a long request may access.
    #[cold]
    fn prefault(&mut self, mark: usize) {
        self.faulted[mark] = true;
        for entry in [mark * MARKED, (mark + 1) * MARKED] {
            if let Some(entry) = self.map.get_mut(entry) {
                *entry |= black_box(0);
            }
        }
    }

    /// Maps a unit to its location in a device image. Returns false if another unit is already mapped to this location.
    /// [`FtlTables::restore_block`] restores the counts of the block.
    #[inline]
    pub fn restore_entry(&mut self, lpn: Lpn, ppn: Ppn) -> bool {
        self.map[lpn.index()] = ppn.0 + 1;
        let free = self.reverse.get(ppn).is_none();
        self.reverse.set(ppn, lpn);
        free
    }

    /// Restores the counts of a block from a device image.
    pub fn restore_block(&mut self, block: BlockId, valid: u32, closed: u64) {
        let entry = &mut self.blocks[block.index()];
        (entry.valid, entry.closed) = (valid, closed);
        self.pools[(entry.pool & !LISTED) as usize].valid += valid;
    }

    /// Adds a full block of a device image to the lists.
    pub fn restore_listed(&mut self, block: BlockId) {
        let entry = &mut self.blocks[block.index()];
        self.pools[entry.pool as usize].insert(block, entry.valid);
        entry.pool |= LISTED;
    }

    pub fn restore_programs(&mut self, programs: u64) {
        self.programs = programs;
    }
}
