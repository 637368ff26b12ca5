//! Each figure is fitted only to the requests that show it.

use std::fmt::Write;
use std::path::Path;
use std::{fs, process, thread};

use crate::{options, service_us};
use emmclab_calibrate::{CalibrateOptions, Calibration, ServiceSamples, calibrate, samples_of_traces};
use emmclab_device::{Device, DeviceConfig};
use emmclab_trace::{Nanos, Op, TraceCombiner, TraceInput};

const FUA: u16 = 1 << 1;
const PREFLUSH: u16 = 1 << 2;
/// Service time of a written KB; the next constant is that of a command, us.
const PER_KB: f64 = 100.0;
const FIXED: f64 = 200.0;

/// A recording of a device that serves one request at a time; times are in microseconds.
#[derive(Default)]
struct Recording {
    rows: Vec<(u64, String)>,
    /// Time at which the device becomes idle.
    free: u64,
}

impl Recording {
    /// Adds a request that arrives `gap` after the end of the last one (before it if negative). The driver fetches it `fetch`
    /// later; when it is fetched and the device is idle, it is issued after `delay`.
    fn add(&mut self, gap: i64, (op, kb, flags): (&str, u32, u16), (fetch, delay): (u64, u64), service: u64) {
        let arrival = self.free.saturating_add_signed(gap);
        let start = arrival + fetch;
        let issue = start.max(self.free) + delay;
        let complete = issue + service;
        self.free = complete;
        let ns = |us: u64| us * 1000;
        let sector = self.rows.len() * 4096;
        let row = format!("{},{},{},{},{sector},{},{op},{flags}", ns(arrival), ns(start), ns(issue), ns(complete), kb * 2);
        self.rows.push((arrival, row));
    }

    fn plain(&mut self, gap: i64, kb: u32) {
        let service = FIXED + PER_KB * f64::from(kb);
        self.add(gap, ("write", kb, 0), (30, 0), service as u64);
    }

    fn calibrated(self) -> Calibration {
        calibrate(&self.samples(""), &options()).unwrap()
    }

    /// Samples of the recording without a column of times, `start_ns,issue_ns,` for example, if `without` names it.
    fn samples(mut self, without: &str) -> ServiceSamples {
        self.rows.sort_by_key(|(arrival, _)| *arrival);
        let header = "arrival_ns,start_ns,issue_ns,complete_ns,sector,sectors,op,flags".replace(without, "");
        let mut text = format!("{header}\n");
        for (_, row) in &self.rows {
            let columns = row.split(',').enumerate().filter(|(column, _)| without.is_empty() || ![1, 2].contains(column));
            writeln!(text, "{}", columns.map(|(_, value)| value).collect::<Vec<_>>().join(",")).unwrap();
        }
        let test = thread::current().name().unwrap().to_owned();
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{}.csv", process::id()));
        fs::write(&path, text).unwrap();
        let input = TraceInput { path: path.clone(), ..TraceInput::default() };
        let mut traces = TraceCombiner::open(vec![input], 1).unwrap();
        let samples = samples_of_traces(&mut traces, false);
        fs::remove_file(path).unwrap();
        samples.unwrap()
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
    let result = writes().calibrated();
    for figure in &result.figures {
        let of_reads = figure.name.starts_with("read_");
        assert_eq!(figure.value.is_none(), of_reads || UNSEEN.contains(&&*figure.name), "{figure:?}");
        assert_eq!(figure.value.is_none(), figure.low.is_none() && figure.high.is_none(), "{figure:?}");
    }
    assert!(result.toml.contains("No reads were recorded") && result.toml.contains("# read_us is not measured"));
    let config = DeviceConfig::from_toml(&result.toml).unwrap();
    assert_eq!(config.settings().controller.read_overhead_us, 0.0);
    assert!((config.settings().host.fetch_us - 30.0).abs() < 1e-9);
}

/// Figures that plain writes with short gaps do not show.
const UNSEEN: [&str; 6] = ["host_us_per_kb", "reliable_write_us", "flush_us", "discard_us", "sleep_after_us", "wake_us"];

#[test]
fn service_begins_when_the_command_before_is_complete() {
    let mut recording = writes();
    // Fetched while the request before it runs: the time from start to completion includes the rest of that request.
    for _ in 0..300 {
        recording.plain(5_000, 32);
        recording.plain(-3_000, 4);
    }
    let result = recording.calibrated();
    let four = result.sizes.iter().find(|row| row.kb == 4.0).unwrap();
    assert!((four.measured_us - 600.0).abs() < 1.0, "{four:?}");
    assert_eq!(result.woken, 0);
}

#[test]
fn only_a_request_after_an_idle_gap_wakes_the_device() {
    let mut recording = writes();
    for _ in 0..20 {
        // The device sleeps after 400 ms.
        recording.add(400_000, ("write", 4, 0), (30, 4_000), 600);
        // Fetched 2 ms before the device is idle, which is not a wake-up.
        recording.plain(5_000, 32);
        recording.add(-2_000, ("write", 4, 0), (30, 0), 600);
    }
    let result = recording.calibrated();
    assert_eq!(result.woken, 20);
    let wake_us = value(&result, "wake_us").unwrap();
    assert!((wake_us - 4_000.0).abs() < 1.0, "{wake_us}");
    let config = DeviceConfig::from_toml(&result.toml).unwrap();
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
    let result = recording.calibrated();
    assert_eq!((result.woken, value(&result, "wake_us")), (0, None));
    let row = |kind: &str| result.durability.iter().find(|row| row.kind == kind).unwrap();
    assert_eq!((row("flush").requests, row("flush").median_us), (30, 900.0));
    assert_eq!((row("flush").setting, row("preflush").setting), (Some("cache.flush_us"), None));
    assert_eq!((row("preflush").requests, row("preflush").median_us), (30, 4_000.0));
    assert_eq!((row("fua").requests, row("fua").setting), (60, Some("controller.reliable_write_us")));
    // Alone, 4 and 8 KB take 600 and 1,000 us.
    let reliable_us = value(&result, "reliable_write_us").unwrap();
    assert!((reliable_us - 250.0).abs() < 30.0, "{reliable_us}");
    assert!(result.sizes.iter().all(|row| row.requests == 60), "{:?}", result.sizes);
    assert!(result.toml.contains("flush: 30 requests, 900 us in the median; see cache.flush_us"));
    assert!(result.toml.contains("preflush: 30 requests, 4000 us in the median; not fitted"));
}

#[test]
fn the_interval_of_durable_writes_shows_how_much_their_times_vary() {
    let mut recording = writes();
    for i in 0..30 {
        // Alone, 4 KB take 600 us.
        recording.add(5_000, ("write", 4, FUA), (30, 0), 700 + i * 20);
    }
    let result = recording.calibrated();
    let figure = result.figures.iter().find(|figure| figure.name == "reliable_write_us").unwrap();
    let (low, high) = (figure.low.unwrap(), figure.high.unwrap());
    assert!(high - low > 50.0 && low > 100.0 && high < 680.0, "{figure:?}");
}

#[test]
fn a_flush_and_a_discard_cost_on_the_device_what_they_took() {
    let mut recording = writes();
    for _ in 0..30 {
        recording.add(5_000, ("flush", 0, 0), (30, 0), 3_300);
        recording.add(5_000, ("discard", 512, 0), (30, 0), 12_000);
    }
    let result = recording.calibrated();
    assert!(result.toml.contains("of 30 requests"), "{}", result.toml);
    let mut device = Device::new(&DeviceConfig::from_toml(&result.toml).unwrap());
    for (op, us) in [(Op::Flush, 3_300.0), (Op::Discard, 12_000.0)] {
        let fetch_us = 30.0;
        let took = service_us(&mut device, Nanos::from_millis(1), op, if op == Op::Flush { 0 } else { 1024 }) - fetch_us;
        assert!((took - us).abs() < 1.0, "{op:?}: {took} us");
    }
}

#[test]
fn four_flushes_are_too_few_and_flushes_before_data_stand_in_for_them() {
    let with = |flushes, before| {
        let mut recording = writes();
        for _ in 0..flushes {
            recording.add(5_000, ("flush", 0, 0), (30, 0), 900);
        }
        for _ in 0..before {
            recording.add(5_000, ("write", 4, PREFLUSH), (30, 4_000), 600);
        }
        recording.calibrated()
    };
    let few = with(4, 4);
    assert_eq!(value(&few, "flush_us"), None);
    assert!(few.durability.iter().all(|row| row.setting.is_none()) && !few.toml.contains("flush_us ="));
    let stand_in = with(4, 20);
    assert!((value(&stand_in, "flush_us").unwrap() + value(&stand_in, "write_overhead_us").unwrap() - 4_000.0).abs() < 1.0);
    assert!(stand_in.toml.contains("of 20 requests"), "{}", stand_in.toml);
}

#[test]
fn too_few_reads_leave_the_link_assumed_and_say_so() {
    let with = |reads| {
        let mut recording = writes();
        for i in 0..reads {
            recording.add(5_000, ("read", [4, 8, 16, 64][i % 4], 0), (30, 0), 400);
        }
        recording.calibrated()
    };
    let few = with(49);
    assert_eq!(value(&few, "host_us_per_kb"), None);
    assert!(few.warnings[0].starts_with("49 reads and 240 writes") && few.warnings[0].contains("HS200"));
    assert_eq!(few.warnings[1], "the times of reads are fitted to only 49 requests");
    assert!(few.toml.contains("# warning: 49 reads") && few.toml.contains("# assumed, see above"));
    // 400 us for 64 KB, of which at most half is the transfer time of the link.
    let config = DeviceConfig::from_toml(&few.toml).unwrap();
    assert!((config.settings().controller.host_us_per_kb - 3.13).abs() < 0.01);
    let enough = with(50);
    assert!(value(&enough, "host_us_per_kb").is_some() && enough.warnings.is_empty());
}

#[test]
fn a_share_of_requests_that_took_far_longer_is_drawn_on_the_device() {
    let mut recording = writes();
    for i in 0..400 {
        let stall = if i % 20 == 7 { 8_000 } else { 0 };
        recording.add(5_000, ("write", 4, 0), (30, 0), 600 + stall);
    }
    let result = recording.calibrated();
    let [row] = &result.stalls[..] else { panic!("{:?}", result.stalls) };
    assert_eq!((row.op, row.requests, row.stalls, row.median_us.round()), ("write", 640, 20, 8_000.0));
    let mut device = Device::new(&DeviceConfig::from_toml(&result.toml).unwrap());
    let mut times = [0; 4_000].map(|_| service_us(&mut device, Nanos::from_millis(1), Op::Write, 8));
    times.sort_unstable_by(f64::total_cmp);
    let stalled = times.iter().filter(|us| **us > 8_000.0).count() as f64 / 4_000.0;
    assert!((stalled - 20.0 / 640.0).abs() < 0.01, "{stalled}");
    assert!((times[2_000] - 630.0).abs() < 10.0, "the median stays: {}", times[2_000]);
    assert!(writes().calibrated().stalls.is_empty());
}

/// Writes in groups of `together`. Each write of a group begins `apart` after the one before it and takes as long as a single write.
fn together(together: u64, apart: u64) -> Recording {
    let mut recording = writes();
    let begin = recording.free;
    for group in 0..100 {
        for number in 0..together {
            let at = begin + group * 50_000 + number * apart;
            recording.free = 0;
            recording.add(at as i64, ("write", 8, 0), (0, 0), 1_000);
        }
    }
    recording
}

#[test]
fn services_that_overlap_show_a_queue_and_those_alone_its_times() {
    let result = together(8, 10).calibrated();
    assert_eq!((result.queue_depth, result.overlapping), (8, 700));
    let eight = result.sizes.iter().find(|row| row.kb == 8.0).unwrap();
    assert!((eight.measured_us - 1_000.0).abs() < 1.0 && eight.requests == 60 + 100, "{eight:?}");
    let config = DeviceConfig::from_toml(&result.toml).unwrap();
    assert_eq!(config.settings().controller.queue_depth, 8);
    assert!(result.toml.contains("700 requests began while others were served"));
}

#[test]
fn requests_that_overlap_but_are_served_one_by_one_are_no_queue() {
    assert_eq!(writes().calibrated().queue_depth, 1);
    let mut recording = writes();
    for _ in 0..100 {
        recording.plain(5_000, 8);
        // Issued while the request before it is served, and served after it.
        let free = recording.free;
        recording.free = 0;
        recording.add(free as i64 - 500, ("write", 8, 0), (0, 0), 500 + 1_000);
    }
    let result = recording.calibrated();
    assert_eq!((result.queue_depth, result.overlapping), (1, 0));
    let eight = result.sizes.iter().find(|row| row.kb == 8.0).unwrap();
    assert!((eight.measured_us - 1_000.0).abs() < 1.0, "{eight:?}");
}

const ONLY_COMPLETIONS: &str = "start_ns,issue_ns,";

/// Reads and writes on a device with two stages of sleep, one of which has an exit time that varies.
fn asleep_in_stages() -> Recording {
    let mut recording = writes();
    for i in 0..600u64 {
        let gap = [200, 900, 3_000, 7_000, 90_000][(i % 5) as usize] + i;
        let exit = match gap {
            ..2_000 => 0,
            2_000..60_000 => 500,
            _ => 12_000 + 1_000 * (i % 3),
        };
        // As on a device, part of the time of a request varies.
        let (op, usual) = if i % 2 == 0 { ("read", 120) } else { ("write", 400) };
        recording.add(gap as i64, (op, [4, 8][(i % 2) as usize], 0), (0, 0), usual + i % 7 + exit);
    }
    recording
}

#[test]
fn stages_of_sleep_show_in_the_time_beyond_the_usual_with_and_without_start_and_issue() {
    for without in ["", ONLY_COMPLETIONS] {
        let result = calibrate(&asleep_in_stages().samples(without), &options()).unwrap();
        let [first, second] = &result.stages[..] else { panic!("{:?}", result.stages) };
        assert!(first.longest_before_us < 2_000.0 && (2_000.0..4_000.0).contains(&first.shortest_after_us), "{first:?}");
        assert!(second.longest_before_us < 60_000.0 && second.shortest_after_us >= 90_000.0, "{second:?}");
        assert!((first.median_us - 500.0).abs() < 10.0 && (second.median_us - 13_000.0).abs() < 10.0, "{:?}", result.stages);
        let config = DeviceConfig::from_toml(&result.toml).unwrap();
        let stages = &config.settings().power.stages;
        assert_eq!(stages.len(), 2);
        let points = &stages[1].wake_quantiles;
        assert!((points[0].us - 12_000.0).abs() < 20.0 && (points[points.len() - 1].us - 14_000.0).abs() < 20.0, "{points:?}");
        assert_eq!(
            (result.woken, value(&result, "wake_us of stage 2").unwrap()),
            (first.requests + second.requests, second.median_us)
        );
    }
}

#[test]
fn requests_that_are_slow_after_any_gap_are_no_stage_of_sleep() {
    let mut recording = writes();
    for i in 0..300u64 {
        let stall = if i % 10 == 7 { 9_000 } else { 0 };
        recording.add(100 + 400 * i as i64, ("write", 4, 0), (0, 0), 600 + stall);
    }
    let result = calibrate(&recording.samples(ONLY_COMPLETIONS), &options()).unwrap();
    assert_eq!((result.stages.len(), result.woken), (0, 0));
}

#[test]
fn four_wake_ups_are_too_few_for_a_stage_and_five_are_enough() {
    let stages = |wakes| {
        let mut recording = writes();
        for _ in 0..wakes {
            recording.plain(5_000, 4);
            recording.add(300_000, ("write", 4, 0), (0, 0), 600 + 8_000);
        }
        calibrate(&recording.samples(ONLY_COMPLETIONS), &options()).unwrap().stages.len()
    };
    assert_eq!((stages(4), stages(5)), (0, 1));
}

#[test]
fn without_start_and_issue_the_requests_that_find_nothing_unfinished_are_measured() {
    let mut recording = writes();
    for _ in 0..100 {
        // The second waits for the first, and its response is not its service.
        recording.plain(5_000, 4);
        recording.plain(-400, 16);
    }
    let result = calibrate(&recording.samples(ONLY_COMPLETIONS), &options()).unwrap();
    let rows: Vec<_> = result.sizes.iter().map(|row| (row.kb, row.requests, row.measured_us)).collect();
    let fetch_us = 30.0;
    let expected = [(4.0, 160), (8.0, 60), (16.0, 60), (32.0, 60)].map(|(kb, count)| (kb, count, FIXED + PER_KB * kb + fetch_us));
    assert_eq!(rows, expected);
    assert!(
        result.warnings[0].contains("340 of 440 requests found nothing unfinished; only they are used"),
        "{:?}",
        result.warnings
    );
    assert_eq!(result.queue_depth, 1);
}

#[test]
fn a_completion_after_the_time_out_of_linux_is_left_out_and_makes_no_request_busy() {
    for without in ["", ONLY_COMPLETIONS] {
        let mut recording = writes();
        for _ in 0..2 {
            let free = recording.free;
            recording.add(5_000, ("write", 4, 0), (0, 0), 3_600_000_000);
            recording.free = free + 6_000;
        }
        for _ in 0..60 {
            recording.plain(5_000, 4);
        }
        let result = calibrate(&recording.samples(without), &options()).unwrap();
        assert!(result.warnings[0].starts_with("2 requests complete "), "{:?}", result.warnings);
        assert_eq!(result.sizes[0].requests, 120, "{without}");
    }
}

#[test]
fn what_a_recording_does_not_show_is_that_of_the_base() {
    let base = DeviceConfig::preset("ufs22").unwrap().with_capacity(1 << 30, "1GB").unwrap();
    let options = CalibrateOptions { base: Some(base.clone()), ..options() };
    let mut recording = Recording { free: 1_000_000, ..Recording::default() };
    for i in 0..200u64 {
        recording.add(50, ("read", 4, 0), (0, 0), 150 + i % 3);
        recording.add(5_000, ("read", 4, 0), (0, 0), 150 + 700);
    }
    let result = calibrate(&recording.samples(ONLY_COMPLETIONS), &options).unwrap();
    let config = DeviceConfig::from_toml(&result.toml).unwrap();
    let mut device = Device::new(&config);
    let read = |device: &mut Device, idle| service_us(device, idle, Op::Read, 8);
    assert!((read(&mut device, Nanos(0)) - 151.0).abs() < 1.0);
    assert!((read(&mut device, Nanos::from_micros(50)) - 151.0).abs() < 1.0);
    assert!((read(&mut device, Nanos::from_millis(5)) - 851.0).abs() < 2.0);
    let (found, of_base) = (config.settings(), base.settings());
    assert_eq!((&found.interface, &found.slc, &found.timing), (&of_base.interface, &of_base.slc, &of_base.timing));
    assert_eq!(found.controller.write_overhead_us, of_base.controller.write_overhead_us);
    assert_eq!(value(&result, "write_overhead_us"), None);
    assert!(result.warnings.iter().any(|text| text == "the recording shows no writes: their fixed time is that of ufs22-1GB"));
    assert_eq!((found.power.sleep_after_us, found.power.stages.len()), (0.0, 1));
}
