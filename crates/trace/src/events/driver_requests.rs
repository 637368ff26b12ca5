//! Builds requests from the commands of MMC, UFS and SCSI drivers, for recordings without block events.
//!
//! Each command becomes a request. Its arrival, start and issue are the time at which the driver sends it to the device, and its
//! completion is the time at which the driver sees its end. Rules:
//!
//! 1. `CMD35`, `CMD36` and `CMD38` become one discard of the sectors from the first to the second argument; it arrives with
//!    `CMD35`. The second step of a secure trim becomes part of the first.
//! 2. A device may stay busy after the end of a command. If the driver polls it with `CMD13` until it is ready, the last answer
//!    is the end of the previous command.
//! 3. A command that fails and is repeated stays one request; its last start is its issue.
//! 4. A packed command becomes one write, without its header of 512 bytes.
//! 5. Commands that were in progress at the beginning or end of the recording are unpaired. If the recording has no end of a
//!    command at all, all commands are kept without a completion.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::command::{AddressUnitEvidence, CommandBlocks, SCSI_HOST};
use crate::{
    BlockLayerEvent, CommandEvent, CommandKind, CommandStep, CommandTarget, EraseKind, Ledger, NameId, NameTable, Nanos, Op,
    Request, RequestFlags, Sector, unfilled,
};

/// Maximum number of open commands of a host; a greater number means that events of their ends were lost.
const MOST_OPEN: usize = 4096;
/// Maximum number of hosts; commands of further hosts are unpaired.
const MOST_HOSTS: usize = 256;
/// Maximum time after the previous command at which a status request belongs to it. The longest pause of the kernel between two
/// status requests is 33 ms.
const POLLING: Nanos = Nanos(40_000_000);

/// Name of a host, padded with zeros.
type HostName = [u8; 16];

/// A request whose address is possibly not converted to sectors yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct DriverRequest {
    host: HostName,
    request: Request,
    blocks: Option<CommandBlocks>,
    packed: bool,
}

/// A command in progress.
#[derive(Clone, Copy, Debug)]
enum OpenCommand {
    Request(DriverRequest),
    /// A status request, with which the driver polls for the end of the previous command.
    Poll,
    /// A command that failed and will be repeated.
    Again(DriverRequest),
    /// A command that is not a request.
    Other,
}

#[derive(Debug, Default)]
struct HostCommandState {
    open: HashMap<u64, OpenCommand>,
    /// First sector and arrival of an erase whose `CMD38` is not sent yet.
    erase_from: Option<(u64, Nanos)>,
    /// Last sector of an erase whose `CMD38` is not sent yet.
    erase_to: Option<u64>,
    /// A request that has ended, but may keep the device busy.
    busy: Option<DriverRequest>,
    evidence: AddressUnitEvidence,
}

#[derive(Debug, Default)]
pub(super) struct DriverRequests {
    hosts: BTreeMap<HostName, HostCommandState>,
    /// Requests that have ended but are not returned yet.
    ended_requests: Vec<DriverRequest>,
    /// Whether the recording has the end of any command.
    has_command_ends: bool,
    /// Whether the recording has a command of a UFS controller.
    has_ufs: bool,
    /// Number of commands with an unknown length, which do not become requests.
    without_length: u64,
    returned_requests: u64,
}

impl DriverRequests {
    /// Handles the start or end of a command.
    pub(super) fn command(&mut self, time: Nanos, event: &CommandEvent, ledger: &mut Ledger) {
        if self.hosts.len() >= MOST_HOSTS && !self.hosts.contains_key(&event.host) {
            ledger.unpaired += 1;
            return;
        }
        let host = self.hosts.entry(event.host).or_default();
        match event.step {
            CommandStep::Start { .. } => {
                if host.open.len() >= MOST_OPEN {
                    ledger.unpaired += host.open.drain().count() as u64;
                }
                self.start(time, event, ledger);
            }
            CommandStep::Done { failed, will_be_repeated } => {
                self.has_command_ends = true;
                self.end(time, event, failed, will_be_repeated, ledger);
            }
        }
    }

    fn start(&mut self, time: Nanos, event: &CommandEvent, ledger: &mut Ledger) {
        let CommandStep::Start { kind, bytes, target, packed, reliable } = event.step else { return };
        let Some(host) = self.hosts.get_mut(&event.host) else { return };
        if kind == CommandKind::Status {
            let polls = host.busy.is_some_and(|row| row.request.complete.is_some_and(|end| time - end <= POLLING));
            host.open.insert(event.id, if polls { OpenCommand::Poll } else { OpenCommand::Other });
            return;
        }
        if let Some(OpenCommand::Again(mut row)) = host.open.get(&event.id).copied() {
            row.request.issue = Some(time);
            host.open.insert(event.id, OpenCommand::Request(row));
            return;
        }
        let before = host.busy.take();
        if let Some(row) = before {
            self.ended_requests.push(row);
        }
        let open = match host.command_range(time, kind, bytes, target) {
            CommandRange::Sectors(op, first, count) => {
                let mut row = DriverRequest::new(event.host, time, op, first, count, packed, reliable);
                if let CommandTarget::Erase(_) = target {
                    // An erase consists of three commands, and arrives with the first one.
                    row.request.arrival = host.erase_from.take().map_or(time, |(_, arrival)| arrival);
                }
                if let CommandTarget::Erase(erase) | CommandTarget::Erased { erase, .. } = target
                    && erase.second_step
                    && let Some(first_step) = self.ended_requests.pop_if(|row| row.request.sector.0 == first)
                {
                    // Both steps of a two-step erase have the same sectors and count as one request.
                    row = first_step;
                }
                OpenCommand::Request(row)
            }
            CommandRange::Blocks(op, blocks) => {
                self.has_ufs |= blocks.count.is_none();
                host.evidence.see(&blocks);
                let mut row = DriverRequest::new(event.host, time, op, 0, 0, packed, reliable);
                row.blocks = Some(blocks);
                OpenCommand::Request(row)
            }
            CommandRange::Unknown => {
                self.without_length += 1;
                OpenCommand::Other
            }
            CommandRange::None => OpenCommand::Other,
        };
        if matches!(host.open.insert(event.id, open), Some(OpenCommand::Request(_) | OpenCommand::Again(_))) {
            ledger.unpaired += 1;
        }
    }

    fn end(&mut self, time: Nanos, event: &CommandEvent, failed: bool, will_be_repeated: bool, ledger: &mut Ledger) {
        let Some(host) = self.hosts.get_mut(&event.host) else { return };
        match host.open.remove(&event.id) {
            Some(OpenCommand::Request(row) | OpenCommand::Again(row)) if will_be_repeated => {
                ledger.requeued += 1;
                host.open.insert(event.id, OpenCommand::Again(row));
            }
            Some(OpenCommand::Request(mut row) | OpenCommand::Again(mut row)) => {
                row.request.complete = Some(time.max(row.request.arrival));
                if failed {
                    row.request.flags = row.request.flags.union(RequestFlags::FAILED);
                }
                // If other commands are in progress, the next status request may not belong to this command.
                let before = if host.open.is_empty() { host.busy.replace(row) } else { Some(row) };
                self.ended_requests.extend(before);
            }
            Some(OpenCommand::Poll) => {
                if let Some(row) = &mut host.busy {
                    row.request.complete = Some(time.max(row.request.arrival));
                }
            }
            Some(OpenCommand::Other) => {}
            None => ledger.unpaired += 1,
        }
    }

    /// Number of requests that have ended but are not returned yet.
    pub(super) fn len(&self) -> usize {
        self.ended_requests.len()
    }

    /// Arrival of the oldest request that is not returned yet.
    pub(super) fn oldest(&self) -> Option<Nanos> {
        let open = self.hosts.values().flat_map(|host| {
            let open = host.open.values().filter_map(|open| match open {
                OpenCommand::Request(row) | OpenCommand::Again(row) => Some(row.request.arrival),
                OpenCommand::Poll | OpenCommand::Other => None,
            });
            open.chain(host.busy.map(|row| row.request.arrival))
        });
        open.chain(self.ended_requests.iter().map(|row| row.request.arrival)).min()
    }

    /// Appends the requests that have ended to `out`; their devices are named after the hosts.
    pub(super) fn take(&mut self, devices: &mut NameTable, ledger: &mut Ledger, out: &mut Vec<Request>) {
        for row in self.ended_requests.drain(..) {
            if self.has_ufs && row.host.starts_with(SCSI_HOST) {
                // The SCSI layer above the UFS controller has reported the same command, which is counted once.
                continue;
            }
            let unit = self.hosts.get(&row.host).map_or(1, |host| host.evidence.sectors_of_unit());
            let mut request = row.request;
            if let Some(blocks) = row.blocks {
                let (first, count) = blocks.sectors(unit);
                (request.sector, request.sectors) = (Sector(first), clamp(count));
            }
            request.device = Some(devices.intern(&String::from_utf8_lossy(unfilled(&row.host))));
            ledger.paired += u64::from(request.complete.is_some());
            ledger.headers_stripped += u64::from(row.packed);
            ledger.failed += u64::from(request.flags.contains(RequestFlags::FAILED));
            self.returned_requests += 1;
            out.push(request);
        }
    }

    /// The note on the origin of the requests; `None` if there is nothing to note.
    pub(super) fn note(&self) -> Option<String> {
        let mut parts = Vec::new();
        if self.returned_requests > 0 {
            parts.push("requests are the commands of the driver, as no block events were recorded".to_owned());
            let long = self.hosts.values().filter(|host| host.evidence.sectors_of_unit() > 1);
            if long.count() > 0 {
                parts.push("addresses counted in blocks of 4 KiB".to_owned());
            }
        }
        if self.without_length > 0 {
            parts.push(format!("{} commands have no length and are not requests", self.without_length));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// Ends the recording. A command whose end was not recorded counts as unpaired. If no ends were recorded at all, such commands become
    /// requests.
    pub(super) fn finish(&mut self, ledger: &mut Ledger) {
        for host in self.hosts.values_mut() {
            self.ended_requests.extend(host.busy.take());
            let mut left: Vec<_> = host
                .open
                .drain()
                .filter_map(|(_, open)| match open {
                    OpenCommand::Request(row) | OpenCommand::Again(row) => Some(row),
                    OpenCommand::Poll | OpenCommand::Other => None,
                })
                .collect();
            if self.has_command_ends {
                ledger.unpaired += left.len() as u64;
            } else {
                left.sort_by_key(|row| row.request.arrival);
                self.ended_requests.append(&mut left);
            }
        }
    }

    /// Drops all requests, because block events describe the same requests.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// The operation and sectors of a command.
enum CommandRange {
    Sectors(Op, u64, u64),
    Blocks(Op, CommandBlocks),
    /// The event does not contain the length.
    Unknown,
    /// The command is not a request.
    None,
}

impl HostCommandState {
    fn command_range(&mut self, time: Nanos, kind: CommandKind, bytes: u64, target: CommandTarget) -> CommandRange {
        let erase_op = |erase: EraseKind| if erase.secure { Op::SecureErase } else { Op::Discard };
        let op = match kind {
            CommandKind::Read => Op::Read,
            CommandKind::Write => Op::Write,
            CommandKind::Discard => Op::Discard,
            CommandKind::Flush => return CommandRange::Sectors(Op::Flush, 0, 0),
            _ => return CommandRange::None,
        };
        match target {
            CommandTarget::Nowhere | CommandTarget::Sectors { count: 0, .. } | CommandTarget::Erased { count: 0, .. } => {
                CommandRange::Unknown
            }
            CommandTarget::Sectors { first, count } => CommandRange::Sectors(op, first, count),
            CommandTarget::Erased { first, count, erase } => CommandRange::Sectors(erase_op(erase), first, count),
            CommandTarget::Blocks { count: None | Some(0), .. } if bytes == 0 => CommandRange::Unknown,
            CommandTarget::Blocks { first, count, is_recent } => {
                CommandRange::Blocks(op, CommandBlocks { first, count, bytes, is_recent })
            }
            CommandTarget::EraseFrom(first) => {
                self.erase_from = Some((first, time));
                CommandRange::None
            }
            CommandTarget::EraseTo(last) => {
                self.erase_to = Some(last);
                CommandRange::None
            }
            CommandTarget::Erase(erase) => match (self.erase_from, self.erase_to.take()) {
                (Some((first, _)), Some(last)) if first <= last => {
                    CommandRange::Sectors(erase_op(erase), first, (last - first).saturating_add(1))
                }
                _ => {
                    self.erase_from = None;
                    CommandRange::Unknown
                }
            },
        }
    }
}

/// A number of sectors, limited to the maximum length of a request.
fn clamp(sectors: u64) -> u32 {
    u32::try_from(sectors).unwrap_or(u32::MAX)
}

impl DriverRequest {
    fn new(host: HostName, time: Nanos, op: Op, first: u64, count: u64, packed: bool, reliable: bool) -> Self {
        const HEADER: u64 = 1;
        let count = if packed { count.saturating_sub(HEADER) } else { count };
        let mut flags = if packed { RequestFlags::PACKED } else { RequestFlags::default() };
        if reliable && op == Op::Write {
            // The driver sends FUA writes to an eMMC as reliable writes.
            flags = flags.union(RequestFlags::FUA);
        }
        let request =
            Request { start: Some(time), issue: Some(time), flags, ..Request::new(time, op, Sector(first), clamp(count)) };
        Self { host, request, blocks: None, packed }
    }
}

/// Maximum number of open requests; a greater number means that completion events were lost.
const MOST_ACCOUNTED: usize = 1 << 16;

/// Maximum number of requests before a sector that are searched for one that contains the sector.
const NEIGHBOURS: usize = 64;

/// Builds requests from `block_io_start` and `block_io_done`, for recordings without other block events. Source: the kernel's
/// `include/trace/events/block.h` (since 6.5). The first event describes a request before others are merged into it; the second
/// has its sector, but not its length.
#[derive(Debug, Default)]
pub(super) struct AccountedRequests {
    open: BTreeMap<(NameId, u64), VecDeque<Request>>,
    count: usize,
    ended_requests: Vec<Request>,
    has_request_ends: bool,
    events: u64,
    returned_requests: u64,
}

impl AccountedRequests {
    pub(super) fn start(&mut self, event: &BlockLayerEvent, ledger: &mut Ledger) {
        self.events += 1;
        if event.sectors == 0 && event.op != Op::Flush {
            // A passthrough command, which is not block I/O.
            ledger.skipped += 1;
            return;
        }
        if self.count >= MOST_ACCOUNTED {
            ledger.unpaired += self.count as u64;
            self.open.clear();
            self.count = 0;
        }
        let sector = if event.op == Op::Flush { 0 } else { event.sector };
        let request = Request {
            flags: event.flags,
            pid: event.pid,
            process: event.process,
            device: Some(event.device),
            ..Request::new(event.time, event.op, Sector(sector), event.sectors)
        };
        self.open.entry((event.device, sector)).or_default().push_back(request);
        self.count += 1;
    }

    /// Ends a request. If the request was completed in parts, the event has the sector of the last part.
    pub(super) fn end(&mut self, event: &BlockLayerEvent, ledger: &mut Ledger) {
        self.has_request_ends = true;
        self.events += 1;
        let at = if event.op == Op::Flush { 0 } else { event.sector };
        let holds = |request: &Request| request.op == event.op && (request.end().0 > at || request.sector.0 == at);
        let mut before = self.open.range((event.device, 0)..=(event.device, at)).rev().take(NEIGHBOURS);
        let open = before.find_map(|(key, list)| Some((*key, list.iter().position(holds)?)));
        let Some((key, place)) = open else {
            ledger.unpaired += 1;
            return;
        };
        let Some(list) = self.open.get_mut(&key) else { return };
        let request = list.remove(place);
        if list.is_empty() {
            self.open.remove(&key);
        }
        self.count -= 1;
        if let Some(mut request) = request {
            request.complete = Some(event.time.max(request.arrival));
            request.flags.set(RequestFlags::FAILED, event.error != 0);
            self.ended_requests.push(request);
        }
    }

    /// Number of requests that have ended but are not returned yet.
    pub(super) fn len(&self) -> usize {
        self.ended_requests.len()
    }

    /// Arrival of the oldest request that is not returned yet.
    pub(super) fn oldest(&self) -> Option<Nanos> {
        let open = self.open.values().flatten();
        open.chain(&self.ended_requests).map(|request| request.arrival).min()
    }

    pub(super) fn take(&mut self, ledger: &mut Ledger, out: &mut Vec<Request>) {
        ledger.paired += self.ended_requests.iter().filter(|request| request.complete.is_some()).count() as u64;
        self.returned_requests += self.ended_requests.len() as u64;
        out.append(&mut self.ended_requests);
    }

    /// Ends the recording. Open requests are unpaired, unless the recording has no completion events at all.
    pub(super) fn finish(&mut self, ledger: &mut Ledger) {
        if self.has_request_ends {
            ledger.unpaired += self.count as u64;
        } else {
            self.ended_requests.extend(self.open.values().flatten());
            self.ended_requests.sort_by_key(|request| request.arrival);
        }
        self.open.clear();
        self.count = 0;
    }

    /// Drops all requests, because other block events describe the same requests.
    pub(super) fn clear(&mut self, ledger: &mut Ledger) {
        ledger.skipped += self.events;
        *self = Self::default();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0 && self.ended_requests.is_empty() && self.returned_requests == 0
    }

    /// The note on the origin of the requests; `None` if there are none.
    pub(super) fn note(&self) -> Option<String> {
        (self.returned_requests > 0).then(|| {
            "requests are those of block_io_start and block_io_done: the length of a request does not include later merges, \
             and queueing and issue are unknown"
                .to_owned()
        })
    }
}
