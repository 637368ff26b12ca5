//! The interface of a block device for its exports: requests are submitted, and completions are delivered in any order.

use std::sync::Arc;

use emmclab_base::{CommandFlags, DeviceHealth};

/// The work that a request asks for. Sectors have 512 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockAction {
    /// Read the sectors.
    Read,
    /// Write this data, whose length is that of the sectors.
    Write(Vec<u8>),
    /// The sectors read as zeros from now on; `keep_allocated` forbids discarding them (NBD `NO_HOLE`).
    WriteZeroes {
        /// Whether the sectors stay allocated.
        keep_allocated: bool,
    },
    /// The data is no longer needed; discarded sectors read as zeros.
    Discard {
        /// Whether old data must not be recoverable (secure erase).
        secure: bool,
    },
    /// Make durable all writes that were complete when this request was submitted. A flush has no sectors.
    Flush,
}

/// A request to a block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedRequest {
    /// A number chosen by the sender; the completion carries the same number.
    pub tag: u64,
    /// The work.
    pub action: BlockAction,
    /// First sector.
    pub sector: u64,
    /// Length in sectors; 0 only for a flush.
    pub sectors: u32,
    /// Flags. FUA is [`CommandFlags::RELIABLE`]; it also applies to [`BlockAction::WriteZeroes`] and [`BlockAction::Discard`].
    pub modifiers: CommandFlags,
}

impl ServedRequest {
    /// The sector after the last one; `u64::MAX` if the sum overflows.
    pub fn end(&self) -> u64 {
        self.sector.saturating_add(u64::from(self.sectors))
    }
}

/// The reason for a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFailure {
    /// The request extends beyond the device or has an invalid length (EINVAL).
    Invalid,
    /// No space for the data: the device is full, or the disk that holds its image (ENOSPC).
    NoSpace,
    /// The device is worn out, stopped or without power (EIO).
    Io,
    /// The device is read-only (EROFS).
    ReadOnly,
}

/// The completion of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedCompletion {
    /// The tag of the request.
    pub tag: u64,
    /// The data of a read, an empty vector for other requests, or the reason of the failure.
    pub outcome: Result<Vec<u8>, RequestFailure>,
}

/// Receives completions. It is called by the thread that advances the device, whichever that is, and must not block.
pub trait CompletionReceiver: Send + Sync {
    /// Called when requests are complete; drains the list.
    fn complete(&self, completed: &mut Vec<ServedCompletion>);
}

/// Consecutive sectors that are all allocated or all not allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationExtent {
    /// Length in sectors.
    pub sectors: u64,
    /// Whether the sectors hold data; false if they read as zeros and occupy no space.
    pub allocated: bool,
}

/// Size and capabilities of a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockDeviceLimits {
    /// Size in sectors.
    pub sectors: u64,
    /// Preferred length and alignment of requests in sectors: the smallest page.
    pub preferred_sectors: u32,
    /// Longest request in sectors.
    pub max_sectors: u32,
    /// Granularity of discards, in sectors: the alignment and the minimum length of what is actually discarded.
    pub discard_sectors: u32,
    /// Whether completed writes may be volatile, so that flushes are needed.
    pub write_cache: bool,
}

/// A block device. Any number of exports and connections may use it at once.
pub trait BlockDevice: Send + Sync {
    /// Size and capabilities, which never change.
    fn limits(&self) -> BlockDeviceLimits;

    /// The present state of the flash. By default, for a device without flash, nothing is known.
    fn health(&self) -> DeviceHealth {
        DeviceHealth::default()
    }

    /// Removes all requests from the list and submits them in order. Each is completed once: before this returns, or later from another
    /// thread. Requests that overlap take effect in the order of submission; others are completed in any order.
    fn submit(&self, requests: &mut Vec<ServedRequest>, completions: &Arc<dyn CompletionReceiver>);

    /// Appends the allocation of at most `sectors` sectors from `sector` on to `found`, in at most `most` extents.
    fn extents(&self, sector: u64, sectors: u64, most: usize, found: &mut Vec<AllocationExtent>);
}
