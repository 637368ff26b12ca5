//! Response, service and waiting times of reads and writes, simulated and recorded, and whether the device kept pace with the trace.

use schemars::JsonSchema;
use serde::Serialize;

use crate::options::{ReplayMode, ReplayOptions};
use crate::run_measurement::{OperationTotals, RecordedTotals, RunMeasurement};
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
    /// Maximum.
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
    /// Mean of reads and writes.
    #[schemars(extend("label" = "Mean response", "short" = "Mean", "digits" = 3, "better" = "lower", "column" = "mean_response_ms"))]
    pub mean_response_ms: f64,
    /// Percentiles of reads and writes together.
    #[serde(flatten)]
    pub percentiles: TimePercentiles,
    /// Times of reads.
    #[schemars(extend("of" = "response of reads", "short" = { "mean_ms": "Reads" }))]
    pub read: TimeSummary,
    /// Times of writes.
    #[schemars(extend("of" = "response of writes", "short" = { "mean_ms": "Writes" }))]
    pub write: TimeSummary,
}

impl ResponseTimeSummary {
    /// The response times of the requests that were measured.
    pub fn new(measure: &RunMeasurement) -> Self {
        let [all, read, write] = by_operation(measure, OperationTotals::response);
        Self { mean_response_ms: all.mean_ms, percentiles: all.into(), read, write }
    }

    /// Returns the times of reads and writes together.
    pub fn all(&self) -> TimeSummary {
        self.percentiles.with_mean(self.mean_response_ms)
    }
}

/// Service times (complete - start) of reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ServiceTimeSummary {
    /// Mean of reads and writes.
    #[schemars(extend("label" = "Mean service", "short" = "Service", "digits" = 3, "better" = "lower", "column" = "mean_service_ms"))]
    pub mean_service_ms: f64,
    /// Percentiles of reads and writes together.
    #[serde(flatten)]
    pub percentiles: TimePercentiles,
    /// Times of reads.
    #[schemars(extend("of" = "service of reads", "short" = {}))]
    pub read: TimeSummary,
    /// Times of writes.
    #[schemars(extend("of" = "service of writes", "short" = {}))]
    pub write: TimeSummary,
}

impl ServiceTimeSummary {
    pub(super) fn new(measure: &RunMeasurement) -> Self {
        let [all, read, write] = by_operation(measure, OperationTotals::service);
        Self { mean_service_ms: all.mean_ms, percentiles: all.into(), read, write }
    }

    /// Returns the times of reads and writes together.
    pub fn all(&self) -> TimeSummary {
        self.percentiles.with_mean(self.mean_service_ms)
    }
}

/// Returns the times of reads and writes together, of reads, and of writes.
fn by_operation(measure: &RunMeasurement, times: fn(&[&OperationTotals]) -> TimeSummary) -> [TimeSummary; 3] {
    let all = measure.timed();
    [&all[..], &all[..1], &all[1..]].map(times)
}

/// Mean of each part of the response time over reads and writes, in ms. The parts add up to the response time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct WaitTimes {
    /// Wait for earlier requests.
    #[schemars(extend("label" = "Mean wait for earlier requests", "short" = "queue", "digits" = 3, "better" = "lower"))]
    pub queue_ms: f64,
    /// Time in the driver of the host, in the controller, and between host and device.
    #[schemars(extend("label" = "Mean time in driver, controller and interface", "short" = "controller", "digits" = 3, "better" = "lower"))]
    pub controller_ms: f64,
    /// Transfers on the flash bus, including waits for it.
    #[schemars(extend("label" = "Mean time on the flash bus", "short" = "bus", "digits" = 3, "better" = "lower"))]
    pub bus_ms: f64,
    /// Time in the flash array.
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
        let [queue_ms, controller_ms, bus_ms, array_ms, gc_ms, wake_up_ms] = measure.waits().map(|ns| ns as f64 / requests / 1e6);
        Self { queue_ms, controller_ms, bus_ms, array_ms, gc_ms, wake_up_ms }
    }
}

/// A requested percentile of the response time.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ResponsePercentileRow {
    /// `read`, `write`, or `all` for both together.
    pub op: &'static str,
    /// Number of the percentile, 0 to 100.
    pub percentile: f64,
    /// Response time (complete - arrival) at this percentile, ms. It is a nearest-rank value, at most 0.1 % too high.
    pub response_ms: f64,
}

impl ResponsePercentileRow {
    /// The requested percentiles (percent, ascending) of each operation that occurs.
    pub fn all(measure: &RunMeasurement, percentiles: &[f64]) -> Vec<Self> {
        let [read, write] = measure.timed();
        let kinds: [(&'static str, &[&OperationTotals]); 3] = [("all", &[read, write]), ("read", &[read]), ("write", &[write])];
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

/// Number of requests by response time, in ranges (16 per power of two).
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ResponseHistogramRow {
    /// `read` or `write`.
    pub op: &'static str,
    /// Upper bound of the response times in the range, ms.
    pub up_to_ms: f64,
    /// Number of requests in the range.
    pub requests: u64,
    /// Percentage of the operation's requests whose response time is at most `up_to_ms`.
    pub cumulative_pct: f64,
}

impl ResponseHistogramRow {
    /// The ranges of reads, then of writes, without empty ranges.
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

/// A recorded and a simulated time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct TimeComparison {
    /// Recorded time; null if the trace contains no times of this kind.
    pub recorded_ms: Option<f64>,
    /// Simulated time; null if the run has no requests of this kind.
    pub simulated_ms: Option<f64>,
    /// Simulated / recorded - 1; null unless arrivals are paced as recorded (open or closed loop, rate 1).
    pub error_pct: Option<f64>,
}

/// A recorded and a simulated share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ShareComparison {
    /// Share in the recording, percent.
    pub recorded_pct: Option<f64>,
    /// Share in the simulation, percent.
    pub simulated_pct: Option<f64>,
    /// Simulated share - recorded share, in percentage points.
    pub error_points: Option<f64>,
}

/// A figure for reads and writes together, for reads, and for writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it")]
pub struct ByOperation<T> {
    /// The figure for reads and writes together.
    pub all: T,
    pub read: T,
    pub write: T,
}

/// Recorded and simulated times of the replayed requests, defined as in the profile of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct RecordedComparison {
    /// Mean response time.
    #[schemars(extend("of" = "mean response (complete - arrival)"))]
    pub response: ByOperation<TimeComparison>,
    /// 99th percentile of the response times.
    #[schemars(extend("of" = "99th percentile of the response"))]
    pub response_p99: ByOperation<TimeComparison>,
    /// Mean service time. If the driver fetches a request while the device executes another one, the wait for the other request is part of
    /// the service time.
    #[schemars(extend("of" = "mean service (complete - start)"))]
    pub service: ByOperation<TimeComparison>,
    /// Share of the requests that arrived when no earlier request was unfinished.
    #[schemars(extend("of" = "reads and writes that arrived when no earlier request was unfinished"))]
    pub no_wait: ByOperation<ShareComparison>,
    /// Recorded reads and writes that arrived within 1 ms after the device became idle; above 25 %, results of open loop are misleading.
    pub dependent_pct: Option<f64>,
}

impl RecordedComparison {
    pub(super) fn new(measure: &RunMeasurement, recorded: &RecordedTotals, options: &ReplayOptions, mode: ReplayMode) -> Self {
        let as_recorded = mode != ReplayMode::BackToBack && options.rate == crate::RateFactor::default();
        let all = measure.timed();
        let kinds = [&all[..], &all[..1], &all[1..]];
        let was = recorded.times();
        let simulated = |i: usize, times: fn(&[&OperationTotals]) -> TimeSummary, of: fn(TimeSummary) -> f64| {
            any(kinds[i]).then(|| of(times(kinds[i])))
        };
        let mean = |i, times| simulated(i, times, |times| times.mean_ms);
        let p99 = |i, times| simulated(i, times, |times| times.p99_ms);
        Self {
            response: of_operations(|i| time(was[i].response_ms, mean(i, OperationTotals::response), as_recorded)),
            response_p99: of_operations(|i| time(was[i].response_p99_ms, p99(i, OperationTotals::response), as_recorded)),
            service: of_operations(|i| time(was[i].service_ms, mean(i, OperationTotals::service), as_recorded)),
            no_wait: of_operations(|i| {
                let simulated_pct = any(kinds[i]).then_some(measure.no_wait_pct()[i]);
                share(was[i].no_wait_pct, simulated_pct, as_recorded)
            }),
            dependent_pct: recorded.dependent_pct(),
        }
    }
}

impl RecordedComparison {
    /// Sets figures to null that depend on which requests waited for each other. Used if the trace's clock is too coarse to show this.
    pub(super) fn withdraw_waits(&mut self) {
        for times in [&mut self.response, &mut self.response_p99] {
            for time in [&mut times.all, &mut times.read, &mut times.write] {
                time.error_pct = None;
            }
        }
        for share in [&mut self.no_wait.all, &mut self.no_wait.read, &mut self.no_wait.write] {
            (share.recorded_pct, share.error_points) = (None, None);
        }
        self.dependent_pct = None;
    }
}

fn of_operations<T>(of: impl Fn(usize) -> T) -> ByOperation<T> {
    ByOperation { all: of(0), read: of(1), write: of(2) }
}

fn any(kinds: &[&OperationTotals]) -> bool {
    kinds.iter().any(|kinds| kinds.count > 0)
}

fn time(recorded_ms: Option<f64>, simulated_ms: Option<f64>, as_recorded: bool) -> TimeComparison {
    let both = recorded_ms.zip(simulated_ms).filter(|(recorded, _)| as_recorded && *recorded > 0.0);
    let error_pct = both.map(|(recorded, simulated)| 100.0 * (simulated / recorded - 1.0));
    TimeComparison { recorded_ms, simulated_ms, error_pct }
}

fn share(recorded_pct: Option<f64>, simulated_pct: Option<f64>, as_recorded: bool) -> ShareComparison {
    let both = recorded_pct.zip(simulated_pct).filter(|_| as_recorded);
    ShareComparison { recorded_pct, simulated_pct, error_points: both.map(|(was, is)| is - was) }
}

/// Whether the device kept pace with the arrivals of an open loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct LoadSummary {
    /// Open loop: time in which the device has unfinished work / time from the first to the last arrival; null in other modes.
    pub offered_pct: Option<f64>,
    /// Time from the last arrival to the last completion.
    pub backlog_s: f64,
    /// Maximum backlog, which is the time from an arrival until all earlier requests are complete.
    pub peak_backlog_s: f64,
    /// Open loop: offered load, in percent, while the maximum backlog built up, that is, since the device was last idle. Null in other
    /// modes and without a backlog.
    pub peak_offered_pct: Option<f64>,
    /// Open loop: whether the device did not keep pace with the arrivals. This is the case if the maximum backlog is longer than ten mean
    /// service times, and also longer than 10 s or 10 % of the time from the first to the last arrival. It is also the case if the backlog
    /// at the last arrival is longer than ten mean service times and the offered load is above 100 %.
    pub overloaded: bool,
}

/// Maximum backlog, in mean service times, of a run that does not count as overloaded. A few requests may always arrive together.
const OVERLOAD_REQUESTS: f64 = 10.0;

/// Maximum backlog of a burst, as a fraction of the time from the first to the last arrival. A burst does not count as overload.
const OVERLOAD_SHARE: f64 = 0.1;

/// Backlog in s above which a run counts as overloaded regardless of the length of the trace: twice the 5 s after which Android offers to
/// end an application.
const OVERLOAD_S: f64 = 10.0;

impl LoadSummary {
    pub(super) fn new(measure: &RunMeasurement, mode: ReplayMode) -> Self {
        let backlog_s = measure.backlog().as_secs_f64();
        let span_s = measure.elapsed().as_secs_f64() - backlog_s;
        let is_offered = mode == ReplayMode::Open && span_s > 0.0;
        let offered = is_offered.then(|| measure.busy.as_secs_f64() / span_s);
        let service_s = OperationTotals::service(&measure.timed()).mean_ms / 1e3;
        let (peak_s, grown_s) =
            (measure.arrival_state.peak.backlog.as_secs_f64(), measure.arrival_state.peak.busy_for.as_secs_f64());
        // If the offered load is above 100 %, requests that are left at the last arrival also count as a backlog.
        let left = backlog_s > OVERLOAD_REQUESTS * service_s && offered.is_some_and(|share| share > 1.0);
        let grew = peak_s > (OVERLOAD_REQUESTS * service_s).max(OVERLOAD_S.min(OVERLOAD_SHARE * span_s));
        Self {
            offered_pct: offered.map(|share| 100.0 * share),
            backlog_s,
            peak_backlog_s: peak_s,
            peak_offered_pct: (is_offered && grown_s > 0.0).then(|| 100.0 * (grown_s + peak_s) / grown_s),
            overloaded: is_offered && (left || grew),
        }
    }
}
