//! Signals and locks of a program.

use std::collections::VecDeque;

/// A counting signal: the number of signals that were given and not taken, or the threads that wait for one.
#[derive(Clone, Debug, Default)]
pub(super) struct CountingSignal {
    count: u64,
    waiting: VecDeque<u32>,
}

impl CountingSignal {
    /// Gives a signal; returns the thread that it wakes, if any.
    pub fn post(&mut self) -> Option<u32> {
        let first = self.waiting.pop_front();
        self.count += u64::from(first.is_none());
        first
    }

    /// Takes a signal; false if the thread has to wait.
    pub fn take(&mut self, thread: u32) -> bool {
        if self.count > 0 {
            self.count -= 1;
            return true;
        }
        self.waiting.push_back(thread);
        false
    }
}

/// A lock, its holder, and the threads that wait for it, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct ProgramLock {
    holder: Option<u32>,
    waiting: VecDeque<u32>,
}

impl ProgramLock {
    /// The thread that holds the lock.
    pub fn holder(&self) -> Option<u32> {
        self.holder
    }

    /// Takes the lock; false if the thread has to wait.
    pub fn take(&mut self, thread: u32) -> bool {
        if self.holder.is_none() {
            self.holder = Some(thread);
            return true;
        }
        self.waiting.push_back(thread);
        false
    }

    /// Passes the lock to the first waiting thread and returns that thread.
    pub fn release(&mut self) -> Option<u32> {
        self.holder = self.waiting.pop_front();
        self.holder
    }
}
