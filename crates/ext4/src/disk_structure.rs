//! Names of structures on disk, for errors, and the errors themselves.

use std::fmt;
use std::io;

use emmclab_base::{Error, ErrorClass, Result};

use crate::disk_reader::DiskReader;

/// A structure on disk, as it is named in an error.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DiskStructure {
    Superblock,
    Group(u32),
    BlockBitmap(u32),
    InodeBitmap(u32),
    Inode(u32),
    ExtentBlock(u32),
    IndirectBlock(u32),
    Directory(u32),
    Attributes(u32),
    Data(u32),
    JournalDevice,
    JournalSuperblock,
    /// A block of the journal, by its number in the journal.
    JournalBlock(u64),
    FastCommit(u64),
    /// A replayed block of the file system.
    HomeBlock(u64),
}

impl fmt::Display for DiskStructure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Superblock => f.write_str("superblock"),
            Self::Group(group) => write!(f, "descriptor of block group {group}"),
            Self::BlockBitmap(group) => write!(f, "block bitmap of group {group}"),
            Self::InodeBitmap(group) => write!(f, "inode bitmap of group {group}"),
            Self::Inode(inode) => write!(f, "inode {inode}"),
            Self::ExtentBlock(inode) => write!(f, "extent block of inode {inode}"),
            Self::IndirectBlock(inode) => write!(f, "indirect block of inode {inode}"),
            Self::Directory(inode) => write!(f, "directory block of inode {inode}"),
            Self::Attributes(inode) => write!(f, "attributes of inode {inode}"),
            Self::Data(inode) => write!(f, "data of inode {inode}"),
            Self::JournalDevice => f.write_str("superblock of the journal device"),
            Self::JournalSuperblock => f.write_str("journal superblock"),
            Self::JournalBlock(block) => write!(f, "journal block {block}"),
            Self::FastCommit(block) => write!(f, "fast-commit block {block} of the journal"),
            Self::HomeBlock(block) => write!(f, "replayed block {block}"),
        }
    }
}

impl DiskStructure {
    /// An error: the value at byte `offset` is impossible.
    pub fn fault(self, offset: u64, problem: impl Into<String>) -> Error {
        Error::new(ErrorClass::Value, problem).in_field(&self.to_string()).at_offset(offset)
    }

    /// An error: the value at byte `offset` may be valid, but is not supported here.
    pub fn unsupported(self, offset: u64, problem: impl Into<String>) -> Error {
        Error::new(ErrorClass::Unsupported, problem).in_field(&self.to_string()).at_offset(offset)
    }

    /// An error: the checksum of the structure at byte `offset` is wrong.
    pub fn bad_checksum(self, offset: u64, stored: u32, computed: u32) -> Error {
        self.fault(offset, format!("checksum {stored:#010x} is stored, {computed:#010x} computed"))
    }

    /// Reads the structure at byte `offset`.
    pub fn read(self, disk: &(impl DiskReader + ?Sized), offset: u64, buffer: &mut [u8]) -> Result<()> {
        disk.read_at(offset, buffer).map_err(|error| self.unread(offset, &error))
    }

    fn unread(self, offset: u64, error: &io::Error) -> Error {
        let kind = if error.kind() == io::ErrorKind::UnexpectedEof { ErrorClass::Truncated } else { ErrorClass::Io };
        Error::new(kind, format!("not read: {error}")).in_field(&self.to_string()).at_offset(offset)
    }
}
