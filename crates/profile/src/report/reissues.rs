//! Suspected re-issues, and the figures that they change.

use serde::Serialize;

/// Requests that are suspected to be issued a second time, because the driver could not take them at first.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Reissues {
    /// Suspected re-issues that are left in the trace.
    pub reissued: u64,
    /// Their share of all requests, percent.
    pub reissued_pct: Option<f64>,
    /// Re-issues that reading dropped.
    pub dropped: u64,
    /// After up to this time without requests at most 5 % of requests are issued again, ms.
    pub awake_up_to_ms: Option<u64>,
    /// After more than this time without requests at least 90 % are, ms; `None` without such a step.
    pub asleep_from_ms: Option<u64>,
    /// Time from the first issue to the second, median, ms.
    pub median_until_again_ms: Option<f64>,
    /// Figures that re-issues change, of all requests.
    pub figures: ReissueFigures,
    /// The same without re-issues; `None` if there are none.
    pub figures_without: Option<ReissueFigures>,
}

/// Figures that re-issues change; those of Tables III and IV.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ReissueFigures {
    /// Reads and writes.
    pub requests: u64,
    /// Bytes read and written, KB.
    pub data_size_kb: f64,
    /// Mean bytes of a request, KB.
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
