//! Checksums of blocks of the log. If the disk identifies the contents of its blocks, each checksum is computed once for each
//! content.

use rustc_hash::FxHashMap;

use emmclab_base::Result;

use super::records::LogFormat;
use crate::blocks::Blocks;
use crate::bytes::be32;
use crate::checksum::{Shift, crc32c};
use crate::structure::Structure;

/// Checksums of blocks from state 0, by the identification of their contents; they are valid for any journal and transaction.
pub(super) struct Verified {
    logged: FxHashMap<u64, u32>,
    /// Checksums of descriptor, revoke and commit blocks, with zeros in place of the stored checksum.
    sealed: FxHashMap<u64, u32>,
    shift: Shift,
    block: Vec<u8>,
}

impl Verified {
    pub fn new() -> Self {
        let (logged, sealed) = (FxHashMap::default(), FxHashMap::default());
        Self { logged, sealed, shift: Shift::new(0), block: Vec::new() }
    }

    /// Sets the size of the blocks; a change drops the known checksums.
    pub fn set_block_size(&mut self, bytes: usize) {
        if self.shift.bytes() != bytes {
            self.logged.clear();
            self.sealed.clear();
            self.shift = Shift::new(bytes);
            self.block.resize(bytes, 0);
        }
    }

    pub fn len(&self) -> usize {
        self.logged.len() + self.sealed.len()
    }

    /// Returns the checksum of a logged block at byte `offset` of the disk, continued from `state`.
    pub fn logged(
        &mut self,
        disk: &dyn Blocks,
        offset: u64,
        structure: Structure,
        state: u32,
    ) -> Result<u32> {
        let name = disk.content(offset, self.block.len());
        let plain = if let Some(known) = name.and_then(|name| self.logged.get(&name)) {
            *known
        } else {
            structure.read(disk, offset, &mut self.block)?;
            let computed = crc32c(0, &self.block);
            name.and_then(|name| self.logged.insert(name, computed));
            computed
        };
        Ok(self.shift.over_zeros(state) ^ plain)
    }

    /// Whether the checksum at byte `at` of a block is correct; the block was read from byte `offset` of the disk.
    pub fn seal_holds(&mut self, disk: &dyn Blocks, offset: u64, block: &[u8], at: usize, seed: u32) -> bool {
        let name = disk.content(offset, block.len());
        let plain = if let Some(known) = name.and_then(|name| self.sealed.get(&name)) {
            *known
        } else {
            let state = crc32c(0, block.get(..at).unwrap_or_default());
            let computed = crc32c(crc32c(state, &[0; 4]), block.get(at + 4..).unwrap_or_default());
            name.and_then(|name| self.sealed.insert(name, computed));
            computed
        };
        self.shift.over_zeros(seed) ^ plain == be32(block, at)
    }
}

/// The state from which the checksum of a logged block of a transaction continues.
pub(super) fn logged_state(format: &LogFormat, sequence: u32) -> u32 {
    crc32c(format.seed, &sequence.to_be_bytes())
}
