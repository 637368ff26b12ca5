//! Reuse distances: the number of distinct pages touched between two touches of a page. A least-recently-used (LRU) cache of this size hits
//! the second touch.
//!
//! The method is SHARDS (Waldspurger et al., "Efficient MRC Construction with SHARDS", FAST 2015) with a fixed number of pages: a page is
//! tracked if the hash of its address is below a threshold, and the threshold is halved whenever too many pages are tracked. Up to
//! [`FOLLOWED`] unique pages (64 MB) the distances are exact. As in the paper's "SHARDS-adj", the difference between the true and the
//! sampled number of touches is added to the shortest distance.

use crate::bins::pct;
use crate::options::MergeRelation;
use crate::report::ReuseDistanceRow;

/// Maximum number of tracked pages; the error of a sample of this size is below 1 %.
const FOLLOWED: usize = 1 << 14;
/// Number of positions. Positions order the pages by their last touch; when all are used, the pages are renumbered.
const POSITIONS: usize = 4 * FOLLOWED;
const WORDS: usize = POSITIONS / 64;
/// Number of bitmap words in a group. There is a count of the set bits for each word and for each group.
const GROUP_WORDS: usize = 16;
const GROUPS: usize = WORDS / GROUP_WORDS;
/// Number of slots in the hash table of tracked pages, a power of two; at most a quarter of them is used.
const SLOTS: usize = 4 * FOLLOWED;
/// The position stored in an empty slot of the hash table.
const NOWHERE: u32 = u32::MAX;
/// Number of bins, for distances of 0, 1, 2-3, 4-7, ... pages.
const BINS: usize = 40;

/// An estimate of the distribution of reuse distances in bounded memory (about 2 MB).
#[derive(Clone, Debug)]
pub(crate) struct ReuseDistances {
    /// One page in `2^shift` is tracked.
    shift: u32,
    /// Hash table of the tracked pages with linear probing; a page keeps its slot until the sampling changes.
    slots: Vec<TrackedPage>,
    tracked: usize,
    /// The page and its slot in the hash table, for each position. The entry is valid only if the bit of the position is set.
    page_at: Vec<(u64, u32)>,
    /// The last touch of a page that was touched before; `None` after the positions of touches were renumbered.
    last: Option<RepeatTouch>,
    bits: Vec<u64>,
    /// Number of set bits in each word of the bitmap, by group.
    word_counts: Vec<[u8; GROUP_WORDS]>,
    group_counts: [u16; GROUPS],
    next: usize,
    distances: [u64; BINS],
    first_touches: u64,
    sampled: u64,
    touches: u64,
    /// The largest `shift` of all merged distributions.
    coarsest: u32,
}

#[derive(Clone, Copy, Debug)]
struct TrackedPage {
    page: u64,
    position: u32,
}

const EMPTY: TrackedPage = TrackedPage { page: 0, position: NOWHERE };

/// Returns the slot at which the search for a page begins. Eight neighbouring pages use neighbouring slots, which occupy two cache lines.
#[inline]
fn home(page: u64) -> usize {
    let group = (page / 8).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - (SLOTS / 8).ilog2());
    (group * 8 + page % 8) as usize
}

/// A repeated touch of a page: the page's previous position, and the number of pages touched since then.
#[derive(Clone, Copy, Debug)]
struct RepeatTouch {
    before: usize,
    distance: u64,
}

/// Hashes a page number to 64 bits (`SplitMix64`, a bijection). A constant is added first, so that page 0 is not in every sample.
#[inline]
fn hash_page(page: u64) -> u64 {
    let page = page.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (page ^ (page >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

impl Default for ReuseDistances {
    fn default() -> Self {
        Self {
            shift: 0,
            slots: vec![EMPTY; SLOTS],
            tracked: 0,
            page_at: vec![(0, 0); POSITIONS],
            last: None,
            bits: vec![0; WORDS],
            word_counts: vec![[0; GROUP_WORDS]; GROUPS],
            group_counts: [0; GROUPS],
            next: 0,
            distances: [0; BINS],
            first_touches: 0,
            sampled: 0,
            touches: 0,
            coarsest: 0,
        }
    }
}

impl ReuseDistances {
    /// Adds touches of a range of pages, in ascending order.
    #[inline]
    pub fn add(&mut self, space: u32, pages: std::ops::Range<u64>) {
        self.touches += pages.end - pages.start;
        let space = u64::from(space).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for page in pages {
            let page = page ^ space;
            if self.is_tracked(page) {
                self.touch(page);
            }
        }
    }

    #[inline]
    fn is_tracked(&self, page: u64) -> bool {
        self.shift == 0 || hash_page(page).leading_zeros() >= self.shift
    }

    #[inline]
    fn touch(&mut self, page: u64) {
        if self.next == POSITIONS {
            self.renumber(false);
        }
        let weight = 1 << self.shift;
        self.sampled += weight;
        let slot = self.slot_of(page);
        let before = self.slots[slot as usize].position;
        if before == NOWHERE {
            self.first_touches += weight;
            self.tracked += 1;
            self.last = None;
        } else {
            let touch = self.touch_before(before as usize);
            let distance = touch.distance << self.shift;
            let bin = (u64::BITS - distance.leading_zeros()) as usize;
            self.distances[bin.min(BINS - 1)] += weight;
            let word = touch.before / 64;
            self.bits[word] &= !(1 << (touch.before % 64));
            self.word_counts[word / GROUP_WORDS][word % GROUP_WORDS] -= 1;
            self.group_counts[word / GROUP_WORDS] -= 1;
            self.last = Some(touch);
        }
        self.set(page, slot);
        if self.tracked > FOLLOWED {
            self.shift += 1;
            self.coarsest = self.coarsest.max(self.shift);
            self.renumber(true);
        }
    }

    /// Finds the slot of a page. Pages are often touched in the same order as before, so the page after the last one in this order is tried
    /// first.
    #[inline]
    fn slot_of(&self, page: u64) -> u32 {
        if let Some(last) = self.last {
            let (next, slot) = self.page_at[last.before + 1];
            if next == page && self.slots[slot as usize].position as usize == last.before + 1 {
                return slot;
            }
        }
        let mut slot = home(page);
        while self.slots[slot].position != NOWHERE && self.slots[slot].page != page {
            slot = (slot + 1) % SLOTS;
        }
        slot as u32
    }

    /// Returns the reuse distance for a touch of the page at position `before`. If this page directly follows the previously touched page,
    /// both have the same distance: one page fewer is after this page, but the previously touched page is now after it.
    #[inline]
    fn touch_before(&self, before: usize) -> RepeatTouch {
        match self.last {
            Some(last) if before == last.before + 1 => RepeatTouch { before, distance: last.distance },
            _ => RepeatTouch { before, distance: self.set_after(before) },
        }
    }

    /// Stores a page at the next position in the order of touches.
    #[inline]
    fn set(&mut self, page: u64, slot: u32) {
        let at = self.next;
        self.page_at[at] = (page, slot);
        self.slots[slot as usize] = TrackedPage { page, position: at as u32 };
        let word = at / 64;
        self.bits[word] |= 1 << (at % 64);
        self.word_counts[word / GROUP_WORDS][word % GROUP_WORDS] += 1;
        self.group_counts[word / GROUP_WORDS] += 1;
        self.next += 1;
    }

    /// Number of pages that were touched after the page at position `position`.
    fn set_after(&self, position: usize) -> u64 {
        let word = position / 64;
        let group = word / GROUP_WORDS;
        // Shifted twice, because a shift by 64 bits is not allowed. The sums use all elements with a mask, which avoids branches.
        let in_word = (self.bits[word] >> (position % 64) >> 1).count_ones() as u16;
        let after = |index: usize, than: usize, count: u16| if index > than { count } else { 0 };
        let words = self.word_counts[group].iter().enumerate();
        let in_group: u16 = words.map(|(index, count)| after(index, word % GROUP_WORDS, u16::from(*count))).sum();
        let groups = self.group_counts.iter().enumerate();
        let behind: u16 = groups.map(|(index, count)| after(index, group, *count)).sum();
        u64::from(in_word + in_group + behind)
    }

    /// Moves the tracked pages to the first positions, in order. If `fewer` is set, pages that are no longer sampled are removed.
    #[cold]
    fn renumber(&mut self, fewer: bool) {
        let words = self.next.div_ceil(64);
        self.next = 0;
        self.last = None;
        self.word_counts.fill([0; GROUP_WORDS]);
        self.group_counts.fill(0);
        if fewer {
            self.slots.fill(EMPTY);
            self.tracked = 0;
        }
        for word in 0..words {
            // The arrays are renumbered in place. A page never moves to a later position, so entries are not overwritten before they are
            // read.
            let mut bits = std::mem::take(&mut self.bits[word]);
            while bits != 0 {
                let (page, slot) = self.page_at[64 * word + bits.trailing_zeros() as usize];
                bits &= bits - 1;
                if !fewer {
                    self.set(page, slot);
                } else if self.is_tracked(page) {
                    self.tracked += 1;
                    self.set(page, self.slot_of(page));
                }
            }
        }
    }

    /// Merges another distribution. A first touch in `other` remains a first touch, even if `self` has touched the page before.
    pub fn merge(&mut self, other: Self, join: MergeRelation) {
        let mut distances = self.distances;
        for (mine, theirs) in distances.iter_mut().zip(other.distances) {
            *mine += theirs;
        }
        let merged = Self {
            distances,
            first_touches: self.first_touches + other.first_touches,
            sampled: self.sampled + other.sampled,
            touches: self.touches + other.touches,
            coarsest: self.coarsest.max(other.coarsest),
            ..match join {
                MergeRelation::Consecutive => other,
                MergeRelation::Separate => std::mem::take(self),
            }
        };
        *self = merged;
    }

    /// Returns the sampling rate at the end: one in this number of pages was tracked.
    pub fn sampling(&self) -> u64 {
        1 << self.coarsest
    }

    /// Hit rate of an LRU cache in percent, taken at the largest bin edge that is at most `cache_kb`.
    pub fn hit_pct(&self, cache_kb: u64) -> Option<f64> {
        let rows = self.rows();
        rows.iter().rfind(|row| row.high_kb.is_some_and(|high| high <= cache_kb)).map(|row| row.hit_pct)
    }

    /// Number of touches by reuse distance. Only a sample of the touches is measured. The difference between the number of all touches and
    /// the size of the sample is added to the shortest distance.
    fn adjusted(&self) -> [u64; BINS] {
        let mut distances = self.distances;
        distances[0] = distances[0].saturating_add(self.touches).saturating_sub(self.sampled);
        distances
    }

    /// Upper edges of the reuse distances in KB, and the number of page accesses in each bin. An additional last bin counts first accesses.
    pub fn histogram(&self) -> (Vec<f64>, Vec<u64>) {
        let edges = (0..BINS).map(|bin| (4_u64 << bin) as f64).collect();
        (edges, self.adjusted().into_iter().chain([self.first_touches]).collect())
    }

    pub fn rows(&self) -> Vec<ReuseDistanceRow> {
        let distances = self.adjusted();
        let total: u64 = distances.iter().sum::<u64>() + self.first_touches;
        let used = distances.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        let mut hits = 0;
        let mut rows: Vec<ReuseDistanceRow> = (0..used)
            .filter_map(|bin| {
                hits += distances[bin];
                let low_kb = if bin == 0 { 0 } else { 4 << (bin - 1) };
                let high_kb: u64 = 4 << bin;
                Some(ReuseDistanceRow {
                    bin: format!("{low_kb} - {high_kb} KB"),
                    low_kb,
                    high_kb: Some(high_kb),
                    accesses: distances[bin],
                    pct: pct(distances[bin], total)?,
                    hit_pct: pct(hits, total)?,
                })
            })
            .collect();
        if let (Some(share), Some(hit_pct)) = (pct(self.first_touches, total), pct(hits, total)) {
            rows.push(ReuseDistanceRow {
                bin: "first touch".to_owned(),
                low_kb: rows.last().and_then(|row| row.high_kb).unwrap_or(0),
                high_kb: None,
                accesses: self.first_touches,
                pct: share,
                hit_pct,
            });
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Computes reuse distances directly from their definition, to check the sampled ones.
    fn reference(pages: &[u64]) -> ([u64; BINS], u64) {
        let mut stack: Vec<u64> = Vec::new();
        let (mut distances, mut first) = ([0; BINS], 0);
        for page in pages {
            match stack.iter().rev().position(|seen| seen == page) {
                Some(distance) => {
                    distances[(u64::BITS - (distance as u64).leading_zeros()) as usize] += 1;
                    stack.remove(stack.len() - 1 - distance);
                }
                None => first += 1,
            }
            stack.push(*page);
        }
        (distances, first)
    }

    proptest! {
        #[test]
        fn distances_of_a_small_working_set_are_exact(pages in prop::collection::vec(0_u64..200, 1..600)) {
            let mut reuse = ReuseDistances::default();
            for page in &pages {
                reuse.add(0, *page..*page + 1);
            }
            prop_assert_eq!((reuse.distances, reuse.first_touches), reference(&pages));
        }
    }

    #[test]
    fn positions_run_out_without_a_trace() {
        let mut reuse = ReuseDistances::default();
        let rounds = 3 * POSITIONS as u64 / 1_000;
        (0..rounds).for_each(|_| reuse.add(0, 0..1_000));
        // Each page is touched again after the other 999 pages.
        assert_eq!(reuse.distances[10], (rounds - 1) * 1_000);
        assert_eq!((reuse.first_touches, reuse.sampling()), (1_000, 1));
    }

    #[test]
    fn a_sample_of_a_large_working_set_is_close() {
        let mut reuse = ReuseDistances::default();
        let pages = 400_000;
        (0..3).for_each(|_| reuse.add(0, 0..pages));
        assert!(reuse.sampling() >= 16);
        let rows = reuse.rows();
        let within: f64 = rows.iter().filter(|row| row.low_kb >= 4 << 17 && row.high_kb.is_some()).map(|row| row.pct).sum();
        // Two of three accesses have a reuse distance of 399,999 pages.
        assert!((within - 66.7).abs() < 2.0, "{rows:?}");
    }
}
