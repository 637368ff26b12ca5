//! Finds an open block with room for a page.
#![expect(clippy::inline_always, reason = "once for each page; arguments stay in registers")]

use emmclab_base::Nanos;

use super::allocation::PageRequest;
use super::core::FtlCore;
use super::pool::WriteStream;
use crate::events::Observer;
use crate::ids::{BlockId, PoolId};
use crate::nand::Nand;

/// The location of the next page program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgramTarget {
    pub pool: PoolId,
    pub group: u8,
    pub block: BlockId,
}

impl FtlCore {
    /// A plane, a group and an open block with room. If the chosen plane has none, other planes and groups are tried; `None` if the device
    /// is full.
    #[inline(always)]
    pub fn allocate<L: Observer>(
        &mut self,
        nand: &mut Nand,
        page: PageRequest,
        stream: WriteStream,
        log: &mut L,
    ) -> Option<ProgramTarget> {
        let plane = self.allocator.next_plane(&self.geometry, nand, page);
        let pool = self.geometry.pool(plane, page.group);
        let (group, entry) = (page.group, self.tables.pool(pool));
        if entry.valid < entry.valid_limit {
            if let Some(block) = entry.open(stream) {
                return Some(ProgramTarget { pool, group, block });
            }
            if let Some(block) = self.new_open_block(nand, pool, stream, page.ready, log) {
                return Some(ProgramTarget { pool, group, block });
            }
        }
        self.allocate_anywhere(nand, page, stream, log)
    }

    /// Tries every plane of the group, then every plane of the other groups; planes that hold more than their share come last.
    #[cold]
    fn allocate_anywhere<L: Observer>(
        &mut self,
        nand: &mut Nand,
        page: PageRequest,
        stream: WriteStream,
        log: &mut L,
    ) -> Option<ProgramTarget> {
        for crowded in [false, true] {
            for turn in 0..=self.geometry.by_size.len() {
                let group = match turn {
                    0 => page.group,
                    turn => self.geometry.by_size[turn - 1],
                };
                // The other blocks of a zoned device belong to its zones.
                if turn > 0 && (group == page.group || self.geometry.zones.is_some()) {
                    continue;
                }
                for i in 0..self.geometry.planes {
                    if self.stop.is_some() {
                        return None;
                    }
                    let plane = self.geometry.striped(self.allocator.cursor() + i);
                    let pool = self.geometry.pool(plane, group);
                    let below = self.tables.pool(pool).valid < self.tables.pool(pool).valid_limit;
                    if below != crowded
                        && let Some(block) = self.open_block(nand, pool, stream, page.ready, log)
                    {
                        return Some(ProgramTarget { pool, group, block });
                    }
                }
            }
        }
        None
    }

    /// The open block of a stream. If there is none, opens a new one, and collects first if free blocks are few.
    #[inline]
    pub fn open_block<L: Observer>(
        &mut self,
        nand: &mut Nand,
        pool: PoolId,
        stream: WriteStream,
        ready: Nanos,
        log: &mut L,
    ) -> Option<BlockId> {
        if let Some(open) = self.tables.pool(pool).open(stream) {
            return Some(open);
        }
        self.new_open_block(nand, pool, stream, ready, log)
    }

    #[inline(never)]
    fn new_open_block<L: Observer>(
        &mut self,
        nand: &mut Nand,
        pool: PoolId,
        stream: WriteStream,
        ready: Nanos,
        log: &mut L,
    ) -> Option<BlockId> {
        let collects = stream != WriteStream::Gc && self.collector.collects();
        if collects && !self.reclaim(nand, pool, ready, log) {
            return None;
        }
        if self.is_slc_cache(pool) {
            if !self.may_open_in_booster(pool, stream) {
                return None;
            }
            // If data is no longer pinned, its open block is used for other data.
            if stream == WriteStream::Host
                && self.booster_pins_none()
                && let Some(block) = self.tables.pool_mut(pool).hand_over(WriteStream::PINNED, stream)
            {
                return Some(block);
            }
        }
        let block = self.tables.pool_mut(pool).take_for(stream)?;
        nand.open(block);
        self.opened_in_booster(pool, stream, block);
        Some(block)
    }
}
