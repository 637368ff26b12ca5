//! The state that the host shares with its file systems: page cache, block layer, tasks and time.

use std::collections::VecDeque;

use emmclab_base::{BlockNote, BlockRole, Nanos, Op, RequestFlags};

use crate::block::{BioContents, BioId, BioRequest, BlockLayer, CompletedRequest, NONE};
use crate::cache::{PAGE_SECTORS, PageCache};
use crate::config::HostConfig;
use crate::operation::{CallerId, FileOp, WaitBreakdown, WaitReason};
use crate::request::{BlockRequestId, IoCause};

/// The shared state of the host and its file systems.
#[derive(Debug)]
pub(crate) struct HostCore {
    pub config: HostConfig,
    pub now: Nanos,
    pub cache: PageCache,
    pub queue: BlockLayer,
    pub tasks: TaskTable,
}

impl HostCore {
    pub fn submit(&mut self, bio: BioRequest) -> BioId {
        self.queue.submit(bio, self.now)
    }

    /// Submits a bio and makes a task wait for it.
    pub fn submit_for(&mut self, bio: BioRequest, task: TaskId) -> BioId {
        let id = self.submit(bio);
        self.await_bio(id, task);
        id
    }

    /// Executes a step of a sync: sends a flush, unless barriers are off, and waits for all requests of the task.
    pub fn flush_for(&mut self, task: TaskId, mount: u16, barrier: bool) -> StepOutcome {
        if barrier {
            self.submit_for(BioRequest::flush(mount, self.cause(task)), task);
        }
        StepOutcome::Wait(WaitReason::SyncCommit)
    }

    /// Makes a task wait for a bio if the bio is in progress. Returns whether the bio is in progress.
    pub fn await_bio(&mut self, bio: BioId, task: TaskId) -> bool {
        self.queue.await_bio(bio, task, &mut self.tasks)
    }

    /// The cause of the requests that a task submits.
    pub fn cause(&self, task: TaskId) -> IoCause {
        match self.tasks[task].work {
            TaskWork::Operation(caller, _) => IoCause::Caller(caller),
            TaskWork::Filesystem(_, FilesystemJob::Commit) => IoCause::Commit,
            TaskWork::Filesystem(_, FilesystemJob::Checkpoint) => IoCause::Checkpoint,
            TaskWork::Filesystem(_, FilesystemJob::Clean) => IoCause::Cleaning,
            TaskWork::Flusher | TaskWork::Idle => IoCause::WriteBack,
        }
    }

    /// Applies the completion of a request to its bios and pages.
    pub fn finish(&mut self, mut completed: CompletedRequest) {
        while let Some(bio) = self.queue.next_bio(&mut completed, &mut self.tasks) {
            if let BioContents::Pages { inode, page } = bio.content {
                let pages = (u64::from(bio.sectors) / PAGE_SECTORS) as u32;
                self.cache.complete(inode, page, pages, bio.op == Op::Write);
            }
        }
    }

    /// A bio for the pages of a file from page `first` on, which are stored from `sector` on.
    pub fn page_bio(&self, op: Op, (inode, first): (u32, u64), sector: u64, pages: u64, cause: IoCause) -> BioRequest {
        let file = self.cache.inode(inode);
        let sectors = (pages * PAGE_SECTORS) as u32;
        BioRequest {
            op,
            flags: RequestFlags::empty(),
            sector,
            sectors,
            mount: file.mount,
            class: file.class,
            folder: Some(file.folder),
            cause,
            content: BioContents::Pages { inode, page: first as u32 },
            note: (op == Op::Write).then(|| BlockNote::new(BlockRole::Data, sectors)),
        }
    }
}

pub(crate) type TaskId = u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskWork {
    /// No work: the task can be reused.
    Idle,
    /// Executes an operation of a caller.
    Operation(CallerId, FileOp),
    /// Writes dirty pages back.
    Flusher,
    /// Executes a job of the file system of this mount.
    Filesystem(u16, FilesystemJob),
}

/// The jobs of file systems that run as threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilesystemJob {
    /// Commits a transaction, or writes a checkpoint of a log.
    Commit,
    /// Frees space in the journal.
    Checkpoint,
    /// Moves live pages out of a segment.
    Clean,
}

/// The outcome of a step of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum StepOutcome {
    /// The next step runs when all completions for which the task waits have arrived. If there are none, it runs immediately.
    Wait(WaitReason),
    /// The task has no next step.
    Done,
}

#[derive(Debug)]
pub(crate) struct HostTask {
    pub work: TaskWork,
    /// The stage that the host has reached in the operation.
    pub stage: u32,
    /// The stage that the file system has reached in its part of the operation; 0 at the beginning.
    pub part: u32,
    /// Numbers of the files of the operation.
    pub files: [u32; 2],
    /// First byte of a write; `until` is the end.
    pub offset: u64,
    pub until: u64,
    /// Whether the operation has ended. Then only its files remain to be freed.
    pub ended: bool,
    /// The next page of a read or write, or a value that the file system uses.
    pub cursor: u64,
    /// Number of pages that the write may still use of the space that is reserved for its operation.
    pub reserved: u64,
    pub bytes: u64,
    pub cpu_ns: u64,
    /// The requests for which the task has waited, in order of completion.
    pub requests: Vec<BlockRequestId>,
    pub begun: Nanos,
    /// Number of completions for which the task waits.
    pending: u32,
    /// Number of awaited completions whose requests the limit `nr_requests` holds back.
    held_back: u32,
    wait: WaitReason,
    since: Nanos,
    waits: WaitBreakdown,
}

impl HostTask {
    fn new() -> Self {
        Self {
            work: TaskWork::Idle,
            stage: 0,
            part: 0,
            files: [NONE; 2],
            ended: false,
            offset: 0,
            until: 0,
            cursor: 0,
            reserved: 0,
            bytes: 0,
            cpu_ns: 0,
            requests: Vec::new(),
            begun: Nanos::ZERO,
            pending: 0,
            held_back: 0,
            wait: WaitReason::Read,
            since: Nanos::ZERO,
            waits: WaitBreakdown::default(),
        }
    }

    /// Adds the time since the last call to the waiting time of the current wait reason.
    fn settle(&mut self, now: Nanos) {
        let state = if self.held_back > 0 { WaitReason::RequestLimit } else { self.wait };
        self.waits[state] += now - self.since;
        self.since = now;
    }

    /// Returns the waiting times of the task by reason, up to the last step that it has executed.
    pub fn waits(&self) -> WaitBreakdown {
        self.waits
    }
}

/// All tasks, and the queue of those that are ready for their next step.
#[derive(Debug, Default)]
pub(crate) struct TaskTable {
    all: Vec<HostTask>,
    idle: Vec<TaskId>,
    ready: VecDeque<TaskId>,
}

impl TaskTable {
    /// Creates a task that is ready for its first step.
    pub fn begin(&mut self, work: TaskWork, now: Nanos) -> TaskId {
        let id = self.idle.pop().unwrap_or_else(|| {
            self.all.push(HostTask::new());
            self.all.len() as TaskId - 1
        });
        let task = &mut self.all[id as usize];
        let mut requests = std::mem::take(&mut task.requests);
        requests.clear();
        *task = HostTask { work, requests, begun: now, since: now, ..HostTask::new() };
        self.ready.push_back(id);
        id
    }

    /// Removes and returns the next ready task, and accounts for its time until now.
    pub fn next_ready(&mut self, now: Nanos) -> Option<TaskId> {
        let id = self.ready.pop_front()?;
        self.all[id as usize].settle(now);
        Some(id)
    }

    /// Makes the task wait for the completions registered by [`TaskTable::await_completion`]. Without any, it is ready immediately.
    pub fn wait(&mut self, id: TaskId, wait: WaitReason) {
        let task = &mut self.all[id as usize];
        task.wait = wait;
        if task.pending == 0 {
            self.ready.push_back(id);
        }
    }

    /// Ends a task, which can then be reused.
    pub fn end(&mut self, id: TaskId) {
        self.all[id as usize].work = TaskWork::Idle;
        self.idle.push(id);
    }

    /// Adds a completion for which the task waits. `held` is true if the limit `nr_requests` holds back the request of this completion.
    pub fn await_completion(&mut self, id: TaskId, held: bool) {
        let task = &mut self.all[id as usize];
        task.pending += 1;
        task.held_back += u32::from(held);
    }

    /// Records that the limit `nr_requests` no longer holds back one of the requests for which the task waits.
    pub fn request_admitted(&mut self, id: TaskId, now: Nanos) {
        let task = &mut self.all[id as usize];
        task.settle(now);
        task.held_back -= 1;
    }

    /// Records that a completion for which the task waits has arrived, and the request that caused it.
    pub fn completion_arrived(&mut self, id: TaskId, request: Option<BlockRequestId>) {
        let task = &mut self.all[id as usize];
        if let Some(request) = request
            && matches!(task.work, TaskWork::Operation(..) | TaskWork::Filesystem(..))
            && task.requests.last() != Some(&request)
        {
            task.requests.push(request);
        }
        task.pending -= 1;
        if task.pending == 0 {
            self.ready.push_back(id);
        }
    }

    /// Adds the requests for which the task `from` has waited to those for which the task `to` has waited.
    pub fn share_requests(&mut self, from: TaskId, to: TaskId) {
        let mut theirs = std::mem::take(&mut self.all[to as usize].requests);
        theirs.extend_from_slice(&self.all[from as usize].requests);
        self.all[to as usize].requests = theirs;
    }

    /// Whether any task is ready for its next step.
    pub fn any_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether the task waits for completions.
    pub fn is_waiting(&self, id: TaskId) -> bool {
        self.all[id as usize].pending > 0
    }
}

impl std::ops::Index<TaskId> for TaskTable {
    type Output = HostTask;
    fn index(&self, id: TaskId) -> &HostTask {
        &self.all[id as usize]
    }
}

impl std::ops::IndexMut<TaskId> for TaskTable {
    fn index_mut(&mut self, id: TaskId) -> &mut HostTask {
        &mut self.all[id as usize]
    }
}
