//! How often each time came, in the classes of `HdrHistogram` with three significant digits.

/// Longest time told apart: 1,000,000 s. What has no class any more counts as this, as in the library.
const MAX_NS: u64 = 1_000_000_000_000_000;
/// Base-2 logarithm of the classes in each power of two: three digits.
const HALF: u32 = 10;
/// The first time without a class: the next power of two.
const END: u64 = MAX_NS.next_power_of_two();

/// Counts by class. A count is one addition in an array.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(Vec<u64>);

/// The class of a time: its leading eleven bits and how many follow.
#[inline]
fn class(ns: u64) -> usize {
    let ns = if ns < END { ns } else { MAX_NS };
    let shift = (ns | 1 << HALF).ilog2() - HALF;
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

    /// Zeroed by the system, page by page as it is used.
    #[cold]
    fn make_room(&mut self) {
        if self.0.is_empty() {
            self.0 = vec![0; class(END - 1) + 1];
        }
    }

    /// Adds the counts of another.
    pub fn with(&mut self, other: &Tally) {
        if !other.0.is_empty() {
            self.make_room();
        }
        for (count, more) in self.0.iter_mut().zip(&other.0).filter(|(_, more)| **more > 0) {
            *count += more;
        }
    }

    /// The times that these shares of all do not exceed, each the longest of its class; 0 without times. The shares ascend.
    pub fn quantiles<const N: usize>(&self, shares: [f64; N]) -> [u64; N] {
        let all: u64 = self.0.iter().sum();
        let (mut class, mut below) = (0, 0);
        shares.map(|share| {
            let wanted = ((share * all as f64).ceil() as u64).max(1);
            while let Some(count) = self.0.get(class) {
                if below + count >= wanted {
                    return least(class + 1) - 1;
                }
                (class, below) = (class + 1, below + count);
            }
            0
        })
    }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;
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
            let shares: [f64; 1000] = std::array::from_fn(|permille| (permille + 1) as f64 / 1000.0);
            prop_assert_eq!(first.quantiles(shares), shares.map(|share| plain.value_at_quantile(share)));
            prop_assert_eq!(first.quantiles([1.0]), [plain.max()]);
        }
    }
}
