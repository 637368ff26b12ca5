//! Contents of a disk, as references to the spool.

use std::ops::Range;

use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::xxh3_128;

use crate::spool::{SectorSource, Spool};

/// Number of sectors in a block of contents.
pub(crate) const BLOCK: u64 = 8;

/// The sources of a block's sectors.
pub(crate) type Block = [SectorSource; BLOCK as usize];

/// The source of each sector of a disk. A sector that was never written has no source and reads as zeros.
#[derive(Clone, Debug, Default)]
pub(crate) struct DiskContents {
    blocks: FxHashMap<u64, Block>,
    /// Sum over all sectors that do not read as zeros, of a hash of address and digest: equal contents have equal sums.
    sum: u128,
}

/// The term of a sector in the sum of its contents.
fn term(spool: &Spool, sector: u64, source: SectorSource) -> u128 {
    let (digest, nothing) = (spool.digest(source), spool.digest(SectorSource::ZEROS));
    if digest == nothing {
        return 0;
    }
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&sector.to_le_bytes());
    bytes[8..].copy_from_slice(&digest.to_le_bytes());
    xxh3_128(&bytes)
}

impl DiskContents {
    pub fn block(&self, block: u64) -> Block {
        self.blocks.get(&block).copied().unwrap_or_default()
    }

    pub fn sector(&self, sector: u64) -> SectorSource {
        self.block(sector / BLOCK)[(sector % BLOCK) as usize]
    }

    /// A number that is equal for equal contents.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// Blocks that were ever set, in any order.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, &Block)> {
        self.blocks.iter().map(|(block, sources)| (*block, sources))
    }

    pub fn set(&mut self, spool: &Spool, sector: u64, source: SectorSource) {
        let place = &mut self.blocks.entry(sector / BLOCK).or_default()[(sector % BLOCK) as usize];
        let before = std::mem::replace(place, source);
        if before != source {
            self.sum = self.sum.wrapping_sub(term(spool, sector, before)).wrapping_add(term(spool, sector, source));
        }
    }

    /// Returns the blocks with sectors in a range that were ever set, with their sources. The work is at most proportional to the
    /// number of blocks that were ever set.
    pub fn blocks_in(&self, sectors: &Range<u64>) -> Vec<(u64, Block)> {
        let blocks = sectors.start / BLOCK..sectors.end.div_ceil(BLOCK);
        if blocks.end - blocks.start < self.blocks.len() as u64 {
            blocks.filter_map(|block| Some((block, *self.blocks.get(&block)?))).collect()
        } else {
            self.blocks().filter(|(block, _)| blocks.contains(block)).map(|(block, all)| (block, *all)).collect()
        }
    }

    /// Sets sectors to zeros. The work is at most proportional to the number of blocks that were ever set.
    pub fn clear(&mut self, spool: &Spool, first: u64, end: u64) {
        for (block, _) in self.blocks_in(&(first..end)) {
            for sector in first.max(block * BLOCK)..end.min((block + 1) * BLOCK) {
                self.set(spool, sector, SectorSource::ZEROS);
            }
        }
    }

    /// Returns the sum of the contents if a block had other sources.
    pub fn sum_with(&self, spool: &Spool, sum: u128, block: u64, sources: &Block) -> u128 {
        let before = self.block(block);
        (0..BLOCK).zip(before.iter().zip(sources)).filter(|(_, (old, new))| old != new).fold(
            sum,
            |sum, (i, (old, new))| {
                let sector = block * BLOCK + i;
                sum.wrapping_sub(term(spool, sector, *old)).wrapping_add(term(spool, sector, *new))
            },
        )
    }
}
