//! The jobs of a fio job file on a simulated device: each copy of a job keeps `iodepth` requests unfinished.
//!
//! A copy of a job is a thread, as in fio: it submits requests until its queue is full, waits for a completion, reaps it, and submits
//! again. Submitting, reaping and waking up cost processor time, for which the threads share the cores of the host.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use emmclab_synth::fio::{FioLoad, FioWorker};
use emmclab_trace::{Nanos, Op, Request, Result, interrupt};

use super::cfq::CfqQueues;
use super::{ClosedLoop, Simulation};
use crate::recorder::RunRecorder;
use crate::result::{FioResult, FioTotals, SimulationResult};

/// Number of events between two checks for an interrupt.
const CHECKED_AFTER: u32 = 1 << 12;

/// Processor time of the host's work for fio, on a core of the host at its highest clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FioHostCost {
    /// Number of cores; 0 for any number. Threads are distributed evenly over the cores and stay there.
    pub cores: u32,
    /// Time of a system call.
    pub call: Nanos,
    /// Time to submit a request: file system, block layer, driver.
    pub submit: Nanos,
    /// Time for each 4 KB of a request at its submission, for example to pin the pages of the buffer.
    pub page: Nanos,
    /// Time to complete a request: interrupt, driver, block layer.
    pub complete: Nanos,
    /// Time until a thread that waited runs again.
    pub switch: Nanos,
    /// Lowest clock of a core as a share of its highest clock; 0 if the clock does not change with the load.
    pub lowest_clock: f64,
    /// Maximum number of requests in the block layer with the scheduler CFQ; `None` if each request goes to the device at once.
    pub cfq_requests: Option<u32>,
}

/// A core of the host, whose clock follows its load as under the governor schedutil of Linux: the clock is 1.25 times the load (`map_util_freq`
/// in `kernel/sched`), between the lowest and the highest clock. The load is the average of the past work with a half-life of 32 ms (PELT),
/// counted in work at the highest clock. Clock changes take no time. The boost of the governor for threads that wait for synchronous I/O
/// (`iowait_boost`) is not modelled.
#[derive(Clone, Copy, Debug, Default)]
struct HostCore {
    /// When the core becomes free.
    free: Nanos,
    /// Load of the core at that time, 0 to 1.
    load: f64,
}

impl HostCore {
    /// Runs work that takes `work` at the highest clock, at `at` or when the core becomes free. Returns its end.
    fn run(&mut self, at: Nanos, work: Nanos, lowest_clock: f64) -> Nanos {
        let begin = at.max(self.free);
        if lowest_clock > 0.0 {
            self.load *= remaining_load(begin - self.free);
            let clock = (1.25 * self.load).clamp(lowest_clock, 1.0);
            let took = Nanos((work.0 as f64 / clock) as i64);
            let rest = remaining_load(took);
            self.load = self.load * rest + clock * (1.0 - rest);
            self.free = begin + took;
        } else {
            self.free = begin + work;
        }
        self.free
    }
}

/// The share of a load that remains after some time: 2 to the power of minus the number of half-lives, from a series instead of the
/// mathematical library, whose last digits differ between machines. Its error is below 0.02 %.
fn remaining_load(after: Nanos) -> f64 {
    const HALF_LIFE_NS: i64 = 32_000_000;
    let (halvings, rest) = (after.0 / HALF_LIFE_NS, after.0 % HALF_LIFE_NS);
    if halvings > 62 {
        return 0.0;
    }
    let x = std::f64::consts::LN_2 * rest as f64 / HALF_LIFE_NS as f64;
    let series = 1.0 + x * (1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0 * (1.0 + x / 5.0))));
    1.0 / (series * (1_u64 << halvings) as f64)
}

/// A request from its preparation until its completion is reaped.
#[derive(Clone, Copy, Debug)]
struct FioRequest {
    worker: u32,
    op: Op,
    bytes: u64,
    /// When the thread began to prepare the request.
    begun: Nanos,
    submitted: Nanos,
}

/// The next action of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadAction {
    /// Prepares a request, or waits for completions.
    Continue,
    /// Sends the prepared requests, for which the processor's work has ended.
    Send,
    /// Waits in a system call until the block layer has a free request.
    Blocked,
    /// Waits until the number of unfinished requests is at most this, without an end of its own.
    Wait { most: usize },
    /// Has ended.
    Over,
}

/// A copy of a job while its group runs.
struct FioThread {
    worker: FioWorker,
    action: ThreadAction,
    /// Prepared requests that are not submitted yet.
    prepared: Vec<(Request, Nanos)>,
    unfinished: usize,
    /// Completed requests that are not reaped yet, by their slots.
    completed: Vec<u32>,
    /// Completions of reads, writes and discards so far, and their number at the end of the last think time.
    completions: u64,
    thought_at: u64,
    /// Whether the last submitted request is one for which the thread waits, although its engine is asynchronous.
    is_blocked: bool,
}

/// An event: its time, a number that orders events of the same time, and what occurs.
type FioEvent = Reverse<(Nanos, u64, FioEventKind)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FioEventKind {
    /// A request in this slot completes.
    Complete(u32),
    /// A thread of the running group acts.
    Act(u32),
}

/// A run of the jobs of a fio job file.
pub struct FioRun {
    device: ClosedLoop,
    cost: FioHostCost,
    groups: Vec<Vec<FioWorker>>,
    running: Vec<FioThread>,
    /// Number of threads of the running group that have not ended.
    alive: usize,
    /// Start of the running group.
    begin: Nanos,
    now: Nanos,
    events: BinaryHeap<FioEvent>,
    event_number: u64,
    cores: Vec<HostCore>,
    scheduler: Option<CfqQueues>,
    requests: Vec<FioRequest>,
    free_slots: Vec<u32>,
    completed: Vec<(u64, Nanos)>,
    totals: Vec<FioTotals>,
    sent: u64,
    /// Whether the device has stopped.
    is_stopped: bool,
    duration: Option<Nanos>,
}

impl FioRun {
    /// Prepares the jobs of a load for a simulation that has not started, with a recorder for its events.
    pub fn new(simulation: Simulation, recorder: RunRecorder, load: FioLoad, cost: FioHostCost) -> Self {
        let begin = simulation.options.start_offset;
        let duration = load.duration();
        let depth = simulation.config.settings().controller.queue_depth;
        let mut groups = load.groups;
        groups.reverse();
        let mut run = Self {
            device: ClosedLoop::with_recorder(simulation, recorder).because("each job keeps iodepth requests unfinished"),
            cost,
            groups,
            running: Vec::new(),
            alive: 0,
            begin,
            now: begin,
            events: BinaryHeap::new(),
            event_number: 0,
            // The start of the programs has loaded the cores.
            cores: vec![HostCore { free: begin, load: 1.0 }; cost.cores as usize],
            scheduler: cost.cfq_requests.map(|limit| CfqQueues::new(limit, depth)),
            requests: Vec::new(),
            free_slots: Vec::new(),
            completed: Vec::new(),
            totals: load.reports.into_iter().map(FioTotals::new).collect(),
            sent: 0,
            is_stopped: false,
            duration,
        };
        run.begin_group();
        run
    }

    /// Simulated time so far and of the whole run, and the number of requests submitted so far. The time of the whole run is `None` if a job
    /// ends after a number of requests.
    pub fn progress(&self) -> (Nanos, Option<Nanos>, u64) {
        (self.now, self.duration, self.sent)
    }

    /// Simulates until about `requests` more requests are submitted. Returns false at the end of the run. It can be interrupted.
    /// Errors: for a request beyond the device without wrapped addresses, and a broken invariant under `check`.
    pub fn advance(&mut self, requests: u64) -> Result<bool> {
        let target = self.sent.saturating_add(requests);
        let mut events = 0;
        while self.sent < target {
            events += 1;
            if events % CHECKED_AFTER == 0 {
                interrupt::check()?;
            }
            if self.is_stopped || self.alive == 0 && !self.begin_group() {
                return Ok(false);
            }
            self.step()?;
        }
        Ok(true)
    }

    /// Ends the run and returns its result. The files of the returned recorder must still be moved into place.
    pub fn finish(mut self) -> Result<(SimulationResult, RunRecorder)> {
        // The device may have stopped while jobs were running.
        let is_running = |thread: &FioThread| thread.action != ThreadAction::Over;
        for thread in self.running.iter().filter(|thread| is_running(thread)) {
            self.totals[thread.worker.report].ran(self.now - self.begin - thread.worker.measured_from());
        }
        let (mut result, recorder) = self.device.finish()?;
        result.fio = Some(FioResult::new(self.totals));
        Ok((result, recorder))
    }

    /// Starts the next group. Returns false if there is none.
    fn begin_group(&mut self) -> bool {
        let Some(group) = self.groups.pop() else { return false };
        self.begin = self.now;
        self.events.clear();
        self.running = group.into_iter().map(FioThread::new).collect();
        self.alive = self.running.len();
        for number in 0..self.running.len() {
            let start = self.begin.saturating_add(self.running[number].worker.start());
            self.schedule(start, FioEventKind::Act(number as u32));
        }
        self.alive > 0
    }

    fn schedule(&mut self, at: Nanos, kind: FioEventKind) {
        self.event_number += 1;
        self.events.push(Reverse((at, self.event_number, kind)));
    }

    /// Handles the next event of the device or of a thread.
    fn step(&mut self) -> Result<()> {
        let next = self.events.peek().map(|Reverse((at, ..))| *at);
        if let Some(at) = self.device.next_event().filter(|at| next.is_none_or(|next| *at <= next)) {
            self.device.advance(at)?;
            self.take_completed();
            return Ok(());
        }
        let Some(Reverse((at, _, kind))) = self.events.pop() else {
            // Only a device that has stopped does not complete a request.
            self.is_stopped = true;
            return self.device.refuse_unless_stopped();
        };
        self.now = self.now.max(at);
        match kind {
            FioEventKind::Complete(slot) => self.complete(at, slot)?,
            FioEventKind::Act(number) => match self.running[number as usize].action {
                ThreadAction::Continue => self.continue_thread(at, number),
                ThreadAction::Send => self.send(at, number)?,
                ThreadAction::Blocked | ThreadAction::Wait { .. } | ThreadAction::Over => {}
            },
        }
        Ok(())
    }

    /// Schedules the completions that have become known.
    fn take_completed(&mut self) {
        let mut completed = std::mem::take(&mut self.completed);
        self.device.take_completed(&mut completed);
        for (slot, at) in completed.drain(..) {
            self.schedule(at, FioEventKind::Complete(slot as u32));
        }
        self.completed = completed;
    }

    /// Runs work of a thread on its core. Returns its end.
    fn on_core(&mut self, at: Nanos, number: u32, work: Nanos) -> Nanos {
        if self.cores.is_empty() {
            return at + work;
        }
        let core = number as usize % self.cores.len();
        self.cores[core].run(at, work, self.cost.lowest_clock)
    }

    /// A thread prepares its next requests, thinks, or waits for completions.
    fn continue_thread(&mut self, at: Nanos, number: u32) {
        let elapsed = at - self.begin;
        let thread = &mut self.running[number as usize];
        if std::mem::take(&mut thread.is_blocked) && thread.unfinished > 0 {
            return self.wait(at, number, 0);
        }
        if let Some((think, every)) = thread.worker.think()
            && thread.completions >= thread.thought_at + every
        {
            if thread.unfinished > 0 {
                return self.wait(at, number, 0);
            }
            thread.thought_at = thread.completions;
            return self.schedule(at + think, FioEventKind::Act(number));
        }
        let depth = thread.worker.queue_depth();
        while thread.unfinished + thread.prepared.len() < depth && thread.prepared.len() < thread.worker.submit_batch() {
            let Some(next) = thread.worker.peek(elapsed) else { break };
            let due = self.begin + next.arrival;
            if due > at {
                if !thread.prepared.is_empty() {
                    break;
                }
                // As in fio, a job that is ahead of its rate waits for its unfinished requests first.
                if thread.unfinished > 0 {
                    return self.wait(at, number, 0);
                }
                return self.schedule(due, FioEventKind::Act(number));
            }
            // A request for which the thread waits comes alone; with libaio, discards are such requests.
            let is_alone = thread.worker.waits_for(next.op);
            if is_alone && thread.unfinished + thread.prepared.len() > 0 {
                break;
            }
            thread.worker.take();
            thread.prepared.push((next, at));
            if is_alone {
                thread.is_blocked = true;
                break;
            }
        }
        let (prepared, unfinished) = (thread.prepared.len(), thread.unfinished);
        if prepared > 0 {
            thread.action = ThreadAction::Send;
            let pages: u64 = thread.prepared.iter().map(|(request, _)| request.bytes().0.div_ceil(4096)).sum();
            let cost = &self.cost;
            let work = Nanos(cost.call.0 + cost.submit.0 * prepared as i64 + cost.page.0 * pages as i64);
            let end = self.on_core(at, number, work);
            return self.schedule(end, FioEventKind::Act(number));
        }
        if unfinished > 0 {
            let worker = &thread.worker;
            let is_full = unfinished >= depth;
            let most = unfinished.saturating_sub(worker.complete_batch());
            let most = if is_full { most.min(worker.drains_to()) } else { 0 };
            return self.wait(at, number, most);
        }
        self.end_thread(number);
    }

    /// A thread waits until at most `most` of its requests are unfinished.
    fn wait(&mut self, at: Nanos, number: u32, most: usize) {
        let thread = &mut self.running[number as usize];
        thread.action = ThreadAction::Wait { most };
        self.reap_if_enough(at, number, false);
    }

    /// Sends the prepared requests of a thread to the device, or to the scheduler as far as it has room.
    fn send(&mut self, at: Nanos, number: u32) -> Result<()> {
        let mut prepared = std::mem::take(&mut self.running[number as usize].prepared);
        let mut sent = 0;
        for &(request, begun) in &prepared {
            if self.scheduler.as_mut().is_some_and(|scheduler| !scheduler.allocate(number)) {
                break;
            }
            sent += 1;
            let pending = FioRequest { worker: number, op: request.op, bytes: request.bytes().0, begun, submitted: at };
            let slot = self.free_slots.pop().unwrap_or(self.requests.len() as u32);
            if slot as usize == self.requests.len() {
                self.requests.push(pending);
            } else {
                self.requests[slot as usize] = pending;
            }
            self.sent += 1;
            if let Some(scheduler) = &mut self.scheduler {
                scheduler.push(number, slot, request);
            } else if !self.device.try_submit(at, u64::from(slot), &request, &[])? {
                self.is_stopped = true;
                return Ok(());
            }
        }
        prepared.drain(..sent);
        let thread = &mut self.running[number as usize];
        thread.unfinished += sent;
        thread.action = if prepared.is_empty() { ThreadAction::Continue } else { ThreadAction::Blocked };
        thread.prepared = prepared;
        self.dispatch(at)?;
        self.take_completed();
        if self.running[number as usize].action == ThreadAction::Continue {
            self.continue_thread(at, number);
        }
        Ok(())
    }

    /// Sends what the scheduler passes on to the device, and wakes the first blocked thread if there is a free request.
    fn dispatch(&mut self, at: Nanos) -> Result<()> {
        let Some(scheduler) = &mut self.scheduler else { return Ok(()) };
        while let Some((slot, request)) = scheduler.next(at) {
            if !self.device.try_submit(at, u64::from(slot), &request, &[])? {
                self.is_stopped = true;
                return Ok(());
            }
        }
        if let Some(&first) = scheduler.blocked.front().filter(|_| scheduler.has_room())
            && self.running[first as usize].action == ThreadAction::Blocked
        {
            self.running[first as usize].action = ThreadAction::Send;
            self.schedule(at, FioEventKind::Act(first));
        }
        Ok(())
    }

    /// A request completes on the device.
    fn complete(&mut self, at: Nanos, slot: u32) -> Result<()> {
        let number = self.requests[slot as usize].worker;
        let thread = &mut self.running[number as usize];
        thread.completed.push(slot);
        if let ThreadAction::Wait { .. } = thread.action {
            self.reap_if_enough(at, number, true);
        }
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.complete(number);
            self.dispatch(self.now)?;
            self.take_completed();
        }
        Ok(())
    }

    /// Reaps completed requests of a waiting thread if there are enough: as many as it waits for, and not more, as fio without
    /// `iodepth_batch_complete_max`. `has_slept` is whether the thread has left its core.
    fn reap_if_enough(&mut self, at: Nanos, number: u32, has_slept: bool) {
        let thread = &mut self.running[number as usize];
        let ThreadAction::Wait { most } = thread.action else { return };
        if thread.unfinished - thread.completed.len() > most {
            return;
        }
        let mut work = self.cost.call;
        if !thread.worker.is_asynchronous() {
            // The call that submitted the request returns.
            work = Nanos::ZERO;
        }
        if has_slept {
            work += self.cost.switch;
        }
        let count = thread.worker.complete_batch().max(thread.unfinished - most).min(thread.completed.len());
        work += Nanos(self.cost.complete.0 * count as i64);
        let reaped = self.on_core(at, number, work);
        let thread = &mut self.running[number as usize];
        thread.action = ThreadAction::Continue;
        thread.unfinished -= count;
        let elapsed = reaped - self.begin;
        let is_measured = elapsed >= thread.worker.measured_from();
        let totals = &mut self.totals[thread.worker.report];
        for slot in thread.completed.drain(..count) {
            let request = self.requests[slot as usize];
            thread.completions += u64::from(matches!(request.op, Op::Read | Op::Write | Op::Discard));
            if is_measured {
                let latency = (request.submitted - request.begun, reaped - request.submitted);
                totals.add(request.op, request.bytes, latency, thread.worker.is_asynchronous());
            }
            self.free_slots.push(slot);
        }
        self.schedule(reaped, FioEventKind::Act(number));
    }

    /// A thread has no further request.
    fn end_thread(&mut self, number: u32) {
        let thread = &mut self.running[number as usize];
        thread.action = ThreadAction::Over;
        self.alive -= 1;
        let measured = self.now - self.begin - thread.worker.measured_from();
        self.totals[thread.worker.report].ran(measured);
        if thread.worker.ends_group() {
            self.running.iter_mut().for_each(|other| other.worker.stop());
        }
    }
}

impl FioThread {
    fn new(worker: FioWorker) -> Self {
        Self {
            worker,
            action: ThreadAction::Continue,
            prepared: Vec::new(),
            unfinished: 0,
            completed: Vec::new(),
            completions: 0,
            thought_at: 0,
            is_blocked: false,
        }
    }
}
