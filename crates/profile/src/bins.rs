//! Counts in bins of doubling width, as in the paper's figures, and HDR histograms.

use std::ops::Range;

use hdrhistogram::Histogram;

use crate::report::Quantiles;

/// Counts in `N` bins: bin 0 contains values up to `UNIT`, bin `k` values in `(UNIT 2^(k-1), UNIT 2^k]`, the last bin all values above its
/// lower edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DoublingBins<const UNIT: u64, const N: usize>([u64; N]);

impl<const UNIT: u64, const N: usize> Default for DoublingBins<UNIT, N> {
    fn default() -> Self {
        Self([0; N])
    }
}

/// A bin, which contains values with `low < value <= high`; `high` is `None` in the last bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DoublingBin {
    pub low: u64,
    pub high: Option<u64>,
    pub count: u64,
}

impl<const UNIT: u64, const N: usize> DoublingBins<UNIT, N> {
    #[inline]
    pub fn index(value: u64) -> usize {
        let above = value.saturating_sub(1) / UNIT;
        (u64::BITS - above.leading_zeros()).min(N as u32 - 1) as usize
    }

    #[inline]
    pub fn add(&mut self, value: u64, count: u64) {
        self.0[Self::index(value)] += count;
    }

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
    pub fn bins(&self) -> impl Iterator<Item = DoublingBin> + '_ {
        self.0.iter().enumerate().map(|(index, &count)| {
            let (low, high) = Self::edges(index);
            DoublingBin { low, high, count }
        })
    }

    /// The range of indices from the first to the last non-empty bin.
    pub fn used(&self) -> Range<usize> {
        let first = self.0.iter().position(|count| *count > 0);
        let last = self.0.iter().rposition(|count| *count > 0);
        first.zip(last).map_or(0..0, |(first, last)| first..last + 1)
    }
}

/// The octaves of [`QuarterOctaveBins`]: times from 1,024 ns to 2^36 ns (69 s).
const OCTAVES: std::ops::Range<u32> = 10..36;
/// Number of bins of [`QuarterOctaveBins`]: one below the first octave, four for each octave, one above the last.
const QUARTERS: usize = 4 * (OCTAVES.end - OCTAVES.start) as usize + 2;

/// Counts of times in quarters of octaves: each octave of nanoseconds is divided into four bins of equal width, so the width of a bin is at
/// most a quarter of its lower edge. As in [`DoublingBins`], the lower edge is exclusive and the upper edge inclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QuarterOctaveBins([u64; QUARTERS]);

impl Default for QuarterOctaveBins {
    fn default() -> Self {
        Self([0; QUARTERS])
    }
}

impl QuarterOctaveBins {
    #[inline]
    pub fn add(&mut self, ns: u64) {
        self.0[Self::index(ns)] += 1;
    }

    #[inline]
    fn index(ns: u64) -> usize {
        let below = ns.saturating_sub(1);
        let octave = (u64::BITS - 1).saturating_sub(below.leading_zeros());
        if octave < OCTAVES.start {
            return 0;
        }
        let quarter = (below >> (octave - 2)) & 3;
        (4 * (octave - OCTAVES.start) as usize + quarter as usize + 1).min(QUARTERS - 1)
    }

    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine += theirs;
        }
    }

    pub fn counts(&self) -> &[u64] {
        &self.0
    }

    /// Returns the upper edge, in ns, of the bin that contains this quantile; for the last bin, returns its lower edge. Returns `None`
    /// without values.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let wanted = (share * self.0.iter().sum::<u64>() as f64).ceil() as u64;
        let mut below = 0;
        let index = self.0.iter().position(|count| {
            below += count;
            *count > 0 && below >= wanted
        })?;
        Self::edges().nth(index.min(QUARTERS - 2))
    }

    /// The upper edges of all bins except the last, in nanoseconds.
    pub fn edges() -> impl Iterator<Item = u64> {
        let within = OCTAVES.flat_map(|octave| (4..8).map(move |quarter| quarter << (octave - 2)));
        within.chain([1 << OCTAVES.end])
    }
}

/// Spearman's rank correlation of the rows and columns of a table of counts: 1 if values in a higher row are always in a higher column.
/// Equal values get the mean of their ranks. `None` if all values are in one row or one column.
pub(crate) fn rank_correlation(table: &[&[u64]]) -> Option<f64> {
    let columns = table.iter().map(|row| row.len()).max()?;
    let of_rows: Vec<u64> = table.iter().map(|row| row.iter().sum()).collect();
    let of_columns: Vec<u64> = (0..columns).map(|at| table.iter().map(|row| row[at]).sum()).collect();
    let total: u64 = of_rows.iter().sum();
    // The mean is subtracted from the ranks, so that the sums do not grow with the square of the count.
    let centred = |counts: &[u64]| {
        let mut below = 0;
        let rank = |count: &u64| {
            let rank = below as f64 + *count as f64 / 2.0 - total as f64 / 2.0;
            below += count;
            rank
        };
        counts.iter().map(rank).collect::<Vec<_>>()
    };
    let (rows, columns) = (centred(&of_rows), centred(&of_columns));
    let spread =
        |ranks: &[f64], counts: &[u64]| ranks.iter().zip(counts).map(|(rank, count)| rank * rank * *count as f64).sum::<f64>();
    let both = spread(&rows, &of_rows) * spread(&columns, &of_columns);
    let together = table
        .iter()
        .zip(&rows)
        .map(|(counts, row)| row * counts.iter().zip(&columns).map(|(count, column)| column * *count as f64).sum::<f64>());
    (both > 0.0).then(|| together.sum::<f64>() / both.sqrt())
}

/// Units of time with their lengths in seconds, the longest first.
const TIMES: [(&str, f64); 7] =
    [("d", 86_400.0), ("h", 3_600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)];
/// Units of size in bytes, the largest first.
const SIZES: [(&str, f64); 4] = [("GB", 1_073_741_824.0), ("MB", 1_048_576.0), ("KB", 1_024.0), ("B", 1.0)];

/// The label of a range of times in seconds, in the unit that suits its upper edge.
pub(crate) fn time_label(low_s: f64, high_s: Option<f64>) -> String {
    label(low_s, high_s, &TIMES)
}

/// The label of a range of sizes in KB.
pub(crate) fn size_label(low_kb: f64, high_kb: Option<f64>) -> String {
    label(low_kb * 1_024.0, high_kb.map(|high| high * 1_024.0), &SIZES)
}

fn label(low: f64, high: Option<f64>, units: &[(&str, f64)]) -> String {
    let largest = high.unwrap_or(low);
    let fits = units.iter().find(|(_, length)| largest >= *length * (1.0 - 1e-9)).or(units.last());
    let (unit, length) = fits.copied().unwrap_or(("", 1.0));
    let low_text = three_digits(low / length);
    match high {
        Some(high) if low == 0.0 => format!("<= {} {unit}", three_digits(high / length)),
        Some(high) => format!("{low_text} - {} {unit}", three_digits(high / length)),
        None => format!("> {low_text} {unit}"),
    }
}

/// Formats a number with three significant digits, or with all digits before the decimal point.
fn three_digits(value: f64) -> String {
    let digits = value.abs().max(1e-9).log10().floor() as i32;
    let places = (2 - digits).clamp(0, 9) as usize;
    let text = format!("{value:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// `part` as a percentage of `whole`; `None` if `whole` is 0.
pub(crate) fn pct(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_an_edge_belongs_to_the_range_below_it() {
        type Kb = DoublingBins<4, 4>;
        assert_eq!([0, 1, 4, 5, 8, 9, 16, 17, u64::MAX].map(Kb::index), [0, 0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!((0..4).map(Kb::edges).next_back(), Some((16, None)));
    }

    #[test]
    fn a_time_lies_between_the_edges_of_its_quarter() {
        let edges: Vec<u64> = QuarterOctaveBins::edges().collect();
        assert_eq!((edges.len(), edges[0], edges[1], edges[4]), (QUARTERS - 1, 1_024, 1_280, 2_048));
        for ns in edges.iter().flat_map(|edge| [edge - 1, *edge, edge + 1]).chain([0, 1, 700, u64::MAX]) {
            let by_hand = edges.iter().position(|edge| ns <= *edge).unwrap_or(QUARTERS - 1);
            assert_eq!(QuarterOctaveBins::index(ns), by_hand, "{ns} ns");
        }
    }

    #[test]
    fn a_range_is_named_in_the_unit_that_suits_it() {
        for (low, high, name) in [
            (0.0, Some(0.001), "<= 1 ms"),
            (0.001, Some(0.002), "1 - 2 ms"),
            (0.000_5, Some(0.001), "0.5 - 1 ms"),
            (0.000_064, Some(0.000_128), "64 - 128 us"),
            (0.512, Some(1.024), "0.512 - 1.02 s"),
            (262.144, Some(524.288), "4.37 - 8.74 min"),
            (8192.0, None, "> 2.28 h"),
        ] {
            assert_eq!(time_label(low, high), name);
        }
        for (low, high, name) in [
            (0.0, Some(4.0), "<= 4 KB"),
            (64.0, Some(128.0), "64 - 128 KB"),
            (512.0, Some(1024.0), "0.5 - 1 MB"),
            (1024.0, None, "> 1 MB"),
        ] {
            assert_eq!(size_label(low, high), name);
        }
    }
}

/// A distribution of values as an HDR histogram from 0 to 2^46 (20 hours in nanoseconds) with three digits. Larger values count as the
/// largest possible value. It needs about 300 KB, which are allocated with the first value.
#[derive(Clone, Debug, Default)]
pub(crate) struct HdrDistribution {
    histogram: Option<Histogram<u64>>,
    count: u64,
    sum: u128,
    max: u64,
}

const LARGEST: u64 = 1 << 46;

fn empty() -> Histogram<u64> {
    match Histogram::new_with_bounds(1, LARGEST, 3) {
        Ok(histogram) => histogram,
        Err(error) => unreachable!("the bounds are constant and valid: {error}"),
    }
}

impl HdrDistribution {
    #[inline]
    pub fn add(&mut self, value: u64) {
        self.histogram.get_or_insert_with(empty).saturating_record(value);
        self.count += 1;
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
        if let Some(theirs) = &other.histogram {
            let mine = self.histogram.get_or_insert_with(empty);
            for value in theirs.iter_recorded() {
                mine.saturating_record_n(value.value_iterated_to(), value.count_at_value());
            }
        }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn sum(&self) -> u128 {
        self.sum
    }

    pub fn max(&self) -> u64 {
        self.max
    }

    /// The arithmetic mean.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// A nearest-rank quantile (0 to 1), in units of `unit`. The value is the lower end of a histogram bucket, so that integer sizes remain
    /// integers.
    pub fn quantile(&self, quantile: f64, unit: f64) -> Option<f64> {
        let histogram = self.histogram.as_ref()?;
        let value = histogram.lowest_equivalent(histogram.value_at_quantile(quantile));
        Some(value.min(self.max) as f64 / unit)
    }

    /// The usual percentiles in units of `unit`.
    pub fn quantiles(&self, unit: f64) -> Option<Quantiles> {
        self.histogram.as_ref()?;
        let at = |quantile| self.quantile(quantile, unit).unwrap_or(0.0);
        Some(Quantiles {
            mean: self.mean()? / unit,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            max: self.max as f64 / unit,
        })
    }
}
