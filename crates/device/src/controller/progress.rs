//! A request while its pages are being worked on.

use emmclab_trace::Op;

use crate::event::{RequestCompleted, Waits};
use crate::nand::Operation;

impl Waits {
    /// The parts of `op`, which could begin at `ready` and counts as done at `complete`: its end, or when the data was
    /// transferred.
    #[inline]
    pub(crate) fn of(op: &Operation, ready: i64, complete: i64) -> Self {
        let array = if complete == op.end { op.array } else { 0 };
        Self {
            queue_ns: op.begin - ready - op.gc,
            bus_ns: complete - op.begin - array,
            array_ns: array,
            gc_ns: op.gc,
            ..Self::default()
        }
    }

    /// Both, one after the other.
    #[inline]
    #[must_use]
    pub(crate) fn then(self, other: Self) -> Self {
        Self {
            queue_ns: self.queue_ns + other.queue_ns,
            controller_ns: self.controller_ns + other.controller_ns,
            bus_ns: self.bus_ns + other.bus_ns,
            array_ns: self.array_ns + other.array_ns,
            gc_ns: self.gc_ns + other.gc_ns,
            wake_up_ns: self.wake_up_ns + other.wake_up_ns,
        }
    }
}

/// A request of which some subrequests may still be outstanding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    pub event: RequestCompleted,
    /// What every subrequest waited for before it came to the flash.
    pub before: Waits,
    /// When the flash may begin.
    pub ready: i64,
    /// Subrequests not dispatched yet.
    pub outstanding: u32,
    /// Whether the flash has begun to work on it.
    started: bool,
    /// Whether a subrequest has begun.
    begun: bool,
    /// Whether `event.start` is the beginning of the first subrequest, where the queue has no limit.
    start_at_flash: bool,
}

impl Progress {
    /// A request taken at `start`; `queue_limited` tells whether that is when a slot of the queue became free.
    #[inline]
    pub fn new(
        id: u64,
        op: Op,
        sector: u64,
        sectors: u32,
        arrival: i64,
        start: i64,
        queue_limited: bool,
    ) -> Self {
        Self {
            event: RequestCompleted {
                id,
                op,
                sector,
                sectors,
                arrival,
                start,
                complete: start,
                subrequests: 0,
                waits: Waits::default(),
            },
            before: Waits { queue_ns: start - arrival, ..Waits::default() },
            ready: start,
            outstanding: 0,
            started: false,
            begun: false,
            start_at_flash: !queue_limited,
        }
    }

    /// Time in the controller before the flash is asked.
    #[inline]
    pub fn spend(&mut self, time: i64) {
        self.before.controller_ns += time;
        self.ready += time;
    }

    /// Nothing on the flash: complete when the controller is done.
    #[inline]
    pub fn without_flash(&mut self, complete: i64) {
        self.event.complete = complete;
        self.event.waits = self.before;
        self.event.waits.queue_ns += complete - self.ready;
    }

    /// The map had to be read or written before the flash can be asked for data.
    pub fn look_up(&mut self, op: &Operation) {
        self.before = self.before.then(Waits::of(op, self.ready, op.end));
        self.ready = op.end;
        self.note_start(op.begin);
    }

    #[inline]
    fn note_start(&mut self, begin: i64) {
        if self.start_at_flash && (!self.started || begin < self.event.start) {
            self.event.start = begin;
        }
        self.started = true;
    }

    /// Nothing more may begin before `at`.
    pub fn wait_until(&mut self, at: i64) {
        let wait = at.max(self.ready) - self.ready;
        self.before.queue_ns += wait;
        self.ready += wait;
    }

    /// Complete no earlier than `at`, for reasons of others.
    pub fn complete_by(&mut self, at: i64) {
        let wait = at.max(self.event.complete) - self.event.complete;
        self.event.waits.queue_ns += wait;
        self.event.complete += wait;
    }

    /// A subrequest was dispatched: its own waits, its beginning and its completion.
    #[inline]
    pub fn absorb(&mut self, waits: Waits, begin: i64, complete: i64) {
        self.event.subrequests += 1;
        if !self.begun || complete > self.event.complete {
            self.event.complete = complete;
            self.event.waits = self.before.then(waits);
        }
        self.note_start(begin);
        self.begun = true;
    }
}
