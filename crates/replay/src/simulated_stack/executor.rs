//! The executor of the stack: its state, and the requests of the workload.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use emmclab_device::{DeviceCommand, Observer, RequestCompleted};
use emmclab_layers::{DisksBelow, Layer, LayerConfig, build_stack};
use emmclab_trace::{BlockNote, Error, ErrorClass, Nanos, Result, interrupt};

use crate::disk::SimulatedDisk;
use crate::disk_pair::DiskPair;
use crate::result::LayerResult;
use crate::sequence_map::SequenceMap;

use super::level::{ArrivedRequest, SimulatedLevel};
use super::task::{PlanOrigin, PlanTaskTable};

/// The layers and all work in progress.
pub(crate) struct SimulatedStack {
    pub(super) levels: Vec<SimulatedLevel>,
    /// The task of each command, by disk and by the number of the command on that disk.
    pub(super) owners: [SequenceMap<u32>; 2],
    /// The last completions of a disk, kept to reuse the memory.
    pub(super) completions: Vec<RequestCompleted>,
    pub(super) tasks: PlanTaskTable,
    pub(super) events: BinaryHeap<Reverse<(Nanos, u64, u32)>>,
    pub(super) event_count: u64,
    /// Time of the last event.
    pub(super) now: Nanos,
    pub(super) next_id: u64,
    /// Requests of the workload that are not complete.
    pub(super) incomplete_requests: u64,
    /// Number of requests of the workload so far.
    pub(super) request_count: u64,
    pub(super) last_complete: Nanos,
    /// When background work was last complete.
    pub(super) background_done: Nanos,
    pub(super) started: bool,
    /// Number of layers whose start writes are not complete.
    pub(super) starting: usize,
    /// The first writes to disk 0 as (sector, sectors), and how many are kept.
    pub(super) first_writes: Vec<(u64, u32)>,
    pub(super) first_write_limit: u32,
    /// Whether requests have data, which is passed with the commands.
    pub(super) moves_data: bool,
    /// Whether completed requests of the workload are kept for [`SimulatedStack::take_done`].
    pub(super) keeps_completed: bool,
    pub(super) completed_requests: Vec<WorkloadCompletion>,
    /// Data of a command between a plan and a disk, kept to reuse the memory.
    pub(super) buffer: Vec<u8>,
    /// The entries of a packed command, kept to reuse the memory.
    pub(super) pack: Vec<DeviceCommand>,
}

/// A request of the workload that is complete.
#[derive(Debug)]
pub(crate) struct WorkloadCompletion {
    /// The number that it got at its arrival.
    pub id: u64,
    pub event: RequestCompleted,
    /// The data of a read or write, on a stack that moves data.
    pub data: Vec<u8>,
    /// Whether data could not be read.
    pub failed: bool,
}

/// Time that the layers get for their start before the first request.
const START: Nanos = Nanos::from_secs(1);

impl SimulatedStack {
    /// Layers, the first on top, above the disks. The first `first_wanted` writes to disk 0 are kept.
    ///
    /// # Errors
    /// As [`build_layers`].
    pub fn new(configs: &[LayerConfig], below: &DisksBelow, first_wanted: u32) -> Result<Self> {
        Ok(Self { first_write_limit: first_wanted, ..Self::with_layers(build_layers(configs, below)?, 1) })
    }

    /// Layers that move data. `next_id` is the number of the next request, `commands` those of the next commands of the disks.
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

    /// Sectors offered to the workload.
    pub fn capacity(&self) -> u64 {
        self.levels[0].layer.capacity()
    }

    /// When the latest completion of a request became known.
    pub fn last_known(&self) -> Nanos {
        self.last_complete.max(self.now)
    }

    /// Whether the layer on top reads the notes on the blocks of writes.
    pub fn reads_notes(&self) -> bool {
        self.levels[0].layer.reads_notes()
    }

    /// Keeps completed requests of the workload for [`SimulatedStack::take_done`].
    pub fn keep_done(&mut self) {
        self.keeps_completed = true;
    }

    /// Simulates up to the arrival of a request of the workload, then submits it; returns its number ([`WorkloadCompletion::id`]).
    pub fn submit<O: Observer>(
        &mut self,
        command: &DeviceCommand,
        notes: Vec<BlockNote>,
        disks: &mut DiskPair<'_, O>,
    ) -> Result<u64> {
        if !self.started {
            self.start(command.arrival - START, disks)?;
        }
        self.submit_data(command, (notes, Vec::new()), disks)
    }

    /// As [`SimulatedStack::submit`], with the data of the request; the layers must have started.
    pub fn submit_data<O: Observer>(
        &mut self,
        command: &DeviceCommand,
        (notes, data): (Vec<BlockNote>, Vec<u8>),
        disks: &mut DiskPair<'_, O>,
    ) -> Result<u64> {
        while self.step(command.arrival, disks)? {}
        self.now = self.now.max(command.arrival);
        self.incomplete_requests += 1;
        let id = self.next_id;
        self.enter(0, command, None, (notes, data), disks)?;
        Ok(id)
    }

    /// Simulates up to and including `until`. A command that arrives at `until` comes after that, although a disk would accept it before
    /// the work that it begins at the same time.
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

    /// Time of the next event.
    pub fn next_event(&self, main: &SimulatedDisk, second: Option<&SimulatedDisk>) -> Option<Nanos> {
        let event = self.events.peek().map(|Reverse((at, ..))| *at);
        let disks = [Some(main), second].into_iter().flatten().filter_map(SimulatedDisk::next_event);
        event.into_iter().chain(disks).min()
    }

    /// Appends the requests that have become complete since the last call.
    pub fn take_done(&mut self, to: &mut Vec<WorkloadCompletion>) {
        to.append(&mut self.completed_requests);
    }

    /// Simulates until every request is complete, or nothing more can happen on a disk that has stopped. Background work may still be in
    /// progress then.
    pub fn settle<O: Observer>(&mut self, disks: &mut DiskPair<'_, O>) -> Result<()> {
        while self.incomplete_requests > 0 && self.step_or_stop(disks)? {}
        Ok(())
    }

    /// Makes the layers move all data that they hold in temporary places to its final place, from the top layer down. All requests must be
    /// complete. Returns the time from the last completion of a request to the end of that work; 0 if there is none.
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

    /// Handles the next event; false if a disk has stopped. If there is no event although no disk has stopped, returns an error.
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

    /// Simulates until the layers have started, or until a disk has stopped; returns the time then.
    pub fn finish_start<O: Observer>(&mut self, disks: &mut DiskPair<'_, O>) -> Result<Nanos> {
        while self.starting > 0 && self.step_or_stop(disks)? {}
        Ok(self.now)
    }

    /// The first writes to disk 0.
    pub fn first_writes(&self) -> &[(u64, u32)] {
        &self.first_writes
    }

    /// Resets the counts of the layers to 0.
    pub fn clear_counters(&mut self) {
        self.levels.iter_mut().for_each(SimulatedLevel::clear_counters);
    }

    /// The counts of the layers, the first on top.
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

/// Builds layers, the first on top, above these disks.
///
/// # Errors
/// As [`build_stack`], and if there is a second disk that no layer uses.
pub(crate) fn build_layers(configs: &[LayerConfig], below: &DisksBelow) -> Result<Vec<Box<dyn Layer>>> {
    let layers = build_stack(configs, below)?;
    let uses_second = |layer: &dyn Layer| layer.areas().iter().any(|area| area.disk == 1);
    if below.second.is_some() && !layers.iter().any(|layer| uses_second(&**layer)) {
        return Err(Error::new(ErrorClass::Config, "there is a second device, but no layer uses it")
            .hint("let a layer use it, for example --set advil.second_device=true"));
    }
    Ok(layers)
}
