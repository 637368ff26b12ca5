//! File systems: the block I/O that file operations cause.
//!
//! Each file system is a file or directory of this module, and a line in [`build`]. It determines where pages of files are stored, which
//! metadata blocks an operation reads and changes, and what a sync waits for. The page cache, write-back and the block layer are
//! implemented elsewhere.
//!
//! Methods that return a [`StepOutcome`] may be called again after a wait. They change nothing before they return [`StepOutcome::Done`],
//! except for syncs, which count their parts in [`crate::core::HostTask::part`].

mod ext4;
mod fat32;
mod lfs;
mod segment_log;

use std::collections::BTreeMap;
use std::ops::Range;

use emmclab_base::{BlockNote, BlockRole, Nanos, RequestFlags, Result, SectorRangeMap};
use rustc_hash::FxHashMap;

use crate::block::{BioId, BioRequest};
use crate::config::{FilesystemKind, HostConfig, Mount};
use crate::core::{FilesystemJob, HostCore, StepOutcome, TaskId};
use crate::operation::{FolderId, WaitReason};
use crate::request::IoCause;

/// A file system on a partition. Sectors are relative to the partition; pages have 4 KB.
pub(crate) trait FilesystemModel {
    /// Creates a folder that exists from the start.
    fn make_folder(&mut self, _: FolderId) {}

    /// Creates a file whose pages are on the device. Returns false if there is not enough space.
    fn preload(&mut self, core: &mut HostCore, inode: u32, pages: u64) -> bool;

    /// Looks up the name of a file, as an open does.
    fn lookup(&mut self, core: &mut HostCore, task: TaskId, inode: u32) -> StepOutcome;

    /// Creates an empty file.
    fn create(&mut self, core: &mut HostCore, task: TaskId, inode: u32) -> StepOutcome;

    /// Removes the name of a file (unlink).
    fn unlink(&mut self, core: &mut HostCore, task: TaskId, inode: u32) -> StepOutcome;

    /// Frees a file that has no name and no pages in memory.
    fn free(&mut self, core: &mut HostCore, task: TaskId, inode: u32) -> StepOutcome;

    /// Truncates or extends a file to a number of pages. The page cache contains no page of the file beyond this number.
    fn truncate(&mut self, core: &mut HostCore, task: TaskId, inode: u32, pages: u64) -> StepOutcome;

    /// Renames a file. The host has already moved it to the new folder `to`; the new name replaces the file `replaced`.
    fn rename(&mut self, core: &mut HostCore, task: TaskId, inode: u32, to: FolderId, replaced: Option<u32>) -> StepOutcome;

    /// Called when the last descriptor of a file is closed.
    fn file_closed(&mut self, _: u32) {}

    /// Whether a file may have holes. If not, a write beyond the end of the file also fills the gap before it.
    fn has_holes(&self) -> bool {
        true
    }

    /// Whether a write of at least a page returns only when the data is on the device.
    fn writes_through(&self) -> bool {
        false
    }

    /// Reads the blocks that are needed before a write to the file.
    fn begin_write(&mut self, core: &mut HostCore, task: TaskId, inode: u32) -> StepOutcome;

    /// Called when pages became dirty. `grew` is true if the file became longer.
    fn wrote(&mut self, core: &mut HostCore, inode: u32, pages: Range<u64>, grew: bool);

    /// The sector of a page, and the number of contiguous pages from it on; `None` if the page is not allocated.
    fn map(&self, inode: u32, page: u64) -> Option<(u64, u64)>;

    /// Allocates a page when it is written in memory. Returns false if the file system allocates pages at write-back (delayed allocation).
    fn place_at_once(&mut self, _: &mut HostCore, _: u32, _: u64) -> bool {
        false
    }

    /// Reads the blocks that are needed before dirty pages of the file are allocated.
    fn prepare(&mut self, core: &mut HostCore, task: TaskId, inode: u32) -> StepOutcome;

    /// Allocates blocks for a run of dirty pages. Returns the first sector, and the number of pages for which there are contiguous blocks.
    fn place(&mut self, core: &mut HostCore, inode: u32, page: u64, count: u64) -> (u64, u64);

    /// Makes a file durable. The pages of the file are already written.
    fn sync_file(&mut self, core: &mut HostCore, task: TaskId, inode: u32, data_only: bool) -> StepOutcome;

    /// Makes the names in a folder durable.
    fn sync_folder(&mut self, core: &mut HostCore, task: TaskId, folder: FolderId) -> StepOutcome;

    /// Makes the whole file system durable. The caller has already written the dirty pages of files.
    fn sync_all(&mut self, core: &mut HostCore, task: TaskId) -> StepOutcome;

    /// Number of pages for which space can still be reserved.
    fn free_pages(&self) -> u64;

    /// Number of files that can still be created.
    fn free_files(&self) -> u64 {
        u64::MAX
    }

    /// Reserves space for a number of pages, or releases reserved space if the number is negative.
    fn set_aside(&mut self, pages: i64);

    /// Time of the next work that the file system itself starts, such as a journal commit.
    fn next_event(&self) -> Option<Nanos> {
        None
    }

    /// Starts the work that is due.
    fn advance(&mut self, _: &mut HostCore) {}

    /// Executes the next step of a job of the file system.
    fn step(&mut self, core: &mut HostCore, task: TaskId, job: FilesystemJob) -> StepOutcome;

    /// Time at which the oldest dirty metadata block that may be written back became dirty.
    fn oldest_dirty(&self) -> Option<Nanos>;

    /// Writes back the metadata blocks that became dirty at or before `until`.
    fn write_back(&mut self, core: &mut HostCore, until: Nanos);
}

/// Creates the file system of a mount.
pub(crate) fn build(number: u16, mount: &Mount, config: &HostConfig) -> Result<Box<dyn FilesystemModel>> {
    match mount.filesystem {
        FilesystemKind::Ext4 => Ok(Box::new(ext4::Ext4::new(number, mount, config.commit_interval())?)),
        FilesystemKind::Fat32 => Ok(Box::new(fat32::Fat32::new(number, mount)?)),
        FilesystemKind::Lfs => Ok(Box::new(lfs::Lfs::new(number, mount)?)),
    }
}

/// Returns the sector of a page of a file, and the number of contiguous pages from it on. `extents` maps pages of the file to the distance
/// between their page in the partition and their page in the file.
fn place_of(extents: &SectorRangeMap<i64>, page: u64) -> Option<(u64, u64)> {
    let (from, to, delta) = extents.find(page, u64::MAX).next()?;
    (from == page).then(|| ((page as i64 + delta) as u64 * 8, to - from))
}

// State of metadata blocks in memory: whether each must be written in place and, with a journal, which transaction logged it last.

#[derive(Clone, Copy, Debug)]
struct MetadataBuffer {
    role: BlockRole,
    /// The bio that reads the block or writes it in place, while this bio is in progress.
    home: BioId,
    /// The bio that writes the block to the journal, while this bio is in progress.
    copy: BioId,
    /// The last transaction that logged the block; 0 if none did.
    transaction: u32,
}

impl MetadataBuffer {
    fn new(role: BlockRole) -> Self {
        Self { role, home: BioId::NONE, copy: BioId::NONE, transaction: 0 }
    }
}

/// The metadata blocks that were read or written. They are never evicted.
#[derive(Debug)]
struct MetadataBufferTable {
    mount: u16,
    /// Number of sectors per block.
    sectors: u32,
    blocks: FxHashMap<u64, MetadataBuffer>,
    /// Blocks to write in place, each with the time at which it became dirty. With a journal, a block is written in place only after the
    /// last transaction that logged it is committed.
    dirty: BTreeMap<u64, Nanos>,
}

impl MetadataBufferTable {
    pub fn new(mount: u16, sectors: u32) -> Self {
        Self { mount, sectors, blocks: FxHashMap::default(), dirty: BTreeMap::new() }
    }

    fn sector(&self, block: u64) -> u64 {
        block * u64::from(self.sectors)
    }

    /// Executes a step that waits until a block is in memory.
    pub fn read(&mut self, core: &mut HostCore, task: TaskId, block: u64) -> StepOutcome {
        if self.make_ready(core, task, block) { StepOutcome::Done } else { StepOutcome::Wait(WaitReason::Read) }
    }

    /// Reads a block that is not in memory. Makes the task wait if the block is being read, or a commit is writing it. Returns whether the
    /// block is ready.
    pub fn make_ready(&mut self, core: &mut HostCore, task: TaskId, block: u64) -> bool {
        self.begin_read(core, core.cause(task), block, RequestFlags::SYNC);
        self.blocks.get(&block).is_some_and(|buffer| {
            let home = core.await_bio(buffer.home, task);
            !core.await_bio(buffer.copy, task) && !home
        })
    }

    /// Begins to read a block that is not in memory.
    pub fn begin_read(&mut self, core: &mut HostCore, cause: IoCause, block: u64, flags: RequestFlags) {
        if !self.contains(block) {
            let read = BioRequest::read(self.mount, self.sector(block), self.sectors, cause);
            let home = core.submit(BioRequest { flags: RequestFlags::META | flags, ..read });
            self.blocks.insert(block, MetadataBuffer { home, ..MetadataBuffer::new(BlockRole::Metadata) });
        }
    }

    /// Whether a block is in memory or being read.
    pub fn contains(&self, block: u64) -> bool {
        self.blocks.contains_key(&block)
    }

    /// Adds a new block, or a block whose contents are known without a read.
    pub fn add(&mut self, block: u64, role: BlockRole) {
        self.blocks.entry(block).or_insert(MetadataBuffer::new(role));
    }

    /// Removes a freed block. Returns whether a transaction has logged it.
    pub fn forget(&mut self, block: u64) -> bool {
        self.dirty.remove(&block);
        self.blocks.remove(&block).is_some_and(|buffer| buffer.transaction != 0)
    }

    /// Marks a block as changed. From now on, write-back may write it in place.
    pub fn change(&mut self, block: u64, role: BlockRole, now: Nanos) {
        self.blocks.entry(block).or_insert(MetadataBuffer::new(role)).role = role;
        self.dirty.entry(block).or_insert(now);
    }

    /// Records that a transaction changes a block. Returns true if this is the first change of the block by this transaction.
    pub fn log(&mut self, block: u64, role: BlockRole, transaction: u32) -> bool {
        let buffer = self.blocks.entry(block).or_insert(MetadataBuffer::new(role));
        buffer.role = role;
        if buffer.transaction == transaction {
            return false;
        }
        buffer.transaction = transaction;
        self.dirty.remove(&block);
        true
    }

    /// Records the bio that writes the block to the journal.
    pub fn set_copy(&mut self, block: u64, bio: BioId) {
        if let Some(buffer) = self.blocks.get_mut(&block) {
            buffer.copy = bio;
        }
    }

    /// After the commit of a transaction, marks the block to be written in place, unless a later transaction has also logged it.
    pub fn mark_committed(&mut self, block: u64, transaction: u32, now: Nanos) {
        if self.blocks.get(&block).is_some_and(|buffer| buffer.transaction == transaction) {
            self.dirty.insert(block, now);
        }
    }

    /// Whether the log must keep the copy of a block that this transaction logged.
    pub fn is_needed(&self, core: &HostCore, block: u64, transaction: u32) -> bool {
        self.blocks.get(&block).is_some_and(|buffer| {
            buffer.transaction == transaction && (self.dirty.contains_key(&block) || core.queue.in_flight(buffer.home))
        })
    }

    /// Time at which the oldest dirty block became dirty.
    pub fn oldest(&self) -> Option<Nanos> {
        self.dirty.values().min().copied()
    }

    /// Writes a dirty block in place.
    pub fn write_home(&mut self, core: &mut HostCore, block: u64, cause: IoCause, waiter: Option<TaskId>) {
        let sector = self.sector(block);
        let Some(buffer) = self.blocks.get_mut(&block) else { return };
        // A block has at most one write in progress.
        if core.queue.in_flight(buffer.home) || self.dirty.remove(&block).is_none() {
            if let Some(task) = waiter {
                core.await_bio(buffer.home, task);
            }
            return;
        }
        let mut write = BioRequest::write(self.mount, sector, self.sectors, buffer.role, cause);
        let transaction = (buffer.transaction != 0).then_some(buffer.transaction);
        write.note = Some(BlockNote { transaction, ..BlockNote::new(buffer.role, self.sectors) });
        if waiter.is_some() {
            write.flags |= RequestFlags::SYNC;
        }
        buffer.home = core.submit(write);
        if let Some(task) = waiter {
            core.await_bio(buffer.home, task);
        }
    }

    /// Writes the blocks that became dirty at or before `until` in place, in order of address.
    pub fn write_all(&mut self, core: &mut HostCore, until: Nanos, cause: IoCause, waiter: Option<TaskId>) {
        self.write_range(core, 0..u64::MAX, until, cause, waiter);
    }

    /// Like [`Self::write_all`], but only for a range of blocks.
    pub fn write_range(&mut self, core: &mut HostCore, blocks: Range<u64>, until: Nanos, cause: IoCause, waiter: Option<TaskId>) {
        let old: Vec<u64> = self.dirty.range(blocks).filter(|(_, since)| **since <= until).map(|(block, _)| *block).collect();
        for block in old {
            self.write_home(core, block, cause, waiter);
        }
    }
}

/// Maximum number of free runs that a search for a long run examines in a range. If none of them is long enough, the search returns the
/// longest of them.
const SEARCH: usize = 256;

/// The free blocks of a file system.
#[derive(Debug, Default)]
struct FreeBlocks {
    runs: SectorRangeMap<()>,
    blocks: u64,
}

impl FreeBlocks {
    /// Number of free blocks.
    pub fn len(&self) -> u64 {
        self.blocks
    }

    /// Adds blocks that were in use to the free blocks.
    pub fn give(&mut self, from: u64, to: u64) {
        self.runs.set(from, to, ());
        self.blocks += to - from;
    }

    /// Removes blocks from the free blocks; all of them must be free.
    pub fn take(&mut self, from: u64, to: u64) {
        self.runs.remove(from, to);
        self.blocks -= to - from;
    }

    /// Removes all free blocks of a range. Blocks of the range that are in use are ignored.
    pub fn take_any(&mut self, from: u64, to: u64) {
        let free: u64 = self.runs.find(from, to).map(|(from, to, ())| to - from).sum();
        self.runs.remove(from, to);
        self.blocks -= free;
    }

    /// Number of contiguous free blocks from `block` on, at most `most`.
    pub fn free_at(&self, block: u64, most: u64) -> u64 {
        self.runs.find(block, block + most).next().filter(|(from, ..)| *from == block).map_or(0, |(from, to, ())| to - from)
    }

    /// The first block of the smallest buddy in `low..high` that has at least `want` blocks. Of several smallest buddies, the lowest is
    /// taken. A buddy is an aligned part of a free run; its length is a power of two.
    pub fn find_buddy(&self, low: u64, high: u64, want: u64) -> Option<u64> {
        let least = want.next_power_of_two();
        let mut best: Option<(u64, u64)> = None;
        for (from, to, ()) in self.runs.find(low, high) {
            if to - from < least {
                continue;
            }
            let mut at = from;
            while at < to {
                let aligned = if at == 0 { u64::MAX } else { 1 << at.trailing_zeros() };
                let fits = 1 << (to - at).ilog2();
                let size = aligned.min(fits);
                if size >= least && best.is_none_or(|(smallest, _)| size < smallest) {
                    best = Some((size, at));
                }
                at += size;
            }
            if best.is_some_and(|(size, _)| size == least) {
                break;
            }
        }
        best.map(|(_, at)| at)
    }

    /// Finds a free run of `want` blocks whose first block is a multiple of `align`: the first one from `goal` on, otherwise from the
    /// beginning. If there is none, returns the longest run (unaligned, at most `want` blocks).
    pub fn find(&self, goal: u64, want: u64, align: u64) -> Option<(u64, u64)> {
        let mut best: Option<(u64, u64)> = None;
        for (low, high) in [(goal, u64::MAX), (0, goal)] {
            for (from, to, ()) in self.runs.find(low, high).take(SEARCH) {
                let at = from.next_multiple_of(align);
                if at + want <= to {
                    return Some((at, want));
                }
                if best.is_none_or(|(_, length)| to - from > length) {
                    best = Some((from, to - from));
                }
            }
        }
        best.map(|(from, length)| (from, length.min(want)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aligned_run_behind_the_goal_is_preferred_and_the_longest_one_taken_else() {
        let mut free = FreeBlocks::default();
        free.give(3, 10);
        free.give(20, 60);
        assert_eq!(free.find(5, 16, 16), Some((32, 16)));
        assert_eq!(free.find(50, 16, 16), Some((32, 16)));
        assert_eq!(free.find(0, 100, 4), Some((20, 40)));
        assert_eq!(
            (free.find_buddy(0, 64, 4), free.find_buddy(0, 64, 16), free.find_buddy(0, 64, 33)),
            (Some(4), Some(32), None)
        );
        free.take(20, 60);
        assert_eq!((free.find(30, 4, 1), free.free_at(4, 100), free.len()), (Some((3, 4)), 6, 7));
    }
}
