//! The activity that a recording counts beside the requests: commands of the device, waits of processes for files to be
//! durable, and commits of journals. Stored as JSON in the header of the trace.

use emmclab_base::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use super::command::CommandKind;

/// Commands of one kind to one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandCounts {
    /// The purpose of the commands.
    pub kind: CommandKind,
    /// Number of commands; repeated ones are counted each time.
    pub count: u64,
    /// Amount of data of the commands.
    pub bytes: Bytes,
    /// Number of packed commands among them (eMMC 4.5 and later, kernels before 4.10).
    pub packed: u64,
    /// Number of reliable writes among them.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// How often and how long a process waited for files to be durable (`fsync`, `fdatasync`, `msync`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncCounts {
    /// Name of the process; `pid N` if no event contained the name.
    pub process: String,
    /// The kind of file system.
    pub file_system: String,
    /// Number of calls that ended in the recording.
    pub calls: u64,
    /// Number of calls that returned an error.
    pub errors: u64,
    /// Sum of their durations.
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

/// One wait of a process for a file to be durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncStall {
    /// Name of the process; `pid N` if no event contained the name.
    pub process: String,
    /// The kind of file system.
    pub file_system: String,
    /// Start of the call, on the clock of the requests.
    #[serde(rename = "start_ns")]
    pub start: Nanos,
    /// Its duration.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}

/// The writes of a journal of ext4 (JBD2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalCounts {
    /// The device that is mounted.
    pub device: String,
    /// Number of committed transactions.
    pub commits: u64,
    /// Number of metadata changes (handles) in them.
    pub handles: u64,
    /// Number of blocks written to the journal.
    pub blocks: u64,
}

/// The activity that a recording counted beside the requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Activity {
    /// Host controllers, in order of their names.
    pub hosts: Vec<HostActivity>,
    /// Waits for durability by process and file system, the most calls first.
    pub syncs: Vec<SyncCounts>,
    /// The longest waits for durability, at most 256, in order of their starts.
    pub stalls: Vec<SyncStall>,
    /// Journals, in order of their devices' names.
    pub journals: Vec<JournalCounts>,
}

impl Activity {
    /// True if nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty() && self.syncs.is_empty() && self.journals.is_empty()
    }

    /// The JSON for [`crate::Header::activity`]; `None` if nothing was counted.
    pub fn to_json(&self) -> Option<String> {
        if self.is_empty() { None } else { serde_json::to_string(self).ok() }
    }

    /// Parses the JSON of [`crate::Header::activity`]; `None` if it is not an activity.
    pub fn from_json(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }
}
