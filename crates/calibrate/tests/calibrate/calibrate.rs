//! Calibration recovers the device that produced the service times, and reports how well it fits.

use std::fmt::Write;

use crate::{options, service_us};
use emmclab_calibrate::{Calibration, DeviceShape, DeviceTiming, calibrate, samples_of_fio, samples_of_traces};
use emmclab_device::{Device, DeviceCommand, DeviceConfig, NullObserver};
use emmclab_testing::real_trace;
use emmclab_trace::{Nanos, Op, TraceCombiner, TraceInput};

/// Service time of a single request on the device, us; a read is of data written before.
fn alone(config: &DeviceConfig, op: Op, kb: u32) -> f64 {
    let mut device = Device::new(config);
    if op == Op::Read {
        device.submit(&DeviceCommand::new(Nanos(0), Op::Write, 0, kb * 2), &mut NullObserver).unwrap();
    }
    // Less than the time after the write at which the device sleeps.
    service_us(&mut device, Nanos(1000), op, kb * 2)
}

fn preset(shape: &DeviceShape, timing: &DeviceTiming) -> DeviceConfig {
    let mut text =
        format!("[geometry]\nchannels = 1\nchips_per_channel = 1\ndies_per_chip = {}\nplanes_per_die = 1\n", shape.units);
    for (i, kb) in shape.page_kb.iter().enumerate() {
        write!(
            text,
            "[[geometry.block_groups]]\npage_kb = {kb}\nblocks = 64\npages_per_block = 64\nread_us = {}\nprogram_us = {}\nerase_us = 1\n",
            timing.read[i], timing.program[i]
        )
        .unwrap();
    }
    write!(
        text,
        "[timing]\nparallelism = 'interleave'\n[controller]\nqueue_depth = 1\nread_overhead_us = {}\nwrite_overhead_us = {}\nhost_us_per_kb = {}\n",
        timing.read_overhead, timing.write_overhead, timing.host_per_kb
    )
    .unwrap();
    DeviceConfig::from_toml(&text).unwrap()
}

#[test]
fn the_closed_form_is_what_the_device_does_with_a_request_alone() {
    for units in [1, 2, 4] {
        for page_kb in [vec![4], vec![16], vec![8, 4], vec![16, 8, 4]] {
            let count = page_kb.len();
            let shape = DeviceShape { page_kb, units };
            let timing = DeviceTiming {
                read_overhead: 120.0,
                write_overhead: 80.0,
                host_per_kb: 8.0,
                read: vec![90.0, 70.0, 50.0][3 - count..].to_vec(),
                program: vec![1500.0, 1010.0, 600.0][3 - count..].to_vec(),
            };
            let config = preset(&shape, &timing);
            for kb in (4..=128).step_by(4) {
                for op in [Op::Read, Op::Write] {
                    let (found, wanted) = (timing.service_us(&shape, op, f64::from(kb)), alone(&config, op, kb));
                    assert!((found - wanted).abs() < 0.1, "{shape:?} {op:?} {kb} KB: {found} {wanted}");
                }
            }
        }
    }
}

fn fio(times: &[(&str, u32, f64)]) -> String {
    let jobs: Vec<String> = times
        .iter()
        .map(|(op, kb, us)| {
            let ns = us * 1e3;
            format!(
                "{{\"jobname\": \"{op}-{kb}k\", \"job options\": {{\"bs\": \"{kb}k\", \"iodepth\": \"1\"}}, \"{op}\": {{\"total_ios\": 1000, \
                 \"io_bytes\": {}, \"clat_ns\": {{\"mean\": {ns}, \"percentile\": {{\"25.000000\": {}, \"50.000000\": {ns}, \"75.000000\": {}}}}}}}}}",
                kb * 1024 * 1000, ns * 0.98, ns * 1.02
            )
        })
        .collect();
    format!("fio: a warning\n{{\"fio version\": \"fio-3.33\", \"jobs\": [{}]}}", jobs.join(","))
}

#[test]
fn a_known_device_is_found_from_fio_results() {
    let shape = DeviceShape { page_kb: vec![8], units: 2 };
    let timing =
        DeviceTiming { read_overhead: 60.0, write_overhead: 40.0, host_per_kb: 5.0, read: vec![70.0], program: vec![900.0] };
    let mut times = Vec::new();
    for kb in [4, 8, 16, 24, 32, 48, 64, 96, 128, 256] {
        for (name, op) in [("read", Op::Read), ("write", Op::Write)] {
            times.push((name, kb, timing.service_us(&shape, op, f64::from(kb))));
        }
    }
    let samples = samples_of_fio(&fio(&times)).unwrap();
    let result = calibrate(&samples, &options()).unwrap();
    assert!(result.held_out_median_error_pct < 3.0, "{}", result.held_out_median_error_pct);
    let config = DeviceConfig::from_toml(&result.toml).unwrap();
    for (name, kb, us) in times {
        let op = if name == "read" { Op::Read } else { Op::Write };
        let second = alone(&config, op, kb);
        assert!((second / us - 1.0).abs() < 0.08, "{name} {kb} KB: {second} for {us}\n{}", result.toml);
    }
    assert_eq!(calibrate(&samples, &options()).unwrap(), result, "the same seed gives the same preset");
}

#[test]
fn rubbish_from_fio_is_refused_with_the_field() {
    let deep = fio(&[("read", 4, 100.0)]).replace("\"iodepth\": \"1\"", "\"iodepth\": \"32\"");
    for (text, word) in [
        ("", "no JSON of fio"),
        ("{}", "jobs"),
        ("{\"jobs\": []}", "no fio job has read"),
        ("{\"jobs\": [{\"read\": {\"total_ios\": 5, \"io_bytes\": 20480}}]}", "clat_ns"),
        ("{\"jobs\": [{\"read\": {\"total_ios\": 5, \"io_bytes\": 5, \"clat_ns\": {\"mean\": 1}}}]}", "io_bytes"),
        (&deep, "iodepth"),
    ] {
        let error = samples_of_fio(text).unwrap_err();
        assert!(error.to_string().contains(word), "{text}: {error}");
    }
    let one = samples_of_fio(&fio(&[("read", 4, 100.0)])).unwrap();
    assert!(calibrate(&one, &options()).is_err());
}

/// The calibration by the Messaging trace; `None` if it is not installed.
fn of_messaging(skip_packed: bool) -> Option<Calibration> {
    let input = TraceInput { path: real_trace("nexus5/log106_Messaging.txt")?, ..TraceInput::default() };
    let mut traces = TraceCombiner::open(vec![input], 1).unwrap();
    Some(calibrate(&samples_of_traces(&mut traces, skip_packed).unwrap(), &options()).unwrap())
}

#[test]
fn one_half_of_messaging_predicts_the_other_within_ten_percent_in_the_median() {
    let Some(result) = of_messaging(false) else { return };
    println!("{}", result.toml);
    assert!(result.held_out_request_error_pct <= 10.0, "{}", result.held_out_request_error_pct);
    assert!(result.held_out_median_error_pct <= 15.0, "{}", result.held_out_median_error_pct);
    assert!(result.held_out_within_10_pct >= 80.0, "{}", result.held_out_within_10_pct);
    let figure = |name: &str| result.figures.iter().find(|figure| figure.name == name).unwrap().clone();
    let (sleep, wake) = (figure("sleep_after_us"), figure("wake_us"));
    assert!(sleep.value.is_some_and(|us| (128e3..256e3).contains(&us)), "{sleep:?}");
    assert!(
        wake.value.is_some_and(|us| (2.5e3..3.5e3).contains(&us)) && wake.low <= wake.value && wake.value <= wake.high,
        "{wake:?}"
    );
    let (again, preset) = (DeviceConfig::from_toml(&result.toml).unwrap(), DeviceConfig::preset("nexus5").unwrap());
    assert_eq!(again.settings().power.wake_quantiles, preset.settings().power.wake_quantiles);
    // The bundled preset is the result of this calibration; its last digits may depend on the logarithm function of the machine.
    for row in &result.sizes {
        let op = if row.op == "read" { Op::Read } else { Op::Write };
        let (again, preset) = (alone(&again, op, row.kb as u32), alone(&preset, op, row.kb as u32));
        assert!((again / preset - 1.0).abs() < 0.05, "{} {} KB: {again} {preset}", row.op, row.kb);
    }
}

#[test]
fn without_its_packs_messaging_is_met_more_closely() {
    let Some(all) = of_messaging(false) else { return };
    let single = of_messaging(true).unwrap();
    println!("{}", single.toml);
    assert_eq!((all.packed, single.requests + single.packed), (0, all.requests));
    assert!(single.packed > 900 && single.toml.contains("packed commands are left out"));
    assert!(single.held_out_request_error_pct < all.held_out_request_error_pct);
    assert!(single.held_out_within_10_pct > all.held_out_within_10_pct);
    assert_eq!(single.woken, all.woken);
}
