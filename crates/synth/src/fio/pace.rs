//! When the requests of a job are issued: by rates, with think times, or `iodepth` at a time.

use emmclab_trace::Op;

use super::job::{FioJob, FioRate, FioRates, index};
use super::offsets::unit;
use crate::distribute::SynthesisRng;

/// Time between requests that no rate paces, ns: they are meant to be replayed back to back.
const STEP_NS: u64 = 1_000;
const SECOND_NS: f64 = 1e9;

/// The clock of a copy of a job.
pub(super) struct FioPacing {
    start: u64,
    now: u64,
    issued: u64,
    /// When the next read, write and trim are due, and the bytes and requests of each so far.
    next: [u64; 3],
    bytes: [u64; 3],
    requests: [u64; 3],
}

impl FioPacing {
    pub fn new(job: &FioJob) -> Self {
        let start = job.start_ns;
        Self { start, now: start, issued: 0, next: [start; 3], bytes: [0; 3], requests: [0; 3] }
    }

    /// Earliest time of the next request of a paced job, in ns after the start of the job.
    pub fn next(&self) -> u64 {
        self.next.iter().copied().filter(|next| *next > self.start).min().map_or(0, |next| next - self.start)
    }

    /// The next operation of a mixed job: the one that was drawn, unless its rate delays it and the other operation is due earlier.
    pub fn due(&self, job: &FioJob, drawn: Op) -> Op {
        let other = if drawn == Op::Read { Op::Write } else { Op::Read };
        let due = |op: Op| if job.rate_of(op).is_some() { self.next[index(op)] } else { 0 };
        let never = match other {
            Op::Read => job.read_pct == 0,
            _ => job.read_pct == 100,
        };
        if due(drawn) <= self.now || never {
            return drawn;
        }
        if due(other) <= self.now || due(other) < due(drawn) { other } else { drawn }
    }

    /// The time of the next request.
    pub fn at(&mut self, job: &FioJob, op: Op, bytes: u64, dice: &mut SynthesisRng) -> u64 {
        let at = match (job.rates, job.rate_of(op)) {
            (FioRates::All(rate), _) => {
                let at = self.next[0].max(self.now);
                self.requests[0] += 1;
                let next = if job.poisson {
                    poisson(self.next[0], rate, dice)
                } else {
                    self.start.saturating_add(times(self.requests[0], rate))
                };
                self.next = [next; 3];
                at
            }
            (_, Some(rate)) => {
                let of = index(op);
                let at = self.next[of].max(self.now);
                self.bytes[of] = self.bytes[of].saturating_add(bytes);
                self.requests[of] += 1;
                self.next[of] = self.due_after(job, rate, of, dice);
                at
            }
            _ if self.issued.is_multiple_of(in_flight(job)) => self.now + STEP_NS,
            _ => self.now,
        };
        self.now = at;
        self.issued += 1;
        if job.think_ns > 0 && self.issued.is_multiple_of(job.think_requests) {
            self.now = at.saturating_add(job.think_ns);
        }
        at
    }

    /// The time at which an operation is due next, from its bytes or requests so far.
    fn due_after(&self, job: &FioJob, rate: FioRate, of: usize, dice: &mut SynthesisRng) -> u64 {
        let smallest = job.sizes[of].iter().map(|(bytes, _)| *bytes).min().unwrap_or(1);
        let (by_bytes, per_second) = match rate {
            FioRate::BytesPerSecond(rate) => (true, rate),
            // For a range of sizes, fio counts requests of the smallest size.
            FioRate::RequestsPerSecond(rate) if job.is_range => (true, rate.saturating_mul(smallest)),
            FioRate::RequestsPerSecond(rate) => (false, rate),
        };
        if job.poisson {
            let requests = if by_bytes { per_second as f64 / smallest as f64 } else { per_second as f64 };
            return poisson(self.next[of], requests, dice);
        }
        let done = if by_bytes { self.bytes[of] } else { self.requests[of] };
        let since = u128::from(done) * 1_000_000_000 / u128::from(per_second.max(1));
        self.start.saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }

    /// The time of a request that no rate delays: a sync, or a read that verifies.
    pub fn unpaced(&mut self) -> u64 {
        self.now = self.now.saturating_add(STEP_NS);
        self.now
    }
}

fn in_flight(job: &FioJob) -> u64 {
    if job.in_flight { job.iodepth } else { 1 }
}

/// The time that this many requests need at a rate per second, in ns.
fn times(requests: u64, rate: f64) -> u64 {
    (requests as f64 * SECOND_NS / rate) as u64
}

/// The time of the next arrival of a Poisson process.
fn poisson(from: u64, rate: f64, dice: &mut SynthesisRng) -> u64 {
    from.saturating_add((-(1.0 - unit(dice)).ln() * SECOND_NS / rate) as u64)
}
