//! A bus as a timeline with gaps.
#![expect(clippy::inline_always, reason = "the hottest path; what is handed on stays in registers")]

/// Future transfers remembered; with more, the earliest gap is given up. A power of two.
pub(super) const REMEMBERED: u32 = 32;
const SPANS: usize = REMEMBERED as usize;

/// Beginning and end of a transfer.
type Span = (i64, i64);

/// A bus: who asks for it gets the first gap that is long enough.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    /// Disjoint transfers in order of time, in a ring from `first` on.
    spans: [Span; SPANS],
    first: usize,
    count: usize,
    /// End of the last transfer.
    end: i64,
    /// Time in use, ns.
    pub busy: u64,
}

impl Default for Channel {
    fn default() -> Self {
        Self { spans: [(0, 0); SPANS], first: 0, count: 0, end: i64::MIN, busy: 0 }
    }
}

impl Channel {
    /// Takes the bus for `length` ns, not before `earliest`; returns the beginning.
    #[inline(always)]
    pub fn reserve(&mut self, earliest: i64, length: i64) -> i64 {
        self.busy += length as u64;
        if earliest < self.end {
            return self.reserve_gap(earliest, length);
        }
        // The usual case: behind all that is known.
        if earliest == self.end {
            self.at(self.count.wrapping_sub(1)).1 += length;
        } else {
            self.push((earliest, earliest + length));
        }
        self.end = earliest + length;
        earliest
    }

    /// Whether no transfer ends after `at`.
    #[inline]
    pub fn is_free(&self, at: i64) -> bool {
        self.end <= at
    }

    #[inline(always)]
    fn at(&mut self, index: usize) -> &mut Span {
        &mut self.spans[self.first.wrapping_add(index) % SPANS]
    }

    /// The same where later transfers are known.
    #[inline(never)]
    fn reserve_gap(&mut self, earliest: i64, length: i64) -> i64 {
        let mut index = self.count;
        while index > 0 && self.at(index - 1).1 > earliest {
            index -= 1;
        }
        // Now every span before `index` ends by `earliest`.
        let mut begin = earliest;
        while index < self.count {
            let (from, to) = *self.at(index);
            if from - begin >= length {
                break;
            }
            begin = begin.max(to);
            index += 1;
        }
        self.insert(index, (begin, begin + length));
        self.end = self.end.max(begin + length);
        begin
    }

    /// Adds a transfer behind all others. Giving up a gap only ever delays: the first two transfers become one.
    #[inline]
    fn push(&mut self, span: Span) {
        if self.count == SPANS {
            let first = *self.at(0);
            self.first = (self.first + 1) % SPANS;
            self.count -= 1;
            self.at(0).0 = first.0;
        }
        *self.at(self.count) = span;
        self.count += 1;
    }

    fn insert(&mut self, index: usize, (begin, end): Span) {
        let joins_previous = index > 0 && self.at(index - 1).1 == begin;
        let joins_next = index < self.count && self.at(index).0 == end;
        match (joins_previous, joins_next) {
            (true, true) => {
                self.at(index - 1).1 = self.at(index).1;
                for i in index + 1..self.count {
                    *self.at(i - 1) = *self.at(i);
                }
                self.count -= 1;
            }
            (true, false) => self.at(index - 1).1 = end,
            (false, true) => self.at(index).0 = begin,
            (false, false) => {
                // In place of the last one, which moves up, and so on; it is pushed anew.
                let mut moved = (begin, end);
                for i in index..self.count {
                    std::mem::swap(self.at(i), &mut moved);
                }
                self.push(moved);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_transfer_uses_a_gap_and_a_long_one_does_not() {
        let mut channel = Channel::default();
        assert_eq!(channel.reserve(100, 10), 100);
        assert_eq!(channel.reserve(0, 50), 0);
        assert_eq!(channel.reserve(0, 60), 110);
        assert_eq!(channel.reserve(0, 50), 50);
        assert_eq!(channel.reserve(0, 1), 170);
        assert_eq!(channel.busy, 171);
        assert_eq!((channel.count, *channel.at(0)), (1, (0, 171)));
    }

    #[test]
    fn transfers_never_overlap_however_many_gaps_there_are() {
        let mut channel = Channel::default();
        let mut taken: Vec<(i64, i64)> = Vec::new();
        for i in 0..500i64 {
            let (earliest, length) = ((i * 7919) % 5000, 1 + i % 13);
            let begin = channel.reserve(earliest, length);
            assert!(begin >= earliest);
            assert!(taken.iter().all(|(from, to)| begin + length <= *from || begin >= *to));
            taken.push((begin, begin + length));
        }
    }
}
