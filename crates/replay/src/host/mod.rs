//! The host's part of the command path: the queue of the block layer with merging, and the driver that packs commands.
//!
//! Requests wait in the order of arrival. When a tag of the device's queue is free, the driver fetches the first request. A write is packed
//! with the directly following writes into one packed command (JESD84-B45; `EXT_CSD` `MAX_PACKED_WRITES` and `MAX_PACKED_READS`), as in the
//! MMC driver of Linux. A request that arrives while a request for adjacent sectors waits is merged with it, unless a request between them
//! accesses the same sectors. If the settings select a kernel, the flags of a request become the commands of this kernel
//! ([`KernelDriver`]); a request of several commands is complete when its last command is.
//!
//! Requests and commands are numbered separately, both from 0: requests in order of arrival, commands in the order in which the device
//! receives them. Each entry of a packed command has its own number.

use emmclab_device::{
    CommandFlags, DeviceCapabilities, DeviceCommand, DeviceSettings, Geometry, HostSettings, KernelEra, KernelRules,
    LatencyBreakdown, RequestCompleted,
};
use emmclab_trace::{Nanos, Op};

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::Serialize;

use crate::sequence_map::SequenceMap;

/// Counts of the host's request queue and driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HostCounts {
    /// Number of commands sent; a packed command counts once.
    pub commands: u64,
    /// Number of requests that were merged into an earlier request.
    pub merged: u64,
    /// Number of packed commands.
    pub packs: u64,
    /// Number of requests in packed commands, after merging.
    pub packed_requests: u64,
    /// Number of packed commands with 0, 1, 2, ... entries, as a list.
    pub packs_by_entries: Vec<u64>,
    /// Size of the largest command, without header blocks.
    pub largest_command_bytes: u64,
    /// Counts of the commands into which the kernel translates request flags; null unless `host.kernel` selects a kernel.
    pub driver: Option<DriverCounts>,
}

/// A request of the host queue that is not complete.
#[derive(Clone, Debug)]
struct IncompleteRequest {
    command: DeviceCommand,
    /// Number of the next request that was merged into the same command; `None` for the last.
    next: Option<u64>,
    /// Commands of the request that follow the current one.
    rest: Sequence,
    /// Times of the completed commands of the request.
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

impl RequestTiming {
    /// Returns the completion of a request with these times.
    fn of_request(self, request: &DeviceCommand, id: u64) -> RequestCompleted {
        let DeviceCommand { arrival, op, modifiers, sector, sectors } = *request;
        let Self { start, complete, subrequests, waits } = self;
        RequestCompleted { id, op, modifiers, sector, sectors, arrival, start, complete, subrequests, waits }
    }
}

/// A command that was sent to the device, with the number of its first request and its tag.
#[derive(Clone, Copy, Debug)]
struct InFlightCommand {
    first: u64,
    tag: Option<usize>,
}

/// The host's request queue in the block layer, and its driver.
#[derive(Debug)]
pub(crate) struct HostQueue {
    blocks: Option<BlockAlignment>,
    queue: RequestQueue,
    driver: Option<KernelDriver>,
    /// Maximum number of entries of a packed read, and of a packed write.
    packed: [u32; 2],
    packed_sectors: u64,
    tags: TagSet,
    /// Time that the driver takes to fetch a command.
    fetch: Nanos,
    incomplete: SequenceMap<IncompleteRequest>,
    in_flight: SequenceMap<InFlightCommand>,
    counts: HostCounts,
}

impl HostQueue {
    /// Creates the queue that the settings describe, or `None` if every request is sent as one command.
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

    pub fn counts(&self) -> HostCounts {
        HostCounts { driver: self.driver.as_ref().map(KernelDriver::counts), ..self.counts.clone() }
    }

    /// Adds a request to the queue, or merges it into a waiting request. A request that needs no command is complete at once, and its
    /// completion is added to `requests`. Returns the number of the request.
    pub fn push(&mut self, request: &DeviceCommand, requests: &mut Vec<RequestCompleted>) -> u64 {
        let mut rest = Sequence::new();
        let whole = self.blocks.as_ref().map_or(*request, |blocks| blocks.align(request));
        let first = match &mut self.driver {
            None => Some(whole),
            Some(driver) => {
                rest = driver.sequence(&whole);
                next_command(&mut rest, request.arrival)
            }
        };
        let number = self.incomplete.push(IncompleteRequest { command: *request, next: None, rest, done: None });
        if let Some(first) = first {
            self.enqueue(&first, number);
        } else {
            self.incomplete.take(number);
            let (arrival, waits) = (request.arrival, LatencyBreakdown::default());
            let at_once = RequestTiming { start: arrival, complete: arrival, subrequests: 0, waits };
            requests.push(at_once.of_request(request, number));
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

    /// Returns the time at which the driver begins to fetch the next command. The fetch may begin before a tag is free, so that it ends
    /// when the tag becomes free. `None` if no command waits, or if every tag belongs to a command with unknown completion.
    pub fn ready_at(&self) -> Option<Nanos> {
        let fetched = self.tags.free_from(self.queue.first()?.arrival + self.fetch)?;
        Some(fetched - self.fetch)
    }

    /// Fetches the next command, which has several entries if it is packed. All its entries arrive at `at`.
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

    /// Handles the completion of command `event.id`: adds the completions of its requests, or enqueues the next commands of these requests.
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
            // Merged requests share the page operations, which are all counted for the first request.
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
            if let Some(next) = next_command(&mut open.rest, event.complete) {
                open.done = Some(done);
                self.enqueue(&next, id);
                continue;
            }
            self.incomplete.take(id);
            requests.push(done.of_request(&command, id));
        }
    }
}

/// Aligns requests to the blocks of a file system that occupies the whole device.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockAlignment {
    sectors: u64,
    /// Number of sectors of the device.
    capacity: u64,
}

impl BlockAlignment {
    /// Creates the alignment that the settings describe, or `None` if requests are not extended.
    pub fn new(settings: &DeviceSettings) -> Option<Self> {
        let sectors = u64::from(settings.host.block_kb) * 2;
        (sectors > 0).then(|| Self { sectors, capacity: Geometry::new(settings).sectors() })
    }

    /// Extends a request with data to whole blocks. The last block of the device may be shorter.
    pub fn align(&self, request: &DeviceCommand) -> DeviceCommand {
        if !request.op.has_data() {
            return *request;
        }
        let end = request.sector + u64::from(request.sectors);
        let first = request.sector / self.sectors * self.sectors;
        let last = (end.div_ceil(self.sectors) * self.sectors).min(self.capacity).max(end);
        DeviceCommand { sector: first, sectors: (last - first) as u32, ..*request }
    }
}

/// A tag in the command queue of the device.
#[derive(Clone, Copy, Debug)]
struct QueueTag {
    /// Time at which the commands with this tag are complete, as far as it is known.
    free: Nanos,
    /// Number of commands with this tag whose completion is unknown; more than one for the entries of a packed command.
    commands: u32,
}

/// All tags of the device's command queue; empty if the device accepts commands without limit.
#[derive(Debug)]
pub(super) struct TagSet(Vec<QueueTag>);

impl TagSet {
    pub fn new(queue_depth: u32) -> Self {
        Self(vec![QueueTag { free: Nanos::MIN, commands: 0 }; queue_depth as usize])
    }

    /// When a command that arrives at `arrival` can be sent; `None` if every tag belongs to a command with unknown completion.
    pub fn free_from(&self, arrival: Nanos) -> Option<Nanos> {
        if self.0.is_empty() {
            return Some(arrival);
        }
        self.first_free().map(|tag| arrival.max(self.0[tag].free))
    }

    /// Returns the tag that has been free for the longest time.
    pub fn first_free(&self) -> Option<usize> {
        let idle = self.0.iter().enumerate().filter(|(_, tag)| tag.commands == 0);
        idle.min_by_key(|(_, tag)| tag.free).map(|(index, _)| index)
    }

    /// Marks a tag as used by one more command.
    pub fn occupy(&mut self, tag: Option<usize>) {
        if let Some(tag) = tag {
            self.0[tag].commands += 1;
        }
    }

    /// Removes a complete command from its tag.
    pub fn release(&mut self, tag: Option<usize>, complete: Nanos) {
        if let Some(tag) = tag {
            self.0[tag].commands -= 1;
            self.0[tag].free = self.0[tag].free.max(complete);
        }
    }
}

/// Number of waiting requests with which a new request is compared for merging, youngest first: the length of the request queue of Linux.
const LOOK_BACK: usize = 128;

/// A request in the queue, possibly merged from several.
#[derive(Clone, Copy, Debug)]
struct QueuedRequest {
    command: DeviceCommand,
    /// Number of the first request that was merged into this one. `last` is the number of the last one.
    first: u64,
    last: u64,
}

/// Requests that wait until the driver fetches them.
#[derive(Debug)]
pub(super) struct RequestQueue {
    /// Maximum size of a merged request in sectors; 0 without merging.
    most_sectors: u32,
    waiting: VecDeque<QueuedRequest>,
}

impl RequestQueue {
    pub fn new(most_sectors: u32) -> Self {
        Self { most_sectors, waiting: VecDeque::with_capacity(LOOK_BACK) }
    }

    /// Adds a request to the queue in order of arrival, or merges it into a waiting request. Returns `None` if it was not merged, otherwise
    /// the number of the request that was added to the same waiting request before.
    pub fn push(&mut self, command: &DeviceCommand, number: u64) -> Option<u64> {
        let merged = self.merge(command, number);
        if merged.is_none() {
            // The next command of a request arrives when the previous command completes. This may be in the future, so the queue is sorted.
            let later = |queued: &&QueuedRequest| queued.command.arrival > command.arrival;
            let place = self.waiting.len() - self.waiting.iter().rev().take_while(later).count();
            self.waiting.insert(place, QueuedRequest { command: *command, first: number, last: number });
        }
        merged
    }

    pub fn first(&self) -> Option<DeviceCommand> {
        self.waiting.front().map(|queued| queued.command)
    }

    /// Removes the first command of the queue. Returns the number of its first request.
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

/// Whether a command can be merged: reads and writes without flags for durability or order. Flags that are only hints do not matter.
pub(super) fn mergeable(command: &DeviceCommand) -> bool {
    command.op.has_data() && !command.modifiers.intersects(CommandFlags::PROMISES)
}

/// Whether a command can be an entry of a packed command. Each entry has its own `CMD23` argument, so reliable and forced writes can be
/// packed, but writes with preflush cannot (JESD84-B51, 6.6.29).
pub(super) fn packable(command: &DeviceCommand) -> bool {
    command.op.has_data() && !command.modifiers.intersects(CommandFlags::PREFLUSH)
}

/// Counts of the commands into which the selected kernel translates the flags of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DriverCounts {
    /// The kernel that translates flags into commands (`host.kernel`).
    pub kernel: KernelEra,
    /// Number of cache flushes sent.
    pub flushes: u64,
    /// Number of cache barriers sent.
    pub barriers: u64,
    /// Number of writes sent as reliable writes.
    pub reliable_writes: u64,
    /// Number of flushes and barriers for which no command was sent.
    pub without_command: u64,
}

impl DriverCounts {
    /// Whether any request had a flag that the driver translates.
    pub(crate) fn any(&self) -> bool {
        self.flushes + self.barriers + self.reliable_writes + self.without_command > 0
    }
}

/// The driver of the kernel that the settings select. Like the block layer and the MMC driver of this kernel, it translates the flags of a
/// request into a sequence of commands, each of which is sent when the previous one is complete (`block/blk-flush.c`,
/// `drivers/mmc/core/block.c`).
#[derive(Debug)]
pub(super) struct KernelDriver {
    rules: KernelRules,
    capabilities: DeviceCapabilities,
    counts: DriverCounts,
}

/// The commands of a request that have not been sent yet, in order.
pub(super) type Sequence = arrayvec::ArrayVec<DeviceCommand, 3>;

impl KernelDriver {
    /// Creates the driver of the kernel that `host.kernel` selects; it translates the flags of requests into commands. Returns `None` if
    /// flags reach the device unchanged.
    pub fn new(settings: &DeviceSettings) -> Option<Self> {
        let kernel = settings.host.kernel;
        let counts = DriverCounts { kernel, flushes: 0, barriers: 0, reliable_writes: 0, without_command: 0 };
        Some(Self { rules: kernel.rules()?, capabilities: DeviceCapabilities::of(settings), counts })
    }

    pub fn counts(&self) -> DriverCounts {
        self.counts
    }

    /// Returns the maximum number of writes in a packed command if there is no setting for it; 0 if the kernel does not pack.
    pub fn packed_writes(&self) -> u32 {
        if self.rules.packs && self.capabilities.queue_depth == 1 { self.capabilities.packed_writes } else { 0 }
    }

    /// Returns the commands for a request; empty if the request needs no command and is complete at once.
    pub fn sequence(&mut self, request: &DeviceCommand) -> Sequence {
        let mut sequence = Sequence::new();
        let DeviceCapabilities { cache_kb, cache_in_order, barrier, .. } = self.capabilities;
        let cached = cache_kb > 0;
        let around = |op, modifiers| DeviceCommand { modifiers, ..DeviceCommand::new(request.arrival, op, 0, 0) };
        let flush = cached.then(|| around(Op::Flush, CommandFlags::empty()));
        // If the cache keeps the order of writes, no barrier is sent. If the device does not support barriers, a flush is sent instead of a
        // barrier.
        let order = if cache_in_order {
            None
        } else if barrier {
            Some(around(Op::Flush, CommandFlags::BARRIER))
        } else {
            flush
        };
        match request.op {
            Op::Flush if request.modifiers.contains(CommandFlags::BARRIER) => sequence.extend(order),
            Op::Flush => sequence.extend(flush),
            Op::Write => {
                let fua = request.modifiers.contains(CommandFlags::RELIABLE);
                let reliable = fua && self.rules.fua && self.capabilities.has_fua();
                if request.modifiers.contains(CommandFlags::PREFLUSH) {
                    sequence.extend(if self.rules.barriers && fua { order } else { flush });
                }
                let mut modifiers = request.modifiers.difference(CommandFlags::PREFLUSH);
                modifiers.set(CommandFlags::RELIABLE, reliable);
                sequence.push(DeviceCommand { modifiers, ..*request });
                if fua && !reliable {
                    sequence.extend(flush);
                }
            }
            _ => sequence.push(*request),
        }
        self.counts.without_command += u64::from(sequence.is_empty());
        sequence
    }

    /// Sets the flags of a command that is being sent, and counts it.
    pub fn send(&mut self, command: &mut DeviceCommand) {
        let metadata = command.op == Op::Write && command.modifiers.contains(CommandFlags::META);
        if metadata && self.rules.reliable_metadata && self.capabilities.reliable_write {
            command.modifiers.insert(CommandFlags::RELIABLE);
        }
        let ordering = command.modifiers.contains(CommandFlags::BARRIER);
        self.counts.barriers += u64::from(command.op == Op::Flush && ordering);
        self.counts.flushes += u64::from(command.op == Op::Flush && !ordering);
        self.counts.reliable_writes += u64::from(command.modifiers.contains(CommandFlags::RELIABLE));
    }
}

/// Removes and returns the first of the remaining commands of a request. It arrives at `at` or later.
fn next_command(sequence: &mut Sequence, at: Nanos) -> Option<DeviceCommand> {
    let command = sequence.pop_at(0)?;
    Some(DeviceCommand { arrival: command.arrival.max(at), ..command })
}
