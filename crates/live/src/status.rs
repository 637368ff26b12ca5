//! The status of a live device while it runs.

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::Serialize;

use emmclab_base::{Error, ErrorClass, Nanos, Op, Result, SECTOR_BYTES};
use emmclab_device::{RequestCompleted, SettingChange};

use crate::refusals::RefusedRequests;

/// Largest time in the histograms, in ns: one hour.
const LONGEST: u64 = 3_600_000_000_000;

/// A histogram of times up to an hour, with a precision of 0.8 %.
fn times() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LONGEST, 2).map_err(|error| Error::new(ErrorClass::Config, error.to_string()))
}

/// A percentile of a histogram of ns, in us; `None` if it is empty.
fn us_at(times: &Histogram<u64>, percentile: f64) -> Option<f64> {
    (!times.is_empty()).then(|| times.value_at_percentile(percentile) as f64 / 1000.0)
}

/// The status of a live device: totals, and figures since the last call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct LiveStatus {
    /// The clock: `real`, `free`, or `x` and a factor.
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
    /// Median response time of these requests, us; `None` without requests.
    pub response_p50_us: Option<f64>,
    /// 99th percentile of their response times, us; `None` without requests.
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
    /// Median delay of completions against their due time, us of the host; only on a clock that follows the host's.
    pub late_p50_us: Option<f64>,
    /// 99th percentile of that delay, us of the host.
    pub late_p99_us: Option<f64>,
    /// What is known of the file system on the device, if a layer or a recording needs the roles of its blocks.
    pub file_system: Option<String>,
    /// Settings that changed since the start.
    pub setting_changes: Vec<SettingChange>,
    /// Why the device no longer accepts requests, if so.
    pub stopped: Option<String>,
    /// Requests that the device refused (for example zone writes out of order), by the violated rule.
    pub refused: Vec<RefusedRequests>,
    /// Why the image cannot be written now, if so.
    pub image_error: Option<String>,
}

/// Sums for [`LiveStatus`].
pub(crate) struct LiveStatusTotals {
    pub requests: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub failed: u64,
    pub cuts: u64,
    responses: Histogram<u64>,
    interval_bytes: u64,
    interval_start: Nanos,
    pub lateness: Histogram<u64>,
}

impl LiveStatusTotals {
    pub fn new() -> Result<Self> {
        Ok(Self {
            requests: 0,
            bytes_read: 0,
            bytes_written: 0,
            failed: 0,
            cuts: 0,
            responses: times()?,
            interval_bytes: 0,
            interval_start: Nanos::ZERO,
            lateness: times()?,
        })
    }

    /// Counts a completed request.
    pub fn add(&mut self, event: &RequestCompleted) {
        self.requests += 1;
        let bytes = u64::from(event.sectors) * SECTOR_BYTES;
        match event.op {
            Op::Read => self.bytes_read += bytes,
            Op::Write => self.bytes_written += bytes,
            Op::Discard | Op::SecureErase | Op::Flush => {}
        }
        if event.op.has_data() {
            self.interval_bytes += bytes;
        }
        self.responses.saturating_record((event.complete - event.arrival).0.max(1) as u64);
    }

    /// Fills in the totals and the figures since the last call, and begins a new interval.
    pub fn take_interval(&mut self, now: Nanos, status: LiveStatus) -> LiveStatus {
        let status = LiveStatus {
            simulated_s: now.as_secs_f64(),
            cuts: self.cuts,
            requests: self.requests,
            bytes_read: self.bytes_read,
            bytes_written: self.bytes_written,
            failed: self.failed,
            interval_s: (now - self.interval_start).as_secs_f64(),
            interval_requests: self.responses.len(),
            interval_bytes: self.interval_bytes,
            response_p50_us: us_at(&self.responses, 50.0),
            response_p99_us: us_at(&self.responses, 99.0),
            late_p50_us: us_at(&self.lateness, 50.0),
            late_p99_us: us_at(&self.lateness, 99.0),
            ..status
        };
        self.interval_start = now;
        self.interval_bytes = 0;
        self.responses.reset();
        status
    }
}
