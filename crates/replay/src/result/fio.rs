//! The figures of fio for each job of a job file.

use std::collections::BTreeMap;

use emmclab_synth::fio::FioReport;
use emmclab_trace::{Nanos, Op};
use schemars::JsonSchema;
use serde::Serialize;

use crate::time_histogram::{TimeHistogram, percentiles_of};

/// The figures of fio for the jobs of a job file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct FioResult {
    /// Reads, writes and discards of all jobs per second of their runtime; null if none was measured. Jobs that run one after another add
    /// their runtimes.
    #[schemars(extend("label" = "IOPS", "unit" = "", "better" = "higher"))]
    pub iops: Option<f64>,
    /// Data of all jobs per second of their runtime; null if no request was measured.
    #[schemars(extend("label" = "Bandwidth", "digits" = 1, "better" = "higher"))]
    pub mb_per_s: Option<f64>,
    /// Mean latency of the reads, writes and discards of all jobs; null if none was measured.
    #[schemars(extend("label" = "Mean latency", "digits" = 1, "better" = "lower"))]
    pub lat_us: Option<f64>,
    /// For each job, or for each reporting group with `group_reporting`: a list of `name`, `group`, `copies`, `queue_depth`, `options`,
    /// `runtime_s`, and `read`, `write`, `trim` and `sync`, each with `requests`, `bytes`, `iops`, `mb_per_s`, `slat`, `clat` and `lat`
    /// (`min_us`, `max_us`, `mean_us`, `stddev_us`) and `percentiles` (`percentile`, `clat_us`).
    pub jobs: Vec<FioJobResult>,
}

impl FioResult {
    pub(crate) fn new(totals: Vec<FioTotals>) -> Self {
        let mut runtimes: BTreeMap<u32, Nanos> = BTreeMap::new();
        let (mut requests, mut bytes, mut lat_ns) = (0, 0, 0.0);
        for job in &totals {
            let runtime = runtimes.entry(job.report.step).or_default();
            *runtime = job.runtime.max(*runtime);
            for operation in &job.operations[..3] {
                requests += operation.total.count;
                bytes += operation.bytes;
                lat_ns += operation.total.mean * operation.total.count as f64;
            }
        }
        let runtime_s: f64 = runtimes.values().map(|runtime| runtime.as_secs_f64()).sum();
        let per_second = |count: f64| (requests > 0 && runtime_s > 0.0).then(|| count / runtime_s);
        Self {
            iops: per_second(requests as f64),
            mb_per_s: per_second(bytes as f64 / 1_048_576.0),
            lat_us: (requests > 0).then(|| lat_ns / requests as f64 / 1e3),
            jobs: totals.into_iter().map(FioTotals::result).collect(),
        }
    }
}

/// The figures of a job, or of all jobs of a reporting group, by the definitions of fio.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct FioJobResult {
    /// Name of the job.
    pub name: String,
    /// Number of the reporting group, from 0.
    pub group: u32,
    /// Number of copies of jobs that are measured together.
    pub copies: u32,
    /// Maximum number of unfinished requests of a copy.
    pub queue_depth: u64,
    /// Options of the first job and of the global sections, as in the job file; `1` for an option without a value.
    pub options: BTreeMap<String, String>,
    /// Simulated time from the start of the job, after its ramp time, to its last completion.
    pub runtime_s: f64,
    /// Reads; null if there were none.
    pub read: Option<FioOperationResult>,
    /// Writes; null if there were none.
    pub write: Option<FioOperationResult>,
    /// Discards; null if there were none.
    pub trim: Option<FioOperationResult>,
    /// Calls of `fsync` or `fdatasync`; null if there were none.
    pub sync: Option<FioOperationResult>,
}

/// The figures of one operation of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct FioOperationResult {
    /// Number of requests.
    pub requests: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Requests per second of the job's runtime.
    pub iops: f64,
    /// MB (1,048,576 bytes) per second of the job's runtime.
    pub mb_per_s: f64,
    /// Submission latency: from the preparation of a request to its submission; null for engines that wait for each request.
    pub slat: Option<FioLatency>,
    /// Completion latency: from the submission of a request until fio has its completion.
    pub clat: FioLatency,
    /// Total latency: submission and completion latency.
    pub lat: FioLatency,
    /// Percentiles of the completion latency, at most 0.1 % too high.
    pub percentiles: Vec<FioPercentile>,
}

/// Minimum, maximum, mean and standard deviation of a latency, in us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct FioLatency {
    /// Minimum.
    pub min_us: f64,
    /// Maximum.
    pub max_us: f64,
    /// Mean.
    pub mean_us: f64,
    /// Standard deviation; 0 for a single request.
    pub stddev_us: f64,
}

/// A percentile of the completion latency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FioPercentile {
    /// The percentile, above 0 to 100.
    pub percentile: f64,
    /// The latency that this percentage of the requests does not exceed.
    pub clat_us: f64,
}

/// Accumulates the latencies of a job.
#[derive(Clone, Debug)]
pub(crate) struct FioTotals {
    report: FioReport,
    runtime: Nanos,
    /// Totals of reads, writes, discards and syncs.
    operations: [FioOperationTotals; 4],
}

#[derive(Clone, Debug, Default)]
struct FioOperationTotals {
    bytes: u64,
    is_asynchronous: bool,
    submission: LatencyMoments,
    completion: LatencyMoments,
    total: LatencyMoments,
    completions: TimeHistogram,
}

/// Count, extremes, mean and variance of latencies, updated by Welford's method.
#[derive(Clone, Copy, Debug, Default)]
struct LatencyMoments {
    count: u64,
    min: i64,
    max: i64,
    mean: f64,
    /// Sum of the squared distances from the mean.
    squares: f64,
}

impl LatencyMoments {
    fn add(&mut self, latency: Nanos) {
        self.count += 1;
        self.min = if self.count == 1 { latency.0 } else { self.min.min(latency.0) };
        self.max = self.max.max(latency.0);
        let distance = latency.0 as f64 - self.mean;
        self.mean += distance / self.count as f64;
        self.squares += distance * (latency.0 as f64 - self.mean);
    }

    fn result(&self) -> FioLatency {
        let variance = if self.count > 1 { self.squares / (self.count - 1) as f64 } else { 0.0 };
        FioLatency {
            min_us: self.min as f64 / 1e3,
            max_us: self.max as f64 / 1e3,
            mean_us: self.mean / 1e3,
            stddev_us: variance.sqrt() / 1e3,
        }
    }
}

impl FioTotals {
    pub fn new(report: FioReport) -> Self {
        Self { report, runtime: Nanos::ZERO, operations: Default::default() }
    }

    /// Adds a completed request with its submission and completion latency.
    pub fn add(&mut self, op: Op, bytes: u64, (submission, completion): (Nanos, Nanos), is_asynchronous: bool) {
        let totals = &mut self.operations[match op {
            Op::Read => 0,
            Op::Write => 1,
            Op::Discard | Op::SecureErase => 2,
            Op::Flush => 3,
        }];
        // Of an engine that waits, fio measures only the whole call.
        let completion = if is_asynchronous { completion } else { submission + completion };
        totals.is_asynchronous = is_asynchronous;
        totals.bytes += bytes;
        totals.submission.add(submission);
        totals.completion.add(completion);
        totals.total.add(if is_asynchronous { submission + completion } else { completion });
        totals.completions.add(completion.0.cast_unsigned());
    }

    /// Records the time for which a copy ran.
    pub fn ran(&mut self, measured: Nanos) {
        self.runtime = self.runtime.max(measured);
    }

    fn result(self) -> FioJobResult {
        let runtime_s = self.runtime.as_secs_f64();
        let [read, write, trim, sync] = self.operations.map(|totals| totals.result(runtime_s, &self.report.percentiles));
        FioJobResult {
            name: self.report.name,
            group: self.report.group,
            copies: self.report.copies,
            queue_depth: self.report.queue_depth,
            options: self.report.options,
            runtime_s,
            read,
            write,
            trim,
            sync,
        }
    }
}

impl FioOperationTotals {
    fn result(&self, runtime_s: f64, percentiles: &[f64]) -> Option<FioOperationResult> {
        let requests = self.completion.count;
        let per_second = |count: f64| if runtime_s > 0.0 { count / runtime_s } else { 0.0 };
        let clats = percentiles_of(&[&self.completions], requests, percentiles);
        (requests > 0).then(|| FioOperationResult {
            requests,
            bytes: self.bytes,
            iops: per_second(requests as f64),
            mb_per_s: per_second(self.bytes as f64 / 1_048_576.0),
            slat: self.is_asynchronous.then(|| self.submission.result()),
            clat: self.completion.result(),
            lat: self.total.result(),
            percentiles: percentiles
                .iter()
                .zip(clats)
                .map(|(percentile, ns)| FioPercentile { percentile: *percentile, clat_us: ns as f64 / 1e3 })
                .collect(),
        })
    }
}
