//! What goes into a calibration beside the samples, and what comes out.

use serde::Serialize;

/// Fewer held-out requests than this give no error of their own.
pub const ENOUGH: usize = 5;

/// How to calibrate.
#[derive(Clone, Debug)]
pub struct CalibrateOptions {
    /// Name of the preset.
    pub name: String,
    /// Where the samples come from, for its comments.
    pub source: String,
    /// Capacity that the host sees, in GB.
    pub capacity_gb: u32,
    /// Seed of the search and of the resampling.
    pub seed: u64,
}

/// A fitted figure with its error bar: the 5th and 95th percentile of refits to resampled requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Figure {
    pub name: String,
    pub unit: &'static str,
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// Measured and predicted service times of one size, in us; medians.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SizeRow {
    /// What the requests do.
    pub op: &'static str,
    /// Their size.
    pub kb: f64,
    /// How many there are.
    pub requests: usize,
    /// Measured.
    pub measured_us: f64,
    /// By the preset.
    pub predicted_us: f64,
    /// Of the half that was not fitted to: how many, measured, and predicted by a fit to the other half.
    pub held_out_requests: usize,
    /// Measured there.
    pub held_out_measured_us: Option<f64>,
    /// Predicted for it.
    pub held_out_predicted_us: Option<f64>,
    /// Predicted / measured - 1, in percent.
    pub held_out_error_pct: Option<f64>,
}

/// What calibration found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// The preset, commented.
    pub toml: String,
    /// Page sizes in KB, largest first.
    pub page_kb: Vec<u32>,
    /// Flash units that work at once.
    pub units: u32,
    /// The figures.
    pub figures: Vec<Figure>,
    /// Measured and predicted by operation and size.
    pub sizes: Vec<SizeRow>,
    /// Median over the held-out requests of the size of the error, in percent: each against the prediction for its
    /// operation and size.
    pub held_out_request_error_pct: f64,
    /// Median over sizes (of at least [`ENOUGH`] held-out requests) of the size of the held-out error, in percent.
    pub held_out_median_error_pct: f64,
    /// Held-out requests of sizes that were met within 10 %, in percent.
    pub held_out_within_10_pct: f64,
    /// Requests used, and those left out because they waited for the device to wake up.
    pub requests: usize,
    /// See `requests`.
    pub woken: usize,
    /// Packed commands that were left out, where that was asked for.
    pub packed: usize,
}
