//! A bus as a timeline of transfers, with the gaps between them.

use emmclab_base::Nanos;

/// Initial number of entries of the ring of gaps, and the largest, which bounds the memory of a bus to 1 MB. Powers of two.
const FEWEST_ENTRIES: usize = 32;
const MOST_ENTRIES: usize = 1 << 16;

/// Start and end of an interval in which the bus is idle, ns.
type Gap = (i64, i64);

/// Marks an unused entry. As an interval, it ends before all times of a run.
const NONE: Gap = (i64::MIN, i64::MIN);

/// A bus. A transfer uses the first gap that is long enough.
#[derive(Clone, Debug)]
pub(crate) struct BusTimeline {
    /// Ring of the gaps between transfers in order of time; the latest gap precedes `next`. One entry of the ring is not used. Entries
    /// without a gap ([`NONE`]) precede all others. The ring grows instead of dropping a gap that a later transfer may use.
    gaps: Box<[Gap]>,
    next: usize,
    /// No later transfer begins before this time, ns.
    now: i64,
    /// Start of the first transfer, ns; `i64::MAX` before the first transfer.
    begin: i64,
    /// End of the last transfer, ns; `i64::MAX` before the first transfer.
    end: i64,
    /// Total time of transfers, ns.
    pub busy: u64,
}

impl Default for BusTimeline {
    fn default() -> Self {
        Self { gaps: [NONE; FEWEST_ENTRIES].into(), next: 0, now: i64::MIN, begin: i64::MAX, end: i64::MAX, busy: 0 }
    }
}

impl BusTimeline {
    /// Reserves the bus for `length`, at `earliest` or later. Returns the start of the transfer.
    #[inline(always)]
    pub fn reserve(&mut self, Nanos(earliest): Nanos, Nanos(length): Nanos) -> Nanos {
        self.busy += length as u64;
        if earliest < self.end {
            return Nanos(self.reserve_gap(earliest, length));
        }
        // Usually, the transfer begins after the end of all other transfers. The idle time before it becomes a gap.
        if earliest > self.end {
            self.push((self.end, earliest));
        }
        self.end = earliest + length;
        Nanos(earliest)
    }

    /// Promises that all later transfers begin at `at` or later.
    #[inline(always)]
    pub fn forget_before(&mut self, Nanos(at): Nanos) {
        self.now = at;
    }

    /// Removes all transfers, but keeps the total time that they took.
    pub fn cut(&mut self) {
        *self = Self { busy: self.busy, ..Self::default() };
    }

    /// Returns an entry of the ring by its distance from the next entry to fill: 1 for the last filled entry.
    #[inline(always)]
    fn entry(&mut self, before: usize) -> &mut Gap {
        let last = self.gaps.len() - 1;
        &mut self.gaps[self.next.wrapping_sub(before) & last]
    }

    /// Adds the latest gap.
    #[inline(always)]
    fn push(&mut self, gap: Gap) {
        *self.entry(0) = gap;
        self.next = self.next.wrapping_add(1);
        // The unused entry is the earliest gap if the ring is full.
        if self.entry(0).1 > self.now {
            self.grow();
        }
    }

    /// Doubles the ring, which is full.
    #[cold]
    fn grow(&mut self) {
        let entries = self.gaps.len();
        if entries < MOST_ENTRIES {
            self.gaps.rotate_left(self.next & (entries - 1));
            self.gaps = [&self.gaps, &*vec![NONE; entries]].concat().into();
            self.next = entries;
        }
    }

    /// Reserves the bus for a transfer that may fit into a gap between existing transfers.
    #[inline(never)]
    fn reserve_gap(&mut self, earliest: i64, length: i64) -> i64 {
        if earliest + length <= self.begin {
            self.reserve_before_all(earliest, length);
            return earliest;
        }
        // Search for the number of gaps that end after `earliest`, which usually are few.
        let (mut later, mut step) = (0, 1);
        while step < self.gaps.len() && self.entry(step).1 > earliest {
            (later, step) = (step, step * 2);
        }
        step = later / 2;
        while step > 0 {
            let ends_later = self.entry(later + step).1 > earliest;
            later = if ends_later { later + step } else { later };
            step /= 2;
        }
        let fits = |before: &usize| {
            let (from, to) = *self.entry(*before);
            to - from.max(earliest) >= length
        };
        let Some(entry) = (1..=later).rev().find(fits) else {
            let begin = self.end;
            self.end += length;
            return begin;
        };
        let gap = self.entry(entry);
        let (from, to) = *gap;
        let begin = from.max(earliest);
        let end = begin + length;
        match (begin == from, end == to) {
            (true, true) => self.close(entry),
            (true, false) => gap.0 = end,
            (false, true) => gap.1 = begin,
            (false, false) => {
                *gap = (from, begin);
                self.insert(entry, (end, to));
            }
        }
        begin
    }

    /// Reserves the bus for a transfer that ends before the first existing transfer begins, or for the first transfer of all.
    #[cold]
    fn reserve_before_all(&mut self, earliest: i64, length: i64) {
        let gap = (earliest + length, self.begin);
        self.begin = earliest;
        if gap.1 == i64::MAX {
            self.end = gap.0;
            return;
        }
        if gap.0 == gap.1 {
            return;
        }
        // `gap` is earlier than all gaps in the ring, so it needs a free entry at the end of the ring.
        let mut before = 1;
        while *self.entry(before) != NONE {
            before += 1;
            if before == self.gaps.len() {
                self.grow();
                if before == self.gaps.len() {
                    return;
                }
            }
        }
        *self.entry(before) = gap;
    }

    /// Inserts a gap into the ring, directly after the entry at distance `before` (see [`Self::entry`]). Later gaps move by one entry.
    fn insert(&mut self, before: usize, mut gap: Gap) {
        for later in (1..before).rev() {
            std::mem::swap(self.entry(later), &mut gap);
        }
        self.push(gap);
    }

    /// Removes a gap that a transfer fills completely. `before` is the distance of the gap in the ring (see [`Self::entry`]).
    fn close(&mut self, before: usize) {
        for later in (1..before).rev() {
            *self.entry(later + 1) = *self.entry(later);
        }
        self.next = self.next.wrapping_sub(1);
        // The ring now has a free entry. Gaps that were dropped while the ring was full are not restored.
        *self.entry(self.gaps.len() - 1) = NONE;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reference model of a bus for tests: all transfers as intervals.
    #[derive(Default)]
    struct Plain(Vec<(i64, i64)>);

    impl Plain {
        fn reserve(&mut self, earliest: i64, length: i64) -> i64 {
            let mut begin = earliest;
            for (from, to) in &self.0 {
                if *to > begin {
                    if from - begin >= length {
                        break;
                    }
                    begin = *to;
                }
            }
            self.0.push((begin, begin + length));
            self.0.sort_unstable();
            begin
        }
    }

    #[test]
    fn a_short_transfer_uses_a_gap_and_a_long_one_does_not() {
        let mut channel = BusTimeline::default();
        let mut reserve = |earliest, length| channel.reserve(Nanos(earliest), Nanos(length)).0;
        assert_eq!(reserve(100, 10), 100);
        assert_eq!(reserve(0, 50), 0);
        assert_eq!(reserve(0, 60), 110);
        assert_eq!(reserve(0, 50), 50);
        assert_eq!(reserve(0, 1), 170);
        assert_eq!(channel.busy, 171);
    }

    proptest! {
        #[test]
        fn transfers_go_where_a_plain_list_of_all_of_them_has_room(
            transfers in prop::collection::vec((0..4000i64, 1..14i64), 0..300),
            spread in 1..8i64,
        ) {
            let (mut channel, mut plain) = (BusTimeline::default(), Plain::default());
            for (i, (earliest, length)) in (0..).zip(transfers) {
                let now = i * spread;
                let earliest = earliest * spread + now;
                channel.forget_before(Nanos(now));
                let begin = channel.reserve(Nanos(earliest), Nanos(length));
                prop_assert_eq!(begin.0, plain.reserve(earliest, length));
            }
        }
    }
}
