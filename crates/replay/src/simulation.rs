//! A simulated run, which is fed with batches of requests.
#![expect(clippy::inline_always, reason = "a run lies on the stack of the loop that feeds it, where no pointer to it is needed")]

mod cfq;
mod closed_loop;
mod fio_run;

use std::borrow::Cow;
use std::ops::Range;
use std::time::Instant;

use emmclab_device::gc::VictimPolicy;
use emmclab_device::{Device, DeviceConfig, Observer, PREFETCHED};
use emmclab_layers::LayerConfig;
use emmclab_trace::{
    Batch, BlockNote, Error, ErrorClass, Ledger, Nanos, Request, RequestIter, Result, TraceCombiner, TraceHeader, interrupt,
};

pub use self::closed_loop::ClosedLoop;
pub use self::fio_run::{FioHostCost, FioRun};
use crate::arrival_pacer::{ArrivalPacer, CommandBuilder, PeriodicFlushes};
use crate::disk::SimulatedDisk;
use crate::engine::ReplayEngine;
use crate::images::ImageStore;
use crate::options::{ReplayMode, ReplayOptions, by_first_batch, preflight};
use crate::precondition::precondition;
use crate::result::{SecondDevice, SimulationResult};
use crate::run_measurement::{RecordedTotals, RunMeasurement};

/// A simulated run of a device. The caller feeds requests in order of arrival, and then finishes the run.
pub struct Simulation {
    config: DeviceConfig,
    options: ReplayOptions,
    engine: ReplayEngine,
    /// Name of the second device.
    second: Option<String>,
    pacer: ArrivalPacer,
    measure: RunMeasurement,
    recorded_totals: RecordedTotals,
    commands: CommandBuilder,
    flushes: PeriodicFlushes,
    /// Header of the trace; `None` for requests of running software, for which everything is recorded.
    trace: Option<TraceHeader>,
    started: Instant,
}

impl Simulation {
    /// Creates a run with its device, which is new or preconditioned according to the options. If there is a store, an aged device is
    /// written to it or read from it.
    /// Errors: if preconditioning is impossible on this device, or the store cannot be read or written.
    pub fn new(config: &DeviceConfig, options: &ReplayOptions, store: Option<&ImageStore>) -> Result<Self> {
        let device = precondition(config, options, store)?;
        Ok(Self::on(config, options, device))
    }

    /// Creates a run on an existing device in its current state. Resets the time and counters of the device to 0.
    pub fn on(config: &DeviceConfig, options: &ReplayOptions, device: Device) -> Self {
        let engine = ReplayEngine::for_run(config, device, options.check);
        Self {
            config: config.clone(),
            options: options.clone(),
            second: None,
            pacer: ArrivalPacer::new(options),
            measure: RunMeasurement::with_fetch(config.settings().host.fetch()),
            recorded_totals: RecordedTotals::default(),
            commands: CommandBuilder::new(engine.capacity(), options.wrap_addresses),
            flushes: PeriodicFlushes::new(options.flush_every),
            trace: None,
            started: Instant::now(),
            engine,
        }
    }

    /// Adds layers between the workload and the device, from top to bottom, and a second device. The second device has its own host queue
    /// if its settings configure one, and a checker under `check`.
    /// Errors: for an unknown layer, invalid settings, and a second device without a layer that uses it.
    pub fn with_layers(mut self, layers: &[LayerConfig], second: Option<(&DeviceConfig, Device)>) -> Result<Self> {
        self.second = second.as_ref().map(|(config, _)| config.name().to_owned());
        let check = self.options.check;
        let disk = second.map(|(config, device)| SimulatedDisk::for_run(config.settings(), device, check));
        self.engine = self.engine.with_layers(layers, disk, self.options.first_writes)?;
        self.commands = CommandBuilder::new(self.engine.capacity(), self.options.wrap_addresses);
        Ok(self)
    }

    /// Chooses victims of garbage collection by `policy` during the run. The policy of the settings, with which the device was
    /// preconditioned, is replaced. A second device keeps its own policy.
    /// Errors: if the device has no garbage collection, or its mapping scheme maps whole blocks.
    pub fn with_victim_policy(mut self, policy: Box<dyn VictimPolicy>) -> Result<Self> {
        self.engine.main.device.set_victim_policy(policy)?;
        Ok(self)
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.engine.main.device
    }

    /// Number of addressable sectors, above all layers.
    pub fn sectors(&self) -> u64 {
        self.engine.capacity()
    }

    /// The measurement of the run so far.
    pub fn measure(&self) -> &RunMeasurement {
        &self.measure
    }

    /// Simulated time so far, from the first arrival.
    pub fn simulated(&self) -> Nanos {
        self.measure.elapsed()
    }

    /// Sets the trace from which the requests come. The result then contains no figures about data that this trace does not record.
    pub fn of_trace(&mut self, header: TraceHeader) {
        self.trace = Some(header);
    }

    /// Returns the batch with the flushes that the options add.
    pub(crate) fn with_flushes<'a>(&mut self, batch: &'a Batch) -> Cow<'a, Batch> {
        self.flushes.insert(batch)
    }

    /// Simulates a batch of requests. Returns false if the device has stopped. The simulation can be interrupted.
    /// Errors: for a request beyond the end of the device, unless addresses are wrapped; for a closed loop, if completions are not
    /// recorded; and for a broken invariant under `check`.
    #[inline(always)]
    pub fn feed<O: Observer>(&mut self, batch: &Batch, observer: &mut O) -> Result<bool> {
        self.feed_batch(batch, observer).map_err(|error| self.locate_error(error))
    }

    /// Adds the number of the last request to an error about a request. Other errors are returned unchanged.
    #[cold]
    fn locate_error(&self, error: Error) -> Error {
        match error.kind() {
            ErrorClass::Value => error.at_request(self.commands.count),
            _ => error,
        }
    }

    #[inline(always)]
    fn feed_batch<O: Observer>(&mut self, batch: &Batch, observer: &mut O) -> Result<bool> {
        if self.pacer.mode() == ReplayMode::Auto {
            let chosen = by_first_batch(batch);
            self.pacer.settle(chosen.mode == ReplayMode::Closed);
            self.options.mode_reason = chosen.reason;
        }
        for from in (0..batch.len()).step_by(PREFETCHED) {
            interrupt::check()?;
            let next = from..batch.len().min(from + PREFETCHED);
            let placed_before = self.commands.count;
            if self.engine.is_bare {
                batch.prefetch(next.clone());
                self.engine.main.device.prefetch(&batch.first_sectors()[next.clone()]);
            }
            let goes_on = if self.engine.is_bare && self.pacer.is_open() {
                self.feed_open(batch.range(next), observer)?
            } else {
                self.feed_each(batch, next, observer)?
            };
            if batch.has_completions() {
                // The request at which the device stopped is not counted.
                let driven = (self.commands.count - placed_before) as usize - usize::from(!goes_on);
                batch.range(from..from + driven).for_each(|request| self.recorded_totals.add(&request));
            }
            if !goes_on {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Simulates requests at their recorded times in a fast loop. The engine must be bare: requests go directly to the device.
    #[inline(always)]
    fn feed_open<O: Observer>(&mut self, requests: RequestIter<'_>, observer: &mut O) -> Result<bool> {
        let Self { engine, measure, pacer: pace, commands: placed, .. } = self;
        let device = &mut engine.main.device;
        let mut listeners = (measure, observer);
        for request in requests {
            let arrival = pace.open_arrival(request.arrival);
            let command = placed.command(&request, arrival)?;
            let done = device.submit(&command, &mut listeners)?;
            if done.is_none() && device.stop().is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    #[inline(never)]
    fn feed_each<O: Observer>(&mut self, batch: &Batch, rows: Range<usize>, observer: &mut O) -> Result<bool> {
        let noted = batch.has_notes() && self.engine.reads_notes();
        for (row, request) in rows.clone().zip(batch.range(rows)) {
            let notes = if noted { batch.notes(row) } else { &[] };
            if !self.drive(&request, notes, observer)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Simulates one request. Returns false if the device has stopped.
    pub fn push<O: Observer>(&mut self, request: &Request, observer: &mut O) -> Result<bool> {
        self.pacer.settle(request.complete.is_some());
        let goes_on = self.drive(request, &[], observer)?;
        if goes_on {
            self.recorded_totals.add(request);
        }
        Ok(goes_on)
    }

    fn drive<O: Observer>(&mut self, request: &Request, notes: &[BlockNote], observer: &mut O) -> Result<bool> {
        let mut listeners = (&mut self.measure, observer);
        if self.pacer.needs_completion(request) {
            self.engine.settle(&mut listeners)?;
        }
        let arrival = self.pacer.arrival(request, self.engine.last_complete)?;
        let command = self.commands.command(request, arrival)?;
        self.engine.submit(&command, notes, &mut listeners)
    }

    /// Ends the run and returns its result. `ledger` contains the counts of the trace readers, if there are any.
    pub fn finish<O: Observer>(mut self, ledger: Option<&Ledger>, observer: &mut O) -> Result<SimulationResult> {
        self.engine.settle(&mut (&mut self.measure, &mut *observer))?;
        let drain = if self.options.drain { Some(self.engine.drain(observer)?) } else { None };
        self.engine.finish(observer)?;
        let device = &self.engine.main.device;
        let measured = (&self.measure, &self.recorded_totals);
        let paced = (&self.options, self.pacer.mode());
        let mut result = SimulationResult::new(&self.config, device, measured, paced, drain);
        result.run.stopped = self.engine.stop().map(|stop| stop.reason().to_owned());
        result.host = self.engine.main.host_counts();
        if let Some(layers) = &self.engine.layers {
            result.layers = layers.results();
            result.first_writes = layers.first_writes().to_vec();
            result.requests.bytes_read = self.measure.reads.bytes();
            result.requests.bytes_written = self.measure.writes.bytes();
        }
        let second = self.second.take().zip(self.engine.second());
        result.second_device = second.map(|(name, (device, host))| SecondDevice::new(name, device, host));
        result.ledger = ledger.cloned().unwrap_or_else(|| Ledger {
            seen: self.commands.count,
            kept: self.commands.count,
            ..Ledger::default()
        });
        result.ledger.folded += self.commands.wrapped;
        let requests = &mut result.requests;
        requests.wrapped_pct = 100.0 * result.ledger.folded as f64 / requests.total.max(1) as f64;
        if let Some(header) = self.trace {
            result.withdraw_unrecorded(header);
        }
        result.computed_in(self.started.elapsed());
        Ok(result)
    }

    /// Returns the device with its contents, for use as a preconditioned device.
    pub fn into_device(self) -> Device {
        self.engine.main.device
    }
}

/// Simulates whole traces on a device.
/// Errors: if a trace cannot be read, and those of [`preflight`], [`Simulation::new`] and [`Simulation::feed`].
pub fn simulate<O: Observer>(
    config: &DeviceConfig, traces: &mut TraceCombiner, options: &ReplayOptions, observer: &mut O,
) -> Result<SimulationResult> {
    let options = preflight(config, options, traces.inputs())?.apply(options);
    let mut simulation = Simulation::new(config, &options, None)?;
    while let Some(batch) = traces.next_batch()? {
        let batch = simulation.with_flushes(&batch);
        if !simulation.feed(&batch, observer)? {
            break;
        }
    }
    simulation.of_trace(traces.header());
    simulation.finish(Some(&traces.ledger()), observer)
}
