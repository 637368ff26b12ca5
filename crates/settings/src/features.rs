//! Capabilities of a device beyond plain reads and writes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Optional functions, as the `EXT_CSD` register states them (JESD84-B51, 7.4). The cache and its order are settings of `cache`,
/// the command queue is one of `controller`. If a function is missing, the device uses a flush to serve a command that requests it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FeatureSettings {
    /// Reliable writes of any length (`EXT_CSD` `WR_REL_PARAM` [166] bit 2, `EN_REL_WR`). Without them, such a write is a plain
    /// one and a flush.
    pub reliable_write: bool,
    /// Cache barriers (`EXT_CSD` `BARRIER_SUPPORT` [486], eMMC 5.1), if there is a cache. Without them, a barrier is a flush.
    pub barrier: bool,
    /// Maximum number of entries of a packed write (`EXT_CSD` `MAX_PACKED_WRITES` [500], eMMC 4.5); 0 = not supported.
    pub packed_writes: u32,
    /// Maximum number of entries of a packed read (`EXT_CSD` `MAX_PACKED_READS` [501], eMMC 4.5); 0 = not supported.
    pub packed_reads: u32,
}

/// Entries that the header block of a packed command has room for.
pub const MOST_PACKED: u32 = 63;

impl Default for FeatureSettings {
    fn default() -> Self {
        Self { reliable_write: true, barrier: true, packed_writes: MOST_PACKED, packed_reads: MOST_PACKED }
    }
}
