//! Operations on files, as a caller submits them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A thread of a program. It has at most one operation in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallerId(pub u32);

/// A path, numbered by the caller from 0 on without large gaps. The file that it names can change: a rename moves a file to another path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// A folder of a mount; 0 is its root. The other folders exist from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FolderId(pub u32);

/// Index of a mount in the list that was passed to [`crate::SimulatedHost::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MountId(pub u16);

/// The class of blocks, to the application or to the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileClass {
    /// A database.
    Database,
    /// A rollback journal or write-ahead log of a database.
    DatabaseJournal,
    /// Data that can be fetched again.
    Cache,
    /// Any other file.
    #[default]
    Other,
    /// Metadata of the file system, at its place.
    Metadata,
    /// The journal of the file system.
    FilesystemJournal,
}

impl FileClass {
    /// All classes; the first four are classes of files.
    pub const ALL: [Self; 6] =
        [Self::Database, Self::DatabaseJournal, Self::Cache, Self::Other, Self::Metadata, Self::FilesystemJournal];

    /// The name in files and results.
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

/// The location of a path, and the class of its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSpec {
    /// The mount.
    pub mount: MountId,
    /// Its folder there.
    pub folder: FolderId,
    /// The class of its contents.
    pub class: FileClass,
}

/// An operation on a file. Offsets and lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOp {
    /// Opens a file; with `create`, creates it if it is missing.
    Open {
        /// The file.
        file: FileId,
        /// Whether it is created if it is missing.
        create: bool,
    },
    /// Reads, up to the end of the file at most.
    Read {
        /// The file.
        file: FileId,
        /// First byte.
        offset: u64,
        /// Length.
        bytes: u64,
    },
    /// Writes; the file grows as needed.
    Write {
        /// The file.
        file: FileId,
        /// First byte.
        offset: u64,
        /// Length.
        bytes: u64,
    },
    /// Writes at the end of the file.
    Append {
        /// The file.
        file: FileId,
        /// Length.
        bytes: u64,
    },
    /// Makes a file durable.
    Fsync {
        /// The file.
        file: FileId,
        /// Only its data and what is needed to find it (`fdatasync`).
        data_only: bool,
    },
    /// Makes the entries of a folder durable.
    FsyncFolder {
        /// The mount.
        mount: MountId,
        /// The folder.
        folder: FolderId,
    },
    /// Sets the length of a file.
    Truncate {
        /// The file.
        file: FileId,
        /// The new length.
        bytes: u64,
    },
    /// Removes a path; the file is deleted when its last descriptor is closed.
    Unlink {
        /// The file.
        file: FileId,
    },
    /// Moves a file to another path; a file that was there before is removed.
    Rename {
        /// The present path of the file.
        from: FileId,
        /// The new path of the file.
        to: FileId,
    },
    /// Closes a file.
    Close {
        /// The file.
        file: FileId,
    },
    /// Makes everything durable, on all mounts.
    Sync,
}

impl FileOp {
    /// Whether it is a sync.
    pub const fn is_sync(&self) -> bool {
        matches!(self, Self::Fsync { .. } | Self::FsyncFolder { .. } | Self::Sync)
    }

    /// The file of the operation; for a rename, the file that is moved. `None` for syncs of folders and of everything.
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
