//! Histograms of durations: one to which durations are added fast, and a compact one.

/// Counts of durations by class, in an array, so that adding a duration is fast. It needs up to 15 KB of memory, depending on the
/// longest duration.
#[derive(Clone, Debug, Default)]
pub struct DurationHistogram {
    sum_ns: u128,
    max_ns: u64,
    classes: Vec<u64>,
}

impl DurationHistogram {
    /// Adds a duration.
    #[inline]
    pub fn add(&mut self, ns: u64) {
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
        let class = class(ns);
        match self.classes.get_mut(class) {
            Some(count) => *count += 1,
            None => self.add_longest(class),
        }
    }

    #[cold]
    fn add_longest(&mut self, class: usize) {
        self.classes.resize(class + 1, 0);
        self.classes[class] += 1;
    }

    /// Adds the durations of another histogram.
    pub fn merge(&mut self, other: &Self) {
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        if self.classes.len() < other.classes.len() {
            self.classes.resize(other.classes.len(), 0);
        }
        for (mine, theirs) in self.classes.iter_mut().zip(&other.classes) {
            *mine += theirs;
        }
    }

    /// Returns the compact form of the histogram.
    pub fn times(&self) -> SparseHistogram {
        let used = self.classes.iter().enumerate().filter(|(_, count)| **count > 0);
        let classes: Vec<_> = used.map(|(class, count)| (class as u16, *count)).collect();
        let count = classes.iter().map(|(_, count)| count).sum();
        SparseHistogram { count, sum_ns: self.sum_ns, max_ns: self.max_ns, classes }
    }

    /// Returns the compact form and empties the histogram, which keeps its memory.
    pub(crate) fn take(&mut self) -> SparseHistogram {
        let times = self.times();
        self.classes.fill(0);
        (self.sum_ns, self.max_ns) = (0, 0);
        times
    }
}

/// The compact form of a histogram: number, sum and maximum of the durations, and counts of the classes that occur.
#[derive(Clone, Debug, Default)]
pub struct SparseHistogram {
    count: u64,
    sum_ns: u128,
    max_ns: u64,
    /// Index of each class that occurs, in ascending order, with its count.
    classes: Vec<(u16, u64)>,
}

impl SparseHistogram {
    /// Adds the durations of another histogram.
    pub fn add(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        if self.classes.is_empty() {
            self.classes.clone_from(&other.classes);
            return;
        }
        self.classes.extend(&other.classes);
        self.classes.sort_unstable_by_key(|(class, _)| *class);
        self.classes.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                kept.1 += later.1;
            }
            same
        });
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The exact arithmetic mean, ms; `None` if empty.
    pub fn mean_ms(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64 / 1e6)
    }

    /// The exact maximum, ms; `None` if empty.
    pub fn max_ms(&self) -> Option<f64> {
        (self.count > 0).then(|| self.max_ns as f64 / 1e6)
    }

    /// The nearest-rank percentile, ms, at most 1 / 32 too high; `None` if empty.
    pub fn percentile_ms(&self, percent: f64) -> Option<f64> {
        let rank = ((percent / 100.0 * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut below = 0;
        let class_of_rank = self.classes.iter().find(|(_, count)| {
            below += count;
            below >= rank
        });
        class_of_rank.map(|(class, _)| longest(usize::from(*class)).min(self.max_ns) as f64 / 1e6)
    }
}

/// Base-2 logarithm of the number of duration classes between two powers of two.
const BITS: u32 = 5;

/// The class of a duration: its six leading bits and the number of bits after them.
#[inline]
pub(crate) const fn class(ns: u64) -> usize {
    let shift = (ns | 1 << BITS).ilog2() - BITS;
    (((shift as u64) << BITS) + (ns >> shift)) as usize
}

pub(crate) fn longest(class: usize) -> u64 {
    let shift = (class >> BITS).saturating_sub(1);
    let least = ((class - (shift << BITS)) as u64) << shift;
    least + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_time_lies_within_its_class_of_one_32nd(shift in 0..64_u32, value in any::<u64>()) {
            let ns = value >> shift;
            let of = class(ns);
            prop_assert!(longest(of) >= ns && (longest(of) - ns) <= ns / 32);
            prop_assert!(of == 0 || longest(of - 1) < ns);
        }
    }
}
