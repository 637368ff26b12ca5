//! Keeps what a caller asks for beside the sums of a run.

use emmclab_device::Observer;
use emmclab_trace::{Batch, Result};

use crate::over_time::RunOverTime;
use crate::result::SimulationResult;
use crate::rows::RequestRows;
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
    /// Whether anything is kept.
    pub fn is_on(&self) -> bool {
        self.rows.is_some() || self.over_time.is_some() || self.tracks.is_some()
    }

    /// Takes note of who sends the requests that are driven next.
    pub fn expect(&mut self, batch: &Batch) {
        if let Some(tracks) = &mut self.tracks {
            tracks.expect(batch);
        }
    }

    /// The observer of the run.
    pub fn listeners(&mut self) -> impl Observer {
        (self.rows.as_mut(), (self.over_time.as_mut(), self.tracks.as_mut()))
    }

    /// Returns the error that ended the writing of rows or of the picture, once.
    ///
    /// # Errors
    /// Where writing has failed.
    pub fn check(&mut self) -> Result<()> {
        self.rows.as_mut().map_or(Ok(()), RequestRows::check)?;
        self.tracks.as_mut().map_or(Ok(()), RunTracks::check)
    }

    /// Puts the files in place, and the run over time into the result.
    ///
    /// # Errors
    /// Where a file could not be written.
    pub fn finish(self, result: &mut SimulationResult) -> Result<()> {
        if let Some(over_time) = self.over_time {
            result.over_time = over_time.rows();
        }
        self.rows.map_or(Ok(()), RequestRows::finish)?;
        self.tracks.map_or(Ok(()), RunTracks::finish)
    }
}
