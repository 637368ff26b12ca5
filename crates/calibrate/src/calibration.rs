//! Options and result of a calibration.

use schemars::JsonSchema;
use serde::Serialize;

/// Sizes with fewer held-out requests are left out of the summary of errors.
pub const ENOUGH: usize = 5;

/// Minimum number of requests of an operation that determine its times.
pub const FEW: usize = 50;

/// Options of a calibration.
#[derive(Clone, Debug)]
pub struct CalibrateOptions {
    /// Name of the preset.
    pub name: String,
    /// Origin of the samples, for the comments of the preset.
    pub source: String,
    /// Capacity that the host sees, in GB.
    pub capacity_gb: u32,
    /// Seed of the search and of the resampling.
    pub seed: u64,
}

/// A fitted figure with its error bar: the 5th and 95th percentile of refits to resampled requests. `None` if the samples
/// contain nothing to which it could be fitted.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it")]
pub struct FittedParameter {
    pub name: String,
    pub unit: &'static str,
    pub value: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
}

/// Requests that are no part of the fit of plain reads and writes.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DurabilityRow {
    /// `flush`, `preflush` (the flush before the data of a write), `fua` (a write that is durable on completion) or `discard`.
    pub kind: &'static str,
    /// Number of requests.
    pub requests: usize,
    /// Median time: of a flush or discard from start to completion, of a preflush from start to issue, of a FUA write from issue to
    /// completion.
    pub median_us: f64,
    /// The setting that was fitted to it; `None` if there are fewer than [`ENOUGH`], or the flushes before data were not needed.
    pub setting: Option<&'static str>,
}

/// Requests that took at least twice the time of their operation and size.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CalibrationStallRow {
    /// Operation.
    pub op: &'static str,
    /// Requests of the operation.
    pub requests: usize,
    /// How many of them were stalls.
    pub stalls: usize,
    /// Their median time beyond the predicted one.
    pub median_us: f64,
}

/// Measured and predicted service times of one size, in us; medians.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CalibrationSizeRow {
    /// Operation.
    pub op: &'static str,
    /// Size in KB.
    pub kb: f64,
    /// Number of requests.
    pub requests: usize,
    /// Measured, over all requests.
    pub measured_us: f64,
    /// Predicted by the preset.
    pub predicted_us: f64,
    /// Requests of the held-out half.
    pub held_out_requests: usize,
    /// Measured, over the held-out half.
    pub held_out_measured_us: Option<f64>,
    /// Predicted for the held-out half by a fit to the other half.
    pub held_out_predicted_us: Option<f64>,
    /// `held_out_predicted_us / held_out_measured_us - 1`, in percent.
    pub held_out_error_pct: Option<f64>,
}

/// The result of a calibration.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Calibration {
    /// The preset, commented.
    pub toml: String,
    /// Page sizes in KB, largest first.
    pub page_kb: Vec<u32>,
    /// Flash ways that work in parallel.
    pub units: u32,
    /// Fitted figures with their error bars.
    pub figures: Vec<FittedParameter>,
    /// Measured and predicted by operation and size.
    pub sizes: Vec<CalibrationSizeRow>,
    /// Median of the absolute error over the held-out requests, in percent, each against the prediction for its operation
    /// and size.
    pub held_out_request_error_pct: f64,
    /// Median of the absolute held-out error over sizes of at least [`ENOUGH`] held-out requests, in percent.
    pub held_out_median_error_pct: f64,
    /// Share of the held-out requests whose size is predicted within 10 %, in percent.
    pub held_out_within_10_pct: f64,
    /// Requests used.
    pub requests: usize,
    /// Requests left out because they waited for the device to wake up, after an idle gap.
    pub woken: usize,
    /// Flushes, durable writes and discards.
    pub durability: Vec<DurabilityRow>,
    /// Stalls of reads and writes, if there are enough requests and stalls.
    pub stalls: Vec<CalibrationStallRow>,
    /// Number of requests that the device serves at once.
    pub queue_depth: usize,
    /// Requests whose service began while that of others ran, from which `queue_depth` is derived; 0 if it is 1.
    pub overlapping: usize,
    /// Sentences on what the samples do not determine, and what was assumed instead.
    pub warnings: Vec<String>,
    /// Packed commands left out; 0 unless `skip_packed`.
    pub packed: usize,
}
