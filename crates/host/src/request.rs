//! Block requests as the host issues them to the device.

use std::ops::Range;

use emmclab_base::{BlockNote, Request};

use crate::operation::{CallerId, FileClass, FolderId, MountId};

/// The number of a block request. Later requests have higher numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockRequestId(pub u64);

/// The reason why a block is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoCause {
    /// An operation of this caller waits for the block.
    Caller(CallerId),
    /// The block is read before it is used.
    ReadAhead,
    /// Write-back, because there were too many dirty pages or they were dirty for too long.
    WriteBack,
    /// A commit of the file system's journal, or a checkpoint of a log-structured file system.
    Commit,
    /// A checkpoint of the journal, which frees space in it.
    Checkpoint,
    /// Cleaning of segments by the file system.
    Cleaning,
}

impl IoCause {
    /// The name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Caller(_) => "caller",
            Self::ReadAhead => "read_ahead",
            Self::WriteBack => "write_back",
            Self::Commit => "commit",
            Self::Checkpoint => "checkpoint",
            Self::Cleaning => "cleaning",
        }
    }
}

/// A request that the host issues to the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostBlockRequest {
    /// The number of the request, for [`crate::SimulatedHost::completed`].
    pub id: BlockRequestId,
    /// Operation, range on the device, times and flags (sync, FUA, preflush, metadata, read-ahead, journal). `arrival` is the submission to
    /// the block layer, `issue` the time at which the request leaves the elevator.
    pub request: Request,
    /// The mount to which the request belongs.
    pub mount: MountId,
    /// The class of the first block.
    pub class: FileClass,
    /// The folder of the file whose data the first block holds; `None` for blocks of the file system.
    pub folder: Option<FolderId>,
    /// The reason for the request; for a merged request, the reason for its first part.
    pub cause: IoCause,
    pub(crate) notes: Range<u32>,
}

/// A list of requests with the notes on their blocks. Its memory is reused after [`HostBlockRequests::clear`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostBlockRequests {
    /// The requests, in the order in which they are issued to the device.
    pub requests: Vec<HostBlockRequest>,
    pub(crate) notes: Vec<BlockNote>,
}

impl HostBlockRequests {
    /// The classification of the blocks of a write, from its first sector on; empty for other requests.
    pub fn notes(&self, request: &HostBlockRequest) -> &[BlockNote] {
        self.notes.get(request.notes.start as usize..request.notes.end as usize).unwrap_or_default()
    }

    /// Removes all requests.
    pub fn clear(&mut self) {
        self.requests.clear();
        self.notes.clear();
    }
}
