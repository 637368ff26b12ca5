//! Inodes: `ext4_fc_replay_inode`, and the deletion of a file whose last name was removed.

use emmclab_base::Result;

use super::FastCommitReplayer;
use crate::byte_fields::{le16, le32};
use crate::checksum::crc32c;
use crate::disk_structure::DiskStructure;
use crate::files::{EXTENT_MAGIC, Ext4FileKind, Inode, InodeFlags, MAP_AT as MAP, MAP_BYTES, ROOT};

/// Offset of the fields after the block map of an inode.
const BEHIND: usize = MAP + MAP_BYTES;
const LINKS: usize = 0x1A;
const HUGE_FILE: u32 = 0x4_0000;

impl FastCommitReplayer<'_> {
    fn is_number(&self, number: u32) -> bool {
        let superblock = self.files.superblock();
        (number >= superblock.first_inode || number == ROOT) && number <= superblock.inodes
    }

    fn raw(&self, number: u32) -> Result<(u64, Vec<u8>)> {
        let offset = self.files.inode_place(number)?;
        let mut bytes = vec![0; usize::from(self.files.superblock().inode_size)];
        DiskStructure::Inode(number).read(self.files.disk(), offset, &mut bytes)?;
        Ok((offset, bytes))
    }

    /// Returns the inode if it is in use and can be read. Its checksum is ignored, as fast commits are being replayed.
    pub(super) fn live(&self, number: u32) -> Result<Option<Inode>> {
        if !self.is_number(number) {
            return Ok(None);
        }
        let (offset, mut bytes) = self.raw(number)?;
        if le16(&bytes, LINKS) == 0 {
            return Ok(None);
        }
        self.files.seal_inode(number, &mut bytes);
        let inode = self.files.parse_inode(number, &bytes, offset).ok();
        Ok(inode.filter(|inode| {
            let is_tree = !inode.flags().contains(InodeFlags::EXTENTS) || le16(&bytes, MAP) == EXTENT_MAGIC;
            inode.kind() != Ext4FileKind::Unknown && is_tree
        }))
    }

    /// Changes bytes of an inode and updates its checksum.
    pub(super) fn change_inode(&self, number: u32, change: impl FnOnce(&mut [u8])) -> Result<()> {
        let (offset, mut bytes) = self.raw(number)?;
        change(&mut bytes);
        self.files.seal_inode(number, &mut bytes);
        self.files.disk().write(DiskStructure::Inode(number), offset, &bytes)
    }

    pub(super) fn set_links(&self, number: u32, links: u16) -> Result<()> {
        self.change_inode(number, |bytes| bytes[LINKS..LINKS + 2].copy_from_slice(&links.to_le_bytes()))
    }

    pub(super) fn record_modified(&mut self, number: u32) {
        if !self.modified.contains(&number) {
            self.modified.push(number);
        }
    }

    /// Marks the blocks of an inode as free or used; with `keep`, they are not allocated to anything else.
    pub(super) fn mark_file(&self, inode: &Inode, used: bool, keep: bool) -> Result<()> {
        if !inode.flags().contains(InodeFlags::EXTENTS) || inode.flags().contains(InodeFlags::INLINE_DATA) {
            return Ok(());
        }
        let Ok((runs, tree)) = self.files.all_runs(inode) else { return Ok(()) };
        let data = runs.iter().filter_map(|run| run.physical.map(|first| (first, run.blocks)));
        for (first, blocks) in tree.into_iter().map(|block| (block, 1)).chain(data) {
            self.mark(first, blocks, used)?;
            if keep {
                self.regions.borrow_mut().push((first, blocks));
            }
        }
        Ok(())
    }

    /// Replays a record that holds a whole inode. The block map on the disk stays, because other records change it.
    pub(super) fn inode(&mut self, value: &[u8]) -> Result<()> {
        let (number, new) = (le32(value, 0), &value[4..]);
        if let Some(inode) = self.live(number)? {
            self.mark_file(&inode, false, true)?;
        }
        self.record_modified(number);
        // As in Linux, records of inodes that the file system does not have are ignored.
        if number == 0 || number > self.files.superblock().inodes {
            return Ok(());
        }
        self.change_inode(number, |bytes| {
            bytes[..MAP].copy_from_slice(&new[..MAP]);
            bytes[BEHIND..new.len()].copy_from_slice(&new[BEHIND..]);
            let flags = InodeFlags::from_bits_retain(le32(bytes, 0x20));
            if flags.contains(InodeFlags::EXTENTS) {
                if le16(bytes, MAP) != EXTENT_MAGIC {
                    bytes[MAP..MAP + 12].fill(0);
                    bytes[MAP..MAP + 2].copy_from_slice(&EXTENT_MAGIC.to_le_bytes());
                    bytes[MAP + 4] = 4;
                }
            } else if flags.contains(InodeFlags::INLINE_DATA) {
                bytes[MAP..BEHIND].copy_from_slice(&new[MAP..BEHIND]);
            }
        })?;
        if !self.is_number(number) || number == ROOT && ROOT < self.files.superblock().first_inode {
            return Ok(());
        }
        self.mark_inode(number, true)?;
        let Some(inode) = self.live(number)? else {
            let problem = "a fast commit contains an inode that has no name: Linux does not mount this";
            let offset = self.files.inode_place(number)?;
            return Err(DiskStructure::Inode(number).fault(offset, problem));
        };
        if inode.flags().contains(InodeFlags::EXTENTS)
            && let Ok((runs, tree)) = self.files.all_runs(&inode)
        {
            let blocks = runs.iter().map(|run| run.blocks).sum::<u64>() + tree.len() as u64;
            let sectors = blocks * u64::from(self.files.superblock().block_size / 512);
            self.change_inode(number, |bytes| {
                let flags = le32(bytes, 0x20) & !HUGE_FILE;
                bytes[0x20..0x24].copy_from_slice(&flags.to_le_bytes());
                bytes[0x1C..0x20].copy_from_slice(&(sectors as u32).to_le_bytes());
                bytes[0x74..0x76].copy_from_slice(&((sectors >> 32) as u16).to_le_bytes());
            })?;
        }
        Ok(())
    }

    /// Deletes an inode that has no names.
    pub(super) fn delete(&self, inode: &Inode) -> Result<()> {
        self.mark_file(inode, false, false)?;
        if inode.attribute_block() != 0 {
            self.drop_attributes(inode)?;
        }
        let number = inode.number();
        self.change_inode(number, |bytes| {
            bytes[0x4..0x8].fill(0);
            bytes[0x6C..0x70].fill(0);
            if inode.flags().contains(InodeFlags::EXTENTS) {
                bytes[MAP + 2..MAP + 4].fill(0);
                bytes[MAP + 6..MAP + 8].fill(0);
            }
        })?;
        self.mark_inode(number, false)
    }

    /// Decrements the reference count of an inode's block of extended attributes; frees the block with the last reference.
    fn drop_attributes(&self, inode: &Inode) -> Result<()> {
        let structure = DiskStructure::Attributes(inode.number());
        let block = inode.attribute_block();
        let offset = self.files.offset_of(block, structure)?;
        let mut bytes = vec![0; self.files.superblock().block_size as usize];
        structure.read(self.files.disk(), offset, &mut bytes)?;
        let count = le32(&bytes, 4);
        if count <= 1 {
            return self.mark(block, 1, false);
        }
        bytes[4..8].copy_from_slice(&(count - 1).to_le_bytes());
        if self.files.superblock().has_checksums() {
            let state = crc32c(self.files.superblock().seed, &block.to_le_bytes());
            let state = crc32c(crc32c(state, &bytes[..16]), &[0; 4]);
            let sum = crc32c(state, &bytes[20..]);
            bytes[16..20].copy_from_slice(&sum.to_le_bytes());
        }
        self.files.disk().write(structure, offset, &bytes)
    }
}
