//! Events of the map: what was looked up in it, and log blocks that were merged.

use crate::ids::Lpn;

/// A map entry, or the page map of a logical block, was needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapLookedUp {
    /// Whether it was in memory.
    pub hit: bool,
}

/// All map entries of a request, or of data that leaves the write buffer, were looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapConsulted {
    /// Whether a page of the map had to be read from the flash.
    pub missed: bool,
}

/// The host of a UFS brought the map entry of a unit along with a read (HPB).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapHinted {
    /// The unit.
    pub lpn: Lpn,
}

/// Map entries came into memory along with one that was needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapPrefetched {
    /// Number of entries.
    pub count: u32,
}

/// The map led to another page than that of the unit, which was read in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapMispredicted {
    /// The unit.
    pub lpn: Lpn,
}

/// The kinds of log-block merges (Kim et al. 2002, section III).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// The log block becomes the data block as it is.
    Switch,
    /// It does so after the rest of the data has been copied to it.
    Partial,
    /// Everything is copied to a fresh block.
    Full,
}

/// Log blocks were merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogMerged {
    /// The kind of the merge.
    pub kind: Merge,
}
