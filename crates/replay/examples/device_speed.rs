//! Prints how fast the device is and what memory it takes: `cargo run --release -p emmclab-replay --example device_speed`.
//!
//! With the name of a case (`new`, `random`, `full`) only that one, in a process of its own, so that the peak
//! memory is its own.

use std::time::Instant;

use emmclab_device::{Device, DeviceCommand, DeviceConfig, NullObserver};
use emmclab_testing::peak_bytes;
use emmclab_trace::{Nanos, Op, Result};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

type Case = fn() -> Result<()>;

fn main() -> Result<()> {
    let wanted = std::env::args().nth(1);
    let cases: [(&str, Case); 3] = [("new", start_up), ("random", random_writes), ("full", full_device)];
    for (name, case) in cases {
        if wanted.as_deref().is_none_or(|wanted| wanted == name) {
            case()?;
        }
    }
    Ok(())
}

fn report(what: &str, seconds: f64, operations: u64, unit: &str) {
    println!(
        "{what}: {seconds:.4} s, {:.2} million {unit}/s, peak {:.1} MB",
        operations as f64 / seconds / 1e6,
        peak_bytes() as f64 / 1_048_576.0
    );
}

fn start_up() -> Result<()> {
    for preset in ["iiswc15-4ps", "iiswc15-hps", "ssdsim"] {
        let config = DeviceConfig::preset(preset)?;
        let begin = Instant::now();
        let device = Device::new(&config);
        let seconds = begin.elapsed().as_secs_f64();
        println!("new 32 GB {preset}: {:.3} ms, {}", seconds * 1e3, device.geometry().capacity());
    }
    Ok(())
}

/// One write of `units` map units at `unit`, as soon as the last one is done.
fn write(device: &mut Device, unit: u64, units: u32) -> Result<()> {
    let sectors = device.geometry().unit_sectors;
    let arrival = Nanos(device.idle_from().0.max(0));
    let command = DeviceCommand::new(arrival, Op::Write, unit * u64::from(sectors), units * sectors);
    device.submit(&command, &mut NullObserver)?;
    Ok(())
}

fn fill(device: &mut Device) -> Result<()> {
    let units = u64::from(device.geometry().logical_units);
    let mut at = 0;
    while at < units {
        let count = (units - at).min(128);
        write(device, at, count as u32)?;
        at += count;
    }
    Ok(())
}

fn random_run(device: &mut Device, writes: u64) -> Result<f64> {
    let units = u64::from(device.geometry().logical_units);
    let mut random = Pcg64::new(1, 2);
    let begin = Instant::now();
    for _ in 0..writes {
        write(device, ((random.next_u64() >> 32) * units) >> 32, 1)?;
    }
    Ok(begin.elapsed().as_secs_f64())
}

/// Uniform random 4 KB writes: the peers' case on a new 1 GB device, and collection-bound on a full one with 7 %.
fn random_writes() -> Result<()> {
    let mut device = Device::new(&DeviceConfig::preset("small-1gb")?);
    let seconds = random_run(&mut device, 786_432)?;
    let programs = device.counters().all_page_programs();
    report("786,432 random 4 KB writes on a new 1 GB device", seconds, programs, "page programs");
    let mut device = Device::new(&DeviceConfig::preset("small-1gb")?);
    fill(&mut device)?;
    random_run(&mut device, 1_000_000)?;
    device.rewind();
    let seconds = random_run(&mut device, 2_000_000)?;
    let programs = device.counters().all_page_programs();
    report("random 4 KB writes on a full 1 GB device, 7 %", seconds, programs, "page programs");
    println!("  write amplification {:.3}, stopped: {:?}", device.counters().waf(), device.stop());
    Ok(())
}

fn sized(gb: u32) -> Result<DeviceConfig> {
    let mut config = DeviceConfig::preset("small-1gb")?;
    let blocks = (f64::from(gb) * 274.0 / 4.0).ceil().to_string();
    config.set_all(&[("geometry.block_groups.0.pages_per_block", "1024"), ("geometry.block_groups.0.blocks", &blocks)])?;
    Ok(config)
}

/// Memory of a device that holds data everywhere.
fn full_device() -> Result<()> {
    let before = peak_bytes();
    let mut device = Device::new(&sized(32)?);
    let begin = Instant::now();
    fill(&mut device)?;
    let units = u64::from(device.geometry().logical_units);
    report("32 GB filled in order", begin.elapsed().as_secs_f64(), units, "page programs");
    let pages = device.geometry().raw().0 / 4096;
    println!("  {:.2} bytes per flash page", (peak_bytes() - before) as f64 / pages as f64);
    Ok(())
}
