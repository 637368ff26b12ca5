//! Steps of operations on names: unlink, close, rename.

use crate::block::NONE;
use crate::finished_operation::WaitReason;
use crate::operation::FileId;
use crate::task::{StepOutcome, TaskId};

use super::SimulatedHost;

impl SimulatedHost {
    pub(super) fn unlink_step(&mut self, task: TaskId, inode: u32, path: FileId) -> StepOutcome {
        if !self.lock(task, inode) {
            return StepOutcome::Wait(WaitReason::File);
        }
        let file = self.core.cache.inode(inode);
        // Another operation may have removed or renamed it meanwhile.
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

    pub(super) fn rename_step(
        &mut self,
        task: TaskId,
        inode: u32,
        replaced: u32,
        from: FileId,
        to: FileId,
    ) -> StepOutcome {
        let mut files = [inode, replaced];
        // All renames lock files in the same order, so that two of them do not wait for each other.
        files.sort_unstable();
        for file in files {
            if file != NONE && !self.lock(task, file) {
                return StepOutcome::Wait(WaitReason::File);
            }
        }
        let Ok(target) = self.names.get(to) else { return StepOutcome::Done };
        // If another operation removed, created or renamed one of the files meanwhile, nothing is left to do.
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
}
