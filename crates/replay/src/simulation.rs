//! A run, step by step.
#![expect(
    clippy::inline_always,
    reason = "a run lies on the stack of the loop that feeds it, where no pointer to it is needed"
)]

use std::time::Instant;

use emmclab_device::checker::Checker;
use emmclab_device::{Command, Device, DeviceConfig, FETCHED, Observer, Scheduling};
use emmclab_layers::LayerConfig;
use emmclab_trace::{Batch, Combiner, Error, Kind, Ledger, Nanos, Request, Requests, Result};

use crate::fold::Placed;
use crate::forecheck::forecheck;
use crate::host::HostQueue;
use crate::images::ImageStore;
use crate::layered::Layered;
use crate::measure::Measure;
use crate::options::ReplayOptions;
use crate::pace::Pace;
use crate::port::Port;
use crate::precondition::precondition;
use crate::result::SimulationResult;

/// A device being driven. Feed it requests in order of arrival, then finish it.
pub struct Simulation {
    config: DeviceConfig,
    options: ReplayOptions,
    device: Device,
    host: Option<HostQueue>,
    layers: Option<Box<Layered>>,
    pace: Pace,
    measure: Measure,
    checker: Option<Box<Checker>>,
    /// Nothing stands between the workload and the device.
    bare: bool,
    placed: Placed,
    completed: i64,
    started: Instant,
}

impl Simulation {
    /// A device made ready for the run: new, or preconditioned as the options say. With a store, an aged device is kept
    /// there and taken from there.
    ///
    /// # Errors
    /// Where preconditioning is impossible on this device, or the store cannot be read or written.
    pub fn new(config: &DeviceConfig, options: &ReplayOptions, store: Option<&ImageStore>) -> Result<Self> {
        let device = precondition(config, options, store)?;
        Ok(Self::on(config, options, device))
    }

    /// A run on a device that exists, as it is; its time and counters start again.
    pub fn on(config: &DeviceConfig, options: &ReplayOptions, mut device: Device) -> Self {
        device.rewind();
        let geometry = device.geometry();
        let capacity = geometry.sectors();
        let host = HostQueue::new(config.settings());
        Self {
            checker: options.check.then(|| Box::new(Checker::of(&device))),
            bare: host.is_none() && !options.check,
            host,
            layers: None,
            config: config.clone(),
            options: options.clone(),
            pace: Pace::new(options),
            measure: Measure::default(),
            placed: Placed::new(capacity, options.fold),
            completed: options.start_offset.0,
            started: Instant::now(),
            device,
        }
    }

    /// Puts layers between the workload and the device, the first on top; `second` is the device beside it.
    ///
    /// # Errors
    /// For an unknown layer, senseless settings, and devices on which the end of a write is not known when it comes.
    pub fn with_layers(
        mut self,
        layers: &[LayerConfig],
        second: Option<(&DeviceConfig, Device)>,
    ) -> Result<Self> {
        if layers.is_empty() {
            if second.is_some() {
                return Err(Error::new(Kind::Config, "there is a second device, but no layer to use it"));
            }
            return Ok(self);
        }
        if second.as_ref().is_some_and(|(config, _)| HostQueue::new(config.settings()).is_some()) {
            return Err(Error::new(
                Kind::Config,
                "the second device is driven without a queue of the host's",
            )
            .hint("leave its host.merge_max_kb, host.packed_writes and host.packed_reads at 0"));
        }
        let configs = [Some(&self.config), second.as_ref().map(|(config, _)| *config)];
        for config in configs.into_iter().flatten() {
            if config.settings().controller.scheduling != Scheduling::Fifo {
                return Err(Error::new(
                    Kind::Config,
                    format!(
                        "layers need a device that works in order; {} lets reads go first",
                        config.name()
                    ),
                )
                .hint("set controller.scheduling=fifo"));
            }
        }
        let layered =
            Layered::new(layers, &self.device, self.host.take(), second, self.options.first_writes)?;
        self.placed = Placed::new(layered.capacity(), self.options.fold);
        (self.layers, self.bare) = (Some(Box::new(layered)), false);
        Ok(self)
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What was measured so far.
    pub fn measure(&self) -> &Measure {
        &self.measure
    }

    /// Simulated time so far, from the first arrival.
    pub fn simulated(&self) -> Nanos {
        Nanos(self.measure.elapsed_ns())
    }

    /// Drives a batch of requests; false once the device has stopped.
    ///
    /// # Errors
    /// For a request beyond the device without folding, closed loop without recorded completions, and a broken
    /// invariant under `check`.
    #[inline(always)]
    pub fn feed<O: Observer>(&mut self, batch: &Batch, observer: &mut O) -> Result<bool> {
        for from in (0..batch.len()).step_by(FETCHED) {
            let next = from..batch.len().min(from + FETCHED);
            if self.bare {
                batch.fetch(next.clone());
                self.device.fetch(&batch.first_sectors()[next.clone()]);
            }
            let goes_on = if self.bare && self.pace.is_open() {
                self.feed_open(batch.range(next), observer)?
            } else {
                self.feed_each(batch.range(next), observer)?
            };
            if !goes_on {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Requests that wait for none before them, into a device with nothing in between.
    #[inline(always)]
    fn feed_open<O: Observer>(&mut self, requests: Requests<'_>, observer: &mut O) -> Result<bool> {
        let Self { device, measure, pace, placed, .. } = self;
        let mut told = (measure, observer);
        for request in requests {
            let arrival = pace.open_arrival(request.arrival.0);
            let command = placed.command(&request, arrival)?;
            let done = device.submit(&command, &mut told)?;
            if done.is_none() && device.stop().is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    #[inline(never)]
    fn feed_each<O: Observer>(&mut self, requests: Requests<'_>, observer: &mut O) -> Result<bool> {
        for request in requests {
            if !self.push(&request, observer)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Drives one request; false once the device has stopped.
    ///
    /// # Errors
    /// As [`Simulation::feed`].
    pub fn push<O: Observer>(&mut self, request: &Request, observer: &mut O) -> Result<bool> {
        if self.pace.waits(request) {
            self.settle(observer)?;
        }
        let arrival = self.pace.arrival(request, self.completed)?;
        let command = self.placed.command(request, arrival)?;
        if !self.bare {
            return self.push_on(&command, observer);
        }
        match self.device.submit(&command, &mut (&mut self.measure, &mut *observer))? {
            Some(done) => {
                self.completed = done.0;
                Ok(true)
            }
            None => Ok(self.device.stop().is_none()),
        }
    }

    /// The same to what stands between the workload and the device.
    #[inline(never)]
    fn push_on<O: Observer>(&mut self, command: &Command, observer: &mut O) -> Result<bool> {
        if self.host.is_some() {
            self.send_until(command.arrival.0, observer)?;
            if let Some(host) = &mut self.host {
                host.push(command);
            }
            return Ok(self.device.stop().is_none());
        }
        let mut told = (&mut self.measure, observer);
        if let Some(layers) = &mut self.layers {
            let checker = self.checker.as_deref_mut();
            let mut port = Port { device: &mut self.device, checker, observer: &mut told };
            layers.submit(command, &mut port)?;
            self.completed = layers.last_complete();
            return Ok(self.device.stop().is_none() && !layers.stopped());
        }
        if let Some(checker) = &mut self.checker {
            checker.expect(command);
            let done = self.device.submit(command, &mut (&mut **checker, &mut told))?;
            checker.verify_now_and_then(&self.device)?;
            self.completed = done.map_or(self.completed, |done| done.0);
        }
        Ok(self.device.stop().is_none())
    }

    /// Sends the commands that the host's driver fetches before `until`.
    fn send_until<O: Observer>(&mut self, until: i64, observer: &mut O) -> Result<()> {
        let Some(host) = &mut self.host else { return Ok(()) };
        let mut told = (&mut self.measure, &mut *observer);
        let checker = self.checker.as_deref_mut();
        let mut port = Port { device: &mut self.device, checker, observer: &mut told };
        while let Some(at) = host.ready_at().filter(|at| *at < until && !port.stopped()) {
            host.send(at, &mut port, |event| self.completed = event.complete)?;
            while let Some(event) = host.pop_complete() {
                port.observer.request_completed(&event);
            }
        }
        Ok(())
    }

    /// Lets the device dispatch all that waits; the predecessor's completion is known then.
    fn settle<O: Observer>(&mut self, observer: &mut O) -> Result<()> {
        if self.host.is_some() {
            return self.send_until(i64::MAX, observer);
        }
        if let Some(layers) = &mut self.layers {
            let mut told = (&mut self.measure, &mut *observer);
            let checker = self.checker.as_deref_mut();
            let mut port = Port { device: &mut self.device, checker, observer: &mut told };
            layers.settle(&mut port)?;
            self.completed = layers.last_complete();
            return Ok(());
        }
        self.completed = match &mut self.checker {
            Some(checker) => {
                self.device.settle(&mut (&mut self.measure, &mut (&mut **checker, &mut *observer))).0
            }
            None => self.device.settle(&mut (&mut self.measure, &mut *observer)).0,
        };
        Ok(())
    }

    /// The device is switched off in good order, so that all the host wrote is counted as programmed.
    fn power_off<O: Observer>(&mut self, observer: &mut O) {
        match &mut self.checker {
            Some(checker) => self.device.power_off(&mut (&mut **checker, &mut *observer)),
            None => self.device.power_off(observer),
        }
    }

    /// Ends the run and sums it up, with what the readers counted.
    ///
    /// # Errors
    /// For a broken invariant under `check`.
    pub fn finish<O: Observer>(
        mut self,
        ledger: Option<&Ledger>,
        observer: &mut O,
    ) -> Result<SimulationResult> {
        self.settle(observer)?;
        self.power_off(observer);
        if let Some(checker) = &mut self.checker {
            checker.verify(&self.device)?;
        }
        let mut result = SimulationResult::new(&self.config, &self.device, &self.measure, self.options.mode);
        result.host = self.host.map(|host| host.counts);
        if let Some(layers) = &self.layers {
            result.host = layers.host_counts();
            (result.layers, result.second_device) = layers.results();
            result.first_writes = layers.first_writes().to_vec();
            result.requests.bytes_read = self.measure.reads.bytes();
            result.requests.bytes_written = self.measure.writes.bytes();
        }
        result.ledger = ledger.cloned().unwrap_or_else(|| Ledger {
            seen: self.placed.kept,
            kept: self.placed.kept,
            ..Ledger::default()
        });
        result.ledger.folded += self.placed.folded;
        result.computed_in(self.started.elapsed());
        Ok(result)
    }

    /// Gives the device back, with all its data, as preconditioning does.
    pub fn into_device(self) -> Device {
        self.device
    }
}

/// Runs whole traces into a device.
///
/// # Errors
/// Where a trace cannot be read, and as [`forecheck`], [`Simulation::new`] and [`Simulation::feed`].
pub fn simulate<O: Observer>(
    config: &DeviceConfig,
    traces: &mut Combiner,
    options: &ReplayOptions,
    observer: &mut O,
) -> Result<SimulationResult> {
    forecheck(config, options, traces.inputs())?;
    let mut simulation = Simulation::new(config, options, None)?;
    while let Some(batch) = traces.next_batch()? {
        if !simulation.feed(&batch, observer)? {
            break;
        }
    }
    simulation.finish(Some(&traces.ledger()), observer)
}
