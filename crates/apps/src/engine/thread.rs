//! The state of a thread of the program.

use std::collections::VecDeque;

use emmclab_base::Nanos;
use emmclab_host::{FileClass, FileOp, MountId, Wait};

use crate::draw::Draws;
use crate::files::Cursor;
use crate::timeline::{Doing, Timeline};

/// The state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// Not started, or ended.
    Absent,
    /// Ready for a core.
    Ready,
    /// On a core.
    Running,
    Network,
    /// Waits for a file operation. The causes of the wait are known only when it ends; until then this is the best guess.
    Storage(Wait, Option<(FileClass, MountId)>),
    Signal(u32),
    Lock(u32),
    Join(u32),
    Think,
}

/// A thread.
pub(super) struct Thread {
    pub status: Status,
    pub timeline: Timeline,
    /// Work that still has to be done on a core.
    pub owed: Nanos,
    /// The index of the next instruction, and the remaining repetitions of each enclosing loop.
    pub next: usize,
    pub loops: Vec<u64>,
    pub draws: Draws,
    /// The current file and position in each set of files.
    pub cursors: Vec<Cursor>,
    /// File operations to execute before the next instruction.
    pub queue: VecDeque<FileOp>,
    /// Threads that wait for the end of this one.
    pub joiners: Vec<u32>,
}

/// Number of repetitions of an endless loop.
pub(super) const FOR_EVER: u64 = u64::MAX;

impl Thread {
    pub fn new(draws: Draws, sets: usize) -> Self {
        Self {
            status: Status::Absent,
            timeline: Timeline::default(),
            owed: Nanos::ZERO,
            next: 0,
            loops: Vec::new(),
            draws,
            cursors: vec![Cursor::default(); sets],
            queue: VecDeque::new(),
            joiners: Vec::new(),
        }
    }

    /// Starts at the first instruction.
    pub fn begin(&mut self, now: Nanos) {
        self.timeline.push(Doing::Absent, now);
        self.next = 0;
        self.status = Status::Ready;
    }

    /// Counts down the innermost loop; false if the loop is finished.
    pub fn again(&mut self) -> bool {
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
    pub fn doing(&self) -> Doing {
        match self.status {
            Status::Absent => Doing::Absent,
            Status::Ready => Doing::Core,
            Status::Running => Doing::Running,
            Status::Network => Doing::Network,
            Status::Storage(wait, spec) => Doing::Storage(wait, spec),
            Status::Think => Doing::Think,
            // The thread that it waits for is unknown.
            Status::Signal(_) | Status::Lock(_) => Doing::Thread(u32::MAX),
            Status::Join(thread) => Doing::Thread(thread),
        }
    }
}
