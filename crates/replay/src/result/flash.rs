//! Flash operations, write amplification and space.

use emmclab_device::{Device, DeviceCounters, OperationCause};
use emmclab_trace::Nanos;
use schemars::JsonSchema;
use serde::Serialize;

/// Use of the flash space that host data took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct SpaceUse {
    /// Bytes the host wrote / flash bytes that they took.
    #[schemars(extend("label" = "Space utilisation", "short" = "Space util.", "digits" = 4, "better" = "higher", "column" = "space_utilisation"))]
    pub space_utilisation: f64,
    /// Utilisation - 1, as in Figure 9 of IISWC 2015.
    pub gain_difference: f64,
    /// `emmclab compare` only: utilisation over that of the first device - 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gain_ratio: Option<f64>,
}

impl SpaceUse {
    pub(super) fn new(counters: &DeviceCounters) -> Self {
        let space_utilisation = counters.space_utilisation();
        Self { space_utilisation, gain_difference: space_utilisation - 1.0, gain_ratio: None }
    }
}

/// Bytes programmed over bytes the host wrote: all of them, and by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct WriteAmplification {
    /// All causes together.
    #[schemars(extend("label" = "Write amplification", "short" = "WAF", "digits" = 3, "better" = "lower", "column" = "waf"))]
    pub waf: f64,
    /// Host data, including the padding of pages.
    pub host: f64,
    /// Pages moved by garbage collection.
    pub gc: f64,
    /// Pages moved by wear levelling.
    pub wear: f64,
    /// Pages of a map on the flash.
    pub map: f64,
}

impl WriteAmplification {
    pub(super) fn new(counters: &DeviceCounters) -> Self {
        Self {
            waf: counters.waf(),
            host: counters.waf_of(OperationCause::Host),
            gc: counters.waf_of(OperationCause::Gc),
            wear: counters.waf_of(OperationCause::Wear),
            map: counters.waf_of(OperationCause::Map),
        }
    }
}

/// Page operations, in all and by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct PageOperations {
    /// In all.
    #[schemars(extend("label" = "{of}", "better" = "lower"))]
    pub total: u64,
    /// For host data.
    #[schemars(extend("label" = "{of} for the host"))]
    pub host: u64,
    /// For writes that cover a map unit (in block-mapped schemes a page) in part; a program of such a write counts as one for host data.
    #[schemars(extend("label" = "{of} of partial writes"))]
    pub read_modify_write: u64,
    /// For garbage collection and log-block merges.
    #[schemars(extend("label" = "{of} of garbage collection"))]
    pub gc: u64,
    /// For wear levelling.
    #[schemars(extend("label" = "{of} of wear levelling"))]
    pub wear: u64,
    /// For a map on the flash.
    #[schemars(extend("label" = "{of} of the map"))]
    pub map: u64,
}

impl PageOperations {
    fn new(pages: &[u64]) -> Self {
        Self {
            total: pages.iter().sum(),
            host: pages[OperationCause::Host as usize],
            read_modify_write: pages[OperationCause::ReadModifyWrite as usize],
            gc: pages[OperationCause::Gc as usize],
            wear: pages[OperationCause::Wear as usize],
            map: pages[OperationCause::Map as usize],
        }
    }
}

/// Operations of the flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct FlashOperations {
    /// Pages read.
    #[schemars(extend("of" = "Page reads"))]
    pub page_reads: PageOperations,
    /// Pages programmed.
    #[schemars(extend("of" = "Page programs"))]
    pub page_programs: PageOperations,
    /// Blocks erased.
    #[schemars(extend("label" = "Block erases", "short" = "Erases", "better" = "lower"))]
    pub block_erases: u64,
}

impl FlashOperations {
    pub(super) fn new(counters: &DeviceCounters) -> Self {
        Self {
            page_reads: PageOperations::new(&counters.page_reads),
            page_programs: PageOperations::new(&counters.page_programs),
            block_erases: counters.block_erases(),
        }
    }

    /// Pages read and programmed.
    pub fn page_operations(&self) -> u64 {
        self.page_reads.total + self.page_programs.total
    }
}

/// Share of the simulated time in which each part was busy, in percent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Utilisation {
    /// By channel.
    pub channels_pct: Vec<f64>,
    /// By die.
    pub dies_pct: Vec<f64>,
    /// By plane.
    pub planes_pct: Vec<f64>,
}

impl Utilisation {
    pub(super) fn new(device: &Device, elapsed: Nanos) -> Self {
        let load = device.load();
        let share = |busy: &[u64]| {
            let elapsed = elapsed.0.max(1) as f64;
            busy.iter().map(|busy| 100.0 * *busy as f64 / elapsed).collect()
        };
        Self { channels_pct: share(&load.channels), dies_pct: share(&load.dies), planes_pct: share(&load.planes) }
    }
}
