//! The disks below the layers, borrowed for one call.

use std::io;

use emmclab_device::{DeviceCommand, NullObserver, Observer, RequestCompleted};
use emmclab_trace::{Nanos, Result};

use crate::disk::SimulatedDisk;

/// Disk 0 with its observer, and disk 1 if there is a second device. Disk 1 is not observed: block numbers and times of two devices would
/// be mixed up in one stream.
pub(crate) struct DiskPair<'a, O> {
    pub main: &'a mut SimulatedDisk,
    pub second: Option<&'a mut SimulatedDisk>,
    pub observer: &'a mut O,
}

impl<O: Observer> DiskPair<'_, O> {
    /// Whether one of the devices accepts no more commands.
    pub fn stopped(&self) -> bool {
        self.main.stop().is_some() || self.second.as_ref().is_some_and(|disk| disk.stop().is_some())
    }

    /// Whether the zones of disk 0, in their present state, refuse a command.
    pub fn zones_refuse(&self, command: &DeviceCommand) -> bool {
        self.main.device().zone_refusal(command).is_some()
    }

    /// Submits commands to disk `disk`: one, or the entries of a packed one.
    pub fn submit(&mut self, disk: usize, commands: &[DeviceCommand]) -> Result<()> {
        match &mut self.second {
            Some(second) if disk > 0 => second.submit(commands, &mut NullObserver),
            _ => self.main.submit(commands, self.observer),
        }
    }

    /// Provides the data of the write that disk `disk` gets after `ahead` other commands.
    pub fn give(&mut self, disk: usize, ahead: u64, sector: u64, data: &[u8]) {
        self.disk(disk).give(ahead, sector, data);
    }

    /// Fills `buffer` with the contents of disk `disk` from `sector` on.
    pub fn read(&mut self, disk: usize, sector: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.disk(disk).read(sector, buffer)
    }

    fn disk(&mut self, disk: usize) -> &mut SimulatedDisk {
        match &mut self.second {
            Some(second) if disk > 0 => second,
            _ => self.main,
        }
    }

    /// Time and disk number of the next action of a disk.
    pub fn next_event(&self) -> Option<(Nanos, usize)> {
        let main = self.main.next_event().map(|at| (at, 0));
        let second = self.second.as_ref().and_then(|disk| disk.next_event()).map(|at| (at, 1));
        main.into_iter().chain(second).min()
    }

    /// Executes the next action of disk `disk`.
    pub fn step(&mut self, disk: usize) -> Result<()> {
        match &mut self.second {
            Some(second) if disk > 0 => second.step(&mut NullObserver),
            _ => self.main.step(self.observer),
        }
    }

    /// Appends the completions of disk `disk` that have become known.
    pub fn take_completed(&mut self, disk: usize, to: &mut Vec<RequestCompleted>) {
        match &mut self.second {
            Some(second) if disk > 0 => second.take_completed(to),
            _ => self.main.take_completed(to),
        }
    }
}
