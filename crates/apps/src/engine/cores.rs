//! CPU cores: threads run on them in turn, each for at most one quantum.

use std::collections::VecDeque;

use emmclab_base::Nanos;

/// A core.
#[derive(Clone, Copy, Debug, Default)]
struct CpuCore {
    /// The running thread, and the time of its next event.
    thread: Option<u32>,
    until: Nanos,
    since: Nanos,
    /// Time that is left of the thread's quantum.
    remaining_quantum: Nanos,
    /// The last thread that ran on this core.
    last: Option<u32>,
}

/// All cores, and the queue of threads that are ready to run.
#[derive(Debug)]
pub(super) struct CoreScheduler {
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

    /// Assigns a free core to the first ready thread. Returns the core, the thread, and whether the core ran another thread before.
    pub fn take(&mut self) -> Option<(usize, u32, bool)> {
        let core = self.all.iter().position(|core| core.thread.is_none())?;
        let thread = self.ready.pop_front()?;
        let quantum = self.quantum;
        let place = &mut self.all[core];
        let another = place.last != Some(thread);
        (place.thread, place.last, place.remaining_quantum) = (Some(thread), Some(thread), quantum);
        Some((core, thread, another))
    }

    /// Lets the thread of a core work for `owed`, or until its quantum ends.
    pub fn work(&mut self, core: usize, owed: Nanos, now: Nanos) {
        let place = &mut self.all[core];
        (place.since, place.until) = (now, now + owed.min(place.remaining_quantum));
    }

    /// Removes the thread from a core.
    pub fn leave(&mut self, core: usize) {
        self.all[core].thread = None;
    }

    /// When the next thread finishes its work or its quantum ends.
    pub fn next_event(&self) -> Option<Nanos> {
        self.all.iter().filter(|core| core.thread.is_some()).map(|core| core.until).min()
    }

    /// A core whose thread has finished its work or whose quantum has ended, with the thread and the time that it worked.
    pub fn finished_core(&mut self, now: Nanos) -> Option<(usize, u32, Nanos)> {
        let core = self.all.iter().position(|core| core.thread.is_some() && core.until <= now)?;
        let place = &mut self.all[core];
        let worked = place.until - place.since;
        place.remaining_quantum = Nanos(place.remaining_quantum.0 - worked.0);
        self.busy += worked;
        Some((core, place.thread?, worked))
    }

    /// Whether the thread of a core must yield it to another thread. If its quantum has ended, it gets a new one.
    pub fn is_over(&mut self, core: usize) -> bool {
        let place = &mut self.all[core];
        if place.remaining_quantum > Nanos::ZERO {
            return false;
        }
        place.remaining_quantum = self.quantum;
        !self.ready.is_empty()
    }

    /// Adds the work of threads that are running at the end.
    pub fn finish(&mut self, now: Nanos) {
        for core in self.all.iter().filter(|core| core.thread.is_some()) {
            self.busy += now - core.since;
        }
    }
}
