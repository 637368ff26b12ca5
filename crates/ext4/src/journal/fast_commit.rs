//! Fast commits: small records of single changes, stored after the log. `fast` replays them.
//!
//! Source: Linux `fs/ext4/fast_commit.h` and `ext4_fc_replay_scan` in `fast_commit.c`. Little-endian.

use crate::byte_fields::le16;

/// Bytes before the value of a record.
pub(crate) const HEAD: usize = 4;

/// Kinds of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastCommitTag {
    /// Blocks are added to a file.
    AddRange = 1,
    /// Blocks are removed from a file.
    DeleteRange,
    /// A new name for a new inode.
    Create,
    /// A new name for an existing inode.
    Link,
    /// A name is removed.
    Unlink,
    /// A whole inode.
    Inode,
    /// Filler up to the end of a block.
    Pad,
    /// The end of a commit, with its checksum.
    Tail,
    /// The start of fast commits, with features and the transaction.
    Head,
}

impl FastCommitTag {
    /// Its number on the disk.
    pub(crate) fn number(self) -> u16 {
        self as u16
    }

    /// The smallest length of its value in bytes.
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
pub(crate) fn tag(number: u16) -> Option<FastCommitTag> {
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

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastCommitRecord<'a> {
    /// Its kind.
    pub tag: FastCommitTag,
    /// Its value.
    pub value: &'a [u8],
    /// Its offset in the block, in bytes.
    pub offset: usize,
}

/// Iterates over the records of a block of fast commits; ends at the first invalid one.
#[derive(Clone, Debug)]
pub struct FastCommitRecords<'a> {
    block: &'a [u8],
    at: usize,
}

impl<'a> FastCommitRecords<'a> {
    /// The records of a block.
    pub fn new(block: &'a [u8]) -> Self {
        Self { block, at: 0 }
    }
}

impl<'a> Iterator for FastCommitRecords<'a> {
    type Item = FastCommitRecord<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let offset = self.at;
        let rest = self.block.get(offset..).filter(|rest| rest.len() >= HEAD)?;
        let tag = tag(le16(rest, 0))?;
        let length = usize::from(le16(rest, 2));
        let value = rest.get(HEAD..HEAD + length).filter(|_| length >= tag.least())?;
        self.at += HEAD + length;
        Some(FastCommitRecord { tag, value, offset })
    }
}
