//! Distributions over blocks.

use schemars::JsonSchema;
use serde::Serialize;

/// Blocks by a value, in equal steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(extend("whole" = true))]
pub struct BlockDistribution {
    /// Smallest value.
    pub min: u32,
    /// Largest value.
    pub max: u32,
    /// Mean value.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
    /// Lower bound of each step.
    pub from: Vec<u32>,
    /// Blocks in each step.
    pub blocks: Vec<u64>,
}

/// Steps of a distribution.
const STEPS: u64 = 20;

impl BlockDistribution {
    pub(super) fn of(values: impl Iterator<Item = u32> + Clone) -> Self {
        let count = values.clone().count() as f64;
        if count == 0.0 {
            return Self::default();
        }
        let (mut min, mut max, mut sum, mut squares) = (u32::MAX, 0, 0.0, 0.0);
        for value in values.clone() {
            min = min.min(value);
            max = max.max(value);
            sum += f64::from(value);
            squares += f64::from(value) * f64::from(value);
        }
        let step = (u64::from(max - min) + 1).div_ceil(STEPS);
        let steps = (u64::from(max - min) + 1).div_ceil(step);
        let mut blocks = vec![0; steps as usize];
        for value in values {
            blocks[(u64::from(value - min) / step) as usize] += 1;
        }
        let mean = sum / count;
        Self {
            min,
            max,
            mean,
            deviation: (squares / count - mean * mean).max(0.0).sqrt(),
            from: (0..steps).map(|i| min + (i * step) as u32).collect(),
            blocks,
        }
    }
}
