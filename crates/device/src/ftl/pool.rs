//! A block pool: the blocks of one block group in one plane. It contains the lists of free, open and full blocks, and the order in which
//! full blocks are collected.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::events::OperationCause;
use crate::geometry::GroupGeometry;
use crate::ids::BlockId;
use crate::nand::{BlockState, Nand};

/// Write streams: data of different kinds, each written to its own open block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteStream {
    /// Data of the host.
    Host = 0,
    /// Data that collection moves.
    Gc = 1,
    /// Data of the host that is expected to change soon (hot data).
    Hot = 2,
    /// Pages of the mapping table. An SLC cache has no such pages, so there this stream contains pinned data.
    Map = 3,
}

impl WriteStream {
    /// Pinned data of an SLC cache.
    pub const PINNED: Self = WriteStream::Map;
}

/// Number of write streams.
pub(crate) const STREAMS: usize = 4;

/// The order in which full blocks are kept for the victim policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullBlockOrder {
    /// By the time at which they became full.
    Age,
    /// By their number of valid units.
    Valid,
}

impl FullBlockOrder {
    /// Number of lists in which the full blocks of a block group are kept.
    fn lists(self, group: &GroupGeometry) -> u32 {
        match self {
            FullBlockOrder::Age => 1,
            FullBlockOrder::Valid => group.units_per_block() + 1,
        }
    }
}

/// Erased blocks that were used before, in the order of their next use.
#[derive(Clone, Debug)]
enum RecycledBlocks {
    /// First in, first out.
    Queue(VecDeque<u32>),
    /// Least worn first, then lowest number.
    Heap(BinaryHeap<Reverse<(u32, u32)>>),
}

/// Progress of the garbage collection of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VictimProgress {
    pub block: BlockId,
    /// Next map unit of the block to examine, counted from the start of the block.
    pub cursor: u32,
    /// Index of the page of the block that is in the page register; `u32::MAX` before the first read.
    pub in_register: u32,
    /// Number of valid map units in the block when it was chosen.
    pub valid: u32,
    /// The cause of the moves.
    pub cause: OperationCause,
}

/// The blocks of one block group in one plane. States of a block: never used or recycled, open ([`BlockPool::take`]), full (in a list),
/// victim (in no list), and then recycled ([`BlockPool::give_back`]) or bad ([`BlockPool::retire`]).
#[derive(Clone, Debug)]
pub(crate) struct BlockPool {
    first_block: u32,
    /// Number of blocks of the pool, including spares.
    pub blocks: u32,
    /// Number of blocks that were used at least once.
    pub used: u32,
    /// Number of blocks that may be used; the rest are spares.
    pub usable: u32,
    recycled: RecycledBlocks,
    /// Number of free blocks, including those that were never used.
    free: u32,
    /// Open block of each write stream, or [`BlockId::NONE`].
    pub open: [BlockId; STREAMS],
    /// Number of valid units in the pool.
    pub valid: u32,
    /// Number of valid units in this pool above which new data goes to another pool if possible.
    pub valid_limit: u32,
    /// Number of full blocks in the lists.
    pub full: u32,
    pub victim: Option<VictimProgress>,
    /// Erase count of the most worn block.
    pub most_erases: u32,
    /// Number of block erases until the next check for wear levelling.
    pub wear_countdown: u32,
    pub order: FullBlockOrder,
    /// The full blocks: one list by age, the oldest first, or one for each count of valid units, the newest first.
    lists: BlockLists,
    /// A lower bound for the first list that is not empty: all lists before this one are empty.
    least: u32,
}

impl BlockPool {
    pub fn new(plane: u32, blocks_per_plane: u32, group: &GroupGeometry, order: FullBlockOrder, by_wear: bool) -> Self {
        Self {
            first_block: plane * blocks_per_plane + group.first_block,
            blocks: group.blocks,
            used: 0,
            usable: group.blocks - group.spare_blocks,
            recycled: if by_wear { RecycledBlocks::Heap(BinaryHeap::new()) } else { RecycledBlocks::Queue(VecDeque::new()) },
            open: [BlockId::NONE; STREAMS],
            valid: 0,
            valid_limit: u32::MAX,
            full: 0,
            victim: None,
            free: group.blocks - group.spare_blocks,
            most_erases: 0,
            wear_countdown: group.blocks / 4 + 1,
            order,
            lists: BlockLists::new(group.blocks, order.lists(group)),
            least: 0,
        }
    }

    /// Number of blocks that are not free.
    pub fn in_use(&self) -> u32 {
        self.blocks - self.free()
    }

    /// Number of free blocks, including those that were never used.
    #[inline]
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Takes a free block.
    pub fn take(&mut self) -> Option<BlockId> {
        self.free = self.free.checked_sub(1)?;
        if self.used < self.usable {
            self.used += 1;
            return Some(BlockId(self.first_block + self.used - 1));
        }
        match &mut self.recycled {
            RecycledBlocks::Queue(queue) => queue.pop_front(),
            RecycledBlocks::Heap(heap) => heap.pop().map(|Reverse((_, block))| block),
        }
        .map(BlockId)
    }

    /// Returns an erased block to the free blocks of the pool.
    pub fn give_back(&mut self, BlockId(block): BlockId, erases: u32) {
        self.most_erases = self.most_erases.max(erases);
        self.free += 1;
        match &mut self.recycled {
            RecycledBlocks::Queue(queue) => queue.push_back(block),
            RecycledBlocks::Heap(heap) => heap.push(Reverse((erases, block))),
        }
    }

    /// Retires a worn block. Returns false if no spare block is left to replace it.
    pub fn retire(&mut self, erases: u32) -> bool {
        self.most_erases = self.most_erases.max(erases);
        let spare = self.usable < self.blocks;
        self.usable += u32::from(spare);
        self.free += u32::from(spare);
        spare
    }

    #[inline(always)]
    pub fn open(&self, stream: WriteStream) -> Option<BlockId> {
        let open = self.open[stream as usize];
        (open != BlockId::NONE).then_some(open)
    }

    /// Takes a free block as the open block of a write stream.
    pub fn take_for(&mut self, stream: WriteStream) -> Option<BlockId> {
        let block = self.take()?;
        self.open[stream as usize] = block;
        Some(block)
    }

    /// Passes the open block of a write stream to another stream, which must have none. Returns the block.
    pub fn hand_over(&mut self, from: WriteStream, to: WriteStream) -> Option<BlockId> {
        let block = self.open(from)?;
        self.close(from);
        self.open[to as usize] = block;
        Some(block)
    }

    /// Removes the open block of a write stream, because it is full.
    #[inline]
    pub fn close(&mut self, stream: WriteStream) {
        self.open[stream as usize] = BlockId::NONE;
    }

    /// Adds a block that has just become full; `valid` is its number of valid units.
    #[inline]
    pub fn insert(&mut self, BlockId(block): BlockId, valid: u32) {
        self.full += 1;
        let block = block - self.first_block;
        match self.order {
            FullBlockOrder::Age => self.lists.push_back(0, block),
            FullBlockOrder::Valid => {
                self.lists.push_front(valid, block);
                self.least = self.least.min(valid);
            }
        }
    }

    /// Removes a full block from the lists.
    pub fn remove(&mut self, BlockId(block): BlockId) {
        self.full -= 1;
        self.lists.remove(block - self.first_block);
    }

    /// Updates the lists after a unit of a full block became invalid. `valid` is the number of valid units that the block now has.
    #[inline(always)]
    pub fn lost_unit(&mut self, BlockId(block): BlockId, valid: u32) {
        if self.order == FullBlockOrder::Valid {
            self.lists.move_to_front(valid, block - self.first_block);
            self.least = self.least.min(valid);
        }
    }

    /// Updates the lists after a unit of a full block became valid again. `valid` is the number of valid units that the block now has.
    pub fn gained_unit(&mut self, BlockId(block): BlockId, valid: u32) {
        if self.order == FullBlockOrder::Valid {
            self.lists.move_to_front(valid, block - self.first_block);
        }
    }

    /// Returns the number of the lowest list that contains a block, and the first block of this list.
    fn least_listed(&self) -> Option<(u32, u32)> {
        (self.least..self.lists.count()).find_map(|list| Some((list, self.lists.first(list)?)))
    }

    /// A full block with the fewest valid units; requires [`FullBlockOrder::Valid`].
    pub fn least_valid(&self) -> Option<BlockId> {
        let (_, block) = (self.order == FullBlockOrder::Valid).then(|| self.least_listed())??;
        Some(BlockId(self.first_block + block))
    }

    /// Raises `least`, the lower bound for the index of a list with blocks, to the first list that is not empty. Called once for each
    /// collection.
    pub fn settle(&mut self) {
        if self.order == FullBlockOrder::Valid {
            self.least = self.least_listed().map_or(self.lists.count() - 1, |(list, _)| list);
        }
    }

    /// The block that has been full for the longest time; requires [`FullBlockOrder::Age`].
    pub fn oldest(&self) -> Option<BlockId> {
        (self.order == FullBlockOrder::Age).then(|| self.lists.first(0))?.map(|block| BlockId(self.first_block + block))
    }

    /// The block that became full after `block`; requires [`FullBlockOrder::Age`].
    pub fn younger(&self, BlockId(block): BlockId) -> Option<BlockId> {
        let next = (self.order == FullBlockOrder::Age).then(|| self.lists.after(block - self.first_block))?;
        next.map(|block| BlockId(self.first_block + block))
    }

    /// The full blocks, in an order such that inserting them into empty lists recreates the current lists.
    pub fn listed(&self) -> Vec<BlockId> {
        let mut out = Vec::with_capacity(self.full as usize);
        for list in 0..self.lists.count() {
            let from = out.len();
            let held = std::iter::successors(self.lists.first(list), |block| self.lists.after(*block));
            out.extend(held.map(|block| BlockId(self.first_block + block)));
            if self.order == FullBlockOrder::Valid {
                // Lists sorted by valid units begin with the newest block, so the result is reversed.
                out[from..].reverse();
            }
        }
        out
    }

    /// Changes the order of full blocks: inserts `blocks`, which are pairs of a block and its number of valid units, in the given sequence.
    pub fn relist(&mut self, order: FullBlockOrder, group: &GroupGeometry, blocks: &[(BlockId, u32)]) {
        (self.order, self.lists) = (order, BlockLists::new(self.blocks, order.lists(group)));
        (self.full, self.least) = (0, 0);
        for (block, valid) in blocks {
            self.insert(*block, *valid);
        }
    }

    /// Whether there is a list for blocks with this number of valid units.
    pub fn can_list(&self, valid: u32) -> bool {
        self.order == FullBlockOrder::Age || valid < self.lists.count()
    }

    /// All full blocks, in order of their numbers.
    pub fn full_blocks<'a>(&self, nand: &'a Nand) -> impl Iterator<Item = BlockId> + use<'a> {
        (self.first_block..self.first_block + self.used).map(BlockId).filter(|block| nand.state(*block) == BlockState::Full)
    }

    /// All blocks of the pool, including spares.
    pub fn all_blocks(&self) -> impl Iterator<Item = BlockId> + use<> {
        (self.first_block..self.first_block + self.blocks).map(BlockId)
    }

    /// The block at a position of the pool.
    pub fn block_at(&self, index: u32) -> BlockId {
        BlockId(self.first_block + index)
    }

    pub fn was_used(&self, block: BlockId) -> bool {
        block.0 - self.first_block < self.used
    }

    /// Free blocks that were used before, in the order of their next use. The order is arbitrary if free blocks are chosen by wear.
    pub fn recycled(&self) -> Vec<BlockId> {
        match &self.recycled {
            RecycledBlocks::Queue(queue) => queue.iter().copied().map(BlockId).collect(),
            RecycledBlocks::Heap(heap) => heap.iter().map(|Reverse((_, block))| BlockId(*block)).collect(),
        }
    }

    /// Updates the order of the free blocks after a change of the erase counts.
    pub fn note_wear(&mut self, nand: &Nand) {
        let erases = |block: u32| nand.block(BlockId(block)).erases;
        if let RecycledBlocks::Heap(heap) = &mut self.recycled {
            *heap = heap.drain().map(|Reverse((_, block))| Reverse((erases(block), block))).collect();
        }
        self.most_erases = self.all_blocks().map(|BlockId(block)| erases(block)).max().unwrap_or(0);
    }

    /// Restores the counts and open blocks of an empty pool from a device image. The caller must then give back the free blocks that were
    /// used before ([`Self::recycled`]).
    pub fn restore(&mut self, used: u32, usable: u32, open: [BlockId; STREAMS]) {
        (self.used, self.usable, self.free, self.open) = (used, usable, usable - used, open);
    }
}

/// The neighbours of a block in its list.
#[derive(Clone, Copy, Debug, Default)]
struct BlockLink {
    prev: u32,
    next: u32,
}

/// Doubly linked lists of blocks, numbered from 0; a block is in at most one of them. Each list is a ring with a sentinel entry, so that
/// adding or removing a block needs no special case.
#[derive(Clone, Debug)]
pub(super) struct BlockLists {
    /// An entry for each block, then one for each list. Entries of blocks that are in no list are undefined.
    links: Vec<BlockLink>,
    blocks: u32,
}

impl BlockLists {
    pub fn new(blocks: u32, lists: u32) -> Self {
        let mut links = vec![BlockLink::default(); (blocks + lists) as usize];
        for ring in blocks..blocks + lists {
            links[ring as usize] = BlockLink { prev: ring, next: ring };
        }
        Self { links, blocks }
    }

    pub fn count(&self) -> u32 {
        self.links.len() as u32 - self.blocks
    }

    /// Adds a block that is in no list at the front of a list.
    #[inline]
    pub fn push_front(&mut self, list: u32, block: u32) {
        let ring = self.blocks + list;
        let first = self.links[ring as usize].next;
        link(&mut self.links, ring, block, first);
    }

    /// Moves a block to the front of another list.
    #[inline]
    pub fn move_to_front(&mut self, list: u32, block: u32) {
        let ring = self.blocks + list;
        let links = self.links.as_mut_slice();
        unlink(links, block);
        let first = links[ring as usize].next;
        link(links, ring, block, first);
    }

    /// Adds a block that is in no list at the end of a list.
    #[inline]
    pub fn push_back(&mut self, list: u32, block: u32) {
        let ring = self.blocks + list;
        let last = self.links[ring as usize].prev;
        link(&mut self.links, last, block, ring);
    }

    /// Removes a block from its list.
    #[inline]
    pub fn remove(&mut self, block: u32) {
        unlink(&mut self.links, block);
    }

    #[inline]
    pub fn first(&self, list: u32) -> Option<u32> {
        self.after(self.blocks + list)
    }

    #[inline]
    pub fn after(&self, block: u32) -> Option<u32> {
        let next = self.links[block as usize].next;
        (next < self.blocks).then_some(next)
    }
}

#[inline]
fn link(links: &mut [BlockLink], prev: u32, block: u32, next: u32) {
    links[block as usize] = BlockLink { prev, next };
    links[prev as usize].next = block;
    links[next as usize].prev = block;
}

#[inline]
fn unlink(links: &mut [BlockLink], block: u32) {
    let BlockLink { prev, next } = links[block as usize];
    links[prev as usize].next = next;
    links[next as usize].prev = prev;
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_hold_what_queues_hold(steps in prop::collection::vec((0..8u32, 0..3u32, any::<bool>()), 0..200)) {
            let mut lists = BlockLists::new(8, 3);
            let mut model: [VecDeque<u32>; 3] = Default::default();
            for (block, list, front) in steps {
                if let Some(there) = model.iter_mut().find(|queue| queue.contains(&block)) {
                    there.retain(|other| *other != block);
                    lists.remove(block);
                } else if front {
                    model[list as usize].push_front(block);
                    lists.push_front(list, block);
                } else {
                    model[list as usize].push_back(block);
                    lists.push_back(list, block);
                }
                for (list, queue) in (0..).zip(&model) {
                    let held = std::iter::successors(lists.first(list), |block| lists.after(*block));
                    prop_assert!(held.eq(queue.iter().copied()));
                }
            }
        }
    }
}
