//! A closed-loop run has the same completions as a replay of its requests.

use crate::common::{checked, completed, short_blocks};
use emmclab_device::Device;
use emmclab_layers::LayerConfig;
use emmclab_replay::{ClosedLoop, ReplayMode, ReplayOptions, Simulation};
use emmclab_trace::{Nanos, Op, Request, Sector};
use proptest::prelude::*;

/// Settings, and names of layers.
type Run = (&'static [(&'static str, &'static str)], &'static [&'static str]);

const RUNS: [Run; 6] = [
    (&[], &[]),
    (&[("controller.scheduling", "read_first")], &[]),
    (&[("controller.queue_depth", "1"), ("host.merge_max_kb", "64"), ("host.packed_writes", "8")], &[]),
    (&[("cache.size_kb", "512")], &[]),
    (&[], &["pass-through"]),
    (&[("controller.queue_depth", "1"), ("host.merge_max_kb", "64")], &["pass-through", "pass-through"]),
];

fn simulation((settings, layers): Run) -> Simulation {
    let config = short_blocks(settings);
    let options = ReplayOptions { mode: ReplayMode::Open, ..checked() };
    let layers: Vec<_> = layers.iter().map(|name| LayerConfig::named(name)).collect();
    Simulation::on(&config, &options, Device::new(&config)).with_layers(&layers, None).unwrap()
}

/// First sector, arrival and completion.
type Row = (u64, Nanos, Nanos);

fn replayed(run: usize, requests: &[Request]) -> Vec<Row> {
    let (_, seen) = completed(simulation(RUNS[run]), requests);
    let mut rows: Vec<_> = seen.iter().map(|event| (event.sector, event.arrival, event.complete)).collect();
    rows.sort_unstable();
    rows
}

fn driven(run: usize, requests: &[Request]) -> Vec<Row> {
    let mut device = ClosedLoop::new(simulation(RUNS[run]));
    let mut known = Vec::new();
    for (number, request) in (100..).zip(requests) {
        while let Some(at) = device.next_event().filter(|at| *at < request.arrival) {
            device.advance(at).unwrap();
            device.take_completed(&mut known);
        }
        device.submit(request.arrival, number, request, &[]).unwrap();
        device.take_completed(&mut known);
    }
    while let Some(at) = device.next_event() {
        device.advance(at).unwrap();
        device.take_completed(&mut known);
    }
    let (result, _) = device.finish().unwrap();
    assert_eq!(result.requests.total, requests.len() as u64);
    let row = |(number, at): (u64, Nanos)| {
        let request = &requests[number as usize - 100];
        (request.sector.0, request.arrival, at)
    };
    let mut rows: Vec<_> = known.into_iter().map(row).collect();
    rows.sort_unstable();
    rows
}

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(60), ..ProptestConfig::default() })]

    #[test]
    fn callers_see_the_completions_of_a_replay(
        run in 0..RUNS.len(),
        drawn in prop::collection::vec((0_i64..2000, any::<u8>(), 0_u64..400, 1_u32..5), 1..150),
    ) {
        // A replay starts at its first arrival.
        let mut now = -drawn[0].0 * 1000;
        let requests: Vec<_> = drawn.iter().map(|(gap, op, place, length)| {
            now += gap * 1000;
            let op = match op { 0..=150 => Op::Write, 151..=240 => Op::Read, _ => Op::Flush };
            let (sector, sectors) = if op == Op::Flush { (0, 0) } else { (place * 8, length * 8) };
            Request::new(Nanos(now), op, Sector(sector), sectors)
        }).collect();
        prop_assert_eq!(driven(run, &requests), replayed(run, &requests));
    }
}

#[test]
fn a_request_beyond_the_device_is_refused() {
    let mut device = ClosedLoop::new(simulation(RUNS[0]));
    let request = Request::new(Nanos(0), Op::Write, Sector(device.sectors()), 8);
    let error = device.submit(Nanos(0), 1, &request, &[]).unwrap_err();
    assert!(error.to_string().contains("after the last sector"), "{error}");
}
