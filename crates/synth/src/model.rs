//! Workload models, and their file.

use std::collections::BTreeMap;

use emmclab_trace::{Error, ErrorClass, Op, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The model of an application's I/O: totals, distributions, and the load over time. It contains no address, name or
/// date of any trace.
///
/// Distributions are lists of a value and its weight, values ascending.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkloadModel {
    /// Version of this form of file: 1.
    #[serde(default = "current_version")]
    pub version: u32,
    /// The workload's name.
    pub name: String,
    /// Where the figures come from.
    pub source: String,
    /// Sources of parameters, by the key of the parameter: columns of published tables, and ids of claims from which a
    /// constant was taken. A statistic that such a parameter determines only restates its sources.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub made_from: BTreeMap<String, Vec<String>>,
    /// Notes for the reader of a result, such as figures that contradict each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// First arrival to last completion (or arrival, without service times), seconds.
    pub duration_s: f64,
    /// Size of the device, GB of 2^30 bytes.
    pub address_space_gb: u64,
    /// The reads.
    pub reads: OperationModel,
    /// The writes.
    pub writes: OperationModel,
    /// When requests arrive.
    pub bursts: BurstModel,
    /// Service times of requests; without them, the synthetic trace has arrivals only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceModel>,
    /// The load over time; without it, the load is spread evenly over the duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadModel>,
}

/// Reads, or writes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OperationModel {
    /// Size in KB, ascending, and the number of requests of this size. These counts are also the number of requests and
    /// the data of the workload. Empty if there are no such requests.
    pub sizes_kb: Vec<(f64, u64)>,
    /// Requests that start where their predecessor ended, percent of this operation's requests.
    pub sequential_pct: f64,
    /// Requests that start where an earlier request started, percent of this operation's requests.
    pub reaccess_pct: f64,
    /// Mean number of requests in a run in which each starts where the last ended, at least 2; the generator
    /// approximates it.
    pub run_requests: f64,
    /// Sequential requests that also start where an earlier request started, percent of the sequential ones; the
    /// generator approximates it.
    pub sequential_reaccess_pct: f64,
    /// Size in KB, ascending, and weight of requests that return to an earlier start; if empty, their sizes are those of all requests.
    pub reaccess_kb: Vec<(f64, u64)>,
    /// Start addresses that are used again, percent of all different ones.
    pub reused_starts_pct: f64,
    /// Reuse distance (requests of this operation since the start address was last used), and weight.
    pub reuse_requests: Vec<(u64, u64)>,
}

/// When requests arrive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BurstModel {
    /// Requests that open a burst, percent of all requests.
    pub opens_pct: f64,
    /// Rounds in a burst and the weight of such bursts; scaled so that they add up to the number of rounds.
    pub rounds: Vec<(u64, u64)>,
    /// Idle time before a round that does not open a burst, microseconds, and weight; each varies by up to a
    /// sixteenth.
    pub think_us: Vec<(f64, u64)>,
    /// Idle time before a burst, milliseconds, and weight; scaled so that the trace has its duration.
    pub idle_ms: Vec<(f64, u64)>,
    /// 0: a burst is all reads or all writes. 100: each request in it is a read or a write independently of its predecessor.
    pub op_mixing_pct: f64,
    /// Bursts of at least three writes that end with journal blocks and a commit block right after them, percent.
    pub commit_pct: f64,
}

/// Service times of requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceModel {
    /// Requests that arrive when no earlier one is unfinished, percent of all requests.
    pub no_wait_pct: f64,
    /// Mean of complete - start, milliseconds. Times by size are scaled so that the trace has this mean.
    pub mean_service_ms: f64,
    /// Mean of complete - arrival, milliseconds. Waiting times are scaled so that the trace has this mean.
    pub mean_response_ms: f64,
    /// Requests in a round and the weight of such rounds; scaled so that the trace has its no-wait share.
    pub round_requests: Vec<(u64, u64)>,
    /// Time from arrival to start of a request that does not wait, microseconds.
    pub fetch_us: f64,
    /// Size in KB, ascending, and the service time of such a read in microseconds; with straight lines between the points.
    pub read_us: Vec<(f64, f64)>,
    /// Size in KB, ascending, and the service time of such a write in microseconds; with straight lines between the points.
    pub write_us: Vec<(f64, f64)>,
    /// Service time, percent of the one expected for its size, and weight; each varies by up to a sixteenth.
    pub jitter_pct: Vec<(f64, u64)>,
    /// The device sleeps after an idle time above this, milliseconds.
    pub wake_after_ms: f64,
    /// Additional service time of the first request after such an idle time, milliseconds.
    pub wake_up_ms: f64,
}

/// The load over time. Bursts and sizes within a row follow the distributions of the whole model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadModel {
    /// Rows in order of time: microseconds, those of them idle within bursts, requests that open a burst, reads, KB
    /// read, writes, KB written. Requests add up to those of the model; everything else is scaled in proportion. A
    /// longer synthesis repeats the rows.
    pub curve: Vec<[u64; 7]>,
}

/// The version of the form that this program writes.
pub(crate) const VERSION: u32 = 1;

fn current_version() -> u32 {
    VERSION
}

impl WorkloadModel {
    /// Reads a model from TOML and checks it.
    ///
    /// # Errors
    /// [`ErrorClass::Config`] if the text is no TOML, a key is unknown or missing, or values are impossible; then all of
    /// these values are named.
    pub fn from_toml(text: &str) -> Result<Self> {
        let model: Self = toml::from_str(text).map_err(|error| {
            let before = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = text.get(..before).unwrap_or_default().matches('\n').count() as u64 + 1;
            Error::new(ErrorClass::Config, error.message().to_owned())
                .at_line(line)
                .hint("see the keys in docs/concepts/workloads.md; `emmclab fit` writes such files")
        })?;
        model.check()?;
        Ok(model)
    }

    /// The model as TOML, without comments.
    ///
    /// # Errors
    /// [`ErrorClass::Config`] if the model is impossible; a checked one can always be written as TOML.
    pub fn to_toml(&self) -> Result<String> {
        self.check()?;
        let text = toml::to_string(self).map_err(|error| Error::new(ErrorClass::Config, error.to_string()))?;
        // Each row of the curve has its own line; lists of pairs stay on one line.
        Ok(match text.split_once("\ncurve = [[") {
            Some((head, curve)) => {
                format!("{head}\ncurve = [\n    [{}", curve.replace("], [", "],\n    [").replace("]]", "],\n]"))
            }
            None => text,
        })
    }

    /// Reads and writes in the workload at its own length.
    pub fn requests(&self) -> u64 {
        self.reads.requests() + self.writes.requests()
    }

    /// The model of reads or of writes (of writes for anything that is no read).
    pub(crate) fn of(&self, op: Op) -> &OperationModel {
        if op == Op::Read { &self.reads } else { &self.writes }
    }
}

impl OperationModel {
    /// Number of requests of this operation in the workload at its own length.
    pub fn requests(&self) -> u64 {
        self.sizes_kb.iter().map(|(_, count)| count).sum()
    }
}
