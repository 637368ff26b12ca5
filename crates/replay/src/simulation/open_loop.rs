//! The fastest loop: requests at their recorded times, directly to the device.
//!
//! It keeps its state in locals, so that the compiler uses fixed offsets.

use emmclab_device::Observer;
use emmclab_trace::{RequestIter, Result};

use super::Simulation;

impl Simulation {
    /// Simulates requests that do not wait for each other; the engine must be bare.
    #[inline(always)]
    pub(super) fn feed_open<O: Observer>(&mut self, requests: RequestIter<'_>, observer: &mut O) -> Result<bool> {
        let Self { engine, measure, pacer: pace, commands: placed, .. } = self;
        let device = engine.device_mut();
        let mut listeners = (measure, observer);
        for request in requests {
            let arrival = pace.open_arrival(request.arrival);
            let command = placed.command(&request, arrival)?;
            let done = device.submit(&command, &mut listeners)?;
            if done.is_none() && device.stop().is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
