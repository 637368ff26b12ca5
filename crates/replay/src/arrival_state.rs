//! Determines whether the device is idle when a request arrives, or how much unfinished work it has.

use std::collections::VecDeque;

use emmclab_device::RequestCompleted;
use emmclab_trace::{Nanos, Op};

/// Maximum number of completions that are stored while an earlier request is incomplete. If more are needed, the stored ones are counted at
/// once, and the earlier request is counted when it completes.
const MOST_WAITING: usize = 1 << 16;

/// Maximum backlog of the device at the arrival of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BacklogPeak {
    /// Time from the arrival until all earlier requests were complete.
    pub backlog: Nanos,
    /// Time from the last idle state of the device to the arrival.
    pub busy_for: Nanos,
}

/// Number of requests of an operation, and number of these that arrived when all earlier requests were complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ArrivalCounts {
    pub requests: u64,
    pub no_wait: u64,
}

/// Determines in order of arrival whether a request found the device idle. Completions may become known in any order.
#[derive(Clone, Debug)]
pub(crate) struct ArrivalState {
    /// Number of the next request to evaluate.
    next: u64,
    /// Arrival, completion and operation of the requests from `next` on; `None` if not yet known.
    waiting: VecDeque<Option<(Nanos, Nanos, Op)>>,
    /// Time from which all earlier requests are complete.
    idle_from: Nanos,
    /// Start of the current busy period of the device.
    busy_since: Nanos,
    pub peak: BacklogPeak,
    /// Counts of reads and of writes.
    pub counts: [ArrivalCounts; 2],
}

impl ArrivalState {
    /// Creates the state at the start of a run whose first request has the number `next`.
    pub fn starting_at(next: u64) -> Self {
        Self {
            next,
            waiting: VecDeque::new(),
            idle_from: Nanos::MIN,
            busy_since: Nanos::ZERO,
            peak: BacklogPeak::default(),
            counts: Default::default(),
        }
    }

    /// Adds a request whose completion is known.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for each request, whose times are in registers")]
    pub fn add(&mut self, event: &RequestCompleted) {
        if event.id == self.next && self.waiting.is_empty() {
            self.next += 1;
            self.count_arrival(event.arrival, event.complete, event.op);
        } else {
            self.add_out_of_order(event);
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn count_arrival(&mut self, arrival: Nanos, complete: Nanos, op: Op) {
        let is_idle = arrival >= self.idle_from;
        self.busy_since = if is_idle { arrival } else { self.busy_since };
        let backlog = self.idle_from.max(arrival) - arrival;
        if backlog > self.peak.backlog {
            self.peak = BacklogPeak { backlog, busy_for: arrival - self.busy_since };
        }
        self.idle_from = self.idle_from.max(complete);
        let judged = match op {
            Op::Read => &mut self.counts[0],
            Op::Write => &mut self.counts[1],
            Op::Discard | Op::Flush | Op::SecureErase => return,
        };
        judged.requests += 1;
        judged.no_wait += u64::from(is_idle);
    }

    #[inline(never)]
    fn add_out_of_order(&mut self, event: &RequestCompleted) {
        let Some(place) = event.id.checked_sub(self.next) else {
            return self.count_arrival(event.arrival, event.complete, event.op);
        };
        let place = if place < MOST_WAITING as u64 {
            place as usize
        } else {
            for (arrival, complete, op) in std::mem::take(&mut self.waiting).into_iter().flatten() {
                self.count_arrival(arrival, complete, op);
            }
            self.next = event.id;
            0
        };
        if place >= self.waiting.len() {
            self.waiting.resize(place + 1, None);
        }
        self.waiting[place] = Some((event.arrival, event.complete, event.op));
        while let Some(Some((arrival, complete, op))) = self.waiting.front().copied() {
            self.waiting.pop_front();
            self.next += 1;
            self.count_arrival(arrival, complete, op);
        }
    }
}

#[cfg(test)]
mod tests {
    use emmclab_device::{CommandFlags, LatencyBreakdown};
    use proptest::prelude::*;

    use super::*;

    fn event(id: u64, (arrival, complete): (i64, i64)) -> RequestCompleted {
        RequestCompleted {
            id,
            op: if id.is_multiple_of(3) { Op::Read } else { Op::Write },
            modifiers: CommandFlags::empty(),
            sector: 0,
            sectors: 8,
            arrival: Nanos(arrival),
            start: Nanos(arrival),
            complete: Nanos(complete),
            subrequests: 0,
            waits: LatencyBreakdown::default(),
        }
    }

    proptest! {
        #[test]
        fn requests_are_judged_by_arrival_whatever_the_order_of_their_completions(
            gaps in prop::collection::vec((0i64..20, 0i64..60, any::<u32>()), 1..100),
            first in 0u64..3,
        ) {
            let mut now = 0;
            let times = |(gap, took, _): &(i64, i64, u32)| {
                now += gap;
                (now, now + took)
            };
            let requests: Vec<_> = gaps.iter().map(times).collect();
            let (mut idle, mut no_wait, mut peak) = (i64::MIN, 0, 0);
            for (arrival, complete) in &requests {
                no_wait += u64::from(*arrival >= idle);
                peak = peak.max(idle.saturating_sub(*arrival));
                idle = idle.max(*complete);
            }
            let mut order: Vec<_> = (0..requests.len()).collect();
            order.sort_by_key(|place| gaps[*place].2);
            for order in [(0..requests.len()).collect::<Vec<_>>(), order] {
                let mut state = ArrivalState::starting_at(first);
                for place in order {
                    state.add(&event(first + place as u64, requests[place]));
                }
                prop_assert_eq!(state.counts.iter().map(|judged| judged.requests).sum::<u64>(), requests.len() as u64);
                prop_assert_eq!(state.counts.iter().map(|judged| judged.no_wait).sum::<u64>(), no_wait);
                prop_assert_eq!(state.peak.backlog.0, peak);
            }
        }
    }

    #[test]
    fn a_request_that_never_completes_holds_a_bounded_number_back() {
        let mut state = ArrivalState::starting_at(0);
        for id in 1..3 * MOST_WAITING as u64 {
            state.add(&event(id, (id as i64, id as i64)));
        }
        assert!(state.waiting.len() <= MOST_WAITING);
        let judged: u64 = state.counts.iter().map(|judged| judged.requests).sum();
        assert!(judged + state.waiting.len() as u64 >= 3 * MOST_WAITING as u64 - 1);
    }
}
