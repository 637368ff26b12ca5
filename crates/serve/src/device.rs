//! A block device as its exports see it: requests in, completions out, in any order.

use std::sync::Arc;

use emmclab_base::{Health, Modifiers};

/// The work that a request asks for. Sectors have 512 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read the sectors.
    Read,
    /// Write this data, as long as the sectors are.
    Write(Vec<u8>),
    /// The sectors read as zeros from now on; `keep_allocated` forbids discarding them (NBD `NO_HOLE`).
    WriteZeroes {
        /// Whether the sectors stay allocated.
        keep_allocated: bool,
    },
    /// The data is no longer needed; sectors that are discarded read as zeros.
    Discard {
        /// Whether old data must not be recoverable (secure erase).
        secure: bool,
    },
    /// Make durable what was complete when this request came. It has no sectors.
    Flush,
}

/// A request to a block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRequest {
    /// A number of the sender's choice, which comes back with the completion.
    pub tag: u64,
    /// The work.
    pub action: Action,
    /// First sector.
    pub sector: u64,
    /// Length in sectors; 0 only for a flush.
    pub sectors: u32,
    /// Flags; FUA is [`Modifiers::RELIABLE`], and on [`Action::WriteZeroes`] and [`Action::Discard`] it is honoured, too.
    pub modifiers: Modifiers,
}

impl BlockRequest {
    /// The sector after the last one; saturates.
    pub fn end(&self) -> u64 {
        self.sector.saturating_add(u64::from(self.sectors))
    }
}

/// The reason for a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The request reaches beyond the device or has a senseless length (EINVAL).
    Invalid,
    /// No room for its data: the device is full, or the disk below its image (ENOSPC).
    NoSpace,
    /// The device is worn out, stopped or without power (EIO).
    Io,
    /// The device takes no writes (EROFS).
    ReadOnly,
}

/// A request is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The tag of the request.
    pub tag: u64,
    /// The data of a read, nothing for other requests; or the reason of a failure.
    pub outcome: Result<Vec<u8>, Failure>,
}

/// Takes completions. It is called from whatever thread moves the device on and must not block.
pub trait Completions: Send + Sync {
    /// Requests are complete; the list is drained.
    fn complete(&self, completed: &mut Vec<Completion>);
}

/// A run of sectors that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length in sectors.
    pub sectors: u64,
    /// Whether it holds data; false if it reads as zeros and takes no room.
    pub allocated: bool,
}

/// Size and abilities of a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Size in sectors.
    pub sectors: u64,
    /// Preferred length and alignment of requests in sectors: the smallest page.
    pub preferred_sectors: u32,
    /// Longest request in sectors.
    pub max_sectors: u32,
    /// Alignment and least length of what a discard takes effect on, in sectors.
    pub discard_sectors: u32,
    /// Whether completed writes may be volatile, so that flushes mean something.
    pub write_cache: bool,
}

/// A block device. Any number of exports and connections may use it at once.
pub trait BlockDevice: Send + Sync {
    /// Size and abilities, which never change.
    fn limits(&self) -> Limits;

    /// The state of the flash now; nothing is known of a device that has none.
    fn health(&self) -> Health {
        Health::default()
    }

    /// Takes requests, in their order, out of the list. Each is completed once: before this returns, or later from another thread.
    /// Requests that overlap take effect in the order in which they came; others are complete in any order.
    fn submit(&self, requests: &mut Vec<BlockRequest>, completions: &Arc<dyn Completions>);

    /// The allocation of the sectors from `sector` on, at most `sectors` of them; adds at most `most` extents.
    fn extents(&self, sector: u64, sectors: u64, most: usize, found: &mut Vec<Extent>);
}
