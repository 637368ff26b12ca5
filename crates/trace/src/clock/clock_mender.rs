//! Removes clock jumps from a trace (`--mend-clock`). A forward jump is cut to the median gap; the requests after a backward jump
//! are moved to one median gap after the requests before it.

use std::collections::VecDeque;

use hdrhistogram::Histogram;

use super::FileClock;
use super::file_clock::{FileOrderClassifier, HasArrival, OrderClass};
use crate::{
    ClockJump, Error, ErrorClass, GapLocation, JumpDirection, MOST_JUMPS, Nanos, Request, Result, TraceSource,
    duration::parse_duration, interrupt,
};

/// Number of removed gaps that are remembered, for requests that are read later but arrived before these gaps.
const CUTS: usize = 64;
/// Number of requests after which a stray request is treated as late. A stray request arrived more than a second before the latest arrival.
/// Until then, it may turn out to belong to a backward jump of the clock.
const STRAYS: u64 = 512;
/// Maximum plausible time between two stamps of a request. A longer time contains a clock jump: no storage needs half an hour.
const LONGEST_WAIT_NS: u64 = 1_800_000_000_000;
/// The longest gap that the user can give, about 30 years.
const LONGEST_NS: i64 = 1_000_000_000_000_000_000;
/// 100 years: the upper bound of the histogram of gaps.
const LONGEST_GAP_NS: u64 = 100 * 365 * 86_400 * 1_000_000_000;

/// Which gaps are removed from a trace. Every variant also removes backward jumps of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MendClock {
    /// Removes the gaps that are clock jumps; a first pass over the file detects them.
    Jumps,
    /// Removes all gaps that are longer than this limit. Unlike the detection of clock jumps, this needs no first pass over the file.
    Above(Nanos),
}

impl MendClock {
    /// Parses `auto`, or a duration such as `1h`, `30min` or `2d`; a number without a unit is in seconds. Fails with
    /// [`ErrorClass::Config`] for other texts.
    pub fn parse(text: &str) -> Result<Self> {
        if text == "auto" {
            return Ok(Self::Jumps);
        }
        match parse_duration(text).filter(|length| (1_000_000..=LONGEST_NS).contains(&length.0)) {
            Some(length) => Ok(Self::Above(length)),
            None => Err(Error::new(ErrorClass::Config, "the value must be the length of a gap between requests, or `auto`")
                .of_field("--mend-clock", 0, text.as_bytes())
                .hint("give a length of 1ms or more, for example 90s, 30min, 1h or 2d, or `auto` to cut the clock jumps that are found")),
        }
    }
}

impl HasArrival for Request {
    fn arrival(&self) -> i64 {
        self.arrival.0
    }
}

/// Shifts the times of requests in the order of the file.
pub(crate) struct ClockMender {
    order: FileOrderClassifier<Request>,
    shifts: TimeShifts,
    strays: VecDeque<(u64, Request)>,
    mended: Vec<Request>,
}

/// Computes the shift of each timestamp.
struct TimeShifts {
    /// Gaps longer than this are cut, in nanoseconds.
    limit_ns: u64,
    pace: CutGapLength,
    first: i64,
    requests: u64,
    /// The shift, in nanoseconds, that is added to times after the last jump.
    shift: i64,
    /// The most recent gaps that were removed since the clock last jumped backward.
    cuts: VecDeque<GapCut>,
    count: u64,
    /// The first jumps that were removed.
    jumps: Vec<ClockJump>,
}

#[derive(Clone, Copy)]
struct GapCut {
    from: i64,
    to: i64,
    /// The shift of times before the removed gap, in nanoseconds.
    before: i64,
    /// The length to which the gap is shortened, in nanoseconds.
    cut_length_ns: i64,
}

/// The length to which gaps are cut: the median of all gaps, or of the gaps so far.
enum CutGapLength {
    Median(u64),
    SoFar(Box<Histogram<u64>>),
}

impl ClockMender {
    /// Cuts gaps above `limit` to the median of the gaps before them.
    pub fn above(limit: Nanos, in_file_order: bool) -> Self {
        Self::new(limit.0.max(1).cast_unsigned(), CutGapLength::SoFar(Box::new(gap_histogram())), in_file_order)
    }

    /// Reads a trace to its end to detect its jumps. Fails as [`TraceSource::fill`].
    pub fn find_jumps(source: &mut dyn TraceSource) -> Result<Self> {
        let in_file_order = source.in_file_order();
        let mut clock = FileClock::new(in_file_order);
        let mut order = FileOrderClassifier::new(in_file_order);
        let mut gaps = gap_histogram();
        let mut read = Vec::new();
        let mut more = true;
        while more {
            interrupt::check()?;
            read.clear();
            more = source.fill(&mut read)?;
            clock.see(&read, false, 0);
            read.drain(..).for_each(|request| order.take(request, &mut |_, step| count(&mut gaps, step)));
        }
        clock.finish();
        order.finish(&mut |_, step| count(&mut gaps, step));
        // Jumps are at least ten times as long as other gaps, so half of the shortest jump separates jumps from other gaps.
        let limit_ns = clock.shortest_forward_ns().map_or(u64::MAX, |shortest| shortest / 2);
        Ok(Self::new(limit_ns, CutGapLength::Median(gaps.value_at_quantile(0.5)), in_file_order))
    }

    fn new(limit_ns: u64, pace: CutGapLength, in_file_order: bool) -> Self {
        Self {
            order: FileOrderClassifier::new(in_file_order),
            shifts: TimeShifts {
                limit_ns,
                pace,
                first: 0,
                requests: 0,
                shift: 0,
                cuts: VecDeque::new(),
                count: 0,
                jumps: Vec::new(),
            },
            strays: VecDeque::new(),
            mended: Vec::new(),
        }
    }

    /// Removes clock jumps from the times of the requests in `read`. Some hundred requests may be kept back until more are read or the file
    /// has ended.
    pub fn mend(&mut self, read: &mut Vec<Request>, ended: bool) {
        let Self { order, shifts, strays, mended } = self;
        let mut each = |request: Request, step| {
            shifts.requests += 1;
            match step {
                OrderClass::Stray => {
                    shifts.see(step);
                    strays.push_back((shifts.requests, request));
                }
                OrderClass::Back(before) => {
                    let latest = before.saturating_add(shifts.shift);
                    let late: Vec<_> = strays.drain(..).map(|(_, stray)| (stray, shifts.shift_at(stray.arrival.0))).collect();
                    mended.push(shifts.take(request, step));
                    // A stray (out-of-order) request gets the shift before or after the jump, whichever moves it nearer to the jump.
                    for (stray, late) in late {
                        let off = |shift: i64| stray.arrival.0.saturating_add(shift).abs_diff(latest);
                        let shift = if off(shifts.shift) < off(late) { shifts.shift } else { late };
                        mended.push(shifts.shifted(stray, shift));
                    }
                }
                _ => mended.push(shifts.take(request, step)),
            }
            while strays.front().is_some_and(|(number, _)| shifts.requests - number > STRAYS) {
                mended.extend(strays.pop_front().map(|(_, stray)| shifts.late(stray)));
            }
        };
        read.drain(..).for_each(|request| order.take(request, &mut each));
        if ended {
            order.finish(&mut each);
            mended.extend(strays.drain(..).map(|(_, stray)| shifts.late(stray)));
        }
        std::mem::swap(read, mended);
    }

    /// Number of clock jumps that were removed.
    pub fn count(&self) -> u64 {
        self.shifts.count
    }

    /// The first jumps that were removed, in the order of the file.
    pub fn jumps(&self) -> &[ClockJump] {
        &self.shifts.jumps
    }
}

fn gap_histogram() -> Histogram<u64> {
    // The histogram has three significant digits. Both arguments are in the range that the crate allows, so this cannot fail.
    Histogram::new_with_max(LONGEST_GAP_NS, 3).unwrap_or_else(|_| unreachable!("constant bounds"))
}

/// Counts the gap before a request; 0 for a request that is out of order.
fn count(gaps: &mut Histogram<u64>, step: OrderClass) {
    match step {
        OrderClass::Gap(gap) => gaps.saturating_record(gap),
        OrderClass::Late | OrderClass::Stray => gaps.saturating_record(0),
        OrderClass::First | OrderClass::Back(_) => {}
    }
}

impl TimeShifts {
    /// Shifts the times of a request that is in order of arrival. Requests out of order are kept by the caller and shifted later (see
    /// [`TimeShifts::late`]).
    fn take(&mut self, request: Request, step: OrderClass) -> Request {
        let arrival = request.arrival.0;
        let shift = match step {
            OrderClass::First => {
                self.first = arrival;
                0
            }
            OrderClass::Gap(gap) if gap > self.limit_ns => {
                let (from, left) = (arrival.wrapping_sub_unsigned(gap), self.median());
                self.note(JumpDirection::Forward, from, gap);
                self.cuts.push_back(GapCut { from, to: arrival, before: self.shift, cut_length_ns: left });
                if self.cuts.len() > CUTS {
                    self.cuts.pop_front();
                }
                self.shift = self.shift.saturating_sub_unsigned(gap).saturating_add(left);
                self.shift
            }
            OrderClass::Gap(_) => {
                self.see(step);
                self.shift
            }
            OrderClass::Late | OrderClass::Stray => {
                self.see(step);
                self.shift_at(arrival)
            }
            OrderClass::Back(before) => {
                self.note(JumpDirection::Backward, before, before.abs_diff(arrival));
                self.cuts.clear();
                let behind = before.saturating_add(self.shift).saturating_add(self.median());
                self.shift = behind.saturating_sub(arrival);
                self.shift
            }
        };
        self.shifted(request, shift)
    }

    /// Shifts the times of a request that arrived before the latest arrival.
    fn late(&self, request: Request) -> Request {
        self.shifted(request, self.shift_at(request.arrival.0))
    }

    fn see(&mut self, step: OrderClass) {
        if let CutGapLength::SoFar(gaps) = &mut self.pace {
            count(gaps, step);
        }
    }

    fn median(&self) -> i64 {
        let median = match &self.pace {
            CutGapLength::Median(median) => *median,
            CutGapLength::SoFar(gaps) => gaps.value_at_quantile(0.5),
        };
        median.min(self.limit_ns).min(i64::MAX as u64).cast_signed()
    }

    fn note(&mut self, direction: JumpDirection, from: i64, length_ns: u64) {
        self.count += 1;
        if self.jumps.len() < MOST_JUMPS {
            let place = GapLocation { at_ns: from.wrapping_sub(self.first), request: self.requests };
            self.jumps.push(ClockJump { direction, mended: true, ..ClockJump::forward(length_ns, place) });
        }
    }

    /// Returns the shift for `time`. The time may be earlier than the gaps that were removed last.
    fn shift_at(&self, time: i64) -> i64 {
        let mut shift = self.shift;
        for cut in self.cuts.iter().rev() {
            if time >= cut.to {
                break;
            }
            let behind = time.saturating_sub(cut.from);
            if behind > 0 {
                // Inside a shortened gap, the distance from its start is limited to the new length of the gap.
                return cut.before.saturating_sub(behind - behind.min(cut.cut_length_ns));
            }
            shift = cut.before;
        }
        shift
    }

    /// Shifts all times of a request. A jump between two of its times is cut like a gap.
    fn shifted(&self, mut request: Request, shift: i64) -> Request {
        let limit = self.limit_ns.max(LONGEST_WAIT_NS);
        let mut shift = shift;
        let mut before = request.arrival.0;
        request.arrival.0 = before.saturating_add(shift);
        let Request { start, issue, served, complete, .. } = &mut request;
        for time in [start, issue, served, complete].into_iter().flatten() {
            let wait = time.0.saturating_sub(before);
            if wait > 0 && wait.unsigned_abs() > limit {
                shift = shift.saturating_sub(wait).saturating_add(self.median());
            }
            before = time.0;
            time.0 = before.saturating_add(shift);
        }
        request
    }
}
