//! The simulated device, with its layers, as a block device for programs.

use emmclab_base::{BlockNote, Nanos, Request, Result};
use emmclab_replay::ClosedLoop;

use crate::block_device::SimulatedBlockDevice;

impl SimulatedBlockDevice for ClosedLoop {
    fn sectors(&self) -> u64 {
        Self::sectors(self)
    }

    fn submit(&mut self, at: Nanos, number: u64, request: &Request, notes: &[BlockNote]) -> Result<()> {
        Self::submit(self, at, number, request, notes)
    }

    fn next_event(&self) -> Option<Nanos> {
        Self::next_event(self)
    }

    fn advance(&mut self, until: Nanos) -> Result<()> {
        Self::advance(self, until)
    }

    fn take_completed(&mut self, out: &mut Vec<(u64, Nanos)>) {
        Self::take_completed(self, out);
    }
}
