//! The time of a finished operation, by its waits.

use std::ops::{Index, IndexMut, Range};

use emmclab_base::Nanos;

use crate::operation::CallerId;
use crate::request::BlockRequestId;

/// The states in which an operation waits. They exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Wait {
    /// Data or metadata that is read.
    Read,
    /// Of a sync: its own data on the way to the device.
    SyncData,
    /// Of a sync: a commit that it began, or a flush.
    SyncCommit,
    /// Of a sync: a commit that others began.
    SyncJoined,
    /// Too much is dirty.
    DirtyLimit,
    /// Too many requests wait for the device.
    RequestLimit,
    /// The journal: a block that a commit is writing, or room for more.
    Journal,
    /// The file: another operation on it, or pages of it on their way that are about to go.
    File,
}

/// The states of a thread that each [`Wait`] is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitGroup {
    /// Reading.
    Read,
    /// Making durable.
    Fsync,
    /// Held back.
    Throttled,
    /// Waiting for a lock.
    Lock,
}

impl Wait {
    /// All of them.
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

    /// The name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::SyncData => "sync_data",
            Self::SyncCommit => "sync_commit",
            Self::SyncJoined => "sync_joined",
            Self::DirtyLimit => "dirty_limit",
            Self::RequestLimit => "request_limit",
            Self::Journal => "journal",
            Self::File => "file",
        }
    }

    /// The state of a thread that it is a part of.
    pub const fn group(self) -> WaitGroup {
        match self {
            Self::Read => WaitGroup::Read,
            Self::SyncData | Self::SyncCommit | Self::SyncJoined => WaitGroup::Fsync,
            Self::DirtyLimit | Self::RequestLimit | Self::Journal => WaitGroup::Throttled,
            Self::File => WaitGroup::Lock,
        }
    }
}

/// Time by what was waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited([Nanos; Wait::ALL.len()]);

impl Waited {
    /// The sum of all parts.
    pub fn total(&self) -> Nanos {
        self.0.iter().copied().sum()
    }

    /// The sum of the parts of a group.
    pub fn group(&self, group: WaitGroup) -> Nanos {
        Wait::ALL.into_iter().filter(|wait| wait.group() == group).map(|wait| self[wait]).sum()
    }
}

impl Index<Wait> for Waited {
    type Output = Nanos;
    fn index(&self, wait: Wait) -> &Nanos {
        &self.0[wait as usize]
    }
}

impl IndexMut<Wait> for Waited {
    fn index_mut(&mut self, wait: Wait) -> &mut Nanos {
        &mut self.0[wait as usize]
    }
}

/// An operation that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Who asked for it.
    pub caller: CallerId,
    /// When it began.
    pub begun: Nanos,
    /// When it ended; `at - begun` is [`Waited::total`].
    pub at: Nanos,
    /// Processor time that the caller owes beside, in ns; it is not part of `at`.
    pub cpu_ns: u64,
    /// Bytes read or written.
    pub bytes: u64,
    /// Its waits.
    pub waited: Waited,
    pub(crate) requests: Range<u32>,
}

impl Finished {
    /// An operation that no host did, and whose requests are not known.
    pub const fn alone(caller: CallerId, begun: Nanos, at: Nanos, bytes: u64, waited: Waited) -> Self {
        Self { caller, begun, at, cpu_ns: 0, bytes, waited, requests: 0..0 }
    }
}

/// Operations that ended; its memory is used again after [`FinishedOps::clear`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinishedOps {
    /// The operations, in the order in which they ended.
    pub operations: Vec<Finished>,
    pub(crate) requests: Vec<BlockRequestId>,
}

impl FinishedOps {
    /// The requests that an operation waited for, in order of completion; those of a commit are among them.
    pub fn requests(&self, operation: &Finished) -> &[BlockRequestId] {
        let range = operation.requests.start as usize..operation.requests.end as usize;
        self.requests.get(range).unwrap_or_default()
    }

    /// Removes all operations.
    pub fn clear(&mut self) {
        self.operations.clear();
        self.requests.clear();
    }
}
