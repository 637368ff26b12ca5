//! A run whose requests come from callers that wait for their completions.

use emmclab_device::Observer;
use emmclab_trace::{BlockNote, Error, Kind, Ledger, Nanos, Request, Result};

use crate::numbered::Numbered;
use crate::result::SimulationResult;
use crate::simulation::Simulation;

/// A device, with the layers above it, driven request by request. Requests have numbers of the caller's choice.
pub struct ClosedLoop {
    simulation: Simulation,
    numbers: Numbered<u64>,
    known: Vec<(u64, Nanos)>,
}

impl ClosedLoop {
    /// A simulation that has not begun; time 0 is that of its device.
    pub fn new(simulation: Simulation) -> Self {
        Self { simulation: simulation.watched(), numbers: Numbered::default(), known: Vec::new() }
    }

    /// Sectors that it takes requests for.
    pub fn sectors(&self) -> u64 {
        self.simulation.sectors()
    }

    /// Takes a request at a time, never before that of the one before it; `notes` say what its blocks are, or are empty.
    ///
    /// # Errors
    /// For a request beyond the device, once a device has stopped, and for a broken invariant under `check`.
    pub fn submit<O: Observer>(
        &mut self,
        at: Nanos,
        number: u64,
        request: &Request,
        notes: &[BlockNote],
        observer: &mut O,
    ) -> Result<()> {
        self.numbers.push(number);
        if self.simulation.submit(at, request, notes, observer)? {
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
    pub fn advance<O: Observer>(&mut self, until: Nanos, observer: &mut O) -> Result<()> {
        self.simulation.advance(until, observer)
    }

    /// Adds the completions that have become known, by the numbers of their requests. A completion may be known before its time.
    pub fn take_completed(&mut self, out: &mut Vec<(u64, Nanos)>) {
        self.simulation.take_known(&mut self.known);
        let taken = self.known.drain(..).map(|(count, at)| (self.numbers.take(count), at));
        out.extend(taken.filter_map(|(number, at)| Some((number?, at))));
    }

    /// Ends the run and sums it up, after every request that is under way.
    ///
    /// # Errors
    /// For a broken invariant under `check`.
    pub fn finish<O: Observer>(self, observer: &mut O) -> Result<SimulationResult> {
        self.simulation.finish(None::<&Ledger>, observer)
    }
}
