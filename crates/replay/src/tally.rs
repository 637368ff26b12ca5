//! How often each time came, in the classes of a histogram of three significant digits.

use hdrhistogram::Histogram;

/// Longest time told apart: 1,000,000 s. What has no class any more counts as this, as in the library.
const MAX_NS: u64 = 1_000_000_000_000_000;
/// Base-2 logarithm of the classes in each power of two: three digits.
const HALF: u32 = 10;
/// The first time without a class: the next power of two.
const END: u64 = MAX_NS.next_power_of_two();

/// Counts by class. A count is one addition in an array; the histogram is made when it is asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(Vec<u64>);

/// The class of a time: its leading eleven bits and how many follow.
#[inline]
fn class(ns: u64) -> usize {
    let ns = if ns < END { ns } else { MAX_NS };
    let shift = (ns >> (HALF + 1)).checked_ilog2().map_or(0, |bits| bits + 1);
    ((u64::from(shift) << HALF) + (ns >> shift)) as usize
}

/// The least time of a class.
fn least(class: usize) -> u64 {
    let shift = (class >> HALF).saturating_sub(1);
    ((class - (shift << HALF)) as u64) << shift
}

impl Tally {
    #[inline]
    pub fn add(&mut self, ns: u64) {
        let class = class(ns);
        if class >= self.0.len() {
            self.make_room();
        }
        self.0[class] += 1;
    }

    #[cold]
    fn make_room(&mut self) {
        self.0.resize(class(END - 1) + 1, 0);
    }

    /// Adds the counts of another.
    pub fn with(&mut self, other: &Tally) {
        if !other.0.is_empty() {
            self.make_room();
        }
        for (count, more) in self.0.iter_mut().zip(&other.0) {
            *count += more;
        }
    }

    /// The same times as a histogram, which knows quantiles.
    pub fn histogram(&self) -> Histogram<u64> {
        // The bounds are constants that the library accepts.
        let mut histogram =
            Histogram::new_with_bounds(1, MAX_NS, 3).unwrap_or_else(|_| unreachable!("constant bounds"));
        for (class, count) in self.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            histogram.saturating_record_n(least(class), *count);
        }
        histogram
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_counts_as_the_histogram_does(
            times in prop::collection::vec((0..64u32, any::<u64>()).prop_map(|(shift, ns)| ns >> shift), 1..200),
        ) {
            let mut plain = Histogram::<u64>::new_with_bounds(1, MAX_NS, 3).unwrap();
            let (mut first, mut rest) = (Tally::default(), Tally::default());
            for (i, ns) in times.iter().enumerate() {
                plain.saturating_record(*ns);
                if i % 2 == 0 { first.add(*ns) } else { rest.add(*ns) }
            }
            first.with(&rest);
            let histogram = first.histogram();
            prop_assert_eq!(histogram.max(), plain.max());
            for permille in 0..=1000 {
                let quantile = f64::from(permille) / 1000.0;
                prop_assert_eq!(histogram.value_at_quantile(quantile), plain.value_at_quantile(quantile));
            }
        }
    }
}
