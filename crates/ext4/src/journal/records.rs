//! Blocks of the log, one at a time: descriptors with their tags, revoke blocks and commit blocks.

use bitflags::bitflags;

use super::superblock::{Checksums, JournalFeatures, JournalSuperblock};
use crate::bytes::{be16, be32, be64};

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
    pub struct TagFlags: u16 {
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
pub(crate) enum Kind {
    Descriptor,
    Commit,
    SuperblockV1,
    SuperblockV2,
    Revoke,
    Unknown,
}

/// The header of every block of the log that is not a logged block.
#[derive(Clone, Copy)]
pub(crate) struct Header {
    pub kind: Kind,
    pub sequence: u32,
}

impl Header {
    /// The header of a block; `None` without the magic number.
    pub fn parse(block: &[u8]) -> Option<Self> {
        let kind = match be32(block, 4) {
            _ if be32(block, 0) != MAGIC => return None,
            1 => Kind::Descriptor,
            2 => Kind::Commit,
            3 => Kind::SuperblockV1,
            4 => Kind::SuperblockV2,
            5 => Kind::Revoke,
            _ => Kind::Unknown,
        };
        Some(Self { kind, sequence: be32(block, 8) })
    }
}

/// The format of the log's blocks, as specified by the journal superblock.
#[derive(Clone, Copy, Debug)]
pub struct LogFormat {
    pub(super) block_size: usize,
    pub(super) checksums: Checksums,
    pub(super) seed: u32,
    wide: bool,
}

/// A block of the log that is not a logged block.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// The transaction to which it belongs.
    pub sequence: u32,
    /// Its contents.
    pub kind: RecordKind<'a>,
}

/// The contents of a block of the log.
#[derive(Clone, Debug)]
pub enum RecordKind<'a> {
    /// The homes of the logged blocks that follow it.
    Descriptor(Tags<'a>),
    /// Blocks whose older copies in the log must not be replayed.
    Revoke(Revoked<'a>),
    /// The end of a transaction.
    Commit(Commit),
}

/// The end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
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
pub struct Tag {
    /// Its home, as a block of the file system.
    pub block: u64,
    /// Flags, for example whether the block was escaped.
    pub flags: TagFlags,
    pub(super) checksum: u32,
}

impl Commit {
    /// Whether a transaction with this checksum of version 1 is intact; without a stored checksum, it counts as intact.
    pub(super) fn matches_v1(&self, computed: u32) -> bool {
        match (self.checksum_type, self.checksum_size) {
            (1, 4) => self.checksum == computed,
            (0, 0) => self.checksum == 0,
            _ => false,
        }
    }
}

impl Tag {
    /// Whether the checksum of the logged block is the one in this tag.
    pub(super) fn matches(&self, format: &LogFormat, computed: u32) -> bool {
        let computed = if format.checksums == Checksums::V2 { computed & 0xFFFF } else { computed };
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
    pub fn record<'a>(&self, block: &'a [u8]) -> Option<Record<'a>> {
        let header = Header::parse(block)?;
        let kind = match header.kind {
            Kind::Descriptor => RecordKind::Descriptor(self.tags(block)),
            Kind::Revoke => RecordKind::Revoke(self.revoked(block)),
            Kind::Commit => RecordKind::Commit(Commit {
                seconds: be64(block, 0x30),
                nanoseconds: be32(block, 0x38),
                checksum_type: block.get(0xC).copied().unwrap_or(0),
                checksum_size: block.get(0xD).copied().unwrap_or(0),
                checksum: be32(block, COMMIT_CHECKSUM_AT),
            }),
            Kind::SuperblockV1 | Kind::SuperblockV2 | Kind::Unknown => return None,
        };
        Some(Record { sequence: header.sequence, kind })
    }

    pub(super) fn tags<'a>(&self, block: &'a [u8]) -> Tags<'a> {
        let end = self.block_size.min(block.len()) - self.tail().min(block.len());
        Tags { bytes: &block[..end], at: HEADER, format: *self }
    }

    pub(super) fn revoked<'a>(&self, block: &'a [u8]) -> Revoked<'a> {
        let room = self.block_size.min(block.len()).saturating_sub(self.tail());
        let used = be32(block, HEADER) as usize;
        let bytes = block.get(REVOKE_HEADER..used.min(room)).unwrap_or_default();
        Revoked { bytes, each: if self.wide { 8 } else { 4 }, overlong: used > room }
    }

    /// Bytes at the end of descriptor and revoke blocks that are reserved for the checksum.
    fn tail(&self) -> usize {
        if self.checksums.per_block() { TAIL } else { 0 }
    }

    /// Bytes of a tag without its UUID.
    fn tag_bytes(&self) -> usize {
        match (self.checksums, self.wide) {
            (Checksums::V3, _) => 16,
            // Linux adds the size of the checksum, although the checksum is stored in two bytes that were unused.
            (Checksums::V2, true) => 14,
            (Checksums::V2, false) => 10,
            (_, true) => 12,
            (_, false) => 8,
        }
    }
}

/// The tags of a descriptor, in the order of the logged blocks after it.
#[derive(Clone, Debug)]
pub struct Tags<'a> {
    bytes: &'a [u8],
    at: usize,
    format: LogFormat,
}

impl Iterator for Tags<'_> {
    type Item = Tag;

    fn next(&mut self) -> Option<Tag> {
        let size = self.format.tag_bytes();
        let bytes = self.bytes.get(self.at..)?.get(..size)?;
        let flags = TagFlags::from_bits_retain(be16(bytes, 6));
        let checksum =
            if self.format.checksums == Checksums::V3 { be32(bytes, 12) } else { be16(bytes, 4).into() };
        let high = if self.format.wide { be32(bytes, 8) } else { 0 };
        self.at += size + if flags.contains(TagFlags::SAME_UUID) { 0 } else { 16 };
        if flags.contains(TagFlags::LAST) {
            self.at = self.bytes.len();
        }
        Some(Tag { block: u64::from(high) << 32 | u64::from(be32(bytes, 0)), flags, checksum })
    }
}

/// The blocks to which a revoke block refers.
#[derive(Clone, Debug)]
pub struct Revoked<'a> {
    bytes: &'a [u8],
    each: usize,
    overlong: bool,
}

impl Revoked<'_> {
    /// Whether the block claims to use more bytes than it has.
    pub fn is_overlong(&self) -> bool {
        self.overlong
    }
}

impl Iterator for Revoked<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let (entry, rest) = self.bytes.split_at_checked(self.each)?;
        self.bytes = rest;
        Some(if self.each == 8 { be64(entry, 0) } else { be32(entry, 0).into() })
    }
}
