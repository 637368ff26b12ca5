//! A bus as a timeline with gaps.

use std::collections::VecDeque;

/// Future transfers remembered; with more, the earliest gap is given up.
const SPANS: usize = 32;

/// A bus: who asks for it gets the first gap that is long enough.
#[derive(Clone, Debug, Default)]
pub(crate) struct Channel {
    /// Disjoint transfers in order of time, as begin and end.
    spans: VecDeque<(i64, i64)>,
    /// Time in use, ns.
    pub busy: u64,
}

impl Channel {
    /// Takes the bus for `length` ns, not before `earliest`; returns the beginning.
    #[inline]
    pub fn reserve(&mut self, earliest: i64, length: i64) -> i64 {
        self.busy += length as u64;
        if let Some(last) = self.spans.back_mut()
            && earliest >= last.1
        {
            // The usual case: behind all that is known.
            if earliest == last.1 {
                last.1 += length;
            } else {
                self.push(earliest, earliest + length);
            }
            return earliest;
        }
        self.reserve_gap(earliest, length)
    }

    /// The same where later transfers are known.
    fn reserve_gap(&mut self, earliest: i64, length: i64) -> i64 {
        let mut at = self.spans.len();
        while at > 0 && self.spans[at - 1].1 > earliest {
            at -= 1;
        }
        // Now every span before `at` ends by `earliest`.
        let mut begin = earliest;
        while let Some(&(from, to)) = self.spans.get(at) {
            if from - begin >= length {
                break;
            }
            begin = begin.max(to);
            at += 1;
        }
        self.insert(at, begin, begin + length);
        begin
    }

    #[inline]
    fn push(&mut self, begin: i64, end: i64) {
        if self.spans.len() == SPANS {
            self.give_up_gap();
        }
        self.spans.push_back((begin, end));
    }

    /// Giving up a gap only ever delays: the first two transfers become one.
    #[inline]
    fn give_up_gap(&mut self) {
        if let Some(first) = self.spans.pop_front() {
            self.spans[0].0 = first.0;
        }
    }

    fn insert(&mut self, at: usize, begin: i64, end: i64) {
        let joins_previous = at > 0 && self.spans[at - 1].1 == begin;
        let joins_next = self.spans.get(at).is_some_and(|span| span.0 == end);
        match (joins_previous, joins_next) {
            (true, true) => {
                self.spans[at - 1].1 = self.spans[at].1;
                self.spans.remove(at);
            }
            (true, false) => self.spans[at - 1].1 = end,
            (false, true) => self.spans[at].0 = begin,
            (false, false) => {
                self.spans.insert(at, (begin, end));
                if self.spans.len() > SPANS {
                    self.give_up_gap();
                }
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
        assert_eq!(channel.spans, [(0, 171)]);
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
