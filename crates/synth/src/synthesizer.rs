//! Generates a stream of batches from a model.

use std::sync::Arc;

use emmclab_trace::{Batch, BatchBuilder, Error, ErrorClass, NameTable, Nanos, Op, Request, RequestFlags, Result};

use crate::address_space::{AddressRequest, AddressSpace};
use crate::distribute::{SynthesisRng, WeightedSampler, fraction, percent_of, scale_to, scatter, strata};
use crate::load_schedule::{LoadChapter, LoadPiece, LoadSchedule};
use crate::model::WorkloadModel;
use crate::request_order::{ChapterLayout, ChapterQuota, JournalRole};
use crate::service::{ModelTimes, SLOWEST_NS, ServerQueue};

/// Generates a trace from a model, batch by batch, in order of arrival. The same model, options and version give the same bytes.
///
/// Memory is bounded by one batch, by the size counts of the rows of a load curve, and by the set of start addresses used.
pub struct Synthesizer {
    plan: SynthesisPlan,
    load: LoadSchedule,
    space: AddressSpace,
    dice: SynthesisRng,
    /// Time at which all requests so far are complete, ns after the first arrival.
    clock: u64,
    names: Arc<NameTable>,
}

impl Synthesizer {
    /// Plans a trace of `model`.
    /// Errors: [`emmclab_trace::ErrorClass::Config`] if the model or the options are impossible, or the device would be
    /// busy for longer than the trace.
    pub fn new(model: &WorkloadModel, options: &SynthOptions) -> Result<Self> {
        let mut model = model.clone();
        model.address_space_gb = options.address_space_gb.unwrap_or(model.address_space_gb);
        model.check()?;
        let totals = SynthesisTotals::new(&model, options)?;
        let reaccess_sizes = [Op::Read, Op::Write].map(|op| {
            let sizes = &model.of(op).reaccess_kb;
            sizes.iter().map(|(kb, count)| ((kb * 2.0).round() as u64, *count)).collect()
        });
        let mut dice = SynthesisRng::new(options.seed);
        let space = AddressSpace::new(&model, &mut dice);
        let load = LoadSchedule::new(&model, &totals);
        let plan = SynthesisPlan { times: ModelTimes::new(&model), model, totals, reaccess_sizes };
        Ok(Self { plan, load, space, dice: SynthesisRng::new(options.seed), clock: 0, names: Arc::default() })
    }

    /// Number of requests in the whole trace.
    pub fn requests(&self) -> u64 {
        self.plan.totals.requests()
    }
}

impl Iterator for Synthesizer {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        let chapter = self.load.next(&mut self.dice)?;
        let requests = self.plan.make(&chapter, &mut self.clock, &mut self.space, &mut self.dice);
        let mut builder = BatchBuilder::default();
        for request in &requests {
            builder.push(request);
        }
        Some(builder.finish(&self.names, &self.names))
    }
}

/// Length, rate and random seed of a synthesis. By default, the trace has the length and rate of the workload, and the seed is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SynthOptions {
    /// Seed of the random numbers; the same seed gives the same trace.
    pub seed: u64,
    /// Number of reads and writes to generate. Without `duration`, the duration follows from the workload's rate.
    pub requests: Option<u64>,
    /// Time from the first arrival to the last completion. If `requests` is `None`, the number of requests follows from the workload's
    /// rate. The duration is exact if the trace has an idle gap that can be adjusted.
    pub duration: Option<Nanos>,
    /// Arrival rate, percent of the workload's rate. It changes the idle gaps; think and service times stay the same.
    pub rate_pct: u64,
    /// Size of the device, GB of 2^30 bytes; `None` for the size in the model.
    pub address_space_gb: Option<u64>,
}

impl Default for SynthOptions {
    fn default() -> Self {
        Self { seed: 0, requests: None, duration: None, rate_pct: 100, address_space_gb: None }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SynthesisTotals {
    pub reads: u64,
    pub writes: u64,
    /// Number of requests that arrive at an idle device.
    pub rounds: u64,
    pub bursts: u64,
    /// Time from the first arrival to the last completion, ns.
    pub duration: u64,
    /// Sum of service times, ns.
    pub service: u64,
    /// Sum of the response times minus the service times, ns.
    pub waiting: u64,
}

/// Maximum duration of a trace in ns. The limit keeps sums within 64 bits.
const LONGEST_NS: u64 = 1 << 60;
/// Maximum number of requests of a trace.
const MOST_REQUESTS: u64 = 1 << 40;

impl SynthesisTotals {
    pub(crate) fn new(model: &WorkloadModel, options: &SynthOptions) -> Result<Self> {
        let own_requests = model.requests();
        let own_ns = nanos(model.duration_s, 1e9);
        let config = |problem: String, hint: &str| Error::new(ErrorClass::Config, problem).hint(hint);
        if !(1..=1_000_000).contains(&options.rate_pct) {
            let problem = format!("a rate of {} % of the workload's own", options.rate_pct);
            return Err(config(problem, "give 1 to 1000000 percent"));
        }
        if options.requests.is_some() && options.duration.is_some() && options.rate_pct != 100 {
            let problem = "requests and duration already determine the rate".to_owned();
            return Err(config(problem, "leave out one of requests, duration and rate"));
        }
        let given_ns = options.duration.map(|duration| u64::try_from(duration.0).unwrap_or(0));
        let requests = options.requests.unwrap_or_else(|| match given_ns {
            None => own_requests,
            Some(ns) => fraction(fraction(own_requests, ns, own_ns), options.rate_pct, 100),
        });
        if !(1..=MOST_REQUESTS).contains(&requests) {
            let problem = format!("that would be {requests} requests");
            return Err(config(problem, "choose requests, duration and rate so that there are 1 to 2^40"));
        }
        let duration = given_ns.unwrap_or_else(|| fraction(fraction(own_ns, requests, own_requests), 100, options.rate_pct));
        if !(1..=LONGEST_NS).contains(&duration) {
            let problem = format!("that would last {} s", duration / 1_000_000_000);
            return Err(config(problem, "choose requests, duration and rate so that it lasts 1 ns to 36 years"));
        }
        let reads = fraction(model.reads.requests(), requests, own_requests);
        let (rounds, service, waiting) = match &model.service {
            None => (requests, 0, 0),
            Some(service) => {
                let mean = nanos(service.mean_service_ms, 1e6);
                let wait = nanos(service.mean_response_ms, 1e6) - mean;
                let rounds = percent_of(requests, service.no_wait_pct).max(1);
                (rounds, requests.saturating_mul(mean), requests.saturating_mul(wait))
            }
        };
        if service > duration {
            let most = fraction(options.rate_pct, duration, service);
            let problem = format!(
                "the device would be busy for {}, longer than the trace of {}",
                Nanos(i64::try_from(service).unwrap_or(i64::MAX)),
                Nanos(i64::try_from(duration).unwrap_or(i64::MAX))
            );
            return Err(config(problem, &format!("give a rate of at most {most} %, by the service times")));
        }
        let bursts = percent_of(requests, model.bursts.opens_pct).clamp(1, rounds);
        Ok(Self { reads, writes: requests - reads, rounds, bursts, duration, service, waiting })
    }

    pub(crate) fn requests(&self) -> u64 {
        self.reads + self.writes
    }

    pub(crate) fn of(&self, op: Op) -> u64 {
        if op == Op::Read { self.reads } else { self.writes }
    }
}

/// Converts a checked value of a model to nanoseconds; `unit` is the length of its unit in ns.
pub(crate) fn nanos(value: f64, unit: f64) -> u64 {
    (value * unit).round() as u64
}

/// Maximum value of `lengthen`. With this value, all waiting requests of a generated batch of 2^16 requests wait behind a single request.
const LONGEST: u32 = 16;

/// The input for the synthesis of a trace, which all its chapters (generated batches) share.
pub(crate) struct SynthesisPlan {
    pub model: WorkloadModel,
    pub totals: SynthesisTotals,
    pub times: ModelTimes,
    /// Sizes in sectors of requests that return to an earlier start address, with their counts; for reads and for writes.
    pub reaccess_sizes: [Vec<(u64, u64)>; 2],
}

/// Times of the requests of a chapter (one generated batch), ns.
struct ChapterTimes {
    idle: Vec<u64>,
    service: Vec<u64>,
    woken: Vec<u64>,
    waiting: Vec<u64>,
    fetch: u64,
}

impl SynthesisPlan {
    /// The share of `total` for one chapter (generated batch), in proportion to the number of its requests.
    fn part(&self, total: u64, chapter: &LoadChapter) -> u64 {
        let upto = |place: &LoadPiece| fraction(total, place.all(), self.totals.requests());
        upto(&chapter.to) - upto(&chapter.from)
    }

    fn quota(&self, chapter: &LoadChapter) -> ChapterQuota {
        let generated = |op: usize| chapter.to.requests[op] - chapter.from.requests[op];
        let requests = [0, 1].map(generated);
        let both = |value: fn(&crate::OperationModel) -> f64| {
            [Op::Read, Op::Write].map(|op| {
                let whole = self.totals.of(op);
                let total = percent_of(whole, value(self.model.of(op)));
                let upto = |place: &LoadPiece| fraction(total, place.requests[op as usize], whole);
                (upto(&chapter.to) - upto(&chapter.from)).min(requests[op as usize])
            })
        };
        let all = requests[0] + requests[1];
        let rounds = self.part(self.totals.rounds, chapter).clamp(1, all);
        let bursts = (chapter.to.bursts - chapter.from.bursts).min(rounds);
        ChapterQuota {
            reads: requests[0],
            writes: requests[1],
            rounds,
            bursts: if chapter.follows_curve { bursts } else { bursts.max(1) },
            sequential: both(|model| model.sequential_pct),
            reaccess: both(|model| model.reaccess_pct),
        }
    }

    /// Generates the requests of `chapter`, which is one batch of the trace. `clock` is the time at which all earlier requests are
    /// complete.
    pub(crate) fn make(
        &self, chapter: &LoadChapter, clock: &mut u64, space: &mut AddressSpace, dice: &mut SynthesisRng,
    ) -> Vec<Request> {
        let quota = self.quota(chapter);
        let writes = || chapter.sizes.iter().map(|[_, writes]| writes);
        let smallest_write = writes().filter_map(|sizes| sizes.first()).min().copied().unwrap_or(0);
        let smallest: Vec<usize> = writes().map(|sizes| sizes.partition_point(|sectors| *sectors <= smallest_write)).collect();
        let mut lengthen = 0;
        let (layout, sectors, timing) = loop {
            let layout = ChapterLayout::new(&self.model, &quota, chapter, &smallest, lengthen, dice);
            let sectors = self.deal_sizes(&layout, &chapter.sizes, dice);
            match self.time(chapter, &quota, &layout, &sectors, dice) {
                Err(_) if lengthen < LONGEST => lengthen += 1,
                Ok(timing) | Err(timing) => break (layout, sectors, timing),
            }
        };
        for op in [Op::Read, Op::Write] {
            space.plan(op, quota.reaccess[op as usize]);
        }
        (0..layout.op.len())
            .map(|i| {
                let (op, role) = (layout.op[i], layout.role[i]);
                let (sequential, returns) = (layout.sequential[i], layout.returns[i]);
                let visit = AddressRequest { op, role, sectors: sectors[i], sequential, returns };
                let start = space.place(&visit, dice);
                let mut request = Request::new(Nanos::ZERO, op, start, sectors[i] as u32);
                request.flags = match (op, role) {
                    (Op::Read, _) => RequestFlags::SYNC,
                    (_, JournalRole::Data) => RequestFlags::default(),
                    _ => RequestFlags::SYNC.union(RequestFlags::META),
                };
                self.stamp(&mut request, i, &layout, &timing, clock);
                request
            })
            .collect()
    }

    /// Distributes idle, service and waiting times over the requests. If the planned waiting times cannot be reached, returns the closest
    /// possible times as `Err`.
    fn time(
        &self, chapter: &LoadChapter, quota: &ChapterQuota, layout: &ChapterLayout, sectors: &[u64], dice: &mut SynthesisRng,
    ) -> std::result::Result<ChapterTimes, ChapterTimes> {
        let requests = layout.op.len() as u64;
        let service_total = self.part(self.totals.service, chapter);
        let waiting_total = self.part(self.totals.waiting, chapter);
        let most_fetch = waiting_total / quota.rounds;
        let fetch = match &self.times.service {
            Some(_) if quota.rounds == requests => most_fetch,
            Some(times) => times.fetch.min(most_fetch / 2),
            None => 0,
        };
        let busy = service_total + fetch * quota.rounds;
        let idle_total = (chapter.to.duration - chapter.from.duration).saturating_sub(busy);
        let busy = self.busy(layout, sectors, fetch, service_total);
        let idle = self.deal_idle(chapter, layout, &busy, idle_total, dice);
        let Some(times) = &self.times.service else {
            return Ok(ChapterTimes { idle, service: Vec::new(), woken: Vec::new(), waiting: Vec::new(), fetch });
        };
        let (service, woken) = times.deal(&layout.op, sectors, &idle, service_total, dice);
        let queue = ServerQueue { waits: &layout.waits, service: &service, fetch };
        let dealt = queue.deal(waiting_total - fetch * quota.rounds, dice);
        let reached = dealt.is_ok();
        let (Ok(waiting) | Err(waiting)) = dealt;
        let timing = ChapterTimes { idle, service, woken, waiting, fetch };
        if reached { Ok(timing) } else { Err(timing) }
    }

    /// Estimates how long the device is busy in each period of the load, ns.
    fn busy(&self, layout: &ChapterLayout, sectors: &[u64], fetch: u64, service_total: u64) -> Vec<u64> {
        let Some(times) = &self.times.service else { return vec![0; layout.ends.len()] };
        let mut busy: Vec<u64> =
            layout.pieces().map(|piece| piece.map(|i| times.expected(layout.op[i], sectors[i]).min(SLOWEST_NS)).sum()).collect();
        scale_to(&mut busy, service_total);
        for (busy, piece) in busy.iter_mut().zip(layout.pieces()) {
            *busy += fetch * piece.filter(|i| !layout.waits[*i]).count() as u64;
        }
        busy
    }

    /// The idle time before each request. It is 0 before requests that wait in the queue and before the first request of the trace. The
    /// idle time of a piece of the load is its duration without the busy time of the device.
    fn deal_idle(
        &self, chapter: &LoadChapter, layout: &ChapterLayout, busy: &[u64], total: u64, dice: &mut SynthesisRng,
    ) -> Vec<u64> {
        let durations = chapter.pieces.iter().map(|piece| piece.duration);
        // Requests that may have idle time before them: all except the first request of the trace and requests that wait in the queue.
        let free: Vec<Vec<usize>> = layout
            .pieces()
            .map(|piece| piece.filter(|i| !layout.waits[*i] && (*i > 0 || chapter.from.all() > 0)).collect())
            .collect();
        let mut owed = 0;
        let mut totals: Vec<u64> = durations
            .zip(busy)
            .zip(&free)
            .map(|((all, busy), free)| {
                owed += all.saturating_sub(*busy);
                if free.is_empty() { 0 } else { std::mem::take(&mut owed) }
            })
            .collect();
        scale_to(&mut totals, total);
        let mut idle_before = vec![0; layout.op.len()];
        for ((free, load), total) in free.into_iter().zip(&chapter.pieces).zip(totals) {
            let gaps = free.iter().filter(|i| layout.opens[**i]).count() as u64;
            let mut think = scatter(&self.times.think, free.len() as u64 - gaps, dice);
            let most = if gaps == 0 { total } else { total / 2 };
            let wanted = match (gaps, chapter.follows_curve) {
                (0, _) => most,
                (_, true) => load.think.min(total),
                (_, false) => think.iter().sum::<u64>().min(most),
            };
            scale_to(&mut think, wanted);
            let mut idle = scatter(&self.times.idle, gaps, dice);
            scale_to(&mut idle, total - think.iter().sum::<u64>());
            let (mut think, mut idle) = (think.into_iter(), idle.into_iter());
            for i in free {
                let gap = if layout.opens[i] { idle.next() } else { think.next() };
                idle_before[i] = gap.unwrap_or(0);
            }
        }
        idle_before
    }

    /// Sets the times of request `i`. `clock` contains the completion time of the request before it.
    fn stamp(&self, request: &mut Request, i: usize, layout: &ChapterLayout, timing: &ChapterTimes, clock: &mut u64) {
        if self.times.service.is_none() {
            *clock += timing.idle[i];
            request.arrival = Nanos(*clock as i64);
            return;
        }
        let (arrival, start) = if layout.waits[i] {
            (*clock - timing.waiting[i].min(*clock), *clock)
        } else {
            (*clock + timing.idle[i], *clock + timing.idle[i] + timing.fetch)
        };
        // The driver takes about 20 us to submit a request to a device that is awake.
        let issue = start + timing.woken[i] + (timing.service[i] - timing.woken[i]).min(40_000) / 2;
        *clock = start + timing.service[i];
        request.arrival = Nanos(arrival as i64);
        request.start = Some(Nanos(start as i64));
        request.issue = Some(Nanos(issue as i64));
        request.complete = Some(Nanos(*clock as i64));
    }

    /// Distributes the sizes of each piece over its requests. Commit blocks get the smallest sizes. Requests that return to an earlier
    /// address get the sizes that the model has for them.
    fn deal_sizes(&self, layout: &ChapterLayout, ascending: &[[Vec<u64>; 2]], dice: &mut SynthesisRng) -> Vec<u64> {
        let mut sectors = vec![1; layout.op.len()];
        let evenly = ascending.len() == 1;
        for (piece, ascending) in layout.pieces().zip(ascending) {
            let commits = piece.clone().filter(|i| layout.role[*i] == JournalRole::Commit).count();
            let returning = |op: Op| piece.clone().filter(|i| layout.returns[*i] && layout.op[*i] == op).count() as u64;
            let mut bags = [Op::Read, Op::Write].map(|op| {
                let left = if op == Op::Write { &ascending[1][commits..] } else { &ascending[0][..] };
                let wanted = self.returning_sizes(op, returning(op), evenly, dice);
                let (mut taken, mut rest) = take(left, &wanted);
                dice.shuffle(&mut taken);
                dice.shuffle(&mut rest);
                (taken, rest)
            });
            for i in piece {
                let (taken, rest) = &mut bags[layout.op[i] as usize];
                let size = match layout.role[i] {
                    JournalRole::Commit => ascending[1].first().copied(),
                    _ if layout.returns[i] => taken.pop().or_else(|| rest.pop()),
                    _ => rest.pop().or_else(|| taken.pop()),
                };
                sectors[i] = size.unwrap_or(1);
            }
        }
        sectors
    }

    /// Sizes of `count` requests that return to an earlier address, ascending: evenly spaced if `evenly` is true, otherwise drawn at
    /// random.
    fn returning_sizes(&self, op: Op, count: u64, evenly: bool, dice: &mut SynthesisRng) -> Vec<u64> {
        let sizes = &self.reaccess_sizes[op as usize];
        if evenly || sizes.is_empty() {
            return strata(sizes, count, 0, 1);
        }
        let sizes = WeightedSampler::new(sizes);
        let mut drawn: Vec<u64> = (0..count).map(|_| sizes.draw(dice)).collect();
        drawn.sort_unstable();
        drawn
    }
}

/// Takes `wanted` sizes out of `sizes` (both ascending). If a wanted size is missing, the next larger one is taken. Returns the sizes
/// taken, and the rest.
fn take(sizes: &[u64], wanted: &[u64]) -> (Vec<u64>, Vec<u64>) {
    let (mut taken, mut rest) = (Vec::with_capacity(wanted.len()), Vec::with_capacity(sizes.len()));
    let mut wanted = wanted.iter().peekable();
    for size in sizes {
        if wanted.next_if(|wanted| *wanted <= size).is_some() { taken.push(*size) } else { rest.push(*size) }
    }
    (taken, rest)
}
