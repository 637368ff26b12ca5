//! Finds requests of the last milliseconds by device, range and operation.

use crate::Request;

/// Initial capacity, which fits in the first-level cache.
const FIRST_ROOM: usize = 1 << 8;
/// Maximum number of requests that are held; if there are more, the oldest are dropped early. This is 20 million requests per
/// second for 3 ms, and 655 thousand per second for 100 ms.
const MOST: usize = 1 << 16;
/// A request number that means that no earlier request has this hash.
const NONE: u32 = u32::MAX;

/// A ring of requests, and for each hash the number of its latest request. Each entry has the number of the previous request of
/// its hash.
#[derive(Clone, Debug)]
pub(super) struct RecentRequests {
    /// Time for which requests are held, in nanoseconds.
    horizon_ns: i64,
    ring: Vec<RecentRequestEntry>,
    latest: Vec<u32>,
    /// Number of requests so far, modulo 2^32.
    count: u32,
}

#[derive(Clone, Copy, Debug)]
struct RecentRequestEntry {
    request: Request,
    before: u32,
}

impl RecentRequests {
    pub fn new(horizon_ns: i64) -> Self {
        Self { horizon_ns, ring: Vec::new(), latest: vec![NONE; 2 * FIRST_ROOM], count: 0 }
    }

    /// The latest request of the same device, range and operation within the horizon; `None` if there is none.
    #[inline]
    pub fn find(&self, request: &Request) -> Option<&Request> {
        let mut number = self.latest[self.bucket(request)];
        loop {
            // Requests that are older than the ring were overwritten.
            let age = self.count.wrapping_sub(number) as usize;
            if number == NONE || age > self.ring.len() {
                return None;
            }
            let entry = &self.ring[number as usize % self.ring.len()];
            let earlier = &entry.request;
            if request.arrival.0.saturating_sub(earlier.arrival.0) > self.horizon_ns {
                return None;
            }
            if same_place(earlier, request) {
                return Some(earlier);
            }
            number = entry.before;
        }
    }

    /// Adds a request; requests must be added in order of arrival.
    #[inline]
    pub fn push(&mut self, request: &Request) {
        let room = self.latest.len() / 2;
        if self.ring.len() == room {
            let oldest = &self.ring[self.count as usize % room].request;
            let still_due = request.arrival.0.saturating_sub(oldest.arrival.0) <= self.horizon_ns;
            if still_due && room < MOST {
                self.restart(2 * room);
            }
        }
        let bucket = self.bucket(request);
        let entry = RecentRequestEntry { request: *request, before: self.latest[bucket] };
        let place = self.count as usize % (self.latest.len() / 2);
        match self.ring.get_mut(place) {
            Some(oldest) => *oldest = entry,
            None => self.ring.push(entry),
        }
        self.latest[bucket] = self.count;
        // The count must not become `NONE`, so the ring is numbered from 0 again.
        self.count = self.count.wrapping_add(1);
        if self.count == NONE {
            self.restart(self.latest.len() / 2);
        }
    }

    /// Puts the requests into a ring of capacity `room`, in order, and numbers them from 0.
    #[cold]
    fn restart(&mut self, room: usize) {
        let oldest = self.count as usize % self.ring.len().max(1);
        let mut ring = std::mem::take(&mut self.ring);
        ring.rotate_left(oldest);
        self.latest = vec![NONE; 2 * room];
        self.ring.reserve_exact(room);
        self.count = 0;
        for entry in ring {
            let bucket = self.bucket(&entry.request);
            self.ring.push(RecentRequestEntry { before: self.latest[bucket], ..entry });
            self.latest[bucket] = self.count;
            self.count += 1;
        }
    }

    #[inline]
    fn bucket(&self, request: &Request) -> usize {
        let device = request.device.map_or(0, |device| u64::from(device.0) + 1);
        let rest = u64::from(request.sectors) << 32 | (request.op as u64) << 28 | device;
        let mixed = (request.sector.0 ^ rest.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        (mixed >> (u64::BITS - self.latest.len().ilog2())) as usize
    }
}

#[inline]
fn same_place(a: &Request, b: &Request) -> bool {
    a.sector == b.sector && a.sectors == b.sectors && a.op == b.op && a.device == b.device
}

#[cfg(test)]
mod tests {
    use emmclab_base::{Nanos, Op, Sector};
    use proptest::prelude::*;

    use super::*;

    fn read(arrival: i64, sector: u64) -> Request {
        Request::new(Nanos(arrival), Op::Read, Sector(sector), 8)
    }

    proptest! {
        /// Compares with a list of all requests. Few addresses and time steps of 0 make the ring fill up, grow and wrap around.
        #[test]
        fn the_latest_equal_request_within_the_horizon_is_found(
            requests in prop::collection::vec((0_i64..4, 0_u64..50), 1..6_000),
            horizon in 0_i64..4_000,
        ) {
            let mut recent = RecentRequests::new(horizon);
            let mut all: Vec<Request> = Vec::new();
            let mut now = 0;
            for (step, sector) in requests {
                now += step;
                let request = read(now, sector);
                let expected = all.iter().rev().find(|earlier| same_place(earlier, &request))
                    .filter(|earlier| now - earlier.arrival.0 <= horizon);
                prop_assert_eq!(recent.find(&request), expected);
                recent.push(&request);
                all.push(request);
            }
        }
    }

    #[test]
    fn memory_is_bounded_where_all_requests_arrive_at_once() {
        let mut recent = RecentRequests::new(1);
        (0..3 * MOST as u64).for_each(|sector| recent.push(&read(0, sector)));
        assert_eq!((recent.ring.len(), recent.latest.len()), (MOST, 2 * MOST));
        assert!(recent.find(&read(0, 3 * MOST as u64 - 1)).is_some());
        assert!(recent.find(&read(0, 0)).is_none());
    }

    #[test]
    fn numbers_that_turn_over_lead_to_no_other_request() {
        let mut recent = RecentRequests::new(10);
        recent.count = NONE - 3;
        recent.ring =
            (0..FIRST_ROOM).map(|_| RecentRequestEntry { request: read(i64::MIN, u64::MAX), before: NONE }).collect();
        for sector in 0..8 {
            recent.push(&read(5, sector));
        }
        for sector in 0..8 {
            assert_eq!(recent.find(&read(9, sector)).map(|found| found.sector), Some(Sector(sector)));
        }
        assert!(recent.find(&read(9, 8)).is_none());
    }
}
