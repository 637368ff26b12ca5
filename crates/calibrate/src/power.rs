//! Sleep threshold and cost of waking, from how long requests waited between start and issue after idle gaps.

use crate::statistics::median;

/// A gap without work and what the next request waited to be issued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub gap_us: f64,
    pub delay_us: f64,
    /// Whether that is far more than usual for the operation.
    pub woken: bool,
}

/// When a device falls asleep and what waking it costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerFit {
    /// Idle time after which it sleeps.
    pub sleep_after_us: f64,
    /// Time to wake it.
    pub wake_us: f64,
}

/// A wait this long above the usual one is no ordinary one.
const LEAST_WAKE_US: f64 = 200.0;
/// Fewer woken requests than this show nothing.
const ENOUGH: usize = 10;
/// Share of the requests after long gaps that has to be woken.
const MOSTLY: f64 = 0.6;

/// The delay above which a request of an operation with these delays has been woken.
pub(crate) fn woken_above(mut delays_us: Vec<f64>) -> f64 {
    3.0 * median(&mut delays_us) + LEAST_WAKE_US
}

/// The threshold that parts the woken from the others with the fewest mistakes, in the middle (of the logarithm) of the
/// gaps on both sides; `None` where nothing is seen of sleep.
pub(crate) fn fit(waits: &[Wait]) -> Option<PowerFit> {
    let mut by_gap: Vec<Wait> = waits.iter().copied().filter(|wait| wait.gap_us > 0.0).collect();
    by_gap.sort_by(|one, other| one.gap_us.total_cmp(&other.gap_us));
    let all_woken = by_gap.iter().filter(|wait| wait.woken).count();
    // With the threshold before everything, whoever did not wake is a mistake.
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
