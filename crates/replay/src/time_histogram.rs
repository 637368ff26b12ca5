//! A histogram of times, with the classes of `HdrHistogram` for three significant digits.

use emmclab_trace::Nanos;
use schemars::JsonSchema;
use serde::Serialize;

/// Mean and percentiles of times, in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct TimeSummary {
    /// Mean.
    #[schemars(extend("label" = "Mean {of}", "short" = "Mean", "digits" = 3, "better" = "lower"))]
    pub mean_ms: f64,
    /// Median.
    #[schemars(extend("label" = "Median {of}", "short" = "p50", "digits" = 3, "better" = "lower"))]
    pub p50_ms: f64,
    /// 90th percentile.
    #[schemars(extend("label" = "p90 {of}", "short" = "p90", "digits" = 3, "better" = "lower"))]
    pub p90_ms: f64,
    /// 99th percentile.
    #[schemars(extend("label" = "p99 {of}", "short" = "p99", "digits" = 3, "better" = "lower"))]
    pub p99_ms: f64,
    /// 99.9th percentile.
    #[schemars(extend("label" = "p99.9 {of}", "short" = "p99.9", "digits" = 3, "better" = "lower"))]
    pub p999_ms: f64,
    /// Maximum.
    #[schemars(extend("label" = "Longest {of}", "short" = "Longest", "digits" = 3, "better" = "lower"))]
    pub max_ms: f64,
}

impl TimeSummary {
    /// Summarises these times; all values are 0 without times.
    pub fn of(times: impl Iterator<Item = Nanos>) -> Self {
        let (mut histogram, mut count, mut sum) = (TimeHistogram::default(), 0, 0);
        for time in times {
            histogram.add(time.0 as u64);
            (count, sum) = (count + 1, sum + i128::from(time.0));
        }
        let [p50_ms, p90_ms, p99_ms, p999_ms, max_ms] =
            quantiles(&[&histogram], count, [0.5, 0.9, 0.99, 0.999, 1.0]).map(|ns| ns as f64 / 1e6);
        Self { mean_ms: sum as f64 / count.max(1) as f64 / 1e6, p50_ms, p90_ms, p99_ms, p999_ms, max_ms }
    }
}

/// Base-2 logarithm of the number of classes per power of two, which suffices for three significant digits.
const HALF: u32 = 10;

/// Number of times in each class, for all possible times. Counting needs one addition in an array.
#[derive(Clone, Debug, Default)]
pub(crate) struct TimeHistogram(Vec<u64>);

/// The class of a time in the histogram. It is computed from the leading eleven bits of the time, and the number of bits after them.
#[inline]
const fn class(ns: u64) -> usize {
    let shift = (ns | 1 << HALF).ilog2() - HALF;
    (((shift as u64) << HALF) + (ns >> shift)) as usize
}

/// Returns the longest time in a class of the histogram.
fn longest(class: usize) -> u64 {
    let shift = (class >> HALF).saturating_sub(1);
    let least = ((class - (shift << HALF)) as u64) << shift;
    least + ((1 << shift) - 1)
}

impl TimeHistogram {
    #[inline]
    pub fn add(&mut self, ns: u64) {
        let class = class(ns);
        match self.0.get_mut(class) {
            Some(count) => *count += 1,
            None => self.add_first(class),
        }
    }

    /// Allocates the array. The kernel zeroes its pages at their first use.
    #[cold]
    fn add_first(&mut self, class: usize) {
        self.0 = vec![0; self::class(u64::MAX) + 1];
        self.0[class] += 1;
    }
}

/// Finds the times at ascending ranks in several histograms.
pub(crate) struct RankCursor<'a> {
    tallies: &'a [&'a TimeHistogram],
    count: u64,
    class: usize,
    below: u64,
}

impl<'a> RankCursor<'a> {
    /// Creates a cursor for the `count` times in all histograms.
    pub fn new(tallies: &'a [&'a TimeHistogram], count: u64) -> Self {
        Self { tallies, count, class: 0, below: 0 }
    }

    fn count_in_class(&self, class: usize) -> u64 {
        self.tallies.iter().filter_map(|tally| tally.0.get(class)).sum()
    }

    /// The time that the fraction `share` of all times does not exceed; 0 if there are no times. The time is rounded up to the maximum of
    /// its histogram class. Fractions must ascend from call to call.
    pub fn time_at(&mut self, share: f64) -> u64 {
        if self.count == 0 {
            return 0;
        }
        let wanted = ((share * self.count as f64).ceil() as u64).clamp(1, self.count);
        loop {
            let here = self.count_in_class(self.class);
            if self.below + here >= wanted {
                return longest(self.class);
            }
            (self.class, self.below) = (self.class + 1, self.below + here);
        }
    }
}

/// Returns the times that are not exceeded by the fractions `shares` of all `count` times, as in [`RankCursor::time_at`].
pub(crate) fn quantiles<const N: usize>(tallies: &[&TimeHistogram], count: u64, shares: [f64; N]) -> [u64; N] {
    let mut ranks = RankCursor::new(tallies, count);
    shares.map(|share| ranks.time_at(share))
}

/// Returns the times that are not exceeded by these ascending percentages of all `count` times, as in [`RankCursor::time_at`].
pub(crate) fn percentiles_of(tallies: &[&TimeHistogram], count: u64, percentiles: &[f64]) -> Vec<u64> {
    let mut ranks = RankCursor::new(tallies, count);
    percentiles.iter().map(|percentile| ranks.time_at(percentile / 100.0)).collect()
}

impl TimeHistogram {
    /// Counts by range, with 16 ranges per power of two: (maximum time of the range, number of times in it).
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        let ranges = self.0.chunks(RANGE).enumerate();
        ranges.map(|(index, classes)| (longest((index + 1) * RANGE - 1), classes.iter().sum())).filter(|(_, count)| *count > 0)
    }
}

/// Number of classes in a range of [`TimeHistogram::ranges`].
const RANGE: usize = 1 << (HALF - 4);

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
            let (mut first, mut rest) = (TimeHistogram::default(), TimeHistogram::default());
            for (i, ns) in times.iter().enumerate() {
                plain.record(*ns).unwrap();
                if i % 2 == 0 { first.add(*ns) } else { rest.add(*ns) }
            }
            let shares: [f64; 1000] = std::array::from_fn(|permille| (permille + 1) as f64 / 1000.0);
            let (tallies, count) = ([&first, &rest], times.len() as u64);
            prop_assert_eq!(quantiles(&tallies, count, shares), shares.map(|share| plain.value_at_quantile(share)));
            prop_assert_eq!(quantiles(&tallies, count, [1.0]), [plain.max()]);
            prop_assert_eq!(quantiles(&tallies[..0], 0, [1.0]), [0]);
            let ranges: Vec<_> = first.ranges().collect();
            prop_assert_eq!(ranges.iter().map(|(_, count)| count).sum::<u64>(), times.len().div_ceil(2) as u64);
            let longest = times.iter().step_by(2).max().unwrap();
            let bound = ranges.last().unwrap().0;
            prop_assert!(bound >= *longest && bound - longest <= longest / 16 + 64);
        }
    }
}
