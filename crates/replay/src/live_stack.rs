//! A live stack: layers above one or two devices with contents, driven by requests with data.
//!
//! It uses the engine and the devices of a replay. Overlapping requests are executed one after another if one of them changes data, because
//! layers rely on this. After a power cut, devices keep programmed data, and layers recover from this data.

use std::collections::VecDeque;
use std::io;

use emmclab_device::{
    CommandFlags, Device, DeviceCommand, DeviceConfig, NullObserver, Observer, RequestCompleted, SettingChange, StopReason,
};
use emmclab_layers::{self as layers, ImmediateStack, Layer, LayerConfig, PassThrough};
use emmclab_media::{DeviceContents, RawImage};
use emmclab_trace::{BlockNote, Error, ErrorClass, Ledger, Nanos, Op, Result};

use crate::disk::{DeviceEventSink, DiskPair, SimulatedDisk};
use crate::options::ReplayOptions;
use crate::result::{LayerResult, SecondDevice, SimulationResult};
use crate::run_measurement::{RecordedTotals, RunMeasurement};
use crate::simulated_stack::{SimulatedStack, WorkloadCompletion, build_layers as build_stacked};

/// The initial state of a device of a live stack.
pub struct StackDevice<'a> {
    /// Settings of the device.
    pub config: &'a DeviceConfig,
    /// The device.
    pub device: Device,
    /// Contents of the device.
    pub image: RawImage,
}

/// A request that is complete.
#[derive(Debug)]
pub struct LiveCompletion {
    /// The number that [`LiveStack::submit`] returned.
    pub id: u64,
    /// The command as it was submitted.
    pub command: DeviceCommand,
    /// Times of the request.
    pub event: RequestCompleted,
    /// Data that the request read; empty for other operations.
    pub data: Vec<u8>,
    /// Whether data could not be read from an image.
    pub failed: bool,
}

/// A submitted request that is not complete.
#[derive(Debug)]
struct SubmittedRequest {
    id: u64,
    command: DeviceCommand,
    /// Number of the request in the engine; `None` if the request has not been passed to the engine yet. Passing it empties `notes` and
    /// `data`.
    engine_number: Option<u64>,
    notes: Vec<BlockNote>,
    data: Vec<u8>,
}

/// A stack of layers above one or two devices with stored data.
pub struct LiveStack {
    configs: Vec<LayerConfig>,
    simulated: SimulatedStack,
    main: SimulatedDisk,
    second: Option<SimulatedDisk>,
    /// Name of the second device.
    second_name: String,
    /// Time that the layers took to move deferred data to its final location; `None` unless this was requested.
    drained: Option<Nanos>,
    /// Time at which the layers have started or recovered. Requests that arrive earlier wait until then.
    ready_at: Nanos,
    /// Requests that are not complete, in the order of submission.
    submitted: VecDeque<SubmittedRequest>,
    next_id: u64,
    completed: Vec<WorkloadCompletion>,
}

impl LiveStack {
    /// Creates a stack of layers, from top to bottom, above devices at time 0. With `recover`, the layers restore their state from the
    /// contents of the devices.
    /// Errors: for unknown layers, invalid settings, a second device that no layer uses, and contents that cannot be read.
    pub fn new(
        layers: &[LayerConfig], main: StackDevice<'_>, second: Option<StackDevice<'_>>, (check, recover): (bool, bool),
    ) -> Result<Self> {
        let second_name = second.as_ref().map_or_else(String::new, |part| part.config.name().to_owned());
        let live = |part: StackDevice<'_>| SimulatedDisk::live(part.config.settings(), part.device, part.image, check);
        let (mut main, mut second) = (live(main), second.map(live));
        let layered = build_or_recover(layers, &mut main, second.as_mut(), recover)?;
        let mut stack = Self {
            configs: layers.to_vec(),
            simulated: layered,
            main,
            second,
            second_name,
            drained: None,
            ready_at: Nanos::MIN,
            submitted: VecDeque::new(),
            next_id: 0,
            completed: Vec::new(),
        };
        stack.start(Nanos::ZERO)?;
        Ok(stack)
    }

    fn start(&mut self, at: Nanos) -> Result<()> {
        let Self { simulated: layered, main, second, ready_at: ready, .. } = self;
        let mut disks = DiskPair { main, second: second.as_mut(), observer: &mut NullObserver };
        layered.start(at, &mut disks)?;
        *ready = layered.finish_start(&mut disks)?;
        Ok(())
    }

    /// Attaches `tap` to the events of the device at the bottom.
    pub fn tap(&mut self, tap: Box<dyn DeviceEventSink>) {
        self.main.tap(tap);
    }

    /// Attaches `tap` to the events of the second device, if the stack has one.
    pub fn tap_second(&mut self, tap: Box<dyn DeviceEventSink>) {
        if let Some(second) = &mut self.second {
            second.tap(tap);
        }
    }

    /// Number of sectors of the stack.
    pub fn capacity(&self) -> u64 {
        self.simulated.capacity()
    }

    /// The device at the bottom.
    pub fn device(&self) -> &Device {
        &self.main.device
    }

    /// Describes the zones of the device at the bottom for the layers above it.
    pub fn zones(&self) -> Option<layers::DiskZones> {
        self.main.below(None).zones
    }

    /// The contents of the device at the bottom.
    pub fn media(&self) -> Option<&DeviceContents> {
        self.main.media()
    }

    /// The second device.
    pub fn second(&self) -> Option<&Device> {
        self.second.as_ref().map(|disk| &disk.device)
    }

    /// The contents of the second device.
    pub fn second_media(&self) -> Option<&DeviceContents> {
        self.second.as_ref()?.media()
    }

    /// Whether there are no layers, so that sectors of the stack are sectors of the image.
    pub fn is_plain(&self) -> bool {
        self.configs.is_empty()
    }

    /// The reason for which a device has stopped; `None` if all are running.
    pub fn stop(&self) -> Option<StopReason> {
        self.main.stop().or_else(|| self.second.as_ref()?.stop())
    }

    /// Number of requests that are not complete.
    pub fn open(&self) -> usize {
        self.submitted.len()
    }

    /// The counts of the layers, from top to bottom.
    pub fn layers(&self) -> Vec<LayerResult> {
        if self.configs.is_empty() { Vec::new() } else { self.simulated.results() }
    }

    /// Returns the result of the run so far; `measure` contains the completed requests.
    pub fn result(&self, config: &DeviceConfig, measure: &RunMeasurement, options: &ReplayOptions) -> SimulationResult {
        let measured = (measure, &RecordedTotals::default());
        let mut result = SimulationResult::new(config, &self.main.device, measured, (options, options.mode), self.drained);
        let requests = measure.requests();
        result.ledger = Ledger { seen: requests, kept: requests, ..Ledger::default() };
        result.run.stopped = self.stop().map(|stop| stop.reason().to_owned());
        result.layers = self.layers();
        let second = self.second.as_ref();
        result.second_device = second.map(|disk| SecondDevice::new(self.second_name.clone(), &disk.device, disk.host_counts()));
        if !result.layers.is_empty() {
            result.requests.bytes_read = measure.reads.bytes();
            result.requests.bytes_written = measure.writes.bytes();
        }
        result
    }

    /// Returns the reason why a request is refused now; `None` if it is accepted. Without layers, a zoned device accepts a write or a reset
    /// only if its zones permit it, and only if no request for the same sectors is in progress.
    pub fn refusal(&self, command: &DeviceCommand) -> Option<Error> {
        if !self.is_plain() || command.op == Op::Read {
            return None;
        }
        let first = self.device().zones().next()?;
        let end = command.sector + u64::from(command.sectors);
        let overlaps = || self.submitted.iter().any(|taken| conflict(&taken.command, command));
        if end > first.start && overlaps() {
            let problem = "a write or a reset of a zone overlaps a request that is in progress";
            return Some(
                Error::new(ErrorClass::Value, problem)
                    .of_field("sector", 0, command.sector.to_string().as_bytes())
                    .hint("wait for earlier requests to a zone before writing or resetting it"),
            );
        }
        self.main.device.zone_refusal(command)
    }

    /// Number of the next request.
    pub fn next_request(&self) -> u64 {
        self.next_id
    }

    /// Whether the layer on top uses the notes about the roles of written blocks.
    pub fn reads_notes(&self) -> bool {
        self.simulated.reads_notes()
    }

    /// Submits a request at its arrival, which must not be before that of the previous request. Returns its number. `data` is the written
    /// data; `notes` describe the roles of the blocks and may be empty.
    /// Errors: for a request beyond the device, and for a broken invariant if there is a checker.
    pub fn submit<O: Observer>(
        &mut self, command: &DeviceCommand, notes: Vec<BlockNote>, data: Vec<u8>, observer: &mut O,
    ) -> Result<u64> {
        let id = self.next_id;
        self.next_id += 1;
        self.drained = None;
        self.submitted.push_back(SubmittedRequest { id, command: *command, engine_number: None, notes, data });
        self.begin(self.submitted.len() - 1, command.arrival, observer)?;
        Ok(id)
    }

    /// Passes a waiting request to the engine unless it overlaps an earlier request that is not complete.
    fn begin<O: Observer>(&mut self, index: usize, at: Nanos, observer: &mut O) -> Result<()> {
        let Self { simulated: layered, main, second, submitted: taken, .. } = self;
        let command = taken[index].command;
        if taken.iter().take(index).any(|earlier| conflict(&earlier.command, &command)) {
            return Ok(());
        }
        let SubmittedRequest { notes, data, .. } = &mut taken[index];
        let with = (std::mem::take(notes), std::mem::take(data));
        let command = DeviceCommand { arrival: command.arrival.max(at).max(self.ready_at), ..command };
        let mut disks = DiskPair { main, second: second.as_mut(), observer };
        taken[index].engine_number = Some(layered.submit_data(&command, with, &mut disks)?);
        layered.take_done(&mut self.completed);
        Ok(())
    }

    /// The time of the next event that may complete a request.
    pub fn next_event(&self) -> Option<Nanos> {
        let done = self.completed.iter().map(|done| done.event.complete).min();
        self.simulated.next_event(&self.main, self.second.as_ref()).into_iter().chain(done).min()
    }

    /// Simulates all events up to `until`.
    pub fn advance<O: Observer>(&mut self, until: Nanos, observer: &mut O) -> Result<()> {
        let Self { simulated: layered, main, second, .. } = self;
        layered.advance(until, &mut DiskPair { main, second: second.as_mut(), observer })
    }

    /// Simulates background work of the devices up to `until`: write-back, folding, idle collection. No request may arrive before `until`.
    pub fn pass<O: Observer>(&mut self, until: Nanos, observer: &mut O) -> Result<()> {
        self.advance(until, observer)?;
        self.main.pass(until, observer)?;
        self.second.as_mut().map_or(Ok(()), |second| second.pass(until, &mut NullObserver))
    }

    /// Collects the requests that are complete by `now`, and starts the requests that waited for them.
    pub fn take_answers<O: Observer>(&mut self, now: Nanos, observer: &mut O, answers: &mut Vec<LiveCompletion>) -> Result<()> {
        // A request that is started here may make further requests complete.
        while self.take_done(now, answers) {
            for index in 0..self.submitted.len() {
                if self.submitted[index].engine_number.is_none() {
                    self.begin(index, now, observer)?;
                }
            }
            self.advance(now, observer)?;
        }
        Ok(())
    }

    /// Appends the requests that are complete by `now`. Returns false if there are none. A request that arrives before the layers are ready
    /// is executed at once, but completes only after they are ready. Its completion may thus be later than `now`.
    fn take_done(&mut self, now: Nanos, answers: &mut Vec<LiveCompletion>) -> bool {
        self.simulated.take_done(&mut self.completed);
        let (taken, mut any) = (&mut self.submitted, false);
        for WorkloadCompletion { id, event, data, failed } in self.completed.extract_if(.., |done| done.event.complete <= now) {
            any = true;
            let place = taken.iter().position(|taken| taken.engine_number == Some(id));
            let Some(SubmittedRequest { id, command, .. }) = place.and_then(|place| taken.remove(place)) else {
                continue;
            };
            let data = if command.op == Op::Read { data } else { Vec::new() };
            let event = RequestCompleted { id, arrival: command.arrival, ..event };
            answers.push(LiveCompletion { id, command, event, data, failed });
        }
        any
    }

    /// Removes the requests that will never complete because a device has stopped. Returns their numbers.
    pub fn abandon(&mut self) -> Vec<u64> {
        self.submitted.drain(..).map(|taken| taken.id).collect()
    }

    /// Writes to the images the data that the devices have programmed up to `now`.
    pub fn land(&mut self, now: Nanos) -> io::Result<()> {
        self.main.land(now)?;
        self.second.as_mut().map_or(Ok(()), |second| second.land(now))
    }

    /// Resets the counts of devices and layers to 0. Contents, state and times do not change.
    pub fn clear_counters(&mut self) {
        self.drained = None;
        self.main.device.clear_counters();
        if let Some(second) = &mut self.second {
            second.device.clear_counters();
        }
        self.simulated.clear_counters();
    }

    /// Changes settings of the device at the bottom at time `at`. Returns the changed settings.
    pub fn reconfigure(&mut self, from: &DeviceConfig, to: &DeviceConfig, at: Nanos) -> Result<Vec<SettingChange>> {
        self.pass(at, &mut NullObserver)?;
        self.main.reconfigure(from, to, at)
    }

    /// Makes the layers move all deferred data to its final location. No request may be in progress. The result then contains the time that
    /// this took. Returns the time at which it ended; no request may arrive before that.
    pub fn drain<O: Observer>(&mut self, now: Nanos, observer: &mut O) -> Result<Nanos> {
        self.advance(now, observer)?;
        let mut disks = DiskPair { main: &mut self.main, second: self.second.as_mut(), observer };
        self.drained = Some(self.simulated.drain(&mut disks)?);
        Ok(self.simulated.last_known().max(now))
    }

    /// Cuts the power at `at` and restores it at once: requests in flight never complete, devices keep programmed data, and layers recover
    /// from it.
    /// Errors: if an image cannot be written, or a layer cannot recover.
    pub fn cut(&mut self, at: Nanos) -> Result<()> {
        self.pass(at, &mut NullObserver)?;
        self.submitted.clear();
        self.completed.clear();
        self.main.cut(at).map_err(|error| image_error(&self.main, error))?;
        if let Some(second) = &mut self.second {
            second.cut(at).map_err(|error| image_error(second, error))?;
        }
        self.simulated = build_or_recover(&self.configs, &mut self.main, self.second.as_mut(), true)?;
        self.start(at)
    }

    /// Shuts down cleanly at `now`, when no request is in progress: a flush makes the state of the layers durable, then the devices program
    /// the contents of their buffers.
    /// Errors: for a broken invariant if there is a checker, and if an image cannot be written.
    pub fn power_off<O: Observer>(&mut self, now: Nanos, observer: &mut O) -> Result<()> {
        self.pass(now, observer)?;
        let mut disks = DiskPair { main: &mut self.main, second: self.second.as_mut(), observer: &mut NullObserver };
        self.simulated.submit_data(&DeviceCommand::new(now, Op::Flush, 0, 0), (Vec::new(), Vec::new()), &mut disks)?;
        self.simulated.settle(&mut disks)?;
        self.simulated.take_done(&mut self.completed);
        self.completed.clear();
        self.main.power_off(observer)?;
        if let Some(second) = &mut self.second {
            second.power_off(&mut NullObserver)?;
            second.verify()?;
        }
        self.main.verify()?;
        self.land(Nanos::MAX).map_err(|error| image_error(&self.main, error))
    }
}

/// Whether two requests overlap and one of them changes data, so that they must not be in flight at the same time.
fn conflict(first: &DeviceCommand, other: &DeviceCommand) -> bool {
    let end = |command: &DeviceCommand| command.sector + u64::from(command.sectors);
    let changes = |command: &DeviceCommand| command.op != Op::Read;
    first.sector < end(other) && other.sector < end(first) && (changes(first) || changes(other))
}

fn image_error(disk: &SimulatedDisk, error: io::Error) -> Error {
    let path = disk.media().and_then(|media| media.image().path().map(ToOwned::to_owned));
    Error::io(&path.unwrap_or_else(std::env::temp_dir), error)
}

/// Creates layers above disks. With `recover`, restores their state from the contents of the disks.
fn build_or_recover(
    configs: &[LayerConfig], main: &mut SimulatedDisk, second: Option<&mut SimulatedDisk>, recover: bool,
) -> Result<SimulatedStack> {
    let below = main.below(second.as_deref());
    let next = |disk: &SimulatedDisk| disk.device.next_command();
    let commands = [next(main), second.as_deref().map_or(0, next)];
    let mut all: Vec<Box<dyn Layer>> = build_stacked(configs, &below)?;
    if all.is_empty() {
        all.push(Box::new(PassThrough::new(below.main)));
    }
    if !recover || configs.is_empty() {
        return Ok(SimulatedStack::live(all, 1, commands));
    }
    let disks = [Some(main), second].into_iter().flatten().map(|disk| RecoveryDisk { disk }).collect();
    let (all, next_id) = ImmediateStack::recover(all, disks).map_err(|error| {
        Error::new(ErrorClass::Config, format!("the layers cannot be restored from the image: {error}"))
            .hint("serve the image with the layers and settings with which it was created")
    })?;
    Ok(SimulatedStack::live(all, next_id, commands))
}

/// The contents of a disk, for the recovery of layers.
struct RecoveryDisk<'a> {
    disk: &'a mut SimulatedDisk,
}

impl layers::SectorDisk for RecoveryDisk<'_> {
    fn read(&mut self, sector: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.disk.read(sector, buffer)
    }

    fn write(&mut self, _: u64, _: &[u8], _: CommandFlags) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn discard(&mut self, _: u64, _: u32, _: bool) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn write_pointer(&mut self, sector: u64) -> io::Result<Option<u64>> {
        let device = &self.disk.device;
        Ok(device.zones().find(|zone| zone.start == sector).map(|zone| zone.write_pointer))
    }
}
