//! LRU for all sizes in one pass, by stack distances (Mattson et al., "Evaluation techniques for storage hierarchies", IBM Systems
//! Journal, 1970): a cache of `n` pages hits a touch if fewer than `n` other pages were touched since the last touch of the page.
//!
//! Each page has the position of its last touch; a binary indexed tree counts the pages with a later position.

use crate::misses::MissEstimate;
use crate::page_hash::{Key, KeyMap, is_sampled};

/// Initial number of positions.
const FEWEST: usize = 1_024;
/// Number of pages that are kept when positions are renumbered; as many may be added until the next time. Above it, half of the
/// pages are dropped and no longer sampled (SHARDS with a fixed number of pages: Waldspurger et al., FAST 2015). A page takes up
/// to 100 bytes, so that 100 MB are needed at most.
pub(crate) const MOST: usize = 1 << 20;

/// The misses of LRU caches of several sizes.
#[derive(Clone, Debug)]
pub(crate) struct LruMissCurve {
    stack: LruStack,
    /// Sizes in pages, ascending.
    sizes: Vec<u64>,
    /// For each size, the touches whose distance fits into it but not into a smaller one; last, those that fit into none.
    smallest_fit: Vec<MissEstimate>,
    /// The sampling of the pages that are touched.
    shift: u32,
}

impl LruMissCurve {
    /// Caches of these sizes, for which at most `most` pages are kept, and of which only a sample of one page in `2^shift` is
    /// touched.
    pub fn new(sizes: &[u64], most: usize, shift: u32) -> Self {
        let stack = LruStack::new(sizes.last().map_or(1, |size| *size as usize), most);
        Self {
            stack,
            sizes: sizes.to_vec(),
            smallest_fit: vec![MissEstimate::default(); sizes.len() + 1],
            shift,
        }
    }

    #[inline]
    pub fn touch(&mut self, page: Key) {
        let shift = self.shift + self.stack.shift;
        if is_sampled(page, shift) {
            let distance = self.stack.touch(page).unwrap_or(usize::MAX) as u64;
            self.smallest_fit[self.sizes.partition_point(|size| *size <= distance)].count(page, shift);
        }
    }

    /// Misses by size: those that do not fit into it.
    pub fn misses(&self) -> Vec<MissEstimate> {
        let mut misses = self.smallest_fit[1..].to_vec();
        for size in (1..misses.len()).rev() {
            misses[size - 1] = misses[size - 1].plus(&misses[size]);
        }
        for size in &mut misses {
            size.shift = self.shift + self.stack.shift;
        }
        misses
    }
}

/// Computes stack distances below a bound; pages further down the stack are forgotten.
#[derive(Clone, Debug)]
struct LruStack {
    /// One page in `2^shift` is touched.
    shift: u32,
    /// Number of pages that are kept at least, if all are sampled.
    depth: usize,
    /// Number of pages that are kept at most.
    most_pages: usize,
    positions: KeyMap<u32>,
    /// The page of each position; outdated if the page has a later position.
    pages: Vec<Key>,
    /// Binary indexed tree over the positions that are in use, from 1.
    tree: Vec<u32>,
}

impl LruStack {
    /// A stack for distances from 0 to `depth - 1`.
    fn new(depth: usize, most: usize) -> Self {
        let positions = KeyMap::default();
        Self { shift: 0, depth, most_pages: most, positions, pages: Vec::new(), tree: vec![0; FEWEST + 1] }
    }

    /// Touches a page of the sample. Returns how many other pages were touched since its last touch, estimated if pages are
    /// sampled; `None` for its first touch, and for a distance beyond the bound.
    fn touch(&mut self, page: Key) -> Option<usize> {
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
            distance << self.shift
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
        loop {
            let depth = self.depth.div_ceil(1 << self.shift);
            pages.drain(..pages.len().saturating_sub(depth)).for_each(drop);
            if pages.len() <= self.most_pages {
                break;
            }
            self.shift += 1;
            pages.retain(|page| is_sampled(*page, self.shift));
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_hash::key_of;

    /// Touches of 40,000 pages; the first ones are touched most often.
    fn touches() -> impl Iterator<Item = Key> {
        (0..400_000_u64).map(|number| {
            let uniform = (key_of(1, number) >> 11) as f64 / (1_u64 << 53) as f64;
            key_of(0, (40_000.0 * uniform.powi(3)) as u64)
        })
    }

    fn misses(sizes: &[u64], most: usize) -> Vec<MissEstimate> {
        let mut lru = LruMissCurve::new(sizes, most, 0);
        touches().for_each(|page| lru.touch(page));
        lru.misses()
    }

    #[test]
    fn a_stack_with_too_many_pages_is_sampled_at_one_rate_with_its_error() {
        let sizes: Vec<u64> = (1..=32).map(|part| 1_000 * part).collect();
        let (exact, sampled) = (misses(&sizes, usize::MAX), misses(&sizes, 1 << 12));
        assert!(exact.iter().all(|one| one.shift == 0 && one.error() == 0.0));
        let shift = sampled[0].shift;
        assert!(shift >= 3 && sampled.iter().all(|one| one.shift == shift));
        assert!(
            sampled.windows(2).all(|pair| pair[1].total() <= pair[0].total()),
            "more misses in a larger cache"
        );
        let apart = |(one, other): (&MissEstimate, &MissEstimate)| one.total().abs_diff(other.total()) as f64;
        let within = sampled.iter().zip(&exact).filter(|pair| apart(*pair) <= pair.0.error()).count();
        assert!(within >= 28, "{within} of 32 estimates are within their error");
        assert!(sampled.iter().all(|one| one.error() < 0.05 * 400_000.0));
    }
}
