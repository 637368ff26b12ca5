//! The structure of the flash, and how much of it the host sees.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Counts of channels, chips, dies, planes and blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GeometrySettings {
    /// Channels (buses) of the device.
    pub channels: u32,
    /// Flash chips on a channel.
    pub chips_per_channel: u32,
    /// Dies in a chip.
    pub dies_per_chip: u32,
    /// Planes in a die.
    pub planes_per_die: u32,
    /// Kinds of blocks in every plane; more than one makes a hybrid-page-size device.
    pub block_groups: Vec<BlockGroup>,
}

impl Default for GeometrySettings {
    fn default() -> Self {
        Self { channels: 1, chips_per_channel: 1, dies_per_chip: 1, planes_per_die: 1, block_groups: Vec::new() }
    }
}

/// Blocks of one page size in every plane, with the times of their cells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BlockGroup {
    /// Page size in KB: 4, 8 or 16.
    pub page_kb: u32,
    /// Blocks of this group in a plane.
    pub blocks: u32,
    /// Pages in a block.
    pub pages_per_block: u32,
    /// Bits in a cell; only named in results, its effect is set by the times below.
    pub cell_mode: CellMode,
    /// Array time of a page read.
    pub read_us: f64,
    /// Array time of a page program.
    pub program_us: f64,
    /// Time of a block erase.
    pub erase_us: f64,
    /// Energy of a page read.
    pub read_uj: f64,
    /// Energy of a page program.
    pub program_uj: f64,
    /// Energy of a block erase.
    pub erase_uj: f64,
    /// Erases that a block endures before it goes bad; 0 = never goes bad.
    pub erase_limit: u32,
    /// Blocks of a plane that are reserved until others go bad.
    pub spare_blocks: u32,
}

impl Default for BlockGroup {
    fn default() -> Self {
        Self {
            page_kb: 4,
            blocks: 0,
            pages_per_block: 0,
            cell_mode: CellMode::Mlc,
            read_us: 0.0,
            program_us: 0.0,
            erase_us: 0.0,
            read_uj: 0.0,
            program_uj: 0.0,
            erase_uj: 0.0,
            erase_limit: 0,
            spare_blocks: 0,
        }
    }
}

/// Bits stored in a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CellMode {
    /// One bit per cell.
    Slc,
    /// Two bits per cell.
    #[default]
    Mlc,
    /// Three bits per cell.
    Tlc,
    /// Four bits per cell.
    Qlc,
}

impl CellMode {
    /// Number of bits in a cell.
    pub const fn bits(self) -> u32 {
        match self {
            Self::Slc => 1,
            Self::Mlc => 2,
            Self::Tlc => 3,
            Self::Qlc => 4,
        }
    }
}

/// The logical capacity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CapacitySettings {
    /// Spare flash as a share of the logical capacity: logical = raw / (1 + share). 0 only without collection.
    pub over_provisioning_pct: f64,
}

impl Default for CapacitySettings {
    fn default() -> Self {
        Self { over_provisioning_pct: 7.0 }
    }
}
