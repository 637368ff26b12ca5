//! The persistence contract: which data a device may lose when power is lost, and which it must keep.
//!
//! # The contract
//!
//! The clauses C1 to C12 are stated in `python/emmclab/data/contract.toml`, from which `emmclab explain C3` and the site's page "The
//! persistence contract" come. They speak of *versions*: a version of a sector is the result of one command, the data of a write, or no
//! data after a discard. Some notes about the simulated devices:
//!
//! * C3: on an eMMC and an SD card, a flush has no range. On a UFS it may have one, and then it promises nothing about other sectors.
//! * C5, C8 and C9 do not apply to a UFS: commands have tags and complete in any order, which promises no order on the flash.
//! * C10 counts a write in flight as surviving data for C5, C8 and C9. C1 applies to sectors that no command in flight writes.
//! * C12: the order of pages applies to data that leaves the cache, too: FUA and flushes of a range also write all older data.
//!   [`DurabilityPromises`] does not contain this clause and so permits more states than a zoned device leaves; `emmclab-crash` applies
//!   it to the states after its cuts.
//!
//! A device with `cache.lies = "paired_pages"` breaks C11 for data in the earlier pages of the same word line, whenever it was made
//! durable ([`PairedPageTracker`](crate::PairedPageTracker)).
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
    /// Whether a plain write is durable on completion (C2) instead of after a flush (C3).
    pub write_through: bool,
    /// Whether the device has a cache that keeps the order of writes (C9).
    pub fifo: bool,
    /// Interface of the device, which decides whether the rules of an eMMC or of a UFS apply.
    pub interface: InterfaceKind,
    /// Number of sectors in a map unit, at least 1. Discard and secure erase affect whole units (C6).
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
