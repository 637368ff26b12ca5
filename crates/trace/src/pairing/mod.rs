//! Combines block-layer events into requests.
//!
//! The kernel reports the steps of an I/O as separate events without a common id: device, sector and length determine which
//! events belong together. The rules, tested on Linux 6.1, 6.12 and 6.18:
//!
//! 1. A queued I/O waits until a range that contains it is issued; a completion ends the issued request of its sector. If several
//!    requests of a sector match, the oldest is taken and counted as ambiguous.
//! 2. A merge joins an I/O to its neighbour, and the request keeps the earlier arrival. A split divides an I/O; the second part
//!    has no event of its own.
//! 3. A completion of less than was issued advances the request to its next sector; a requeue makes it wait again. A driver may
//!    return a request without a requeue event: an issue of a range that the driver has, and for which no request waits, is then the
//!    same request again. If queueing is not recorded, it may be another request, and is counted as ambiguous. After the first
//!    requeue event of a device it is another request, because that kernel reports requeues.
//! 4. A cache flush (`FWS`, no data) is executed by the next flush that the kernel issues (`FF`; before kernel 4.8 `FWS` at
//!    sector 2^64-1), which serves all waiting flushes and whose end is their end; a completion of length 0 reports it. A flush of
//!    the kernel for which nothing waits is itself a request. If the driver has several, the latest ends first, so that a lost
//!    completion does not make later flushes too long.
//! 5. A write with a preflush, or with FUA on a device without FUA, includes flushes of the kernel: its data completes first, and
//!    a completion of length 0 at the sector of its last part ends it.
//! 6. If some events are not recorded, the earliest recorded stage is the arrival. A request with an issue but without a queue
//!    event arrives at its issue, and is counted. Without completions, requests have no end, or end with the command of the driver.
//!    If only completions are recorded, each becomes a request that arrives at that time.
//! 7. A zone append (`ZA`) is issued at the start of its zone; its completion contains the sector that was written, and belongs
//!    to the oldest append of the same length to the zone with this sector.
//! 8. I/O to a mapped device (dm, zram) is passed on to a disk, or served without a request. If other devices issue or complete
//!    requests, the I/O of a device that never does is omitted and counted as skipped. A device that passes its I/O on (md) may also
//!    complete it without issuing a request.
//! 9. Early kernels allocate a request before they queue its I/O, and do not report the allocation of an I/O that is merged: the
//!    earlier event is the arrival, and the merge adds the I/O.
//!
//! `start` of a request is the first time that any part of it, including its flush, was issued to the driver. `issue` is the last
//! time that its data was issued, or sent to the device if the driver reports that. `complete` is the final completion.

mod device_state;
mod open_requests;

use std::collections::BTreeMap;

use device_state::{ALLOCATED, DevicePairingState, INSERTED, QUEUED};
use open_requests::OpenZoneAppends;

use crate::{Ledger, NameId, Nanos, Op, Request, RequestFlags, Sector};

/// Maximum number of open requests of a device; when it is exceeded, the oldest half is dropped.
const MAX_OPEN: usize = 1 << 16;

/// Kinds of block-layer events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockEventKind {
    /// An I/O was queued (`block_bio_queue`, Q).
    Queue,
    /// A request was allocated for an I/O (`block_getrq`, G).
    GetRequest,
    /// A request was inserted into the I/O scheduler (`block_rq_insert`, I).
    Insert,
    /// A request was issued to the driver (`block_rq_issue`, D).
    Issue,
    /// The driver sent a request to the device (`mmc_request_start`).
    Submit,
    /// A request or a part of it was completed (`block_rq_complete`, C).
    Complete,
    /// The driver returned a request (`block_rq_requeue`, R).
    Requeue,
    /// An I/O was joined to the end of a request (`block_bio_backmerge`, M).
    BackMerge,
    /// An I/O was joined to the front of a request (`block_bio_frontmerge`, F).
    FrontMerge,
    /// A request was joined to the end of another (`block_rq_merge`).
    RequestMerge,
    /// An I/O was split; the second part begins at this sector (`block_split`, X).
    Split(u64),
}

impl BlockEventKind {
    /// The kernel's events by name; the sector of the split is 0.
    pub const NAMES: [(&str, BlockEventKind); 10] = [
        ("block_bio_queue", BlockEventKind::Queue),
        ("block_getrq", BlockEventKind::GetRequest),
        ("block_rq_insert", BlockEventKind::Insert),
        ("block_rq_issue", BlockEventKind::Issue),
        ("block_rq_complete", BlockEventKind::Complete),
        ("block_rq_requeue", BlockEventKind::Requeue),
        ("block_bio_backmerge", BlockEventKind::BackMerge),
        ("block_bio_frontmerge", BlockEventKind::FrontMerge),
        ("block_rq_merge", BlockEventKind::RequestMerge),
        ("block_split", BlockEventKind::Split(0)),
    ];

    /// The step that the event with this name reports; `None` for other events.
    pub fn of_event(name: &[u8]) -> Option<BlockEventKind> {
        BlockEventKind::NAMES.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, kind)| *kind)
    }

    /// Whether the running task caused the event; otherwise the event occurs in the context of an interrupted task.
    #[inline]
    pub fn is_by_submitter(self) -> bool {
        matches!(self, BlockEventKind::Queue | BlockEventKind::GetRequest | BlockEventKind::Insert | BlockEventKind::Issue)
    }
}

/// An event of the block layer.
#[derive(Clone, Copy, Debug)]
pub struct BlockLayerEvent {
    /// Time of the event.
    pub time: Nanos,
    /// Kind of the event.
    pub kind: BlockEventKind,
    /// Device.
    pub device: NameId,
    /// The operation; `Flush` only for a flush that the kernel itself issues (`FF`).
    pub op: Op,
    /// Flags; a `Write` of no sectors with `PREFLUSH` is a flush that a task requested.
    pub flags: RequestFlags,
    /// First sector.
    pub sector: u64,
    /// Length in sectors.
    pub sectors: u32,
    /// Id of the running task.
    pub pid: Option<i32>,
    /// Name of the running task.
    pub process: Option<NameId>,
    /// The error of a completion as a negative errno; 0 for success.
    pub error: i32,
    /// Whether the request is a write of zeroes.
    pub zeroes: bool,
}

/// Combines the events of any number of devices into requests. Memory is bounded by the number of open requests.
#[derive(Debug, Default)]
pub struct EventPairer {
    devices: BTreeMap<NameId, DevicePairingState>,
    counts: EventCounts,
    appends: OpenZoneAppends,
    /// Steps of commands that are not requests.
    pub(crate) special: SpecialCommandCounts,
}

impl EventPairer {
    /// Handles the next event in order of time, and appends the requests that it ends to `out`.
    pub fn feed(&mut self, event: &BlockLayerEvent, ledger: &mut Ledger, out: &mut Vec<Request>) {
        if event.flags.contains(RequestFlags::APPEND) {
            return self.zone_append(event, ledger, out);
        }
        self.take(event, ledger, out);
    }

    /// Handles an event of a zone append, which is issued at the start of its zone; its completion contains the sector that was written.
    #[cold]
    fn zone_append(&mut self, event: &BlockLayerEvent, ledger: &mut Ledger, out: &mut Vec<Request>) {
        let BlockLayerEvent { kind, device, sector, sectors, .. } = *event;
        match kind {
            BlockEventKind::Issue => self.appends.issue(device, sector, sectors),
            BlockEventKind::Requeue => self.appends.requeue(device, sector, sectors),
            BlockEventKind::Complete => {
                let zone_start = self.appends.complete(device, sector, sectors).unwrap_or(sector);
                let before = out.len();
                self.take(&BlockLayerEvent { sector: zone_start, ..*event }, ledger, out);
                if let Some(appended) = out[before..].last_mut() {
                    appended.sector = Sector(sector);
                }
                return;
            }
            _ => {}
        }
        self.take(event, ledger, out);
    }

    #[inline]
    fn take(&mut self, event: &BlockLayerEvent, ledger: &mut Ledger, out: &mut Vec<Request>) {
        let device = self.devices.entry(event.device).or_default();
        let books = &mut PairingOutput { ledger, counts: &mut self.counts, out };
        // Events of drivers do not count as events of the block layer.
        books.counts.seen += u64::from(event.kind != BlockEventKind::Submit);
        let without_data = books.counts.without_data;
        if event.error != 0 && event.kind == BlockEventKind::Complete {
            self.special.error(event.error);
        }
        if event.zeroes {
            self.special.zeroes.see((), event.kind);
        }
        match event.kind {
            BlockEventKind::Queue => device.queue(event, QUEUED, books),
            BlockEventKind::GetRequest => device.queue(event, ALLOCATED, books),
            BlockEventKind::Insert => device.queue(event, INSERTED, books),
            BlockEventKind::Issue => device.issue(event, books),
            BlockEventKind::Submit => device.submit(event),
            BlockEventKind::Complete => device.complete(event, books),
            BlockEventKind::Requeue => device.requeue(event, books),
            BlockEventKind::BackMerge | BlockEventKind::FrontMerge | BlockEventKind::RequestMerge => {
                device.merge(event, books);
            }
            BlockEventKind::Split(at) => device.split(event, at, books),
        }
        if books.counts.without_data > without_data {
            self.special.packets.see(None, event.kind);
        }
        if device.is_full() {
            self.give_up(MAX_OPEN, ledger, out);
        }
    }

    /// Records that I/O of this device is passed on to another one.
    pub fn remap(&mut self, from: NameId) {
        if let Some(device) = self.devices.get_mut(&from) {
            device.passes_on();
        }
    }

    /// Whether the driver of the device has a request of this operation at this sector.
    pub(crate) fn has_issued(&self, device: NameId, sector: u64, op: Op) -> bool {
        self.devices.get(&device).is_some_and(|device| device.has_issued(sector, op))
    }

    /// Sets the time at which the driver reported the end of a request's command. If no completion is recorded, this time is used as the
    /// completion.
    pub(crate) fn served(&mut self, device: NameId, sector: u64, op: Op, time: Nanos) {
        if let Some(device) = self.devices.get_mut(&device) {
            device.served(sector, op, time);
        }
    }

    /// Counts of the events so far.
    pub fn counts(&self) -> EventCounts {
        self.counts
    }

    /// Whether any device issues or completes requests. If so, a device that does neither is a mapped device, which passes its I/O on.
    fn any_active(&self) -> bool {
        self.devices.values().any(DevicePairingState::is_active)
    }

    fn give_up(&mut self, limit: usize, ledger: &mut Ledger, out: &mut Vec<Request>) {
        let any_active = self.any_active();
        let books = &mut PairingOutput { ledger, counts: &mut self.counts, out };
        for device in self.devices.values_mut() {
            let passed_on = any_active && !device.is_active();
            device.give_up(limit, passed_on, books);
        }
    }

    /// Arrival of the oldest open request. No request with an earlier arrival follows, so that completed requests can be sorted
    /// up to this time.
    pub fn oldest_open(&self) -> Option<Nanos> {
        let any_active = self.any_active();
        let devices = self.devices.values().filter(|device| device.is_active() || !any_active);
        devices.filter_map(DevicePairingState::oldest_open).min()
    }

    /// Ends the recording. Open requests count as unpaired. If the recording has no completions for their device, they are kept instead.
    pub fn finish(&mut self, ledger: &mut Ledger, out: &mut Vec<Request>) {
        self.give_up(0, ledger, out);
        self.devices.clear();
    }
}

/// Counts of commands by kind, for each step that was recorded.
#[derive(Clone, Debug)]
pub(crate) struct CommandStepCounts<K> {
    issued: BTreeMap<K, u64>,
    completed: BTreeMap<K, u64>,
    queued: BTreeMap<K, u64>,
}

impl<K> Default for CommandStepCounts<K> {
    fn default() -> Self {
        Self { issued: BTreeMap::new(), completed: BTreeMap::new(), queued: BTreeMap::new() }
    }
}

impl<K: Ord> CommandStepCounts<K> {
    pub fn see(&mut self, kind: K, step: BlockEventKind) {
        let counts = match step {
            BlockEventKind::Issue => &mut self.issued,
            BlockEventKind::Complete => &mut self.completed,
            BlockEventKind::Queue => &mut self.queued,
            _ => return,
        };
        *counts.entry(kind).or_default() += 1;
    }

    /// The counts of issues if any are recorded, otherwise of completions, otherwise of queue events.
    fn counts(&self) -> &BTreeMap<K, u64> {
        [&self.issued, &self.completed].into_iter().find(|counts| !counts.is_empty()).unwrap_or(&self.queued)
    }

    /// The count and name of each kind, separated by commas; `None` if there are none.
    fn list(&self, name: impl Fn(&K) -> String) -> Option<String> {
        let named: Vec<_> = self.counts().iter().map(|(kind, count)| format!("{count} x {}", name(kind))).collect();
        (!named.is_empty()).then(|| named.join(", "))
    }
}

/// Counts what requests do not show: zone commands, writes of zeroes, pass-through commands of programs, and errors.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpecialCommandCounts {
    pub zones: CommandStepCounts<ZoneCommand>,
    pub zeroes: CommandStepCounts<()>,
    /// Pass-through commands by operation code; `None` if the code is not recorded.
    pub packets: CommandStepCounts<Option<u8>>,
    /// Failed completions by negative errno.
    errors: BTreeMap<i32, u64>,
}

impl SpecialCommandCounts {
    #[cold]
    pub fn error(&mut self, error: i32) {
        *self.errors.entry(error).or_default() += 1;
    }

    /// The note for the trace; `None` if there were no zone commands, writes of zeroes or errors.
    pub fn note(&self) -> Option<String> {
        let zones = self.zones.list(|command| command.name().to_owned());
        let zones = zones.map(|list| format!("commands to zones, which are not requests: {list}"));
        let zeroes = self.zeroes.list(|()| "write zeroes".to_owned());
        let zeroes = zeroes.map(|list| format!("{list} are recorded as writes"));
        let errors: Vec<_> = self.errors.iter().map(|(error, count)| format!("{count} x {}", named(*error))).collect();
        let errors = (!errors.is_empty()).then(|| format!("errors of the requests that failed: {}", errors.join(", ")));
        let notes: Vec<_> = [zones, zeroes, errors].into_iter().flatten().collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    /// The pass-through commands of programs as text, such as `2 packets of programs (2 x SCSI 0x12)`; `None` if there are none.
    pub fn packets_text(&self) -> Option<String> {
        let count: u64 = self.packets.counts().values().sum();
        let list = self.packets.list(|code| match code {
            Some(code) => format!("SCSI {code:#04x}"),
            None => "without data".to_owned(),
        })?;
        Some(format!("{count} packet{} of programs ({list})", if count == 1 { "" } else { "s" }))
    }
}

/// An errno with its name in Linux, for errors of block devices.
fn named(error: i32) -> String {
    const NAMES: [(i32, &str); 13] = [
        (-5, "EIO"),
        (-11, "EAGAIN"),
        (-12, "ENOMEM"),
        (-16, "EBUSY"),
        (-19, "ENODEV"),
        (-28, "ENOSPC"),
        (-52, "EBADE"),
        (-61, "ENODATA"),
        (-62, "ETIME"),
        (-67, "ENOLINK"),
        (-84, "EILSEQ"),
        (-95, "EOPNOTSUPP"),
        (-110, "ETIMEDOUT"),
    ];
    match NAMES.iter().find(|(number, _)| *number == error) {
        Some((number, name)) => format!("{number} ({name})"),
        None => error.to_string(),
    }
}

/// Events of the block layer, classified by their use. When no request is open, `seen` is the sum of the other counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// Number of all events.
    pub seen: u64,
    /// Events of requests that were kept.
    pub kept: u64,
    /// Events that are redundant, because an earlier step of the same I/O is recorded.
    pub repeated: u64,
    /// Events of flushes that the kernel issued for other requests. Only these other requests were kept.
    pub flushes: u64,
    /// Events of commands without data, except flushes.
    pub without_data: u64,
    /// Events of requests whose beginning or end is missing.
    pub unpaired: u64,
    /// Events of I/O that a mapped device passed on.
    pub passed_on: u64,
    /// Merges, splits and requeues of an unknown request.
    pub unmatched: u64,
}

impl EventCounts {
    /// Sum of all counts except `seen`: the events that are classified.
    pub fn classified_events(&self) -> u64 {
        self.kept + self.repeated + self.flushes + self.without_data + self.unpaired + self.passed_on + self.unmatched
    }
}

/// The outputs of combining events into requests: the ledger, the counts and the requests.
pub(super) struct PairingOutput<'a> {
    pub(super) ledger: &'a mut Ledger,
    pub(super) counts: &'a mut EventCounts,
    pub(super) out: &'a mut Vec<Request>,
}

/// A command for one zone or for all zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ZoneCommand {
    /// Resets the write pointer to the start of the zone.
    Reset,
    /// Resets the write pointers of all zones to their starts.
    ResetAll,
    /// Makes the zone full.
    Finish,
    /// Opens the zone.
    Open,
    /// Closes the zone.
    Close,
}

impl ZoneCommand {
    /// The name of the command in the note of a trace.
    pub const fn name(self) -> &'static str {
        match self {
            ZoneCommand::Reset => "zone reset",
            ZoneCommand::ResetAll => "zone reset all",
            ZoneCommand::Finish => "zone finish",
            ZoneCommand::Open => "zone open",
            ZoneCommand::Close => "zone close",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_counted_by_their_issues_or_by_what_is_recorded() {
        let mut special = SpecialCommandCounts::default();
        assert_eq!(special.note(), None);
        special.zones.see(ZoneCommand::Reset, BlockEventKind::Complete);
        special.zones.see(ZoneCommand::Reset, BlockEventKind::Complete);
        assert!(special.note().unwrap().ends_with(": 2 x zone reset"));
        special.zones.see(ZoneCommand::ResetAll, BlockEventKind::Issue);
        assert!(special.note().unwrap().ends_with(": 1 x zone reset all"));
    }

    #[test]
    fn errors_are_counted_by_number_and_packets_by_operation_code() {
        let mut special = SpecialCommandCounts::default();
        for error in [-5, -5, -110, -42] {
            special.error(error);
        }
        assert!(special.note().unwrap().ends_with(": 1 x -110 (ETIMEDOUT), 1 x -42, 2 x -5 (EIO)"));
        special.packets.see(Some(0x12), BlockEventKind::Issue);
        special.packets.see(Some(0x12), BlockEventKind::Complete);
        assert_eq!(special.packets_text().unwrap(), "1 packet of programs (1 x SCSI 0x12)");
        special.packets.see(None, BlockEventKind::Issue);
        assert!(special.packets_text().unwrap().starts_with("2 packets of programs (1 x without data, 1 x SCSI"));
    }
}
