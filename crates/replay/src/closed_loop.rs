//! A run whose requests come from callers that wait for their completions.

use emmclab_device::Quiet;
use emmclab_trace::{BlockNote, Error, Kind, Nanos, Request, Result};

use crate::numbered::Numbered;
use crate::recorder::Recorder;
use crate::result::SimulationResult;
use crate::simulation::Simulation;

/// A device, with the layers above it, driven request by request. Requests have numbers of the caller's choice.
pub struct ClosedLoop {
    simulation: Simulation,
    recorder: Recorder,
    numbers: Numbered<u64>,
    known: Vec<(u64, Nanos)>,
}

impl ClosedLoop {
    /// A simulation that has not begun; time 0 is that of its device.
    pub fn new(simulation: Simulation) -> Self {
        Self::recorded(simulation, Recorder::default())
    }

    /// The same with a recorder that listens.
    pub fn recorded(simulation: Simulation, recorder: Recorder) -> Self {
        let simulation = simulation.watched();
        Self { simulation, recorder, numbers: Numbered::default(), known: Vec::new() }
    }

    /// Sectors that it takes requests for.
    pub fn sectors(&self) -> u64 {
        self.simulation.sectors()
    }

    /// Takes a request at a time, never before that of the one before it; `notes` say what its blocks are, or are empty.
    ///
    /// # Errors
    /// For a request beyond the device, once a device has stopped, and for a broken invariant under `check`.
    pub fn submit(&mut self, at: Nanos, number: u64, request: &Request, notes: &[BlockNote]) -> Result<()> {
        self.numbers.push(number);
        let is_taken = if self.recorder.is_on() {
            self.simulation.submit(at, request, notes, &mut self.recorder.listeners())
        } else {
            self.simulation.submit(at, request, notes, &mut Quiet)
        };
        if is_taken? {
            return Ok(());
        }
        let reason = self.simulation.stopped().unwrap_or("the device has stopped");
        Err(Error::new(Kind::Value, format!("{reason}, at {at}"))
            .hint("take a larger device, or one with collection and over-provisioning"))
    }

    /// When something next happens that may complete a request.
    pub fn next_event(&self) -> Option<Nanos> {
        self.simulation.next_event()
    }

    /// Does everything that happens up to `until`, that time included.
    ///
    /// # Errors
    /// As [`ClosedLoop::submit`].
    pub fn advance(&mut self, until: Nanos) -> Result<()> {
        if self.recorder.is_on() {
            self.simulation.advance(until, &mut self.recorder.listeners())
        } else {
            self.simulation.advance(until, &mut Quiet)
        }
    }

    /// Adds the completions that have become known, by the numbers of their requests. A completion may be known before its time.
    pub fn take_completed(&mut self, out: &mut Vec<(u64, Nanos)>) {
        self.simulation.take_known(&mut self.known);
        let taken = self.known.drain(..).map(|(count, at)| (self.numbers.take(count), at));
        out.extend(taken.filter_map(|(number, at)| Some((number?, at))));
    }

    /// Ends the run and sums it up, after every request that is in progress; the recorder has its files to put in place.
    ///
    /// # Errors
    /// For a broken invariant under `check`.
    pub fn finish(mut self) -> Result<(SimulationResult, Recorder)> {
        let result = self.recorder.end(self.simulation, None)?;
        Ok((result, self.recorder))
    }
}
