//! Rejects a trace whose times or sizes are implausible in the assumed unit.

use super::trace_format::{FormatTimes, TimeUnit};
use crate::{ByteCount, Error, ErrorClass, Nanos, ReadOptions, Result, SECTOR_BYTES, batch::BatchRows};

/// Maximum plausible rate in requests per second; a large array reaches a tenth of it.
const MAX_RATE: f64 = 20e6;
/// Minimum number of requests for a check of the maximum rate.
const RATE_SAMPLE: u64 = 1_000;
/// 100 years: longer than every recording, and sums of times fit into 64 bits.
const MAX_SPAN_NS: i64 = 100 * 365 * 86_400 * 1_000_000_000;
/// 146 years: the difference of two times that are closer to zero fits into 64 bits.
pub(crate) const FARTHEST_NS: u64 = 1 << 62;
/// Minimum plausible rate in requests per second. Even a sleeping phone has ten times this rate.
const MIN_RATE: f64 = 0.02;
/// Minimum number of requests for a check of the minimum rate.
const IDLE_SAMPLE: u64 = 100;
/// Minimum plausible rate of a benchmark in requests per second; a memory card reaches ten times as many.
const MIN_BUSY_RATE: f64 = 5.0;
/// Length of a short gap between requests, in ns. Even at a low rate, some real requests follow another one within this time.
const BURST_GAP_NS: u64 = 1_000_000;
/// If a trace has this many gaps, at least one of them must be shorter than [`BURST_GAP_NS`].
const BURSTS_OF: u64 = 100;
/// Of this many gaps in a benchmark, at least one must be shorter than [`BURST_GAP_NS`].
const BUSY_BURSTS_OF: u64 = 10;
/// Number of gaps shorter than [`BURST_GAP_NS`] at which counting stops.
const MANY_BURSTS: u64 = 1 << 16;
/// Maximum plausible mean response time. Every storage device has a shorter one.
const MAX_MEAN_RESPONSE_NS: i128 = 60_000_000_000;
/// Number of response times after which their mean is no longer updated. A wrong unit affects all response times, so this many are enough.
const RESPONSES_SAMPLE: u64 = 1 << 20;
/// Number of requests between two checks of the units. In fewer requests, a burst or a stall could look like a wrong unit.
const JUDGED_TOGETHER: u64 = 1 << 16;
/// 1 GiB: Linux sends at most a few MB in a request, an eMMC packed command has about 20 MB.
const MAX_REQUEST_SECTORS: u32 = (1 << 30) / SECTOR_BYTES as u32;
/// 8 PB: larger than any device.
const MAX_ADDRESS_SECTORS: u64 = (8 << 50) / SECTOR_BYTES;
/// Number of requests whose sizes and addresses must look like bytes before a trace is rejected.
const BYTES_SAMPLE: u64 = 64;
/// Minimum number of distinct sizes before a trace is rejected for sizes in bytes: a stream of equal large requests may be genuine.
const BYTES_SIZES: usize = 4;

/// Checks the units of a trace while its requests are read.
pub(crate) struct UnitGuard {
    times: FormatTimes,
    unit: TimeUnit,
    /// Whether an option gives the unit.
    is_stated: bool,
    count: u64,
    first: i64,
    last: i64,
    previous: i64,
    smallest_gap: u64,
    /// Number of gaps shorter than [`BURST_GAP_NS`].
    bursts: u64,
    responses: u64,
    response_sum: i128,
    /// Number of response times that are longer than the maximum plausible mean.
    long_responses: u64,
    data: u64,
    /// Size of the largest request with data, in sectors. It is updated only by a batch in which some size may be implausible.
    largest: u32,
    /// Highest address, in sectors; updated only if a batch may contain an implausible address.
    highest: u64,
    all_like_bytes: bool,
    sizes: Vec<u32>,
    /// Number of requests at which the next check is due.
    next_check_at: u64,
}

impl UnitGuard {
    pub(crate) fn new(times: FormatTimes, options: &ReadOptions) -> Result<Self> {
        let unit = match times {
            FormatTimes::Fixed(unit) => unit,
            FormatTimes::Open(unit) | FormatTimes::Busy(unit) => options.time_unit_or(unit)?,
            FormatTimes::Loose | FormatTimes::Stored => TimeUnit::Nanos,
        };
        Ok(Self {
            times,
            unit,
            is_stated: options.time_unit.is_some(),
            count: 0,
            first: i64::MAX,
            last: i64::MIN,
            previous: i64::MIN,
            smallest_gap: u64::MAX,
            bursts: 0,
            responses: 0,
            response_sum: 0,
            long_responses: 0,
            data: 0,
            largest: 0,
            highest: 0,
            all_like_bytes: true,
            sizes: Vec::new(),
            next_check_at: JUDGED_TOGETHER,
        })
    }

    /// Whether times give only the order of requests.
    pub(crate) fn is_loose(&self) -> bool {
        self.times == FormatTimes::Loose
    }

    /// Adds requests, which are in order of arrival. A column is read only as long as it can change the result of a check.
    pub(crate) fn see(&mut self, rows: BatchRows) {
        let arrivals = rows.arrival;
        let ([first, ..], [.., last]) = (arrivals, arrivals) else { return };
        if self.all_like_bytes {
            self.see_sizes(rows);
        }
        if self.count > 0 {
            self.see_gap(first.abs_diff(self.previous));
        }
        if self.bursts < MANY_BURSTS {
            // 1 is subtracted from each gap, so that a gap of 0 wraps to the largest value and is not the smallest.
            let less = || {
                let pairs = arrivals.windows(2);
                pairs.map(|pair| pair[1].wrapping_sub(pair[0]).cast_unsigned().wrapping_sub(1))
            };
            self.bursts += less().map(|less| u64::from(less < BURST_GAP_NS - 1)).sum::<u64>();
            self.smallest_gap = self.smallest_gap.min(less().fold(u64::MAX, u64::min).saturating_add(1));
        }
        self.previous = *last;
        self.first = self.first.min(*first);
        self.last = self.last.max(*last);
        self.count += arrivals.len() as u64;
        if self.responses < RESPONSES_SAMPLE {
            let (responses, long, sum) = rows.responses().fold((0, 0, 0), |(count, long, sum), ns| {
                let ns = i128::from(ns);
                (count + 1, long + u64::from(ns > MAX_MEAN_RESPONSE_NS), sum + ns)
            });
            self.responses += responses;
            self.long_responses += long;
            self.response_sum += sum;
        }
        // An upper bound without branches: the OR of all values is at least as large as the largest one.
        if rows.sector.iter().fold(0, |bits, sector| bits | sector) > MAX_ADDRESS_SECTORS {
            self.highest = rows.sector.iter().fold(self.highest, |highest, sector| highest.max(*sector));
        }
        if rows.sectors.iter().fold(0, |bits, sectors| bits | sectors) > MAX_REQUEST_SECTORS {
            self.largest = rows.data_sectors().fold(self.largest, u32::max);
        }
    }

    /// Checks whether sizes and addresses look like bytes instead of sectors, that is, whether all are multiples of 512. In real traces
    /// with sectors, a few requests suffice to refute this.
    fn see_sizes(&mut self, rows: BatchRows) {
        for request in rows.iter().filter(|request| request.op.has_data()) {
            self.data += 1;
            self.all_like_bytes &= request.sectors.is_multiple_of(512) && request.sector.0.is_multiple_of(512);
            if !self.all_like_bytes {
                return;
            }
            if self.sizes.len() < BYTES_SIZES && !self.sizes.contains(&request.sectors) {
                self.sizes.push(request.sectors);
            }
        }
    }

    fn see_gap(&mut self, gap: u64) {
        if gap > 0 {
            self.smallest_gap = self.smallest_gap.min(gap);
            self.bursts += u64::from(gap < BURST_GAP_NS);
        }
    }

    /// The latest arrival so far.
    pub(crate) fn newest(&self) -> i64 {
        self.last
    }

    /// Checks the units after every [`JUDGED_TOGETHER`] requests, and at the end of the trace. The first checks detect a wrong unit early.
    pub(crate) fn check(&mut self, ended: bool) -> Result<()> {
        if self.count < self.next_check_at && !ended {
            return Ok(());
        }
        self.next_check_at = self.count + JUDGED_TOGETHER;
        self.check_sizes()?;
        if self.times == FormatTimes::Loose { Ok(()) } else { self.check_times(ended) }
    }

    fn check_sizes(&self) -> Result<()> {
        let problem = if self.largest > MAX_REQUEST_SECTORS {
            format!("a request of {} is implausible", ByteCount(u64::from(self.largest) * SECTOR_BYTES))
        } else if self.highest > MAX_ADDRESS_SECTORS {
            format!("a device of {} or more is implausible", ByteCount(self.highest.saturating_mul(SECTOR_BYTES)))
        } else if self.all_like_bytes && self.data >= BYTES_SAMPLE && self.sizes.len() >= BYTES_SIZES {
            "every size and address is a multiple of 256 KB, as if bytes were read as sectors".to_owned()
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorClass::Unit, problem).hint(match self.times {
            FormatTimes::Stored => "addresses and sizes are probably in bytes: divide the columns `sector` and `sectors` by 512",
            _ => "addresses and sizes are probably in bytes: read the file with --columns and --size-unit byte",
        }))
    }

    fn check_times(&self, ended: bool) -> Result<()> {
        let span = self.last.saturating_sub(self.first);
        if span > MAX_SPAN_NS {
            let ns = self.last as f64 - self.first as f64;
            let problem = format!("a span of {:.0} years is implausible", ns / 365.0 / 86_400e9);
            let fits = |unit| span as f64 * self.times_larger(unit) <= MAX_SPAN_NS as f64 / 100.0;
            return Err(self.likely(problem, fits, false));
        }
        let farthest = self.first.unsigned_abs().max(self.last.unsigned_abs());
        if self.count > 0 && farthest > FARTHEST_NS {
            let years = farthest as f64 / 365.0 / 86_400e9;
            let problem = format!("an arrival {years:.0} years from the zero of the clock is implausible");
            let fits = |unit| farthest as f64 * self.times_larger(unit) <= FARTHEST_NS as f64;
            return Err(self.likely(problem, fits, false));
        }
        if span <= 0 {
            return Ok(());
        }
        let rate = self.count as f64 / Nanos(span).as_secs_f64();
        if self.count >= RATE_SAMPLE && rate > MAX_RATE {
            let problem = format!("{} requests in {} ({rate:.0} per second) is implausible", self.count, Nanos(span));
            return Err(self.likely(problem, |unit| rate / self.times_larger(unit) <= MAX_RATE / 10.0, true));
        }
        let mean = if self.responses >= IDLE_SAMPLE { self.response_sum / i128::from(self.responses) } else { 0 };
        if mean > MAX_MEAN_RESPONSE_NS {
            // If the unit of time were wrong, most response times would be too long.
            if self.long_responses * 2 < self.responses {
                let problem = format!(
                    "a mean response of {}, by {} of {} requests, is implausible: the clock was set while they were in flight",
                    Nanos(mean as i64),
                    self.long_responses,
                    self.responses
                );
                return Err(Error::new(ErrorClass::Unit, problem)
                    .hint("use --mend-clock, which removes the jump of the clock from all times"));
            }
            let problem = format!("a mean response of {} is implausible", Nanos(mean as i64));
            let fits = |unit| mean as f64 * self.times_larger(unit) <= 1e9;
            return Err(self.likely(problem, fits, false));
        }
        let (least, bursts_of) = match self.times {
            FormatTimes::Busy(_) if !self.is_stated => (MIN_BUSY_RATE, BUSY_BURSTS_OF),
            _ => (MIN_RATE, BURSTS_OF),
        };
        let is_idle = rate < least && self.bursts < (self.count / bursts_of).min(MANY_BURSTS);
        if ended && self.count >= IDLE_SAMPLE && is_idle {
            let near = match self.bursts {
                0 => format!("never two within {}", Nanos(self.smallest_gap as i64)),
                bursts => format!("{bursts} of them within {} of another", Nanos(BURST_GAP_NS as i64)),
            };
            let problem = format!("{} requests in {}, {near}, is implausible", self.count, Nanos(span));
            return Err(self.likely(problem, |unit| rate / self.times_larger(unit) >= 10.0 * least, false));
        }
        Ok(())
    }

    /// The length of `unit` relative to the assumed unit.
    fn times_larger(&self, unit: TimeUnit) -> f64 {
        10f64.powi(unit.digits() as i32 - self.unit.digits() as i32)
    }

    /// Creates the error for implausible times. The hint names the unit in which the times are plausible; of several such units, the one
    /// closest to the assumed unit.
    fn likely(&self, problem: String, fits: impl Fn(TimeUnit) -> bool, coarser: bool) -> Error {
        let mut choices = TimeUnit::CHOICES.to_vec();
        if coarser {
            choices.reverse();
        }
        choices.retain(|unit| (unit.digits() > self.unit.digits()) == coarser && *unit != self.unit);
        let likely = choices.iter().copied().find(|unit| fits(*unit)).or(choices.last().copied());
        let read_as = self.unit.name();
        let error = Error::new(ErrorClass::Unit, format!("{problem} if times are in {read_as}"));
        match (likely, self.times) {
            (Some(unit), FormatTimes::Open(_)) => {
                error.hint(format!("times are probably in {0}: give --time-unit {0}", unit.name()))
            }
            (Some(unit), FormatTimes::Busy(_)) => error.hint(format!(
                "times are probably in {0}: give --time-unit {0}; if the times really are in {read_as}, give --time-unit {read_as}",
                unit.name()
            )),
            (Some(unit), FormatTimes::Stored) => error.hint(format!(
                "times are probably in {}: multiply the columns that end in `_ns` by {}",
                unit.name(),
                10_u64.pow(unit.digits())
            )),
            (Some(unit), _) => error.hint(format!(
                "times are probably in {0}, which this format does not allow: read the file with --columns and \
                 --time-unit {0}",
                unit.name()
            )),
            (None, _) => error.hint("check the times in the file"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::batch::{Batch, BatchBuilder};
    use emmclab_base::{Op, Request, Sector};

    fn batch(requests: &[Request]) -> Batch {
        let mut builder = BatchBuilder::default();
        for request in requests {
            builder.push(request);
        }
        builder.finish(&Arc::default(), &Arc::default())
    }

    fn check_units(times: FormatTimes, requests: impl Iterator<Item = Request>) -> Result<()> {
        let mut guard = UnitGuard::new(times, &ReadOptions::default()).unwrap();
        for requests in requests.collect::<Vec<_>>().chunks(1024) {
            guard.see(batch(requests).rows());
            guard.check(false)?;
        }
        guard.check(true)
    }

    /// `count` requests of `sectors` sectors, about `gap` ns apart.
    fn steady(count: i64, gap: i64, sectors: u32) -> impl Iterator<Item = Request> {
        (0..count).map(move |i| {
            let arrival = Nanos(i * gap + (i % 7) * gap / 11);
            Request::new(arrival, Op::Write, Sector(i as u64 * 7919 % 60_000_000 * 8), sectors)
        })
    }

    fn hint(result: Result<()>) -> String {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorClass::Unit, "{error}");
        error.hint_text().unwrap().to_owned()
    }

    const OPEN: FormatTimes = FormatTimes::Open(TimeUnit::Nanos);

    #[test]
    fn a_fill_in_large_requests_before_others_is_honest() {
        let fill = (0..10_000).map(|i: i64| {
            let sectors = 512 << (i % 4);
            Request::new(Nanos(i * 2_000_000), Op::Write, Sector(i as u64 * 4096), sectors)
        });
        let rest =
            steady(60_000, 2_000_000, 8).map(|request| Request { arrival: Nanos(request.arrival.0 + 20_000_000_000), ..request });
        check_units(OPEN, fill.clone().chain(rest)).unwrap();
        assert!(hint(check_units(OPEN, fill)).contains("bytes"));
    }

    #[test]
    fn many_requests_count_as_one_by_one() {
        let request = |i: i64| Request {
            complete: (i % 3 > 0).then_some(Nanos(i * 2_000_000 + i % 50 * 7_919)),
            ..Request::new(
                Nanos(i * i % 7 + i * 2_000_000),
                Op::ALL[i as usize % 4],
                Sector(i as u64 * 7_919 * 512),
                512 + i as u32 % 9 / 8,
            )
        };
        let guard = || UnitGuard::new(OPEN, &ReadOptions::default()).unwrap();
        let (mut one_by_one, mut at_once) = (guard(), guard());
        let mut next = 0;
        for rows in [1, 2, 7, 1_000] {
            let requests: Vec<_> = (next..next + rows).map(request).collect();
            next += rows;
            at_once.see(batch(&requests).rows());
            requests.chunks(1).for_each(|request| one_by_one.see(batch(request).rows()));
            let seen = |guard: &UnitGuard| {
                let times = (guard.first, guard.last, guard.previous, guard.smallest_gap);
                let sums = (guard.count, guard.responses, guard.response_sum);
                (times, sums, guard.largest, guard.highest, guard.all_like_bytes)
            };
            assert_eq!(seen(&one_by_one), seen(&at_once), "after {next} requests");
        }
        assert!(!at_once.all_like_bytes);
    }

    #[test]
    fn honest_extremes_pass() {
        // A phone that is idle for 8 hours, except for bursts of four requests every 20 s.
        let idle = (0..5_760i64).map(|i| {
            let arrival = Nanos(i / 4 * 20_000_000_000 + i % 4 * 300_000);
            Request::new(arrival, Op::Write, Sector(8 * i as u64), 8)
        });
        check_units(OPEN, idle).unwrap();
        check_units(OPEN, steady(100_000, 1_000, 8)).unwrap();
        check_units(OPEN, steady(200, 50_000_000, 40_960)).unwrap();
        check_units(OPEN, steady(1, 1, 8)).unwrap();
        check_units(OPEN, steady(2, 1, 1)).unwrap();
        // A stream of equal, aligned 1 MB reads.
        let stream = (0..10_000u64).map(|i| Request::new(Nanos(i as i64 * 9_000_000), Op::Read, Sector(i * 2048), 2048));
        check_units(OPEN, stream).unwrap();
    }

    #[test]
    fn a_unit_too_fine_is_named() {
        // Both traces are read as nanoseconds. The first has 1,000,000 requests per second and times in microseconds; the second has 40,000
        // requests per second and times in milliseconds.
        assert!(hint(check_units(OPEN, steady(50_000, 1, 8))).contains("--time-unit us"), "1 M/s in us");
        let milliseconds = (0..5_000i64).map(|i| Request::new(Nanos(i / 40), Op::Read, Sector(8), 8));
        assert!(hint(check_units(OPEN, milliseconds)).contains("--time-unit ms"), "40 k/s in ms");
    }

    #[test]
    fn a_log_of_a_benchmark_is_in_a_finer_unit_if_few_of_its_requests_are_close() {
        // A request every 0.3 ms, and some only 500 ns apart. The times are in nanoseconds, but are read as microseconds.
        let log = || {
            (0..1_000i64).map(|i| {
                let arrival = if i % 50 == 1 { (i - 1) * 300_000 + 500 } else { i * 300_000 };
                Request::new(Nanos(arrival * 1_000), Op::Read, Sector(8 * i as u64), 8)
            })
        };
        let busy = FormatTimes::Busy(TimeUnit::Micros);
        assert!(hint(check_units(busy, log())).contains("--time-unit ns; if the times really are in us, give --time-unit us"));
        let stated = ReadOptions { time_unit: Some("us".into()), ..ReadOptions::default() };
        let mut guard = UnitGuard::new(busy, &stated).unwrap();
        guard.see(batch(&log().collect::<Vec<_>>()).rows());
        guard.check(true).unwrap();
        // Plausible: a memory card that takes 20 ms for a write.
        check_units(busy, steady(1_000, 20_000_000, 8)).unwrap();
    }

    #[test]
    fn a_unit_too_coarse_is_named() {
        let times = FormatTimes::Open(TimeUnit::Seconds);
        // 100 requests per second, written in milliseconds but read as seconds: one every 10 s.
        let slow = steady(500, 100_000_000_000, 8);
        assert!(hint(check_units(times, slow)).contains("--time-unit ms"));
        let slow = (0..500).map(|i| Request {
            complete: Some(Nanos(i * 1_000_000_000 + 1_500_000_000_000)),
            ..Request::new(Nanos(i * 1_000_000_000), Op::Read, Sector(8), 8)
        });
        assert!(hint(check_units(times, slow)).contains("--time-unit us"));
    }

    #[test]
    fn a_clock_that_is_set_while_a_request_is_in_flight_is_no_wrong_unit() {
        let requests = (0..300i64).map(|i| {
            let set = if i >= 149 { 1_270_000_000_000_000_000 } else { 0 };
            let arrival = Nanos(i * 10_000_000 + if i > 149 { set } else { 0 });
            let complete = Some(Nanos(i * 10_000_000 + 1_000_000 + set));
            Request { complete, ..Request::new(arrival, Op::Read, Sector(8), 8) }
        });
        let error = check_units(FormatTimes::Fixed(TimeUnit::Seconds), requests);
        assert!(error.as_ref().unwrap_err().to_string().contains("by 1 of 300 requests"));
        assert!(hint(error).contains("--mend-clock"));
    }

    #[test]
    fn a_span_of_centuries_is_refused_even_of_two_requests() {
        let at = |arrival: i64| Request::new(Nanos(arrival), Op::Read, Sector(8), 8);
        let error = check_units(OPEN, [at(-9_000_000_000_000_000_000), at(9_000_000_000_000_000_000)].into_iter());
        assert!(error.as_ref().unwrap_err().to_string().contains("571 years"));
        assert!(hint(error).contains("check the times"));
        let seconds = FormatTimes::Open(TimeUnit::Seconds);
        let error = check_units(seconds, [at(0), at(4_000_000_000_000_000_000)].into_iter());
        assert!(hint(error).contains("--time-unit ms"));
        // Plausible: the clock of a phone starts in 1970 and is set later.
        check_units(OPEN, [at(0), at(1_700_000_000_000_000_000)].into_iter()).unwrap();
    }

    #[test]
    fn bytes_taken_for_sectors_are_named() {
        let bytes = (0..200u64).map(|i| {
            let sectors = [4096, 8192, 16_384, 65_536][i as usize % 4];
            Request::new(Nanos(i as i64 * 5_000_000), Op::Write, Sector(i * 40_960), sectors)
        });
        assert!(hint(check_units(OPEN, bytes)).contains("--size-unit byte"));
        let huge = std::iter::once(Request::new(Nanos(0), Op::Read, Sector(0), u32::MAX));
        assert!(hint(check_units(OPEN, huge)).contains("--size-unit byte"));
        let far = std::iter::once(Request::new(Nanos(0), Op::Read, Sector(u64::MAX - 8), 8));
        assert!(hint(check_units(OPEN, far)).contains("--size-unit byte"));
    }

    #[test]
    fn a_column_in_another_unit_is_named_with_its_factor() {
        assert!(hint(check_units(FormatTimes::Stored, steady(50_000, 1, 8))).contains("in us: multiply"));
        let huge = std::iter::once(Request::new(Nanos(0), Op::Read, Sector(0), u32::MAX));
        assert!(hint(check_units(FormatTimes::Stored, huge)).contains("by 512"));
    }

    #[test]
    fn a_fixed_unit_points_to_the_generic_reader() {
        let fixed = FormatTimes::Fixed(TimeUnit::Nanos);
        assert!(hint(check_units(fixed, steady(50_000, 1, 8))).contains("--columns"));
        check_units(FormatTimes::Loose, steady(50_000, 1, 8)).unwrap();
    }
}
