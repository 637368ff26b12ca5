//! The nexus5 preset against the recording that it was fitted to.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::Reported;
use emmclab_device::DeviceConfig;
use emmclab_replay::{ByOperation, ReplayMode, ReplayOptions, Simulation, SimulationResult};
use emmclab_trace::{Nanos, Op, Request, TraceCombiner, TraceInput};

/// Service times in us by write and KB.
type Times = BTreeMap<(bool, u32), Vec<i64>>;

fn median(times: &mut [i64]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2] as f64
}

fn recorded(path: &Path) -> Vec<Request> {
    let input = TraceInput { path: path.to_owned(), ..TraceInput::default() };
    let mut traces = TraceCombiner::open(vec![input], 1).unwrap();
    let mut requests = Vec::new();
    while let Some(batch) = traces.next_batch().unwrap() {
        requests.extend(batch.iter());
    }
    requests
}

fn in_closed_loop(config: &DeviceConfig, requests: &[Request]) -> (SimulationResult, Reported) {
    let options = ReplayOptions { mode: ReplayMode::Closed, ..ReplayOptions::default() };
    let mut simulation = Simulation::new(config, &options, None).unwrap();
    let mut reported = Reported::default();
    for request in requests {
        simulation.push(request, &mut reported).unwrap();
    }
    (simulation.finish(None, &mut reported).unwrap(), reported)
}

/// Service times of the phone: from the start, or from the completion before where that is later, since the driver fetches the
/// next request while one runs.
fn served(requests: &[Request]) -> Times {
    let mut completions: Vec<Nanos> = requests.iter().map(|request| request.complete.unwrap()).collect();
    completions.sort_unstable();
    let mut times = Times::new();
    for request in requests {
        let complete = request.complete.unwrap();
        let earlier = completions.partition_point(|end| *end < complete);
        let free = if earlier > 0 { completions[earlier - 1] } else { Nanos::MIN };
        let key = (request.op == Op::Write, request.sectors / 2);
        let service = complete - request.start.unwrap().max(free);
        times.entry(key).or_default().push(service.0 / 1000);
    }
    times
}

#[test]
fn service_times_by_size_are_those_of_the_phone() {
    let Some(path) = crate::common::real_trace("nexus5/log106_Messaging.txt") else { return };
    let requests = recorded(&path);
    let (_, reported) = in_closed_loop(&DeviceConfig::preset("nexus5").unwrap(), &requests);
    let mut simulated = Times::new();
    for event in &reported.0 {
        let key = (event.op == Op::Write, event.sectors / 2);
        simulated.entry(key).or_default().push((event.complete - event.start).0 / 1000);
    }
    let (mut near, mut all) = (0, 0);
    for (key, times) in &mut served(&requests) {
        let count = times.len();
        let (found, wanted) = (median(simulated.get_mut(key).unwrap()), median(times));
        let error = found / wanted - 1.0;
        all += count;
        near += if error.abs() <= 0.1 { count } else { 0 };
        if count >= 8 {
            println!("{key:?} KB, {count} requests: {found} us, recorded {wanted} us ({:+.0} %)", 100.0 * error);
        }
    }
    println!("{near} of {all} requests are of sizes met within 10 %");
    assert!(near * 10 > all * 8, "only {near} of {all} requests are of sizes met within 10 %");
}

#[test]
fn its_own_recording_is_met_in_closed_loop_over_ten_seeds() {
    let Some(path) = crate::common::real_trace("nexus5/log106_Messaging.txt") else { return };
    let requests = recorded(&path);
    let mut runs = Vec::new();
    for seed in 0..10 {
        let mut config = DeviceConfig::preset("nexus5").unwrap();
        config.set("power.seed", &seed.to_string()).unwrap();
        runs.push(in_closed_loop(&config, &requests).0.recorded);
    }
    let response = |op: fn(&ByOperation<emmclab_replay::TimeComparison>) -> emmclab_replay::TimeComparison| {
        let times: Vec<_> = runs.iter().map(|run| op(&run.response)).collect();
        let mean = times.iter().map(|time| time.simulated_ms.unwrap()).sum::<f64>() / 10.0;
        100.0 * (mean / times[0].recorded_ms.unwrap() - 1.0)
    };
    let (all, reads, writes) = (response(|by| by.all), response(|by| by.read), response(|by| by.write));
    let no_wait = runs.iter().map(|run| run.no_wait.all.error_points.unwrap()).sum::<f64>() / 10.0;
    println!("mean {all:+.1} %, reads {reads:+.1} %, writes {writes:+.1} %, no-wait {no_wait:+.1} points");
    assert!(all.abs() <= 2.0 && writes.abs() <= 5.0, "mean {all} %, writes {writes} %");
    assert!(reads.abs() <= 10.0, "reads {reads} %");
    assert!(no_wait.abs() <= 1.0, "no-wait {no_wait} points");
}
