//! The interface between a block device and its exports: requests are submitted, and completions are delivered in any order. Also contains
//! a block device in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use emmclab_base::{CommandFlags, DeviceHealth};
use rustix::io::Errno;

use crate::SECTOR;

/// The operation of a request. Sectors have 512 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockAction {
    /// Read the sectors.
    Read,
    /// Write this data, which is as long as the sectors.
    Write(Vec<u8>),
    /// Make the sectors read as zeros. `keep_allocated` forbids discarding the sectors (NBD `NO_HOLE`).
    WriteZeroes {
        /// Whether the sectors stay allocated.
        keep_allocated: bool,
    },
    /// Discard data that is no longer needed; discarded sectors read as zeros.
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
    /// The operation.
    pub action: BlockAction,
    /// First sector.
    pub sector: u64,
    /// Length in sectors; 0 only for a flush.
    pub sectors: u32,
    /// Flags. FUA ([`CommandFlags::RELIABLE`]) also applies to [`BlockAction::WriteZeroes`] and [`BlockAction::Discard`].
    pub modifiers: CommandFlags,
}

impl ServedRequest {
    /// The sector after the last one; `u64::MAX` if the sum overflows.
    pub fn end(&self) -> u64 {
        self.sector.saturating_add(u64::from(self.sectors))
    }
}

/// The cause of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFailure {
    /// The request extends beyond the device or has an invalid length (EINVAL).
    Invalid,
    /// No space for the data: the device is full, or the disk that contains its image (ENOSPC).
    NoSpace,
    /// The device is worn out, stopped or without power (EIO).
    Io,
    /// The device is read-only (EROFS).
    ReadOnly,
}

impl RequestFailure {
    pub(crate) fn errno(self) -> Errno {
        match self {
            Self::Invalid => Errno::INVAL,
            Self::NoSpace => Errno::NOSPC,
            Self::Io => Errno::IO,
            Self::ReadOnly => Errno::ROFS,
        }
    }
}

/// The completion of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedCompletion {
    /// The tag of the request.
    pub tag: u64,
    /// The data of a read, an empty vector for other requests, or the cause of the failure.
    pub outcome: Result<Vec<u8>, RequestFailure>,
}

/// Receives completions. It is called on the thread that advances the device, and must not block.
pub trait CompletionReceiver: Send + Sync {
    /// Called when requests are complete; drains the list.
    fn complete(&self, completed: &mut Vec<ServedCompletion>);
}

impl CompletionReceiver for Mutex<Vec<ServedCompletion>> {
    fn complete(&self, completed: &mut Vec<ServedCompletion>) {
        self.lock().unwrap_or_else(PoisonError::into_inner).append(completed);
    }
}

/// Consecutive sectors that are all allocated or all not allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationExtent {
    /// Length in sectors.
    pub sectors: u64,
    /// Whether the sectors contain data; false if they read as zeros and occupy no space.
    pub allocated: bool,
}

/// Size and capabilities of a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockDeviceLimits {
    /// Size in sectors.
    pub sectors: u64,
    /// Preferred length and alignment of requests in sectors: the smallest flash page.
    pub preferred_sectors: u32,
    /// Longest request in sectors.
    pub max_sectors: u32,
    /// Alignment and minimum length of a discard that has an effect, in sectors.
    pub discard_sectors: u32,
    /// Whether a completed write may be volatile until the next flush.
    pub write_cache: bool,
}

/// A block device. Several exports and connections may use it concurrently.
pub trait BlockDevice: Send + Sync {
    /// Size and capabilities, which never change.
    fn limits(&self) -> BlockDeviceLimits;

    /// The current health of the flash; by default unknown, for a device without flash.
    fn health(&self) -> DeviceHealth {
        DeviceHealth::default()
    }

    /// Removes all requests from the list and submits them in order. Each request is completed once: before this call returns, or later
    /// from another thread. Requests that overlap take effect in the order of submission; others complete in any order.
    fn submit(&self, requests: &mut Vec<ServedRequest>, completions: &Arc<dyn CompletionReceiver>);

    /// Appends the extents of `sectors` sectors from `sector` on to `extents`, but at most `most` extents.
    fn extents(&self, sector: u64, sectors: u64, most: usize, extents: &mut Vec<AllocationExtent>);
}

/// Sectors of a chunk, the unit of memory allocation.
const CHUNK_SECTORS: u64 = 128;
const CHUNK: usize = CHUNK_SECTORS as usize * SECTOR;

/// A sparse block device in memory, which completes requests immediately.
pub struct MemoryDevice {
    limits: BlockDeviceLimits,
    /// Data by number of the chunk; a missing chunk contains zeros.
    chunks: Mutex<BTreeMap<u64, Box<[u8]>>>,
}

/// Splits a range of sectors at chunk boundaries. Returns the number of the chunk, the offset in it, and the number of bytes.
fn parts(sector: u64, end: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut at = sector;
    std::iter::from_fn(move || {
        let chunk = at / CHUNK_SECTORS;
        let next = ((chunk + 1) * CHUNK_SECTORS).min(end);
        let part = (at < end).then(|| ((chunk), (at % CHUNK_SECTORS) as usize * SECTOR, (next - at) as usize * SECTOR));
        at = next;
        part
    })
}

impl MemoryDevice {
    /// Creates an empty device of `sectors` sectors. It reports a volatile cache although it has none, so that clients send flushes.
    pub fn new(sectors: u64) -> Self {
        let limits =
            BlockDeviceLimits { sectors, preferred_sectors: 8, max_sectors: 1 << 16, discard_sectors: 1, write_cache: true };
        Self { limits, chunks: Mutex::default() }
    }

    fn chunks(&self) -> MutexGuard<'_, BTreeMap<u64, Box<[u8]>>> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn perform(chunks: &mut BTreeMap<u64, Box<[u8]>>, limits: &BlockDeviceLimits, request: ServedRequest) -> ServedCompletion {
    let (tag, sector, end) = (request.tag, request.sector, request.end());
    if end > limits.sectors || request.sectors == 0 && request.action != BlockAction::Flush {
        return ServedCompletion { tag, outcome: Err(RequestFailure::Invalid) };
    }
    let bytes = request.sectors as usize * SECTOR;
    let outcome = match request.action {
        BlockAction::Read => {
            let mut data = Vec::with_capacity(bytes);
            for (chunk, at, count) in parts(sector, end) {
                match chunks.get(&chunk) {
                    Some(chunk) => data.extend_from_slice(&chunk[at..at + count]),
                    None => data.resize(data.len() + count, 0),
                }
            }
            Ok(data)
        }
        BlockAction::Write(data) if data.len() != bytes => Err(RequestFailure::Invalid),
        BlockAction::Write(data) => {
            let mut from = 0;
            for (chunk, at, count) in parts(sector, end) {
                let chunk = chunks.entry(chunk).or_insert_with(|| vec![0; CHUNK].into());
                chunk[at..at + count].copy_from_slice(&data[from..from + count]);
                from += count;
            }
            Ok(Vec::new())
        }
        BlockAction::WriteZeroes { .. } | BlockAction::Discard { .. } => {
            for (chunk, at, count) in parts(sector, end) {
                if count == CHUNK {
                    chunks.remove(&chunk);
                } else if let Some(chunk) = chunks.get_mut(&chunk) {
                    chunk[at..at + count].fill(0);
                }
            }
            Ok(Vec::new())
        }
        BlockAction::Flush => Ok(Vec::new()),
    };
    ServedCompletion { tag, outcome }
}

impl BlockDevice for MemoryDevice {
    fn limits(&self) -> BlockDeviceLimits {
        self.limits
    }

    fn submit(&self, requests: &mut Vec<ServedRequest>, completions: &Arc<dyn CompletionReceiver>) {
        let mut completed = {
            let mut chunks = self.chunks();
            requests.drain(..).map(|request| perform(&mut chunks, &self.limits, request)).collect()
        };
        completions.complete(&mut completed);
    }

    fn extents(&self, sector: u64, sectors: u64, most: usize, extents: &mut Vec<AllocationExtent>) {
        let end = sector.saturating_add(sectors).min(self.limits.sectors);
        let chunks = self.chunks();
        let start = extents.len();
        for (chunk, _, count) in parts(sector, end) {
            let (sectors, allocated) = ((count / SECTOR) as u64, chunks.contains_key(&chunk));
            if let Some(last) = extents[start..].last_mut().filter(|last| last.allocated == allocated) {
                last.sectors += sectors;
            } else if extents.len() - start < most {
                extents.push(AllocationExtent { sectors, allocated });
            } else {
                return;
            }
        }
    }
}
