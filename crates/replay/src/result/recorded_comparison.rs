//! Recorded and simulated, and whether the device kept up with the trace.

use schemars::JsonSchema;
use serde::Serialize;

use crate::options::{ReplayMode, ReplayOptions};
use crate::run_measurement::{OperationTotals, RecordedTotals, RunMeasurement};
use crate::time_histogram::TimeSummary;

/// A time beside the recorded one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct TimeComparison {
    /// As recorded; null if the trace has no such times.
    pub recorded_ms: Option<f64>,
    /// As simulated; null without such requests.
    pub simulated_ms: Option<f64>,
    /// Simulated / recorded - 1; null unless paced as recorded (open or closed loop, rate 1).
    pub error_pct: Option<f64>,
}

/// A share beside the recorded one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ShareComparison {
    /// As recorded.
    pub recorded_pct: Option<f64>,
    /// As simulated.
    pub simulated_pct: Option<f64>,
    /// Difference, simulated - recorded.
    pub error_points: Option<f64>,
}

/// A figure of reads and writes together, of reads, and of writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it")]
pub struct ByOperation<T> {
    /// Reads and writes together.
    pub all: T,
    pub read: T,
    pub write: T,
}

/// Recorded and simulated: the requests that were driven, by the definitions of the profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct RecordedComparison {
    /// Mean response time.
    #[schemars(extend("of" = "mean response (complete - arrival)"))]
    pub response: ByOperation<TimeComparison>,
    /// 99th percentile of the response times.
    #[schemars(extend("of" = "99th percentile of the response"))]
    pub response_p99: ByOperation<TimeComparison>,
    /// Mean service time. A driver that fetches a request while another runs counts that wait as service.
    #[schemars(extend("of" = "mean service (complete - start)"))]
    pub service: ByOperation<TimeComparison>,
    /// Share of requests that found nothing unfinished.
    #[schemars(extend("of" = "reads and writes that arrived when no earlier request was unfinished"))]
    pub no_wait: ByOperation<ShareComparison>,
    /// Recorded reads and writes that arrived within 1 ms after the device became idle; above 25 %, results of open loop are misleading.
    pub dependent_pct: Option<f64>,
}

impl RecordedComparison {
    pub(super) fn new(
        measure: &RunMeasurement,
        recorded: &RecordedTotals,
        options: &ReplayOptions,
        mode: ReplayMode,
    ) -> Self {
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
            response: by_operation(|i| time(was[i].response_ms, mean(i, OperationTotals::response), as_recorded)),
            response_p99: by_operation(|i| {
                time(was[i].response_p99_ms, p99(i, OperationTotals::response), as_recorded)
            }),
            service: by_operation(|i| time(was[i].service_ms, mean(i, OperationTotals::service), as_recorded)),
            no_wait: by_operation(|i| {
                let simulated_pct = any(kinds[i]).then_some(measure.no_wait_pct()[i]);
                share(was[i].no_wait_pct, simulated_pct, as_recorded)
            }),
            dependent_pct: recorded.dependent_pct(),
        }
    }
}

impl RecordedComparison {
    /// Withdraws which requests waited for each other, as recorded, and errors that contain waits which may not have been.
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

fn by_operation<T>(of: impl Fn(usize) -> T) -> ByOperation<T> {
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

/// Whether the device kept up with the arrivals of an open loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct LoadSummary {
    /// Open loop: time in which the device has work over the time in which requests arrive; null in other modes.
    pub offered_pct: Option<f64>,
    /// Last arrival to last completion.
    pub backlog_s: f64,
    /// Largest backlog: the longest time from an arrival until all earlier requests were complete.
    pub peak_backlog_s: f64,
    /// Open loop: offered load between the last time that the device was idle and the largest backlog; null in other modes and without a
    /// backlog.
    pub peak_offered_pct: Option<f64>,
    /// Open loop: whether the device did not keep up. The peak backlog is longer than ten mean service times, and longer than 10 s or 10
    /// % of the time in which requests arrive; or a backlog of more than ten mean service times is left at the last arrival, with an
    /// offered load above 100 %.
    pub overloaded: bool,
}

/// Backlog, in mean service times, up to which a run does not count as overloaded: a few requests that arrive together.
const OVERLOAD_REQUESTS: f64 = 10.0;

/// Backlog as a share of the time in which requests arrive up to which it is that of a burst.
const OVERLOAD_SHARE: f64 = 0.1;

/// Backlog in s above which it is overload however long the trace is: twice the 5 s after which Android offers to end an application.
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
        // If the offered load is above 100 %, the requests that are left at the last arrival count as a backlog, too.
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
