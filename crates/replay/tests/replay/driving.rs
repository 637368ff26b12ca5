//! How requests are paced, repeated, wrapped, measured and reported.

use std::fmt::Write as _;
use std::io::Write;

use crate::common::{checked, completed, in_mode, of_4_kb, one_chip, parts_ms, short_blocks, until_stop};
use emmclab_device::{DeviceConfig, NullObserver};
use emmclab_replay::{
    ComputeCost, ImageStore, Precondition, RateFactor, ReplayMode, ReplayOptions, RequestRows, Simulation, SimulationResult,
};
use emmclab_trace::{Nanos, Op, Request, Sector, TraceInput};

/// One chip with 4 KB pages and a program time of 1,000 us.
fn config() -> DeviceConfig {
    one_chip(8, 16, 1000)
}

fn small() -> DeviceConfig {
    short_blocks(&[("geometry.block_groups.0.blocks", "64")])
}

/// A recorded 4 KB write with its completion.
fn recorded(arrival_us: i64, complete_us: i64, page: u64) -> Request {
    Request { complete: Some(Nanos::from_micros(complete_us)), ..of_4_kb(arrival_us, Op::Write, page * 8) }
}

/// Recorded 4 KB writes at intervals of `gap_us` to the pages that a function gives.
fn writes(count: i64, gap_us: i64, page: impl Fn(i64) -> i64) -> Vec<Request> {
    (0..count).map(|i| recorded(i * gap_us, i * gap_us + 1, page(i) as u64)).collect()
}

fn run(config: &DeviceConfig, options: &ReplayOptions, requests: &[Request]) -> (SimulationResult, Vec<i64>) {
    let (result, reported) = until_stop(Simulation::new(config, options, None).unwrap(), requests);
    (result, reported.iter().map(|event| event.arrival.0 / 1000).collect())
}

#[test]
fn open_loop_keeps_recorded_times_scaled_and_moved() {
    let requests = [recorded(500, 600, 0), recorded(700, 800, 1), recorded(1500, 1600, 2)];
    let (result, arrivals) = run(&config(), &ReplayOptions::default(), &requests);
    assert_eq!(arrivals, [0, 200, 1000]);
    assert!((result.response.mean_response_ms - 1.6).abs() < 1e-12);
    assert_eq!(result.response.all().mean_ms, result.response.mean_response_ms);
    let options =
        ReplayOptions { rate: RateFactor::new(2.0).unwrap(), start_offset: Nanos::from_micros(50), ..Default::default() };
    assert_eq!(run(&config(), &options, &requests).1, [50, 150, 550]);
    assert!(RateFactor::new(0.0).is_err() && RateFactor::new(f64::NAN).is_err());
}

#[test]
fn closed_loop_keeps_think_time_after_the_simulated_completion() {
    let options = in_mode(ReplayMode::Closed);
    // The second request overlaps the first (100 us after its arrival). The third arrives 300 us after the second is complete.
    let requests = [recorded(0, 200, 0), recorded(100, 400, 1), recorded(700, 800, 2)];
    for scheduling in ["fifo", "read_first"] {
        let mut config = config();
        config.set("controller.scheduling", scheduling).unwrap();
        let (_, arrivals) = run(&config, &options, &requests);
        assert_eq!(arrivals, [0, 100, 2300], "{scheduling}");
    }
    let mut simulation = Simulation::new(&config(), &options, None).unwrap();
    let bare = Request::new(Nanos(0), Op::Write, Sector(0), 8);
    simulation.push(&bare, &mut NullObserver).unwrap();
    let error = simulation.push(&bare, &mut NullObserver).unwrap_err();
    assert!(error.hint_text().unwrap().contains("open"));
}

#[test]
fn a_trace_beyond_the_device_is_refused_or_wrapped_and_counted() {
    let beyond = [recorded(0, 1, 0), recorded(10_000, 10_001, 200)];
    let mut simulation = Simulation::new(&config(), &ReplayOptions::default(), None).unwrap();
    simulation.push(&beyond[0], &mut NullObserver).unwrap();
    assert!(simulation.push(&beyond[1], &mut NullObserver).is_err());
    let options = ReplayOptions { wrap_addresses: true, ..checked() };
    let (result, _) = run(&config(), &options, &beyond);
    assert_eq!((result.requests.total, result.ledger.folded), (2, 1));
}

#[test]
fn a_device_that_runs_full_ends_the_run_and_says_so() {
    let config = one_chip(2, 16, 1000);
    let (result, _) = run(&config, &ReplayOptions::default(), &writes(40, 2000, |_| 0));
    assert_eq!(result.requests.total, 32);
    assert!(result.run.stopped.unwrap().contains("full"));
}

#[test]
fn a_worn_out_device_ends_the_run_and_its_lifetime_is_reported() {
    let config = short_blocks(&[
        ("geometry.block_groups.0.blocks", "64"),
        ("geometry.block_groups.0.erase_limit", "20"),
        ("geometry.block_groups.0.spare_blocks", "2"),
        ("wear.levelling", "dynamic"),
    ]);
    let (result, _) = run(&config, &ReplayOptions::default(), &writes(400_000, 2000, |i| i * i % 3001));
    assert!(result.run.stopped.as_deref().unwrap().contains("worn out"), "{:?}", result.run.stopped);
    // Two spares in each of four planes, and one block more than the spares of one plane.
    assert!((3..=9).contains(&result.wear.bad_blocks), "{}", result.wear.bad_blocks);
    let lifetime = result.wear.lifetime.unwrap();
    // The most worn block is at its limit, so these are the written bytes; with even wear there would be more.
    assert_eq!(lifetime.first_block_host_bytes, Some(result.requests.bytes_written as f64));
    assert!(lifetime.even_host_bytes > lifetime.first_block_host_bytes);
}

#[test]
fn parts_of_waf_and_of_the_response_time_add_up() {
    let config = small();
    let options = ReplayOptions { precondition: Precondition::Random(100.0), ..checked() };
    let mut requests = writes(3000, 500, |i| i * 7919 % 3800);
    // The response time of flushes is not included in that of reads and writes.
    for flush in requests.iter_mut().step_by(50) {
        (flush.op, flush.sectors) = (Op::Flush, 0);
    }
    let (result, _) = run(&config, &options, &requests);
    let waf = result.write_amplification;
    assert!(waf.waf > 1.5 && (waf.host + waf.gc + waf.wear - waf.waf).abs() < 1e-12);
    let parts = parts_ms(&result.waits);
    assert!((parts - result.response.mean_response_ms).abs() < 1e-9 && result.waits.gc_ms > 0.0);
    let programs = result.flash.page_programs;
    assert_eq!(programs.total, programs.host + programs.gc + programs.wear);
    assert_eq!(result.wear.erase_counts.blocks.iter().sum::<u64>(), 256);
}

#[test]
fn the_same_input_gives_the_same_result_and_options_count() {
    let config = small();
    let run_once = |seed| {
        let options =
            ReplayOptions { precondition: Precondition::SteadyState { most_capacities: 4.0 }, seed, ..Default::default() };
        let mut result = run(&config, &options, &writes(2000, 500, |i| i * 31 % 3800)).0;
        result.computing = ComputeCost::default();
        serde_json::to_string(&result).unwrap()
    };
    assert_eq!(run_once(1), run_once(1));
    assert_ne!(run_once(1), run_once(2));
}

#[test]
fn an_aged_device_from_the_store_is_the_device_that_was_saved() {
    let folder = tempfile::tempdir().unwrap();
    let store = ImageStore::open(folder.path()).unwrap();
    let options = ReplayOptions { precondition: Precondition::Random(80.0), seed: 3, ..Default::default() };
    for policy in ["greedy", "fifo", "d_choices"] {
        let mut config = small();
        config.set("gc.policy", policy).unwrap();
        let run_once = || {
            let simulation = Simulation::new(&config, &options, Some(&store)).unwrap();
            let (mut result, _) = completed(simulation, &writes(5000, 500, |i| i * 131 % 3800));
            result.computing = ComputeCost::default();
            serde_json::to_string(&result).unwrap()
        };
        let files = || std::fs::read_dir(folder.path()).unwrap().count();
        let before = files();
        let made = run_once();
        assert_eq!(files(), before + 1);
        assert_eq!(made, run_once());
        assert_eq!(files(), before + 1);
    }
    let image = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    std::fs::File::create(&image).unwrap().write_all(b"no image").unwrap();
    let mut config = small();
    let damaged = ["greedy", "fifo", "d_choices"].into_iter().any(|policy| {
        config.set("gc.policy", policy).unwrap();
        Simulation::new(&config, &options, Some(&store)).is_err()
    });
    assert!(damaged);
}

#[test]
fn rows_in_parquet_hold_every_request_and_appear_whole() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.parquet");
    let mut simulation = Simulation::new(&config(), &ReplayOptions::default(), None).unwrap();
    let mut rows = RequestRows::create(&path).unwrap();
    for request in writes(100, 100, |i| i) {
        simulation.push(&request, &mut rows).unwrap();
    }
    simulation.finish(None, &mut rows).unwrap();
    assert!(!path.exists());
    rows.finish(Some("{\"version\":\"1\"}")).unwrap();
    let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
    assert_eq!(reader.metadata().file_metadata().num_rows(), 100);
    assert_eq!(reader.metadata().file_metadata().schema().get_fields().len(), 17);
    let entries = reader.metadata().file_metadata().key_value_metadata().unwrap();
    let run = entries.iter().find(|entry| entry.key == "emmclab.run").unwrap();
    assert_eq!(run.value.as_deref(), Some("{\"version\":\"1\"}"));
}

/// A trace file of writes in the BIOtracer format, at intervals of `step_us`.
fn trace(folder: &std::path::Path, name: &str, first_us: i64, step_us: i64, count: i64) -> TraceInput {
    let path = folder.join(name);
    let mut text = String::new();
    for i in 0..count {
        let at = first_us + i * step_us;
        let seconds = |us: i64| format!("{}.{:06}000", us / 1_000_000, us % 1_000_000);
        let times: Vec<_> = [at, at, at, at + 10].into_iter().map(seconds).collect();
        let _ = writeln!(text, "{}\t\t8\t\t4096\t\t1\t\t{}", i * 8, times.join("\t\t"));
    }
    std::fs::write(&path, text).unwrap();
    TraceInput { path, ..TraceInput::default() }
}

#[test]
fn a_device_aged_by_a_trace_holds_it_and_is_kept_by_the_bytes_of_the_trace() {
    let folder = tempfile::tempdir().unwrap();
    let store = ImageStore::open(folder.path().join("images")).unwrap();
    let images = || std::fs::read_dir(folder.path().join("images")).unwrap().count();
    let input = trace(folder.path(), "a", 1_000_000, 1000, 300);
    let age = |input: &TraceInput| {
        emmclab_replay::age_by_traces(&small(), &ReplayOptions::default(), vec![input.clone()], Some(&store)).unwrap()
    };
    let device = age(&input);
    assert!(
        (0..300).all(|unit| device.lookup(emmclab_device::Lpn(unit)).is_some())
            && device.lookup(emmclab_device::Lpn(300)).is_none()
    );
    assert_eq!((age(&input).to_image(), images()), (device.to_image(), 1));
    age(&trace(folder.path(), "a", 1_000_000, 1000, 299));
    assert_eq!(images(), 2);
    let filled = ReplayOptions { precondition: "sequential:50".parse().unwrap(), ..ReplayOptions::default() };
    for scheme in ["page", "dftl", "rqftl"] {
        let mut config = small();
        config.set("mapping.scheme", scheme).unwrap();
        let device = emmclab_replay::age_by_traces(&config, &filled, vec![input.clone()], Some(&store)).unwrap();
        let half = device.geometry().logical_units / 2;
        let mapped = |unit| device.lookup(emmclab_device::Lpn(unit)).is_some();
        assert!((0..half).all(mapped) && !mapped(half), "{scheme}: half is filled before the trace");
        assert_eq!(images(), 3, "one fill serves all mapping schemes");
    }
    let simulation = Simulation::on(&small(), &ReplayOptions::default(), device);
    let result = simulation.finish(None, &mut NullObserver).unwrap();
    assert_eq!((result.requests.total, result.flash.page_programs.total), (0, 0));
}
