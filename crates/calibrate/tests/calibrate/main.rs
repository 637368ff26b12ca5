//! The tests of this crate through its public interface: one program, so that they are linked once.
#![allow(clippy::float_cmp, clippy::unwrap_used, reason = "a test may fail")]

mod calibrate;
mod fio;
mod what_is_measured;

use emmclab_calibrate::CalibrateOptions;
use emmclab_device::{Device, DeviceCommand, NullObserver};
use emmclab_trace::{Nanos, Op};

fn options() -> CalibrateOptions {
    CalibrateOptions { name: "found".into(), source: "a test".into(), capacity_gb: 4, base: None, seed: 1 }
}

/// Time in us that a device takes for a request at sector 0 that arrives this long after the device is idle.
fn service_us(device: &mut Device, idle: Nanos, op: Op, sectors: u32) -> f64 {
    let arrival = Nanos(device.idle_from().0.max(0)) + idle;
    let done = device.submit(&DeviceCommand::new(arrival, op, 0, sectors), &mut NullObserver).unwrap().unwrap();
    (done - arrival).0 as f64 / 1e3
}
