//! Events of the map: lookups, and merges of log blocks.

use crate::ids::Lpn;

/// A map entry, or the page map of a logical block, was needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapLookedUp {
    /// Whether it was found in memory.
    pub hit: bool,
}

/// All map entries of a request, or of data that leaves the write buffer, were looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapConsulted {
    /// Whether a page of the map had to be read from the flash.
    pub missed: bool,
}

/// The host of a UFS sent the map entry of a unit along with a read (HPB).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapHinted {
    /// The unit.
    pub lpn: Lpn,
}

/// Map entries were loaded into memory along with one that was needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapPrefetched {
    /// Number of entries.
    pub count: u32,
}

/// A map entry pointed to another page than that of the unit, so that a page was read in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapMispredicted {
    /// The unit.
    pub lpn: Lpn,
}

/// The kinds of log-block merges (Kim et al. 2002, section III).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeKind {
    /// The log block becomes the data block as it is.
    Switch,
    /// The log block becomes the data block after the rest of the data has been copied to it.
    Partial,
    /// Everything is copied to a fresh block.
    Full,
}

/// Log blocks were merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogMerged {
    /// The kind of the merge.
    pub kind: MergeKind,
}
