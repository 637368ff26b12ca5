//! Collects the largest gaps between arrivals and determines those that are jumps.

use std::cmp::Reverse;

use crate::MOST_JUMPS;

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
