//! A log of chunks in erase blocks, as yaffs2 writes it to raw flash. Each page of a file and each header of an object is a chunk of 4 KB
//! (2 KB on the flash of 2010), with its tags in the spare area. Nothing is written in place, folders have no blocks, and maps are kept in
//! memory. Completed writes are durable, so no flush is sent.
//!
//! Writes go through to the device, except for those of less than a page. When few blocks are free, the block with the fewest live chunks
//! is collected; its erase is a discard.

use std::collections::BTreeMap;
use std::ops::Range;

use emmclab_base::{Error, ErrorClass, Nanos, Result};

use crate::block::BioRequest;
use crate::cache::{PAGE_BYTES, PAGE_SECTORS};
use crate::core::HostCore;
use crate::finished_operation::WaitReason;
use crate::mount::Mount;
use crate::operation::FolderId;
use crate::request::IoCause;
use crate::task::{FilesystemJob, StepOutcome, TaskId, TaskWork};

use super::FilesystemModel;
use super::segment_log::{LogHead, OWN, SegmentLog, place_counted};

/// The number of the node that contains an object's header.
const HEADER: u32 = 0;
/// Bytes per object, and per block, in a checkpoint.
const CHECKPOINT_BYTES: u64 = 40;
/// The object that holds the checkpoint.
const CHECKPOINT: u32 = OWN;

/// A file system.
#[derive(Debug)]
pub(super) struct Yaffs2 {
    mount: u16,
    log: SegmentLog,
    reserved: u64,
    /// Files whose header is out of date, and since when.
    changed: BTreeMap<u32, Nanos>,
    /// Number of files.
    objects: u64,
    cleaner: Option<TaskId>,
    waiting: Vec<TaskId>,
}

impl Yaffs2 {
    pub fn new(number: u16, mount: &Mount) -> Result<Self> {
        let kb = mount.options.segment_kb.unwrap_or(128);
        if !kb.is_power_of_two() || !(16..=4096).contains(&kb) {
            return Err(Error::new(ErrorClass::Config, "not a size of an erase block")
                .of_field("segment_kb", 0, kb.to_string().as_bytes())
                .hint("use a power of two from 16 to 4096"));
        }
        Ok(Self {
            mount: number,
            log: SegmentLog::new(number, mount, 0, u64::from(kb / 4))?,
            reserved: 0,
            changed: BTreeMap::new(),
            objects: 0,
            cleaner: None,
            waiting: Vec::new(),
        })
    }

    /// Whether there are free blocks for the next write of a task; if not, the task waits for them.
    fn has_free(&mut self, core: &mut HostCore, task: TaskId) -> bool {
        if self.log.has_free(0) {
            return true;
        }
        self.waiting.push(task);
        core.tasks.await_completion(task, false);
        if self.cleaner.is_none() {
            self.cleaner =
                Some(core.tasks.begin(TaskWork::Filesystem(self.mount, FilesystemJob::Clean), core.now));
        }
        false
    }

    /// Writes the header of an object, and waits for it.
    fn write_header(&mut self, core: &mut HostCore, task: TaskId, inode: u32) {
        self.changed.remove(&inode);
        let sector = self.log.place_node(LogHead::Data, inode, HEADER);
        let write = self.log.own_write(core, task, sector);
        core.submit_for(write, task);
    }

    /// Executes an operation that writes one header, in two parts: the write, and the wait for it.
    fn header_step(&mut self, core: &mut HostCore, task: TaskId, inode: u32) -> StepOutcome {
        if core.tasks[task].part > 0 {
            core.tasks[task].part = 0;
            return StepOutcome::Done;
        }
        if self.has_free(core, task) {
            core.tasks[task].part = 1;
            self.write_header(core, task, inode);
        }
        StepOutcome::Wait(WaitReason::SyncData)
    }
}

impl FilesystemModel for Yaffs2 {
    fn preload(&mut self, _: &mut HostCore, inode: u32, pages: u64) -> bool {
        if self.free_pages() < pages + 1 {
            return false;
        }
        let mut page = 0;
        while page < pages {
            page += self.log.place(LogHead::Data, inode, page, pages - page).1;
        }
        self.log.place_node(LogHead::Data, inode, HEADER);
        self.objects += 1;
        true
    }

    fn lookup(&mut self, _: &mut HostCore, _: TaskId, _: u32) -> StepOutcome {
        StepOutcome::Done
    }

    fn create(&mut self, core: &mut HostCore, task: TaskId, inode: u32) -> StepOutcome {
        let step = self.header_step(core, task, inode);
        self.objects += u64::from(step == StepOutcome::Done);
        step
    }

    /// Writes a header that puts the object in no folder.
    fn unlink(&mut self, core: &mut HostCore, task: TaskId, inode: u32) -> StepOutcome {
        self.header_step(core, task, inode)
    }

    /// Writes a last header that marks the object as deleted; it disappears with the erase of its block.
    fn free(&mut self, core: &mut HostCore, task: TaskId, inode: u32) -> StepOutcome {
        let step = self.header_step(core, task, inode);
        if step == StepOutcome::Done {
            self.log.remove(inode);
            self.changed.remove(&inode);
            self.objects -= 1;
        }
        step
    }

    fn truncate(&mut self, core: &mut HostCore, task: TaskId, inode: u32, pages: u64) -> StepOutcome {
        let step = self.header_step(core, task, inode);
        if step == StepOutcome::Done {
            self.log.truncate(inode, pages);
        }
        step
    }

    fn rename(
        &mut self,
        core: &mut HostCore,
        task: TaskId,
        inode: u32,
        _: FolderId,
        _: Option<u32>,
    ) -> StepOutcome {
        self.header_step(core, task, inode)
    }

    fn writes_through(&self) -> bool {
        true
    }

    fn begin_write(&mut self, core: &mut HostCore, task: TaskId, _: u32) -> StepOutcome {
        if self.has_free(core, task) { StepOutcome::Done } else { StepOutcome::Wait(WaitReason::Journal) }
    }

    fn wrote(&mut self, core: &mut HostCore, inode: u32, _: Range<u64>, _: bool) {
        self.changed.entry(inode).or_insert(core.now);
    }

    fn map(&self, inode: u32, page: u64) -> Option<(u64, u64)> {
        self.log.map(inode, page)
    }

    fn prepare(&mut self, core: &mut HostCore, task: TaskId, _: u32) -> StepOutcome {
        if self.has_free(core, task) { StepOutcome::Done } else { StepOutcome::Wait(WaitReason::Journal) }
    }

    fn place(&mut self, _: &mut HostCore, inode: u32, page: u64, count: u64) -> (u64, u64) {
        place_counted(&mut self.log, &mut self.reserved, inode, page, count)
    }

    fn sync_file(&mut self, core: &mut HostCore, task: TaskId, inode: u32, _: bool) -> StepOutcome {
        if core.tasks[task].part == 0 && !self.changed.contains_key(&inode) {
            return StepOutcome::Done;
        }
        self.header_step(core, task, inode)
    }

    fn sync_folder(&mut self, _: &mut HostCore, _: TaskId, _: FolderId) -> StepOutcome {
        StepOutcome::Done
    }

    fn sync_all(&mut self, core: &mut HostCore, task: TaskId) -> StepOutcome {
        if core.tasks[task].part == 1 {
            return StepOutcome::Done;
        }
        if !self.has_free(core, task) {
            return StepOutcome::Wait(WaitReason::Journal);
        }
        if let Some((&inode, _)) = self.changed.first_key_value() {
            self.write_header(core, task, inode);
            return StepOutcome::Wait(WaitReason::SyncData);
        }
        core.tasks[task].part = 1;
        let pages = ((self.objects + self.log.len()) * CHECKPOINT_BYTES).div_ceil(PAGE_BYTES);
        let mut page = 0;
        while page < pages {
            let (sector, placed) = self.log.place(LogHead::Node, CHECKPOINT, page, pages - page);
            for step in 0..placed {
                let write = self.log.own_write(core, task, sector + step * PAGE_SECTORS);
                core.submit_for(write, task);
            }
            page += placed;
        }
        StepOutcome::Wait(WaitReason::SyncCommit)
    }

    fn free_pages(&self) -> u64 {
        let checkpoint = ((self.objects + self.log.len()) * CHECKPOINT_BYTES).div_ceil(PAGE_BYTES);
        self.log.room().saturating_sub(self.reserved + 2 * checkpoint)
    }

    fn set_aside(&mut self, pages: i64) {
        self.reserved = self.reserved.saturating_add_signed(pages);
    }

    fn step(&mut self, core: &mut HostCore, task: TaskId, _: FilesystemJob) -> StepOutcome {
        let part = core.tasks[task].part;
        core.tasks[task].part += 1;
        match part {
            0 if self.log.has_free(0) || !self.log.begin_clean(core, task) => {
                self.cleaner = None;
                for waiter in self.waiting.drain(..) {
                    core.tasks.completion_arrived(waiter, None);
                }
                return StepOutcome::Done;
            }
            0 => {}
            1 => {
                self.log.move_live(core, task);
            }
            2 => {
                for (sector, sectors) in self.log.retire() {
                    core.submit_for(
                        BioRequest::discard(self.mount, sector, sectors, IoCause::Cleaning),
                        task,
                    );
                }
            }
            _ => {
                self.log.release();
                core.tasks[task].part = 0;
            }
        }
        StepOutcome::Wait(WaitReason::Journal)
    }

    fn oldest_dirty(&self) -> Option<Nanos> {
        None
    }

    fn write_back(&mut self, _: &mut HostCore, _: Nanos) {}
}
