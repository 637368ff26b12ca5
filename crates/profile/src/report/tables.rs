//! Tables III and IV, and summaries of one line.

use serde::Serialize;

use crate::options::GcCost;

/// Tables III (section III-B) and IV (section III-C) of the IISWC 2015 paper for one trace.
///
/// "Requests" are reads and writes in order of arrival, headers of packed commands stripped. Discards and flushes
/// are counted in [`super::OperationRow`] and in the queue, but not here: the paper's recorder saw none.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Tables {
    /// Bytes read and written, KB (Table III, *Data Size*).
    pub data_size_kb: f64,
    /// Reads and writes (*Number of Reqs.*).
    pub requests: u64,
    /// The largest request, KB (*Max Size*).
    pub max_size_kb: Option<f64>,
    /// Mean request, KB (*Ave. Size*); exact, where the paper rounds down to a multiple of 0.5.
    pub mean_size_kb: Option<f64>,
    /// Mean read, KB (*Ave. R Size*).
    pub mean_read_kb: Option<f64>,
    /// Mean write, KB (*Ave. W Size*).
    pub mean_write_kb: Option<f64>,
    /// Writes among requests, percent (*Write Reqs. Pct.*).
    pub write_requests_pct: Option<f64>,
    /// Bytes written among all bytes, percent (*Write Size Pct.*).
    pub written_bytes_pct: Option<f64>,
    /// First arrival to last completion (or arrival, where it is later or nothing is known of completions), seconds
    /// (Table IV, *Recording Duration*). Summed over the recordings of a fleet.
    pub duration_s: f64,
    /// Requests per second of the duration (*Arrival Rate*).
    pub arrival_rate_per_s: Option<f64>,
    /// KB per second of the duration (*Access Rate*).
    pub access_rate_kb_per_s: Option<f64>,
    /// Requests that arrive when no earlier request is unfinished, percent (*`NoWait` Req. Ratio*). Judged by times.
    pub no_wait_pct: Option<f64>,
    /// Mean of complete - start, ms (*Mean Serv.*).
    pub mean_service_ms: Option<f64>,
    /// Mean of complete - arrival, ms (*Mean Resp.*).
    pub mean_response_ms: Option<f64>,
    /// Requests whose first sector follows their predecessor's last one, percent of requests (*Spatial Locality*).
    pub spatial_locality_pct: Option<f64>,
    /// Requests whose first sector has been a first sector before, percent of requests (*Temporal Locality*).
    pub temporal_locality_pct: Option<f64>,
    /// Spearman's rank correlation of a request's size and its response time (III-C: "largely determined by its size"): 1 if a larger one
    /// always takes longer. Of sizes in octaves and times in quarters of octaves.
    pub size_response_correlation: Option<f64>,
    /// As `no_wait_pct`, but as the recorder noted it, over the requests for which it did.
    pub recorded_no_wait_pct: Option<f64>,
}

/// A distribution in short. Percentiles are nearest-rank, within 0.1 % (HDR histogram, three digits).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantiles {
    /// Arithmetic mean, exact.
    pub mean: f64,
    /// Half are at most this.
    pub p50: f64,
    /// 90 % are at most this.
    pub p90: f64,
    /// 99 % are at most this.
    pub p99: f64,
    /// 99.9 % are at most this.
    pub p999: f64,
    /// 99.99 % are at most this.
    pub p9999: f64,
    /// The largest, exact.
    pub max: f64,
}

/// Sizes and times of one operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperationRow {
    /// `read`, `write`, `discard`, `flush`, `secure_erase`, or `all` for reads and writes together.
    pub op: &'static str,
    /// How many there are.
    pub requests: u64,
    /// Their bytes, KB.
    pub data_kb: f64,
    /// Mean size, KB.
    pub mean_kb: Option<f64>,
    /// Complete - arrival, ms.
    pub response_ms: Option<Quantiles>,
    /// Complete - start, ms.
    pub service_ms: Option<Quantiles>,
    /// Sizes, KB.
    pub size_kb: Option<Quantiles>,
    /// Percentiles that were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub percentiles: Vec<PercentileRow>,
}

/// A percentile that was asked for; nearest-rank, within 0.1 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PercentileRow {
    /// Which, percent.
    pub percentile: f64,
    /// Of complete - arrival, ms.
    pub response_ms: Option<f64>,
    /// Of complete - start, ms.
    pub service_ms: Option<f64>,
}

/// Locality beyond Table IV.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Locality {
    /// Requests that follow their predecessor in address.
    pub sequential_requests: u64,
    /// Requests whose first sector was a first sector before.
    pub address_hits: u64,
    /// Mean requests in a run of sequential requests.
    pub mean_run_requests: Option<f64>,
    /// Mean bytes in such a run, KB.
    pub mean_run_kb: Option<f64>,
    /// The longest run, in requests.
    pub max_run_requests: u64,
    /// Page writes that overwrite a page written before in the trace, percent of page writes.
    pub overwrite_pct: Option<f64>,
    /// Median time between two writes of a page, seconds; the upper edge of its bin.
    pub median_update_interval_s: Option<f64>,
    /// One page in this many is followed for reuse distances; 1 means exact.
    pub reuse_sampling: u64,
}

/// Unique 4 KB pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkingSet {
    /// Pages that were read or written.
    pub unique_pages: u64,
    /// Pages that were written.
    pub written_pages: u64,
    /// Pages that were read.
    pub read_pages: u64,
    /// The same in KB: read or written.
    pub unique_kb: u64,
    /// In KB: written.
    pub written_kb: u64,
    /// Pages of requests above 1 GB that were not followed.
    pub untracked_pages: u64,
}

/// How many requests are outstanding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct QueueSummary {
    /// Mean number of unfinished requests that an arriving request finds.
    pub mean_at_arrival: f64,
    /// The largest such number.
    pub max_at_arrival: u64,
    /// Share of the duration in which at least one request is unfinished, percent.
    pub busy_pct: f64,
    /// True if more were outstanding than are followed (65,536); depths are then lower bounds.
    pub capped: bool,
}

/// Garbage collection that would fit into idle gaps (implication 2, section IV).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct IdleGc {
    /// The assumption.
    pub assumed: GcCost,
    /// Time to reclaim one block under that assumption, ms.
    pub block_ms: f64,
    /// Time without an unfinished request between the first and the last one, seconds.
    pub idle_s: f64,
    /// The same as a share of the duration, percent.
    pub idle_pct: f64,
    /// Blocks that fit whole into single gaps, from start to erase.
    pub blocks_that_fit: u64,
    /// Blocks that would fit if a reclaim could pause and go on in the next gap.
    pub blocks_if_pausable: u64,
    /// Blocks to reclaim for what the trace writes, in a full device.
    pub blocks_needed: u64,
}

/// The device's low-power threshold and wake-up cost, as its times show them (characteristic 4, section III-C).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PowerSaving {
    /// Whether a threshold stands out.
    pub found: bool,
    /// The delay that shows it: `issue` (issue - start) or `service` (complete - start); `None` without such times.
    pub shown_by: Option<&'static str>,
    /// After idle gaps up to this, ms, most requests are served at once.
    pub threshold_low_ms: Option<f64>,
    /// After idle gaps above this, ms, most requests are delayed.
    pub threshold_high_ms: Option<f64>,
    /// Median delay after long gaps less the median after short ones, ms.
    pub wake_up_ms: Option<f64>,
    /// The longest delay after a long gap, ms.
    pub longest_wake_up_ms: Option<f64>,
    /// Requests that paid for waking up.
    pub wake_ups: u64,
}
