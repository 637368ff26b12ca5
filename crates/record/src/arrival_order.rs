//! Sorts finished requests by their time of arrival.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use emmclab_trace::{Nanos, Request};

/// A request that is in progress for longer than this no longer delays the finished ones.
const LONGEST_WAIT: Nanos = Nanos::from_secs(30);
/// Maximum number of finished requests that are held back.
const MOST_HELD: usize = 1 << 18;

/// A finished request, ordered by arrival, then by the order of finishing.
struct FinishedRequest {
    key: Reverse<(Nanos, u64)>,
    request: Request,
}

impl PartialEq for FinishedRequest {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for FinishedRequest {}

impl PartialOrd for FinishedRequest {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for FinishedRequest {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// Holds finished requests until no request that arrived earlier can still finish. Limited in number and in time.
#[derive(Default)]
pub(crate) struct ArrivalOrder {
    finished: BinaryHeap<FinishedRequest>,
    added: u64,
    last: Option<Nanos>,
    latest: Option<Nanos>,
    /// Requests that finished too late to be sorted, and were omitted.
    pub(crate) late: u64,
}

impl ArrivalOrder {
    /// Adds a finished request. If it arrived before a request that was already returned, it is omitted and counted.
    pub(crate) fn push(&mut self, request: Request) {
        if self.last.is_some_and(|last| request.arrival < last) {
            self.late += 1;
            return;
        }
        self.latest = self.latest.max(request.complete);
        self.finished.push(FinishedRequest { key: Reverse((request.arrival, self.added)), request });
        self.added += 1;
    }

    /// The next request, if no request can precede it. `oldest_open` is the arrival of the oldest request in progress.
    pub(crate) fn pop(&mut self, oldest_open: Option<Nanos>) -> Option<Request> {
        let arrival = self.finished.peek()?.request.arrival;
        let waited = self.latest.is_some_and(|latest| latest - arrival > LONGEST_WAIT);
        let free = oldest_open.is_none_or(|open| arrival <= open);
        if !free && !waited && self.finished.len() <= MOST_HELD {
            return None;
        }
        self.last = Some(arrival);
        self.finished.pop().map(|held| held.request)
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
        // When it finishes after all, it can no longer be sorted.
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
