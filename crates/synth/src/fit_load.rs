//! Fits the load curve of a trace: work over time, approximated by a few hundred straight segments.
//!
//! Mean response times of a loaded device are determined by a few busy periods, and by the requests that arrive while their backlog drains.
//! Therefore the trace is replayed through three simple queues: one as slow and one as fast as the devices of the IISWC 2015 study, and a
//! faster one. The curve is divided where a straight line would change the waiting times most, until the remaining error is a small share
//! of all waiting times.

use emmclab_trace::{Op, Request};

use crate::fit_times::RelativeArrival;
use crate::model::LoadModel;

/// Maximum number of points of the load curve. A point is a request, or a group of requests if the trace has more requests than this.
const MOST_POINTS: usize = 1 << 18;
/// Maximum number of segments of the load curve.
const MOST_PIECES: usize = 512;
/// Minimum mean number of requests per segment, so that the curve does not reproduce the trace.
const LEAST_REQUESTS: u64 = 16;
/// Error of the load curve, as a share of all waiting times, below which the curve is accurate enough.
const OPEN: f64 = 0.004;
/// Time to read and to program a page of 4 KB in a chip (IISWC 2015 paper, Table V), ns.
const PAGE_NS: [u64; 2] = [160_000, 1_385_000];
const PAGE_SECTORS: u64 = 8;
/// Number of 4 KB pages that each queue serves at a time. The first queue models two chips, the second their eight planes, and the third
/// eight planes with larger pages.
const WAYS: [u64; QUEUES] = [2, 8, 32];
const QUEUES: usize = 3;

/// A point of the load curve: a request, or several consecutive requests.
#[derive(Clone, Copy, Default)]
struct LoadPoint {
    /// Arrival of the last request of this point of the load curve, in ns after the first request of the trace.
    at: u64,
    requests: [u64; 2],
    sectors: [u64; 2],
    bursts: u64,
    /// Idle time within bursts, ns.
    think: u64,
    /// Number of requests that follow another request of their burst.
    neighbours: u64,
    /// Number of requests counted in `neighbours` that have another operation than the request before them.
    switches: u64,
    /// Time that one chip would need for the pages of all requests counted here, ns.
    work: u64,
    /// Sum of the response times in each queue, ns.
    response: [u64; QUEUES],
}

impl LoadPoint {
    fn add(&mut self, other: &Self) {
        self.at = other.at;
        self.bursts += other.bursts;
        self.neighbours += other.neighbours;
        self.switches += other.switches;
        self.think = self.think.saturating_add(other.think);
        self.work = self.work.saturating_add(other.work);
        for op in [0, 1] {
            self.requests[op] += other.requests[op];
            self.sectors[op] += other.sectors[op];
        }
        for (sum, other) in self.response.iter_mut().zip(other.response) {
            *sum = sum.saturating_add(other);
        }
    }

    fn all(&self) -> u64 {
        self.requests[0] + self.requests[1]
    }
}

/// Collects the points of the load curve of a trace.
#[derive(Default)]
pub(crate) struct LoadFitter {
    points: Vec<LoadPoint>,
    open: LoadPoint,
    /// Binary logarithm of the number of requests per point.
    doublings: u32,
    begin: Option<i64>,
    /// The time at which each queue becomes empty, ns.
    free: [u64; QUEUES],
}

/// The load curve of a trace, and how much reads and writes alternate.
pub(crate) struct FittedLoad {
    /// The load curve; `None` if all requests arrive at the same time.
    pub load: Option<LoadModel>,
    /// How often the operation changes within a burst, in percent of the changes that a random order would have.
    pub op_mixing_pct: f64,
}

/// A segment of the load curve: the points between two cuts, which are approximated by a straight line.
struct CurveSegment {
    from: usize,
    to: usize,
    /// Index of the point that is farthest from the line.
    farthest: usize,
    /// Share of all waiting times that could change if a straight line replaces this segment of the load curve.
    at_risk: f64,
}

impl LoadFitter {
    /// Adds a read or a write.
    pub(crate) fn add_request(&mut self, request: &Request, coming: RelativeArrival) {
        let begin = *self.begin.get_or_insert(request.arrival.0);
        let at = u64::try_from(request.arrival.0.saturating_sub(begin)).unwrap_or(0);
        let op = usize::from(request.op != Op::Read);
        let sectors = u64::from(request.sectors);
        let mut point = LoadPoint {
            at,
            bursts: u64::from(coming.opens),
            think: coming.think,
            neighbours: u64::from(!coming.opens),
            switches: u64::from(coming.switches),
            work: sectors.div_ceil(PAGE_SECTORS) * PAGE_NS[op],
            ..LoadPoint::default()
        };
        point.requests[op] = 1;
        point.sectors[op] = sectors;
        for (k, ways) in WAYS.into_iter().enumerate() {
            self.free[k] = self.free[k].max(at).saturating_add(point.work / ways);
            point.response[k] = self.free[k] - at;
        }
        self.open.add(&point);
        if self.open.all() >= 1 << self.doublings {
            self.points.push(std::mem::take(&mut self.open));
            if self.points.len() == MOST_POINTS {
                self.halve();
            }
        }
    }

    fn halve(&mut self) {
        for i in 0..MOST_POINTS / 2 {
            let mut pair = self.points[2 * i];
            pair.add(&self.points[2 * i + 1]);
            self.points[i] = pair;
        }
        self.points.truncate(MOST_POINTS / 2);
        self.doublings += 1;
    }

    /// Completes the load curve.
    pub(crate) fn finish(mut self) -> FittedLoad {
        if self.open.all() > 0 {
            self.points.push(self.open);
        }
        let (mut curve, mut switches, mut independent) = (Vec::new(), 0, 0.0);
        for cut in self.cuts().windows(2) {
            let first = if cut[0] == 0 { 0 } else { cut[0] + 1 };
            let begin = self.points[cut[0]].at;
            let mut sum = LoadPoint::default();
            self.points[first..=cut[1]].iter().for_each(|point| sum.add(point));
            split(&sum, sum.at - begin, &mut curve);
            let [reads, writes] = sum.requests.map(|requests| requests as f64 / sum.all().max(1) as f64);
            switches += sum.switches;
            independent += 2.0 * reads * writes * sum.neighbours as f64;
        }
        let mixing = if independent > 0.0 { 100.0 * switches as f64 / independent } else { 0.0 };
        FittedLoad { load: curve.iter().any(|row| row[0] > 0).then_some(LoadModel { curve }), op_mixing_pct: mixing.min(100.0) }
    }

    /// Numbers of the points at which segments begin and end, ascending.
    fn cuts(&self) -> Vec<usize> {
        let mut totals = [0.0; QUEUES];
        let (mut requests, mut work) = (0, 0_u64);
        let upto: Vec<(u64, u64)> = self
            .points
            .iter()
            .map(|point| {
                for (total, response) in totals.iter_mut().zip(point.response) {
                    *total += response as f64;
                }
                (requests, work) = (requests + point.all(), work.saturating_add(point.work));
                (requests, work)
            })
            .collect();
        let last = self.points.len() - 1;
        let most = MOST_PIECES.min((requests / LEAST_REQUESTS) as usize);
        let mut spans = vec![self.span(0, last, &upto, &totals)];
        while spans.len() < most && spans.iter().map(|span| span.at_risk).sum::<f64>() > OPEN {
            let worst = (0..spans.len()).max_by(|a, b| spans[*a].at_risk.total_cmp(&spans[*b].at_risk));
            let Some(worst) = worst.filter(|worst| spans[*worst].at_risk > 0.0) else { break };
            let CurveSegment { from, to, farthest, .. } = spans[worst];
            spans[worst] = self.span(from, farthest, &upto, &totals);
            spans.push(self.span(farthest, to, &upto, &totals));
        }
        let mut cuts: Vec<usize> = spans.iter().map(|span| span.from).chain([last]).collect();
        cuts.sort_unstable();
        cuts
    }

    /// Compares the load curve between the points `from` and `to` with a straight line. `upto` contains the number of requests and the work
    /// up to each point. `totals` contains the sum of all response times for each queue.
    fn span(&self, from: usize, to: usize, upto: &[(u64, u64)], totals: &[f64; QUEUES]) -> CurveSegment {
        let mut span = CurveSegment { from, to, farthest: from, at_risk: 0.0 };
        let (begin, (first, done)) = (self.points[from].at, upto[from]);
        let requests = (upto[to].0 - first).max(1) as f64;
        let pace = (self.points[to].at - begin) as f64 / requests;
        let load = (upto[to].1 - done) as f64 / requests;
        let mut most = 0.0;
        let inside = self.points.iter().zip(upto).enumerate().take(to).skip(from + 1);
        for (i, (point, (upto_requests, upto_work))) in inside {
            let number = (upto_requests - first) as f64;
            let early = ((point.at - begin) as f64 - pace * number).abs();
            let more = ((upto_work - done) as f64 - load * number).abs();
            let mut felt = 0.0;
            for (k, ways) in WAYS.into_iter().enumerate() {
                let off = (early + more / ways as f64) * point.all() as f64;
                felt += off.min(point.response[k] as f64) / totals[k].max(1.0);
            }
            span.at_risk += felt;
            let off = early + more / WAYS[0] as f64;
            if off > most {
                (most, span.farthest) = (off, i);
            }
        }
        if span.farthest == from {
            span.at_risk = 0.0;
        }
        span
    }
}

/// Adds a row to the load curve, or several rows if there are too many requests for one row.
fn split(sum: &LoadPoint, ns: u64, rows: &mut Vec<[u64; 7]>) {
    let parts = sum.all().div_ceil(LoadModel::MOST_REQUESTS);
    let share = |total: u64, part: u64| crate::distribute::share(total, part, parts);
    for part in 0..parts {
        rows.push([
            share(ns / 1_000, part),
            share(sum.think / 1_000, part),
            share(sum.bursts, part),
            share(sum.requests[0], part),
            share(sum.sectors[0], part) / 2,
            share(sum.requests[1], part),
            share(sum.sectors[1], part) / 2,
        ]);
    }
}
