//! The simulated device, with the layers above it, as a device of programs.

use emmclab_base::{BlockNote, Nanos, Request, Result};
use emmclab_device::{Observer, Quiet};
use emmclab_replay::ClosedLoop;

use crate::block_device::BlockDevice;

/// A device and what listens to it.
pub(crate) struct Observed<'a, O> {
    /// The device.
    pub device: &'a mut ClosedLoop,
    /// The listener.
    pub observer: O,
}

impl<O: Observer> BlockDevice for Observed<'_, O> {
    fn sectors(&self) -> u64 {
        self.device.sectors()
    }

    fn submit(&mut self, at: Nanos, number: u64, request: &Request, notes: &[BlockNote]) -> Result<()> {
        self.device.submit(at, number, request, notes, &mut self.observer)
    }

    fn next_event(&self) -> Option<Nanos> {
        self.device.next_event()
    }

    fn advance(&mut self, until: Nanos) -> Result<()> {
        self.device.advance(until, &mut self.observer)
    }

    fn take_completed(&mut self, out: &mut Vec<(u64, Nanos)>) {
        self.device.take_completed(out);
    }
}

/// A device that nothing listens to.
impl BlockDevice for ClosedLoop {
    fn sectors(&self) -> u64 {
        Self::sectors(self)
    }

    fn submit(&mut self, at: Nanos, number: u64, request: &Request, notes: &[BlockNote]) -> Result<()> {
        unheard(self).submit(at, number, request, notes)
    }

    fn next_event(&self) -> Option<Nanos> {
        Self::next_event(self)
    }

    fn advance(&mut self, until: Nanos) -> Result<()> {
        unheard(self).advance(until)
    }

    fn take_completed(&mut self, out: &mut Vec<(u64, Nanos)>) {
        Self::take_completed(self, out);
    }
}

fn unheard(device: &mut ClosedLoop) -> Observed<'_, Quiet> {
    Observed { device, observer: Quiet }
}
