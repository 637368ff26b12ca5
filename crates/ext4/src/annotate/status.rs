//! The status of an annotator.

use std::fmt;

use emmclab_base::{Error, ErrorClass};

use crate::byte_fields::le16;
use crate::superblock::MAGIC;

/// How much an [`crate::Annotator`] knows about the file system, and why writes are not classified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AnnotatorStatus {
    /// No superblock of ext4 was seen; all writes count as data.
    NoFilesystem,
    /// The superblock is damaged; all writes count as data.
    Damaged,
    /// The file system has unsupported features, or an unsupported size; all writes count as data.
    Unsupported,
    /// The file system has no journal; metadata is classified by its place.
    NoJournal,
    /// The journal was not found yet; metadata is classified by its place.
    JournalUnknown,
    /// The journal is on another device, which is not observed; metadata is classified by its location.
    JournalElsewhere,
    /// The inode or the superblock of the journal is damaged; blocks of the journal count as data.
    JournalDamaged,
    /// The journal has unsupported features; its blocks count as data.
    JournalUnsupported,
    /// The log of an earlier mount waits for its replay, or is being replayed; all writes are classified.
    Recovering,
    /// All writes are classified.
    Following,
}

impl AnnotatorStatus {
    /// The status for a superblock of these bytes that was refused with this error.
    pub(super) fn of_superblock(bytes: &[u8], error: &Error) -> Self {
        match error.kind() {
            _ if le16(bytes, 0x38) != MAGIC => Self::NoFilesystem,
            ErrorClass::Unsupported => Self::Unsupported,
            _ => Self::Damaged,
        }
    }
}

impl fmt::Display for AnnotatorStatus {
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
            Self::Recovering => "the log of an earlier mount must be replayed",
            Self::Following => "ext4 with a journal",
        })
    }
}
