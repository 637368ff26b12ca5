//! Fast commits: small records of single changes behind the log. They are recognised, not replayed.
//!
//! Source: Linux `fs/ext4/fast_commit.h` and `ext4_fc_replay_scan` in `fast_commit.c`. Little-endian.

use crate::bytes::{le16, le32};

/// Bytes before the value of a record.
const HEAD: usize = 4;

/// Kinds of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastCommitTag {
    /// Blocks that a file got.
    AddRange,
    /// Blocks that a file lost.
    DeleteRange,
    /// A new name of a new inode.
    Create,
    /// A new name.
    Link,
    /// A name removed.
    Unlink,
    /// An inode as a whole.
    Inode,
    /// Filler up to the end of a block.
    Pad,
    /// The end of a commit, with its checksum.
    Tail,
    /// The beginning, with features and the transaction.
    Head,
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastCommitRecord<'a> {
    /// Its kind.
    pub tag: FastCommitTag,
    /// Its value.
    pub value: &'a [u8],
    /// Where it starts in its block, in bytes.
    pub offset: usize,
}

/// The records of a block of fast commits; ends at the first that is none.
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
        let rest = self.block.get(offset..).filter(|rest| rest.len() > HEAD)?;
        let (tag, least) = match le16(rest, 0) {
            1 => (FastCommitTag::AddRange, 16),
            2 => (FastCommitTag::DeleteRange, 12),
            3 => (FastCommitTag::Create, 8),
            4 => (FastCommitTag::Link, 8),
            5 => (FastCommitTag::Unlink, 8),
            6 => (FastCommitTag::Inode, 4),
            7 => (FastCommitTag::Pad, 0),
            8 => (FastCommitTag::Tail, 8),
            9 => (FastCommitTag::Head, 8),
            _ => return None,
        };
        let length = usize::from(le16(rest, 2));
        let value = rest.get(HEAD..HEAD + length).filter(|_| length >= least)?;
        self.at += HEAD + length;
        Some(FastCommitRecord { tag, value, offset })
    }
}

/// Whether a block begins a fast commit on top of the log that ends before transaction `sequence`. Older ones are ignored by
/// Linux, too.
pub(super) fn begins(block: &[u8], sequence: u32) -> bool {
    let first = FastCommitRecords::new(block).next();
    first.is_some_and(|record| record.tag == FastCommitTag::Head && le32(record.value, 4) == sequence)
}
