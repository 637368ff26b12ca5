//! Time bins of bounded number, whose width doubles when a trace has become too long for them.

use emmclab_base::Nanos;

/// The content of a bin: values that can be added.
pub trait BinContent: Clone + Default {
    /// Adds the content of another bin.
    fn add(&mut self, other: &Self);
}

/// At most `capacity` bins, each `2^shift` times as wide as the narrowest width. The bins are aligned to time 0 of the trace's
/// clock, so that the bins of two pieces of a recording coincide.
#[derive(Clone, Debug)]
pub struct CoarseningBins<T> {
    capacity: usize,
    /// Initial width of a bin, ns.
    narrowest: i64,
    shift: u32,
    /// Index of the first bin, counted from time 0 of the clock.
    first: i64,
    bins: Vec<T>,
}

impl<T: BinContent> CoarseningBins<T> {
    /// Empty bins, at most `capacity`, with an initial width of 1 ms.
    pub fn new(capacity: usize) -> Self {
        Self::with_width(capacity, Nanos::from_millis(1))
    }

    /// Empty bins, at most `capacity`, with this initial width.
    pub fn with_width(capacity: usize, width: Nanos) -> Self {
        Self { capacity, narrowest: width.0.max(1), shift: 0, first: 0, bins: Vec::new() }
    }

    /// The bin that contains `time`. A time before the first bin falls into the first bin.
    #[inline]
    pub fn at(&mut self, time: Nanos) -> &mut T {
        let step = time.0.div_euclid(self.narrowest);
        if self.bins.is_empty() {
            self.first = step;
            self.shift = 0;
        }
        let mut index = (step >> self.shift).saturating_sub(self.first).max(0);
        while index >= self.capacity as i64 {
            self.coarsen();
            index = (step >> self.shift) - self.first;
        }
        let index = index as usize;
        if index >= self.bins.len() {
            self.bins.resize_with(index + 1, T::default);
        }
        &mut self.bins[index]
    }

    /// The half-open range of times of the bin that contains `time`. It is valid until the bins become wider.
    pub fn range_of(&self, time: Nanos) -> (Nanos, Nanos) {
        let step = time.0.div_euclid(self.narrowest) >> self.shift;
        let width = i128::from(self.narrowest) << self.shift;
        let edge = |step: i64| {
            let ns = (i128::from(step) * width).clamp(i128::from(i64::MIN), i128::from(i64::MAX));
            Nanos(ns as i64)
        };
        (edge(step), edge(step.saturating_add(1)))
    }

    fn coarsen(&mut self) {
        let first = self.first >> 1;
        let mut coarse: Vec<T> = Vec::with_capacity(self.capacity);
        for (offset, bin) in (self.first..).zip(&self.bins) {
            let index = ((offset >> 1) - first) as usize;
            if index == coarse.len() {
                coarse.push(T::default());
            }
            coarse[index].add(bin);
        }
        self.shift += 1;
        self.first = first;
        self.bins = coarse;
    }

    /// Adds the bins of `other`, each at its own time, or with `aligned` as if both had started at the same time.
    pub fn merge(&mut self, mut other: Self, aligned: bool) {
        if other.bins.is_empty() {
            return;
        }
        if self.bins.is_empty() {
            *self = other;
            return;
        }
        while self.shift < other.shift {
            self.coarsen();
        }
        while other.shift < self.shift {
            other.coarsen();
        }
        if aligned {
            other.first = self.first;
        }
        let capacity = self.capacity as i64;
        let end = |bins: &Self| bins.first + bins.bins.len() as i64;
        while end(self).max(end(&other)) - self.first.min(other.first) > capacity {
            self.coarsen();
            other.coarsen();
        }
        let first = self.first.min(other.first);
        let mut bins = vec![T::default(); (end(self).max(end(&other)) - first) as usize];
        for part in [&*self, &other] {
            for (offset, bin) in (part.first - first..).zip(&part.bins) {
                bins[offset as usize].add(bin);
            }
        }
        self.first = first;
        self.bins = bins;
    }

    /// Width of a bin in seconds.
    pub fn width_s(&self) -> f64 {
        self.width_ns() as f64 / 1e9
    }

    fn width_ns(&self) -> i128 {
        i128::from(self.narrowest) << self.shift
    }

    /// The bins in order, each with its start relative to `origin` and its width, in seconds. If the first bin begins before
    /// `origin`, it is cut there and is narrower.
    pub fn iter(&self, origin: Nanos) -> impl Iterator<Item = (f64, f64, &T)> {
        (self.first..).zip(&self.bins).map(move |(index, bin)| {
            let start_ns = i128::from(index) * self.width_ns() - i128::from(origin.0);
            let end_ns = (start_ns + self.width_ns()).max(1);
            (start_ns.max(0) as f64 / 1e9, (end_ns - start_ns.max(0)) as f64 / 1e9, bin)
        })
    }

    /// Calls `change` on every bin.
    pub fn for_each_mut(&mut self, change: impl FnMut(&mut T)) {
        self.bins.iter_mut().for_each(change);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl BinContent for u64 {
        fn add(&mut self, other: &Self) {
            *self += other;
        }
    }

    proptest! {
        #[test]
        fn pieces_merge_to_the_bins_of_the_whole(
            mut times in prop::collection::vec(-2_000_000_000_000_i64..2_000_000_000_000, 1..60), cut in 0_usize..60,
        ) {
            times.sort_unstable();
            let cut = cut.min(times.len());
            let profile = |times: &[i64]| {
                let mut bins = CoarseningBins::<u64>::new(16);
                for time in times {
                    *bins.at(Nanos(*time)) += 1;
                }
                bins
            };
            let mut merged = profile(&times[..cut]);
            merged.merge(profile(&times[cut..]), false);
            let whole = profile(&times);
            prop_assert_eq!((merged.shift, merged.first, &merged.bins), (whole.shift, whole.first, &whole.bins));
            prop_assert_eq!(whole.bins.iter().sum::<u64>(), times.len() as u64);
            prop_assert!(whole.bins.len() <= 16);
        }
    }
}
