//! The persistence contract: which data a device may lose when power is lost, and which it must keep.
//!
//! # The contract
//!
//! A *version* of a sector is the result of one command: the data of a write, or no data after a discard. If power is lost at any time `t`,
//! each sector then holds one version, and the device promises:
//!
//! 1. *No invented data.* The sector holds a version whose command arrived before `t`, or no data if none arrived.
//! 2. *Without a cache*, a complete write is durable: the sector holds its version or a newer one. If a write is already complete
//!    when its data is transferred (`timing.write_complete`), completion promises nothing, as with a cache (except rule 4).
//! 3. *With a cache*, completion of a plain write promises nothing. Its version is durable when a flush is complete that arrived
//!    at or after the completion of the write (`EXT_CSD` `FLUSH_CACHE` [32] bit 0). A write with PREFLUSH is such a flush for
//!    all data that was complete when it arrived.
//! 4. *Reliable write* (CMD23 bit 31) and *forced programming* (CMD23 bit 24) bypass the cache: their version is durable
//!    when they are complete. After an interrupted reliable write, each sector is either old or new (6.6.8.1).
//! 5. *Barrier* (eMMC 5.1, JESD84-B51, 6.6.37; `EXT_CSD` `FLUSH_CACHE` bit 1): if data written after a barrier survives, then
//!    everything that was complete before the barrier is durable.
//! 6. *Discard* revokes, from its arrival on, every promise about the whole map units in its range: each sector may hold no data or
//!    any older version. *Secure erase* does the same, but once it is complete, no older version returns: each sector holds
//!    no data or a newer version. Promises about units that are only partly in the range remain.
//! 7. *Orderly power-off* is a flush.
//! 8. *Packed write* (6.6.29): without a cache, the entries become durable in order. If any data of an entry survives,
//!    all entries before it do, so a cut loses only the last entries. Planes may finish out of order, so a page of a packed
//!    write survives a cut only if all its earlier pages do.
//! 9. *FIFO cache* (`cache.policy = "fifo"`; `EXT_CSD` `CACHE_FLUSH_POLICY` [240] bit 0): what survives is a prefix of the complete
//!    writes, as if there were a barrier before each. If any data of a write survives, then everything that was complete when it
//!    arrived is durable; reliable writes and forced programming are no exception. A barrier has no further effect. Planes may
//!    finish out of order, so a page survives a cut only if all earlier pages do.
//!
//! 10. *In flight.* A write that is not complete at `t` may leave undefined data, neither old nor new, in any of its sectors.
//!     This counts as surviving data for rules 5, 8 and 9. Reliable writes are the exception: only for them
//!     the standard promises that their target "never contains undefined data". For other writes it only states whether older
//!     data is at risk (`EXT_CSD` `WR_REL_SET` [167]). A simulated device leaves each sector old or new, because a page is
//!     programmed completely or not at all. Rule 1 applies to sectors that no command in flight writes.
//!
//! # A UFS
//!
//! The rules above apply to a UFS (JESD220; SBC-3), with these replacements for functions that it does not have:
//!
//! * Rule 3: the flush is SYNCHRONIZE CACHE, of all sectors or of a range. A flush of a range makes the complete writes in its
//!   range durable, sector by sector, and promises nothing about other sectors.
//! * Rule 4: FUA replaces reliable writes: its version is durable when it is complete. It is not atomic: while it is in
//!   flight it may leave undefined data like any other write (rule 10).
//! * Rules 5, 8 and 9 do not apply: there is no barrier, no packed command, and no promise that the cache keeps an order. Commands have
//!   tags and complete in any order; the order of completions promises no order on the flash.
//! * Rule 6: the discard is UNMAP.
//!
//! # Zones
//!
//! For each zone that is written sequentially, a zoned UFS promises more. Of the data written since the last reset, a prefix survives.
//! After a cut, the write pointer is at the end of this prefix, and never before data that the other rules make durable. A finished zone
//! stays full. No zone is open after a cut. A reset is a discard (rule 6). Planes may finish out of order, so pages survive a cut only in
//! their order, over all zones. The same order applies to data that leaves the cache: FUA and flushes of a range also write all older data.
//! [`DurabilityPromises`] does not contain this rule and so permits more states than a zoned device leaves; `emmclab-crash` applies the
//! rule to the states after its cuts.
//!
//! The device promises nothing else. In particular, plain writes in a cache that is not FIFO reach the flash in any order, and either of
//! two overlapping requests in flight may win.
//!
//! All rules assume that an interrupted program damages no other page, as `EXT_CSD` `WR_REL_SET` [167] = 0x1f and a UFS with
//! `bDataReliability` = 1 state. A device with `cache.lies = "paired_pages"` breaks them for data in the earlier pages of the same word line,
//! whenever it was made durable ([`PairedPageTracker`](crate::PairedPageTracker)).
//!
//! Not modelled: loss of the device's own map, which is assumed to be rebuilt from metadata in the pages; sanitize (a secure erase of all
//! discarded data). An overwritten version is assumed to stay until its successor is programmed.
//!
//! [`DurabilityPromises`] is the current state of the contract, derived from commands and completions without a device.
//! [`Persistence`](crate::persistence::PersistenceTracker) compares it with the flash contents of a simulated device.

mod promises;

use emmclab_settings::InterfaceKind;

use crate::device::Device;

pub use promises::{BrokenPromise, DurabilityOrder, DurabilityPromises, VolatileExtent};

/// Number of the command whose result a sector holds, counted from 1 over all commands; 0 = the sector was never written.
pub type Version = u64;

/// The contents of a sector, and the command that caused them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectorContent {
    /// Data of the write with this number.
    Data(Version),
    /// No data, because the discard or secure erase with this number removed it.
    Nothing(Version),
}

impl SectorContent {
    /// Number of the command that caused the contents.
    pub fn version(self) -> Version {
        match self {
            Self::Data(version) | Self::Nothing(version) => version,
        }
    }
}

/// The parts of the persistence contract that depend on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContractRules {
    /// Whether a plain write is durable on completion (rule 2 of the contract) instead of after a flush (rule 3).
    pub write_through: bool,
    /// Whether the device has a cache that keeps the order of writes (rule 9 of the contract).
    pub fifo: bool,
    /// Interface of the device, which decides whether the rules of an eMMC or of a UFS apply.
    pub interface: InterfaceKind,
    /// Number of sectors in a map unit, at least 1. Discard and secure erase affect whole units (rule 6).
    pub unit_sectors: u32,
}

impl ContractRules {
    /// Derives the contract of a simulated device.
    pub fn of(device: &Device) -> Self {
        Self {
            write_through: device.promises_on_completion(),
            fifo: device.promises_write_order(),
            interface: device.interface(),
            unit_sectors: device.geometry().unit_sectors,
        }
    }
}
