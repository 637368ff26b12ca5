//! Plans in progress.

use std::ops::{Index, IndexMut};

use emmclab_device::{LatencyBreakdown, RequestCompleted};
use emmclab_layers::{CommandPlan, HostRequest, MemoryCopy, PlanBuffers, PlanCommand, PlanStep};
use emmclab_trace::{Nanos, Op, SECTOR_BYTES};

use super::level::{ArrivedRequest, ParentCommand};

/// The origin of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlanOrigin {
    Start,
    Request,
    /// A request that is executed as several at its level, because the layer does not accept its flags.
    Expanded,
    Background,
}

/// A plan in progress.
pub(super) struct PlanTask {
    pub level: usize,
    pub source: PlanOrigin,
    pub request: HostRequest,
    arrival: Nanos,
    pub parent: Option<ParentCommand>,
    /// As [`ArrivedRequest::number`].
    pub number: u64,
    plan: CommandPlan,
    next: usize,
    /// The data of the request, and the plan's own buffer; empty if the stack does not move data.
    pub data: Vec<u8>,
    scratch: Vec<u8>,
    /// Whether data could not be read.
    pub failed: bool,
    /// Commands at the layer below that are not complete.
    pub waiting: u32,
    /// End of the stage, as far as it is known.
    pub end: Nanos,
    /// When a device began the first command of the task.
    start: Option<Nanos>,
    /// Wait times of the command that was complete last; reported for the task.
    waits: LatencyBreakdown,
    subrequests: u32,
}

impl PlanTask {
    /// Returns the next step and advances to the one after it.
    pub fn next_step(&mut self) -> Option<PlanStep> {
        let step = self.plan.steps().get(self.next).copied();
        self.next += usize::from(step.is_some());
        step
    }

    /// Whether the next step is a further entry of the packed command of the previous step.
    pub fn packs_on(&self) -> bool {
        matches!(self.plan.steps().get(self.next), Some(PlanStep::Command(command)) if command.packed)
    }

    /// Allocates memory for data that is read and for the plan's own buffer.
    pub fn make_room(&mut self) {
        let bytes = |sectors: u32| sectors as usize * SECTOR_BYTES as usize;
        if self.request.op == Op::Read {
            self.data.resize(bytes(self.request.sectors), 0);
        }
        self.scratch.resize(bytes(self.plan.scratch_sectors()), 0);
    }

    /// Appends the data of a write of the plan to `data`; `held` is the memory of the layer.
    pub fn gather(&mut self, command: &PlanCommand, held: &mut Vec<u8>, data: &mut Vec<u8>) {
        let Self { plan, data: payload, scratch, .. } = self;
        plan.gather(command, &PlanBuffers { payload, scratch, layer_memory: held }, data);
    }

    /// Stores the data of a read of the plan.
    pub fn scatter(&mut self, command: &PlanCommand, held: &mut Vec<u8>, data: &[u8]) {
        let Self { plan, data: payload, scratch, .. } = self;
        plan.scatter(command, data, &mut PlanBuffers { payload, scratch, layer_memory: held });
    }

    /// Executes a copy step of the plan.
    pub fn perform(&mut self, copy: &MemoryCopy, held: &mut Vec<u8>) {
        let Self { plan, data: payload, scratch, .. } = self;
        plan.perform(copy, &mut PlanBuffers { payload, scratch, layer_memory: held });
    }

    /// Whether all steps were executed.
    pub fn is_over(&self) -> bool {
        self.next == self.plan.steps().len()
    }

    /// Records the completion of one of its commands; its time may be in the future.
    pub fn note(&mut self, event: &RequestCompleted) {
        if event.complete >= self.end {
            self.end = event.complete;
            self.waits = event.waits;
        }
        self.start = Some(self.start.map_or(event.start, |start| start.min(event.start)));
        self.subrequests += event.subrequests;
    }

    /// The completion of the request for the layer above. All time that the last command did not spend otherwise counts as waiting in the
    /// queue.
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

/// Tasks by number; numbers and plans are reused.
#[derive(Default)]
pub(super) struct PlanTaskTable {
    all: Vec<PlanTask>,
    free: Vec<u32>,
    plans: Vec<CommandPlan>,
}

impl PlanTaskTable {
    /// An empty plan.
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
