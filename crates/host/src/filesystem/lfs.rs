//! A log-structured file system with node blocks, like F2FS. Data and nodes are appended at separate heads; nothing is written in place.
//!
//! A node block contains the addresses of the pages of a file. A sync of the file writes its node blocks and needs no checkpoint, because
//! recovery rolls forward over such nodes. A checkpoint writes the changed blocks of folders, all dirty nodes, the changed blocks of the
//! address and segment tables, and a checkpoint pack, whose last block has preflush and FUA. A checkpoint is written every 60 s, by `sync`,
//! by a sync of a folder or of a renamed file, and before cleaned segments are reused. Not modelled: writes in place (`ipu_policy` is off),
//! inline data, and separation by temperature.

use std::collections::BTreeSet;
use std::ops::Range;

use emmclab_base::{BlockNote, BlockRole, Error, ErrorClass, Nanos, RequestFlags, Result};

use crate::block::BioRequest;
use crate::cache::PAGE_SECTORS;
use crate::config::Mount;
use crate::core::{FilesystemJob, HostCore, StepOutcome, TaskId, TaskWork};
use crate::operation::{FolderId, WaitReason};

use super::FilesystemModel;
use super::segment_log::{LogHead, OWN, SegmentLog, place_counted};

/// Number of page addresses in an inode.
const INODE_PLACES: u64 = 923;
/// Number of page addresses in a node block that is not an inode.
const NODE_PLACES: u64 = 1018;
/// Number of names in a block of a folder.
const NAMES: u64 = 214;
/// Number of entries per block of the address table.
const ADDRESSES: u64 = 455;
/// Number of entries per block of the segment table.
const SEGMENTS: u64 = 55;
const PACK_ADDRESSES: usize = 38;
const PACK_SEGMENTS: usize = 6;
/// Number of blocks in a checkpoint pack: two headers, and summaries.
const PACK: u64 = 5;
/// Interval between two checkpoints (`cp_interval`).
const INTERVAL: Nanos = Nanos::from_secs(60);

/// The state of the file system.
#[derive(Debug)]
pub(super) struct Lfs {
    mount: u16,
    barrier: bool,
    log: SegmentLog,
    /// First page of the checkpoint packs.
    packs: u64,
    /// First page of the address table.
    addresses: u64,
    table: u64,
    reserved: u64,
    /// Nodes whose copies on the device are outdated, by file or folder. `dirty_since` is the time at which the first of these nodes became
    /// outdated.
    dirty_nodes: BTreeSet<(u32, u32)>,
    /// Blocks of folders that are outdated on the device.
    dirty_names: BTreeSet<(u32, u32)>,
    dirty_since: Option<Nanos>,
    names: Vec<u64>,
    /// Files that exist from the start of the simulation and have not been opened yet.
    unread: BTreeSet<u32>,
    /// Files whose sync needs a checkpoint, because they were renamed after the last checkpoint.
    moved: BTreeSet<u32>,
    /// Nodes whose entries in the address table have changed since the last checkpoint.
    changed_nodes: BTreeSet<(u32, u32)>,
    /// Segments whose entries in the segment table have changed since the last checkpoint.
    changed_segments: BTreeSet<u64>,
    segment_pages: u64,
    /// Number of checkpoints that have begun, and number of those that have ended.
    checkpoints: (u64, u64),
    checkpoint_task: Option<TaskId>,
    waiting: Vec<(u64, TaskId)>,
    cleaner: Option<TaskId>,
    waiting_for_room: Vec<TaskId>,
}

impl Lfs {
    pub fn new(number: u16, mount: &Mount) -> Result<Self> {
        let kb = mount.options.segment_kb.unwrap_or(2048);
        if !kb.is_power_of_two() || !(64..=65_536).contains(&kb) {
            return Err(Error::new(ErrorClass::Config, "the segment size must be a power of two from 64 to 65536 KB")
                .of_field("segment_kb", 0, kb.to_string().as_bytes())
                .hint("use a segment size such as 2048 KB"));
        }
        let segment_pages = u64::from(kb / 4);
        let pages = mount.sectors / PAGE_SECTORS;
        let packs = 2;
        let table = packs + 2 * PACK;
        let addresses = table + (pages / segment_pages).div_ceil(SEGMENTS);
        let first = (addresses + pages.div_ceil(ADDRESSES)).next_multiple_of(segment_pages);
        Ok(Self {
            mount: number,
            barrier: !mount.options.no_barrier,
            log: SegmentLog::new(number, mount, first, segment_pages)?,
            packs,
            addresses,
            table,
            reserved: 0,
            dirty_nodes: BTreeSet::new(),
            dirty_names: BTreeSet::new(),
            dirty_since: None,
            names: Vec::new(),
            unread: BTreeSet::new(),
            moved: BTreeSet::new(),
            changed_nodes: BTreeSet::new(),
            changed_segments: BTreeSet::new(),
            segment_pages,
            checkpoints: (0, 0),
            checkpoint_task: None,
            waiting: Vec::new(),
            cleaner: None,
            waiting_for_room: Vec::new(),
        })
    }

    fn node_of(page: u64) -> u32 {
        if page < INODE_PLACES { 0 } else { 1 + ((page - INODE_PLACES) / NODE_PLACES) as u32 }
    }

    fn object(folder: FolderId) -> u32 {
        OWN | folder.0
    }

    fn dirty_node(&mut self, now: Nanos, object: u32, node: u32) {
        // The inode of a changed file is in memory, so it need not be read from the device any more.
        self.unread.remove(&object);
        self.dirty_nodes.insert((object, node));
        self.dirty_since.get_or_insert(now);
    }

    /// Marks the block of a changed name, and the folder's inode, as dirty.
    fn change_name(&mut self, now: Nanos, folder: FolderId, added: bool) {
        let at = folder.0 as usize;
        if self.names.len() <= at {
            self.names.resize(at + 1, 0);
        }
        self.names[at] = if added { self.names[at] + 1 } else { self.names[at].saturating_sub(1) };
        let block = (self.names[at] / NAMES) as u32;
        self.dirty_names.insert((Self::object(folder), block));
        self.dirty_node(now, Self::object(folder), 0);
    }

    fn note_segment(&mut self, sector: u64) {
        self.changed_segments.insert(sector / PAGE_SECTORS / self.segment_pages);
    }

    fn write_node(&mut self, core: &mut HostCore, task: TaskId, object: u32, node: u32, head: LogHead) {
        self.dirty_nodes.remove(&(object, node));
        let sector = self.log.place_node(head, object, node);
        self.note_segment(sector);
        self.changed_nodes.insert((object, node));
        let mut write = self.log.own_write(core, task, sector);
        write.flags |= RequestFlags::SYNC;
        core.submit_for(write, task);
    }

    fn nodes_of(&self, object: u32) -> Vec<u32> {
        self.dirty_nodes.range((object, 0)..=(object, u32::MAX)).map(|(_, node)| *node).collect()
    }

    /// Makes the task wait for the end of the next checkpoint, which has not begun yet. Returns whether this call starts the checkpoint.
    fn await_checkpoint(&mut self, core: &mut HostCore, task: TaskId) -> bool {
        let (begun, _) = self.checkpoints;
        let own = self.request_checkpoint(core);
        self.waiting.push((begun + 1, task));
        core.tasks.await_completion(task, false);
        own
    }

    fn request_checkpoint(&mut self, core: &mut HostCore) -> bool {
        if self.checkpoint_task.is_some() {
            return false;
        }
        self.checkpoint_task = Some(core.tasks.begin(TaskWork::Filesystem(self.mount, FilesystemJob::Commit), core.now));
        true
    }

    fn has_free(&mut self, core: &mut HostCore, task: TaskId) -> bool {
        if self.log.has_free(self.dirty_nodes.len() as u64 + self.dirty_names.len() as u64) {
            return true;
        }
        self.waiting_for_room.push(task);
        core.tasks.await_completion(task, false);
        if self.cleaner.is_none() {
            self.cleaner = Some(core.tasks.begin(TaskWork::Filesystem(self.mount, FilesystemJob::Clean), core.now));
        }
        false
    }

    /// Writes a block of a table or of the checkpoint pack to a page of the partition.
    fn write_page(&mut self, core: &mut HostCore, task: TaskId, page: u64, role: BlockRole, flags: RequestFlags) {
        let mut write = BioRequest::write(self.mount, page * PAGE_SECTORS, PAGE_SECTORS as u32, role, core.cause(task));
        write.flags |= RequestFlags::SYNC | flags;
        write.note = Some(BlockNote::new(role, PAGE_SECTORS as u32));
        core.submit_for(write, task);
    }

    fn checkpoint_step(&mut self, core: &mut HostCore, task: TaskId) -> StepOutcome {
        let part = core.tasks[task].part;
        core.tasks[task].part += 1;
        match part {
            0 => {
                core.tasks[task].requests.clear();
                self.checkpoints.0 += 1;
                for (object, block) in std::mem::take(&mut self.dirty_names) {
                    let (sector, _) = self.log.place(LogHead::Data, object, u64::from(block), 1);
                    self.note_segment(sector);
                    let mut write = self.log.own_write(core, task, sector);
                    write.note = Some(BlockNote::new(BlockRole::Directory, PAGE_SECTORS as u32));
                    core.submit_for(write, task);
                }
                for (object, node) in std::mem::take(&mut self.dirty_nodes) {
                    self.write_node(core, task, object, node, LogHead::Node);
                }
                self.dirty_since = None;
                self.moved.clear();
                // This checkpoint records which segments are empty. They can be reused once the checkpoint is durable.
                self.log.retire();
            }
            1 => {
                if self.changed_nodes.len() > PACK_ADDRESSES {
                    let hashed = |(object, node): &(u32, u32)| u64::from(object & !OWN) + (u64::from(*node) << 20);
                    let blocks: BTreeSet<u64> = self.changed_nodes.iter().map(|node| hashed(node) / ADDRESSES).collect();
                    let size = (self.log.len() * self.segment_pages).div_ceil(ADDRESSES);
                    let blocks: BTreeSet<u64> = blocks.into_iter().map(|block| block % size).collect();
                    for block in blocks {
                        self.write_page(core, task, self.addresses + block, BlockRole::Metadata, RequestFlags::empty());
                    }
                    self.changed_nodes.clear();
                }
                if self.changed_segments.len() > PACK_SEGMENTS {
                    let blocks: BTreeSet<u64> = self.changed_segments.iter().map(|at| at / SEGMENTS).collect();
                    for block in blocks {
                        let page = (self.table + block).min(self.addresses - 1);
                        self.write_page(core, task, page, BlockRole::Metadata, RequestFlags::empty());
                    }
                    self.changed_segments.clear();
                }
                let pack = self.packs + self.checkpoints.0 % 2 * PACK;
                for block in 0..PACK - 1 {
                    self.write_page(core, task, pack + block, BlockRole::Superblock, RequestFlags::empty());
                }
            }
            2 => {
                let last = self.packs + self.checkpoints.0 % 2 * PACK + PACK - 1;
                let flags = if self.barrier { RequestFlags::PREFLUSH | RequestFlags::FUA } else { RequestFlags::empty() };
                self.write_page(core, task, last, BlockRole::Superblock, flags);
            }
            _ => {
                self.log.release();
                self.checkpoints.1 = self.checkpoints.0;
                let ended = self.checkpoints.1;
                let mut waiting = std::mem::take(&mut self.waiting);
                waiting.retain(|(wanted, waiter)| {
                    if *wanted <= ended {
                        core.tasks.share_requests(task, *waiter);
                        core.tasks.completion_arrived(*waiter, None);
                    }
                    *wanted > ended
                });
                self.waiting = waiting;
                if self.waiting.is_empty() {
                    self.checkpoint_task = None;
                    return StepOutcome::Done;
                }
                core.tasks[task].part = 0;
            }
        }
        StepOutcome::Wait(WaitReason::SyncCommit)
    }

    fn clean_step(&mut self, core: &mut HostCore, task: TaskId) -> StepOutcome {
        let part = core.tasks[task].part;
        core.tasks[task].part += 1;
        match part {
            0 => {
                let nodes = self.dirty_nodes.len() as u64 + self.dirty_names.len() as u64;
                if nodes >= self.segment_pages {
                    // A checkpoint writes the dirty nodes, so that cleaning need not reserve space for them.
                    self.await_checkpoint(core, task);
                    core.tasks[task].part = 0;
                } else if self.log.has_free(nodes) || !self.log.begin_clean(core, task) {
                    self.cleaner = None;
                    for waiter in self.waiting_for_room.drain(..) {
                        core.tasks.completion_arrived(waiter, None);
                    }
                    return StepOutcome::Done;
                }
            }
            1 => {
                for (object, page) in self.log.move_live(core, task) {
                    self.dirty_node(core.now, object, Self::node_of(page));
                }
            }
            2 => {
                self.await_checkpoint(core, task);
            }
            _ => core.tasks[task].part = 0,
        }
        StepOutcome::Wait(WaitReason::Journal)
    }
}

impl FilesystemModel for Lfs {
    fn preload(&mut self, core: &mut HostCore, inode: u32, pages: u64) -> bool {
        if self.free_pages() < pages + 1 {
            return false;
        }
        let mut page = 0;
        while page < pages {
            page += self.log.place(LogHead::Data, inode, page, pages - page).1;
        }
        for node in 0..=Self::node_of(pages.saturating_sub(1)) {
            self.log.place_node(LogHead::Node, inode, node);
        }
        let folder = core.cache.inode(inode).folder.0 as usize;
        if self.names.len() <= folder {
            self.names.resize(folder + 1, 0);
        }
        self.names[folder] += 1;
        self.unread.insert(inode);
        true
    }

    fn lookup(&mut self, core: &mut HostCore, task: TaskId, inode: u32) -> StepOutcome {
        // The inode of a file is read when the file is first used.
        if self.unread.remove(&inode)
            && let Some(sector) = self.log.node(inode, 0)
        {
            let read = BioRequest::read(self.mount, sector, PAGE_SECTORS as u32, core.cause(task));
            core.submit_for(read, task);
            return StepOutcome::Wait(WaitReason::Read);
        }
        StepOutcome::Done
    }

    fn create(&mut self, core: &mut HostCore, task: TaskId, inode: u32) -> StepOutcome {
        if !self.has_free(core, task) {
            return StepOutcome::Wait(WaitReason::Journal);
        }
        self.dirty_node(core.now, inode, 0);
        self.change_name(core.now, core.cache.inode(inode).folder, true);
        StepOutcome::Done
    }

    fn unlink(&mut self, core: &mut HostCore, task: TaskId, inode: u32) -> StepOutcome {
        if !self.has_free(core, task) {
            return StepOutcome::Wait(WaitReason::Journal);
        }
        self.change_name(core.now, core.cache.inode(inode).folder, false);
        self.dirty_node(core.now, inode, 0);
        StepOutcome::Done
    }

    fn free(&mut self, _: &mut HostCore, _: TaskId, inode: u32) -> StepOutcome {
        self.log.remove(inode);
        for node in self.nodes_of(inode) {
            self.dirty_nodes.remove(&(inode, node));
        }
        self.changed_nodes.insert((inode, 0));
        self.moved.remove(&inode);
        self.unread.remove(&inode);
        StepOutcome::Done
    }

    fn truncate(&mut self, core: &mut HostCore, _: TaskId, inode: u32, pages: u64) -> StepOutcome {
        self.log.truncate(inode, pages);
        self.dirty_node(core.now, inode, 0);
        self.dirty_node(core.now, inode, Self::node_of(pages));
        StepOutcome::Done
    }

    fn rename(&mut self, core: &mut HostCore, task: TaskId, inode: u32, to: FolderId, replaced: Option<u32>) -> StepOutcome {
        if !self.has_free(core, task) {
            return StepOutcome::Wait(WaitReason::Journal);
        }
        self.change_name(core.now, core.cache.inode(inode).folder, false);
        self.change_name(core.now, to, replaced.is_none());
        self.dirty_node(core.now, inode, 0);
        self.moved.insert(inode);
        StepOutcome::Done
    }

    fn begin_write(&mut self, _: &mut HostCore, _: TaskId, _: u32) -> StepOutcome {
        StepOutcome::Done
    }

    fn wrote(&mut self, core: &mut HostCore, inode: u32, _: Range<u64>, _: bool) {
        self.dirty_node(core.now, inode, 0);
    }

    fn map(&self, inode: u32, page: u64) -> Option<(u64, u64)> {
        self.log.map(inode, page)
    }

    fn prepare(&mut self, core: &mut HostCore, task: TaskId, _: u32) -> StepOutcome {
        if self.has_free(core, task) { StepOutcome::Done } else { StepOutcome::Wait(WaitReason::Journal) }
    }

    fn place(&mut self, core: &mut HostCore, inode: u32, page: u64, count: u64) -> (u64, u64) {
        let (sector, placed) = place_counted(&mut self.log, &mut self.reserved, inode, page, count);
        self.note_segment(sector);
        self.dirty_node(core.now, inode, Self::node_of(page));
        self.dirty_node(core.now, inode, Self::node_of(page + placed - 1));
        (sector, placed)
    }

    fn sync_file(&mut self, core: &mut HostCore, task: TaskId, inode: u32, _: bool) -> StepOutcome {
        let part = core.tasks[task].part;
        core.tasks[task].part += 1;
        match part {
            0 if self.moved.contains(&inode) => {
                core.tasks[task].part = 2;
                let own = self.await_checkpoint(core, task);
                StepOutcome::Wait(if own { WaitReason::SyncCommit } else { WaitReason::SyncJoined })
            }
            0 => {
                for node in self.nodes_of(inode) {
                    self.write_node(core, task, inode, node, LogHead::Node);
                }
                StepOutcome::Wait(WaitReason::SyncCommit)
            }
            1 => core.flush_for(task, self.mount, self.barrier),
            _ => StepOutcome::Done,
        }
    }

    fn sync_folder(&mut self, core: &mut HostCore, task: TaskId, _: FolderId) -> StepOutcome {
        self.sync_all(core, task)
    }

    fn sync_all(&mut self, core: &mut HostCore, task: TaskId) -> StepOutcome {
        if core.tasks[task].part > 0 {
            return StepOutcome::Done;
        }
        core.tasks[task].part = 1;
        let own = self.await_checkpoint(core, task);
        StepOutcome::Wait(if own { WaitReason::SyncCommit } else { WaitReason::SyncJoined })
    }

    fn free_pages(&self) -> u64 {
        // Two percent of the space is reserved for nodes and directory blocks.
        let room = self.log.room();
        (room - room / 50).saturating_sub(self.reserved + self.dirty_nodes.len() as u64)
    }

    fn set_aside(&mut self, pages: i64) {
        self.reserved = self.reserved.saturating_add_signed(pages);
    }

    fn next_event(&self) -> Option<Nanos> {
        self.dirty_since.filter(|_| self.checkpoint_task.is_none()).map(|since| since + INTERVAL)
    }

    fn advance(&mut self, core: &mut HostCore) {
        if self.next_event().is_some_and(|due| due <= core.now) {
            self.request_checkpoint(core);
        }
    }

    fn step(&mut self, core: &mut HostCore, task: TaskId, job: FilesystemJob) -> StepOutcome {
        if job == FilesystemJob::Clean { self.clean_step(core, task) } else { self.checkpoint_step(core, task) }
    }

    fn oldest_dirty(&self) -> Option<Nanos> {
        None
    }

    fn write_back(&mut self, _: &mut HostCore, _: Nanos) {}
}
