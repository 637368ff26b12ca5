//! The driver above the device.

use emmclab_base::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The host's block layer and MMC driver: the treatment of requests before the device sees them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HostSettings {
    /// Longest request that merging neighbours in the block layer's queue makes; 0 = no merging. Linux allows 512 KB.
    pub merge_max_kb: u32,
    /// Most write requests in one packed command (`EXT_CSD` `MAX_PACKED_WRITES`, eMMC 4.5); 0 = no packing.
    pub packed_writes: u32,
    /// Most read requests in one packed command (`EXT_CSD` `MAX_PACKED_READS`, eMMC 4.5); 0 = no packing.
    pub packed_reads: u32,
    /// Most data in a packed command, its header block not counted.
    pub packed_max_kb: u32,
    /// Time from the arrival of a request until the driver has fetched it. It passes while an earlier command runs, and counts
    /// to neither queue nor service.
    pub fetch_us: f64,
}

impl HostSettings {
    /// The time of fetching.
    pub fn fetch(&self) -> Nanos {
        Nanos((self.fetch_us * 1e3).round() as i64)
    }
}

impl Default for HostSettings {
    fn default() -> Self {
        Self { merge_max_kb: 0, packed_writes: 0, packed_reads: 0, packed_max_kb: 16384, fetch_us: 0.0 }
    }
}
