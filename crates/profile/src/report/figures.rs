//! Rows of the figures. Ranges are open below and closed above: `low < value <= high`; `high` is `None` in the last.

use emmclab_cache::MissRatioRow;
use emmclab_timeline::OverTimeRow;
use serde::Serialize;

/// Rows for each figure, in the order in which they are drawn.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Figure 3 (section III-A): the device's rate by request size.
    pub throughput_by_size: Vec<ThroughputRow>,
    /// Figure 4 (III-B): request sizes.
    pub size_distribution: Vec<SizeRow>,
    /// Figure 5 (III-C): response times.
    pub response_distribution: Vec<LatencyRow>,
    /// Response times by request size.
    pub response_by_size: Vec<ResponseBySizeRow>,
    /// Service times in the bins of figure 5.
    pub service_distribution: Vec<LatencyRow>,
    /// Figure 6 (III-C): times from one arrival to the next.
    pub inter_arrival_distribution: Vec<InterArrivalRow>,
    /// Growth of the working set.
    pub working_set: Vec<WorkingSetRow>,
    /// Time between two writes of the same 4 KB page.
    pub update_interval: Vec<UpdateRow>,
    /// Distinct pages touched between two touches of the same page.
    pub reuse_distance: Vec<ReuseRow>,
    /// Misses of caches by policy and size, where asked for.
    pub miss_ratio: Vec<MissRatioRow>,
    /// How much goes to the hottest pages.
    pub hot_pages: Vec<HotPagesRow>,
    /// Lengths of runs of sequential requests.
    pub sequential_runs: Vec<RunRow>,
    /// Alignment to flash pages.
    pub alignment: Vec<AlignmentRow>,
    /// Unfinished requests that an arriving one finds.
    pub queue_depth: Vec<DepthRow>,
    /// The same over time.
    pub queue_depth_over_time: Vec<DepthTimeRow>,
    /// Requests and data over time.
    pub io_over_time: Vec<IoTimeRow>,
    /// Requests by time and address.
    pub address_time: Vec<AddressTimeRow>,
    /// Times without an unfinished request.
    pub idle_gaps: Vec<IdleGapRow>,
    /// Delay of requests by the idle gap before them.
    pub wake_up: Vec<WakeRow>,
    /// Share of requests that are issued again, by the time without requests before.
    pub reissue_by_idle: Vec<ReissueRow>,
    /// Waits for durability of a recording, the longest at most 256.
    pub sync_stalls: Vec<StallRow>,
    /// Who asks.
    pub process_share: Vec<ProcessRow>,
    /// Which device is asked.
    pub device_share: Vec<DeviceRow>,
    /// Requests by flag, and flushes.
    pub flags: Vec<FlagRow>,
}

/// Figure 3. Time is service time. The published axis doubles from 4 KB to 16 MB; that each point stands for the
/// whole range below it is our assumption, so the rate of exactly that size is given too. 1 MB is 1,024 KB.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThroughputRow {
    /// `read` or `write`.
    pub op: &'static str,
    /// Sizes above this, KB.
    pub low_kb: f64,
    /// Sizes up to this, KB.
    pub high_kb: Option<f64>,
    /// Requests with a service time above zero.
    pub requests: u64,
    /// All their data over all their time, MB/s.
    pub mb_per_s: f64,
    /// Mean of each request's own rate, MB/s.
    pub mean_mb_per_s: f64,
    /// Requests of exactly `high_kb`.
    pub exact_requests: u64,
    /// Their mean of each request's own rate, MB/s (the paper's words: "average access rate of requests with that
    /// size").
    pub exact_mean_mb_per_s: Option<f64>,
}

/// Figure 4. The text names "at most 4 KB" and 16 and 64 KB as edges; that the ranges double up to 1 MB is our
/// assumption.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SizeRow {
    /// `read`, `write` or `all`.
    pub op: &'static str,
    /// Name of the range.
    pub bin: String,
    /// Sizes above this, KB.
    pub low_kb: f64,
    /// Sizes up to this, KB.
    pub high_kb: Option<f64>,
    /// Requests in the range.
    pub requests: u64,
    /// Share of the operation's requests, percent.
    pub pct: f64,
}

/// Figure 5. The text names 2, 4, 8, 16 and 128 ms as edges; that they double from 1 ms is our assumption.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatencyRow {
    /// `read`, `write` or `all`.
    pub op: &'static str,
    /// Name of the range.
    pub bin: String,
    /// Times above this, ms.
    pub low_ms: f64,
    /// Times up to this, ms.
    pub high_ms: Option<f64>,
    /// Requests in the range.
    pub requests: u64,
    /// Share of the operation's requests whose time is known, percent.
    pub pct: f64,
}

/// Response times of the requests in a range of sizes. Percentiles are upper edges of ranges of at most a quarter of an octave.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResponseBySizeRow {
    /// `read`, `write` or `all`.
    pub op: &'static str,
    /// Sizes above this, KB.
    pub low_kb: f64,
    /// Sizes up to this, KB.
    pub high_kb: Option<f64>,
    /// Requests in the range whose response time is known.
    pub requests: u64,
    /// A tenth is at most this, ms.
    pub p10_ms: f64,
    /// Half is at most this, ms.
    pub p50_ms: f64,
    /// 90 % are at most this, ms.
    pub p90_ms: f64,
}

/// Figure 6. The text names 1, 4 and 16 ms as edges; that they double from 1 ms to 1,024 ms is our assumption.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InterArrivalRow {
    /// Name of the range.
    pub bin: String,
    /// Times above this, ms.
    pub low_ms: f64,
    /// Times up to this, ms.
    pub high_ms: Option<f64>,
    /// Pairs of successive reads or writes in the range.
    pub gaps: u64,
    /// Share of all pairs, percent.
    pub pct: f64,
}

/// The working set at the end of a time bin.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkingSetRow {
    /// End of the bin after the first arrival, seconds.
    pub time_s: f64,
    /// Unique 4 KB pages touched so far, KB.
    pub unique_kb: u64,
    /// Unique 4 KB pages written so far, KB.
    pub written_kb: u64,
}

/// Update intervals. A page write is one request's write to one 4 KB page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UpdateRow {
    /// Name of the range.
    pub bin: String,
    /// Intervals above this, seconds.
    pub low_s: f64,
    /// Intervals up to this, seconds.
    pub high_s: Option<f64>,
    /// Page writes that overwrite after such an interval.
    pub page_writes: u64,
    /// Share of all overwrites, percent.
    pub pct: f64,
    /// Share at most as long, percent.
    pub cumulative_pct: f64,
}

/// Reuse distances over 4 KB pages (SHARDS: Waldspurger et al., FAST 2015). The last row holds first touches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReuseRow {
    /// Name of the range.
    pub bin: String,
    /// Distances of at least this many KB.
    pub low_kb: u64,
    /// Distances below this many KB: a cache of this size that evicts the least recently used page hits.
    pub high_kb: Option<u64>,
    /// Page touches, estimated where pages are sampled.
    pub accesses: u64,
    /// Share of all page touches, percent.
    pub pct: f64,
    /// Hit rate of a least-recently-used cache of `high_kb`, percent.
    pub hit_pct: f64,
}

/// Concentration on hot pages.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HotPagesRow {
    /// `read` or `write`.
    pub op: &'static str,
    /// The hottest pages among those that the operation touched, percent (1, 5, 20).
    pub pages_pct: u64,
    /// How many pages that is, rounded up.
    pub pages: u64,
    /// Page touches that go to them.
    pub accesses: u64,
    /// Share of all page touches of the operation, percent.
    pub share_pct: f64,
}

/// Runs: requests each of which starts where its predecessor ended (at least two).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunRow {
    /// Name of the range.
    pub bin: String,
    /// Runs of more requests than this.
    pub low_requests: u64,
    /// Runs of up to this many requests.
    pub high_requests: Option<u64>,
    /// How many runs.
    pub runs: u64,
    /// Requests in them.
    pub requests: u64,
    /// Data in them, KB.
    pub data_kb: f64,
    /// Share of all reads and writes, percent.
    pub requests_pct: f64,
}

/// Alignment to a flash page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AlignmentRow {
    /// `read` or `write`.
    pub op: &'static str,
    /// The page, KB (4, 8, 16).
    pub page_kb: u64,
    /// Requests.
    pub requests: u64,
    /// Start on a page boundary, percent.
    pub start_aligned_pct: f64,
    /// Are a multiple of the page long, percent.
    pub size_aligned_pct: f64,
    /// Both, percent.
    pub aligned_pct: f64,
    /// Data over the pages that its requests, each by itself and padded at the end, would take (section V-A), percent.
    pub space_utilisation_pct: f64,
}

/// Unfinished requests that an arriving one finds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DepthRow {
    /// Name of the range.
    pub bin: String,
    /// The least number of the range.
    pub low_depth: u64,
    /// The largest number of the range.
    pub high_depth: Option<u64>,
    /// Requests that find as many.
    pub requests: u64,
    /// Share of all requests, percent.
    pub pct: f64,
}

/// Queue depth in a time bin; bins without a request are left out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DepthTimeRow {
    /// Start of the bin after the first arrival, seconds.
    pub time_s: f64,
    /// Width of the bin, seconds.
    pub width_s: f64,
    /// Mean number of unfinished requests that arriving ones find.
    pub mean_depth: f64,
    /// The largest.
    pub max_depth: u64,
}

/// I/O in a time bin; bins without a request are left out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IoTimeRow {
    /// Reads and writes.
    #[serde(flatten)]
    pub data: OverTimeRow,
    /// Discards, flushes and secure erases that arrive.
    pub others: u64,
}

/// A cell of the address-time picture; empty cells are left out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AddressTimeRow {
    /// Start of the cell after the first arrival, seconds.
    pub time_s: f64,
    /// Width of the cell, seconds.
    pub width_s: f64,
    /// First address of the cell, MB.
    pub low_mb: u64,
    /// Address after the cell, MB.
    pub high_mb: u64,
    /// Reads that start there.
    pub reads: u64,
    /// Writes that start there.
    pub writes: u64,
}

/// Idle gaps: from the completion of everything that arrived to the next arrival.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IdleGapRow {
    /// Name of the range.
    pub bin: String,
    /// Gaps above this, ms.
    pub low_ms: f64,
    /// Gaps up to this, ms.
    pub high_ms: Option<f64>,
    /// How many.
    pub gaps: u64,
    /// Share of all gaps, percent.
    pub pct: f64,
    /// Their time together, seconds.
    pub idle_s: f64,
    /// Share of all idle time, percent.
    pub idle_pct: f64,
    /// Blocks whose reclaim fits whole into them, each gap by itself.
    pub gc_blocks: u64,
}

/// The delay of requests by the idle gap before them: `issue - start` where known, else the service time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WakeRow {
    /// Name of the range of gaps.
    pub bin: String,
    /// Gaps above this, ms.
    pub low_ms: f64,
    /// Gaps up to this, ms.
    pub high_ms: Option<f64>,
    /// Requests that came after such a gap.
    pub requests: u64,
    /// Median delay, ms (upper edge of a bin a sixteenth of an octave wide).
    pub median_delay_ms: f64,
    /// 90 % are delayed by at most this, ms.
    pub p90_delay_ms: f64,
}

/// The requests of one process; beyond 64 processes the rest is one row. Response times are those of reads and writes; their
/// percentiles are at most 1 / 32 too high, and are kept for the first 1,024 names of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessRow {
    /// Its name, or `(unknown)` and `(others)`.
    pub process: String,
    /// The counts.
    #[serde(flatten)]
    pub share: ShareRow,
}

/// The part of one process or device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
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
    /// Writes among its reads and writes, percent.
    pub write_requests_pct: Option<f64>,
    /// Id of the process, where all its requests carry the same.
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
}

/// The requests to one device; beyond 64 devices the rest is one row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceRow {
    /// Its name, or `(unknown)` and `(others)`.
    pub device: String,
    /// The counts.
    #[serde(flatten)]
    pub share: ShareRow,
}

/// Requests after a time without requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReissueRow {
    /// The times in words.
    pub bin: String,
    /// Times above this, from the arrival of the request before, ms.
    pub low_ms: u64,
    /// Times up to this, ms.
    pub high_ms: Option<u64>,
    /// Requests, without re-issues.
    pub requests: u64,
    /// Those that were issued again.
    pub reissued: u64,
    /// Their share, percent.
    pub pct: f64,
}

/// One wait of a process for a file to be durable (`fsync`, `fdatasync`, `msync`).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StallRow {
    /// Its process.
    pub process: String,
    /// The kind of file system.
    pub file_system: String,
    /// Start of the call, from the first arrival, seconds; below 0 if it began before.
    pub start_s: f64,
    /// Its end, seconds.
    pub end_s: f64,
    /// Its duration, ms.
    pub wait_ms: f64,
}

/// Requests with a flag, or flushes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlagRow {
    /// `flush` (the operation), or the name of a flag: `sync`, `fua`, `preflush`, `meta`, `readahead`, `packed`.
    pub flag: &'static str,
    /// Requests that have it; `None` if the format of the trace cannot record it.
    pub requests: Option<u64>,
    /// Share of all requests, flushes and discards among them, percent.
    pub pct: Option<f64>,
    /// Per second of the duration.
    pub per_s: Option<f64>,
}
