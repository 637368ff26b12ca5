//! A request while its pages are being worked on.

use emmclab_base::{Nanos, Op};

use crate::events::{LatencyBreakdown, RequestCompleted};
use crate::nand::Operation;

impl LatencyBreakdown {
    /// The parts of `op`, which could begin at `ready` and counts as done at `complete`: its end, or when the data was
    /// transferred.
    #[inline]
    pub(crate) fn of(op: &Operation, ready: Nanos, complete: Nanos) -> Self {
        let array = if complete == op.end { op.array } else { Nanos::ZERO };
        Self {
            queue_ns: (op.begin - ready - op.gc).0,
            bus_ns: (complete - op.begin - array).0,
            array_ns: array.0,
            gc_ns: op.gc.0,
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
pub(crate) struct RequestState {
    pub event: RequestCompleted,
    /// What every subrequest waited for before it came to the flash.
    pub before: LatencyBreakdown,
    /// When the flash may begin.
    pub ready: Nanos,
    /// Subrequests not dispatched yet.
    pub outstanding: u32,
    /// Whether the flash has begun to work on it.
    started: bool,
    /// Whether a subrequest has begun.
    begun: bool,
    /// Whether `event.start` is the beginning of the first subrequest, where the queue has no limit.
    start_at_flash: bool,
}

/// What a request is, as the device took it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub id: u64,
    pub op: Op,
    pub sector: u64,
    pub sectors: u32,
    pub arrival: Nanos,
    /// When the device took it.
    pub start: Nanos,
    /// Whether `start` is when a slot of the queue became free.
    pub queue_limited: bool,
}

impl RequestState {
    /// A request that was taken.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the state is built where it stays")]
    pub fn new(taken: Taken) -> Self {
        let Taken { id, op, sector, sectors, arrival, start, queue_limited } = taken;
        Self {
            event: RequestCompleted {
                id,
                op,
                sector,
                sectors,
                arrival: arrival.0,
                start: start.0,
                complete: start.0,
                subrequests: 0,
                waits: LatencyBreakdown::default(),
            },
            before: LatencyBreakdown { queue_ns: (start - arrival).0, ..LatencyBreakdown::default() },
            ready: start,
            outstanding: 0,
            started: false,
            begun: false,
            start_at_flash: !queue_limited,
        }
    }

    /// When the request is complete, as far as it is known.
    #[inline]
    pub fn complete(&self) -> Nanos {
        Nanos(self.event.complete)
    }

    /// Time in the controller before the flash is asked.
    #[inline]
    pub fn spend(&mut self, time: Nanos) {
        self.before.controller_ns += time.0;
        self.ready += time;
    }

    /// Time in the controller after the flash is done.
    #[inline]
    pub fn spend_after(&mut self, time: Nanos) {
        self.event.complete += time.0;
        self.event.waits.controller_ns += time.0;
    }

    /// Nothing on the flash: complete when the controller is done.
    #[inline]
    pub fn without_flash(&mut self, complete: Nanos) {
        self.event.complete = complete.0;
        self.event.waits = self.before;
        self.event.waits.queue_ns += (complete - self.ready).0;
    }

    /// The map had to be read or written before the flash can be asked for data.
    pub fn look_up(&mut self, op: &Operation) {
        self.before = self.before.then(LatencyBreakdown::of(op, self.ready, op.end));
        self.ready = op.end;
        self.note_start(op.begin);
    }

    #[inline]
    fn note_start(&mut self, begin: Nanos) {
        if self.start_at_flash && (!self.started || begin.0 < self.event.start) {
            self.event.start = begin.0;
        }
        self.started = true;
    }

    /// Nothing more may begin before `at`.
    pub fn wait_until(&mut self, at: Nanos) {
        let wait = at.max(self.ready) - self.ready;
        self.before.queue_ns += wait.0;
        self.ready += wait;
    }

    /// Complete no earlier than `at`, because of other work.
    pub fn complete_by(&mut self, at: Nanos) {
        let wait = at.max(self.complete()) - self.complete();
        self.event.waits.queue_ns += wait.0;
        self.event.complete += wait.0;
    }

    /// A subrequest was dispatched: its own waits, its beginning and its completion.
    #[inline]
    pub fn absorb(&mut self, waits: LatencyBreakdown, begin: Nanos, complete: Nanos) {
        self.event.subrequests += 1;
        if !self.begun || complete.0 > self.event.complete {
            self.event.complete = complete.0;
            self.event.waits = self.before.then(waits);
        }
        self.note_start(begin);
        self.begun = true;
    }
}
