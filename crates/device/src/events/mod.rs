//! Events of a device, from which counters, measurements, checker and reports are computed.
//!
//! Every flash operation has an event. A [`PageRead`] or [`PageProgrammed`] of one page has the times of its operation, whatever caused it.
//! When collection moves pages, the reads and programs of a move have the start and end of the whole move. Observers that do not request
//! units receive one event for consecutive moves into one block.

mod observer;

use emmclab_base::{CommandFlags, Nanos, Op};

use crate::ids::{BlockId, Lpn, PlaneId, Ppn};
use crate::nand::RetryCount;
use crate::zones::ZoneState;

pub(crate) use observer::CompletionObserver;
pub use observer::{AnyObserver, DynObserver, NullObserver, Observer, OnCompletion};

/// The reason for a page read or program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum OperationCause {
    /// A request of the host.
    Host = 0,
    /// Read of the rest of a page or map unit that the host overwrote in part.
    ReadModifyWrite = 1,
    /// Garbage collection, SLC folding or a log-block merge.
    Gc = 2,
    /// Wear levelling.
    Wear = 3,
    /// Refresh of data that was read often or is old.
    Refresh = 4,
    /// Access to pages in which the mapping scheme stores its table.
    Map = 5,
}

impl OperationCause {
    /// All causes, in the order of their codes.
    pub const ALL: [OperationCause; 6] = [Self::Host, Self::ReadModifyWrite, Self::Gc, Self::Wear, Self::Refresh, Self::Map];

    /// Name of the cause in results.
    pub const fn name(self) -> &'static str {
        match self {
            OperationCause::Host => "host",
            OperationCause::ReadModifyWrite => "read_modify_write",
            OperationCause::Gc => "gc",
            OperationCause::Wear => "wear",
            OperationCause::Refresh => "refresh",
            OperationCause::Map => "map",
        }
    }

    /// Whether the cause is a move of data to free space, to level wear or to refresh the data.
    #[inline]
    pub const fn moves(self) -> bool {
        matches!(self, OperationCause::Gc | OperationCause::Wear | OperationCause::Refresh)
    }
}

/// The parts of the response time of a request, measured for its last subrequest. They add up to the response time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyBreakdown {
    /// Wait for other requests.
    pub queue: Nanos,
    /// Time in the driver of the host, in the controller, and on the link between host and device.
    pub controller: Nanos,
    /// Time on the flash bus, including the wait for it.
    pub bus: Nanos,
    /// Time in the flash array.
    pub array: Nanos,
    /// Wait for garbage collection.
    pub gc: Nanos,
    /// Wait for the wake-up of the device.
    pub wake_up: Nanos,
}

impl LatencyBreakdown {
    /// The parts in the order of the fields.
    #[inline]
    pub fn parts(&self) -> [Nanos; 6] {
        let Self { queue, controller, bus, array, gc, wake_up } = *self;
        [queue, controller, bus, array, gc, wake_up]
    }

    /// The sum of all parts.
    #[inline]
    pub fn total(&self) -> Nanos {
        self.parts().into_iter().sum()
    }
}

/// A request is complete. Times are those of the trace's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestCompleted {
    /// Number of the request, counted from 0 in order of submission.
    pub id: u64,
    /// Operation of the request.
    pub op: Op,
    /// Flags of the request.
    pub modifiers: CommandFlags,
    /// First sector.
    pub sector: u64,
    /// Length in sectors.
    pub sectors: u32,
    /// Arrival time of the request.
    pub arrival: Nanos,
    /// Time at which the device began to execute the request.
    pub start: Nanos,
    /// Completion time of the request.
    pub complete: Nanos,
    /// Number of page operations of the request on the flash.
    pub subrequests: u32,
    /// Parts of the response time.
    pub waits: LatencyBreakdown,
}

/// Data of a request was transferred to or from the FTL or the write buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataMoved {
    /// Operation of the request: read or write.
    pub op: Op,
    /// Length of the transfer in sectors.
    pub sectors: u32,
}

/// Pages of a block were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRead {
    /// The block.
    pub block: BlockId,
    /// The page in the block. For several pages, the first one.
    pub page: u32,
    /// Number of pages. It is more than one only if garbage collection moves several pages.
    pub pages: u32,
    /// Block group to which the block belongs.
    pub group: u8,
    /// Number of bytes transferred over the flash bus, for all pages together.
    pub bus_bytes: u64,
    /// Read retries of the pages.
    pub retries: RetryCount,
    /// The cause of the operation.
    pub cause: OperationCause,
    /// Time at which the flash way started the operation.
    pub begin: Nanos,
    /// Time at which the data had left the flash.
    pub end: Nanos,
}

/// A read of a page that no simulated block contains: data that was never written, or the page map of a logical block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnplacedRead {
    /// The plane from which the page is read.
    pub plane: PlaneId,
    /// Block group that determines the read time.
    pub group: u8,
    /// Number of bytes transferred over the flash bus.
    pub bus_bytes: u64,
    /// The cause of the operation.
    pub cause: OperationCause,
    /// Time at which the flash way started the operation.
    pub begin: Nanos,
    /// Time at which the data had left the flash.
    pub end: Nanos,
}

/// A map unit in a programmed page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitWritten {
    /// Logical page number of the unit.
    pub lpn: Lpn,
    /// Source of the sectors that are not in `covered`; `None` if these sectors had no data.
    pub from: Option<Ppn>,
    /// Sectors that came from the host, one bit each; the lowest bit is the first sector.
    pub covered: u32,
    /// Number of the command that wrote the sectors in `covered` ([`RequestCompleted::id`]). `None` if they come from the write buffer;
    /// then the last [`UnitCached`] of each sector contains the number.
    pub command: Option<u64>,
}

/// Pages of a block were programmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageProgrammed<'a> {
    /// The block.
    pub block: BlockId,
    /// The page in the block. For several pages, the first one.
    pub page: u32,
    /// Number of pages. It is more than one only if garbage collection moves several pages and [`Observer::UNITS`] is false.
    pub pages: u32,
    /// Block group to which the block belongs.
    pub group: u8,
    /// Total size of all programmed pages in bytes.
    pub bytes: u64,
    /// Number of bytes transferred over the flash bus, for all pages together.
    pub bus_bytes: u64,
    /// The cause of the operation.
    pub cause: OperationCause,
    /// The map units in the page, in order of physical page numbers; locations after the last unit stay empty. The slice is empty without
    /// [`Observer::UNITS`].
    pub units: &'a [UnitWritten],
    /// Time at which the flash way started the operation.
    pub begin: Nanos,
    /// Time at which the cells were completely written.
    pub end: Nanos,
    /// Time at which the page becomes durable: `end`, or later if pages of the host become durable only in order (rules 8 and 9 of the
    /// [contract](crate::contract)).
    pub durable: Nanos,
}

/// Operations for which no request of the host waits, so that its reads can suspend them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SuspendableOperation {
    /// The erase of a block.
    Erase = 0,
    /// The move of a page by collection, wear levelling or refresh.
    Move = 1,
    /// The program of a page from the write buffer.
    WriteBack = 2,
}

/// A read of the host delayed operations of a way. Operations on its planes whose reported end is later than `at` end later by `delay`, and
/// if they are programs, they are durable later by `delay`. The event precedes that of the read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationsDelayed {
    /// The first plane of the way, and its number of planes.
    pub planes: (PlaneId, u32),
    /// When the read began.
    pub at: Nanos,
    /// Time by which the operations end later; 0 if there was time for the read.
    pub delay: Nanos,
    /// The operation that the read suspended. `None` if none of the operations had begun, or if the first of them was already suspended.
    pub kind: Option<SuspendableOperation>,
    /// Time that the suspension and the resumption take; 0 without a suspension.
    pub overhead: Nanos,
}

impl OperationsDelayed {
    /// Whether an operation on a plane that was reported to end at `end` is delayed.
    #[inline]
    pub fn affects(&self, plane: PlaneId, end: Nanos) -> bool {
        let (first, count) = self.planes;
        (first.0..first.0 + count).contains(&plane.0) && end > self.at
    }
}

/// A block was erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockErased {
    /// The block.
    pub block: BlockId,
    /// Block group to which the block belongs.
    pub group: u8,
    /// Number of erases of the block, including this one.
    pub erases: u32,
    /// Time at which the flash way was free for the erase. The erase begins later if the multi-plane group of the block is busy.
    pub ready: Nanos,
    /// When the erase began.
    pub begin: Nanos,
    /// When the erase ended.
    pub end: Nanos,
}

/// A block reached its erase limit and is no longer used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRetired {
    /// The block.
    pub block: BlockId,
}

/// The purpose of the garbage collection of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectionPurpose {
    /// To free space; includes log-block merges.
    Space,
    /// To move data from the SLC cache to other blocks.
    Fold,
    /// To level wear.
    Wear,
    /// To refresh data that was read often or is old.
    Refresh,
}

/// Collection of a block began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcStarted {
    /// The collected block.
    pub block: BlockId,
    /// Number of valid units in the victim.
    pub valid: u32,
    /// Purpose of the collection.
    pub collection: CollectionPurpose,
    /// Time at which the victim was chosen.
    pub at: Nanos,
}

/// Collection of a block ended: with its erase, or with the last copy of a log-block merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcFinished {
    /// The collected block.
    pub block: BlockId,
    /// Number of valid map units in the block when it was chosen as victim.
    pub valid: u32,
    /// End of the collection.
    pub at: Nanos,
}

/// The device collected blocks of a plane in idle time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleCollected {
    /// The plane.
    pub plane: PlaneId,
    /// Number of blocks collected to free space; 0 for folding.
    pub blocks: u32,
    /// Time that the flash ways were busy with the collection.
    pub took: Nanos,
}

/// A command interrupted collection in idle time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleInterrupted {
    /// When the command arrived.
    pub at: Nanos,
}

/// Units were moved from the SLC cache to other blocks.
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

/// Notices of `WriteBooster` to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoosterNoticeKind {
    /// Little free space is left (`WRITEBOOSTER_FLUSH_NEEDED`).
    FlushNeeded,
    /// No space is left for pinned data (`PINNED_WRITEBOOSTER_BUFFER_FULL`).
    PinnedFull,
    /// The buffer became larger, as the device had proposed by a hint (`WRITEBOOSTER_RESIZE_HINT`).
    Grown,
    /// The buffer became smaller, after a hint of the device (`WRITEBOOSTER_RESIZE_HINT`).
    Shrunk,
}

/// `WriteBooster` sent a notice to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoosterNotice {
    /// The kind of the notice.
    pub notice: BoosterNoticeKind,
}

/// A zone took over the write buffer of another zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneBufferTaken {
    /// The zone that lost the write buffer.
    pub from: u32,
    /// Number of map units of the zone `from` that had been written to the flash when the zone lost its write buffer.
    pub units: u32,
}

/// Units were discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitsTrimmed {
    /// First unit.
    pub first: Lpn,
    /// Number of units.
    pub count: u32,
    /// Number of discarded units that were mapped.
    pub mapped: u32,
    /// When the discard takes effect.
    pub at: Nanos,
}

/// Written data of a unit entered the write buffer. It becomes durable when it is programmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitCached {
    /// The unit.
    pub lpn: Lpn,
    /// Sectors that were written, one bit each; the lowest bit is the first sector.
    pub covered: u32,
    /// Number of the command that wrote the sectors ([`RequestCompleted::id`]).
    pub command: u64,
    /// Whether the buffer already contained data of the unit.
    pub overwritten: bool,
    /// Number of map units in the write buffer after this write.
    pub units: u32,
    /// When the buffer had space for the data.
    pub at: Nanos,
}

/// The host read a unit, on a device with RAM for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheRead {
    /// The unit.
    pub lpn: Lpn,
    /// Whether the RAM contained all requested sectors.
    pub hit: bool,
}

/// The write buffer was flushed; it may have been empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheFlushed {
    /// Number of map units that the flush moved from the buffer to the flash.
    pub units: u32,
    /// When the flush began.
    pub at: Nanos,
    /// Whether the host requested the flush. False for the flush at an orderly power-off.
    pub asked_for: bool,
}

/// The host overwrote a part of a map unit (in block-mapped schemes: of a page). The rest is read first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartOverwritten {
    /// The overwritten map unit, or the first map unit of the page.
    pub lpn: Lpn,
}

/// The host read units that it never wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnwrittenUnits {
    /// First unit.
    pub first: Lpn,
    /// Number of units.
    pub count: u32,
    /// Bytes that the host read of the never-written units.
    pub bytes: u32,
    /// Block group of the page that is read in their place; `None` if no page is read.
    pub group: Option<u8>,
    /// Whether these are the first such units of a request.
    pub begins: bool,
}

/// A packed command arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedCommandArrived {
    /// Number of entries of the packed command.
    pub entries: u32,
}

/// A direction of the link of a UFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum TransferDirection {
    /// From the host to the device: data of writes.
    ToDevice = 0,
    /// From the device to the host: data of reads.
    ToHost = 1,
}

/// A UFS fetched a command from a queue of the host controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandFetched {
    /// The queue from which the command was fetched, counted from 0.
    pub queue: u32,
    /// Time for which the command waited for a tag.
    pub waited: Nanos,
    /// Time at which the command had a tag and the link was awake.
    pub ready: Nanos,
    /// When the queue started the transfer.
    pub begin: Nanos,
    /// Time at which the device had received the command.
    pub end: Nanos,
    /// Number of commands that had a tag when this command received its tag, including this command.
    pub in_flight: u32,
}

/// Data of a command was transferred over the link of a UFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTransfer {
    /// Direction of the transfer.
    pub direction: TransferDirection,
    /// Length of the transfer in sectors.
    pub sectors: u32,
    /// Earliest possible start of the transfer.
    pub ready: Nanos,
    /// Start of the transfer.
    pub begin: Nanos,
    /// End of the transfer.
    pub end: Nanos,
}

/// A zone changed its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneChanged {
    /// The zone, counted from 0; conventional zones are not counted.
    pub zone: u32,
    /// State before the change.
    pub from: ZoneState,
    /// State after the change.
    pub to: ZoneState,
    /// Number of map units before the write pointer of the zone, before the change.
    pub written: u32,
    /// Number of open zones after the change.
    pub open: u32,
    /// Number of active zones (open or closed) after the change.
    pub active: u32,
    /// Arrival time of the command that changed the zone.
    pub at: Nanos,
}

/// The device woke up for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WokeUp {
    /// When the request arrived.
    pub at: Nanos,
    /// Time for which the device was asleep.
    pub asleep: Nanos,
    /// Duration of the wake-up.
    pub took: Nanos,
    /// The stage of sleep that the device left, counted from 0.
    pub stage: usize,
}

/// A mapping table entry, or the page map of a logical block, was looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapLookedUp {
    /// Whether the entry was in RAM.
    pub hit: bool,
}

/// All mapping table entries of a request, or of data that leaves the write buffer, were looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapConsulted {
    /// Whether a page of the mapping table had to be read from the flash.
    pub missed: bool,
}

/// The host of a UFS sent the mapping table entry of a unit along with a read (HPB).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapHinted {
    /// The unit.
    pub lpn: Lpn,
}

/// Mapping table entries were loaded into RAM because a neighbouring entry was needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapPrefetched {
    /// Number of entries.
    pub count: u32,
}

/// A mapping table entry did not point to the page of the unit, so a page was read in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapMispredicted {
    /// The unit.
    pub lpn: Lpn,
}

/// The kinds of log-block merges (Kim et al. 2002, section III).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeKind {
    /// The log block becomes the data block without copies.
    Switch,
    /// The log block becomes the data block after the rest of the data is copied to it.
    Partial,
    /// All data is copied to a fresh block.
    Full,
}

/// Log blocks were merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogMerged {
    /// Kind of the merge.
    pub kind: MergeKind,
}
