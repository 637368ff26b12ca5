//! Waiting times of a finished operation.

use std::ops::{Index, IndexMut, Range};

use emmclab_base::Nanos;

use crate::operation::CallerId;
use crate::request::BlockRequestId;

/// The reasons for which an operation waits. There is only one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum WaitReason {
    /// A read of data or metadata.
    Read,
    /// In a sync: the writes of its own data.
    SyncData,
    /// In a sync: a commit that it started, or a flush.
    SyncCommit,
    /// In a sync: a commit that others started.
    SyncJoined,
    /// There are too many dirty pages.
    DirtyLimit,
    /// Too many requests wait for the device.
    RequestLimit,
    /// The journal: a block that a commit is writing, or space in the log.
    Journal,
    /// The file: another operation on it, or pages in progress that are to be dropped.
    File,
}

/// The states of a thread to which the reasons of [`WaitReason`] belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitCategory {
    /// Reading.
    Read,
    /// Waiting for durability.
    Fsync,
    /// Held back by a limit.
    Throttled,
    /// Waiting for a lock.
    Lock,
}

impl WaitReason {
    /// All reasons.
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

    /// The state of a thread to which it belongs.
    pub const fn group(self) -> WaitCategory {
        match self {
            Self::Read => WaitCategory::Read,
            Self::SyncData | Self::SyncCommit | Self::SyncJoined => WaitCategory::Fsync,
            Self::DirtyLimit | Self::RequestLimit | Self::Journal => WaitCategory::Throttled,
            Self::File => WaitCategory::Lock,
        }
    }
}

/// Waiting times by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitBreakdown([Nanos; WaitReason::ALL.len()]);

impl WaitBreakdown {
    /// The sum of all parts.
    pub fn total(&self) -> Nanos {
        self.0.iter().copied().sum()
    }

    /// The sum of the parts of a group.
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
    /// The caller that began it.
    pub caller: CallerId,
    /// When it began.
    pub begun: Nanos,
    /// When it ended; `at - begun` is [`WaitBreakdown::total`].
    pub at: Nanos,
    /// Processor time that the caller has to spend in addition, in ns; it is not included in `at`.
    pub cpu_ns: u64,
    /// Bytes read or written.
    pub bytes: u64,
    /// Its waiting times.
    pub waits: WaitBreakdown,
    pub(crate) requests: Range<u32>,
}

impl FinishedOperation {
    /// An operation that was not executed by a host, so that its requests are not known.
    pub const fn alone(caller: CallerId, begun: Nanos, at: Nanos, bytes: u64, waited: WaitBreakdown) -> Self {
        Self { caller, begun, at, cpu_ns: 0, bytes, waits: waited, requests: 0..0 }
    }
}

/// Finished operations; the memory is reused after [`FinishedOperations::clear`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinishedOperations {
    /// The operations, in order of completion.
    pub operations: Vec<FinishedOperation>,
    pub(crate) requests: Vec<BlockRequestId>,
}

impl FinishedOperations {
    /// The requests that an operation waited for, in order of completion, including those of a commit.
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
