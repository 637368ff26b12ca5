//! The events of a device, declared once. Counters, measurement, checker and reports all read this stream.
//!
//! Every flash operation has an event. Page events mean the same on every path: a [`PageRead`] or [`PageProgrammed`] of one
//! page carries the times of its operation; when collection moves pages, the reads and programs of a move (or of a run of moves
//! into one block, which is one event for listeners that do not ask for units) carry the beginning and end of the whole move.

mod map;
mod observer;

use emmclab_base::{Modifiers, Nanos, Op};

use crate::ids::{BlockId, Lpn, PlaneId, Ppn};
use crate::zones::ZoneState;

pub use map::{LogMerged, MapConsulted, MapHinted, MapLookedUp, MapMispredicted, MapPrefetched, Merge};
pub use observer::{AnyObserver, Observer, OnCompletion, Quiet, Rare, Shared};

/// The reason for a page read or program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Cause {
    /// The host asked for it.
    Host = 0,
    /// The rest of a page or unit that the host overwrote in part.
    ReadModifyWrite = 1,
    /// Garbage collection, SLC folding or a log-block merge moved it.
    Gc = 2,
    /// Wear levelling moved it.
    Wear = 3,
    /// The mapping scheme keeps its map there.
    Map = 4,
}

impl Cause {
    /// All causes, in the order of their codes.
    pub const ALL: [Cause; 5] = [Cause::Host, Cause::ReadModifyWrite, Cause::Gc, Cause::Wear, Cause::Map];

    /// Name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Host => "host",
            Cause::ReadModifyWrite => "read_modify_write",
            Cause::Gc => "gc",
            Cause::Wear => "wear",
            Cause::Map => "map",
        }
    }

    /// Whether it is space or wear that the device puts in order.
    #[inline]
    pub const fn moves(self) -> bool {
        matches!(self, Cause::Gc | Cause::Wear)
    }
}

/// The parts of the response time of a request: those of its last subrequest. They add up to the response time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyBreakdown {
    /// Behind other requests.
    pub queue: Nanos,
    /// In the host's driver, in the controller, and between host and device.
    pub controller: Nanos,
    /// On the flash bus, waiting for it included.
    pub bus: Nanos,
    /// In the flash array.
    pub array: Nanos,
    /// Behind garbage collection.
    pub gc: Nanos,
    /// For the device to wake up.
    pub wake_up: Nanos,
}

impl LatencyBreakdown {
    /// The parts in the order of the fields.
    #[inline]
    pub fn parts(&self) -> [Nanos; 6] {
        let Self { queue, controller, bus, array, gc, wake_up } = *self;
        [queue, controller, bus, array, gc, wake_up]
    }

    /// All parts together.
    #[inline]
    pub fn total(&self) -> Nanos {
        self.parts().into_iter().sum()
    }
}

/// A request is complete. Times on the trace's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestCompleted {
    /// Its number, counted from 0 in order of submission.
    pub id: u64,
    /// Its operation.
    pub op: Op,
    /// What it asked for beside its operation.
    pub modifiers: Modifiers,
    /// First sector.
    pub sector: u64,
    /// Length in sectors.
    pub sectors: u32,
    /// When it came.
    pub arrival: Nanos,
    /// When the device began to work on it.
    pub start: Nanos,
    /// When it was done.
    pub complete: Nanos,
    /// Page operations it took on the flash.
    pub subrequests: u32,
    /// The parts of its response time.
    pub waits: LatencyBreakdown,
}

/// Data of a request goes to or comes from the FTL or the write buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataMoved {
    /// Read or write.
    pub op: Op,
    /// Length in sectors.
    pub sectors: u32,
}

/// Pages of a block were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRead {
    /// Their block.
    pub block: BlockId,
    /// The page in the block; the first one of a run of moves.
    pub page: u32,
    /// Number of pages; more than one only in a run of moves.
    pub pages: u32,
    /// Block group.
    pub group: u8,
    /// Bytes over the flash bus, all pages together.
    pub bus_bytes: u64,
    /// The cause of the operation.
    pub cause: Cause,
    /// When the way began.
    pub begin: Nanos,
    /// When the data was out.
    pub end: Nanos,
}

/// The flash was read where no block of the model holds the page: data that was never written, or the page map of a logical block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnplacedRead {
    /// The plane that was busy with it.
    pub plane: PlaneId,
    /// Block group, whose times it took.
    pub group: u8,
    /// Bytes over the flash bus.
    pub bus_bytes: u64,
    /// The cause of the operation.
    pub cause: Cause,
    /// When the way began.
    pub begin: Nanos,
    /// When the data was out.
    pub end: Nanos,
}

/// A map unit in a programmed page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitWritten {
    /// Its logical page number.
    pub lpn: Lpn,
    /// Source of the sectors not in `covered`; `None` if there was no data.
    pub from: Option<Ppn>,
    /// Sectors that came from the host, one bit each from the lowest.
    pub covered: u32,
    /// Number of the command that gave those sectors ([`RequestCompleted::id`]); `None` if they come out of the write buffer, which
    /// has them from the last [`UnitCached`] of each.
    pub command: Option<u64>,
}

/// Pages of a block were programmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageProgrammed<'a> {
    /// Their block.
    pub block: BlockId,
    /// The page in the block; the first one of a run of moves.
    pub page: u32,
    /// Number of pages; more than one only in a run of moves, for listeners without [`Observer::UNITS`].
    pub pages: u32,
    /// Block group.
    pub group: u8,
    /// Bytes of the pages, all together.
    pub bytes: u64,
    /// Bytes over the flash bus, all pages together.
    pub bus_bytes: u64,
    /// The cause of the operation.
    pub cause: Cause,
    /// Units of the page, by physical page number; places after the last are left empty. Empty without [`Observer::UNITS`].
    pub units: &'a [UnitWritten],
    /// When the way began.
    pub begin: Nanos,
    /// When the cells were written.
    pub end: Nanos,
    /// From when on the page counts after a cut of power: from `end`, or later where pages of the host count only after those before
    /// them (rules 8 and 9 of the [contract](crate::contract)).
    pub durable: Nanos,
}

/// A block was erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockErased {
    /// The block.
    pub block: BlockId,
    /// Block group.
    pub group: u8,
    /// Erases it has seen, with this one.
    pub erases: u32,
    /// When its way was free for the erase; it begins later where its multi-plane group was busy.
    pub ready: Nanos,
    /// When the erase began.
    pub begin: Nanos,
    /// When it was done.
    pub end: Nanos,
}

/// A block reached its erase limit and is used no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRetired {
    /// The block.
    pub block: BlockId,
}

/// The purpose of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collection {
    /// Free space, log-block merges included.
    Space,
    /// Data of the SLC cache goes to other blocks.
    Fold,
    /// Even wear.
    Wear,
}

/// Collection of a block began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcStarted {
    /// The victim.
    pub block: BlockId,
    /// Valid units in it.
    pub valid: u32,
    /// Its purpose.
    pub collection: Collection,
    /// Time of the choice.
    pub at: Nanos,
}

/// Collection of a block ended, with its erase or, in a log-block merge, with its last copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcFinished {
    /// The victim.
    pub block: BlockId,
    /// Valid units when it was chosen.
    pub valid: u32,
    /// End of the collection.
    pub at: Nanos,
}

/// The device collected on its own, without a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleCollected {
    /// The plane.
    pub plane: PlaneId,
    /// Blocks collected for space; folding counts none.
    pub blocks: u32,
    /// Time that ways spent on it.
    pub took: Nanos,
}

/// A command interrupted collection in idle time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleInterrupted {
    /// When the command came.
    pub at: Nanos,
}

/// Units of the SLC cache went to other blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitsFolded {
    /// Number of units.
    pub units: u32,
}

/// Units were written to the pinned part of `WriteBooster`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitsPinned {
    /// Number of units.
    pub units: u32,
}

/// What a `WriteBooster` tells the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Little of it is free (`WRITEBOOSTER_FLUSH_NEEDED`).
    FlushNeeded,
    /// It has no room for pinned data (`PINNED_WRITEBOOSTER_BUFFER_FULL`).
    PinnedFull,
    /// It became larger, upon a hint of the device (`WRITEBOOSTER_RESIZE_HINT`).
    Grown,
    /// It became smaller, upon such a hint.
    Shrunk,
}

/// A `WriteBooster` told the host something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoosterNotice {
    /// What it told.
    pub notice: Notice,
}

/// A zone took the write buffer of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneBufferTaken {
    /// The zone that had it.
    pub from: u32,
    /// Units of that zone that had to leave before.
    pub units: u32,
}

/// Units hold nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trimmed {
    /// First unit.
    pub first: Lpn,
    /// Number of units.
    pub count: u32,
    /// Number of them that the flash held.
    pub mapped: u32,
    /// From when on they hold nothing.
    pub at: Nanos,
}

/// Written data of a unit came into the write buffer; it is durable only once it is programmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitCached {
    /// The unit.
    pub lpn: Lpn,
    /// Sectors that came, one bit each from the lowest.
    pub covered: u32,
    /// Number of the command that gave them ([`RequestCompleted::id`]).
    pub command: u64,
    /// Whether the buffer held data of the unit already.
    pub overwritten: bool,
    /// Units that the buffer holds then.
    pub units: u32,
    /// When there was room.
    pub at: Nanos,
}

/// The host read a unit of a device with RAM for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheRead {
    /// The unit.
    pub lpn: Lpn,
    /// Whether the RAM held all that was asked for.
    pub hit: bool,
}

/// A flush found the write buffer, empty or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheFlushed {
    /// Units with written data.
    pub units: u32,
    /// When the flush began.
    pub at: Nanos,
    /// Whether the host asked for it; false at an orderly end of power.
    pub asked_for: bool,
}

/// The host overwrote a unit (block-mapped schemes: a page) in part; the rest of it is read first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartOverwritten {
    /// The unit, or the first one of the page.
    pub lpn: Lpn,
}

/// The host read units that it never wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnwrittenUnits {
    /// First unit.
    pub first: Lpn,
    /// Number of units.
    pub count: u32,
}

/// A packed command came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Its entries.
    pub entries: u32,
}

/// A direction of the link of a UFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Direction {
    /// Data of writes.
    ToDevice = 0,
    /// Data of reads.
    ToHost = 1,
}

/// A UFS took a command from a queue of the host controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandTaken {
    /// The queue, counted from 0.
    pub queue: u32,
    /// Time that it waited for a tag.
    pub waited: Nanos,
    /// When it had one and the link was awake.
    pub ready: Nanos,
    /// When the queue began to hand it over.
    pub begin: Nanos,
    /// When the device had it.
    pub end: Nanos,
    /// Commands with a tag when it had its own, with this one.
    pub in_flight: u32,
}

/// Data of a command went over the link of a UFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTransfer {
    /// Its direction.
    pub direction: Direction,
    /// Its length.
    pub sectors: u32,
    /// When it could have begun.
    pub ready: Nanos,
    /// When it began.
    pub begin: Nanos,
    /// When it ended.
    pub end: Nanos,
}

/// A zone changed its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneChanged {
    /// The zone, counted from 0 after the conventional ones.
    pub zone: u32,
    /// Its state until then.
    pub from: ZoneState,
    /// Its state from then on.
    pub to: ZoneState,
    /// Map units before its write pointer until then.
    pub written: u32,
    /// Zones that are open then.
    pub open: u32,
    /// Zones that are open or closed then.
    pub active: u32,
    /// When the command came that changed it.
    pub at: Nanos,
}

/// The device woke up for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WokeUp {
    /// When the request came.
    pub at: Nanos,
    /// Time that the device had been asleep.
    pub asleep: Nanos,
    /// Time that waking up took.
    pub took: Nanos,
}
