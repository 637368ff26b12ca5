//! The state of a live device: stack, clock, requests in progress and statistics. One thread at a time uses it. This module also implements
//! power cuts, changes of settings, results and shutdown.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use emmclab_base::{DeviceHealth, Error, ErrorClass, Nanos, Op, Result};
use emmclab_device::{BlockState, Device, DeviceCommand, DeviceConfig, NullObserver, Observer, SettingChange, StopReason};
use emmclab_layers::LayerConfig;
use emmclab_replay::{LiveCompletion, LiveStack, ReplayMode, ReplayOptions, RunMeasurement, SimulationResult};
use emmclab_serve::{BlockDeviceLimits, CompletionReceiver, RequestFailure, ServedCompletion, ServedRequest};
use rustc_hash::FxHashMap;

use crate::clock::{ClockPace, LiveClock};
use crate::log::{RunLog, WorkloadLines};
use crate::request::{PendingLiveRequest, StackCommand};
use crate::status::{LiveStatus, LiveStatusTotals, RefusalsByRule};
use crate::trace_recording::{LiveAnnotator, LiveRecording};

/// Completions by receiver; they are delivered after the lock is released.
pub(crate) type Deliveries = Vec<(Arc<dyn CompletionReceiver>, Vec<ServedCompletion>)>;

pub(crate) struct LiveCore {
    pub config: DeviceConfig,
    pub second: Option<DeviceConfig>,
    /// Settings that were changed since the start.
    pub changes: Vec<SettingChange>,
    pub layers: Vec<LayerConfig>,
    pub stack: LiveStack,
    pub clock: LiveClock,
    pub limits: BlockDeviceLimits,
    /// Requests in progress, by number.
    pending: FxHashMap<u64, PendingLiveRequest>,
    /// For each command in the stack, the number of the request to which it belongs.
    owners: FxHashMap<u64, u64>,
    next: u64,
    measure: RunMeasurement,
    sums: LiveStatusTotals,
    pub recording: Option<LiveRecording>,
    /// Whether the recorded trace has been written to its file.
    pub is_recorded: bool,
    /// Number of accepted requests that changed data.
    pub changing_requests: u64,
    log: Option<RunLog>,
    /// The lines that the workload prints, which are added to the command log.
    lines: Option<WorkloadLines>,
    /// Classifies written blocks by their role in the file system, if a layer or a recording needs the roles.
    naming: Option<LiveAnnotator>,
    /// The reason why the image cannot be written at present; `None` if it can be written.
    image_error: Option<io::Error>,
    refusals: RefusalsByRule,
    /// The error that ended the service: a violated invariant, or a recording that cannot be written.
    pub broken: Option<Error>,
    /// Whether an error has ended the service. It stays true after the error was reported.
    ended: bool,
    powered: bool,
    deliveries: Deliveries,
    /// Buffer for the commands of a request, which is reused to avoid allocations.
    parts: Vec<StackCommand>,
    /// Buffer for completions, which is reused to avoid allocations.
    answers: Vec<LiveCompletion>,
}

impl LiveCore {
    pub fn new(
        (config, second): (&DeviceConfig, Option<&DeviceConfig>), layers: &[LayerConfig], stack: LiveStack, clock: LiveClock,
        (recording, log): (Option<LiveRecording>, Option<RunLog>),
    ) -> Result<Self> {
        let naming = (stack.reads_notes() || recording.is_some()).then(|| LiveAnnotator::of(&stack, layers));
        let measure = RunMeasurement::starting_at(stack.next_request());
        let geometry = stack.device().geometry();
        let limits = BlockDeviceLimits {
            sectors: stack.capacity(),
            preferred_sectors: geometry.unit_sectors,
            max_sectors: 1 << 16,
            discard_sectors: geometry.unit_sectors,
            write_cache: !stack.device().promises_on_completion() || !layers.is_empty(),
        };
        Ok(Self {
            config: config.clone(),
            second: second.cloned(),
            changes: Vec::new(),
            layers: layers.to_vec(),
            stack,
            clock,
            limits,
            pending: FxHashMap::default(),
            owners: FxHashMap::default(),
            next: 0,
            measure,
            sums: LiveStatusTotals::new()?,
            recording,
            is_recorded: false,
            changing_requests: 0,
            log,
            lines: None,
            naming,
            image_error: None,
            refusals: RefusalsByRule::default(),
            broken: None,
            ended: false,
            powered: true,
            deliveries: Vec::new(),
            parts: Vec::new(),
            answers: Vec::new(),
        })
    }

    /// Accepts requests, which arrive at the current time.
    pub fn take(&mut self, requests: &mut Vec<ServedRequest>, to: &Arc<dyn CompletionReceiver>) {
        let now = self.clock.now();
        self.log_lines();
        if self.image_error.is_some() {
            // A write to the image has failed. It is repeated now, because the file system of the image may have free space again.
            self.image_error = self.stack.land(now).err();
        }
        for request in requests.drain(..) {
            let (tag, changes) = (request.tag, request.action != emmclab_serve::BlockAction::Read);
            let refused = self.refusal(changes).map_or(Ok(()), Err);
            self.changing_requests += u64::from(changes && refused.is_ok());
            // A write of zeros may use discards, except on a zoned device, which would reject a discard of a part of a zone.
            let by_discard = self.stack.is_plain() && self.stack.device().zones().next().is_none();
            let taken = refused.and_then(|()| PendingLiveRequest::new(request, &self.limits, by_discard, to, &mut self.parts));
            match taken {
                Ok(pending) => {
                    let number = self.next;
                    self.next += 1;
                    self.pending.insert(number, pending);
                    self.send_parts(number, now);
                }
                Err(failure) => {
                    self.sums.counts.failed += 1;
                    self.deliver(to.clone(), ServedCompletion { tag, outcome: Err(failure) });
                }
            }
        }
        self.go_on();
    }

    /// The failure with which a request must be rejected now; `None` if it is accepted. `changes` is true for requests that change data.
    fn refusal(&self, changes: bool) -> Option<RequestFailure> {
        if !self.powered || self.ended {
            return Some(RequestFailure::Io);
        }
        if let Some(stop) = self.stack.stop() {
            return Some(if stop == StopReason::Full && changes { RequestFailure::NoSpace } else { RequestFailure::Io });
        }
        self.image_error.as_ref().filter(|_| changes).map(failure_of)
    }

    /// Sends the commands in `parts`, which belong to request `number`, to the stack.
    fn send_parts(&mut self, number: u64, now: Nanos) {
        let mut parts = std::mem::take(&mut self.parts);
        for StackCommand { op, sector, sectors, modifiers, data } in parts.drain(..) {
            let command = DeviceCommand { modifiers, ..DeviceCommand::new(now, op, sector, sectors) };
            if let Some(pending) = self.pending.get_mut(&number) {
                pending.open += 1;
            }
            if let Some(error) = self.stack.refusal(&command) {
                self.refusals.count(&error, sector);
                if let Some(pending) = self.pending.get_mut(&number) {
                    pending.complete(Err(RequestFailure::Io));
                }
                continue;
            }
            if let Some(log) = &self.log {
                log.arrives(self.stack.next_request(), &command, &data);
            }
            let notes = self.naming.as_mut().map_or_else(Vec::new, |naming| naming.notes(&command, &data));
            if let Some(recording) = &mut self.recording {
                recording.set_notes(self.stack.next_request(), &notes);
            }
            let sent = self.stack.submit(&command, notes, data, &mut NullObserver);
            match sent {
                Ok(id) => {
                    self.owners.insert(id, number);
                }
                Err(error) => {
                    self.fail(error);
                    if let Some(pending) = self.pending.get_mut(&number) {
                        pending.complete(Err(RequestFailure::Io));
                    }
                }
            }
        }
        self.parts = parts;
        self.finish(number);
    }

    /// Advances the stack to the current time. On a free clock ([`ClockPace::Free`]), continues until no command is in progress.
    pub fn go_on(&mut self) {
        let mut now = self.clock.now();
        loop {
            if self.clock.pace() == ClockPace::Free {
                if self.stack.open() == 0 {
                    break;
                }
                now = self.stack.next_event().map_or(now, |at| at.max(now));
            }
            let open = self.stack.open();
            self.advance(now);
            if self.stack.stop().is_some() || self.ended {
                self.abandon();
                break;
            }
            if self.clock.pace() != ClockPace::Free {
                break;
            }
            if self.stack.next_event().is_none() && self.stack.open() == open {
                self.fail(
                    Error::new(ErrorClass::Config, "a layer defers requests but has no work to do")
                        .hint("report this defect of the layer with the settings and the trace"),
                );
                self.abandon();
                break;
            }
        }
    }

    /// Simulates until `now` and completes requests whose completion time has come.
    fn advance(&mut self, now: Nanos) {
        let mut answers = std::mem::take(&mut self.answers);
        loop {
            let done = self
                .stack
                .advance(now, &mut NullObserver)
                .and_then(|()| self.stack.take_answers(now, &mut NullObserver, &mut answers));
            if let Err(error) = done {
                self.fail(error);
            }
            if answers.is_empty() {
                break;
            }
            // Data that is programmed by now must be in the image before its request is acknowledged.
            self.image_error = self.stack.land(now).err();
            for answer in answers.drain(..) {
                self.handle_answer(answer, now);
            }
        }
        self.answers = answers;
    }

    fn handle_answer(&mut self, answer: LiveCompletion, now: Nanos) {
        self.measure.request_completed(&answer.event);
        self.sums.add(&answer.event);
        self.clock.advance_free(answer.event.complete);
        if let Some(due) = self.clock.host(answer.event.complete) {
            let late = Instant::now().saturating_duration_since(due);
            self.sums.lateness.saturating_record((late.as_nanos() as u64).max(1));
        }
        // The completion of a failed request promises nothing, so it is not logged.
        if let Some(log) = self.log.as_ref().filter(|_| !answer.failed) {
            log.completes(answer.id, answer.event.complete);
        }
        if let Some(recording) = &mut self.recording
            && let Err(error) = recording.add(&answer)
        {
            self.fail(error);
        }
        let Some(number) = self.owners.remove(&answer.id) else { return };
        let Some(pending) = self.pending.get_mut(&number) else { return };
        let promises = answer.command.op == Op::Flush || answer.command.modifiers.durable();
        pending.complete(match &self.image_error {
            _ if answer.failed => Err(RequestFailure::Io),
            Some(error) if promises => Err(failure_of(error)),
            _ => Ok(answer.data),
        });
        pending.go_on(&mut self.parts);
        if self.parts.is_empty() {
            self.finish(number);
        } else {
            self.send_parts(number, now.max(answer.event.complete));
        }
    }

    /// Completes a request if all of its commands are complete.
    fn finish(&mut self, number: u64) {
        if self.pending.get(&number).is_some_and(PendingLiveRequest::is_over)
            && let Some(pending) = self.pending.remove(&number)
        {
            let (to, completion) = pending.into_completion();
            self.sums.counts.failed += u64::from(completion.outcome.is_err());
            self.deliver(to, completion);
        }
    }

    fn deliver(&mut self, to: Arc<dyn CompletionReceiver>, completion: ServedCompletion) {
        match self.deliveries.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &to)) {
            Some((_, completed)) => completed.push(completion),
            None => self.deliveries.push((to, vec![completion])),
        }
    }

    /// Fails all requests in progress, because they will never be completed.
    fn abandon(&mut self) {
        for id in self.stack.abandon() {
            if let Some(recording) = &mut self.recording
                && let Err(error) = recording.lost(id)
            {
                self.ended = true;
                self.broken.get_or_insert(error);
            }
        }
        self.owners.clear();
        let failure = match self.stack.stop() {
            Some(StopReason::Full) => RequestFailure::NoSpace,
            _ => RequestFailure::Io,
        };
        let mut numbers: Vec<_> = self.pending.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            if let Some(pending) = self.pending.remove(&number) {
                let (to, completion) = pending.into_completion();
                self.sums.counts.failed += 1;
                self.deliver(to, ServedCompletion { outcome: Err(failure), ..completion });
            }
        }
    }

    fn fail(&mut self, error: Error) {
        self.ended = true;
        self.broken.get_or_insert(error);
    }

    /// Removes and returns the completions to deliver.
    pub fn take_deliveries(&mut self) -> Deliveries {
        std::mem::take(&mut self.deliveries)
    }

    /// Host time at which the stack must be advanced next; `None` if no command is in progress or the clock is free ([`ClockPace::Free`]).
    pub fn next_due(&self) -> Option<Instant> {
        self.clock.host(self.stack.next_event()?)
    }

    /// Makes the device do background work until now: write-back, SLC folding, garbage collection in idle time.
    pub fn idle(&mut self) {
        if !self.powered || self.ended || self.stack.stop().is_some() {
            return;
        }
        let now = self.clock.now();
        if let Err(error) = self.stack.pass(now, &mut NullObserver) {
            self.fail(error);
        }
        self.image_error = self.stack.land(now).err();
    }

    /// The current status, with figures for the interval since the last call.
    pub fn status(&mut self) -> LiveStatus {
        let now = self.clock.now();
        let figures = self.sums.take_interval(now);
        let (device, counters) = (self.stack.device(), self.stack.device().counters());
        let free = device.blocks().filter(|block| block.state == BlockState::Free).count() as u64;
        let written = counters.host_bytes_written;
        let media = [self.stack.media(), self.stack.second_media()];
        LiveStatus {
            clock: self.clock.pace().to_string(),
            powered: self.powered,
            open: self.pending.len(),
            volatile_bytes: media.into_iter().flatten().map(emmclab_media::DeviceContents::volatile_bytes).sum(),
            setting_changes: self.changes.clone(),
            waf: (written > 0).then(|| counters.waf()),
            free_blocks: free,
            collections: counters.gc_count,
            erases: counters.block_erases(),
            wake_ups: counters.wake_ups,
            stopped: self.stack.stop().map(|stop| stop.reason().to_owned()),
            image_error: self.image_error.as_ref().map(ToString::to_string),
            refused: self.refusals.by_rule(),
            file_system: self.naming.as_ref().map(LiveAnnotator::status),
            ..figures
        }
    }

    /// Returns the result of the run until now, in the same form as the result of a replay.
    pub fn result(&self) -> SimulationResult {
        let options = ReplayOptions {
            mode: ReplayMode::Closed,
            mode_reason: Some("live: requests come from other software".to_owned()),
            ..ReplayOptions::default()
        };
        let result = self.stack.result(&self.config, &self.measure, &options);
        SimulationResult { setting_changes: self.changes.clone(), ..result }
    }
}

fn failure_of(error: &io::Error) -> RequestFailure {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => RequestFailure::NoSpace,
        io::ErrorKind::ReadOnlyFilesystem => RequestFailure::ReadOnly,
        _ => RequestFailure::Io,
    }
}

impl LiveCore {
    /// Cuts the power: requests in progress fail, and so do all later ones until [`Self::restore`].
    pub fn cut(&mut self) -> Result<()> {
        self.go_on();
        let now = self.clock.now();
        self.powered = false;
        self.sums.counts.cuts += 1;
        self.abandon();
        // A log ends with the first power cut.
        self.end_log()?;
        self.stack.cut(now)
    }

    /// Adds a line of the workload to the command log, after the completions that were delivered before. With this line, the workload
    /// states that its data is safe.
    pub fn acknowledge(&mut self, text: &str) {
        if let Some(log) = &self.log {
            log.acknowledge(self.clock.now(), text);
        }
    }

    /// From now on, adds the lines of a workload to the command log. They are read before each request.
    pub fn follow(&mut self, lines: WorkloadLines) {
        self.lines = Some(lines);
    }

    /// Adds the lines that the workload has printed since the last call to the command log.
    fn log_lines(&mut self) {
        if let (Some(log), Some(lines)) = (&self.log, &mut self.lines) {
            let now = self.clock.now();
            lines.read(|line| log.acknowledge(now, line));
        }
    }

    /// Adds the lines that the workload has printed to the command log. Returns all lines that were added since the last call.
    pub fn new_lines(&mut self) -> Vec<String> {
        self.log_lines();
        self.lines.as_mut().map(WorkloadLines::take_new).unwrap_or_default()
    }

    /// Adds a mark with this name to the command log at the current position.
    pub fn mark(&mut self, text: &str) {
        if let Some(log) = &self.log {
            log.mark(self.clock.now(), text);
        }
    }

    /// Completes the command log, if there is one.
    pub fn end_log(&mut self) -> Result<()> {
        self.lines = None;
        self.log.take().map_or(Ok(()), RunLog::finish)
    }

    /// Restores the power: the layers recover, and the file system is read again.
    pub fn restore(&mut self) {
        self.go_on();
        self.powered = true;
        if let Some(naming) = &mut self.naming {
            *naming = LiveAnnotator::of(&self.stack, &self.layers);
        }
    }

    /// Changes a setting of the simulated device.
    pub fn set(&mut self, key: &str, value: &str) -> Result<()> {
        if let Some(layer) = key.split_once('.').and_then(|(name, _)| self.layers.iter().find(|layer| layer.name == name)) {
            let problem =
                format!("`{key}` cannot change in a device in use: it determines the layout of the state of `{}`", layer.name);
            return Err(Error::new(ErrorClass::Config, problem).hint("serve the device again with other settings for its layers"));
        }
        let mut config = self.config.clone();
        config.set(key, value)?;
        self.go_on();
        let now = self.clock.now();
        self.changes.extend(self.stack.reconfigure(&self.config, &config, now)?);
        self.config = config;
        Ok(())
    }

    /// The health of the flash of the first device.
    pub fn health(&self) -> DeviceHealth {
        self.stack.device().health(self.config.settings())
    }

    /// Resets the statistics of the run.
    pub fn clear_counters(&mut self) {
        self.go_on();
        let next = self.stack.next_request();
        self.measure = RunMeasurement::starting_at(next);
        self.stack.clear_counters();
        if let Some(Err(error)) = self.recording.as_mut().map(|recording| recording.restart(next)) {
            self.fail(error);
        }
    }

    /// Makes the layers move all data to its final location. Returns the result of the run, including this work. The clock must be free
    /// ([`ClockPace::Free`]), and no request may be in progress.
    pub fn drain(&mut self) -> Result<SimulationResult> {
        self.move_all()?;
        Ok(self.result())
    }

    fn move_all(&mut self) -> Result<()> {
        self.go_on();
        let hint = "serve the device with the clock `free`, and make sure that no client sends requests meanwhile";
        if self.clock.pace() != ClockPace::Free || self.stack.open() > 0 {
            return Err(Error::new(ErrorClass::Config, "layers can be drained only with clock `free` and no requests").hint(hint));
        }
        let now = self.clock.now();
        let done = self.stack.drain(now, &mut NullObserver)?;
        self.clock.advance_free(done);
        self.image_error = self.stack.land(done).err();
        Ok(())
    }

    /// Makes the layers move all data to its final location and removes the layers, so that the contents are those of a device without
    /// layers.
    pub fn make_plain(&mut self) -> Result<()> {
        self.move_all()?;
        self.layers.clear();
        Ok(())
    }

    /// Shuts the device down: completes the requests in progress and programs all cached data.
    pub fn power_off(&mut self) -> Result<()> {
        self.clock.set_pace(ClockPace::Free);
        self.go_on();
        self.abandon();
        let devices = [Some(self.stack.device()), self.stack.second()].into_iter().flatten();
        let now = devices.map(Device::idle_from).fold(self.clock.now(), Nanos::max);
        let logged = self.end_log();
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        logged?;
        if self.stack.stop().is_none() && !self.ended {
            self.stack.power_off(now, &mut NullObserver)?;
        }
        if let Some(recording) = self.recording.take() {
            self.is_recorded = recording.finish(&self.changes)?;
        }
        Ok(())
    }
}
