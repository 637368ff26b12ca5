//! Sets of numbers below a bound, one bit each.

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

    /// Takes out the numbers of a range, word by word.
    pub fn remove_range(&mut self, range: std::ops::Range<u32>) {
        if range.is_empty() {
            return;
        }
        let (first, last) = (word(range.start), word(range.end - 1));
        // What stays: the numbers below the range in its first word, and those behind it in its last.
        let below = bit(range.start) - 1;
        let above = !(bit(range.end - 1) | (bit(range.end - 1) - 1));
        if first == last {
            self.0[first] &= below | above;
            return;
        }
        self.0[first] &= below;
        self.0[first + 1..last].fill(0);
        self.0[last] &= above;
    }

    /// Takes out every number.
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
    }
}
