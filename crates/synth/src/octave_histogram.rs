//! Distributions of a trace in little memory.

use std::collections::BTreeMap;

/// Maximum number of distinct values in a list; if there are more, neighbours are joined.
const MOST_SIZES: usize = 400;

/// Values in classes of an eighth of an octave: how many there are in each, and their sum.
#[derive(Default)]
pub(crate) struct OctaveHistogram(BTreeMap<u64, (u64, u128)>);

impl OctaveHistogram {
    pub(crate) fn push(&mut self, value: u64, weight: u64) {
        let octave = value.max(1).ilog2();
        let class = u64::from(octave) << 3 | ((u128::from(value.max(1)) << 3 >> octave) as u64 & 7);
        let entry = self.0.entry(class).or_default();
        *entry = (entry.0 + weight, entry.1 + u128::from(value) * u128::from(weight));
    }

    /// Means of the classes, and their weights.
    pub(crate) fn means(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.values().map(|(count, sum)| ((sum / u128::from(*count)) as u64, *count))
    }

    /// The means divided by `per_unit` and rounded to a thousandth, with their weights; `default` if there are none.
    pub(crate) fn pairs(&self, per_unit: f64, default: f64) -> Vec<(f64, u64)> {
        let mut pairs: Vec<(f64, u64)> = Vec::new();
        for (mean, count) in self.means() {
            let mean = round(mean as f64 / per_unit, 1e3);
            match pairs.last_mut() {
                Some(last) if last.0 >= mean => last.1 += count,
                _ => pairs.push((mean, count)),
            }
        }
        if pairs.is_empty() {
            pairs.push((default, 1));
        }
        pairs
    }
}

/// Rounds `value` to a multiple of `1 / steps`, because people read models.
pub(crate) fn round(value: f64, steps: f64) -> f64 {
    (value * steps).round() / steps
}

/// Joins neighbours among ascending values. Values up to 16 stay; larger ones are joined to `2^steps` per octave, each
/// the mean of those that it replaces. The greatest value stays.
pub(crate) fn join(pairs: &[(u64, u64)], steps: u32) -> Vec<(u64, u64)> {
    let class = |value: u64| {
        let octave = value.max(16).ilog2();
        (octave, if value <= 16 { value } else { value >> octave.saturating_sub(steps) })
    };
    let Some((greatest, rest)) = pairs.split_last() else { return Vec::new() };
    let joined = rest.chunk_by(|a, b| class(a.0) == class(b.0)).map(|group| {
        let weight: u64 = group.iter().map(|pair| pair.1).sum();
        let sum: u128 = group.iter().map(|pair| u128::from(pair.0) * u128::from(pair.1)).sum();
        (((sum + u128::from(weight) / 2) / u128::from(weight)) as u64, weight)
    });
    joined.chain([*greatest]).collect()
}

/// Sizes in sectors as a list of a model.
pub(crate) fn sizes_kb(sizes: &BTreeMap<u64, u64>) -> Vec<(f64, u64)> {
    let mut pairs: Vec<(u64, u64)> = sizes.iter().map(|(sectors, count)| (*sectors, *count)).collect();
    if pairs.len() > MOST_SIZES {
        pairs = join(&pairs, 4);
    }
    pairs.into_iter().map(|(sectors, count)| (sectors as f64 / 2.0, count)).collect()
}

#[cfg(test)]
mod tests {
    use super::{OctaveHistogram, join};

    #[test]
    fn classes_keep_count_and_sum() {
        let mut classes = OctaveHistogram::default();
        (0..10_000).for_each(|value| classes.push(value, 2));
        assert_eq!(classes.means().map(|(_, count)| count).sum::<u64>(), 20_000);
        let sum: u64 = classes.means().map(|(mean, count)| mean * count).sum();
        assert!((99_900_000..=99_990_000).contains(&sum), "{sum}");
        assert!(classes.means().is_sorted_by(|a, b| a.0 < b.0) && classes.means().count() < 120);
    }

    #[test]
    fn joined_values_keep_weight_order_and_ends() {
        let pairs: Vec<(u64, u64)> = (1..5_000).map(|value| (value, value % 7 + 1)).collect();
        let joined = join(&pairs, 3);
        assert!(joined.len() < 100 && joined.is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!((joined[0], joined[joined.len() - 1]), (pairs[0], pairs[4_998]));
        let weight = |pairs: &[(u64, u64)]| pairs.iter().map(|pair| pair.1).sum::<u64>();
        assert_eq!(weight(&joined), weight(&pairs));
    }
}
