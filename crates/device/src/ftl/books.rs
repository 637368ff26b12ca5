//! What a page program changes in the tables: where units lie, and how full blocks and pools are.
#![expect(clippy::inline_always, reason = "the hottest path; what is handed on stays in registers")]

use super::reverse::ReverseMap;
use crate::device::Device;
use crate::geometry::Geometry;
use crate::nand::{Block, BlockState, NONE, Pool, Stream};

/// The tables, each looked up once for all that is done to them.
pub(crate) struct Books<'a> {
    pub geometry: &'a Geometry,
    pub map: &'a mut [u32],
    pub reverse: &'a mut ReverseMap,
    pub blocks: &'a mut [Block],
    pub pools: &'a mut [Pool],
    pub programs: &'a mut u64,
}

impl Books<'_> {
    /// Consecutive units lie in the slots from `slot` on now.
    #[inline(always)]
    pub fn remap(&mut self, first: u32, units: u32, slot: u32) {
        for i in 0..units {
            let old = std::mem::replace(&mut self.map[(first + i) as usize], slot + i + 1);
            self.reverse.set(slot + i, first + i);
            if old != 0 {
                self.invalidate(old - 1);
            }
        }
    }

    /// A slot holds nothing worth keeping any more.
    #[inline(always)]
    pub fn invalidate(&mut self, slot: u32) {
        self.reverse.clear(slot);
        let block = self.geometry.block_of(slot);
        let entry = &mut self.blocks[block as usize];
        entry.valid -= 1;
        let (full, valid) = (entry.state == BlockState::Full, entry.valid);
        let pool = usize::from(entry.plane) * self.geometry.groups.len() + usize::from(entry.group);
        let pool = &mut self.pools[pool];
        pool.valid -= 1;
        if full {
            pool.lost_unit(block, valid);
        }
    }

    /// Counts the units of the pages just programmed and closes a block whose last page is among them.
    #[inline(always)]
    pub fn fill(&mut self, pool: usize, block: u32, pages: u32, units: u32, stream: Stream) {
        *self.programs += u64::from(pages);
        let (entry, pool) = (&mut self.blocks[block as usize], &mut self.pools[pool]);
        entry.valid += units;
        entry.written += pages;
        pool.valid += units;
        if entry.written == pool.kind.pages_per_block {
            entry.state = BlockState::Full;
            entry.closed = *self.programs;
            pool.open[stream as usize] = NONE;
            pool.insert(block, entry.valid);
        }
    }
}

impl Device {
    #[inline(always)]
    pub(crate) fn books(&mut self) -> Books<'_> {
        Books {
            geometry: &self.geometry,
            map: &mut self.map,
            reverse: &mut self.reverse,
            blocks: &mut self.blocks,
            pools: &mut self.pools,
            programs: &mut self.programs,
        }
    }
}
