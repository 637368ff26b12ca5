//! Estimates the idle time after which a device sleeps, and the cost of waking it (characteristic 4, section III-C).
//!
//! The request that ends a long idle gap is delayed if the device has to wake up. For each range of gaps there is a histogram of delays;
//! the threshold is the edge between ranges that best separates delayed from undelayed requests.

use emmclab_trace::{LargestValues, Request};

use crate::bins::time_label;
use crate::options::MergeRelation;
use crate::queue::{GAP_BINS, GapBins};
use crate::report::{PowerSaving, WakeUpRow};
use crate::{FEW_GAPS, elapsed};

/// Number of buckets of delays: sixteen per octave from 4 us on, and one per 250 ns below 4 us.
const DELAY_BUCKETS: usize = 512;
const IN_OCTAVE: usize = 16;
const DELAY_UNIT_NS: u64 = 250;
/// Minimum number of requests after short gaps for a threshold to be reported.
const MIN_SHORT: u64 = 30;
/// Minimum number of requests after long gaps for a threshold to be reported.
const MIN_LONG: u64 = 10;
/// Condition for a threshold: minimum ratio of the median delay after long gaps to the median after short gaps.
const MIN_RATIO: u64 = 3;
/// Condition for a threshold: minimum difference between the median delays after long and after short gaps, in nanoseconds.
const MIN_COST_NS: u64 = 200_000;
/// Condition for a threshold: minimum difference, in percentage points, between the share of long delays after long gaps and that after
/// short gaps. A delay is long if it is above the midpoint of the two median delays.
const MIN_PARTED_PCT: f64 = 60.0;
/// Minimum percentage of delayed (or undelayed) requests for a range of gaps to count as delayed (or undelayed).
const MOSTLY_PCT: f64 = 75.0;

/// Histograms of delays by the idle gap before the request.
#[derive(Clone, Debug, Default)]
pub(crate) struct WakeUpDelays {
    by_issue: DelayHistograms,
    by_service: DelayHistograms,
    /// The delays of the first request. The idle gap before it is known only when parts of a recording are merged.
    first: Option<RequestDelays>,
    /// The delays of the requests after the [`FEW_GAPS`] longest gaps.
    longest: LargestValues<RequestDelays, FEW_GAPS>,
}

/// Times of a request from start to issue and from start to completion, in nanoseconds.
type RequestDelays = (Option<u64>, Option<u64>);

/// A histogram of delays for each range of gaps, and the longest delay.
#[derive(Clone, Debug)]
struct DelayHistograms {
    counts: Vec<[u64; DELAY_BUCKETS]>,
    longest_ns: [u64; GAP_BINS],
}

impl WakeUpDelays {
    #[inline]
    pub fn add(&mut self, request: &Request, gap_ns: Option<u64>) {
        if gap_ns.is_none() && self.first.is_some() {
            return;
        }
        let delays = delays(request);
        self.first.get_or_insert(delays);
        if let Some(gap_ns) = gap_ns {
            self.add_delays(delays, gap_ns);
        }
    }

    fn add_delays(&mut self, delays: RequestDelays, gap_ns: u64) {
        self.longest.add_anywhere(gap_ns, delays);
        let (issue, service) = delays;
        let gap = GapBins::index(gap_ns);
        if let Some(delay_ns) = issue {
            self.by_issue.add(gap, delay_ns);
        }
        if let Some(delay_ns) = service {
            self.by_service.add(gap, delay_ns);
        }
    }

    /// Merges the delays of another part of the trace. `gap_ns` is the idle gap between the two parts; `None` if there is none.
    pub fn merge(&mut self, other: &Self, join: MergeRelation, gap_ns: Option<u64>) {
        self.by_issue.merge(&other.by_issue);
        self.by_service.merge(&other.by_service);
        self.longest.merge(&other.longest, |delays| delays);
        if let (MergeRelation::Consecutive, Some(delays), Some(gap_ns)) = (join, other.first, gap_ns) {
            self.add_delays(delays, gap_ns);
        }
        self.first = self.first.or(other.first);
    }

    /// Returns the delays from which the threshold is estimated: the times to issue if they were recorded and are not all zero, otherwise
    /// the service times.
    fn best(&self) -> Option<(&'static str, &DelayHistograms)> {
        let telling = self.by_issue.longest_ns.iter().any(|longest| *longest > 0);
        if telling {
            return Some(("issue", &self.by_issue));
        }
        (self.by_service.total(0..GAP_BINS) > 0).then_some(("service", &self.by_service))
    }

    pub fn power_saving(&self) -> PowerSaving {
        let Some((name, delays)) = self.best() else { return PowerSaving::default() };
        delays.threshold().map_or(PowerSaving { shown_by: Some(name), ..PowerSaving::default() }, |threshold| PowerSaving {
            shown_by: Some(name),
            ..threshold
        })
    }

    /// Whether a threshold is also found if the [`FEW_GAPS`] longest gaps are excluded.
    pub fn has_threshold_without_few(&self) -> bool {
        let Some((name, delays)) = self.best() else { return false };
        let mut rest = delays.clone();
        for (gap_ns, (issue, service)) in self.longest.values() {
            if let Some(delay_ns) = if name == "issue" { issue } else { service } {
                rest.counts[GapBins::index(*gap_ns)][bucket(*delay_ns)] -= 1;
            }
        }
        rest.threshold().is_some()
    }

    pub fn rows(&self) -> Vec<WakeUpRow> {
        let Some((_, delays)) = self.best() else { return Vec::new() };
        let row = |gap: usize| {
            let requests = delays.total(gap..gap + 1);
            let (low, high) = GapBins::edges(gap);
            let (low_ms, high_ms) = (low as f64 / 1e6, high.map(|high| high as f64 / 1e6));
            let delay_ms = |pct| Some(upper_edge_ns(delays.bucket_at(gap..gap + 1, pct)?) as f64 / 1e6);
            Some(WakeUpRow {
                bin: time_label(low_ms / 1e3, high_ms.map(|high| high / 1e3)),
                low_ms,
                high_ms,
                requests,
                median_delay_ms: delay_ms(50)?,
                p90_delay_ms: delay_ms(90)?,
            })
        };
        (0..GAP_BINS).filter_map(row).collect()
    }
}

fn delays(request: &Request) -> RequestDelays {
    let issue = request.start.zip(request.issue).map(|(start, issue)| elapsed(start, issue));
    (issue, request.start.zip(request.succeeded()).map(|(start, complete)| elapsed(start, complete)))
}

fn bucket(delay_ns: u64) -> usize {
    let value = delay_ns / DELAY_UNIT_NS;
    let octave = value.checked_ilog2().unwrap_or(0).saturating_sub(IN_OCTAVE.ilog2());
    (octave as usize * IN_OCTAVE + (value >> octave) as usize).min(DELAY_BUCKETS - 1)
}

fn lower_edge_ns(bucket: usize) -> u64 {
    let octave = (bucket / IN_OCTAVE).saturating_sub(1);
    (((bucket - octave * IN_OCTAVE) as u64) << octave) * DELAY_UNIT_NS
}

fn upper_edge_ns(bucket: usize) -> u64 {
    lower_edge_ns(bucket + 1)
}

fn middle_ns(bucket: usize) -> u64 {
    u64::midpoint(lower_edge_ns(bucket), upper_edge_ns(bucket))
}

impl Default for DelayHistograms {
    fn default() -> Self {
        Self { counts: vec![[0; DELAY_BUCKETS]; GAP_BINS], longest_ns: [0; GAP_BINS] }
    }
}

impl DelayHistograms {
    fn add(&mut self, gap: usize, delay_ns: u64) {
        self.counts[gap][bucket(delay_ns)] += 1;
        self.longest_ns[gap] = self.longest_ns[gap].max(delay_ns);
    }

    fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().flatten().zip(other.counts.iter().flatten()) {
            *mine += theirs;
        }
        for (mine, theirs) in self.longest_ns.iter_mut().zip(other.longest_ns) {
            *mine = theirs.max(*mine);
        }
    }

    /// Number of requests after gaps in the ranges `gaps`.
    fn total(&self, gaps: std::ops::Range<usize>) -> u64 {
        self.counts[gaps].iter().flatten().sum()
    }

    /// Number of requests after gaps in the ranges `gaps` whose delay is in bucket `from` or above.
    fn delayed(&self, gaps: std::ops::Range<usize>, from: usize) -> u64 {
        self.counts[gaps].iter().flat_map(|row| &row[from..]).sum()
    }

    /// Returns the bucket of a nearest-rank percentile of the delays after gaps in the ranges `gaps`.
    fn bucket_at(&self, gaps: std::ops::Range<usize>, pct: u64) -> Option<usize> {
        let total = self.total(gaps.clone());
        let rank = (total * pct).div_ceil(100).max(1);
        let mut below = 0;
        (0..DELAY_BUCKETS).find(|&bucket| {
            below += self.counts[gaps.clone()].iter().map(|row| row[bucket]).sum::<u64>();
            total > 0 && below >= rank
        })
    }

    /// The percentage of requests after gaps in range `gap` whose delay is in bucket `from` or above.
    fn delayed_pct(&self, gap: usize, from: usize) -> Option<f64> {
        crate::bins::pct(self.delayed(gap..gap + 1, from), self.total(gap..gap + 1))
    }

    /// Divides the lengths of gaps into short and long gaps, so that the shares of delayed requests differ most. `None` if no division
    /// separates these shares clearly.
    fn threshold(&self) -> Option<PowerSaving> {
        let mut best: Option<(f64, u64, u64, usize)> = None;
        for split in 1..GAP_BINS {
            let (short, long) = (0..split, split..GAP_BINS);
            let (short_total, long_total) = (self.total(short.clone()), self.total(long.clone()));
            if short_total < MIN_SHORT || long_total < MIN_LONG {
                continue;
            }
            let short_ns = middle_ns(self.bucket_at(short.clone(), 50)?);
            let long_ns = middle_ns(self.bucket_at(long.clone(), 50)?);
            if long_ns < short_ns.saturating_mul(MIN_RATIO) || long_ns - short_ns < MIN_COST_NS {
                continue;
            }
            // The middle between both medians on a logarithmic scale, like the buckets of the histogram.
            let from = usize::midpoint(bucket(short_ns), bucket(long_ns)) + 1;
            let share = |gaps, total| 100.0 * self.delayed(gaps, from) as f64 / total as f64;
            let parted = share(long, long_total) - share(short, short_total);
            if parted >= MIN_PARTED_PCT && best.is_none_or(|(most, ..)| parted > most) {
                best = Some((parted, short_ns, long_ns, from));
            }
        }
        let (_, short_ns, long_ns, from) = best?;
        // Some ranges of gap lengths are neither mostly delayed nor mostly undelayed. The threshold is between the first mostly delayed
        // range and the last mostly undelayed range before it.
        let asleep = (0..GAP_BINS).find(|gap| self.delayed_pct(*gap, from).is_some_and(|pct| pct >= MOSTLY_PCT))?;
        let awake = (0..asleep).rev().find(|gap| self.delayed_pct(*gap, from).is_some_and(|pct| pct <= 100.0 - MOSTLY_PCT))?;
        let edge_ms = |ns: u64| Some(ns as f64 / 1e6);
        Some(PowerSaving {
            found: true,
            shown_by: None,
            threshold_low_ms: edge_ms(GapBins::edges(awake).1?),
            threshold_high_ms: edge_ms(GapBins::edges(asleep).0),
            wake_up_ms: edge_ms(long_ns - short_ns),
            longest_wake_up_ms: self.longest_ns[awake + 1..].iter().max().map(|ns| *ns as f64 / 1e6),
            wake_ups: self.delayed(awake + 1..GAP_BINS, from),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_the_values_between_its_edges() {
        for ns in (0..4_000_000).step_by(137) {
            let bucket = bucket(ns);
            assert!(lower_edge_ns(bucket) <= ns && ns < upper_edge_ns(bucket), "{ns} ns in bucket {bucket}");
        }
    }

    #[test]
    fn delays_that_do_not_grow_with_the_gap_show_no_threshold() {
        let mut delays = DelayHistograms::default();
        for i in 0..2_000_u64 {
            delays.add((i % GAP_BINS as u64) as usize, 700_000 + i * 1_009 % 2_000_000);
        }
        assert_eq!(delays.threshold(), None);
    }

    #[test]
    fn a_threshold_inside_a_range_is_bracketed_by_its_neighbours() {
        let mut delays = DelayHistograms::default();
        for i in 0..2_000_u64 {
            let gap = (i % GAP_BINS as u64) as usize;
            let asleep = gap > 6 || (gap == 6 && (i / GAP_BINS as u64).is_multiple_of(2));
            delays.add(gap, if asleep { 5_000_000 } else { 30_000 });
        }
        let threshold = delays.threshold().unwrap();
        assert_eq!((threshold.threshold_low_ms, threshold.threshold_high_ms), (Some(32.0), Some(64.0)));
        assert!((threshold.wake_up_ms.unwrap() - 4.97).abs() < 0.15, "{threshold:?}");
    }
}
