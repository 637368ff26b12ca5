//! Checksums of blocks of the log, each computed once per version of a block where the disk names its contents.

use rustc_hash::FxHashMap;

use emmclab_base::Result;

use super::records::LogFormat;
use crate::blocks::Blocks;
use crate::bytes::be32;
use crate::checksum::{Shift, crc32c};
use crate::structure::Structure;

/// Checksums of blocks by the name of their contents, from state 0 on: they hold for any journal and transaction.
pub(super) struct Verified {
    logged: FxHashMap<u64, u32>,
    /// Of descriptor, revoke and commit blocks, with zeros for the checksum in them.
    sealed: FxHashMap<u64, u32>,
    shift: Shift,
    block: Vec<u8>,
}

impl Verified {
    pub fn new() -> Self {
        let (logged, sealed) = (FxHashMap::default(), FxHashMap::default());
        Self { logged, sealed, shift: Shift::new(0), block: Vec::new() }
    }

    /// Begins with blocks of another size; what is known of the others is dropped.
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

    /// The checksum of a logged block at byte `offset`, from `state` on.
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

    /// Whether the checksum in a block holds, which stands at byte `at` of it; the block was read from byte `offset`.
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

/// The state that the checksum of a logged block of a transaction goes on from.
pub(super) fn logged_state(format: &LogFormat, sequence: u32) -> u32 {
    crc32c(format.seed, &sequence.to_be_bytes())
}
