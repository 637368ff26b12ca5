//! Workload models, their file format, and their validation.

use std::collections::BTreeMap;

use emmclab_trace::{Error, ErrorClass, Op, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The model of an application's I/O: totals, distributions, and the load over time. It contains no address, name or date of any trace.
///
/// Distributions are lists of pairs of a value and its weight, in ascending order of the values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkloadModel {
    /// Version of the file format: 1.
    #[serde(default = "current_version")]
    pub version: u32,
    /// The workload's name.
    pub name: String,
    /// Origin of the figures.
    pub source: String,
    /// Sources of each parameter: columns of published tables, and ids of published claims. A statistic that the parameter determines
    /// agrees with its sources by construction.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub made_from: BTreeMap<String, Vec<String>>,
    /// Notes for readers of a result, for example on figures that contradict each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Time from the first arrival to the last completion (or arrival, without service times), seconds.
    pub duration_s: f64,
    /// Size of the device, GB of 2^30 bytes.
    pub address_space_gb: u64,
    /// Sizes and locality of the reads.
    pub reads: OperationModel,
    /// Sizes and locality of the writes.
    pub writes: OperationModel,
    /// The times at which requests arrive.
    pub bursts: BurstModel,
    /// Service times of requests; without them, the synthetic trace has arrivals only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceModel>,
    /// The load over time; without it, the load is constant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadModel>,
}

/// The sizes and the locality of reads, or of writes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OperationModel {
    /// Size in KB, ascending, and the number of requests of this size. The sums of these counts and sizes are the number of requests and
    /// the amount of data of the workload. Empty if there are no requests of this operation.
    pub sizes_kb: Vec<(f64, u64)>,
    /// Requests that start where their predecessor ended, percent of this operation's requests.
    pub sequential_pct: f64,
    /// Requests that start where an earlier request started, percent of this operation's requests.
    pub reaccess_pct: f64,
    /// Mean number of requests in a sequential run, at least 2. Each request of a run starts where the previous one ended. Generated traces
    /// have approximately this mean.
    pub run_requests: f64,
    /// Sequential requests that also start where an earlier request started, percent of the sequential ones; the generator approximates it.
    pub sequential_reaccess_pct: f64,
    /// Sizes (KB, ascending) and weights for requests that return to an earlier start address. If the list is empty, these requests have
    /// the sizes of all requests.
    pub reaccess_kb: Vec<(f64, u64)>,
    /// Start addresses that are used again, percent of all distinct start addresses.
    pub reused_starts_pct: f64,
    /// Reuse distance (number of requests of this operation since the start address was last used), and its weight.
    pub reuse_requests: Vec<(u64, u64)>,
}

/// The times at which requests arrive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BurstModel {
    /// Requests that open a burst, percent of all requests.
    pub opens_pct: f64,
    /// Number of rounds in a burst, and the weight of bursts with this number. A round is a request that arrives at an idle device, with
    /// the requests that wait for it. The list is scaled to the number of rounds in the trace.
    pub rounds: Vec<(u64, u64)>,
    /// Idle times in microseconds before the rounds of a burst, except before its first round, with weights (see `rounds`). Each value
    /// varies by up to a sixteenth.
    pub think_us: Vec<(f64, u64)>,
    /// Idle time before a burst, milliseconds, and its weight. The idle times are scaled to the duration of the trace.
    pub idle_ms: Vec<(f64, u64)>,
    /// How much reads and writes alternate in a burst. 0: a burst has only reads or only writes. 100: the operation of each request is
    /// independent of its predecessor.
    pub op_mixing_pct: f64,
    /// Bursts that end with journal blocks and a commit block directly after them, percent of the bursts of at least three writes.
    pub commit_pct: f64,
}

/// Service times of requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceModel {
    /// Requests that arrive when no earlier one is unfinished, percent of all requests.
    pub no_wait_pct: f64,
    /// Mean of complete - start, milliseconds. The service times of all sizes are scaled so that the trace has this mean.
    pub mean_service_ms: f64,
    /// Mean of complete - arrival, milliseconds. Waiting times are scaled so that the trace has this mean.
    pub mean_response_ms: f64,
    /// Number of requests in a round, and the weight of rounds with this number. A round is a request that arrives at an idle device, with
    /// the requests that wait for it. The list is scaled to match `no_wait_pct`.
    pub round_requests: Vec<(u64, u64)>,
    /// Time from arrival to start of a request that does not wait, microseconds.
    pub fetch_us: f64,
    /// Size in KB, ascending, and the service time of a read of this size in microseconds; interpolated linearly between the points.
    pub read_us: Vec<(f64, f64)>,
    /// Size in KB, ascending, and the service time of a write of this size in microseconds; interpolated linearly between the points.
    pub write_us: Vec<(f64, f64)>,
    /// Service time in percent of the expected one for the size, and its weight; each value varies by up to a sixteenth.
    pub jitter_pct: Vec<(f64, u64)>,
    /// The device sleeps after an idle time above this, milliseconds.
    pub wake_after_ms: f64,
    /// Additional service time of the first request after an idle time above `wake_after_ms`, milliseconds.
    pub wake_up_ms: f64,
}

/// The load over time, as the rows of a table. The bursts and sizes in each row follow the distributions of the whole model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadModel {
    /// Rows in order of time: duration in microseconds, idle time within bursts in microseconds, requests that open a burst, reads, KB
    /// read, writes, KB written. The requests add up to those of the model; all other columns are scaled proportionally. A longer synthesis
    /// repeats the rows.
    pub curve: Vec<[u64; 7]>,
}

/// The version of the file format that this program writes.
pub(crate) const VERSION: u32 = 1;

fn current_version() -> u32 {
    VERSION
}

impl WorkloadModel {
    /// Reads a model from TOML and checks it.
    /// Errors: [`ErrorClass::Config`] if the text is not TOML, a key is unknown or missing, or values are impossible; in the last case the
    /// message lists all of these values.
    pub fn from_toml(text: &str) -> Result<Self> {
        let model: Self = toml::from_str(text).map_err(|error| {
            let before = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = text.get(..before).unwrap_or_default().matches('\n').count() as u64 + 1;
            Error::new(ErrorClass::Config, error.message().to_owned())
                .at_line(line)
                .hint("docs/concepts/workloads.md lists the keys of a workload file; `emmclab fit` writes such files")
        })?;
        model.check()?;
        Ok(model)
    }

    /// Writes the model as TOML, without comments.
    /// Errors: [`ErrorClass::Config`] if values are impossible. A model that passed [`Self::check`] can always be written.
    pub fn to_toml(&self) -> Result<String> {
        self.check()?;
        let text = toml::to_string(self).map_err(|error| Error::new(ErrorClass::Config, error.to_string()))?;
        // Each row of the load curve is printed on its own line; lists of pairs stay on one line.
        Ok(match text.split_once("\ncurve = [[") {
            Some((head, curve)) => {
                format!("{head}\ncurve = [\n    [{}", curve.replace("], [", "],\n    [").replace("]]", "],\n]"))
            }
            None => text,
        })
    }

    /// Number of reads and writes in the workload at its original length.
    pub fn requests(&self) -> u64 {
        self.reads.requests() + self.writes.requests()
    }

    /// The model of reads if `op` is a read, otherwise that of writes.
    pub(crate) fn of(&self, op: Op) -> &OperationModel {
        if op == Op::Read { &self.reads } else { &self.writes }
    }
}

impl OperationModel {
    /// Number of requests of this operation in the workload at its original length.
    pub fn requests(&self) -> u64 {
        self.sizes_kb.iter().map(|(_, count)| count).sum()
    }
}

/// Maximum number of requests, far above practical use and far below overflow.
const MOST_REQUESTS: u64 = 1 << 40;
/// Maximum number of distinct values in a list.
const MOST_ENTRIES: usize = 4_096;
/// Maximum gap in seconds, about 11.6 days. Products of sums over a generated batch of requests then fit into 128 bits.
const LONGEST_S: f64 = 1e6;
/// Maximum service or response time, s.
const SLOWEST_S: f64 = 1e3;
/// Maximum ratio of a service time to the expected one, percent.
const LARGEST_JITTER_PCT: f64 = 1e5;
const LARGEST_KB: f64 = 1_048_576.0;
/// Size of the largest device in GB: sectors of its address space have 32-bit numbers.
const LARGEST_GB: u64 = 2_048;

/// The invalid settings of a workload model, as messages with key, value and hint.
#[derive(Default)]
struct ModelFaults(Vec<String>);

impl ModelFaults {
    fn require(&mut self, holds: bool, key: &str, value: impl std::fmt::Display, cure: &str) {
        if !holds {
            self.0.push(format!("`{key}` is {value}: {cure}"));
        }
    }

    fn percent(&mut self, key: &str, value: f64) {
        self.require((0.0..=100.0).contains(&value), key, value, "give a share from 0 to 100");
    }

    /// Checks a time of the device, in units of `1 / per_s` seconds.
    fn time(&mut self, key: &str, value: f64, per_s: f64) {
        let limit = format!("give a time from 0 to {}", SLOWEST_S * per_s);
        self.require((0.0..=SLOWEST_S * per_s).contains(&value), key, value, &limit);
    }

    fn entries(&mut self, key: &str, count: usize, least: usize) {
        let limit = format!("give {least} to {MOST_ENTRIES} entries");
        self.require((least..=MOST_ENTRIES).contains(&count), key, format_args!("a list of {count} entries"), &limit);
    }

    fn values(&mut self, key: &str, pairs: &[(f64, u64)], largest: f64) {
        self.entries(key, pairs.len(), 1);
        self.require(
            pairs.is_sorted_by(|a, b| a.0 < b.0)
                && pairs.iter().all(|(value, weight)| (0.0..=largest).contains(value) && (1..=MOST_REQUESTS).contains(weight)),
            key,
            "out of order or range",
            &format!("give pairs of a value from 0 to {largest}, ascending, and a weight of at least 1"),
        );
    }

    fn weights(&mut self, key: &str, pairs: &[(u64, u64)]) {
        self.entries(key, pairs.len(), 1);
        self.require(
            pairs.is_sorted_by(|a, b| a.0 < b.0)
                && pairs
                    .iter()
                    .all(|(value, weight)| (1..=MOST_REQUESTS).contains(value) && (1..=MOST_REQUESTS).contains(weight)),
            key,
            "out of order or range",
            "give pairs of a value and a weight, both at least 1, values ascending",
        );
    }

    fn operation(&mut self, key: &str, model: &OperationModel) {
        let at = |field: &str| format!("{key}.{field}");
        for (field, sizes) in [("sizes_kb", &model.sizes_kb), ("reaccess_kb", &model.reaccess_kb)] {
            self.entries(&at(field), sizes.len(), 0);
            self.require(
                sizes.is_sorted_by(|a, b| a.0 < b.0)
                    && sizes.iter().all(|(kb, count)| {
                        (0.5..=LARGEST_KB).contains(kb) && (kb * 2.0).fract() == 0.0 && (1..=MOST_REQUESTS).contains(count)
                    }),
                &at(field),
                "out of order or range",
                "give pairs of a size in KB (a multiple of 0.5, up to 1 GB, ascending) and a count of at least 1",
            );
        }
        self.percent(&at("sequential_pct"), model.sequential_pct);
        self.percent(&at("reaccess_pct"), model.reaccess_pct);
        self.require(
            (2.0..=1e9).contains(&model.run_requests),
            &at("run_requests"),
            model.run_requests,
            "a run has at least 2 requests",
        );
        self.percent(&at("sequential_reaccess_pct"), model.sequential_reaccess_pct);
        self.percent(&at("reused_starts_pct"), model.reused_starts_pct);
        if model.reaccess_pct > 0.0 && !model.sizes_kb.is_empty() {
            self.weights(&at("reuse_requests"), &model.reuse_requests);
        }
    }

    fn load(&mut self, model: &WorkloadModel, load: &LoadModel) {
        let key = "load.curve";
        self.entries(key, load.curve.len(), 1);
        let limits = [LONGEST_S * 1e8, LONGEST_S * 1e8, 1e12, 1e12, 1e15, 1e12, 1e15];
        let possible = |row: &[u64; 7]| {
            row.iter().zip(limits).all(|(value, limit)| *value as f64 <= limit)
                && row[3].saturating_add(row[5]) <= LoadModel::MOST_REQUESTS
        };
        let row = load.curve.iter().position(|row| !possible(row));
        let limit = format!("a row has at most {} requests and 10^14 us; split it", LoadModel::MOST_REQUESTS);
        self.require(row.is_none(), key, format_args!("out of range in row {}", row.unwrap_or(0) + 1), &limit);
        let sum = |column: usize| load.curve.iter().fold(0_u64, |sum, row| sum.saturating_add(row[column]));
        for (column, name, of) in [(3, "reads", &model.reads), (5, "writes", &model.writes)] {
            let (curve, sizes) = (sum(column), of.sizes_kb.iter().fold(0, |sum: u64, (_, n)| sum.saturating_add(*n)));
            let value = format_args!("of {curve} {name}");
            self.require(curve == sizes, key, value, &format!("`{name}.sizes_kb` has {sizes}; make them agree"));
        }
        self.require(sum(0) > 0, key, "without any time", "give the microseconds of each row first");
    }

    fn service(&mut self, model: &ServiceModel) {
        self.percent("service.no_wait_pct", model.no_wait_pct);
        self.time("service.mean_service_ms", model.mean_service_ms, 1e3);
        self.time("service.mean_response_ms", model.mean_response_ms, 1e3);
        self.require(
            model.mean_response_ms >= model.mean_service_ms,
            "service.mean_response_ms",
            model.mean_response_ms,
            "a response time includes the service time; give at least `mean_service_ms`",
        );
        self.weights("service.round_requests", &model.round_requests);
        self.time("service.fetch_us", model.fetch_us, 1e6);
        for (key, points) in [("service.read_us", &model.read_us), ("service.write_us", &model.write_us)] {
            self.entries(key, points.len(), 1);
            self.require(
                points.is_sorted_by(|a, b| a.0 < b.0)
                    && points.iter().all(|(kb, us)| (0.5..=LARGEST_KB).contains(kb) && (0.0..=SLOWEST_S * 1e6).contains(us)),
                key,
                "out of order or range",
                "give pairs of a size in KB, ascending, and a time in microseconds",
            );
        }
        self.values("service.jitter_pct", &model.jitter_pct, LARGEST_JITTER_PCT);
        self.time("service.wake_after_ms", model.wake_after_ms, 1e3);
        self.time("service.wake_up_ms", model.wake_up_ms, 1e3);
    }
}

impl WorkloadModel {
    /// Checks that traces can be generated from the model.
    /// Errors: [`ErrorClass::Config`], with the key, the value and the remedy of each fault.
    pub fn check(&self) -> Result<()> {
        let mut faults = ModelFaults::default();
        faults.require(
            self.version == VERSION,
            "version",
            self.version,
            &format!("this emmclab reads version {VERSION}; use the one that wrote the file"),
        );
        faults.require(
            self.duration_s > 0.0 && self.duration_s <= LONGEST_S * 100.0,
            "duration_s",
            self.duration_s,
            "give seconds above 0, up to 1e8",
        );
        faults.require(
            (1..=LARGEST_GB).contains(&self.address_space_gb),
            "address_space_gb",
            self.address_space_gb,
            "give 1 to 2048 GB",
        );
        faults.operation("reads", &self.reads);
        faults.operation("writes", &self.writes);
        let counts = self.reads.sizes_kb.iter().chain(&self.writes.sizes_kb).map(|(_, count)| *count);
        let requests = counts.fold(0_u64, u64::saturating_add);
        faults.require(
            (1..=MOST_REQUESTS).contains(&requests),
            "sizes_kb",
            format_args!("of {requests} requests"),
            "reads and writes together must be 1 to 2^40",
        );
        let largest = self.reads.sizes_kb.iter().chain(&self.writes.sizes_kb).map(|(kb, _)| *kb);
        faults.require(
            largest.fold(0.0, f64::max) * 4.0 <= self.address_space_gb as f64 * 1_048_576.0,
            "address_space_gb",
            self.address_space_gb,
            "the largest request must not take more than a quarter of the device",
        );
        faults.percent("bursts.opens_pct", self.bursts.opens_pct);
        faults.weights("bursts.rounds", &self.bursts.rounds);
        faults.values("bursts.think_us", &self.bursts.think_us, LONGEST_S * 1e6);
        faults.values("bursts.idle_ms", &self.bursts.idle_ms, LONGEST_S * 1e3);
        faults.percent("bursts.op_mixing_pct", self.bursts.op_mixing_pct);
        faults.percent("bursts.commit_pct", self.bursts.commit_pct);
        if let Some(service) = &self.service {
            faults.service(service);
        }
        if let Some(load) = &self.load {
            faults.load(self, load);
        }
        match faults.0.len() {
            0 => Ok(()),
            count => {
                let plural = if count == 1 { "fault" } else { "faults" };
                Err(Error::new(ErrorClass::Config, format!("{count} {plural}: {}", faults.0.join("; ")))
                    .hint("correct these values; docs/concepts/workloads.md lists every key with its unit"))
            }
        }
    }
}
