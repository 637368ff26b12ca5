//! Workloads that a few figures describe: share of reads, size, skew, rate.

use emmclab_trace::{Op, Result};

use super::job::{FioJob, FioOperations, FioPattern as Accesses, FioRates};
use super::offsets::OffsetDistribution;
use super::{FioJobs, impossible};

/// A workload described by a few figures.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadPattern {
    /// Percentage of reads; the others are writes.
    pub read_pct: u64,
    /// Bytes of each request.
    pub bytes: u64,
    /// Bytes of the part of the disk that is accessed.
    pub span: u64,
    /// Percentage of requests at a random place; the others continue where the last one ended.
    pub random_pct: u64,
    /// The exponent of a Zipf distribution of random places; `None` if all blocks have the same probability.
    pub zipf: Option<f64>,
    /// Requests in a second.
    pub iops: f64,
    /// Whether requests arrive at random times (a Poisson process) rather than at equal intervals.
    pub poisson: bool,
    /// Writes between two flushes; 0 for none.
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
    /// The trace of this many reads and writes.
    ///
    /// # Errors
    /// If a figure is out of range.
    pub fn trace(&self, seed: u64, requests: u64) -> Result<FioJobs> {
        let job = self.job(requests)?;
        let note = "requests of one kind, which depend neither on each other nor on the time that a device needs";
        FioJobs::of_jobs(&[job], seed, None, note.to_owned())
    }

    fn job(&self, requests: u64) -> Result<FioJob> {
        if requests == 0 {
            return Err(impossible("requests", requests, "is no number of requests").hint("give 1 and more"));
        }
        for (option, value) in [("reads", self.read_pct), ("random", self.random_pct)] {
            if value > 100 {
                return Err(impossible(option, value, "is more than 100 percent").hint("give 0 to 100"));
            }
        }
        let fits = self.bytes > 0 && self.bytes.is_multiple_of(512) && self.bytes <= 1 << 30;
        if !fits {
            return Err(impossible("size", self.bytes, "is no size of a request in bytes")
                .hint("give a multiple of 512 bytes up to 1 GiB, such as 4k"));
        }
        if self.span < self.bytes || self.span > 1 << 50 {
            return Err(impossible("span", self.span, "is no size of a part of a disk in bytes")
                .hint("give the size of a request up to 1 PiB, such as 1g"));
        }
        if self.zipf.is_some_and(|theta| !(theta > 0.0 && theta < 10.0)) {
            return Err(impossible(
                "zipf",
                self.zipf.unwrap_or(0.0),
                "is no supported exponent of a Zipf distribution",
            )
            .hint("give more than 0 and less than 10, such as 0.9"));
        }
        if !(self.iops >= 0.001 && self.iops <= 1e9) {
            return Err(impossible("iops", self.iops, "is no rate of requests in a second").hint("give 0.001 to 1e9"));
        }
        let ops = match self.read_pct {
            0 => FioOperations::Only(Op::Write),
            100 => FioOperations::Only(Op::Read),
            _ => FioOperations::Mixed,
        };
        let sizes = vec![(self.bytes, 100)];
        Ok(FioJob {
            name: "pattern".to_owned(),
            pattern: Accesses { ops, random: self.random_pct > 0, run: 1, hole: 0 },
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
