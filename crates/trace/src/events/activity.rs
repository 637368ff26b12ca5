//! The activity that a recording counts in addition to requests: commands of the device, waits of processes for durability of
//! files, and commits of journals. Stored as JSON in the header of the trace.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ByteCount, CommandKind, Nanos};

/// Commands of one kind to one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandCounts {
    /// The purpose of the commands.
    pub kind: CommandKind,
    /// Number of commands; each repetition is counted.
    pub count: u64,
    /// Amount of data of the commands.
    pub bytes: ByteCount,
    /// Number of packed commands among the commands (eMMC 4.5 and later, kernels before 4.10).
    pub packed: u64,
    /// Number of reliable writes among the commands.
    pub reliable: u64,
    /// Number of commands that failed and were repeated.
    pub retries: u64,
    /// Number of commands that failed.
    pub errors: u64,
    /// Sum of the durations of the commands.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// The longest duration of a command.
    #[serde(rename = "longest_ns")]
    pub longest: Nanos,
}

/// The commands of one host controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostActivity {
    /// Name of the host controller (`mmc0`, `1d84000.ufshc`; `ufs` if the kernel does not report it).
    pub host: String,
    /// Time in which at least one command was in progress.
    #[serde(rename = "busy_ns")]
    pub busy: Nanos,
    /// Commands whose start or end was not recorded.
    pub unpaired: u64,
    /// Counts by kind; kinds without a command are left out.
    pub commands: Vec<CommandCounts>,
}

/// Number and duration of the waits of a process for durability of files (`fsync`, `fdatasync`, `msync`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SyncCounts {
    /// Name of the process; `pid N` if no event contained the name.
    pub process: String,
    /// The kind of file system.
    pub file_system: String,
    /// Number of calls that ended during the recording.
    pub calls: u64,
    /// Number of calls that returned an error.
    pub errors: u64,
    /// Sum of the durations.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// The longest duration.
    #[serde(rename = "longest_ns")]
    pub longest: Nanos,
}

impl SyncCounts {
    /// Adds the calls of another row.
    pub fn add(&mut self, other: &SyncCounts) {
        self.calls += other.calls;
        self.errors += other.errors;
        self.time = Nanos(self.time.0.saturating_add(other.time.0));
        self.longest = self.longest.max(other.longest);
    }
}

/// A wait of a task for durability of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SyncWait {
    /// Start of the call, on the clock of the requests.
    pub start: Nanos,
    /// Duration of the call.
    pub time: Nanos,
    /// Name of the process; `pid N` if no event contained the name.
    pub process: String,
    /// Id of the task.
    pub pid: i32,
    /// The kind of file system.
    pub file_system: String,
    /// The device that is mounted.
    pub device: String,
}

/// A wait for durability of a file that had not ended at the end of the recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnfinishedWait {
    /// Name of the process; `pid N` if no event contained the name.
    pub process: String,
    /// Id of the task.
    pub pid: i32,
    /// The kind of file system.
    pub file_system: String,
    /// The device that is mounted.
    pub device: String,
    /// Start of the call, on the clock of the requests.
    #[serde(rename = "start_ns")]
    pub start: Nanos,
}

/// Kernel threads that write for a file system while processes wait: the journal thread of ext4, the threads for checkpoints and
/// flushes of f2fs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FsWriterThreads {
    /// The kind of file system.
    pub file_system: String,
    /// The device that is mounted.
    pub device: String,
    /// Ids of the threads.
    pub pids: Vec<i32>,
}

/// A period in which the recorder lost events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LostEventsGap {
    /// Time of the last event before the loss, on the clock of the requests.
    #[serde(rename = "from_ns")]
    pub from: Nanos,
    /// Time of the first event after the lost events, on the clock of the requests.
    #[serde(rename = "to_ns")]
    pub to: Nanos,
    /// Number of lost events.
    pub events: u64,
}

/// The writes of a journal of ext4 (JBD2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JournalCounts {
    /// The device that is mounted.
    pub device: String,
    /// Number of committed transactions.
    pub commits: u64,
    /// Number of metadata changes (handles) in the committed transactions.
    pub handles: u64,
    /// Number of blocks written to the journal.
    pub blocks: u64,
    /// Starts of the commits whose start and end were recorded, in order, on the clock of the requests. Over all journals, at
    /// most the 65,536 longest commits are included.
    #[serde(rename = "commit_start_ns", default, skip_serializing_if = "Vec::is_empty")]
    pub commit_starts: Vec<Nanos>,
    /// Durations of the commits in `commit_starts`, in the same order.
    #[serde(rename = "commit_time_ns", default, skip_serializing_if = "Vec::is_empty")]
    pub commit_times: Vec<Nanos>,
}

/// The activity that a recording counted in addition to requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RecordedActivity {
    /// Host controllers, in order of their names.
    pub hosts: Vec<HostActivity>,
    /// Waits for durability by process and file system, most calls first.
    pub syncs: Vec<SyncCounts>,
    /// The individual waits for durability in order of their starts; at most the 65,536 longest.
    #[serde(with = "by_task")]
    #[schemars(with = "Vec<TaskWaits>")]
    pub waits: Vec<SyncWait>,
    /// Waits for durability without a recorded end, in order of their starts.
    pub unfinished: Vec<UnfinishedWait>,
    /// The kernel threads that write for the file systems on which processes waited.
    pub writers: Vec<FsWriterThreads>,
    /// Journals, in order of the names of their devices.
    pub journals: Vec<JournalCounts>,
    /// Periods in which events were lost, if the recorder reports them. There are at most 4,096; the last one may combine several periods.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<LostEventsGap>,
}

/// The waits of one task on one file system.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct TaskWaits {
    process: String,
    pid: i32,
    file_system: String,
    device: String,
    start_ns: Vec<Nanos>,
    time_ns: Vec<Nanos>,
}

/// The form in which waits are stored: grouped by task.
mod by_task {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::{Nanos, SyncWait, TaskWaits};

    pub fn serialize<S: Serializer>(waits: &[SyncWait], serializer: S) -> Result<S::Ok, S::Error> {
        let mut by_task: BTreeMap<_, (Vec<Nanos>, Vec<Nanos>)> = BTreeMap::new();
        for SyncWait { start, time, process, pid, file_system, device } in waits.iter().cloned() {
            let of_task = by_task.entry((process, pid, file_system, device)).or_default();
            of_task.0.push(start);
            of_task.1.push(time);
        }
        serializer.collect_seq(by_task.into_iter().map(|((process, pid, file_system, device), (start_ns, time_ns))| TaskWaits {
            process,
            pid,
            file_system,
            device,
            start_ns,
            time_ns,
        }))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<SyncWait>, D::Error> {
        let of_task = |task: TaskWaits| {
            let TaskWaits { process, pid, file_system, device, start_ns, time_ns } = task;
            start_ns.into_iter().zip(time_ns).map(move |(start, time)| SyncWait {
                start,
                time,
                process: process.clone(),
                pid,
                file_system: file_system.clone(),
                device: device.clone(),
            })
        };
        let mut waits: Vec<_> = Vec::deserialize(deserializer)?.into_iter().flat_map(of_task).collect();
        waits.sort();
        Ok(waits)
    }
}

impl RecordedActivity {
    /// True if nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
            && self.syncs.is_empty()
            && self.waits.is_empty()
            && self.unfinished.is_empty()
            && self.journals.is_empty()
    }

    /// The JSON for [`crate::TraceHeader::activity`]; `None` if nothing was counted.
    pub fn to_json(&self) -> Option<String> {
        if self.is_empty() { None } else { serde_json::to_string(self).ok() }
    }

    /// Parses the JSON of [`crate::TraceHeader::activity`]; `None` if it is not an activity.
    pub fn from_json(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }
}
