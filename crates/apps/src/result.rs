//! The result of a run.

use std::collections::BTreeMap;

use emmclab_base::Nanos;
use schemars::JsonSchema;
use serde::Serialize;

use crate::requests::RequestCounts;
use crate::timeline::{ActivityTimes, CriticalPath, ThreadActivity, ThreadState, ThreadTimeline};

/// Maximum number of bins in a run over time.
const MOST_BINS: i64 = 240;

/// Time by state, in ns; a thread is in one state at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct StateTimes(BTreeMap<&'static str, i64>);

impl StateTimes {
    fn of(sums: &ActivityTimes) -> Self {
        Self(ThreadState::ALL.into_iter().map(|state| (state.name(), sums.of(state).0)).collect())
    }

    /// The sum of all states, in ns.
    pub fn total(&self) -> i64 {
        self.0.values().sum()
    }

    /// The time in a state, in ns.
    pub fn get(&self, state: ThreadState) -> i64 {
        self.0.get(state.name()).copied().unwrap_or(0)
    }
}

/// A part of the time that the user waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UserWaitPart {
    /// What the thread did or waited for.
    #[schemars(with = "String")]
    pub state: ThreadState,
    /// For storage: the cause of the wait, as named by the host.
    pub wait: Option<&'static str>,
    /// For storage: the class of the file of the operation; `None` for `sync`.
    pub class: Option<&'static str>,
    /// For storage: the partition of that file.
    pub partition: Option<String>,
    /// Length, in ns.
    pub ns: i64,
}

/// Results of a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ThreadResult {
    /// Its name.
    pub name: String,
    /// Time between its begin and its end, in ns: the sum of its states.
    pub alive_ns: i64,
    /// Its time by state.
    pub states: StateTimes,
}

/// The run over time, in bins of equal width.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StatesOverTime {
    /// Width of a bin, in ns; the last one may be shorter.
    pub bin_ns: i64,
    /// One for the critical path, then one for each thread.
    pub lanes: Vec<ThreadStateLane>,
}

/// The states of a thread in each bin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ThreadStateLane {
    /// Name of the thread; `the user waits for` for the critical path.
    pub name: String,
    /// Time in each bin by state, in ns; states that do not occur are omitted.
    pub states: BTreeMap<&'static str, Vec<i64>>,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AppResult {
    /// The program.
    pub program: String,
    /// The host.
    pub host: String,
    /// The kernel.
    pub era: String,
    /// The network.
    pub network: String,
    /// Seed of the random draws.
    pub seed: u64,
    /// Parts of the storage that were infinitely fast.
    pub what_if: Vec<String>,
    /// Time that the user waited, in ns.
    pub runtime_ns: i64,
    /// The thread that the user waits for.
    pub user_waits_for: String,
    /// The runtime by state along the critical path; the sum is the runtime.
    pub states: StateTimes,
    /// The same in more detail, the longest first.
    pub spent: Vec<UserWaitPart>,
    /// Threads, each with its own time.
    pub threads: Vec<ThreadResult>,
    /// Time that cores worked for the program, in ns.
    pub cpu_ns: i64,
    /// Work of the kernel's own threads, in ns; it does not occupy the program's cores. `None` for a live run.
    pub kernel_cpu_ns: Option<u64>,
    /// Bytes over the network.
    pub network_bytes: u64,
    /// File operations.
    pub file_operations: u64,
    /// File operations for durability: `fsync`, `fdatasync` and `sync`, of files and folders.
    pub file_syncs: u64,
    /// Block requests. `None` for a live run.
    pub requests: Option<RequestCounts>,
    /// The run over time.
    pub over_time: StatesOverTime,
}

/// The states along the critical path of a thread and those of each thread, as sums and over time.
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

    /// The parts of the critical path, the longest first; `partitions` are the names of mounts.
    pub fn user_wait_parts(&self, partitions: &[&str]) -> Vec<UserWaitPart> {
        let mut out: Vec<UserWaitPart> = Vec::new();
        for (doing, time) in self.path.iter() {
            let Some(state) = doing.state() else { continue };
            let (wait, place) = match doing {
                ThreadActivity::Storage(wait, place) => (Some(wait.name()), place),
                _ => (None, None),
            };
            let partition = place.map(|(_, mount)| partitions[usize::from(mount.0)].to_owned());
            let spent =
                UserWaitPart { state, wait, class: place.map(|(class, _)| class.name()), partition, ns: time.0 };
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

/// Time by state in bins of equal width.
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
