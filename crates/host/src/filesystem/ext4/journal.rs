//! JBD2: transactions, commits, checkpoints, and the space in the log.
//!
//! A commit first writes file data (blocks that were allocated for it), descriptor blocks and copies of metadata blocks, and waits for
//! these writes. Then it writes the commit block with preflush and FUA, and waits for it. After that, blocks that the transaction freed can
//! be reused. The tail of the log moves when that frees a quarter of the log, or when space is needed.

use std::collections::VecDeque;

use emmclab_base::{BlockNote, BlockRole, Nanos, RequestFlags};

use crate::block::{BioId, BioRequest};
use crate::core::HostCore;
use crate::core::{FilesystemJob, StepOutcome, TaskId, TaskWork};
use crate::operation::WaitReason;
use crate::request::IoCause;

use super::Ext4;

/// Number of tags in a descriptor block: 16 bytes each, after a header and before a checksum.
const TAGS: u64 = 254;
/// Number of records in a revoke block, of 8 bytes each.
const REVOKES: u64 = 509;

/// Maximum number of blocks that one operation changes.
const CREDITS: u64 = 64;

/// A running or committing transaction.
#[derive(Debug, Default)]
pub(super) struct JournalTransaction {
    pub id: u32,
    /// Time of the first change of a block.
    begun: Nanos,
    blocks: Vec<u64>,
    /// Files whose data must be written before the commit.
    pub ordered: Vec<u32>,
    /// Runs of blocks that the transaction freed.
    pub freed: Vec<(u64, u64)>,
    pub revoked: u64,
    /// Whether the transaction changed anything. `blocks` may be empty nevertheless, because a changed block can be revoked.
    used: bool,
}

impl JournalTransaction {
    fn is_empty(&self) -> bool {
        !self.used
    }

    fn log_blocks(&self) -> u64 {
        let copies = self.blocks.len() as u64;
        copies + copies.div_ceil(TAGS).max(1) + self.revoked.div_ceil(REVOKES) + 1
    }
}

/// A committed transaction with blocks that have not been written in place.
#[derive(Debug)]
struct CommittedTransaction {
    id: u32,
    /// The first block of the transaction in the log.
    first: u64,
    blocks: Vec<u64>,
}

#[derive(Debug)]
pub(super) struct Ext4Journal {
    /// First block of the journal, which contains its superblock.
    start: u64,
    /// Length of the journal in blocks, including its superblock.
    length: u64,
    pub running: JournalTransaction,
    committing: Option<JournalTransaction>,
    /// Whether the commit block of `committing` is in progress.
    commit_sent: bool,
    /// The last durable transaction.
    pub durable: u32,
    /// The last transaction whose commit was requested.
    requested: u32,
    committed: VecDeque<CommittedTransaction>,
    /// The next block of the log to write, relative to the first block of the journal.
    head: u64,
    /// Number of free blocks in the log.
    free: u64,
    /// The tail in the journal's superblock, as transaction and block; `None` while the superblock marks the log as empty.
    tail: Option<(u32, u64)>,
    /// The new tail of the log, as transaction and block.
    next_tail: (u32, u64),
    /// The bio that writes the new tail to the journal's superblock.
    tail_bio: BioId,
    commit_task: Option<TaskId>,
    checkpoint_task: Option<TaskId>,
    waiting_for_commit: Vec<(u32, TaskId)>,
    waiting_for_room: Vec<TaskId>,
}

impl Ext4Journal {
    pub fn new(start: u64, length: u64) -> Self {
        Self {
            start,
            length,
            running: JournalTransaction { id: 1, ..JournalTransaction::default() },
            committing: None,
            commit_sent: false,
            durable: 0,
            requested: 0,
            committed: VecDeque::new(),
            head: 1,
            free: length - 1,
            tail: None,
            next_tail: (0, 0),
            tail_bio: BioId::NONE,
            commit_task: None,
            checkpoint_task: None,
            waiting_for_commit: Vec::new(),
            waiting_for_room: Vec::new(),
        }
    }

    fn largest_transaction(&self) -> u64 {
        self.length / 4
    }

    /// The time at which the running transaction must be committed; `None` if it is empty, or if its commit was already requested.
    pub fn due(&self, core_interval: Nanos) -> Option<Nanos> {
        let waits = !self.running.is_empty() && self.requested < self.running.id;
        waits.then(|| self.running.begun + core_interval)
    }

    fn after(&self, block: u64, count: u64) -> u64 {
        (block - 1 + count) % (self.length - 1) + 1
    }

    /// Whether the commit block of a transaction is in progress.
    pub fn commit_block_sent(&self, id: u32) -> bool {
        self.commit_sent && self.committing.as_ref().is_some_and(|transaction| transaction.id == id)
    }

    /// Removes a deleted file from the transactions, because its number may be reused.
    pub fn forget_file(&mut self, inode: u32) {
        self.running.ordered.retain(|file| *file != inode);
        if let Some(transaction) = &mut self.committing {
            transaction.ordered.retain(|file| *file != inode);
        }
    }

    /// Number of log blocks that the running and the committing transaction need.
    fn reserved_blocks(&self) -> u64 {
        self.running.log_blocks() + self.committing.as_ref().map_or(0, JournalTransaction::log_blocks)
    }

    /// Number of blocks in the log between two positions.
    fn distance(&self, from: u64, to: u64) -> u64 {
        (to + self.length - 1 - from) % (self.length - 1)
    }
}

impl Ext4 {
    /// Records that the running transaction changes a block.
    pub(super) fn log(&mut self, core: &HostCore, block: u64, role: BlockRole) {
        let transaction = &mut self.journal.running;
        if !transaction.used {
            (transaction.begun, transaction.used) = (core.now, true);
        }
        if self.buffers.log(block, role, transaction.id) {
            transaction.blocks.push(block);
        }
    }

    /// Removes a freed metadata block from the running transaction. If the block was ever logged, adds a revoke record, so that older
    /// copies are not replayed.
    pub(super) fn revoke(&mut self, block: u64) {
        if self.buffers.forget(block) {
            self.journal.running.revoked += 1;
        }
        self.journal.running.blocks.retain(|logged| *logged != block);
    }

    /// Whether the running transaction and the log have space for the changes of an operation. If not, the task waits for a commit or for
    /// space in the log.
    pub(super) fn has_room(&mut self, core: &mut HostCore, task: TaskId) -> bool {
        let journal = &self.journal;
        let largest = journal.largest_transaction();
        if journal.running.blocks.len() as u64 + CREDITS > largest && !journal.running.is_empty() {
            let id = journal.running.id;
            self.request_commit(core, id);
            self.await_commit(core, task, id);
            return false;
        }
        if journal.free < journal.reserved_blocks() + CREDITS + largest {
            self.journal.waiting_for_room.push(task);
            core.tasks.await_completion(task, false);
            if self.journal.checkpoint_task.is_none() {
                let work = TaskWork::Filesystem(self.mount, FilesystemJob::Checkpoint);
                self.journal.checkpoint_task = Some(core.tasks.begin(work, core.now));
            }
            return false;
        }
        true
    }

    /// Requests the commit of a transaction and of all earlier ones. Returns false if it was already requested.
    pub(super) fn request_commit(&mut self, core: &mut HostCore, id: u32) -> bool {
        if id <= self.journal.requested || id > self.journal.running.id {
            return false;
        }
        self.journal.requested = id;
        if self.journal.commit_task.is_none() {
            let work = TaskWork::Filesystem(self.mount, FilesystemJob::Commit);
            self.journal.commit_task = Some(core.tasks.begin(work, core.now));
        }
        true
    }

    /// Makes the task wait for the commit of a transaction, unless it is already durable.
    pub(super) fn await_commit(&mut self, core: &mut HostCore, task: TaskId, id: u32) {
        if id > self.journal.durable {
            self.journal.waiting_for_commit.push((id, task));
            core.tasks.await_completion(task, false);
        }
    }

    /// The transaction that a sync of the whole file system must commit; `None` if everything is durable.
    pub(super) fn last_transaction(&self) -> Option<u32> {
        let running = (!self.journal.running.is_empty()).then_some(self.journal.running.id);
        running.or(self.journal.committing.as_ref().map(|transaction| transaction.id))
    }

    /// Writes the journal's superblock with a new tail.
    fn write_tail(&mut self, core: &mut HostCore, task: TaskId, tail: (u32, u64), flags: RequestFlags, cause: IoCause) {
        let mut write = BioRequest::write(self.mount, self.journal.start * 8, 8, BlockRole::JournalSuperblock, cause);
        write.flags |= flags;
        let (id, block) = tail;
        write.note =
            Some(BlockNote { home: Some(block * 8), transaction: Some(id), ..BlockNote::new(BlockRole::JournalSuperblock, 8) });
        self.journal.tail_bio = core.submit_for(write, task);
        self.journal.next_tail = tail;
    }

    /// Makes the new tail, which has been written, the current tail. Frees the log blocks before it.
    fn tail_written(&mut self) {
        let tail = self.journal.next_tail;
        if let Some((_, old)) = self.journal.tail {
            self.journal.free += self.journal.distance(old, tail.1);
        }
        self.journal.tail = Some(tail);
    }

    /// Drops committed transactions whose blocks are all written in place. Returns the tail of the log that the remaining transactions
    /// need.
    fn clean(&mut self, core: &HostCore) -> (u32, u64) {
        while let Some(oldest) = self.journal.committed.front_mut() {
            while let Some(block) = oldest.blocks.last() {
                if self.buffers.is_needed(core, *block, oldest.id) {
                    return (oldest.id, oldest.first);
                }
                oldest.blocks.pop();
            }
            self.journal.committed.pop_front();
        }
        let next = self.journal.committing.as_ref().map_or(self.journal.running.id, |transaction| transaction.id);
        (next, self.journal.head)
    }

    /// Executes the next step of the commit thread.
    pub(super) fn commit_step(&mut self, core: &mut HostCore, task: TaskId) -> StepOutcome {
        let part = core.tasks[task].part;
        core.tasks[task].part += 1;
        match part {
            0 => {
                if self.journal.requested < self.journal.running.id || self.journal.running.is_empty() {
                    self.journal.commit_task = None;
                    return StepOutcome::Done;
                }
                core.tasks[task].requests.clear();
                let next = JournalTransaction { id: self.journal.running.id + 1, ..JournalTransaction::default() };
                let transaction = std::mem::replace(&mut self.journal.running, next);
                self.journal.committing = Some(transaction);
                if self.journal.tail.is_none() {
                    let (id, _) = self.clean(core);
                    let head = self.journal.head;
                    self.write_tail(core, task, (id, head), RequestFlags::empty(), IoCause::Commit);
                }
            }
            1 => {
                if self.journal.tail.is_none() {
                    self.tail_written();
                }
                self.write_transaction(core, task);
            }
            2 => {
                self.journal.commit_sent = true;
                self.write_commit_block(core, task);
            }
            3 => self.discard_freed(core, task),
            4 => {
                self.commit_done(core, task);
                let tail = self.clean(core);
                let freed = self.journal.tail.map_or(0, |(_, old)| self.journal.distance(old, tail.1));
                core.tasks[task].part = 0;
                if freed >= self.journal.largest_transaction() && self.journal.checkpoint_task.is_none() {
                    self.write_tail(core, task, tail, RequestFlags::FUA, IoCause::Commit);
                    core.tasks[task].part = 5;
                }
            }
            _ => {
                self.tail_written();
                core.tasks[task].part = 0;
            }
        }
        StepOutcome::Wait(WaitReason::SyncCommit)
    }

    /// Writes all blocks that must be complete before the commit block.
    fn write_transaction(&mut self, core: &mut HostCore, task: TaskId) {
        let Some(transaction) = self.journal.committing.take() else { return };
        for inode in &transaction.ordered {
            self.write_placed(core, task, *inode);
        }
        let id = transaction.id;
        let mut at = self.journal.head;
        let mut revoke_blocks = transaction.revoked.div_ceil(REVOKES);
        while revoke_blocks > 0 {
            self.write_log(core, task, at, BlockNote { transaction: Some(id), ..BlockNote::new(BlockRole::Revoke, 8) });
            at = self.journal.after(at, 1);
            revoke_blocks -= 1;
        }
        let mut left = transaction.blocks.as_slice();
        loop {
            let note = BlockNote { transaction: Some(id), ..BlockNote::new(BlockRole::Descriptor, 8) };
            self.write_log(core, task, at, note);
            at = self.journal.after(at, 1);
            let (tagged, rest) = left.split_at(left.len().min(TAGS as usize));
            for block in tagged {
                let home = Some((self.base + block) * 8);
                let note = BlockNote { home, transaction: Some(id), ..BlockNote::new(BlockRole::Logged, 8) };
                let bio = self.write_log(core, task, at, note);
                self.buffers.set_copy(*block, bio);
                at = self.journal.after(at, 1);
            }
            left = rest;
            if left.is_empty() {
                break;
            }
        }
        self.journal.free -= transaction.log_blocks();
        self.journal.committing = Some(transaction);
    }

    fn write_log(&mut self, core: &mut HostCore, task: TaskId, at: u64, note: BlockNote) -> BioId {
        let sector = (self.journal.start + at) * 8;
        let mut write = BioRequest::write(self.mount, sector, 8, note.role, IoCause::Commit);
        write.note = Some(note);
        core.submit_for(write, task)
    }

    fn write_commit_block(&mut self, core: &mut HostCore, task: TaskId) {
        let Some(transaction) = &self.journal.committing else { return };
        let at = self.journal.after(self.journal.head, transaction.log_blocks() - 1);
        let note = BlockNote { transaction: Some(transaction.id), ..BlockNote::new(BlockRole::Commit, 8) };
        let sector = (self.journal.start + at) * 8;
        let mut write = BioRequest::write(self.mount, sector, 8, BlockRole::Commit, IoCause::Commit);
        write.note = Some(note);
        if self.barrier {
            write.flags |= RequestFlags::PREFLUSH | RequestFlags::FUA;
        }
        core.submit_for(write, task);
    }

    /// Discards the blocks that a durable transaction freed. They can be reused when the discard is complete.
    fn discard_freed(&mut self, core: &mut HostCore, task: TaskId) {
        let Some(transaction) = self.journal.committing.as_ref().filter(|_| self.discard) else { return };
        for (from, to) in &transaction.freed {
            let bio = BioRequest::discard(self.mount, from * 8, ((to - from) * 8) as u32, IoCause::Commit);
            core.submit_for(bio, task);
        }
    }

    fn commit_done(&mut self, core: &mut HostCore, task: TaskId) {
        let Some(transaction) = self.journal.committing.take() else { return };
        self.journal.commit_sent = false;
        let (id, first) = (transaction.id, self.journal.head);
        self.journal.head = self.journal.after(first, transaction.log_blocks());
        self.journal.durable = id;
        for block in &transaction.blocks {
            self.buffers.mark_committed(*block, id, core.now);
        }
        for (from, to) in transaction.freed {
            self.free.give(from, to);
            self.used -= to - from;
        }
        self.journal.committed.push_back(CommittedTransaction { id, first, blocks: transaction.blocks });
        let mut waiting = std::mem::take(&mut self.journal.waiting_for_commit);
        waiting.retain(|(wanted, waiter)| {
            if *wanted <= id {
                core.tasks.share_requests(task, *waiter);
                core.tasks.completion_arrived(*waiter, None);
            }
            *wanted > id
        });
        self.journal.waiting_for_commit = waiting;
    }

    /// Executes the next step of the checkpoint thread, which frees space in the log.
    pub(super) fn checkpoint_step(&mut self, core: &mut HostCore, task: TaskId) -> StepOutcome {
        let part = core.tasks[task].part;
        core.tasks[task].part += 1;
        match part {
            0 => {
                let (id, first) = self.clean(core);
                if let Some(oldest) = self.journal.committed.front() {
                    let held = |block: &&u64| self.buffers.is_needed(core, **block, id);
                    let blocks: Vec<u64> = oldest.blocks.iter().filter(held).copied().collect();
                    for block in blocks {
                        self.buffers.write_home(core, block, IoCause::Checkpoint, Some(task));
                    }
                } else if self.journal.tail.is_some_and(|(_, old)| old == first) {
                    // The log contains no committed transaction that could be released. So the last transaction is committed first.
                    if let Some(last) = self.last_transaction() {
                        self.request_commit(core, last);
                        self.await_commit(core, task, last);
                        core.tasks[task].part = 0;
                    }
                }
            }
            1 => {
                // Blocks that were written in place must be durable before the journal releases their copies.
                if self.barrier {
                    core.submit_for(BioRequest::flush(self.mount, IoCause::Checkpoint), task);
                }
                let (id, first) = self.clean(core);
                (core.tasks[task].cursor, core.tasks[task].bytes) = (first, u64::from(id));
            }
            2 if core.queue.in_flight(self.journal.tail_bio) => {
                core.await_bio(self.journal.tail_bio, task);
                core.tasks[task].part = 2;
            }
            2 => {
                let tail = (core.tasks[task].bytes as u32, core.tasks[task].cursor);
                self.write_tail(core, task, tail, RequestFlags::FUA, IoCause::Checkpoint);
            }
            _ => {
                self.tail_written();
                if self.journal.free >= self.journal.reserved_blocks() + CREDITS + self.journal.largest_transaction() {
                    self.journal.checkpoint_task = None;
                    for waiter in self.journal.waiting_for_room.drain(..) {
                        core.tasks.completion_arrived(waiter, None);
                    }
                    return StepOutcome::Done;
                }
                core.tasks[task].part = 0;
            }
        }
        StepOutcome::Wait(WaitReason::Journal)
    }
}
