//! One chapter: at most a batch of requests, with its exact share of every total.

use emmclab_trace::{Flags, Nanos, Op, Request};

use super::deal::{Dice, percent_of, scale_to, scatter, share, strata};
use super::layout::{Layout, Quota, Role};
use super::model::WorkloadModel;
use super::options::Totals;
use super::service::{Queue, Times};
use super::space::{Space, Visit};

/// Steps after which all that wait do so in one round of a chapter of 2^16 requests.
const LONGEST: u32 = 16;

/// What stays the same from chapter to chapter.
pub(super) struct Plan {
    pub model: WorkloadModel,
    pub totals: Totals,
    pub times: Times,
    /// Sectors and counts, for reads and for writes.
    pub sizes: [Vec<(u64, u64)>; 2],
    /// The same of requests that return.
    pub reaccess_sizes: [Vec<(u64, u64)>; 2],
    pub chapters: u64,
}

/// When a request comes and how long it takes, ns.
struct Timing {
    idle: Vec<u64>,
    service: Vec<u64>,
    woken: Vec<u64>,
    waiting: Vec<u64>,
    fetch: u64,
}

impl Plan {
    fn quota(&self, chapter: u64) -> Quota {
        let part = |total: u64| total / self.chapters + u64::from(chapter < total % self.chapters);
        let pct = |op: Op, percent: f64| {
            share(percent_of(self.totals.of(op), percent), chapter, self.chapters)
                .min(part(self.totals.of(op)))
        };
        let (reads, writes) = (part(self.totals.reads), part(self.totals.writes));
        let rounds = share(self.totals.rounds, chapter, self.chapters).clamp(1, reads + writes);
        let bursts = share(self.totals.bursts, chapter, self.chapters).clamp(1, rounds);
        let both = |value: fn(&super::OperationModel) -> f64| {
            [Op::Read, Op::Write].map(|op| pct(op, value(self.model.of(op))))
        };
        Quota {
            reads,
            writes,
            rounds,
            bursts,
            sequential: both(|model| model.sequential_pct),
            reaccess: both(|model| model.reaccess_pct),
        }
    }

    /// Makes the requests of `chapter`; `clock` is when everything before it was finished.
    pub(super) fn make(
        &self,
        chapter: u64,
        clock: &mut u64,
        space: &mut Space,
        dice: &mut Dice,
    ) -> Vec<Request> {
        let quota = self.quota(chapter);
        let ascending = [Op::Read, Op::Write]
            .map(|op| strata(&self.sizes[op as usize], self.totals.of(op), chapter, self.chapters));
        let smallest = ascending[1].partition_point(|sectors| *sectors <= ascending[1][0]);
        let mut lengthen = 0;
        let (layout, sectors, timing) = loop {
            let layout = Layout::new(&self.model, &quota, smallest, lengthen, dice);
            let sectors = self.deal_sizes(&layout, &ascending, dice);
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
                let visit = Visit { op, role, sectors: sectors[i], sequential, returns };
                let start = space.place(&visit, dice);
                let mut request = Request::new(Nanos::ZERO, op, start, sectors[i] as u32);
                request.flags = match (op, role) {
                    (Op::Read, _) => Flags::SYNC,
                    (_, Role::Data) => Flags::default(),
                    _ => Flags::SYNC.with(Flags::META),
                };
                self.stamp(&mut request, i, &layout, &timing, clock);
                request
            })
            .collect()
    }

    /// Idle, service and waiting times; `Err` where waiting times cannot be as long as they should.
    fn time(
        &self,
        chapter: u64,
        quota: &Quota,
        layout: &Layout,
        sectors: &[u64],
        dice: &mut Dice,
    ) -> Result<Timing, Timing> {
        let requests = layout.op.len() as u64;
        let parts = |total: u64| share(total, chapter, self.chapters);
        let (service_total, waiting_total) = (parts(self.totals.service), parts(self.totals.waiting));
        let most_fetch = waiting_total / quota.rounds;
        let fetch = match &self.times.service {
            Some(_) if quota.rounds == requests => most_fetch,
            Some(times) => times.fetch.min(most_fetch / 2),
            None => 0,
        };
        let busy = service_total + fetch * quota.rounds;
        let idle_total = parts(self.totals.duration).saturating_sub(busy);
        let idle = self.deal_idle(chapter == 0, quota, layout, idle_total, dice);
        let Some(times) = &self.times.service else {
            return Ok(Timing { idle, service: Vec::new(), woken: Vec::new(), waiting: Vec::new(), fetch });
        };
        let (service, woken) = times.deal(&layout.op, sectors, &idle, service_total, dice);
        let queue = Queue { waits: &layout.waits, service: &service, fetch };
        let dealt = queue.deal(waiting_total - fetch * quota.rounds, dice);
        let reached = dealt.is_ok();
        let (Ok(waiting) | Err(waiting)) = dealt;
        let timing = Timing { idle, service, woken, waiting, fetch };
        if reached { Ok(timing) } else { Err(timing) }
    }

    /// The idle time before each request, 0 before those that wait and before the very first.
    fn deal_idle(
        &self,
        first: bool,
        quota: &Quota,
        layout: &Layout,
        total: u64,
        dice: &mut Dice,
    ) -> Vec<u64> {
        let gaps = quota.bursts - u64::from(first);
        let mut think = scatter(&self.times.think, quota.rounds - quota.bursts, dice);
        let most = if gaps == 0 { total } else { total / 2 };
        if gaps == 0 || think.iter().sum::<u64>() > most {
            scale_to(&mut think, most);
        }
        let mut idle = scatter(&self.times.idle, gaps, dice);
        scale_to(&mut idle, total - think.iter().sum::<u64>());
        let (mut think, mut idle) = (think.into_iter(), idle.into_iter());
        let mut held_back = first;
        layout
            .opens
            .iter()
            .zip(&layout.waits)
            .map(|(opens, waits)| match (opens, waits) {
                (true, _) if std::mem::take(&mut held_back) => 0,
                (true, _) => idle.next().unwrap_or(0),
                (false, false) => think.next().unwrap_or(0),
                (false, true) => 0,
            })
            .collect()
    }

    /// Sets the times of request `i`; `clock` is when its predecessor was finished.
    fn stamp(&self, request: &mut Request, i: usize, layout: &Layout, timing: &Timing, clock: &mut u64) {
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
        // The driver needs some 20 us to submit a request to a device that is awake.
        let issue = start + timing.woken[i] + (timing.service[i] - timing.woken[i]).min(40_000) / 2;
        *clock = start + timing.service[i];
        request.arrival = Nanos(arrival as i64);
        request.start = Some(Nanos(start as i64));
        request.issue = Some(Nanos(issue as i64));
        request.complete = Some(Nanos(*clock as i64));
    }

    /// Deals sizes out: the smallest to commit blocks, those that return often to requests that return.
    fn deal_sizes(&self, layout: &Layout, ascending: &[Vec<u64>; 2], dice: &mut Dice) -> Vec<u64> {
        let commits = layout.role.iter().filter(|role| **role == Role::Commit).count();
        let returning =
            |op: Op| (0..layout.op.len()).filter(move |i| layout.returns[*i] && layout.op[*i] == op);
        let mut bags = [Op::Read, Op::Write].map(|op| {
            let left = if op == Op::Write { &ascending[1][commits..] } else { &ascending[0][..] };
            let wanted = strata(&self.reaccess_sizes[op as usize], returning(op).count() as u64, 0, 1);
            let (mut taken, mut rest) = take(left, &wanted);
            dice.shuffle(&mut taken);
            dice.shuffle(&mut rest);
            (taken, rest)
        });
        let places = layout.op.iter().zip(&layout.role).zip(&layout.returns);
        places
            .map(|((op, role), returns)| {
                let (taken, rest) = &mut bags[*op as usize];
                let size = match role {
                    Role::Commit => ascending[1].first().copied(),
                    _ if *returns => taken.pop().or_else(|| rest.pop()),
                    _ => rest.pop().or_else(|| taken.pop()),
                };
                size.unwrap_or(1)
            })
            .collect()
    }
}

/// Takes `wanted` sizes out of `sizes` (both ascending), the next larger where one is missing. What was taken, and the
/// rest.
fn take(sizes: &[u64], wanted: &[u64]) -> (Vec<u64>, Vec<u64>) {
    let (mut taken, mut rest) = (Vec::with_capacity(wanted.len()), Vec::with_capacity(sizes.len()));
    let mut wanted = wanted.iter().peekable();
    for size in sizes {
        if wanted.next_if(|wanted| *wanted <= size).is_some() { taken.push(*size) } else { rest.push(*size) }
    }
    (taken, rest)
}
