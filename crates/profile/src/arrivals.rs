//! Arrival times of requests, and whether the device is busy when they arrive (Table IV, figure 6).

use emmclab_trace::{LargestValues, MOST_JUMPS, Nanos, Request, RequestFlags};

use crate::bins::{DoublingBins, QuarterOctaveBins, pct, time_label};
use crate::options::MergeRelation;
use crate::report::InterArrivalRow;
use crate::{FEW_GAPS, elapsed};

/// Bins of figure 6: 1 to 1,024 ms, in nanoseconds.
type GapBins = DoublingBins<1_000_000, 12>;
/// Index of the bin that ends at 16 ms.
const UP_TO_16_MS: usize = 4;

/// Counters of arrivals: first and last times, gaps between arrivals, and requests that did not wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct ArrivalCounters {
    /// First arrival, last arrival and latest completion of all requests.
    span: Option<ArrivalSpan>,
    /// First arrival, last arrival and latest completion of reads and writes.
    data: Option<ArrivalSpan>,
    /// Total duration of the other recordings in ns, if the recordings of several devices (a fleet) are merged.
    other_ns: u128,
    gaps: GapBins,
    quarters: QuarterOctaveBins,
    gaps_ns: u128,
    longest: LargestValues<(), { MOST_JUMPS + 1 }>,
    no_wait: u64,
    no_wait_known: u64,
    recorded_no_wait: u64,
    recorded_known: u64,
}

/// First and last arrival, and the latest completion.
#[derive(Clone, Copy, Debug)]
struct ArrivalSpan {
    first: Nanos,
    last: Nanos,
    end: Nanos,
}

impl ArrivalCounters {
    /// Adds a request. `idle` states whether all earlier requests were complete; `None` if unknown.
    #[inline]
    pub fn add(&mut self, request: &Request, idle: Option<bool>) {
        let arrival = request.arrival;
        let end = request.complete.unwrap_or(arrival).max(arrival);
        extend(&mut self.span, arrival, end);
        if !request.op.has_data() {
            return;
        }
        if let Some(data) = &self.data {
            let gap = elapsed(data.last, arrival);
            self.add_gap(gap);
        }
        extend(&mut self.data, arrival, end);
        if let Some(idle) = idle {
            self.no_wait_known += 1;
            self.no_wait += u64::from(idle);
        }
        if request.flags.contains(RequestFlags::NO_WAIT_KNOWN) {
            self.recorded_known += 1;
            self.recorded_no_wait += u64::from(request.flags.contains(RequestFlags::NO_WAIT));
        }
    }

    #[inline]
    fn add_gap(&mut self, gap_ns: u64) {
        self.gaps.add(gap_ns, 1);
        self.quarters.add(gap_ns);
        self.gaps_ns += u128::from(gap_ns);
        self.longest.add(gap_ns, || ());
    }

    pub fn merge(&mut self, other: &Self, join: MergeRelation) {
        self.longest.merge(&other.longest, |place| place);
        self.gaps.merge(&other.gaps);
        self.quarters.merge(&other.quarters);
        self.gaps_ns += other.gaps_ns;
        self.no_wait += other.no_wait;
        self.no_wait_known += other.no_wait_known;
        self.recorded_no_wait += other.recorded_no_wait;
        self.recorded_known += other.recorded_known;
        self.other_ns += other.other_ns;
        match join {
            MergeRelation::Consecutive => {
                if let (Some(mine), Some(theirs)) = (&self.data, &other.data) {
                    let gap = elapsed(mine.last, theirs.first);
                    self.add_gap(gap);
                }
                join_spans(&mut self.span, other.span);
                join_spans(&mut self.data, other.data);
            }
            MergeRelation::Separate if self.span.is_none() => {
                self.span = other.span;
                self.data = other.data;
            }
            MergeRelation::Separate => {
                self.other_ns += other.span.map_or(0, |span| u128::from(span.length_ns()));
            }
        }
    }

    /// The arrival of the first request.
    pub fn first(&self) -> Option<Nanos> {
        self.span.map(|span| span.first)
    }

    /// The arrival of the last request.
    pub fn last(&self) -> Option<Nanos> {
        self.span.map(|span| span.last)
    }

    pub fn duration_s(&self) -> f64 {
        let own = self.span.map_or(0, |span| u128::from(span.length_ns()));
        (own + self.other_ns) as f64 / 1e9
    }

    pub fn no_wait_pct(&self) -> Option<f64> {
        pct(self.no_wait, self.no_wait_known)
    }

    pub fn recorded_no_wait_pct(&self) -> Option<f64> {
        pct(self.recorded_no_wait, self.recorded_known)
    }

    /// Mean time between the arrivals of consecutive reads and writes, ms.
    pub fn mean_gap_ms(&self) -> Option<f64> {
        let gaps = self.gaps.total();
        (gaps > 0).then(|| self.gaps_ns as f64 / gaps as f64 / 1e6)
    }

    /// Mean time between arrivals, computed without the gaps that are longer than `longest_ns`. There must be at most [`MOST_JUMPS`] of
    /// these gaps.
    pub fn mean_gap_up_to_ms(&self, longest_ns: u64) -> Option<f64> {
        self.mean_gap_without_ms(self.longest.values().partition_point(|(gap, ())| *gap > longest_ns))
    }

    /// Mean time between arrivals without the [`FEW_GAPS`] longest gaps.
    pub fn mean_gap_without_few_ms(&self) -> Option<f64> {
        self.mean_gap_without_ms(FEW_GAPS)
    }

    fn mean_gap_without_ms(&self, gaps: usize) -> Option<f64> {
        let left = self.gaps.total().checked_sub(gaps as u64).filter(|left| *left > 0)?;
        let longest_ns: u128 = self.longest.values().iter().take(gaps).map(|(gap, ())| u128::from(*gap)).sum();
        Some((self.gaps_ns - longest_ns) as f64 / left as f64 / 1e6)
    }

    /// Returns the mean time between arrivals in ms, after `added_ns` is added to the sum of all gaps, and `less` is subtracted from their
    /// number.
    pub fn mean_gap_stretched_ms(&self, added_ns: i128, less: u64) -> Option<f64> {
        let left = self.gaps.total().checked_sub(less).filter(|left| *left > 0)?;
        let ns = self.gaps_ns.checked_add_signed(added_ns)?;
        Some(ns as f64 / left as f64 / 1e6)
    }

    pub fn quarters(&self) -> &QuarterOctaveBins {
        &self.quarters
    }

    /// Percentage of the gaps between arrivals that are longer than 16 ms.
    pub fn above_16_ms_pct(&self) -> Option<f64> {
        let up_to: u64 = (0..=UP_TO_16_MS).map(|index| self.gaps.at(index)).sum();
        pct(self.gaps.total() - up_to, self.gaps.total())
    }

    pub fn rows(&self) -> impl Iterator<Item = InterArrivalRow> {
        let total = self.gaps.total();
        self.gaps.bins().filter_map(move |bin| {
            let (low_ms, high_ms) = (bin.low as f64 / 1e6, bin.high.map(|high| high as f64 / 1e6));
            Some(InterArrivalRow {
                bin: time_label(low_ms / 1e3, high_ms.map(|high| high / 1e3)),
                low_ms,
                high_ms,
                gaps: bin.count,
                pct: pct(bin.count, total)?,
            })
        })
    }
}

impl ArrivalSpan {
    fn length_ns(&self) -> u64 {
        elapsed(self.first, self.end)
    }
}

#[inline]
fn extend(span: &mut Option<ArrivalSpan>, arrival: Nanos, end: Nanos) {
    match span {
        Some(span) => {
            span.last = arrival;
            span.end = span.end.max(end);
        }
        None => *span = Some(ArrivalSpan { first: arrival, last: arrival, end }),
    }
}

fn join_spans(mine: &mut Option<ArrivalSpan>, theirs: Option<ArrivalSpan>) {
    match (mine.as_mut(), theirs) {
        (Some(mine), Some(theirs)) => {
            mine.last = theirs.last;
            mine.end = mine.end.max(theirs.end);
        }
        (None, theirs) => *mine = theirs,
        (Some(_), None) => {}
    }
}
