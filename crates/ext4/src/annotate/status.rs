//! How far an annotator knows the file system.

use std::fmt;

use emmclab_base::{Error, Kind};

use crate::bytes::le16;
use crate::superblock::MAGIC;

/// How far an [`crate::Annotator`] knows the file system, and why writes are not named where they are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// No superblock of ext4 was seen; all writes are data.
    NoFilesystem,
    /// The superblock is damaged; all writes are data.
    Damaged,
    /// The file system has features, or a size, that are not known here; all writes are data.
    Unsupported,
    /// The file system has no journal; metadata is named by its place.
    NoJournal,
    /// The journal was not found yet; metadata is named by its place.
    JournalUnknown,
    /// The journal is on another device, which was not seen; metadata is named by its place.
    JournalElsewhere,
    /// The journal is damaged: its inode, or its superblock; its blocks are data.
    JournalDamaged,
    /// The journal has features that are not known here; its blocks are data.
    JournalUnsupported,
    /// The log of an earlier run waits for its replay, or is being replayed; all writes are named.
    Recovering,
    /// All writes are named.
    Following,
}

impl Status {
    /// Whether the blocks of the journal are named.
    pub const fn names_journal(self) -> bool {
        matches!(self, Self::Recovering | Self::Following)
    }

    /// Why a superblock of these bytes is refused with this error.
    pub(super) fn of_superblock(bytes: &[u8], error: &Error) -> Self {
        match error.kind() {
            _ if le16(bytes, 0x38) != MAGIC => Self::NoFilesystem,
            Kind::Unsupported => Self::Unsupported,
            _ => Self::Damaged,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoFilesystem => "no ext4 file system",
            Self::Damaged => "the superblock of the file system is damaged",
            Self::Unsupported => "the file system has unknown features",
            Self::NoJournal => "the file system has no journal",
            Self::JournalUnknown => "the journal was not found yet",
            Self::JournalElsewhere => "the journal is on another device",
            Self::JournalDamaged => "the journal is damaged",
            Self::JournalUnsupported => "the journal has unknown features",
            Self::Recovering => "the log of an earlier run is to be replayed",
            Self::Following => "ext4 with a journal",
        })
    }
}
