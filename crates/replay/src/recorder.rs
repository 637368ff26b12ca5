//! Collects the optional outputs of a run: rows of requests, figures over time, and a Perfetto trace.

use emmclab_device::{GcFinished, GcStarted, NullObserver, Observer, RequestCompleted, WokeUp};
use emmclab_timeline::{BinContent, BinWidth, DataDirection, OverTimeRow, RequestsOverTime};
use emmclab_trace::{Batch, Ledger, Nanos, Op, Result};
use schemars::JsonSchema;
use serde::Serialize;

use crate::request_rows::RequestRows;
use crate::result::SimulationResult;
use crate::simulation::Simulation;
use crate::tracks::RunTracks;

/// The optional outputs of a run: a row for each request, figures over time, and a Perfetto trace.
#[derive(Default)]
pub struct RunRecorder {
    /// Collects one row per request.
    pub rows: Option<RequestRows>,
    /// Collects figures of the run over time.
    pub over_time: Option<RunOverTime>,
    /// Collects a Perfetto trace of the run.
    pub tracks: Option<RunTracks>,
}

impl RunRecorder {
    /// Simulates a batch. Returns false if the device has stopped. The simulation is compiled here for each kind of observer, and not again
    /// in the callers.
    /// Errors: those of [`Simulation::feed`], and if the rows or the Perfetto trace could not be written.
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

    /// Ends the run. [`RunRecorder::finish`] then moves the output files to their paths.
    pub fn end(&mut self, simulation: Simulation, ledger: Option<&Ledger>) -> Result<SimulationResult> {
        if self.is_on() { simulation.finish(ledger, &mut self.listeners()) } else { simulation.finish(ledger, &mut NullObserver) }
    }

    /// Whether any optional output is collected.
    pub(crate) fn is_on(&self) -> bool {
        self.rows.is_some() || self.over_time.is_some() || self.tracks.is_some()
    }

    /// Returns the enabled outputs as one observer of the run.
    pub(crate) fn listeners(&mut self) -> impl Observer {
        (self.rows.as_mut(), (self.over_time.as_mut(), self.tracks.as_mut()))
    }

    /// Moves the output files to their paths; the file of request rows contains `run`, a description in JSON. Adds figures over time to the
    /// result.
    pub fn finish(self, result: &mut SimulationResult, run: Option<&str>) -> Result<()> {
        if let Some(over_time) = self.over_time {
            result.over_time = over_time.rows();
        }
        self.rows.map_or(Ok(()), |rows| rows.finish(run))?;
        self.tracks.map_or(Ok(()), RunTracks::finish)
    }
}

/// A time interval (bin) of a run. Requests and wake-ups are counted at the arrival of the request, collections at their end.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RunTimeRow {
    /// Reads and writes.
    #[serde(flatten)]
    pub data: OverTimeRow,
    /// Mean time that a read or write waits for other requests, ms.
    pub queue_ms: Option<f64>,
    /// Mean time that a read or write waits for garbage collection, ms.
    pub gc_ms: Option<f64>,
    /// Mean time that a read or write waits for the device to wake up, ms.
    pub wake_up_ms: Option<f64>,
    /// Number of collected blocks: garbage collection, folding, wear levelling, log-block merges.
    pub collections: u64,
    /// Sum of the durations of the counted collections, ms.
    pub collecting_ms: f64,
    /// Number of wake-ups of the device.
    pub wake_ups: u64,
}

/// Counts of a time bin other than those of reads and writes.
#[derive(Clone, Debug, Default)]
struct BackgroundWork {
    /// Total times that reads and writes waited for the queue, for garbage collection and for wake-up, in nanoseconds.
    waits_ns: [u128; 3],
    collections: u64,
    collecting_ns: u128,
    wake_ups: u64,
}

impl BinContent for BackgroundWork {
    fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.waits_ns.iter_mut().zip(other.waits_ns) {
            *mine += theirs;
        }
        self.collections += other.collections;
        self.collecting_ns += other.collecting_ns;
        self.wake_ups += other.wake_ups;
    }
}

/// Collects figures of a run over time, in at most 256 bins, or at most 16,384 if the width of a bin is set.
#[derive(Clone, Debug)]
pub struct RunOverTime {
    bins: RequestsOverTime<BackgroundWork>,
    first: Option<Nanos>,
    /// Garbage collections in progress: (block, start time). There are about as many as planes that collect at the same time.
    collecting: Vec<(u32, Nanos)>,
}

impl RunOverTime {
    /// Creates bins of the width `width`.
    pub fn new(width: BinWidth) -> Self {
        Self { bins: RequestsOverTime::new(width), first: None, collecting: Vec::new() }
    }

    /// Returns the time bins that contain requests or background work.
    pub fn rows(&self) -> Vec<RunTimeRow> {
        let bins = self.bins.bins();
        let all = bins.iter(self.first.unwrap_or(Nanos::ZERO));
        all.map(|(time_s, width_s, bin)| {
            let data = OverTimeRow::new(time_s, width_s, bin);
            let BackgroundWork { waits_ns, collections, collecting_ns, wake_ups } = bin.extra;
            let requests = data.reads + data.writes;
            let [queue_ms, gc_ms, wake_up_ms] = waits_ns.map(|ns| (requests > 0).then(|| ns as f64 / requests as f64 / 1e6));
            let collecting_ms = collecting_ns as f64 / 1e6;
            RunTimeRow { data, queue_ms, gc_ms, wake_up_ms, collections, collecting_ms, wake_ups }
        })
        .filter(|row| row.data.reads + row.data.writes + row.collections + row.wake_ups > 0)
        .collect()
    }
}

impl Observer for RunOverTime {
    const UNITS: bool = false;

    fn request_completed(&mut self, event: &RequestCompleted) {
        let side = match event.op {
            Op::Read => DataDirection::Read,
            Op::Write => DataDirection::Write,
            Op::Discard | Op::Flush | Op::SecureErase => return,
        };
        self.first.get_or_insert(event.arrival);
        let response = event.complete - event.arrival;
        self.bins.add(event.arrival, side, event.sectors, Some(response.0.max(0) as u64));
        let waits = [event.waits.queue, event.waits.gc, event.waits.wake_up];
        let work = self.bins.extra(event.arrival);
        for (sum, wait) in work.waits_ns.iter_mut().zip(waits) {
            *sum += wait.0.max(0) as u128;
        }
    }

    fn gc_started(&mut self, event: &GcStarted) {
        match self.collecting.iter_mut().find(|(block, _)| *block == event.block.0) {
            Some(begun) => begun.1 = event.at,
            None => self.collecting.push((event.block.0, event.at)),
        }
    }

    fn gc_finished(&mut self, event: &GcFinished) {
        let begun = self.collecting.iter().position(|(block, _)| *block == event.block.0);
        let begin = begun.map_or(event.at, |index| self.collecting.swap_remove(index).1);
        let work = self.bins.extra_at(event.at);
        work.collections += 1;
        work.collecting_ns += (event.at - begin).0.max(0) as u128;
    }

    fn woke_up(&mut self, event: &WokeUp) {
        self.bins.extra_at(event.at).wake_ups += 1;
    }
}
