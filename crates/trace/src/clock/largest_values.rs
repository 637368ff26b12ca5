//! Collects the largest of many values, in bounded memory.

use std::cmp::Reverse;

/// The `N` largest values that were added, each with its place. The largest is first, and equal values are in order of their
/// places. Zeros are not kept.
#[derive(Clone, Debug)]
pub struct LargestValues<P, const N: usize> {
    values: Vec<(u64, P)>,
    /// Values that are not larger than this are not kept.
    floor: u64,
}

impl<P, const N: usize> Default for LargestValues<P, N> {
    fn default() -> Self {
        Self { values: Vec::new(), floor: 0 }
    }
}

impl<P: Copy + Ord, const N: usize> LargestValues<P, N> {
    /// The limit for [`LargestValues::add`]: a value at a later place is kept if it is larger.
    #[inline]
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// Adds a value whose place is after those of all before.
    #[inline]
    pub fn add(&mut self, value: u64, place: impl FnOnce() -> P) {
        if value > self.floor {
            self.insert(value, place());
        }
    }

    /// Adds a value at any place, also before those of earlier values.
    #[inline]
    pub fn add_anywhere(&mut self, value: u64, place: P) {
        if value >= self.floor {
            self.insert(value, place);
        }
    }

    #[cold]
    fn insert(&mut self, value: u64, place: P) {
        if value == 0 {
            return;
        }
        // Allocates only once.
        self.values.reserve_exact((N + 1).saturating_sub(self.values.len()));
        let at = self.values.partition_point(|(other, there)| (Reverse(*other), *there) < (Reverse(value), place));
        self.values.insert(at, (value, place));
        self.values.truncate(N);
        if let (true, Some((least, _))) = (self.values.len() == N, self.values.last()) {
            self.floor = *least;
        }
    }

    /// Adds the values of another; `moved` converts their places.
    pub fn merge(&mut self, other: &Self, moved: impl Fn(P) -> P) {
        other.values.iter().for_each(|(value, place)| self.insert(*value, moved(*place)));
    }

    /// The values with their places, the largest first.
    pub fn values(&self) -> &[(u64, P)] {
        &self.values
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_largest_of_pieces_are_those_of_the_whole(
            values in prop::collection::vec(0_u64..40, 0..60), cut in 0_usize..60,
        ) {
            let cut = cut.min(values.len());
            let kept = |from: usize, values: &[u64]| {
                let mut largest = LargestValues::<usize, 7>::default();
                for (place, value) in (from..).zip(values) {
                    largest.add(*value, || place);
                }
                largest
            };
            let mut merged = kept(0, &values[..cut]);
            merged.merge(&kept(0, &values[cut..]), |place| place + cut);
            let mut sorted: Vec<_> = values.iter().copied().zip(0..).filter(|(value, _)| *value > 0).collect();
            sorted.sort_by_key(|(value, place)| (Reverse(*value), *place));
            sorted.truncate(7);
            prop_assert_eq!(merged.values(), &sorted);
            let whole = kept(0, &values);
            prop_assert_eq!(whole.values(), &sorted);
        }
    }
}
