//! A run in which callers submit requests and wait for their completions.

use emmclab_device::{NullObserver, Observer, StopReason};
use emmclab_trace::{BlockNote, Error, ErrorClass, Nanos, Request, Result};

use super::Simulation;
use crate::arrival_pacer::ArrivalPacer;
use crate::options::ReplayMode;
use crate::recorder::RunRecorder;
use crate::result::SimulationResult;
use crate::sequence_map::SequenceMap;

/// A device, with the layers above it, that is driven request by request. The caller numbers the requests.
pub struct ClosedLoop {
    simulation: Simulation,
    recorder: RunRecorder,
    numbers: SequenceMap<u64>,
    completions: Vec<(u64, Nanos)>,
}

impl ClosedLoop {
    /// Wraps a simulation that has not started. The run starts at time 0 of its device.
    pub fn new(simulation: Simulation) -> Self {
        Self::with_recorder(simulation, RunRecorder::default())
    }

    /// Wraps a simulation that has not started, with a recorder for the optional outputs of the run.
    pub fn with_recorder(mut simulation: Simulation, recorder: RunRecorder) -> Self {
        simulation.options.mode = ReplayMode::Closed;
        simulation.options.mode_reason = Some("callers wait for their requests".to_owned());
        simulation.pacer = ArrivalPacer::new(&simulation.options);
        simulation.engine = simulation.engine.with_completion_queue();
        Self { simulation, recorder, numbers: SequenceMap::default(), completions: Vec::new() }
    }

    /// Returns an error if no device has stopped, so that unfinished requests must complete.
    pub(super) fn refuse_unless_stopped(&self) -> Result<()> {
        match self.simulation.engine.stop() {
            Some(_) => Ok(()),
            None => Err(Error::new(ErrorClass::Value, "requests are unfinished, but the device has no further event")
                .hint("report this run with its job file and device settings: it is a fault of emmclab")),
        }
    }

    /// The run with the reason for its mode in the result.
    pub(super) fn because(mut self, reason: &str) -> Self {
        self.simulation.options.mode_reason = Some(reason.to_owned());
        self
    }

    /// Number of addressable sectors.
    pub fn sectors(&self) -> u64 {
        self.simulation.engine.capacity()
    }

    /// Submits a request; `at` must not be before the previous request. `notes` describe the roles of its blocks and may be empty.
    /// Errors: for a request beyond the device, if a device has stopped, and for a broken invariant under `check`.
    pub fn submit(&mut self, at: Nanos, number: u64, request: &Request, notes: &[BlockNote]) -> Result<()> {
        if self.try_submit(at, number, request, notes)? {
            return Ok(());
        }
        let reason = self.simulation.engine.stop().map_or("the device has stopped", StopReason::reason);
        Err(Error::new(ErrorClass::Value, format!("{reason}, at {at}"))
            .hint("use a larger device, or one with garbage collection and over-provisioning"))
    }

    /// Submits a request, as [`ClosedLoop::submit`]. Returns false if a device has stopped.
    pub(super) fn try_submit(&mut self, at: Nanos, number: u64, request: &Request, notes: &[BlockNote]) -> Result<bool> {
        self.numbers.push(number);
        if self.recorder.is_on() {
            self.simulation.submit(at, request, notes, &mut self.recorder.listeners())
        } else {
            self.simulation.submit(at, request, notes, &mut NullObserver)
        }
    }

    /// Time of the next event that may complete a request.
    pub fn next_event(&self) -> Option<Nanos> {
        self.simulation.engine.next_event()
    }

    /// Simulates up to and including `until`.
    pub fn advance(&mut self, until: Nanos) -> Result<()> {
        if self.recorder.is_on() {
            self.simulation.advance(until, &mut self.recorder.listeners())
        } else {
            self.simulation.advance(until, &mut NullObserver)
        }
    }

    /// Appends newly known completions to `out`, as (number of the request, time). A completion may be known before its time.
    pub fn take_completed(&mut self, out: &mut Vec<(u64, Nanos)>) {
        self.simulation.engine.take_completions(&mut self.completions);
        let taken = self.completions.drain(..).map(|(count, at)| (self.numbers.take(count), at));
        out.extend(taken.filter_map(|(number, at)| Some((number?, at))));
    }

    /// Completes all requests in progress, ends the run and returns its result. The caller must still finish the returned recorder, which
    /// moves its files to their paths.
    pub fn finish(mut self) -> Result<(SimulationResult, RunRecorder)> {
        let result = self.recorder.end(self.simulation, None)?;
        Ok((result, self.recorder))
    }
}

impl Simulation {
    /// Submits a request at time `at`. Returns false if a device has stopped.
    fn submit<O: Observer>(&mut self, at: Nanos, request: &Request, notes: &[BlockNote], observer: &mut O) -> Result<bool> {
        let command = self.commands.command(request, at)?;
        let notes = if self.engine.reads_notes() { notes } else { &[] };
        self.engine.submit(&command, notes, &mut (&mut self.measure, observer))
    }

    fn advance<O: Observer>(&mut self, until: Nanos, observer: &mut O) -> Result<()> {
        self.engine.advance(until, &mut (&mut self.measure, observer))
    }
}
