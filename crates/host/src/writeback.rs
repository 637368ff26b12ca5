//! Write-back: submits the dirty pages of a file, and runs a thread that does this in the background.

use std::collections::VecDeque;

use emmclab_base::{Nanos, Op, RequestFlags};

use crate::cache::PAGE_SECTORS;
use crate::core::HostCore;
use crate::core::{StepOutcome, TaskId, TaskWork};
use crate::filesystem::FilesystemModel;
use crate::operation::WaitReason;
use crate::request::IoCause;

/// Maximum number of pages of a file that are written before write-back continues with the next file (`MAX_WRITEBACK_PAGES`, 4 MB).
const TURN: u64 = 1024;

/// The limits of one write-back round: which dirty pages of a file it writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WritebackRound {
    pub cause: IoCause,
    /// The task that waits until the writes of this round are complete. It also waits for writes of the file that are already in progress.
    pub waiter: Option<TaskId>,
    /// Whether only pages with allocated blocks are written.
    pub only_placed: bool,
    /// Maximum number of pages to write.
    pub pages: u64,
}

impl WritebackRound {
    /// Returns the state of a write-back round that writes all dirty pages of a file. No task waits for the round.
    pub fn all(cause: IoCause) -> Self {
        Self { cause, waiter: None, only_placed: false, pages: u64::MAX }
    }
}

/// The dirty pages of a file that remain after a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WritebackRemainder {
    /// Whether dirty pages remain because the round reached its maximum number of pages.
    pub has_more: bool,
    /// Whether a page is dirty again while it is being written, so that it must be written once more.
    pub redirtied: bool,
}

/// Submits writes of dirty pages of a file.
pub(crate) fn write_pages<F: FilesystemModel + ?Sized>(
    core: &mut HostCore, fs: &mut F, inode: u32, round: &WritebackRound,
) -> WritebackRemainder {
    if let Some(task) = round.waiter {
        let HostCore { cache, queue, tasks, .. } = core;
        cache.writing(inode, |bio| {
            queue.await_bio(bio, task, tasks);
        });
    }
    let (mut at, mut left, mut redirtied) = (0, round.pages, false);
    while left > 0
        && let Some(first) = core.cache.next_dirty(inode, at)
    {
        let mut end = first;
        while u64::from(end - first) < left && core.cache.is_writable(inode, end) {
            end += 1;
        }
        if end == first {
            // The page is being written, and a page has at most one write in progress. The page must be written again later.
            redirtied = true;
            at = first + 1;
            continue;
        }
        at = end;
        let mut page = u64::from(first);
        while page < u64::from(end) {
            let count = u64::from(end) - page;
            if round.only_placed && fs.map(inode, page).is_none() {
                page += 1;
                continue;
            }
            let (sector, placed) = fs.place(core, inode, page, count);
            submit(core, inode, page, sector, placed, round);
            page += placed;
            left = left.saturating_sub(placed);
        }
    }
    WritebackRemainder { has_more: left == 0 && core.cache.next_dirty(inode, at).is_some(), redirtied }
}

/// Writes all dirty pages of a file for a task. The task waits for these writes and for writes that are already in progress. Returns `None`
/// if the file system is not ready. Otherwise returns whether a page must be written once more.
pub(crate) fn write_all(core: &mut HostCore, fs: &mut dyn FilesystemModel, inode: u32, task: TaskId) -> Option<bool> {
    let round = WritebackRound { waiter: Some(task), pages: TURN, ..WritebackRound::all(core.cause(task)) };
    loop {
        if fs.prepare(core, task, inode) != StepOutcome::Done {
            return None;
        }
        let left = write_pages(core, fs, inode, &round);
        if !left.has_more {
            return Some(left.redirtied);
        }
    }
}

fn submit(core: &mut HostCore, inode: u32, page: u64, sector: u64, pages: u64, round: &WritebackRound) {
    let most = u64::from(core.queue.max_sectors()) / PAGE_SECTORS;
    let flags = if round.waiter.is_some() { RequestFlags::SYNC } else { RequestFlags::empty() };
    let mut done = 0;
    while done < pages {
        let count = (pages - done).min(most);
        let first = page + done;
        let mut bio = core.page_bio(Op::Write, (inode, first), sector + done * PAGE_SECTORS, count, round.cause);
        bio.flags = flags;
        let id = core.submit(bio);
        for index in first..first + count {
            core.cache.begin_write(inode, index as u32, id);
        }
        if let Some(task) = round.waiter {
            core.await_bio(id, task);
        }
        done += count;
    }
}

/// The background write-back thread. It writes one file after another, [`TURN`] pages of each.
#[derive(Debug, Default)]
pub(crate) struct Flusher {
    /// Files that remain to be written in this round.
    files: VecDeque<u32>,
    running: bool,
    /// Whether any page was written since the round began.
    progress: bool,
    /// Whether a round wrote nothing because all dirty pages are already being written. In this case, the next round starts only after the
    /// next event.
    stuck: bool,
    /// Time of the next check for expired dirty data; `None` while nothing is dirty.
    next: Option<Nanos>,
}

impl Flusher {
    /// Time of the next check for expired dirty data; `None` while nothing is dirty.
    pub fn next_event(&self) -> Option<Nanos> {
        self.next
    }

    /// Allows another write-back round after an event, because there may be pages to write.
    pub fn wake(&mut self) {
        self.stuck = false;
    }

    /// Starts the write-back thread if there are too many dirty pages, and its timer if any page is dirty.
    pub fn look(&mut self, core: &mut HostCore, mounts: &[Box<dyn FilesystemModel>]) {
        if self.next.is_none() && (core.cache.dirty() > 0 || mounts.iter().any(|fs| fs.oldest_dirty().is_some())) {
            self.next = Some(core.now + core.config.writeback_interval());
        }
        if core.cache.dirty() > core.config.background_pages() && !self.stuck {
            self.run(core);
        }
    }

    fn run(&mut self, core: &mut HostCore) {
        if !self.running {
            (self.running, self.progress) = (true, true);
            core.tasks.begin(TaskWork::Flusher, core.now);
        }
    }

    /// Checks for expired dirty data if the check is due.
    pub fn advance(&mut self, core: &mut HostCore, mounts: &mut [Box<dyn FilesystemModel>]) {
        if self.next.is_none_or(|due| due > core.now) {
            return;
        }
        self.next = Some(core.now + core.config.writeback_interval());
        let until = core.now.saturating_sub(core.config.expire());
        let mut dirty = core.cache.dirty() > 0;
        for fs in mounts {
            let oldest = fs.oldest_dirty();
            dirty |= oldest.is_some();
            if oldest.is_some_and(|since| since <= until) {
                fs.write_back(core, until);
            }
        }
        if !dirty {
            self.next = None;
        }
        if core.cache.oldest_dirty().is_some_and(|since| since <= until) {
            if self.files.is_empty() {
                core.cache.dirty_before(until, &mut self.files);
            }
            self.run(core);
        }
    }

    /// Executes the next step of the write-back thread.
    pub fn step(&mut self, core: &mut HostCore, task: TaskId, mounts: &mut [Box<dyn FilesystemModel>]) -> StepOutcome {
        if !core.queue.await_room(task, &mut core.tasks) {
            return StepOutcome::Wait(WaitReason::RequestLimit);
        }
        if self.files.is_empty() && self.progress && core.cache.dirty() > core.config.background_pages() {
            self.progress = false;
            core.cache.dirty_before(core.now, &mut self.files);
        }
        let Some(&inode) = self.files.front() else {
            (self.running, self.stuck) = (false, !self.progress);
            return StepOutcome::Done;
        };
        if core.cache.next_dirty(inode, 0).is_some() {
            let fs = &mut mounts[usize::from(core.cache.inode(inode).mount)];
            if let StepOutcome::Wait(wait) = fs.prepare(core, task, inode) {
                return StepOutcome::Wait(wait);
            }
            let before = core.cache.dirty();
            write_pages(core, &mut **fs, inode, &WritebackRound { pages: TURN, ..WritebackRound::all(IoCause::WriteBack) });
            if core.cache.dirty() < before {
                self.progress = true;
                if core.cache.next_dirty(inode, 0).is_some() {
                    self.files.push_back(inode);
                }
            }
        }
        self.files.pop_front();
        StepOutcome::Wait(WaitReason::RequestLimit)
    }
}
