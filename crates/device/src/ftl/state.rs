//! Saves and restores the state of the FTL and of the blocks as words of a device image.
//!
//! The order is: sizes, mapping table, blocks, state of allocation and garbage collection, the state of each pool that cannot be derived
//! from its blocks, and the tables of the mapping scheme.

use std::ops::Range;

use emmclab_base::Result;

use super::Ftl;
use super::pool::{BlockPool, STREAMS, VictimProgress};
use super::tables::FtlTables;
use crate::events::OperationCause;
use crate::ids::{BlockId, Lpn, PoolId, Ppn};
use crate::image::{WordReader, WordWriter, damaged};
use crate::nand::{BlockState, Nand};

impl Ftl {
    fn sizes(&self, nand: &Nand) -> [u32; 3] {
        let tables = &self.core.tables;
        [tables.map.len() as u32, tables.reverse.units.len() as u32, nand.block_count() as u32]
    }

    /// Writes the state of the FTL and of the blocks to an image.
    pub fn save(&self, nand: &Nand, out: &mut WordWriter) {
        let tables = &self.core.tables;
        out.words(self.sizes(nand));
        out.differences(&tables.map);
        for block in (0..nand.block_count() as u32).map(BlockId) {
            let view = nand.block(block);
            // Plane and group are stored only for blocks that were ever used.
            let used = tables.pool(tables.pool_of(block)).was_used(block);
            let place = if used { view.plane.0 | u32::from(view.group) << 16 } else { 0 };
            let state = place | (view.state as u32) << 24;
            out.words([tables.valid(block), view.written, view.erases, state]);
            out.long(tables.closed(block));
        }
        out.long(tables.programs);
        out.long(self.core.collector.decisions);
        out.word(self.core.allocator.cursor);
        out.word(self.core.allocator.chunk_kb);
        out.words(self.core.allocator.last_planes.iter().copied());
        save(tables, out);
        out.words(self.core.booster_words());
        out.words(self.scheme.words());
    }

    /// Restores the state from an image into new tables and new flash.
    /// Errors: [`ErrorClass::Truncated`](emmclab_base::ErrorClass::Truncated) if the image is damaged or belongs to another device.
    pub fn restore(&mut self, nand: &mut Nand, image: &mut WordReader<'_>) -> Result<()> {
        for expected in self.sizes(nand) {
            if image.word()? != expected {
                return Err(damaged("sizes differ"));
            }
        }
        let (units, places) = (self.core.tables.map.len(), self.core.tables.reverse.units.len());
        let tables = &mut self.core.tables;
        let mut apart = true;
        image.addresses(units, places, |unit, ppn| apart &= tables.restore_entry(Lpn(unit), Ppn(ppn)))?;
        if !apart {
            return Err(damaged("two units are in one place"));
        }
        self.restore_blocks(nand, image)?;
        self.core.tables.restore_programs(image.long()?);
        self.core.collector.decisions = image.long()?;
        let cursor = (image.word()?, image.word()?);
        let ways = self.core.allocator.last_planes.len();
        let last_planes: Vec<u32> = (0..ways).map(|_| image.word()).collect::<Result<_>>()?;
        self.core
            .allocator
            .restore(cursor, &last_planes, nand.timelines.planes_per_way)
            .ok_or_else(|| damaged("the cursor is outside the device"))?;
        // If the scheme manages open blocks in its own tables, it also checks them there, and they are not checked here.
        restore(&mut self.core.tables, nand, self.scheme.holds_open_blocks(), image)?;
        self.core.restore_booster(nand, image)?;
        self.check(nand)?;
        let mut words = std::iter::from_fn(|| image.word().ok());
        self.scheme.restore(&self.core.geometry, &mut words).ok_or_else(|| damaged("the tables of the map are damaged"))?;
        match self.fault(nand) {
            Some(fault) => Err(damaged(&fault)),
            None => Ok(()),
        }
    }

    fn restore_blocks(&mut self, nand: &mut Nand, image: &mut WordReader<'_>) -> Result<()> {
        for block in (0..nand.block_count() as u32).map(BlockId) {
            let (valid, written, erases) = (image.word()?, image.word()?, image.word()?);
            let packed = image.word()?;
            let (plane, group) = (u32::from(packed as u16), (packed >> 16) as u8);
            let state = BlockState::from_code((packed >> 24) as u8).ok_or_else(|| damaged("the state of a block is unknown"))?;
            let view = nand.block(block);
            let in_place = (plane, group) == (view.plane.0, view.group);
            let unused = (plane, group) == (0, 0) && state == BlockState::Free && valid == 0;
            if !in_place && !unused {
                return Err(damaged("a block is outside the device"));
            }
            if written > self.core.geometry.groups[usize::from(view.group)].pages_per_block {
                return Err(damaged("the counts of a block are wrong"));
            }
            nand.restore(block, written, erases, state);
            self.core.tables.restore_block(block, valid, image.long()?);
        }
        Ok(())
    }

    fn check(&self, nand: &Nand) -> Result<()> {
        (0..nand.block_count() as u32).map(BlockId).try_for_each(|block| self.check_block(nand, block))?;
        self.core.tables.pools.iter().try_for_each(|pool| self.check_pool(nand, pool))
    }

    /// Checks that all valid locations of a block are in programmed pages, and that their number equals the block's count of valid units.
    fn check_block(&self, nand: &Nand, block: BlockId) -> Result<()> {
        let (geometry, tables) = (&self.core.geometry, &self.core.tables);
        let view = nand.block(block);
        let group = &geometry.groups[usize::from(view.group)];
        let first = geometry.first_ppn(block);
        let (programmed, end) = (first.plus(view.written << group.page_shift), first.plus(1 << geometry.stride_shift));
        let valid = |places| tables.reverse.count(places, u32::MAX).0;
        if valid(programmed..end) > 0 {
            return Err(damaged("map and flash are inconsistent"));
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
        let open = pool.open.iter().all(|block| {
            *block == BlockId::NONE || nand.state(*block) == BlockState::Open && nand.next_page(*block) < kind.pages_per_block
        });
        let victim = pool
            .victim
            .is_none_or(|victim| nand.state(victim.block) == BlockState::Collecting && victim.cursor <= kind.units_per_block());
        let free = pool.recycled().iter().all(|block| nand.state(*block) == BlockState::Free);
        if !(open && victim && free) {
            return Err(damaged("the state of a block does not match its list"));
        }
        let passed = pool.victim.is_none_or(|victim| {
            // Collection continues at the cursor of the victim. If there were valid data before the cursor, it would be erased without
            // being moved.
            let first = geometry.first_ppn(victim.block);
            self.core.tables.reverse.places(first..first.plus(victim.cursor)).next().is_none()
        });
        if passed { Ok(()) } else { Err(damaged("collection has passed over data")) }
    }
}

const NO_VICTIM: [u32; 5] = [u32::MAX; 5];

fn save(tables: &FtlTables, out: &mut WordWriter) {
    for pool in &tables.pools {
        out.words([pool.used, pool.usable, pool.most_erases, pool.wear_countdown]);
        out.words(pool.open.map(|block| block.0));
        out.words(pool.victim.map_or(NO_VICTIM, |victim| {
            let VictimProgress { block, cursor, in_register, valid, cause } = victim;
            [block.0, cursor, in_register, valid, cause as u32 - OperationCause::Gc as u32]
        }));
        for blocks in [pool.recycled(), pool.listed()] {
            out.word(blocks.len() as u32);
            out.words(blocks.iter().map(|block| block.0));
        }
    }
}

/// The blocks of a pool that is being restored from an image. Each block that was already read is marked.
struct RestoredBlocks {
    range: Range<u32>,
    placed: Vec<bool>,
}

impl RestoredBlocks {
    /// Reads a block number from an image: a block of the pool, or [`BlockId::NONE`]. A block must not occur twice.
    fn block(&mut self, image: &mut WordReader<'_>) -> Result<BlockId> {
        let block = image.word()?;
        if block == BlockId::NONE.0 {
            return Ok(BlockId::NONE);
        }
        if !self.range.contains(&block) {
            return Err(damaged("a block of another plane is listed"));
        }
        let placed = &mut self.placed[(block - self.range.start) as usize];
        if std::mem::replace(placed, true) {
            return Err(damaged("a block is in two places"));
        }
        Ok(BlockId(block))
    }

    /// Reads the number of a block of the pool from an image. [`BlockId::NONE`] is an error.
    fn some_block(&mut self, image: &mut WordReader<'_>) -> Result<BlockId> {
        let block = self.block(image)?;
        if block == BlockId::NONE { Err(damaged("a list holds no block")) } else { Ok(block) }
    }
}

fn restore(tables: &mut FtlTables, nand: &Nand, open_elsewhere: bool, image: &mut WordReader<'_>) -> Result<()> {
    for pool in (0..tables.pools.len() as u32).map(PoolId) {
        restore_pool(tables, pool, nand, open_elsewhere, image)?;
    }
    Ok(())
}

fn restore_pool(
    tables: &mut FtlTables, pool: PoolId, nand: &Nand, open_elsewhere: bool, image: &mut WordReader<'_>,
) -> Result<()> {
    let (first, blocks) = (tables.pool(pool).block_at(0).0, tables.pool(pool).blocks);
    let mut claims = RestoredBlocks { range: first..first + blocks, placed: vec![false; blocks as usize] };
    let (used, usable) = (image.word()?, image.word()?);
    if used > usable || usable > blocks {
        return Err(damaged("a plane has more blocks than it can"));
    }
    for block in (first + used..first + blocks).map(BlockId) {
        if nand.state(block) != BlockState::Free || nand.next_page(block) > 0 {
            return Err(damaged("a block is in use but was never allocated"));
        }
    }
    let (most_erases, wear_countdown) = (image.word()?, image.word()?.max(1));
    let mut open = [BlockId::NONE; STREAMS];
    for block in &mut open {
        *block = claims.block(image)?;
    }
    let block = claims.block(image)?;
    let (cursor, in_register) = (image.word()?, image.word()?);
    let (valid, moves) = (image.word()?, image.word()?);
    let cause = match moves {
        1 => OperationCause::Wear,
        2 => OperationCause::Refresh,
        _ => OperationCause::Gc,
    };
    let victim = (block != BlockId::NONE).then_some(VictimProgress { block, cursor, in_register, valid, cause });
    let entry = tables.pool_mut(pool);
    entry.restore(used, usable, open);
    (entry.victim, entry.wear_countdown) = (victim, wear_countdown);
    for _ in 0..image.word()? {
        let block = claims.some_block(image)?;
        tables.pool_mut(pool).give_back(block, nand.block(block).erases);
    }
    tables.pool_mut(pool).most_erases = most_erases;
    restore_lists(tables, pool, nand, &mut claims, image)?;
    for (index, placed) in (0..).zip(&claims.placed) {
        let state = nand.state(BlockId(first + index));
        let placed = *placed || state == BlockState::Bad || open_elsewhere && state == BlockState::Open;
        if placed != (index < used) {
            return Err(damaged("a block in use is not listed, or an unused block is listed"));
        }
    }
    Ok(())
}

fn restore_lists(
    tables: &mut FtlTables, pool: PoolId, nand: &Nand, claims: &mut RestoredBlocks, image: &mut WordReader<'_>,
) -> Result<()> {
    let listed = image.word()?;
    let full = |block: &u32| nand.state(BlockId(*block)) == BlockState::Full;
    if listed as usize != claims.range.clone().filter(full).count() {
        return Err(damaged("a full block is not listed"));
    }
    for _ in 0..listed {
        let block = claims.some_block(image)?;
        let can_list = tables.pool(pool).can_list(tables.valid(block));
        if nand.state(block) != BlockState::Full || !can_list {
            return Err(damaged("a listed block is not full"));
        }
        tables.restore_listed(block);
    }
    Ok(())
}
