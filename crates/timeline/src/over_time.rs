//! Requests, data and response times over time.

use emmclab_base::{Nanos, SECTOR_BYTES};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{BinContent, CoarseningBins, DurationHistogram, SparseHistogram};

/// Maximum number of bins if no width is given. A trace longer than 256 ms has at least half as many.
const BINS: usize = 256;
/// Maximum number of bins if a width is given.
const MOST_BINS: usize = 16_384;

/// Initial width of the time bins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BinWidth {
    /// 1 ms, doubled until there are at most 256 bins.
    #[default]
    Automatic,
    /// This width, doubled only if there would be more than 16,384 bins.
    From(Nanos),
}

/// Direction of the data of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataDirection {
    /// Reads.
    Read = 0,
    /// Writes.
    Write = 1,
}

#[derive(Clone, Debug, Default)]
struct OperationBin {
    requests: u64,
    sectors: u64,
    times: SparseHistogram,
}

/// Content of a time bin; `X` is the type of the caller's own counts.
#[derive(Clone, Debug, Default)]
pub struct OverTimeBin<X> {
    shares: [OperationBin; 2],
    /// The counts of the caller.
    pub extra: X,
}

impl<X: BinContent> BinContent for OverTimeBin<X> {
    fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.shares.iter_mut().zip(&other.shares) {
            mine.requests += theirs.requests;
            mine.sectors += theirs.sectors;
            mine.times.add(&theirs.times);
        }
        self.extra.add(&other.extra);
    }
}

impl<X> OverTimeBin<X> {
    /// Number of requests in this direction.
    pub fn requests(&self, side: DataDirection) -> u64 {
        self.shares[side as usize].requests
    }

    /// Bytes of the requests in this direction.
    pub fn bytes(&self, side: DataDirection) -> u64 {
        self.shares[side as usize].sectors * SECTOR_BYTES
    }

    /// Known response times of the requests in this direction.
    pub fn times(&self, side: DataDirection) -> &SparseHistogram {
        &self.shares[side as usize].times
    }

    /// Known response times of reads and writes.
    pub fn all_times(&self) -> SparseHistogram {
        let mut all = self.times(DataDirection::Read).clone();
        all.add(self.times(DataDirection::Write));
        all
    }
}

/// Counts of the bin into which requests currently arrive. Its histogram is an array, so that adding a response time is fast.
#[derive(Clone, Debug)]
struct OpenBin<X> {
    from: Nanos,
    to: Nanos,
    shares: [OpenOperationBin; 2],
    extra: X,
}

impl<X: Default> Default for OpenBin<X> {
    /// An empty range, so that the first request opens a bin.
    fn default() -> Self {
        Self { from: Nanos::MAX, to: Nanos::MIN, shares: Default::default(), extra: X::default() }
    }
}

#[derive(Clone, Debug, Default)]
struct OpenOperationBin {
    requests: u64,
    sectors: u64,
    times: DurationHistogram,
}

/// Requests, data and response times in time bins, by arrival.
///
/// Percentiles of a bin are exact to 1 / 32, the width of a class of response times. A bin needs 12 bytes for each class that
/// occurs in it; 256 bins seldom need more than 1 MB.
#[derive(Clone, Debug)]
pub struct RequestsOverTime<X> {
    bins: CoarseningBins<OverTimeBin<X>>,
    open: OpenBin<X>,
}

impl<X: BinContent> Default for RequestsOverTime<X> {
    fn default() -> Self {
        Self::new(BinWidth::Automatic)
    }
}

impl<X: BinContent> RequestsOverTime<X> {
    /// Empty bins with this width.
    pub fn new(width: BinWidth) -> Self {
        let bins = match width {
            BinWidth::Automatic => CoarseningBins::new(BINS),
            BinWidth::From(width) => CoarseningBins::with_width(MOST_BINS, width),
        };
        Self { bins, open: OpenBin::default() }
    }

    /// Adds a read or write, with its response time if it is known.
    #[inline]
    pub fn add(&mut self, arrival: Nanos, side: DataDirection, sectors: u32, response_ns: Option<u64>) {
        self.turn_to(arrival);
        let share = &mut self.open.shares[side as usize];
        share.requests += 1;
        share.sectors += u64::from(sectors);
        if let Some(ns) = response_ns {
            share.times.add(ns);
        }
    }

    /// The caller's counts in the bin of an arrival.
    #[inline]
    pub fn extra(&mut self, arrival: Nanos) -> &mut X {
        self.turn_to(arrival);
        &mut self.open.extra
    }

    /// The caller's counts in the bin of any time.
    pub fn extra_at(&mut self, time: Nanos) -> &mut X {
        &mut self.bins.at(time).extra
    }

    /// Opens the bin of `arrival`.
    #[inline]
    fn turn_to(&mut self, arrival: Nanos) {
        if arrival < self.open.from || arrival >= self.open.to {
            self.close();
            self.bins.at(arrival);
            (self.open.from, self.open.to) = self.bins.range_of(arrival);
        }
    }

    /// Adds the counts of the open bin to the stored bins. Stored bins only become wider, so that one of them always contains the whole
    /// open bin.
    #[cold]
    fn close(&mut self) {
        if self.open.from >= self.open.to {
            return;
        }
        let bin = self.bins.at(self.open.from);
        for (mine, open) in bin.shares.iter_mut().zip(&mut self.open.shares) {
            mine.requests += std::mem::take(&mut open.requests);
            mine.sectors += std::mem::take(&mut open.sectors);
            mine.times.add(&open.times.take());
        }
        bin.extra.add(&std::mem::take(&mut self.open.extra));
        (self.open.from, self.open.to) = (Nanos::MAX, Nanos::MIN);
    }

    /// Adds the bins of `other` at their own times. With `aligned`, they are added as if `self` and `other` had started at the same time.
    pub fn merge(&mut self, mut other: Self, aligned: bool) {
        self.close();
        other.close();
        self.bins.merge(other.bins, aligned);
    }

    /// All bins, including the open one.
    pub fn bins(&self) -> CoarseningBins<OverTimeBin<X>> {
        let mut all = self.clone();
        all.close();
        all.bins
    }
}

/// Reads and writes that arrive in a time bin. Response times are `None` if they are not known; percentiles are at most 1 / 32 too high.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct OverTimeRow {
    /// Start of the bin after the first arrival, seconds.
    pub time_s: f64,
    /// Width of the bin, seconds.
    pub width_s: f64,
    /// Reads that arrive.
    pub reads: u64,
    /// Writes that arrive.
    pub writes: u64,
    /// Data read, KB.
    pub read_kb: f64,
    /// Data written, KB.
    pub write_kb: f64,
    /// Reads and writes per second.
    pub iops: f64,
    /// Data read and written per second, MB.
    pub mb_per_s: f64,
    /// Mean response time, ms.
    pub response_mean_ms: Option<f64>,
    /// 99th percentile of the response time, ms.
    pub response_p99_ms: Option<f64>,
    /// Longest response time, ms.
    pub response_max_ms: Option<f64>,
    /// Mean response time of reads, ms.
    pub read_mean_ms: Option<f64>,
    /// 99th percentile of the response time of reads, ms.
    pub read_p99_ms: Option<f64>,
    /// Mean response time of writes, ms.
    pub write_mean_ms: Option<f64>,
    /// 99th percentile of the response time of writes, ms.
    pub write_p99_ms: Option<f64>,
}

impl OverTimeRow {
    /// The row of a bin that begins `time_s` after the first arrival and is `width_s` wide.
    pub fn new<X>(time_s: f64, width_s: f64, bin: &OverTimeBin<X>) -> Self {
        let (reads, writes) = (bin.requests(DataDirection::Read), bin.requests(DataDirection::Write));
        let [read_kb, write_kb] = [DataDirection::Read, DataDirection::Write].map(|side| bin.bytes(side) as f64 / 1_024.0);
        let [read, write, all] = [bin.times(DataDirection::Read), bin.times(DataDirection::Write), &bin.all_times()];
        Self {
            time_s,
            width_s,
            reads,
            writes,
            read_kb,
            write_kb,
            iops: (reads + writes) as f64 / width_s,
            mb_per_s: (read_kb + write_kb) / 1_024.0 / width_s,
            response_mean_ms: all.mean_ms(),
            response_p99_ms: all.percentile_ms(99.0),
            response_max_ms: all.max_ms(),
            read_mean_ms: read.mean_ms(),
            read_p99_ms: read.percentile_ms(99.0),
            write_mean_ms: write.mean_ms(),
            write_p99_ms: write.percentile_ms(99.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl BinContent for Vec<(i64, u64)> {
        fn add(&mut self, other: &Self) {
            self.extend(other);
        }
    }

    proptest! {
        #[test]
        fn a_bin_holds_the_requests_that_arrive_in_it(
            mut requests in prop::collection::vec((0_i64..1 << 44, 1_u64..1 << 34), 1..400),
            width_ms in prop::option::of(1_i64..5_000),
        ) {
            requests.sort_unstable();
            let width = width_ms.map_or(BinWidth::Automatic, |ms| BinWidth::From(Nanos::from_millis(ms)));
            let mut over_time = RequestsOverTime::<Vec<(i64, u64)>>::new(width);
            for (arrival, ns) in &requests {
                over_time.add(Nanos(*arrival), DataDirection::Write, 8, Some(*ns));
                over_time.extra(Nanos(*arrival)).push((*arrival, *ns));
            }
            let bins = over_time.bins();
            let origin = Nanos(requests[0].0);
            let mut seen = 0;
            for (start_s, width_s, bin) in bins.iter(origin) {
                let from = start_s + origin.as_secs_f64() - 1e-6;
                seen += bin.extra.len();
                prop_assert!(bin.extra.iter().all(|(at, _)| (from..from + width_s + 2e-6).contains(&Nanos(*at).as_secs_f64())));
                prop_assert_eq!(bin.requests(DataDirection::Write), bin.extra.len() as u64);
                let mut times: Vec<u64> = bin.extra.iter().map(|(_, ns)| *ns).collect();
                times.sort_unstable();
                for percent in [1.0, 50.0, 99.0, 100.0] {
                    let estimate = bin.times(DataDirection::Write).percentile_ms(percent);
                    let rank = (percent / 100.0 * times.len() as f64).ceil().max(1.0) as usize;
                    let Some(exact) = times.get(rank - 1) else { continue };
                    let (estimate, exact) = (estimate.unwrap(), *exact as f64 / 1e6);
                    prop_assert!(estimate >= exact && estimate <= exact * (1.0 + 1.0 / 32.0), "{estimate} for {exact}");
                }
            }
            prop_assert_eq!(seen, requests.len());
        }
    }

    #[test]
    fn ten_million_seconds_take_no_more_bins_than_a_second() {
        let mut over_time = RequestsOverTime::<Vec<(i64, u64)>>::default();
        for second in 0..10_000_000 {
            over_time.add(Nanos::from_secs(second), DataDirection::Read, 8, Some(1_000_000));
        }
        let bins = over_time.bins();
        let all: Vec<_> = bins.iter(Nanos::ZERO).collect();
        assert!(all.len() <= 256 && all.len() >= 128);
        assert_eq!(all.iter().map(|(_, _, bin)| bin.requests(DataDirection::Read)).sum::<u64>(), 10_000_000);
    }

    #[test]
    fn a_given_width_is_kept_until_there_would_be_too_many_bins() {
        let of = |seconds: i64| {
            let mut over_time = RequestsOverTime::<Vec<(i64, u64)>>::new(BinWidth::From(Nanos::from_secs(1)));
            (0..seconds).for_each(|s| over_time.add(Nanos::from_secs(s), DataDirection::Read, 8, None));
            over_time.bins().width_s() as u64
        };
        assert_eq!(of(16_384), 1);
        assert_eq!(of(16_385), 2);
    }
}
