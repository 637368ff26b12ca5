//! The seam: what a layer is asked, what it may answer, and what its driver owes it.

use std::io;

use crate::flight::Flight;
use crate::plan::Plan;
use crate::request::HostRequest;

/// Why a request cannot go on yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// There is no room until background work has made some: back-pressure.
    Full,
    /// Background work is about to write what the request writes.
    Overlap,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The plan does it; the request is complete when all its steps are.
    Run,
    /// Ask again with the same request each time that [`Layer::work`] has been asked; nothing was changed and the plan is
    /// void.
    Hold(Hold),
}

/// What a layer has to do in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The plan; [`Layer::worked`] is due when it is complete.
    Run,
    /// Something, but not now: ask again when a request has completed.
    Later,
    /// Nothing until further requests come.
    None,
}

/// A part of a disk that a layer keeps for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Number of the disk below.
    pub disk: u8,
    /// First sector.
    pub sector: u64,
    /// Length in sectors.
    pub sectors: u64,
}

/// The disks below a layer: their sizes in sectors. Disk 0 is the layer below or the device, disk 1 the second device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Below {
    /// Size of disk 0 in sectors.
    pub main: u64,
    /// Size of disk 1 in sectors, where there is one.
    pub second: Option<u64>,
}

/// Reads metadata back after a cut of power.
pub trait ReadAt {
    /// Fills `buffer` (whole sectors) from `sector` of a disk below.
    ///
    /// # Errors
    /// As the disk gives them.
    fn read_at(&mut self, disk: u8, sector: u64, buffer: &mut [u8]) -> io::Result<()>;
}

/// Software between requests and disks.
///
/// What a **layer** promises: it decides on addresses, lengths and its own state alone, never on time and never on data;
/// the same calls give the same plans; a plan names every movement of data; no command reaches outside the disks below.
///
/// What its **driver** promises:
/// - It executes the steps of a plan as [`crate::Step`] says, and a request is complete when its plan is.
/// - Requests come in order of their numbers, but for held ones, which come again with the number they had.
/// - Two requests that overlap, one of them a write or discard, are never under way at once: the second waits (a layer
///   may change its map as soon as it has planned a write).
/// - At most one background plan of a layer is under way; it may run beside any requests. A layer that must not see a
///   request beside its background work holds it; [`Flight`] tells the background work which requests are under way.
/// - [`Layer::work`] is asked after start, after requests and after [`Layer::worked`], until it has nothing to do.
/// - A flush completes after everything that was complete when it came is durable. Preflush and FUA become flushes.
pub trait Layer: Send {
    /// Its name, as in the registry.
    fn name(&self) -> &'static str;

    /// Sectors that it offers above.
    fn capacity(&self) -> u64;

    /// What it keeps for itself.
    fn areas(&self) -> Vec<Area> {
        Vec::new()
    }

    /// Reads its state back from the disks; not called on new ones. Comes before [`Layer::start`].
    ///
    /// # Errors
    /// As the disks give them.
    fn recover(&mut self, _disks: &mut dyn ReadAt) -> io::Result<()> {
        Ok(())
    }

    /// What must be written before the first request; an empty plan for nothing.
    fn start(&mut self, _plan: &mut Plan) {}

    /// Decides on a request. `plan` comes empty.
    fn request(&mut self, request: &HostRequest, plan: &mut Plan) -> Answer;

    /// A request is complete.
    fn completed(&mut self, _id: u64) {}

    /// Decides on the next background work. `plan` comes empty.
    fn work(&mut self, _flight: &Flight, _plan: &mut Plan) -> Work {
        Work::None
    }

    /// The background plan is complete.
    fn worked(&mut self) {}

    /// What it has done, by name.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}
