//! File systems: the block I/O that operations on files cause.
//!
//! A file system is one file or folder here, and one line in [`build`]. It decides where pages of files are stored, which metadata blocks
//! an operation reads and changes, and what a sync waits for. The page cache, write-back and the block layer are implemented elsewhere.
//!
//! Methods that return a [`StepOutcome`] may be called again after a wait: they change nothing before they return [`StepOutcome::Done`]. Syncs are an
//! exception: they count their parts in [`crate::task::HostTask::partial_block`].

mod buffers;
mod ext4;
mod fat32;
mod free_blocks;
mod lfs;
mod segment_log;

use std::ops::Range;

use emmclab_base::{Nanos, Result};

use crate::config::HostConfig;
use crate::core::HostCore;
use crate::mount::{FilesystemKind, Mount};
use crate::operation::FolderId;
use crate::task::{FilesystemJob, StepOutcome, TaskId};

/// A file system on a partition. Sectors are those of the partition, pages have 4 KB.
pub(crate) trait FilesystemModel {
    /// Creates a file with pages on the device; returns false if there is no room.
    fn preload(&mut self, core: &mut HostCore, inode: u32, pages: u64) -> bool;

    /// Finds a file by its name, as opening it does.
    fn lookup(&mut self, core: &mut HostCore, task: TaskId, inode: u32) -> StepOutcome;

    /// Creates an empty file.
    fn create(&mut self, core: &mut HostCore, task: TaskId, inode: u32) -> StepOutcome;

    /// Removes the name of a file (unlink).
    fn unlink(&mut self, core: &mut HostCore, task: TaskId, inode: u32) -> StepOutcome;

    /// Frees a file that has neither a name nor pages in memory.
    fn free(&mut self, core: &mut HostCore, task: TaskId, inode: u32) -> StepOutcome;

    /// Truncates or extends a file to this number of pages; the page cache holds no page beyond them.
    fn truncate(&mut self, core: &mut HostCore, task: TaskId, inode: u32, pages: u64) -> StepOutcome;

    /// Renames a file from one folder to another. The file is already in the new folder; a file of the same name there is replaced.
    fn rename(
        &mut self,
        core: &mut HostCore,
        task: TaskId,
        inode: u32,
        to: FolderId,
        replaced: Option<u32>,
    ) -> StepOutcome;

    /// Called when the last descriptor of the file was closed.
    fn file_closed(&mut self, _: u32) {}

    /// Whether a file may have holes; otherwise a write beyond the end of the file also fills the gap before it.
    fn has_holes(&self) -> bool {
        true
    }

    /// Whether a write of a page or more returns only after it reached the device.
    fn writes_through(&self) -> bool {
        false
    }

    /// Reads the blocks that are needed before a write to the file.
    fn begin_write(&mut self, core: &mut HostCore, task: TaskId, inode: u32) -> StepOutcome;

    /// Called when pages became dirty; `grew` tells whether the file grew.
    fn wrote(&mut self, core: &mut HostCore, inode: u32, pages: Range<u64>, grew: bool);

    /// The sector of a page, and the number of pages that are contiguous from it on.
    fn map(&self, inode: u32, page: u64) -> Option<(u64, u64)>;

    /// Allocates a page when it is written in memory; returns false if the file system allocates at write-back (delayed allocation).
    fn place_at_once(&mut self, _: &mut HostCore, _: u32, _: u64) -> bool {
        false
    }

    /// Reads the blocks that are needed before dirty pages of the file are allocated.
    fn prepare(&mut self, core: &mut HostCore, task: TaskId, inode: u32) -> StepOutcome;

    /// Allocates a run of dirty pages: returns the sector, and how many of the pages fit there.
    fn place(&mut self, core: &mut HostCore, inode: u32, page: u64, count: u64) -> (u64, u64);

    /// Makes a file durable; its pages are already written.
    fn sync_file(&mut self, core: &mut HostCore, task: TaskId, inode: u32, data_only: bool) -> StepOutcome;

    /// Makes the names in a folder durable.
    fn sync_folder(&mut self, core: &mut HostCore, task: TaskId, folder: FolderId) -> StepOutcome;

    /// Makes everything durable; pages of files are already written.
    fn sync_all(&mut self, core: &mut HostCore, task: TaskId) -> StepOutcome;

    /// Number of pages that fit in addition to the reserved ones.
    fn free_pages(&self) -> u64;

    /// Number of files that can still be created.
    fn free_files(&self) -> u64 {
        u64::MAX
    }

    /// Reserves space for this number of pages, or releases it if the number is negative.
    fn set_aside(&mut self, pages: i64);

    /// Time of its next own work (such as a journal commit).
    fn next_event(&self) -> Option<Nanos> {
        None
    }

    /// Does the work that is due.
    fn advance(&mut self, _: &mut HostCore) {}

    /// The next step of one of its threads.
    fn step(&mut self, core: &mut HostCore, task: TaskId, job: FilesystemJob) -> StepOutcome;

    /// When the oldest dirty metadata block that write-back may write became dirty.
    fn oldest_dirty(&self) -> Option<Nanos>;

    /// Writes back those blocks that became dirty at `until` or earlier.
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
