//! A simulation that callers drive request by request, waiting for the completions.

use emmclab_device::{Observer, StopReason};
use emmclab_trace::{BlockNote, Nanos, Request, Result};

use super::Simulation;
use crate::arrival_pacer::ArrivalPacer;
use crate::options::ReplayMode;

impl Simulation {
    /// Returns the simulation in closed loop, with completions enabled for [`Simulation::take_known`].
    pub(crate) fn with_completion_queue(mut self) -> Self {
        self.options.mode = ReplayMode::Closed;
        self.options.mode_reason = Some("callers wait for their requests".to_owned());
        self.pacer = ArrivalPacer::new(&self.options);
        self.engine = self.engine.with_completion_queue();
        self
    }

    /// Number of sectors that requests can address.
    pub(crate) fn sectors(&self) -> u64 {
        self.engine.capacity()
    }

    /// Submits a request at time `at`; returns false once a device has stopped.
    pub(crate) fn submit<O: Observer>(
        &mut self,
        at: Nanos,
        request: &Request,
        notes: &[BlockNote],
        observer: &mut O,
    ) -> Result<bool> {
        let command = self.commands.command(request, at)?;
        let notes = if self.engine.reads_notes() { notes } else { &[] };
        self.engine.submit(&command, notes, &mut (&mut self.measure, observer))
    }

    /// As [`crate::ClosedLoop::next_event`].
    pub(crate) fn next_event(&self) -> Option<Nanos> {
        self.engine.next_event()
    }

    /// As [`crate::ClosedLoop::advance`].
    pub(crate) fn advance<O: Observer>(&mut self, until: Nanos, observer: &mut O) -> Result<()> {
        self.engine.advance(until, &mut (&mut self.measure, observer))
    }

    /// Appends newly known completions, each with the number of its request, counted from 0.
    pub(crate) fn take_known(&mut self, out: &mut Vec<(u64, Nanos)>) {
        self.engine.take_completions(out);
    }

    /// Why a device accepts no more commands; `None` if all still do.
    pub(crate) fn stopped(&self) -> Option<&'static str> {
        self.engine.stop().map(StopReason::reason)
    }
}
