//! Detects suspected re-issues: requests that the driver returned and the kernel issued again, in traces that do not mark them.
//!
//! A request is suspected if the latest earlier request of the same device, sector, length and operation was 0.5 to 3 ms (or
//! `--reissue-window`) before it, and
//! - if processes are recorded: the earlier one belongs to another process, and this one to a kernel worker (`kworker/...`);
//! - if completions are recorded: the earlier one was not complete.
//!
//! A driver that cannot accept a request, because the link to the device sleeps, returns it; a worker of the block layer issues
//! it again when the link is active. Requests with neither process nor completion cannot be checked.

use std::fmt;

use crate::{Batch, Error, ErrorClass, Nanos, Request, RequestFlags, Result, duration::parse_duration};

const WORKER: &str = "kworker/";

/// Detects suspected re-issues in batches in order of arrival.
#[derive(Debug)]
pub(super) struct ReissueDetector {
    window: ReissueWindow,
    recent: RecentRequests,
    /// For each name id, whether the process is a kernel worker.
    workers: Vec<bool>,
    could_detect: bool,
}

impl ReissueDetector {
    pub fn new(window: ReissueWindow) -> Self {
        Self { window, recent: RecentRequests::new(window.latest.0), workers: Vec::new(), could_detect: false }
    }

    /// Whether any batch had the required processes or completions.
    pub fn could_detect(&self) -> bool {
        self.could_detect
    }

    /// Marks suspected re-issues with [`RequestFlags::REISSUED`].
    pub fn mark(&mut self, batch: Batch) -> Batch {
        if batch.process.is_empty() && batch.complete.is_empty() {
            return batch;
        }
        self.could_detect = true;
        let names = batch.processes().iter().skip(self.workers.len());
        self.workers.extend(names.map(|name| name.starts_with(WORKER)));
        let mut rows = Vec::new();
        for (row, request) in batch.iter().enumerate().filter(|(_, request)| request.sectors > 0) {
            if self.is_reissue(&request) {
                rows.push(row);
            }
            self.recent.push(&request);
        }
        if rows.is_empty() { batch } else { batch.flagged(&rows, RequestFlags::REISSUED) }
    }

    #[inline]
    fn is_reissue(&self, request: &Request) -> bool {
        let by_worker = request.process.map(|process| self.workers.get(process.0 as usize).copied().unwrap_or(false));
        if by_worker == Some(false) {
            return false;
        }
        let Some(first) = self.recent.find(request) else { return false };
        let after_ns = request.arrival.0.saturating_sub(first.arrival.0);
        let open = first.complete.map(|complete| complete > request.arrival);
        let by_process = if by_worker.is_some() { of_another_process(first, request) } else { open.is_some() };
        self.window.holds(after_ns) && by_process && open != Some(false)
    }
}

/// Whether two requests belong to different processes: compares pids if both have one, otherwise names.
fn of_another_process(first: &Request, second: &Request) -> bool {
    match (first.pid, second.pid, first.process) {
        (Some(a), Some(b), _) => a != b,
        (_, _, Some(_)) => first.process != second.process,
        _ => false,
    }
}

const OPTION: &str = "--reissue-window";
/// Maximum length of the re-issue window. A later request with the same range is more likely a different request.
const LATEST: Nanos = Nanos(1_000_000_000);

/// Time between the first and the second issue of a request, as a range that includes both bounds.
///
/// The default fits a UFS link that wakes up. Other causes need other ranges. After `HOST_BUSY`, for example, Linux 6.12 issues a SCSI
/// command again when another command ends. If none ends, it does so after 20 to 72 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReissueWindow {
    soonest: Nanos,
    latest: Nanos,
}

impl Default for ReissueWindow {
    fn default() -> Self {
        Self { soonest: Nanos(500_000), latest: Nanos(3_000_000) }
    }
}

impl ReissueWindow {
    /// Parses `SOONEST-LATEST`, such as `0.5ms-3ms` or `0-100ms`; a number without a unit is in seconds. Fails with
    /// [`ErrorClass::Config`] if the text is not such a range, or its end exceeds 1 s.
    pub fn parse(text: &str) -> Result<Self> {
        let range = text.split_once('-').and_then(|(soonest, latest)| {
            Some(Self { soonest: parse_duration(soonest.trim())?, latest: parse_duration(latest.trim())? })
        });
        range.filter(|range| range.soonest < range.latest && range.latest <= LATEST).ok_or_else(|| {
            Error::new(ErrorClass::Config, "the option needs a range of times")
                .of_field(OPTION, 0, text.as_bytes())
                .hint("write the range as SOONEST-LATEST with units, at most 1s, for example 0.5ms-3ms or 0-100ms")
        })
    }

    /// Whether a second issue this many nanoseconds after the first may be a re-issue.
    #[inline]
    fn holds(self, after_ns: i64) -> bool {
        (self.soonest.0..=self.latest.0).contains(&after_ns)
    }
}

/// Formats the window as [`ReissueWindow::parse`] accepts it.
impl fmt::Display for ReissueWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Nanos| time.0 as f64 / 1e6;
        write!(f, "{}ms-{}ms", ms(self.soonest), ms(self.latest))
    }
}

/// Initial capacity of the ring in requests; this many fit into the first-level cache.
const FIRST_ROOM: usize = 1 << 8;
/// Maximum number of remembered requests; when it is exceeded, the oldest are dropped early. It suffices for 20 million requests
/// per second for 3 ms, and 655 thousand per second for 100 ms.
const MOST: usize = 1 << 16;
/// The number that stands for no earlier request with this hash.
const NONE: u32 = u32::MAX;

/// The most recent requests, in a ring. A table contains the number of the latest request with each hash. Each entry of the ring contains
/// the number of the previous request with the same hash.
#[derive(Clone, Debug)]
pub(super) struct RecentRequests {
    /// Time for which requests are remembered, in nanoseconds.
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

    /// The latest request with the same device, range and operation within the horizon; `None` if there is none.
    #[inline]
    pub fn find(&self, request: &Request) -> Option<&Request> {
        let mut number = self.latest[self.bucket(request)];
        loop {
            // A request that is older than the length of the ring has been overwritten.
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
        // The ring is renumbered from 0 before the count reaches the reserved value `NONE`.
        self.count = self.count.wrapping_add(1);
        if self.count == NONE {
            self.restart(self.latest.len() / 2);
        }
    }

    /// Moves the requests, in order, into a ring of capacity `room`, and numbers them from 0.
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
    #![allow(clippy::unwrap_used, reason = "a test may")]

    use emmclab_base::{Nanos, Op, Sector};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_window_is_a_range_of_times_up_to_a_second() {
        let window = ReissueWindow::parse("0-100ms").unwrap();
        assert!(window.holds(0) && window.holds(100_000_000) && !window.holds(100_000_001));
        assert_eq!(window.to_string(), "0ms-100ms");
        assert_eq!(ReissueWindow::parse("500us - 3ms").unwrap(), ReissueWindow::default());
        let shown = ReissueWindow::default().to_string();
        assert_eq!((&*shown, ReissueWindow::parse(&shown).unwrap()), ("0.5ms-3ms", ReissueWindow::default()));
        for text in ["", "3ms", "3ms-1ms", "1ms-1ms", "-3ms", "0-2s", "0.5-3ms", "a-b", "1ms-2ms-3ms"] {
            let problem = ReissueWindow::parse(text).unwrap_err();
            assert_eq!(problem.kind(), ErrorClass::Config, "{text}");
        }
    }

    fn read(arrival: i64, sector: u64) -> Request {
        Request::new(Nanos(arrival), Op::Read, Sector(sector), 8)
    }

    proptest! {
        /// Compares with a list of all requests. With few addresses and time steps of 0, the ring fills up, grows and wraps around.
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
        recent.ring = (0..FIRST_ROOM).map(|_| RecentRequestEntry { request: read(i64::MIN, u64::MAX), before: NONE }).collect();
        for sector in 0..8 {
            recent.push(&read(5, sector));
        }
        for sector in 0..8 {
            assert_eq!(recent.find(&read(9, sector)).map(|request| request.sector), Some(Sector(sector)));
        }
        assert!(recent.find(&read(9, 8)).is_none());
    }
}
