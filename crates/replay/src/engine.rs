//! The replay engine, through which all commands reach the devices.
//!
//! A [`ReplayEngine`] accepts commands in order of arrival and reports their completions to an observer. It drives one device, directly or
//! through a host queue, or a stack of layers over one or two devices. If a device reorders commands, a completion becomes known only when
//! the last page operation of the command has begun.

use emmclab_device::{Device, DeviceCommand, DeviceConfig, NullObserver, Observer, RequestCompleted, StopReason};
use emmclab_trace::{BlockNote, Error, ErrorClass, Nanos, Result};
use rustc_hash::FxHashMap;

use crate::simulated_stack::{SimulatedStack, WorkloadCompletion};

use emmclab_layers::LayerConfig;

use crate::disk::{DiskPair, SimulatedDisk};
use crate::host::HostCounts;
use crate::sequence_map::ReorderBuffer;

/// Executes commands on one or two devices with the software above them: layers and host queues.
pub(crate) struct ReplayEngine {
    pub main: SimulatedDisk,
    second: Option<Box<SimulatedDisk>>,
    pub layers: Option<Box<SimulatedStack>>,
    /// Whether commands go to the device directly and unchanged.
    pub is_bare: bool,
    reorder_buffer: ReorderBuffer,
    /// Completions that were last taken from a disk; the memory is reused.
    completions: Vec<RequestCompleted>,
    /// Completion time of the last submitted command, if it is known; otherwise [`ReplayEngine::settle`] determines it. With layers, the
    /// time at which the latest completion became known.
    pub last_complete: Nanos,
    /// Completions for a caller that requests them as soon as they are known.
    completion_queue: Option<Box<CompletionQueue>>,
}

impl ReplayEngine {
    /// Wraps a device without host queue, checker and layers.
    pub fn bare(device: Device) -> Self {
        Self::of(SimulatedDisk::new(device))
    }

    /// Creates an engine at time 0 of a run. The host queue has the queue settings of the device. With `check`, there is a checker.
    pub fn for_run(config: &DeviceConfig, device: Device, check: bool) -> Self {
        Self::of(SimulatedDisk::for_run(config.settings(), device, check))
    }

    fn of(main: SimulatedDisk) -> Self {
        Self {
            is_bare: main.is_bare(),
            main,
            second: None,
            layers: None,
            reorder_buffer: ReorderBuffer::default(),
            completions: Vec::new(),
            last_complete: Nanos::ZERO,
            completion_queue: None,
        }
    }

    /// Adds layers above the device, from top to bottom, and optionally a second device. Records the first `first_writes` writes that the
    /// layers send to the device.
    /// Errors: for an unknown layer, invalid settings, and a second device without a layer that uses it.
    pub fn with_layers(mut self, layers: &[LayerConfig], second: Option<SimulatedDisk>, first_writes: u32) -> Result<Self> {
        if layers.is_empty() {
            if second.is_some() {
                return Err(Error::new(ErrorClass::Config, "there is a second device, but no layer to use it"));
            }
            return Ok(self);
        }
        let below = self.main.below(second.as_ref());
        self.layers = Some(Box::new(SimulatedStack::new(layers, &below, first_writes)?));
        (self.second, self.is_bare) = (second.map(Box::new), false);
        Ok(self)
    }

    /// Number of addressable sectors.
    pub fn capacity(&self) -> u64 {
        match &self.layers {
            Some(layers) => layers.capacity(),
            None => self.main.device.geometry().sectors(),
        }
    }

    /// The second device and, if it has a host queue, the counts of this queue.
    pub fn second(&self) -> Option<(&Device, Option<HostCounts>)> {
        self.second.as_ref().map(|disk| (&disk.device, disk.host_counts()))
    }

    /// Returns the reason why a device accepts no more commands; `None` if all devices accept commands.
    #[inline]
    pub fn stop(&self) -> Option<StopReason> {
        self.main.stop().or_else(|| self.second.as_ref().and_then(|disk| disk.stop()))
    }

    /// Whether a layer uses the notes about the roles of written blocks.
    pub fn reads_notes(&self) -> bool {
        self.layers.as_ref().is_some_and(|layers| layers.reads_notes())
    }

    /// Submits a command; `notes` describe the roles of its blocks and may be empty. Returns false if a device has stopped.
    #[inline]
    pub fn submit<O: Observer>(&mut self, command: &DeviceCommand, notes: &[BlockNote], observer: &mut O) -> Result<bool> {
        if !self.is_bare {
            return self.submit_to_disks(command, notes, observer);
        }
        match self.main.device.submit(command, observer)? {
            Some(done) => {
                self.last_complete = done;
                Ok(true)
            }
            None => Ok(self.main.stop().is_none()),
        }
    }

    #[inline(never)]
    fn submit_to_disks<O: Observer>(&mut self, command: &DeviceCommand, notes: &[BlockNote], observer: &mut O) -> Result<bool> {
        if let Some(layers) = &mut self.layers {
            let second = self.second.as_deref_mut();
            let disks = &mut DiskPair { main: &mut self.main, second, observer };
            let id = layers.submit(command, notes.to_vec(), disks)?;
            if let Some(watched) = &mut self.completion_queue {
                watched.map_number(id);
                watched.take_from_layers(layers);
            }
        } else {
            self.main.advance(command.arrival, observer)?;
            self.main.submit(std::slice::from_ref(command), observer)?;
            self.report(observer);
        }
        Ok(self.stop().is_none())
    }

    /// Simulates until every command is complete or a device has stopped. Returns the latest known completion.
    #[inline]
    pub fn settle<O: Observer>(&mut self, observer: &mut O) -> Result<Nanos> {
        if self.is_bare {
            self.last_complete = self.main.device.settle(observer);
        } else if let Some(layers) = &mut self.layers {
            let second = self.second.as_deref_mut();
            layers.settle(&mut DiskPair { main: &mut self.main, second, observer })?;
            self.last_complete = layers.last_known();
        } else {
            self.main.advance(Nanos::MAX, observer)?;
            self.report(observer);
        }
        Ok(self.last_complete)
    }

    /// Makes the layers move all data from temporary locations (such as a log) to its final location. All commands must be complete.
    /// Returns the time that this took.
    pub fn drain<O: Observer>(&mut self, observer: &mut O) -> Result<Nanos> {
        let Some(layers) = &mut self.layers else { return Ok(Nanos::ZERO) };
        let second = self.second.as_deref_mut();
        layers.drain(&mut DiskPair { main: &mut self.main, second, observer })
    }

    /// Reports newly known completions, in order of arrival.
    fn report<O: Observer>(&mut self, observer: &mut O) {
        self.main.take_completed(&mut self.completions);
        for event in self.completions.drain(..) {
            self.last_complete = event.complete;
            if let Some(watched) = &mut self.completion_queue {
                watched.add_completion(&event);
            }
            self.reorder_buffer.insert(event);
        }
        while let Some(event) = self.reorder_buffer.pop() {
            observer.request_completed(&event);
        }
    }

    /// Shuts the main device down in an orderly way, so that all data of the host is programmed, and checks the contents of the devices. A
    /// second device begins all its remaining commands, but does not write back its cache.
    pub fn finish<O: Observer>(&mut self, observer: &mut O) -> Result<()> {
        if self.is_bare {
            self.main.device.power_off(observer);
            return Ok(());
        }
        self.main.power_off(observer)?;
        self.main.verify()?;
        if let Some(second) = &mut self.second {
            second.advance(Nanos::MAX, &mut NullObserver)?;
            second.verify()?;
        }
        Ok(())
    }

    /// Enables [`ReplayEngine::take_completions`].
    pub fn with_completion_queue(mut self) -> Self {
        self.is_bare = false;
        self.completion_queue = Some(Box::default());
        if let Some(layers) = &mut self.layers {
            layers.keep_done();
        }
        self
    }

    /// Time of the next event that may complete a command.
    pub fn next_event(&self) -> Option<Nanos> {
        match &self.layers {
            Some(layers) => layers.next_event(&self.main, self.second.as_deref()),
            None => self.main.next_event(),
        }
    }

    /// Simulates up to and including `until`.
    pub fn advance<O: Observer>(&mut self, until: Nanos, observer: &mut O) -> Result<()> {
        if let Some(layers) = &mut self.layers {
            let second = self.second.as_deref_mut();
            layers.advance(until, &mut DiskPair { main: &mut self.main, second, observer })?;
            if let Some(watched) = &mut self.completion_queue {
                watched.take_from_layers(layers);
            }
            return Ok(());
        }
        while self.main.next_event().is_some_and(|at| at <= until) {
            self.main.step(observer)?;
        }
        self.report(observer);
        Ok(())
    }

    /// Appends newly known completions, as (number of the command from 0, time). Times may be in the future.
    pub fn take_completions(&mut self, out: &mut Vec<(u64, Nanos)>) {
        if let Some(watched) = &mut self.completion_queue {
            out.append(&mut watched.completions);
        }
    }
}

/// Known completions that the caller has not taken yet.
#[derive(Default)]
pub(super) struct CompletionQueue {
    /// Maps the number of a request in the layers to its number at the caller, counted from 0.
    numbers: FxHashMap<u64, u64>,
    next_number: u64,
    completions: Vec<(u64, Nanos)>,
    workload_completions: Vec<WorkloadCompletion>,
}

impl CompletionQueue {
    /// Records which number the next request has in the layers.
    pub fn map_number(&mut self, id: u64) {
        self.numbers.insert(id, self.next_number);
        self.next_number += 1;
    }

    /// Adds a completion of the device, whose time may be in the future.
    pub fn add_completion(&mut self, event: &RequestCompleted) {
        self.completions.push((event.id, event.complete));
    }

    /// Moves the completions of the layers to this queue.
    pub fn take_from_layers(&mut self, layers: &mut SimulatedStack) {
        layers.take_done(&mut self.workload_completions);
        for WorkloadCompletion { id, event, .. } in self.workload_completions.drain(..) {
            if let Some(number) = self.numbers.remove(&id) {
                self.completions.push((number, event.complete));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use emmclab_trace::{Nanos, Op};
    use proptest::prelude::*;

    use crate::host::HostQueue;

    fn config(settings: &[(&str, &str)]) -> DeviceConfig {
        let mut config = DeviceConfig::preset("small-1gb").unwrap();
        config.set("geometry.block_groups.0.pages_per_block", "16").unwrap();
        config.set_all(settings).unwrap();
        config
    }

    /// Creates a device in which reads overtake writes, below a host queue. The test uses it in place of a command queue that reorders. The
    /// settings themselves do not permit this combination.
    fn reordering_behind_a_queue(depth: &str, packed: &str) -> SimulatedDisk {
        let device = config(&[("controller.scheduling", "read_first")]);
        let queue = config(&[
            ("controller.queue_depth", depth),
            ("host.merge_max_kb", "64"),
            ("host.packed_writes", packed),
            ("host.packed_reads", packed),
        ]);
        let mut disk = SimulatedDisk::for_run(device.settings(), Device::new(&device), true);
        disk.host = HostQueue::new(queue.settings());
        disk
    }

    /// Sends commands to a disk. Returns the completions in the order in which they became known.
    fn drive(disk: &mut SimulatedDisk, commands: &[DeviceCommand]) -> Vec<RequestCompleted> {
        let mut known = Vec::new();
        for command in commands {
            disk.advance(command.arrival, &mut NullObserver).unwrap();
            disk.submit(std::slice::from_ref(command), &mut NullObserver).unwrap();
            disk.take_completed(&mut known);
        }
        disk.advance(Nanos::MAX, &mut NullObserver).unwrap();
        disk.take_completed(&mut known);
        disk.power_off(&mut NullObserver).unwrap();
        disk.verify().unwrap();
        known
    }

    fn command(at_us: i64, op: Op, sector: u64, sectors: u32) -> DeviceCommand {
        DeviceCommand::new(Nanos::from_micros(at_us), op, sector, sectors)
    }

    /// Writes of 4 KB at intervals of 1 us.
    fn writes(count: i64) -> Vec<DeviceCommand> {
        (0..count).map(|i| command(i, Op::Write, i as u64 * 64, 8)).collect()
    }

    #[test]
    fn a_tag_is_free_when_the_late_completion_is_known() {
        let mut disk = reordering_behind_a_queue("1", "0");
        let known = drive(&mut disk, &writes(20));
        assert_eq!(known.iter().map(|event| event.id).collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
        for pair in known.windows(2) {
            assert!(pair[1].start >= pair[0].complete, "one command at a time");
        }
    }

    #[test]
    fn the_entries_of_a_pack_are_commands_of_their_own_where_the_device_reorders() {
        let mut disk = reordering_behind_a_queue("1", "8");
        let known = drive(&mut disk, &writes(9));
        let counts = disk.host_counts().unwrap();
        assert_eq!((counts.packs, counts.packed_requests, known.len()), (1, 8, 9));
        assert_eq!(disk.device.counters().packs, 0);
        assert!(known[1].complete < known[8].complete, "they complete independently");
    }

    #[test]
    fn both_disks_of_a_checked_run_have_a_checker_and_the_queue_of_their_settings() {
        let plain = config(&[]);
        let queued = config(&[("controller.queue_depth", "1"), ("host.merge_max_kb", "64")]);
        let layer = LayerConfig::named("pair").with("routing", "striping");
        let second = SimulatedDisk::for_run(queued.settings(), Device::new(&queued), true);
        let engine = ReplayEngine::for_run(&plain, Device::new(&plain), true).with_layers(&[layer], Some(second), 0).unwrap();
        let second = engine.second.unwrap();
        assert!(engine.main.checker.is_some() && second.checker.is_some());
        assert!(engine.main.host_counts().is_none() && second.host_counts().is_some());
    }

    /// A random request: gap in us, operation, address, and length in units of 4 KB.
    type Drawn = (u16, u8, u16, u8);

    proptest! {
        #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(60), ..ProptestConfig::default() })]

        /// Uses the checker, which compares the contents of every sector with a reference model.
        #[test]
        fn every_request_through_a_queue_to_a_reordering_device_completes_once(
            (depth, packed) in prop::sample::select(vec![("1", "0"), ("4", "0"), ("32", "0"), ("1", "8")]),
            steps in prop::collection::vec(any::<Drawn>(), 1..300),
        ) {
            let mut disk = reordering_behind_a_queue(depth, packed);
            let mut now = 0;
            let commands: Vec<_> = steps.iter().map(|(gap, op, place, length)| {
                now += i64::from(*gap % 1000);
                let op = match op { 0..=150 => Op::Write, 151..=225 => Op::Read, 226..=240 => Op::Discard, _ => Op::Flush };
                let sectors = if op == Op::Flush { 0 } else { u32::from(length % 4 + 1) * 8 };
                command(now, op, u64::from(*place % 300) * 8, sectors)
            }).collect();
            let mut known = drive(&mut disk, &commands);
            known.sort_by_key(|event| event.id);
            prop_assert_eq!(known.len(), commands.len());
            for (event, command) in known.iter().zip(&commands) {
                prop_assert_eq!((event.op, event.sector, event.sectors), (command.op, command.sector, command.sectors));
                prop_assert_eq!(event.arrival, command.arrival);
                prop_assert!(event.arrival <= event.start && event.start <= event.complete);
            }
        }
    }
}
