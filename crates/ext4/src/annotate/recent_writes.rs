//! Recent writes, which are kept while the locations of the file system and its journal are not known.

use std::collections::VecDeque;
use std::io;

use rustc_hash::FxHashMap;

use crate::disk::DiskReader;

const CHUNK: usize = 4096;
/// Maximum number of chunks in memory: 16 MiB. A chunk of zeros is stored only if it replaces another chunk.
const MOST: usize = 4096;

/// The last 16 MiB of written data that is not zeros. All other bytes read as zeros. The first chunk of the disk is never dropped.
#[derive(Default)]
pub(super) struct RecentWrites {
    chunks: FxHashMap<u64, Box<[u8]>>,
    order: VecDeque<u64>,
    /// Number of chunks written since the last search for the journal in the stored chunks.
    fresh: usize,
    /// Number of consecutive searches that did not find the journal.
    failures: usize,
}

impl RecentWrites {
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) {
        // A disk has no bytes at offset 2^64 - 1 and beyond.
        let room = usize::try_from(u64::MAX - offset).unwrap_or(usize::MAX);
        let (mut at, mut rest) = (offset, &data[..data.len().min(room)]);
        while !rest.is_empty() {
            let (chunk, within) = (at / CHUNK as u64, (at % CHUNK as u64) as usize);
            let (part, after) = rest.split_at((CHUNK - within).min(rest.len()));
            if let Some(known) = self.chunks.get_mut(&chunk) {
                known[within..within + part.len()].copy_from_slice(part);
                self.fresh += 1;
            } else if part.iter().any(|byte| *byte != 0) {
                let mut bytes = self.make_room();
                bytes.fill(0);
                bytes[within..within + part.len()].copy_from_slice(part);
                self.chunks.insert(chunk, bytes);
                self.fresh += 1;
                if chunk != 0 {
                    self.order.push_back(chunk);
                }
            }
            at += part.len() as u64;
            rest = after;
        }
    }

    pub fn discard(&mut self, start: u64, end: u64) {
        let gone = |chunk: &u64| *chunk >= start / CHUNK as u64 && *chunk < end.div_ceil(CHUNK as u64);
        let inside = |chunk: &u64| start <= chunk * CHUNK as u64 && (chunk + 1) * CHUNK as u64 <= end;
        for (chunk, bytes) in self.chunks.iter_mut().filter(|(chunk, _)| gone(chunk) && !inside(chunk)) {
            let from = start.saturating_sub(chunk * CHUNK as u64).min(CHUNK as u64) as usize;
            let to = (end - chunk * CHUNK as u64).min(CHUNK as u64) as usize;
            bytes[from..to].fill(0);
        }
        self.chunks.retain(|chunk, _| !inside(chunk));
        self.order.retain(|chunk| !inside(chunk));
    }

    /// Whether the chunks should be searched for the journal again. After each unsuccessful search, the next search requires more new
    /// chunks.
    pub fn is_due(&mut self) -> bool {
        let due = self.fresh > self.failures;
        if due {
            self.fresh = 0;
            self.failures += 1;
        }
        due
    }

    /// Returns the chunks in order of their location on the disk, each with its offset in bytes.
    pub fn chunks(&self) -> Vec<(u64, &[u8])> {
        let mut all: Vec<(u64, &[u8])> = self.chunks.iter().map(|(chunk, bytes)| (chunk * CHUNK as u64, &**bytes)).collect();
        all.sort_unstable_by_key(|(offset, _)| *offset);
        all
    }

    fn make_room(&mut self) -> Box<[u8]> {
        if self.order.len() >= MOST
            && let Some(bytes) = self.order.pop_front().and_then(|oldest| self.chunks.remove(&oldest))
        {
            return bytes;
        }
        vec![0; CHUNK].into_boxed_slice()
    }
}

impl DiskReader for RecentWrites {
    /// Returns the maximum, because the size of the disk is unknown.
    fn size(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let (chunk, within) = (at / CHUNK as u64, (at % CHUNK as u64) as usize);
            let length = (CHUNK - within).min(rest.len());
            let (part, after) = rest.split_at_mut(length);
            match self.chunks.get(&chunk) {
                Some(bytes) => part.copy_from_slice(&bytes[within..within + length]),
                None => part.fill(0),
            }
            at = at.checked_add(length as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
            rest = after;
        }
        Ok(())
    }
}
