//! Sleep threshold and wake-up time, from the delays between start and issue of requests after idle gaps.

use crate::statistics::median;

/// An idle gap, and the delay from start to issue of the request after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub gap_us: f64,
    pub delay_us: f64,
    /// Whether the delay is that of a wake-up, by [`woken_above`].
    pub woken: bool,
}

/// Sleep threshold and wake-up time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerFit {
    /// Idle time after which it sleeps.
    pub sleep_after_us: f64,
    /// Time to wake it.
    pub wake_us: f64,
}

/// Least wake-up time that is distinguished from ordinary delays, in us, above three times the median.
const LEAST_WAKE_US: f64 = 200.0;
/// Least number of woken requests for a fit.
const ENOUGH: usize = 10;
/// Least share of woken requests among those after long gaps.
const MOSTLY: f64 = 0.6;

/// The delay above which a request of an operation with these delays has been woken.
pub(crate) fn woken_above(mut delays_us: Vec<f64>) -> f64 {
    3.0 * median(&mut delays_us) + LEAST_WAKE_US
}

/// The gap that separates woken requests from others with the fewest misclassified, at the geometric mean of the gaps on
/// both sides; `None` where the delays show no sleep.
pub(crate) fn fit(waits: &[Wait]) -> Option<PowerFit> {
    let mut by_gap: Vec<Wait> = waits.iter().copied().filter(|wait| wait.gap_us > 0.0).collect();
    by_gap.sort_by(|one, other| one.gap_us.total_cmp(&other.gap_us));
    let all_woken = by_gap.iter().filter(|wait| wait.woken).count();
    // A threshold below every gap misclassifies each request that was not woken.
    let mut mistakes = by_gap.len() - all_woken;
    let mut best = (mistakes, 0);
    for (i, wait) in by_gap.iter().enumerate() {
        if wait.woken {
            mistakes += 1;
        } else {
            mistakes -= 1;
        }
        if mistakes < best.0 {
            best = (mistakes, i + 1);
        }
    }
    let (short, long) = by_gap.split_at(best.1);
    let mut waking: Vec<f64> = long.iter().filter(|wait| wait.woken).map(|wait| wait.delay_us).collect();
    if waking.len() < ENOUGH || (waking.len() as f64) < MOSTLY * long.len() as f64 {
        return None;
    }
    let usual = median(&mut short.iter().map(|wait| wait.delay_us).collect::<Vec<_>>());
    let before = short.last().map_or(long[0].gap_us, |wait| wait.gap_us);
    Some(PowerFit {
        sleep_after_us: (before * long[0].gap_us).sqrt(),
        wake_us: (median(&mut waking) - usual).max(0.0),
    })
}
