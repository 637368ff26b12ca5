//! Keeps what a caller asks for beside the sums of a run.

use emmclab_device::{Observer, Quiet, Rare};
use emmclab_trace::{Batch, Ledger, Result};

use crate::over_time::RunOverTime;
use crate::result::SimulationResult;
use crate::rows::RequestRows;
use crate::simulation::Simulation;
use crate::tracks::RunTracks;

/// A row for each request, the run over time, and a picture of the run, each where asked for.
#[derive(Default)]
pub struct Recorder {
    /// One row per request.
    pub rows: Option<RequestRows>,
    /// The run over time.
    pub over_time: Option<RunOverTime>,
    /// A picture of the run.
    pub tracks: Option<RunTracks>,
}

impl Recorder {
    /// Drives a batch; false once the device has stopped. The simulation is compiled here for each kind of listener, and not again
    /// by callers.
    ///
    /// # Errors
    /// Those of [`Simulation::feed`], and where rows or the picture could not be written.
    pub fn feed(&mut self, simulation: &mut Simulation, batch: &Batch) -> Result<bool> {
        if !self.is_on() {
            return simulation.feed(batch, &mut Quiet);
        }
        if let Some(tracks) = &mut self.tracks {
            tracks.expect(batch);
        }
        if let Some(rows) = &mut self.rows {
            rows.expect(batch);
        }
        let goes_on = simulation.feed(batch, &mut self.listeners())?;
        self.rows.as_mut().map_or(Ok(()), RequestRows::check)?;
        self.tracks.as_mut().map_or(Ok(()), RunTracks::check)?;
        Ok(goes_on)
    }

    /// Ends the run; files are put in place by [`Recorder::finish`].
    ///
    /// # Errors
    /// Those of [`Simulation::finish`].
    pub fn end(&mut self, simulation: Simulation, ledger: Option<&Ledger>) -> Result<SimulationResult> {
        if self.is_on() {
            simulation.finish(ledger, &mut self.listeners())
        } else {
            simulation.finish(ledger, &mut Quiet)
        }
    }

    /// Whether anything is kept.
    pub(crate) fn is_on(&self) -> bool {
        self.rows.is_some() || self.over_time.is_some() || self.tracks.is_some()
    }

    /// The listeners to the run.
    pub(crate) fn listeners(&mut self) -> impl Observer {
        Rare((self.rows.as_mut(), (self.over_time.as_mut(), self.tracks.as_mut())))
    }

    /// Puts the files in place, the rows with what is told of the run as JSON, and the run over time into the result.
    ///
    /// # Errors
    /// Where a file could not be written.
    pub fn finish(self, result: &mut SimulationResult, run: Option<&str>) -> Result<()> {
        if let Some(over_time) = self.over_time {
            result.over_time = over_time.rows();
        }
        self.rows.map_or(Ok(()), |rows| rows.finish(run))?;
        self.tracks.map_or(Ok(()), RunTracks::finish)
    }
}
