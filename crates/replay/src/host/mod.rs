//! The host's side of the command path: the block layer's queue with merging, and the driver that packs commands.
//!
//! Requests wait in the order of arrival. Whenever the device has a place free, the driver fetches the first one; a write
//! takes the writes directly behind it along as one packed command (JESD84-B45; `EXT_CSD` `MAX_PACKED_WRITES` and
//! `MAX_PACKED_READS`), as Linux' MMC driver does. A request that comes while its neighbour in address still waits is merged
//! with it, as long as nothing between them touches the same sectors.

use std::collections::VecDeque;

use emmclab_device::{Command, HostSettings, Modifiers, Observer, RequestCompleted, Settings};
use emmclab_trace::{Nanos, Op, Result};
use serde::Serialize;

use crate::port::Port;

/// Waiting requests that a new one is compared with, youngest first: the length of Linux' request queue.
const LOOK_BACK: usize = 128;

/// What the host did with requests before the device saw them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HostCounts {
    /// Commands sent; a packed one counts once.
    pub commands: u64,
    /// Requests merged into an earlier one.
    pub merged: u64,
    /// Packed commands.
    pub packs: u64,
    /// Requests in packed commands, after merging.
    pub packed_requests: u64,
    /// Packed commands by their number of entries, from 0 entries on.
    pub packs_by_entries: Vec<u64>,
    /// Bytes of the largest command, header blocks not counted.
    pub largest_command_bytes: u64,
}

/// A request that has not been told as complete, in order of arrival.
#[derive(Clone, Copy, Debug)]
struct Tracked {
    command: Command,
    /// The next request merged into the same one, by number.
    next: Option<u64>,
    event: Option<RequestCompleted>,
}

/// A request in the queue, perhaps made of several.
#[derive(Clone, Copy, Debug)]
struct Queued {
    command: Command,
    /// First and last request that it is made of, by number.
    first: u64,
    last: u64,
}

/// The block layer's queue and the driver.
#[derive(Debug)]
pub(crate) struct HostQueue {
    most_sectors: u32,
    packed: [u32; 2],
    packed_sectors: u64,
    queue: VecDeque<Queued>,
    /// When each place in the device is free.
    slots: Vec<i64>,
    tracked: VecDeque<Tracked>,
    /// Number of the first tracked request.
    base: u64,
    /// What was fetched last.
    fetched: Vec<Queued>,
    commands: Vec<Command>,
    pub counts: HostCounts,
}

impl HostQueue {
    /// The queue that the settings ask for, or `None` where every request is a command.
    pub fn new(settings: &Settings) -> Option<Self> {
        let HostSettings { merge_max_kb, packed_writes, packed_reads, packed_max_kb } = settings.host;
        if merge_max_kb == 0 && packed_writes == 0 && packed_reads == 0 {
            return None;
        }
        let most = packed_writes.max(packed_reads).max(1) as usize;
        Some(Self {
            most_sectors: merge_max_kb * 2,
            packed: [packed_reads.max(1), packed_writes.max(1)],
            packed_sectors: u64::from(packed_max_kb) * 2,
            queue: VecDeque::with_capacity(LOOK_BACK),
            slots: vec![i64::MIN; settings.controller.queue_depth as usize],
            tracked: VecDeque::with_capacity(LOOK_BACK),
            base: 0,
            fetched: Vec::with_capacity(most),
            commands: Vec::with_capacity(most),
            counts: HostCounts { packs_by_entries: vec![0; most + 1], ..HostCounts::default() },
        })
    }

    /// Puts a request into the queue, or into one that waits there. Returns its number.
    pub fn push(&mut self, command: &Command) -> u64 {
        let number = self.base + self.tracked.len() as u64;
        self.tracked.push_back(Tracked { command: *command, next: None, event: None });
        if !self.merge(command, number) {
            self.queue.push_back(Queued { command: *command, first: number, last: number });
        }
        number
    }

    fn merge(&mut self, command: &Command, number: u64) -> bool {
        if !mergeable(command) {
            return false;
        }
        let (first, end) = (command.sector, command.sector + u64::from(command.sectors));
        for waiting in self.queue.iter_mut().rev().take(LOOK_BACK) {
            let other = &mut waiting.command;
            if !mergeable(other) {
                return false;
            }
            let (other_first, other_end) = (other.sector, other.sector + u64::from(other.sectors));
            let fits = other.sectors + command.sectors <= self.most_sectors && other.op == command.op;
            if fits && (other_end == first || end == other_first) {
                other.sector = other_first.min(first);
                other.sectors += command.sectors;
                let last = std::mem::replace(&mut waiting.last, number);
                self.tracked[(last - self.base) as usize].next = Some(number);
                self.counts.merged += 1;
                return true;
            }
            if first < other_end && other_first < end {
                return false;
            }
        }
        false
    }

    /// When the driver fetches the next command, where one waits.
    pub fn ready_at(&self) -> Option<i64> {
        let first = self.queue.front()?.command.arrival.0;
        Some(self.slots.iter().min().map_or(first, |free| first.max(*free)))
    }

    /// Fetches the next command at `at` and has the device do it. `known` hears of every request whose completion is known
    /// now; [`HostQueue::pop_complete`] tells the same in order of arrival.
    ///
    /// # Errors
    /// As the device gives them.
    pub fn send<O: Observer>(
        &mut self,
        at: i64,
        port: &mut Port<'_, O>,
        mut known: impl FnMut(&RequestCompleted),
    ) -> Result<()> {
        let commands = self.fetch(at);
        let mut entry = 0;
        port.submit_packed(&commands, |event| {
            self.entry_completed(entry, event, &mut known);
            entry += 1;
        })?;
        self.commands = commands;
        Ok(())
    }

    /// Fetches the next command, which has several entries where it is packed. All come at `at`.
    fn fetch(&mut self, at: i64) -> Vec<Command> {
        self.fetched.clear();
        let mut commands = std::mem::take(&mut self.commands);
        commands.clear();
        let mut sectors = 0;
        while let Some(next) = self.queue.front() {
            let command = next.command;
            if let Some(head) = commands.first() {
                let most = self.packed[usize::from(head.op == Op::Write)] as usize;
                let room = sectors + u64::from(command.sectors) <= self.packed_sectors;
                let alike = command.op == head.op && mergeable(&command) && mergeable(head);
                if !(alike && room && commands.len() < most) {
                    break;
                }
            }
            sectors += u64::from(command.sectors);
            self.fetched.push(*next);
            commands.push(Command { arrival: Nanos(at), ..command });
            self.queue.pop_front();
        }
        let entries = commands.len();
        self.counts.commands += 1;
        self.counts.largest_command_bytes = self.counts.largest_command_bytes.max(sectors * 512);
        if entries > 1 {
            self.counts.packs += 1;
            self.counts.packed_requests += entries as u64;
            self.counts.packs_by_entries[entries] += 1;
        }
        commands
    }

    /// The `entry`-th command of the last fetch is complete: notes what that means for the requests it is made of.
    fn entry_completed(
        &mut self,
        entry: usize,
        event: &RequestCompleted,
        known: &mut impl FnMut(&RequestCompleted),
    ) {
        if entry == 0
            && let Some(slot) = self.slots.iter_mut().min()
        {
            *slot = event.complete;
        }
        let mut number = Some(self.fetched[entry].first);
        let mut subrequests = event.subrequests;
        while let Some(at) = number {
            let tracked = &mut self.tracked[(at - self.base) as usize];
            let Command { arrival, sector, sectors, .. } = tracked.command;
            let mut waits = event.waits;
            waits.queue_ns += event.arrival - arrival.0;
            // Page operations are shared; they are told with the first request.
            let told = std::mem::take(&mut subrequests);
            let event = RequestCompleted {
                id: at,
                arrival: arrival.0,
                sector,
                sectors,
                subrequests: told,
                waits,
                ..*event
            };
            tracked.event = Some(event);
            known(&event);
            number = tracked.next;
        }
    }

    /// The next request in order of arrival, where it is complete.
    pub fn pop_complete(&mut self) -> Option<RequestCompleted> {
        let event = self.tracked.front()?.event?;
        self.tracked.pop_front();
        self.base += 1;
        Some(event)
    }
}

/// Plain reads and writes; whoever asks for more goes alone.
fn mergeable(command: &Command) -> bool {
    command.op.has_data() && command.modifiers == Modifiers::NONE
}

#[cfg(test)]
mod tests {
    mod below_layers;

    use emmclab_device::DeviceConfig;

    use super::*;

    fn host(settings: &[(&str, &str)]) -> HostQueue {
        let mut config = DeviceConfig::preset("nexus5").unwrap();
        config.set_all(settings).unwrap();
        HostQueue::new(config.settings()).unwrap()
    }

    fn push(host: &mut HostQueue, at: i64, op: Op, kb_from: u64, kb: u32) {
        host.push(&Command::new(Nanos(at), op, kb_from * 2, kb * 2));
    }

    /// Fetched commands as (op, KB from, KB).
    fn fetch(host: &mut HostQueue, at: i64) -> Vec<(Op, u64, u32)> {
        let kb = |command: &Command| (command.op, command.sector / 2, command.sectors / 2);
        host.fetch(at).iter().map(kb).collect()
    }

    #[test]
    fn neighbours_are_merged_front_and_back_up_to_the_limit() {
        let mut host = host(&[("host.merge_max_kb", "16")]);
        push(&mut host, 0, Op::Write, 100, 4);
        push(&mut host, 1, Op::Write, 104, 4);
        push(&mut host, 2, Op::Write, 96, 4);
        push(&mut host, 3, Op::Read, 92, 4);
        push(&mut host, 4, Op::Write, 92, 8);
        assert_eq!(fetch(&mut host, 9), [(Op::Write, 96, 12)]);
        assert_eq!(fetch(&mut host, 9), [(Op::Read, 92, 4)]);
        assert_eq!(fetch(&mut host, 9), [(Op::Write, 92, 8)]);
        assert_eq!((host.counts.merged, host.counts.commands, host.counts.packs), (2, 3, 0));
    }

    #[test]
    fn nothing_is_merged_past_a_flush_or_the_same_sectors() {
        let mut host = host(&[("host.merge_max_kb", "512")]);
        push(&mut host, 0, Op::Write, 0, 4);
        push(&mut host, 1, Op::Read, 4, 4);
        push(&mut host, 2, Op::Write, 4, 4);
        push(&mut host, 3, Op::Flush, 0, 0);
        push(&mut host, 4, Op::Write, 8, 4);
        assert_eq!(host.counts.merged, 0);
    }

    #[test]
    fn consecutive_writes_are_packed_within_entries_and_size() {
        let mut host = host(&[("host.packed_writes", "3"), ("host.packed_max_kb", "64")]);
        for at in 0..4 {
            push(&mut host, at, Op::Write, 1000 * at as u64, 4);
        }
        push(&mut host, 4, Op::Write, 9000, 64);
        push(&mut host, 5, Op::Read, 0, 4);
        push(&mut host, 6, Op::Read, 8, 4);
        assert_eq!(fetch(&mut host, 9).len(), 3);
        assert_eq!(fetch(&mut host, 9).len(), 1, "64 KB more would be too much");
        assert_eq!(fetch(&mut host, 9).len(), 1);
        assert_eq!(fetch(&mut host, 9).len(), 1, "reads are not packed");
        assert_eq!(host.counts.packs_by_entries, [0, 0, 0, 1]);
        assert_eq!((host.counts.packs, host.counts.packed_requests), (1, 3));
    }

    #[test]
    fn one_command_at_a_time_is_fetched_when_the_last_is_complete() {
        let mut host = host(&[("host.packed_writes", "2")]);
        push(&mut host, 5, Op::Write, 0, 4);
        assert_eq!(host.ready_at(), Some(5));
        fetch(&mut host, 5);
        let event = RequestCompleted {
            id: 0,
            op: Op::Write,
            sector: 0,
            sectors: 8,
            arrival: 5,
            start: 5,
            complete: 100,
            subrequests: 1,
            waits: emmclab_device::Waits::default(),
        };
        host.entry_completed(0, &event, &mut |known| assert_eq!(known, &event));
        assert_eq!(host.pop_complete(), Some(event));
        push(&mut host, 7, Op::Write, 0, 4);
        assert_eq!(host.ready_at(), Some(100));
    }
}
