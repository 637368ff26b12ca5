//! The state of the FTL and of the blocks as words, for images.
//!
//! The order is: sizes, map, blocks, state of allocation and collection, the part of each pool's state that does not follow
//! from its blocks, and the tables of the mapping scheme.

mod consistent;
mod pools;

use emmclab_base::Result;

use super::Ftl;
use crate::ids::{BlockId, Lpn, Ppn};
use crate::image_words::{WordReader, WordWriter, damaged};
use crate::nand::{BlockState, Nand};

impl Ftl {
    /// Approximate number of words that [`Ftl::save`] writes.
    pub fn state_words(&self, nand: &Nand) -> usize {
        self.core.tables.units() + 8 * nand.block_count()
    }

    fn sizes(&self, nand: &Nand) -> [u32; 3] {
        let tables = &self.core.tables;
        [tables.units() as u32, tables.places() as u32, nand.block_count() as u32]
    }

    /// Writes the state.
    pub fn save(&self, nand: &Nand, out: &mut WordWriter) {
        let tables = &self.core.tables;
        out.words(self.sizes(nand));
        out.differences(tables.entries());
        for block in (0..nand.block_count() as u32).map(BlockId) {
            let view = nand.block(block);
            // Plane and group are stored for blocks that were ever used.
            let used = tables.pool(tables.pool_of(block)).was_used(block);
            let place = if used { view.plane.0 | u32::from(view.group) << 16 } else { 0 };
            let state = place | (view.state as u32) << 24;
            out.words([tables.valid(block), view.written, view.erases, state]);
            out.long(tables.closed(block));
        }
        out.long(tables.programs());
        out.long(self.core.collector.decisions);
        out.word(self.core.allocator.cursor());
        out.word(self.core.allocator.chunk_kb());
        out.words(self.core.allocator.last_planes().iter().copied());
        pools::save(tables, out);
        out.words(self.core.booster_words());
        out.words(self.scheme.words());
    }

    /// Restores the state into new tables and new flash.
    ///
    /// # Errors
    /// [`ErrorClass::Truncated`](emmclab_base::ErrorClass::Truncated) if the image is damaged or of another device.
    pub fn restore(&mut self, nand: &mut Nand, image: &mut WordReader<'_>) -> Result<()> {
        for expected in self.sizes(nand) {
            if image.word()? != expected {
                return Err(damaged("sizes differ"));
            }
        }
        let (units, places) = (self.core.tables.units(), self.core.tables.places());
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
        let ways = self.core.allocator.last_planes().len();
        let last_planes: Vec<u32> = (0..ways).map(|_| image.word()).collect::<Result<_>>()?;
        self.core
            .allocator
            .restore(cursor, &last_planes, nand.planes_per_way())
            .ok_or_else(|| damaged("the cursor is outside the device"))?;
        // A scheme that holds open blocks has them in its own tables, which are checked by the scheme.
        pools::restore(&mut self.core.tables, nand, self.scheme.holds_open_blocks(), image)?;
        self.core.restore_booster(nand, image)?;
        self.check(nand)?;
        let mut words = std::iter::from_fn(|| image.word().ok());
        self.scheme
            .restore(&self.core.geometry, &mut words)
            .ok_or_else(|| damaged("the tables of the map are damaged"))?;
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
            let state = BlockState::from_code((packed >> 24) as u8)
                .ok_or_else(|| damaged("the state of a block is unknown"))?;
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
}
