//! A figure comes from requests that show it, and from no others.

use std::fmt::Write;
use std::path::Path;
use std::{fs, process, thread};

use emmclab_calibrate::{CalibrateOptions, Calibration, calibrate, samples_of_traces};
use emmclab_device::DeviceConfig;
use emmclab_trace::{Combiner, TraceInput};

const FUA: u16 = 1 << 1;
const PREFLUSH: u16 = 1 << 2;
/// Service time of a KB written and of a command, us.
const PER_KB: f64 = 100.0;
const FIXED: f64 = 200.0;

/// A recording of one device that does one thing at a time, in microseconds.
#[derive(Default)]
struct Recording {
    rows: Vec<(u64, String)>,
    /// When the device is done.
    free: u64,
}

impl Recording {
    /// A request that comes `gap` after the end of the last one, or before it; the driver fetches it after `fetch`, the device
    /// takes it `delay` later.
    fn add(&mut self, gap: i64, (op, kb, flags): (&str, u32, u16), (fetch, delay): (u64, u64), service: u64) {
        let arrival = self.free.saturating_add_signed(gap);
        let start = arrival + fetch;
        let issue = start.max(self.free) + delay;
        let complete = issue + service;
        self.free = complete;
        let ns = |us: u64| us * 1000;
        let sector = self.rows.len() * 4096;
        let row = format!(
            "{},{},{},{},{sector},{},{op},{flags}",
            ns(arrival),
            ns(start),
            ns(issue),
            ns(complete),
            kb * 2
        );
        self.rows.push((arrival, row));
    }

    fn plain(&mut self, gap: i64, kb: u32) {
        let service = FIXED + PER_KB * f64::from(kb);
        self.add(gap, ("write", kb, 0), (30, 0), service as u64);
    }

    fn calibrated(mut self) -> Calibration {
        self.rows.sort_by_key(|(arrival, _)| *arrival);
        let mut text = "arrival_ns,start_ns,issue_ns,complete_ns,sector,sectors,op,flags\n".to_owned();
        self.rows.iter().for_each(|(_, row)| writeln!(text, "{row}").unwrap());
        let test = thread::current().name().unwrap().to_owned();
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{}.csv", process::id()));
        fs::write(&path, text).unwrap();
        let input = TraceInput { path: path.clone(), ..TraceInput::default() };
        let mut traces = Combiner::open(vec![input], 1).unwrap();
        let options =
            CalibrateOptions { name: "found".into(), source: "a test".into(), capacity_gb: 4, seed: 1 };
        let samples = samples_of_traces(&mut traces, false);
        fs::remove_file(path).unwrap();
        calibrate(&samples.unwrap(), &options).unwrap()
    }
}

fn value(found: &Calibration, name: &str) -> Option<f64> {
    found.figures.iter().find(|figure| figure.name == name).unwrap().value
}

fn writes() -> Recording {
    let mut recording = Recording { free: 1_000_000, ..Recording::default() };
    for i in 0..240 {
        recording.plain(5_000, [4, 8, 16, 32][i % 4]);
    }
    recording
}

#[test]
fn without_reads_no_figure_of_reads_is_given_and_the_preset_still_loads() {
    let found = writes().calibrated();
    for figure in &found.figures {
        let of_reads = figure.name.starts_with("read_");
        assert_eq!(figure.value.is_none(), of_reads || UNSEEN.contains(&&*figure.name), "{figure:?}");
        assert_eq!(figure.value.is_none(), figure.low.is_none() && figure.high.is_none(), "{figure:?}");
    }
    assert!(
        found.toml.contains("No reads were recorded") && found.toml.contains("# read_us is not measured")
    );
    let config = DeviceConfig::from_toml(&found.toml).unwrap();
    assert_eq!(config.settings().controller.read_overhead_us, 0.0);
    assert!((config.settings().host.fetch_us - 30.0).abs() < 1e-9);
}

/// Figures of behaviour that plain writes with short gaps do not show.
const UNSEEN: [&str; 3] = ["reliable_write_us", "sleep_after_us", "wake_us"];

#[test]
fn service_begins_when_the_command_before_is_complete() {
    let mut recording = writes();
    // Fetched while the one before still runs: start to completion holds the rest of that.
    for _ in 0..300 {
        recording.plain(5_000, 32);
        recording.plain(-3_000, 4);
    }
    let found = recording.calibrated();
    let four = found.sizes.iter().find(|row| row.kb == 4.0).unwrap();
    assert!((four.measured_us - 600.0).abs() < 1.0, "{four:?}");
    assert_eq!(found.woken, 0);
}

#[test]
fn only_a_request_after_an_idle_gap_wakes_the_device() {
    let mut recording = writes();
    for _ in 0..20 {
        // Asleep after 400 ms.
        recording.add(400_000, ("write", 4, 0), (30, 4_000), 600);
        // Fetched 2 ms before the device is free, which is no wake-up.
        recording.plain(5_000, 32);
        recording.add(-2_000, ("write", 4, 0), (30, 0), 600);
    }
    let found = recording.calibrated();
    assert_eq!(found.woken, 20);
    let wake_us = value(&found, "wake_us").unwrap();
    assert!((wake_us - 4_000.0).abs() < 1.0, "{wake_us}");
    let config = DeviceConfig::from_toml(&found.toml).unwrap();
    assert_eq!(config.settings().power.wake_quantiles.last().unwrap().us.round(), 4_000.0);
}

#[test]
fn a_few_very_long_wake_ups_keep_their_share_of_the_mean() {
    let mut recording = writes();
    let mut sum = 0;
    for i in 0..200u64 {
        let delay = if i == 77 { 70_000 } else { 3_000 + i * 10 };
        sum += delay;
        recording.add(400_000, ("write", 4, 0), (30, delay), 600);
    }
    let config = DeviceConfig::from_toml(&recording.calibrated().toml).unwrap();
    let points = &config.settings().power.wake_quantiles;
    let mut mean = points[0].up_to_pct * points[0].us / 100.0;
    for pair in points.windows(2) {
        mean += (pair[1].up_to_pct - pair[0].up_to_pct) * f64::midpoint(pair[0].us, pair[1].us) / 100.0;
    }
    assert!((mean / (sum as f64 / 200.0) - 1.0).abs() < 0.02, "{mean} {points:?}");
}

#[test]
fn flushes_and_durable_writes_are_groups_of_their_own_and_no_wake_ups() {
    let mut recording = writes();
    for _ in 0..30 {
        recording.add(400_000, ("flush", 0, 0), (30, 0), 900);
        recording.add(400_000, ("write", 4, PREFLUSH | FUA), (30, 4_000), 850);
        recording.add(5_000, ("write", 8, FUA), (30, 0), 1_250);
    }
    let found = recording.calibrated();
    assert_eq!((found.woken, value(&found, "wake_us")), (0, None));
    let row = |kind: &str| found.durability.iter().find(|row| row.kind == kind).unwrap();
    assert_eq!((row("flush").requests, row("flush").median_us, row("flush").setting), (30, 900.0, None));
    assert_eq!((row("preflush").requests, row("preflush").median_us), (30, 4_000.0));
    assert_eq!((row("fua").requests, row("fua").setting), (60, Some("controller.reliable_write_us")));
    // 4 and 8 KB alone take 600 and 1,000 us.
    let reliable_us = value(&found, "reliable_write_us").unwrap();
    assert!((reliable_us - 250.0).abs() < 30.0, "{reliable_us}");
    assert!(found.sizes.iter().all(|row| row.requests == 60), "{:?}", found.sizes);
    assert!(found.toml.contains("flush: 30 requests, 900 us in the median; not modelled"));
}
