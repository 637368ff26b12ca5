//! A block device in memory that needs no time. It measures the overhead of an export, and is the reference model in tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::SECTOR;
use crate::device::{
    AllocationExtent, BlockAction, BlockDevice, BlockDeviceLimits, CompletionReceiver, RequestFailure,
    ServedCompletion, ServedRequest,
};
/// Sectors of a chunk, the unit of allocation.
const CHUNK_SECTORS: u64 = 128;
const CHUNK: usize = CHUNK_SECTORS as usize * SECTOR;

/// A sparse block device in memory, which completes requests at once.
pub struct MemoryDevice {
    limits: BlockDeviceLimits,
    /// Data by chunk; a missing chunk holds zeros.
    chunks: Mutex<BTreeMap<u64, Box<[u8]>>>,
}

/// Splits a range of sectors at chunks: the number of the chunk, the first byte in it, and the number of bytes.
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
    /// An empty device of `sectors` sectors. It reports a volatile cache, though it has none, so that clients send flushes.
    pub fn new(sectors: u64) -> Self {
        let limits = BlockDeviceLimits {
            sectors,
            preferred_sectors: 8,
            max_sectors: 1 << 16,
            discard_sectors: 1,
            write_cache: true,
        };
        Self { limits, chunks: Mutex::default() }
    }

    fn chunks(&self) -> MutexGuard<'_, BTreeMap<u64, Box<[u8]>>> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn perform(
    chunks: &mut BTreeMap<u64, Box<[u8]>>,
    limits: &BlockDeviceLimits,
    request: ServedRequest,
) -> ServedCompletion {
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

    fn extents(&self, sector: u64, sectors: u64, most: usize, found: &mut Vec<AllocationExtent>) {
        let end = sector.saturating_add(sectors).min(self.limits.sectors);
        let chunks = self.chunks();
        let start = found.len();
        for (chunk, _, count) in parts(sector, end) {
            let (sectors, allocated) = ((count / SECTOR) as u64, chunks.contains_key(&chunk));
            if let Some(last) = found[start..].last_mut().filter(|last| last.allocated == allocated) {
                last.sectors += sectors;
            } else if found.len() - start < most {
                found.push(AllocationExtent { sectors, allocated });
            } else {
                return;
            }
        }
    }
}
