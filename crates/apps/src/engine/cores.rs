//! Cores: threads take turns, each for a quantum at most.

use std::collections::VecDeque;

use emmclab_base::Nanos;

/// A core.
#[derive(Clone, Copy, Debug, Default)]
struct Core {
    /// The thread on it, and the time at which it is looked at again.
    thread: Option<u32>,
    until: Nanos,
    since: Nanos,
    /// The rest of the thread's quantum.
    left: Nanos,
    /// The thread that it had last.
    last: Option<u32>,
}

/// All cores, and the threads that are ready for one.
#[derive(Debug)]
pub(super) struct Cores {
    all: Vec<Core>,
    ready: VecDeque<u32>,
    quantum: Nanos,
    busy: Nanos,
}

impl Cores {
    pub fn new(cores: u32, quantum: Nanos) -> Self {
        Self {
            all: vec![Core::default(); cores as usize],
            ready: VecDeque::new(),
            quantum: quantum.max(Nanos(1)),
            busy: Nanos::ZERO,
        }
    }

    /// Time that all cores worked so far.
    pub fn busy(&self) -> Nanos {
        self.busy
    }

    /// A thread is ready.
    pub fn make_ready(&mut self, thread: u32) {
        self.ready.push_back(thread);
    }

    /// Gives a free core to the first thread that is ready: the core, the thread, and whether the core had another one before.
    pub fn take(&mut self) -> Option<(usize, u32, bool)> {
        let core = self.all.iter().position(|core| core.thread.is_none())?;
        let thread = self.ready.pop_front()?;
        let quantum = self.quantum;
        let place = &mut self.all[core];
        let another = place.last != Some(thread);
        (place.thread, place.last, place.left) = (Some(thread), Some(thread), quantum);
        Some((core, thread, another))
    }

    /// The thread of a core works on `owed`, or on as much as its quantum lets it.
    pub fn work(&mut self, core: usize, owed: Nanos, now: Nanos) {
        let place = &mut self.all[core];
        (place.since, place.until) = (now, now + owed.min(place.left));
    }

    /// The thread of a core leaves it.
    pub fn leave(&mut self, core: usize) {
        self.all[core].thread = None;
    }

    /// When the next thread is done or its quantum is over.
    pub fn next_event(&self) -> Option<Nanos> {
        self.all.iter().filter(|core| core.thread.is_some()).map(|core| core.until).min()
    }

    /// A core whose thread is done or whose quantum is over by now, with the thread and the time that it worked.
    pub fn done(&mut self, now: Nanos) -> Option<(usize, u32, Nanos)> {
        let core = self.all.iter().position(|core| core.thread.is_some() && core.until <= now)?;
        let place = &mut self.all[core];
        let worked = place.until - place.since;
        place.left = Nanos(place.left.0 - worked.0);
        self.busy += worked;
        Some((core, place.thread?, worked))
    }

    /// Whether the thread of a core has to leave it to another one; else it has a new quantum where the old one is over.
    pub fn is_over(&mut self, core: usize) -> bool {
        let place = &mut self.all[core];
        if place.left > Nanos::ZERO {
            return false;
        }
        place.left = self.quantum;
        !self.ready.is_empty()
    }

    /// Adds the work of threads that are on a core at the end.
    pub fn finish(&mut self, now: Nanos) {
        for core in self.all.iter().filter(|core| core.thread.is_some()) {
            self.busy += now - core.since;
        }
    }
}
