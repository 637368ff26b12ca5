//! The persistence contract: which data a device may lose when power is lost, and which it must keep.
//!
//! # The contract
//!
//! A *version* of a sector is the result of one command: the data of a write, or no data after a discard. Power may be lost at any
//! time `t`. Afterwards, a sector holds one version, and the device promises:
//!
//! 1. *No invented data.* The sector holds a version whose command arrived before `t`, or no data if none arrived.
//! 2. *Without a cache*, a write that is complete is durable: the sector holds its version or a newer one. If a write counts as
//!    complete when its data is transferred (`timing.write_complete`), completion promises nothing, as with a cache (but see rule 4).
//! 3. *With a cache*, completion of a plain write promises nothing. Its version is durable when a flush that arrived at its
//!    completion or later is complete (`EXT_CSD` `FLUSH_CACHE` [32] bit 0). A write with PREFLUSH is such a flush for
//!    everything that was complete when it arrived.
//! 4. *Reliable write* (CMD23 bit 31) and *forced programming* (CMD23 bit 24) bypass the cache: their version is durable
//!    when they are complete. A reliable write that is interrupted leaves each sector old or new, never in between (6.6.8.1).
//! 5. *Barrier* (eMMC 5.1, JESD84-B51, 6.6.37; `EXT_CSD` `FLUSH_CACHE` bit 1): if data written after a barrier survives, then
//!    everything that was complete before the barrier is durable.
//! 6. *Discard* revokes, from its arrival on, every promise about the whole map units in its range: each sector may hold no data or
//!    any older version. *Secure erase* does the same, but once it is complete no older version returns: each sector holds
//!    no data or a newer version. A unit that either covers only in part keeps its promises.
//! 7. *Power off* in good order is a flush.
//! 8. *Packed write* (6.6.29): without a cache its entries become durable in their order. If any data of an entry survives,
//!    all entries before it do; a cut may lose the last entries, never an entry before one that survives. Planes may finish out of
//!    order, so a page of a packed write survives a cut only if all its earlier pages do.
//! 9. *FIFO cache* (`cache.policy = "fifo"`; `EXT_CSD` `CACHE_FLUSH_POLICY` [240] bit 0): what survives is a prefix of the complete
//!    writes, as if there were a barrier before each. If any data of a write survives, then everything that was complete when it
//!    arrived is durable; reliable writes and forced programming are no exception. A barrier has no further effect. Planes may
//!    finish out of order, so a page survives a cut only if all earlier pages do.
//!
//! 10. *In flight.* A write that is not complete at `t` may leave undefined data, neither old nor new, in any of its sectors,
//!     whatever they held before, and counts as surviving data for rules 5, 8 and 9. Reliable writes are the exception: of them
//!     alone the standard promises that their target "never contains undefined data". Of other writes it only states whether data
//!     written before is at risk (`EXT_CSD` `WR_REL_SET` [167]). A simulated device leaves each sector old or new, because a page is
//!     programmed completely or not at all. Sectors that no command in flight writes keep rule 1.
//!
//! # A UFS
//!
//! The rules above hold for a UFS (JESD220; SBC-3), with these replacements for what it does not have:
//!
//! * Rule 3: its flush is SYNCHRONIZE CACHE, of everything or of a range of sectors. A flush of a range makes durable, sector by
//!   sector, what was complete in its range, and promises nothing about other sectors.
//! * Rule 4: FUA replaces reliable writes: its version is durable when it is complete. It is not atomic: while it is in
//!   flight it may leave undefined data like any other write (rule 10).
//! * Rules 5, 8 and 9 do not apply: there is no barrier, no packed command, and no promise that the cache keeps an order. Commands have
//!   tags and complete in any order; the order of completions promises no order on the flash.
//! * Rule 6: its discard is UNMAP.
//!
//! # Zones
//!
//! A zoned UFS promises more about each zone that is written sequentially. Of the data written since its last reset, a prefix survives.
//! After a cut its write pointer is at the end of this prefix, and never before data that the other rules make durable. A zone that
//! was finished stays full. No zone is open after a cut. A reset is a discard (rule 6). Planes may finish out of order, so pages survive
//! a cut only in their order, over all zones. The same order applies to data that leaves the cache: FUA and flushes of a range write all
//! older data too. [`DurabilityPromises`] does not contain this rule, so it allows more than a zoned device leaves; `emmclab-crash` adds the rule
//! to the states of its cuts.
//!
//! Nothing else is promised. In particular, plain writes in a cache that is not FIFO reach the flash in any order, and either of two
//! overlapping requests in flight may win.
//!
//! Not modelled: damage to pages written before in the same cells (paired pages); loss of the device's own map, which is
//! assumed to be rebuilt from metadata in the pages; sanitize (a secure erase of everything discarded). An
//! overwritten version is assumed to stay until its successor is programmed.
//!
//! [`DurabilityPromises`] is the contract at present, derived from commands and completions alone; it needs no device.
//! [`Persistence`](crate::persistence::PersistenceTracker) compares it with what the flash of a simulated device holds.

mod promises;

use emmclab_settings::InterfaceKind;

use crate::device::Device;

pub use promises::{BrokenPromise, DurabilityOrder, DurabilityPromises, VolatileExtent};

/// Number of the command whose result a sector holds, counted from 1 over all commands; 0 = nothing was ever written there.
pub type Version = u64;

/// The contents of a sector, with the command that caused them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectorContent {
    /// Data of this write.
    Data(Version),
    /// No data, because of this discard or secure erase.
    Nothing(Version),
}

impl SectorContent {
    /// The version.
    pub fn version(self) -> Version {
        match self {
            Self::Data(version) | Self::Nothing(version) => version,
        }
    }
}

/// The parts of the contract that depend on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContractRules {
    /// Whether a plain write is durable on completion (rule 2), or only after a flush (rule 3).
    pub write_through: bool,
    /// Whether the device has a cache that keeps the order of writes (rule 9).
    pub fifo: bool,
    /// Whether the rules of an eMMC or those of a UFS apply.
    pub interface: InterfaceKind,
    /// Sectors of a map unit, at least 1: discard and secure erase affect whole units (rule 6).
    pub unit_sectors: u32,
}

impl ContractRules {
    /// The rules of a simulated device.
    pub fn of(device: &Device) -> Self {
        Self {
            write_through: device.promises_on_completion(),
            fifo: device.promises_write_order(),
            interface: device.interface(),
            unit_sectors: device.geometry().unit_sectors,
        }
    }
}
