//! Tasks: operations of callers, and the host's own threads. A task runs step by step; between two steps it waits for requests
//! and for other tasks.

use std::collections::VecDeque;

use emmclab_base::Nanos;

use crate::block::NONE;
use crate::finished::{Wait, Waited};
use crate::operation::{CallerId, FileOp};
use crate::request::BlockRequestId;

/// Index of a task.
pub(crate) type TaskId = u32;

/// The kind of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Nothing; the task can be taken.
    Idle,
    /// An operation of a caller.
    Operation(CallerId, FileOp),
    /// Writes dirty pages back.
    Flusher,
    /// A thread of the file system of this mount.
    Filesystem(u16, Job),
}

/// The threads that a file system may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    /// Commits a transaction, or writes a checkpoint of a log.
    Commit,
    /// Makes room in the journal.
    Checkpoint,
    /// Moves what is alive out of a segment.
    Clean,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Step {
    /// The next step comes when all is there that the task awaits, at once where it awaits nothing.
    Wait(Wait),
    /// There is no next step.
    Done,
}

/// A task.
#[derive(Debug)]
pub(crate) struct Task {
    pub work: Work,
    /// How far the host is with it.
    pub stage: u32,
    /// How far the file system is with its part; 0 when that begins.
    pub part: u32,
    /// The files that it is about, and the bytes from where to where a write goes.
    pub files: [u32; 2],
    pub offset: u64,
    pub until: u64,
    /// Whether nothing but freeing its files is left.
    pub ended: bool,
    /// The next page of a read or write, or a file system's number.
    pub cursor: u64,
    /// Pages that its write may still take of the space set aside for it.
    pub reserved: u64,
    pub bytes: u64,
    pub cpu_ns: u64,
    /// Its waits, in order of completion.
    pub requests: Vec<BlockRequestId>,
    pub begun: Nanos,
    /// The requests that have to complete before the next step, and how many of them the limit of requests holds back.
    pending: u32,
    held: u32,
    wait: Wait,
    since: Nanos,
    waited: Waited,
}

impl Task {
    fn new() -> Self {
        Self {
            work: Work::Idle,
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
            held: 0,
            wait: Wait::Read,
            since: Nanos::ZERO,
            waited: Waited::default(),
        }
    }

    /// Adds the time up to `now` to the state that it was in.
    fn settle(&mut self, now: Nanos) {
        let state = if self.held > 0 { Wait::RequestLimit } else { self.wait };
        self.waited[state] += now - self.since;
        self.since = now;
    }

    /// Its waits up to its last step.
    pub fn waited(&self) -> Waited {
        self.waited
    }
}

/// All tasks, and those whose next step is due.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    all: Vec<Task>,
    idle: Vec<TaskId>,
    ready: VecDeque<TaskId>,
}

impl Tasks {
    /// Begins a task; its first step is due.
    pub fn begin(&mut self, work: Work, now: Nanos) -> TaskId {
        let id = self.idle.pop().unwrap_or_else(|| {
            self.all.push(Task::new());
            self.all.len() as TaskId - 1
        });
        let task = &mut self.all[id as usize];
        let mut requests = std::mem::take(&mut task.requests);
        requests.clear();
        *task = Task { work, requests, begun: now, since: now, ..Task::new() };
        self.ready.push_back(id);
        id
    }

    /// The next task whose step is due; its time up to now is counted.
    pub fn next_ready(&mut self, now: Nanos) -> Option<TaskId> {
        let id = self.ready.pop_front()?;
        self.all[id as usize].settle(now);
        Some(id)
    }

    /// The task waits for what it awaits by now.
    pub fn wait(&mut self, id: TaskId, wait: Wait) {
        let task = &mut self.all[id as usize];
        task.wait = wait;
        if task.pending == 0 {
            self.ready.push_back(id);
        }
    }

    /// There is no next step.
    pub fn end(&mut self, id: TaskId) {
        self.all[id as usize].work = Work::Idle;
        self.idle.push(id);
    }

    /// The task awaits one thing more, which the limit of requests holds back or not.
    pub fn await_one(&mut self, id: TaskId, held: bool) {
        let task = &mut self.all[id as usize];
        task.pending += 1;
        task.held += u32::from(held);
    }

    /// One thing that was held back is no longer.
    pub fn admitted(&mut self, id: TaskId, now: Nanos) {
        let task = &mut self.all[id as usize];
        task.settle(now);
        task.held -= 1;
    }

    /// One thing that it awaits is there, with the request that brought it.
    pub fn arrived(&mut self, id: TaskId, request: Option<BlockRequestId>) {
        let task = &mut self.all[id as usize];
        if let Some(request) = request
            && matches!(task.work, Work::Operation(..) | Work::Filesystem(..))
            && task.requests.last() != Some(&request)
        {
            task.requests.push(request);
        }
        task.pending -= 1;
        if task.pending == 0 {
            self.ready.push_back(id);
        }
    }

    /// Makes the waits of another task count for this one, too.
    pub fn share_requests(&mut self, from: TaskId, to: TaskId) {
        let mut theirs = std::mem::take(&mut self.all[to as usize].requests);
        theirs.extend_from_slice(&self.all[from as usize].requests);
        self.all[to as usize].requests = theirs;
    }

    /// Whether the next step of a task is due.
    pub fn any_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether it awaits something.
    pub fn awaits(&self, id: TaskId) -> bool {
        self.all[id as usize].pending > 0
    }
}

impl std::ops::Index<TaskId> for Tasks {
    type Output = Task;
    fn index(&self, id: TaskId) -> &Task {
        &self.all[id as usize]
    }
}

impl std::ops::IndexMut<TaskId> for Tasks {
    fn index_mut(&mut self, id: TaskId) -> &mut Task {
        &mut self.all[id as usize]
    }
}
