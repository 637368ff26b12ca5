//! Folders: their inodes, and the blocks with their names. Beyond one block, names are distributed over leaves by a hash (`dir_index`).

use emmclab_base::BlockRole;

use crate::core::HostCore;
use crate::operation::FolderId;

use super::layout::{Ext4Layout, FLEX};
use super::{Ext4, GROUP_BLOCKS};

/// Names per block: an entry with a name of 12 bytes takes 20.
const NAMES: u32 = 204;

/// A folder.
#[derive(Debug, Default)]
pub(super) struct Ext4Folder {
    pub group: u64,
    index: u64,
    /// The root block of the hash tree, if there is one.
    root: Option<u64>,
    /// Blocks with names, each with its number of names; empty for a folder that was not used yet.
    leaves: Vec<(u64, u32)>,
    /// The last transaction that changed it.
    pub changed: u32,
}

impl Ext4Folder {
    fn leaf_of(&self, inode: u32) -> usize {
        // Fibonacci hashing: neighbours are spread evenly.
        let hash = u64::from(inode).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        (hash as usize) % self.leaves.len().max(1)
    }
}

/// All folders.
#[derive(Debug)]
pub(super) struct Ext4FolderTable(Vec<Ext4Folder>);

impl Ext4FolderTable {
    /// Only the root folder: inode 2, in the first block after the tables.
    pub fn new(block: u64) -> Self {
        Self(vec![Ext4Folder { index: 1, leaves: vec![(block, 0)], ..Ext4Folder::default() }])
    }

    pub fn get(&self, folder: FolderId) -> &Ext4Folder {
        &self.0[folder.0 as usize]
    }

    /// The block with a file's name.
    pub fn leaf(&self, folder: FolderId, inode: u32) -> u64 {
        let folder = self.get(folder);
        folder.leaves[folder.leaf_of(inode)].0
    }

    /// Adds a name without logging it, for files that exist from the start.
    pub fn add_quietly(&mut self, folder: FolderId, inode: u32) {
        let folder = &mut self.0[folder.0 as usize];
        let leaf = folder.leaf_of(inode);
        folder.leaves[leaf].1 += 1;
    }
}

impl Ext4 {
    /// Initialises a folder, which exists from the start, at its first use. Folders of the root are spread over flex groups.
    pub(super) fn open_folder(&mut self, id: FolderId) {
        let at = id.0 as usize;
        if self.folders.0.len() <= at {
            self.folders.0.resize_with(at + 1, Ext4Folder::default);
        }
        if !self.folders.0[at].leaves.is_empty() {
            return;
        }
        let flexes = self.layout.groups.div_ceil(FLEX);
        let flex = u64::from(id.0).wrapping_mul(0x9E37_79B9_7F4A_7C15) % flexes;
        let group = self.inode_group(flex * FLEX);
        let index = self.inodes[group as usize].take();
        let block = self.folder_place(group);
        self.folders.0[at] = Ext4Folder { group, index, leaves: vec![(block, 0)], ..Ext4Folder::default() };
    }

    /// Allocates a block for names. Folders are stored in the first group of a flex group.
    fn folder_place(&mut self, group: u64) -> u64 {
        let found = self.free.find(group / FLEX * FLEX * GROUP_BLOCKS, 1, 1);
        assert!(found.is_some(), "a hundredth of the file system is kept for folders");
        let block = found.map_or(0, |(block, _)| block);
        self.free.take(block, block + 1);
        self.used += 1;
        block
    }

    /// The block with the folder's inode.
    pub(super) fn folder_block(&self, folder: FolderId) -> u64 {
        let folder = self.folders.get(folder);
        self.layout.inode_block(folder.group, folder.index)
    }

    /// Adds a name; a full leaf is split.
    pub(super) fn add_name(&mut self, core: &HostCore, id: FolderId, inode: u32) {
        let at = id.0 as usize;
        let leaf = self.folders.0[at].leaf_of(inode);
        if self.folders.0[at].leaves[leaf].1 >= NAMES {
            self.split_leaf(core, id, leaf);
        }
        let leaf = self.folders.0[at].leaf_of(inode);
        self.folders.0[at].leaves[leaf].1 += 1;
        self.log_name(core, id, inode);
    }

    /// Removes a name.
    pub(super) fn remove_name(&mut self, core: &HostCore, id: FolderId, inode: u32) {
        let folder = &mut self.folders.0[id.0 as usize];
        let leaf = folder.leaf_of(inode);
        folder.leaves[leaf].1 = folder.leaves[leaf].1.saturating_sub(1);
        self.log_name(core, id, inode);
    }

    fn log_name(&mut self, core: &HostCore, id: FolderId, inode: u32) {
        self.log(core, self.folders.leaf(id, inode), BlockRole::Directory);
        self.log(core, self.folder_block(id), BlockRole::InodeTable);
        self.folders.0[id.0 as usize].changed = self.journal.running.id;
    }

    fn split_leaf(&mut self, core: &HostCore, id: FolderId, leaf: usize) {
        let at = id.0 as usize;
        let group = self.folders.0[at].group;
        let mut added = vec![self.folder_place(group)];
        if self.folders.0[at].root.is_none() {
            // The first block becomes the root of the tree, and its names go to two new ones.
            added.push(self.folder_place(group));
            let (block, names) = self.folders.0[at].leaves[0];
            self.folders.0[at].root = Some(block);
            self.folders.0[at].leaves = vec![(added[0], names / 2), (added[1], names - names / 2)];
        } else {
            let half = self.folders.0[at].leaves[leaf].1 / 2;
            self.folders.0[at].leaves[leaf].1 -= half;
            self.folders.0[at].leaves.push((added[0], half));
            let old = self.folders.0[at].leaves[leaf].0;
            self.log(core, old, BlockRole::Directory);
        }
        for block in added {
            self.buffers.add(block, BlockRole::Directory);
            self.log(core, block, BlockRole::Directory);
            let group = Ext4Layout::group_of(block);
            self.log(core, self.layout.block_bitmap(group), BlockRole::BlockBitmap);
            self.log_descriptor(core, group);
        }
        if let Some(root) = self.folders.0[at].root {
            self.log(core, root, BlockRole::Directory);
        }
    }
}
