//! Checks everything that is reachable from the root directory: that a reader can use it, and that a writer that trusts the bitmaps cannot
//! damage it. This does not replace e2fsck: unreachable structures (orphans, counters of free blocks) are not checked.

use std::ops::ControlFlow;

use emmclab_base::{Error, Result};
use rustc_hash::FxHashMap;

use super::{Ext4FileKind, Ext4Filesystem, GroupDescriptor, Inode, ROOT};
use crate::disk::{DiskReader, DiskStructure};

/// The link count of a directory that has more links than the field can represent.
const MANY_LINKS: u16 = 1;

/// The counts and the faults found by a walk through the directories.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct WalkSummary {
    /// Number of inodes to which a name refers.
    pub inodes: u64,
    /// Number of directories among `inodes`.
    pub directories: u64,
    /// Number of blocks of the contents and block maps of `inodes`.
    pub blocks: u64,
    /// The faults found, up to a given limit.
    pub faults: Vec<Error>,
}

/// What the walk has learned about an inode so far.
struct VisitedInode {
    names: u32,
    links: u16,
    kind: Ext4FileKind,
    offset: u64,
}

struct FilesystemWalker<'a, B> {
    filesystem: &'a Ext4Filesystem<B>,
    limit: usize,
    summary: WalkSummary,
    inodes: FxHashMap<u32, VisitedInode>,
    groups: FxHashMap<u32, GroupBitmaps>,
    /// A bit for each block of the file system, set if the block belongs to a file.
    claimed: Vec<u64>,
    /// Directories that have not been read yet, each with its parent directory.
    pending: Vec<(u32, u32)>,
}

/// The bitmaps of a group; `None` if they were never written.
#[derive(Default)]
struct GroupBitmaps {
    blocks: Option<Vec<u8>>,
    inodes: Option<Vec<u8>>,
}

impl<B: DiskReader> Ext4Filesystem<B> {
    /// Walks through all directories from the root and checks the file system, up to `limit` faults.
    ///
    /// Each inode and directory must be readable, be marked as used, and have as many links as names. Blocks must be inside the file
    /// system, be marked as used, and belong to only one file. Each directory must have one parent, and refer to it.
    pub fn walk(&self, limit: usize) -> WalkSummary {
        let words = self.superblock().blocks.div_ceil(64);
        let mut walker = FilesystemWalker {
            filesystem: self,
            limit,
            summary: WalkSummary::default(),
            inodes: FxHashMap::default(),
            groups: FxHashMap::default(),
            claimed: vec![0; usize::try_from(words).unwrap_or_default()],
            pending: Vec::new(),
        };
        walker.reach(ROOT, ROOT);
        while let Some((directory, parent)) = walker.pending.pop() {
            if walker.is_full() {
                break;
            }
            walker.directory(directory, parent);
        }
        walker.check_links();
        walker.summary
    }
}

impl<B: DiskReader> FilesystemWalker<'_, B> {
    fn is_full(&self) -> bool {
        self.summary.faults.len() >= self.limit
    }

    fn fault(&mut self, error: Error) {
        if !self.is_full() {
            self.summary.faults.push(error);
        }
    }

    fn count<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.fault(error)).ok()
    }

    /// Handles a name in `parent` that refers to an inode.
    fn reach(&mut self, number: u32, parent: u32) {
        if let Some(known) = self.inodes.get_mut(&number) {
            known.names += 1;
            if known.kind == Ext4FileKind::Directory {
                let fault = DiskStructure::Inode(number).fault(known.offset, "the directory has two parents");
                self.fault(fault);
            }
            return;
        }
        let Some(inode) = self.count(self.filesystem.inode(number)) else { return };
        let kind = inode.kind();
        self.inodes.insert(number, VisitedInode { names: 1, links: inode.links, kind, offset: inode.offset });
        self.summary.inodes += 1;
        self.check_marked(&inode);
        self.blocks(&inode);
        if kind == Ext4FileKind::Directory {
            self.summary.directories += 1;
            self.pending.push((number, parent));
        }
    }

    fn directory(&mut self, number: u32, parent: u32) {
        let Some(inode) = self.count(self.filesystem.inode(number)) else { return };
        let structure = DiskStructure::Directory(number);
        let (mut own, mut up) = (None, None);
        let done = self.filesystem.entries(&inode, |entry| {
            match entry.name {
                b"." => own = Some(entry.inode),
                b".." => up = Some(entry.inode),
                _ => self.reach(entry.inode, number),
            }
            if self.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if self.count(done).is_some() && !self.is_full() && (own, up) != (Some(number), Some(parent)) {
            let problem = format!("`.` and `..` are {own:?} and {up:?}, not {number} and {parent}");
            self.fault(structure.fault(inode.offset, problem));
        }
        // `.` counts as a link to the directory itself, and `..` as a link to its parent. The root directory is its own parent.
        if let Some(known) = self.inodes.get_mut(&number) {
            known.names += 1;
        }
        if number != ROOT
            && let Some(known) = self.inodes.get_mut(&parent)
        {
            known.names += 1;
        }
    }

    fn check_links(&mut self) {
        if self.is_full() {
            return;
        }
        let mut wrong: Vec<(u32, u64, u32, u16)> = self
            .inodes
            .iter()
            .filter(|(_, known)| u32::from(known.links) != known.names)
            .filter(|(_, known)| known.kind != Ext4FileKind::Directory || known.links != MANY_LINKS)
            .map(|(number, known)| (*number, known.offset, known.names, known.links))
            .collect();
        wrong.sort_unstable();
        for (number, offset, names, links) in wrong {
            let problem = format!("the link count is {links}, but {names} names refer to the inode");
            self.fault(DiskStructure::Inode(number).fault(offset, problem));
        }
    }

    fn check_marked(&mut self, inode: &Inode) {
        let each = self.filesystem.superblock().inodes_per_group;
        let (group, within) = ((inode.number - 1) / each, (inode.number - 1) % each);
        if !has_bit(self.bitmaps(group).inodes.as_deref(), u64::from(within)) {
            let fault = DiskStructure::Inode(inode.number).fault(inode.offset, "the inode is in use, but marked as free");
            self.fault(fault);
        }
    }

    fn blocks(&mut self, inode: &Inode) {
        let filesystem = self.filesystem;
        let mut mapper = filesystem.runs(inode);
        let mut levels: Vec<Option<u64>> = Vec::new();
        let mut at = 0;
        let end = if inode.has_map() { inode.size.div_ceil(u64::from(filesystem.superblock().block_size)) } else { 0 };
        while at < end && !self.is_full() {
            let Some(run) = self.count(mapper.at(at)) else { return };
            levels.resize(mapper.levels.len(), None);
            for (level, before) in mapper.levels.iter().zip(&mut levels) {
                if level.block != *before {
                    *before = level.block;
                    level.block.into_iter().for_each(|block| self.claim(inode, block));
                }
            }
            if let Some(start) = run.physical {
                let blocks = run.blocks.min(end - at);
                (start..start + blocks).for_each(|block| self.claim(inode, block));
            }
            at = run.end();
        }
    }

    fn claim(&mut self, inode: &Inode, block: u64) {
        let superblock = self.filesystem.superblock();
        let structure = DiskStructure::Data(inode.number);
        let offset = match self.filesystem.offset_of(block, structure) {
            Ok(offset) => offset,
            Err(fault) => return self.fault(fault),
        };
        let from_first = block - u64::from(superblock.first_block);
        let each = u64::from(superblock.blocks_per_group);
        let bit = from_first % each / u64::from(superblock.blocks_per_cluster);
        self.summary.blocks += 1;
        if !has_bit(self.bitmaps((from_first / each) as u32).blocks.as_deref(), bit) {
            self.fault(structure.fault(offset, format!("block {block} is in use, but marked as free")));
        }
        let Some(word) = self.claimed.get_mut((block / 64) as usize) else { return };
        let mask = 1 << (block % 64);
        let twice = *word & mask != 0;
        *word |= mask;
        if twice {
            self.fault(structure.fault(offset, format!("block {block} is also part of another file, or used twice by this one")));
        }
    }

    fn bitmaps(&mut self, group: u32) -> &GroupBitmaps {
        if !self.groups.contains_key(&group) {
            let bitmaps = self.filesystem.group(group).and_then(|group: GroupDescriptor| {
                let blocks = self.filesystem.block_bitmap(&group)?;
                Ok(GroupBitmaps { blocks, inodes: self.filesystem.inode_bitmap(&group)? })
            });
            let bitmaps = self.count(bitmaps).unwrap_or_default();
            self.groups.insert(group, bitmaps);
        }
        &self.groups[&group]
    }
}

fn has_bit(bitmap: Option<&[u8]>, bit: u64) -> bool {
    let byte = bitmap.and_then(|bitmap| bitmap.get((bit / 8) as usize));
    byte.is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
}
