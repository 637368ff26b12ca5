//! Statistics of a running recording.

use std::collections::BTreeMap;

use emmclab_trace::{ByteCount, Ledger, NameId, NameTable, Nanos, Op, Request, SyncCounts};
use hdrhistogram::Histogram;
use serde::Serialize;

/// Maximum number of rows in the statistics of an interval; further processes share a row without a name.
const MOST_ROWS: usize = 512;

/// Maximum response time in the histograms; longer times are counted as this time.
const LONGEST_NS: u64 = 120_000_000_000;

/// The requests of one process and operation in an interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessStatistics {
    /// Name of the process; empty if it is not known, and for processes beyond the maximum number of rows.
    pub process: String,
    /// The operation.
    pub op: Op,
    /// Number of requests.
    pub requests: u64,
    /// Bytes that were read, written or discarded.
    pub bytes: ByteCount,
    /// Size of the largest request, bytes.
    #[serde(rename = "largest_bytes")]
    pub largest: ByteCount,
    /// Median response time.
    #[serde(rename = "response_p50_ns")]
    pub response_p50: Nanos,
    /// 99th percentile of the response times.
    #[serde(rename = "response_p99_ns")]
    pub response_p99: Nanos,
    /// Number of requests that arrived when no earlier request was unfinished.
    pub no_wait: u64,
}

/// Counts of the requests in an interval, and counts of all records since the recording began (ledger).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecordStatistics {
    /// Time on the trace's clock, from the first arrival to the last completion of the interval.
    #[serde(rename = "span_ns")]
    pub span: Nanos,
    /// Number of requests.
    pub requests: u64,
    /// Number of requests that arrived when no earlier request was unfinished.
    pub no_wait: u64,
    /// Sum of all response times. Divided by `span`, it is the mean queue depth (Little's law).
    #[serde(rename = "response_sum_ns")]
    pub response_sum: Nanos,
    /// Number of idle gaps, in which no request is in progress.
    pub gaps: u64,
    /// Sum of the idle gaps.
    #[serde(rename = "idle_ns")]
    pub idle: Nanos,
    /// The longest idle gap.
    #[serde(rename = "longest_gap_ns")]
    pub longest_gap: Nanos,
    /// Statistics by process and operation, the row with the most requests first.
    pub processes: Vec<ProcessStatistics>,
    /// Completed waits for durability, by process and file system.
    pub syncs: Vec<SyncCounts>,
    /// Counts since the recording began.
    pub ledger: Ledger,
}

struct ProcessCounters {
    requests: u64,
    bytes: u64,
    largest: u64,
    no_wait: u64,
    /// Histogram of response times with two significant digits, the precision of the display. `None` only if its bounds are invalid.
    response: Option<Histogram<u32>>,
}

impl ProcessCounters {
    fn new() -> Self {
        Self { requests: 0, bytes: 0, largest: 0, no_wait: 0, response: Histogram::new_with_max(LONGEST_NS, 2).ok() }
    }

    fn response_at(&self, quantile: f64) -> Nanos {
        Nanos(self.response.as_ref().map_or(0, |response| response.value_at_quantile(quantile) as i64))
    }
}

/// Computes statistics of requests, which come in order of arrival.
#[derive(Default)]
pub(crate) struct RecordMeter {
    rows: BTreeMap<(Option<NameId>, Op), ProcessCounters>,
    /// Latest completion of a request, by device.
    busy_until: BTreeMap<Option<NameId>, Nanos>,
    first: Option<Nanos>,
    last: Option<Nanos>,
    current: RecordStatistics,
}

impl RecordMeter {
    /// Counts completed waits for durability.
    pub(crate) fn see_syncs(&mut self, calls: Vec<SyncCounts>) {
        let rows = &mut self.current.syncs;
        for call in calls {
            let same = |row: &SyncCounts| row.process == call.process && row.file_system == call.file_system;
            match rows.iter().position(same) {
                Some(at) => rows[at].add(&call),
                None if rows.len() < MOST_ROWS => rows.push(call),
                None => {}
            }
        }
    }

    /// Counts a completed request.
    pub(crate) fn see(&mut self, request: &Request) {
        let stats = &mut self.current;
        let end = request.complete.unwrap_or(request.arrival);
        let busy_until = self.busy_until.entry(request.device).or_insert(request.arrival);
        let gap = request.arrival - *busy_until;
        let no_wait = gap >= Nanos::ZERO;
        *busy_until = end.max(*busy_until);
        if gap > Nanos::ZERO {
            stats.gaps += 1;
            stats.idle += gap;
            stats.longest_gap = stats.longest_gap.max(gap);
        }
        stats.requests += 1;
        stats.no_wait += u64::from(no_wait);
        let response = end - request.arrival;
        stats.response_sum += response;
        self.first.get_or_insert(request.arrival);
        self.last = self.last.max(Some(end));

        let mut key = (request.process, request.op);
        if self.rows.len() >= MOST_ROWS && !self.rows.contains_key(&key) {
            key.0 = None;
        }
        let row = self.rows.entry(key).or_insert_with(ProcessCounters::new);
        row.requests += 1;
        row.bytes += request.bytes().0;
        row.largest = row.largest.max(request.bytes().0);
        row.no_wait += u64::from(no_wait);
        if let Some(histogram) = &mut row.response {
            histogram.saturating_record(response.0.max(0) as u64);
        }
    }

    /// Returns the statistics since the last call, and starts a new interval.
    pub(crate) fn take(&mut self, processes: &NameTable, ledger: &Ledger) -> RecordStatistics {
        let mut stats = std::mem::take(&mut self.current);
        if let (Some(first), Some(last)) = (self.first.take(), self.last.take()) {
            stats.span = last - first;
        }
        stats.processes = std::mem::take(&mut self.rows)
            .into_iter()
            .map(|((process, op), row)| ProcessStatistics {
                process: process.and_then(|id| processes.get(id)).unwrap_or_default().to_owned(),
                op,
                requests: row.requests,
                bytes: ByteCount(row.bytes),
                largest: ByteCount(row.largest),
                response_p50: row.response_at(0.5),
                response_p99: row.response_at(0.99),
                no_wait: row.no_wait,
            })
            .collect();
        stats.syncs.sort_by_key(|row| std::cmp::Reverse(row.calls));
        stats.processes.sort_by(|a, b| b.requests.cmp(&a.requests).then_with(|| a.process.cmp(&b.process)));
        stats.ledger = ledger.clone();
        stats
    }
}

#[cfg(test)]
mod tests {
    use emmclab_trace::Sector;

    use super::*;

    #[test]
    fn waits_gaps_and_depth_are_counted_in_order_of_arrival() {
        let mut names = NameTable::default();
        let app = Some(names.intern("app"));
        let mut meter = RecordMeter::default();
        for (arrival, complete, op) in [(0, 100, Op::Write), (50, 200, Op::Write), (200, 260, Op::Read), (1260, 1300, Op::Write)]
        {
            let request = Request::new(Nanos(arrival), op, Sector(0), 8);
            meter.see(&Request { complete: Some(Nanos(complete)), process: app, ..request });
        }
        let stats = meter.take(&names, &Ledger::default());
        assert_eq!((stats.requests, stats.no_wait, stats.span), (4, 3, Nanos(1300)));
        assert_eq!((stats.gaps, stats.idle, stats.longest_gap), (1, Nanos(1000), Nanos(1000)));
        assert_eq!(stats.response_sum, Nanos(100 + 150 + 60 + 40));
        let writes = &stats.processes[0];
        assert_eq!(
            (&*writes.process, writes.op, writes.requests, writes.bytes, writes.largest),
            ("app", Op::Write, 3, ByteCount(3 * 4096), ByteCount(4096))
        );
        assert_eq!((writes.response_p50, writes.response_p99), (Nanos(100), Nanos(150)));
        assert_eq!(meter.take(&names, &Ledger::default()), RecordStatistics::default());
    }
}
