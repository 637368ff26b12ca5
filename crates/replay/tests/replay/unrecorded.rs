//! What a trace does not record is unknown in a result, and flushes can be added to it.

use std::fs;
use std::path::Path;

use emmclab_device::{DeviceConfig, NullObserver};
use emmclab_replay::{ReplayMode, ReplayOptions, SimulationResult, simulate};
use emmclab_trace::{ReadOptions, TraceCombiner, TraceInput};

fn run(file: &Path, columns: Option<&str>, options: &ReplayOptions) -> SimulationResult {
    let options_of_reading = ReadOptions { columns: columns.map(str::to_owned), ..ReadOptions::default() };
    let input = TraceInput { path: file.to_owned(), options: options_of_reading, ..TraceInput::default() };
    let mut traces = TraceCombiner::open(vec![input], 1).unwrap();
    let config = DeviceConfig::preset("emmc51-cache").unwrap();
    simulate(&config, &mut traces, options, &mut NullObserver).unwrap()
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
    let result = run(&ssdsim(folder.path()), None, &ReplayOptions::default());
    assert_eq!(result.run.unrecorded.as_deref(), Some("discard flush secure_erase fua preflush"));
    assert_eq!((result.requests.other, result.map.discarded_units), (None, None));
    assert_eq!(result.cache.unwrap().flushes, None);
    assert!(result.durable.is_none());
}

#[test]
fn an_added_flush_makes_the_writes_before_it_durable_and_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let file = ssdsim(folder.path());
    let plain = run(&file, None, &ReplayOptions::default());
    let options = ReplayOptions { flush_every: 8, ..ReplayOptions::default() };
    for mode in [ReplayMode::Open, ReplayMode::BackToBack] {
        let result = run(&file, None, &ReplayOptions { mode, ..options.clone() });
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
    assert_eq!(run(&path, None, &options).map.unwritten_read_pct, Some(75.0));
    fs::write(&path, "0 0 0 8 0\n").unwrap();
    assert_eq!(run(&path, None, &options).map.unwritten_read_pct, None);
}

#[test]
fn a_coarse_clock_gives_the_open_loop_and_no_recorded_waits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lat.log");
    let lines: Vec<_> = (0..40).map(|at| format!("{},300000,1,4096,{}", at / 4, at * 4096)).collect();
    fs::write(&path, lines.join("\n")).unwrap();
    let columns = Some("complete_ms,response_ns,op_read0,size_bytes,offset_bytes");
    let auto = ReplayOptions { mode: ReplayMode::Auto, ..ReplayOptions::default() };
    let result = run(&path, columns, &auto);
    assert_eq!(result.run.coarse_clock.as_deref(), Some("1ms"));
    assert_eq!((result.run.mode, result.recorded.no_wait.all.recorded_pct), (ReplayMode::Open, None));
    assert!(result.run.mode_reason.unwrap().contains("1ms"));
    assert!((result.recorded.response.all.recorded_ms.unwrap() - 0.3).abs() < 1e-9);
}
