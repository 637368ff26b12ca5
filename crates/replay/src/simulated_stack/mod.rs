//! Layers between the workload and the disks, in simulated time.
//!
//! A layer answers each request with a plan of commands. Plans are executed stage by stage: the commands of a stage are sent together, and
//! an event at the end of the last command starts the next stage. Events are handled in order of time, so arrivals at disks are in order.
//! On a live stack, data is passed with the commands. A replay has no data, and does not serialise overlapping requests, because only their
//! times matter.
//!
//! A completion may become known after its time: a device that reports in order of arrival reports a read that overtook a write only
//! together with that write. The request gets its true completion time, but later stages of its plan start only when the completion is
//! known.
//!
//! Layers are above the queue of the host, like the device mapper in Linux, so their commands are merged and packed. Flags that a layer
//! does not accept become flushes above this layer, as in Linux above a disk without FUA: a preflush before the request, FUA after it.

mod executor;

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use emmclab_device::{CommandFlags, DeviceCommand, LatencyBreakdown, Observer, RequestCompleted};
use emmclab_layers::{
    BackgroundDecision, CommandPlan, DeferReason, HostRequest, InFlightRequests, Layer, MemoryCopy, PlanBuffers, PlanCommand,
    PlanStep, RequestDecision,
};
use emmclab_trace::{BlockNote, Nanos, Op, Result, SECTOR_BYTES};

use crate::disk::DiskPair;
use crate::result::LayerResult;

pub(crate) use executor::{SimulatedStack, WorkloadCompletion, build_layers};

/// A command that a layer sent to the layer below it, where the command is a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct ParentCommand {
    pub task: u32,
    /// The command, with the memory locations of its data.
    pub command: emmclab_layers::PlanCommand,
}

/// A request that has arrived at a layer, until there is a plan for it.
#[derive(Clone, Debug)]
pub(super) struct ArrivedRequest {
    pub request: HostRequest,
    pub arrival: Nanos,
    /// The command of a higher layer from which the request results; `None` for requests of the workload.
    pub parent: Option<ParentCommand>,
    /// Number of the request, for a request of the workload.
    pub number: u64,
    /// Roles of the blocks of a write, for a request of the workload.
    pub notes: Vec<BlockNote>,
    /// Data of a write; empty if the requests of the stack have no data.
    pub data: Vec<u8>,
}

impl ArrivedRequest {
    /// Creates a placeholder request, for commands of a layer that do not belong to a request, such as background work.
    pub fn placeholder(at: Nanos) -> Self {
        let request = HostRequest { id: 0, op: Op::Flush, sector: 0, sectors: 0, modifiers: CommandFlags::empty() };
        Self { request, arrival: at, parent: None, number: 0, notes: Vec::new(), data: Vec::new() }
    }
}

/// A layer of the stack and its state during the run.
pub(super) struct SimulatedLevel {
    pub layer: Box<dyn Layer>,
    /// Flags that requests to the layer may have.
    pub accepts: CommandFlags,
    pub in_flight: InFlightRequests,
    pub deferred: VecDeque<ArrivedRequest>,
    /// Whether background work is in progress.
    pub background_running: bool,
    /// Data that the layer keeps in memory from one request to the next; empty if the requests of the stack have no data.
    pub layer_memory: Vec<u8>,
    deferred_full: u64,
    deferred_overlap: u64,
    pub deferred_time: Nanos,
}

impl SimulatedLevel {
    pub fn new(layer: Box<dyn Layer>) -> Self {
        Self {
            accepts: layer.accepts(),
            layer,
            in_flight: InFlightRequests::default(),
            deferred: VecDeque::new(),
            background_running: false,
            layer_memory: Vec::new(),
            deferred_full: 0,
            deferred_overlap: 0,
            deferred_time: Nanos::ZERO,
        }
    }

    /// Stores an arrived request until the layer accepts it. `why` is the reason for which the layer does not accept it yet.
    pub fn defer(&mut self, arrived: ArrivedRequest, why: DeferReason) {
        match why {
            DeferReason::Full => self.deferred_full += 1,
            DeferReason::Overlap => self.deferred_overlap += 1,
        }
        self.deferred.push_back(arrived);
    }

    /// Resets the counts of the layer to 0.
    pub fn clear_counters(&mut self) {
        (self.deferred_full, self.deferred_overlap, self.deferred_time) = (0, 0, Nanos::ZERO);
        self.layer.clear_counters();
    }

    pub fn result(&self) -> LayerResult {
        LayerResult {
            name: self.layer.name().to_owned(),
            held_full: self.deferred_full,
            held_overlap: self.deferred_overlap,
            held_ms: self.deferred_time.as_millis_f64(),
            left_out: self.layer.left_out().to_vec(),
            counters: self.layer.counters().into_iter().collect(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlanOrigin {
    Start,
    Request,
    /// A request with flags that the layer does not accept. It is executed as several requests to the same layer.
    Expanded,
    Background,
}

pub(super) struct PlanTask {
    pub level: usize,
    pub source: PlanOrigin,
    pub request: HostRequest,
    arrival: Nanos,
    pub parent: Option<ParentCommand>,
    /// Number of the request, as in [`ArrivedRequest::number`].
    pub number: u64,
    plan: CommandPlan,
    next: usize,
    /// Data of the request; empty if the requests of the stack have no data.
    pub data: Vec<u8>,
    /// Buffer of the plan; empty if the requests of the stack have no data.
    scratch: Vec<u8>,
    /// Whether data could not be read from a disk.
    pub failed: bool,
    /// Number of commands in the layer below that are incomplete.
    pub waiting: u32,
    /// Latest known completion time of the commands that were sent for the task so far.
    pub end: Nanos,
    /// Time at which a device started the first command of the task.
    start: Option<Nanos>,
    /// Parts of the response time of the task: those of its command that completed last.
    waits: LatencyBreakdown,
    subrequests: u32,
}

impl PlanTask {
    /// Returns the next step of the plan and advances to the following step.
    pub fn next_step(&mut self) -> Option<PlanStep> {
        let step = self.plan.steps().get(self.next).copied();
        self.next += usize::from(step.is_some());
        step
    }

    /// Whether the next command of the plan belongs to the same packed command as the previous one.
    pub fn packs_on(&self) -> bool {
        matches!(self.plan.steps().get(self.next), Some(PlanStep::Command(command)) if command.packed)
    }

    /// Allocates memory for data to read and for the buffer of the plan.
    pub fn make_room(&mut self) {
        let bytes = |sectors: u32| sectors as usize * SECTOR_BYTES as usize;
        if self.request.op == Op::Read {
            self.data.resize(bytes(self.request.sectors), 0);
        }
        self.scratch.resize(bytes(self.plan.scratch_sectors()), 0);
    }

    /// Appends the data that a write of the plan sends to `data`. `held` is the persistent memory of the layer.
    pub fn gather(&mut self, command: &PlanCommand, held: &mut Vec<u8>, data: &mut Vec<u8>) {
        let Self { plan, data: payload, scratch, .. } = self;
        plan.gather(command, &PlanBuffers { payload, scratch, layer_memory: held }, data);
    }

    /// Stores `data`, which a read command of the plan returned. `held` is the memory of the layer that persists between plans.
    pub fn scatter(&mut self, command: &PlanCommand, held: &mut Vec<u8>, data: &[u8]) {
        let Self { plan, data: payload, scratch, .. } = self;
        plan.scatter(command, data, &mut PlanBuffers { payload, scratch, layer_memory: held });
    }

    /// Executes a step of the plan that copies memory. `held` is the persistent memory of the layer.
    pub fn perform(&mut self, copy: &MemoryCopy, held: &mut Vec<u8>) {
        let Self { plan, data: payload, scratch, .. } = self;
        plan.perform(copy, &mut PlanBuffers { payload, scratch, layer_memory: held });
    }

    /// Whether all steps of the plan were executed.
    pub fn is_over(&self) -> bool {
        self.next == self.plan.steps().len()
    }

    /// Records the completion of a command, whose time may be in the future.
    pub fn note(&mut self, event: &RequestCompleted) {
        if event.complete >= self.end {
            self.end = event.complete;
            self.waits = event.waits;
        }
        self.start = Some(self.start.map_or(event.start, |start| start.min(event.start)));
        self.subrequests += event.subrequests;
    }

    /// The completion of the request for the layer above. Time not accounted for by the last command counts as waiting in the queue.
    pub fn completed(&self, at: Nanos) -> RequestCompleted {
        let waits = self.waits;
        let spent = waits.total() - waits.queue;
        RequestCompleted {
            id: self.request.id,
            op: self.request.op,
            modifiers: self.request.modifiers,
            sector: self.request.sector,
            sectors: self.request.sectors,
            arrival: self.arrival,
            start: self.start.unwrap_or(at),
            complete: at,
            subrequests: self.subrequests,
            waits: LatencyBreakdown { queue: at - self.arrival - spent, ..waits },
        }
    }
}

/// Tasks by number. A task executes a plan, which is the command sequence of a layer for a request. Numbers and plans are reused.
#[derive(Default)]
pub(super) struct PlanTaskTable {
    all: Vec<PlanTask>,
    free: Vec<u32>,
    plans: Vec<CommandPlan>,
}

impl PlanTaskTable {
    /// Returns an empty plan for reuse.
    pub fn plan(&mut self) -> CommandPlan {
        let mut plan = self.plans.pop().unwrap_or_default();
        plan.clear();
        plan
    }

    pub fn give_back(&mut self, plan: CommandPlan) {
        self.plans.push(plan);
    }

    pub fn add(&mut self, level: usize, source: PlanOrigin, arrived: ArrivedRequest, plan: CommandPlan) -> u32 {
        let ArrivedRequest { request, arrival, parent, number, notes: _, data } = arrived;
        let task = PlanTask {
            level,
            source,
            request,
            arrival,
            parent,
            number,
            plan,
            next: 0,
            data,
            scratch: Vec::new(),
            failed: false,
            waiting: 0,
            end: arrival,
            start: None,
            waits: LatencyBreakdown::default(),
            subrequests: 0,
        };
        if let Some(number) = self.free.pop() {
            self.all[number as usize] = task;
            return number;
        }
        self.all.push(task);
        self.all.len() as u32 - 1
    }

    pub fn remove(&mut self, number: u32) {
        let plan = std::mem::take(&mut self[number].plan);
        self[number].scratch = Vec::new();
        self.plans.push(plan);
        self.free.push(number);
    }
}

impl Index<u32> for PlanTaskTable {
    type Output = PlanTask;
    fn index(&self, number: u32) -> &PlanTask {
        &self.all[number as usize]
    }
}

impl IndexMut<u32> for PlanTaskTable {
    fn index_mut(&mut self, number: u32) -> &mut PlanTask {
        &mut self.all[number as usize]
    }
}

impl SimulatedStack {
    /// Handles a request that arrives at layer `level`, with notes about the roles of its blocks and with its data.
    pub(super) fn enter<O: Observer>(
        &mut self, level: usize, command: &DeviceCommand, parent: Option<ParentCommand>,
        (notes, data): (Vec<BlockNote>, Vec<u8>), disks: &mut DiskPair<'_, O>,
    ) -> Result<()> {
        let &DeviceCommand { arrival, op, sector, sectors, modifiers } = command;
        let request = HostRequest { id: self.next_id, op, sector, sectors, modifiers };
        self.next_id += 1;
        let number = self.request_count;
        self.request_count += u64::from(parent.is_none());
        let arrived = ArrivedRequest { request, arrival, parent, number, notes, data };
        let mut plan = self.tasks.plan();
        if request.expand(self.levels[level].accepts, &mut plan) {
            let task = self.add(level, PlanOrigin::Expanded, arrived, plan);
            return self.run(task, arrival, disks);
        }
        self.tasks.give_back(plan);
        if let Some((arrived, why)) = self.ask(level, arrived, arrival, disks)? {
            self.levels[level].defer(arrived, why);
        }
        self.poke(level, arrival, disks)
    }

    /// Adds a task that executes a plan of commands. Allocates memory for the data of the plan if requests have data.
    pub(super) fn add(&mut self, level: usize, source: PlanOrigin, arrived: ArrivedRequest, plan: CommandPlan) -> u32 {
        let task = self.tasks.add(level, source, arrived, plan);
        if self.moves_data {
            self.tasks[task].make_room();
        }
        task
    }

    /// Passes a request to a layer and executes the commands that the layer plans for it. If the layer defers the request, returns it with
    /// the reason.
    fn ask<O: Observer>(
        &mut self, level: usize, arrived: ArrivedRequest, at: Nanos, disks: &mut DiskPair<'_, O>,
    ) -> Result<Option<(ArrivedRequest, DeferReason)>> {
        let mut plan = self.tasks.plan();
        let SimulatedLevel { layer, in_flight, deferred_time: deferred_for, .. } = &mut self.levels[level];
        match layer.request(&arrived.request, &arrived.notes, &mut plan) {
            RequestDecision::Defer(why) => {
                self.tasks.give_back(plan);
                Ok(Some((arrived, why)))
            }
            RequestDecision::Run => {
                in_flight.insert(&arrived.request);
                *deferred_for += at - arrived.arrival;
                let task = self.add(level, PlanOrigin::Request, arrived, plan);
                self.run(task, at, disks)?;
                Ok(None)
            }
        }
    }

    /// Lets a layer start background work, and submits the requests again that the layer deferred.
    pub(super) fn poke<O: Observer>(&mut self, level: usize, at: Nanos, disks: &mut DiskPair<'_, O>) -> Result<()> {
        loop {
            if !self.levels[level].background_running {
                let mut plan = self.tasks.plan();
                let SimulatedLevel { layer, in_flight, background_running: busy, .. } = &mut self.levels[level];
                if layer.background(in_flight, &mut plan) == BackgroundDecision::Run {
                    *busy = true;
                    let task = self.add(level, PlanOrigin::Background, ArrivedRequest::placeholder(at), plan);
                    self.run(task, at, disks)?;
                } else {
                    self.tasks.give_back(plan);
                }
            }
            let mut went_on = false;
            for _ in 0..self.levels[level].deferred.len() {
                let Some(arrived) = self.levels[level].deferred.pop_front() else { break };
                if let Some((arrived, _)) = self.ask(level, arrived, at, disks)? {
                    self.levels[level].deferred.push_back(arrived);
                } else {
                    went_on = true;
                }
            }
            if !went_on || self.levels[level].background_running {
                return Ok(());
            }
        }
    }
}
