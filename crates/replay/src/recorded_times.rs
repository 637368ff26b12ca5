//! The recorded times of the replayed requests, as defined in the trace profile.

use emmclab_trace::{Nanos, Op, Request};

use crate::time_histogram::{TimeHistogram, quantiles};

/// A request that arrives within this time after the end of all earlier ones is regarded as dependent on them.
const SOON: Nanos = Nanos(1_000_000);

/// Sums over the reads or the writes; times in ns.
#[derive(Clone, Debug, Default)]
struct RecordedSums {
    response: TimeHistogram,
    response_ns: i128,
    service_ns: i128,
    /// Number of requests with a recorded completion, and of those with a recorded start as well.
    completed: u64,
    served: u64,
    no_wait: u64,
}

/// Recorded times of reads and writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordedTotals {
    read: RecordedSums,
    write: RecordedSums,
    /// When all requests so far were complete; `None` before the first recorded completion.
    idle_from: Option<Nanos>,
    /// Number of reads and writes that arrived within [`SOON`] after it.
    soon: u64,
}

/// Means and 99th percentile of recorded times; `None` if nothing was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RecordedTimes {
    /// complete - arrival, ms.
    pub response_ms: Option<f64>,
    /// Its 99th percentile, ms.
    pub response_p99_ms: Option<f64>,
    /// complete - start, ms.
    pub service_ms: Option<f64>,
    /// Percentage of requests that arrived when all earlier ones were complete.
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
