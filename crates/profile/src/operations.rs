//! Counts, sizes, times and rates of each operation (Table III, figures 3, 4 and 5), and requests by flags and alignment.

use emmclab_trace::{ByteCount, Nanos, Op, RecordedFeatures, Request, RequestFlags, SECTOR_BYTES};

use crate::bins::{DoublingBins, HdrDistribution, QuarterOctaveBins, pct, rank_correlation, size_label, time_label};
use crate::elapsed;
use crate::report::{
    AlignmentRow, FlagRow, LatencyRow, OperationPercentileRow, OperationRow, RequestSizeRow, ResponseBySizeRow, ThroughputRow,
};

/// Sectors per KB; sizes are stored in sectors.
const SECTORS_PER_KB: f64 = 2.0;
const NS_PER_MS: f64 = 1e6;
const MB: f64 = 1_048_576.0;

/// Bins of figure 4: 4 KB to 1 MB, in sectors.
pub(crate) type SizeBins = DoublingBins<8, 10>;
/// Bins of figure 5: 1 to 128 ms, in nanoseconds.
type LatencyBins = DoublingBins<1_000_000, 9>;
/// Number of bins of figure 3: 4 KB to 16 MB, in sectors.
const RATE_BINS: usize = 14;
type RateBins = DoublingBins<8, RATE_BINS>;

#[derive(Clone, Debug, Default)]
pub(crate) struct OperationStatistics {
    sizes: HdrDistribution,
    size_bins: SizeBins,
    response: HdrDistribution,
    response_bins: LatencyBins,
    /// Response times by the size bins of figure 3.
    response_by_size: [QuarterOctaveBins; RATE_BINS],
    service: HdrDistribution,
    service_bins: LatencyBins,
    rates: [ThroughputSums; RATE_BINS],
}

/// Sums for one size bin of figure 3. They are integers, so that the result does not depend on the order of merging.
#[derive(Clone, Copy, Debug, Default)]
struct ThroughputSums {
    requests: u64,
    sectors: u64,
    ns: u128,
    bytes_per_s: u128,
    exact_requests: u64,
    exact_bytes_per_s: u128,
}

impl OperationStatistics {
    #[inline]
    pub fn add(&mut self, request: &Request) {
        let sectors = u64::from(request.sectors);
        self.sizes.add(sectors);
        self.size_bins.add(sectors, 1);
        if let Some(complete) = request.succeeded() {
            let response = elapsed(request.arrival, complete);
            self.response.add(response);
            self.response_bins.add(response, 1);
            self.response_by_size[RateBins::index(sectors)].add(response);
            if let Some(service) = request.service() {
                let service = elapsed(Nanos::ZERO, service);
                self.service.add(service);
                self.service_bins.add(service, 1);
                if service > 0 && request.op.has_data() {
                    let index = RateBins::index(sectors);
                    self.rates[index].add(sectors, service, RateBins::edges(index).1 == Some(sectors));
                }
            }
        }
    }

    pub fn merge(&mut self, other: &Self) {
        self.sizes.merge(&other.sizes);
        self.size_bins.merge(&other.size_bins);
        self.response.merge(&other.response);
        self.response_bins.merge(&other.response_bins);
        for (mine, theirs) in self.response_by_size.iter_mut().zip(&other.response_by_size) {
            mine.merge(theirs);
        }
        self.service.merge(&other.service);
        self.service_bins.merge(&other.service_bins);
        for (mine, theirs) in self.rates.iter_mut().zip(&other.rates) {
            mine.merge(theirs);
        }
    }

    pub fn requests(&self) -> u64 {
        self.sizes.count()
    }

    pub fn data_kb(&self) -> f64 {
        self.sizes.sum() as f64 / SECTORS_PER_KB
    }

    /// Sectors of all requests.
    pub fn sectors(&self) -> u64 {
        u64::try_from(self.sizes.sum()).unwrap_or(u64::MAX)
    }

    pub fn mean_kb(&self) -> Option<f64> {
        self.sizes.mean().map(|sectors| sectors / SECTORS_PER_KB)
    }

    pub fn max_kb(&self) -> Option<f64> {
        (self.requests() > 0).then(|| ByteCount(self.sizes.max() * SECTOR_BYTES).as_kb_f64())
    }

    pub fn mean_response_ms(&self) -> Option<f64> {
        self.response.mean().map(|ns| ns / NS_PER_MS)
    }

    pub fn mean_service_ms(&self) -> Option<f64> {
        self.service.mean().map(|ns| ns / NS_PER_MS)
    }

    pub fn size_bins(&self) -> &SizeBins {
        &self.size_bins
    }

    /// Response times of the requests of all sizes.
    pub fn response_quarters(&self) -> QuarterOctaveBins {
        let mut all = QuarterOctaveBins::default();
        self.response_by_size.iter().for_each(|bins| all.merge(bins));
        all
    }

    /// Spearman's rank correlation of size and response time, computed from their bins.
    pub fn size_response_correlation(&self) -> Option<f64> {
        rank_correlation(&self.response_by_size.each_ref().map(QuarterOctaveBins::counts))
    }

    pub fn response_by_size_rows(&self, op: &'static str) -> impl Iterator<Item = ResponseBySizeRow> {
        self.response_by_size.iter().enumerate().filter_map(move |(index, times)| {
            let (low, high) = RateBins::edges(index);
            let at_most_ms = |share| times.quantile(share).map(|ns| ns as f64 / NS_PER_MS);
            Some(ResponseBySizeRow {
                op,
                low_kb: kb(low),
                high_kb: high.map(kb),
                requests: times.counts().iter().sum(),
                p10_ms: at_most_ms(0.1)?,
                p50_ms: at_most_ms(0.5)?,
                p90_ms: at_most_ms(0.9)?,
            })
        })
    }

    /// Number of requests of at most 4 KB.
    pub fn small_requests(&self) -> u64 {
        self.size_bins.at(0)
    }

    pub fn row(&self, op: &'static str, percentiles: &[f64]) -> OperationRow {
        let percentile = |percentile: &f64| OperationPercentileRow {
            percentile: *percentile,
            response_ms: self.response.quantile(percentile / 100.0, NS_PER_MS),
            service_ms: self.service.quantile(percentile / 100.0, NS_PER_MS),
        };
        OperationRow {
            op,
            requests: self.requests(),
            data_kb: self.data_kb(),
            mean_kb: self.mean_kb(),
            response_ms: self.response.quantiles(NS_PER_MS),
            service_ms: self.service.quantiles(NS_PER_MS),
            size_kb: self.sizes.quantiles(SECTORS_PER_KB),
            percentiles: percentiles.iter().map(percentile).collect(),
        }
    }

    pub fn size_rows(&self, op: &'static str) -> impl Iterator<Item = RequestSizeRow> {
        self.size_bins.bins().filter_map(move |bin| {
            let (low_kb, high_kb) = (kb(bin.low), bin.high.map(kb));
            Some(RequestSizeRow {
                op,
                bin: size_label(low_kb, high_kb),
                low_kb,
                high_kb,
                requests: bin.count,
                pct: pct(bin.count, self.requests())?,
            })
        })
    }

    pub fn response_rows(&self, op: &'static str) -> impl Iterator<Item = LatencyRow> {
        latency_rows(&self.response_bins, op)
    }

    pub fn service_rows(&self, op: &'static str) -> impl Iterator<Item = LatencyRow> {
        latency_rows(&self.service_bins, op)
    }

    pub fn throughput_rows(&self, op: &'static str) -> impl Iterator<Item = ThroughputRow> {
        self.rates.iter().enumerate().filter(|(_, rate)| rate.requests > 0).map(move |(index, rate)| {
            let (low, high) = RateBins::edges(index);
            let mean = |sum: u128, count: u64| sum as f64 / count as f64 / MB;
            ThroughputRow {
                op,
                low_kb: kb(low),
                high_kb: high.map(kb),
                requests: rate.requests,
                mb_per_s: rate.sectors as f64 * SECTOR_BYTES as f64 / (rate.ns as f64 / 1e9) / MB,
                mean_mb_per_s: mean(rate.bytes_per_s, rate.requests),
                exact_requests: rate.exact_requests,
                exact_mean_mb_per_s: (rate.exact_requests > 0).then(|| mean(rate.exact_bytes_per_s, rate.exact_requests)),
            }
        })
    }
}

impl ThroughputSums {
    #[inline]
    fn add(&mut self, sectors: u64, service_ns: u64, exact: bool) {
        const SCALE: u64 = SECTOR_BYTES * 1_000_000_000;
        // 64-bit arithmetic is sufficient for requests of up to 16 MB, and much faster than 128-bit arithmetic.
        let rate = match sectors.checked_mul(SCALE) {
            Some(scaled) => u128::from(scaled / service_ns),
            None => u128::from(sectors) * u128::from(SCALE) / u128::from(service_ns),
        };
        self.requests += 1;
        self.sectors += sectors;
        self.ns += u128::from(service_ns);
        self.bytes_per_s += rate;
        if exact {
            self.exact_requests += 1;
            self.exact_bytes_per_s += rate;
        }
    }

    fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.sectors += other.sectors;
        self.ns += other.ns;
        self.bytes_per_s += other.bytes_per_s;
        self.exact_requests += other.exact_requests;
        self.exact_bytes_per_s += other.exact_bytes_per_s;
    }
}

fn kb(sectors: u64) -> f64 {
    sectors as f64 / SECTORS_PER_KB
}

fn latency_rows(bins: &LatencyBins, op: &'static str) -> impl Iterator<Item = LatencyRow> {
    let total = bins.total();
    bins.bins().filter_map(move |bin| {
        let (low_ms, high_ms) = (bin.low as f64 / NS_PER_MS, bin.high.map(|high| high as f64 / NS_PER_MS));
        Some(LatencyRow {
            op,
            bin: time_label(low_ms / 1e3, high_ms.map(|high| high / 1e3)),
            low_ms,
            high_ms,
            requests: bin.count,
            pct: pct(bin.count, total)?,
        })
    })
}

/// One [`OperationStatistics`] for each [`Op`].
#[derive(Clone, Debug)]
pub(crate) struct OperationTable(Box<[OperationStatistics; Op::ALL.len()]>);

impl Default for OperationTable {
    fn default() -> Self {
        Self(Box::new(std::array::from_fn(|_| OperationStatistics::default())))
    }
}

impl OperationTable {
    #[inline]
    pub fn add(&mut self, request: &Request) {
        self.0[request.op as usize].add(request);
    }

    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0.iter()) {
            mine.merge(theirs);
        }
    }

    pub fn of(&self, op: Op) -> &OperationStatistics {
        &self.0[op as usize]
    }

    /// Statistics of reads and writes together.
    pub fn data(&self) -> OperationStatistics {
        let mut all = self.of(Op::Read).clone();
        all.merge(self.of(Op::Write));
        all
    }
}

/// Number of combinations of the counted flags: all except the last one, `append`, which is not shown.
const COMBINATIONS: usize = 1 << (RequestFlags::NAMES.len() - 1);
/// Flags without a row: they describe the recording (`no_wait`, `no_wait_known`), or are reported elsewhere: re-issues in their own figure,
/// failures in the ledger, zone appends among the writes.
const NOT_SHOWN: [&str; 5] = ["no_wait", "no_wait_known", "reissued", "failed", "append"];

/// Counts of requests by their flags.
#[derive(Clone, Debug)]
pub(crate) struct FlagCounters {
    by_flags: [u64; COMBINATIONS],
    flushes: u64,
}

impl Default for FlagCounters {
    fn default() -> Self {
        Self { by_flags: [0; COMBINATIONS], flushes: 0 }
    }
}

impl FlagCounters {
    #[inline]
    pub fn add(&mut self, request: &Request) {
        self.by_flags[request.flags.0 as usize % COMBINATIONS] += 1;
        self.flushes += u64::from(request.op == Op::Flush);
    }

    pub fn merge(&mut self, other: &Self) {
        self.flushes += other.flushes;
        for (mine, theirs) in self.by_flags.iter_mut().zip(other.by_flags) {
            *mine += theirs;
        }
    }

    /// Rows for flushes, then for each flag. A row has no values if the trace does not record the flag. If the trace does not state what it
    /// records, the flags that occur in it count as recorded.
    pub fn rows(&self, duration_s: f64, recorded: Option<RecordedFeatures>) -> Vec<FlagRow> {
        let all: u64 = self.by_flags.iter().sum();
        if all == 0 {
            return Vec::new();
        }
        let with =
            |bit: usize| -> u64 { (0..COMBINATIONS).filter(|flags| flags >> bit & 1 == 1).map(|at| self.by_flags[at]).sum() };
        let shown = RequestFlags::NAMES.into_iter().enumerate().filter(|(_, name)| !NOT_SHOWN.contains(name));
        let named = shown.map(|(bit, name)| (name, with(bit), recorded.map(|recorded| recorded.has(RequestFlags(1 << bit)))));
        let flushes = (Op::Flush.name(), self.flushes, recorded.map(|recorded| recorded.has_op(Op::Flush)));
        std::iter::once(flushes)
            .chain(named)
            .map(|(flag, requests, is_recorded)| {
                let requests = is_recorded.unwrap_or(requests > 0).then_some(requests);
                let share = requests.and_then(|requests| pct(requests, all));
                let per_s = requests.filter(|_| duration_s > 0.0).map(|requests| requests as f64 / duration_s);
                FlagRow { flag, requests, pct: share, per_s }
            })
            .collect()
    }
}

/// Base-2 logarithms of the number of sectors in a flash page of 4, 8 and 16 KB.
const PAGE_SHIFTS: [u32; 3] = [3, 4, 5];
/// Number of alignment classes: 0 to 4 trailing zero bits, and 5 or more.
const CLASSES: usize = 6;

/// Counts of reads and writes by the alignment of their start and size to flash pages of 4, 8 and 16 KB, and the space utilisation if each
/// request is padded to whole pages.
#[derive(Clone, Debug, Default)]
pub(crate) struct AlignmentCounters([DirectionAlignment; 2]);

#[derive(Clone, Debug, Default)]
struct DirectionAlignment {
    /// Number of requests by the alignment class of the start, then by the alignment class of the size.
    classes: [[u64; CLASSES]; CLASSES],
    sectors: u64,
    /// Number of pages that the requests occupy, by page size.
    pages: [u64; PAGE_SHIFTS.len()],
}

impl AlignmentCounters {
    /// Adds a read or write.
    #[inline]
    pub fn add(&mut self, request: &Request) {
        let way = &mut self.0[usize::from(request.op == Op::Write)];
        let sectors = u64::from(request.sectors);
        let class = |value: u64| (value.trailing_zeros() as usize).min(CLASSES - 1);
        way.classes[class(request.sector.0)][class(sectors)] += 1;
        way.sectors += sectors;
        for (pages, shift) in way.pages.iter_mut().zip(PAGE_SHIFTS) {
            *pages += (sectors + (1 << shift) - 1) >> shift;
        }
    }

    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            for (mine, theirs) in mine.classes.iter_mut().flatten().zip(theirs.classes.iter().flatten()) {
                *mine += theirs;
            }
            mine.sectors += theirs.sectors;
            for (mine, theirs) in mine.pages.iter_mut().zip(theirs.pages) {
                *mine += theirs;
            }
        }
    }

    pub fn rows(&self) -> Vec<AlignmentRow> {
        let mut rows = Vec::new();
        for (op, way) in [Op::Read, Op::Write].into_iter().zip(&self.0) {
            let count = |start: usize, size: usize| -> u64 { way.classes[start..].iter().flat_map(|row| &row[size..]).sum() };
            let requests = count(0, 0);
            for (shift, pages) in PAGE_SHIFTS.into_iter().zip(way.pages) {
                let least = shift as usize;
                let share = |part| pct(part, requests).unwrap_or(0.0);
                if requests > 0 {
                    rows.push(AlignmentRow {
                        op: op.name(),
                        page_kb: 1 << (shift - 1),
                        requests,
                        start_aligned_pct: share(count(least, 0)),
                        size_aligned_pct: share(count(0, least)),
                        aligned_pct: share(count(least, least)),
                        space_utilisation_pct: pct(way.sectors, pages << shift).unwrap_or(100.0),
                    });
                }
            }
        }
        rows
    }
}
