//! Fits the arrival and service times of a trace's requests.

use std::collections::BTreeMap;

use emmclab_trace::{Nanos, Op, Request};

use crate::distribute::{OctaveHistogram, join, round};
use crate::model::{BurstModel, ServiceModel};

/// Idle time that separates bursts. Pauses within a journal transaction are shorter, because they last only a few flash programs.
const BURST_GAP: Nanos = Nanos::from_millis(4);
/// Idle time after which a device may sleep. In the Messaging trace of the IISWC 2015 study, this idle time is between 128 and 256 ms.
const WAKE_AFTER: Nanos = Nanos::from_millis(200);
/// Maximum gap in a model, ns.
const LONGEST_NS: u64 = 1_000_000_000_000_000;
/// Maximum service time in a model, ns.
const SLOWEST_NS: u64 = 1_000_000_000_000;
/// Maximum ratio of a service time to the expected one in a model, parts per million.
const LARGEST_JITTER: u128 = 1_000_000_000;

/// Duration, bursts and service times of a trace.
pub(crate) struct FittedTiming {
    pub duration_s: f64,
    pub bursts: BurstModel,
    pub service: Option<ServiceModel>,
}

/// How a request arrives relative to its predecessors.
#[derive(Clone, Copy)]
pub(crate) struct RelativeArrival {
    /// Whether the request is the first of a burst.
    pub opens: bool,
    /// Whether the request continues a burst and has another operation than its predecessor.
    pub switches: bool,
    /// Idle time before the request if it continues a burst, otherwise 0; ns.
    pub think: u64,
}

/// Service times of one operation, for one class of sizes.
#[derive(Default)]
struct ServiceTimeClass {
    requests: u64,
    sectors: u64,
    ns: u128,
    times: OctaveHistogram,
}

/// Collects statistics on the times of a trace.
#[derive(Default)]
pub(crate) struct TimingFitter {
    /// First arrival of all requests, including flushes and discards.
    begin: Option<Nanos>,
    /// Last arrival of all requests, including flushes and discards.
    last_arrival: Nanos,
    end: Nanos,
    first: Option<Nanos>,
    /// Time at which all requests so far are complete; the last arrival if completions are unknown.
    finished: Nanos,
    rounds: u64,
    round: u64,
    round_requests: BTreeMap<u64, u64>,
    bursts: u64,
    burst: u64,
    burst_rounds: BTreeMap<u64, u64>,
    think: OctaveHistogram,
    idle: OctaveHistogram,
    /// The last three requests of the burst: operation, size in sectors, and whether the request is sequential.
    tail: Vec<(Op, u32, bool)>,
    /// Number of bursts that end with three writes.
    transactions: u64,
    /// Number of bursts in `transactions` that end with a commit block.
    commits: u64,
    smallest_write: u32,
    complete: u64,
    service_ns: u128,
    response_ns: u128,
    fetch_ns: u128,
    served: BTreeMap<(Op, u32), ServiceTimeClass>,
    woken: ServiceTimeClass,
    woken_by_class: BTreeMap<(Op, u32), u64>,
}

impl TimingFitter {
    /// Extends the duration of the trace by a request of any kind.
    pub(crate) fn span(&mut self, request: &Request) {
        let end = request.complete.unwrap_or(request.arrival).max(request.arrival);
        self.end = if self.begin.is_none() { end } else { self.end.max(end) };
        self.begin.get_or_insert(request.arrival);
        self.last_arrival = request.arrival;
    }

    /// Adds a read or a write, and returns how it arrived relative to its predecessors.
    pub(crate) fn add_request(&mut self, request: &Request, sequential: bool) -> RelativeArrival {
        let arrival = request.arrival;
        let gap = if self.first.is_none() { Nanos::ZERO } else { arrival - self.finished };
        // If completions are not recorded, the device counts as idle at each arrival.
        let finds_idle = self.first.is_none() || gap >= Nanos::ZERO;
        let opens = self.first.is_none() || (finds_idle && gap >= BURST_GAP);
        if opens {
            self.end_burst();
            self.bursts += 1;
            if self.first.is_some() {
                self.idle.push(bounded(gap, LONGEST_NS), 1);
            }
        } else if finds_idle {
            self.think.push(bounded(gap, LONGEST_NS), 1);
        }
        let switches = !opens && self.tail.last().is_some_and(|last| last.0 != request.op);
        if finds_idle {
            self.end_round();
            self.rounds += 1;
            self.burst += 1;
        }
        self.round += 1;
        if self.tail.len() == 3 {
            self.tail.remove(0);
        }
        self.tail.push((request.op, request.sectors, sequential));
        if request.op == Op::Write {
            let smallest = if self.smallest_write == 0 { u32::MAX } else { self.smallest_write };
            self.smallest_write = smallest.min(request.sectors);
        }
        self.serve(request, finds_idle, gap);
        self.first.get_or_insert(arrival);
        self.finished = self.finished.max(request.complete.unwrap_or(arrival)).max(arrival);
        let think = if finds_idle && !opens { bounded(gap, LONGEST_NS) } else { 0 };
        RelativeArrival { opens, switches, think }
    }

    fn serve(&mut self, request: &Request, finds_idle: bool, gap: Nanos) {
        let (Some(start), Some(service), Some(response)) = (request.start, request.service(), request.response()) else {
            return;
        };
        let service = bounded(service, SLOWEST_NS);
        self.complete += 1;
        self.service_ns += u128::from(service);
        self.response_ns += u128::from(bounded(response, SLOWEST_NS));
        if finds_idle {
            self.fetch_ns += u128::from(bounded(start - request.arrival, SLOWEST_NS));
        }
        let key = (request.op, size_class(request.sectors));
        if finds_idle && gap > WAKE_AFTER {
            self.woken.requests += 1;
            self.woken.ns += u128::from(service);
            *self.woken_by_class.entry(key).or_default() += 1;
            return;
        }
        let served = self.served.entry(key).or_default();
        served.requests += 1;
        served.sectors += u64::from(request.sectors);
        served.ns += u128::from(service);
        served.times.push(service, 1);
    }

    fn end_round(&mut self) {
        if self.round > 0 {
            *self.round_requests.entry(self.round).or_default() += 1;
        }
        self.round = 0;
    }

    fn end_burst(&mut self) {
        if self.burst > 0 {
            *self.burst_rounds.entry(self.burst).or_default() += 1;
        }
        self.burst = 0;
        if self.tail.len() == 3 && self.tail.iter().all(|(op, ..)| *op == Op::Write) {
            self.transactions += 1;
            let (_, sectors, sequential) = self.tail[2];
            self.commits += u64::from(sequential && sectors == self.smallest_write);
        }
        self.tail.clear();
    }

    pub(crate) fn finish(mut self, requests: u64, op_mixing_pct: f64) -> FittedTiming {
        self.end_round();
        self.end_burst();
        let begin = self.begin.unwrap_or_default();
        // If some completions are not recorded, the last completion is unknown. The trace then ends at its last arrival.
        let known = self.complete == requests;
        let end = if known { self.end } else { self.last_arrival };
        let pct = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
        let pairs =
            |counts: &BTreeMap<u64, u64>| join(&counts.iter().map(|(value, weight)| (*value, *weight)).collect::<Vec<_>>(), 2);
        let bursts = BurstModel {
            opens_pct: round(pct(self.bursts, requests), 1e4),
            rounds: pairs(&self.burst_rounds),
            think_us: self.think.pairs(1e3, 1.0),
            idle_ms: self.idle.pairs(1e6, 1.0),
            op_mixing_pct: round(op_mixing_pct, 1e2),
            commit_pct: round(pct(self.commits, self.transactions), 1e2),
        };
        let duration_s = round((end - begin).as_secs_f64(), 1e6);
        let service = known.then(|| self.service(requests, pairs(&self.round_requests)));
        FittedTiming { duration_s, bursts, service }
    }

    fn service(&self, requests: u64, round_requests: Vec<(u64, u64)>) -> ServiceModel {
        let mean = |ns: u128, count: u64, unit: f64| ns as f64 / count.max(1) as f64 / unit;
        let points = |op: Op| {
            let mut points: Vec<(f64, f64)> = Vec::new();
            for ((_, _), served) in self.served.iter().filter(|((of, _), _)| *of == op) {
                // Mean size in KB, rounded down to whole sectors.
                let kb = (served.sectors / served.requests) as f64 / 2.0;
                points.push((kb, round(mean(served.ns, served.requests, 1e3), 10.0)));
            }
            if points.is_empty() {
                points.push((4.0, 1e3));
            }
            points
        };
        let mean_service_ms = mean(self.service_ns, requests, 1e6);
        let expected: f64 = self
            .woken_by_class
            .iter()
            .filter_map(|(key, count)| {
                let served = self.served.get(key)?;
                Some(*count as f64 * mean(served.ns, served.requests, 1e6))
            })
            .sum();
        let extra = self.woken.ns as f64 / 1e6 - expected;
        ServiceModel {
            no_wait_pct: round(100.0 * self.rounds as f64 / requests as f64, 1e4),
            mean_service_ms: round(mean_service_ms, 1e5),
            mean_response_ms: round(mean(self.response_ns, requests, 1e6).max(mean_service_ms), 1e5),
            round_requests,
            fetch_us: round(mean(self.fetch_ns, self.rounds, 1e3), 10.0),
            read_us: points(Op::Read),
            write_us: points(Op::Write),
            jitter_pct: self.jitter(),
            wake_after_ms: WAKE_AFTER.as_millis_f64(),
            wake_up_ms: round((extra / self.woken.requests.max(1) as f64).clamp(0.0, 1e6), 1e3),
        }
    }

    /// Distribution of service times over all size classes, in percent of the mean of each class.
    fn jitter(&self) -> Vec<(f64, u64)> {
        let mut all = OctaveHistogram::default();
        for served in self.served.values() {
            let mean = (served.ns / u128::from(served.requests)).max(1);
            for (time, count) in served.times.means() {
                let millionths = (u128::from(time) * 1_000_000 / mean).min(LARGEST_JITTER);
                all.push(millionths as u64, count);
            }
        }
        all.pairs(1e4, 100.0)
    }
}

/// The size class of a request: up to 64 KB each size is a class; larger sizes are grouped by octave.
fn size_class(sectors: u32) -> u32 {
    if sectors <= 128 { sectors } else { 128 + sectors.ilog2() }
}

/// A duration in ns, limited to the range from 0 to `limit`.
fn bounded(time: Nanos, limit: u64) -> u64 {
    u64::try_from(time.0).unwrap_or(0).min(limit)
}
