//! The jobs of a job file as load in closed loop: each copy of a job issues a request when an earlier one completes, as fio does.

use std::collections::BTreeMap;

use emmclab_trace::{Nanos, Op, Request, Result};

use super::job::FioJob;
use super::runner::{FioRunner, nanos};
use super::{JobCopier, add_to_group, options};

/// The percentiles of completion latency that fio prints by default.
const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// Jobs that are measured together: one copy of a job, or all copies of a group with `group_reporting`.
#[derive(Clone, Debug, PartialEq)]
pub struct FioReport {
    /// Name of the first job.
    pub name: String,
    /// Number of the reporting group, from 0.
    pub group: u32,
    /// Number of the group of jobs that run concurrently, from 0.
    pub step: u32,
    /// Number of copies of jobs.
    pub copies: u32,
    /// Largest number of unfinished requests of a copy.
    pub queue_depth: u64,
    /// Percentiles of latency that are reported.
    pub percentiles: Vec<f64>,
    /// Options of the first job and of `[global]`, with their values as text.
    pub options: BTreeMap<String, String>,
}

/// The load of a job file.
pub struct FioLoad {
    /// Copies of jobs that run concurrently; the groups run one after another.
    pub groups: Vec<Vec<FioWorker>>,
    /// The measurements, to which each copy contributes one.
    pub reports: Vec<FioReport>,
    /// End of the last file in the address space, in sectors.
    pub end: u64,
}

impl FioLoad {
    /// Reads a job file for a device of `capacity` bytes. `variable` returns the value of a `${NAME}` in the file, and `replaced` are options
    /// with values that replace those of every job. A job on a file under `/dev/` without `size` uses the whole device.
    /// Errors: if an option is not supported in closed loop, a value is invalid, or a job has no end.
    pub fn new(
        text: &str, seed: u64, capacity: u64, variable: &dyn Fn(&str) -> Option<String>, replaced: &[(String, String)],
    ) -> Result<Self> {
        let mut jobs = options::jobs(text, variable)?;
        for job in &mut jobs {
            options::replace(job, replaced)?;
        }
        let mut copier = JobCopier::new(seed);
        let mut load = Self { groups: Vec::new(), reports: Vec::new(), end: 0 };
        let (mut group, mut step) = (0, 0);
        for (number, job) in jobs.iter_mut().enumerate() {
            if job.size.or(job.file_size).is_none()
                && !job.files.is_empty()
                && job.files.iter().all(|file| file.starts_with("/dev/"))
            {
                job.size = capacity.checked_sub(job.offset).map(|rest| rest.saturating_mul(job.file_count()));
            }
            job.check_closed_loop()?;
            group += u32::from(number > 0 && (job.stonewall || job.new_group));
            step += u32::from(number > 0 && job.stonewall);
            let mut workers = Vec::new();
            for runner in copier.copies(job)? {
                load.end = runner.end().max(load.end);
                workers.push(FioWorker { runner: runner.in_closed_loop(), report: load.report(job, group, step) });
            }
            add_to_group(&mut load.groups, job, workers);
        }
        Ok(load)
    }

    /// The index of the report of the next copy of a job.
    fn report(&mut self, job: &FioJob, group: u32, step: u32) -> usize {
        let is_grouped = job.group_reporting;
        if let Some((at, last)) =
            self.reports.iter_mut().enumerate().next_back().filter(|(_, last)| is_grouped && last.group == group)
        {
            last.copies += 1;
            last.queue_depth = last.queue_depth.max(job.queue_depth());
            return at;
        }
        let percentiles = if job.percentiles.is_empty() { PERCENTILES.to_vec() } else { job.percentiles.clone() };
        self.reports.push(FioReport {
            name: job.name.clone(),
            group,
            step,
            copies: 1,
            queue_depth: job.queue_depth(),
            percentiles,
            options: job.options.clone(),
        });
        self.reports.len() - 1
    }

    /// The duration of all groups, if each job ends by its `runtime`; `None` if a job ends after a number of requests.
    pub fn duration(&self) -> Option<Nanos> {
        let ends = |group: &Vec<FioWorker>| group.iter().map(FioWorker::ends_by).try_fold(0, |end: u64, by| Some(end.max(by?)));
        self.groups.iter().map(ends).sum::<Option<u64>>().map(nanos)
    }
}

/// One copy of a job. All times are relative to the start of its group, in ns.
pub struct FioWorker {
    runner: FioRunner,
    /// Index of its report in [`FioLoad::reports`].
    pub report: usize,
}

impl FioWorker {
    /// Returns the next request without removing it, as planned at the time `now`; its arrival is the earliest time at which the job's rates
    /// allow it. `None` if the copy has ended.
    pub fn peek(&mut self, now: Nanos) -> Option<Request> {
        self.runner.peek_at(now.0.cast_unsigned())
    }

    /// Removes the next request.
    pub fn take(&mut self) -> Option<Request> {
        self.runner.take()
    }

    /// Ends the copy after its unfinished requests.
    pub fn stop(&mut self) {
        self.runner.stop();
    }

    /// Maximum number of unfinished requests: `iodepth`, or 1 if the engine issues one request at a time.
    pub fn queue_depth(&self) -> usize {
        usize::try_from(self.runner.job.queue_depth()).unwrap_or(usize::MAX)
    }

    /// Whether the engine returns before a request completes, so that submission and completion latency differ.
    pub fn is_asynchronous(&self) -> bool {
        self.runner.job.in_flight
    }

    /// Number of unfinished requests to which a full queue drains (`iodepth_low`).
    pub fn drains_to(&self) -> usize {
        self.runner.job.iodepth_low.map_or(self.queue_depth(), |low| usize::try_from(low).unwrap_or(usize::MAX))
    }

    /// Number of requests that are submitted together (`iodepth_batch`).
    pub fn submit_batch(&self) -> usize {
        usize::try_from(self.runner.job.submit_batch).unwrap_or(usize::MAX).min(self.queue_depth())
    }

    /// Least number of completions to wait for (`iodepth_batch_complete_min`), at least 1.
    pub fn complete_batch(&self) -> usize {
        usize::try_from(self.runner.job.complete_batch).unwrap_or(usize::MAX).clamp(1, self.queue_depth())
    }

    /// Time at which the copy starts (`startdelay`).
    pub fn start(&self) -> Nanos {
        nanos(self.runner.job.start_ns)
    }

    /// Time from which requests are measured (`ramp_time`).
    pub fn measured_from(&self) -> Nanos {
        nanos(self.runner.job.start_ns.saturating_add(self.runner.job.ramp_ns))
    }

    /// Think time after a number of completions; `None` without think time.
    pub fn think(&self) -> Option<(Nanos, u64)> {
        (self.runner.job.think_ns > 0).then(|| (nanos(self.runner.job.think_ns), self.runner.job.think_requests))
    }

    /// Whether the other copies of its group end when this one ends (`exitall`).
    pub fn ends_group(&self) -> bool {
        self.runner.job.exit_all
    }

    fn ends_by(&self) -> Option<u64> {
        let limit = self.runner.job.runtime_ns.filter(|_| self.runner.job.time_based)?;
        Some(self.runner.job.start_ns.saturating_add(self.runner.job.ramp_ns).saturating_add(limit))
    }

    /// Whether the engine carries out an operation before it returns, although it is asynchronous: discards with libaio.
    pub fn waits_for(&self, op: Op) -> bool {
        !self.runner.job.in_flight || op == Op::Discard && self.runner.job.discards_wait
    }
}
