//! Response, service and waiting times of reads and writes.

use schemars::JsonSchema;
use serde::Serialize;

use crate::run_measurement::{OperationTotals, RunMeasurement};
use crate::time_histogram::TimeSummary;

/// Percentiles, in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct TimePercentiles {
    /// Median.
    #[schemars(extend("label" = "Median {of}", "short" = "p50", "digits" = 3, "better" = "lower"))]
    pub p50_ms: f64,
    /// 90th percentile.
    #[schemars(extend("label" = "p90 {of}", "short" = "p90", "digits" = 3, "better" = "lower"))]
    pub p90_ms: f64,
    /// 99th percentile.
    #[schemars(extend("label" = "p99 {of}", "short" = "p99", "digits" = 3, "better" = "lower"))]
    pub p99_ms: f64,
    /// 99.9th percentile.
    #[schemars(extend("label" = "p99.9 {of}", "short" = "p99.9", "digits" = 3, "better" = "lower"))]
    pub p999_ms: f64,
    /// Longest.
    #[schemars(extend("label" = "Longest {of}", "short" = "Longest", "digits" = 3, "better" = "lower"))]
    pub max_ms: f64,
}

impl From<TimeSummary> for TimePercentiles {
    fn from(TimeSummary { mean_ms: _, p50_ms, p90_ms, p99_ms, p999_ms, max_ms }: TimeSummary) -> Self {
        Self { p50_ms, p90_ms, p99_ms, p999_ms, max_ms }
    }
}

impl TimePercentiles {
    fn with_mean(self, mean_ms: f64) -> TimeSummary {
        let Self { p50_ms, p90_ms, p99_ms, p999_ms, max_ms } = self;
        TimeSummary { mean_ms, p50_ms, p90_ms, p99_ms, p999_ms, max_ms }
    }
}

/// Response times (complete - arrival) of reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ResponseTimeSummary {
    /// Mean.
    #[schemars(extend("label" = "Mean response", "short" = "Mean", "digits" = 3, "better" = "lower", "column" = "mean_response_ms"))]
    pub mean_response_ms: f64,
    /// Percentiles of reads and writes together.
    #[serde(flatten)]
    pub percentiles: TimePercentiles,
    /// Reads alone.
    #[schemars(extend("of" = "response of reads", "short" = { "mean_ms": "Reads" }))]
    pub read: TimeSummary,
    /// Writes alone.
    #[schemars(extend("of" = "response of writes", "short" = { "mean_ms": "Writes" }))]
    pub write: TimeSummary,
}

impl ResponseTimeSummary {
    pub(super) fn new(measure: &RunMeasurement) -> Self {
        let [all, read, write] = by_operation(measure, OperationTotals::response);
        Self { mean_response_ms: all.mean_ms, percentiles: all.into(), read, write }
    }

    /// Reads and writes together.
    pub fn all(&self) -> TimeSummary {
        self.percentiles.with_mean(self.mean_response_ms)
    }
}

/// Service times (complete - start) of reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ServiceTimeSummary {
    /// Mean.
    #[schemars(extend("label" = "Mean service", "short" = "Service", "digits" = 3, "better" = "lower", "column" = "mean_service_ms"))]
    pub mean_service_ms: f64,
    /// Percentiles of reads and writes together.
    #[serde(flatten)]
    pub percentiles: TimePercentiles,
    /// Reads alone.
    #[schemars(extend("of" = "service of reads", "short" = {}))]
    pub read: TimeSummary,
    /// Writes alone.
    #[schemars(extend("of" = "service of writes", "short" = {}))]
    pub write: TimeSummary,
}

impl ServiceTimeSummary {
    pub(super) fn new(measure: &RunMeasurement) -> Self {
        let [all, read, write] = by_operation(measure, OperationTotals::service);
        Self { mean_service_ms: all.mean_ms, percentiles: all.into(), read, write }
    }

    /// Reads and writes together.
    pub fn all(&self) -> TimeSummary {
        self.percentiles.with_mean(self.mean_service_ms)
    }
}

/// Times of reads and writes together, of reads, and of writes.
fn by_operation(measure: &RunMeasurement, times: fn(&[&OperationTotals]) -> TimeSummary) -> [TimeSummary; 3] {
    let all = measure.timed();
    [&all[..], &all[..1], &all[1..]].map(times)
}

/// Mean of each part of the response time over reads and writes, in ms; the parts add up to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct WaitTimes {
    /// Wait for earlier requests.
    #[schemars(extend("label" = "Mean wait for earlier requests", "short" = "queue", "digits" = 3, "better" = "lower"))]
    pub queue_ms: f64,
    /// In the host's driver, in the controller and between host and device.
    #[schemars(extend("label" = "Mean time in driver, controller and interface", "short" = "controller", "digits" = 3, "better" = "lower"))]
    pub controller_ms: f64,
    /// Transfers on the flash bus, and waiting for it.
    #[schemars(extend("label" = "Mean time on the flash bus", "short" = "bus", "digits" = 3, "better" = "lower"))]
    pub bus_ms: f64,
    /// In the flash array.
    #[schemars(extend("label" = "Mean time in the flash array", "short" = "array", "digits" = 3, "better" = "lower"))]
    pub array_ms: f64,
    /// Wait for garbage collection.
    #[schemars(extend("label" = "Mean wait for garbage collection", "short" = "gc", "digits" = 3, "better" = "lower"))]
    pub gc_ms: f64,
    /// Wait for the device to wake up.
    #[schemars(extend("label" = "Mean wait for wake-up", "short" = "wake-up", "digits" = 3, "better" = "lower"))]
    pub wake_up_ms: f64,
}

impl WaitTimes {
    pub(super) fn new(measure: &RunMeasurement) -> Self {
        let [read, write] = measure.timed();
        let requests = (read.count + write.count).max(1) as f64;
        let [queue_ms, controller_ms, bus_ms, array_ms, gc_ms, wake_up_ms] =
            measure.waits().map(|ns| ns as f64 / requests / 1e6);
        Self { queue_ms, controller_ms, bus_ms, array_ms, gc_ms, wake_up_ms }
    }
}

/// A percentile of the response time that was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ResponsePercentileRow {
    /// `read`, `write`, or `all` for both together.
    pub op: &'static str,
    /// Which, percent.
    pub percentile: f64,
    /// Complete - arrival, ms; nearest-rank, at most 0.1 % too high.
    pub response_ms: f64,
}

impl ResponsePercentileRow {
    /// These percentiles (percent, ascending) of each operation that occurs.
    pub(super) fn all(measure: &RunMeasurement, percentiles: &[f64]) -> Vec<Self> {
        let [read, write] = measure.timed();
        let kinds: [(&'static str, &[&OperationTotals]); 3] =
            [("all", &[read, write]), ("read", &[read]), ("write", &[write])];
        let mut rows = Vec::new();
        for (op, kinds) in kinds {
            let times = OperationTotals::response_percentiles(kinds, percentiles).unwrap_or_default();
            rows.extend(percentiles.iter().zip(times).map(|(percentile, response_ms)| Self {
                op,
                percentile: *percentile,
                response_ms,
            }));
        }
        rows
    }
}

/// Requests by response time, in ranges of which 16 make a power of two.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ResponseHistogramRow {
    /// `read` or `write`.
    pub op: &'static str,
    /// Response times up to this, ms.
    pub up_to_ms: f64,
    /// Requests in the range.
    pub requests: u64,
    /// Share of the operation's requests up to here, percent.
    pub cumulative_pct: f64,
}

impl ResponseHistogramRow {
    /// Of reads, then of writes; ranges without a request are left out.
    pub(super) fn all(measure: &RunMeasurement) -> Vec<Self> {
        let mut rows = Vec::new();
        for (op, kinds) in ["read", "write"].into_iter().zip(measure.timed()) {
            let mut so_far = 0;
            rows.extend(kinds.response_ranges().map(|(up_to, requests)| {
                so_far += requests;
                let cumulative_pct = 100.0 * so_far as f64 / kinds.count as f64;
                Self { op, up_to_ms: up_to as f64 / 1e6, requests, cumulative_pct }
            }));
        }
        rows
    }
}
