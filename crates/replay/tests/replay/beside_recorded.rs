//! Recorded and simulated times, the mode that a trace permits, a device that is overloaded, and features that a trace does not record:
//! they are unknown in a result, and flushes can be added to the trace.

use std::fs;
use std::path::Path;

use crate::common::{in_mode, of_4_kb, preset, until_stop};
use emmclab_device::{DeviceConfig, NullObserver};
use emmclab_replay::{RateFactor, ReplayMode, ReplayOptions, Simulation, SimulationResult, simulate};
use emmclab_trace::{Nanos, Op, ReadOptions, Request, Sector, TraceCombiner, TraceInput};

/// 4 KB pages with a program time of 1 ms, and one command at a time.
fn device() -> DeviceConfig {
    let settings = [
        ("geometry.block_groups.0.program_us", "1000"),
        ("geometry.block_groups.0.read_us", "100"),
        ("timing.bus_ns_per_byte", "0"),
        ("timing.command_ns", "0"),
        ("controller.queue_depth", "1"),
    ];
    preset("small-1gb", &settings)
}

/// A request of 4 KB, with times in us.
fn request(op: Op, arrival: i64, start: Option<i64>, complete: Option<i64>) -> Request {
    let us = Nanos::from_micros;
    Request { start: start.map(us), complete: complete.map(us), ..of_4_kb(arrival, op, arrival as u64 % 512 * 8) }
}

fn run(config: &DeviceConfig, options: &ReplayOptions, requests: &[Request]) -> SimulationResult {
    until_stop(Simulation::new(config, options, None).unwrap(), requests).0
}

/// Writes at intervals of `gap_us`, without recorded times.
fn writes(count: i64, gap_us: i64) -> Vec<Request> {
    (0..count).map(|i| request(Op::Write, i * gap_us, None, None)).collect()
}

#[test]
fn means_of_the_recording_are_those_of_the_profile_by_operation() {
    let requests = [
        request(Op::Write, 0, Some(100), Some(2_000)),
        request(Op::Read, 1_000, Some(2_000), Some(2_400)),
        request(Op::Write, 10_000, None, Some(11_000)),
        request(Op::Flush, 20_000, Some(20_000), Some(29_000)),
        request(Op::Read, 30_000, Some(30_200), Some(30_600)),
    ];
    let found = run(&device(), &in_mode(ReplayMode::Closed), &requests).recorded;
    let response = [found.response.all, found.response.read, found.response.write];
    assert_eq!(response.map(|beside| beside.recorded_ms), [Some(1.25), Some(1.0), Some(1.5)]);
    // One write has no start.
    let service = [found.service.all, found.service.read, found.service.write];
    assert_eq!(service.map(|beside| beside.recorded_ms), [Some(0.9), Some(0.4), Some(1.9)]);
    let no_wait = [found.no_wait.all, found.no_wait.read, found.no_wait.write];
    assert_eq!(no_wait.map(|beside| beside.recorded_pct), [Some(75.0), Some(50.0), Some(100.0)]);
    let (recorded, simulated) = (found.response.write.recorded_ms, found.response.write.simulated_ms);
    let error = 100.0 * (simulated.unwrap() / recorded.unwrap() - 1.0);
    assert_eq!(found.response.write.error_pct, Some(error));
}

#[test]
fn without_recorded_times_nothing_is_put_beside_the_simulated_ones() {
    let found = run(&device(), &in_mode(ReplayMode::Open), &writes(3, 5_000)).recorded;
    assert_eq!((found.response.all.recorded_ms, found.response.all.error_pct), (None, None));
    assert_eq!(found.response.all.simulated_ms, Some(1.0));
    assert_eq!((found.response.read.simulated_ms, found.dependent_pct), (None, None));
    assert_eq!(found.no_wait.all.error_points, None);
}

#[test]
fn a_run_at_another_pace_than_the_recording_has_no_error() {
    let requests = [request(Op::Write, 0, Some(0), Some(900)), request(Op::Write, 5_000, Some(5_000), Some(5_900))];
    let twice = ReplayOptions { rate: RateFactor::new(2.0).unwrap(), ..in_mode(ReplayMode::Open) };
    for (options, comparable) in [(in_mode(ReplayMode::Open), true), (in_mode(ReplayMode::BackToBack), false), (twice, false)] {
        let beside = run(&device(), &options, &requests).recorded.response.all;
        assert_eq!((beside.recorded_ms, beside.error_pct.is_some()), (Some(0.9), comparable), "{options:?}");
    }
}

#[test]
fn the_request_at_which_a_device_stops_is_neither_recorded_nor_simulated() {
    let config = DeviceConfig::from_toml(
        "[[geometry.block_groups]]\npage_kb = 4\nblocks = 8\npages_per_block = 16\n\
         read_us = 50\nprogram_us = 500\nerase_us = 1000\n\
         [capacity]\nover_provisioning_pct = 0\n[gc]\npolicy = 'none'\n",
    )
    .unwrap();
    // The response of request i is i us.
    let requests: Vec<_> = (0..1_000)
        .map(|i| Request { sector: Sector(i as u64 % 16 * 8), ..request(Op::Write, i * 2_000, Some(i * 2_000), Some(i * 2_001)) })
        .collect();
    let result = run(&config, &in_mode(ReplayMode::Open), &requests);
    let count = result.requests.total as f64;
    assert!(result.run.stopped.is_some() && count < 1_000.0);
    let recorded_ms = result.recorded.response.all.recorded_ms.unwrap();
    assert!((recorded_ms - (count - 1.0) / 2.0 / 1e3).abs() < 1e-9, "{recorded_ms} of {count}");
}

#[test]
fn requests_within_a_millisecond_of_the_device_going_idle_are_counted_as_dependent() {
    let requests = [
        request(Op::Write, 0, None, Some(1_000)),
        request(Op::Write, 1_500, None, Some(2_000)),
        request(Op::Write, 3_000, None, Some(4_000)),
        request(Op::Write, 5_001, None, Some(6_000)),
        request(Op::Write, 5_500, None, Some(6_500)),
    ];
    let found = run(&device(), &in_mode(ReplayMode::Open), &requests).recorded;
    assert_eq!(found.dependent_pct, Some(40.0));
}

#[test]
fn a_trace_with_completions_is_replayed_in_closed_loop_unless_another_mode_is_asked_for() {
    let complete = [request(Op::Write, 0, None, Some(900)), request(Op::Write, 1_000, None, Some(1_900))];
    for (requests, mode) in [(&complete[..], ReplayMode::Closed), (&writes(2, 1_000), ReplayMode::Open)] {
        assert_eq!(run(&device(), &in_mode(ReplayMode::Auto), requests).run.mode, mode);
        assert_eq!(run(&device(), &in_mode(ReplayMode::Open), requests).run.mode, ReplayMode::Open);
    }
    // If the first request of a stream determines the mode, later requests without completion are permitted.
    let mixed = [complete[0], request(Op::Write, 1_000, None, None), complete[1]];
    assert_eq!(run(&device(), &in_mode(ReplayMode::Auto), &mixed).requests.total, 3);
}

#[test]
fn a_light_trace_and_one_with_bursts_are_no_overload() {
    let light = run(&device(), &in_mode(ReplayMode::Open), &writes(1_000, 5_000)).run.load;
    assert!(!light.overloaded && (light.offered_pct.unwrap() - 20.0).abs() < 0.1, "{light:?}");
    // Bursts of 50 requests, one every 100 ms.
    let bursts: Vec<_> = (0..1_000).map(|i| request(Op::Write, i / 50 * 100_000 + i % 50, None, None)).collect();
    let bursty = run(&device(), &in_mode(ReplayMode::Open), &bursts).run.load;
    assert!(!bursty.overloaded && bursty.offered_pct.unwrap() < 60.0, "{bursty:?}");
}

#[test]
fn a_burst_at_the_end_of_a_light_trace_is_no_overload() {
    let mut requests = writes(1_000, 5_000);
    requests.extend((0..500).map(|i| request(Op::Write, 5_000_000 + i, None, None)));
    let load = run(&device(), &in_mode(ReplayMode::Open), &requests).run.load;
    assert!(load.backlog_s > 0.4 && !load.overloaded, "{load:?}");
}

#[test]
fn requests_that_come_faster_than_the_device_serves_them_are_an_overload() {
    let load = run(&device(), &in_mode(ReplayMode::Open), &writes(2_000, 500)).run.load;
    assert!(load.overloaded && (load.offered_pct.unwrap() - 200.0).abs() < 1.0, "{load:?}");
    assert!((load.backlog_s - 1.0).abs() < 0.01, "{load:?}");
    // Closed loop waits for the device.
    let complete: Vec<_> = (0..2_000).map(|i| request(Op::Write, i * 500, None, Some(i * 500 + 400))).collect();
    let closed = run(&device(), &in_mode(ReplayMode::Closed), &complete).run.load;
    assert_eq!((closed.offered_pct, closed.overloaded), (None, false));
    // A few simultaneous requests are no overload either.
    assert!(!run(&device(), &in_mode(ReplayMode::Open), &writes(8, 10)).run.load.overloaded);
}

#[test]
fn the_time_of_fetching_counts_to_the_response_alone_and_passes_while_a_command_runs() {
    let mut config = device();
    config.set("host.fetch_us", "70").unwrap();
    let alone = run(&config, &in_mode(ReplayMode::Open), &writes(10, 5_000));
    assert!((alone.response.mean_response_ms - 1.07).abs() < 1e-9, "{:?}", alone.response);
    assert!((alone.service.mean_service_ms - 1.0).abs() < 1e-9, "{:?}", alone.service);
    assert_eq!(alone.requests.no_wait_pct, 100.0);
    assert!((alone.waits.controller_ms - 0.07).abs() < 1e-9 && alone.waits.queue_ms == 0.0, "{:?}", alone.waits);
    // All requests at once: only the first one waits for fetching.
    let queued = run(&config, &in_mode(ReplayMode::Open), &writes(10, 1));
    assert!((queued.run.simulated_s - 0.01007).abs() < 1e-9, "{:?}", queued.run);
    assert_eq!(queued.requests.no_wait_pct, 10.0);
    // With a host queue, requests are fetched as early.
    config.set("host.merge_max_kb", "4").unwrap();
    let merged = run(&config, &in_mode(ReplayMode::Open), &writes(10, 1));
    assert_eq!((merged.run.simulated_s, merged.waits), (queued.run.simulated_s, queued.waits));
}

fn run_file(file: &Path, columns: Option<&str>, options: &ReplayOptions) -> SimulationResult {
    run_on(&DeviceConfig::preset("emmc51-cache").unwrap(), file, columns, options)
}

fn run_on(config: &DeviceConfig, file: &Path, columns: Option<&str>, options: &ReplayOptions) -> SimulationResult {
    let options_of_reading = ReadOptions { columns: columns.map(str::to_owned), ..ReadOptions::default() };
    let input = TraceInput { path: file.to_owned(), options: options_of_reading, ..TraceInput::default() };
    let mut traces = TraceCombiner::open(vec![input], 1).unwrap();
    simulate(config, &mut traces, options, &mut NullObserver).unwrap()
}

/// Writes of 4 KB, 10 ms apart.
fn ssdsim(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("writes.ssdsim");
    let lines: Vec<_> = (0..40).map(|at| format!("{} 0 {} 8 0", at * 10_000_000_u64, at * 8)).collect();
    fs::write(&path, lines.join("\n")).unwrap();
    path
}

#[test]
fn counts_of_what_a_trace_does_not_record_are_unknown() {
    let folder = tempfile::tempdir().unwrap();
    let result = run_file(&ssdsim(folder.path()), None, &ReplayOptions::default());
    assert_eq!(result.run.unrecorded.as_deref(), Some("discard flush secure_erase fua preflush"));
    assert_eq!((result.requests.other, result.map.discarded_units), (None, None));
    assert_eq!(result.cache.unwrap().flushes, None);
    assert!(result.durable.is_none());
}

#[test]
fn an_added_flush_makes_the_writes_before_it_durable_and_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let file = ssdsim(folder.path());
    let plain = run_file(&file, None, &ReplayOptions::default());
    let options = ReplayOptions { flush_every: 8, ..ReplayOptions::default() };
    for mode in [ReplayMode::Open, ReplayMode::BackToBack] {
        let result = run_file(&file, None, &ReplayOptions { mode, ..options.clone() });
        assert_eq!((result.requests.write, result.requests.other), (40, Some(5)));
        assert_eq!(result.cache.unwrap().flushes, Some(5));
        let durable = result.durable.unwrap();
        assert_eq!(durable.requests, 5);
        assert!(durable.times.mean_ms > plain.response.mean_response_ms, "{durable:?}");
    }
}

#[test]
fn reads_of_data_that_nobody_wrote_are_a_share_of_the_bytes_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("reads.ssdsim");
    fs::write(&path, "0 0 0 8 0\n10000000 0 0 8 1\n20000000 0 8 24 1\n").unwrap();
    let options = ReplayOptions::default();
    // The first read is of written data; the second one reads 4 KB, and two pages of 4 KB or one of 8 KB.
    for (device, layout, expected) in [
        ("iiswc15-4ps", "flash", vec![(4, 12_288)]),
        ("iiswc15-hps", "flash", vec![(8, 8192), (4, 4096)]),
        ("iiswc15-hps", "flash_small", vec![(4, 12_288)]),
        ("iiswc15-hps", "free", vec![]),
    ] {
        let mut config = DeviceConfig::preset(device).unwrap();
        config.set("mapping.unwritten_read", layout).unwrap();
        let map = run_on(&config, &path, None, &options).map;
        assert_eq!((map.unwritten_read_pct, map.unwritten_request_pct), (Some(75.0), Some(50.0)), "{device} {layout}");
        let mut pages: Vec<_> = map.unwritten_pages.iter().map(|pages| (pages.page_kb, pages.bytes_read)).collect();
        pages.sort_unstable_by_key(|(kb, _)| std::cmp::Reverse(*kb));
        assert_eq!(pages, expected, "{device} {layout}");
    }
    fs::write(&path, "0 0 0 8 0\n").unwrap();
    assert_eq!(run_file(&path, None, &options).map.unwritten_read_pct, None);
}

#[test]
fn a_coarse_clock_gives_the_open_loop_and_no_recorded_waits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lat.log");
    let lines: Vec<_> = (0..40).map(|at| format!("{},300000,1,4096,{}", at / 4, at * 4096)).collect();
    fs::write(&path, lines.join("\n")).unwrap();
    let columns = Some("complete_ms,response_ns,op_read0,size_bytes,offset_bytes");
    let result = run_file(&path, columns, &in_mode(ReplayMode::Auto));
    assert_eq!(result.run.coarse_clock.as_deref(), Some("1ms"));
    assert_eq!((result.run.mode, result.recorded.no_wait.all.recorded_pct), (ReplayMode::Open, None));
    assert!(result.run.mode_reason.unwrap().contains("1ms"));
    assert!((result.recorded.response.all.recorded_ms.unwrap() - 0.3).abs() < 1e-9);
}
