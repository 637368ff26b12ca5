//! The number of misses of a cache, counted or estimated from a sample of the pages.

use crate::page_hash::{Key, group_of};

/// Number of groups of sampled pages; their differences give the error of an estimate.
pub(crate) const GROUPS: usize = 16;
/// 97.5 % quantile of Student's t distribution with `GROUPS - 1` degrees of freedom.
const T_QUANTILE: f64 = 2.131;

/// Misses of a cache, or the difference between those of two.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MissEstimate {
    /// Those that were counted while all pages were simulated.
    counted: i64,
    /// Those of sampled pages by group, each times the number of pages for which it stands.
    sampled: [i64; GROUPS],
    /// At worst, one page in `2^shift` was simulated.
    pub shift: u32,
}

impl MissEstimate {
    /// Counts a miss of a page of a sample of one in `2^shift`.
    #[inline]
    pub fn count(&mut self, page: Key, shift: u32) {
        if shift == 0 {
            self.counted += 1;
        } else {
            self.sampled[group_of(page)] += 1 << shift;
            self.shift = shift;
        }
    }

    pub fn plus(self, other: &Self) -> Self {
        self.add_signed(other, 1)
    }

    pub fn minus(self, other: &Self) -> Self {
        self.add_signed(other, -1)
    }

    fn add_signed(mut self, other: &Self, sign: i64) -> Self {
        self.counted += sign * other.counted;
        for (mine, others) in self.sampled.iter_mut().zip(other.sampled) {
            *mine += sign * others;
        }
        self.shift = self.shift.max(other.shift);
        self
    }

    pub fn total(&self) -> u64 {
        (self.counted + self.sampled.iter().sum::<i64>()).max(0) as u64
    }

    /// Half of the 95 % confidence interval of the total: each group is an independent sample of the pages.
    pub fn error(&self) -> f64 {
        let groups = GROUPS as f64;
        let mean = self.sampled.iter().sum::<i64>() as f64 / groups;
        let squares: f64 = self.sampled.iter().map(|group| (*group as f64 - mean).powi(2)).sum();
        T_QUANTILE * (squares * groups / (groups - 1.0)).sqrt()
    }
}
