//! Replays fast commits: small records of single changes, which are stored after the log and applied on top of it. The replay follows the
//! rules of Linux `fs/ext4/fast_commit.c` (6.12 to 6.18), with these differences, none of which is visible to a reader of files:
//!
//! - Times that the replay itself sets are not set.
//! - A directory with a hash tree loses the tree when a name is added; extent maps are written anew.
//! - Counters in the superblock are not changed: Linux writes them later.
//!
//! The replay returns an error with the reason for names that are added to or removed from a directory that is stored in its inode, is
//! encrypted or ignores case, and for blocks that are added to or removed from a file or directory with indirect blocks.

mod inodes;

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::io;

use emmclab_base::{Error, ErrorClass, Result};
use rustc_hash::FxHashMap;

use crate::disk::{DiskReader, DiskStructure, crc32c, le16, le32, wide};
use crate::files::{Ext4FileKind, Ext4Filesystem, FileBlockRun, Inode, InodeFlags, extent_length, record_length};
use crate::journal::{FAST_COMMIT_HEAD, FastCommitTag, fast_commit_tag};
use crate::superblock::Incompat;

struct FastCommitReplayer<'a> {
    files: Ext4Filesystem<DiskEditor<'a>>,
    /// Runs of blocks that must not be allocated: first block, and number of blocks.
    regions: RefCell<Vec<(u64, u64)>>,
    /// Inodes whose blocks are marked as used at the end of the replay.
    modified: Vec<u32>,
}

/// Replays fast commits on a disk whose log has been replayed. Returns the blocks that change and, if Linux fails during the replay and
/// refuses to mount, the reason.
pub(crate) fn replay(disk: &dyn DiskReader, scanned: FastCommitScan) -> Result<(Edits, Option<Error>)> {
    let block_size = Ext4Filesystem::open(disk)?.superblock().block_size as usize;
    let files = Ext4Filesystem::open(DiskEditor::new(disk, block_size))?;
    let mut replayer = FastCommitReplayer { files, regions: RefCell::new(scanned.regions), modified: Vec::new() };
    let mut refused = None;
    for step in &scanned.steps {
        let value = &step.value[..];
        let done = match step.tag {
            FastCommitTag::AddRange => replayer.add_range(value),
            FastCommitTag::DeleteRange => replayer.delete_range(value),
            FastCommitTag::Create => replayer.create(value),
            FastCommitTag::Link => replayer.link(value),
            FastCommitTag::Unlink => replayer.unlink(value),
            FastCommitTag::Inode => replayer.inode(value),
            FastCommitTag::Pad | FastCommitTag::Tail | FastCommitTag::Head => Ok(()),
        };
        match done {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorClass::Unsupported => return Err(error),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    for number in replayer.modified.clone() {
        if let Some(inode) = replayer.live(number)? {
            replayer.mark_file(&inode, true, false)?;
        }
    }
    Ok((replayer.files.into_disk().into_edits(), refused))
}

const LONGEST_NAME: usize = 255;

/// A record of a fast commit that is to be replayed.
pub(crate) struct FastCommitStep {
    pub tag: FastCommitTag,
    pub value: Vec<u8>,
}

#[derive(Default)]
pub(crate) struct FastCommitScan {
    pub steps: Vec<FastCommitStep>,
    /// Blocks that the scanned commits add to files, which the replay must not allocate: first block, and number of blocks.
    pub regions: Vec<(u64, u64)>,
    pub commits: u64,
}

/// Finds the complete fast commits that must be replayed after the log, by the rules of `ext4_fc_replay_scan` and `fc_do_one_pass`.
pub(crate) struct FastCommitScanner {
    /// The transaction to which the fast commits must belong.
    expected: u32,
    inode_size: usize,
    crc: u32,
    /// Records of all complete fast commits, followed by the records of the fast commit that is being scanned.
    scan: FastCommitScan,
    complete_lengths: (usize, usize),
}

impl FastCommitScanner {
    pub fn new(expected: u32, inode_size: u16) -> Self {
        Self { expected, inode_size: usize::from(inode_size), crc: 0, scan: FastCommitScan::default(), complete_lengths: (0, 0) }
    }

    /// Scans block `block` of the journal, which is at byte `offset` of the disk. Returns true if the sequence of fast commits ends in this
    /// block.
    pub fn block(&mut self, bytes: &[u8], block: u64, offset: u64, is_first: bool) -> Result<bool> {
        if is_first && le16(bytes, 0) != FastCommitTag::Head.number() {
            return Ok(true);
        }
        let structure = DiskStructure::FastCommit(block);
        let mut at = 0;
        while at + FAST_COMMIT_HEAD <= bytes.len() {
            let length = usize::from(le16(bytes, at + 2));
            let tag = fast_commit_tag(le16(bytes, at)).filter(|tag| self.is_length(*tag, length));
            let place = offset + at as u64;
            let end = |problem: String| self.end(structure.fault(place, problem));
            let (Some(tag), Some(value)) = (tag, bytes.get(at + FAST_COMMIT_HEAD..at + FAST_COMMIT_HEAD + length)) else {
                let (number, length) = (le16(bytes, at), length);
                return end(format!(
                    "no fast commit is complete before record {number} of {length} bytes, which is not valid: Linux does not mount this"
                ));
            };
            match tag {
                FastCommitTag::Head => {
                    let features = le32(value, 0);
                    if features != 0 {
                        return Err(structure.unsupported(place, format!("unknown features {features:#x} of fast commits")));
                    }
                    if le32(value, 4) != self.expected {
                        return Ok(true);
                    }
                }
                FastCommitTag::Tail => {
                    let computed = crc32c(self.crc, &bytes[at..at + FAST_COMMIT_HEAD + 4]);
                    let (transaction, stored) = (le32(value, 0), le32(value, 4));
                    if transaction != self.expected || stored != computed {
                        return end(format!(
                            "the first fast commit is of transaction {transaction} with checksum {stored:#010x}, where {} and \
                             {computed:#010x} are expected: Linux does not mount this",
                            self.expected
                        ));
                    }
                }
                FastCommitTag::AddRange => {
                    let (blocks, _) = extent_length(le16(value, 8));
                    let first = wide(le16(value, 10), le32(value, 12));
                    self.scan.regions.push((first, u64::from(blocks)));
                }
                _ => {}
            }
            self.scan.steps.push(FastCommitStep { tag, value: value.to_vec() });
            if tag == FastCommitTag::Tail {
                self.crc = 0;
                self.complete_lengths = (self.scan.steps.len(), self.scan.regions.len());
                self.scan.commits += 1;
            } else {
                self.crc = crc32c(self.crc, &bytes[at..at + FAST_COMMIT_HEAD + length]);
            }
            at += FAST_COMMIT_HEAD + length;
        }
        Ok(false)
    }

    /// Handles data that is not a valid record: the fast commits end here, or Linux refuses to mount if no commit is complete.
    fn end(&self, fault: Error) -> Result<bool> {
        if self.complete_lengths.0 == 0 { Err(fault) } else { Ok(true) }
    }

    fn is_length(&self, tag: FastCommitTag, length: usize) -> bool {
        match tag {
            FastCommitTag::AddRange => length == 16,
            FastCommitTag::DeleteRange => length == 12,
            FastCommitTag::Create | FastCommitTag::Link | FastCommitTag::Unlink => (9..=8 + LONGEST_NAME).contains(&length),
            FastCommitTag::Inode => (4 + 128..=4 + self.inode_size).contains(&length),
            FastCommitTag::Pad => true,
            FastCommitTag::Tail => length >= 8,
            FastCommitTag::Head => length == 8,
        }
    }

    /// Returns the records of complete commits.
    pub fn finish(mut self) -> FastCommitScan {
        self.scan.steps.truncate(self.complete_lengths.0);
        self.scan.regions.truncate(self.complete_lengths.1);
        self.scan
    }
}

/// Changed blocks, by their number.
pub(crate) type Edits = FxHashMap<u64, Vec<u8>>;

/// A disk together with its changed blocks.
struct DiskEditor<'a> {
    disk: &'a dyn DiskReader,
    block_size: usize,
    edits: RefCell<Edits>,
}

impl<'a> DiskEditor<'a> {
    pub fn new(disk: &'a dyn DiskReader, block_size: usize) -> Self {
        Self { disk, block_size, edits: RefCell::default() }
    }

    /// Writes bytes to one block or to consecutive blocks, in memory.
    pub fn write(&self, structure: DiskStructure, offset: u64, bytes: &[u8]) -> Result<()> {
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let size = self.block_size as u64;
            let (block, within) = (at / size, (at % size) as usize);
            let length = rest.len().min(self.block_size - within);
            let mut edits = self.edits.borrow_mut();
            let whole = match edits.entry(block) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(empty) => {
                    let mut whole = vec![0; self.block_size];
                    structure.read(self.disk, block * size, &mut whole)?;
                    empty.insert(whole)
                }
            };
            whole[within..within + length].copy_from_slice(&rest[..length]);
            at += length as u64;
            rest = &rest[length..];
        }
        Ok(())
    }

    pub fn into_edits(self) -> Edits {
        self.edits.into_inner()
    }
}

impl DiskReader for DiskEditor<'_> {
    fn size(&self) -> io::Result<u64> {
        self.disk.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(offset, buffer)?;
        lay_over(&self.edits.borrow(), self.block_size as u64, offset, buffer);
        Ok(())
    }
}

/// Replaces the parts of `buffer` that lie in changed blocks by the changed contents. `buffer` was read from byte `offset` of the disk on.
pub(crate) fn lay_over(edits: &Edits, size: u64, offset: u64, buffer: &mut [u8]) {
    if edits.is_empty() || buffer.is_empty() {
        return;
    }
    let end = offset + buffer.len() as u64;
    for block in offset / size..end.div_ceil(size) {
        let Some(bytes) = edits.get(&block) else { continue };
        let (from, to) = (offset.max(block * size), end.min((block + 1) * size));
        buffer[(from - offset) as usize..(to - offset) as usize]
            .copy_from_slice(&bytes[(from - block * size) as usize..(to - block * size) as usize]);
    }
}

/// Bytes of an entry of a directory before its name.
const HEAD: usize = 8;
/// Bytes of the checksum at the end of a block of entries.
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

/// Changes of names: `ext4_fc_replay_link`, `_unlink` and `_create`. When a name is added to a directory with a hash tree, the
/// directory becomes linear: its hash blocks become empty blocks of entries, which all readers understand.
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
