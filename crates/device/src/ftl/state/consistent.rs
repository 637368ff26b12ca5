//! Checks that map, reverse map and counts of an image agree, so that code that relies on them cannot fail.

use emmclab_base::Result;

use super::pools::passes_over_nothing;
use crate::ftl::Ftl;
use crate::ftl::pool::Pool;
use crate::ids::BlockId;
use crate::nand::{BlockState, Nand};
use crate::words::damaged;

impl Ftl {
    pub(super) fn check(&self, nand: &Nand) -> Result<()> {
        let mut owned = 0;
        for block in (0..nand.block_count() as u32).map(BlockId) {
            owned += self.check_block(nand, block)?;
        }
        if owned != self.core.tables.mapped() {
            return Err(damaged("map and flash disagree"));
        }
        self.core.tables.pools().iter().try_for_each(|pool| self.check_pool(nand, pool))
    }

    /// Checks a block against the map; returns its valid units.
    fn check_block(&self, nand: &Nand, block: BlockId) -> Result<usize> {
        let (geometry, tables) = (&self.core.geometry, &self.core.tables);
        let view = nand.block(block);
        let group = &geometry.groups[usize::from(view.group)];
        let first = geometry.first_ppn(block);
        let reach = view.written << group.page_shift;
        let (mut valid, mut agree, mut last) = (0, true, None);
        for (ppn, unit) in tables.valid_units(first..first.plus(1 << geometry.stride_shift)) {
            valid += 1;
            agree &= tables.lookup(unit) == Some(ppn);
            last = Some(ppn);
        }
        if !agree || last.is_some_and(|ppn| geometry.offset_of(ppn) >= reach) {
            return Err(damaged("map and flash disagree"));
        }
        if valid != tables.valid(block) {
            return Err(damaged("the counts of a block are wrong"));
        }
        Ok(valid as usize)
    }

    fn check_pool(&self, nand: &Nand, pool: &Pool) -> Result<()> {
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
            passes_over_nothing(&self.core.tables, geometry.first_ppn(victim.block), victim.cursor)
        });
        if passed { Ok(()) } else { Err(damaged("collection has passed over data")) }
    }
}
