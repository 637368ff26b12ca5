//! The block layer's queue: requests in order of arrival; adjacent ones are merged.

use std::collections::VecDeque;

use emmclab_device::{CommandFlags, DeviceCommand};

/// Waiting requests that a new one is compared with, youngest first: the length of Linux' request queue.
const LOOK_BACK: usize = 128;

/// A request in the queue; it may be merged from several.
#[derive(Clone, Copy, Debug)]
struct QueuedRequest {
    command: DeviceCommand,
    /// Numbers of the first and the last request that it consists of.
    first: u64,
    last: u64,
}

/// Requests that wait for the driver.
#[derive(Debug)]
pub(super) struct RequestQueue {
    /// Longest request after merging; 0 if nothing is merged.
    most_sectors: u32,
    waiting: VecDeque<QueuedRequest>,
}

impl RequestQueue {
    pub fn new(most_sectors: u32) -> Self {
        Self { most_sectors, waiting: VecDeque::with_capacity(LOOK_BACK) }
    }

    /// Adds a request after those that arrived before it, or merges it into a waiting one. If merged, returns the number of the request
    /// that was the last of the waiting one.
    pub fn push(&mut self, command: &DeviceCommand, number: u64) -> Option<u64> {
        let merged = self.merge(command, number);
        if merged.is_none() {
            // A later command of a request arrives when the command before it is complete. That time may be in the future.
            let later = |queued: &&QueuedRequest| queued.command.arrival > command.arrival;
            let place = self.waiting.len() - self.waiting.iter().rev().take_while(later).count();
            self.waiting.insert(place, QueuedRequest { command: *command, first: number, last: number });
        }
        merged
    }

    /// The first command that waits.
    pub fn first(&self) -> Option<DeviceCommand> {
        self.waiting.front().map(|queued| queued.command)
    }

    /// Removes the first command; returns the number of the first request that it consists of.
    pub fn pop(&mut self) -> Option<u64> {
        self.waiting.pop_front().map(|queued| queued.first)
    }

    fn merge(&mut self, command: &DeviceCommand, number: u64) -> Option<u64> {
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

/// Whether a command can be merged: reads and writes without flags that promise durability or order. Hints do not matter.
pub(super) fn mergeable(command: &DeviceCommand) -> bool {
    command.op.has_data() && !command.modifiers.intersects(CommandFlags::PROMISES)
}

/// Whether a command can be an entry of a packed command. Each entry has its own `CMD23` argument. Thus a reliable or forced write can, but
/// a write with preflush cannot (JESD84-B51, 6.6.29).
pub(super) fn packable(command: &DeviceCommand) -> bool {
    command.op.has_data() && !command.modifiers.intersects(CommandFlags::PREFLUSH)
}
