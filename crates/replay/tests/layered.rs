//! Layers in simulated time: what passes through is untouched, what is logged costs what its commands cost.
#![allow(clippy::unwrap_used, clippy::float_cmp, clippy::panic, reason = "a test may fail")]

use emmclab_device::{Device, DeviceConfig, Quiet};
use emmclab_layers::LayerConfig;
use emmclab_replay::{Mode, ReplayOptions, Simulation, SimulationResult};
use emmclab_trace::{Kind, Nanos, Op, Request, Sector};

fn device() -> DeviceConfig {
    DeviceConfig::preset("small-1gb").unwrap()
}

/// Random 4 KB requests, a third of them reads, `gap_us` apart.
fn requests(count: u64, span: u64, gap_us: i64) -> Vec<Request> {
    let mut seed = 5_u64;
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let request = |i: u64| {
        let op = if random(3) == 0 { Op::Read } else { Op::Write };
        let sectors = [8, 8, 8, 15, 64, 256][random(6) as usize];
        Request::new(Nanos::from_micros(i as i64 * gap_us), op, Sector(random(span / 8) * 8), sectors)
    };
    (0..count).map(request).collect()
}

fn run(
    layers: &[LayerConfig],
    second: bool,
    options: &ReplayOptions,
    requests: &[Request],
) -> SimulationResult {
    let config = device();
    let beside = second.then(|| (&config, Device::new(&config)));
    let mut simulation =
        Simulation::new(&config, options, None).unwrap().with_layers(layers, beside).unwrap();
    for request in requests {
        assert!(simulation.push(request, &mut Quiet).unwrap());
    }
    let mut result = simulation.finish(None, &mut Quiet).unwrap();
    (result.wall_s, result.page_operations_per_s) = (0.0, 0.0);
    result
}

fn advil() -> LayerConfig {
    LayerConfig::named("advil").with("reserved", "16MB")
}

fn count(result: &SimulationResult, name: &str) -> u64 {
    result.layers[0].counters[name]
}

#[test]
fn pass_through_changes_nothing() {
    let requests = requests(3000, 1 << 20, 900);
    for mode in [Mode::Open, Mode::BackToBack] {
        let options = ReplayOptions { mode, check: true, ..ReplayOptions::default() };
        let bare = run(&[], false, &options, &requests);
        let pass = LayerConfig::named("pass-through");
        let mut through = run(&[pass.clone(), pass], false, &options, &requests);
        assert_eq!(through.layers.len(), 2);
        through.layers.clear();
        assert_eq!(bare, through);
    }
}

#[test]
fn the_same_input_gives_the_same_result() {
    let requests = requests(5000, 1 << 20, 700);
    let options = ReplayOptions { check: true, ..ReplayOptions::default() };
    let stack = [advil().with("second_device", "true"), LayerConfig::named("ressd").with("reserved", "16MB")];
    let one = run(&stack, true, &options, &requests);
    assert_eq!(one, run(&stack, true, &options, &requests));
    assert!(count(&one, "switches") > 0 && one.layers[1].name == "ressd");
    let written: u64 =
        requests.iter().filter(|r| r.op == Op::Write).map(|r| u64::from(r.sectors) * 512).sum();
    assert_eq!(one.host_bytes_written, written, "what the workload wrote, not what the layers did");
    assert_eq!(one.requests, 5000);
}

#[test]
fn logged_writes_take_what_the_second_device_takes() {
    let options = ReplayOptions { mode: Mode::BackToBack, ..ReplayOptions::default() };
    let writes: Vec<_> = (0..500_u64)
        .map(|i| Request::new(Nanos(0), Op::Write, Sector(i * 7919 * 8 % (1 << 20)), 8))
        .collect();
    let pass = ReplayOptions { first_writes: 3, ..options.clone() };
    let first = run(&[LayerConfig::named("pass-through")], false, &pass, &writes).first_writes;
    assert_eq!(first, [0, 1, 2].map(|i: usize| (writes[i].sector.0, 8)));
    let logged = run(&[advil().with("second_device", "true")], true, &pass, &writes);
    assert!(logged.first_writes.is_empty());
    assert_eq!(count(&logged, "logged_writes"), 500);
    assert_eq!(logged.second_device.as_ref().unwrap().host_bytes_written, 500 * 4096);
    assert_eq!(logged.page_programs, 0, "nothing came to the device");
    // The card is the same device, and takes the same time for the same writes in sequence.
    let sequence: Vec<_> =
        (0..500_u64).map(|i| Request::new(Nanos(0), Op::Write, Sector(i * 8), 8)).collect();
    assert_eq!(logged.simulated_s, run(&[], false, &options, &sequence).simulated_s);
}

#[test]
fn the_mover_uses_pauses_and_holds_requests_where_there_are_none() {
    let writes = |gap_us: i64| -> Vec<Request> {
        (0..12_000_u64)
            .map(|i| {
                let sector = Sector(i * 7919 * 8 % (1 << 20));
                Request::new(Nanos::from_micros(i as i64 * gap_us), Op::Write, sector, 8)
            })
            .collect()
    };
    let options = ReplayOptions::default();
    let hurried = run(&[advil().with("second_device", "true")], true, &options, &writes(100));
    let patient = run(&[advil().with("second_device", "true")], true, &options, &writes(60_000));
    assert!(hurried.layers[0].held_full > 0 && hurried.layers[0].held_ms > 0.0);
    assert_eq!(patient.layers[0].held_full, 0);
    assert_eq!(count(&patient, "logged_writes"), 12_000);
    assert!(count(&patient, "moved_bytes") > 0);
    assert!(patient.mean_response_ms < hurried.mean_response_ms);
}

#[test]
fn the_parts_of_a_response_add_up() {
    let options = ReplayOptions::default();
    let result = run(&[advil()], false, &options, &requests(4000, 1 << 20, 500));
    let parts = result.wait_queue_ms
        + result.wait_controller_ms
        + result.wait_bus_ms
        + result.wait_array_ms
        + result.wait_gc_ms
        + result.wait_wake_up_ms;
    assert!((parts - result.mean_response_ms).abs() < 1e-6 * parts);
}

#[test]
fn what_cannot_be_is_refused() {
    let refuse = |config: &DeviceConfig, layers: &[LayerConfig], second: bool| {
        let card = device();
        let beside = second.then(|| (&card, Device::new(&card)));
        let new = Simulation::new(config, &ReplayOptions::default(), None).unwrap();
        let Err(error) = new.with_layers(layers, beside) else { panic!("it was accepted") };
        assert_eq!(error.kind(), Kind::Config);
        error.to_string()
    };
    let mut reordering = device();
    reordering.set("controller.scheduling", "read_first").unwrap();
    assert!(refuse(&reordering, &[advil()], false).contains("works in order"));
    assert!(refuse(&device(), &[], true).contains("no layer to use it"));
    assert!(refuse(&device(), &[advil()], true).contains("no layer uses it"));
    assert!(refuse(&device(), &[advil().with("second_device", "true")], false).contains("no second device"));
    assert!(refuse(&device(), &[advil().with("reserved", "2GB")], false).contains("ends behind the device"));
}
