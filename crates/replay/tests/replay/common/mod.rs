//! Shared by the tests of this crate.

use emmclab_device::{Observer, RequestCompleted};
use emmclab_replay::WaitTimes;

pub use emmclab_testing::real_trace;

/// Keeps every completion.
#[derive(Default)]
pub struct Reported(pub Vec<RequestCompleted>);

impl Observer for Reported {
    fn request_completed(&mut self, event: &RequestCompleted) {
        self.0.push(*event);
    }
}

/// The parts of the mean response time together, ms.
pub fn parts_ms(waits: &WaitTimes) -> f64 {
    waits.queue_ms + waits.controller_ms + waits.bus_ms + waits.array_ms + waits.gc_ms + waits.wake_up_ms
}
