//! Records which blocks recoveries read. Recoveries that read the same data have the same outcome, whatever the other blocks hold.

use std::cell::RefCell;

use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use emmclab_base::SECTOR_BYTES;
use emmclab_ext4::DiskReader;

use crate::disk_contents::BLOCK;
use crate::host_view::HostView;

const BLOCK_BYTES: usize = (BLOCK * SECTOR_BYTES) as usize;

/// The recoveries that read the same blocks: their outcomes, by a digest of the contents of these blocks.
struct ReadSet {
    blocks: Box<[u64]>,
    outcomes: FxHashMap<u128, usize>,
}

/// The blocks that recoveries of earlier states read, and the outcomes. A state with the same contents in all blocks that one of
/// these recoveries read has the same outcome, and need not be recovered.
#[derive(Default)]
pub struct RecoveryReadCache {
    /// By what is read from the recovered disk: the sets of blocks, the one that matched last first.
    sets: FxHashMap<String, Vec<ReadSet>>,
}

impl RecoveryReadCache {
    /// Returns the outcome of an earlier recovery that would read the same data from this state; `None` if there is none. `asked`
    /// describes what is read from the recovered disk, on which the outcome depends, too.
    pub fn outcome(&mut self, asked: &str, state: &HostView) -> Option<usize> {
        let sets = self.sets.get_mut(asked)?;
        let digests = BlockDigests::of(state);
        let found = sets
            .iter()
            .enumerate()
            .find_map(|(place, set)| set.outcomes.get(&digests.over(&set.blocks)?).map(|outcome| (place, *outcome)));
        let (place, outcome) = found?;
        sets[..=place].rotate_right(1);
        Some(outcome)
    }

    /// Notes that the recovery of a state read these blocks of eight sectors, and its outcome.
    pub fn learn(&mut self, asked: &str, state: &HostView, mut blocks: Vec<u64>, outcome: usize) {
        blocks.sort_unstable();
        blocks.dedup();
        let Some(digest) = BlockDigests::of(state).over(&blocks) else { return };
        let sets = self.sets.entry(asked.to_owned()).or_default();
        if let Some(set) = sets.iter_mut().find(|set| *set.blocks == *blocks) {
            set.outcomes.insert(digest, outcome);
        } else {
            let outcomes = [(digest, outcome)].into_iter().collect();
            sets.insert(0, ReadSet { blocks: blocks.into(), outcomes });
        }
    }
}

/// The digests of the blocks of a state; each is computed once.
struct BlockDigests<'a> {
    state: &'a HostView,
    computed: RefCell<FxHashMap<u64, Option<u64>>>,
}

impl<'a> BlockDigests<'a> {
    fn of(state: &'a HostView) -> Self {
        Self { state, computed: RefCell::default() }
    }

    /// Returns a digest of the contents of blocks; `None` if one of them cannot be read.
    fn over(&self, blocks: &[u64]) -> Option<u128> {
        let mut bytes = Vec::with_capacity(size_of_val(blocks));
        for block in blocks {
            bytes.extend_from_slice(&self.block(*block)?.to_le_bytes());
        }
        Some(xxh3_128(&bytes))
    }

    fn block(&self, block: u64) -> Option<u64> {
        *self.computed.borrow_mut().entry(block).or_insert_with(|| self.read(block))
    }

    fn read(&self, block: u64) -> Option<u64> {
        let sectors = self.state.sectors().checked_sub(block.checked_mul(BLOCK)?)?.min(BLOCK);
        let (offset, length) = (block * BLOCK_BYTES as u64, (sectors * SECTOR_BYTES) as usize);
        self.state.content(offset, length).or_else(|| {
            let mut buffer = [0; BLOCK_BYTES];
            let buffer = &mut buffer[..length];
            self.state.read(block * BLOCK, buffer).ok()?;
            Some(xxh3_64(buffer))
        })
    }
}
