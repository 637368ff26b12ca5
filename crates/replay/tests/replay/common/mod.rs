//! Functions for the tests of this crate.

use emmclab_device::{Observer, RequestCompleted};
use emmclab_replay::{Simulation, SimulationResult, WaitTimes};
use emmclab_trace::{Request, TraceCombiner, TraceInput};

pub use emmclab_testing::real_trace;

/// Collects completions.
#[derive(Default)]
pub struct Reported(pub Vec<RequestCompleted>);

impl Observer for Reported {
    fn request_completed(&mut self, event: &RequestCompleted) {
        self.0.push(*event);
    }
}

/// Executes a run with these requests. Returns its result and the completions, in the order in which they became known.
pub fn completed(mut simulation: Simulation, requests: &[Request]) -> (SimulationResult, Vec<RequestCompleted>) {
    let mut reported = Reported::default();
    for request in requests {
        assert!(simulation.push(request, &mut reported).unwrap());
    }
    (simulation.finish(None, &mut reported).unwrap(), reported.0)
}

/// The requests of a real trace; `None` if it is not installed.
pub fn requests_of(trace: &str) -> Option<Vec<Request>> {
    let input = TraceInput { path: real_trace(trace)?, ..TraceInput::default() };
    let mut traces = TraceCombiner::open(vec![input], 1).unwrap();
    let mut requests = Vec::new();
    while let Some(batch) = traces.next_batch().unwrap() {
        requests.extend(batch.iter());
    }
    Some(requests)
}

/// The sum of the parts of the mean response time, in ms.
pub fn parts_ms(waits: &WaitTimes) -> f64 {
    waits.queue_ms + waits.controller_ms + waits.bus_ms + waits.array_ms + waits.gc_ms + waits.wake_up_ms
}
