//! Measures a run: collects the completions of requests as an observer. Also collects the recorded times of the replayed requests, with the
//! definitions of the trace profile.

use emmclab_device::{CommandFlags, Observer, RequestCompleted};
use emmclab_trace::{Nanos, Op, Request, SECTOR_BYTES};

use crate::arrival_state::{ArrivalCounts, ArrivalState};
use crate::result::DurableTimes;
use crate::time_histogram::{TimeHistogram, TimeSummary, percentiles_of, quantiles};

/// Maximum of the sum of response times in [`TimeSums::low`], ns: 146 years.
const ROOM: i64 = 1 << 62;

/// Time that represents the absence of a completion; it is earlier than every completion.
const NONE_YET: Nanos = Nanos::MIN;

/// Sums of the response times of requests and of their parts, in ns.
#[derive(Clone, Copy, Debug)]
struct TimeSums<const N: usize> {
    /// Sums over the most recent requests. They are small enough that one more request never overflows them.
    low: [i64; N],
    high: [i128; N],
    /// [`ROOM`] minus the sum of the response times in `low`.
    room: i64,
}

impl<const N: usize> Default for TimeSums<N> {
    fn default() -> Self {
        Self { low: [0; N], high: [0; N], room: ROOM }
    }
}

impl<const N: usize> TimeSums<N> {
    /// Adds the parts of a response time to the sums. No part is longer than `whole`, which is at most [`ROOM`].
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for each request, whose times are in registers")]
    fn add(&mut self, whole: i64, parts: [i64; N]) {
        if whole > self.room {
            self.carry();
        }
        self.room -= whole;
        for (sum, part) in self.low.iter_mut().zip(parts) {
            *sum += part;
        }
    }

    #[cold]
    fn carry(&mut self) {
        for (low, high) in self.low.iter_mut().zip(&mut self.high) {
            *high += i128::from(std::mem::take(low));
        }
        self.room = ROOM;
    }

    fn all(&self) -> [i128; N] {
        std::array::from_fn(|i| self.high[i] + i128::from(self.low[i]))
    }
}

/// Times and sizes of the requests of an operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct OperationTotals {
    pub count: u64,
    response: TimeHistogram,
    service: TimeHistogram,
    /// Sums of response time, service time, and the parts of the response time: queue, controller, bus, array, gc, wake-up.
    sums: TimeSums<8>,
    sectors: u64,
    begun_at_once: u64,
}

impl OperationTotals {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for each request, whose times are in registers")]
    pub fn add(&mut self, event: &RequestCompleted, begun_at_once: bool) {
        let (response, service) = (event.complete - event.arrival, event.complete - event.start);
        let [queue, controller, bus, array, gc, wake_up] = event.waits.parts();
        self.count += 1;
        self.sectors += u64::from(event.sectors);
        let times = [response, service, queue, controller, bus, array, gc, wake_up];
        self.sums.add(response.0, times.map(|time| time.0));
        self.begun_at_once += u64::from(begun_at_once);
        self.response.add(response.0 as u64);
        self.service.add(service.0 as u64);
    }

    /// Bytes read or written.
    pub fn bytes(&self) -> u64 {
        self.sectors * SECTOR_BYTES
    }

    /// Response times of the requests of all operations in `all`.
    pub fn response(all: &[&Self]) -> TimeSummary {
        Self::times(all, |kinds| (kinds.sums.all()[0], &kinds.response))
    }

    /// Service times of the requests of all operations in `all`.
    pub fn service(all: &[&Self]) -> TimeSummary {
        Self::times(all, |kinds| (kinds.sums.all()[1], &kinds.service))
    }

    fn times(all: &[&Self], of: impl Fn(&Self) -> (i128, &TimeHistogram)) -> TimeSummary {
        let count: u64 = all.iter().map(|kinds| kinds.count).sum();
        if count == 0 {
            return TimeSummary::default();
        }
        let sum: i128 = all.iter().map(|kinds| of(kinds).0).sum();
        let tallies: Vec<&TimeHistogram> = all.iter().map(|kinds| of(kinds).1).collect();
        let [p50_ms, p90_ms, p99_ms, p999_ms, max_ms] =
            quantiles(&tallies, count, [0.5, 0.9, 0.99, 0.999, 1.0]).map(|ns| ns as f64 / 1e6);
        let mean_ms = sum as f64 / count as f64 / 1e6;
        TimeSummary { mean_ms, p50_ms, p90_ms, p99_ms, p999_ms, max_ms }
    }

    /// Percentiles (percent, ascending) of the response times of the operations in `all` together, in ms; `None` without requests.
    pub fn response_percentiles(all: &[&Self], percentiles: &[f64]) -> Option<Vec<f64>> {
        let count: u64 = all.iter().map(|kinds| kinds.count).sum();
        let tallies: Vec<&TimeHistogram> = all.iter().map(|kinds| &kinds.response).collect();
        (count > 0).then(|| percentiles_of(&tallies, count, percentiles).into_iter().map(|ns| ns as f64 / 1e6).collect())
    }

    /// Histogram of the response times: (upper bound of a range in ns, number of requests in it).
    pub fn response_ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.response.ranges()
    }

    /// Percentage of the requests of all operations in `all` that the device started at their arrival, alone or in parallel with others; 0
    /// without requests.
    pub fn begun_at_once_pct(all: &[&Self]) -> f64 {
        let sum = |of: fn(&Self) -> u64| all.iter().map(|kinds| of(kinds)).sum::<u64>();
        let (count, at_once) = (sum(|kinds| kinds.count), sum(|kinds| kinds.begun_at_once));
        if count == 0 { 0.0 } else { 100.0 * at_once as f64 / count as f64 }
    }
}

/// Accumulates the times and sizes of completed requests.
#[derive(Clone, Debug)]
pub struct RunMeasurement {
    pub(crate) reads: OperationTotals,
    pub(crate) writes: OperationTotals,
    pub(crate) others: OperationTotals,
    /// Totals of flushes, and of writes with a flag for durability or order.
    durable: OperationTotals,
    first_arrival: Option<Nanos>,
    last_arrival: Nanos,
    /// The latest completion; [`NONE_YET`] before the first request.
    last_complete: Nanos,
    /// Time from arrival to fetch, for a request that does not wait.
    fetch: Nanos,
    /// Total time during which at least one request is unfinished.
    pub(crate) busy: Nanos,
    pub(crate) arrival_state: ArrivalState,
}

impl Default for RunMeasurement {
    fn default() -> Self {
        Self {
            reads: OperationTotals::default(),
            writes: OperationTotals::default(),
            others: OperationTotals::default(),
            durable: OperationTotals::default(),
            first_arrival: None,
            last_arrival: NONE_YET,
            last_complete: NONE_YET,
            fetch: Nanos::ZERO,
            busy: Nanos::ZERO,
            arrival_state: ArrivalState::starting_at(0),
        }
    }
}

impl RunMeasurement {
    /// Creates a measurement for a host that needs the time `fetch` to fetch a request (`host.fetch_us`).
    pub(crate) fn with_fetch(fetch: Nanos) -> Self {
        Self { fetch, ..Self::default() }
    }

    /// Creates a measurement for requests whose numbers start with `next`. Earlier requests that are still in progress also count.
    pub fn starting_at(next: u64) -> Self {
        Self { arrival_state: ArrivalState::starting_at(next), ..Self::default() }
    }

    /// Response times of flushes and durable writes above all layers; `None` if there was no flush or durable write.
    pub fn durable(&self) -> Option<DurableTimes> {
        (self.durable.count > 0).then(|| DurableTimes::new(&self.durable))
    }

    #[cold]
    fn note_durable(&mut self, event: &RequestCompleted) {
        self.durable.add(event, false);
    }

    /// Number of requests so far.
    pub fn requests(&self) -> u64 {
        self.reads.count + self.writes.count + self.others.count
    }

    /// Time from the first arrival to the last completion; 0 without requests.
    pub(crate) fn elapsed(&self) -> Nanos {
        self.first_arrival.map_or(Nanos::ZERO, |first| self.last_complete - first)
    }

    /// Time from the last arrival to the last completion; 0 without requests.
    pub(crate) fn backlog(&self) -> Nanos {
        self.first_arrival.map_or(Nanos::ZERO, |_| self.last_complete - self.last_arrival)
    }

    /// Sums of the parts of the response times of reads and writes, in ns: queue, controller, bus, array, gc, wake-up.
    pub(crate) fn waits(&self) -> [i128; 6] {
        let sums = self.timed().map(|kinds| kinds.sums.all());
        std::array::from_fn(|part| sums.iter().map(|sums| sums[2 + part]).sum())
    }

    /// Percentages of requests that arrived when no earlier request was unfinished, as in the profile of a trace: of reads and writes
    /// together, of reads, and of writes.
    pub(crate) fn no_wait_pct(&self) -> [f64; 3] {
        let [read, write] = self.arrival_state.counts;
        [&[read, write][..], &[read], &[write]].map(|all| {
            let sum = |of: fn(&ArrivalCounts) -> u64| all.iter().map(of).sum::<u64>();
            let (requests, no_wait) = (sum(|judged| judged.requests), sum(|judged| judged.no_wait));
            if requests == 0 { 0.0 } else { 100.0 * no_wait as f64 / requests as f64 }
        })
    }

    /// The totals of the operations whose times are measured: reads and writes.
    pub(crate) fn timed(&self) -> [&OperationTotals; 2] {
        [&self.reads, &self.writes]
    }
}

impl Observer for RunMeasurement {
    const UNITS: bool = false;
    const EVENTS: bool = false;

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for each request, whose times are in registers")]
    fn request_completed(&mut self, event: &RequestCompleted) {
        if self.last_complete == NONE_YET {
            self.first_arrival = Some(event.arrival);
        }
        // Branchless, because a branch on whether a request ends before its predecessor is unpredictable.
        let fetched_idle = event.start - event.arrival <= self.fetch && event.arrival >= self.last_complete;
        let begun_at_once = fetched_idle || event.start == event.arrival;
        self.arrival_state.add(event);
        self.last_arrival = event.arrival;
        let busy_from = event.arrival.max(self.last_complete);
        self.busy += (event.complete - busy_from).max(Nanos::ZERO);
        self.last_complete = event.complete.max(self.last_complete);
        let kinds = match event.op {
            Op::Read => &mut self.reads,
            Op::Write => &mut self.writes,
            Op::Discard | Op::Flush | Op::SecureErase => &mut self.others,
        };
        kinds.add(event, begun_at_once);
        if event.op == Op::Flush || event.modifiers.intersects(CommandFlags::PROMISES) {
            self.note_durable(event);
        }
    }
}

/// A request that arrives within this time after the completion of all earlier requests counts as dependent on them.
const SOON: Nanos = Nanos(1_000_000);

/// Sums over the reads or the writes, with times in ns.
#[derive(Clone, Debug, Default)]
struct RecordedSums {
    response: TimeHistogram,
    response_ns: i128,
    service_ns: i128,
    /// Number of requests with a recorded completion.
    completed: u64,
    /// Number of requests with a recorded start and a recorded completion.
    served: u64,
    no_wait: u64,
}

/// Recorded times of reads and writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordedTotals {
    read: RecordedSums,
    write: RecordedSums,
    /// Time at which all requests so far are complete; `None` before the first recorded completion.
    idle_from: Option<Nanos>,
    /// Number of reads and writes that arrived at most [`SOON`] after all earlier requests were complete.
    soon: u64,
}

/// Means and 99th percentile of recorded times; `None` for a time that was not recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RecordedTimes {
    /// Mean response time (complete - arrival), ms.
    pub response_ms: Option<f64>,
    /// 99th percentile of the response time, ms.
    pub response_p99_ms: Option<f64>,
    /// Mean service time (complete - start), ms.
    pub service_ms: Option<f64>,
    /// Percentage of requests that arrived when all earlier requests were complete.
    pub no_wait_pct: Option<f64>,
}

impl RecordedTotals {
    /// Adds a request; requests must be in order of arrival.
    #[inline]
    pub fn add(&mut self, request: &Request) {
        let arrival = request.arrival;
        let Some(complete) = request.complete else {
            self.idle_from = self.idle_from.map(|end| end.max(arrival));
            return;
        };
        let complete = complete.max(arrival);
        let end = self.idle_from;
        self.idle_from = Some(end.map_or(complete, |end| end.max(complete)));
        let sums = match request.op {
            Op::Read => &mut self.read,
            Op::Write => &mut self.write,
            Op::Discard | Op::Flush | Op::SecureErase => return,
        };
        let response = complete - arrival;
        sums.completed += 1;
        sums.response_ns += i128::from(response.0);
        sums.response.add(response.0 as u64);
        if let Some(service) = request.service() {
            sums.served += 1;
            sums.service_ns += i128::from(service.0);
        }
        sums.no_wait += u64::from(end.is_none_or(|end| arrival >= end));
        self.soon += u64::from(end.is_some_and(|end| arrival >= end && arrival - end <= SOON));
    }

    /// Times of reads and writes together, of reads, and of writes.
    pub fn times(&self) -> [RecordedTimes; 3] {
        let Self { read, write, .. } = self;
        [&[read, write][..], &[read], &[write]].map(|all| {
            let total = |of: fn(&RecordedSums) -> i128| all.iter().map(|sums| of(sums)).sum::<i128>() as f64;
            let mean = |sum: f64, count: f64| (count > 0.0).then(|| sum / count);
            let completed = total(|sums| sums.completed.into());
            let tallies: Vec<&TimeHistogram> = all.iter().map(|sums| &sums.response).collect();
            let [p99_ns] = quantiles(&tallies, completed as u64, [0.99]);
            RecordedTimes {
                response_ms: mean(total(|sums| sums.response_ns) / 1e6, completed),
                response_p99_ms: (completed > 0.0).then_some(p99_ns as f64 / 1e6),
                service_ms: mean(total(|sums| sums.service_ns) / 1e6, total(|sums| sums.served.into())),
                no_wait_pct: mean(100.0 * total(|sums| sums.no_wait.into()), completed),
            }
        })
    }

    /// Percentage of reads and writes that arrived within 1 ms after all earlier requests were complete; `None` without recorded
    /// completions.
    pub fn dependent_pct(&self) -> Option<f64> {
        let completed = self.read.completed + self.write.completed;
        (completed > 0).then(|| 100.0 * self.soon as f64 / completed as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sums_never_run_over(
            times in prop::collection::vec((0..63u32, 0..=ROOM, any::<[u32; 3]>()), 0..200),
        ) {
            let (mut sums, mut plain) = (TimeSums::<3>::default(), [0i128; 3]);
            for (shift, whole, shares) in times {
                let whole = whole >> shift;
                let parts = shares.map(|share| ((i128::from(whole) * i128::from(share)) >> 32) as i64);
                sums.add(whole, parts);
                for (sum, part) in plain.iter_mut().zip(parts) {
                    *sum += i128::from(part);
                }
            }
            prop_assert_eq!(sums.all(), plain);
        }
    }
}
