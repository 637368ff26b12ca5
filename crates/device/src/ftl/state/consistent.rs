//! Checks that the map, the blocks and their counts in an image agree, so that code that relies on them cannot fail.

use emmclab_base::Result;

use super::pools::skips_no_valid_unit;
use crate::ftl::Ftl;
use crate::ftl::pool::BlockPool;
use crate::ids::BlockId;
use crate::image_words::damaged;
use crate::nand::{BlockState, Nand};

impl Ftl {
    pub(super) fn check(&self, nand: &Nand) -> Result<()> {
        (0..nand.block_count() as u32).map(BlockId).try_for_each(|block| self.check_block(nand, block))?;
        self.core.tables.pools().iter().try_for_each(|pool| self.check_pool(nand, pool))
    }

    /// Checks that all valid locations of a block are in programmed pages, and that their number is the block's count of valid units.
    fn check_block(&self, nand: &Nand, block: BlockId) -> Result<()> {
        let (geometry, tables) = (&self.core.geometry, &self.core.tables);
        let view = nand.block(block);
        let group = &geometry.groups[usize::from(view.group)];
        let first = geometry.first_ppn(block);
        let (programmed, end) = (first.plus(view.written << group.page_shift), first.plus(1 << geometry.stride_shift));
        let valid = |places| tables.count_valid(places, u32::MAX).0;
        if valid(programmed..end) > 0 {
            return Err(damaged("map and flash disagree"));
        }
        if valid(first..programmed) != tables.valid(block) {
            return Err(damaged("the counts of a block are wrong"));
        }
        Ok(())
    }

    fn check_pool(&self, nand: &Nand, pool: &BlockPool) -> Result<()> {
        let geometry = &self.core.geometry;
        let (_, group) = geometry.of_pool(self.core.tables.pool_of(pool.block_at(0)));
        let kind = &geometry.groups[usize::from(group)];
        let open = pool.all_open().iter().all(|block| {
            *block == BlockId::NONE
                || nand.state(*block) == BlockState::Open && nand.next_page(*block) < kind.pages_per_block
        });
        let victim = pool.victim.is_none_or(|victim| {
            nand.state(victim.block) == BlockState::Collecting && victim.cursor <= kind.units_per_block()
        });
        let free = pool.recycled().iter().all(|block| nand.state(*block) == BlockState::Free);
        if !(open && victim && free) {
            return Err(damaged("the state of a block does not match its list"));
        }
        let passed = pool.victim.is_none_or(|victim| {
            skips_no_valid_unit(&self.core.tables, geometry.first_ppn(victim.block), victim.cursor)
        });
        if passed { Ok(()) } else { Err(damaged("collection has passed over data")) }
    }
}
