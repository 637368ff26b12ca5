//! A job, from a fio job file or from a workload described by a few figures: what is read and written, at which addresses, and when.

use std::collections::BTreeMap;

use emmclab_trace::{Error, ErrorClass, Op, Result};

use super::offsets::{BlockCoverage, OffsetDistribution};
use super::{FioJobs, impossible};

/// The access pattern of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FioPattern {
    pub ops: FioOperations,
    pub random: bool,
    /// Number of consecutive requests that follow each random offset, at least 1; only for random patterns.
    pub run: u64,
    /// Bytes skipped after each request, backwards if negative; only for sequential patterns.
    pub hole: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FioOperations {
    Only(Op),
    Mixed,
    /// Each block is trimmed, then written.
    TrimWrite,
}

/// The offsets of the requests that follow a random offset (`rw_sequencer`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FioSequencer {
    Sequential,
    Identical,
}

/// The order in which a job uses its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FioFileOrder {
    RoundRobin,
    Random,
    Sequential,
}

/// Sizes in bytes, with their weights.
pub(super) type Sizes = Vec<(u64, u64)>;

/// Maximum rate of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum FioRate {
    BytesPerSecond(u64),
    RequestsPerSecond(u64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum FioRates {
    /// Separate rates for reads, writes and trims; `None` without a limit.
    Each([Option<FioRate>; 3]),
    /// Requests of all operations together, per second.
    All(f64),
}

/// A job with its options, including those inherited from `[global]`.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of fio")]
pub(super) struct FioJob {
    pub name: String,
    pub line: u64,
    /// All options with their values as text, `1` for those without a value.
    pub options: BTreeMap<String, String>,
    pub pattern: FioPattern,
    pub sequencer: FioSequencer,
    /// Sizes of reads, writes and trims.
    pub sizes: [Sizes; 3],
    /// Whether the sizes were given as a range.
    pub is_range: bool,
    /// Alignment of the random offsets of reads, writes and trims, in bytes; `None` for the smallest size.
    pub align: Option<u64>,
    pub size: Option<u64>,
    pub file_size: Option<u64>,
    pub io_size: Option<u64>,
    pub number_ios: Option<u64>,
    pub offset: u64,
    pub offset_increment: u64,
    pub numjobs: u64,
    pub loops: u64,
    pub read_pct: u64,
    /// Percentage of random requests in a random pattern, for reads, writes and trims.
    pub random_pct: u64,
    pub iodepth: u64,
    /// Number of unfinished requests to which a full queue drains before the job issues again; `None` for `iodepth` - 1.
    pub iodepth_low: Option<u64>,
    /// Number of requests that the job submits together.
    pub submit_batch: u64,
    /// Least number of completions that the job waits for when it waits.
    pub complete_batch: u64,
    pub in_flight: bool,
    /// Whether the engine waits for each discard.
    pub discards_wait: bool,
    /// Number of writes between two syncs; 0 for no syncs.
    pub fsync: u64,
    pub end_fsync: bool,
    pub direct: bool,
    pub sync: bool,
    pub think_ns: u64,
    pub think_requests: u64,
    pub rates: FioRates,
    pub poisson: bool,
    pub random_map: bool,
    pub distribution: OffsetDistribution,
    /// Whether the written data is read again after the job.
    pub verify: bool,
    pub do_verify: bool,
    pub directory: Option<String>,
    /// Names of files; if empty, fio's default names are used.
    pub files: Vec<String>,
    pub number_files: u64,
    pub file_order: FioFileOrder,
    pub stonewall: bool,
    pub start_ns: u64,
    pub runtime_ns: Option<u64>,
    pub time_based: bool,
    /// Time at the start of the job whose requests are not measured.
    pub ramp_ns: u64,
    /// Whether the copies of the jobs of a reporting group are measured together.
    pub group_reporting: bool,
    /// Whether the job begins a reporting group.
    pub new_group: bool,
    /// Whether the jobs of its group end when this one ends.
    pub exit_all: bool,
    /// Percentiles of the latencies; empty for those of fio.
    pub percentiles: Vec<f64>,
}

impl Default for FioJob {
    /// The defaults of fio for a job without options.
    fn default() -> Self {
        let usual = vec![(4096, 100)];
        Self {
            name: "global".to_owned(),
            line: 1,
            options: BTreeMap::new(),
            pattern: FioPattern { ops: FioOperations::Only(Op::Read), random: false, run: 1, hole: 0 },
            sequencer: FioSequencer::Sequential,
            sizes: [usual.clone(), usual.clone(), usual],
            is_range: false,
            align: None,
            size: None,
            file_size: None,
            io_size: None,
            number_ios: None,
            offset: 0,
            offset_increment: 0,
            numjobs: 1,
            loops: 1,
            read_pct: 50,
            random_pct: 100,
            iodepth: 1,
            iodepth_low: None,
            submit_batch: 1,
            complete_batch: 1,
            in_flight: false,
            discards_wait: true,
            fsync: 0,
            end_fsync: false,
            direct: false,
            sync: false,
            think_ns: 0,
            think_requests: 1,
            rates: FioRates::Each([None; 3]),
            poisson: false,
            random_map: true,
            distribution: OffsetDistribution::Even,
            verify: false,
            do_verify: true,
            directory: None,
            files: Vec::new(),
            number_files: 1,
            file_order: FioFileOrder::RoundRobin,
            stonewall: false,
            start_ns: 0,
            runtime_ns: None,
            time_based: false,
            ramp_ns: 0,
            group_reporting: false,
            new_group: false,
            exit_all: false,
            percentiles: Vec::new(),
        }
    }
}

/// Options that end or slow down a job by what it measures.
const ENDS_OR_THROTTLES: [&str; 5] = ["iodepth_batch_complete_max", "max_latency", "rate_min", "ratemin", "rate_iops_min"];

impl FioJob {
    /// Returns an error about an option of this job.
    pub fn invalid_value(&self, option: &str, value: &str, problem: &str) -> Error {
        let problem = format!("{problem} (job `{}`)", self.name);
        Error::new(ErrorClass::Config, problem).of_field(option, 0, value.as_bytes()).at_line(self.line)
    }

    /// Refuses a job that cannot become a trace: without an end that is known before it runs. `cut` is true if the trace ends after a number
    /// of requests that the user gives.
    pub fn check(&self, cut: bool) -> Result<()> {
        self.check_consistency()?;
        if self.exit_all {
            return Err(self
                .invalid_value("exitall", "1", "exitall ends the other jobs at a time that depends on the device")
                .hint("set exitall=0, or simulate the job file"));
        }
        let limited = cut || self.number_ios.is_some() || self.is_paced() && self.runtime_ns.is_some();
        if self.time_based && !limited {
            return Err(self
                .invalid_value("time_based", "1", "the job runs for a time in which the number of requests depends on the device")
                .hint("give the number of requests with --requests, or give the job a rate for each operation"));
        }
        Ok(())
    }

    /// Refuses a job that cannot run in closed loop on a device: one that uses the page cache.
    pub fn check_closed_loop(&self) -> Result<()> {
        self.check_consistency()?;
        if !self.direct {
            return Err(self
                .invalid_value(
                    "direct",
                    "0",
                    "the job measures the page cache, which a simulation of the device does not contain",
                )
                .hint("set direct=1; for files in the page cache of a simulated host use `emmclab apps run`"));
        }
        let unsupported = self.options.iter().find(|(name, value)| match name.as_str() {
            "io_submit_mode" => *value != "inline",
            name => ENDS_OR_THROTTLES.contains(&name),
        });
        if let Some((name, value)) = unsupported {
            return Err(self
                .invalid_value(name, value, "the option changes the load, and is not supported in closed loop")
                .hint("leave the option out of the job file"));
        }
        Ok(())
    }

    /// Maximum number of unfinished requests of a copy.
    pub fn queue_depth(&self) -> u64 {
        if self.in_flight { self.iodepth } else { 1 }
    }

    /// Refuses options that contradict each other, and a job without a size.
    fn check_consistency(&self) -> Result<()> {
        let Some(size) = self.size.or(self.file_size) else {
            return Err(self
                .invalid_value("size", "", "the job has no size, and the size of its file is not known here")
                .hint("give the fio job an option size=, such as size=1g"));
        };
        if self.time_based && self.runtime_ns.is_none() {
            return Err(self.invalid_value("time_based", "1", "time_based needs a runtime").hint("set a runtime, such as 10s"));
        }
        if self.file_length() < self.largest() {
            let problem = "the size is too small for one block in each file of the job";
            return Err(self
                .invalid_value("size", &size.to_string(), problem)
                .hint("give the fio job a size= of at least one block for each of its files"));
        }
        if self.verifies() && (!self.covers() || self.pattern.ops == FioOperations::Mixed && self.is_rated()) {
            return Err(self
                .invalid_value("verify", "1", "the job verifies in an order that depends on fio's own random numbers")
                .hint("set do_verify=0, or leave out norandommap, random_distribution and the rate"));
        }
        if let FioRates::Each(rates) = self.rates {
            let is_bytes = rates.iter().flatten().map(|rate| matches!(rate, FioRate::BytesPerSecond(_)));
            if is_bytes.clone().any(|is| is) && !is_bytes.clone().all(|is| is) {
                return Err(self.invalid_value("rate_iops", "", "rate_iops excludes rate").hint("give either rate_iops or rate"));
            }
        }
        Ok(())
    }

    /// The rate that limits an operation; `None` if no rate does.
    pub fn rate_of(&self, op: Op) -> Option<FioRate> {
        match self.rates {
            FioRates::Each(rates) => rates[index(op)],
            FioRates::All(_) => None,
        }
    }

    fn is_rated(&self) -> bool {
        match self.rates {
            FioRates::Each(rates) => rates.iter().any(Option::is_some),
            FioRates::All(_) => true,
        }
    }

    /// Whether each operation of the job has a rate, so that a runtime determines the number of requests.
    pub fn is_paced(&self) -> bool {
        matches!(self.rates, FioRates::All(_)) || self.ops().all(|op| self.rate_of(op).is_some())
    }

    /// The operations whose sizes and rates the job uses.
    pub fn ops(&self) -> impl Iterator<Item = Op> + use<> {
        let ops = self.pattern.ops;
        [Op::Read, Op::Write, Op::Discard].into_iter().filter(move |op| match ops {
            FioOperations::Only(only) => only == *op,
            FioOperations::Mixed => *op != Op::Discard,
            FioOperations::TrimWrite => *op == Op::Discard,
        })
    }

    fn used_sizes(&self) -> impl Iterator<Item = u64> {
        self.ops().flat_map(|op| self.sizes[index(op)].iter().map(|(bytes, _)| *bytes))
    }

    fn largest(&self) -> u64 {
        self.used_sizes().max().unwrap_or(1)
    }

    fn smallest(&self) -> u64 {
        self.used_sizes().min().unwrap_or(1)
    }

    /// Size of a block of the random map and of the distributions, in bytes.
    pub fn unit(&self) -> u64 {
        self.align.unwrap_or_else(|| self.smallest())
    }

    /// Alignment of the random offsets of an operation, in bytes.
    pub fn align_of(&self, op: Op) -> u64 {
        self.align.unwrap_or_else(|| self.sizes[index(op)].iter().map(|(bytes, _)| *bytes).min().unwrap_or(1))
    }

    /// Number of blocks of a file at which a random request may begin.
    pub fn blocks(&self) -> u64 {
        let unit = self.unit();
        self.file_length().saturating_sub(self.smallest().saturating_sub(unit)) / unit
    }

    fn covers(&self) -> bool {
        let aligned = self.align.is_none_or(|align| align == self.smallest());
        !self.pattern.random || self.random_map && aligned && self.distribution == OffsetDistribution::Even
    }

    /// Whether and how a pass over the file accesses each random block only once.
    pub fn coverage(&self) -> BlockCoverage {
        match (self.covers(), self.largest() == self.smallest()) {
            (false, _) => BlockCoverage::Any,
            (true, true) => BlockCoverage::OneSize,
            (true, false) => BlockCoverage::Sizes,
        }
    }

    /// Whether the data that the job writes is read again after the job.
    pub fn verifies(&self) -> bool {
        self.verify && self.do_verify && self.writes() && !self.time_based
    }

    pub fn writes(&self) -> bool {
        self.pattern.ops != FioOperations::Only(Op::Read) && self.pattern.ops != FioOperations::Only(Op::Discard)
    }

    /// Number of files of each copy of the job (`numjobs`).
    pub fn file_count(&self) -> u64 {
        self.number_files.max(self.files.len() as u64)
    }

    /// Number of bytes that one copy of the job (`numjobs`) accesses in a pass over all its files.
    pub fn total(&self) -> u64 {
        self.io_size.or(self.size).unwrap_or_else(|| self.file_length().saturating_mul(self.file_count()))
    }

    /// Number of bytes of each file that the job accesses.
    pub fn file_length(&self) -> u64 {
        let share = self.size.map(|size| size / self.file_count());
        match (share, self.file_size) {
            (Some(share), Some(file_size)) => share.min(file_size),
            (share, file_size) => share.or(file_size).unwrap_or(0),
        }
    }

    /// The byte offset in the file at which the copy of the job with this number (`numjobs`) begins.
    pub fn begin(&self, copy: u64) -> Result<u64> {
        let begin = copy.checked_mul(self.offset_increment).and_then(|more| more.checked_add(self.offset));
        let end = begin.and_then(|begin| begin.checked_add(self.file_length()));
        match (begin, end) {
            (Some(begin), Some(end)) if end < 1 << 63 => Ok(begin),
            _ => Err(self.invalid_value("offset", &self.offset.to_string(), "the offset and the size reach beyond byte 2^63")),
        }
    }
}

/// The index of an operation in the arrays of sizes and rates.
pub(super) fn index(op: Op) -> usize {
    match op {
        Op::Read => 0,
        Op::Write => 1,
        _ => 2,
    }
}

/// A workload described by a few figures.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadPattern {
    /// Percentage of reads; the others are writes.
    pub read_pct: u64,
    /// Bytes of each request.
    pub bytes: u64,
    /// Bytes of the part of the disk that is accessed.
    pub span: u64,
    /// Percentage of requests at a random address; the others start where the last one ended.
    pub random_pct: u64,
    /// The exponent of a Zipf distribution of the random addresses; `None` if all blocks have the same probability.
    pub zipf: Option<f64>,
    /// Requests per second.
    pub iops: f64,
    /// Whether requests arrive at random times (a Poisson process) rather than at equal intervals.
    pub poisson: bool,
    /// Number of writes between two flushes; 0 for no flushes.
    pub flush_every: u64,
}

impl Default for WorkloadPattern {
    fn default() -> Self {
        Self {
            read_pct: 50,
            bytes: 4096,
            span: 1 << 30,
            random_pct: 100,
            zipf: None,
            iops: 1_000.0,
            poisson: true,
            flush_every: 0,
        }
    }
}

impl WorkloadPattern {
    /// Generates a trace with `requests` reads and writes.
    /// Errors: if a value is out of range.
    pub fn trace(&self, seed: u64, requests: u64) -> Result<FioJobs> {
        let job = self.job(requests)?;
        let note = "requests of one kind, which depend neither on each other nor on the speed of a device";
        FioJobs::of_jobs(&[job], seed, None, note.to_owned())
    }

    fn job(&self, requests: u64) -> Result<FioJob> {
        if requests == 0 {
            return Err(impossible("requests", requests, "the number of requests is 0").hint("give 1 request or more"));
        }
        for (option, value) in [("reads", self.read_pct), ("random", self.random_pct)] {
            if value > 100 {
                return Err(impossible(option, value, "a share is more than 100 percent").hint("give 0 to 100 percent"));
            }
        }
        let fits = self.bytes > 0 && self.bytes.is_multiple_of(512) && self.bytes <= 1 << 30;
        if !fits {
            return Err(impossible("size", self.bytes, "this is not a valid request size in bytes")
                .hint("give a request size that is a multiple of 512 bytes up to 1 GiB, such as 4k"));
        }
        if self.span < self.bytes || self.span > 1 << 50 {
            return Err(impossible("span", self.span, "the size of the part of the disk that the benchmark uses is invalid")
                .hint("give the part of the disk a size from one request up to 1 PiB, such as 1g"));
        }
        if self.zipf.is_some_and(|theta| !(theta > 0.0 && theta < 10.0)) {
            return Err(impossible("zipf", self.zipf.unwrap_or(0.0), "this exponent of a Zipf distribution is not supported")
                .hint("give an exponent of more than 0 and less than 10, such as 0.9"));
        }
        if !(self.iops >= 0.001 && self.iops <= 1e9) {
            return Err(impossible("iops", self.iops, "this request rate is not possible").hint("give 0.001 to 1e9 per second"));
        }
        let ops = match self.read_pct {
            0 => FioOperations::Only(Op::Write),
            100 => FioOperations::Only(Op::Read),
            _ => FioOperations::Mixed,
        };
        let sizes = vec![(self.bytes, 100)];
        Ok(FioJob {
            name: "pattern".to_owned(),
            pattern: FioPattern { ops, random: self.random_pct > 0, run: 1, hole: 0 },
            sizes: [sizes.clone(), sizes.clone(), sizes],
            size: Some(self.span),
            io_size: Some(u64::MAX),
            number_ios: Some(requests),
            read_pct: self.read_pct,
            random_pct: self.random_pct,
            fsync: self.flush_every,
            direct: true,
            rates: FioRates::All(self.iops),
            poisson: self.poisson,
            random_map: false,
            distribution: self.zipf.map_or(OffsetDistribution::Even, OffsetDistribution::Zipf),
            ..FioJob::default()
        })
    }
}
