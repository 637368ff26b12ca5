//! The persistence contract: which data a device may lose with its power, and which not.
//!
//! # The contract
//!
//! A *version* of a sector is what one command put there: the data of a write, or nothing by a discard. Power may go at any moment
//! `t`. After it, a sector holds one version, and the device promises:
//!
//! 1. *Nothing from nowhere.* It holds a version whose command came before `t`, or nothing if none came.
//! 2. *Without a cache*, a write that is complete is durable: its version or a newer one is there. Where a write counts as
//!    complete when its data is transferred (`timing.write_complete`), completion promises nothing, as with a cache.
//! 3. *With a cache*, completion of a plain write promises nothing. Its version is durable when a flush that came at its
//!    completion or later is complete (`EXT_CSD` `FLUSH_CACHE` [32] bit 0). A write with PREFLUSH is such a flush for
//!    what was complete when it came.
//! 4. *Reliable write* (CMD23 bit 31) and *forced programming* (CMD23 bit 24) go past the cache: their version is durable
//!    when they are complete. A reliable write that is cut leaves each sector old or new, never in between (6.6.8.1).
//! 5. *Barrier* (eMMC 5.1, JESD84-B51, 6.6.37; `EXT_CSD` `FLUSH_CACHE` bit 1): if data written after a barrier is there, then all
//!    that was complete before the barrier is durable.
//! 6. *Discard* takes every promise about the whole map units in its range back from its arrival on: each sector may hold nothing or
//!    any older version. *Secure erase* does the same, and once it is complete no older version returns: each sector holds
//!    nothing or a newer version. A unit that either covers in part keeps its promises.
//! 7. *Power off* in good order is a flush.
//! 8. *Packed write* (6.6.29): without a cache its entries become durable in their order. If anything of an entry is there,
//!    all entries before it are; a cut may lose a tail, never what stands in front of it. To keep this where planes finish
//!    out of order, a page of a pack counts after a cut only where all pages of the pack before it do.
//! 9. *FIFO cache* (`cache.policy = "fifo"`; `EXT_CSD` `CACHE_FLUSH_POLICY` [240] bit 0): what is left is a prefix of the complete
//!    writes, as if a barrier stood before each. If any data of a write is there, then all that was complete when it came is
//!    durable; reliable writes and forced programming are no exception. A barrier says nothing more. To keep this
//!    where planes finish out of order, a page counts after a cut only where all pages before it do.
//!
//! 10. *In flight.* A write that is not complete at `t` may leave undefined data, neither old nor new, in any of its sectors,
//!     whatever stood there, and counts as there for rules 5, 8 and 9; reliable writes are the exception. The standard promises of
//!     reliable writes alone that their target "never contains undefined data"; of others, that data written before is at risk or
//!     not (`EXT_CSD` `WR_REL_SET` [167]). A simulated device leaves each sector old or new, as a page is programmed whole or not
//!     at all; sectors that no command in flight writes keep rule 1.
//!
//! # A UFS
//!
//! The rules above hold for a UFS (JESD220; SBC-3) with these in place of what it does not have:
//!
//! * Rule 3: its flush is SYNCHRONIZE CACHE, of everything or of a range of sectors; that of a range makes durable what was complete in
//!   its range, sector by sector, and says nothing of the rest.
//! * Rule 4: FUA takes the place of reliable writes: its version is durable when it is complete. It is not atomic: while it is in
//!   flight it may leave undefined data as any other write (rule 10).
//! * Rules 5, 8 and 9 do not apply: there is no barrier, no packed command, and no promise that the cache keeps an order. Commands have
//!   tags and complete in any order; the order of completions promises no order on the flash.
//! * Rule 6: its discard is UNMAP.
//!
//! # Zones
//!
//! A zoned UFS promises more of each zone that is written in order: what is left of what was written since its last reset is a beginning
//! of it, and after a cut its write pointer stands right after that, nowhere before what the other rules make durable. A zone that was
//! finished stays full. None is open after a cut. A reset is a discard (rule 6). To keep this where planes finish out of order, pages
//! count after a cut only in their order, over all zones, and so does data that leaves the cache: FUA and flushes of a range take all
//! that is older along. [`Promises`] do not know this rule, so that they allow more than a zoned device leaves: `emmclab-crash` adds it to
//! the states of its cuts.
//!
//! Nothing else is promised. In particular, plain writes in a cache that is not FIFO reach the flash in any order, and one of two
//! overlapping requests in flight may win.
//!
//! Not modelled: damage to pages written before in the same cells (paired pages), and the device's own map, which is
//! taken to be rebuilt from what the pages say; sanitize (a secure erase of everything discarded). An
//! overwritten version is taken to stay until its successor is programmed.
//!
//! [`Promises`] is the contract at the present, made from commands and completions alone; it needs no device. What the flash of a
//! simulated device holds is held against it by [`Persistence`](crate::persistence::Persistence).

mod orders;
mod promises;

use crate::device::Device;
use emmclab_settings::InterfaceKind;

pub use orders::{Broken, Order};
pub use promises::{Extent, Promises};

/// Number of the command that a sector holds the data of, from 1 over all commands; 0 = nothing was ever written there.
pub type Version = u64;

/// The contents of a sector, by the command that put them there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Data of this write.
    Data(Version),
    /// Nothing, by this discard or secure erase.
    Nothing(Version),
}

impl Content {
    /// The version.
    pub fn version(self) -> Version {
        match self {
            Self::Data(version) | Self::Nothing(version) => version,
        }
    }
}

/// The parts of the contract that depend on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Whether completion of a plain write is a promise (rule 2), or only a flush (rule 3).
    pub write_through: bool,
    /// Whether the device has a cache that keeps the order of writes (rule 9).
    pub fifo: bool,
    /// Whose rules are to be taken: those of an eMMC or of a UFS.
    pub interface: InterfaceKind,
    /// Sectors of a map unit, at least 1: discard and secure erase take whole ones (rule 6).
    pub unit_sectors: u32,
}

impl Rules {
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
