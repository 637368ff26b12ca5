//! Lists of the blocks of a pool.

/// Neighbours in a list.
#[derive(Clone, Copy, Debug, Default)]
struct BlockLink {
    prev: u32,
    next: u32,
}

/// Doubly linked lists of blocks, numbered from 0; a block is in at most one of them. Each list is a ring with a sentinel
/// entry, so that neighbours always exist and adding or removing a block needs no special case.
#[derive(Clone, Debug)]
pub(super) struct BlockLists {
    /// One for each block, then one for each list. Entries of blocks that are in no list are undefined.
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

    /// Number of lists.
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

    /// The first block of a list.
    #[inline]
    pub fn first(&self, list: u32) -> Option<u32> {
        self.after(self.blocks + list)
    }

    /// The block after `block` in its list.
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
