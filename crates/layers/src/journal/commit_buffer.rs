//! Blocks of the journal that wait in memory for the commit of their transaction.

use std::collections::BTreeMap;

use emmclab_base::{BlockNote, SectorSet};

use crate::plan::PlanMemory;

/// A block of the journal in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct BufferedBlock {
    /// The memory with its bytes, and its first sector there.
    pub memory: PlanMemory,
    pub slot: u32,
    /// Length in sectors.
    pub sectors: u32,
    /// Its transaction, if known.
    pub transaction: Option<u32>,
    /// First sector of its home.
    pub home: Option<u64>,
    /// The sectors of it that changed, if known.
    pub changed: Option<SectorSet>,
    /// Whether `changed` is relative to the copy of the same home in the log.
    pub follows_copy: bool,
}

/// The blocks in memory, by their first sector in the journal.
#[derive(Debug, Default)]
pub(super) struct CommitBuffer {
    blocks: BTreeMap<u64, BufferedBlock>,
    /// Free memory slots, by length in sectors; and slots that become free when a request is complete (request, sectors, slot).
    free: BTreeMap<u32, Vec<u32>>,
    freed_on_completion: Vec<(u64, u32, u32)>,
    /// Sectors of memory allocated so far, free slots included.
    sectors: u32,
}

impl CommitBuffer {
    /// Stores a block whose first sector is `block` and which is not stored yet; returns its first sector in memory.
    pub fn insert(&mut self, block: u64, note: &BlockNote, follows_copy: bool) -> u32 {
        let free = self.free.entry(note.sectors).or_default();
        let slot = free.pop().unwrap_or_else(|| {
            self.sectors += note.sectors;
            self.sectors - note.sectors
        });
        let &BlockNote { sectors, home, transaction, changed, .. } = note;
        let memory = PlanMemory::Held;
        self.blocks.insert(block, BufferedBlock { memory, slot, sectors, transaction, home, changed, follows_copy });
        slot
    }

    /// Removes and returns all blocks; their memory becomes free when request `id` is complete.
    pub fn take(&mut self, id: u64) -> BTreeMap<u64, BufferedBlock> {
        let blocks = std::mem::take(&mut self.blocks);
        self.freed_on_completion.extend(blocks.values().map(|held| (id, held.sectors, held.slot)));
        blocks
    }

    /// Called when request `id` is complete: frees the memory that was waiting for it.
    pub fn completed(&mut self, id: u64) {
        let Self { free, freed_on_completion: leaving, .. } = self;
        leaving.retain(|(request, sectors, slot)| {
            if *request == id {
                free.entry(*sectors).or_default().push(*slot);
            }
            *request != id
        });
    }

    /// Returns the blocks that overlap a range of sectors.
    pub fn overlapping(&self, sector: u64, end: u64) -> impl Iterator<Item = (u64, &BufferedBlock)> {
        // No block is longer than 128 sectors.
        let from = sector.saturating_sub(u64::from(u128::BITS) - 1);
        let blocks = self.blocks.range(from..end.max(from)).map(|(block, held)| (*block, held));
        blocks.filter(move |(block, held)| block + u64::from(held.sectors) > sector)
    }

    /// Drops the blocks that overlap a range, which was overwritten; their memory becomes free when request `id` is complete.
    pub fn drop_range(&mut self, id: u64, sector: u64, end: u64) {
        let gone: Vec<u64> = self.overlapping(sector, end).map(|(block, _)| block).collect();
        for block in gone {
            if let Some(held) = self.blocks.remove(&block) {
                self.freed_on_completion.push((id, held.sectors, held.slot));
            }
        }
    }
}
