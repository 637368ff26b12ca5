//! Detects jumps of the clock while a trace is read.
//!
//! Classifies requests in the order of the file: in order, out of order, or after the clock was set back.

use super::gaps::{self, LargestGaps};
use crate::{ClockJump, ClockJumps, GapLocation, JumpDirection, MOST_JUMPS, Request};

/// Detects clock jumps from arrivals in the order of the file.
pub(crate) struct FileClock {
    order: FileOrderClassifier<NumberedArrival>,
    faults: ClockFaults,
}

/// An arrival and the number of its request, counted from 1.
#[derive(Clone, Copy, Debug)]
struct NumberedArrival {
    request: u64,
    at: i64,
}

impl HasArrival for NumberedArrival {
    fn arrival(&self) -> i64 {
        self.at
    }
}

/// The gaps and clock jumps that were found so far.
#[derive(Debug, Default)]
struct ClockFaults {
    first: i64,
    /// First arrival since the last backward jump.
    stretch_first: i64,
    /// Sum of the durations of all earlier stretches between backward jumps, each from first to last arrival, in nanoseconds.
    stretches_ns: i64,
    requests: u64,
    gaps: u64,
    largest: LargestGaps,
    backward: u64,
    /// The first backward jumps.
    back: Vec<ClockJump>,
}

impl FileClock {
    /// `in_file_order` states that requests are read in the order of the recording. Backward jumps of the clock can be detected only in
    /// this case.
    pub fn new(in_file_order: bool) -> Self {
        Self { order: FileOrderClassifier::new(in_file_order), faults: ClockFaults::default() }
    }

    /// Adds requests that were read together. `sorted` states that their arrivals are in ascending order; then `widest` is the largest gap
    /// between two successive arrivals, in nanoseconds.
    pub fn see(&mut self, requests: &[Request], sorted: bool, widest: u64) {
        let ([first, ..], [.., last]) = (requests, requests) else { return };
        let latest = self.order.latest();
        let plain = latest.filter(|latest| {
            let from_before = first.arrival.0.saturating_sub(*latest);
            let floor = self.faults.largest.floor();
            sorted && from_before >= 0 && from_before.unsigned_abs() <= floor && widest <= floor
        });
        if plain.is_some() && !self.order.is_undecided() {
            self.faults.requests += requests.len() as u64;
            self.faults.gaps += requests.len() as u64;
            self.order.skip_to(last.arrival.0);
            return;
        }
        let Self { order, faults } = self;
        for request in requests {
            faults.requests += 1;
            let arrival = NumberedArrival { request: faults.requests, at: request.arrival.0 };
            order.take(arrival, &mut |arrival, step| faults.take(arrival, step));
        }
    }

    /// Ends the file: classifies the requests that are kept back.
    pub fn finish(&mut self) {
        let Self { order, faults } = self;
        order.finish(&mut |arrival, step| faults.take(arrival, step));
    }

    /// Whether the last requests may be the first after a backward jump.
    pub fn is_undecided(&self) -> bool {
        self.order.is_undecided()
    }

    /// Number of backward jumps so far.
    pub fn backward(&self) -> u64 {
        self.faults.backward
    }

    /// The first backward jump.
    pub fn first_backward(&self) -> Option<&ClockJump> {
        self.faults.back.first()
    }

    /// Number of all jumps so far.
    pub fn count(&self) -> u64 {
        self.faults.backward + self.forward().len() as u64
    }

    fn forward(&self) -> &[(u64, GapLocation)] {
        gaps::jumps(&self.faults.largest, self.faults.gaps)
    }

    /// Length of the shortest forward jump, in nanoseconds; `None` if there is none.
    pub fn shortest_forward_ns(&self) -> Option<u64> {
        self.forward().last().map(|(length_ns, _)| *length_ns)
    }

    /// The jumps so far, at most [`MOST_JUMPS`], in the order of the requests.
    pub fn jumps(&self) -> ClockJumps {
        let forward = self.forward().iter().map(|(length_ns, place)| ClockJump::forward(*length_ns, *place));
        let mut jumps: Vec<_> = forward.chain(self.faults.back.iter().copied()).collect();
        jumps.sort_by_key(|jump| jump.request);
        jumps.truncate(MOST_JUMPS);
        let latest = self.order.latest().unwrap_or(self.faults.stretch_first);
        let last_stretch = latest.saturating_sub(self.faults.stretch_first);
        let jumped: i64 = self.forward().iter().fold(0, |sum: i64, (length, _)| sum.saturating_add_unsigned(*length));
        let without_ns = self.faults.stretches_ns.saturating_add(last_stretch).saturating_sub(jumped);
        ClockJumps { jumps, without_ns }
    }
}

impl ClockFaults {
    fn take(&mut self, arrival: NumberedArrival, step: OrderClass) {
        let NumberedArrival { request, at } = arrival;
        match step {
            OrderClass::First => (self.first, self.stretch_first) = (at, at),
            OrderClass::Late | OrderClass::Stray => self.gaps += 1,
            OrderClass::Gap(gap) => {
                self.gaps += 1;
                let at_ns = at.wrapping_sub_unsigned(gap).wrapping_sub(self.first);
                self.largest.add(gap, || GapLocation { at_ns, request });
            }
            OrderClass::Back(before) => {
                self.backward += 1;
                let stretch_ns = before.saturating_sub(self.stretch_first);
                self.stretches_ns = self.stretches_ns.saturating_add(stretch_ns);
                self.stretch_first = at;
                if self.back.len() < MOST_JUMPS {
                    self.back.push(ClockJump {
                        direction: JumpDirection::Backward,
                        request,
                        at_ns: before.wrapping_sub(self.first),
                        length_ns: before.abs_diff(at),
                        mended: false,
                    });
                }
            }
        }
    }
}

/// Number of consecutive requests that must arrive before the latest arrival to show that the clock was set back. Fewer such requests are
/// only out of order.
const BACK_REQUESTS: usize = 256;
/// A request counts towards [`BACK_REQUESTS`] only if it arrives at least this time before the latest arrival, in nanoseconds.
const BACK_NS: i64 = 1_000_000_000;

/// The class of a request in relation to the requests before it in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OrderClass {
    /// The first request of the file.
    First,
    /// The request is in order. The value is its time after the latest arrival, in nanoseconds.
    Gap(u64),
    /// The request arrived less than a second before the latest arrival: it is out of order.
    Late,
    /// The request arrived a second or more before the latest arrival, but there are too few such requests to be a jump.
    Stray,
    /// The first request after a backward jump, with the latest arrival before the jump, in nanoseconds.
    Back(i64),
}

/// A request, or only the arrival of a request.
pub(super) trait HasArrival {
    fn arrival(&self) -> i64;
}

/// Classifies requests in the order of the file. At most 255 requests that cannot be classified yet are kept back.
#[derive(Debug)]
pub(super) struct FileOrderClassifier<R> {
    /// Whether backward jumps are detected.
    looks_back: bool,
    /// Latest arrival since the last backward jump; `None` before the first request.
    latest: Option<i64>,
    /// Requests that may be the first ones after a backward jump.
    run: Vec<R>,
}

impl<R: HasArrival> FileOrderClassifier<R> {
    pub fn new(looks_back: bool) -> Self {
        Self { looks_back, latest: None, run: Vec::new() }
    }

    /// Adds the next request; calls `each` with the requests that can now be classified, in the order of the file.
    pub fn take(&mut self, request: R, each: &mut impl FnMut(R, OrderClass)) {
        let arrival = request.arrival();
        let Some(latest) = self.latest else {
            self.latest = Some(arrival);
            return each(request, OrderClass::First);
        };
        if self.looks_back && arrival <= latest.saturating_sub(BACK_NS) {
            self.run.push(request);
            if self.run.len() == BACK_REQUESTS {
                self.jump_back(each);
            }
            return;
        }
        self.run.drain(..).for_each(|stray| each(stray, OrderClass::Stray));
        if arrival < latest {
            each(request, OrderClass::Late);
        } else {
            self.latest = Some(arrival);
            each(request, OrderClass::Gap(arrival.wrapping_sub(latest).cast_unsigned()));
        }
    }

    /// Skips requests that are known to be in order and after all requests added before. `latest` is the arrival of the last one.
    pub fn skip_to(&mut self, latest: i64) {
        self.latest = Some(latest);
    }

    /// Classifies the requests that are kept back; no request follows.
    pub fn finish(&mut self, each: &mut impl FnMut(R, OrderClass)) {
        while !self.run.is_empty() {
            self.jump_back(each);
        }
    }

    fn jump_back(&mut self, each: &mut impl FnMut(R, OrderClass)) {
        let Some(before) = self.latest else { return };
        let mut run = std::mem::take(&mut self.run).into_iter();
        if let Some(first) = run.next() {
            self.latest = Some(first.arrival());
            each(first, OrderClass::Back(before));
        }
        run.for_each(|request| self.take(request, each));
    }

    /// The latest arrival since the last backward jump.
    pub fn latest(&self) -> Option<i64> {
        self.latest
    }

    /// Whether the last requests are kept back, because they may be the first ones after a backward jump of the clock.
    pub fn is_undecided(&self) -> bool {
        !self.run.is_empty()
    }
}
