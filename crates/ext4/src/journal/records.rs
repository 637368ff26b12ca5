//! Blocks of the log, one at a time: descriptors with their tags, revoke blocks and commit blocks.

use bitflags::bitflags;

use super::superblock::{JournalChecksums, JournalFeatures, JournalSuperblock};
use crate::byte_fields::{be16, be32, be64};

/// First word of every block of the log that is not a logged block.
pub const MAGIC: u32 = 0xC03B_3998;
/// Bytes of the header of descriptor, revoke and commit blocks.
const HEADER: usize = 12;
/// Bytes of the header of revoke blocks.
const REVOKE_HEADER: usize = 16;
/// Bytes of the checksum at the end of descriptor and revoke blocks.
pub(super) const TAIL: usize = 4;
pub(super) const COMMIT_CHECKSUM_AT: usize = 0x10;

bitflags! {
    /// Flags of a tag.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct JournalTagFlags: u16 {
        /// The logged block starts with the journal's magic number, and zeros were written in its place.
        const ESCAPE = 1;
        /// No UUID follows the tag.
        const SAME_UUID = 2;
        /// The block was deleted by this transaction; written by no known version, and ignored by Linux.
        const DELETED = 4;
        /// The last tag of the descriptor.
        const LAST = 8;
        const _ = !0;
    }
}

/// Types of blocks that start with the journal's magic number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JournalBlockKind {
    Descriptor,
    Commit,
    SuperblockV1,
    SuperblockV2,
    Revoke,
    Unknown,
}

/// The header of every block of the log that is not a logged block.
#[derive(Clone, Copy)]
pub(crate) struct JournalBlockHeader {
    pub kind: JournalBlockKind,
    pub sequence: u32,
}

impl JournalBlockHeader {
    /// The header of a block; `None` without the magic number.
    pub fn parse(block: &[u8]) -> Option<Self> {
        let kind = match be32(block, 4) {
            _ if be32(block, 0) != MAGIC => return None,
            1 => JournalBlockKind::Descriptor,
            2 => JournalBlockKind::Commit,
            3 => JournalBlockKind::SuperblockV1,
            4 => JournalBlockKind::SuperblockV2,
            5 => JournalBlockKind::Revoke,
            _ => JournalBlockKind::Unknown,
        };
        Some(Self { kind, sequence: be32(block, 8) })
    }
}

/// The format of the log's blocks, as specified by the journal superblock.
#[derive(Clone, Copy, Debug)]
pub struct LogFormat {
    pub(super) block_size: usize,
    pub(super) checksums: JournalChecksums,
    pub(super) seed: u32,
    wide: bool,
}

/// A block of the log that is not a logged block.
#[derive(Clone, Debug)]
pub struct JournalRecord<'a> {
    /// The transaction to which it belongs.
    pub sequence: u32,
    /// Its contents.
    pub kind: JournalRecordKind<'a>,
}

/// The contents of a block of the log.
#[derive(Clone, Debug)]
pub enum JournalRecordKind<'a> {
    /// The homes of the logged blocks that follow it.
    Descriptor(JournalTags<'a>),
    /// Blocks whose older copies in the log must not be replayed.
    Revoke(RevokedBlocks<'a>),
    /// The end of a transaction.
    Commit(CommitBlock),
}

/// The end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitBlock {
    /// Time of the commit: seconds since 1970.
    pub seconds: u64,
    /// Nanoseconds of the time.
    pub nanoseconds: u32,
    pub(super) checksum_type: u8,
    pub(super) checksum_size: u8,
    pub(super) checksum: u32,
}

/// One logged block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalTag {
    /// Its home, as a block of the file system.
    pub block: u64,
    /// Flags, for example whether the block was escaped.
    pub flags: JournalTagFlags,
    pub(super) checksum: u32,
}

impl CommitBlock {
    /// Whether a transaction with this checksum of version 1 is intact; without a stored checksum, it counts as intact.
    pub(super) fn matches_v1(&self, computed: u32) -> bool {
        match (self.checksum_type, self.checksum_size) {
            (1, 4) => self.checksum == computed,
            (0, 0) => self.checksum == 0,
            _ => false,
        }
    }
}

impl JournalTag {
    /// Whether the checksum of the logged block is the one in this tag.
    pub(super) fn matches(&self, format: &LogFormat, computed: u32) -> bool {
        let computed = if format.checksums == JournalChecksums::V2 { computed & 0xFFFF } else { computed };
        self.checksum == computed
    }
}

impl LogFormat {
    /// The format of the blocks of a journal.
    pub fn new(superblock: &JournalSuperblock) -> Self {
        Self {
            block_size: superblock.block_size as usize,
            checksums: superblock.checksums,
            seed: superblock.seed,
            wide: superblock.features.contains(JournalFeatures::WIDE),
        }
    }

    /// Parses a block of the log; `None` if it is not a descriptor, revoke or commit block. Logged blocks that start with the magic
    /// number are escaped, so none of them is mistaken for one of these.
    pub fn record<'a>(&self, block: &'a [u8]) -> Option<JournalRecord<'a>> {
        let header = JournalBlockHeader::parse(block)?;
        let kind = match header.kind {
            JournalBlockKind::Descriptor => JournalRecordKind::Descriptor(self.tags(block)),
            JournalBlockKind::Revoke => JournalRecordKind::Revoke(self.revoked(block)),
            JournalBlockKind::Commit => JournalRecordKind::Commit(CommitBlock {
                seconds: be64(block, 0x30),
                nanoseconds: be32(block, 0x38),
                checksum_type: block.get(0xC).copied().unwrap_or(0),
                checksum_size: block.get(0xD).copied().unwrap_or(0),
                checksum: be32(block, COMMIT_CHECKSUM_AT),
            }),
            JournalBlockKind::SuperblockV1 | JournalBlockKind::SuperblockV2 | JournalBlockKind::Unknown => {
                return None;
            }
        };
        Some(JournalRecord { sequence: header.sequence, kind })
    }

    pub(super) fn tags<'a>(&self, block: &'a [u8]) -> JournalTags<'a> {
        let end = self.block_size.min(block.len()) - self.tail().min(block.len());
        JournalTags { bytes: &block[..end], at: HEADER, format: *self }
    }

    pub(super) fn revoked<'a>(&self, block: &'a [u8]) -> RevokedBlocks<'a> {
        let room = self.block_size.min(block.len()).saturating_sub(self.tail());
        let used = be32(block, HEADER) as usize;
        let bytes = block.get(REVOKE_HEADER..used.min(room)).unwrap_or_default();
        RevokedBlocks { bytes, entry_bytes: if self.wide { 8 } else { 4 }, overlong: used > room }
    }

    /// Bytes at the end of descriptor and revoke blocks that are reserved for the checksum.
    fn tail(&self) -> usize {
        if self.checksums.per_block() { TAIL } else { 0 }
    }

    /// Bytes of a tag without its UUID.
    fn tag_bytes(&self) -> usize {
        match (self.checksums, self.wide) {
            (JournalChecksums::V3, _) => 16,
            // Linux adds the size of the checksum, although the checksum is stored in two bytes that were unused.
            (JournalChecksums::V2, true) => 14,
            (JournalChecksums::V2, false) => 10,
            (_, true) => 12,
            (_, false) => 8,
        }
    }
}

/// The tags of a descriptor, in the order of the logged blocks after it.
#[derive(Clone, Debug)]
pub struct JournalTags<'a> {
    bytes: &'a [u8],
    at: usize,
    format: LogFormat,
}

impl Iterator for JournalTags<'_> {
    type Item = JournalTag;

    fn next(&mut self) -> Option<JournalTag> {
        let size = self.format.tag_bytes();
        let bytes = self.bytes.get(self.at..)?.get(..size)?;
        let flags = JournalTagFlags::from_bits_retain(be16(bytes, 6));
        let checksum =
            if self.format.checksums == JournalChecksums::V3 { be32(bytes, 12) } else { be16(bytes, 4).into() };
        let high = if self.format.wide { be32(bytes, 8) } else { 0 };
        self.at += size + if flags.contains(JournalTagFlags::SAME_UUID) { 0 } else { 16 };
        if flags.contains(JournalTagFlags::LAST) {
            self.at = self.bytes.len();
        }
        Some(JournalTag { block: u64::from(high) << 32 | u64::from(be32(bytes, 0)), flags, checksum })
    }
}

/// The blocks to which a revoke block refers.
#[derive(Clone, Debug)]
pub struct RevokedBlocks<'a> {
    bytes: &'a [u8],
    entry_bytes: usize,
    overlong: bool,
}

impl RevokedBlocks<'_> {
    /// Whether the block claims to use more bytes than it has.
    pub fn is_overlong(&self) -> bool {
        self.overlong
    }
}

impl Iterator for RevokedBlocks<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let (entry, rest) = self.bytes.split_at_checked(self.entry_bytes)?;
        self.bytes = rest;
        Some(if self.entry_bytes == 8 { be64(entry, 0) } else { be32(entry, 0).into() })
    }
}
