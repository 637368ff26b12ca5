//! Fits sleep and stalls of a device. Sleep: the idle thresholds and the exit times of its stages follow from what requests after idle gaps
//! waited longer than others. Stalls are requests that took far longer than others of their operation and size. The model does not simulate
//! their cause, but adds times drawn from their distribution.

use emmclab_trace::Op;

use crate::fit::{CalibrationStageRow, CalibrationStallRow, ENOUGH, FEW};
use crate::samples::{SampleGroup, median};

/// An idle gap of the device, and the delay of the request that ended the gap: from start to issue, or beyond the usual time of its operation
/// and size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdleGapDelay {
    pub gap_us: f64,
    pub delay_us: f64,
    /// Whether the delay shows that the device slept: it is longer than an awake device needs, according to [`woken_above`].
    pub woken: bool,
}

/// Fitted stage of sleep.
#[derive(Clone, Debug, PartialEq)]
pub struct StageFit {
    /// Idle time after which the stage begins, in us: the geometric mean of `between_us`.
    pub after_us: f64,
    /// The two adjacent idle gaps between which the stage begins, in us.
    pub between_us: (f64, f64),
    /// Number of requests that left the stage.
    pub requests: usize,
    /// Median exit time, in us.
    pub wake_us: f64,
    /// Distribution of the exit time as points, each a cumulative share in percent and a time in us. Values between points are interpolated
    /// linearly.
    pub wake_quantiles: Vec<(f64, f64)>,
}

impl StageFit {
    pub(crate) fn row(&self) -> CalibrationStageRow {
        let (longest_before_us, shortest_after_us) = self.between_us;
        let Self { after_us, requests, wake_us: median_us, .. } = *self;
        CalibrationStageRow { after_us, longest_before_us, shortest_after_us, requests, median_us }
    }
}

/// A delay counts as a wake-up if it is longer than three times the median delay plus this time, in us.
const LEAST_WAKE_US: f64 = 200.0;
/// Maximum number of stages of sleep that the fit looks for.
const MOST_STAGES: usize = 4;
/// Minimum share of requests with a wake-up among those after long idle gaps.
const MOSTLY: f64 = 0.6;

/// Returns the delay in us above which a request is assumed to have waited for a wake-up, given all delays of an operation.
pub(crate) fn woken_above(mut delays_us: Vec<f64>) -> f64 {
    3.0 * median(&mut delays_us) + LEAST_WAKE_US
}

/// Fits the stages of sleep of a device. The first begins at the idle time that best separates the requests that woke the device from the
/// others. Each further stage begins at the longer idle time that best separates the requests that waited more than three times as long as
/// the shorter ones of the stage before. Empty if the delays show no sleep.
pub(crate) fn fit(waits: &[IdleGapDelay]) -> Vec<StageFit> {
    let mut by_gap: Vec<IdleGapDelay> = waits.iter().copied().filter(|wait| wait.gap_us > 0.0).collect();
    by_gap.sort_by(|a, b| a.gap_us.total_cmp(&b.gap_us));
    let Some((first, _)) = separation(&by_gap, |wait| wait.woken) else { return Vec::new() };
    let usual = median(&mut by_gap[..first].iter().map(|wait| wait.delay_us).collect::<Vec<_>>());
    let mut found = vec![(first, f64::NEG_INFINITY)];
    while found.len() < MOST_STAGES {
        let from = found[found.len() - 1].0;
        let Some((at, limit)) = next_stage(&by_gap[from..]) else { break };
        found.push((from + at, limit));
    }
    let ends = found.iter().skip(1).map(|(next, _)| *next).chain([by_gap.len()]);
    let stages = found.iter().zip(ends).map(|(&(from, limit), end)| {
        let woken = by_gap[from..end].iter().filter(|wait| wait.woken && wait.delay_us > limit);
        let mut waking: Vec<f64> = woken.map(|wait| (wait.delay_us - usual).max(0.0)).collect();
        let after = by_gap[from].gap_us;
        let before = by_gap[..from].last().map_or(after, |wait| wait.gap_us);
        StageFit {
            after_us: (before * after).sqrt(),
            between_us: (before, after),
            requests: waking.len(),
            wake_us: median(&mut waking),
            wake_quantiles: quantiles(&waking),
        }
    });
    stages.collect()
}

/// Returns the number of requests before a further stage, and the delay that requests after its begin exceed. The usual delay of the stage
/// before is the median of all requests, of the half after the shorter gaps, of a quarter, and so on; the one that separates best counts.
fn next_stage(by_gap: &[IdleGapDelay]) -> Option<(usize, f64)> {
    let mut best = None;
    let mut shorter = by_gap.len();
    while shorter >= ENOUGH {
        let limit = woken_above(by_gap[..shorter].iter().map(|wait| wait.delay_us).collect());
        if let Some((at, right)) = separation(by_gap, |wait| wait.delay_us > limit).filter(|(at, _)| *at >= ENOUGH)
            && best.is_none_or(|(_, most, _)| right > most)
        {
            best = Some((at, right, limit));
        }
        shorter /= 2;
    }
    best.map(|(at, _, limit)| (at, limit))
}

/// Returns the idle gap, as an index, that best separates the requests that were woken from those that were not, and by how many requests the
/// separation is better than none. `None` if that is less than [`ENOUGH`], or fewer than [`MOSTLY`] of the requests after it were woken.
fn separation(by_gap: &[IdleGapDelay], is_woken: impl Fn(&IdleGapDelay) -> bool) -> Option<(usize, usize)> {
    let all_woken = by_gap.iter().filter(|wait| is_woken(wait)).count();
    // If the threshold is below all idle gaps, every request is expected to wake the device. Requests that did not wake it count as
    // mistakes.
    let mut mistakes = by_gap.len() - all_woken;
    let mut best = (mistakes, 0, all_woken);
    let mut woken_after = all_woken;
    for (i, wait) in by_gap.iter().enumerate() {
        if is_woken(wait) {
            mistakes += 1;
            woken_after -= 1;
        } else {
            mistakes -= 1;
        }
        if mistakes < best.0 {
            best = (mistakes, i + 1, woken_after);
        }
    }
    let (mistakes, at, woken) = best;
    let enough = all_woken >= mistakes + ENOUGH && woken as f64 >= MOSTLY * (by_gap.len() - at) as f64;
    enough.then(|| (at, all_woken - mistakes))
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
