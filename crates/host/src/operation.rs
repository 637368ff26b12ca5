//! File operations, as callers submit them.

use std::ops::{Index, IndexMut, Range};

use emmclab_base::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::request::BlockRequestId;

/// Identifies a thread of a program. A thread has at most one operation in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallerId(pub u32);

/// Identifies a path. Callers number paths from 0 on, without large gaps. The file at a path can change: a rename moves a file to another
/// path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// Identifies a folder of a mount; 0 is the root folder. All folders exist from the start of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FolderId(pub u32);

/// Index of a mount in the list that was passed to [`crate::SimulatedHost::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MountId(pub u16);

/// The class of a block, by its purpose for the application or the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileClass {
    /// A database.
    Database,
    /// A rollback journal or a write-ahead log of a database.
    DatabaseJournal,
    /// Data that can be downloaded or computed again.
    Cache,
    /// Any other file.
    #[default]
    Other,
    /// Metadata of the file system, except its journal.
    Metadata,
    /// The journal of the file system.
    FilesystemJournal,
}

impl FileClass {
    /// All classes; the first four are classes of files.
    pub const ALL: [Self; 6] =
        [Self::Database, Self::DatabaseJournal, Self::Cache, Self::Other, Self::Metadata, Self::FilesystemJournal];

    /// The name of the class in files and results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Database => "database",
            Self::DatabaseJournal => "database_journal",
            Self::Cache => "cache",
            Self::Other => "other",
            Self::Metadata => "metadata",
            Self::FilesystemJournal => "filesystem_journal",
        }
    }
}

/// The location of a file, and the class of its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSpec {
    /// The mount that contains the path.
    pub mount: MountId,
    /// The folder that contains the path.
    pub folder: FolderId,
    /// The class of the contents.
    pub class: FileClass,
}

/// A file operation. Offsets and lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named for what they hold")]
pub enum FileOp {
    /// Opens a file. With `create`, a missing file is created.
    Open { file: FileId, create: bool },
    /// Reads from a file, at most up to its end.
    Read { file: FileId, offset: u64, bytes: u64 },
    /// Writes to a file, which grows if necessary.
    Write { file: FileId, offset: u64, bytes: u64 },
    /// Writes at the end of the file.
    Append { file: FileId, bytes: u64 },
    /// Makes a file durable. With `data_only`, makes only its data and the metadata needed to find it durable (`fdatasync`).
    Fsync { file: FileId, data_only: bool },
    /// Makes the entries of a folder durable.
    FsyncFolder { mount: MountId, folder: FolderId },
    /// Sets the length of a file.
    Truncate { file: FileId, bytes: u64 },
    /// Removes a path. The file is deleted when its last descriptor is closed.
    Unlink { file: FileId },
    /// Moves a file to another path. The file that was at that path is removed.
    Rename { from: FileId, to: FileId },
    /// Closes a file.
    Close { file: FileId },
    /// Makes all data durable, on all mounts.
    Sync,
}

impl FileOp {
    /// Whether the operation is a sync.
    pub const fn is_sync(&self) -> bool {
        matches!(self, Self::Fsync { .. } | Self::FsyncFolder { .. } | Self::Sync)
    }

    /// The file of the operation; for a rename, the file that is moved; `None` for syncs of a folder or of all mounts.
    pub const fn file(&self) -> Option<FileId> {
        match *self {
            Self::Open { file, .. }
            | Self::Read { file, .. }
            | Self::Write { file, .. }
            | Self::Append { file, .. }
            | Self::Fsync { file, .. }
            | Self::Truncate { file, .. }
            | Self::Unlink { file }
            | Self::Rename { from: file, .. }
            | Self::Close { file } => Some(file),
            Self::FsyncFolder { .. } | Self::Sync => None,
        }
    }
}

/// The reason for which an operation waits. An operation waits for one reason at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum WaitReason {
    /// Waits for a read of data or metadata.
    Read,
    /// Waits in a sync for the writes of the file's own data.
    SyncData,
    /// Waits in a sync for a commit that the sync started, or for a flush.
    SyncCommit,
    /// Waits in a sync for a commit that another operation started.
    SyncJoined,
    /// Waits because there are too many dirty pages.
    DirtyLimit,
    /// Waits because too many requests are queued for the device.
    RequestLimit,
    /// Waits for the journal: for a block that a commit is writing, or for space in the log.
    Journal,
    /// Waits for another operation on the file, or for pages that are to be dropped but are being read or written.
    File,
}

/// Categories of [`WaitReason`], which correspond to states of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitCategory {
    /// Reading.
    Read,
    /// Waiting for durability.
    Fsync,
    /// Held back by a limit on dirty pages, on requests, or on the journal.
    Throttled,
    /// Waiting for a lock.
    Lock,
}

impl WaitReason {
    /// All wait reasons.
    pub const ALL: [Self; 8] = [
        Self::Read,
        Self::SyncData,
        Self::SyncCommit,
        Self::SyncJoined,
        Self::DirtyLimit,
        Self::RequestLimit,
        Self::Journal,
        Self::File,
    ];

    /// The name of the reason in results, and its category.
    const fn name_and_group(self) -> (&'static str, WaitCategory) {
        match self {
            Self::Read => ("read", WaitCategory::Read),
            Self::SyncData => ("sync_data", WaitCategory::Fsync),
            Self::SyncCommit => ("sync_commit", WaitCategory::Fsync),
            Self::SyncJoined => ("sync_joined", WaitCategory::Fsync),
            Self::DirtyLimit => ("dirty_limit", WaitCategory::Throttled),
            Self::RequestLimit => ("request_limit", WaitCategory::Throttled),
            Self::Journal => ("journal", WaitCategory::Throttled),
            Self::File => ("file", WaitCategory::Lock),
        }
    }

    /// The name in results.
    pub const fn name(self) -> &'static str {
        self.name_and_group().0
    }

    /// The category of the reason.
    pub const fn group(self) -> WaitCategory {
        self.name_and_group().1
    }
}

/// Waiting times by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitBreakdown([Nanos; WaitReason::ALL.len()]);

impl WaitBreakdown {
    /// The sum of the waiting times of all reasons.
    pub fn total(&self) -> Nanos {
        self.0.iter().copied().sum()
    }

    /// The sum of the waiting times of a category.
    pub fn group(&self, group: WaitCategory) -> Nanos {
        WaitReason::ALL.into_iter().filter(|wait| wait.group() == group).map(|wait| self[wait]).sum()
    }
}

impl Index<WaitReason> for WaitBreakdown {
    type Output = Nanos;
    fn index(&self, wait: WaitReason) -> &Nanos {
        &self.0[wait as usize]
    }
}

impl IndexMut<WaitReason> for WaitBreakdown {
    fn index_mut(&mut self, wait: WaitReason) -> &mut Nanos {
        &mut self.0[wait as usize]
    }
}

/// A finished operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedOperation {
    /// The caller that began the operation.
    pub caller: CallerId,
    /// Time at which the operation began.
    pub begun: Nanos,
    /// Time at which the operation ended; `at - begun` is [`WaitBreakdown::total`].
    pub at: Nanos,
    /// Processor time that the caller has to spend in addition to the waiting time, in ns; `at` does not include it.
    pub cpu_ns: u64,
    /// Bytes read or written.
    pub bytes: u64,
    /// Waiting times of the operation by reason.
    pub waits: WaitBreakdown,
    pub(crate) requests: Range<u32>,
}

impl FinishedOperation {
    /// Returns an operation that the simulated host did not execute. Its requests are unknown, so their list is empty.
    pub const fn alone(caller: CallerId, begun: Nanos, at: Nanos, bytes: u64, waited: WaitBreakdown) -> Self {
        Self { caller, begun, at, cpu_ns: 0, bytes, waits: waited, requests: 0..0 }
    }
}

/// A list of finished operations. Its memory is reused after [`FinishedOperations::clear`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinishedOperations {
    /// The operations, in order of completion.
    pub operations: Vec<FinishedOperation>,
    pub(crate) requests: Vec<BlockRequestId>,
}

impl FinishedOperations {
    /// The requests for which an operation waited, in order of completion, including those of a commit.
    pub fn requests(&self, operation: &FinishedOperation) -> &[BlockRequestId] {
        let range = operation.requests.start as usize..operation.requests.end as usize;
        self.requests.get(range).unwrap_or_default()
    }

    /// Removes all operations.
    pub fn clear(&mut self) {
        self.operations.clear();
        self.requests.clear();
    }
}
