//! Collects the optional outputs of a run.

use emmclab_device::{NullObserver, Observer};
use emmclab_trace::{Batch, Ledger, Result};

use crate::over_time::RunOverTime;
use crate::request_rows::RequestRows;
use crate::result::SimulationResult;
use crate::simulation::Simulation;
use crate::tracks::RunTracks;

/// The optional outputs of a run: a row for each request, the run over time, and a picture of the run.
#[derive(Default)]
pub struct RunRecorder {
    /// One row per request.
    pub rows: Option<RequestRows>,
    /// The run over time.
    pub over_time: Option<RunOverTime>,
    /// A picture of the run.
    pub tracks: Option<RunTracks>,
}

impl RunRecorder {
    /// Simulates a batch; returns false once the device has stopped. The simulation is compiled here for each kind of observer, and not
    /// again in the callers.
    ///
    /// # Errors
    /// Those of [`Simulation::feed`], and if rows or the picture could not be written.
    pub fn feed(&mut self, simulation: &mut Simulation, batch: &Batch) -> Result<bool> {
        let batch = &*simulation.with_flushes(batch);
        if !self.is_on() {
            return simulation.feed(batch, &mut NullObserver);
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

    /// Ends the run; files are moved into place by [`RunRecorder::finish`].
    ///
    /// # Errors
    /// Those of [`Simulation::finish`].
    pub fn end(&mut self, simulation: Simulation, ledger: Option<&Ledger>) -> Result<SimulationResult> {
        if self.is_on() {
            simulation.finish(ledger, &mut self.listeners())
        } else {
            simulation.finish(ledger, &mut NullObserver)
        }
    }

    /// Whether any output is collected.
    pub(crate) fn is_on(&self) -> bool {
        self.rows.is_some() || self.over_time.is_some() || self.tracks.is_some()
    }

    /// The observers of the run.
    pub(crate) fn listeners(&mut self) -> impl Observer {
        (self.rows.as_mut(), (self.over_time.as_mut(), self.tracks.as_mut()))
    }

    /// Moves the files into place, with `run`, a description in JSON, in the file of the rows. Adds the run over time to the result.
    ///
    /// # Errors
    /// If a file could not be written.
    pub fn finish(self, result: &mut SimulationResult, run: Option<&str>) -> Result<()> {
        if let Some(over_time) = self.over_time {
            result.over_time = over_time.rows();
        }
        self.rows.map_or(Ok(()), |rows| rows.finish(run))?;
        self.tracks.map_or(Ok(()), RunTracks::finish)
    }
}
