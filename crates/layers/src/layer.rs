//! The interface between layers and their driver: calls, decisions, and the contract of both sides.

use std::io;

use emmclab_base::{BlockNote, Modifiers};
use serde::{Deserialize, Serialize};

use crate::in_flight::InFlight;
use crate::plan::Plan;
use crate::request::HostRequest;

/// The reason for deferring a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defer {
    /// Back-pressure: the layer has no room until background work frees some.
    Full,
    /// Background work is about to write sectors that the request changes.
    Overlap,
}

/// The decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The request is complete when every step of the plan is.
    Run,
    /// The layer changed no state and the plan counts for nothing. The driver repeats the request after each call of
    /// [`Layer::background`].
    Defer(Defer),
}

/// The background work that a layer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    /// The plan; the driver calls [`Layer::background_done`] when it is complete.
    Run,
    /// Some, which waits for requests in flight: ask again when one has completed.
    Later,
    /// None until further requests arrive.
    None,
}

/// A range of a disk that a layer reserves for its own data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Number of the disk below.
    pub disk: u8,
    /// First sector.
    pub sector: u64,
    /// Length in sectors.
    pub sectors: u64,
}

/// The zones of a disk that are written in order, each at its write pointer, and reset by a discard of all their sectors (zoned UFS). What
/// a cut of power leaves of one is a beginning of it, and its write pointer stands right after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Zones {
    /// Sector of the first one; what lies before it may be written anywhere.
    pub first: u64,
    /// Length of a zone in sectors.
    pub sectors: u64,
    /// How many there are.
    pub count: u32,
    /// Sectors at whose multiples a write must end.
    pub write_sectors: u32,
    /// Zones that may be open at once, and open or closed; 0 = no limit.
    pub max_open: u32,
    /// See `max_open`.
    pub max_active: u32,
}

impl Zones {
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
pub struct Below {
    /// Size of disk 0 in sectors.
    pub main: u64,
    /// Size of disk 1 in sectors, where there is one.
    pub second: Option<u64>,
    /// Whether disk 0 makes a single write durable for less than a flush: it has a cache, and reliable writes that go past it.
    pub durable_writes: bool,
    /// Sectors that disk 0 programs at a time, all its planes together.
    pub program_sectors: u32,
    /// Sectors that the cache of disk 0 has room for.
    pub cache_sectors: u64,
    /// Sectors that disk 0 erases at a time, all its planes together; 0 if that is not known.
    pub erase_sectors: u32,
    /// The zones of disk 0, where it has some.
    pub zones: Option<Zones>,
}

impl Below {
    /// Disks of these sizes without zones, of which disk 0 has a cache of 256 KB and reliable writes, and programs 16 KB at a time.
    pub const fn new(main: u64, second: Option<u64>) -> Self {
        Self {
            main,
            second,
            durable_writes: true,
            program_sectors: 32,
            cache_sectors: 512,
            erase_sectors: 0,
            zones: None,
        }
    }
}

/// Reads metadata back after a cut of power.
pub trait ReadAt {
    /// Fills `buffer` (whole sectors) from `sector` of a disk below.
    ///
    /// # Errors
    /// As the disk gives them.
    fn read_at(&mut self, disk: u8, sector: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// The write pointer of the zone of a disk below that begins at `sector`; of a full zone, the sector after its last. `None` where
    /// the disk has no zones, or does not tell.
    ///
    /// # Errors
    /// As the disk gives them.
    fn write_pointer(&mut self, _disk: u8, _sector: u64) -> io::Result<Option<u64>> {
        Ok(None)
    }
}

/// Software between requests and disks.
///
/// A **layer** promises: its decisions depend on addresses, lengths, notes and its own state, never on time or data; equal
/// calls give equal plans; a plan names every movement of data; every command lies within the disks below.
///
/// Its **driver** promises:
/// - It executes the steps of a plan as [`crate::Step`] says; a request is complete when its plan is.
/// - It keeps memory of the layer ([`crate::Memory::Held`]) from plan to plan, and forgets it when power is lost.
/// - Requests arrive in order of their numbers. A deferred request is repeated with the number that it had.
/// - Of two requests that overlap, one of them a write or discard, the second waits until the first is complete, because
///   a layer may change its map as soon as it has planned a write.
/// - The commands of the first stage of a plan go out before the next request or background work is planned, those of a background plan's
///   further stages in their order: a layer above zones writes in the order in which it plans.
/// - At most one background plan of a layer is in flight, beside any number of requests. A layer defers a request that
///   must not run beside its background work; [`InFlight`] lists the requests in flight.
/// - It calls [`Layer::background`] after start, after requests and after [`Layer::background_done`], until there is no
///   work.
/// - A flush completes once everything that was complete at its arrival is durable.
/// - A request has no flags but those that [`Layer::accepts`], and `META`; [`HostRequest::expand`] replaces the others.
pub trait Layer: Send {
    /// Its name, as in the registry.
    fn name(&self) -> &'static str;

    /// Sectors that it offers above.
    fn capacity(&self) -> u64;

    /// The ranges that it reserves.
    fn areas(&self) -> Vec<Area> {
        Vec::new()
    }

    /// Restores its state from the disks. Called before [`Layer::start`], and only on disks that it ran on before.
    ///
    /// # Errors
    /// As the disks give them.
    fn recover(&mut self, _disks: &mut dyn ReadAt) -> io::Result<()> {
        Ok(())
    }

    /// Plans the writes that come before the first request.
    fn start(&mut self, _plan: &mut Plan) {}

    /// Flags that its requests may have beside `META`; what they promise, its plan keeps. A layer may hand a durable write
    /// down as such only where its own change of map is durable by that command, and a preflush or barrier only where all
    /// data lies on one disk.
    fn accepts(&self) -> Modifiers {
        Modifiers::empty()
    }

    /// Whether it decides by what the blocks of a write are to the file system. Only the layer on top hears that.
    fn reads_notes(&self) -> bool {
        false
    }

    /// Decides on a request. `notes` cover the sectors of a write, or there are none. `plan` comes empty.
    fn request(&mut self, request: &HostRequest, notes: &[BlockNote], plan: &mut Plan) -> Decision;

    /// A request is complete.
    fn completed(&mut self, _id: u64) {}

    /// Decides on the next background work. `plan` comes empty.
    fn background(&mut self, _in_flight: &InFlight, _plan: &mut Plan) -> Background {
        Background::None
    }

    /// The background plan is complete.
    fn background_done(&mut self) {}

    /// Has background work move all data that the layer keeps aside to its place. [`Layer::background`] gives that work until
    /// nothing is kept; requests that come meanwhile are served, and what they add is moved, too.
    fn drain(&mut self) {}

    /// Parts of what it was asked for that it leaves out, because the disks below have not what they need.
    fn left_out(&self) -> &'static [&'static str] {
        &[]
    }

    /// Counts of work start from 0; state stays.
    fn clear_counters(&mut self) {}

    /// Counters by name.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}
