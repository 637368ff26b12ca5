//! Block requests, as they are issued to the device.

use std::ops::Range;

use emmclab_base::{BlockNote, Request};

use crate::operation::{CallerId, FileClass, MountId};

/// The number of a block request; later ones have higher numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockRequestId(pub u64);

/// Why a block is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoCause {
    /// An operation of this caller waits for it.
    Caller(CallerId),
    /// It was read ahead of use.
    ReadAhead,
    /// Write-back: there were too many dirty pages, or they were dirty for too long.
    WriteBack,
    /// A commit of the file system's journal, or a checkpoint of its log.
    Commit,
    /// A checkpoint, which frees space in the journal.
    Checkpoint,
    /// Cleaning of segments, or collection of blocks, by the file system.
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

/// A request to the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostBlockRequest {
    /// Its number, for [`crate::SimulatedHost::last_complete`].
    pub id: BlockRequestId,
    /// Operation, range on the device, times and flags. `arrival` is its submission to the block layer, `issue` its departure from the
    /// elevator. Flags: sync, FUA, preflush, metadata, read-ahead, journal.
    pub request: Request,
    /// The mount that it belongs to.
    pub mount: MountId,
    /// The class of its first block.
    pub class: FileClass,
    /// Why it was submitted; for merged requests, the cause of the first one.
    pub cause: IoCause,
    pub(crate) notes: Range<u32>,
}

/// Requests with their notes; the memory is reused after [`HostBlockRequests::clear`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostBlockRequests {
    /// The requests, in the order in which the device gets them.
    pub requests: Vec<HostBlockRequest>,
    pub(crate) notes: Vec<BlockNote>,
}

impl HostBlockRequests {
    /// The roles of the blocks of a write, from its first sector on; empty for other requests.
    pub fn notes(&self, request: &HostBlockRequest) -> &[BlockNote] {
        self.notes.get(request.notes.start as usize..request.notes.end as usize).unwrap_or_default()
    }

    /// Removes all requests.
    pub fn clear(&mut self) {
        self.requests.clear();
        self.notes.clear();
    }
}
