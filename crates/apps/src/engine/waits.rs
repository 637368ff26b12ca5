//! Signals and locks of a program, and what a deadlock looks like.

use std::collections::VecDeque;

/// Signals that were given and not taken, or the threads that wait for one.
#[derive(Clone, Debug, Default)]
pub(super) struct Signal {
    given: u64,
    waiting: VecDeque<u32>,
}

impl Signal {
    /// Gives one: the thread that goes on, if one waits.
    pub fn give(&mut self) -> Option<u32> {
        let first = self.waiting.pop_front();
        self.given += u64::from(first.is_none());
        first
    }

    /// Takes one; false if the thread has to wait.
    pub fn take(&mut self, thread: u32) -> bool {
        if self.given > 0 {
            self.given -= 1;
            return true;
        }
        self.waiting.push_back(thread);
        false
    }
}

/// A lock, its holder, and who waits for it, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Lock {
    holder: Option<u32>,
    waiting: VecDeque<u32>,
}

impl Lock {
    /// The thread that has it.
    pub fn holder(&self) -> Option<u32> {
        self.holder
    }

    /// Takes it; false if the thread has to wait.
    pub fn take(&mut self, thread: u32) -> bool {
        if self.holder.is_none() {
            self.holder = Some(thread);
            return true;
        }
        self.waiting.push_back(thread);
        false
    }

    /// Hands it to the first that waits, which goes on.
    pub fn release(&mut self) -> Option<u32> {
        self.holder = self.waiting.pop_front();
        self.holder
    }
}
