//! Rows of the report's figures. Bins have exclusive lower and inclusive upper edges: `low < value <= high`; the last `high` is `None`.

use emmclab_timeline::OverTimeRow;
use serde::Serialize;

use super::FsyncPartRow;

/// The rows of each figure, in the order in which the figures are drawn.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FigureRows {
    /// Figure 3 (section III-A): the device's rate by request size.
    pub throughput_by_size: Vec<ThroughputRow>,
    /// Figure 4 (III-B): request sizes.
    pub size_distribution: Vec<RequestSizeRow>,
    /// Figure 5 (III-C): response times.
    pub response_distribution: Vec<LatencyRow>,
    /// Response times by request size (percentiles).
    pub response_by_size: Vec<ResponseBySizeRow>,
    /// Service times in the bins of figure 5.
    pub service_distribution: Vec<LatencyRow>,
    /// Figure 6 (III-C): inter-arrival times.
    pub inter_arrival_distribution: Vec<InterArrivalRow>,
    /// Growth of the working set.
    pub working_set: Vec<WorkingSetRow>,
    /// Update intervals: time between two writes of the same 4 KB page.
    pub update_interval: Vec<UpdateIntervalRow>,
    /// Reuse distances: number of distinct pages touched between two touches of one page.
    pub reuse_distance: Vec<ReuseDistanceRow>,
    /// Percentage of accesses to the hottest pages.
    pub hot_pages: Vec<HotPagesRow>,
    /// Lengths of runs of sequential requests.
    pub sequential_runs: Vec<SequentialRunRow>,
    /// Alignment to flash pages.
    pub alignment: Vec<AlignmentRow>,
    /// Number of unfinished requests when a request arrives.
    pub queue_depth: Vec<DepthRow>,
    /// Queue depth over time.
    pub queue_depth_over_time: Vec<DepthTimeRow>,
    /// Requests and data over time.
    pub io_over_time: Vec<IoTimeRow>,
    /// Requests by time and address.
    pub address_time: Vec<AddressTimeRow>,
    /// Idle gaps, in which no request is unfinished.
    pub idle_gaps: Vec<IdleGapRow>,
    /// Delay of requests by the length of the idle gap before them.
    pub wake_up: Vec<WakeUpRow>,
    /// Percentage of requests that were issued to the device more than once, by the idle time before the first issue.
    pub reissue_by_idle: Vec<ReissueRow>,
    /// Waits for durability during the recording; at most the 256 longest.
    pub sync_stalls: Vec<FsyncStallRow>,
    /// The parts of the longest waits for durability; empty unless requested.
    pub fsync_parts: Vec<FsyncPartRow>,
    /// I/O by process.
    pub process_share: Vec<ProcessRow>,
    /// I/O by device.
    pub device_share: Vec<DeviceRow>,
    /// Requests by flag, and flushes.
    pub flags: Vec<FlagRow>,
}

/// Figure 3: data rate by request size, computed from service times. A row covers the sizes above the edge of the previous row, up to its
/// own edge. This is our interpretation of the published axis, which doubles from 4 KB to 16 MB. The rate of the requests of exactly
/// `high_kb` is a separate field. 1 MB is 1,024 KB.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThroughputRow {
    /// `read` or `write`.
    pub op: &'static str,
    /// Exclusive lower edge of the request sizes, KB.
    pub low_kb: f64,
    /// Inclusive upper edge of the request sizes, KB; `None` for the last range.
    pub high_kb: Option<f64>,
    /// Requests with a service time above zero.
    pub requests: u64,
    /// Total data divided by total service time, MB/s.
    pub mb_per_s: f64,
    /// Mean of the rates of the requests, MB/s.
    pub mean_mb_per_s: f64,
    /// Requests of exactly `high_kb`.
    pub exact_requests: u64,
    /// Mean of the rates of the requests of exactly `high_kb`, MB/s (in the paper: "average access rate of requests with that size").
    pub exact_mean_mb_per_s: Option<f64>,
}

/// Figure 4: distribution of request sizes. The paper mentions the edges 4, 16 and 64 KB; we assume that the ranges double up to 1 MB.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RequestSizeRow {
    /// `read`, `write` or `all`.
    pub op: &'static str,
    /// Label of the range.
    pub bin: String,
    /// Exclusive lower edge of the request sizes, KB.
    pub low_kb: f64,
    /// Inclusive upper edge of the request sizes, KB; `None` for the last range.
    pub high_kb: Option<f64>,
    /// Requests in the range.
    pub requests: u64,
    /// Share of the operation's requests, percent.
    pub pct: f64,
}

/// Figure 5: distribution of response times. The paper mentions the edges 2, 4, 8, 16 and 128 ms; we assume that they double from 1 ms.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatencyRow {
    /// `read`, `write` or `all`.
    pub op: &'static str,
    /// Label of the range.
    pub bin: String,
    /// Exclusive lower edge of the times, ms.
    pub low_ms: f64,
    /// Inclusive upper edge of the times, ms; `None` for the last range.
    pub high_ms: Option<f64>,
    /// Requests in the range.
    pub requests: u64,
    /// Percentage of the operation's requests with a known time.
    pub pct: f64,
}

/// Response times of the requests in a range of sizes. Percentiles are upper edges of bins that are at most a quarter of an octave wide.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResponseBySizeRow {
    /// `read`, `write` or `all`.
    pub op: &'static str,
    /// Exclusive lower edge of the request sizes, KB.
    pub low_kb: f64,
    /// Inclusive upper edge of the request sizes, KB; `None` for the last range.
    pub high_kb: Option<f64>,
    /// Requests in the range whose response time is known.
    pub requests: u64,
    /// 10th percentile, ms.
    pub p10_ms: f64,
    /// Median, ms.
    pub p50_ms: f64,
    /// 90th percentile, ms.
    pub p90_ms: f64,
}

/// Figure 6: distribution of inter-arrival times. The paper mentions the edges 1, 4 and 16 ms; we assume that they double from 1 ms to
/// 1,024 ms.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InterArrivalRow {
    /// Label of the range.
    pub bin: String,
    /// Exclusive lower edge of the inter-arrival times, ms.
    pub low_ms: f64,
    /// Inclusive upper edge of the inter-arrival times, ms; `None` for the last range.
    pub high_ms: Option<f64>,
    /// Number of pairs of consecutive reads or writes whose inter-arrival time is in the range.
    pub gaps: u64,
    /// Share of all pairs, percent.
    pub pct: f64,
}

/// The size of the working set at the end of a time bin.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkingSetRow {
    /// End of the bin, in seconds after the first arrival.
    pub time_s: f64,
    /// Size of the unique 4 KB pages touched so far, KB.
    pub unique_kb: u64,
    /// Size of the unique 4 KB pages written so far, KB.
    pub written_kb: u64,
}

/// Distribution of update intervals. A page write is the write of one request to one 4 KB page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UpdateIntervalRow {
    /// Label of the range.
    pub bin: String,
    /// Lower bound of the intervals of this range, exclusive, seconds.
    pub low_s: f64,
    /// Upper bound of the intervals of this range, inclusive, seconds; `None` if there is no bound.
    pub high_s: Option<f64>,
    /// Page writes that overwrite a page after an interval of this range.
    pub page_writes: u64,
    /// Share of all overwrites, percent.
    pub pct: f64,
    /// Percentage of overwrites whose interval is at most `high_s`.
    pub cumulative_pct: f64,
}

/// Reuse distances of 4 KB pages (SHARDS: Waldspurger et al., FAST 2015). The last row counts first touches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReuseDistanceRow {
    /// Label of the range.
    pub bin: String,
    /// Inclusive lower edge of the distances, KB.
    pub low_kb: u64,
    /// Exclusive upper edge of the distances, KB. An LRU cache of this size has hits for all touches of this row.
    pub high_kb: Option<u64>,
    /// Page touches; estimated if pages are sampled.
    pub accesses: u64,
    /// Share of all page touches, percent.
    pub pct: f64,
    /// Hit rate of an LRU cache of `high_kb`, percent.
    pub hit_pct: f64,
}

/// Percentage of accesses to the hottest pages.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HotPagesRow {
    /// `read` or `write`.
    pub op: &'static str,
    /// Percentage of the pages touched by the operation that are considered (1, 5, 20).
    pub pages_pct: u64,
    /// Number of the hottest pages that are considered, rounded up.
    pub pages: u64,
    /// Touches of the hottest pages.
    pub accesses: u64,
    /// Share of all page touches of the operation, percent.
    pub share_pct: f64,
}

/// Runs of sequential requests: at least two requests, each of which starts where its predecessor ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SequentialRunRow {
    /// Label of the range.
    pub bin: String,
    /// Number of requests in a run, exclusive lower edge.
    pub low_requests: u64,
    /// Number of requests in a run, inclusive upper edge.
    pub high_requests: Option<u64>,
    /// Number of runs.
    pub runs: u64,
    /// Total number of requests in the runs of this row.
    pub requests: u64,
    /// Total data of the runs of this row, KB.
    pub data_kb: f64,
    /// Share of all reads and writes, percent.
    pub requests_pct: f64,
}

/// Alignment of reads or writes to a flash page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AlignmentRow {
    /// `read` or `write`.
    pub op: &'static str,
    /// Size of the flash page, KB (4, 8, 16).
    pub page_kb: u64,
    /// Number of reads or writes.
    pub requests: u64,
    /// Requests that start on a page boundary, percent.
    pub start_aligned_pct: f64,
    /// Requests whose size is a multiple of the page size, percent.
    pub size_aligned_pct: f64,
    /// Requests whose start and size are both aligned, percent.
    pub aligned_pct: f64,
    /// Space utilisation in percent (section V-A): size of the data / size of the flash pages that the requests would occupy if the end of
    /// each request is padded to a whole page.
    pub space_utilisation_pct: f64,
}

/// Number of unfinished requests when a request arrives.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DepthRow {
    /// Label of the range.
    pub bin: String,
    /// Smallest queue depth in the range.
    pub low_depth: u64,
    /// Largest queue depth in the range; `None` for the last range.
    pub high_depth: Option<u64>,
    /// Number of requests that arrive when the queue depth is in the range.
    pub requests: u64,
    /// Share of all requests, percent.
    pub pct: f64,
}

/// Queue depth in a time bin; bins without a request are omitted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DepthTimeRow {
    /// Start of the bin, in seconds after the first arrival.
    pub time_s: f64,
    /// Width of the bin, seconds.
    pub width_s: f64,
    /// Mean number of unfinished requests at an arrival.
    pub mean_depth: f64,
    /// Maximum number of unfinished requests at an arrival.
    pub max_depth: u64,
}

/// I/O in a time bin; bins without a request are omitted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IoTimeRow {
    /// Reads and writes.
    #[serde(flatten)]
    pub data: OverTimeRow,
    /// Discards, flushes and secure erases that arrive in the bin.
    pub others: u64,
}

/// A cell of the heatmap of addresses over time; empty cells are omitted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AddressTimeRow {
    /// Start of the cell, in seconds after the first arrival.
    pub time_s: f64,
    /// Width of the cell, seconds.
    pub width_s: f64,
    /// First address of this cell of the heatmap, MB.
    pub low_mb: u64,
    /// First address after this cell of the heatmap, MB.
    pub high_mb: u64,
    /// Reads that start in the cell.
    pub reads: u64,
    /// Writes that start in the cell.
    pub writes: u64,
}

/// Idle gaps: from the completion of all requests to the next arrival.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IdleGapRow {
    /// Label of the range.
    pub bin: String,
    /// Exclusive lower edge of the gap lengths, ms.
    pub low_ms: f64,
    /// Inclusive upper edge of the gap lengths, ms; `None` for the last range.
    pub high_ms: Option<f64>,
    /// Number of gaps.
    pub gaps: u64,
    /// Share of all gaps, percent.
    pub pct: f64,
    /// Total length of the gaps in this range, seconds.
    pub idle_s: f64,
    /// Share of all idle time, percent.
    pub idle_pct: f64,
    /// Number of block reclaims that fit into the gaps of this range, each within a single gap.
    pub gc_blocks: u64,
}

/// The delay of requests after idle gaps of one range: `issue - start` if known, otherwise the service time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WakeUpRow {
    /// Label of the range of gaps.
    pub bin: String,
    /// Exclusive lower edge of the gap lengths, ms.
    pub low_ms: f64,
    /// Inclusive upper edge of the gap lengths, ms; `None` for the last range.
    pub high_ms: Option<f64>,
    /// Number of requests after a gap in this range.
    pub requests: u64,
    /// Median delay, ms (upper edge of a bin that is a sixteenth of an octave wide).
    pub median_delay_ms: f64,
    /// 90th percentile of the delay, ms.
    pub p90_delay_ms: f64,
}

/// The requests of one process. If there are more than 64 processes, the others are combined into one row. Response times are those of
/// reads and writes; their percentiles are at most 1 / 32 too high. Only the first 1,024 process names of a trace have percentiles.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessRow {
    /// Name of the process, or `(unknown)` or `(others)`.
    pub process: String,
    /// The counts of the process.
    #[serde(flatten)]
    pub share: ShareRow,
}

/// A requested percentile of response times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SharePercentile {
    /// The percentile, in percent.
    pub percentile: f64,
    /// Response time, ms.
    pub response_ms: Option<f64>,
}

/// The requests of one process or device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShareRow {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Discards, flushes and secure erases.
    pub others: u64,
    /// Data read, KB.
    pub read_kb: f64,
    /// Data written, KB.
    pub write_kb: f64,
    /// Share of all requests, percent.
    pub requests_pct: f64,
    /// Share of all data, percent.
    pub data_pct: f64,
    /// Writes as a percentage of the reads and writes of this process or device.
    pub write_requests_pct: Option<f64>,
    /// Id of the process, if all requests have the same id.
    pub pid: Option<i32>,
    /// Mean response time, ms.
    pub response_mean_ms: Option<f64>,
    /// Median response time, ms.
    pub response_p50_ms: Option<f64>,
    /// 90th percentile of the response time, ms.
    pub response_p90_ms: Option<f64>,
    /// 99th percentile of the response time, ms.
    pub response_p99_ms: Option<f64>,
    /// Longest response time, ms.
    pub response_max_ms: Option<f64>,
    /// Response times at the requested percentiles.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub percentiles: Vec<SharePercentile>,
}

/// The requests to one device. If there are more than 64 devices, the others are combined into one row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceRow {
    /// Name of the device, or `(unknown)` or `(others)`.
    pub device: String,
    /// The counts of the device.
    #[serde(flatten)]
    pub share: ShareRow,
}

/// Re-issues of requests after idle times of one range.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReissueRow {
    /// Label of the range of idle times.
    pub bin: String,
    /// Exclusive lower edge of the idle times, ms; the idle time starts at the arrival of the previous request.
    pub low_ms: u64,
    /// Inclusive upper edge of the idle times, ms; `None` for the last range.
    pub high_ms: Option<u64>,
    /// Number of requests in this row, excluding re-issues.
    pub requests: u64,
    /// Number of requests in this row that were issued again.
    pub reissued: u64,
    /// Percentage of the requests in this row that were issued again.
    pub pct: f64,
}

/// One wait of a process until a file is durable (`fsync`, `fdatasync`, `msync`).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FsyncStallRow {
    /// Name of the process.
    pub process: String,
    /// The kind of file system, such as `ext4`.
    pub file_system: String,
    /// Start of the call, in seconds after the first arrival; negative if it began before.
    pub start_s: f64,
    /// End of the call, in seconds after the first arrival.
    pub end_s: f64,
    /// Duration of the call, ms.
    pub wait_ms: f64,
}

/// Number of requests with a certain flag, or number of flushes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlagRow {
    /// `flush` (the operation), or the name of a flag: `sync`, `fua`, `preflush`, `meta`, `readahead`, `packed`.
    pub flag: &'static str,
    /// Requests with the flag; `None` if the trace's format cannot record it.
    pub requests: Option<u64>,
    /// Percentage of all requests, including flushes and discards.
    pub pct: Option<f64>,
    /// Requests per second of the trace's duration.
    pub per_s: Option<f64>,
}
