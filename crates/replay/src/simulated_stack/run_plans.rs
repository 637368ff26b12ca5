//! Runs plans in simulated time: sends commands stage by stage, and handles completions in order of time.

use std::cmp::Reverse;

use emmclab_device::{DeviceCommand, Observer, RequestCompleted};
use emmclab_layers::PlanStep;
use emmclab_trace::{Nanos, Op, Result, SECTOR_BYTES};

use crate::disk_pair::DiskPair;

use super::executor::{SimulatedStack, WorkloadCompletion};
use super::level::ParentCommand;
use super::task::{PlanOrigin, PlanTask};

impl SimulatedStack {
    /// Handles the next event up to `until`; false if there is none. At equal times, a disk comes after all other events.
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

    /// Passes the completions of a disk to the plans that they belong to.
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

    /// Records the completion of a command of a task; its time may be in the future.
    fn child_done(&mut self, task: u32, event: &RequestCompleted) {
        self.tasks[task].note(event);
        self.release(task);
    }

    /// Decrements the number of commands that the task waits for. At 0, the stage ends.
    fn release(&mut self, task: u32) {
        self.tasks[task].waiting -= 1;
        if self.tasks[task].waiting == 0 {
            self.event_count += 1;
            self.events.push(Reverse((self.tasks[task].end, self.event_count, task)));
        }
    }

    /// Sends the commands of a plan up to the next wait.
    pub(super) fn run<O: Observer>(&mut self, task: u32, at: Nanos, disks: &mut DiskPair<'_, O>) -> Result<()> {
        let current = &mut self.tasks[task];
        let below = current.level + usize::from(current.source != PlanOrigin::Expanded);
        // One more than the commands, so that the stage does not end before all of them were sent.
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

    /// Whether a command that a zoned device refuses fails only its request. This is so for live requests only. A layer does not learn the
    /// outcome of the commands of its other plans, and a simulated run ends at such a command.
    fn fails_alone(&self, task: u32) -> bool {
        self.moves_data && matches!(self.tasks[task].source, PlanOrigin::Request | PlanOrigin::Expanded)
    }

    /// Moves the data of a command between a plan and a disk. Commands take effect in the order in which the disk gets them, so a read at
    /// submission returns the same data as one at completion.
    fn exchange<O: Observer>(
        &mut self,
        task: u32,
        disk: usize,
        command: &emmclab_layers::PlanCommand,
        disks: &mut DiskPair<'_, O>,
    ) {
        let level = self.tasks[task].level;
        let held = &mut self.levels[level].layer_memory;
        let task = &mut self.tasks[task];
        self.buffer.clear();
        if command.op == Op::Write {
            task.gather(command, held, &mut self.buffer);
            disks.give(disk, self.pack.len() as u64, command.sector, &self.buffer);
            return;
        }
        self.buffer.resize(command.sectors as usize * SECTOR_BYTES as usize, 0);
        match disks.read(disk, command.sector, &mut self.buffer) {
            Ok(()) => task.scatter(command, held, &self.buffer),
            Err(_) => task.failed = true,
        }
    }

    /// Completes a plan at `at`. Work that follows it starts now, which is later than `at` if the completion became known late.
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
