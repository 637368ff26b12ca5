//! Functions for the tests of this crate.

use emmclab_device::{DeviceConfig, Observer, RequestCompleted};
use emmclab_layers::LayerConfig;
use emmclab_replay::{ReplayMode, ReplayOptions, Simulation, SimulationResult, WaitTimes};
use emmclab_trace::{Nanos, Op, Request, RequestFlags, Sector, TraceCombiner, TraceInput};

pub use emmclab_testing::real_trace;

/// Collects completions.
#[derive(Default)]
pub struct Reported(pub Vec<RequestCompleted>);

impl Observer for Reported {
    fn request_completed(&mut self, event: &RequestCompleted) {
        self.0.push(*event);
    }
}

/// A preset with changed settings.
pub fn preset(name: &str, settings: &[(&str, &str)]) -> DeviceConfig {
    let mut config = DeviceConfig::preset(name).unwrap();
    config.set_all(settings).unwrap();
    config
}

/// The preset `small-1gb` with blocks of 16 pages and with changed settings.
pub fn short_blocks(settings: &[(&str, &str)]) -> DeviceConfig {
    preset("small-1gb", &[&[("geometry.block_groups.0.pages_per_block", "16")], settings].concat())
}

/// One chip with 4 KB pages that is written once, with this number of blocks, pages in a block, and program time.
pub fn one_chip(blocks: u32, pages_per_block: u32, program_us: u32) -> DeviceConfig {
    DeviceConfig::from_toml(&format!(
        "name = 'one chip'
         gc.policy = 'none'
         capacity.over_provisioning_pct = 0
         [[geometry.block_groups]]
         page_kb = 4
         blocks = {blocks}
         pages_per_block = {pages_per_block}
         read_us = 100
         program_us = {program_us}
         erase_us = 5000"
    ))
    .unwrap()
}

pub fn in_mode(mode: ReplayMode) -> ReplayOptions {
    ReplayOptions { mode, ..ReplayOptions::default() }
}

/// Options with the checker, which compares the contents of every sector and the sums of times.
pub fn checked() -> ReplayOptions {
    ReplayOptions { check: true, ..ReplayOptions::default() }
}

/// A request of 4 KB.
pub fn of_4_kb(at_us: i64, op: Op, sector: u64) -> Request {
    Request::new(Nanos::from_micros(at_us), op, Sector(sector), 8)
}

/// Writes of 4 KB at intervals of `gap_us`, scattered over the first `pages` pages.
pub fn scattered_writes(count: u64, pages: u64, gap_us: i64) -> Vec<Request> {
    (0..count).map(|i| of_4_kb(i as i64 * gap_us, Op::Write, i * 7919 % pages * 8)).collect()
}

/// A linear congruential generator, whose results are below its argument.
pub fn random_numbers() -> impl FnMut(u64) -> u64 {
    let mut seed = 5_u64;
    move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    }
}

/// Layers of these names with small areas, so that a few requests fill them.
pub fn small_layers(names: &[&str]) -> Vec<LayerConfig> {
    let layer = |name: &&str| match *name {
        "pass-through" => LayerConfig::named(name),
        "pair" => LayerConfig::named(name).with("routing", "striping").with("chunk", "16KB"),
        "nvm-buffer" => LayerConfig::named(name).with("size", "256KB").with("longest", "16KB").with("depth", "2"),
        name => LayerConfig::named(name).with("reserved", "4MB").with("clustered_block", "512KB"),
    };
    names.iter().map(layer).collect()
}

/// Five random numbers: gap in us, operation, address, length, flags.
pub type Drawn = (u16, u8, u16, u8, u8);

/// The requests of random numbers. Numbers of an operation up to `writes` are writes.
pub fn drawn_requests(drawn: &[Drawn], writes: u8) -> Vec<Request> {
    let mut now = 0;
    let request = |(gap, op, place, length, flags): &Drawn| {
        now += i64::from(*gap % 1500);
        let op = match op {
            op if *op <= writes => Op::Write,
            0..=225 => Op::Read,
            226..=240 => Op::Discard,
            _ => Op::Flush,
        };
        let place = (u64::from(*place % 2000) * 4, u32::from(*length % 64 + 1));
        let (sector, sectors) = if op == Op::Flush { (0, 0) } else { place };
        let flags = match flags {
            0..=15 => RequestFlags::FUA,
            16..=30 => RequestFlags::PREFLUSH,
            _ => RequestFlags::default(),
        };
        Request { flags, ..Request::new(Nanos::from_micros(now), op, Sector(sector), sectors) }
    };
    drawn.iter().map(request).collect()
}

/// Executes a run with these requests, until the device stops. Returns its result and the completions, in the order in which they became
/// known.
pub fn until_stop(mut simulation: Simulation, requests: &[Request]) -> (SimulationResult, Vec<RequestCompleted>) {
    let mut reported = Reported::default();
    for request in requests {
        if !simulation.push(request, &mut reported).unwrap() {
            break;
        }
    }
    (simulation.finish(None, &mut reported).unwrap(), reported.0)
}

/// [`until_stop`] for a device that does not stop.
pub fn completed(simulation: Simulation, requests: &[Request]) -> (SimulationResult, Vec<RequestCompleted>) {
    let (result, reported) = until_stop(simulation, requests);
    assert_eq!(result.run.stopped, None);
    (result, reported)
}

/// Checks that the times of each request follow one another, and that its waits add up to its response time.
pub fn check_times(reported: &[RequestCompleted]) {
    for event in reported {
        assert!(event.arrival <= event.start && event.start <= event.complete, "{event:?}");
        assert_eq!(event.waits.total(), event.complete - event.arrival, "{event:?}");
    }
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
