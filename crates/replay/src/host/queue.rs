//! The block layer's queue: requests in order of arrival, neighbours merged.

use std::collections::VecDeque;

use emmclab_device::{Command, Modifiers};

/// Waiting requests that a new one is compared with, youngest first: the length of Linux' request queue.
const LOOK_BACK: usize = 128;

/// A request in the queue, perhaps made of several.
#[derive(Clone, Copy, Debug)]
struct Queued {
    command: Command,
    /// First and last request that it is made of, by number.
    first: u64,
    last: u64,
}

/// Requests that wait for the driver.
#[derive(Debug)]
pub(super) struct Queue {
    /// Longest request that merging makes; 0 if nothing is merged.
    most_sectors: u32,
    waiting: VecDeque<Queued>,
}

impl Queue {
    pub fn new(most_sectors: u32) -> Self {
        Self { most_sectors, waiting: VecDeque::with_capacity(LOOK_BACK) }
    }

    /// Puts a request after those that came before it, or into a waiting one; gives the number of the request that was the last of that one.
    pub fn push(&mut self, command: &Command, number: u64) -> Option<u64> {
        let merged = self.merge(command, number);
        if merged.is_none() {
            // What follows the first command of a request comes when that is complete, which may be known before.
            let later = |queued: &&Queued| queued.command.arrival > command.arrival;
            let place = self.waiting.len() - self.waiting.iter().rev().take_while(later).count();
            self.waiting.insert(place, Queued { command: *command, first: number, last: number });
        }
        merged
    }

    /// The first command that waits.
    pub fn first(&self) -> Option<Command> {
        self.waiting.front().map(|queued| queued.command)
    }

    /// Takes it out; gives the number of the first request that it is made of.
    pub fn pop(&mut self) -> Option<u64> {
        self.waiting.pop_front().map(|queued| queued.first)
    }

    fn merge(&mut self, command: &Command, number: u64) -> Option<u64> {
        if !mergeable(command) {
            return None;
        }
        let (first, end) = (command.sector, command.sector + u64::from(command.sectors));
        for waiting in self.waiting.iter_mut().rev().take(LOOK_BACK) {
            let other = &mut waiting.command;
            if !mergeable(other) {
                return None;
            }
            let (other_first, other_end) = (other.sector, other.sector + u64::from(other.sectors));
            let fits = other.sectors + command.sectors <= self.most_sectors && other.op == command.op;
            if fits && (other_end == first || end == other_first) {
                other.sector = other_first.min(first);
                other.sectors += command.sectors;
                return Some(std::mem::replace(&mut waiting.last, number));
            }
            if first < other_end && other_first < end {
                return None;
            }
        }
        None
    }
}

/// Reads and writes without a promise; hints are no obstacle.
pub(super) fn mergeable(command: &Command) -> bool {
    command.op.has_data() && !command.modifiers.intersects(Modifiers::PROMISES)
}

/// Reads and writes that may be an entry of a packed command, which has `CMD23` arguments of its own: a reliable or forced
/// write may, one after a flush may not (JESD84-B51, 6.6.29).
pub(super) fn packable(command: &Command) -> bool {
    command.op.has_data() && !command.modifiers.intersects(Modifiers::PREFLUSH)
}
