//! A histogram of times in the classes of `HdrHistogram` with three significant digits.

use serde::Serialize;

/// Mean and percentiles, in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Times {
    pub mean_ms: f64,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
}

/// Base-2 logarithm of the classes in each power of two: three digits.
const HALF: u32 = 10;

/// Counts by class, for every time there can be. A count is one addition in an array.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(Vec<u64>);

/// The class of a time: its leading eleven bits and how many follow.
#[inline]
const fn class(ns: u64) -> usize {
    let shift = (ns | 1 << HALF).ilog2() - HALF;
    (((shift as u64) << HALF) + (ns >> shift)) as usize
}

/// The longest time of a class.
fn longest(class: usize) -> u64 {
    let shift = (class >> HALF).saturating_sub(1);
    let least = ((class - (shift << HALF)) as u64) << shift;
    least + ((1 << shift) - 1)
}

impl Tally {
    #[inline]
    pub fn add(&mut self, ns: u64) {
        let class = class(ns);
        match self.0.get_mut(class) {
            Some(count) => *count += 1,
            None => self.add_first(class),
        }
    }

    /// Allocates the array; the kernel zeroes its pages at their first use.
    #[cold]
    fn add_first(&mut self, class: usize) {
        self.0 = vec![0; self::class(u64::MAX) + 1];
        self.0[class] += 1;
    }
}

/// The times that these shares of all the `count` times in several tallies do not exceed, each the longest of its class; 0
/// without times. The shares ascend.
pub(crate) fn quantiles<const N: usize>(tallies: &[&Tally], count: u64, shares: [f64; N]) -> [u64; N] {
    if count == 0 {
        return [0; N];
    }
    let counted = |class| tallies.iter().filter_map(|tally| tally.0.get(class)).sum::<u64>();
    let (mut class, mut below) = (0, 0);
    shares.map(|share| {
        let wanted = ((share * count as f64).ceil() as u64).clamp(1, count);
        loop {
            let here = counted(class);
            if below + here >= wanted {
                return longest(class);
            }
            (class, below) = (class + 1, below + here);
        }
    })
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_counts_as_the_histogram_does(
            times in prop::collection::vec((1..64u32, any::<u64>()).prop_map(|(shift, ns)| ns >> shift), 1..200),
        ) {
            let mut plain = Histogram::<u64>::new_with_bounds(1, i64::MAX as u64, 3).unwrap();
            let (mut first, mut rest) = (Tally::default(), Tally::default());
            for (i, ns) in times.iter().enumerate() {
                plain.record(*ns).unwrap();
                if i % 2 == 0 { first.add(*ns) } else { rest.add(*ns) }
            }
            let shares: [f64; 1000] = std::array::from_fn(|permille| (permille + 1) as f64 / 1000.0);
            let (tallies, count) = ([&first, &rest], times.len() as u64);
            prop_assert_eq!(quantiles(&tallies, count, shares), shares.map(|share| plain.value_at_quantile(share)));
            prop_assert_eq!(quantiles(&tallies, count, [1.0]), [plain.max()]);
            prop_assert_eq!(quantiles(&tallies[..0], 0, [1.0]), [0]);
        }
    }
}
