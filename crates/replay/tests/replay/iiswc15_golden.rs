//! The Messaging trace on the devices of IISWC 2015, against figures worked out independently.

use emmclab_device::{DeviceConfig, NullObserver};
use emmclab_replay::{ReplayOptions, SimulationResult, simulate};
use emmclab_trace::{TraceCombiner, TraceInput};

/// The result for the Messaging trace, or `None` where it is not installed.
fn messaging(preset: &str, settings: &[(&str, &str)]) -> Option<SimulationResult> {
    let path = crate::common::real_trace("nexus5/log106_Messaging.txt")?;
    let mut config = DeviceConfig::preset(preset).unwrap();
    config.set_all(settings).unwrap();
    let mut traces = TraceCombiner::open(vec![TraceInput { path, ..TraceInput::default() }], 1).unwrap();
    let options = ReplayOptions { check: true, ..ReplayOptions::default() };
    let result = simulate(&config, &mut traces, &options, &mut NullObserver).unwrap();
    println!(
        "{preset} {settings:?}: mean {:.3} (read {:.3}, write {:.3}) ms, utilisation {:.4}",
        result.response.mean_response_ms,
        result.response.read.mean_ms,
        result.response.write.mean_ms,
        result.space.space_utilisation
    );
    assert_eq!((result.requests.total, result.requests.read + result.requests.write), (5702, 5702));
    Some(result)
}

#[track_caller]
fn close(found: f64, expected: f64, within: f64) {
    assert!((found / expected - 1.0).abs() <= within, "{found} is not within {within} of {expected}");
}

#[test]
fn mean_response_and_utilisation_two_way() {
    for (preset, response, utilisation) in
        [("iiswc15-4ps", 3.75, 1.0), ("iiswc15-8ps", 2.10, 0.779), ("iiswc15-hps", 2.01, 1.0)]
    {
        let Some(result) = messaging(preset, &[]) else { return };
        close(result.response.mean_response_ms, response, 0.02);
        close(result.space.space_utilisation, utilisation, 0.001);
    }
}

#[test]
fn mean_response_and_utilisation_eight_way() {
    for (preset, response, utilisation) in
        [("iiswc15-4ps", 1.53, 1.0), ("iiswc15-8ps", 1.46, 0.779), ("iiswc15-hps", 1.40, 1.0)]
    {
        let Some(result) = messaging(preset, &[("timing.parallelism", "both")]) else { return };
        close(result.response.mean_response_ms, response, 0.02);
        close(result.space.space_utilisation, utilisation, 0.001);
    }
}

#[test]
fn ssdsim_settings_give_ssdsim_means() {
    let Some(result) = messaging("ssdsim", &[]) else { return };
    close(result.response.mean_response_ms, 2.53, 0.05);
    close(result.response.write.mean_ms, 2.55, 0.05);
    let eight = [
        ("geometry.block_groups.0.page_kb", "8"),
        ("geometry.block_groups.0.blocks", "8192"),
        ("geometry.block_groups.0.read_us", "244"),
        ("geometry.block_groups.0.program_us", "1491"),
        ("mapping.unit_kb", "8"),
    ];
    let Some(result) = messaging("ssdsim", &eight) else { return };
    close(result.response.mean_response_ms, 1.23, 0.05);
    close(result.response.write.mean_ms, 1.22, 0.05);
}
