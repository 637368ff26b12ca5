//! Functions for the tests of this crate.

pub mod contract;
pub mod model;

use emmclab_base::{Nanos, Op};
use emmclab_device::{Device, DeviceCommand, DeviceConfig, Observer, RequestCompleted};

/// A device of one block group with 4 KB pages (100 us read, 1,000 us program, 5,000 us erase).
pub const PLAIN: &str = "gc.policy = \"none\"
[capacity]
over_provisioning_pct = 0
[geometry]
channels = 1
[[geometry.block_groups]]
page_kb = 4
blocks = 8
pages_per_block = 4
read_us = 100
program_us = 1000
erase_us = 5000
";

/// The device of [`PLAIN`], changed by these settings.
pub fn config(settings: &[(&str, &str)]) -> DeviceConfig {
    let mut config = DeviceConfig::from_toml(PLAIN).unwrap();
    config.set_all(settings).unwrap();
    config
}

/// Collects completions.
#[derive(Default)]
pub struct Completions(pub Vec<RequestCompleted>);

impl Observer for Completions {
    fn request_completed(&mut self, event: &RequestCompleted) {
        self.0.push(*event);
    }
}

/// A request of `kb` KB at `at_us` us, at the address `kb_from` KB.
pub fn command(at_us: i64, op: Op, kb_from: u64, kb: u32) -> DeviceCommand {
    DeviceCommand::new(Nanos::from_micros(at_us), op, kb_from * 2, kb * 2)
}

/// Executes requests on a new device. Returns the device and the completions.
pub fn run(config: &DeviceConfig, commands: &[DeviceCommand]) -> (Device, Vec<RequestCompleted>) {
    let mut device = Device::new(config);
    let mut told = Completions::default();
    for command in commands {
        device.submit(command, &mut told).unwrap();
    }
    device.settle(&mut told);
    (device, told.0)
}

/// Response times in us of requests to a new device with these settings.
pub fn times_us(settings: &[(&str, &str)], commands: &[DeviceCommand]) -> Vec<f64> {
    responses_us(&run(&config(settings), commands).1)
}

/// Response times in us.
pub fn responses_us(events: &[RequestCompleted]) -> Vec<f64> {
    events.iter().map(|event| (event.complete - event.arrival).0 as f64 / 1000.0).collect()
}
