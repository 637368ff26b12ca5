//! Replays changes of names: `ext4_fc_replay_link`, `_unlink` and `_create`. When a name is added to a directory with a hash tree, the
//! directory becomes linear: its hash blocks become empty blocks of entries, which all readers understand.

use emmclab_base::Result;

use super::FastCommitReplayer;
use crate::disk::DiskStructure;
use crate::disk::crc32c;
use crate::disk::{le16, le32};
use crate::files::{Ext4FileKind, FileBlockRun, Inode, InodeFlags, record_length};
use crate::superblock::Incompat;

const HEAD: usize = 8;
const TAIL: usize = 12;

/// An entry of a directory: its block, its offset in the block, and the offset of the previous entry.
struct DirEntryLocation {
    block: u64,
    at: usize,
    before: Option<usize>,
    inode: u32,
}

fn needs(name: usize) -> usize {
    (HEAD + name).next_multiple_of(4)
}

fn set_length(bytes: &mut [u8], at: usize, length: usize) {
    let stored = u16::try_from(length).unwrap_or(u16::MAX);
    bytes[at + 4..at + 6].copy_from_slice(&stored.to_le_bytes());
}

impl FastCommitReplayer<'_> {
    pub(super) fn link(&self, value: &[u8]) -> Result<()> {
        let (folder, number, name) = (le32(value, 0), le32(value, 4), &value[8..]);
        let Some(inode) = self.live(number)? else { return Ok(()) };
        self.add_link(folder, &inode, name)
    }

    fn add_link(&self, folder: u32, inode: &Inode, name: &[u8]) -> Result<()> {
        let Some(folder) = self.live(folder)? else { return Ok(()) };
        if self.add_name(&folder, inode, name)? {
            self.set_links(inode.number, inode.links.saturating_add(1))?;
        }
        Ok(())
    }

    pub(super) fn unlink(&self, value: &[u8]) -> Result<()> {
        let (folder, number, name) = (le32(value, 0), le32(value, 4), &value[8..]);
        let Some(inode) = self.live(number)? else { return Ok(()) };
        let Some(folder) = self.live(folder)? else { return Ok(()) };
        let Some(place) = self.find_name(&folder, name)? else { return Ok(()) };
        // If the name now refers to another inode, Linux keeps the name but still decrements the link count.
        if place.inode == number {
            self.remove(&folder, &place)?;
        }
        let links = inode.links - 1;
        self.set_links(number, links)?;
        if links == 0 { self.delete(&inode) } else { Ok(()) }
    }

    pub(super) fn create(&self, value: &[u8]) -> Result<()> {
        let (folder, number, name) = (le32(value, 0), le32(value, 4), &value[8..]);
        let superblock = self.files.superblock();
        let in_range = (superblock.first_inode..=superblock.inodes).contains(&number);
        let structure = DiskStructure::Inode(number);
        let fault = |problem: &str| structure.fault(0, format!("a fast commit refers to {problem}: Linux does not mount this"));
        if !in_range {
            return Err(fault("an inode that the file system does not have"));
        }
        self.mark_inode(number, true)?;
        let Some(inode) = self.live(number)? else {
            return Err(fault("an inode that is not in use"));
        };
        if inode.kind() == Ext4FileKind::Directory {
            let Some(folder) = self.live(folder)? else { return Ok(()) };
            if !self.begin_directory(&inode, folder.number)? {
                return Ok(());
            }
        }
        // As in Linux, a new directory is left with one link, and the link count of its parent does not change.
        let Some(inode) = self.live(number)? else { return Ok(()) };
        self.add_link(folder, &inode, name)?;
        self.set_links(number, 1)
    }

    /// Writes the first block of a new directory. Returns false if the directory already has one.
    fn begin_directory(&self, inode: &Inode, parent: u32) -> Result<bool> {
        if inode.flags.contains(InodeFlags::INLINE_DATA) {
            return Err(Self::in_inode(inode));
        }
        self.change_inode(inode.number, |bytes| bytes[4..8].fill(0))?;
        let Ok((runs, _)) = self.files.all_runs(inode) else { return Ok(false) };
        if runs.first().is_some_and(|run| run.logical == 0) {
            return Ok(false);
        }
        let usable = self.usable();
        let mut bytes = vec![0; self.block_size()];
        self.put(&mut bytes, 0, 12, inode.number, b".", Ext4FileKind::Directory);
        self.put(&mut bytes, 12, usable - 12, parent, b"..", Ext4FileKind::Directory);
        let Some(inode) = self.live(inode.number)? else { return Ok(false) };
        self.append(&inode, bytes).map(|()| true)
    }

    fn block_size(&self) -> usize {
        self.files.superblock().block_size as usize
    }

    /// Number of bytes in a block that can contain entries.
    fn usable(&self) -> usize {
        self.block_size() - if self.files.superblock().has_checksums() { TAIL } else { 0 }
    }

    fn in_inode(inode: &Inode) -> emmclab_base::Error {
        let problem = "fast commits change a directory whose names are stored in the inode";
        DiskStructure::Directory(inode.number).unsupported(inode.offset, problem)
    }

    fn check_directory(folder: &Inode) -> Result<()> {
        if folder.flags.contains(InodeFlags::INLINE_DATA) {
            return Err(Self::in_inode(folder));
        }
        if folder.flags.intersects(InodeFlags::CASEFOLD | InodeFlags::ENCRYPT) {
            let problem = "fast commits change a directory that is encrypted or ignores case";
            return Err(DiskStructure::Directory(folder.number).unsupported(folder.offset, problem));
        }
        Ok(())
    }

    /// Calls `visit` with each block of a directory: its number in the directory, its number on the disk, and its bytes.
    fn each_block(&self, folder: &Inode, mut visit: impl FnMut(u64, u64, &mut Vec<u8>) -> Result<bool>) -> Result<()> {
        let mut bytes = vec![0; self.block_size()];
        for run in self.files.map(folder) {
            let run = run?;
            let Some(first) = run.physical else { continue };
            for number in 0..run.blocks {
                let offset = (first + number) * bytes.len() as u64;
                DiskStructure::Directory(folder.number).read(self.files.disk(), offset, &mut bytes)?;
                if visit(run.logical + number, first + number, &mut bytes)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Calls `visit` with each entry of a block: its offset, its length, and the length of its name. Returns an error if the block is
    /// damaged.
    fn each_entry(folder: &Inode, bytes: &[u8], block: u64, mut visit: impl FnMut(usize, usize, usize) -> bool) -> Result<()> {
        let mut at = 0;
        while at < bytes.len() {
            let length = record_length(le16(bytes, at + 4), bytes.len() as u32);
            let name = usize::from(bytes.get(at + 6).copied().unwrap_or_default());
            if length < HEAD || !length.is_multiple_of(4) || at + length > bytes.len() || HEAD + name > length {
                let offset = block * bytes.len() as u64 + at as u64;
                return Err(DiskStructure::Directory(folder.number).fault(offset, "an entry is damaged"));
            }
            if visit(at, length, name) {
                break;
            }
            at += length;
        }
        Ok(())
    }

    fn find_name(&self, folder: &Inode, name: &[u8]) -> Result<Option<DirEntryLocation>> {
        if folder.kind() != Ext4FileKind::Directory {
            return Ok(None);
        }
        Self::check_directory(folder)?;
        let mut entry = None;
        self.each_block(folder, |_, block, bytes| {
            let mut before = None;
            Self::each_entry(folder, bytes, block, |at, _, length| {
                let inode = le32(bytes, at);
                if inode != 0 && &bytes[at + HEAD..at + HEAD + length] == name {
                    entry = Some(DirEntryLocation { block, at, before, inode });
                }
                before = Some(at);
                entry.is_some()
            })?;
            Ok(entry.is_some())
        })?;
        Ok(entry)
    }

    fn remove(&self, folder: &Inode, place: &DirEntryLocation) -> Result<()> {
        let offset = place.block * self.block_size() as u64;
        let mut bytes = vec![0; self.block_size()];
        DiskStructure::Directory(folder.number).read(self.files.disk(), offset, &mut bytes)?;
        let length = record_length(le16(&bytes, place.at + 4), bytes.len() as u32);
        if let Some(before) = place.before {
            set_length(&mut bytes, before, place.at + length - before);
        }
        bytes[place.at..place.at + 4].fill(0);
        self.store_block(folder, place.block, bytes)
    }

    /// Adds a name. Returns false if the name already exists.
    fn add_name(&self, folder: &Inode, inode: &Inode, name: &[u8]) -> Result<bool> {
        if folder.kind() != Ext4FileKind::Directory || self.find_name(folder, name)?.is_some() {
            return Ok(false);
        }
        if folder.flags.contains(InodeFlags::INDEX) {
            self.drop_index(folder)?;
        }
        let (usable, kind, wanted) = (self.usable(), inode.kind(), needs(name.len()));
        let mut done = false;
        self.each_block(folder, |_, block, bytes| {
            let mut room = None;
            Self::each_entry(folder, bytes, block, |at, length, used| {
                let used = if le32(bytes, at) == 0 { 0 } else { needs(used) };
                if at < usable && length - used.min(length) >= wanted {
                    room = Some((at, length, used));
                }
                room.is_some()
            })?;
            let Some((at, length, used)) = room else { return Ok(false) };
            if used > 0 {
                set_length(bytes, at, used);
            }
            self.put(bytes, at + used, length - used, inode.number, name, kind);
            self.store_block(folder, block, bytes.clone())?;
            done = true;
            Ok(true)
        })?;
        if !done {
            let mut bytes = vec![0; self.block_size()];
            self.put(&mut bytes, 0, usable, inode.number, name, kind);
            let Some(folder) = self.live(folder.number)? else { return Ok(false) };
            self.append(&folder, bytes)?;
        }
        Ok(true)
    }

    fn put(&self, bytes: &mut [u8], at: usize, length: usize, inode: u32, name: &[u8], kind: Ext4FileKind) {
        let has_types = self.files.superblock().incompat.contains(Incompat::FILETYPE);
        bytes[at..at + 4].copy_from_slice(&inode.to_le_bytes());
        set_length(bytes, at, length);
        bytes[at + 6] = name.len() as u8;
        bytes[at + 7] = if has_types { kind.as_entry() } else { 0 };
        bytes[at + HEAD..at + HEAD + name.len()].copy_from_slice(name);
    }

    /// Writes a block of directory entries together with the entry that contains its checksum.
    fn store_block(&self, folder: &Inode, block: u64, mut bytes: Vec<u8>) -> Result<()> {
        if self.files.superblock().has_checksums() {
            let at = bytes.len() - TAIL;
            bytes[at..at + 8].copy_from_slice(&[0, 0, 0, 0, TAIL as u8, 0, 0, 0xDE]);
            let sum = crc32c(self.files.seed_of(folder), &bytes[..at]);
            bytes[at + 8..].copy_from_slice(&sum.to_le_bytes());
        }
        let offset = block * bytes.len() as u64;
        self.files.disk().write(DiskStructure::Directory(folder.number), offset, &bytes)
    }

    /// Turns a directory with a hash tree into a linear one.
    fn drop_index(&self, folder: &Inode) -> Result<()> {
        let (usable, size) = (self.usable(), self.block_size());
        self.each_block(folder, |logical, block, bytes| {
            let is_node = le32(bytes, 0) == 0 && record_length(le16(bytes, 4), size as u32) == size;
            if logical == 0 {
                set_length(bytes, 12, usable - 12);
                bytes[24..].fill(0);
            } else if is_node {
                bytes.fill(0);
                set_length(bytes, 0, usable);
            } else {
                return Ok(false);
            }
            self.store_block(folder, block, bytes.clone()).map(|()| false)
        })?;
        self.change_inode(folder.number, |bytes| {
            let flags = le32(bytes, 0x20) & !InodeFlags::INDEX.bits();
            bytes[0x20..0x24].copy_from_slice(&flags.to_le_bytes());
        })
    }

    /// Adds a block to a directory.
    fn append(&self, folder: &Inode, bytes: Vec<u8>) -> Result<()> {
        if !folder.flags.contains(InodeFlags::EXTENTS) {
            let problem = "fast commits change a directory that is mapped by indirect blocks";
            return Err(DiskStructure::Directory(folder.number).unsupported(folder.offset, problem));
        }
        let size = self.block_size() as u64;
        let logical = folder.size / size;
        let (mut runs, tree) = self.files.all_runs(folder)?;
        let block = self.allocate((folder.number - 1) / self.files.superblock().inodes_per_group)?;
        runs.push(FileBlockRun { logical, blocks: 1, physical: Some(block), unwritten: false });
        self.write_map(folder, &runs, &tree)?;
        let end = folder.size.saturating_add(size) as u32;
        self.change_inode(folder.number, |inode| inode[4..8].copy_from_slice(&end.to_le_bytes()))?;
        self.store_block(folder, block, bytes)
    }
}
