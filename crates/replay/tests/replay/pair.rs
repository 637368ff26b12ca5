//! A device and a second device that share the requests.

use crate::common::{checked, completed, of_4_kb, one_chip, short_blocks, until_stop};
use emmclab_device::{Device, DeviceConfig, NullObserver};
use emmclab_layers::LayerConfig;
use emmclab_replay::{Precondition, ReplayMode, ReplayOptions, Simulation, SimulationResult};
use emmclab_trace::{Nanos, Op, Request, RequestFlags, Sector};

/// A device with 4 KB pages on one chip, and this program time.
fn device(program_us: u32) -> DeviceConfig {
    one_chip(64, 64, program_us)
}

fn pair(routing: &str, key: &str, value: &str) -> LayerConfig {
    LayerConfig::named("pair").with("routing", routing).with(key, value)
}

fn internal() -> LayerConfig {
    LayerConfig::named("pair").with("routing", "internal")
}

fn striping(chunk_kb: u32) -> LayerConfig {
    pair("striping", "chunk", &format!("{chunk_kb}KB"))
}

fn simulation(layer: &LayerConfig, options: &ReplayOptions) -> emmclab_trace::Result<Simulation> {
    let (device, card) = (device(1000), device(3000));
    let beside = (*layer != internal()).then(|| (&card, Device::new(&card)));
    Simulation::new(&device, options, None)?.with_layers(std::slice::from_ref(layer), beside)
}

fn run(layer: &LayerConfig, requests: &[(i64, u64, u32)]) -> SimulationResult {
    let write =
        |(at_us, kb_from, kb): &(i64, u64, u32)| Request::new(Nanos::from_micros(*at_us), Op::Write, Sector(kb_from * 2), kb * 2);
    let requests: Vec<_> = requests.iter().map(write).collect();
    completed(simulation(layer, &checked()).unwrap(), &requests).0
}

fn count(result: &SimulationResult, name: &str) -> u64 {
    result.layers[0].counters[name]
}

fn bytes(result: &SimulationResult) -> (u64, u64) {
    (count(result, "internal_bytes"), count(result, "card_bytes"))
}

#[test]
fn striping_helps_long_requests_and_hurts_short_ones_on_the_card() {
    let long = [(0, 0, 32)];
    assert_eq!(run(&internal(), &long).response.mean_response_ms, 8.0);
    // Four pages on each device: the card needs 12 ms for its half.
    let striped = run(&striping(4), &long);
    assert_eq!(striped.response.mean_response_ms, 12.0);
    assert_eq!(bytes(&striped), (16384, 16384));
    let parts = (count(&striped, "internal_requests"), count(&striped, "card_requests"));
    assert_eq!((parts, striped.requests.total), ((1, 1), 1));
    let short = [(0, 0, 4), (100_000, 4, 4)];
    assert_eq!(run(&striping(4), &short).response.mean_response_ms, 2.0);
}

#[test]
fn routing_by_file_cuts_at_the_border_and_by_size_sends_large_ones_to_the_card() {
    let result = run(&pair("by_file", "border", "1MB"), &[(0, 1020, 8), (100_000, 0, 4), (200_000, 2048, 4)]);
    assert_eq!(bytes(&result), (8192, 8192));
    assert_eq!(result.response.mean_response_ms, (3.0 + 1.0 + 3.0) / 3.0);
    let result = run(&pair("by_size", "longest", "4KB"), &[(0, 0, 4), (0, 64, 8)]);
    assert_eq!(bytes(&result), (4096, 8192));
    assert!((result.response.percentiles.max_ms - 6.0).abs() < 0.01);
}

#[test]
fn stripes_over_a_card_a_third_as_fast_make_even_a_burst_slower() {
    let burst: Vec<_> = (0..8u32).map(|i| (0, u64::from(i) * 4, 4)).collect();
    assert_eq!(run(&internal(), &burst).response.mean_response_ms, 4.5);
    // 1 to 4 ms on the device, 3 to 12 ms on the card.
    assert_eq!(run(&striping(4), &burst).response.mean_response_ms, 5.0);
}

#[test]
fn impossible_pairs_are_refused() {
    let refused = |layer: &LayerConfig| simulation(layer, &ReplayOptions::default()).err().unwrap().to_string();
    assert!(refused(&striping(6)).contains("`chunk` is 6KB; it must be a multiple of 4KB"));
    assert!(refused(&striping(0)).contains("multiple of 4KB"));
    assert!(refused(&pair("by_file", "border", "1GB")).contains("beyond the end"));
    let alone = Simulation::new(&device(1), &ReplayOptions::default(), None).unwrap();
    let error = alone.with_layers(&[striping(4)], None).err().unwrap();
    assert!(error.to_string().contains("no second device"));
}

#[test]
fn addresses_beyond_a_disk_are_refused_or_wrapped_on_that_disk() {
    let far = Request::new(Nanos(0), Op::Write, Sector(1 << 30), 8);
    let mut plain = simulation(&striping(4), &checked()).unwrap();
    assert!(plain.push(&far, &mut NullObserver).is_err());
    let wrapping = striping(4).with("wrap_addresses", "true");
    let mut wrapped = simulation(&wrapping, &checked()).unwrap();
    assert!(wrapped.push(&far, &mut NullObserver).unwrap());
    assert_eq!(bytes(&wrapped.finish(None, &mut NullObserver).unwrap()), (4096, 0));
}

#[test]
fn a_flush_and_a_preflush_reach_both_devices_and_fua_goes_down_with_its_write() {
    let (mut device, mut card) = (device(1000), device(3000));
    for config in [&mut device, &mut card] {
        config.set_all(&[("cache.size_kb", "64"), ("cache.write_back", "when_full")]).unwrap();
    }
    let responses = |flags: RequestFlags, op: Op| {
        let beside = Some((&card, Device::new(&card)));
        let simulation = Simulation::new(&device, &checked(), None).unwrap().with_layers(&[striping(4)], beside).unwrap();
        let (cached, sectors) = (Request::new(Nanos(0), Op::Write, Sector(0), 16), if op == Op::Flush { 0 } else { 8 });
        let second = Request { flags, ..Request::new(Nanos::from_micros(50_000), op, Sector(0), sectors) };
        let (_, reported) = completed(simulation, &[cached, second]);
        reported.iter().map(|event| (event.complete - event.arrival).0 / 1_000_000).collect::<Vec<_>>()
    };
    assert_eq!(responses(RequestFlags::default(), Op::Write), [0, 0], "both end in the caches");
    assert_eq!(responses(RequestFlags::default(), Op::Flush), [0, 3], "the card has to be empty, too");
    assert_eq!(responses(RequestFlags::PREFLUSH, Op::Write), [0, 3]);
    // Two programs of 1 ms on the device. A flush after the write would wait for the program of 3 ms on the card.
    assert_eq!(responses(RequestFlags::FUA, Op::Write), [0, 2]);
}

#[test]
fn both_devices_of_a_pair_may_be_used_ones_behind_a_queue_of_the_host() {
    let config = short_blocks(&[("controller.queue_depth", "1"), ("host.merge_max_kb", "64"), ("host.packed_writes", "8")]);
    let options = ReplayOptions { precondition: Precondition::Random(90.0), mode: ReplayMode::Open, ..checked() };
    let card = Simulation::new(&config, &options, None).unwrap().into_device();
    let simulation =
        Simulation::new(&config, &options, None).unwrap().with_layers(&[striping(64)], Some((&config, card))).unwrap();
    let write = |i: u64| of_4_kb(i as i64 * 40, Op::Write, i / 2 * 7919 % 100_000 / 8 * 16 + i % 2 * 8);
    let (result, _) = completed(simulation, &(0..3000).map(write).collect::<Vec<_>>());
    let card = result.second_device.unwrap();
    for host in [result.host.unwrap(), card.host.unwrap()] {
        assert!(host.merged > 100 && host.packs > 50, "{host:?}");
    }
    assert!(card.waf >= 1.0 && result.requests.total == 3000);
}

#[test]
fn a_pair_that_stops_counts_what_was_complete() {
    let mut small = device(1000);
    small.set("geometry.block_groups.0.blocks", "2").unwrap();
    let beside = Some((&small, Device::new(&small)));
    let simulation = Simulation::new(&device(1000), &checked(), None).unwrap().with_layers(&[striping(4)], beside).unwrap();
    let requests: Vec<_> = (0..1000).map(|i| Request::new(Nanos(i), Op::Write, Sector(i as u64 % 2 * 8), 8)).collect();
    let (result, _) = until_stop(simulation, &requests);
    assert!(result.run.stopped.unwrap().contains("full"));
    // 128 pages fit on the card, which are the first page of every second request.
    assert_eq!(result.requests.total, 128 + 129);
}
