//! Quantities of a program: fixed, or drawn from a distribution. Each draw uses one random number of the thread's own generator and only
//! integer arithmetic. Runs with the same seed therefore get equal values on every machine.

use emmclab_base::ByteSize;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The random number generator of one thread.
#[derive(Clone, Debug)]
pub(crate) struct ThreadDraws(Pcg64);

impl ThreadDraws {
    /// Returns the generator of the thread with this number. Its draws are independent of the draws of other threads.
    pub(crate) fn of_thread(seed: u64, thread: u32) -> Self {
        Self(Pcg64::seed_from_u64(seed ^ u64::from(thread + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }

    /// Draws a number below `limit`; 0 if `limit` is 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(limit)) >> 64) as u64
    }
}

/// A value, or a distribution from which values are drawn: `5`, `{ uniform = [2, 9] }` (both ends included) or `{ choices = [[4, 70], [16,
/// 30]] }` (values with weights).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "a value, `{ uniform = [smallest, largest] }` or `{ choices = [[value, weight], ...] }` is expected here"
)]
pub enum Amount<T> {
    /// The value itself, without a draw.
    Fixed(T),
    /// A distribution from which a new value is drawn for each use.
    Drawn(ValueDistribution<T>),
}

/// A distribution of values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ValueDistribution<T> {
    /// All values from the first to the second are equally probable.
    Uniform([T; 2]),
    /// Values with their weights: a value is drawn with a probability proportional to its weight.
    Choices(Vec<(T, u32)>),
}

/// A quantity that can be drawn from a distribution. The engine uses it as an integer number of bytes, nanoseconds or items.
pub trait DrawableQuantity: Copy {
    /// The value as an integer in the engine's unit (bytes, nanoseconds or items).
    fn units(self) -> u64;

    /// Whether the value is allowed in a program.
    fn is_possible(self) -> bool {
        true
    }
}

impl DrawableQuantity for u64 {
    fn units(self) -> u64 {
        self
    }
}

/// A number of bytes.
impl DrawableQuantity for ByteSize {
    fn units(self) -> u64 {
        self.0
    }
}

/// Maximum duration of a step, in nanoseconds: 11 days.
const MOST_NS: f64 = 1e15;

/// A duration in milliseconds, converted to nanoseconds.
impl DrawableQuantity for f64 {
    fn units(self) -> u64 {
        (self * 1e6).round().clamp(0.0, MOST_NS) as u64
    }

    fn is_possible(self) -> bool {
        (0.0..=MOST_NS / 1e6).contains(&self)
    }
}

impl<T: DrawableQuantity> Amount<T> {
    /// The distribution as integers in the engine's unit (bytes, nanoseconds or items).
    pub(crate) fn resolved(&self) -> IntegerDistribution {
        match self {
            Self::Fixed(value) => IntegerDistribution::Fixed(value.units()),
            Self::Drawn(ValueDistribution::Uniform([from, to])) => {
                IntegerDistribution::Uniform(from.units(), to.units().saturating_sub(from.units()).saturating_add(1))
            }
            Self::Drawn(ValueDistribution::Choices(choices)) => {
                let mut sum = 0;
                let sums = choices.iter().map(|(value, weight)| {
                    sum += u64::from(*weight);
                    (sum, value.units())
                });
                IntegerDistribution::Choices(sums.collect())
            }
        }
    }

    /// Returns why the amount is not allowed, with a hint; `None` if it is allowed.
    pub(crate) fn fault(&self) -> Option<(&'static str, &'static str)> {
        let possible = match self {
            Self::Fixed(value) => value.is_possible(),
            Self::Drawn(ValueDistribution::Uniform(ends)) => ends.iter().all(|value| value.is_possible()),
            Self::Drawn(ValueDistribution::Choices(choices)) => choices.iter().all(|(value, _)| value.is_possible()),
        };
        if !possible {
            return Some(("a time must be from 0 to 1e9 ms", "give times in this range"));
        }
        match self {
            Self::Fixed(_) => None,
            Self::Drawn(ValueDistribution::Uniform([from, to])) => (from.units() > to.units())
                .then_some(("the first value of `uniform` is greater than the second", "write [smallest, largest]")),
            Self::Drawn(ValueDistribution::Choices(choices)) => choices
                .iter()
                .all(|(_, weight)| *weight == 0)
                .then_some(("`choices` have no weight above 0", "write [[value, weight], ...]")),
        }
    }

    /// The smallest and the largest value that can be drawn.
    pub(crate) fn range(&self) -> (u64, u64) {
        match self {
            Self::Fixed(value) => (value.units(), value.units()),
            Self::Drawn(ValueDistribution::Uniform([from, to])) => (from.units(), to.units()),
            Self::Drawn(ValueDistribution::Choices(choices)) => {
                let values = || choices.iter().map(|(value, _)| value.units());
                (values().min().unwrap_or(0), values().max().unwrap_or(0))
            }
        }
    }
}

/// A distribution of integers in the engine's unit (bytes, nanoseconds or items).
#[derive(Clone, Debug)]
pub(crate) enum IntegerDistribution {
    Fixed(u64),
    /// The smallest value, and the number of values.
    Uniform(u64, u64),
    /// The values, each preceded by the sum of the weights of all values up to and including it.
    Choices(Box<[(u64, u64)]>),
}

impl IntegerDistribution {
    pub(crate) fn draw(&self, draws: &mut ThreadDraws) -> u64 {
        match self {
            Self::Fixed(value) => *value,
            Self::Uniform(from, count) => from + draws.below(*count),
            Self::Choices(sums) => {
                let whole = sums.last().map_or(0, |(sum, _)| *sum);
                let at = draws.below(whole);
                let place = sums.partition_point(|(sum, _)| *sum <= at);
                sums.get(place).map_or(0, |(_, value)| *value)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn choices_come_by_their_weights() {
        let amount = Amount::Drawn(ValueDistribution::Choices(vec![(7_u64, 1), (9, 0), (8, 3)])).resolved();
        let mut draws = ThreadDraws::of_thread(1, 0);
        let drawn: Vec<_> = (0..4000).map(|_| amount.draw(&mut draws)).collect();
        let count = |value| drawn.iter().filter(|other| **other == value).count();
        assert_eq!(count(9), 0);
        assert_eq!(count(7) + count(8), 4000);
        assert!((900..1100).contains(&count(7)), "{}", count(7));
    }

    proptest! {
        #[test]
        fn a_uniform_draw_lies_between_its_ends_and_reaches_both(from in 0_u64..50, more in 0_u64..5, seed: u64) {
            let amount = Amount::Drawn(ValueDistribution::Uniform([from, from + more]));
            prop_assert!(amount.fault().is_none());
            let resolved = amount.resolved();
            let mut draws = ThreadDraws::of_thread(seed, 3);
            let drawn: Vec<_> = (0..400).map(|_| resolved.draw(&mut draws)).collect();
            prop_assert_eq!(drawn.iter().min(), Some(&from));
            prop_assert_eq!(drawn.iter().max(), Some(&amount.range().1));
        }
    }
}
