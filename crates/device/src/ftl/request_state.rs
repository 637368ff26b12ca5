//! A request while its pages are being worked on.

use emmclab_base::{Modifiers, Nanos, Op};

use crate::events::{LatencyBreakdown, RequestCompleted};
use crate::nand::Operation;

impl LatencyBreakdown {
    /// The parts of `op`, which could begin at `ready` and counts as done at `complete`: its end, or when the data was
    /// transferred.
    #[inline]
    pub(crate) fn of(op: &Operation, ready: Nanos, complete: Nanos) -> Self {
        let array = if complete == op.end { op.array } else { Nanos::ZERO };
        Self {
            queue: op.begin - ready - op.gc,
            bus: complete - op.begin - array,
            array,
            gc: op.gc,
            ..Self::default()
        }
    }

    /// Both, one after the other.
    #[inline]
    #[must_use]
    pub fn then(self, other: Self) -> Self {
        Self {
            queue: self.queue + other.queue,
            controller: self.controller + other.controller,
            bus: self.bus + other.bus,
            array: self.array + other.array,
            gc: self.gc + other.gc,
            wake_up: self.wake_up + other.wake_up,
        }
    }
}

/// A request of which some subrequests may still be outstanding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestState {
    pub event: RequestCompleted,
    /// Waits of every subrequest before it came to the flash.
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

/// Number of what is no command: data that leaves the write buffer.
pub(crate) const NO_COMMAND: u64 = u64::MAX;

/// A request as the device took it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub id: u64,
    pub op: Op,
    pub modifiers: Modifiers,
    pub sector: u64,
    pub sectors: u32,
    pub arrival: Nanos,
    /// Time that the host needed to fetch it.
    pub fetch: Nanos,
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
        let Taken { id, op, modifiers, sector, sectors, arrival, fetch, start, queue_limited } = taken;
        Self {
            event: RequestCompleted {
                id,
                op,
                modifiers,
                sector,
                sectors,
                arrival,
                start,
                complete: start,
                subrequests: 0,
                waits: LatencyBreakdown::default(),
            },
            before: LatencyBreakdown {
                queue: start - arrival - fetch,
                controller: fetch,
                ..LatencyBreakdown::default()
            },
            ready: start,
            outstanding: 0,
            started: false,
            begun: false,
            start_at_flash: !queue_limited,
        }
    }

    /// The number of the command, where this is one.
    #[inline]
    pub fn command(&self) -> Option<u64> {
        (self.event.id != NO_COMMAND).then_some(self.event.id)
    }

    /// When the request is complete, as far as it is known.
    #[inline]
    pub fn complete(&self) -> Nanos {
        self.event.complete
    }

    /// Time in the controller before the flash is asked.
    #[inline]
    pub fn spend(&mut self, time: Nanos) {
        self.before.controller += time;
        self.ready += time;
    }

    /// Time in the controller after the flash is done.
    #[inline]
    pub fn spend_after(&mut self, time: Nanos) {
        self.event.complete += time;
        self.event.waits.controller += time;
    }

    /// Nothing on the flash: complete when the controller is done.
    #[inline]
    pub fn without_flash(&mut self, complete: Nanos) {
        self.event.complete = complete;
        self.event.waits = self.before;
        self.event.waits.queue += complete - self.ready;
    }

    /// The map had to be read or written before the flash can be asked for data.
    pub fn look_up(&mut self, op: &Operation) {
        self.before = self.before.then(LatencyBreakdown::of(op, self.ready, op.end));
        self.ready = op.end;
        self.note_start(op.begin);
    }

    #[inline]
    fn note_start(&mut self, begin: Nanos) {
        if self.start_at_flash && (!self.started || begin < self.event.start) {
            self.event.start = begin;
        }
        self.started = true;
    }

    /// Nothing more may begin before `at`.
    pub fn wait_until(&mut self, at: Nanos) {
        let wait = at.max(self.ready) - self.ready;
        self.before.queue += wait;
        self.ready += wait;
    }

    /// Complete no earlier than `at`, because of other work.
    pub fn complete_by(&mut self, at: Nanos) {
        let wait = at.max(self.complete()) - self.complete();
        self.event.waits.queue += wait;
        self.event.complete += wait;
    }

    /// A subrequest was dispatched: its own waits, its beginning and its completion.
    #[inline]
    pub fn absorb(&mut self, waits: LatencyBreakdown, begin: Nanos, complete: Nanos) {
        self.event.subrequests += 1;
        if !self.begun || complete > self.event.complete {
            self.event.complete = complete;
            self.event.waits = self.before.then(waits);
        }
        self.note_start(begin);
        self.begun = true;
    }
}
