//! Tracks unfinished requests, and the idle gaps between them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use emmclab_trace::{LargestValues, MOST_JUMPS, Nanos, Request};

use crate::bins::{DoublingBins, pct, time_label};
use crate::options::{GcCost, MergeRelation};
use crate::report::{DepthRow, IdleGapRow, IdleGc, QueueSummary};
use crate::{FEW_GAPS, elapsed};

/// Maximum number of unfinished requests that are tracked, which limits memory if requests of a trace never complete.
const MAX_OUTSTANDING: usize = 1 << 16;
/// Bins for queue depths of 1, 2, 3-4, ... up to 1,024; depth 0 is counted separately.
type DepthBins = DoublingBins<1, 12>;
/// Number of bins for the lengths of idle gaps. The edges of the bins double from 1 ms to 65,536 ms.
pub(crate) const GAP_BINS: usize = 18;
pub(crate) type GapBins = DoublingBins<1_000_000, GAP_BINS>;

/// Queue depth, busy time and idle gaps, computed from completion times. A request without a completion counts as complete at its arrival.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueueStatistics {
    gc: GcCost,
    /// Time to reclaim one block, nanoseconds.
    block_ns: u64,
    outstanding: BinaryHeap<Reverse<i64>>,
    capped: bool,
    completed: u64,
    /// The latest completion of any request so far; `None` until the first known one.
    busy_until: Option<Nanos>,
    first_arrival: Option<Nanos>,
    busy_ns: u128,
    depth_zero: u64,
    depth_bins: DepthBins,
    depth_sum: u128,
    depth_max: u64,
    gaps: GapBins,
    gap_ns: [u128; GAP_BINS],
    gap_blocks: [u64; GAP_BINS],
    longest: LargestValues<(), { MOST_JUMPS + 1 }>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueAtArrival {
    /// Number of unfinished requests when the request arrives; `None` if the completion of the request itself is unknown.
    pub depth: Option<u64>,
    /// Whether no other request is unfinished when the request arrives.
    pub idle: bool,
    /// Time since the last request completed, in nanoseconds; `None` if unknown or 0.
    pub gap_ns: Option<u64>,
}

impl QueueStatistics {
    pub fn new(gc: GcCost) -> Self {
        Self { gc, block_ns: gc.block_ns(), ..Self::default() }
    }

    #[inline]
    pub fn add(&mut self, request: &Request) -> QueueAtArrival {
        let arrival = request.arrival;
        self.first_arrival.get_or_insert(arrival);
        let idle = self.busy_until.is_none_or(|end| arrival >= end);
        let gap_ns = self.busy_until.and_then(|end| (arrival > end).then(|| elapsed(end, arrival)));
        if let Some(gap_ns) = gap_ns {
            self.add_gap(gap_ns);
        }
        let Some(complete) = request.complete else {
            self.busy_until = self.busy_until.map(|end| end.max(arrival));
            return QueueAtArrival { depth: None, idle, gap_ns };
        };
        let complete = complete.max(arrival);
        let depth = if idle {
            self.outstanding.clear();
            0
        } else {
            self.depth_at(arrival)
        };
        self.completed += 1;
        self.depth_sum += u128::from(depth);
        self.depth_max = self.depth_max.max(depth);
        if depth == 0 {
            self.depth_zero += 1;
        } else {
            self.depth_bins.add(depth, 1);
        }
        let busy_from = self.busy_until.map_or(arrival, |end| end.max(arrival));
        self.busy_ns += u128::from(elapsed(busy_from, complete));
        self.busy_until = Some(busy_from.max(complete));
        if self.outstanding.len() < MAX_OUTSTANDING {
            self.outstanding.push(Reverse(complete.0));
        } else {
            self.capped = true;
        }
        QueueAtArrival { depth: Some(depth), idle, gap_ns }
    }

    /// Number of requests that are unfinished at `arrival`; removes finished requests.
    #[inline]
    fn depth_at(&mut self, arrival: Nanos) -> u64 {
        while self.outstanding.peek().is_some_and(|Reverse(complete)| *complete <= arrival.0) {
            self.outstanding.pop();
        }
        self.outstanding.len() as u64
    }

    fn add_gap(&mut self, gap_ns: u64) {
        let index = GapBins::index(gap_ns);
        self.gaps.add_at(index, 1);
        self.gap_ns[index] += u128::from(gap_ns);
        self.gap_blocks[index] += gap_ns / self.block_ns;
        self.longest.add(gap_ns, || ());
    }

    /// Merges the queue statistics of another part of a trace. Returns the idle gap between two consecutive parts, if there is one.
    pub fn merge(&mut self, other: Self, join: MergeRelation) -> Option<u64> {
        let gap_ns = match (join, self.busy_until, other.first_arrival) {
            (MergeRelation::Consecutive, Some(end), Some(first)) if first > end => Some(elapsed(end, first)),
            _ => None,
        };
        if let Some(gap_ns) = gap_ns {
            self.add_gap(gap_ns);
        }
        self.capped |= other.capped;
        self.completed += other.completed;
        self.busy_ns += other.busy_ns;
        self.depth_zero += other.depth_zero;
        self.depth_bins.merge(&other.depth_bins);
        self.depth_sum += other.depth_sum;
        self.depth_max = self.depth_max.max(other.depth_max);
        self.gaps.merge(&other.gaps);
        self.longest.merge(&other.longest, |place| place);
        for index in 0..GAP_BINS {
            self.gap_ns[index] += other.gap_ns[index];
            self.gap_blocks[index] += other.gap_blocks[index];
        }
        self.first_arrival = self.first_arrival.or(other.first_arrival);
        if join == MergeRelation::Consecutive || self.busy_until.is_none() {
            self.busy_until = self.busy_until.max(other.busy_until);
            self.outstanding.extend(other.outstanding);
        }
        gap_ns
    }

    /// Returns the summary of queue depth and busy time; `None` without completion times.
    pub fn summary(&self, duration_s: f64) -> Option<QueueSummary> {
        (self.completed > 0).then(|| QueueSummary {
            mean_at_arrival: self.depth_sum as f64 / self.completed as f64,
            max_at_arrival: self.depth_max,
            busy_pct: if duration_s > 0.0 { 100.0 * self.busy_ns as f64 / 1e9 / duration_s } else { 0.0 },
            capped: self.capped,
        })
    }

    /// Returns how much garbage collection fits into the idle gaps; `None` without completion times.
    pub fn idle_gc(&self, duration_s: f64, written_sectors: u64) -> Option<IdleGc> {
        let idle_ns: u128 = self.gap_ns.iter().sum();
        let won = self.gc.won_bytes().max(1);
        (self.completed > 0).then(|| IdleGc {
            assumed: self.gc,
            block_ms: self.block_ns as f64 / 1e6,
            idle_s: idle_ns as f64 / 1e9,
            idle_pct: if duration_s > 0.0 { 100.0 * idle_ns as f64 / 1e9 / duration_s } else { 0.0 },
            blocks_that_fit: self.gap_blocks.iter().sum(),
            blocks_if_pausable: (idle_ns / u128::from(self.block_ns)) as u64,
            blocks_needed: written_sectors.saturating_mul(512).div_ceil(won),
        })
    }

    /// Returns busy and idle time in seconds; `None` without completion times. Gaps longer than `longest_ns` do not count as idle time. At
    /// most [`MOST_JUMPS`] gaps may be longer.
    pub fn busy_and_idle_s(&self, longest_ns: u64) -> Option<(f64, f64)> {
        let long = self.longest.values().iter().map(|(gap, ())| *gap).filter(|gap| *gap > longest_ns);
        let idle_ns = self.gap_ns.iter().sum::<u128>() - long.map(u128::from).sum::<u128>();
        (self.completed > 0).then_some((self.busy_ns as f64 / 1e9, idle_ns as f64 / 1e9))
    }

    /// Number of block reclaims that fit into single gaps if the [`FEW_GAPS`] longest gaps are excluded.
    pub fn blocks_that_fit_without_few(&self) -> u64 {
        let few = self.longest.values().iter().take(FEW_GAPS).map(|(gap, ())| gap / self.block_ns);
        self.gap_blocks.iter().sum::<u64>() - few.sum::<u64>()
    }

    pub fn gap_bins(&self) -> &GapBins {
        &self.gaps
    }

    pub fn depth_rows(&self) -> Vec<DepthRow> {
        let row = |low_depth: u64, high_depth: Option<u64>, requests| {
            let bin = match high_depth {
                Some(high) if high == low_depth => format!("{high}"),
                Some(high) => format!("{low_depth} - {high}"),
                None => format!(">= {low_depth}"),
            };
            Some(DepthRow { bin, low_depth, high_depth, requests, pct: pct(requests, self.completed)? })
        };
        let used = self.depth_bins.used().end;
        let busy = self.depth_bins.bins().take(used).map(|bin| row(bin.low + 1, bin.high, bin.count));
        std::iter::once(row(0, Some(0), self.depth_zero)).chain(busy).flatten().collect()
    }

    pub fn gap_rows(&self) -> Vec<IdleGapRow> {
        let idle_ns: u128 = self.gap_ns.iter().sum();
        let total = self.gaps.total();
        let rows = self.gaps.bins().enumerate().filter_map(|(index, bin)| {
            let (low_ms, high_ms) = (bin.low as f64 / 1e6, bin.high.map(|high| high as f64 / 1e6));
            Some(IdleGapRow {
                bin: time_label(low_ms / 1e3, high_ms.map(|high| high / 1e3)),
                low_ms,
                high_ms,
                gaps: bin.count,
                pct: pct(bin.count, total)?,
                idle_s: self.gap_ns[index] as f64 / 1e9,
                idle_pct: 100.0 * self.gap_ns[index] as f64 / idle_ns as f64,
                gc_blocks: self.gap_blocks[index],
            })
        });
        rows.collect()
    }
}
