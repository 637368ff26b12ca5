//! The file system on a disk: group descriptors, bitmaps, inodes, and access to files by path.
//!
//! Source: Linux `Documentation/filesystems/ext4/group_descr.rst`; checksums as in `fs/ext4/super.c` and `bitmap.c`.

mod directory;
mod file_blocks;
mod inode;
mod walk;

use bitflags::bitflags;
use emmclab_base::{Error, ErrorClass, Result};

use crate::disk::{CRC16, DiskReader, DiskStructure, crc32c, le16, le32, wide};
use crate::superblock::{Ext4Superblock, RoCompat};
pub(crate) use directory::record_length;
pub use directory::{DirectoryEntry, Ext4FileKind, TreeNode};
pub use file_blocks::FileBlockRun;
pub(crate) use file_blocks::{EXTENT_BYTES, EXTENT_MAGIC, extent_length};
pub use inode::{Attribute, Inode, InodeFlags, InodeTable};
pub(crate) use inode::{MAP_AT, MAP_BYTES};
pub use walk::WalkSummary;

/// The inode number of the root directory.
pub const ROOT: u32 = 2;

/// A file system on a disk, without changes that are only in its journal. To include these, open it on the result of
/// [`crate::JournalRecovery`].
pub struct Ext4Filesystem<B> {
    disk: B,
    superblock: Ext4Superblock,
}

impl<B: DiskReader> Ext4Filesystem<B> {
    /// Reads and checks the superblock.
    /// Errors: as for [`Ext4Superblock::read`].
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

    pub(crate) fn into_disk(self) -> B {
        self.disk
    }

    /// The disk on which the file system was opened.
    pub fn disk(&self) -> &B {
        &self.disk
    }

    /// Returns the inode at a path from the root; `None` if a part of the path does not exist.
    ///
    /// Names are separated by `/`; `.`, `..` and empty names have the same meaning as in Linux. Symbolic links are not followed: if the
    /// path ends with one, its inode is returned; a symbolic link before the end is an error.
    /// Errors: if structures on the path are damaged, or names in a directory cannot be compared (encrypted, or ignoring case).
    pub fn lookup(&self, path: impl AsRef<[u8]>) -> Result<Option<Inode>> {
        let mut at = self.inode(ROOT)?;
        for name in path.as_ref().split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            if at.kind() == Ext4FileKind::Symlink {
                let problem = format!("inode {} is a symbolic link, which is not followed", at.number);
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

    /// Reads bytes of a file from `offset` on. Returns the number of bytes read, which is smaller than the buffer at the end of the file.
    /// Holes and unwritten extents read as zeros.
    /// Errors: if the block map is damaged, the file has no contents (device, pipe), or it is encrypted.
    pub fn read(&self, inode: &Inode, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        if inode.flags.contains(InodeFlags::ENCRYPT) && inode.kind() == Ext4FileKind::Regular {
            return Err(DiskStructure::Data(inode.number).unsupported(inode.offset, "the file is encrypted"));
        }
        let left = usize::try_from(inode.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let length = buffer.len().min(left);
        let buffer = &mut buffer[..length];
        if let Some(inline) = &inode.inline {
            buffer.fill(0);
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(inline.len());
            let bytes = &inline[from..];
            let length = bytes.len().min(buffer.len());
            buffer[..length].copy_from_slice(&bytes[..length]);
            return Ok(buffer.len());
        }
        if !inode.has_map() {
            let problem = format!("a file of mode {:o} has no contents to read", inode.mode);
            return Err(DiskStructure::Data(inode.number).unsupported(inode.offset, problem));
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
                    DiskStructure::Data(inode.number).read(&self.disk, from, part)?;
                }
                _ => part.fill(0),
            }
            at += length as u64;
            rest = after;
        }
        Ok(length)
    }

    /// Reads a whole file of at most `limit` bytes.
    /// Errors: if the file is longer; otherwise as for [`Self::read`].
    pub fn contents(&self, inode: &Inode, limit: usize) -> Result<Vec<u8>> {
        let length = usize::try_from(inode.size).ok().filter(|length| *length <= limit).ok_or_else(|| {
            let problem = format!("the file has {} bytes, more than the limit of {limit}", inode.size);
            DiskStructure::Data(inode.number).fault(inode.offset, problem)
        })?;
        let mut out = vec![0; length];
        self.read(inode, 0, &mut out)?;
        Ok(out)
    }

    /// Returns the target of a symbolic link.
    /// Errors: if the inode is not a symbolic link, the link is longer than a block or encrypted, or the block map is damaged.
    pub fn link(&self, inode: &Inode) -> Result<Vec<u8>> {
        let structure = DiskStructure::Data(inode.number);
        if inode.kind() != Ext4FileKind::Symlink {
            return Err(structure.fault(inode.offset, "not a symbolic link"));
        }
        if inode.flags.contains(InodeFlags::ENCRYPT) {
            return Err(structure.unsupported(inode.offset, "the symbolic link is encrypted"));
        }
        match inode.short_link() {
            Some(target) => Ok(target.to_vec()),
            None => self.contents(inode, self.superblock.block_size as usize),
        }
    }

    /// Returns the initial state for checksums of blocks that belong to an inode.
    pub(crate) fn seed_of(&self, inode: &Inode) -> u32 {
        let seed = crc32c(self.superblock.seed, &inode.number.to_le_bytes());
        crc32c(seed, &inode.generation.to_le_bytes())
    }

    /// Returns the location of a block of the file system, in bytes. If the block is outside of the file system, the error names
    /// `structure`.
    pub(crate) fn offset_of(&self, block: u64, structure: DiskStructure) -> Result<u64> {
        let offset = block.saturating_mul(u64::from(self.superblock.block_size));
        if block < u64::from(self.superblock.first_block) || block >= self.superblock.blocks {
            let problem = format!("block {block} is outside of the file system of {} blocks", self.superblock.blocks);
            return Err(structure.fault(offset, problem));
        }
        Ok(offset)
    }
}

const CHECKSUM_AT: usize = 0x1E;
const MAX_BYTES: usize = 1024;

bitflags! {
    /// Flags for the parts of a group that were never written.
    #[derive(Clone, Copy)]
    struct GroupFlags: u16 {
        const INODE_UNINIT = 1;
        const BLOCK_UNINIT = 2;
        const _ = !0;
    }
}

/// The locations of the metadata of a block group, as block numbers.
pub(crate) struct GroupDescriptor {
    number: u32,
    pub inode_table: u64,
    pub block_bitmap: u64,
    pub inode_bitmap: u64,
    flags: GroupFlags,
    block_checksum: u32,
    inode_checksum: u32,
    wide: bool,
}

impl GroupDescriptor {
    /// Parses a group descriptor without checking its checksum.
    pub fn parse(number: u32, bytes: &[u8]) -> Self {
        let is_wide = bytes.len() >= 64;
        let high = |at| if is_wide { le32(bytes, at) } else { 0 };
        let high16 = |at| if is_wide { u32::from(le16(bytes, at)) << 16 } else { 0 };
        Self {
            number,
            block_bitmap: wide(high(0x20), le32(bytes, 0x0)),
            inode_bitmap: wide(high(0x24), le32(bytes, 0x4)),
            inode_table: wide(high(0x28), le32(bytes, 0x8)),
            flags: GroupFlags::from_bits_retain(le16(bytes, 0x12)),
            block_checksum: high16(0x38) | u32::from(le16(bytes, 0x18)),
            inode_checksum: high16(0x3A) | u32::from(le16(bytes, 0x1A)),
            wide: is_wide,
        }
    }

    /// The number of the first inode of the group.
    pub fn first_inode(&self, superblock: &Ext4Superblock) -> u32 {
        self.number * superblock.inodes_per_group + 1
    }
}

impl<B: DiskReader> Ext4Filesystem<B> {
    pub(crate) fn group(&self, number: u32) -> Result<GroupDescriptor> {
        let superblock = self.superblock();
        let offset = superblock.descriptor_offset(number);
        let size = usize::from(superblock.descriptor_size);
        let mut buffer = [0; MAX_BYTES];
        let bytes = &mut buffer[..size];
        DiskStructure::Group(number).read(&self.disk, offset, bytes)?;
        let stored = le16(bytes, CHECKSUM_AT);
        let computed = self.descriptor_checksum(number, bytes);
        if computed.is_some_and(|computed| computed != stored) {
            let computed = u32::from(computed.unwrap_or_default());
            return Err(DiskStructure::Group(number).bad_checksum(offset, u32::from(stored), computed));
        }
        Ok(GroupDescriptor::parse(number, bytes))
    }

    pub(crate) fn descriptor_checksum(&self, number: u32, bytes: &[u8]) -> Option<u16> {
        let superblock = self.superblock();
        let (before, after) = (&bytes[..CHECKSUM_AT], &bytes[CHECKSUM_AT + 2..]);
        if superblock.has_checksums() {
            let state = crc32c(crc32c(superblock.seed, &number.to_le_bytes()), before);
            Some(crc32c(crc32c(state, &[0, 0]), after) as u16)
        } else if superblock.ro_compat.contains(RoCompat::GDT_CSUM) {
            let mut digest = CRC16.digest();
            digest.update(&superblock.uuid);
            digest.update(&number.to_le_bytes());
            digest.update(before);
            digest.update(after);
            Some(digest.finalize())
        } else {
            None
        }
    }

    /// The bitmap of used clusters of a group; the first cluster is the lowest bit of the first byte. `None` if the bitmap was never
    /// written: then only metadata of the group is in use.
    fn block_bitmap(&self, group: &GroupDescriptor) -> Result<Option<Vec<u8>>> {
        if group.flags.contains(GroupFlags::BLOCK_UNINIT) {
            return Ok(None);
        }
        let bits = self.superblock().blocks_per_group / self.superblock().blocks_per_cluster;
        self.bitmap(group, DiskStructure::BlockBitmap(group.number), group.block_bitmap, bits, group.block_checksum).map(Some)
    }

    /// The bitmap of used inodes of a group. `None` if it was never written: then no inode is in use.
    pub(crate) fn inode_bitmap(&self, group: &GroupDescriptor) -> Result<Option<Vec<u8>>> {
        if group.flags.contains(GroupFlags::INODE_UNINIT) {
            return Ok(None);
        }
        let bits = self.superblock().inodes_per_group;
        self.bitmap(group, DiskStructure::InodeBitmap(group.number), group.inode_bitmap, bits, group.inode_checksum).map(Some)
    }

    fn bitmap(&self, group: &GroupDescriptor, structure: DiskStructure, block: u64, bits: u32, stored: u32) -> Result<Vec<u8>> {
        let offset = self.offset_of(block, structure)?;
        let mut bytes = vec![0; bits.div_ceil(8) as usize];
        structure.read(&self.disk, offset, &mut bytes)?;
        if self.superblock().has_checksums() {
            let whole = crc32c(self.superblock().seed, &bytes);
            let computed = if group.wide { whole } else { whole & 0xFFFF };
            if computed != stored {
                return Err(structure.bad_checksum(offset, stored, computed));
            }
        }
        Ok(bytes)
    }
}
