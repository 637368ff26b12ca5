//! The host's side of the command path: the block layer's queue with merging, and the driver that packs commands.
//!
//! Requests wait in the order of arrival. Whenever a tag of the device's queue is free, the driver fetches the first one. A write is packed
//! with the writes directly after it into one packed command (JESD84-B45; `EXT_CSD` `MAX_PACKED_WRITES` and `MAX_PACKED_READS`), as in
//! Linux' MMC driver. A request that arrives while a request for adjacent sectors still waits is merged with it, unless a request between
//! them touches the same sectors. If the settings name a kernel, the flags of a request become the commands that this kernel sends
//! (`driver.rs`); a request of several commands is complete with its last.
//!
//! Requests and commands are numbered separately, both from 0: requests in order of arrival, commands in the order in which the device gets
//! them. Each entry of a packed command has its own number.

mod blocks;
mod driver;
mod queue;
mod tags;
#[cfg(test)]
mod tests;

use emmclab_device::{DeviceCommand, DeviceSettings, HostSettings, LatencyBreakdown, RequestCompleted};
use emmclab_trace::{Nanos, Op};
use schemars::JsonSchema;
use serde::Serialize;

use crate::sequence_map::SequenceMap;

use blocks::BlockAlignment;
pub use driver::DriverCounts;
use driver::{KernelDriver, Sequence};
use queue::{RequestQueue, packable};
use tags::TagSet;

/// Counts of the host's queue and driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HostCounts {
    /// Commands sent; a packed one counts once.
    pub commands: u64,
    /// Requests merged into an earlier one.
    pub merged: u64,
    /// Packed commands.
    pub packs: u64,
    /// Requests in packed commands, after merging.
    pub packed_requests: u64,
    /// List of the number of packed commands with 0, 1, 2, ... entries.
    pub packs_by_entries: Vec<u64>,
    /// Size of the largest command without header blocks.
    pub largest_command_bytes: u64,
    /// Counts of the translation of flags, if `host.kernel` names a kernel.
    pub driver: Option<DriverCounts>,
}

/// A request that is not complete.
#[derive(Clone, Debug)]
struct IncompleteRequest {
    command: DeviceCommand,
    /// The next request merged into the same command, by number.
    next: Option<u64>,
    /// Commands that follow the one in progress.
    rest: Sequence,
    /// Times of the commands of the request that are complete.
    done: Option<RequestTiming>,
}

/// Times and counts of the completed commands of a request.
#[derive(Clone, Copy, Debug)]
struct RequestTiming {
    start: Nanos,
    complete: Nanos,
    subrequests: u32,
    waits: LatencyBreakdown,
}

/// A command in the device: its first request and its tag.
#[derive(Clone, Copy, Debug)]
struct InFlightCommand {
    first: u64,
    tag: Option<usize>,
}

/// The block layer's queue and the driver.
#[derive(Debug)]
pub(crate) struct HostQueue {
    blocks: Option<BlockAlignment>,
    queue: RequestQueue,
    driver: Option<KernelDriver>,
    /// Largest number of entries of a packed read and of a packed write.
    packed: [u32; 2],
    packed_sectors: u64,
    tags: TagSet,
    /// Time that fetching takes; it is added by the device.
    fetch: Nanos,
    incomplete: SequenceMap<IncompleteRequest>,
    in_flight: SequenceMap<InFlightCommand>,
    counts: HostCounts,
}

impl HostQueue {
    /// The queue that the settings configure, or `None` if every request is sent as one command.
    pub fn new(settings: &DeviceSettings) -> Option<Self> {
        let HostSettings { merge_max_kb, packed_writes, packed_reads, packed_max_kb, .. } = settings.host;
        let (driver, blocks) = (KernelDriver::new(settings), BlockAlignment::new(settings));
        let plain = driver.is_none() && blocks.is_none();
        if merge_max_kb == 0 && packed_writes == 0 && packed_reads == 0 && plain {
            return None;
        }
        let by_kernel = driver.as_ref().map_or(0, KernelDriver::packed_writes);
        let packed_writes = if packed_writes > 0 { packed_writes } else { by_kernel };
        let most = packed_writes.max(packed_reads).max(1) as usize;
        Some(Self {
            blocks,
            queue: RequestQueue::new(merge_max_kb * 2),
            driver,
            packed: [packed_reads.max(1), packed_writes.max(1)],
            packed_sectors: u64::from(packed_max_kb) * 2,
            tags: TagSet::new(settings.controller.queue_depth),
            fetch: settings.host.fetch(),
            incomplete: SequenceMap::default(),
            in_flight: SequenceMap::default(),
            counts: HostCounts { packs_by_entries: vec![0; most + 1], ..HostCounts::default() },
        })
    }

    /// The counts so far.
    pub fn counts(&self) -> HostCounts {
        HostCounts { driver: self.driver.as_ref().map(KernelDriver::counts), ..self.counts.clone() }
    }

    /// Adds a request to the queue, or merges it into one that waits there. If it needs no command, adds its completion to `requests`.
    /// Returns its number.
    pub fn push(&mut self, request: &DeviceCommand, requests: &mut Vec<RequestCompleted>) -> u64 {
        let mut rest = Sequence::new();
        let whole = self.blocks.as_ref().map_or(*request, |blocks| blocks.align(request));
        let first = match &mut self.driver {
            None => Some(whole),
            Some(driver) => {
                rest = driver.sequence(&whole);
                driver::next(&mut rest, request.arrival)
            }
        };
        let number = self.incomplete.push(IncompleteRequest { command: *request, next: None, rest, done: None });
        if let Some(first) = first {
            self.enqueue(&first, number);
        } else {
            self.incomplete.take(number);
            requests.push(completed_at_once(request, number));
        }
        number
    }

    fn enqueue(&mut self, command: &DeviceCommand, number: u64) {
        if let Some(last) = self.queue.push(command, number) {
            self.counts.merged += 1;
            if let Some(last) = self.incomplete.get_mut(last) {
                last.next = Some(number);
            }
        }
    }

    /// When the driver begins to fetch the next command. While a command runs, that is before a tag is free. `None` if no command waits, or
    /// if every tag is held by a command of unknown completion.
    pub fn ready_at(&self) -> Option<Nanos> {
        let fetched = self.tags.free_from(self.queue.first()?.arrival + self.fetch)?;
        Some(fetched - self.fetch)
    }

    /// Fetches the next command, with several entries if it is packed. All arrive at `at`.
    pub fn fetch(&mut self, at: Nanos, commands: &mut Vec<DeviceCommand>) {
        commands.clear();
        let tag = self.tags.first_free();
        let mut sectors = 0;
        while let Some(command) = self.queue.first() {
            if let Some(head) = commands.first() {
                let most = self.packed[usize::from(head.op == Op::Write)] as usize;
                let room = sectors + u64::from(command.sectors) <= self.packed_sectors;
                let alike = command.op == head.op && packable(&command) && packable(head);
                if !(alike && room && commands.len() < most) {
                    break;
                }
            }
            let Some(first) = self.queue.pop() else { break };
            sectors += u64::from(command.sectors);
            self.in_flight.push(InFlightCommand { first, tag });
            self.tags.occupy(tag);
            let mut sent = DeviceCommand { arrival: at, ..command };
            if let Some(driver) = &mut self.driver {
                driver.send(&mut sent);
            }
            commands.push(sent);
        }
        let entries = commands.len();
        self.counts.commands += 1;
        self.counts.largest_command_bytes = self.counts.largest_command_bytes.max(sectors * 512);
        if entries > 1 {
            self.counts.packs += 1;
            self.counts.packed_requests += entries as u64;
            self.counts.packs_by_entries[entries] += 1;
        }
    }

    /// Handles the completion of command `event.id`: adds the completions of its requests, or enqueues their next commands.
    pub fn completed(&mut self, event: &RequestCompleted, requests: &mut Vec<RequestCompleted>) {
        let Some(sent) = self.in_flight.take(event.id) else { return };
        self.tags.release(sent.tag, event.complete);
        let mut number = Some(sent.first);
        let mut subrequests = event.subrequests;
        while let Some(id) = number {
            let Some(open) = self.incomplete.get_mut(id) else { return };
            number = open.next;
            let command = open.command;
            let mut waits = event.waits;
            waits.queue += event.arrival - open.done.map_or(command.arrival, |done| done.complete);
            // Merged requests share the page operations; all are counted for the first request.
            let own = std::mem::take(&mut subrequests);
            let done = open.done.map_or(
                RequestTiming { start: event.start, complete: event.complete, subrequests: own, waits },
                |done| RequestTiming {
                    complete: event.complete,
                    subrequests: done.subrequests + own,
                    waits: done.waits.then(waits),
                    ..done
                },
            );
            if let Some(next) = driver::next(&mut open.rest, event.complete) {
                open.done = Some(done);
                self.enqueue(&next, id);
                continue;
            }
            self.incomplete.take(id);
            let RequestTiming { start, complete, subrequests, waits } = done;
            let DeviceCommand { arrival, op, modifiers, sector, sectors } = command;
            requests.push(RequestCompleted {
                id,
                op,
                modifiers,
                sector,
                sectors,
                arrival,
                start,
                complete,
                subrequests,
                waits,
            });
        }
    }
}

/// The completion of a request that needs no command, at its arrival.
fn completed_at_once(request: &DeviceCommand, id: u64) -> RequestCompleted {
    let DeviceCommand { arrival, op, modifiers, sector, sectors } = *request;
    let waits = LatencyBreakdown::default();
    RequestCompleted {
        id,
        op,
        modifiers,
        sector,
        sectors,
        arrival,
        start: arrival,
        complete: arrival,
        subrequests: 0,
        waits,
    }
}
