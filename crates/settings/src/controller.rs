//! The command path and the bus between host and device.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::power::TimeQuantile;

/// The command path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ControllerSettings {
    /// Which page operation is executed first.
    pub scheduling: PageScheduling,
    /// Requests inside the device at once; 1 is an eMMC without a command queue, up to 32 one with it (`EXT_CSD` `CMDQ_DEPTH`,
    /// eMMC 5.1), 0 is no limit. Of a UFS, its tags: up to 32, up to 255 with `interface.queues`.
    pub queue_depth: u32,
    /// Fixed time of a read command before the flash is accessed.
    pub read_overhead_us: f64,
    /// Fixed time of a write command before the flash is accessed.
    pub write_overhead_us: f64,
    /// Time of a KB between host and device, before a write or after a read of the flash.
    pub host_us_per_kb: f64,
    /// Bus mode, which determines the time between host and device instead of `host_us_per_kb`.
    pub bus_mode: BusMode,
    /// Additional time of a reliable write, which keeps the old data until the new data is complete.
    pub reliable_write_us: f64,
    /// Time of a discard in addition to the fixed time of a write command.
    pub discard_us: f64,
    /// Distribution of the additional time of a read, caused by work that a real device does now and then (collection, folding of its
    /// SLC cache) but its model does not. Points in ascending order, the last at 100 %, with straight lines between them; drawn by
    /// `power.seed`.
    pub read_stalls: Vec<TimeQuantile>,
    /// Distribution of the additional time of a write.
    pub write_stalls: Vec<TimeQuantile>,
    /// The data of a packed write is programmed as one stream, so that a page may hold units of several entries; otherwise
    /// each entry fills pages of its own. The standard (eMMC 5.1, 6.6.29) specifies how a pack is transferred, not how it
    /// is stored.
    pub share_packed_pages: bool,
}

/// Order of page operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PageScheduling {
    /// In the order of arrival.
    #[default]
    Fifo,
    /// Reads before writes that have not begun (SSDsim). On a UFS, at most as many commands overtake another as there are tags.
    ReadFirst,
}

/// Data rate of the bus between host and device, eight bits wide (`EXT_CSD` `HS_TIMING` and `BUS_WIDTH`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BusMode {
    /// The rate is set by `host_us_per_kb`.
    #[default]
    Given,
    /// High speed, single data rate at 52 MHz: 52 million bytes a second.
    Hs52,
    /// High speed, double data rate at 52 MHz: 104 million bytes a second.
    Ddr52,
    /// Single data rate at 200 MHz (eMMC 4.5): 200 million bytes a second.
    Hs200,
    /// Double data rate at 200 MHz (eMMC 5.0): 400 million bytes a second.
    Hs400,
}

impl BusMode {
    /// Bytes per second; `None` for [`BusMode::Given`].
    pub const fn bytes_per_s(self) -> Option<u64> {
        match self {
            BusMode::Given => None,
            BusMode::Hs52 => Some(52_000_000),
            BusMode::Ddr52 => Some(104_000_000),
            BusMode::Hs200 => Some(200_000_000),
            BusMode::Hs400 => Some(400_000_000),
        }
    }
}
