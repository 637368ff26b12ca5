//! Zones of a zoned UFS.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Zones that the host manages (zoned UFS, JESD220-5; ZBC): a zone is written in order from its start, at its write pointer, and reset as
/// a whole. The blocks in SLC mode of `slc.mode` = "region" contain the conventional zones, and data of pages that a flush writes before
/// they are full.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ZoneSettings {
    /// Blocks of each plane that a zone consists of; its size is their capacity. 0 = the device has no zones.
    pub blocks: u32,
    /// Zones that may be open at once: a write to one more closes another that a write has opened. 0 = no limit.
    pub max_open: u32,
    /// Zones that may be open or closed at once, neither empty nor full: a write to one more is refused. 0 = no limit.
    pub max_active: u32,
    /// Zones at the beginning that may be written anywhere, for the host's metadata.
    pub conventional: u32,
    /// Write buffers that the zones share: a write to a zone without one uses that of the zone that was written longest ago, whose data
    /// is programmed before its page is full. 0 = as many as zones.
    pub write_buffers: u32,
}

impl ZoneSettings {
    /// Whether the device has zones.
    pub fn is_zoned(&self) -> bool {
        self.blocks > 0
    }
}
