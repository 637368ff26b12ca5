//! Exact integer arithmetic for the synthesis: divides totals into shares, takes evenly spaced values from a weighted list (strata), and
//! shuffles. Also contains compact histograms of a trace.

use std::collections::BTreeMap;

use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// The random number generator of a synthesis.
pub(crate) struct SynthesisRng(Pcg64);

impl SynthesisRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Pcg64::seed_from_u64(seed))
    }

    /// Draws a random number below `limit`; 0 if `limit` is 0. The bias is at most 2^-40 for limits below 2^24, which has no effect on
    /// counts.
    #[inline]
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(limit)) >> 64) as u64
    }

    /// True with the probability `part / whole`; never if `part` is 0, always if it is at least `whole`.
    #[inline]
    pub(crate) fn chance(&mut self, part: u64, whole: u64) -> bool {
        part > 0 && self.below(whole) < part
    }

    pub(crate) fn shuffle<T>(&mut self, values: &mut [T]) {
        for i in (1..values.len()).rev() {
            values.swap(i, self.below(i as u64 + 1) as usize);
        }
    }

    /// Chooses `count` of `positions` at random (Knuth's algorithm S).
    pub(crate) fn choose(&mut self, positions: &[usize], count: usize) -> Vec<usize> {
        self.choose_groups(positions, count, 1)
    }

    /// Chooses `count` of `positions` at random, in groups of `size` neighbours; the last group chosen may be smaller.
    pub(crate) fn choose_groups(&mut self, positions: &[usize], count: usize, size: usize) -> Vec<usize> {
        let count = count.min(positions.len());
        let groups = positions.len().div_ceil(size);
        let mut chosen = Vec::with_capacity(count);
        for (i, group) in positions.chunks(size).enumerate() {
            let wanted = (count - chosen.len()).div_ceil(size);
            if self.chance(wanted as u64, (groups - i) as u64) {
                chosen.extend_from_slice(&group[..group.len().min(count - chosen.len())]);
            }
        }
        // The last group may be shorter than the others. If it was chosen, the missing positions are added here.
        let mut rest = positions.iter().filter(|position| chosen.binary_search(position).is_err());
        let missing: Vec<usize> = rest.by_ref().take(count - chosen.len()).copied().collect();
        chosen.extend(missing);
        chosen
    }
}

/// `total * part / whole`, rounded down, without overflow.
pub(crate) fn fraction(total: u64, part: u64, whole: u64) -> u64 {
    (u128::from(total) * u128::from(part) / u128::from(whole.max(1))).min(u128::from(u64::MAX)) as u64
}

/// The share of part number `part`, if `total` is divided into `parts` equal parts. The shares add up to `total`.
pub(crate) fn share(total: u64, part: u64, parts: u64) -> u64 {
    fraction(total, part + 1, parts) - fraction(total, part, parts)
}

/// `percent` of `total`, rounded to the nearest integer.
pub(crate) fn percent_of(total: u64, percent: f64) -> u64 {
    // The percentage is converted to millionths, so that all products are integers.
    let millionths = (percent * 1e4).round() as u64;
    ((u128::from(total) * u128::from(millionths) + 500_000) / 1_000_000) as u64
}

/// Changes `values` proportionally, so that their sum is `total`.
pub(crate) fn scale_to(values: &mut [u64], total: u64) {
    let sum: u128 = values.iter().map(|value| u128::from(*value)).sum();
    let count = values.len() as u64;
    if sum == 0 {
        for (i, value) in values.iter_mut().enumerate() {
            *value = share(total, i as u64, count);
        }
        return;
    }
    let (mut before, mut dealt) = (0_u128, 0_u64);
    for value in values {
        before += u128::from(*value);
        let upto = (before * u128::from(total) / sum) as u64;
        *value = upto - dealt;
        dealt = upto;
    }
}

/// Returns every `step`-th of `count` evenly spaced values (quantiles) of a weighted list, beginning with number `first`. The result is
/// ascending.
pub(crate) fn strata(pairs: &[(u64, u64)], count: u64, first: u64, step: u64) -> Vec<u64> {
    let weight: u64 = pairs.iter().fold(0, |sum, pair| sum.saturating_add(pair.1));
    let mut out = Vec::with_capacity((count.saturating_sub(first) / step.max(1)) as usize + 1);
    let (mut at, mut upto) = (0, pairs.first().map_or(0, |pair| pair.1));
    let mut k = first;
    while k < count && at < pairs.len() {
        let position = (u128::from(2 * k + 1) * u128::from(weight) / u128::from(2 * count)) as u64;
        while position >= upto && at + 1 < pairs.len() {
            at += 1;
            upto = upto.saturating_add(pairs[at].1);
        }
        out.push(pairs[at].0);
        k += step;
    }
    out
}

/// The distinct values that [`strata`] returns, each with its count.
pub(crate) fn strata_counts(pairs: &[(u64, u64)], count: u64, first: u64, step: u64) -> Vec<(u64, u64)> {
    let weight: u128 = pairs.iter().map(|pair| u128::from(pair.1)).sum();
    let taken = |below: u64| if below > first { (below - first).div_ceil(step.max(1)) } else { 0 };
    let (mut upto, mut before) = (0_u128, 0);
    pairs
        .iter()
        .map(|(value, own)| {
            upto += u128::from(*own);
            // Number of sample positions below `upto`. Sample k is at the middle of the kth of `count` equal parts of the total weight: (2k
            // + 1) * weight / (2 * count), rounded down.
            let below = ((2 * u128::from(count) * upto).div_ceil(weight.max(1)) / 2).min(u128::from(count));
            let behind = taken(below as u64);
            (*value, behind - std::mem::replace(&mut before, behind))
        })
        .collect()
}

/// Draws values from a weighted list.
pub(crate) struct WeightedSampler {
    values: Vec<u64>,
    /// Sum of the weights up to and including each value.
    upto: Vec<u64>,
}

impl WeightedSampler {
    pub(crate) fn new(pairs: &[(u64, u64)]) -> Self {
        let mut sum = 0_u64;
        let upto = pairs.iter().map(|(_, weight)| {
            sum = sum.saturating_add(*weight);
            sum
        });
        Self { upto: upto.collect(), values: pairs.iter().map(|(value, _)| *value).collect() }
    }

    /// Draws a random value; 0 if the list is empty.
    #[inline]
    pub(crate) fn draw(&self, dice: &mut SynthesisRng) -> u64 {
        let at = dice.below(self.upto.last().copied().unwrap_or(0));
        self.values.get(self.upto.partition_point(|upto| *upto <= at)).copied().unwrap_or(0)
    }
}

/// `count` evenly spaced values of a weighted list, each changed by up to a sixteenth, in random order.
pub(crate) fn scatter(pairs: &[(u64, u64)], count: u64, dice: &mut SynthesisRng) -> Vec<u64> {
    let mut values = strata(pairs, count, 0, 1);
    for value in &mut values {
        *value = *value - *value / 16 + fraction(*value / 8, dice.below(1 << 10), 1 << 10);
    }
    dice.shuffle(&mut values);
    values
}

/// Maximum number of distinct values in a list; if there are more, neighbouring values are joined.
const MOST_SIZES: usize = 400;

/// The count and the sum of the values in each class; a class is an eighth of an octave wide.
#[derive(Default)]
pub(crate) struct OctaveHistogram(BTreeMap<u64, (u64, u128)>);

impl OctaveHistogram {
    pub(crate) fn push(&mut self, value: u64, weight: u64) {
        let octave = value.max(1).ilog2();
        let class = u64::from(octave) << 3 | ((u128::from(value.max(1)) << 3 >> octave) as u64 & 7);
        let entry = self.0.entry(class).or_default();
        *entry = (entry.0 + weight, entry.1 + u128::from(value) * u128::from(weight));
    }

    /// The mean and the count of each class of the histogram.
    pub(crate) fn means(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.values().map(|(count, sum)| ((sum / u128::from(*count)) as u64, *count))
    }

    /// Mean of each class of the histogram, divided by `per_unit` and rounded to a thousandth, with the count of the class as weight. An
    /// empty histogram gives the value `default`.
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

/// Rounds `value` to a multiple of `1 / steps`, so that models are readable.
pub(crate) fn round(value: f64, steps: f64) -> f64 {
    (value * steps).round() / steps
}

/// Merges neighbouring values of an ascending list. Values up to 16 and the greatest value stay separate. For other values, each octave is
/// divided into `2^steps` classes, and the mean of each class replaces its values.
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

/// Converts sizes in sectors, with their counts, to sizes in KB as in a model file.
pub(crate) fn sizes_kb(sizes: &BTreeMap<u64, u64>) -> Vec<(f64, u64)> {
    let mut pairs: Vec<(u64, u64)> = sizes.iter().map(|(sectors, count)| (*sectors, *count)).collect();
    if pairs.len() > MOST_SIZES {
        pairs = join(&pairs, 4);
    }
    pairs.into_iter().map(|(sectors, count)| (sectors as f64 / 2.0, count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaling_keeps_the_total() {
        let mut values = vec![0, 7, 1, 0, 92];
        scale_to(&mut values, 1_001);
        assert_eq!(values.iter().sum::<u64>(), 1_001);
        assert_eq!(values[0], 0);
        let mut zeros = vec![0; 3];
        scale_to(&mut zeros, 10);
        assert_eq!(zeros, [3, 3, 4]);
    }

    #[test]
    fn strata_at_the_own_length_are_the_list_itself() {
        let pairs = [(4, 3), (8, 2), (64, 1)];
        assert_eq!(strata(&pairs, 6, 0, 1), [4, 4, 4, 8, 8, 64]);
        assert_eq!(strata(&pairs, 6, 1, 2), [4, 8, 64]);
        assert_eq!(strata(&pairs, 3, 0, 1), [4, 8, 64]);
    }

    #[test]
    fn counts_of_strata_are_those_of_the_list() {
        let pairs = [(4, 13), (8, 2), (12, 5), (64, 1)];
        for (count, first, step) in [(21, 0, 1), (7, 0, 1), (100, 3, 7), (1_000, 0, 3), (5, 4, 5), (0, 0, 1)] {
            let list = strata(&pairs, count, first, step);
            let counts = pairs.map(|(value, _)| (value, list.iter().filter(|own| **own == value).count() as u64));
            assert_eq!(strata_counts(&pairs, count, first, step), counts, "{count} {first} {step}");
        }
    }

    #[test]
    fn draws_follow_the_weights() {
        let (list, mut dice) = (WeightedSampler::new(&[(3, 1), (9, 3)]), SynthesisRng::new(1));
        let nines = (0..4_000).filter(|_| list.draw(&mut dice) == 9).count();
        assert!((2_900..3_100).contains(&nines), "{nines}");
        assert_eq!(WeightedSampler::new(&[]).draw(&mut dice), 0);
    }

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
