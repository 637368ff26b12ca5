//! Group descriptors, and the bitmaps to which they refer.
//!
//! Source: Linux `Documentation/filesystems/ext4/group_descr.rst`; checksums as in `fs/ext4/super.c` and `bitmap.c`.

use bitflags::bitflags;
use emmclab_base::Result;

use super::Ext4Filesystem;
use crate::byte_fields::{le16, le32, wide};
use crate::checksum::{CRC16, crc32c};
use crate::disk_reader::DiskReader;
use crate::disk_structure::DiskStructure;
use crate::superblock::{Ext4Superblock, RoCompat};

const CHECKSUM_AT: usize = 0x1E;
const MAX_BYTES: usize = 1024;

bitflags! {
    /// The parts of a group that were never written.
    #[derive(Clone, Copy)]
    struct GroupFlags: u16 {
        const INODE_UNINIT = 1;
        const BLOCK_UNINIT = 2;
        const _ = !0;
    }
}

/// The locations of the parts of a block group, as blocks.
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
    /// Parses a descriptor; its checksum is not checked.
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

    /// The bitmap of used clusters of a group; the first cluster is the lowest bit of the first byte. `None` if it was never
    /// written; then only metadata of the group is in use.
    pub(super) fn block_bitmap(&self, group: &GroupDescriptor) -> Result<Option<Vec<u8>>> {
        if group.flags.contains(GroupFlags::BLOCK_UNINIT) {
            return Ok(None);
        }
        let bits = self.superblock().blocks_per_group / self.superblock().blocks_per_cluster;
        self.bitmap(group, DiskStructure::BlockBitmap(group.number), group.block_bitmap, bits, group.block_checksum)
            .map(Some)
    }

    /// The bitmap of used inodes of a group; `None` if it was never written; then no inode is in use.
    pub(crate) fn inode_bitmap(&self, group: &GroupDescriptor) -> Result<Option<Vec<u8>>> {
        if group.flags.contains(GroupFlags::INODE_UNINIT) {
            return Ok(None);
        }
        let bits = self.superblock().inodes_per_group;
        self.bitmap(group, DiskStructure::InodeBitmap(group.number), group.inode_bitmap, bits, group.inode_checksum)
            .map(Some)
    }

    fn bitmap(
        &self,
        group: &GroupDescriptor,
        structure: DiskStructure,
        block: u64,
        bits: u32,
        stored: u32,
    ) -> Result<Vec<u8>> {
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
