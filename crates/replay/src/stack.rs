//! A live stack: layers above one or two devices with contents, driven by requests that have data.
//!
//! It uses the same engine and the same devices as a replay. Overlapping requests are executed one after another if one of them
//! changes data, because layers rely on this. Power can be cut: devices keep what was programmed, and layers recover from it.

use std::collections::VecDeque;
use std::io;

use emmclab_device::{
    Command, Device, DeviceConfig, Modifiers, Observer, Quiet, RequestCompleted, SettingChange, Stop,
};
use emmclab_layers::{self as layers, Executor, Layer, LayerConfig, PassThrough};
use emmclab_media::{Image, Media};
use emmclab_trace::{BlockNote, Error, Kind, Ledger, Nanos, Op, Result};

use crate::disk::Disk;
use crate::disks::Disks;
use crate::layered::{Done, Layered, stacked as build_stacked};
use crate::measure::Measure;
use crate::options::ReplayOptions;
use crate::recorded::Recorded;
use crate::result::{LayerResult, SecondDevice, SimulationResult};
use crate::tap::Tap;

/// A device of a live stack, in its initial state.
pub struct Part<'a> {
    /// Its settings.
    pub config: &'a DeviceConfig,
    /// The device.
    pub device: Device,
    /// Its contents.
    pub image: Image,
}

/// A request that is complete.
#[derive(Debug)]
pub struct Answer {
    /// The number that [`Stack::submit`] returned.
    pub id: u64,
    /// The command, as submitted.
    pub command: Command,
    /// Its times.
    pub event: RequestCompleted,
    /// The data of a read.
    pub data: Vec<u8>,
    /// Whether data could not be read from an image.
    pub failed: bool,
}

/// A submitted request that is not complete.
#[derive(Debug)]
struct Taken {
    id: u64,
    command: Command,
    /// Its number in the engine, once it has been passed there; `notes` and `data` are empty from then on.
    begun: Option<u64>,
    notes: Vec<BlockNote>,
    data: Vec<u8>,
}

/// Layers above devices, with data.
pub struct Stack {
    configs: Vec<LayerConfig>,
    layered: Layered,
    main: Disk,
    second: Option<Disk>,
    /// Name of the second device.
    second_name: String,
    /// Time that the layers needed to move deferred data to its place, if this was requested.
    drained: Option<Nanos>,
    /// When the layers had started or recovered; requests that arrive earlier wait until then.
    ready: Nanos,
    /// Requests in the order of submission.
    taken: VecDeque<Taken>,
    next_id: u64,
    done: Vec<Done>,
}

impl Stack {
    /// Creates a stack of layers, the first on top, above devices at time 0. With `recover`, the layers have run on these contents before.
    ///
    /// # Errors
    /// For unknown layers, invalid settings, a second device that no layer uses, and contents that cannot be read.
    pub fn new(
        layers: &[LayerConfig],
        main: Part<'_>,
        second: Option<Part<'_>>,
        (check, recover): (bool, bool),
    ) -> Result<Self> {
        let second_name = second.as_ref().map_or_else(String::new, |part| part.config.name().to_owned());
        let live = |part: Part<'_>| Disk::live(part.config.settings(), part.device, part.image, check);
        let (mut main, mut second) = (live(main), second.map(live));
        let layered = stacked(layers, &mut main, second.as_mut(), recover)?;
        let mut stack = Self {
            configs: layers.to_vec(),
            layered,
            main,
            second,
            second_name,
            drained: None,
            ready: Nanos::MIN,
            taken: VecDeque::new(),
            next_id: 0,
            done: Vec::new(),
        };
        stack.start(Nanos::ZERO)?;
        Ok(stack)
    }

    fn start(&mut self, at: Nanos) -> Result<()> {
        let Self { layered, main, second, ready, .. } = self;
        let mut disks = Disks { main, second: second.as_mut(), observer: &mut Quiet };
        layered.start(at, &mut disks)?;
        *ready = layered.finish_start(&mut disks)?;
        Ok(())
    }

    /// Attaches `tap` to the events of the device at the bottom.
    pub fn tap(&mut self, tap: Box<dyn Tap>) {
        self.main.tap(tap);
    }

    /// Attaches `tap` to the events of the second device, if there is one.
    pub fn tap_second(&mut self, tap: Box<dyn Tap>) {
        if let Some(second) = &mut self.second {
            second.tap(tap);
        }
    }

    /// Number of sectors of the stack.
    pub fn capacity(&self) -> u64 {
        self.layered.capacity()
    }

    /// The device at the bottom.
    pub fn device(&self) -> &Device {
        self.main.device()
    }

    /// Its zones, described for the layers above it.
    pub fn zones(&self) -> Option<layers::Zones> {
        self.main.below(None).zones
    }

    /// The contents of the device at the bottom.
    pub fn media(&self) -> Option<&Media> {
        self.main.media()
    }

    /// The second device.
    pub fn second(&self) -> Option<&Device> {
        self.second.as_ref().map(Disk::device)
    }

    /// The contents of the second device.
    pub fn second_media(&self) -> Option<&Media> {
        self.second.as_ref()?.media()
    }

    /// Whether there are no layers, so that sectors of the stack are sectors of the image.
    pub fn is_plain(&self) -> bool {
        self.configs.is_empty()
    }

    /// The reason why a device has stopped, if it has.
    pub fn stop(&self) -> Option<Stop> {
        self.main.stop().or_else(|| self.second.as_ref()?.stop())
    }

    /// Number of requests that are not complete.
    pub fn open(&self) -> usize {
        self.taken.len()
    }

    /// The counts of the layers, the first on top.
    pub fn layers(&self) -> Vec<LayerResult> {
        if self.configs.is_empty() { Vec::new() } else { self.layered.results() }
    }

    /// Returns the result of the run so far, with the completions that `measure` has collected.
    pub fn result(
        &self,
        config: &DeviceConfig,
        measure: &Measure,
        options: &ReplayOptions,
    ) -> SimulationResult {
        let measured = (measure, &Recorded::default());
        let mut result = SimulationResult::new(
            config,
            self.main.device(),
            measured,
            (options, options.mode),
            self.drained,
        );
        let requests = measure.requests();
        result.ledger = Ledger { seen: requests, kept: requests, ..Ledger::default() };
        result.run.stopped = self.stop().map(|stop| stop.reason().to_owned());
        result.layers = self.layers();
        let second = self.second.as_ref();
        result.second_device =
            second.map(|disk| SecondDevice::new(self.second_name.clone(), disk.device(), disk.host_counts()));
        if !result.layers.is_empty() {
            result.requests.bytes_read = measure.reads.bytes();
            result.requests.bytes_written = measure.writes.bytes();
        }
        result
    }

    /// The reason why a request is refused now; `None` if it is not. Without layers, a zoned device accepts a write or a reset only as its
    /// zones allow, and not for the sectors of a request in progress.
    pub fn refusal(&self, command: &Command) -> Option<Error> {
        if !self.is_plain() || command.op == Op::Read {
            return None;
        }
        let first = self.device().zones().next()?;
        let end = command.sector + u64::from(command.sectors);
        let overlaps = || self.taken.iter().any(|taken| conflict(&taken.command, command));
        if end > first.start && overlaps() {
            let problem =
                "a zone is written or reset while an earlier request to the same sectors is in progress";
            return Some(
                Error::new(Kind::Value, problem)
                    .of_field("sector", 0, command.sector.to_string().as_bytes())
                    .hint("wait for the requests to a zone before it is written again or reset"),
            );
        }
        self.main.device().zone_refusal(command)
    }

    /// Number that the next request gets.
    pub fn next_request(&self) -> u64 {
        self.next_id
    }

    /// Whether the layer on top uses block notes of writes.
    pub fn reads_notes(&self) -> bool {
        self.layered.reads_notes()
    }

    /// Submits a request at its arrival, which is not before that of the previous request; returns its number. `data` is the written
    /// data, and `notes` are the block notes, or empty.
    ///
    /// # Errors
    /// For a request beyond the device, and for a broken invariant if there is a checker.
    pub fn submit<O: Observer>(
        &mut self,
        command: &Command,
        notes: Vec<BlockNote>,
        data: Vec<u8>,
        observer: &mut O,
    ) -> Result<u64> {
        let id = self.next_id;
        self.next_id += 1;
        self.drained = None;
        self.taken.push_back(Taken { id, command: *command, begun: None, notes, data });
        self.begin(self.taken.len() - 1, command.arrival, observer)?;
        Ok(id)
    }

    /// Passes a waiting request to the engine, unless an earlier one overlaps it.
    fn begin<O: Observer>(&mut self, index: usize, at: Nanos, observer: &mut O) -> Result<()> {
        let Self { layered, main, second, taken, .. } = self;
        let command = taken[index].command;
        if taken.iter().take(index).any(|earlier| conflict(&earlier.command, &command)) {
            return Ok(());
        }
        let Taken { notes, data, .. } = &mut taken[index];
        let with = (std::mem::take(notes), std::mem::take(data));
        let command = Command { arrival: command.arrival.max(at).max(self.ready), ..command };
        let mut disks = Disks { main, second: second.as_mut(), observer };
        taken[index].begun = Some(layered.submit_data(&command, with, &mut disks)?);
        layered.take_done(&mut self.done);
        Ok(())
    }

    /// The time of the next event that may complete a request.
    pub fn next_event(&self) -> Option<Nanos> {
        let done = self.done.iter().map(|done| done.event.complete).min();
        self.layered.next_event(&self.main, self.second.as_ref()).into_iter().chain(done).min()
    }

    /// Simulates everything up to `until`.
    ///
    /// # Errors
    /// As [`Stack::submit`].
    pub fn advance<O: Observer>(&mut self, until: Nanos, observer: &mut O) -> Result<()> {
        let Self { layered, main, second, .. } = self;
        layered.advance(until, &mut Disks { main, second: second.as_mut(), observer })
    }

    /// Simulates the devices' own work up to `until`: write-back, folding, idle collection. No request may arrive before.
    ///
    /// # Errors
    /// As [`Stack::submit`].
    pub fn pass<O: Observer>(&mut self, until: Nanos, observer: &mut O) -> Result<()> {
        self.advance(until, observer)?;
        self.main.pass(until, observer)?;
        self.second.as_mut().map_or(Ok(()), |second| second.pass(until, &mut Quiet))
    }

    /// Collects the requests that are complete by now, and starts those that waited for them.
    ///
    /// # Errors
    /// As [`Stack::submit`].
    pub fn take_answers<O: Observer>(
        &mut self,
        now: Nanos,
        observer: &mut O,
        answers: &mut Vec<Answer>,
    ) -> Result<()> {
        // The start of requests can make further requests complete.
        while self.take_done(now, answers) {
            for index in 0..self.taken.len() {
                if self.taken[index].begun.is_none() {
                    self.begin(index, now, observer)?;
                }
            }
            self.advance(now, observer)?;
        }
        Ok(())
    }

    /// Appends the requests that are complete by `now`; returns false if there are none. A known completion can be later: the engine
    /// processes a request that arrived before the layers were ready at once, with the time at which they are.
    fn take_done(&mut self, now: Nanos, answers: &mut Vec<Answer>) -> bool {
        self.layered.take_done(&mut self.done);
        let (taken, mut any) = (&mut self.taken, false);
        for Done { id, event, data, failed } in self.done.extract_if(.., |done| done.event.complete <= now) {
            any = true;
            let place = taken.iter().position(|taken| taken.begun == Some(id));
            let Some(Taken { id, command, .. }) = place.and_then(|place| taken.remove(place)) else {
                continue;
            };
            let data = if command.op == Op::Read { data } else { Vec::new() };
            let event = RequestCompleted { id, arrival: command.arrival, ..event };
            answers.push(Answer { id, command, event, data, failed });
        }
        any
    }

    /// Removes the requests that will never complete because a device has stopped, and returns their numbers.
    pub fn abandon(&mut self) -> Vec<u64> {
        self.taken.drain(..).map(|taken| taken.id).collect()
    }

    /// Writes data that is programmed by `now` to the images.
    ///
    /// # Errors
    /// As [`Media::land`].
    pub fn land(&mut self, now: Nanos) -> io::Result<()> {
        self.main.land(now)?;
        self.second.as_mut().map_or(Ok(()), |second| second.land(now))
    }

    /// Resets the counts of devices and layers to 0; contents, state and times stay.
    pub fn clear_counters(&mut self) {
        self.drained = None;
        self.main.device_mut().clear_counters();
        if let Some(second) = &mut self.second {
            second.device_mut().clear_counters();
        }
        self.layered.clear_counters();
    }

    /// Changes settings of the device at the bottom at time `at`; returns the settings that changed.
    ///
    /// # Errors
    /// As [`Device::reconfigure`], and as [`Stack::submit`].
    pub fn reconfigure(
        &mut self,
        from: &DeviceConfig,
        to: &DeviceConfig,
        at: Nanos,
    ) -> Result<Vec<SettingChange>> {
        self.pass(at, &mut Quiet)?;
        self.main.reconfigure(from, to, at)
    }

    /// Makes the layers move all deferred data to its place; no request may be open. The result then contains the time that this took.
    /// Returns the time of its end: no request may arrive before that.
    ///
    /// # Errors
    /// As [`Stack::submit`].
    pub fn drain<O: Observer>(&mut self, now: Nanos, observer: &mut O) -> Result<Nanos> {
        self.advance(now, observer)?;
        let mut disks = Disks { main: &mut self.main, second: self.second.as_mut(), observer };
        self.drained = Some(self.layered.drain(&mut disks)?);
        Ok(self.layered.last_known().max(now))
    }

    /// Cuts the power at `at` and restores it at once: requests in flight never complete, devices keep what was programmed, and the
    /// layers recover from it.
    ///
    /// # Errors
    /// If an image cannot be written, or a layer cannot recover.
    pub fn cut(&mut self, at: Nanos) -> Result<()> {
        self.pass(at, &mut Quiet)?;
        self.taken.clear();
        self.done.clear();
        self.main.cut(at).map_err(|error| image_error(&self.main, error))?;
        if let Some(second) = &mut self.second {
            second.cut(at).map_err(|error| image_error(second, error))?;
        }
        self.layered = stacked(&self.configs, &mut self.main, self.second.as_mut(), true)?;
        self.start(at)
    }

    /// Shuts down cleanly at `now`, once no request is open: a flush makes the state of the layers durable, then the devices program
    /// the contents of their buffers.
    ///
    /// # Errors
    /// For a broken invariant if there is a checker, and if an image cannot be written.
    pub fn power_off<O: Observer>(&mut self, now: Nanos, observer: &mut O) -> Result<()> {
        self.pass(now, observer)?;
        let mut disks = Disks { main: &mut self.main, second: self.second.as_mut(), observer: &mut Quiet };
        self.layered.submit_data(
            &Command::new(now, Op::Flush, 0, 0),
            (Vec::new(), Vec::new()),
            &mut disks,
        )?;
        self.layered.settle(&mut disks)?;
        self.layered.take_done(&mut self.done);
        self.done.clear();
        self.main.power_off(observer)?;
        if let Some(second) = &mut self.second {
            second.power_off(&mut Quiet)?;
            second.verify()?;
        }
        self.main.verify()?;
        self.land(Nanos::MAX).map_err(|error| image_error(&self.main, error))
    }
}

/// Whether two requests must not be in flight at the same time.
fn conflict(one: &Command, other: &Command) -> bool {
    let end = |command: &Command| command.sector + u64::from(command.sectors);
    let changes = |command: &Command| command.op != Op::Read;
    one.sector < end(other) && other.sector < end(one) && (changes(one) || changes(other))
}

fn image_error(disk: &Disk, error: io::Error) -> Error {
    let path = disk.media().and_then(|media| media.image().path().map(ToOwned::to_owned));
    Error::io(&path.unwrap_or_else(std::env::temp_dir), error)
}

/// Creates layers above disks, restored from the disks if `recover`.
fn stacked(
    configs: &[LayerConfig],
    main: &mut Disk,
    second: Option<&mut Disk>,
    recover: bool,
) -> Result<Layered> {
    let below = main.below(second.as_deref());
    let next = |disk: &Disk| disk.device().next_command();
    let commands = [next(main), second.as_deref().map_or(0, next)];
    let mut all: Vec<Box<dyn Layer>> = build_stacked(configs, &below)?;
    if all.is_empty() {
        all.push(Box::new(PassThrough::new(below.main)));
    }
    if !recover || configs.is_empty() {
        return Ok(Layered::live(all, 1, commands));
    }
    let disks = [Some(main), second].into_iter().flatten().map(|disk| Contents { disk }).collect();
    let (all, next_id) = Executor::recover(all, disks).map_err(|error| {
        Error::new(Kind::Config, format!("the layers cannot be restored from the image: {error}"))
            .hint("serve it with the layers and settings that it was made with")
    })?;
    Ok(Layered::live(all, next_id, commands))
}

/// The contents of a disk, for layers that recover.
struct Contents<'a> {
    disk: &'a mut Disk,
}

impl layers::Disk for Contents<'_> {
    fn read(&mut self, sector: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.disk.read(sector, buffer)
    }

    fn write(&mut self, _: u64, _: &[u8], _: Modifiers) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn discard(&mut self, _: u64, _: u32, _: bool) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn write_pointer(&mut self, sector: u64) -> io::Result<Option<u64>> {
        let device = self.disk.device();
        Ok(device.zones().find(|zone| zone.start == sector).map(|zone| zone.write_pointer))
    }
}
