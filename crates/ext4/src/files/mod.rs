//! The file system on a disk: group descriptors, inodes, and files by their path.

mod attributes;
mod directory;
mod extents;
mod file_blocks;
mod group;
mod indirect;
mod inline;
mod inode;
mod tree;
mod walk;

pub use attributes::Attribute;
pub(crate) use directory::record_length;
pub use directory::{DirectoryEntry, Ext4FileKind};
pub(crate) use extents::{EXTENT_BYTES, EXTENT_MAGIC, extent_length};
pub use file_blocks::FileBlockRun;
pub(crate) use group::GroupDescriptor;
pub use inode::{Inode, InodeFlags, InodeTable};
pub(crate) use inode::{MAP_AT, MAP_BYTES};
pub use tree::TreeNode;
pub use walk::WalkSummary;

use emmclab_base::{Error, ErrorClass, Result};

use crate::checksum::crc32c;
use crate::disk_reader::DiskReader;
use crate::disk_structure::DiskStructure;
use crate::superblock::Ext4Superblock;

/// The inode number of the root directory.
pub const ROOT: u32 = 2;

/// A file system on a disk, without changes that are only in its journal. To see these, open it on the result of
/// [`crate::JournalRecovery`].
pub struct Ext4Filesystem<B> {
    disk: B,
    superblock: Ext4Superblock,
}

impl<B: DiskReader> Ext4Filesystem<B> {
    /// Reads and checks the superblock.
    ///
    /// # Errors
    ///
    /// As for [`Ext4Superblock::read`].
    pub fn open(disk: B) -> Result<Self> {
        let superblock = Ext4Superblock::read(&disk)?;
        Ok(Self { disk, superblock })
    }

    /// A file system whose superblock was already read and checked.
    pub(crate) fn with_superblock(disk: B, superblock: Ext4Superblock) -> Self {
        Self { disk, superblock }
    }

    /// The fields of the superblock.
    pub fn superblock(&self) -> &Ext4Superblock {
        &self.superblock
    }

    /// Returns the disk on which it was opened.
    pub(crate) fn into_disk(self) -> B {
        self.disk
    }

    /// The disk on which it was opened.
    pub fn disk(&self) -> &B {
        &self.disk
    }

    /// Returns the inode of a path from the root; `None` if a part of the path does not exist.
    ///
    /// Names are separated by `/`; `.`, `..` and empty names have the same meaning as in Linux. Symbolic links are not followed: if
    /// the path ends with one, its inode is returned; anywhere else it is an error.
    ///
    /// # Errors
    ///
    /// Damaged structures on the way; directories whose names cannot be compared (encrypted, or ignoring case).
    pub fn lookup(&self, path: impl AsRef<[u8]>) -> Result<Option<Inode>> {
        let mut at = self.inode(ROOT)?;
        for name in path.as_ref().split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            if at.kind() == Ext4FileKind::Symlink {
                let problem = format!("inode {} is a symbolic link, which is not followed", at.number());
                return Err(Error::new(ErrorClass::Unsupported, problem));
            }
            if at.kind() != Ext4FileKind::Directory {
                return Ok(None);
            }
            match self.find(&at, name)? {
                Some(number) => at = self.inode(number)?,
                None => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    /// Reads bytes of a file from `offset` on; returns how many were read, which is less than the buffer's length at the end of the
    /// file. Holes and unwritten extents read as zeros.
    ///
    /// # Errors
    ///
    /// Damaged mappings; files without contents (devices, pipes); encrypted files.
    pub fn read(&self, inode: &Inode, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        if inode.flags().contains(InodeFlags::ENCRYPT) && inode.kind() == Ext4FileKind::Regular {
            return Err(DiskStructure::Data(inode.number()).unsupported(inode.offset, "the file is encrypted"));
        }
        let left = usize::try_from(inode.size().saturating_sub(offset)).unwrap_or(usize::MAX);
        let length = buffer.len().min(left);
        let buffer = &mut buffer[..length];
        if let Some(inline) = inode.inline() {
            buffer.fill(0);
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(inline.len());
            let bytes = &inline[from..];
            let length = bytes.len().min(buffer.len());
            buffer[..length].copy_from_slice(&bytes[..length]);
            return Ok(buffer.len());
        }
        if !inode.has_map() {
            let problem = format!("a file of mode {:o} has no contents to read", inode.mode());
            return Err(DiskStructure::Data(inode.number()).unsupported(inode.offset, problem));
        }
        let mut rest = buffer;
        let mut at = offset;
        let block_size = u64::from(self.superblock.block_size);
        let mut mapper = self.runs(inode);
        while !rest.is_empty() {
            let run = mapper.at(at / block_size)?;
            let end = run.end().saturating_mul(block_size);
            let length = usize::try_from(end - at).unwrap_or(usize::MAX).min(rest.len());
            let (part, after) = rest.split_at_mut(length);
            match run.physical {
                Some(block) if !run.unwritten => {
                    let from = block * block_size + (at - run.logical * block_size);
                    DiskStructure::Data(inode.number()).read(&self.disk, from, part)?;
                }
                _ => part.fill(0),
            }
            at += length as u64;
            rest = after;
        }
        Ok(length)
    }

    /// Reads a whole file of at most `limit` bytes.
    ///
    /// # Errors
    ///
    /// A longer file; otherwise as for [`Self::read`].
    pub fn contents(&self, inode: &Inode, limit: usize) -> Result<Vec<u8>> {
        let length = usize::try_from(inode.size()).ok().filter(|length| *length <= limit).ok_or_else(|| {
            let problem = format!("the file has {} bytes, more than the limit of {limit}", inode.size());
            DiskStructure::Data(inode.number()).fault(inode.offset, problem)
        })?;
        let mut out = vec![0; length];
        self.read(inode, 0, &mut out)?;
        Ok(out)
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    ///
    /// Not a symbolic link, one longer than a block, or an encrypted one; damaged mappings.
    pub fn link(&self, inode: &Inode) -> Result<Vec<u8>> {
        let structure = DiskStructure::Data(inode.number());
        if inode.kind() != Ext4FileKind::Symlink {
            return Err(structure.fault(inode.offset, "not a symbolic link"));
        }
        if inode.flags().contains(InodeFlags::ENCRYPT) {
            return Err(structure.unsupported(inode.offset, "the symbolic link is encrypted"));
        }
        match inode.short_link() {
            Some(target) => Ok(target.to_vec()),
            None => self.contents(inode, self.superblock.block_size as usize),
        }
    }

    /// The checksum state from which the checksums of an inode's blocks continue.
    pub(crate) fn seed_of(&self, inode: &Inode) -> u32 {
        let seed = crc32c(self.superblock.seed, &inode.number().to_le_bytes());
        crc32c(seed, &inode.generation.to_le_bytes())
    }

    /// The location of a block of the file system, in bytes; a block outside of it is reported as an error of `structure`.
    pub(crate) fn offset_of(&self, block: u64, structure: DiskStructure) -> Result<u64> {
        let offset = block.saturating_mul(u64::from(self.superblock.block_size));
        if block < u64::from(self.superblock.first_block) || block >= self.superblock.blocks {
            let problem = format!("block {block} is outside of the file system of {} blocks", self.superblock.blocks);
            return Err(structure.fault(offset, problem));
        }
        Ok(offset)
    }
}
