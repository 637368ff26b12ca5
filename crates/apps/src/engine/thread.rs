//! A thread of the program in progress.

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
    /// The host has an operation of it; what it waits for is known when that ends. Until then, this is the best guess.
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
    /// Work that it owes a core.
    pub owed: Nanos,
    /// The next instruction, and how often each loop around it runs on.
    pub next: usize,
    pub loops: Vec<u64>,
    pub draws: Draws,
    /// Where it is in each set of files.
    pub cursors: Vec<Cursor>,
    /// File operations to be done before the next instruction.
    pub queue: VecDeque<FileOp>,
    /// Threads that wait for its end.
    pub joiners: Vec<u32>,
}

/// Repetitions of a loop without an end.
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

    /// Begins with the first instruction.
    pub fn begin(&mut self, now: Nanos) {
        self.timeline.push(Doing::Absent, now);
        self.next = 0;
        self.status = Status::Ready;
    }

    /// Counts down the innermost loop; false once it is over.
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

    /// The state that lasts until the end of the run, as far as it is known.
    pub fn doing(&self) -> Doing {
        match self.status {
            Status::Absent => Doing::Absent,
            Status::Ready => Doing::Core,
            Status::Running => Doing::Running,
            Status::Network => Doing::Network,
            Status::Storage(wait, spec) => Doing::Storage(wait, spec),
            Status::Think => Doing::Think,
            // The one that it waits for never came.
            Status::Signal(_) | Status::Lock(_) => Doing::Thread(u32::MAX),
            Status::Join(thread) => Doing::Thread(thread),
        }
    }
}
