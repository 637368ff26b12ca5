//! Runs a program as a discrete-event simulation in integer nanoseconds.
//!
//! Threads run on cores and wait for transfers, for each other, and for their file operations, which a [`StorageBackend`] executes. All
//! events at the same time are processed in the order of their creation, before time advances. A run in simulated time therefore has the
//! same result on every machine.

mod instructions;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use emmclab_base::{Error, ErrorClass, Nanos, Result, interrupt};
use emmclab_host::{CallerId, FileClass, FileOp, FinishedOperations, MountId, WaitReason};

use crate::files::{FileCursor, ProgramFiles};
use crate::network::NetworkLink;
use crate::program::AppProgram;
use crate::random_draws::ThreadDraws;
use crate::storage::StorageBackend;
use crate::thread_code::ProgramCode;
use crate::timeline::{ThreadActivity, ThreadTimeline};

/// Maximum number of instructions executed without an advance of time. A run that exceeds it is aborted; no valid program exceeds it.
const MOST_AT_ONCE: u64 = 10_000_000;
/// Number of event-loop rounds between two checks for an interruption by the user.
const INTERRUPT_EVERY: u64 = 4096;

/// The parameters of a run that do not change, except the program and its files.
pub(crate) struct RunConstants<'a> {
    pub program: &'a AppProgram,
    pub code: &'a ProgramCode,
    pub cores: u32,
    pub quantum: Nanos,
    pub switch: Nanos,
    /// Factor on the duration of CPU work on the simulated host, in millionths.
    pub factor: u64,
    pub bits_per_s: u64,
    pub round_trip: Nanos,
    pub limit: Nanos,
    pub seed: u64,
    /// The thread whose end the user waits for.
    pub awaited_thread: u32,
    /// Number of threads that belong to the program. Threads with higher indices are periodic work of the host.
    pub own_threads: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ScheduledEvent {
    /// Ends the pause of the thread with this index.
    Think(u32),
    /// Ends the network round trips of a thread, and begins its transfer of this number of bytes.
    Transfer(u32, u64),
}

pub(crate) struct ProgramEngine<'a, S> {
    fixed: RunConstants<'a>,
    storage: &'a mut S,
    files: ProgramFiles,
    threads: Vec<EngineThread>,
    cores: CoreScheduler,
    link: NetworkLink,
    signals: Vec<CountingSignal>,
    locks: Vec<ProgramLock>,
    later: BinaryHeap<Reverse<(Nanos, u64, ScheduledEvent)>>,
    /// Number of events created so far; events of the same time are processed in this order.
    events_created: u64,
    now: Nanos,
    operations: u64,
    syncs: u64,
    at_once: u64,
    /// The thread whose file operation is being submitted, if any. It still occupies its core.
    asking: Option<u32>,
    /// Buffer for finished file operations, reused for each event.
    finished: FinishedOperations,
    transferred: Vec<u32>,
}

/// The result of a run: the timelines of the threads, and totals.
pub(crate) struct ProgramOutcome {
    pub end: Nanos,
    pub timelines: Vec<ThreadTimeline>,
    pub operations: u64,
    pub syncs: u64,
    pub network_bytes: u64,
    pub cpu: Nanos,
}

impl<'a, S: StorageBackend> ProgramEngine<'a, S> {
    pub fn new(fixed: RunConstants<'a>, storage: &'a mut S, files: ProgramFiles) -> Self {
        let sets = files.sets();
        let threads = (0..fixed.program.threads.len() as u32)
            .map(|thread| EngineThread::new(crate::random_draws::ThreadDraws::of_thread(fixed.seed, thread), sets))
            .collect();
        Self {
            cores: CoreScheduler::new(fixed.cores, fixed.quantum),
            link: NetworkLink::new(fixed.bits_per_s),
            signals: vec![CountingSignal::default(); fixed.code.signals.len()],
            locks: vec![ProgramLock::default(); fixed.code.locks.len()],
            threads,
            fixed,
            storage,
            files,
            later: BinaryHeap::new(),
            events_created: 0,
            now: Nanos::ZERO,
            operations: 0,
            syncs: 0,
            at_once: 0,
            asking: None,
            finished: FinishedOperations::default(),
            transferred: Vec::new(),
        }
    }

    /// Runs until the end of the thread that the user waits for.
    /// Errors: for a deadlock, a run that exceeds its time limit, an operation that the storage refuses, and a device that stops.
    pub fn run(mut self) -> Result<ProgramOutcome> {
        for (thread, written) in (0..).zip(&self.fixed.program.threads) {
            if written.at_begin {
                self.threads[thread as usize].begin(self.now);
                self.cores.make_ready(thread);
            }
        }
        let mut rounds = 0_u64;
        loop {
            if rounds.is_multiple_of(INTERRUPT_EVERY) {
                interrupt::check()?;
            }
            rounds += 1;
            self.settle()?;
            if self.threads[self.fixed.awaited_thread as usize].status == ThreadStatus::Absent {
                return Ok(self.outcome());
            }
            let next = self.storage.wait(self.next_event())?.ok_or_else(|| self.deadlock())?;
            if next > self.fixed.limit {
                return Err(self.beyond_limit());
            }
            if next > self.now {
                self.at_once = 0;
            }
            self.now = next.max(self.now);
            self.process_events()?;
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        let later = self.later.peek().map(|Reverse((at, ..))| *at);
        [later, self.storage.next_event(), self.link.next_event(), self.cores.next_event()].into_iter().flatten().min()
    }

    /// Processes the events that are due: ends of file operations, of transfers, of pauses, and of work on a core.
    fn process_events(&mut self) -> Result<()> {
        self.storage.advance(self.now)?;
        self.end_operations()?;
        let mut ended = std::mem::take(&mut self.transferred);
        self.link.advance(self.now, &mut ended);
        ended.drain(..).for_each(|thread| self.wake(thread, ThreadActivity::Network));
        self.transferred = ended;
        while let Some(Reverse((at, _, later))) = self.later.peek().copied() {
            if at > self.now {
                break;
            }
            self.later.pop();
            match later {
                ScheduledEvent::Think(thread) => {
                    if thread >= self.fixed.own_threads && self.is_stuck() {
                        return Err(self.deadlock());
                    }
                    self.wake(thread, ThreadActivity::Think);
                }
                ScheduledEvent::Transfer(thread, 0) => self.wake(thread, ThreadActivity::Network),
                ScheduledEvent::Transfer(thread, bytes) => self.link.begin(thread, bytes),
            }
        }
        while let Some((core, thread, worked)) = self.cores.finished_core(self.now) {
            self.turn(core, thread, worked)?;
        }
        Ok(())
    }

    /// Accounts for the work of a thread on its core. The thread then continues, or yields the core to another thread.
    fn turn(&mut self, core: usize, number: u32, worked: Nanos) -> Result<()> {
        let now = self.now;
        let thread = &mut self.threads[number as usize];
        thread.pending_cpu = thread.pending_cpu - worked;
        thread.timeline.push(ThreadActivity::Running, now);
        if self.cores.is_over(core) {
            self.threads[number as usize].status = ThreadStatus::Ready;
            self.cores.leave(core);
            self.cores.make_ready(number);
            return Ok(());
        }
        self.go_on(core, number)
    }

    /// Executes instructions of the thread on a core until it has CPU work to do or has to wait.
    fn go_on(&mut self, core: usize, thread: u32) -> Result<()> {
        while self.threads[thread as usize].pending_cpu == Nanos::ZERO {
            if !self.instruct(thread)? {
                self.cores.leave(core);
                return Ok(());
            }
        }
        self.cores.work(core, self.threads[thread as usize].pending_cpu, self.now);
        Ok(())
    }

    /// Assigns free cores to ready threads until no core is free or no thread is ready.
    fn settle(&mut self) -> Result<()> {
        while let Some((core, number, another)) = self.cores.take() {
            let thread = &mut self.threads[number as usize];
            thread.timeline.push(ThreadActivity::Core, self.now);
            thread.status = ThreadStatus::Running;
            if another {
                thread.pending_cpu += self.fixed.switch;
            }
            self.go_on(core, number)?;
        }
        Ok(())
    }

    /// Makes a waiting thread ready. `doing` is what the thread did since its last state change; it is added to the thread's timeline.
    fn wake(&mut self, number: u32, doing: ThreadActivity) {
        let thread = &mut self.threads[number as usize];
        thread.timeline.push(doing, self.now);
        thread.status = ThreadStatus::Ready;
        self.cores.make_ready(number);
    }

    fn make(&mut self, at: Nanos, later: ScheduledEvent) {
        self.events_created += 1;
        self.later.push(Reverse((at, self.events_created, later)));
    }

    /// Continues the threads whose file operations have ended.
    fn end_operations(&mut self) -> Result<()> {
        let mut finished = std::mem::take(&mut self.finished);
        self.storage.take_finished(&mut finished);
        for operation in &finished.operations {
            let CallerId(number) = operation.caller;
            let thread = &mut self.threads[number as usize];
            let ThreadStatus::Storage(_, spec) = thread.status else { continue };
            let mut at = operation.begun;
            for wait in WaitReason::ALL {
                at += operation.waits[wait];
                thread.timeline.push(ThreadActivity::Storage(wait, spec), at);
            }
            if at != self.now {
                return Err(Error::new(ErrorClass::Value, "the parts of an operation do not add up to its duration")
                    .hint("report this defect of emmclab with the program and the seed"));
            }
            thread.pending_cpu += Nanos((operation.cpu_ns * self.fixed.factor / 1_000_000) as i64);
            if self.asking == Some(number) {
                thread.status = ThreadStatus::Running;
            } else {
                thread.status = ThreadStatus::Ready;
                self.cores.make_ready(number);
            }
        }
        finished.clear();
        self.finished = finished;
        Ok(())
    }

    /// Returns an error if too many instructions are executed without an advance of time.
    fn check_progress(&self) -> Result<()> {
        if self.at_once < MOST_AT_ONCE {
            return Ok(());
        }
        Err(Error::new(
            ErrorClass::Config,
            format!("the program endlessly executes steps that take no time, at {}: {}", self.now, self.all_doing().join(", ")),
        )
        .hint("add a `cpu` or `think` step to the steps that are repeated"))
    }

    /// Describes what each thread is doing, for error messages.
    fn all_doing(&self) -> Vec<String> {
        let name = |thread: u32| &self.fixed.program.threads[thread as usize].name;
        let describe = |(number, thread): (u32, &EngineThread)| {
            let what = match thread.status {
                ThreadStatus::Absent => return None,
                ThreadStatus::Ready | ThreadStatus::Running => "runs".to_owned(),
                ThreadStatus::Network => "waits for the network".to_owned(),
                ThreadStatus::Storage(..) => "waits for the device".to_owned(),
                ThreadStatus::Think => "pauses".to_owned(),
                ThreadStatus::Signal(signal) => {
                    format!("waits for signal `{}`", self.fixed.code.signals[signal as usize])
                }
                ThreadStatus::Lock(lock) => {
                    let holder = self.locks[lock as usize].holder().map(|holder| format!(", which `{}` has", name(holder)));
                    let lock = &self.fixed.code.locks[lock as usize];
                    format!("waits for lock `{lock}`{}", holder.unwrap_or_default())
                }
                ThreadStatus::Join(thread) => format!("waits for the end of `{}`", name(thread)),
            };
            Some(format!("thread `{}` {what}", name(number)))
        };
        (0..).zip(&self.threads).filter_map(describe).collect()
    }

    /// Whether all threads of the program wait for each other. Periodic work of the host may still run.
    fn is_stuck(&self) -> bool {
        let waits_for_another = |thread: &EngineThread| {
            matches!(
                thread.status,
                ThreadStatus::Absent | ThreadStatus::Signal(_) | ThreadStatus::Lock(_) | ThreadStatus::Join(_)
            )
        };
        self.threads[..self.fixed.own_threads as usize].iter().all(waits_for_another)
    }

    fn deadlock(&self) -> Error {
        let all = self.all_doing().join(", ");
        Error::new(ErrorClass::Config, format!("the program is in a deadlock at {}: {all}", self.now))
            .hint("send the signal for which a thread waits, or take locks in the same order everywhere")
    }

    fn beyond_limit(&self) -> Error {
        let (limit, all) = (self.fixed.limit, self.all_doing().join(", "));
        Error::new(ErrorClass::Config, format!("the program has not ended after {limit}: {all}"))
            .hint("look for a wait in the program that never ends, or set a higher time limit")
    }

    fn outcome(mut self) -> ProgramOutcome {
        let now = self.now;
        self.cores.finish(now);
        for thread in &mut self.threads {
            let doing = thread.doing();
            thread.timeline.push(doing, now);
        }
        ProgramOutcome {
            end: now,
            timelines: self.threads.into_iter().map(|thread| thread.timeline).collect(),
            operations: self.operations,
            syncs: self.syncs,
            network_bytes: self.link.bytes(),
            cpu: self.cores.busy(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct CpuCore {
    /// The thread that runs on this core, if any.
    thread: Option<u32>,
    until: Nanos,
    since: Nanos,
    /// Remaining time of the quantum of the running thread.
    remaining_quantum: Nanos,
    /// The last thread that ran on this core.
    last: Option<u32>,
}

/// All cores, and the queue of threads that are ready to run.
#[derive(Debug)]
struct CoreScheduler {
    all: Vec<CpuCore>,
    ready: VecDeque<u32>,
    quantum: Nanos,
    busy: Nanos,
}

impl CoreScheduler {
    pub fn new(cores: u32, quantum: Nanos) -> Self {
        Self {
            all: vec![CpuCore::default(); cores as usize],
            ready: VecDeque::new(),
            quantum: quantum.max(Nanos(1)),
            busy: Nanos::ZERO,
        }
    }

    /// Total busy time of all cores so far.
    pub fn busy(&self) -> Nanos {
        self.busy
    }

    /// Appends a thread to the ready queue.
    pub fn make_ready(&mut self, thread: u32) {
        self.ready.push_back(thread);
    }

    /// Assigns a free core to the first ready thread. Returns the core, the thread, and whether the core previously ran another thread.
    pub fn take(&mut self) -> Option<(usize, u32, bool)> {
        let core = self.all.iter().position(|core| core.thread.is_none())?;
        let thread = self.ready.pop_front()?;
        let quantum = self.quantum;
        let place = &mut self.all[core];
        let another = place.last != Some(thread);
        (place.thread, place.last, place.remaining_quantum) = (Some(thread), Some(thread), quantum);
        Some((core, thread, another))
    }

    /// Runs the thread of a core for the time `owed`, or until its quantum ends.
    pub fn work(&mut self, core: usize, owed: Nanos, now: Nanos) {
        let place = &mut self.all[core];
        (place.since, place.until) = (now, now + owed.min(place.remaining_quantum));
    }

    /// Removes the thread from a core.
    pub fn leave(&mut self, core: usize) {
        self.all[core].thread = None;
    }

    /// The time at which the next thread finishes its work or its quantum.
    pub fn next_event(&self) -> Option<Nanos> {
        self.all.iter().filter(|core| core.thread.is_some()).map(|core| core.until).min()
    }

    /// Returns a core whose thread has finished its work or its quantum, with the thread and the time that the thread worked.
    pub fn finished_core(&mut self, now: Nanos) -> Option<(usize, u32, Nanos)> {
        let core = self.all.iter().position(|core| core.thread.is_some() && core.until <= now)?;
        let place = &mut self.all[core];
        let worked = place.until - place.since;
        place.remaining_quantum = Nanos(place.remaining_quantum.0 - worked.0);
        self.busy += worked;
        Some((core, place.thread?, worked))
    }

    /// Whether the thread on this core must yield to another thread. A thread that need not yield gets a new quantum if its quantum has
    /// ended.
    pub fn is_over(&mut self, core: usize) -> bool {
        let place = &mut self.all[core];
        if place.remaining_quantum > Nanos::ZERO {
            return false;
        }
        place.remaining_quantum = self.quantum;
        !self.ready.is_empty()
    }

    /// Adds the work of the threads that are still running at the end of the simulation to the busy time.
    pub fn finish(&mut self, now: Nanos) {
        for core in self.all.iter().filter(|core| core.thread.is_some()) {
            self.busy += now - core.since;
        }
    }
}

/// A counting semaphore for signals between threads: the number of signals that were sent but not received, or the threads that wait for a
/// signal.
#[derive(Clone, Debug, Default)]
struct CountingSignal {
    count: u64,
    waiting: VecDeque<u32>,
}

impl CountingSignal {
    /// Sends a signal. Returns the thread that it wakes, if any.
    pub fn post(&mut self) -> Option<u32> {
        let first = self.waiting.pop_front();
        self.count += u64::from(first.is_none());
        first
    }

    /// Receives a signal. Returns false if the thread has to wait for one.
    pub fn take(&mut self, thread: u32) -> bool {
        if self.count > 0 {
            self.count -= 1;
            return true;
        }
        self.waiting.push_back(thread);
        false
    }
}

/// A lock: its holder, and the threads that wait for it in order of arrival.
#[derive(Clone, Debug, Default)]
struct ProgramLock {
    holder: Option<u32>,
    waiting: VecDeque<u32>,
}

impl ProgramLock {
    /// The thread that has the lock.
    pub fn holder(&self) -> Option<u32> {
        self.holder
    }

    /// Takes the lock. Returns false if the thread has to wait.
    pub fn take(&mut self, thread: u32) -> bool {
        if self.holder.is_none() {
            self.holder = Some(thread);
            return true;
        }
        self.waiting.push_back(thread);
        false
    }

    /// Passes the lock to the first waiting thread, and returns that thread.
    pub fn release(&mut self) -> Option<u32> {
        self.holder = self.waiting.pop_front();
        self.holder
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadStatus {
    /// The thread has not started, or has ended.
    Absent,
    /// The thread is ready to run on a core.
    Ready,
    /// The thread runs on a core.
    Running,
    Network,
    /// The thread waits for a file operation. The value is the likely cause of the wait, with class and mount of the file; the real causes
    /// are known only when the wait ends.
    Storage(WaitReason, Option<(FileClass, MountId)>),
    Signal(u32),
    Lock(u32),
    Join(u32),
    Think,
}

struct EngineThread {
    pub status: ThreadStatus,
    pub timeline: ThreadTimeline,
    /// CPU work that the thread still has to do on a core.
    pub pending_cpu: Nanos,
    /// The index of the next instruction.
    pub next: usize,
    pub loops: Vec<u64>,
    pub draws: ThreadDraws,
    /// The current file and position in each set of files.
    pub cursors: Vec<FileCursor>,
    /// File operations to execute before the next instruction.
    pub queue: VecDeque<FileOp>,
    /// Threads that wait for the end of this thread.
    pub joiners: Vec<u32>,
}

/// Value of the repetition count that marks an endless loop.
const FOR_EVER: u64 = u64::MAX;

impl EngineThread {
    pub fn new(draws: ThreadDraws, sets: usize) -> Self {
        Self {
            status: ThreadStatus::Absent,
            timeline: ThreadTimeline::default(),
            pending_cpu: Nanos::ZERO,
            next: 0,
            loops: Vec::new(),
            draws,
            cursors: vec![FileCursor::default(); sets],
            queue: VecDeque::new(),
            joiners: Vec::new(),
        }
    }

    /// Resets the thread to its first instruction.
    pub fn begin(&mut self, now: Nanos) {
        self.timeline.push(ThreadActivity::Absent, now);
        self.next = 0;
        self.status = ThreadStatus::Ready;
    }

    /// Starts the next iteration of the innermost loop. Returns false if the loop is finished.
    pub fn next_iteration(&mut self) -> bool {
        match self.loops.last_mut() {
            Some(&mut FOR_EVER) => true,
            Some(left) if *left > 1 => {
                *left -= 1;
                true
            }
            _ => {
                self.loops.pop();
                false
            }
        }
    }

    /// What the thread is doing at the end of the run, if known.
    pub fn doing(&self) -> ThreadActivity {
        match self.status {
            ThreadStatus::Absent => ThreadActivity::Absent,
            ThreadStatus::Ready => ThreadActivity::Core,
            ThreadStatus::Running => ThreadActivity::Running,
            ThreadStatus::Network => ThreadActivity::Network,
            ThreadStatus::Storage(wait, spec) => ThreadActivity::Storage(wait, spec),
            ThreadStatus::Think => ThreadActivity::Think,
            // It is unknown which other thread will send the signal or release the lock.
            ThreadStatus::Signal(_) | ThreadStatus::Lock(_) => ThreadActivity::Thread(u32::MAX),
            ThreadStatus::Join(thread) => ThreadActivity::Thread(thread),
        }
    }
}
