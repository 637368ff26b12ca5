//! Keeps what a caller asks for beside the sums of a run.

use emmclab_device::{GcFinished, GcStarted, Observer, RequestCompleted, WokeUp};
use emmclab_trace::Result;

use crate::over_time::RunOverTime;
use crate::result::SimulationResult;
use crate::rows::RequestRows;

/// A row for each request, and the run over time, each where asked for.
#[derive(Default)]
pub struct Recorder {
    /// One row per request.
    pub rows: Option<RequestRows>,
    /// The run over time.
    pub over_time: Option<RunOverTime>,
}

impl Recorder {
    /// Whether anything is kept.
    pub fn is_on(&self) -> bool {
        self.rows.is_some() || self.over_time.is_some()
    }

    /// Returns the error that ended the writing of rows, once.
    ///
    /// # Errors
    /// Where writing has failed.
    pub fn check(&mut self) -> Result<()> {
        self.rows.as_mut().map_or(Ok(()), RequestRows::check)
    }

    /// Puts the file of rows in place, and the run over time into the result.
    ///
    /// # Errors
    /// Where the file could not be written.
    pub fn finish(self, result: &mut SimulationResult) -> Result<()> {
        if let Some(over_time) = self.over_time {
            result.over_time = over_time.rows();
        }
        self.rows.map_or(Ok(()), RequestRows::finish)
    }
}

impl Observer for Recorder {
    const UNITS: bool = false;

    fn request_completed(&mut self, event: &RequestCompleted) {
        if let Some(rows) = &mut self.rows {
            rows.request_completed(event);
        }
        if let Some(over_time) = &mut self.over_time {
            over_time.request_completed(event);
        }
    }

    fn gc_started(&mut self, event: &GcStarted) {
        if let Some(over_time) = &mut self.over_time {
            over_time.gc_started(event);
        }
    }

    fn gc_finished(&mut self, event: &GcFinished) {
        if let Some(over_time) = &mut self.over_time {
            over_time.gc_finished(event);
        }
    }

    fn woke_up(&mut self, event: &WokeUp) {
        if let Some(over_time) = &mut self.over_time {
            over_time.woke_up(event);
        }
    }
}
