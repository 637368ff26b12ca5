//! The interface between layers and their driver: calls, decisions, and the guarantees of both.

use std::collections::VecDeque;
use std::io;

use emmclab_base::{BlockNote, CommandFlags, Op};
use serde::{Deserialize, Serialize};

use crate::plan::CommandPlan;
use crate::registry::{LayerKind, read_settings};

/// The reason for deferring a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeferReason {
    /// Back-pressure: the layer has no free space until background work provides some.
    Full,
    /// Background work is about to write sectors that the request changes.
    Overlap,
}

/// The decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestDecision {
    /// The request is complete when all steps of the plan are complete.
    Run,
    /// The request must wait. The layer changed no state, and the plan is discarded. The driver repeats the request after each call of
    /// [`Layer::background`].
    Defer(DeferReason),
}

/// The decision on background work of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackgroundDecision {
    /// The plan contains work; the driver calls [`Layer::background_done`] when it is complete.
    Run,
    /// The layer has work that must wait for requests in flight. The driver calls again when one of them has completed.
    Later,
    /// The layer has no work until further requests arrive.
    None,
}

/// A range of a disk that a layer reserves for its own data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservedArea {
    /// The disk below the layer that contains the area: 0 or 1.
    pub disk: u8,
    /// First sector.
    pub sector: u64,
    /// Length in sectors.
    pub sectors: u64,
}

/// The zones of a disk (zoned UFS). Each is written sequentially at its write pointer, and reset by a discard of all its sectors. After a
/// power cut, a zone contains a prefix of its written data, and its write pointer is at the end of that prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskZones {
    /// First sector of the first zone. Sectors before it may be written in any order.
    pub first: u64,
    /// Length of a zone in sectors.
    pub sectors: u64,
    /// Number of zones.
    pub count: u32,
    /// A write must end at a multiple of this many sectors.
    pub write_sectors: u32,
    /// Maximum number of zones that may be open at once; 0 = no limit.
    pub max_open: u32,
    /// Maximum number of zones that may be open or closed (active) at once; 0 = no limit.
    pub max_active: u32,
}

impl DiskZones {
    /// The zone of a sector; `None` before the first one and after the last.
    pub fn zone_of(&self, sector: u64) -> Option<u32> {
        let zone = sector.checked_sub(self.first)? / self.sectors;
        (zone < u64::from(self.count)).then_some(zone as u32)
    }

    /// First sector of a zone.
    pub fn start(&self, zone: u32) -> u64 {
        self.first + u64::from(zone) * self.sectors
    }
}

/// The disks below a layer: their sizes in sectors. Disk 0 is the layer below or the device, disk 1 the second device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DisksBelow {
    /// Size of disk 0 in sectors.
    pub main: u64,
    /// Size of disk 1 in sectors, if there is one.
    pub second: Option<u64>,
    /// Whether disk 0 can make a single write durable at a lower cost than a flush, because it has a cache and reliable writes that bypass
    /// it.
    pub durable_writes: bool,
    /// Number of sectors that disk 0 programs at a time, with all its planes.
    pub program_sectors: u32,
    /// Size of the cache of disk 0 in sectors.
    pub cache_sectors: u64,
    /// Number of sectors that disk 0 erases at a time, with all its planes; 0 if unknown.
    pub erase_sectors: u32,
    /// The zones of disk 0, if it is zoned.
    pub zones: Option<DiskZones>,
}

impl DisksBelow {
    /// Describes disks of these sizes. They have no zones. Disk 0 has a cache of 256 KB, reliable writes, and program units of 16 KB.
    pub const fn new(main: u64, second: Option<u64>) -> Self {
        Self { main, second, durable_writes: true, program_sectors: 32, cache_sectors: 512, erase_sectors: 0, zones: None }
    }
}

/// Reads the disks below a layer when it recovers from a power cut.
pub trait RecoveryReader {
    /// Fills `buffer` (whole sectors) from `sector` of a disk below.
    fn read_at(&mut self, disk: u8, sector: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Returns the write pointer of the zone that starts at `sector` of a disk below; for a full zone, the sector after its last one.
    /// `None` if the disk has no zones or does not report write pointers.
    fn write_pointer(&mut self, _disk: u8, _sector: u64) -> io::Result<Option<u64>> {
        Ok(None)
    }
}

/// Software between requests and disks.
///
/// A **layer** guarantees: its decisions depend on addresses, lengths, notes and its own state, never on time or data; equal calls produce
/// equal plans; a plan contains every data movement; every command is within the disks below.
///
/// Its **driver** guarantees:
/// - It executes the steps of a plan as [`crate::PlanStep`] specifies; a request is complete when its plan is.
/// - It preserves the memory of the layer ([`crate::PlanMemory::Held`]) between plans, and clears it when power is lost.
/// - Requests arrive in the order of their numbers. A deferred request is repeated with the same number.
/// - If two requests overlap and one of them is a write or discard, the second waits until the first is complete, because a layer
///   may change its map when it plans a write.
/// - The commands of the first stage of a plan are sent before the next request or background work is planned. The commands of
///   later stages of background plans are sent in order. Therefore a layer above zones writes in the order of its plans.
/// - At most one background plan of a layer is in flight, concurrently with any number of requests. A layer defers a request that
///   must not run concurrently with its background work; [`InFlightRequests`] lists the requests in flight.
/// - It calls [`Layer::background`] after start, after requests and after [`Layer::background_done`], until there is no work.
/// - When a flush completes, everything that was complete at its arrival is durable.
/// - A request has only flags that [`Layer::accepts`] returns, and `META`; [`HostRequest::expand`] replaces the others.
pub trait Layer: Send {
    /// Name of the layer in the registry.
    fn name(&self) -> &'static str;

    /// Number of sectors that the layer offers.
    fn capacity(&self) -> u64;

    /// The ranges of the disks below that the layer reserves.
    fn areas(&self) -> Vec<ReservedArea> {
        Vec::new()
    }

    /// Restores the state from the disks. It is called before [`Layer::start`], and only for disks on which the layer ran before.
    fn recover(&mut self, _disks: &mut dyn RecoveryReader) -> io::Result<()> {
        Ok(())
    }

    /// Plans the writes that precede the first request.
    fn start(&mut self, _plan: &mut CommandPlan) {}

    /// Flags that requests to this layer may have, besides `META`. A plan must keep the guarantees of the flags. If the layer has a map, it
    /// may pass on a durable write only if the same command also makes the change of the map durable. A layer may pass on a preflush or
    /// barrier only if all data is on one disk.
    fn accepts(&self) -> CommandFlags {
        CommandFlags::empty()
    }

    /// Whether decisions of the layer depend on block notes: the roles of the written blocks in the file system. Only the top layer
    /// receives them.
    fn reads_notes(&self) -> bool {
        false
    }

    /// Decides on a request. `notes` cover all sectors of a write, or are empty. `plan` is empty at the call.
    fn request(&mut self, request: &HostRequest, notes: &[BlockNote], plan: &mut CommandPlan) -> RequestDecision;

    /// Called when a request is complete.
    fn completed(&mut self, _id: u64) {}

    /// Decides on the next background work. `plan` is empty at the call.
    fn background(&mut self, _in_flight: &InFlightRequests, _plan: &mut CommandPlan) -> BackgroundDecision {
        BackgroundDecision::None
    }

    /// Called when the background plan is complete.
    fn background_done(&mut self) {}

    /// Starts draining: background work moves all data that the layer stores in other locations to its own address. [`Layer::background`]
    /// returns this work until it is complete. Requests that arrive meanwhile are executed, and their data is moved, too.
    fn drain(&mut self) {}

    /// Names of configured functions that are not active because the disks below do not support them.
    fn left_out(&self) -> &'static [&'static str] {
        &[]
    }

    /// Resets the counters to 0 without changing the state.
    fn clear_counters(&mut self) {}

    /// Counters by name.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// A request from above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRequest {
    /// Number of the request; later requests have higher numbers. A deferred request keeps its number.
    pub id: u64,
    /// Operation of the request.
    pub op: Op,
    /// First sector.
    pub sector: u64,
    /// Length in sectors; 0 for a flush.
    pub sectors: u32,
    /// Flags of the request.
    pub modifiers: CommandFlags,
}

impl HostRequest {
    /// The sector after the last sector of the request.
    #[inline]
    pub fn end(&self) -> u64 {
        self.sector + u64::from(self.sectors)
    }

    /// Plans the request as several commands that have only flags in `accepted` and guarantee at least as much. A preflush becomes a
    /// preceding flush, a durable write gets a following flush, and a barrier becomes a flush. Returns false if the request can be sent
    /// unchanged.
    pub fn expand(&self, accepted: CommandFlags, plan: &mut CommandPlan) -> bool {
        let refused = self.modifiers.of(self.op).difference(accepted.union(CommandFlags::META));
        if refused.is_empty() {
            return false;
        }
        if refused.contains(CommandFlags::PREFLUSH) {
            plan.bare(0, Op::Flush, 0, 0);
            plan.wait();
        }
        plan.flag(self.modifiers.difference(refused));
        plan.forward(self);
        if refused.durable() {
            plan.wait();
            plan.bare(0, Op::Flush, 0, 0);
        }
        true
    }
}

/// Requests in flight at a layer, oldest first.
#[derive(Clone, Debug, Default)]
pub struct InFlightRequests {
    requests: VecDeque<HostRequest>,
}

impl InFlightRequests {
    /// Adds a planned request.
    pub fn insert(&mut self, request: &HostRequest) {
        // A deferred request has a lower id than requests that were planned meanwhile, so it is inserted before them.
        let after = self.requests.iter().rev().take_while(|other| other.id > request.id).count();
        self.requests.insert(self.requests.len() - after, *request);
    }

    /// Removes a request that is complete.
    pub fn remove(&mut self, id: u64) {
        if let Some(place) = self.requests.iter().position(|request| request.id == id) {
            self.requests.remove(place);
        }
    }

    /// Whether no request is in flight.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Number of the oldest request in flight.
    pub fn oldest(&self) -> Option<u64> {
        self.requests.front().map(|request| request.id)
    }

    /// Number of the newest request in flight.
    pub fn newest(&self) -> Option<u64> {
        self.requests.back().map(|request| request.id)
    }

    /// Whether a request in flight writes or discards in `sector..end`.
    pub fn changes(&self, sector: u64, end: u64) -> bool {
        self.requests.iter().any(|request| request.op != Op::Read && request.sector < end && sector < request.end())
    }
}

pub(crate) const PASS_THROUGH: LayerKind = LayerKind {
    name: "pass-through",
    about: "forwards every request unchanged",
    build: |table, below| {
        let PassThroughSettings {} = read_settings("pass-through", table)?;
        Ok(Box::new(PassThrough::new(below.main)))
    },
    settings: Vec::new,
};

/// A layer that forwards every request unchanged. It serves to measure the overhead of the layer interface.
#[derive(Clone, Copy, Debug)]
pub struct PassThrough {
    capacity: u64,
}

impl PassThrough {
    /// Creates a layer that offers `capacity` sectors, all of the disk below.
    pub const fn new(capacity: u64) -> Self {
        Self { capacity }
    }
}

#[derive(Default, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PassThroughSettings {}

impl Layer for PassThrough {
    fn name(&self) -> &'static str {
        PASS_THROUGH.name
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn accepts(&self) -> CommandFlags {
        CommandFlags::all()
    }

    #[inline]
    fn request(&mut self, request: &HostRequest, _: &[BlockNote], plan: &mut CommandPlan) -> RequestDecision {
        plan.flag(request.modifiers);
        plan.forward(request);
        RequestDecision::Run
    }
}
