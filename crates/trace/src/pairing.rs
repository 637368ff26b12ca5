//! From block-layer events to requests.
//!
//! The kernel reports what happens to an I/O as separate events that share no identifier: device, sector and length
//! have to tell which belong together. The rules, tried on Linux 6.1, 6.12 and 6.18:
//!
//! 1. A queued I/O waits until the range that holds it is issued; a completion ends the issued request of its sector.
//!    Several candidates of one sector are taken first in, first out, and counted as ambiguous.
//! 2. A merge joins an I/O to its neighbour: the request keeps the earlier arrival. A split makes two of one, and the
//!    second part gets no event of its own.
//! 3. A completion of less than was issued moves the request on to its next sector; a requeue puts it back.
//! 4. A cache flush (`FWS`, no data) is done by the flush that is issued next (`FF`), which serves all that wait, and
//!    ends with a completion of length 0.
//! 5. A write with a flush before it, or with forced unit access on a device that has none, passes through those
//!    flushes: its data completes first and a completion of length 0, at the sector of its last piece, ends it.
//! 6. Recordings without some of these events are met half way: the earliest stage seen gives the arrival, and
//!    without completions the requests stay open.
//! 7. What is queued to a mapped device (dm, zram) is passed on to a disk, or served without a request. Where other
//!    devices issue or complete requests, those of a device that never does are left out and counted as skipped.
//!
//! Of a request, `start` is the first time that any part of it was issued to the driver (its flush included), `issue`
//! the last time that its data was (handed to the device, where the driver tells that), and `complete` the final
//! completion.

use std::collections::{BTreeMap, VecDeque};

use crate::ledger::Ledger;
use crate::names::NameId;
use crate::request::{Flags, Op, Request};
use crate::units::{Nanos, Sector};

/// Requests of one device that may be open at a time; beyond it, the oldest half is given up.
const MAX_OPEN: usize = 1 << 16;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// An I/O was queued (`block_bio_queue`, Q).
    Queue,
    /// A request was allocated for it (`block_getrq`, G).
    GetRequest,
    /// The request went to the scheduler (`block_rq_insert`, I).
    Insert,
    /// The request went to the driver (`block_rq_issue`, D).
    Issue,
    /// The driver handed it to the device (`mmc_request_start`).
    Submit,
    /// A part or all of it is done (`block_rq_complete`, C).
    Complete,
    /// The driver gave it back (`block_rq_requeue`, R).
    Requeue,
    /// An I/O was joined to the end of a request (`block_bio_backmerge`, M).
    BackMerge,
    /// An I/O was joined to the front of a request (`block_bio_frontmerge`, F).
    FrontMerge,
    /// A request was joined to the end of another (`block_rq_merge`).
    RequestMerge,
    /// An I/O was cut in two; the second part begins at this sector (`block_split`, X).
    Split(u64),
}

impl EventKind {
    /// What the kernel's event of this name reports; a split without its second sector.
    pub fn of_event(name: &[u8]) -> Option<EventKind> {
        Some(match name {
            b"block_bio_queue" => EventKind::Queue,
            b"block_getrq" => EventKind::GetRequest,
            b"block_rq_insert" => EventKind::Insert,
            b"block_rq_issue" => EventKind::Issue,
            b"block_rq_complete" => EventKind::Complete,
            b"block_rq_requeue" => EventKind::Requeue,
            b"block_bio_backmerge" => EventKind::BackMerge,
            b"block_bio_frontmerge" => EventKind::FrontMerge,
            b"block_rq_merge" => EventKind::RequestMerge,
            b"block_split" => EventKind::Split(0),
            _ => return None,
        })
    }
}

/// An event of the block layer.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// When.
    pub time: Nanos,
    /// What.
    pub kind: EventKind,
    /// On which device.
    pub device: NameId,
    /// The operation; `Flush` for the flush that the kernel itself issues (`FF`).
    pub op: Op,
    /// Its flags; a `Write` of no sectors with `PREFLUSH` is somebody's flush.
    pub flags: Flags,
    /// First sector.
    pub sector: u64,
    /// Sectors.
    pub sectors: u32,
    /// The process that was running.
    pub pid: Option<i32>,
    /// Its name.
    pub process: Option<NameId>,
}

/// A request on its way.
#[derive(Clone, Copy, Debug)]
struct Open {
    request: Request,
    /// The next sector to be done; moves on with partial completions.
    position: u64,
    end: u64,
    /// Whether its arrival was seen, or it was first met as issued.
    queued: bool,
    /// Whether the kernel will end it with a completion of length 0.
    sequenced: bool,
}

impl Open {
    fn new(event: &Event) -> Self {
        let request = Request {
            flags: event.flags,
            pid: event.pid,
            process: event.process,
            device: Some(event.device),
            ..Request::new(event.time, event.op, Sector(event.sector), event.sectors)
        };
        let end = event.sector.saturating_add(u64::from(event.sectors));
        let sequenced = event.flags.contains(Flags::PREFLUSH);
        Self { request, position: event.sector, end, queued: true, sequenced }
    }

    /// Takes in `other`, which lies beside it.
    fn join(&mut self, other: &Open) {
        self.position = self.position.min(other.position);
        self.end = self.end.max(other.end);
        self.request.sector = Sector(self.request.sector.0.min(other.request.sector.0));
        if other.request.arrival < self.request.arrival {
            self.request.arrival = other.request.arrival;
            self.request.pid = other.request.pid;
            self.request.process = other.request.process;
        }
        self.request.flags = self.request.flags.with(other.request.flags);
        self.measure();
    }

    /// Sets the length by the range.
    fn measure(&mut self) {
        let sectors = self.end.saturating_sub(self.request.sector.0);
        self.request.sectors = u32::try_from(sectors).unwrap_or(u32::MAX);
    }
}

/// Requests by the sector that will be named next, first in, first out.
#[derive(Debug, Default)]
struct Shelf {
    by_sector: BTreeMap<u64, VecDeque<Open>>,
    len: usize,
}

impl Shelf {
    fn put(&mut self, open: Open) {
        self.by_sector.entry(open.position).or_default().push_back(open);
        self.len += 1;
    }

    fn put_first(&mut self, open: Open) {
        self.by_sector.entry(open.position).or_default().push_front(open);
        self.len += 1;
    }

    /// Takes the request at `sector` that fits: of these sectors if there is one, else the oldest. Also says whether
    /// there was a choice.
    fn take(&mut self, sector: u64, sectors: u32, op: Op) -> Option<(Open, bool)> {
        let list = self.by_sector.get_mut(&sector)?;
        let end = sector.saturating_add(u64::from(sectors));
        let of_op = || list.iter().enumerate().filter(|(_, open)| open.request.op == op);
        let exact = of_op().find(|(_, open)| open.end == end);
        let (at, _) = exact.or_else(|| of_op().next())?;
        let choice = of_op().count() > 1;
        let open = list.remove(at)?;
        if list.is_empty() {
            self.by_sector.remove(&sector);
        }
        self.len -= 1;
        Some((open, choice))
    }

    /// Takes the latest request that ends at `end`; its neighbours in the list may overlap it.
    fn take_ending(&mut self, end: u64, op: Op) -> Option<Open> {
        const NEIGHBOURS: usize = 64;
        let (&sector, at) =
            self.by_sector.range(..end).rev().take(NEIGHBOURS).find_map(|(sector, list)| {
                let at = list.iter().rposition(|open| open.end == end && open.request.op == op)?;
                Some((sector, at))
            })?;
        self.remove(sector, at)
    }

    /// Takes the newest request of exactly this range: an I/O that was queued just now.
    fn take_newest(&mut self, sector: u64, sectors: u32, op: Op) -> Option<Open> {
        let end = sector.saturating_add(u64::from(sectors));
        let list = self.by_sector.get(&sector)?;
        let at = list.iter().rposition(|open| open.end == end && open.request.op == op)?;
        self.remove(sector, at)
    }

    fn remove(&mut self, sector: u64, at: usize) -> Option<Open> {
        let list = self.by_sector.get_mut(&sector)?;
        let open = list.remove(at)?;
        if list.is_empty() {
            self.by_sector.remove(&sector);
        }
        self.len -= 1;
        Some(open)
    }

    /// Takes everything, the oldest first.
    fn drain(&mut self) -> Vec<Open> {
        self.len = 0;
        let mut all: Vec<_> = std::mem::take(&mut self.by_sector).into_values().flatten().collect();
        all.sort_by_key(|open| open.request.arrival);
        all
    }
}

/// The state of one device.
#[derive(Debug, Default)]
struct Device {
    /// Not yet issued.
    waiting: Shelf,
    /// Issued, data not complete.
    issued: Shelf,
    /// Data complete, waiting for the completion of length 0.
    finishing: Shelf,
    /// Flushes that somebody waits for, the oldest first.
    flushes: VecDeque<Open>,
    /// Flushes of the kernel that nobody was seen to ask for.
    own_flushes: VecDeque<Open>,
    /// The earliest stage seen: 0 none, 1 insert, 2 get request, 3 queue.
    stage: u8,
    issues: bool,
    completions: bool,
}

/// Brings the events of any number of devices together into requests. Memory is bounded by the requests that are open
/// at a time.
#[derive(Debug, Default)]
pub struct Pairer {
    devices: BTreeMap<NameId, Device>,
}

impl Pairer {
    /// Takes the next event in order of time and appends the requests that it ends.
    pub fn feed(&mut self, event: &Event, ledger: &mut Ledger, out: &mut Vec<Request>) {
        let device = self.devices.entry(event.device).or_default();
        match event.kind {
            EventKind::Queue => device.queue(event, 3),
            EventKind::GetRequest => device.queue(event, 2),
            EventKind::Insert => device.queue(event, 1),
            EventKind::Issue => device.issue(event, ledger),
            EventKind::Submit => device.submit(event),
            EventKind::Complete => device.complete(event, ledger, out),
            EventKind::Requeue => device.requeue(event, ledger),
            EventKind::BackMerge | EventKind::FrontMerge | EventKind::RequestMerge => {
                device.merge(event, ledger);
            }
            EventKind::Split(at) => device.split(event, at, ledger),
        }
        if device.is_full() {
            self.give_up(MAX_OPEN, ledger, out);
        }
    }

    /// Whether any device does requests; one that does not, beside it, passes them on.
    fn any_active(&self) -> bool {
        self.devices.values().any(Device::is_active)
    }

    fn give_up(&mut self, limit: usize, ledger: &mut Ledger, out: &mut Vec<Request>) {
        let any_active = self.any_active();
        for device in self.devices.values_mut() {
            let passed_on = any_active && !device.is_active();
            device.give_up(limit, passed_on, ledger, out);
        }
    }

    /// Arrival of the oldest request that is still open: later ones may be put in order up to here.
    pub fn oldest_open(&self) -> Option<Nanos> {
        let any_active = self.any_active();
        let devices = self.devices.values().filter(|device| device.is_active() || !any_active);
        devices.filter_map(Device::oldest_open).min()
    }

    /// Ends the recording: what is still open is unpaired, except where the device's completions were not recorded.
    pub fn finish(&mut self, ledger: &mut Ledger, out: &mut Vec<Request>) {
        self.give_up(0, ledger, out);
        self.devices.clear();
    }
}

fn emit(open: &Open, complete: Nanos, ledger: &mut Ledger, out: &mut Vec<Request>) {
    let request = Request { complete: Some(complete), ..open.request };
    if request.early_time().is_some() {
        // Clocks of processors that differ, or lines out of order: these events are not of one request.
        ledger.unpaired += 1;
        return;
    }
    ledger.paired += 1;
    out.push(request);
}

impl Device {
    fn is_active(&self) -> bool {
        self.issues || self.completions
    }

    fn is_full(&self) -> bool {
        let shelves = [&self.waiting, &self.issued, &self.finishing];
        let flushes = self.flushes.len().max(self.own_flushes.len());
        shelves.into_iter().any(|shelf| shelf.len > MAX_OPEN) || flushes > MAX_OPEN
    }

    fn queue(&mut self, event: &Event, stage: u8) {
        // Later stages of an I/O say nothing new where an earlier one is recorded.
        if stage < self.stage {
            return;
        }
        self.stage = stage;
        let mut open = Open::new(event);
        if event.op == Op::Flush || event.sectors == 0 && event.flags.contains(Flags::PREFLUSH) {
            open.request.op = Op::Flush;
            self.flushes.push_back(open);
        } else if event.sectors > 0 {
            self.waiting.put(open);
        }
    }

    fn merge(&mut self, event: &Event, ledger: &mut Ledger) {
        // The stage of allocation or insertion comes after merging: the I/O never was on its own.
        let Some(joining) = self
            .waiting
            .take_newest(event.sector, event.sectors, event.op)
            .or_else(|| (event.kind != EventKind::RequestMerge && self.stage < 3).then(|| Open::new(event)))
        else {
            return;
        };
        let target = if event.kind == EventKind::FrontMerge {
            let list = self.waiting.by_sector.get(&joining.end);
            list.and_then(|list| list.iter().rposition(|open| open.request.op == event.op))
                .and_then(|at| self.waiting.remove(joining.end, at))
        } else {
            self.waiting.take_ending(joining.position, event.op)
        };
        match target {
            Some(mut target) => {
                target.join(&joining);
                ledger.merged += 1;
                self.waiting.put(target);
            }
            None => self.waiting.put(joining),
        }
    }

    fn split(&mut self, event: &Event, at: u64, ledger: &mut Ledger) {
        let list = self.waiting.by_sector.get(&event.sector);
        let found = list.and_then(|list| {
            list.iter().rposition(|open| open.request.op == event.op && open.end > at && at > open.position)
        });
        let Some(mut first) = found.and_then(|place| self.waiting.remove(event.sector, place)) else {
            return;
        };
        let mut second = first;
        first.end = at;
        first.measure();
        second.position = at;
        second.request.sector = Sector(at);
        second.measure();
        ledger.split += 1;
        self.waiting.put(first);
        self.waiting.put(second);
    }

    /// Takes what waits for `[sector, sector + sectors)`: one request, or several whose merging was not recorded, or
    /// the first part of one whose splitting was not.
    fn take_waiting(&mut self, event: &Event, ledger: &mut Ledger) -> Option<Open> {
        let end = event.sector.saturating_add(u64::from(event.sectors));
        let (mut open, choice) = self.waiting.take(event.sector, event.sectors, event.op).or_else(|| {
            let (&sector, _) =
                self.waiting.by_sector.range(event.sector..end).find(|(_, list)| {
                    list.iter().any(|open| open.request.op == event.op && open.end <= end)
                })?;
            self.waiting.take(sector, 0, event.op)
        })?;
        ledger.ambiguous += u64::from(choice);
        while open.end < end {
            let Some((next, _)) = self.waiting.take(open.end, (end - open.end) as u32, event.op) else {
                break;
            };
            if next.end > end {
                self.waiting.put_first(next);
                break;
            }
            open.join(&next);
            ledger.merged += 1;
        }
        if open.end > end {
            let mut rest = open;
            rest.position = end;
            rest.request.sector = Sector(end);
            rest.measure();
            ledger.split += 1;
            self.waiting.put_first(rest);
        }
        open.position = event.sector;
        open.request.sector = Sector(open.request.sector.0.min(event.sector));
        open.end = end;
        open.measure();
        Some(open)
    }

    fn issue(&mut self, event: &Event, ledger: &mut Ledger) {
        self.issues = true;
        if event.op == Op::Flush {
            return self.issue_flush(event);
        }
        if event.sectors == 0 {
            return;
        }
        let mut open = self.take_waiting(event, ledger).unwrap_or_else(|| {
            // A requeued request may be issued again without a word about the requeue.
            Open { queued: false, ..Open::new(event) }
        });
        // Forced unit access that the driver is not asked for is made by a flush behind the data.
        open.sequenced |= open.request.flags.contains(Flags::FUA) && !event.flags.contains(Flags::FUA);
        open.request.start.get_or_insert(event.time);
        open.request.issue = Some(event.time);
        self.issued.put(open);
    }

    /// The kernel's own flush serves all that wait for one now.
    fn issue_flush(&mut self, event: &Event) {
        let mut served = false;
        for open in self.flushes.iter_mut().filter(|open| open.request.issue.is_none()) {
            open.request.start = Some(event.time);
            open.request.issue = Some(event.time);
            served = true;
        }
        let waiting = self.waiting.by_sector.values_mut().flatten();
        for open in waiting.filter(|open| open.sequenced && open.request.start.is_none()) {
            open.request.start = Some(event.time);
            served = true;
        }
        if !served && self.stage == 0 {
            let mut open = Open::new(event);
            open.request.start = Some(event.time);
            open.request.issue = Some(event.time);
            self.own_flushes.push_back(open);
        }
    }

    /// The driver's own word says better than `issue` when the device got it.
    fn submit(&mut self, event: &Event) {
        let list = self.issued.by_sector.get_mut(&event.sector);
        if let Some(open) = list.and_then(|list| list.iter_mut().find(|open| open.request.op == event.op)) {
            open.request.issue = Some(event.time);
        }
    }

    fn requeue(&mut self, event: &Event, ledger: &mut Ledger) {
        if let Some((open, _)) = self.issued.take(event.sector, event.sectors, event.op) {
            ledger.requeued += 1;
            self.waiting.put_first(open);
        }
    }

    fn complete(&mut self, event: &Event, ledger: &mut Ledger, out: &mut Vec<Request>) {
        self.completions = true;
        if event.op == Op::Flush {
            if let Some(mut open) = self.own_flushes.pop_front() {
                // The kernel names no sector for its own flush.
                open.request.sector = Sector(0);
                emit(&open, event.time, ledger, out);
            }
            return;
        }
        if event.sectors == 0 {
            return self.complete_sequence(event, ledger, out);
        }
        let found = match self.issued.take(event.sector, event.sectors, event.op) {
            Some((open, choice)) => {
                ledger.ambiguous += u64::from(choice);
                Some(open)
            }
            None if !self.issues => self.take_waiting(event, ledger),
            None => None,
        };
        let Some(mut open) = found else {
            ledger.unpaired += 1;
            return;
        };
        if !open.queued && self.stage > 0 {
            // It was queued before the recording began: its arrival is not known.
            ledger.unpaired += 1;
            return;
        }
        let done = event.sector.saturating_add(u64::from(event.sectors));
        if done < open.end {
            open.position = done;
            self.issued.put_first(open);
        } else if open.sequenced && open.queued {
            open.request.complete = Some(event.time);
            self.finishing.put(open);
        } else {
            emit(&open, event.time, ledger, out);
        }
    }

    /// The completion of length 0 that ends a flush, or a write that went through flushes.
    fn complete_sequence(&mut self, event: &Event, ledger: &mut Ledger, out: &mut Vec<Request>) {
        if let Some((open, _)) = self.finishing.take(event.sector, 0, event.op) {
            emit(&open, event.time, ledger, out);
        } else if let Some(open) = self.flushes.pop_front() {
            emit(&open, event.time, ledger, out);
        } else if self.stage > 0 {
            ledger.unpaired += 1;
        }
    }

    fn oldest_open(&self) -> Option<Nanos> {
        let shelves = [&self.waiting, &self.issued, &self.finishing];
        let shelved = shelves.into_iter().flat_map(|shelf| shelf.by_sector.values()).flatten();
        let flushes = self.flushes.iter().chain(&self.own_flushes);
        shelved.chain(flushes).map(|open| open.request.arrival).min()
    }

    /// Ends the oldest half of the open requests where there are more than `limit`.
    fn give_up(&mut self, limit: usize, passed_on: bool, ledger: &mut Ledger, out: &mut Vec<Request>) {
        let completions = self.completions;
        let mut end = |open: Open| match open.request.complete {
            _ if passed_on => ledger.skipped += 1,
            Some(complete) => {
                // Its data was done; only the word about the flush behind it is missing.
                ledger.ambiguous += 1;
                emit(&open, complete, ledger, out);
            }
            None if completions => ledger.unpaired += 1,
            None => out.push(open.request),
        };
        for shelf in [&mut self.waiting, &mut self.issued, &mut self.finishing] {
            if shelf.len > limit {
                let all = shelf.drain();
                let gone = all.len() - limit / 2;
                for (i, open) in all.into_iter().enumerate() {
                    if i < gone { end(open) } else { shelf.put(open) }
                }
            }
        }
        for flushes in [&mut self.flushes, &mut self.own_flushes] {
            if flushes.len() > limit {
                let gone = flushes.len() - limit / 2;
                flushes.drain(..gone).for_each(&mut end);
            }
        }
    }
}
