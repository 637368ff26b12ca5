//! Tables III and IV of the IISWC 2015 paper for one trace, short summaries, findings, and figures without clock jumps or re-issues.

use schemars::JsonSchema;
use serde::Serialize;

use crate::options::GcCost;

/// Tables III (section III-B) and IV (section III-C) of the IISWC 2015 paper for one trace.
///
/// "Requests" are reads and writes in order of arrival, without headers of packed commands. Discards and flushes are counted in
/// [`super::OperationRow`] and in the queue depth, but not in these tables, because the paper's recorder did not record them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PaperTables {
    /// Bytes read and written, KB (Table III, *Data Size*).
    pub data_size_kb: f64,
    /// Reads and writes (*Number of Reqs.*).
    pub requests: u64,
    /// The largest request, KB (*Max Size*).
    pub max_size_kb: Option<f64>,
    /// Mean size of a request, KB (*Ave. Size*). It is exact; the paper rounds down to a multiple of 0.5.
    pub mean_size_kb: Option<f64>,
    /// Mean size of a read, KB (*Ave. R Size*).
    pub mean_read_kb: Option<f64>,
    /// Mean size of a write, KB (*Ave. W Size*).
    pub mean_write_kb: Option<f64>,
    /// Writes as a percentage of requests (*Write Reqs. Pct.*).
    pub write_requests_pct: Option<f64>,
    /// Bytes written as a percentage of all bytes (*Write Size Pct.*).
    pub written_bytes_pct: Option<f64>,
    /// Duration of the recording in seconds (Table IV, *Recording Duration*): from the first arrival to the last completion, or to the last
    /// arrival if it is later. For a fleet, the sum over its recordings.
    pub duration_s: f64,
    /// Requests per second of the duration (*Arrival Rate*).
    pub arrival_rate_per_s: Option<f64>,
    /// KB per second of the duration (*Access Rate*).
    pub access_rate_kb_per_s: Option<f64>,
    /// Requests that arrive when no earlier request is unfinished, percent (*`NoWait` Req. Ratio*). Computed from request times.
    pub no_wait_pct: Option<f64>,
    /// Mean of completion - start, ms (*Mean Serv.*).
    pub mean_service_ms: Option<f64>,
    /// Mean of completion - arrival, ms (*Mean Resp.*).
    pub mean_response_ms: Option<f64>,
    /// Requests whose first sector directly follows the last sector of their predecessor, percent (*Spatial Locality*).
    pub spatial_locality_pct: Option<f64>,
    /// Requests whose first sector was the first sector of an earlier request, percent of requests (*Temporal Locality*).
    pub temporal_locality_pct: Option<f64>,
    /// Spearman's rank correlation of the size and the response time of requests: 1 if a larger request always takes longer. It is computed
    /// from bins: sizes in octaves, times in quarters of octaves. The paper says that the response time of a request is "largely determined
    /// by its size" (III-C).
    pub size_response_correlation: Option<f64>,
    /// Requests that the recorder marked as not waiting, as a percentage of the requests with such a mark (waiting or not).
    pub recorded_no_wait_pct: Option<f64>,
}

/// Summary of a distribution. Percentiles are nearest-rank, within 0.1 % (HDR histogram, three digits).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantiles {
    /// Arithmetic mean, exact.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// 99.99th percentile.
    pub p9999: f64,
    /// The maximum, exact.
    pub max: f64,
}

/// Sizes and times of the requests of one operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperationRow {
    /// `read`, `write`, `discard`, `flush`, `secure_erase`, or `all` for reads and writes together.
    pub op: &'static str,
    /// Number of requests.
    pub requests: u64,
    /// Data of the requests of this operation, KB.
    pub data_kb: f64,
    /// Mean size, KB.
    pub mean_kb: Option<f64>,
    /// Response times (completion - arrival), ms.
    pub response_ms: Option<Quantiles>,
    /// Service times (completion - start), ms.
    pub service_ms: Option<Quantiles>,
    /// Sizes, KB.
    pub size_kb: Option<Quantiles>,
    /// Additional percentiles, if requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub percentiles: Vec<OperationPercentileRow>,
}

/// A requested percentile of the response and service times (nearest-rank method, accurate to 0.1 %).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OperationPercentileRow {
    /// The percentile, in percent.
    pub percentile: f64,
    /// Response time (completion - arrival), ms.
    pub response_ms: Option<f64>,
    /// Service time (completion - start), ms.
    pub service_ms: Option<f64>,
}

/// Figures of locality that are not in the paper's Table IV.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LocalitySummary {
    /// Requests that start where their predecessor ended.
    pub sequential_requests: u64,
    /// Requests whose first sector was the first sector of an earlier request.
    pub address_hits: u64,
    /// Mean number of requests in a run of sequential requests.
    pub mean_run_requests: Option<f64>,
    /// Mean size of a run of sequential requests, KB.
    pub mean_run_kb: Option<f64>,
    /// The longest run, in requests.
    pub max_run_requests: u64,
    /// Page writes that overwrite a page written before in the trace, percent of page writes.
    pub overwrite_pct: Option<f64>,
    /// Median time between two writes of a page, seconds, rounded up to the edge of its histogram bin.
    pub median_update_interval_s: Option<f64>,
    /// Sampling of reuse distances: one in this number of pages is tracked; 1 if all pages are tracked.
    pub reuse_sampling: u64,
}

/// Numbers of unique 4 KB pages in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkingSet {
    /// Pages that were read or written.
    pub unique_pages: u64,
    /// Pages that were written.
    pub written_pages: u64,
    /// Pages that were read.
    pub read_pages: u64,
    /// Size of the pages that were read or written, KB.
    pub unique_kb: u64,
    /// Size of the pages that were written, KB.
    pub written_kb: u64,
    /// Pages of requests above 1 GB that were not tracked.
    pub untracked_pages: u64,
}

/// Summary of queue depth and busy time of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct QueueSummary {
    /// Mean number of unfinished requests at an arrival.
    pub mean_at_arrival: f64,
    /// Maximum number of unfinished requests at an arrival.
    pub max_at_arrival: u64,
    /// Share of the duration in which at least one request is unfinished, percent.
    pub busy_pct: f64,
    /// Whether more requests were unfinished than are tracked (65,536); depths are lower bounds then.
    pub capped: bool,
}

/// Garbage collection that would fit into idle gaps (implication 2, section IV).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct IdleGc {
    /// The assumed cost of garbage collection.
    pub assumed: GcCost,
    /// Time to reclaim one block under the assumed cost, ms.
    pub block_ms: f64,
    /// Total time in which no request is unfinished, between the first and the last request, seconds.
    pub idle_s: f64,
    /// Idle time as a percentage of the duration.
    pub idle_pct: f64,
    /// Number of block reclaims that fit, each within a single gap.
    pub blocks_that_fit: u64,
    /// Number of block reclaims that would fit if a reclaim could pause and continue in the next gap.
    pub blocks_if_pausable: u64,
    /// Number of blocks that a full device must reclaim for the writes of the trace.
    pub blocks_needed: u64,
}

/// The idle time after which the device sleeps, and the cost of waking it. Both are estimated from the times of requests (characteristic 4
/// of the IISWC 2015 paper, section III-C).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PowerSaving {
    /// Whether a threshold of the idle time was detected.
    pub found: bool,
    /// The delay from which the threshold is estimated: `issue` (issue - start) or `service` (complete - start); `None` without such times.
    pub shown_by: Option<&'static str>,
    /// Lower end of the estimated threshold: most requests are not delayed after idle gaps up to this length, ms.
    pub threshold_low_ms: Option<f64>,
    /// Upper end of the estimated threshold: most requests are delayed after idle gaps above this length, ms.
    pub threshold_high_ms: Option<f64>,
    /// Median delay after long gaps minus the median delay after short gaps, ms.
    pub wake_up_ms: Option<f64>,
    /// The longest delay after a long gap, ms.
    pub longest_wake_up_ms: Option<f64>,
    /// Number of requests that were delayed by waking up.
    pub wake_ups: u64,
}

/// One characteristic (section III) or implication (section IV) of the paper, evaluated for one trace.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Finding {
    /// Stable name: `characteristic-1` ... `implication-5`.
    pub id: String,
    /// Whether the finding is a characteristic or an implication.
    pub kind: FindingKind,
    /// Number of the finding in the paper, such as 5 for `implication-5`.
    pub number: u32,
    /// Title of the finding.
    pub title: &'static str,
    /// The condition under which a trace shows the finding.
    pub rule: &'static str,
    /// The value to which the rule is applied.
    pub measured: Option<f64>,
    /// The unit of `measured`.
    pub unit: &'static str,
    /// Whether this trace satisfies `rule`.
    pub shown: FindingVerdict,
    /// What the result means for the device, or why it is unknown.
    pub meaning: String,
}

/// The two kinds of findings in the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// A property of the workload.
    Characteristic,
    /// A consequence for the device.
    Implication,
}

/// Whether a trace shows a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FindingVerdict {
    /// The rule holds.
    Yes,
    /// The rule does not hold.
    No,
    /// The trace does not have the data that the rule needs.
    Unknown,
}

/// A clock jump, or a pause of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ClockJumpRow {
    /// `forward` or `backward`.
    pub direction: &'static str,
    /// Recorded time of the last arrival before the jump, in seconds after the first arrival.
    pub time_s: f64,
    /// Number of the first request after the jump, from 1.
    pub request: u64,
    /// Absolute difference of the two arrival times, seconds.
    pub length_s: f64,
    /// Whether the reader removed the jump from the trace.
    pub mended: bool,
}

/// Figures of a trace that are distorted by clock jumps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct KeyFigures {
    /// Time from the first arrival to the last completion (or arrival), seconds.
    pub duration_s: f64,
    /// Reads and writes per second of the duration.
    pub arrival_rate_per_s: Option<f64>,
    /// KB per second of the duration.
    pub access_rate_kb_per_s: Option<f64>,
    /// Mean time between the arrivals of consecutive reads or writes, ms.
    pub mean_inter_arrival_ms: Option<f64>,
    /// Share of the duration in which at least one request is unfinished, percent; `None` without completion times.
    pub busy_pct: Option<f64>,
    /// Percentage of the duration in which no request is unfinished, between the first and the last request.
    pub idle_pct: Option<f64>,
}

/// Requests that were probably issued a second time, because the driver could not accept them at first.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ReissueSummary {
    /// Suspected re-issues that are still in the trace.
    pub reissued: u64,
    /// Suspected re-issues as a percentage of all requests.
    pub reissued_pct: Option<f64>,
    /// Number of re-issues that were dropped on reading.
    pub dropped: u64,
    /// Longest idle time after which at most 5 % of the requests are issued again, ms; `None` if there is no such idle time.
    pub awake_up_to_ms: Option<u64>,
    /// Idle time above which at least 90 % of the requests are issued again, ms; `None` if there is no such idle time.
    pub asleep_from_ms: Option<u64>,
    /// Median time from the first issue to the second, ms.
    pub median_until_again_ms: Option<f64>,
    /// The figures that re-issues change, for all requests.
    pub figures: ReissueFigures,
    /// `figures` computed without re-issues; `None` if there are no re-issues.
    pub figures_without: Option<ReissueFigures>,
}

/// Figures of the paper's Tables III and IV that are changed by re-issues.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ReissueFigures {
    /// Number of reads and writes.
    pub requests: u64,
    /// Bytes read and written, KB.
    pub data_size_kb: f64,
    /// Mean size of a request, KB.
    pub mean_size_kb: Option<f64>,
    /// Writes among requests, percent.
    pub write_requests_pct: Option<f64>,
    /// Requests per second of the trace's duration.
    pub arrival_rate_per_s: Option<f64>,
    /// Requests that start where their predecessor ended, percent.
    pub spatial_locality_pct: Option<f64>,
    /// Requests whose first sector was the first sector of an earlier request, percent.
    pub temporal_locality_pct: Option<f64>,
}
