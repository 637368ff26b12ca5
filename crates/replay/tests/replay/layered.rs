//! Layers in simulated time: a pass-through layer changes nothing, and logged data costs the time of its commands.

use crate::common::{
    Drawn, check_times, checked, completed, drawn_requests, in_mode, of_4_kb, parts_ms, preset, random_numbers, scattered_writes,
    small_layers,
};
use emmclab_device::{Device, DeviceConfig, RequestCompleted};
use emmclab_layers::LayerConfig;
use emmclab_replay::{ComputeCost, ReplayMode, ReplayOptions, Simulation, SimulationResult};
use emmclab_trace::{ErrorClass, Nanos, Op, Request, RequestFlags, Sector};
use proptest::prelude::*;

fn device() -> DeviceConfig {
    preset("small-1gb", &[])
}

/// Random 4 KB requests at intervals of `gap_us`, a third of them reads.
fn requests(count: u64, span: u64, gap_us: i64) -> Vec<Request> {
    let mut random = random_numbers();
    let request = |i: u64| {
        let op = if random(3) == 0 { Op::Read } else { Op::Write };
        let sectors = [8, 8, 8, 15, 64, 256][random(6) as usize];
        Request::new(Nanos::from_micros(i as i64 * gap_us), op, Sector(random(span / 8) * 8), sectors)
    };
    (0..count).map(request).collect()
}

fn run(layers: &[LayerConfig], second: bool, options: &ReplayOptions, requests: &[Request]) -> SimulationResult {
    let config = device();
    let beside = second.then(|| (&config, Device::new(&config)));
    let simulation = Simulation::new(&config, options, None).unwrap().with_layers(layers, beside).unwrap();
    SimulationResult { computing: ComputeCost::default(), ..completed(simulation, requests).0 }
}

fn advil() -> LayerConfig {
    LayerConfig::named("advil").with("reserved", "16MB")
}

fn count(result: &SimulationResult, name: &str) -> u64 {
    result.layers[0].counters[name]
}

/// The result of a run without the reports that only layers add.
fn without_reports_of_layers(result: SimulationResult) -> SimulationResult {
    SimulationResult { layers: Vec::new(), ..result }
}

#[test]
fn pass_through_changes_nothing() {
    let requests = requests(3000, 1 << 20, 900);
    for mode in [ReplayMode::Open, ReplayMode::BackToBack] {
        let options = ReplayOptions { mode, ..checked() };
        let bare = run(&[], false, &options, &requests);
        let pass = LayerConfig::named("pass-through");
        let through = run(&[pass.clone(), pass], false, &options, &requests);
        assert_eq!(through.layers.len(), 2);
        assert_eq!(bare, without_reports_of_layers(through));
    }
}

/// A device behind a host queue that merges and packs.
fn queued(settings: &[(&str, &str)]) -> DeviceConfig {
    let one_command = [("controller.queue_depth", "1"), ("host.merge_max_kb", "64")];
    let packing = [("host.packed_writes", "8"), ("host.packed_reads", "4")];
    preset("small-1gb", &[&one_command, &packing, settings].concat())
}

fn reported(config: &DeviceConfig, layers: &[LayerConfig], requests: &[Request]) -> (SimulationResult, Vec<RequestCompleted>) {
    completed(Simulation::new(config, &checked(), None).unwrap().with_layers(layers, None).unwrap(), requests)
}

#[test]
fn pass_through_leaves_the_host_s_queue_as_it_is() {
    let requests = requests(3000, 1 << 15, 300);
    let config = queued(&[]);
    let (bare, alone) = reported(&config, &[], &requests);
    let (through, mut below) = reported(&config, &[LayerConfig::named("pass-through")], &requests);
    let host = bare.host.as_ref().unwrap();
    assert!(host.merged > 0 && host.packs > 0);
    assert_eq!(through.host, bare.host);
    // Layers report in order of completion.
    below.sort_by_key(|event| event.arrival);
    let times = |reported: &[RequestCompleted]| reported.iter().map(|event| (event.sector, event.complete)).collect::<Vec<_>>();
    assert_eq!(times(&below), times(&alone));
}

#[test]
fn flags_pass_through_a_layer_that_accepts_them() {
    let config = queued(&[("cache.size_kb", "512"), ("cache.write_back", "when_full")]);
    let mut requests = requests(600, 1 << 15, 2000);
    let all = [
        RequestFlags::default(),
        RequestFlags::META,
        RequestFlags::FUA,
        RequestFlags::PREFLUSH,
        RequestFlags::FUA.union(RequestFlags::PREFLUSH),
    ];
    for (i, request) in requests.iter_mut().enumerate().filter(|(_, request)| request.op == Op::Write) {
        request.flags = all[i % all.len()];
    }
    let (bare, _) = reported(&config, &[], &requests);
    let pass = LayerConfig::named("pass-through");
    let (through, _) = reported(&config, &[pass.clone(), pass], &requests);
    assert!(bare.cache.as_ref().unwrap().flushes > Some(0));
    assert!(bare.durable.as_ref().unwrap().requests > 0);
    let through = SimulationResult { computing: bare.computing, ..without_reports_of_layers(through) };
    assert_eq!(through, bare);
}

#[test]
fn flags_become_flushes_above_a_layer_that_does_not_accept_them() {
    let config = queued(&[("cache.size_kb", "512"), ("cache.write_back", "when_full")]);
    let write = |at_us: i64, kb: u64, flags| Request { flags, ..of_4_kb(at_us, Op::Write, kb * 2) };
    let plain = [write(0, 0, RequestFlags::default()), write(10_000, 64, RequestFlags::default())];
    for layers in [vec![LayerConfig::named("pass-through"), advil()], vec![advil()]] {
        let response = |reported: &[RequestCompleted]| reported[1].complete - reported[1].arrival;
        let (_, without) = reported(&config, &layers, &plain);
        for flags in [RequestFlags::FUA, RequestFlags::PREFLUSH, RequestFlags::FUA.union(RequestFlags::PREFLUSH)] {
            let (result, with) = reported(&config, &layers, &[plain[0], write(10_000, 64, flags)]);
            let longer = response(&with) - response(&without);
            assert!(longer > Nanos::from_micros(500), "{flags:?} waits for a program: {longer}");
            assert!(result.cache.unwrap().flushes > Some(0) && with.len() == 2);
        }
    }
}

#[test]
fn the_same_input_gives_the_same_result() {
    let requests = requests(5000, 1 << 20, 700);
    let options = checked();
    let stack = [advil().with("second_device", "true"), LayerConfig::named("ressd").with("reserved", "16MB")];
    let one = run(&stack, true, &options, &requests);
    assert_eq!(one, run(&stack, true, &options, &requests));
    assert!(count(&one, "switches") > 0 && one.layers[1].name == "ressd");
    let written: u64 = requests.iter().filter(|r| r.op == Op::Write).map(|r| u64::from(r.sectors) * 512).sum();
    assert_eq!(one.requests.bytes_written, written, "what the workload wrote, not what the layers did");
    assert_eq!(one.requests.total, 5000);
}

#[test]
fn logged_writes_take_what_the_second_device_takes() {
    let options = in_mode(ReplayMode::BackToBack);
    let writes = scattered_writes(500, 1 << 17, 0);
    let pass = ReplayOptions { first_writes: 3, ..options.clone() };
    let first = run(&[LayerConfig::named("pass-through")], false, &pass, &writes).first_writes;
    assert_eq!(first, [0, 1, 2].map(|i: usize| (writes[i].sector.0, 8)));
    let logged = run(&[advil().with("second_device", "true")], true, &pass, &writes);
    assert!(logged.first_writes.is_empty());
    assert_eq!(count(&logged, "logged_writes"), 500);
    assert_eq!(logged.second_device.as_ref().unwrap().host_bytes_written, 500 * 4096);
    assert_eq!(logged.flash.page_programs.total, 0, "nothing came to the device");
    // The card is the same device, and takes the same time for the same sequential writes.
    let sequence: Vec<_> = (0..500_u64).map(|i| of_4_kb(0, Op::Write, i * 8)).collect();
    assert_eq!(logged.run.simulated_s, run(&[], false, &options, &sequence).run.simulated_s);
}

#[test]
fn the_mover_uses_pauses_and_holds_requests_where_there_are_none() {
    let writes = |gap_us: i64| scattered_writes(12_000, 1 << 17, gap_us);
    let options = ReplayOptions::default();
    let hurried = run(&[advil().with("second_device", "true")], true, &options, &writes(100));
    let patient = run(&[advil().with("second_device", "true")], true, &options, &writes(60_000));
    assert!(hurried.layers[0].held_full > 0 && hurried.layers[0].held_ms > 0.0);
    assert_eq!(patient.layers[0].held_full, 0);
    assert_eq!(count(&patient, "logged_writes"), 12_000);
    assert!(count(&patient, "moved_bytes") > 0);
    assert!(patient.response.mean_response_ms < hurried.response.mean_response_ms);
}

#[test]
fn draining_is_timed_and_changes_nothing_before_it() {
    let writes = scattered_writes(9_000, 1 << 17, 0);
    let plain = in_mode(ReplayMode::BackToBack);
    let drain = ReplayOptions { drain: true, ..plain.clone() };
    let stacked = |name: &str| vec![LayerConfig::named(name).with("reserved", "16MB").with("second_device", "true"), advil()];
    for stack in [stacked("advil"), stacked("ressd")] {
        let (without, with) = (run(&stack, true, &plain, &writes), run(&stack, true, &drain, &writes));
        assert_eq!(without.run.drain_s, None);
        assert!(with.run.drain_s.unwrap() > 0.0);
        assert_eq!(with.run.simulated_s, without.run.simulated_s);
        assert_eq!(with.response, without.response);
        assert!(count(&without, "map_entries") > 0);
        for layer in &with.layers {
            assert_eq!(layer.counters["map_entries"], 0, "{} keeps nothing", layer.name);
        }
        assert!(with.flash.page_programs.total > without.flash.page_programs.total);
        assert!(with.utilisation.planes_pct.iter().all(|pct| *pct <= 100.0));
        assert_eq!(with, run(&stack, true, &drain, &writes));
    }
    for stack in [vec![], vec![LayerConfig::named("pass-through")]] {
        let (without, mut with) = (run(&stack, false, &plain, &writes), run(&stack, false, &drain, &writes));
        assert_eq!(with.run.drain_s.take(), Some(0.0), "there is nothing to drain");
        assert_eq!(with, without);
    }
}

#[test]
fn the_parts_of_a_response_add_up() {
    let result = run(&[advil()], false, &ReplayOptions::default(), &requests(4000, 1 << 20, 500));
    let parts = parts_ms(&result.waits);
    assert!((parts - result.response.mean_response_ms).abs() < 1e-6 * parts);
}

#[test]
fn what_cannot_be_is_refused() {
    let refuse = |config: &DeviceConfig, layers: &[LayerConfig], second: bool| {
        let card = device();
        let beside = second.then(|| (&card, Device::new(&card)));
        let new = Simulation::new(config, &ReplayOptions::default(), None).unwrap();
        let Err(error) = new.with_layers(layers, beside) else { panic!("it was accepted") };
        assert_eq!(error.kind(), ErrorClass::Config);
        error.to_string()
    };
    assert!(refuse(&device(), &[], true).contains("no layer to use it"));
    assert!(refuse(&device(), &[advil()], true).contains("no layer uses it"));
    assert!(refuse(&device(), &[advil().with("second_device", "true")], false).contains("no second device"));
    assert!(refuse(&device(), &[advil().with("reserved", "2GB")], false).contains("ends after the end of the device"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(60), ..ProptestConfig::default() })]

    /// The checker of the device compares the contents of every sector.
    #[test]
    fn every_request_through_layers_and_queue_is_reported_once(
        names in prop::sample::select(vec![vec!["pass-through"], vec!["advil"], vec!["ressd", "advil"]]),
        merge in prop::sample::select(vec!["4", "64", "512"]),
        (depth, writes, reads, shared) in prop::sample::select(vec![
            ("1", "8", "0", "false"), ("1", "63", "4", "true"), ("1", "0", "0", "false"), ("8", "0", "0", "false"),
        ]),
        cache in prop::sample::select(vec!["0", "64"]),
        steps in prop::collection::vec(any::<Drawn>(), 1..200),
    ) {
        let shared = if cache == "0" { shared } else { "false" };
        let config = queued(&[
            ("controller.queue_depth", depth),
            ("host.merge_max_kb", merge),
            ("host.packed_writes", writes),
            ("host.packed_reads", reads),
            ("controller.share_packed_pages", shared),
            ("cache.size_kb", cache),
            ("geometry.block_groups.0.blocks", "16"),
        ]);
        let requests = drawn_requests(&steps, 170);
        let (result, reported) = reported(&config, &small_layers(&names), &requests);
        prop_assert_eq!(result.requests.total as usize, requests.len());
        let mut seen: Vec<_> = reported.iter().map(|event| (event.arrival, event.op, event.sector, event.sectors)).collect();
        // The first request arrives at time 0.
        let zero = requests[0].arrival;
        let mut asked: Vec<_> = requests.iter().map(|r| (r.arrival - zero, r.op, r.sector.0, r.sectors)).collect();
        seen.sort_by_key(|one| (one.0, one.2, one.3, one.1 as u8));
        asked.sort_by_key(|one| (one.0, one.2, one.3, one.1 as u8));
        prop_assert_eq!(seen, asked);
        check_times(&reported);
    }
}
