//! Random requests against the reference model.

use emmclab_base::{Nanos, Op};
use emmclab_device::checker::DeviceChecker;
use emmclab_device::{CommandFlags, Device, DeviceCommand, DeviceConfig, Observer, RequestCompleted, StopReason};
use proptest::prelude::*;

/// Over-provisioning with which each plane has enough blocks for all open blocks, and at most a third of its blocks have data.
pub const ROOMY_PCT: f64 = 250.0;

/// Time step in us, operation, and address and length as shares of the device; lengths are in sectors.
pub type Step = (u16, u8, u16, u16);

pub fn command(device: &Device, now: &mut i64, (gap, op, place, length): Step) -> DeviceCommand {
    let geometry = device.geometry();
    let sectors = u64::from(geometry.logical_units) * u64::from(geometry.unit_sectors);
    *now += i64::from(gap) * 1000;
    let op = match op {
        0..=159 => Op::Write,
        160..=219 => Op::Read,
        220..=247 => Op::Discard,
        _ => Op::Flush,
    };
    // Half of the requests are aligned to 4 KB.
    let (align, most) = if length % 2 == 0 { (8, 64) } else { (1, 41) };
    let length = u64::from(length) % most / align * align;
    let length = length.max(align).min(sectors);
    let sector = u64::from(place) * sectors / 65536 / align * align;
    let sector = sector.min(sectors - length);
    let modifiers = match (op, place % 16) {
        (Op::Write, 0) => CommandFlags::RELIABLE,
        (Op::Write, 1) => CommandFlags::FORCED,
        (Op::Write, 2) => CommandFlags::PREFLUSH | CommandFlags::RELIABLE,
        (Op::Write, 3) => CommandFlags::PREFLUSH,
        (Op::Flush, 0..=7) => CommandFlags::BARRIER,
        _ => CommandFlags::empty(),
    };
    let length = if op == Op::Flush { 0 } else { length as u32 };
    DeviceCommand { modifiers, ..DeviceCommand::new(Nanos(*now), op, sector, length) }
}

/// Collects completions, but does not need units of pages, so that the device may use its fast paths.
#[derive(Default, PartialEq, Debug)]
struct Completions(Vec<RequestCompleted>);

impl Observer for Completions {
    const UNITS: bool = false;

    fn request_completed(&mut self, event: &RequestCompleted) {
        self.0.push(*event);
    }
}

/// Whether a scheme stores its map on the flash.
pub fn on_demand(scheme: &str) -> bool {
    ON_DEMAND.contains(&scheme)
}

/// The schemes that store their map on the flash.
pub const ON_DEMAND: &[&str] = &["dftl", "tpftl", "leaftl", "rqftl"];

/// Settings with which such a scheme caches few entries.
pub fn little_memory(scheme: &str) -> [(&str, &str); 2] {
    let own = if scheme == "dftl" { ("mapping.cached_entries", "5") } else { ("mapping.map_cache_kb", "4") };
    [("mapping.scheme", scheme), own]
}

/// Executes random steps on a new device, and verifies it after each. Repeats this on a copy made from an image. A second device, without a
/// checker, must behave the same.
pub fn drive(config: &DeviceConfig, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut device = Device::new(config);
    let mut checker = DeviceChecker::of(&device);
    let (mut unchecked, mut told, mut completed) =
        (Device::new(config), Completions::default(), Completions::default());
    let mut now = 0;
    for step in steps {
        let command = command(&device, &mut now, *step);
        checker.expect(&command);
        let done = device.submit(&command, &mut (&mut checker, &mut told));
        prop_assert!(done.is_ok());
        prop_assert_eq!(unchecked.submit(&command, &mut completed).ok(), done.ok());
        checker.verify(&device).map_err(|error| TestCaseError::fail(format!("{error} at {command:?}")))?;
        if let Some(stop) = device.stop() {
            // Collection always finds space on a device that is mostly empty.
            // Settings with which block-mapped schemes could run out of blocks were rejected.
            let settings = config.settings();
            let roomy = settings.capacity.over_provisioning_pct >= ROOMY_PCT
                || (settings.mapping.scheme != "page" && !on_demand(&settings.mapping.scheme));
            let wears = device.geometry().groups[0].erase_limit > 0;
            let collects = settings.gc.policy != "none";
            prop_assert!(stop == StopReason::Full || wears, "worn out without wear");
            prop_assert!(!(roomy && collects) || wears, "full with room to spare");
            return Ok(());
        }
    }
    let mut both = (&mut checker, &mut told);
    prop_assert_eq!(unchecked.settle(&mut completed), device.settle(&mut both));
    device.power_off(&mut both);
    unchecked.power_off(&mut completed);
    if device.stop().is_some() {
        return Ok(());
    }
    checker.verify(&device).map_err(|error| TestCaseError::fail(error.to_string()))?;
    let image = device.to_image();
    prop_assert_eq!(completed, told);
    prop_assert_eq!(unchecked.counters(), device.counters());
    prop_assert_eq!(unchecked.load(), device.load());
    prop_assert!(unchecked.to_image() == image, "the devices hold different things");
    let mut copy = Device::from_image(config, &image).map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert_eq!(&copy.to_image(), &image);
    let mut checker = DeviceChecker::of(&copy);
    copy.rewind();
    now = 0;
    for step in steps.iter().take(50) {
        let command = command(&copy, &mut now, *step);
        checker.expect(&command);
        prop_assert!(copy.submit(&command, &mut checker).is_ok());
        checker.verify(&copy).map_err(|error| TestCaseError::fail(format!("after an image: {error}")))?;
    }
    Ok(())
}
