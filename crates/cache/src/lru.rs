//! LRU for all sizes in one pass, by stack distances (Mattson et al., "Evaluation techniques for storage hierarchies", IBM Systems
//! Journal, 1970): a cache of `n` pages hits a touch if fewer than `n` other pages were touched since the last touch of the page.
//!
//! Each page has the position of its last touch; a binary indexed tree counts the pages with a later position.

use crate::hash::{Key, KeyMap};

/// Initial number of positions.
const FEWEST: usize = 1_024;

/// Computes stack distances below a bound; pages further down the stack are forgotten.
#[derive(Clone, Debug)]
pub(crate) struct Stack {
    /// Number of pages that are kept at least.
    depth: usize,
    positions: KeyMap<u32>,
    /// The page of each position; outdated if the page has a later position.
    pages: Vec<Key>,
    /// Binary indexed tree over the positions that are in use, from 1.
    tree: Vec<u32>,
}

impl Stack {
    /// A stack for distances from 0 to `depth - 1`.
    pub fn new(depth: usize) -> Self {
        Self { depth, positions: KeyMap::default(), pages: Vec::new(), tree: vec![0; FEWEST + 1] }
    }

    /// Touches a page. Returns how many other pages were touched since its last touch; `None` for its first touch, and for a
    /// distance beyond the bound.
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

    /// Counts the pages whose position is not after this one.
    fn up_to(&self, position: usize) -> usize {
        let (mut index, mut sum) = (position + 1, 0);
        while index > 0 {
            sum += self.tree[index] as usize;
            index &= index - 1;
        }
        sum
    }

    /// Adds a number to the count of a position, modulo 2^32.
    fn change(&mut self, position: usize, by: u32) {
        let mut index = position + 1;
        while index < self.tree.len() {
            self.tree[index] = self.tree[index].wrapping_add(by);
            index += index & index.wrapping_neg();
        }
    }

    /// Moves the latest pages to the first positions, in order, and makes room for the same number of further touches.
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
        // Initialises the tree: the first `used` positions are in use, and each node counts those that it covers.
        for index in 1..self.tree.len() {
            let covered_from = index & (index - 1);
            self.tree[index] = (index.min(used) - covered_from.min(used)) as u32;
        }
        self.pages = pages;
    }
}
