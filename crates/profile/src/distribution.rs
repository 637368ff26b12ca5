//! A distribution of durations or sizes: the sum is exact, percentiles are from an HDR histogram.

use hdrhistogram::Histogram;

use crate::report::Quantiles;

/// The histogram has values from 0 to 2^46 (20 hours in nanoseconds) with three digits; larger values count as the largest. It needs about
/// 300 KB, which are allocated with the first value.
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

    /// A nearest-rank quantile (0 to 1), in units of `unit`. It is the lower end of the histogram's bucket, so that integer sizes remain
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
