//! Runs a program as a discrete-event simulation in integer nanoseconds.
//!
//! Threads run on cores and wait for transfers, for each other, and for their file operations, which are executed by a [`Storage`]. All
//! events of one time are processed before time advances. Events of the same time are processed in the order of their creation, so that a
//! run in simulated time has the same result on every machine.

mod cores;
mod instructions;
mod thread;
mod waits;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use emmclab_base::{Error, Kind, Nanos, Result, interrupt};
use emmclab_host::{CallerId, FinishedOps, Wait};

use crate::code::Code;
use crate::files::Files;
use crate::network::Link;
use crate::program::Program;
use crate::storage::Storage;
use crate::timeline::{Doing, Timeline};

use cores::Cores;
use thread::{Status, Thread};
use waits::{Lock, Signal};

/// Maximum number of instructions without an advance of time, after which a run is aborted; no valid program has this many.
const MOST_AT_ONCE: u64 = 10_000_000;
/// Number of rounds between two checks for an interruption.
const INTERRUPT_EVERY: u64 = 4096;

/// The constants of a run, in addition to program and files.
pub(crate) struct Fixed<'a> {
    pub program: &'a Program,
    pub code: &'a Code,
    pub cores: u32,
    pub quantum: Nanos,
    pub switch: Nanos,
    /// CPU factor in millionths.
    pub factor: u64,
    pub bits_per_s: u64,
    pub round_trip: Nanos,
    pub limit: Nanos,
    pub seed: u64,
    /// The thread whose end the user waits for.
    pub waited: u32,
    /// Number of threads of the program; further threads are periodic work of the host.
    pub own_threads: u32,
}

/// An event that is scheduled for later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Later {
    /// The pause of this thread ends.
    Think(u32),
    /// The round trips of this thread end, and the transfer of this many bytes begins.
    Transfer(u32, u64),
}

/// A run of a program.
pub(crate) struct Engine<'a, S> {
    fixed: Fixed<'a>,
    storage: &'a mut S,
    files: Files,
    threads: Vec<Thread>,
    cores: Cores,
    link: Link,
    signals: Vec<Signal>,
    locks: Vec<Lock>,
    later: BinaryHeap<Reverse<(Nanos, u64, Later)>>,
    /// Number of events created so far; it orders events of the same time.
    made: u64,
    now: Nanos,
    operations: u64,
    syncs: u64,
    at_once: u64,
    /// The thread that is calling the storage at the moment; it still has its core.
    asking: Option<u32>,
    /// Buffers that are reused.
    finished: FinishedOps,
    transferred: Vec<u32>,
}

/// The result of a run: time lines and totals.
pub(crate) struct Outcome {
    pub end: Nanos,
    pub timelines: Vec<Timeline>,
    pub operations: u64,
    pub syncs: u64,
    pub network_bytes: u64,
    pub cpu: Nanos,
}

impl<'a, S: Storage> Engine<'a, S> {
    pub fn new(fixed: Fixed<'a>, storage: &'a mut S, files: Files) -> Self {
        let sets = files.sets();
        let threads = (0..fixed.program.threads.len() as u32)
            .map(|thread| Thread::new(crate::draw::Draws::of_thread(fixed.seed, thread), sets))
            .collect();
        Self {
            cores: Cores::new(fixed.cores, fixed.quantum),
            link: Link::new(fixed.bits_per_s),
            signals: vec![Signal::default(); fixed.code.signals.len()],
            locks: vec![Lock::default(); fixed.code.locks.len()],
            threads,
            fixed,
            storage,
            files,
            later: BinaryHeap::new(),
            made: 0,
            now: Nanos::ZERO,
            operations: 0,
            syncs: 0,
            at_once: 0,
            asking: None,
            finished: FinishedOps::default(),
            transferred: Vec::new(),
        }
    }

    /// Runs until the end of the thread that the user waits for.
    ///
    /// # Errors
    /// For a deadlock, a run beyond its time limit, an operation that the storage refuses, and a device that stops.
    pub fn run(mut self) -> Result<Outcome> {
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
            if self.threads[self.fixed.waited as usize].status == Status::Absent {
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
            self.happen()?;
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        let later = self.later.peek().map(|Reverse((at, ..))| *at);
        [later, self.storage.next_event(), self.link.next_event(), self.cores.next_event()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Processes the events that are due now: ends of file operations, transfers and pauses, and cores whose threads are done.
    fn happen(&mut self) -> Result<()> {
        self.storage.advance(self.now)?;
        self.end_operations()?;
        let mut ended = std::mem::take(&mut self.transferred);
        self.link.advance(self.now, &mut ended);
        ended.drain(..).for_each(|thread| self.wake(thread, Doing::Network));
        self.transferred = ended;
        while let Some(Reverse((at, _, later))) = self.later.peek().copied() {
            if at > self.now {
                break;
            }
            self.later.pop();
            match later {
                Later::Think(thread) => {
                    if thread >= self.fixed.own_threads && self.is_stuck() {
                        return Err(self.deadlock());
                    }
                    self.wake(thread, Doing::Think);
                }
                Later::Transfer(thread, 0) => self.wake(thread, Doing::Network),
                Later::Transfer(thread, bytes) => self.link.begin(thread, bytes),
            }
        }
        while let Some((core, thread, worked)) = self.cores.done(self.now) {
            self.turn(core, thread, worked)?;
        }
        Ok(())
    }

    /// Accounts for the work of the thread on a core; it continues, or yields the core to another thread.
    fn turn(&mut self, core: usize, number: u32, worked: Nanos) -> Result<()> {
        let now = self.now;
        let thread = &mut self.threads[number as usize];
        thread.owed = thread.owed - worked;
        thread.timeline.push(Doing::Running, now);
        if self.cores.is_over(core) {
            self.threads[number as usize].status = Status::Ready;
            self.cores.leave(core);
            self.cores.make_ready(number);
            return Ok(());
        }
        self.go_on(core, number)
    }

    /// Executes instructions of the thread on a core until it has work to do or waits.
    fn go_on(&mut self, core: usize, thread: u32) -> Result<()> {
        while self.threads[thread as usize].owed == Nanos::ZERO {
            if !self.instruct(thread)? {
                self.cores.leave(core);
                return Ok(());
            }
        }
        self.cores.work(core, self.threads[thread as usize].owed, self.now);
        Ok(())
    }

    /// Assigns free cores to ready threads until there are no more of either.
    fn settle(&mut self) -> Result<()> {
        while let Some((core, number, another)) = self.cores.take() {
            let thread = &mut self.threads[number as usize];
            thread.timeline.push(Doing::Core, self.now);
            thread.status = Status::Running;
            if another {
                thread.owed += self.fixed.switch;
            }
            self.go_on(core, number)?;
        }
        Ok(())
    }

    /// Makes a waiting thread ready; `doing` is recorded as what it did until now.
    fn wake(&mut self, number: u32, doing: Doing) {
        let thread = &mut self.threads[number as usize];
        thread.timeline.push(doing, self.now);
        thread.status = Status::Ready;
        self.cores.make_ready(number);
    }

    fn make(&mut self, at: Nanos, later: Later) {
        self.made += 1;
        self.later.push(Reverse((at, self.made, later)));
    }

    /// Continues the threads whose file operations have ended.
    fn end_operations(&mut self) -> Result<()> {
        let mut finished = std::mem::take(&mut self.finished);
        self.storage.take_finished(&mut finished);
        for operation in &finished.operations {
            let CallerId(number) = operation.caller;
            let thread = &mut self.threads[number as usize];
            let Status::Storage(_, spec) = thread.status else { continue };
            let mut at = operation.begun;
            for wait in Wait::ALL {
                at += operation.waited[wait];
                thread.timeline.push(Doing::Storage(wait, spec), at);
            }
            if at != self.now {
                return Err(Error::new(Kind::Value, "the parts of an operation do not add up to its time")
                    .hint("report this defect of emmclab with the program and the seed"));
            }
            thread.owed += Nanos((operation.cpu_ns * self.fixed.factor / 1_000_000) as i64);
            if self.asking == Some(number) {
                thread.status = Status::Running;
            } else {
                thread.status = Status::Ready;
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
            Kind::Config,
            format!("the program does not let time pass at {}: {}", self.now, self.all_doing().join(", ")),
        )
        .hint("put `cpu` or `think` into steps that are repeated"))
    }

    /// What each thread is doing, as texts for users.
    fn all_doing(&self) -> Vec<String> {
        let name = |thread: u32| &self.fixed.program.threads[thread as usize].name;
        let describe = |(number, thread): (u32, &Thread)| {
            let what = match thread.status {
                Status::Absent => return None,
                Status::Ready | Status::Running => "runs".to_owned(),
                Status::Network => "waits for the network".to_owned(),
                Status::Storage(..) => "waits for the device".to_owned(),
                Status::Think => "pauses".to_owned(),
                Status::Signal(signal) => {
                    format!("waits for signal `{}`", self.fixed.code.signals[signal as usize])
                }
                Status::Lock(lock) => {
                    let holder = self.locks[lock as usize]
                        .holder()
                        .map(|holder| format!(", which `{}` has", name(holder)));
                    let lock = &self.fixed.code.locks[lock as usize];
                    format!("waits for lock `{lock}`{}", holder.unwrap_or_default())
                }
                Status::Join(thread) => format!("waits for the end of `{}`", name(thread)),
            };
            Some(format!("thread `{}` {what}", name(number)))
        };
        (0..).zip(&self.threads).filter_map(describe).collect()
    }

    /// Whether all threads of the program wait for each other, though the host still has periodic work.
    fn is_stuck(&self) -> bool {
        let waits_for_another = |thread: &Thread| {
            matches!(thread.status, Status::Absent | Status::Signal(_) | Status::Lock(_) | Status::Join(_))
        };
        self.threads[..self.fixed.own_threads as usize].iter().all(waits_for_another)
    }

    fn deadlock(&self) -> Error {
        let all = self.all_doing().join(", ");
        Error::new(Kind::Config, format!("the program is in a deadlock at {}: {all}", self.now))
            .hint("send the signal that is waited for, or take locks in the same order everywhere")
    }

    fn beyond_limit(&self) -> Error {
        let (limit, all) = (self.fixed.limit, self.all_doing().join(", "));
        Error::new(Kind::Config, format!("the program has not ended after {limit}: {all}"))
            .hint("look for a wait that never ends, or raise the limit")
    }

    fn outcome(mut self) -> Outcome {
        let now = self.now;
        self.cores.finish(now);
        for thread in &mut self.threads {
            let doing = thread.doing();
            thread.timeline.push(doing, now);
        }
        Outcome {
            end: now,
            timelines: self.threads.into_iter().map(|thread| thread.timeline).collect(),
            operations: self.operations,
            syncs: self.syncs,
            network_bytes: self.link.bytes(),
            cpu: self.cores.busy(),
        }
    }
}
