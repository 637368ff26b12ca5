//! Merges the event streams of all CPUs into one stream in order of time.

/// Merges events that are read from all CPUs in rounds. It does not need the clock of the recorded machine.
///
/// The stream of each CPU is in order. If a round has emptied every CPU, all events that are read later were written after the
/// previous round began. Therefore all events up to the latest time of the previous round can be returned. If a CPU was not
/// emptied, events after its latest time must wait. The events of up to two rounds are in memory.
#[derive(Debug)]
pub struct CpuStreamMerge<T> {
    pending: Vec<(u64, T)>,
    /// Latest time of an event that was read up to the end of the previous round.
    last_round: u64,
    latest: u64,
    /// Some CPUs may have further events after this round. This is the earliest of their latest event times.
    behind: u64,
}

impl<T> Default for CpuStreamMerge<T> {
    fn default() -> Self {
        Self { pending: Vec::new(), last_round: 0, latest: 0, behind: u64::MAX }
    }
}

impl<T> CpuStreamMerge<T> {
    /// Adds an event; events of one CPU must be in order.
    #[inline]
    pub fn push(&mut self, time: u64, event: T) {
        self.latest = self.latest.max(time);
        self.pending.push((time, event));
    }

    /// Records that a CPU, whose last event was at `latest`, has more events that were not read in this round.
    pub fn not_emptied(&mut self, latest: u64) {
        self.behind = self.behind.min(latest);
    }

    /// Ends a round; returns, in order of time, the events that are earlier than all events still to be read.
    pub fn end_round(&mut self) -> impl Iterator<Item = (u64, T)> {
        let safe = self.last_round.min(self.behind);
        self.last_round = self.latest;
        self.behind = u64::MAX;
        // The sort is stable, and fast because the events of each CPU are sorted.
        self.pending.sort_by_key(|(time, _)| *time);
        let ready = self.pending.partition_point(|(time, _)| *time <= safe);
        self.pending.drain(..ready)
    }

    /// Drops the pending events after an incomplete round, because earlier events may be missing. Returns their number.
    pub fn abandon(&mut self) -> usize {
        self.pending.drain(..).count()
    }

    /// Returns the remaining events, in order of time.
    pub fn finish(&mut self) -> impl Iterator<Item = (u64, T)> {
        self.pending.sort_by_key(|(time, _)| *time);
        self.pending.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_event_waits_until_nothing_earlier_can_follow() {
        let mut merge = CpuStreamMerge::default();
        merge.push(10, "cpu 0");
        assert_eq!(merge.end_round().count(), 0);
        merge.push(9, "cpu 1, written while round 1 read cpu 0");
        merge.push(30, "cpu 1");
        let times: Vec<_> = merge.end_round().map(|(time, _)| time).collect();
        assert_eq!(times, [9, 10]);
        assert_eq!(merge.end_round().count(), 1);
    }

    #[test]
    fn a_cpu_that_is_behind_holds_the_others_back() {
        let mut merge = CpuStreamMerge::default();
        merge.push(10, ());
        merge.push(50, ());
        merge.not_emptied(10);
        assert_eq!(merge.end_round().count(), 0);
        merge.push(20, ());
        merge.not_emptied(20);
        assert_eq!(merge.end_round().map(|(time, ())| time).collect::<Vec<_>>(), [10, 20]);
    }

    proptest! {
        /// Simulates the machine: events are written at increasing times on any CPU, and a round reads one CPU after the other
        /// while more events are written.
        #[test]
        fn the_merged_stream_is_in_order_and_complete(
            steps in prop::collection::vec((0usize..4, 0usize..3), 1..300),
            cap in 1usize..4,
        ) {
            let mut waiting: Vec<std::collections::VecDeque<u64>> = vec![std::collections::VecDeque::default(); 3];
            let (mut merge, mut out, mut now, mut visited) = (CpuStreamMerge::default(), Vec::new(), 0, 0);
            for (burst, cpu) in &steps {
                for _ in 0..*burst {
                    now += 1;
                    waiting[*cpu].push_back(now);
                }
                let queue = &mut waiting[visited];
                let mut last = None;
                for _ in 0..cap {
                    if let Some(time) = queue.pop_front() {
                        merge.push(time, ());
                        last = Some(time);
                    }
                }
                if let (Some(last), false) = (last, queue.is_empty()) {
                    merge.not_emptied(last);
                }
                visited += 1;
                if visited == 3 {
                    visited = 0;
                    out.extend(merge.end_round().map(|(time, ())| time));
                }
            }
            out.extend(merge.finish().map(|(time, ())| time));
            let left: usize = waiting.iter().map(std::collections::VecDeque::len).sum();
            prop_assert_eq!(out.len() + left, now as usize);
            prop_assert!(out.is_sorted());
        }
    }
}
