//! The activity that a recording counts beside the requests: the device's commands, who waits for files to be durable, and the
//! journal's commits. Stored as JSON in the header of the trace.

use emmclab_base::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use super::command::CommandKind;

/// Commands of one kind to one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandCounts {
    /// Their purpose.
    pub kind: CommandKind,
    /// How many there were, repeated ones counted each time.
    pub count: u64,
    /// Their data.
    pub bytes: Bytes,
    /// Packed commands among them (eMMC 4.5 and later, kernels before 4.10).
    pub packed: u64,
    /// Reliable writes among them.
    pub reliable: u64,
    /// Those that failed and were given once more.
    pub retries: u64,
    /// Those that failed.
    pub errors: u64,
    /// Sum of their times, from start to end.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// The longest time.
    #[serde(rename = "longest_ns")]
    pub longest: Nanos,
}

/// The commands of one host controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostActivity {
    /// Its name (`mmc0`, `1d84000.ufshc`; `ufs` where the kernel does not report it).
    pub host: String,
    /// Time in which at least one command was in progress.
    #[serde(rename = "busy_ns")]
    pub busy: Nanos,
    /// Commands whose end was not seen, or whose beginning.
    pub unpaired: u64,
    /// By kind; kinds without a command are left out.
    pub commands: Vec<CommandCounts>,
}

/// How often and how long a process waited for files to be durable (`fsync`, `fdatasync`, `msync`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncCounts {
    /// Its name; `pid N` where no event contained the name.
    pub process: String,
    /// The kind of file system.
    pub file_system: String,
    /// Calls that ended in the recording.
    pub calls: u64,
    /// Calls that returned an error.
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
    /// Name of the process; `pid N` where no event contained the name.
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
    /// Transactions committed.
    pub commits: u64,
    /// Changes of metadata in them.
    pub handles: u64,
    /// Blocks written to the journal.
    pub blocks: u64,
}

/// The activity that a recording counted beside the requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Activity {
    /// Host controllers, in order of their names.
    pub hosts: Vec<HostActivity>,
    /// Waiting for durability by process and file system, the most calls first.
    pub syncs: Vec<SyncCounts>,
    /// The longest waits for durability, at most 256, in order of their starts.
    pub stalls: Vec<SyncStall>,
    /// Journals, in order of their devices' names.
    pub journals: Vec<JournalCounts>,
}

impl Activity {
    /// True if nothing was learned: no such device, file system or event.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty() && self.syncs.is_empty() && self.journals.is_empty()
    }

    /// As it is stored in [`crate::Header::activity`]; `None` if nothing was learned.
    pub fn to_json(&self) -> Option<String> {
        if self.is_empty() { None } else { serde_json::to_string(self).ok() }
    }

    /// From what is stored in [`crate::Header::activity`]; `None` if it is no activity.
    pub fn from_json(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }
}
