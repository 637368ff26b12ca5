//! The nexus5 preset against the service times that were recorded on the phone.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::collections::BTreeMap;

use emmclab_device::{DeviceConfig, Observer, RequestCompleted};
use emmclab_replay::{ReplayOptions, Simulation};
use emmclab_trace::{Combiner, Op, TraceInput};

/// Service times in us by write and KB.
type Times = BTreeMap<(bool, u32), Vec<i64>>;

#[derive(Default)]
struct BySize(Times);

impl Observer for BySize {
    fn request_completed(&mut self, event: &RequestCompleted) {
        let key = (event.op == Op::Write, event.sectors / 2);
        self.0.entry(key).or_default().push((event.complete - event.start).0 / 1000);
    }
}

fn median(times: &mut [i64]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2] as f64
}

#[test]
fn service_times_by_size_are_those_of_the_phone() {
    let Some(path) = common::real_trace("nexus5/log106_Messaging.txt") else { return };
    let config = DeviceConfig::preset("nexus5").unwrap();
    let mut traces = Combiner::open(vec![TraceInput { path, ..TraceInput::default() }], 1).unwrap();
    let mut simulation = Simulation::new(&config, &ReplayOptions::default(), None).unwrap();
    let mut simulated = BySize::default();
    let mut recorded = Times::new();
    while let Some(batch) = traces.next_batch().unwrap() {
        for request in &batch {
            let key = (request.op == Op::Write, request.sectors / 2);
            recorded.entry(key).or_default().push(request.service().unwrap().0 / 1000);
        }
        simulation.feed(&batch, &mut simulated).unwrap();
    }
    let result = simulation.finish(None, &mut simulated).unwrap();
    let (mut near, mut all) = (0, 0);
    for (key, times) in &mut recorded {
        let count = times.len();
        let (found, wanted) = (median(simulated.0.get_mut(key).unwrap()), median(times));
        let error = found / wanted - 1.0;
        all += count;
        near += if error.abs() <= 0.1 { count } else { 0 };
        if count >= 8 {
            println!(
                "{key:?} KB, {count} requests: {found} us, recorded {wanted} us ({:+.0} %)",
                100.0 * error
            );
        }
    }
    println!(
        "mean service {:.3} ms, recorded 1.68; {near} of {all} requests within 10 %",
        result.service.mean_service_ms
    );
    println!("mean response {:.3} ms, recorded 1.88", result.response.mean_response_ms);
    assert!(near * 10 > all * 8, "only {near} of {all} requests are of sizes met within 10 %");
    assert!((result.service.mean_service_ms / 1.68 - 1.0).abs() < 0.1, "{}", result.service.mean_service_ms);
}
