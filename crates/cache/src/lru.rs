//! LRU at every size at once, by stack distances (Mattson et al., "Evaluation techniques for storage hierarchies", IBM
//! Systems Journal, 1970): a cache of `n` pages hits a touch if fewer than `n` others were touched since the last one.
//!
//! Pages are kept by position in order of touch; a binary indexed tree counts them after a position.

use crate::hash::{Key, KeyMap};

/// Positions at first.
const FEWEST: usize = 1_024;

/// Stack distances below a bound; pages further down the stack are forgotten.
#[derive(Clone, Debug)]
pub(crate) struct Stack {
    /// Pages that are kept at least.
    depth: usize,
    positions: KeyMap<u32>,
    /// The page of each position; stale where the page has a later position.
    pages: Vec<Key>,
    /// Binary indexed tree over the positions that are in use, from 1.
    tree: Vec<u32>,
}

impl Stack {
    /// Distances from 0 to `depth - 1`.
    pub fn new(depth: usize) -> Self {
        Self { depth, positions: KeyMap::default(), pages: Vec::new(), tree: vec![0; FEWEST + 1] }
    }

    /// Touches a page: how many others were touched since its last touch; `None` at the first, and beyond the bound.
    pub fn touch(&mut self, page: Key) -> Option<usize> {
        if self.pages.len() + 1 == self.tree.len() {
            self.renumber();
        }
        let at = self.pages.len();
        self.pages.push(page);
        let before = self.positions.insert(page, at as u32);
        let distance = before.map(|before| {
            let before = before as usize;
            let distance = self.positions.len() - self.up_to(before);
            self.change(before, u32::MAX);
            distance
        });
        self.change(at, 1);
        distance.filter(|distance| *distance < self.depth)
    }

    /// Pages in use at positions up to this one.
    fn up_to(&self, position: usize) -> usize {
        let (mut index, mut sum) = (position + 1, 0);
        while index > 0 {
            sum += self.tree[index] as usize;
            index &= index - 1;
        }
        sum
    }

    /// Adds to the count of a position, modulo 2^32.
    fn change(&mut self, position: usize, by: u32) {
        let mut index = position + 1;
        while index < self.tree.len() {
            self.tree[index] = self.tree[index].wrapping_add(by);
            index += index & index.wrapping_neg();
        }
    }

    /// Moves the latest pages to the first positions, in order, and makes room for as many touches again.
    fn renumber(&mut self) {
        let positions = &self.positions;
        let latest = |(at, page): &(usize, Key)| positions.get(page) == Some(&(*at as u32));
        let mut pages: Vec<Key> =
            self.pages.iter().copied().enumerate().filter(latest).map(|(_, page)| page).collect();
        pages.drain(..pages.len().saturating_sub(self.depth)).for_each(drop);
        self.positions.clear();
        self.positions.extend(pages.iter().zip(0..).map(|(page, at)| (*page, at)));
        let used = pages.len();
        self.tree = vec![0; (2 * used).max(FEWEST) + 1];
        // Position i is in use up to `used`: a node counts the positions that it covers.
        for index in 1..self.tree.len() {
            let covered_from = index & (index - 1);
            self.tree[index] = (index.min(used) - covered_from.min(used)) as u32;
        }
        self.pages = pages;
    }
}
