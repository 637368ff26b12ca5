//! Random times from a distribution.

use emmclab_base::Nanos;

use crate::geometry::nanos;
use emmclab_settings::TimeQuantile;

/// Resolution of a distribution: a draw is one of this many equal steps.
const STEPS: u32 = 1 << 16;

/// A distribution, and the number of draws so far.
#[derive(Clone, Debug)]
pub(crate) struct TimeSampler {
    /// Cumulative shares in units of 1 / [`STEPS`], each with its quantile.
    points: Vec<(u32, Nanos)>,
    seed: u64,
    drawn: u64,
}

impl TimeSampler {
    pub fn new(points: &[TimeQuantile], seed: u64) -> Self {
        let step = |pct: f64| (pct / 100.0 * f64::from(STEPS)).round() as u32;
        let points = points.iter().map(|point| (step(point.up_to_pct), nanos(point.us))).collect();
        Self { points, seed, drawn: 0 }
    }

    /// Continues after the draws of another distribution.
    pub fn continue_from(&mut self, other: &Self) {
        self.drawn = other.drawn;
    }

    pub fn rewind(&mut self) {
        self.drawn = 0;
    }

    /// Whether there is no distribution.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// The next time: the quantile at a number derived from the seed and the number of draws so far; 0 without a distribution.
    #[inline]
    pub fn draw(&mut self) -> Nanos {
        if self.is_empty() { Nanos::ZERO } else { self.draw_one() }
    }

    fn draw_one(&mut self) -> Nanos {
        let drawn = (mix(self.seed ^ mix(self.drawn)) >> 48) as u32;
        self.drawn += 1;
        let at = self.points.partition_point(|(up_to, _)| *up_to <= drawn).min(self.points.len() - 1);
        let (to, most) = self.points[at];
        let (from, least) = if at == 0 { (0, most) } else { self.points[at - 1] };
        least + Nanos((most - least).0 * i64::from(drawn.saturating_sub(from)) / i64::from((to - from).max(1)))
    }
}

/// A bijection that spreads neighbouring numbers over all 64 bits (the finaliser of `SplitMix64`).
pub(crate) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
