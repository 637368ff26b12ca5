//! Recovers a state in this process and reads its files.

use emmclab_base::{Error, ErrorClass, Result};
use emmclab_ext4::{DiskReader, Ext4Filesystem, JournalRecovery, TreeNode};

use crate::explorer::{CrashState, Explorer};
use crate::host_view::HostView;

/// The levels that make promises and are judged here; the lowest one that violated a promise is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PromiseLevel {
    /// The device: its contract.
    Device,
    /// A layer between file system and device.
    Layer,
    /// The file system.
    FileSystem,
}

impl PromiseLevel {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Layer => "layer",
            Self::FileSystem => "filesystem",
        }
    }
}

/// A promise that a state violates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateViolation {
    /// The level that made the promise.
    pub level: PromiseLevel,
    /// The name of the promise.
    pub promise: &'static str,
    /// The sectors or the structure in question.
    pub detail: String,
}

impl StateViolation {
    /// The problem for an error that prevents the recovery of an ext4.
    pub fn of_file_system(error: &Error) -> Self {
        let (promise, detail) = (promise_of(error), one_line(error));
        Self { level: PromiseLevel::FileSystem, promise, detail }
    }
}

/// A state after its recovery.
#[derive(Clone, Debug, Default)]
pub struct RecoveredState {
    /// The first problem, starting at the lowest level.
    pub problem: Option<StateViolation>,
    /// The contents of the requested files; `None` for a missing file, and empty after a problem.
    pub files: Vec<Option<Vec<u8>>>,
    /// Everything below the requested folder; `None` if there is no such folder, or after a problem.
    pub tree: Option<Vec<TreeNode>>,
    /// Number of writes by the recovery of the layers.
    pub layer_writes: usize,
}

/// Largest file that is read, in bytes.
const MOST_FILE: usize = 1 << 30;
/// Maximum number of files and folders of a tree that are read.
const MOST_NODES: usize = 1 << 20;

/// Recovers states, one after the other; known checksums are reused.
#[derive(Default)]
pub struct StateJudge {
    recovery: JournalRecovery,
}

impl StateJudge {
    /// Lets the layers and the journal recover a state of the current cut of `explorer`, and reads files and a folder. With
    /// `cut_after`, power is lost again after this many writes of the layers' recovery.
    ///
    /// # Errors
    /// If the state contains something that this tool does not support: then no level is at fault.
    pub fn recover(
        &mut self,
        explorer: &Explorer,
        state: &CrashState,
        wanted: &[&str],
        tree: Option<&str>,
        cut_after: Option<usize>,
    ) -> Result<RecoveredState> {
        let header = explorer.run().header();
        let view = explorer.view(state);
        let broken = |level, promise, detail| {
            let problem = Some(StateViolation { level, promise, detail });
            Ok(RecoveredState { problem, ..RecoveredState::default() })
        };
        let host = match HostView::recover(view, (&header.layers, &header.below()), header.sectors, cut_after)? {
            Ok(host) => host,
            Err(error) => {
                return broken(PromiseLevel::Layer, "recovery", format!("the layers do not recover: {error}"));
            }
        };
        let layer_writes = host.recovery_writes();
        if let Some(detail) = explorer.host_fault(state, &host) {
            return broken(PromiseLevel::Layer, "contents", detail);
        }
        let mut recovered = match self.files(&host, wanted, tree) {
            Ok(recovered) => recovered,
            Err(error) if error.kind() == ErrorClass::Unsupported => return Err(error),
            Err(error) => {
                return Ok(RecoveredState {
                    problem: Some(StateViolation::of_file_system(&error)),
                    ..RecoveredState::default()
                });
            }
        };
        recovered.layer_writes = layer_writes;
        Ok(recovered)
    }

    /// Replays the journal of a disk and reads files from it.
    ///
    /// # Errors
    /// If structures of the file system are damaged or not supported.
    pub fn files(&mut self, disk: &dyn DiskReader, wanted: &[&str], tree: Option<&str>) -> Result<RecoveredState> {
        let replayed = self.recovery.replay(disk)?;
        let replay = replayed.replay();
        if let Some(refused) = &replay.refused {
            let problem = Some(StateViolation::of_file_system(refused));
            return Ok(RecoveredState { problem, ..RecoveredState::default() });
        }
        let files = Ext4Filesystem::open(&replayed)?;
        let mut found = Vec::with_capacity(wanted.len());
        for path in wanted {
            let inode = files.lookup(path)?;
            found.push(inode.map(|inode| files.contents(&inode, MOST_FILE)).transpose()?);
        }
        let tree = tree.map(|folder| files.tree(folder, MOST_FILE, MOST_NODES)).transpose()?.flatten();
        Ok(RecoveredState { files: found, tree, ..RecoveredState::default() })
    }
}

/// Structures that Linux needs to replay the journal, as they are named in an error, with the promise that a damaged one violates:
/// if a power cut tears or garbles one of them, ext4 promises nothing.
const BEFORE_REPLAY: [(&str, &str); 5] = [
    ("`superblock`", "superblock"),
    ("`journal superblock`", "journal superblock"),
    ("`descriptor of block group ", "group descriptor"),
    ("`inode 8`", "journal inode"),
    ("commit block", "commit block"),
];

/// Returns the promise that a damaged structure violates.
fn promise_of(error: &Error) -> &'static str {
    let text = error.to_string();
    let known = BEFORE_REPLAY.iter().find(|(name, _)| text.contains(name));
    known.map_or("mountable", |(_, promise)| promise)
}

fn one_line(error: &Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}
