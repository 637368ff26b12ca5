//! The status of a running live device, and the requests that it rejected, counted by the violated rule.

use std::collections::BTreeMap;

use emmclab_base::{Error, ErrorClass, Nanos, Op, Result, SECTOR_BYTES};
use emmclab_device::{RequestCompleted, SettingChange};
use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::Serialize;

/// Longest time in the histograms, in ns: one hour.
const LONGEST: u64 = 3_600_000_000_000;

/// A histogram of times up to an hour, with a precision of 0.8 %.
fn times() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LONGEST, 2).map_err(|error| Error::new(ErrorClass::Config, error.to_string()))
}

/// Returns a percentile of a histogram of times, converted from ns to us; `None` if the histogram is empty.
fn us_at(times: &Histogram<u64>, percentile: f64) -> Option<f64> {
    (!times.is_empty()).then(|| times.value_at_percentile(percentile) as f64 / 1000.0)
}

/// The status of a live device: totals, and figures for the interval since the last call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct LiveStatus {
    /// Pace of the clock: `real`, `free`, or `x` and a factor.
    pub clock: String,
    /// Simulated time so far, s.
    pub simulated_s: f64,
    /// Whether the device has power.
    pub powered: bool,
    /// Number of power cuts so far.
    pub cuts: u64,
    /// Requests completed so far.
    pub requests: u64,
    /// Bytes read so far.
    pub bytes_read: u64,
    /// Bytes written so far.
    pub bytes_written: u64,
    /// Requests that failed so far.
    pub failed: u64,
    /// Requests in progress.
    pub open: usize,
    /// Simulated time since the last call, s.
    pub interval_s: f64,
    /// Requests completed since the last call.
    pub interval_requests: u64,
    /// Bytes read and written since the last call.
    pub interval_bytes: u64,
    /// Median response time of the requests of the interval, us; `None` without requests.
    pub response_p50_us: Option<f64>,
    /// 99th percentile of the response time of the requests of the interval, us; `None` without requests.
    pub response_p99_us: Option<f64>,
    /// Written data that is not durable yet, bytes.
    pub volatile_bytes: u64,
    /// Write amplification so far; `None` before the first write.
    pub waf: Option<f64>,
    /// Free blocks of the flash.
    pub free_blocks: u64,
    /// Garbage collections so far.
    pub collections: u64,
    /// Erases so far.
    pub erases: u64,
    /// Wake-ups from sleep so far.
    pub wake_ups: u64,
    /// Median delay of completions after their due time, us of host time; `None` on a free clock (`free` in `clock`).
    pub late_p50_us: Option<f64>,
    /// 99th percentile of the delay of completions after their due time, us of host time.
    pub late_p99_us: Option<f64>,
    /// State of the file system on the device as text, if a layer or a recording needs the roles of its blocks.
    pub file_system: Option<String>,
    /// Settings that changed since the start.
    pub setting_changes: Vec<SettingChange>,
    /// Reason why the device no longer accepts requests; `None` if it accepts them.
    pub stopped: Option<String>,
    /// Requests that the device rejected (for example zone writes out of order), by the violated rule.
    pub refused: Vec<RefusedRequests>,
    /// Reason why the image cannot be written at present; `None` if it can be written.
    pub image_error: Option<String>,
}

/// Totals from which [`LiveStatus`] is derived.
pub(crate) struct LiveStatusTotals {
    /// Counts of requests, bytes and power cuts.
    pub counts: LiveStatus,
    responses: Histogram<u64>,
    interval_start: Nanos,
    pub lateness: Histogram<u64>,
}

impl LiveStatusTotals {
    pub fn new() -> Result<Self> {
        let (responses, lateness) = (times()?, times()?);
        Ok(Self { counts: LiveStatus::default(), responses, interval_start: Nanos::ZERO, lateness })
    }

    /// Counts a completed request.
    pub fn add(&mut self, event: &RequestCompleted) {
        let counts = &mut self.counts;
        counts.requests += 1;
        let bytes = u64::from(event.sectors) * SECTOR_BYTES;
        match event.op {
            Op::Read => counts.bytes_read += bytes,
            Op::Write => counts.bytes_written += bytes,
            Op::Discard | Op::SecureErase | Op::Flush => {}
        }
        if event.op.has_data() {
            counts.interval_bytes += bytes;
        }
        self.responses.saturating_record((event.complete - event.arrival).0.max(1) as u64);
    }

    /// The totals, and the figures of the interval since the last call; starts a new interval.
    pub fn take_interval(&mut self, now: Nanos) -> LiveStatus {
        let status = LiveStatus {
            simulated_s: now.as_secs_f64(),
            interval_s: (now - self.interval_start).as_secs_f64(),
            interval_requests: self.responses.len(),
            response_p50_us: us_at(&self.responses, 50.0),
            response_p99_us: us_at(&self.responses, 99.0),
            late_p50_us: us_at(&self.lateness, 50.0),
            late_p99_us: us_at(&self.lateness, 99.0),
            ..self.counts.clone()
        };
        self.interval_start = now;
        self.counts.interval_bytes = 0;
        self.responses.reset();
        status
    }
}

/// Requests that violated the same rule, such as the order of writes in a zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RefusedRequests {
    /// Number of requests.
    pub requests: u64,
    /// Reason why the first of these requests was rejected.
    pub first: String,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct RefusalsByRule(BTreeMap<String, RefusedRequests>);

impl RefusalsByRule {
    /// Counts a request at `sector` that was rejected with this error. Errors that differ only in their numbers violate the same rule.
    pub fn count(&mut self, error: &Error, sector: u64) {
        let rule: String = error.problem().chars().filter(|character| !character.is_ascii_digit()).collect();
        let first = || RefusedRequests { requests: 0, first: format!("{} (request at sector {sector})", error.problem()) };
        self.0.entry(rule).or_insert_with(first).requests += 1;
    }

    /// The rejected requests by rule, the most frequent rule first.
    pub fn by_rule(&self) -> Vec<RefusedRequests> {
        let mut all: Vec<RefusedRequests> = self.0.values().cloned().collect();
        all.sort_by_key(|refusal| std::cmp::Reverse(refusal.requests));
        all
    }
}

#[cfg(test)]
mod tests {
    use emmclab_base::ErrorClass;

    use super::*;

    #[test]
    fn requests_are_counted_by_the_rule_that_they_break() {
        let mut refusals = RefusalsByRule::default();
        for (problem, sector) in [("zone 7 is full", 5), ("not in order: 8", 6), ("zone 12 is full", 7)] {
            refusals.count(&Error::new(ErrorClass::Value, problem), sector);
        }
        let found: Vec<_> = refusals.by_rule().into_iter().map(|refused| (refused.requests, refused.first)).collect();
        let expected = [(2, "zone 7 is full (request at sector 5)"), (1, "not in order: 8 (request at sector 6)")];
        assert_eq!(found, expected.map(|(count, first)| (count, first.to_owned())));
    }
}
