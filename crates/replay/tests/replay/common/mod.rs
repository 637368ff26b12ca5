//! Shared by the tests of this crate.

use emmclab_device::{Observer, RequestCompleted};
use emmclab_replay::{Simulation, SimulationResult, WaitTimes};
use emmclab_trace::{Request, TraceCombiner, TraceInput};

pub use emmclab_testing::real_trace;

/// Keeps every completion.
#[derive(Default)]
pub struct Reported(pub Vec<RequestCompleted>);

impl Observer for Reported {
    fn request_completed(&mut self, event: &RequestCompleted) {
        self.0.push(*event);
    }
}

/// The result of a run that takes all these requests, and their completions as they became known.
pub fn completed(mut simulation: Simulation, requests: &[Request]) -> (SimulationResult, Vec<RequestCompleted>) {
    let mut reported = Reported::default();
    for request in requests {
        assert!(simulation.push(request, &mut reported).unwrap());
    }
    (simulation.finish(None, &mut reported).unwrap(), reported.0)
}

/// The requests of a real trace; `None` where it is not installed.
pub fn requests_of(trace: &str) -> Option<Vec<Request>> {
    let input = TraceInput { path: real_trace(trace)?, ..TraceInput::default() };
    let mut traces = TraceCombiner::open(vec![input], 1).unwrap();
    let mut requests = Vec::new();
    while let Some(batch) = traces.next_batch().unwrap() {
        requests.extend(batch.iter());
    }
    Some(requests)
}

/// The parts of the mean response time together, ms.
pub fn parts_ms(waits: &WaitTimes) -> f64 {
    waits.queue_ms + waits.controller_ms + waits.bus_ms + waits.array_ms + waits.gc_ms + waits.wake_up_ms
}
