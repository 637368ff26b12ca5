//! The requests that fio would issue for a job file, as a trace (based on fio's HOWTO and source; checked against I/O logs of fio 3.33).
//!
//! Jobs run concurrently; a job with `stonewall` starts when all jobs before it have ended. `numjobs` creates copies of a job. Each file is
//! a region of the address space; without file names, each copy has files of its own. A file under `/dev/` is a device, whose first sector
//! is 0 in the trace. Without a rate and think times, the requests of a job arrive one microsecond after each other (`iodepth` of them at
//! once if the engine keeps several in flight): they are meant to be replayed back to back.
//!
//! Random offsets cover each block once before any is repeated, as with fio's random map, unless `norandommap` or another distribution is
//! set. The random numbers are not those of fio: sizes, shares, reuse and distribution agree with fio, single addresses do not.

mod job;
mod lines;
mod load;
mod offsets;
mod options;
mod runner;
mod trace_format;

use std::collections::BTreeMap;
use std::sync::Arc;

use emmclab_trace::{BATCH_ROWS, Batch, BatchBuilder, Error, ErrorClass, NameId, NameTable, Nanos, Request, Result};

use job::FioJob;
use runner::FioRunner;

pub use job::WorkloadPattern;
pub use load::{FioLoad, FioReport, FioWorker};
pub use trace_format::{FORMAT, environment, read_job_file};

/// Alignment of the regions of files, in sectors.
const REGION_ALIGN: u64 = 1 << 11;
/// Maximum number of jobs with all their copies (`numjobs`): far more than a machine has threads.
const MOST_JOBS: u64 = 1 << 12;
/// Time between the last request of a group of concurrent jobs and the first request of the next group, in ns.
const STEP_NS: i64 = 1_000;

/// The trace of a job file. The same text, seed and version give the same bytes.
pub struct FioJobs {
    /// Copies of jobs that have not started, in groups. The copies of a group run concurrently; the groups run one after another. The last
    /// group in the list runs next.
    groups: Vec<Vec<FioRunner>>,
    running: Vec<FioRunner>,
    /// Time at which the running group started, ns.
    begin: i64,
    last: i64,
    left: u64,
    names: Arc<NameTable>,
    devices: Arc<NameTable>,
    note: String,
}

impl FioJobs {
    /// Reads a job file. `requests` ends the trace after this number of requests; `variable` returns the value of a `${NAME}` in the file.
    /// Errors: if an option is not supported, a value is invalid, or a job has no end.
    pub fn new(text: &str, seed: u64, requests: Option<u64>, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let jobs = options::jobs(text, variable)?;
        Self::of_jobs(&jobs, seed, requests, note(&jobs))
    }

    fn of_jobs(jobs: &[FioJob], seed: u64, requests: Option<u64>, note: String) -> Result<Self> {
        let mut copier = JobCopier::new(seed);
        let mut groups = Vec::new();
        for job in jobs {
            job.check(requests.is_some())?;
            add_to_group(&mut groups, job, copier.copies(job)?);
        }
        groups.reverse();
        let mut trace = Self {
            groups,
            running: Vec::new(),
            begin: 0,
            last: 0,
            left: requests.unwrap_or(u64::MAX),
            names: Arc::new(copier.names),
            devices: Arc::new(copier.devices),
            note,
        };
        trace.next_group();
        Ok(trace)
    }

    /// Remarks for users of the trace.
    pub fn note(&self) -> &str {
        &self.note
    }

    fn next_group(&mut self) {
        self.begin = self.last;
        self.running = self.groups.pop().unwrap_or_default();
    }

    /// The next request of all running jobs, in order of time; requests of the same time are in the order of the jobs. `None` at the end.
    fn request(&mut self) -> Option<Request> {
        loop {
            let earliest = self
                .running
                .iter_mut()
                .enumerate()
                .filter_map(|(at, runner)| Some((runner.peek()?.arrival, at)))
                .min()
                .map(|(_, at)| at);
            if let Some(mut request) = earliest.and_then(|at| self.running[at].take()) {
                request.arrival = Nanos(request.arrival.0.saturating_add(self.begin));
                self.last = self.last.max(request.arrival.0.saturating_add(STEP_NS));
                return Some(request);
            }
            if self.groups.is_empty() {
                return None;
            }
            self.next_group();
        }
    }
}

impl Iterator for FioJobs {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        let mut builder = BatchBuilder::default();
        while builder.len() < BATCH_ROWS && self.left > 0 {
            let Some(request) = self.request() else { break };
            builder.push(&request);
            self.left -= 1;
        }
        (!builder.is_empty()).then(|| builder.finish(&self.names, &self.devices))
    }
}

/// Creates the copies of jobs, in the order of the job file.
struct JobCopier {
    seed: u64,
    /// Number of the next job, from 0.
    number: u64,
    /// Number of copies of all jobs so far.
    copies: u64,
    names: NameTable,
    devices: NameTable,
    regions: FileRegions,
}

impl JobCopier {
    fn new(seed: u64) -> Self {
        let (names, devices) = (NameTable::default(), NameTable::default());
        Self { seed, number: 0, copies: 0, names, devices, regions: FileRegions::default() }
    }

    /// Creates all copies of the next job (`numjobs`).
    /// Errors: if there are too many copies, or the files of a copy do not fit into the address space.
    fn copies(&mut self, job: &FioJob) -> Result<Vec<FioRunner>> {
        self.copies = self.copies.saturating_add(job.numjobs);
        if self.copies > MOST_JOBS {
            return Err(job
                .invalid_value("numjobs", &job.numjobs.to_string(), "the job file results in more than 4,096 copies of jobs")
                .hint("give the jobs a smaller numjobs"));
        }
        let process = self.names.intern(&job.name);
        let number = self.number;
        self.number += 1;
        let shared = Arc::new(job.clone());
        let copy = |copy| {
            let places = self.regions.of(job, copy, &mut self.devices)?;
            let own = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number << 32 | copy);
            FioRunner::new(shared.clone(), &places, own, process)
        };
        (0..job.numjobs).map(copy).collect()
    }
}

/// Adds the copies of a job to the last group, or begins a new group with them if the job waits for the jobs before it (`stonewall`).
fn add_to_group<T>(groups: &mut Vec<Vec<T>>, job: &FioJob, mut copies: Vec<T>) {
    match groups.last_mut() {
        Some(group) if !job.stonewall => group.append(&mut copies),
        _ => groups.push(copies),
    }
}

/// The regions of files in the address space.
#[derive(Default)]
struct FileRegions {
    /// First sector and length of each file.
    files: BTreeMap<String, (u64, u64)>,
    end: u64,
}

impl FileRegions {
    /// For each file of one clone of a job (`numjobs`): the offset of its first access, and the device if the file is a device.
    fn of(&mut self, job: &FioJob, copy: u64, devices: &mut NameTable) -> Result<Vec<(u64, Option<NameId>)>> {
        let begin = job.begin(copy)?;
        let length = (begin + job.file_length()).div_ceil(512).next_multiple_of(REGION_ALIGN);
        let mut places = Vec::new();
        for number in 0..job.file_count() {
            let name = match (job.files.get(number as usize), job.files.as_slice()) {
                (Some(name), _) => name.clone(),
                (None, [name]) => format!("{name}.{number}"),
                (None, _) => format!("{}.{copy}.{number}", job.name),
            };
            if name.starts_with("/dev/") {
                places.push((begin, Some(devices.intern(&name))));
                continue;
            }
            let folder = job.directory.as_deref().filter(|_| !name.starts_with('/'));
            let path = folder.map_or_else(|| name.clone(), |folder| format!("{folder}/{name}"));
            places.push((self.first(&path, length, job)? * 512 + begin, None));
        }
        Ok(places)
    }

    /// The first sector of a file's region.
    fn first(&mut self, path: &str, length: u64, job: &FioJob) -> Result<u64> {
        let end = self.end;
        let (first, room) = *self.files.entry(path.to_owned()).or_insert((end, length));
        if first == end {
            self.end = end.checked_add(room).filter(|end| *end < 1 << 54).ok_or_else(|| {
                job.invalid_value("size", &job.file_length().to_string(), "this and earlier files need more than 2^63 bytes")
                    .hint("give the jobs a smaller size=")
            })?;
        } else if room < length {
            return Err(job
                .invalid_value(
                    "size",
                    &job.file_length().to_string(),
                    &format!("the job uses a larger part of file `{path}` than an earlier job"),
                )
                .hint("put the job that uses the largest part of the file first, or give its file a separate name"));
        }
        Ok(first)
    }
}

/// Remarks for users about properties of the jobs that the trace does not contain.
fn note(jobs: &[FioJob]) -> String {
    let mut parts = vec!["generated from a fio job file: the addresses are random numbers of emmclab".to_owned()];
    if jobs.iter().any(|job| !job.is_paced() && job.think_ns == 0) {
        parts.push("replay jobs without a rate back to back".to_owned());
    }
    let cached: Vec<_> = jobs.iter().filter(|job| !job.direct).map(|job| job.name.as_str()).collect();
    if !cached.is_empty() {
        parts.push(format!("without direct=1 the page cache is between {} and the device", cached.join(", ")));
    }
    parts.join("; ")
}

/// Returns the error of a value that an option of a pattern cannot have.
fn impossible(option: &str, value: impl std::fmt::Display, problem: &str) -> Error {
    Error::new(ErrorClass::Config, problem).of_field(option, 0, value.to_string().as_bytes())
}
