//! Devices in which reads overtake writes, whose completions are unknown when a request arrives, below all kinds of drivers.

use crate::common::{
    Drawn, check_times, completed, drawn_requests, in_mode, of_4_kb, random_numbers, short_blocks, small_layers,
};
use emmclab_device::{Device, DeviceConfig, RequestCompleted};
use emmclab_layers::LayerConfig;
use emmclab_replay::{Precondition, ReplayMode, ReplayOptions, Simulation, SimulationResult};
use emmclab_trace::{Nanos, Op, Request, Sector};
use proptest::prelude::*;

/// A small device in which reads overtake writes.
fn reordering() -> DeviceConfig {
    short_blocks(&[("controller.scheduling", "read_first")])
}

/// Reads, writes and a few discards and flushes at intervals of `gap_us`, all recorded as complete at once.
fn requests(count: i64, gap_us: i64) -> Vec<Request> {
    let mut random = random_numbers();
    let request = |i: i64| {
        let op = match random(20) {
            0..=7 => Op::Read,
            8 => Op::Discard,
            9 => Op::Flush,
            _ => Op::Write,
        };
        let sectors = if op == Op::Flush { 0 } else { [8, 8, 8, 15, 64, 256][random(6) as usize] };
        let at = Nanos::from_micros(i * gap_us);
        let request = Request::new(at, op, Sector(random(10_000) * 8), sectors);
        Request { complete: Some(Nanos(at.0 + 1000)), ..request }
    };
    (0..count).map(request).collect()
}

/// Executes a run with the checker. Returns the completions in order of arrival.
fn run(
    layers: &[LayerConfig], second: Option<&DeviceConfig>, options: &ReplayOptions, requests: &[Request],
) -> (SimulationResult, Vec<RequestCompleted>) {
    let options = ReplayOptions { check: true, ..options.clone() };
    let config = reordering();
    let beside = second.map(|card| (card, Simulation::new(card, &options, None).unwrap().into_device()));
    let simulation = Simulation::new(&config, &options, None).unwrap().with_layers(layers, beside).unwrap();
    let (mut result, mut reported) = completed(simulation, requests);
    result.computing = emmclab_replay::ComputeCost::default();
    reported.sort_by_key(|event| (event.arrival, event.id));
    (result, reported)
}

fn times(events: &[RequestCompleted]) -> Vec<(u64, Nanos, Nanos, Nanos)> {
    events.iter().map(|event| (event.sector, event.arrival, event.start, event.complete)).collect()
}

#[test]
fn pass_through_over_a_reordering_device_completes_as_the_bare_device() {
    let pass = LayerConfig::named("pass-through");
    for (mode, gap_us) in
        [(ReplayMode::Open, 300), (ReplayMode::Open, 5000), (ReplayMode::BackToBack, 300), (ReplayMode::Closed, 300)]
    {
        let requests = requests(3000, gap_us);
        let (bare, alone) = run(&[], None, &in_mode(mode), &requests);
        let (mut through, below) = run(&[pass.clone(), pass.clone()], None, &in_mode(mode), &requests);
        assert_eq!(times(&below), times(&alone), "{mode:?}");
        let passed = alone.windows(2).filter(|pair| pair[1].complete < pair[0].complete).count();
        assert!(mode != ReplayMode::Open || gap_us > 300 || passed > 50, "{passed} requests passed others");
        through.layers.clear();
        assert_eq!((bare.flash.page_programs, bare.response), (through.flash.page_programs, through.response));
    }
}

#[test]
fn a_reordering_device_gives_each_logging_layer_what_it_waits_for() {
    let requests = requests(4000, 400);
    let logging = |name: &str| LayerConfig::named(name).with("reserved", "8MB").with("clustered_block", "512KB");
    for (names, mode) in [
        (vec!["advil"], ReplayMode::Open),
        (vec!["ressd", "advil"], ReplayMode::Closed),
        (vec!["advil", "ressd"], ReplayMode::BackToBack),
    ] {
        let layers: Vec<_> = names.iter().map(|name| logging(name)).collect();
        let (result, reported) = run(&layers, None, &in_mode(mode), &requests);
        assert_eq!(reported.len(), requests.len(), "{names:?} {mode:?}");
        assert!(result.layers[0].counters["logged_writes"] > 500);
    }
}

#[test]
fn a_second_device_that_reorders_is_driven_and_checked_like_the_first() {
    let card = reordering();
    let requests = requests(3000, 500);
    let advil = LayerConfig::named("advil").with("reserved", "16MB").with("second_device", "true");
    let striping = LayerConfig::named("pair").with("routing", "striping");
    let options = ReplayOptions { precondition: Precondition::Random(60.0), ..ReplayOptions::default() };
    for layers in [vec![advil.clone()], vec![striping.clone()], vec![LayerConfig::named("pass-through"), striping]] {
        let (result, reported) = run(&layers, Some(&card), &options, &requests);
        assert_eq!(reported.len(), requests.len());
        assert!(result.second_device.unwrap().page_programs > 500);
    }
}

#[test]
fn closed_loop_over_layers_waits_for_what_a_reordering_device_still_holds() {
    let pass = [LayerConfig::named("pass-through")];
    let write =
        |i: i64| Request { complete: Some(Nanos::from_micros(i * 1000 + 10)), ..of_4_kb(i * 1000, Op::Write, i as u64 * 8) };
    let requests: Vec<_> = (0..50).map(write).collect();
    let (_, reported) = run(&pass, None, &in_mode(ReplayMode::Closed), &requests);
    for pair in reported.windows(2) {
        assert_eq!(pair[1].arrival - pair[0].complete, Nanos::from_micros(990), "the think time");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(80), ..ProptestConfig::default() })]

    /// The checkers of both devices compare the contents of every sector.
    #[test]
    fn every_request_over_reordering_devices_is_reported_once(
        names in prop::sample::select(vec![
            vec![], vec!["pass-through"], vec!["advil"], vec!["ressd", "advil"], vec!["pair"], vec!["advil", "pair"],
            vec!["nvm-buffer"], vec!["advil", "nvm-buffer"],
        ]),
        mode in prop::sample::select(vec![ReplayMode::Open, ReplayMode::Closed, ReplayMode::BackToBack]),
        second_reorders in any::<bool>(),
        steps in prop::collection::vec(any::<Drawn>(), 1..200),
    ) {
        let mut config = reordering();
        config.set("geometry.block_groups.0.blocks", "64").unwrap();
        let mut card = config.clone();
        if !second_reorders {
            card.set("controller.scheduling", "fifo").unwrap();
        }
        let mut requests = drawn_requests(&steps, 150);
        for (request, (gap, ..)) in requests.iter_mut().zip(&steps) {
            request.complete = Some(request.arrival + Nanos::from_micros(i64::from(gap % 300)));
        }
        let options = ReplayOptions { check: true, mode, ..ReplayOptions::default() };
        let uses_second = |name: &&str| ["pair", "nvm-buffer"].contains(name);
        let beside = names.iter().any(uses_second).then(|| (&card, Device::new(&card)));
        let simulation = Simulation::new(&config, &options, None).unwrap().with_layers(&small_layers(&names), beside).unwrap();
        let (result, reported) = completed(simulation, &requests);
        prop_assert_eq!(result.requests.total as usize, requests.len());
        let sorted = |mut all: Vec<(u8, u64, u32)>| { all.sort_unstable(); all };
        let seen = reported.iter().map(|event| (event.op as u8, event.sector, event.sectors)).collect();
        let asked = requests.iter().map(|request| (request.op as u8, request.sector.0, request.sectors)).collect();
        prop_assert_eq!(sorted(seen), sorted(asked));
        check_times(&reported);
        prop_assert!(reported.iter().all(|event| event.waits.queue >= Nanos::ZERO));
    }
}
