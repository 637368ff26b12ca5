//! The journal superblock: the first block of the journal.

use bitflags::bitflags;
use emmclab_base::Result;

use crate::byte_fields::{be32, uuid};
use crate::checksum::crc32c;
use crate::disk_structure::DiskStructure;

use super::records::{JournalBlockHeader, JournalBlockKind};

/// Number of bytes that the checksum covers.
pub(super) const BYTES: usize = 1024;
const CHECKSUM_AT: usize = 0xFC;
const CRC32C: u8 = 4;
/// Number of blocks for fast commits if the superblock states 0.
const DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;
/// Smallest number of blocks of a journal, without the blocks of fast commits.
const MIN_BLOCKS: u32 = 1024;

bitflags! {
    /// Features of a journal that a reader must support.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct JournalFeatures: u32 {
        /// There may be revoke blocks.
        const REVOKE = 1;
        /// Block numbers have 64 bits.
        const WIDE = 2;
        /// A commit block may be written together with its transaction.
        const ASYNC_COMMIT = 4;
        /// Checksums of version 2: 16 bits in each tag.
        const CSUM_V2 = 8;
        /// Checksums of version 3: 32 bits in each tag.
        const CSUM_V3 = 0x10;
        /// The last blocks hold fast commits.
        const FAST_COMMIT = 0x20;
    }
}

/// The kind of checksums in a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalChecksums {
    /// Blocks have no checksum.
    None,
    /// One for each transaction, in the commit block: CRC-32 of its descriptors and logged blocks.
    V1,
    /// One for each block: CRC32C; for a logged block its low 16 bits, in the tag.
    V2,
    /// One for each block: CRC32C.
    V3,
}

impl JournalChecksums {
    /// Whether descriptor, revoke and commit blocks have checksums of their own.
    pub(super) fn per_block(self) -> bool {
        matches!(self, Self::V2 | Self::V3)
    }
}

/// The fields of the journal superblock. Blocks are counted from the start of the journal.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JournalSuperblock {
    /// Size of a block in bytes.
    pub block_size: u32,
    /// Number of blocks of the journal, including those of fast commits.
    pub blocks: u32,
    /// The first block of the log.
    pub first: u32,
    /// The block after the last one of the log; the blocks of fast commits start one block later.
    pub end: u32,
    /// The first transaction that must be replayed.
    pub sequence: u32,
    /// The block where that transaction starts; 0 if the log is empty.
    pub start: u32,
    /// The error that stopped the journal; 0 for none.
    pub error: i32,
    /// Features that a reader must support.
    pub features: JournalFeatures,
    /// The kind of checksums in the log.
    pub checksums: JournalChecksums,
    /// UUID of the journal; checksums start with it.
    pub uuid: [u8; 16],
    pub(super) seed: u32,
}

impl JournalSuperblock {
    /// Parses a journal superblock of 1,024 bytes or more, which is at byte `offset` of the disk.
    ///
    /// # Errors
    ///
    /// Journals that Linux refuses to mount: a bad magic number, checksum, size or start; unsupported features, which are named.
    pub fn parse(bytes: &[u8], offset: u64) -> Result<Self> {
        let structure = DiskStructure::JournalSuperblock;
        let fault = |at: u64, problem: String| Err(structure.fault(offset + at, problem));
        let version = match JournalBlockHeader::parse(bytes).map(|header| header.kind) {
            Some(JournalBlockKind::SuperblockV1) => 1,
            Some(JournalBlockKind::SuperblockV2) => 2,
            _ => return fault(0, "no journal superblock: wrong magic number or type".to_owned()),
        };
        let feature_word = |at| if version == 2 { be32(bytes, at) } else { 0 };
        let (compat, incompat, ro_compat) = (feature_word(0x24), feature_word(0x28), feature_word(0x2C));
        let unknown = incompat & !JournalFeatures::all().bits();
        if unknown != 0 || ro_compat != 0 {
            let problem =
                format!("unknown features of the journal: incompatible {unknown:#x}, read-only {ro_compat:#x}");
            return Err(structure.unsupported(offset + 0x28, problem));
        }
        let features = JournalFeatures::from_bits_retain(incompat);
        let v1 = compat & 1 != 0;
        let checksums = match (features.contains(JournalFeatures::CSUM_V2), features.contains(JournalFeatures::CSUM_V3))
        {
            (false, false) if v1 => JournalChecksums::V1,
            (false, false) => JournalChecksums::None,
            (true, false) if !v1 => JournalChecksums::V2,
            (false, true) if !v1 => JournalChecksums::V3,
            _ => return fault(0x28, "more than one version of checksums".to_owned()),
        };
        if checksums.per_block() {
            let kind = bytes.get(0x50).copied().unwrap_or(0);
            if kind != CRC32C {
                return fault(0x50, format!("checksum type {kind} is unknown, 4 (crc32c) is known"));
            }
            let (stored, computed) = (be32(bytes, CHECKSUM_AT), superblock_checksum(bytes));
            if stored != computed {
                return Err(structure.bad_checksum(offset, stored, computed));
            }
        }
        let uuid = uuid(bytes, 0x30);
        let blocks = be32(bytes, 0x10);
        let fast = if features.contains(JournalFeatures::FAST_COMMIT) {
            match be32(bytes, 0x54) {
                0 => DEFAULT_FAST_COMMIT_BLOCKS,
                some => some,
            }
        } else {
            0
        };
        let out = Self {
            block_size: be32(bytes, 0xC),
            blocks,
            first: be32(bytes, 0x14),
            end: blocks.saturating_sub(fast),
            sequence: be32(bytes, 0x18),
            start: be32(bytes, 0x1C),
            error: be32(bytes, 0x20).cast_signed(),
            features,
            checksums,
            uuid,
            seed: crc32c(!0, &uuid),
        };
        if fast > 0 && u64::from(fast) + u64::from(MIN_BLOCKS) > u64::from(blocks) {
            return fault(0x54, format!("{fast} blocks of {blocks} for fast commits leave less than {MIN_BLOCKS}"));
        }
        if out.first == 0 || out.first >= out.end {
            return fault(
                0x14,
                format!("the first block of the log is {}; it must be 1 or more and below {}", out.first, out.end),
            );
        }
        if out.start >= out.blocks {
            return fault(
                0x1C,
                format!(
                    "the first transaction starts at block {}, but the journal has {} blocks",
                    out.start, out.blocks
                ),
            );
        }
        Ok(out)
    }
}

/// Changes a journal superblock to that of an empty log whose next transaction is `sequence`.
pub(super) fn empty_log(bytes: &mut [u8; BYTES], sequence: u32) {
    bytes[0x18..0x1C].copy_from_slice(&sequence.to_be_bytes());
    bytes[0x1C..0x20].fill(0);
    if be32(bytes, 0x28) & (JournalFeatures::CSUM_V2 | JournalFeatures::CSUM_V3).bits() != 0 {
        let checksum = superblock_checksum(bytes);
        bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_be_bytes());
    }
}

fn superblock_checksum(bytes: &[u8]) -> u32 {
    let (before, after) = (bytes.get(..CHECKSUM_AT), bytes.get(CHECKSUM_AT + 4..BYTES));
    let state = crc32c(crc32c(!0, before.unwrap_or_default()), &[0; 4]);
    crc32c(state, after.unwrap_or_default())
}
