//! Finished requests put in order of arrival.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use emmclab_trace::{Nanos, Request};

/// A request that is open for longer than this no longer holds the finished ones back.
const LONGEST_WAIT: Nanos = Nanos::from_secs(30);
/// Finished requests that may be held back.
const MOST_HELD: usize = 1 << 18;

/// By arrival, then by the order in which they were finished.
struct Held {
    key: Reverse<(Nanos, u64)>,
    request: Request,
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// Holds finished requests until none that arrived earlier can still be finished. Bounded in number and in time.
#[derive(Default)]
pub(crate) struct ArrivalOrder {
    held: BinaryHeap<Held>,
    added: u64,
    last: Option<Nanos>,
    latest: Option<Nanos>,
    /// Requests that came too late to be put in order, and were left out.
    pub(crate) late: u64,
}

impl ArrivalOrder {
    /// Adds a finished request; one that arrived before what has been given out already is left out and counted.
    pub(crate) fn push(&mut self, request: Request) {
        if self.last.is_some_and(|last| request.arrival < last) {
            self.late += 1;
            return;
        }
        self.latest = self.latest.max(request.complete);
        self.held.push(Held { key: Reverse((request.arrival, self.added)), request });
        self.added += 1;
    }

    /// The next request that nothing can precede, the oldest open one having arrived at `oldest_open`.
    pub(crate) fn pop(&mut self, oldest_open: Option<Nanos>) -> Option<Request> {
        let arrival = self.held.peek()?.request.arrival;
        let waited = self.latest.is_some_and(|latest| latest - arrival > LONGEST_WAIT);
        let free = oldest_open.is_none_or(|open| arrival <= open);
        if !free && !waited && self.held.len() <= MOST_HELD {
            return None;
        }
        self.last = Some(arrival);
        self.held.pop().map(|held| held.request)
    }
}

#[cfg(test)]
mod tests {
    use emmclab_trace::{Op, Sector};

    use super::*;

    fn request(arrival: i64, complete: i64) -> Request {
        let request = Request::new(Nanos(arrival), Op::Read, Sector(0), 8);
        Request { complete: Some(Nanos(complete)), ..request }
    }

    fn drain(order: &mut ArrivalOrder, oldest: Option<i64>) -> Vec<i64> {
        std::iter::from_fn(|| order.pop(oldest.map(Nanos))).map(|request| request.arrival.0).collect()
    }

    #[test]
    fn an_open_request_holds_back_those_that_arrived_after_it() {
        let mut order = ArrivalOrder::default();
        order.push(request(30, 31));
        order.push(request(10, 40));
        assert_eq!(drain(&mut order, Some(20)), [10]);
        order.push(request(20, 50));
        assert_eq!(drain(&mut order, None), [20, 30]);
    }

    #[test]
    fn a_request_that_never_ends_holds_back_for_a_limited_time_only() {
        let mut order = ArrivalOrder::default();
        order.push(request(10, 11));
        assert!(drain(&mut order, Some(5)).is_empty());
        order.push(request(20, 11 + LONGEST_WAIT.0));
        assert_eq!(drain(&mut order, Some(5)), [10]);
        // When it ends all the same, there is no place for it any more.
        order.push(request(5, 99));
        assert_eq!((order.late, drain(&mut order, None)), (1, vec![20]));
    }

    #[test]
    fn no_more_than_a_fixed_number_is_held() {
        let mut order = ArrivalOrder::default();
        for arrival in 1..=MOST_HELD as i64 + 3 {
            order.push(request(arrival, arrival));
        }
        assert_eq!(drain(&mut order, Some(0)), [1, 2, 3]);
    }
}
