//! Median, mean, and draws below a bound.

use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

/// A uniformly distributed random number below `bound`.
pub(crate) fn below(random: &mut Pcg64, bound: usize) -> usize {
    (((random.next_u64() >> 32) * bound as u64) >> 32) as usize
}

/// The arithmetic mean; `None` if empty.
pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The median; 0 if empty.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}

/// The same number of values, drawn with replacement.
pub(crate) fn resampled<T: Copy>(values: &[T], random: &mut Pcg64) -> Vec<T> {
    (0..values.len()).map(|_| values[below(random, values.len())]).collect()
}
