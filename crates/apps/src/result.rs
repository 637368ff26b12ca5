//! The result of a run of a program.

use std::collections::BTreeMap;
use std::str::FromStr;

use emmclab_base::{Error, ErrorClass, Nanos, Op, Result};
use emmclab_host::{FileClass, HostBlockRequest, IoCause};
use schemars::JsonSchema;
use serde::Serialize;

use crate::block_device::RequestCounts;
use crate::timeline::{ActivityTimes, CriticalPath, ThreadActivity, ThreadState, ThreadTimeline};

/// Maximum number of time bins in the result.
const MOST_BINS: i64 = 240;

/// The time that a thread spent in each state, in ns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct StateTimes(BTreeMap<&'static str, i64>);

impl StateTimes {
    fn of(sums: &ActivityTimes) -> Self {
        Self(ThreadState::ALL.into_iter().map(|state| (state.name(), sums.of(state).0)).collect())
    }

    /// The total time in all states, in ns.
    pub fn total(&self) -> i64 {
        self.0.values().sum()
    }

    /// The time that a thread spent in this state, in ns.
    pub fn get(&self, state: ThreadState) -> i64 {
        self.0.get(state.name()).copied().unwrap_or(0)
    }
}

/// A part of the time that the user waited for the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UserWaitPart {
    /// The state of the thread that the user waited for, during this part.
    #[schemars(with = "String")]
    pub state: ThreadState,
    /// Cause of a wait for storage, by its name in the host model; `None` if the thread is not in the state storage.
    pub wait: Option<&'static str>,
    /// Class of the file that a storage wait belongs to; `None` for `sync`, and if the thread did not wait for storage.
    pub class: Option<&'static str>,
    /// Partition of the file that a storage wait belongs to; `None` for `sync`, and in other states than storage.
    pub partition: Option<String>,
    /// Length of this part of the waiting time, in ns.
    pub ns: i64,
}

/// The result of a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ThreadResult {
    /// Name of the thread.
    pub name: String,
    /// Time between the start and the end of the thread, in ns. It equals the sum over its states.
    pub alive_ns: i64,
    /// The time that the thread spent in each state.
    pub states: StateTimes,
}

/// The states of the threads over time, in bins of equal width.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StatesOverTime {
    /// Width of a bin, in ns; the last one may be shorter.
    pub bin_ns: i64,
    /// One lane for the critical path, then one lane for each thread of the program.
    pub lanes: Vec<ThreadStateLane>,
}

/// The states of a thread in each bin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ThreadStateLane {
    /// Name of the thread; for the critical path, `the user waits for`.
    pub name: String,
    /// Time in each bin by state, in ns; states that do not occur are omitted.
    pub states: BTreeMap<&'static str, Vec<i64>>,
}

/// The result of a run of a program.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AppResult {
    /// Name of the program.
    pub program: String,
    /// Name of the host.
    pub host: String,
    /// Name of the kernel era of the host, such as `linux-6`.
    pub era: String,
    /// Name of the network.
    pub network: String,
    /// Seed of the random draws.
    pub seed: u64,
    /// Names of the parts of the storage that were simulated as infinitely fast.
    pub what_if: Vec<String>,
    /// Time from the beginning of the program to the end of the thread that the user waits for, in ns.
    pub runtime_ns: i64,
    /// The thread that the user waits for.
    pub user_waits_for: String,
    /// Time by thread state along the critical path, in ns. The times add up to the runtime.
    pub states: StateTimes,
    /// The waiting time of the user, divided by state, cause of the wait, file class and partition; the longest part first.
    pub spent: Vec<UserWaitPart>,
    /// The results of the threads.
    pub threads: Vec<ThreadResult>,
    /// Time that cores were busy with the threads of the program, in ns.
    pub cpu_ns: i64,
    /// CPU work of the kernel's own threads, in ns. It does not occupy the cores of the program. `None` for a run on a real machine.
    pub kernel_cpu_ns: Option<u64>,
    /// Number of bytes transferred over the network.
    pub network_bytes: u64,
    /// Number of file operations.
    pub file_operations: u64,
    /// Number of file operations for durability: `fsync`, `fdatasync` and `sync`, of files and folders.
    pub file_syncs: u64,
    /// Counts of block requests. `None` for a run on a real machine.
    pub requests: Option<RequestCounts>,
    /// The states of the threads over time.
    pub over_time: StatesOverTime,
}

/// Time by state along the critical path and for each thread, as sums and over time.
pub(crate) struct TimeAttribution {
    pub path: ActivityTimes,
    pub threads: Vec<ActivityTimes>,
    pub over_time: StatesOverTime,
}

impl TimeAttribution {
    pub fn of(timelines: &[ThreadTimeline], names: &[&str], waited: u32, end: Nanos) -> Self {
        let all: Vec<_> = timelines.iter().collect();
        let width = (end.0 / MOST_BINS + i64::from(end.0 % MOST_BINS > 0)).max(1);
        let mut path = ActivityTimes::default();
        let mut lane = StateBins::new(width, end.0);
        CriticalPath::of(&all, waited, end, &mut |from, to, doing| {
            path.add(doing, to - from);
            lane.add(from.0, to.0, doing);
        });
        let mut lanes = vec![lane.into_lane("the user waits for")];
        let mut threads = Vec::with_capacity(timelines.len());
        for (timeline, name) in timelines.iter().zip(names) {
            let (mut sums, mut lane) = (ActivityTimes::default(), StateBins::new(width, end.0));
            for (from, to, doing) in timeline.between(Nanos::ZERO, end) {
                if doing != ThreadActivity::Absent {
                    sums.add(doing, to - from);
                    lane.add(from.0, to.0, doing);
                }
            }
            threads.push(sums);
            lanes.push(lane.into_lane(name));
        }
        Self { path, threads, over_time: StatesOverTime { bin_ns: width, lanes } }
    }

    /// Returns the parts of the user's waiting time, the longest first. `partitions` are the names of the mounts.
    pub fn user_wait_parts(&self, partitions: &[&str]) -> Vec<UserWaitPart> {
        let mut out: Vec<UserWaitPart> = Vec::new();
        for (doing, time) in self.path.iter() {
            let Some(state) = doing.state() else { continue };
            let (wait, place) = match doing {
                ThreadActivity::Storage(wait, place) => (Some(wait.name()), place),
                _ => (None, None),
            };
            let partition = place.map(|(_, mount)| partitions[usize::from(mount.0)].to_owned());
            let spent = UserWaitPart { state, wait, class: place.map(|(class, _)| class.name()), partition, ns: time.0 };
            match out.iter_mut().find(|other| {
                (other.state, other.wait, other.class, &other.partition)
                    == (spent.state, spent.wait, spent.class, &spent.partition)
            }) {
                Some(same) => same.ns += spent.ns,
                None => out.push(spent),
            }
        }
        out.sort_by_key(|spent| std::cmp::Reverse(spent.ns));
        out
    }

    pub fn states(&self) -> StateTimes {
        StateTimes::of(&self.path)
    }

    pub fn thread_results(&self, names: &[&str]) -> Vec<ThreadResult> {
        let result = |(sums, name): (&ActivityTimes, &&str)| {
            let states = StateTimes::of(sums);
            ThreadResult { name: (*name).to_owned(), alive_ns: states.total(), states }
        };
        self.threads.iter().zip(names).map(result).collect()
    }
}

/// The time in each state, in bins of equal width.
struct StateBins {
    width: i64,
    count: usize,
    states: BTreeMap<&'static str, Vec<i64>>,
}

impl StateBins {
    fn new(width: i64, end: i64) -> Self {
        Self { width, count: (end / width + i64::from(end % width > 0)) as usize, states: BTreeMap::new() }
    }

    fn add(&mut self, from: i64, to: i64, doing: ThreadActivity) {
        let Some(state) = doing.state() else { return };
        let bins = self.states.entry(state.name()).or_insert_with(|| vec![0; self.count]);
        let mut at = from;
        while at < to {
            let bin = at / self.width;
            let end = to.min((bin + 1) * self.width);
            bins[bin as usize] += end - at;
            at = end;
        }
    }

    fn into_lane(self, name: &str) -> ThreadStateLane {
        ThreadStateLane { name: name.to_owned(), states: self.states }
    }
}

/// A part of the storage that can be simulated as infinitely fast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhatIfTarget {
    /// Every request to this partition.
    Partition(String),
    /// Every request whose first block belongs to a file of this class.
    Class(FileClass),
    /// Every request with this purpose.
    Operation(RequestPurpose),
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPurpose {
    /// Reads, including read-ahead.
    Read,
    /// Writes that a sync waits for, journal commits, and flushes.
    Fsync,
    /// Writes that no thread waits for: write-back, checkpoints, cleaning.
    WriteBack,
}

impl RequestPurpose {
    /// All request purposes.
    pub const ALL: [Self; 3] = [Self::Read, Self::Fsync, Self::WriteBack];

    /// The name, as users write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Fsync => "fsync",
            Self::WriteBack => "write_back",
        }
    }

    fn of(block: &HostBlockRequest) -> Self {
        match block.cause {
            _ if block.request.op == Op::Read => Self::Read,
            IoCause::Caller(_) | IoCause::Commit => Self::Fsync,
            IoCause::WriteBack | IoCause::Checkpoint | IoCause::Cleaning | IoCause::ReadAhead => Self::WriteBack,
        }
    }
}

impl WhatIfTarget {
    /// Whether a request belongs to the part of the storage that is simulated as infinitely fast. `partition` is the mount name of the
    /// request.
    pub(crate) fn takes(&self, block: &HostBlockRequest, partition: &str) -> bool {
        match self {
            Self::Partition(name) => name == partition,
            Self::Class(class) => *class == block.class,
            Self::Operation(operation) => *operation == RequestPurpose::of(block),
        }
    }
}

impl std::fmt::Display for WhatIfTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Partition(name) => write!(f, "partition={name}"),
            Self::Class(class) => write!(f, "class={}", class.name()),
            Self::Operation(operation) => write!(f, "op={}", operation.name()),
        }
    }
}

impl FromStr for WhatIfTarget {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let refused = |problem: &str, hint: String| {
            Err(Error::new(ErrorClass::Config, problem).of_field("what-if", 0, text.as_bytes()).hint(hint))
        };
        let Some((key, value)) = text.split_once('=') else {
            return refused("is not KEY=VALUE", "use for example partition=data, class=database or op=fsync".to_owned());
        };
        match key {
            "partition" => Ok(Self::Partition(value.to_owned())),
            "class" => match FileClass::ALL.into_iter().find(|class| class.name() == value) {
                Some(class) => Ok(Self::Class(class)),
                None => refused("unknown class of files", one_of(FileClass::ALL.map(FileClass::name))),
            },
            "op" => match RequestPurpose::ALL.into_iter().find(|operation| operation.name() == value) {
                Some(operation) => Ok(Self::Operation(operation)),
                None => refused("unknown operation", one_of(RequestPurpose::ALL.map(RequestPurpose::name))),
            },
            _ => refused("unknown part of the storage", one_of(["partition", "class", "op"])),
        }
    }
}

fn one_of<const N: usize>(names: [&str; N]) -> String {
    format!("use one of: {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_written_as_it_is_read_and_unknown_ones_are_refused() {
        for text in ["partition=data", "class=database_journal", "op=fsync", "op=write_back"] {
            assert_eq!(text.parse::<WhatIfTarget>().unwrap().to_string(), text);
        }
        for text in ["data", "class=db", "op=seek", "disk=a", ""] {
            assert!(text.parse::<WhatIfTarget>().unwrap_err().hint_text().is_some(), "{text}");
        }
    }
}
