//! Stalls: requests that took far longer than others of their operation and size. The model does not contain the work of the
//! device that caused them; it adds times drawn from their distribution instead.

use emmclab_trace::Op;

use crate::calibration::{CalibrationStallRow, ENOUGH, FEW};
use crate::power::quantiles;
use crate::samples::SampleGroup;
use crate::statistics::median;

/// A request that took at least this many times its predicted time is a stall.
const STALLED: f64 = 2.0;
/// The least distance of two shares, in percent.
const LEAST_SHARE: f64 = 0.002;

/// The stalls of one operation.
#[derive(Clone, Debug)]
pub(crate) struct StallSummary {
    pub op: Op,
    pub row: CalibrationStallRow,
    /// Points of a share of all requests in percent and a time in us.
    pub points: Vec<(f64, f64)>,
}

/// The stalls of an operation, by the time `predicted_us` of each size; `None` with too few requests or stalls.
pub(crate) fn of(op: Op, groups: &[SampleGroup], predicted_us: impl Fn(&SampleGroup) -> f64) -> Option<StallSummary> {
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
    // Up to the share of the other requests, the added time is 0; from there on it has the distribution of the stalls.
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
