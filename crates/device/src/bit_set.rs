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

    /// Takes out every number.
    pub fn clear(&mut self) {
        self.0.fill(0);
    }
}
