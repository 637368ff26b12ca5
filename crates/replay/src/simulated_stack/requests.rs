//! Requests at a level: the layer plans or defers them, and is asked again for deferred ones.

use emmclab_device::{DeviceCommand, Observer};
use emmclab_layers::{BackgroundDecision, CommandPlan, DeferReason, HostRequest, RequestDecision};
use emmclab_trace::{BlockNote, Nanos, Result};

use crate::disk_pair::DiskPair;

use super::executor::SimulatedStack;
use super::level::{ArrivedRequest, ParentCommand, SimulatedLevel};
use super::task::PlanOrigin;

impl SimulatedStack {
    /// Handles a request that arrives at a level, with notes on the blocks of a write and its data.
    pub(super) fn enter<O: Observer>(
        &mut self,
        level: usize,
        command: &DeviceCommand,
        parent: Option<ParentCommand>,
        (notes, data): (Vec<BlockNote>, Vec<u8>),
        disks: &mut DiskPair<'_, O>,
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

    /// Adds a plan as a task. Allocates memory for its data if the stack moves data.
    pub(super) fn add(&mut self, level: usize, source: PlanOrigin, arrived: ArrivedRequest, plan: CommandPlan) -> u32 {
        let task = self.tasks.add(level, source, arrived, plan);
        if self.moves_data {
            self.tasks[task].make_room();
        }
        task
    }

    /// Asks a layer for the plan of a request and runs it. If the layer defers the request, returns it with the reason.
    fn ask<O: Observer>(
        &mut self,
        level: usize,
        arrived: ArrivedRequest,
        at: Nanos,
        disks: &mut DiskPair<'_, O>,
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

    /// Lets a layer start background work, and asks again for the requests that it deferred.
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
