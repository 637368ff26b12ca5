//! Detects jumps of the clock while a trace is read.
//!
//! Classifies requests in the order of the file: in order, out of order, or after the clock was set back. Collects the largest gaps
//! between arrivals and determines those that are jumps.

use std::cmp::Reverse;

use crate::{ClockJump, ClockJumps, JumpDirection, MOST_JUMPS, Request};

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
        jumps(&self.faults.largest, self.faults.gaps)
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

const HOUR_NS: u64 = 3_600_000_000_000;
/// A gap of an hour or more is a jump if it is at least this many times as long as the next smaller gap.
const TIMES_NEXT_HOUR: u64 = 100;
/// A gap of a day or more is a jump if it is at least this many times as long as the next smaller gap.
const TIMES_NEXT_DAY: u64 = 10;

/// Number of arrivals that are checked at once for a gap that is long enough to be kept.
const TOGETHER: usize = 256;

/// The position of a gap between arrivals in a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GapLocation {
    /// Arrival before the gap, in nanoseconds after the first arrival of the recording.
    pub at_ns: i64,
    /// Number of the request after the gap, counted from 1.
    pub request: u64,
}

/// The largest gaps: one more than the maximum number of jumps, because the last jump is compared with the next gap.
pub(super) type LargestGaps = LargestValues<GapLocation, { MOST_JUMPS + 1 }>;

/// The largest gaps between successive arrivals, of one recording or of several.
#[derive(Clone, Debug, Default)]
pub struct ArrivalGaps {
    first: Option<i64>,
    last: i64,
    requests: u64,
    count: u64,
    largest: LargestGaps,
}

impl ArrivalGaps {
    /// Adds arrivals in order of time, in nanoseconds.
    pub fn extend(&mut self, arrivals: &[i64]) {
        let ([first, ..], [.., last]) = (arrivals, arrivals) else { return };
        let origin = match self.first {
            Some(origin) => {
                self.count += 1;
                let place = GapLocation { at_ns: self.last.wrapping_sub(origin), request: self.requests + 1 };
                self.largest.add(gap(self.last, *first), || place);
                origin
            }
            None => *self.first.insert(*first),
        };
        for start in (0..arrivals.len() - 1).step_by(TOGETHER) {
            let part = &arrivals[start..arrivals.len().min(start + TOGETHER + 1)];
            let widest = part.windows(2).fold(0, |widest: i64, pair| widest.max(pair[1].wrapping_sub(pair[0])));
            if widest.unsigned_abs() > self.largest.floor() {
                let second = self.requests + start as u64 + 2;
                for (request, pair) in (second..).zip(part.windows(2)) {
                    self.largest.add(gap(pair[0], pair[1]), || GapLocation { at_ns: pair[0].wrapping_sub(origin), request });
                }
            }
        }
        self.count += arrivals.len() as u64 - 1;
        self.requests += arrivals.len() as u64;
        self.last = *last;
    }

    /// Adds the gaps of the next part of the same recording.
    pub fn join(&mut self, other: &Self) {
        let Some(first) = other.first else { return };
        let Some(origin) = self.first else {
            self.clone_from(other);
            return;
        };
        let (later, before) = (first.wrapping_sub(origin), self.requests);
        let boundary = GapLocation { at_ns: self.last.wrapping_sub(origin), request: before + 1 };
        self.largest.add(gap(self.last, first), || boundary);
        self.largest.merge(&other.largest, |place| GapLocation {
            at_ns: place.at_ns.wrapping_add(later),
            request: place.request + before,
        });
        self.count += other.count + 1;
        self.requests += other.requests;
        self.last = other.last;
    }

    /// Adds the gaps between the arrivals of another recording. The location of a gap is still relative to the start of its own recording.
    pub fn add_recording(&mut self, other: &Self) {
        if self.first.is_none() {
            self.clone_from(other);
        } else {
            self.largest.merge(&other.largest, |place| place);
            self.count += other.count;
        }
    }

    /// The gaps that are clock jumps or pauses of the recording, longest first: length in nanoseconds, and location.
    pub fn jumps(&self) -> &[(u64, GapLocation)] {
        jumps(&self.largest, self.count)
    }

    /// Time from the first to the last arrival of the recording, in nanoseconds.
    pub fn span_ns(&self) -> u64 {
        self.first.map_or(0, |first| gap(first, self.last))
    }
}

fn gap(from: i64, to: i64) -> u64 {
    to.saturating_sub(from).max(0).cast_unsigned()
}

/// Returns the gaps in `largest` (the longest gaps) that are jumps of the clock. `gaps` is the number of all gaps between arrivals.
pub(super) fn jumps(largest: &LargestGaps, gaps: u64) -> &[(u64, GapLocation)] {
    let values = largest.values();
    let count = (1..=values.len().min(MOST_JUMPS)).rev().find(|&count| {
        let length = values[count - 1].0;
        // Gaps of 0 ns are not kept, so a missing next gap is one of 0 ns. If all gaps of the trace are kept, there is no next gap.
        let next = values.get(count).map(|(next, _)| *next).or((gaps > count as u64).then_some(0));
        next.is_some_and(|next| {
            (length >= HOUR_NS && length >= next.saturating_mul(TIMES_NEXT_HOUR))
                || (length >= 24 * HOUR_NS && length >= next.saturating_mul(TIMES_NEXT_DAY))
        })
    });
    &values[..count.unwrap_or(0)]
}

/// The `N` largest values that were added, with their positions in the input. The largest is first, and equal values are in the order of
/// their positions. Zeros are not kept.
#[derive(Clone, Debug)]
pub struct LargestValues<P, const N: usize> {
    values: Vec<(u64, P)>,
    /// Lower limit of the list: only larger values are kept.
    floor: u64,
}

impl<P, const N: usize> Default for LargestValues<P, N> {
    fn default() -> Self {
        Self { values: Vec::new(), floor: 0 }
    }
}

impl<P: Copy + Ord, const N: usize> LargestValues<P, N> {
    /// The threshold of [`LargestValues::add`], which ignores values up to this one.
    #[inline]
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// Adds a value whose position is after those of all earlier values.
    #[inline]
    pub fn add(&mut self, value: u64, place: impl FnOnce() -> P) {
        if value > self.floor {
            self.insert(value, place());
        }
    }

    /// Adds a value at any position, also before those of earlier values.
    #[inline]
    pub fn add_anywhere(&mut self, value: u64, place: P) {
        if value >= self.floor {
            self.insert(value, place);
        }
    }

    #[cold]
    fn insert(&mut self, value: u64, place: P) {
        if value == 0 {
            return;
        }
        // The memory for all values is allocated only once.
        self.values.reserve_exact((N + 1).saturating_sub(self.values.len()));
        let at = self.values.partition_point(|(other, there)| (Reverse(*other), *there) < (Reverse(value), place));
        self.values.insert(at, (value, place));
        self.values.truncate(N);
        if let (true, Some((least, _))) = (self.values.len() == N, self.values.last()) {
            self.floor = *least;
        }
    }

    /// Adds the values of `other`; `moved` converts their positions.
    pub fn merge(&mut self, other: &Self, moved: impl Fn(P) -> P) {
        other.values.iter().for_each(|(value, place)| self.insert(*value, moved(*place)));
    }

    /// The values with their positions, the largest first.
    pub fn values(&self) -> &[(u64, P)] {
        &self.values
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_largest_of_pieces_are_those_of_the_whole(
            values in prop::collection::vec(0_u64..40, 0..60), cut in 0_usize..60,
        ) {
            let cut = cut.min(values.len());
            let kept = |from: usize, values: &[u64]| {
                let mut largest = LargestValues::<usize, 7>::default();
                for (place, value) in (from..).zip(values) {
                    largest.add(*value, || place);
                }
                largest
            };
            let mut merged = kept(0, &values[..cut]);
            merged.merge(&kept(0, &values[cut..]), |place| place + cut);
            let mut sorted: Vec<_> = values.iter().copied().zip(0..).filter(|(value, _)| *value > 0).collect();
            sorted.sort_by_key(|(value, place)| (Reverse(*value), *place));
            sorted.truncate(7);
            prop_assert_eq!(merged.values(), &sorted);
            let whole = kept(0, &values);
            prop_assert_eq!(whole.values(), &sorted);
        }
    }
}
