//! Measurement: an observer that sums up completions.

use emmclab_device::{Observer, RequestCompleted};
use emmclab_trace::Op;

use crate::result::Times;
use crate::tally::Tally;

/// Times of one kind of request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kinds {
    pub count: u64,
    pub bytes: u64,
    response: Tally,
    service: Tally,
    response_sum: u128,
    service_sum: u128,
    no_wait: u64,
}

impl Kinds {
    #[inline]
    fn add(&mut self, event: &RequestCompleted) {
        let response = (event.complete - event.arrival) as u64;
        let service = (event.complete - event.start) as u64;
        self.count += 1;
        self.bytes += u64::from(event.sectors) * 512;
        self.response_sum += u128::from(response);
        self.service_sum += u128::from(service);
        self.no_wait += u64::from(event.start == event.arrival);
        self.response.add(response);
        self.service.add(service);
    }

    fn with(&mut self, other: &Kinds) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.response_sum += other.response_sum;
        self.service_sum += other.service_sum;
        self.no_wait += other.no_wait;
        self.response.with(&other.response);
        self.service.with(&other.service);
    }

    fn times(sum: u128, count: u64, tally: &Tally) -> Times {
        if count == 0 {
            return Times::default();
        }
        let histogram = tally.histogram();
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e6;
        Times {
            mean_ms: sum as f64 / count as f64 / 1e6,
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: histogram.max() as f64 / 1e6,
        }
    }

    pub fn response(&self) -> Times {
        Self::times(self.response_sum, self.count, &self.response)
    }

    pub fn service(&self) -> Times {
        Self::times(self.service_sum, self.count, &self.service)
    }

    pub fn no_wait_pct(&self) -> f64 {
        if self.count == 0 { 0.0 } else { 100.0 * self.no_wait as f64 / self.count as f64 }
    }
}

/// Sums up completed requests.
#[derive(Clone, Debug, Default)]
pub struct Measure {
    pub(crate) reads: Kinds,
    pub(crate) writes: Kinds,
    pub(crate) others: u64,
    pub(crate) first_arrival: Option<i64>,
    pub(crate) last_complete: i64,
    /// Time in which at least one request was unfinished, ns.
    pub(crate) busy_ns: i64,
    /// Where the time of all requests went, ns: queue, controller, bus, array, gc, wake-up.
    pub(crate) waits: [u128; 6],
}

impl Measure {
    /// Requests so far.
    pub fn requests(&self) -> u64 {
        self.reads.count + self.writes.count + self.others
    }

    pub(crate) fn all(&self) -> Kinds {
        let mut all = self.reads.clone();
        all.with(&self.writes);
        all
    }
}

impl Observer for Measure {
    const UNITS: bool = false;

    #[inline]
    fn request_completed(&mut self, event: &RequestCompleted) {
        if self.first_arrival.is_none() || event.arrival > self.last_complete {
            self.first_arrival.get_or_insert(event.arrival);
            self.busy_ns += event.complete - event.arrival;
            self.last_complete = event.complete;
        } else if event.complete > self.last_complete {
            self.busy_ns += event.complete - self.last_complete;
            self.last_complete = event.complete;
        }
        match event.op {
            Op::Read => self.reads.add(event),
            Op::Write => self.writes.add(event),
            Op::Discard | Op::Flush | Op::SecureErase => self.others += 1,
        }
        let waits = &event.waits;
        for (sum, part) in self.waits.iter_mut().zip([
            waits.queue_ns,
            waits.controller_ns,
            waits.bus_ns,
            waits.array_ns,
            waits.gc_ns,
            waits.wake_up_ns,
        ]) {
            *sum += part as u128;
        }
    }
}
