//! Executes plans of layers (command sequences) in simulated time: sends commands stage by stage, and handles completions in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use emmclab_device::{DeviceCommand, Observer, RequestCompleted};
use emmclab_layers::{DisksBelow, Layer, LayerConfig, PlanStep, build_stack};
use emmclab_trace::{BlockNote, Error, ErrorClass, Nanos, Op, Result, SECTOR_BYTES, interrupt};

use super::{ArrivedRequest, ParentCommand, PlanOrigin, PlanTask, PlanTaskTable, SimulatedLevel};
use crate::disk::{DiskPair, SimulatedDisk};
use crate::result::LayerResult;
use crate::sequence_map::SequenceMap;

/// The simulated layers above the disks, with all their work in progress.
pub(crate) struct SimulatedStack {
    pub(super) levels: Vec<SimulatedLevel>,
    /// Number of the task that sent each command to a disk. There is one map for each disk, by the number of the command on the disk.
    pub(super) owners: [SequenceMap<u32>; 2],
    /// Completions that were last taken from a disk; the memory is reused.
    pub(super) completions: Vec<RequestCompleted>,
    pub(super) tasks: PlanTaskTable,
    pub(super) events: BinaryHeap<Reverse<(Nanos, u64, u32)>>,
    pub(super) event_count: u64,
    /// Simulated time of the last event.
    pub(super) now: Nanos,
    pub(super) next_id: u64,
    /// Number of incomplete requests of the workload.
    pub(super) incomplete_requests: u64,
    /// Number of requests of the workload so far.
    pub(super) request_count: u64,
    pub(super) last_complete: Nanos,
    /// End time of the last background work.
    pub(super) background_done: Nanos,
    pub(super) started: bool,
    /// Number of layers whose writes at startup are incomplete.
    pub(super) starting: usize,
    /// The first writes to disk 0 as (sector, sectors).
    pub(super) first_writes: Vec<(u64, u32)>,
    /// Maximum number of entries of `first_writes`.
    pub(super) first_write_limit: u32,
    /// Whether requests have data, which is passed with the commands.
    pub(super) moves_data: bool,
    /// Whether completed requests of the workload are stored for [`SimulatedStack::take_done`].
    pub(super) keeps_completed: bool,
    pub(super) completed_requests: Vec<WorkloadCompletion>,
    /// Data of the command that is being transferred to or from a disk; the memory is reused.
    pub(super) buffer: Vec<u8>,
    /// Entries of a packed command; the memory is reused.
    pub(super) pack: Vec<DeviceCommand>,
}

/// A request of the workload that is complete.
#[derive(Debug)]
pub(crate) struct WorkloadCompletion {
    /// Number that the request received when it was submitted.
    pub id: u64,
    pub event: RequestCompleted,
    /// Data of a read or write; empty if the requests of the stack have no data.
    pub data: Vec<u8>,
    /// Whether data could not be read from a disk.
    pub failed: bool,
}

/// Time before the first request in which the layers start.
const START: Nanos = Nanos::from_secs(1);

impl SimulatedStack {
    /// Creates a stack of layers above the disks. `configs` lists the layers from top to bottom. The first `first_wanted` writes that the
    /// layers send to disk 0 are recorded.
    pub fn new(configs: &[LayerConfig], below: &DisksBelow, first_wanted: u32) -> Result<Self> {
        Ok(Self { first_write_limit: first_wanted, ..Self::with_layers(build_layers(configs, below)?, 1) })
    }

    /// Creates a stack that transfers the data of requests. `next_id` is the number of the next request. `commands` contains the number of
    /// the next command for each of the two disks.
    pub fn live(layers: Vec<Box<dyn Layer>>, next_id: u64, commands: [u64; 2]) -> Self {
        Self {
            moves_data: true,
            keeps_completed: true,
            owners: commands.map(SequenceMap::starting_at),
            ..Self::with_layers(layers, next_id)
        }
    }

    fn with_layers(layers: Vec<Box<dyn Layer>>, next_id: u64) -> Self {
        Self {
            levels: layers.into_iter().map(SimulatedLevel::new).collect(),
            owners: [SequenceMap::default(), SequenceMap::default()],
            completions: Vec::new(),
            tasks: PlanTaskTable::default(),
            events: BinaryHeap::new(),
            event_count: 0,
            now: Nanos::MIN,
            next_id,
            incomplete_requests: 0,
            request_count: 0,
            last_complete: Nanos::ZERO,
            background_done: Nanos::ZERO,
            started: false,
            starting: 0,
            first_writes: Vec::new(),
            first_write_limit: 0,
            moves_data: false,
            keeps_completed: false,
            completed_requests: Vec::new(),
            buffer: Vec::new(),
            pack: Vec::new(),
        }
    }

    /// Number of sectors that the workload can address.
    pub fn capacity(&self) -> u64 {
        self.levels[0].layer.capacity()
    }

    /// Returns the time at which the latest completion of a request became known.
    pub fn last_known(&self) -> Nanos {
        self.last_complete.max(self.now)
    }

    /// Whether the layer on top uses the notes about the roles of written blocks.
    pub fn reads_notes(&self) -> bool {
        self.levels[0].layer.reads_notes()
    }

    /// Makes the stack store completed requests of the workload for [`SimulatedStack::take_done`].
    pub fn keep_done(&mut self) {
        self.keeps_completed = true;
    }

    /// Simulates up to the arrival of a request of the workload, and submits it. Returns its number ([`WorkloadCompletion::id`]).
    pub fn submit<O: Observer>(
        &mut self, command: &DeviceCommand, notes: Vec<BlockNote>, disks: &mut DiskPair<'_, O>,
    ) -> Result<u64> {
        if !self.started {
            self.start(command.arrival - START, disks)?;
        }
        self.submit_data(command, (notes, Vec::new()), disks)
    }

    /// Submits a request with its data, like [`SimulatedStack::submit`]. The layers must have started.
    pub fn submit_data<O: Observer>(
        &mut self, command: &DeviceCommand, (notes, data): (Vec<BlockNote>, Vec<u8>), disks: &mut DiskPair<'_, O>,
    ) -> Result<u64> {
        while self.step(command.arrival, disks)? {}
        self.now = self.now.max(command.arrival);
        self.incomplete_requests += 1;
        let id = self.next_id;
        self.enter(0, command, None, (notes, data), disks)?;
        Ok(id)
    }

    /// Simulates all events up to and including `until`. A command that arrives at `until` is submitted after these events.
    pub fn advance<O: Observer>(&mut self, until: Nanos, disks: &mut DiskPair<'_, O>) -> Result<()> {
        loop {
            while self.step(until, disks)? {}
            let Some((_, disk)) = disks.next_event().filter(|(at, _)| *at <= until) else { break };
            disks.step(disk)?;
            self.collect(disk, disks);
        }
        self.now = self.now.max(until);
        Ok(())
    }

    /// Returns the simulated time of the next event.
    pub fn next_event(&self, main: &SimulatedDisk, second: Option<&SimulatedDisk>) -> Option<Nanos> {
        let event = self.events.peek().map(|Reverse((at, ..))| *at);
        let disks = [Some(main), second].into_iter().flatten().filter_map(SimulatedDisk::next_event);
        event.into_iter().chain(disks).min()
    }

    /// Appends newly completed requests to `to`.
    pub fn take_done(&mut self, to: &mut Vec<WorkloadCompletion>) {
        to.append(&mut self.completed_requests);
    }

    /// Simulates until every request is complete, or until no more events are possible because a disk has stopped. Background work may then
    /// be in progress.
    pub fn settle<O: Observer>(&mut self, disks: &mut DiskPair<'_, O>) -> Result<()> {
        while self.incomplete_requests > 0 && self.step_or_stop(disks)? {}
        Ok(())
    }

    /// Makes the layers move all data from temporary locations (such as a log) to its final location, from the top layer down. All requests
    /// must be complete. Returns the time from the last completion of a request to the end of that work; 0 without work.
    pub fn drain<O: Observer>(&mut self, disks: &mut DiskPair<'_, O>) -> Result<Nanos> {
        for level in 0..self.levels.len() {
            self.levels[level].layer.drain();
            self.poke(level, self.now, disks)?;
            while self.levels[level].background_running && self.step_or_stop(disks)? {
                interrupt::check()?;
            }
        }
        Ok((self.background_done - self.last_complete).max(Nanos::ZERO))
    }

    /// Handles the next event. Returns false if a disk has stopped. Returns an error if there is no event although no disk has stopped.
    fn step_or_stop<O: Observer>(&mut self, disks: &mut DiskPair<'_, O>) -> Result<bool> {
        if self.step(Nanos::MAX, disks)? {
            return Ok(true);
        }
        if disks.stopped() {
            return Ok(false);
        }
        Err(Error::new(ErrorClass::Config, "a layer defers requests but has no work to do")
            .hint("report this defect of the layer with the settings and the trace"))
    }

    /// Simulates until the layers have started, or until a disk has stopped. Returns the time at which this happened.
    pub fn finish_start<O: Observer>(&mut self, disks: &mut DiskPair<'_, O>) -> Result<Nanos> {
        while self.starting > 0 && self.step_or_stop(disks)? {}
        Ok(self.now)
    }

    /// Returns the first writes to disk 0 as (sector, sectors).
    pub fn first_writes(&self) -> &[(u64, u32)] {
        &self.first_writes
    }

    /// Resets the counts of the layers to 0.
    pub fn clear_counters(&mut self) {
        self.levels.iter_mut().for_each(SimulatedLevel::clear_counters);
    }

    /// The counts of the layers, from top to bottom.
    pub fn results(&self) -> Vec<LayerResult> {
        self.levels.iter().map(SimulatedLevel::result).collect()
    }

    /// Starts the layers at `at`, before the first request.
    pub fn start<O: Observer>(&mut self, at: Nanos, disks: &mut DiskPair<'_, O>) -> Result<()> {
        self.started = true;
        self.starting = self.levels.len();
        self.now = at;
        for level in (0..self.levels.len()).rev() {
            let mut plan = self.tasks.plan();
            self.levels[level].layer.start(&mut plan);
            let task = self.add(level, PlanOrigin::Start, ArrivedRequest::placeholder(at), plan);
            self.run(task, at, disks)?;
        }
        Ok(())
    }
}

/// Builds layers, from top to bottom, above these disks.
pub(crate) fn build_layers(configs: &[LayerConfig], below: &DisksBelow) -> Result<Vec<Box<dyn Layer>>> {
    let layers = build_stack(configs, below)?;
    let uses_second = |layer: &dyn Layer| layer.areas().iter().any(|area| area.disk == 1);
    if below.second.is_some() && !layers.iter().any(|layer| uses_second(&**layer)) {
        return Err(Error::new(ErrorClass::Config, "there is a second device, but no layer uses it")
            .hint("configure a layer so that it uses the second device, for example --set advil.second_device=true"));
    }
    Ok(layers)
}

impl SimulatedStack {
    /// Handles the next event up to `until`. Returns false if there is none. At equal times, events of disks follow all other events.
    pub(super) fn step<O: Observer>(&mut self, until: Nanos, disks: &mut DiskPair<'_, O>) -> Result<bool> {
        let event = self.events.peek().map(|Reverse((at, ..))| *at);
        let first = |at: &Nanos| *at < until && event.is_none_or(|event| *at < event);
        if let Some((at, disk)) = disks.next_event().filter(|(at, _)| first(at)) {
            self.now = self.now.max(at);
            disks.step(disk)?;
            self.collect(disk, disks);
            return Ok(true);
        }
        if event.is_none_or(|at| at > until) {
            return Ok(false);
        }
        let Some(Reverse((at, _, task))) = self.events.pop() else { return Ok(false) };
        self.now = self.now.max(at);
        if self.tasks[task].is_over() {
            self.finish(task, at, disks)?;
        } else {
            self.run(task, self.now, disks)?;
        }
        Ok(true)
    }

    /// Passes the completions of a disk to the plans that sent the commands.
    pub(super) fn collect<O: Observer>(&mut self, disk: usize, disks: &mut DiskPair<'_, O>) {
        let mut known = std::mem::take(&mut self.completions);
        disks.take_completed(disk, &mut known);
        for event in known.drain(..) {
            if let Some(task) = self.owners[disk].take(event.id) {
                self.child_done(task, &event);
            }
        }
        self.completions = known;
    }

    /// Records the completion of a command that a task sent. The completion may be in the future.
    fn child_done(&mut self, task: u32, event: &RequestCompleted) {
        self.tasks[task].note(event);
        self.release(task);
    }

    /// Decrements the number of commands for which the task waits. At 0, the stage ends.
    fn release(&mut self, task: u32) {
        self.tasks[task].waiting -= 1;
        if self.tasks[task].waiting == 0 {
            self.event_count += 1;
            self.events.push(Reverse((self.tasks[task].end, self.event_count, task)));
        }
    }

    /// Sends the commands of a plan up to its next wait step.
    pub(super) fn run<O: Observer>(&mut self, task: u32, at: Nanos, disks: &mut DiskPair<'_, O>) -> Result<()> {
        let current = &mut self.tasks[task];
        let below = current.level + usize::from(current.source != PlanOrigin::Expanded);
        // One more command than planned is awaited, so that the stage does not end before all commands are sent.
        current.waiting += 1;
        current.end = at;
        loop {
            let command = match self.tasks[task].next_step() {
                Some(PlanStep::Command(command)) => command,
                Some(PlanStep::Copy(copy)) => {
                    if self.moves_data {
                        let level = self.tasks[task].level;
                        self.tasks[task].perform(&copy, &mut self.levels[level].layer_memory);
                    }
                    continue;
                }
                Some(PlanStep::Wait) | None => break,
            };
            self.tasks[task].waiting += 1;
            let sent = DeviceCommand {
                modifiers: command.modifiers,
                ..DeviceCommand::new(at, command.op, command.sector, command.sectors)
            };
            if command.disk == 0 && below < self.levels.len() {
                let mut data = Vec::new();
                if self.moves_data && sent.op == Op::Write {
                    let level = self.tasks[task].level;
                    self.tasks[task].gather(&command, &mut self.levels[level].layer_memory, &mut data);
                }
                self.enter(below, &sent, Some(ParentCommand { task, command }), (Vec::new(), data), disks)?;
                continue;
            }
            let disk = usize::from(command.disk > 0);
            if disk == 0 && self.fails_alone(task) && disks.zones_refuse(&sent) {
                let task = &mut self.tasks[task];
                task.failed = true;
                task.waiting -= 1;
                continue;
            }
            if disk == 0 && sent.op == Op::Write && self.first_writes.len() < self.first_write_limit as usize {
                self.first_writes.push((sent.sector, sent.sectors));
            }
            self.owners[disk].push(task);
            if self.moves_data && sent.op.has_data() {
                self.exchange(task, disk, &command, disks);
            }
            self.pack.push(sent);
            if !self.tasks[task].packs_on() {
                let mut pack = std::mem::take(&mut self.pack);
                let done = disks.submit(disk, &pack);
                pack.clear();
                self.pack = pack;
                done?;
                self.collect(disk, disks);
            }
        }
        self.release(task);
        Ok(())
    }

    /// Whether only one request fails if a zoned device refuses a command of the task. Otherwise the whole run fails: a simulated run ends,
    /// and background work belongs to no request.
    fn fails_alone(&self, task: u32) -> bool {
        self.moves_data && matches!(self.tasks[task].source, PlanOrigin::Request | PlanOrigin::Expanded)
    }

    /// Moves the data of a command between memory and a disk. Commands take effect in the order in which the disk receives them, so a read
    /// that is executed at its submission returns the same data as at its completion.
    fn exchange<O: Observer>(
        &mut self, task: u32, disk: usize, command: &emmclab_layers::PlanCommand, disks: &mut DiskPair<'_, O>,
    ) {
        let level = self.tasks[task].level;
        let held = &mut self.levels[level].layer_memory;
        let task = &mut self.tasks[task];
        self.buffer.clear();
        if command.op == Op::Write {
            task.gather(command, held, &mut self.buffer);
            disks.disk(disk).give(self.pack.len() as u64, command.sector, &self.buffer);
            return;
        }
        self.buffer.resize(command.sectors as usize * SECTOR_BYTES as usize, 0);
        match disks.disk(disk).read(command.sector, &mut self.buffer) {
            Ok(()) => task.scatter(command, held, &self.buffer),
            Err(_) => task.failed = true,
        }
    }

    /// Completes a plan at `at`. Work that follows the plan starts at the current simulated time, which is later than `at` if the
    /// completion became known late.
    fn finish<O: Observer>(&mut self, task: u32, at: Nanos, disks: &mut DiskPair<'_, O>) -> Result<()> {
        let PlanTask { level, source, request, parent, number, .. } = self.tasks[task];
        match source {
            PlanOrigin::Expanded => {}
            PlanOrigin::Start => self.starting -= 1,
            PlanOrigin::Background => {
                self.levels[level].background_running = false;
                self.background_done = self.background_done.max(at);
                self.levels[level].layer.background_done();
            }
            PlanOrigin::Request => {
                self.levels[level].in_flight.remove(request.id);
                self.levels[level].layer.completed(request.id);
            }
        }
        if matches!(source, PlanOrigin::Request | PlanOrigin::Expanded) {
            let event = self.tasks[task].completed(at);
            let data = std::mem::take(&mut self.tasks[task].data);
            let failed = self.tasks[task].failed;
            if let Some(ParentCommand { task: parent, command }) = parent {
                if self.moves_data && command.op == Op::Read {
                    let level = self.tasks[parent].level;
                    self.tasks[parent].scatter(&command, &mut self.levels[level].layer_memory, &data);
                }
                self.tasks[parent].failed |= failed;
                self.child_done(parent, &event);
            } else {
                if self.keeps_completed {
                    self.completed_requests.push(WorkloadCompletion { id: request.id, event, data, failed });
                }
                self.incomplete_requests -= 1;
                self.last_complete = self.last_complete.max(at);
                disks.observer.request_completed(&RequestCompleted { id: number, ..event });
            }
        }
        self.tasks.remove(task);
        self.poke(level, self.now, disks)
    }
}
