//! The format of the journal's blocks: its superblock; descriptors with their tags, revoke blocks and commit blocks of the log; and fast
//! commits, which are small records of single changes after the log (little-endian; Linux `fs/ext4/fast_commit.h`).

use bitflags::bitflags;
use emmclab_base::Result;

use crate::disk::{DiskStructure, be16, be32, be64, crc32c, le16, uuid};

/// Number of bytes that the checksum of the journal superblock covers.
pub(crate) const JOURNAL_SUPERBLOCK_BYTES: usize = 1024;
const CHECKSUM_AT: usize = 0xFC;
const CRC32C: u8 = 4;
/// Number of blocks for fast commits if the field in the superblock is 0.
const DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;
/// Minimum number of blocks of a journal, without those for fast commits.
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
    /// One checksum per transaction, in its commit block: CRC-32 of its descriptors and logged blocks.
    V1,
    /// One checksum per block, CRC32C. The checksum of a logged block is in its tag, which has only the low 16 bits.
    V2,
    /// One checksum per block, CRC32C. The checksum of a logged block is in its tag.
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
    /// The block after the last block of the log. The blocks for fast commits start one block later.
    pub end: u32,
    /// The first transaction that must be replayed.
    pub sequence: u32,
    /// The block in which transaction `sequence` starts; 0 if the log is empty.
    pub start: u32,
    /// The error that stopped the journal; 0 if there is none.
    pub error: i32,
    /// Features that a reader must support.
    pub features: JournalFeatures,
    /// The kind of checksums in the log.
    pub checksums: JournalChecksums,
    /// UUID of the journal, the seed of its checksums.
    pub uuid: [u8; 16],
    pub(super) seed: u32,
}

impl JournalSuperblock {
    /// Parses a journal superblock of 1,024 bytes or more, which is at byte `offset` of the disk.
    /// Errors: if Linux would refuse to mount the journal: a bad magic number, checksum, size or start, or unsupported features, which the
    /// error lists.
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
            let problem = format!("unknown features of the journal: incompatible {unknown:#x}, read-only {ro_compat:#x}");
            return Err(structure.unsupported(offset + 0x28, problem));
        }
        let features = JournalFeatures::from_bits_retain(incompat);
        let v1 = compat & 1 != 0;
        let checksums = match (features.contains(JournalFeatures::CSUM_V2), features.contains(JournalFeatures::CSUM_V3)) {
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
                format!("the first transaction starts at block {}, but the journal has {} blocks", out.start, out.blocks),
            );
        }
        Ok(out)
    }
}

/// Changes a journal superblock to that of an empty log, whose next transaction is `sequence`.
pub(super) fn empty_log(bytes: &mut [u8; JOURNAL_SUPERBLOCK_BYTES], sequence: u32) {
    bytes[0x18..0x1C].copy_from_slice(&sequence.to_be_bytes());
    bytes[0x1C..0x20].fill(0);
    if be32(bytes, 0x28) & (JournalFeatures::CSUM_V2 | JournalFeatures::CSUM_V3).bits() != 0 {
        let checksum = superblock_checksum(bytes);
        bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_be_bytes());
    }
}

fn superblock_checksum(bytes: &[u8]) -> u32 {
    let (before, after) = (bytes.get(..CHECKSUM_AT), bytes.get(CHECKSUM_AT + 4..JOURNAL_SUPERBLOCK_BYTES));
    let state = crc32c(crc32c(!0, before.unwrap_or_default()), &[0; 4]);
    crc32c(state, after.unwrap_or_default())
}

/// First word of every block of the log except logged blocks.
pub const JOURNAL_MAGIC: u32 = 0xC03B_3998;
/// Number of bytes in the header of descriptor, revoke and commit blocks.
const HEADER: usize = 12;
/// Number of bytes in the header of revoke blocks.
const REVOKE_HEADER: usize = 16;
/// Number of bytes of the checksum at the end of descriptor and revoke blocks.
pub(super) const TAIL: usize = 4;
pub(super) const COMMIT_CHECKSUM_AT: usize = 0x10;

bitflags! {
    /// Flags of a tag.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct JournalTagFlags: u16 {
        /// The logged block starts with the journal's magic number. In the journal, zeros replace this number.
        const ESCAPE = 1;
        /// No UUID follows the tag.
        const SAME_UUID = 2;
        /// The block was deleted by this transaction. No known version writes this flag, and Linux ignores it.
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

/// The header of every block of the log except logged blocks.
#[derive(Clone, Copy)]
pub(crate) struct JournalBlockHeader {
    pub kind: JournalBlockKind,
    pub sequence: u32,
}

impl JournalBlockHeader {
    /// Parses the header of a block; `None` if the block has no magic number.
    pub fn parse(block: &[u8]) -> Option<Self> {
        let kind = match be32(block, 4) {
            _ if be32(block, 0) != JOURNAL_MAGIC => return None,
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

/// The format of the blocks of a log, as specified by the journal superblock.
#[derive(Clone, Copy, Debug)]
pub struct LogFormat {
    pub(super) block_size: usize,
    pub(super) checksums: JournalChecksums,
    pub(super) seed: u32,
    wide: bool,
}

/// A block of the log other than a logged block.
#[derive(Clone, Debug)]
pub struct JournalRecord<'a> {
    /// The transaction to which the block belongs.
    pub sequence: u32,
    /// The contents of the block.
    pub kind: JournalRecordKind<'a>,
}

/// The contents of a block of the log other than a logged block.
#[derive(Clone, Debug)]
pub enum JournalRecordKind<'a> {
    /// The home blocks of the logged blocks that follow the descriptor.
    Descriptor(JournalTags<'a>),
    /// Blocks whose older copies in the log must not be replayed.
    Revoke(RevokedBlocks<'a>),
    /// The commit block that ends a transaction.
    Commit(CommitBlock),
}

/// The contents of a commit block, which ends a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitBlock {
    /// Time of the commit: seconds since 1970.
    pub seconds: u64,
    /// Nanoseconds of the time of the commit, in addition to `seconds`.
    pub nanoseconds: u32,
    pub(super) checksum_type: u8,
    pub(super) checksum_size: u8,
    pub(super) checksum: u32,
}

/// The description of one logged block in a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalTag {
    /// The home block, as a block of the file system.
    pub block: u64,
    /// Flags, for example whether the logged block was escaped.
    pub flags: JournalTagFlags,
    pub(super) checksum: u32,
}

impl CommitBlock {
    /// Whether a transaction is intact according to its checksum of version 1. Without a stored checksum, it counts as intact.
    pub(super) fn matches_v1(&self, computed: u32) -> bool {
        match (self.checksum_type, self.checksum_size) {
            (1, 4) => self.checksum == computed,
            (0, 0) => self.checksum == 0,
            _ => false,
        }
    }
}

impl JournalTag {
    /// Whether the checksum of the logged block equals the checksum in this tag.
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

    /// Parses a block of the log; `None` if it is not a descriptor, revoke or commit block. Logged blocks that start with the magic number
    /// are escaped, so they are never mistaken for one of these.
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

    /// Number of bytes at the end of descriptor and revoke blocks that are reserved for the checksum.
    fn tail(&self) -> usize {
        if self.checksums.per_block() { TAIL } else { 0 }
    }

    /// Number of bytes in a tag without its UUID.
    fn tag_bytes(&self) -> usize {
        match (self.checksums, self.wide) {
            (JournalChecksums::V3, _) => 16,
            // Linux adds the size of the checksum to the tag size, although the checksum is stored in two unused bytes of the tag.
            (JournalChecksums::V2, true) => 14,
            (JournalChecksums::V2, false) => 10,
            (_, true) => 12,
            (_, false) => 8,
        }
    }
}

/// The tags of a descriptor, in the order of the logged blocks that follow it.
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
        let checksum = if self.format.checksums == JournalChecksums::V3 { be32(bytes, 12) } else { be16(bytes, 4).into() };
        let high = if self.format.wide { be32(bytes, 8) } else { 0 };
        self.at += size + if flags.contains(JournalTagFlags::SAME_UUID) { 0 } else { 16 };
        if flags.contains(JournalTagFlags::LAST) {
            self.at = self.bytes.len();
        }
        Some(JournalTag { block: u64::from(high) << 32 | u64::from(be32(bytes, 0)), flags, checksum })
    }
}

/// The blocks that a revoke block lists.
#[derive(Clone, Debug)]
pub struct RevokedBlocks<'a> {
    bytes: &'a [u8],
    entry_bytes: usize,
    /// Whether the length field of the block exceeds the size of the block.
    pub(super) overlong: bool,
}

impl Iterator for RevokedBlocks<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let (entry, rest) = self.bytes.split_at_checked(self.entry_bytes)?;
        self.bytes = rest;
        Some(if self.entry_bytes == 8 { be64(entry, 0) } else { be32(entry, 0).into() })
    }
}

/// Number of bytes in a record before its value.
pub(crate) const FAST_COMMIT_HEAD: usize = 4;

/// Kinds of records of fast commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastCommitTag {
    /// Blocks are added to a file.
    AddRange = 1,
    /// Blocks are removed from a file.
    DeleteRange,
    /// A new name is added for a new inode.
    Create,
    /// A new name is added for an existing inode.
    Link,
    /// A name is removed.
    Unlink,
    /// The contents of a whole inode.
    Inode,
    /// Padding up to the end of a block.
    Pad,
    /// The end of a commit, with its checksum.
    Tail,
    /// The start of fast commits, with features and transaction.
    Head,
}

impl FastCommitTag {
    pub(crate) fn number(self) -> u16 {
        self as u16
    }

    /// Minimum length of the value in bytes.
    fn least(self) -> usize {
        match self {
            Self::AddRange => 16,
            Self::DeleteRange => 12,
            Self::Create | Self::Link | Self::Unlink | Self::Tail | Self::Head => 8,
            Self::Inode => 4,
            Self::Pad => 0,
        }
    }
}

/// The kind of record with this number on the disk.
pub(crate) fn fast_commit_tag(number: u16) -> Option<FastCommitTag> {
    let all = [
        FastCommitTag::AddRange,
        FastCommitTag::DeleteRange,
        FastCommitTag::Create,
        FastCommitTag::Link,
        FastCommitTag::Unlink,
        FastCommitTag::Inode,
        FastCommitTag::Pad,
        FastCommitTag::Tail,
        FastCommitTag::Head,
    ];
    all.into_iter().find(|tag| tag.number() == number)
}

/// A record of a fast commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastCommitRecord<'a> {
    /// The kind of the record.
    pub tag: FastCommitTag,
    /// The value of the record.
    pub value: &'a [u8],
    /// Offset of the record in its block, in bytes.
    pub offset: usize,
}

/// Iterates over the records of a block of fast commits, and ends at the first invalid record.
#[derive(Clone, Debug)]
pub struct FastCommitRecords<'a> {
    block: &'a [u8],
    at: usize,
}

impl<'a> FastCommitRecords<'a> {
    /// Creates an iterator over the records of a block.
    pub fn new(block: &'a [u8]) -> Self {
        Self { block, at: 0 }
    }
}

impl<'a> Iterator for FastCommitRecords<'a> {
    type Item = FastCommitRecord<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let offset = self.at;
        let rest = self.block.get(offset..).filter(|rest| rest.len() >= FAST_COMMIT_HEAD)?;
        let tag = fast_commit_tag(le16(rest, 0))?;
        let length = usize::from(le16(rest, 2));
        let value = rest.get(FAST_COMMIT_HEAD..FAST_COMMIT_HEAD + length).filter(|_| length >= tag.least())?;
        self.at += FAST_COMMIT_HEAD + length;
        Some(FastCommitRecord { tag, value, offset })
    }
}
