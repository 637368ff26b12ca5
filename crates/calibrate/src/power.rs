//! Fits sleep and stalls of a device. Sleep: the idle threshold and the wake-up time follow from the delays between start and issue after
//! idle gaps. Stalls are requests that took far longer than others of their operation and size. The model does not simulate their cause,
//! but adds times drawn from their distribution.

use emmclab_trace::Op;

use crate::fit::{CalibrationStallRow, ENOUGH, FEW};
use crate::samples::{SampleGroup, median};

/// An idle gap of the device, and the delay from start to issue of the request that ended the gap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdleGapDelay {
    pub gap_us: f64,
    pub delay_us: f64,
    /// Whether the delay shows that the device slept: it is longer than an awake device needs, according to [`woken_above`].
    pub woken: bool,
}

/// Fitted idle threshold for sleep and fitted wake-up time of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct PowerFit {
    /// Idle time after which the device sleeps, in us.
    pub sleep_after_us: f64,
    /// Median wake-up time, in us.
    pub wake_us: f64,
    /// Distribution of the wake-up time as points, each a cumulative share in percent and a time in us. Values between points are
    /// interpolated linearly.
    pub wake_quantiles: Vec<(f64, f64)>,
}

/// A delay counts as a wake-up if it is longer than three times the median delay plus this time, in us.
const LEAST_WAKE_US: f64 = 200.0;
/// Minimum number of requests with a wake-up for fitting the sleep parameters.
const ENOUGH_WAKES: usize = 10;
/// Minimum share of requests with a wake-up among those after long idle gaps.
const MOSTLY: f64 = 0.6;

/// Returns the delay in us above which a request is assumed to have waited for a wake-up, given all delays of an operation.
pub(crate) fn woken_above(mut delays_us: Vec<f64>) -> f64 {
    3.0 * median(&mut delays_us) + LEAST_WAKE_US
}

/// Fits the idle threshold and the wake-up time of a device. The threshold is the idle time that best separates the requests that woke the
/// device from the others. It is the geometric mean of the two adjacent idle gaps. `None` if the delays show no sleep.
pub(crate) fn fit(waits: &[IdleGapDelay]) -> Option<PowerFit> {
    let mut by_gap: Vec<IdleGapDelay> = waits.iter().copied().filter(|wait| wait.gap_us > 0.0).collect();
    by_gap.sort_by(|a, b| a.gap_us.total_cmp(&b.gap_us));
    let all_woken = by_gap.iter().filter(|wait| wait.woken).count();
    // If the threshold is below all idle gaps, every request is expected to wake the device. Requests that did not wake it count as
    // mistakes.
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
    if waking.len() < ENOUGH_WAKES || (waking.len() as f64) < MOSTLY * long.len() as f64 {
        return None;
    }
    let usual = median(&mut short.iter().map(|wait| wait.delay_us).collect::<Vec<_>>());
    for delay in &mut waking {
        *delay = (*delay - usual).max(0.0);
    }
    let before = short.last().map_or(long[0].gap_us, |wait| wait.gap_us);
    Some(PowerFit {
        sleep_after_us: (before * long[0].gap_us).sqrt(),
        wake_us: median(&mut waking),
        wake_quantiles: quantiles(&waking),
    })
}

/// Cumulative shares of the points that are stored for a distribution of wake-up times. The longest times are stored in addition.
const SHARES: [f64; 8] = [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98];
/// Number of the longest times that are stored individually, because a few of them determine the mean.
const LONGEST: usize = 3;
/// Two adjacent points of a distribution are connected by a step instead of a line if their times differ by more than this factor.
const STEP: f64 = 3.0;

/// Returns the distribution of times, which are in ascending order, as points: a cumulative share in percent and a time.
pub(crate) fn quantiles(times: &[f64]) -> Vec<(f64, f64)> {
    let count = times.len();
    let mut ranks: Vec<usize> = SHARES.iter().map(|share| (share * count as f64).ceil() as usize).collect();
    ranks.extend(count.saturating_sub(LONGEST)..=count);
    ranks.retain(|rank| *rank > 0);
    ranks.sort_unstable();
    ranks.dedup();
    let mut points: Vec<(f64, f64)> = Vec::new();
    for rank in ranks {
        let (share, time) = (100.0 * rank as f64 / count as f64, times[rank - 1]);
        if let Some((before, last)) = points.last().copied()
            && time > STEP * last
            && share > before + 0.01
        {
            points.push((before + 0.01, time));
        }
        if points.last().is_some_and(|(before, _)| share < before + 0.01) {
            points.pop();
        }
        points.push((share, time));
    }
    points
}

/// A request whose time is at least this multiple of its predicted time is a stall.
const STALLED: f64 = 2.0;
/// Minimum distance between the cumulative shares of two points of a distribution, in percent.
const LEAST_SHARE: f64 = 0.002;

#[derive(Clone, Debug)]
pub(crate) struct StallSummary {
    pub op: Op,
    pub row: CalibrationStallRow,
    /// Points of the distribution of times that stalls add: a cumulative share of all requests in percent, and a time in us.
    pub points: Vec<(f64, f64)>,
}

/// Returns the stalls of an operation; `None` if there are too few requests or stalls. `predicted_us` returns the usual time of a size.
pub(crate) fn stalls_of(op: Op, groups: &[SampleGroup], predicted_us: impl Fn(&SampleGroup) -> f64) -> Option<StallSummary> {
    let mut beyond = Vec::new();
    let mut requests = 0;
    for group in groups.iter().filter(|group| group.op == op) {
        let predicted = predicted_us(group);
        requests += group.times_us().len();
        let stalled = group.times_us().iter().filter(|time| **time >= STALLED * predicted);
        beyond.extend(stalled.map(|time| time - predicted));
    }
    if requests < FEW || beyond.len() < ENOUGH {
        return None;
    }
    beyond.sort_by(f64::total_cmp);
    let share = beyond.len() as f64 / requests as f64;
    let usual = 100.0 * (1.0 - share);
    // Quantiles of the additional time due to stalls. Requests without a stall have an additional time of 0.
    let mut points = vec![(usual, 0.0), (usual + LEAST_SHARE, beyond[0])];
    if usual < LEAST_SHARE {
        points.clear();
    }
    for (up_to, us) in quantiles(&beyond) {
        let up_to = usual + share * up_to;
        if points.last().is_none_or(|(before, _)| up_to > before + LEAST_SHARE / 2.0) {
            points.push((up_to, us));
        }
    }
    if let Some(last) = points.last_mut() {
        *last = (100.0, beyond[beyond.len() - 1]);
    }
    let row = CalibrationStallRow { op: op.name(), requests, stalls: beyond.len(), median_us: median(&mut beyond) };
    Some(StallSummary { op, row, points })
}
