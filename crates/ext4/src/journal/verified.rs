//! Checksums of blocks of the log, each computed once per version of a block where the disk names its contents.

use rustc_hash::FxHashMap;

use emmclab_base::Result;

use super::records::{COMMIT_CHECKSUM_AT, LogFormat, TAIL};
use crate::blocks::Blocks;
use crate::bytes::be32;
use crate::checksum::{Shift, crc32c};
use crate::structure::Structure;

/// Checksums of logged blocks by their contents, from state 0 on: they hold for any journal and transaction.
pub(super) struct Verified {
    known: FxHashMap<u64, u32>,
    shift: Shift,
    block: Vec<u8>,
}

impl Verified {
    pub fn new() -> Self {
        Self { known: FxHashMap::default(), shift: Shift::new(0), block: Vec::new() }
    }

    /// Begins with blocks of another size; what is known of the others is dropped.
    pub fn set_block_size(&mut self, bytes: usize) {
        if self.shift.bytes() != bytes {
            self.known.clear();
            self.shift = Shift::new(bytes);
            self.block.resize(bytes, 0);
        }
    }

    pub fn len(&self) -> usize {
        self.known.len()
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
        let plain = if let Some(known) = name.and_then(|name| self.known.get(&name)) {
            *known
        } else {
            structure.read(disk, offset, &mut self.block)?;
            let computed = crc32c(0, &self.block);
            name.and_then(|name| self.known.insert(name, computed));
            computed
        };
        Ok(self.shift.over_zeros(state) ^ plain)
    }
}

/// The state that the checksum of a logged block of a transaction goes on from.
pub(super) fn logged_state(format: &LogFormat, sequence: u32) -> u32 {
    crc32c(format.seed, &sequence.to_be_bytes())
}

/// Whether the checksum at the end of a descriptor or revoke block holds; blocks without one hold.
pub(super) fn tail_holds(format: &LogFormat, block: &[u8]) -> bool {
    let Some(body) = block.len().checked_sub(TAIL).filter(|_| format.checksums.per_block()) else {
        return true;
    };
    crc32c(crc32c(format.seed, &block[..body]), &[0; TAIL]) == be32(block, body)
}

/// Whether the checksum of a commit block holds; blocks without one hold.
pub(super) fn commit_holds(format: &LogFormat, block: &[u8]) -> bool {
    if !format.checksums.per_block() {
        return true;
    }
    let after = block.get(COMMIT_CHECKSUM_AT + 4..).unwrap_or_default();
    let state = crc32c(format.seed, block.get(..COMMIT_CHECKSUM_AT).unwrap_or_default());
    crc32c(crc32c(state, &[0; 4]), after) == be32(block, COMMIT_CHECKSUM_AT)
}
