//! The pools in an image: the part of their state that does not follow from their blocks.

use std::ops::Range;

use emmclab_base::Result;

use crate::ftl::pool::{STREAMS, VictimProgress};
use crate::ftl::tables::FtlTables;
use crate::ids::{BlockId, PoolId, Ppn};
use crate::image_words::{WordReader, WordWriter, damaged};
use crate::nand::{BlockState, Nand};

const NO_VICTIM: [u32; 5] = [u32::MAX; 5];

pub(super) fn save(tables: &FtlTables, out: &mut WordWriter) {
    for pool in tables.pools() {
        out.words([pool.used(), pool.usable(), pool.most_erases, pool.wear_countdown]);
        out.words(pool.all_open().map(|block| block.0));
        out.words(pool.victim.map_or(NO_VICTIM, |victim| {
            let VictimProgress { block, cursor, in_register, valid, wear } = victim;
            [block.0, cursor, in_register, valid, u32::from(wear)]
        }));
        for blocks in [pool.recycled(), pool.listed()] {
            out.word(blocks.len() as u32);
            out.words(blocks.iter().map(|block| block.0));
        }
    }
}

/// The blocks of a pool, and which of them an image has placed so far.
struct RestoredBlocks {
    range: Range<u32>,
    placed: Vec<bool>,
}

impl RestoredBlocks {
    /// Reads a block of the pool, or none. A block must not be placed twice.
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

    /// As [`RestoredBlocks::block`], but there must be a block.
    fn some_block(&mut self, image: &mut WordReader<'_>) -> Result<BlockId> {
        let block = self.block(image)?;
        if block == BlockId::NONE { Err(damaged("a list holds no block")) } else { Ok(block) }
    }
}

pub(super) fn restore(
    tables: &mut FtlTables,
    nand: &Nand,
    open_elsewhere: bool,
    image: &mut WordReader<'_>,
) -> Result<()> {
    for pool in (0..tables.pools().len() as u32).map(PoolId) {
        restore_pool(tables, pool, nand, open_elsewhere, image)?;
    }
    Ok(())
}

fn restore_pool(
    tables: &mut FtlTables,
    pool: PoolId,
    nand: &Nand,
    open_elsewhere: bool,
    image: &mut WordReader<'_>,
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
    let (valid, wear) = (image.word()?, image.word()? == 1);
    let victim = (block != BlockId::NONE).then_some(VictimProgress { block, cursor, in_register, valid, wear });
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
    tables: &mut FtlTables,
    pool: PoolId,
    nand: &Nand,
    claims: &mut RestoredBlocks,
    image: &mut WordReader<'_>,
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

/// Whether there is no valid data before the cursor of a collection, which would skip it.
pub(super) fn skips_no_valid_unit(tables: &FtlTables, first: Ppn, cursor: u32) -> bool {
    tables.valid_places(first..first.plus(cursor)).next().is_none()
}
