//! The state of a request while its pages are read or programmed.

use emmclab_base::{CommandFlags, Nanos, Op};

use crate::events::{LatencyBreakdown, RequestCompleted};
use crate::nand::PageOperationTimes;

impl LatencyBreakdown {
    /// Splits the time of a flash operation into parts. The time is from `ready`, its earliest start, to `complete`, the end of the
    /// operation or of its data transfer.
    #[inline]
    pub(crate) fn of(op: &PageOperationTimes, ready: Nanos, complete: Nanos) -> Self {
        let array = if complete == op.end { op.array } else { Nanos::ZERO };
        Self { queue: op.begin - ready - op.gc, bus: complete - op.begin - array, array, gc: op.gc, ..Self::default() }
    }

    /// The sum of two latency breakdowns, part by part.
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

/// The state of a request, whose subrequests (page operations) may be incomplete.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestState {
    pub event: RequestCompleted,
    /// Waits before the flash operations of the request, which all its subrequests share.
    pub before: LatencyBreakdown,
    /// Earliest start of the flash operations.
    pub ready: Nanos,
    /// Number of subrequests that have not been dispatched.
    pub outstanding: u32,
    /// Whether a flash operation of the request has begun.
    started: bool,
    begun: bool,
    /// Number of units that the request has read and that were never written.
    pub unwritten_units: u32,
    /// Whether `event.start` is the time at which the first flash operation of the request begins. This is so if the command queue has no
    /// limit.
    start_at_flash: bool,
}

/// Command number that stands for data written back from the write buffer, which belongs to no command.
pub(crate) const NO_COMMAND: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
pub(crate) struct AcceptedRequest {
    pub id: u64,
    pub op: Op,
    pub modifiers: CommandFlags,
    pub sector: u64,
    pub sectors: u32,
    pub arrival: Nanos,
    /// Time that the host needed to fetch the request.
    pub fetch: Nanos,
    /// Time at which the device accepted the request.
    pub start: Nanos,
    /// Whether `start` was delayed until a slot of the command queue became free.
    pub queue_limited: bool,
}

impl RequestState {
    #[inline(always)]
    pub fn new(taken: AcceptedRequest) -> Self {
        let AcceptedRequest { id, op, modifiers, sector, sectors, arrival, fetch, start, queue_limited } = taken;
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
            before: LatencyBreakdown { queue: start - arrival - fetch, controller: fetch, ..LatencyBreakdown::default() },
            ready: start,
            outstanding: 0,
            started: false,
            begun: false,
            unwritten_units: 0,
            start_at_flash: !queue_limited,
        }
    }

    /// Number of the command; `None` for data that is written back from the write buffer, because it belongs to no command.
    #[inline]
    pub fn command(&self) -> Option<u64> {
        (self.event.id != NO_COMMAND).then_some(self.event.id)
    }

    /// Adds time in the controller before the flash operations.
    #[inline]
    pub fn spend(&mut self, time: Nanos) {
        self.before.controller += time;
        self.ready += time;
    }

    /// Adds time in the controller after the flash operations.
    #[inline]
    pub fn spend_after(&mut self, time: Nanos) {
        self.event.complete += time;
        self.event.waits.controller += time;
    }

    /// Completes a request that needs no flash operations at time `complete`.
    #[inline]
    pub fn without_flash(&mut self, complete: Nanos) {
        self.event.complete = complete;
        self.event.waits = self.before;
        self.event.waits.queue += complete - self.ready;
    }

    /// Waits for a flash operation on the mapping table. Operations on data begin after it.
    pub fn look_up(&mut self, op: &PageOperationTimes) {
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

    /// Delays all further operations of the request until `at`.
    pub fn wait_until(&mut self, at: Nanos) {
        let wait = at.max(self.ready) - self.ready;
        self.before.queue += wait;
        self.ready += wait;
    }

    /// Delays the completion of the request until at least `at`, because of other work.
    pub fn complete_by(&mut self, at: Nanos) {
        let wait = at.max(self.event.complete) - self.event.complete;
        self.event.waits.queue += wait;
        self.event.complete += wait;
    }

    /// Adds a subrequest that was dispatched, with its own waits, start and completion.
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
