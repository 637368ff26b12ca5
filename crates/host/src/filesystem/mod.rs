//! File systems: what operations on files ask of the blocks below.
//!
//! A file system is one file or folder here, and one line in [`build`]. It says where pages of files lie, which blocks of its own an
//! operation reads and changes, and what a sync waits for. Pages themselves, their write-back and the block layer are not its concern.
//!
//! Methods that give a [`Step`] may be called again after a wait: they change nothing before they give [`Step::Done`], but for those
//! of syncs, which count their parts in [`crate::task::Task::part`].

mod buffers;
mod ext4;
mod fat32;
mod free;
mod lfs;
mod segments;
mod yaffs2;

use std::ops::Range;

use emmclab_base::{Nanos, Result};

use crate::config::HostConfig;
use crate::core::Core;
use crate::mount::{FilesystemKind, Mount};
use crate::operation::FolderId;
use crate::task::{Job, Step, TaskId};

/// A file system on a partition. Sectors are those of the partition, pages have 4 KB.
pub(crate) trait Filesystem {
    /// Makes a file exist on the device, with pages; false where there is no room.
    fn preload(&mut self, core: &mut Core, inode: u32, pages: u64) -> bool;

    /// Finds a file by its name, as opening it does.
    fn lookup(&mut self, core: &mut Core, task: TaskId, inode: u32) -> Step;

    /// Makes an empty file.
    fn create(&mut self, core: &mut Core, task: TaskId, inode: u32) -> Step;

    /// Takes away the name of a file.
    fn unlink(&mut self, core: &mut Core, task: TaskId, inode: u32) -> Step;

    /// Frees a file that has neither a name nor pages in memory.
    fn free(&mut self, core: &mut Core, task: TaskId, inode: u32) -> Step;

    /// Shortens or extends a file to so many pages; those behind are not in memory.
    fn truncate(&mut self, core: &mut Core, task: TaskId, inode: u32, pages: u64) -> Step;

    /// Moves a name from one folder to another, which is that of the file by then; a file of that name loses it.
    fn rename(
        &mut self,
        core: &mut Core,
        task: TaskId,
        inode: u32,
        to: FolderId,
        replaced: Option<u32>,
    ) -> Step;

    /// The last descriptor of the file was closed.
    fn closed(&mut self, _: u32) {}

    /// Whether a file may have pages without a place between others; else a write behind the end fills what lies before it.
    fn has_holes(&self) -> bool {
        true
    }

    /// Whether a write of a page or more goes to the device before it ends.
    fn writes_through(&self) -> bool {
        false
    }

    /// The blocks that have to be read before a write to the file.
    fn begin_write(&mut self, core: &mut Core, task: TaskId, inode: u32) -> Step;

    /// Pages became dirty; whether the file grew.
    fn wrote(&mut self, core: &mut Core, inode: u32, pages: Range<u64>, grew: bool);

    /// Where a page lies: its sector, and how many pages from it on follow each other.
    fn map(&self, inode: u32, page: u64) -> Option<(u64, u64)>;

    /// Gives a page a place when it is written in memory already; false where that is done when it is written back.
    fn place_at_once(&mut self, _: &mut Core, _: u32, _: u64) -> bool {
        false
    }

    /// The blocks that have to be read before dirty pages of the file are placed.
    fn prepare(&mut self, core: &mut Core, task: TaskId, inode: u32) -> Step;

    /// Chooses where a run of dirty pages goes: the sector, and how many of them.
    fn place(&mut self, core: &mut Core, inode: u32, page: u64, count: u64) -> (u64, u64);

    /// Makes a file durable whose pages are written.
    fn sync_file(&mut self, core: &mut Core, task: TaskId, inode: u32, data_only: bool) -> Step;

    /// Makes the names in a folder durable.
    fn sync_folder(&mut self, core: &mut Core, task: TaskId, folder: FolderId) -> Step;

    /// Makes everything durable; pages of files are written.
    fn sync_all(&mut self, core: &mut Core, task: TaskId) -> Step;

    /// Pages that fit beside those that space is set aside for.
    fn free_pages(&self) -> u64;

    /// Files that can still be made.
    fn free_files(&self) -> u64 {
        u64::MAX
    }

    /// Sets space aside for so many pages, or gives it back where it is negative.
    fn set_aside(&mut self, pages: i64);

    /// When it has something to do by itself.
    fn next_event(&self) -> Option<Nanos> {
        None
    }

    /// Does what is due.
    fn advance(&mut self, _: &mut Core) {}

    /// The next step of one of its threads.
    fn step(&mut self, core: &mut Core, task: TaskId, job: Job) -> Step;

    /// Since when blocks of its own are dirty that write-back may write.
    fn oldest_dirty(&self) -> Option<Nanos>;

    /// Writes such blocks back that are dirty since `until` or longer.
    fn write_back(&mut self, core: &mut Core, until: Nanos);
}

/// Makes the file system of a mount.
pub(crate) fn build(number: u16, mount: &Mount, config: &HostConfig) -> Result<Box<dyn Filesystem>> {
    match mount.filesystem {
        FilesystemKind::Ext4 => Ok(Box::new(ext4::Ext4::new(number, mount, config.commit_interval())?)),
        FilesystemKind::Fat32 => Ok(Box::new(fat32::Fat32::new(number, mount)?)),
        FilesystemKind::Yaffs2 => Ok(Box::new(yaffs2::Yaffs2::new(number, mount)?)),
        FilesystemKind::Lfs => Ok(Box::new(lfs::Lfs::new(number, mount)?)),
    }
}
