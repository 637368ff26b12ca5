//! Blocks of the journal that are written in parts.

use emmclab_base::{SECTOR_BYTES, SectorSet};

/// Maximum number of incomplete blocks that are kept; the oldest is dropped.
const MOST: usize = 16;

/// A block of which only some sectors were written.
pub(super) struct PartialBlock {
    block: u32,
    have: u128,
    pub bytes: Vec<u8>,
}

impl PartialBlock {
    /// The bytes of the block, if its first sector was written.
    pub fn head(&self) -> Option<&[u8]> {
        (self.have & 1 == 1).then_some(&self.bytes)
    }

    /// Whether all sectors were written.
    pub fn is_whole(&self) -> bool {
        self.have == SectorSet::first((self.bytes.len() as u64 / SECTOR_BYTES) as u32).0
    }
}

#[derive(Default)]
pub(super) struct PartialBlocks {
    parts: Vec<PartialBlock>,
}

impl PartialBlocks {
    pub fn clear(&mut self) {
        self.parts.clear();
    }

    /// Removes and returns an incomplete block; `None` if there is none.
    pub fn take(&mut self, block: u32) -> Option<PartialBlock> {
        let at = self.parts.iter().position(|part| part.block == block)?;
        Some(self.parts.remove(at))
    }

    /// Adds sectors of a block of `size` bytes, from its sector `within` on.
    pub fn add(&mut self, block: u32, within: usize, bytes: &[u8], size: usize) -> &PartialBlock {
        let part = self.take(block).filter(|part| part.bytes.len() == size);
        let mut part = part.unwrap_or_else(|| PartialBlock { block, have: 0, bytes: vec![0; size] });
        let from = within * SECTOR_BYTES as usize;
        if let Some(room) = part.bytes.get_mut(from..from + bytes.len()) {
            room.copy_from_slice(bytes);
            part.have |= SectorSet::first((bytes.len() as u64 / SECTOR_BYTES) as u32).0 << within;
        }
        if self.parts.len() == MOST {
            self.parts.remove(0);
        }
        self.parts.push(part);
        &self.parts[self.parts.len() - 1]
    }
}
