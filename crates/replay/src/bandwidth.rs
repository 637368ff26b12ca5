//! Sequential and random bandwidth by the size of the transfers, as Kim and Kim measured it for Table II of their paper on Advil.
//!
//! The device holds data everywhere. A file of 1 GB in its middle is read and written by synchronous direct I/O, in order or at
//! aligned random places; every figure begins on the same device and moves the bytes of the whole file.

use emmclab_device::{Device, DeviceConfig};
use emmclab_trace::{Nanos, Op, Result, interrupt};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

use crate::direct::DirectIo;

/// Bytes of the file, where the device has twice as many.
const FILE_BYTES: u64 = 1 << 30;
/// Bytes of a MB in the figures.
const MB: f64 = 1_048_576.0;

/// The bandwidth of one transfer size, in MB/s of 1,048,576 bytes.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Bandwidth {
    pub unit_kb: u64,
    pub seq_read_mb_s: f64,
    pub seq_write_mb_s: f64,
    pub random_read_mb_s: f64,
    pub random_write_mb_s: f64,
}

/// The bandwidths of a device for transfers of these sizes.
///
/// # Errors
/// Where the device is full before its end, or smaller than two transfers.
pub fn bandwidth(config: &DeviceConfig, units_kb: &[u64]) -> Result<Vec<Bandwidth>> {
    let image = DirectIo::filled(config)?.device().to_image();
    let run = |op, unit_kb: u64, random| -> Result<f64> {
        let mut io = DirectIo::on(Device::from_image(config, &image)?);
        let unit = unit_kb * 2;
        let count = (FILE_BYTES / 512).min(io.capacity() / 2) / unit;
        let first = io.capacity() / 4 / unit * unit;
        let mut draw = Pcg64::new(u128::from(unit_kb), 2);
        let mut took = Nanos::ZERO;
        for i in 0..count {
            interrupt::check()?;
            let place = if random { ((draw.next_u64() >> 32) * count) >> 32 } else { i };
            took += io.transfer(op, first + place * unit, unit)?;
        }
        Ok((count * unit * 512) as f64 / MB / took.max(Nanos(1)).as_secs_f64())
    };
    units_kb
        .iter()
        .map(|&unit_kb| {
            Ok(Bandwidth {
                unit_kb,
                seq_read_mb_s: run(Op::Read, unit_kb, false)?,
                seq_write_mb_s: run(Op::Write, unit_kb, false)?,
                random_read_mb_s: run(Op::Read, unit_kb, true)?,
                random_write_mb_s: run(Op::Write, unit_kb, true)?,
            })
        })
        .collect()
}
