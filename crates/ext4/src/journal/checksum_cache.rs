//! Checksums of blocks of the log. If the disk identifies the contents of its blocks, each checksum is computed once for each
//! content.

use rustc_hash::FxHashMap;

use emmclab_base::Result;

use super::records::LogFormat;
use crate::byte_fields::be32;
use crate::checksum::{CrcShift, crc32c};
use crate::disk_reader::DiskReader;
use crate::disk_structure::DiskStructure;

/// Checksums of blocks from state 0, by the identification of their contents; they are valid for any journal and transaction.
pub(super) struct ChecksumCache {
    logged: FxHashMap<u64, u32>,
    /// Checksums of descriptor, revoke and commit blocks, with zeros in place of the stored checksum.
    checksummed: FxHashMap<u64, u32>,
    shift: CrcShift,
    block: Vec<u8>,
}

impl ChecksumCache {
    pub fn new() -> Self {
        let (logged, sealed) = (FxHashMap::default(), FxHashMap::default());
        Self { logged, checksummed: sealed, shift: CrcShift::new(0), block: Vec::new() }
    }

    /// Sets the size of the blocks; a change drops the known checksums.
    pub fn set_block_size(&mut self, bytes: usize) {
        if self.shift.bytes() != bytes {
            self.logged.clear();
            self.checksummed.clear();
            self.shift = CrcShift::new(bytes);
            self.block.resize(bytes, 0);
        }
    }

    /// Returns the checksum of a logged block at byte `offset` of the disk, continued from `state`.
    pub fn logged(&mut self, disk: &dyn DiskReader, offset: u64, structure: DiskStructure, state: u32) -> Result<u32> {
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
    pub fn seal_holds(&mut self, disk: &dyn DiskReader, offset: u64, block: &[u8], at: usize, seed: u32) -> bool {
        let name = disk.content(offset, block.len());
        let plain = if let Some(known) = name.and_then(|name| self.checksummed.get(&name)) {
            *known
        } else {
            let state = crc32c(0, block.get(..at).unwrap_or_default());
            let computed = crc32c(crc32c(state, &[0; 4]), block.get(at + 4..).unwrap_or_default());
            name.and_then(|name| self.checksummed.insert(name, computed));
            computed
        };
        self.shift.over_zeros(seed) ^ plain == be32(block, at)
    }
}

/// The state from which the checksum of a logged block of a transaction continues.
pub(super) fn logged_state(format: &LogFormat, sequence: u32) -> u32 {
    crc32c(format.seed, &sequence.to_be_bytes())
}
