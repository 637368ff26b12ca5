//! The steps of each file operation.

use std::collections::VecDeque;

use emmclab_base::{Error, ErrorClass, Op, RequestFlags, Result};

use super::{SimulatedHost, check_folder};
use crate::block::NONE;
use crate::cache::{PAGE_BYTES, PAGE_SECTORS, PageLookup, ReadAheadWindow};
use crate::core::{StepOutcome, TaskId};
use crate::operation::WaitReason;
use crate::operation::{FileId, FileOp};
use crate::request::IoCause;
use crate::writeback::write_all;

/// Maximum length of a file in bytes.
const LONGEST: u64 = 1 << 43;

/// Results of [`SimulatedHost::check`] that [`SimulatedHost::start`] uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct CheckedOperation {
    inode: u32,
    /// The file at the new path of a rename, which the rename replaces.
    replaced: u32,
    /// Number of pages for which the operation reserves space.
    pages: u64,
    /// Whether the operation is an open that creates the file.
    makes: bool,
}

impl CheckedOperation {
    fn of(inode: u32) -> Self {
        Self { inode, replaced: NONE, pages: 0, makes: false }
    }
}

impl SimulatedHost {
    /// Checks whether an operation can begin, without changing anything.
    pub(super) fn check(&self, operation: &FileOp) -> Result<CheckedOperation> {
        let of = CheckedOperation::of;
        match *operation {
            FileOp::Open { file, create } => {
                let name = self.names.get(file)?;
                match name.inode.filter(|inode| self.core.cache.inode(*inode).linked) {
                    Some(inode) => Ok(of(inode)),
                    None if name.inode.is_some() => Err(fault("the file was removed, but is still open", file)
                        .hint("close the removed file before its path is used again")),
                    None if create => {
                        self.check_room(usize::from(name.spec.mount.0), 1)?;
                        self.check_files(usize::from(name.spec.mount.0))?;
                        Ok(CheckedOperation { makes: true, ..of(NONE) })
                    }
                    None => self.names.inode(file).map(of),
                }
            }
            FileOp::Write { file, offset, bytes } => self.check_write(file, offset, bytes),
            FileOp::Append { file, bytes } => {
                let inode = self.usable(file)?;
                self.check_write(file, self.core.cache.inode(inode).end, bytes)
            }
            FileOp::Read { file, offset, bytes } => {
                check_length(file, offset, bytes)?;
                self.usable(file).map(of)
            }
            FileOp::Truncate { file, bytes } => {
                check_length(file, 0, bytes)?;
                self.usable(file).map(of)
            }
            FileOp::Fsync { file, .. } => self.usable(file).map(of),
            FileOp::Unlink { file } => {
                let inode = self.usable(file)?;
                if self.core.cache.inode(inode).linked { Ok(of(inode)) } else { Err(removed_file(file)) }
            }
            FileOp::Close { file } => {
                let inode = self.names.inode(file)?;
                if self.core.cache.inode(inode).opens == 0 {
                    return Err(fault("the file is not open", file).hint("open the file before this operation"));
                }
                Ok(of(inode))
            }
            FileOp::Rename { from, to } => {
                let inode = self.usable(from)?;
                let (source, target) = (self.names.get(from)?, self.names.get(to)?);
                if !self.core.cache.inode(inode).linked {
                    return Err(removed_file(from));
                }
                if source.spec.mount != target.spec.mount || from == to {
                    return Err(fault("the file cannot be renamed to this path", to).hint("rename to a path on the same mount"));
                }
                if let Some(replaced) = target.inode {
                    self.usable(to)?;
                    if self.core.cache.inode(replaced).opens > 0 {
                        return Err(fault("the file that a rename would replace is open", to)
                            .hint("close the file that the rename would replace"));
                    }
                }
                Ok(CheckedOperation { replaced: target.inode.unwrap_or(NONE), ..of(inode) })
            }
            FileOp::FsyncFolder { mount, .. } if usize::from(mount.0) >= self.mounts.len() => {
                Err(Error::new(ErrorClass::Value, "unknown mount number").of_field("mount", 0, mount.0.to_string().as_bytes()))
            }
            FileOp::FsyncFolder { folder, .. } => check_folder(folder).map(|()| of(NONE)),
            FileOp::Sync => Ok(of(NONE)),
        }
    }

    /// Returns the file at a path, or an error while another caller is creating it.
    fn usable(&self, file: FileId) -> Result<u32> {
        let inode = self.names.inode(file)?;
        if self.core.cache.inode(inode).making {
            return Err(fault("the file is being created by another caller", file).hint("open the file before this operation"));
        }
        Ok(inode)
    }

    fn check_write(&self, file: FileId, offset: u64, bytes: u64) -> Result<CheckedOperation> {
        let inode = self.usable(file)?;
        check_length(file, offset, bytes)?;
        let mount = usize::from(self.core.cache.inode(inode).mount);
        let fs = &self.mounts[mount];
        // If the file system cannot store holes, the gap between the end of the file and the write is also filled.
        let file = self.core.cache.inode(inode);
        let first = if fs.has_holes() { offset } else { offset.min(file.size) };
        let (mut page, end) = (first / PAGE_BYTES, (offset + bytes).div_ceil(PAGE_BYTES));
        let mut pages = 0;
        while page < end {
            if let Some((_, run)) = fs.map(inode, page) {
                page += run;
            } else {
                pages += u64::from(!self.core.cache.is_delayed(inode, page as u32));
                page += 1;
                // Counting stops as soon as the write cannot fit.
                if pages > fs.free_pages() {
                    break;
                }
            }
        }
        self.check_room(mount, pages)?;
        Ok(CheckedOperation { pages, ..CheckedOperation::of(inode) })
    }

    /// Starts an operation: adds the file that an open creates, and reserves space. Other operations see these changes from now on.
    pub(super) fn start(&mut self, task: TaskId, operation: &FileOp, prepared: CheckedOperation) {
        let mut inode = prepared.inode;
        match *operation {
            FileOp::Open { file, .. } if prepared.makes => {
                if let Ok(name) = self.names.get(file) {
                    inode = self.core.cache.add_inode(name.spec.mount.0, name.spec.folder, name.spec.class);
                    self.core.cache.inode_mut(inode).making = true;
                    self.names.set(file, Some(inode));
                }
            }
            FileOp::Write { .. } | FileOp::Append { .. } => {
                let mount = usize::from(self.core.cache.inode(inode).mount);
                self.mounts[mount].set_aside(prepared.pages as i64);
            }
            _ => {}
        }
        let state = &mut self.core.tasks[task];
        (state.files, state.reserved) = ([inode, prepared.replaced], prepared.pages);
        for file in [inode, prepared.replaced] {
            if file != NONE {
                self.core.cache.inode_mut(file).uses += 1;
            }
        }
    }

    /// Executes the next step of an operation. After the last step, files without a path and without descriptors are freed.
    pub(super) fn operation_step(&mut self, task: TaskId, operation: &FileOp) -> StepOutcome {
        if !self.core.tasks[task].ended {
            let step = self.own_step(task, operation);
            if step != StepOutcome::Done {
                return step;
            }
            self.core.tasks[task].ended = true;
        }
        for at in 0..2 {
            let inode = self.core.tasks[task].files[at];
            if inode == NONE {
                continue;
            }
            let file = self.core.cache.inode(inode);
            if file.uses == 1 && file.opens == 0 && !file.linked {
                if let StepOutcome::Wait(wait) = self.evict(task, inode) {
                    return StepOutcome::Wait(wait);
                }
            } else {
                self.core.cache.inode_mut(inode).uses -= 1;
            }
            self.core.tasks[task].files[at] = NONE;
        }
        StepOutcome::Done
    }

    fn own_step(&mut self, task: TaskId, operation: &FileOp) -> StepOutcome {
        let [inode, replaced] = self.core.tasks[task].files;
        // The first operation on a file that existed at the mount begins as an open.
        if inode != NONE && !matches!(operation, FileOp::Open { .. }) && !self.core.cache.inode(inode).found {
            let mount = usize::from(self.core.cache.inode(inode).mount);
            if let StepOutcome::Wait(wait) = self.mounts[mount].lookup(&mut self.core, task, inode) {
                return StepOutcome::Wait(wait);
            }
            self.core.cache.inode_mut(inode).found = true;
        }
        match *operation {
            FileOp::Open { .. } => self.open_step(task, inode),
            FileOp::Read { offset, bytes, .. } => self.read_step(task, inode, offset, bytes),
            FileOp::Write { offset, bytes, .. } => self.locked_write_step(task, inode, Some(offset), bytes),
            FileOp::Append { bytes, .. } => self.locked_write_step(task, inode, None, bytes),
            FileOp::Fsync { .. } | FileOp::FsyncFolder { .. } if !self.is_synced(operation, inode) => StepOutcome::Done,
            FileOp::Fsync { data_only, .. } => self.fsync_step(task, inode, data_only),
            FileOp::FsyncFolder { mount, folder } => self.mounts[usize::from(mount.0)].sync_folder(&mut self.core, task, folder),
            FileOp::Truncate { bytes, .. } => self.truncate_step(task, inode, bytes),
            FileOp::Unlink { file } => self.unlink_step(task, inode, file),
            FileOp::Rename { from, to } => self.rename_step(task, inode, replaced, from, to),
            FileOp::Close { file } => self.close_step(inode, file),
            FileOp::Sync => self.sync_step(task),
        }
    }

    /// Locks a file. Returns false if the task has to wait for the lock.
    pub(super) fn lock(&mut self, task: TaskId, inode: u32) -> bool {
        let file = self.core.cache.inode_mut(inode);
        match file.lock {
            None => file.lock = Some(task),
            Some(owner) if owner == task => {}
            Some(_) => {
                self.lock_waiters.push((inode, task));
                self.core.tasks.await_completion(task, false);
                return false;
            }
        }
        true
    }

    /// Unlocks a file, and passes the lock to the task that has waited for it the longest.
    pub(super) fn unlock(&mut self, inode: u32) {
        let next = self.lock_waiters.iter().position(|(file, _)| *file == inode);
        let next = next.map(|at| self.lock_waiters.remove(at).1);
        self.core.cache.inode_mut(inode).lock = next;
        if let Some(task) = next {
            self.core.tasks.completion_arrived(task, None);
        }
    }

    fn open_step(&mut self, task: TaskId, inode: u32) -> StepOutcome {
        if !self.lock(task, inode) {
            return StepOutcome::Wait(WaitReason::File);
        }
        let file = self.core.cache.inode(inode);
        if !file.linked {
            // The file was removed while the task waited for the file's lock.
            self.unlock(inode);
            return StepOutcome::Done;
        }
        let (making, fs) = (file.making, &mut self.mounts[usize::from(file.mount)]);
        let step = if making { fs.create(&mut self.core, task, inode) } else { fs.lookup(&mut self.core, task, inode) };
        if step == StepOutcome::Done {
            let file = self.core.cache.inode_mut(inode);
            (file.making, file.found) = (false, true);
            file.opens += 1;
            self.unlock(inode);
        }
        step
    }

    /// Writes at an offset or, without an offset, at the end of the file when the lock is acquired.
    fn locked_write_step(&mut self, task: TaskId, inode: u32, offset: Option<u64>, bytes: u64) -> StepOutcome {
        if !self.lock(task, inode) {
            return StepOutcome::Wait(WaitReason::File);
        }
        let mount = usize::from(self.core.cache.inode(inode).mount);
        if self.core.tasks[task].stage == 0 && bytes > 0 {
            if let StepOutcome::Wait(wait) = self.mounts[mount].begin_write(&mut self.core, task, inode) {
                return StepOutcome::Wait(wait);
            }
            let size = self.core.cache.inode(inode).size;
            let start = offset.unwrap_or(size);
            let first = if self.mounts[mount].has_holes() { start } else { start.min(size) };
            let state = &mut self.core.tasks[task];
            (state.stage, state.cursor) = (1, first / PAGE_BYTES);
            (state.offset, state.until) = (first, start + bytes);
            let file = self.core.cache.inode_mut(inode);
            file.end = file.end.max(start + bytes);
        }
        let (offset, end) = (self.core.tasks[task].offset, self.core.tasks[task].until);
        if self.core.tasks[task].stage == 2 {
            return self.write_through_step(task, inode);
        }
        let step = if bytes > 0 { self.write_step(task, inode, offset, end) } else { StepOutcome::Done };
        if step == StepOutcome::Done {
            let file = self.core.cache.inode_mut(inode);
            let grew = bytes > 0 && end > file.size;
            if grew {
                file.size = end;
            }
            let left = std::mem::take(&mut self.core.tasks[task].reserved);
            self.core.tasks[task].bytes = bytes;
            let pages = offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES);
            self.mounts[mount].set_aside(-(left as i64));
            if bytes > 0 {
                self.mounts[mount].wrote(&mut self.core, inode, pages, grew);
            }
            if bytes >= PAGE_BYTES && self.mounts[mount].writes_through() {
                self.core.tasks[task].stage = 2;
                return self.write_through_step(task, inode);
            }
            self.unlock(inode);
        }
        step
    }

    /// Waits until the written data is on the device. Used for file systems without write-back.
    fn write_through_step(&mut self, task: TaskId, inode: u32) -> StepOutcome {
        let fs = &mut self.mounts[usize::from(self.core.cache.inode(inode).mount)];
        let redirtied = write_all(&mut self.core, &mut **fs, inode, task);
        if redirtied == Some(false) && !self.core.tasks.is_waiting(task) {
            self.unlock(inode);
            return StepOutcome::Done;
        }
        StepOutcome::Wait(WaitReason::SyncData)
    }

    /// Whether a sync is executed, by the partition and the class of the file or folder. A folder has the class of the first file that was
    /// declared in it.
    fn is_synced(&self, operation: &FileOp, inode: u32) -> bool {
        let (mount, class) = if let FileOp::FsyncFolder { mount, folder } = *operation {
            (mount.0, self.names.class_of_folder(mount, folder))
        } else {
            let file = self.core.cache.inode(inode);
            (file.mount, file.class)
        };
        !self.unsynced_mounts[usize::from(mount)] && self.core.config.synced.executes_sync(class)
    }

    fn fsync_step(&mut self, task: TaskId, inode: u32, data_only: bool) -> StepOutcome {
        let mount = usize::from(self.core.cache.inode(inode).mount);
        let fs = &mut self.mounts[mount];
        if self.core.tasks[task].stage == 0 {
            let redirtied = write_all(&mut self.core, &mut **fs, inode, task);
            self.core.tasks[task].stage = u32::from(redirtied == Some(false));
            return StepOutcome::Wait(WaitReason::SyncData);
        }
        fs.sync_file(&mut self.core, task, inode, data_only)
    }

    fn truncate_step(&mut self, task: TaskId, inode: u32, bytes: u64) -> StepOutcome {
        if !self.lock(task, inode) {
            return StepOutcome::Wait(WaitReason::File);
        }
        let pages = bytes.div_ceil(PAGE_BYTES);
        let last = bytes / PAGE_BYTES;
        let file = self.core.cache.inode(inode);
        let (mount, shrinks) = (usize::from(file.mount), bytes < file.size);
        if shrinks && last < pages && self.core.tasks[task].stage == 0 {
            // The rest of the last page is filled with zeros, so the page must be in memory.
            match self.core.cache.find(inode, last as u32) {
                PageLookup::Reading(bio) => {
                    self.core.await_bio(bio, task);
                    return StepOutcome::Wait(WaitReason::Read);
                }
                PageLookup::Missing if self.must_be_read(inode, last, false) => {
                    let cause = self.core.cause(task);
                    self.read_window(inode, last, 1, cause);
                    return StepOutcome::Wait(WaitReason::Read);
                }
                PageLookup::Present(_) => {
                    let delayed = self.mounts[mount].map(inode, last).is_none();
                    if !delayed || self.core.cache.is_delayed(inode, last as u32) {
                        self.core.cache.dirty_page(inode, last as u32, delayed, self.core.now);
                    }
                }
                PageLookup::Missing => {}
            }
        }
        self.core.tasks[task].stage = 1;
        if shrinks && !self.drop_pages(task, inode, pages) {
            return StepOutcome::Wait(WaitReason::File);
        }
        let step = self.mounts[mount].truncate(&mut self.core, task, inode, pages);
        if step == StepOutcome::Done {
            let file = self.core.cache.inode_mut(inode);
            (file.size, file.end) = (bytes, bytes);
            self.unlock(inode);
        }
        step
    }

    /// Drops the pages of a file from `from` on. Returns false if the task has to wait for pages that are being read or written.
    fn drop_pages(&mut self, task: TaskId, inode: u32, from: u64) -> bool {
        let crate::core::HostCore { cache, queue, tasks, .. } = &mut self.core;
        cache.under_way(inode, from as u32, |bio| {
            queue.await_bio(bio, task, tasks);
        });
        if self.core.tasks.is_waiting(task) {
            return false;
        }
        let delayed = self.core.cache.truncate(inode, from as u32);
        let mount = usize::from(self.core.cache.inode(inode).mount);
        self.mounts[mount].set_aside(-(delayed as i64));
        true
    }

    /// Frees a file that has no name and no users.
    fn evict(&mut self, task: TaskId, inode: u32) -> StepOutcome {
        if !self.drop_pages(task, inode, 0) {
            return StepOutcome::Wait(WaitReason::File);
        }
        let mount = usize::from(self.core.cache.inode(inode).mount);
        let step = self.mounts[mount].free(&mut self.core, task, inode);
        if step == StepOutcome::Done {
            self.core.cache.remove_inode(inode);
        }
        step
    }

    fn sync_step(&mut self, task: TaskId) -> StepOutcome {
        if self.core.tasks[task].stage == 0 {
            let mut files = VecDeque::new();
            self.core.cache.unwritten_files(&mut files);
            let mut redirtied = false;
            for inode in files {
                let fs = &mut self.mounts[usize::from(self.core.cache.inode(inode).mount)];
                match write_all(&mut self.core, &mut **fs, inode, task) {
                    None => return StepOutcome::Wait(WaitReason::SyncData),
                    Some(more) => redirtied |= more,
                }
            }
            self.core.tasks[task].stage = u32::from(!redirtied);
            return StepOutcome::Wait(WaitReason::SyncData);
        }
        while (self.core.tasks[task].cursor as usize) < self.mounts.len() {
            let mount = self.core.tasks[task].cursor as usize;
            if let StepOutcome::Wait(wait) = self.mounts[mount].sync_all(&mut self.core, task) {
                return StepOutcome::Wait(wait);
            }
            let state = &mut self.core.tasks[task];
            (state.cursor, state.part) = (state.cursor + 1, 0);
        }
        StepOutcome::Done
    }
}

fn fault(problem: &str, file: FileId) -> Error {
    Error::new(ErrorClass::Value, problem).of_field("file", 0, file.0.to_string().as_bytes())
}

fn removed_file(file: FileId) -> Error {
    fault("the file was removed", file).hint("create the file before it is used")
}

fn check_length(file: FileId, offset: u64, bytes: u64) -> Result<()> {
    if offset.checked_add(bytes).is_none_or(|end| end > LONGEST) {
        return Err(fault("the file would be too long", file).hint("keep the size of each file below 8 TB"));
    }
    Ok(())
}

impl SimulatedHost {
    pub(super) fn unlink_step(&mut self, task: TaskId, inode: u32, path: FileId) -> StepOutcome {
        if !self.lock(task, inode) {
            return StepOutcome::Wait(WaitReason::File);
        }
        let file = self.core.cache.inode(inode);
        // While this task waited, another operation may have removed or renamed the file.
        if file.linked && self.names.inode(path).is_ok_and(|named| named == inode) {
            let mount = usize::from(file.mount);
            if let StepOutcome::Wait(wait) = self.mounts[mount].unlink(&mut self.core, task, inode) {
                return StepOutcome::Wait(wait);
            }
            let file = self.core.cache.inode_mut(inode);
            file.linked = false;
            if file.opens == 0 {
                self.names.set(path, None);
            }
        }
        self.unlock(inode);
        StepOutcome::Done
    }

    pub(super) fn close_step(&mut self, inode: u32, path: FileId) -> StepOutcome {
        let file = self.core.cache.inode_mut(inode);
        file.opens = file.opens.saturating_sub(1);
        if file.opens == 0 {
            let (mount, linked) = (usize::from(file.mount), file.linked);
            self.mounts[mount].file_closed(inode);
            if !linked {
                self.names.set(path, None);
            }
        }
        StepOutcome::Done
    }

    pub(super) fn rename_step(&mut self, task: TaskId, inode: u32, replaced: u32, from: FileId, to: FileId) -> StepOutcome {
        let mut files = [inode, replaced];
        // All renames lock files in the same order, so that two renames never wait for each other.
        files.sort_unstable();
        for file in files {
            if file != NONE && !self.lock(task, file) {
                return StepOutcome::Wait(WaitReason::File);
            }
        }
        let Ok(target) = self.names.get(to) else { return StepOutcome::Done };
        // If another operation removed, created or renamed one of the files while this task waited, nothing remains to be done.
        let unchanged = self.core.cache.inode(inode).linked
            && self.names.inode(from).is_ok_and(|named| named == inode)
            && target.inode.unwrap_or(NONE) == replaced;
        if unchanged {
            let (mount, folder) = (usize::from(target.spec.mount.0), target.spec.folder);
            let step = self.mounts[mount].rename(&mut self.core, task, inode, folder, target.inode);
            if let StepOutcome::Wait(wait) = step {
                return StepOutcome::Wait(wait);
            }
            let file = self.core.cache.inode_mut(inode);
            (file.folder, file.class) = (folder, target.spec.class);
            self.names.set(to, Some(inode));
            self.names.set(from, None);
            if replaced != NONE {
                self.core.cache.inode_mut(replaced).linked = false;
            }
        }
        for file in files {
            if file != NONE {
                self.unlock(file);
            }
        }
        StepOutcome::Done
    }

    /// Reads pages until the task has to wait for a page. The task's `cursor` is the next page; its `part` is 1 if it has waited for that
    /// page.
    pub(super) fn read_step(&mut self, task: TaskId, inode: u32, offset: u64, bytes: u64) -> StepOutcome {
        let size = self.core.cache.inode(inode).size;
        let end = offset.saturating_add(bytes).min(size);
        if self.core.tasks[task].stage == 0 {
            self.core.tasks[task].stage = 1;
            self.core.tasks[task].cursor = offset / PAGE_BYTES;
            self.core.tasks[task].bytes = end.saturating_sub(offset);
        }
        let last = end.div_ceil(PAGE_BYTES);
        let (most, continues) = (self.core.config.readahead_pages(), self.core.config.continues_readahead);
        while self.core.tasks[task].cursor < last {
            let page = self.core.tasks[task].cursor;
            let awaited = self.core.tasks[task].part == 1;
            match self.core.cache.find(inode, page as u32) {
                PageLookup::Missing if !awaited => {
                    let before = (0..page).rev().take(most as usize);
                    let history = before.take_while(|earlier| self.core.cache.has(inode, *earlier as u32)).count() as u64;
                    let ahead = &mut self.core.cache.inode_mut(inode).ahead;
                    let window = ahead.window_for_missing(page, last - page, history, most, continues);
                    let cause = self.core.cause(task);
                    // An evicted page may be before the next read-ahead window. It is then read separately.
                    if !(window.first..window.first + window.pages).contains(&page) {
                        self.read_window(inode, page, 1, cause);
                    }
                    self.read_and_mark(inode, window, cause);
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
                        self.read_and_mark(inode, window, IoCause::ReadAhead);
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

    /// Reads a window of read-ahead. Its marked page is marked only if it was not in memory.
    fn read_and_mark(&mut self, inode: u32, window: ReadAheadWindow, cause: IoCause) {
        let marker = window.marker.filter(|marker| !self.core.cache.has(inode, *marker as u32));
        self.read_window(inode, window.first, window.pages, cause);
        if let Some(marker) = marker {
            self.core.cache.mark(inode, marker as u32);
        }
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

    /// Writes pages in memory until the task has to wait. The task's `cursor` is the next page.
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

    /// Whether a write to a page must first read the page from the device. `whole` is true if the write covers the whole page.
    pub(super) fn must_be_read(&self, inode: u32, page: u64, whole: bool) -> bool {
        let file = self.core.cache.inode(inode);
        !whole && page * PAGE_BYTES < file.size && self.mounts[usize::from(file.mount)].map(inode, page).is_some()
    }
}
