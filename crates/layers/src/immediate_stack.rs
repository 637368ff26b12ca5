//! Executes the command sequences (plans) of a stack of layers on real data, one command at a time.

use std::io;

use emmclab_base::{BlockNote, CommandFlags, Op};

use crate::layer::{BackgroundDecision, HostRequest, InFlightRequests, Layer, RecoveryReader, RequestDecision};
use crate::plan::{CommandPlan, PlanBuffers, PlanCommand, PlanStep};
use crate::records::SECTOR;

/// A disk of 512-byte sectors.
pub trait SectorDisk {
    /// Fills `buffer` from `sector` on.
    fn read(&mut self, sector: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Writes `data` from `sector` on. If the flags require it, the data is durable on return.
    fn write(&mut self, sector: u64, data: &[u8], modifiers: CommandFlags) -> io::Result<()>;
    /// Discards sectors. With `secure`, their contents must be erased.
    fn discard(&mut self, sector: u64, sectors: u32, secure: bool) -> io::Result<()>;
    /// Makes all written data durable.
    fn flush(&mut self) -> io::Result<()>;

    /// Returns the write pointer of the zone that starts at `sector`; `None` if there is no such zone.
    fn write_pointer(&mut self, _sector: u64) -> io::Result<Option<u64>> {
        Ok(None)
    }
}

/// A plan in progress.
#[derive(Debug)]
pub struct RunningPlan {
    /// Index of the layer to which the plan's commands for disk 0 are sent. If there is no such layer, they are sent to disk 0 itself.
    below: usize,
    /// Index of the layer and number of the request that is planned. `None` for background work, and for a request that is expanded into
    /// several requests.
    request: Option<(usize, u64)>,
    plan: CommandPlan,
    next: usize,
    scratch: Vec<u8>,
}

struct ImmediateLevel {
    layer: Box<dyn Layer>,
    in_flight: InFlightRequests,
    background: Option<RunningPlan>,
    /// Memory of the layer that persists between plans.
    layer_memory: Vec<u8>,
}

/// A stack of layers over disks. A request is executed within its submission. Each call of [`ImmediateStack::background`] executes one
/// stage of background work. Background work also continues while a request is deferred.
pub struct ImmediateStack<D> {
    levels: Vec<ImmediateLevel>,
    disks: Vec<D>,
    next_id: u64,
    spare: Vec<CommandPlan>,
}

struct LevelDisks<'a, D> {
    executor: &'a mut ImmediateStack<D>,
    level: usize,
}

impl<D: SectorDisk> RecoveryReader for LevelDisks<'_, D> {
    fn read_at(&mut self, disk: u8, sector: u64, buffer: &mut [u8]) -> io::Result<()> {
        let read = request(Op::Read, sector, (buffer.len() / SECTOR) as u32, CommandFlags::empty());
        self.executor.forward(self.level + 1, disk, &read, buffer)
    }

    fn write_pointer(&mut self, disk: u8, sector: u64) -> io::Result<Option<u64>> {
        // Disk 0 of this level is another layer, which has no zones and therefore no write pointers.
        if disk == 0 && self.level + 1 < self.executor.levels.len() {
            return Ok(None);
        }
        self.executor.disks[usize::from(disk)].write_pointer(sector)
    }
}

impl<D: SectorDisk> ImmediateStack<D> {
    /// Starts `layers`, which are in order from the top to the bottom, on `disks`. If `recover` is true, the layers start after a power
    /// cut, otherwise on new disks.
    pub fn start(layers: Vec<Box<dyn Layer>>, disks: Vec<D>, recover: bool) -> io::Result<Self> {
        let mut executor = Self::stopped(layers, disks);
        executor.wake(recover)?;
        Ok(executor)
    }

    /// Returns a stack of layers that are not started yet and have not accessed their disks. Call [`ImmediateStack::wake`] to start them.
    pub fn stopped(layers: Vec<Box<dyn Layer>>, disks: Vec<D>) -> Self {
        let level =
            |layer| ImmediateLevel { layer, in_flight: InFlightRequests::default(), background: None, layer_memory: Vec::new() };
        Self { levels: layers.into_iter().map(level).collect(), disks, next_id: 1, spare: Vec::new() }
    }

    /// Starts the layers from the bottom up. If `recover` is true, they start after a power cut, otherwise on new disks.
    pub fn wake(&mut self, recover: bool) -> io::Result<()> {
        let executor = self;
        for level in (0..executor.levels.len()).rev() {
            if recover {
                executor.recover_level(level)?;
            }
            let mut plan = CommandPlan::default();
            executor.levels[level].layer.start(&mut plan);
            let mut running = Self::running(level + 1, None, plan);
            while !executor.stage(&mut running, &mut [])? {}
        }
        Ok(())
    }

    /// Restores layers, from the top to the bottom, from the disks on which they ran before, without writing.
    ///
    /// Returns the layers and the number of their next request. [`Layer::start`] must follow.
    pub fn recover(layers: Vec<Box<dyn Layer>>, disks: Vec<D>) -> io::Result<(Vec<Box<dyn Layer>>, u64)> {
        let mut executor = Self::stopped(layers, disks);
        for level in (0..executor.levels.len()).rev() {
            executor.recover_level(level)?;
        }
        Ok((executor.levels.into_iter().map(|level| level.layer).collect(), executor.next_id))
    }

    fn recover_level(&mut self, level: usize) -> io::Result<()> {
        // The layer is taken out of the stack while it reads through the layers below it.
        let aside: Box<dyn Layer> = Box::new(crate::PassThrough::new(0));
        let mut layer = std::mem::replace(&mut self.levels[level].layer, aside);
        let done = layer.recover(&mut LevelDisks { executor: self, level });
        self.levels[level].layer = layer;
        done
    }

    /// The disks.
    pub fn disks(&mut self) -> &mut [D] {
        &mut self.disks
    }

    /// Returns the disks and drops the layers.
    pub fn into_disks(self) -> Vec<D> {
        self.disks
    }

    /// The layer at a level; level 0 is on top.
    pub fn layer(&self, level: usize) -> &dyn Layer {
        &*self.levels[level].layer
    }

    /// Executes a request. `data` is the data of a write, or receives the data of a read.
    pub fn submit(&mut self, op: Op, sector: u64, data: &mut [u8]) -> io::Result<()> {
        self.at_level(0, &request(op, sector, (data.len() / SECTOR) as u32, CommandFlags::empty()), &[], data)
    }

    /// Writes data whose blocks are described by `notes`.
    pub fn write_noted(&mut self, sector: u64, modifiers: CommandFlags, notes: &[BlockNote], data: &mut [u8]) -> io::Result<()> {
        self.at_level(0, &request(Op::Write, sector, (data.len() / SECTOR) as u32, modifiers), notes, data)
    }

    /// Discards or securely erases `sectors` sectors, or flushes if `sectors` is 0.
    pub fn submit_bare(&mut self, op: Op, sector: u64, sectors: u32) -> io::Result<()> {
        self.at_level(0, &request(op, sector, sectors, CommandFlags::empty()), &[], &mut [])
    }

    /// Begins a request that may run concurrently with others; [`ImmediateStack::advance`] completes it. Returns `None` if the layer cannot
    /// accept the request yet. If the top layer does not accept the flags of the request, the request is replaced by several requests,
    /// which are executed one at a time.
    pub fn begin(&mut self, op: Op, sector: u64, sectors: u32, modifiers: CommandFlags) -> Option<RunningPlan> {
        self.begin_at(0, &request(op, sector, sectors, modifiers), &[])
    }

    /// Executes the next stage of a request in progress. Returns true when the request is complete.
    pub fn advance(&mut self, running: &mut RunningPlan, data: &mut [u8]) -> io::Result<bool> {
        let complete = self.stage(running, data)?;
        if complete && let Some((level, id)) = running.request {
            let level = &mut self.levels[level];
            level.in_flight.remove(id);
            level.layer.completed(id);
        }
        Ok(complete)
    }

    /// Executes the next stage of the background work of the layer with the index `level`. Returns false if this layer has no work now.
    pub fn background(&mut self, level: usize) -> io::Result<bool> {
        let mut running = if let Some(running) = self.levels[level].background.take() {
            running
        } else {
            let mut plan = self.spare.pop().unwrap_or_default();
            plan.clear();
            let ImmediateLevel { layer, in_flight, .. } = &mut self.levels[level];
            if layer.background(in_flight, &mut plan) != BackgroundDecision::Run {
                return Ok(false);
            }
            Self::running(level + 1, None, plan)
        };
        if self.stage(&mut running, &mut [])? {
            self.spare.push(running.plan);
            self.levels[level].layer.background_done();
        } else {
            self.levels[level].background = Some(running);
        }
        Ok(true)
    }

    /// Makes all layers, from the top down, move data that they store in other locations to its own address. No request may be in flight.
    pub fn drain(&mut self) -> io::Result<()> {
        for level in 0..self.levels.len() {
            self.levels[level].layer.drain();
            while self.background(level)? {}
        }
        Ok(())
    }

    fn running(below: usize, request: Option<(usize, u64)>, plan: CommandPlan) -> RunningPlan {
        let scratch = vec![0; plan.scratch_sectors() as usize * SECTOR];
        RunningPlan { below, request, plan, next: 0, scratch }
    }

    fn begin_at(&mut self, level: usize, request: &HostRequest, notes: &[BlockNote]) -> Option<RunningPlan> {
        let mut plan = self.spare.pop().unwrap_or_default();
        plan.clear();
        if request.expand(self.levels[level].layer.accepts(), &mut plan) {
            return Some(Self::running(level, None, plan));
        }
        let request = HostRequest { id: self.next_id, ..*request };
        let ImmediateLevel { layer, in_flight, .. } = &mut self.levels[level];
        match layer.request(&request, notes, &mut plan) {
            RequestDecision::Run => {
                self.next_id += 1;
                in_flight.insert(&request);
                Some(Self::running(level + 1, Some((level, request.id)), plan))
            }
            RequestDecision::Defer(_) => None,
        }
    }

    fn at_level(&mut self, level: usize, request: &HostRequest, notes: &[BlockNote], data: &mut [u8]) -> io::Result<()> {
        let mut stuck = false;
        let mut running = loop {
            if let Some(running) = self.begin_at(level, request, notes) {
                break running;
            }
            if stuck {
                return Err(io::Error::other("a layer defers a request but has no work to do"));
            }
            stuck = !self.background(level)?;
        };
        while !self.advance(&mut running, data)? {}
        self.spare.push(running.plan);
        Ok(())
    }

    /// Executes the commands up to the next wait. Returns true after the last command.
    fn stage(&mut self, running: &mut RunningPlan, payload: &mut [u8]) -> io::Result<bool> {
        while let Some(step) = running.plan.steps().get(running.next) {
            running.next += 1;
            match *step {
                PlanStep::Wait => return Ok(false),
                PlanStep::Command(command) => self.command(running, &command, payload)?,
                PlanStep::Copy(copy) => {
                    let mut held = self.take_held(running);
                    let scratch = &mut running.scratch;
                    running.plan.perform(&copy, &mut PlanBuffers { payload, scratch, layer_memory: &mut held });
                    self.give_held(running, held);
                }
            }
        }
        Ok(true)
    }

    fn command(&mut self, running: &mut RunningPlan, command: &PlanCommand, payload: &mut [u8]) -> io::Result<()> {
        let below = running.below;
        let PlanCommand { disk, op, sector, sectors, modifiers, .. } = *command;
        let sent = request(op, sector, sectors, modifiers);
        if !op.has_data() {
            return self.forward(below, disk, &sent, &mut []);
        }
        let mut data = Vec::new();
        if op == Op::Read {
            data = vec![0; sectors as usize * SECTOR];
            self.forward(below, disk, &sent, &mut data)?;
        }
        let mut held = self.take_held(running);
        let RunningPlan { plan, scratch, .. } = &mut *running;
        let mut bytes = PlanBuffers { payload, scratch, layer_memory: &mut held };
        if op == Op::Read {
            plan.scatter(command, &data, &mut bytes);
        } else {
            plan.gather(command, &bytes, &mut data);
        }
        self.give_held(running, held);
        if op == Op::Read { Ok(()) } else { self.forward(below, disk, &sent, &mut data) }
    }

    /// Removes the memory of the layer that created the plan, and returns it. The plan of an expanded request was not created by a layer,
    /// and uses no such memory.
    fn take_held(&mut self, running: &RunningPlan) -> Vec<u8> {
        let level = running.below.checked_sub(1).and_then(|level| self.levels.get_mut(level));
        level.map_or_else(Vec::new, |level| std::mem::take(&mut level.layer_memory))
    }

    fn give_held(&mut self, running: &RunningPlan, held: Vec<u8>) {
        if let Some(level) = running.below.checked_sub(1).and_then(|level| self.levels.get_mut(level)) {
            level.layer_memory = held;
        }
    }

    /// Sends a command to the level below, or to its disk.
    fn forward(&mut self, below: usize, disk: u8, request: &HostRequest, data: &mut [u8]) -> io::Result<()> {
        if disk == 0 && below < self.levels.len() {
            return self.at_level(below, request, &[], data);
        }
        let HostRequest { op, sector, sectors, modifiers, .. } = *request;
        let disk = &mut self.disks[usize::from(disk)];
        match op {
            Op::Read => disk.read(sector, data),
            Op::Write => disk.write(sector, data, modifiers),
            Op::Discard => disk.discard(sector, sectors, false),
            Op::SecureErase => disk.discard(sector, sectors, true),
            Op::Flush => disk.flush(),
        }
    }
}

/// A request without a number.
fn request(op: Op, sector: u64, sectors: u32, modifiers: CommandFlags) -> HostRequest {
    HostRequest { id: 0, op, sector, sectors, modifiers }
}
