//! ext4 in ordered mode: the blocks that operations change, their commits, and the allocation of blocks.
//!
//! The model follows Linux 6.x (`fs/ext4`, `fs/jbd2`). Linux 2.6.35 differs only in the sizes of journals. Not modelled: fast commits,
//! access times (mounted with `noatime`), blocks reserved for root, names that are not 12 bytes long.

mod allocate;
mod journal;

use std::ops::Range;

use emmclab_base::{BlockRole, Nanos, RequestFlags, Result};

use super::{FilesystemModel, FreeBlocks, MetadataBufferTable, place_of};
use crate::config::Mount;
use crate::core::{FilesystemJob, HostCore, StepOutcome, TaskId};
use crate::operation::{FolderId, WaitReason};
use crate::request::IoCause;
use crate::writeback::{WritebackRound, write_pages};
use allocate::{BlockRange, Ext4File, Ext4Layout, FIRST_BLOCKS, FLEX, GROUP_BLOCKS, GroupInodes};
use journal::Ext4Journal;

/// Resolution of the times in inodes, in ns.
const TICK: i64 = 4_000_000;
/// Number of inodes that mke2fs reserves, including `lost+found`.
const FIRST_INODES: u64 = 11;

/// The state of an ext4 file system.
#[derive(Debug)]
pub(super) struct Ext4 {
    mount: u16,
    /// The first block of the partition on the device.
    base: u64,
    barrier: bool,
    discard: bool,
    commit_interval: Nanos,
    layout: Ext4Layout,
    free: FreeBlocks,
    /// Number of blocks in use, without preallocated blocks.
    used: u64,
    /// Number of blocks reserved for pages that are only in memory.
    reserved: u64,
    inodes: Vec<GroupInodes>,
    free_inodes: u64,
    files: Vec<Ext4File>,
    folders: Ext4FolderTable,
    /// For each group, whether nothing was allocated in it since the mount.
    fresh: Vec<bool>,
    /// For each group, whether anything was ever allocated in it. The bitmap of an unused group need not be read (`uninit_bg`).
    touched: Vec<bool>,
    last_group: u64,
    /// The preallocated runs for small files, one for each flex group.
    shared: Vec<BlockRange>,
    buffers: MetadataBufferTable,
    journal: Ext4Journal,
    /// Whether a file was opened since the mount. The first open is recorded in the superblock.
    opened: bool,
}

impl Ext4 {
    pub fn new(number: u16, mount: &Mount, commit_interval: Nanos) -> Result<Self> {
        let layout = Ext4Layout::new(mount)?;
        let mut free = FreeBlocks::default();
        free.give(0, layout.blocks);
        for (from, to) in layout.metadata_ranges() {
            free.take_any(from, to);
        }
        let root = layout.first_data();
        free.take_any(root, root + FIRST_BLOCKS);
        // The bitmaps of groups in which mke2fs allocated nothing are marked as not initialised. The last group is an exception.
        let mut touched: Vec<bool> = (0..layout.groups).map(|group| group % FLEX == 0 || group + 1 == layout.groups).collect();
        let journal = Ext4Layout::group_of(layout.journal)..=Ext4Layout::group_of(layout.journal + layout.journal_blocks - 1);
        journal.for_each(|group| touched[group as usize] = true);
        let mut buffers = MetadataBufferTable::new(number, 8);
        layout.mounted_blocks().for_each(|block| buffers.add(block, BlockRole::Metadata));
        let mut inodes = vec![GroupInodes::default(); layout.groups as usize];
        inodes[0].keep(FIRST_INODES);
        Ok(Self {
            mount: number,
            base: mount.first_sector / 8,
            barrier: !mount.options.no_barrier,
            discard: mount.options.discard,
            commit_interval,
            used: layout.blocks - free.len(),
            free,
            reserved: 0,
            // One sixteenth of the inodes is reserved for directories, all of which exist from the start.
            free_inodes: layout.groups * (layout.inodes_per_group - FIRST_INODES) * 15 / 16,
            inodes,
            files: Vec::new(),
            folders: Ext4FolderTable::new(root),
            touched,
            last_group: 0,
            fresh: vec![true; layout.groups as usize],
            shared: vec![BlockRange::default(); layout.groups.div_ceil(FLEX) as usize],
            buffers,
            journal: Ext4Journal::new(layout.journal, layout.journal_blocks),
            layout,
            opened: false,
        })
    }

    /// Logs the superblock in the journal when a file is opened for the first time since the mount.
    fn note_open(&mut self, core: &mut HostCore) {
        if !self.opened {
            self.opened = true;
            self.log(core, 0, BlockRole::Superblock);
        }
    }

    fn file(&mut self, inode: u32) -> &mut Ext4File {
        if self.files.len() <= inode as usize {
            self.files.resize_with(inode as usize + 1, Ext4File::default);
        }
        &mut self.files[inode as usize]
    }

    fn inode_block(&self, inode: u32) -> u64 {
        let file = &self.files[inode as usize];
        self.layout.inode_block(file.group, file.index)
    }

    /// Allocates an inode for a new file.
    fn take_inode(&mut self, folder: FolderId, inode: u32) {
        let group = self.inode_group(self.folders.get(folder).group);
        let index = self.inodes[group as usize].take();
        self.free_inodes -= 1;
        *self.file(inode) = Ext4File::new(group, index);
    }

    /// Whether an operation can continue, because the transaction has space and the required blocks are in memory. Blocks are read one after
    /// the other; a block of inodes is read together with others of its group.
    fn ready(&mut self, core: &mut HostCore, task: TaskId, blocks: &[u64]) -> bool {
        self.has_room(core, task)
            && blocks.iter().all(|block| {
                if !self.buffers.contains(*block)
                    && let Some((group, index)) = self.layout.inode_position(*block)
                {
                    let together = self.inodes[group as usize].read_together(self.layout.inode_block(group, 0), index);
                    let others = together.filter(|other| other != block);
                    others.for_each(|other| self.buffers.begin_read(core, core.cause(task), other, RequestFlags::READAHEAD));
                }
                self.buffers.make_ready(core, task, *block)
            })
    }

    /// The blocks that the lookup of a name in a folder reads.
    fn path(&self, folder: FolderId, inode: u32) -> [u64; 3] {
        [self.folders.leaf(FolderId(0), folder.0), self.folder_block(folder), self.folders.leaf(folder, inode)]
    }

    fn log_inode(&mut self, core: &HostCore, inode: u32) {
        let block = self.inode_block(inode);
        self.log(core, block, BlockRole::InodeTable);
        let (running, tick) = (self.journal.running.id, core.now.0 / TICK);
        let file = &mut self.files[inode as usize];
        (file.changed, file.tick) = (running, tick);
    }

    fn log_descriptor(&mut self, core: &HostCore, group: u64) {
        self.log(core, Ext4Layout::descriptor(group), BlockRole::GroupDescriptors);
    }

    /// Logs the superblock, which contains the head of the list of files to delete after a crash (orphans).
    fn log_orphans(&mut self, core: &HostCore) {
        self.log(core, 0, BlockRole::Superblock);
    }

    /// Makes a transaction durable, and also all file pages whose writes are complete when this step begins.
    fn sync_transaction(&mut self, core: &mut HostCore, task: TaskId, id: u32) -> StepOutcome {
        match core.tasks[task].part {
            0 => {
                core.tasks[task].part = 2;
                if id <= self.journal.durable {
                    return self.flush(core, task);
                }
                if self.journal.commit_block_sent(id) {
                    core.tasks[task].part = 1;
                }
                let own = self.request_commit(core, id);
                self.await_commit(core, task, id);
                StepOutcome::Wait(if own { WaitReason::SyncCommit } else { WaitReason::SyncJoined })
            }
            // The commit may have flushed the device's cache before the writes of the file's pages were complete, so another flush follows.
            1 => {
                core.tasks[task].part = 2;
                self.flush(core, task)
            }
            _ => StepOutcome::Done,
        }
    }

    fn flush(&mut self, core: &mut HostCore, task: TaskId) -> StepOutcome {
        core.flush_for(task, self.mount, self.barrier)
    }

    /// Writes the dirty pages of a file that have allocated blocks, and waits for all writes of the file in progress.
    fn write_placed(&mut self, core: &mut HostCore, task: TaskId, inode: u32) {
        let round = WritebackRound { waiter: Some(task), only_placed: true, ..WritebackRound::all(IoCause::Commit) };
        write_pages(core, self, inode, &round);
    }
}

impl FilesystemModel for Ext4 {
    fn make_folder(&mut self, folder: FolderId) {
        self.open_folder(folder);
    }

    fn preload(&mut self, core: &mut HostCore, inode: u32, pages: u64) -> bool {
        if self.free_pages() < pages {
            return false;
        }
        let folder = core.cache.inode(inode).folder;
        self.open_folder(folder);
        self.take_inode(folder, inode);
        self.split_full_leaf(folder, inode);
        self.folders.add_quietly(folder, inode);
        let mut page = 0;
        while page < pages {
            let run = self.allocate(core, inode, page, pages - page, false);
            page += run.to - run.from;
        }
        self.drop_set_aside(inode);
        true
    }

    fn lookup(&mut self, core: &mut HostCore, task: TaskId, inode: u32) -> StepOutcome {
        let [root, folder, leaf] = self.path(core.cache.inode(inode).folder, inode);
        let blocks = [root, folder, leaf, self.inode_block(inode), 0];
        if !self.ready(core, task, &blocks[..if self.opened { 4 } else { 5 }]) {
            return StepOutcome::Wait(WaitReason::Read);
        }
        self.note_open(core);
        StepOutcome::Done
    }

    fn create(&mut self, core: &mut HostCore, task: TaskId, inode: u32) -> StepOutcome {
        let folder = core.cache.inode(inode).folder;
        self.open_folder(folder);
        let group = self.inode_group(self.folders.get(folder).group);
        let index = self.inodes[group as usize].peek();
        if self.inodes[group as usize].is_untouched() {
            self.buffers.add(self.layout.inode_bitmap(group), BlockRole::InodeBitmap);
        }
        if self.inodes[group as usize].is_alone(index) {
            self.buffers.add(self.layout.inode_block(group, index), BlockRole::InodeTable);
        }
        let [root, names, leaf] = self.path(folder, inode);
        let (bitmap, descriptor) = (self.layout.inode_bitmap(group), Ext4Layout::descriptor(group));
        let blocks = [root, names, leaf, bitmap, descriptor, self.layout.inode_block(group, index), 0];
        if !self.ready(core, task, &blocks) {
            return StepOutcome::Wait(WaitReason::Journal);
        }
        self.take_inode(folder, inode);
        self.log(core, self.layout.inode_bitmap(group), BlockRole::InodeBitmap);
        self.log_descriptor(core, group);
        self.log_inode(core, inode);
        let running = self.journal.running.id;
        self.files[inode as usize].data_changed = running;
        self.add_name(core, folder, inode);
        self.note_open(core);
        StepOutcome::Done
    }

    fn unlink(&mut self, core: &mut HostCore, task: TaskId, inode: u32) -> StepOutcome {
        let folder = core.cache.inode(inode).folder;
        let blocks = [self.folders.leaf(folder, inode), self.folder_block(folder), self.inode_block(inode), 0];
        if !self.ready(core, task, &blocks) {
            return StepOutcome::Wait(WaitReason::Journal);
        }
        self.remove_name(core, folder, inode);
        self.log_inode(core, inode);
        self.log_orphans(core);
        StepOutcome::Done
    }

    fn free(&mut self, core: &mut HostCore, task: TaskId, inode: u32) -> StepOutcome {
        let Ext4File { group, index, .. } = self.files[inode as usize];
        let blocks = [self.inode_block(inode), self.layout.inode_bitmap(group), 0];
        if !self.ready(core, task, &blocks) {
            return StepOutcome::Wait(WaitReason::Journal);
        }
        self.free_from(core, inode, 0);
        self.log_inode(core, inode);
        self.log_orphans(core);
        self.log(core, self.layout.inode_bitmap(group), BlockRole::InodeBitmap);
        self.log_descriptor(core, group);
        self.inodes[group as usize].free(index);
        self.free_inodes += 1;
        self.journal.forget_file(inode);
        StepOutcome::Done
    }

    fn truncate(&mut self, core: &mut HostCore, task: TaskId, inode: u32, pages: u64) -> StepOutcome {
        let blocks = [self.inode_block(inode), 0];
        if !self.ready(core, task, &blocks) {
            return StepOutcome::Wait(WaitReason::Journal);
        }
        self.log_inode(core, inode);
        let running = self.journal.running.id;
        self.files[inode as usize].data_changed = running;
        if self.files[inode as usize].extents.find(pages, u64::MAX).next().is_some() {
            self.log_orphans(core);
        }
        self.free_from(core, inode, pages);
        StepOutcome::Done
    }

    fn rename(&mut self, core: &mut HostCore, task: TaskId, inode: u32, to: FolderId, replaced: Option<u32>) -> StepOutcome {
        let from = core.cache.inode(inode).folder;
        self.open_folder(to);
        let mut blocks = vec![
            self.folders.leaf(from, inode),
            self.folder_block(from),
            self.folders.leaf(to, inode),
            self.folder_block(to),
            self.inode_block(inode),
        ];
        if let Some(replaced) = replaced {
            blocks.extend([self.folders.leaf(to, replaced), self.inode_block(replaced), 0]);
        }
        if !self.ready(core, task, &blocks) {
            return StepOutcome::Wait(WaitReason::Journal);
        }
        if let Some(replaced) = replaced {
            self.remove_name(core, to, replaced);
            self.log_inode(core, replaced);
            self.log_orphans(core);
        }
        self.add_name(core, to, inode);
        self.remove_name(core, from, inode);
        self.log_inode(core, inode);
        StepOutcome::Done
    }

    fn file_closed(&mut self, inode: u32) {
        self.drop_set_aside(inode);
    }

    fn begin_write(&mut self, core: &mut HostCore, task: TaskId, inode: u32) -> StepOutcome {
        // The timestamps of an inode change at most once per kernel tick.
        if self.files[inode as usize].tick == core.now.0 / TICK {
            return StepOutcome::Done;
        }
        let block = self.inode_block(inode);
        if self.ready(core, task, &[block]) { StepOutcome::Done } else { StepOutcome::Wait(WaitReason::Journal) }
    }

    fn wrote(&mut self, core: &mut HostCore, inode: u32, pages: Range<u64>, grew: bool) {
        let file = &self.files[inode as usize];
        // The file size on the device changes when the last page is allocated, or immediately if the page is already allocated.
        let longer = grew && file.extents.get(pages.end - 1).is_some();
        if longer || file.tick != core.now.0 / TICK {
            self.log_inode(core, inode);
        }
        if longer {
            self.files[inode as usize].data_changed = self.journal.running.id;
        }
    }

    fn map(&self, inode: u32, page: u64) -> Option<(u64, u64)> {
        place_of(&self.files.get(inode as usize)?.extents, page)
    }

    fn prepare(&mut self, core: &mut HostCore, task: TaskId, inode: u32) -> StepOutcome {
        let Some(page) = core.cache.next_delayed(inode) else { return StepOutcome::Done };
        let group = Ext4Layout::group_of(self.goal(inode, u64::from(page)));
        if !self.touched[group as usize] {
            self.buffers.add(self.layout.block_bitmap(group), BlockRole::BlockBitmap);
        }
        if core.config.prefetches_bitmaps && !self.buffers.contains(self.layout.block_bitmap(group)) {
            for step in 0..(FLEX - group % FLEX).min(self.layout.groups) {
                let other = (group + step) % self.layout.groups;
                if self.touched[other as usize] {
                    self.buffers.begin_read(core, core.cause(task), self.layout.block_bitmap(other), RequestFlags::SYNC);
                }
            }
        }
        let blocks = [self.layout.block_bitmap(group), self.inode_block(inode)];
        if self.ready(core, task, &blocks) { StepOutcome::Done } else { StepOutcome::Wait(WaitReason::Journal) }
    }

    fn place(&mut self, core: &mut HostCore, inode: u32, page: u64, count: u64) -> (u64, u64) {
        if let Some((sector, run)) = self.map(inode, page) {
            return (sector, run.min(count));
        }
        let hole = self.files[inode as usize].extents.find(page, page + count).next();
        let count = hole.map_or(count, |(from, ..)| from - page);
        let run = self.allocate(core, inode, page, count, true);
        let taken = run.to - run.from;
        self.reserved -= taken;
        self.log_inode(core, inode);
        let running = self.journal.running.id;
        self.files[inode as usize].data_changed = running;
        if !self.journal.running.ordered.contains(&inode) {
            self.journal.running.ordered.push(inode);
        }
        (run.from * 8, taken)
    }

    fn sync_file(&mut self, core: &mut HostCore, task: TaskId, inode: u32, data_only: bool) -> StepOutcome {
        let file = &self.files[inode as usize];
        let id = if data_only { file.data_changed } else { file.changed };
        self.sync_transaction(core, task, id)
    }

    fn sync_folder(&mut self, core: &mut HostCore, task: TaskId, folder: FolderId) -> StepOutcome {
        self.open_folder(folder);
        if core.config.folder_sync_commits {
            // As `ext4_force_commit`: commits the transactions that are not durable yet, and does nothing if there are none.
            if core.tasks[task].part == 0 && self.last_transaction().is_none() {
                return StepOutcome::Done;
            }
            let id = self.last_transaction().unwrap_or(0);
            return self.sync_transaction(core, task, id);
        }
        let id = self.folders.get(folder).changed;
        self.sync_transaction(core, task, id)
    }

    fn sync_all(&mut self, core: &mut HostCore, task: TaskId) -> StepOutcome {
        match core.tasks[task].part {
            0 | 1 => {
                let id = self.last_transaction().unwrap_or(0);
                self.sync_transaction(core, task, id)
            }
            2 => {
                core.tasks[task].part = 3;
                let cause = core.cause(task);
                self.buffers.write_all(core, core.now, cause, Some(task));
                StepOutcome::Wait(WaitReason::SyncData)
            }
            _ => StepOutcome::Done,
        }
    }

    fn free_pages(&self) -> u64 {
        // One percent of the blocks is reserved for directories and extent trees.
        (self.layout.blocks - self.layout.blocks / 100).saturating_sub(self.used + self.reserved)
    }

    fn free_files(&self) -> u64 {
        self.free_inodes
    }

    fn set_aside(&mut self, pages: i64) {
        self.reserved = self.reserved.saturating_add_signed(pages);
    }

    fn next_event(&self) -> Option<Nanos> {
        self.journal.due(self.commit_interval)
    }

    fn advance(&mut self, core: &mut HostCore) {
        if self.next_event().is_some_and(|due| due <= core.now) {
            let id = self.journal.running.id;
            self.request_commit(core, id);
        }
    }

    fn step(&mut self, core: &mut HostCore, task: TaskId, job: FilesystemJob) -> StepOutcome {
        match job {
            FilesystemJob::Commit => self.commit_step(core, task),
            FilesystemJob::Checkpoint => self.checkpoint_step(core, task),
            FilesystemJob::Clean => StepOutcome::Done,
        }
    }

    fn oldest_dirty(&self) -> Option<Nanos> {
        self.buffers.oldest()
    }

    fn write_back(&mut self, core: &mut HostCore, until: Nanos) {
        self.buffers.write_all(core, until, IoCause::WriteBack, None);
    }
}

// Directories have an inode, and blocks with the names of files. If the names need more than one block, a hash distributes them over leaf
// blocks (`dir_index`).

/// Number of names per block: an entry with a name of 12 bytes takes 20 bytes.
const NAMES_PER_BLOCK: u32 = 204;

#[derive(Debug, Default)]
struct Ext4Folder {
    pub group: u64,
    index: u64,
    /// The root block of the hash tree; `None` if there is no tree.
    root: Option<u64>,
    /// Blocks with names, each with its number of names; empty for a folder that was never used.
    leaves: Vec<(u64, u32)>,
    /// The last transaction that changed the folder.
    pub changed: u32,
}

impl Ext4Folder {
    fn leaf_of(&self, inode: u32) -> usize {
        // Fibonacci hashing, which distributes consecutive numbers evenly.
        let hash = u64::from(inode).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        (hash as usize) % self.leaves.len().max(1)
    }
}

#[derive(Debug)]
struct Ext4FolderTable(Vec<Ext4Folder>);

impl Ext4FolderTable {
    /// Returns the folders of a new file system: only the root folder, inode 2, in the first block after the inode tables.
    pub fn new(block: u64) -> Self {
        Self(vec![Ext4Folder { index: 1, leaves: vec![(block, 0)], ..Ext4Folder::default() }])
    }

    pub fn get(&self, folder: FolderId) -> &Ext4Folder {
        &self.0[folder.0 as usize]
    }

    /// The block that contains the name of a file.
    pub fn leaf(&self, folder: FolderId, inode: u32) -> u64 {
        let folder = self.get(folder);
        folder.leaves[folder.leaf_of(inode)].0
    }

    /// Adds a name without logging the change. Used for files that exist from the start of the simulation.
    pub fn add_quietly(&mut self, folder: FolderId, inode: u32) {
        let folder = &mut self.0[folder.0 as usize];
        let leaf = folder.leaf_of(inode);
        folder.leaves[leaf].1 += 1;
    }
}

impl Ext4 {
    /// Initialises a folder at its first use; all folders exist from the start. Folders in the root are distributed over flex groups.
    fn open_folder(&mut self, id: FolderId) {
        let at = id.0 as usize;
        if self.folders.0.len() <= at {
            self.folders.0.resize_with(at + 1, Ext4Folder::default);
        }
        if !self.folders.0[at].leaves.is_empty() {
            return;
        }
        let groups = self.layout.groups;
        let flex = u64::from(id.0).wrapping_mul(0x9E37_79B9_7F4A_7C15) % groups.div_ceil(FLEX);
        // If there is only one flex group, it has fewer free inodes than Linux expects after the first folder. Each further folder is put
        // into the first group that has at least the mean number of free inodes (`find_group_orlov`).
        let used = |group: u64| self.inodes[group as usize].used();
        let mean = (0..groups).map(used).sum::<u64>().div_ceil(groups);
        let falls_back = groups <= FLEX && self.folders.0.iter().filter(|folder| !folder.leaves.is_empty()).count() > 1;
        let emptier = (0..groups).find(|group| falls_back && used(*group) <= mean);
        let group = emptier.unwrap_or_else(|| self.inode_group(flex * FLEX));
        let index = self.inodes[group as usize].take();
        let block = self.folder_place(group);
        self.folders.0[at] = Ext4Folder { group, index, leaves: vec![(block, 0)], ..Ext4Folder::default() };
    }

    /// Allocates a block for names. Folders are stored in the first group of a flex group.
    fn folder_place(&mut self, group: u64) -> u64 {
        let run = self.free.find(group / FLEX * FLEX * GROUP_BLOCKS, 1, 1);
        assert!(run.is_some(), "a hundredth of the file system is reserved for folders");
        let block = run.map_or(0, |(block, _)| block);
        self.free.take(block, block + 1);
        self.used += 1;
        block
    }

    fn folder_block(&self, folder: FolderId) -> u64 {
        let folder = self.folders.get(folder);
        self.layout.inode_block(folder.group, folder.index)
    }

    fn add_name(&mut self, core: &HostCore, id: FolderId, inode: u32) {
        let added = self.split_full_leaf(id, inode);
        for block in &added {
            self.buffers.add(*block, BlockRole::Directory);
            self.log(core, *block, BlockRole::Directory);
            let group = Ext4Layout::group_of(*block);
            self.log(core, self.layout.block_bitmap(group), BlockRole::BlockBitmap);
            self.log_descriptor(core, group);
        }
        if let Some(root) = self.folders.get(id).root.filter(|_| !added.is_empty()) {
            self.log(core, root, BlockRole::Directory);
        }
        self.folders.add_quietly(id, inode);
        self.log_name(core, id, inode);
    }

    fn remove_name(&mut self, core: &HostCore, id: FolderId, inode: u32) {
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

    /// Splits the leaf for the name of a file if it is full. Returns the new blocks; the old leaf also changes.
    fn split_full_leaf(&mut self, id: FolderId, inode: u32) -> Vec<u64> {
        let at = id.0 as usize;
        let (leaf, group) = (self.folders.0[at].leaf_of(inode), self.folders.0[at].group);
        let (block, names) = self.folders.0[at].leaves[leaf];
        if names < NAMES_PER_BLOCK {
            return Vec::new();
        }
        let mut added = vec![self.folder_place(group)];
        if self.folders.0[at].root.is_none() {
            // The first block becomes the root of the hash tree, and its names move to two new blocks.
            added.push(self.folder_place(group));
            self.folders.0[at].root = Some(block);
            self.folders.0[at].leaves = vec![(added[0], names / 2), (added[1], names - names / 2)];
        } else {
            self.folders.0[at].leaves[leaf].1 -= names / 2;
            self.folders.0[at].leaves.push((added[0], names / 2));
        }
        added
    }
}
