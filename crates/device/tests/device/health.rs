//! The wear, spares and background work that a device reports.

use emmclab_base::DeviceHealth;
use emmclab_base::{Nanos, Op};
use emmclab_device::{Device, DeviceCommand, DeviceConfig, NullObserver};

use crate::common::config;

const LIMIT: u32 = 100;

fn worn(settings: &[(&str, &str)]) -> DeviceConfig {
    let wears = [
        ("gc.policy", "greedy"),
        ("capacity.over_provisioning_pct", "60"),
        ("geometry.block_groups.0.blocks", "16"),
        ("geometry.block_groups.0.erase_limit", "100"),
    ];
    config(&[&wears, settings].concat())
}

/// A device after this number of writes of one unit each.
fn written(config: &DeviceConfig, writes: u64) -> Device {
    let mut device = Device::new(config);
    let units = u64::from(device.geometry().logical_units);
    for write in 0..writes {
        let sector = write * 7 % units * u64::from(device.geometry().unit_sectors);
        let sectors = device.geometry().unit_sectors;
        device.submit(&DeviceCommand::new(Nanos(write as i64 * 1_000), Op::Write, sector, sectors), &mut NullObserver).unwrap();
    }
    device.settle(&mut NullObserver);
    device
}

#[test]
fn the_life_used_is_the_erases_over_those_that_the_blocks_endure() {
    let config = worn(&[]);
    let new = DeviceHealth { life_used: Some(0.0), ..DeviceHealth::default() };
    assert_eq!(Device::new(&config).health(config.settings()), new);
    let device = written(&config, 2_000);
    let erases: Vec<_> = device.blocks().map(|block| block.erases).collect();
    let mean = f64::from(erases.iter().sum::<u32>()) / erases.len() as f64;
    assert!(mean > 10.0);
    let used = device.health(config.settings()).life_used.unwrap();
    assert!((used - mean / f64::from(LIMIT)).abs() < 1e-12);
    let endless = worn(&[("geometry.block_groups.0.erase_limit", "0")]);
    assert_eq!(Device::new(&endless).health(endless.settings()), DeviceHealth::default());
}

#[test]
fn blocks_in_slc_mode_are_told_from_others_and_spares_are_counted() {
    let config = DeviceConfig::preset("ufs31").unwrap();
    let health = Device::new(&config).health(config.settings());
    assert_eq!((health.slc_life_used, health.life_used), (Some(0.0), Some(0.0)));
    let spares = config.settings().geometry.block_groups[0].spare_blocks > 0;
    assert_eq!(health.spares_used, spares.then_some(0.0));
}

#[test]
fn background_work_is_reported_by_the_free_blocks_that_are_left() {
    let limits = [("gc.low_watermark", "2"), ("gc.high_watermark", "6"), ("gc.idle_after_us", "1e8")];
    let level = |more: &[(&str, &str)], writes| {
        let config = worn(&[&limits, more].concat());
        written(&config, writes).health(config.settings()).background
    };
    assert_eq!(level(&[], 0), 0);
    // Eleven of the sixteen blocks are written; later, each write waits for a collection.
    assert_eq!((level(&[], 44), level(&[], 2_000)), (1, 2));
    assert_eq!(level(&[("gc.urgent_free_blocks", "8")], 2_000), 3);
    assert_eq!(level(&[("gc.idle_after_us", "0")], 2_000), 0, "no collection in the background");
}
