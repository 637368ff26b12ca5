//! Results of the layers and of the second device.

use std::collections::BTreeMap;

use emmclab_device::Device;
use schemars::JsonSchema;
use serde::Serialize;

use crate::host::HostCounts;
use crate::run_measurement::OperationTotals;
use crate::time_histogram::TimeSummary;

/// The work of a layer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct LayerResult {
    /// Name of the layer.
    pub name: String,
    /// Requests that it held because there was no room: back-pressure.
    pub held_full: u64,
    /// Requests that it held because background work was writing in their place.
    pub held_overlap: u64,
    /// How long it held them in all.
    pub held_ms: f64,
    /// The features that it left out, because the devices do not have what they need.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<&'static str>,
    /// Its own counts.
    #[serde(flatten)]
    pub counters: BTreeMap<&'static str, u64>,
}

/// Response times of flushes, and of writes with a flag that promises durability or an order, above all layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct DurableTimes {
    /// Number of these requests; one with a preflush also flushes the cache.
    #[schemars(extend("label" = "Flushes and synchronous writes", "short" = "Synchronous"))]
    pub requests: u64,
    /// Mean and percentiles, ms.
    #[serde(flatten)]
    pub times: TimeSummary,
}

impl DurableTimes {
    pub(crate) fn new(measured: &OperationTotals) -> Self {
        Self { requests: measured.count, times: OperationTotals::response(&[measured]) }
    }
}

/// The work of the second device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(extend("whole" = true))]
pub struct SecondDevice {
    /// Name of the device.
    pub device: String,
    /// Bytes that layers read from it.
    pub host_bytes_read: u64,
    /// Bytes that they wrote to it.
    pub host_bytes_written: u64,
    /// Pages programmed.
    pub page_programs: u64,
    /// Blocks erased.
    pub block_erases: u64,
    /// Bytes programmed / bytes written to it.
    pub waf: f64,
    /// The counts of its host queue, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostCounts>,
}

impl SecondDevice {
    /// The counts of a device so far.
    pub(crate) fn new(name: String, device: &Device, host: Option<HostCounts>) -> Self {
        let counters = device.counters();
        Self {
            device: name,
            host_bytes_read: counters.host_bytes_read,
            host_bytes_written: counters.host_bytes_written,
            page_programs: counters.all_page_programs(),
            block_erases: counters.block_erases(),
            waf: counters.waf(),
            host,
        }
    }
}
