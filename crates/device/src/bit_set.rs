//! Sets of numbers below a bound, one bit each.

use std::ops::Range;

const WORD: u32 = u64::BITS;

/// A set of numbers.
#[derive(Clone, Debug)]
pub(crate) struct BitSet(Box<[u64]>);

const fn word(number: u32) -> usize {
    (number / WORD) as usize
}

const fn bit(number: u32) -> u64 {
    1 << (number % WORD)
}

/// For each word with numbers of a range: its index and the bits of these numbers.
fn words(range: Range<u32>) -> impl Iterator<Item = (usize, u64)> {
    let (mut at, end) = (range.start, range.end);
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let stop = (at - at % WORD).saturating_add(WORD).min(end);
        let bits = u64::MAX >> (WORD - (stop - at)) << (at % WORD);
        let word = word(at);
        at = stop;
        Some((word, bits))
    })
}

impl BitSet {
    /// An empty set of numbers below `bound`.
    pub fn new(bound: u32) -> Self {
        Self(vec![0; bound.div_ceil(WORD) as usize].into_boxed_slice())
    }

    #[inline]
    pub fn has(&self, number: u32) -> bool {
        self.0[word(number)] & bit(number) != 0
    }

    #[inline]
    pub fn insert(&mut self, number: u32) {
        self.0[word(number)] |= bit(number);
    }

    #[inline]
    pub fn remove(&mut self, number: u32) {
        self.0[word(number)] &= !bit(number);
    }

    /// Inserts the numbers of a range, word by word; returns how many of them are new.
    pub fn insert_range(&mut self, range: Range<u32>) -> u32 {
        let mut fresh = 0;
        for (word, bits) in words(range) {
            fresh += (bits & !self.0[word]).count_ones();
            self.0[word] |= bits;
        }
        fresh
    }

    /// Removes the numbers of a range, word by word.
    pub fn remove_range(&mut self, range: Range<u32>) {
        for (word, bits) in words(range) {
            self.0[word] &= !bits;
        }
    }

    /// Removes all numbers.
    pub fn clear(&mut self) {
        self.0.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::BitSet;

    proptest! {
        #[test]
        fn a_range_is_taken_out_and_nothing_else(from in 0u32..300, to in 0u32..300) {
            let mut set = BitSet::new(300);
            (0..300).for_each(|number| set.insert(number));
            set.remove_range(from..to);
            prop_assert!((0..300).all(|number| set.has(number) != (from..to).contains(&number)));
        }

        #[test]
        fn a_range_is_put_in_and_what_was_not_there_is_counted(from in 0u32..300, to in 0u32..300, step in 1usize..9) {
            let mut set = BitSet::new(300);
            (0..300).step_by(step).for_each(|number| set.insert(number));
            let fresh = (from..to).filter(|number| !set.has(*number)).count();
            prop_assert_eq!(set.insert_range(from..to) as usize, fresh);
            let there = |number: u32| number.is_multiple_of(step as u32) || (from..to).contains(&number);
            prop_assert!((0..300).all(|number| set.has(number) == there(number)));
        }
    }
}
