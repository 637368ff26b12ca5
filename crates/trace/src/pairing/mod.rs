//! From block-layer events to requests.
//!
//! The kernel reports what happens to an I/O as separate events that share no identifier: device, sector and length
//! decide which belong together. The rules, tried on Linux 6.1, 6.12 and 6.18:
//!
//! 1. A queued I/O waits until the range that holds it is issued; a completion ends the issued request of its sector.
//!    Several candidates of one sector are taken first in, first out, and counted as ambiguous.
//! 2. A merge joins an I/O to its neighbour: the request keeps the earlier arrival. A split makes two of one, and the
//!    second part gets no event of its own.
//! 3. A completion of less than was issued moves the request on to its next sector; a requeue puts it back. A driver
//!    may give a request back without that event: an issue of a range that is with the driver, and for which nothing
//!    waits, issues the same request again. Recorded without queueing it may be another request: it is ambiguous too.
//!    It is one from the first requeue event of a device on, because its kernel reports what a driver gives back.
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
//! the last time that its data was (handed to the device, where the driver reports that), and `complete` the final
//! completion.

mod device;
mod shelf;

use std::collections::BTreeMap;

use device::Device;

use emmclab_base::{Flags, NameId, Nanos, Op, Request};

use crate::ledger::Ledger;

/// Requests of one device that may be open at a time; beyond it, the oldest half is given up.
const MAX_OPEN: usize = 1 << 16;

/// Kinds of block-layer events.
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
    /// The step that the kernel's event of this name reports; a split without its second sector.
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

    /// Whether the running task is the one that caused the event; other events run in the context of an interrupted task.
    #[inline]
    pub fn is_by_submitter(self) -> bool {
        matches!(self, EventKind::Queue | EventKind::GetRequest | EventKind::Insert | EventKind::Issue)
    }
}

/// An event of the block layer.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// Time of the event.
    pub time: Nanos,
    /// Kind of the event.
    pub kind: EventKind,
    /// Device.
    pub device: NameId,
    /// The operation; `Flush` for the flush that the kernel itself issues (`FF`).
    pub op: Op,
    /// Its flags; a `Write` of no sectors with `PREFLUSH` is a flush that a task requested.
    pub flags: Flags,
    /// First sector.
    pub sector: u64,
    /// Length in sectors.
    pub sectors: u32,
    /// The process that was running.
    pub pid: Option<i32>,
    /// Its name.
    pub process: Option<NameId>,
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

    /// Whether the device has a request of this kind at this sector with its driver.
    pub(crate) fn has_issued(&self, device: NameId, sector: u64, op: Op) -> bool {
        self.devices.get(&device).is_some_and(|device| device.has_issued(sector, op))
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
