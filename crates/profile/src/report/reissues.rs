//! Suspected re-issues, and the figures that are changed by them.

use schemars::JsonSchema;
use serde::Serialize;

/// Requests that were probably issued a second time, because the driver could not accept them at first.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ReissueSummary {
    /// Suspected re-issues that are still in the trace.
    pub reissued: u64,
    /// Their share of all requests, percent.
    pub reissued_pct: Option<f64>,
    /// Re-issues that were dropped by reading.
    pub dropped: u64,
    /// After an idle time of up to this, at most 5 % of requests are issued again, ms.
    pub awake_up_to_ms: Option<u64>,
    /// After an idle time above this, at least 90 % of requests are issued again, ms; `None` without such a step.
    pub asleep_from_ms: Option<u64>,
    /// Median time from the first issue to the second, ms.
    pub median_until_again_ms: Option<f64>,
    /// Figures that are changed by re-issues, for all requests.
    pub figures: ReissueFigures,
    /// The same without re-issues; `None` if there are none.
    pub figures_without: Option<ReissueFigures>,
}

/// Figures of Tables III and IV that are changed by re-issues.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ReissueFigures {
    /// Reads and writes.
    pub requests: u64,
    /// Bytes read and written, KB.
    pub data_size_kb: f64,
    /// Mean size of a request, KB.
    pub mean_size_kb: Option<f64>,
    /// Writes among requests, percent.
    pub write_requests_pct: Option<f64>,
    /// Requests per second of the duration.
    pub arrival_rate_per_s: Option<f64>,
    /// Requests that start where their predecessor ended, percent.
    pub spatial_locality_pct: Option<f64>,
    /// Requests whose start address has been seen before, percent.
    pub temporal_locality_pct: Option<f64>,
}
