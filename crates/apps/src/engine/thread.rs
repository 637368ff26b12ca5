//! The state of a thread of the program.

use std::collections::VecDeque;

use emmclab_base::Nanos;
use emmclab_host::{FileClass, FileOp, MountId, WaitReason};

use crate::files::FileCursor;
use crate::random_draws::ThreadDraws;
use crate::timeline::{ThreadActivity, ThreadTimeline};

/// The state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadStatus {
    /// Not started, or ended.
    Absent,
    /// Ready for a core.
    Ready,
    /// On a core.
    Running,
    Network,
    /// Waits for a file operation. The causes of the wait are known only when it ends; until then this is the best guess.
    Storage(WaitReason, Option<(FileClass, MountId)>),
    Signal(u32),
    Lock(u32),
    Join(u32),
    Think,
}

/// A thread.
pub(super) struct EngineThread {
    pub status: ThreadStatus,
    pub timeline: ThreadTimeline,
    /// Work that still has to be done on a core.
    pub pending_cpu: Nanos,
    /// The index of the next instruction, and the remaining repetitions of each enclosing loop.
    pub next: usize,
    pub loops: Vec<u64>,
    pub draws: ThreadDraws,
    /// The current file and position in each set of files.
    pub cursors: Vec<FileCursor>,
    /// File operations to execute before the next instruction.
    pub queue: VecDeque<FileOp>,
    /// Threads that wait for the end of this one.
    pub joiners: Vec<u32>,
}

/// Number of repetitions of an endless loop.
pub(super) const FOR_EVER: u64 = u64::MAX;

impl EngineThread {
    pub fn new(draws: ThreadDraws, sets: usize) -> Self {
        Self {
            status: ThreadStatus::Absent,
            timeline: ThreadTimeline::default(),
            pending_cpu: Nanos::ZERO,
            next: 0,
            loops: Vec::new(),
            draws,
            cursors: vec![FileCursor::default(); sets],
            queue: VecDeque::new(),
            joiners: Vec::new(),
        }
    }

    /// Starts at the first instruction.
    pub fn begin(&mut self, now: Nanos) {
        self.timeline.push(ThreadActivity::Absent, now);
        self.next = 0;
        self.status = ThreadStatus::Ready;
    }

    /// Counts down the innermost loop; false if the loop is finished.
    pub fn next_iteration(&mut self) -> bool {
        match self.loops.last_mut() {
            Some(&mut FOR_EVER) => true,
            Some(left) if *left > 1 => {
                *left -= 1;
                true
            }
            _ => {
                self.loops.pop();
                false
            }
        }
    }

    /// What the thread is doing at the end of the run, as far as it is known.
    pub fn doing(&self) -> ThreadActivity {
        match self.status {
            ThreadStatus::Absent => ThreadActivity::Absent,
            ThreadStatus::Ready => ThreadActivity::Core,
            ThreadStatus::Running => ThreadActivity::Running,
            ThreadStatus::Network => ThreadActivity::Network,
            ThreadStatus::Storage(wait, spec) => ThreadActivity::Storage(wait, spec),
            ThreadStatus::Think => ThreadActivity::Think,
            // The thread that it waits for is unknown.
            ThreadStatus::Signal(_) | ThreadStatus::Lock(_) => ThreadActivity::Thread(u32::MAX),
            ThreadStatus::Join(thread) => ThreadActivity::Thread(thread),
        }
    }
}
