//! Reads and writes of pages.

use emmclab_base::{Op, RequestFlags};

use crate::cache::{PAGE_BYTES, PAGE_SECTORS, PageLookup};
use crate::finished_operation::WaitReason;
use crate::request::IoCause;
use crate::task::{StepOutcome, TaskId};

use super::SimulatedHost;

impl SimulatedHost {
    /// Reads pages until the task has to wait for one. The task's cursor is the next page; its part is 1 if it has waited for that page.
    pub(super) fn read_step(&mut self, task: TaskId, inode: u32, offset: u64, bytes: u64) -> StepOutcome {
        let size = self.core.cache.inode(inode).size;
        let end = offset.saturating_add(bytes).min(size);
        if self.core.tasks[task].stage == 0 {
            self.core.tasks[task].stage = 1;
            self.core.tasks[task].cursor = offset / PAGE_BYTES;
            self.core.tasks[task].bytes = end.saturating_sub(offset);
        }
        let last = end.div_ceil(PAGE_BYTES);
        let most = self.core.config.readahead_pages();
        while self.core.tasks[task].cursor < last {
            let page = self.core.tasks[task].cursor;
            let awaited = self.core.tasks[task].part == 1;
            match self.core.cache.find(inode, page as u32) {
                PageLookup::Missing if !awaited => {
                    let before = (0..page).rev().take(most as usize);
                    let history = before.take_while(|one| self.core.cache.has(inode, *one as u32)).count() as u64;
                    let ahead = &mut self.core.cache.inode_mut(inode).ahead;
                    let window = ahead.window_for_missing(page, last - page, history, most);
                    let cause = self.core.cause(task);
                    // If the page was evicted, the expected next window may start after it.
                    if !(window.first..window.first + window.pages).contains(&page) {
                        self.read_window(inode, page, 1, cause);
                    }
                    self.read_window(inode, window.first, window.pages, cause);
                    if let Some(marker) = window.marker {
                        self.core.cache.mark(inode, marker as u32);
                    }
                    continue;
                }
                PageLookup::Reading(bio) if !awaited => {
                    self.core.await_bio(bio, task);
                    self.core.tasks[task].part = 1;
                    return StepOutcome::Wait(WaitReason::Read);
                }
                PageLookup::Present(true) => {
                    let missing = |at: &u64| !self.core.cache.has(inode, *at as u32);
                    if let Some(missing) = (page + 1..=page + most).find(missing) {
                        let window = self.core.cache.inode_mut(inode).ahead.window_for_marked(page, missing, most);
                        self.read_window(inode, window.first, window.pages, IoCause::ReadAhead);
                        if let Some(marker) = window.marker {
                            self.core.cache.mark(inode, marker as u32);
                        }
                    }
                }
                _ => {}
            }
            self.core.cache.inode_mut(inode).ahead.record_use(page);
            let state = &mut self.core.tasks[task];
            (state.part, state.cursor) = (0, page + 1);
        }
        StepOutcome::Done
    }

    /// Reads the pages of a run that are not in memory.
    pub(super) fn read_window(&mut self, inode: u32, first: u64, pages: u64, cause: IoCause) {
        let file = self.core.cache.inode(inode);
        let end = (first + pages).min(file.size.div_ceil(PAGE_BYTES));
        let mount = usize::from(file.mount);
        let most = u64::from(self.core.queue.max_sectors()) / PAGE_SECTORS;
        let flags = if cause == IoCause::ReadAhead { RequestFlags::READAHEAD } else { RequestFlags::SYNC };
        let mut at = first;
        while at < end {
            if self.core.cache.has(inode, at as u32) {
                at += 1;
                continue;
            }
            let Some((sector, run)) = self.mounts[mount].map(inode, at) else {
                // A hole reads as zeros.
                self.core.cache.insert(inode, at as u32, None);
                at += 1;
                continue;
            };
            let run = run.min(end - at).min(most);
            let missing = (1..run).find(|step| self.core.cache.has(inode, (at + step) as u32)).unwrap_or(run);
            let mut bio = self.core.page_bio(Op::Read, (inode, at), sector, missing, cause);
            bio.flags = flags;
            let id = self.core.submit(bio);
            for page in at..at + missing {
                self.core.cache.insert(inode, page as u32, Some(id));
            }
            at += missing;
        }
    }

    /// Writes pages in memory until the task has to wait. The task's cursor is the next page.
    pub(super) fn write_step(&mut self, task: TaskId, inode: u32, offset: u64, end: u64) -> StepOutcome {
        let last = end.div_ceil(PAGE_BYTES);
        let mount = usize::from(self.core.cache.inode(inode).mount);
        while self.core.tasks[task].cursor < last {
            let page = self.core.tasks[task].cursor;
            if self.core.cache.unwritten() >= self.core.config.dirty_pages() {
                self.throttled.push(task);
                self.core.tasks.await_completion(task, false);
                return StepOutcome::Wait(WaitReason::DirtyLimit);
            }
            let whole = offset <= page * PAGE_BYTES && (page + 1) * PAGE_BYTES <= end;
            match self.core.cache.find(inode, page as u32) {
                PageLookup::Reading(bio) => {
                    self.core.await_bio(bio, task);
                    return StepOutcome::Wait(WaitReason::Read);
                }
                PageLookup::Missing if self.must_be_read(inode, page, whole) => {
                    let cause = self.core.cause(task);
                    self.read_window(inode, page, 1, cause);
                    continue;
                }
                PageLookup::Missing => self.core.cache.insert(inode, page as u32, None),
                PageLookup::Present(_) => {}
            }
            let fs = &mut self.mounts[mount];
            let placed = fs.map(inode, page).is_some() || {
                let at_once = fs.place_at_once(&mut self.core, inode, page);
                let reserved = &mut self.core.tasks[task].reserved;
                if at_once {
                    *reserved = reserved.saturating_sub(1);
                }
                at_once
            };
            if self.core.cache.dirty_page(inode, page as u32, !placed, self.core.now) {
                let reserved = &mut self.core.tasks[task].reserved;
                if *reserved > 0 {
                    *reserved -= 1;
                } else {
                    fs.set_aside(1);
                }
            }
            self.core.tasks[task].cursor = page + 1;
        }
        StepOutcome::Done
    }

    /// Whether a write to a part of a page needs the page's data from the device.
    pub(super) fn must_be_read(&self, inode: u32, page: u64, whole: bool) -> bool {
        let file = self.core.cache.inode(inode);
        !whole && page * PAGE_BYTES < file.size && self.mounts[usize::from(file.mount)].map(inode, page).is_some()
    }
}
