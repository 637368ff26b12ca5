//! The state of a live device that is used by one thread at a time: stack, clock, requests in progress, measurement.

mod orders;

use std::io;
use std::sync::Arc;
use std::time::Instant;

use emmclab_base::{Error, Kind, Nanos, Op, Result};
use emmclab_device::{BlockState, Command, DeviceConfig, Observer, Quiet, SettingChange, Stop};
use emmclab_layers::LayerConfig;
use emmclab_replay::{Answer, Measure, Mode, ReplayOptions, SimulationResult, Stack};
use emmclab_serve::{BlockRequest, Completion, Completions, Failure, Limits};
use rustc_hash::FxHashMap;

use crate::clock::{Clock, Pace};
use crate::lines::WorkloadLines;
use crate::log::RunLog;
use crate::naming::Naming;
use crate::refusals::Refusals;
use crate::request::{Part, Pending};
use crate::status::{Status, Sums};
use crate::trace::Recording;

/// Completions for each receiver, to be delivered after the lock is released.
pub(crate) type Deliveries = Vec<(Arc<dyn Completions>, Vec<Completion>)>;

pub(crate) struct Core {
    pub config: DeviceConfig,
    pub second: Option<DeviceConfig>,
    /// Settings that changed since the start.
    pub changes: Vec<SettingChange>,
    pub layers: Vec<LayerConfig>,
    pub stack: Stack,
    pub clock: Clock,
    limits: Limits,
    /// Requests in progress by number, and the number of the request of each command in the stack.
    pending: FxHashMap<u64, Pending>,
    owners: FxHashMap<u64, u64>,
    next: u64,
    measure: Measure,
    sums: Sums,
    pub recording: Option<Recording>,
    /// Whether the trace was written.
    pub is_recorded: bool,
    /// Number of accepted requests that change data.
    pub changing_requests: u64,
    log: Option<RunLog>,
    /// The lines of the workload, which belong into the log.
    lines: Option<WorkloadLines>,
    /// Identifies the blocks of writes, if a layer or a recording needs it.
    naming: Option<Naming>,
    /// Why the image cannot be written, if so.
    image_error: Option<io::Error>,
    refusals: Refusals,
    /// The error that ended the service, if any: a violated invariant, or a recording that cannot be written.
    pub broken: Option<Error>,
    /// Whether there was such an error. It is kept after `broken` was reported.
    ended: bool,
    powered: bool,
    deliveries: Deliveries,
    /// Buffers that are reused.
    parts: Vec<Part>,
    answers: Vec<Answer>,
}

impl Core {
    pub fn new(
        (config, second): (&DeviceConfig, Option<&DeviceConfig>),
        layers: &[LayerConfig],
        stack: Stack,
        clock: Clock,
        (recording, log): (Option<Recording>, Option<RunLog>),
    ) -> Result<Self> {
        let naming = (stack.reads_notes() || recording.is_some()).then(|| Naming::of(&stack, layers));
        let measure = Measure::starting_at(stack.next_request());
        let geometry = stack.device().geometry();
        let limits = Limits {
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
            sums: Sums::new()?,
            recording,
            is_recorded: false,
            changing_requests: 0,
            log,
            lines: None,
            naming,
            image_error: None,
            refusals: Refusals::default(),
            broken: None,
            ended: false,
            powered: true,
            deliveries: Vec::new(),
            parts: Vec::new(),
            answers: Vec::new(),
        })
    }

    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Accepts requests that arrive now.
    pub fn take(&mut self, requests: &mut Vec<BlockRequest>, to: &Arc<dyn Completions>) {
        let now = self.clock.now();
        self.log_lines();
        if self.image_error.is_some() {
            // There may be space again.
            self.image_error = self.stack.land(now).err();
        }
        for request in requests.drain(..) {
            let (tag, changes) = (request.tag, request.action != emmclab_serve::Action::Read);
            let refused = self.refusal(changes).map_or(Ok(()), Err);
            self.changing_requests += u64::from(changes && refused.is_ok());
            // A discard of a part of a zone would be refused.
            let by_discard = self.stack.is_plain() && self.stack.device().zones().next().is_none();
            let taken =
                refused.and_then(|()| Pending::new(request, &self.limits, by_discard, to, &mut self.parts));
            match taken {
                Ok(pending) => {
                    let number = self.next;
                    self.next += 1;
                    self.pending.insert(number, pending);
                    self.send_parts(number, now);
                }
                Err(failure) => {
                    self.sums.failed += 1;
                    self.deliver(to.clone(), Completion { tag, outcome: Err(failure) });
                }
            }
        }
        self.go_on();
    }

    /// Why every request is refused, if so; `changes` is set for requests that change data.
    fn refusal(&self, changes: bool) -> Option<Failure> {
        if !self.powered || self.ended {
            return Some(Failure::Io);
        }
        if let Some(stop) = self.stack.stop() {
            return Some(if stop == Stop::Full && changes { Failure::NoSpace } else { Failure::Io });
        }
        self.image_error.as_ref().filter(|_| changes).map(failure_of)
    }

    /// Sends the commands in `parts` to the stack, for the request `number`.
    fn send_parts(&mut self, number: u64, now: Nanos) {
        let mut parts = std::mem::take(&mut self.parts);
        for Part { op, sector, sectors, modifiers, data } in parts.drain(..) {
            let command = Command { modifiers, ..Command::new(now, op, sector, sectors) };
            if let Some(pending) = self.pending.get_mut(&number) {
                pending.begun();
            }
            if let Some(error) = self.stack.refusal(&command) {
                self.refusals.count(&error, sector);
                if let Some(pending) = self.pending.get_mut(&number) {
                    pending.complete(Err(Failure::Io));
                }
                continue;
            }
            if let Some(log) = &self.log {
                log.arrives(self.stack.next_request(), &command, &data);
            }
            let notes = self.naming.as_mut().map_or_else(Vec::new, |naming| naming.notes(&command, &data));
            if let Some(recording) = &mut self.recording {
                recording.noted(self.stack.next_request(), &notes);
            }
            let sent = self.stack.submit(&command, notes, data, &mut Quiet);
            match sent {
                Ok(id) => {
                    self.owners.insert(id, number);
                }
                Err(error) => {
                    self.fail(error);
                    if let Some(pending) = self.pending.get_mut(&number) {
                        pending.complete(Err(Failure::Io));
                    }
                }
            }
        }
        self.parts = parts;
        self.finish(number);
    }

    /// Advances the stack to the present; on a free clock, until nothing is in progress.
    pub fn go_on(&mut self) {
        let mut now = self.clock.now();
        loop {
            if self.clock.pace() == Pace::Free {
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
            if self.clock.pace() != Pace::Free {
                break;
            }
            if self.stack.next_event().is_none() && self.stack.open() == open {
                self.fail(
                    Error::new(Kind::Config, "a layer defers requests but has no work to do")
                        .hint("report this defect of the layer with the settings and the trace"),
                );
                self.abandon();
                break;
            }
        }
    }

    /// Simulates everything up to `now`, and completes the requests that are complete by then.
    fn advance(&mut self, now: Nanos) {
        let mut answers = std::mem::take(&mut self.answers);
        loop {
            let done = self
                .stack
                .advance(now, &mut Quiet)
                .and_then(|()| self.stack.take_answers(now, &mut Quiet, &mut answers));
            if let Err(error) = done {
                self.fail(error);
            }
            if answers.is_empty() {
                break;
            }
            // Data that was programmed by now must be durable before its request is acknowledged.
            self.image_error = self.stack.land(now).err();
            for answer in answers.drain(..) {
                self.answered(answer, now);
            }
        }
        self.answers = answers;
    }

    fn answered(&mut self, answer: Answer, now: Nanos) {
        self.measure.request_completed(&answer.event);
        self.sums.add(&answer.event);
        self.clock.served(answer.event.complete);
        if let Some(due) = self.clock.host(answer.event.complete) {
            let late = Instant::now().saturating_duration_since(due);
            self.sums.late.saturating_record((late.as_nanos() as u64).max(1));
        }
        // The completion of a failed request promises nothing.
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
            _ if answer.failed => Err(Failure::Io),
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

    /// Answers a request if all of its commands are complete.
    fn finish(&mut self, number: u64) {
        if self.pending.get(&number).is_some_and(Pending::is_over)
            && let Some(pending) = self.pending.remove(&number)
        {
            let (to, completion) = pending.into_completion();
            self.sums.failed += u64::from(completion.outcome.is_err());
            self.deliver(to, completion);
        }
    }

    fn deliver(&mut self, to: Arc<dyn Completions>, completion: Completion) {
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
            Some(Stop::Full) => Failure::NoSpace,
            _ => Failure::Io,
        };
        let mut numbers: Vec<_> = self.pending.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            if let Some(pending) = self.pending.remove(&number) {
                let (to, completion) = pending.into_completion();
                self.sums.failed += 1;
                self.deliver(to, Completion { outcome: Err(failure), ..completion });
            }
        }
    }

    fn fail(&mut self, error: Error) {
        self.ended = true;
        self.broken.get_or_insert(error);
    }

    /// Removes and returns the completions that are to be delivered.
    pub fn take_deliveries(&mut self) -> Deliveries {
        std::mem::take(&mut self.deliveries)
    }

    /// When the stack has to be advanced next; `None` if nothing is in progress or the clock is free.
    pub fn next_due(&self) -> Option<Instant> {
        self.clock.host(self.stack.next_event()?)
    }

    /// Lets the device do its background work up to now: write-back, folding, idle collection.
    pub fn idle(&mut self) {
        if !self.powered || self.ended || self.stack.stop().is_some() {
            return;
        }
        let now = self.clock.now();
        if let Err(error) = self.stack.pass(now, &mut Quiet) {
            self.fail(error);
        }
        self.image_error = self.stack.land(now).err();
    }

    /// The present status, with the figures since the last call.
    pub fn status(&mut self) -> Status {
        let now = self.clock.now();
        let (device, counters) = (self.stack.device(), self.stack.device().counters());
        let free = device.blocks().filter(|block| block.state == BlockState::Free).count() as u64;
        let written = counters.host_bytes_written;
        let media = [self.stack.media(), self.stack.second_media()];
        let status = Status {
            clock: self.clock.pace().to_string(),
            powered: self.powered,
            open: self.pending.len(),
            volatile_bytes: media.into_iter().flatten().map(emmclab_media::Media::volatile_bytes).sum(),
            setting_changes: self.changes.clone(),
            waf: (written > 0).then(|| counters.waf()),
            free_blocks: free,
            collections: counters.gc_count,
            erases: counters.block_erases(),
            wake_ups: counters.wake_ups,
            stopped: self.stack.stop().map(|stop| stop.reason().to_owned()),
            image_error: self.image_error.as_ref().map(ToString::to_string),
            refused: self.refusals.by_rule(),
            file_system: self.naming.as_ref().map(Naming::status),
            ..Status::default()
        };
        self.sums.look(now, status)
    }

    /// The result of the run so far, as of a replay.
    pub fn result(&self) -> SimulationResult {
        let options = ReplayOptions {
            mode: Mode::Closed,
            mode_reason: Some("live: requests come from other software".to_owned()),
            ..ReplayOptions::default()
        };
        let result = self.stack.result(&self.config, &self.measure, &options);
        SimulationResult { setting_changes: self.changes.clone(), ..result }
    }
}

fn failure_of(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Failure::NoSpace,
        io::ErrorKind::ReadOnlyFilesystem => Failure::ReadOnly,
        _ => Failure::Io,
    }
}
