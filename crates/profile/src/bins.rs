//! Counts in ranges that double: the bins of the paper's figures.

use std::ops::Range;

/// Counts in `N` ranges above `UNIT`: bin 0 holds values up to `UNIT`, bin `k` those in `(UNIT 2^(k-1), UNIT 2^k]`,
/// the last one everything above its lower edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Doubling<const UNIT: u64, const N: usize>([u64; N]);

impl<const UNIT: u64, const N: usize> Default for Doubling<UNIT, N> {
    fn default() -> Self {
        Self([0; N])
    }
}

/// One range: `low < value <= high`, `high` is `None` in the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bin {
    pub low: u64,
    pub high: Option<u64>,
    pub count: u64,
}

impl<const UNIT: u64, const N: usize> Doubling<UNIT, N> {
    /// The bin of a value.
    #[inline]
    pub fn index(value: u64) -> usize {
        let above = value.saturating_sub(1) / UNIT;
        (u64::BITS - above.leading_zeros()).min(N as u32 - 1) as usize
    }

    /// Adds `count` to the bin of `value`.
    #[inline]
    pub fn add(&mut self, value: u64, count: u64) {
        self.0[Self::index(value)] += count;
    }

    /// Adds `count` to the bin `index`.
    #[inline]
    pub fn add_at(&mut self, index: usize, count: u64) {
        self.0[index] += count;
    }

    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine += theirs;
        }
    }

    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The count in bin `index`.
    pub fn at(&self, index: usize) -> u64 {
        self.0[index]
    }

    /// The lower and upper edge of bin `index`.
    pub fn edges(index: usize) -> (u64, Option<u64>) {
        let low = if index == 0 { 0 } else { UNIT << (index - 1) };
        (low, (index < N - 1).then_some(UNIT << index))
    }

    /// All bins in order.
    pub fn bins(&self) -> impl Iterator<Item = Bin> + '_ {
        self.0.iter().enumerate().map(|(index, &count)| {
            let (low, high) = Self::edges(index);
            Bin { low, high, count }
        })
    }

    /// The indices from the first to the last bin that holds something.
    pub fn used(&self) -> Range<usize> {
        let first = self.0.iter().position(|count| *count > 0);
        let last = self.0.iter().rposition(|count| *count > 0);
        first.zip(last).map_or(0..0, |(first, last)| first..last + 1)
    }
}

/// The name of a range in `unit`.
pub(crate) fn label(low: f64, high: Option<f64>, unit: &str) -> String {
    match high {
        Some(high) if low == 0.0 => format!("<= {high} {unit}"),
        Some(high) => format!("{low} - {high} {unit}"),
        None => format!("> {low} {unit}"),
    }
}

/// `part` of `whole` in percent; `None` where there is no whole.
pub(crate) fn pct(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_an_edge_belongs_to_the_range_below_it() {
        type Kb = Doubling<4, 4>;
        assert_eq!([0, 1, 4, 5, 8, 9, 16, 17, u64::MAX].map(Kb::index), [0, 0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!((0..4).map(Kb::edges).next_back(), Some((16, None)));
    }
}
