//! The reference model must detect defects of a device. Defects are simulated by changes of the events that it receives.

use crate::common::{command, config};
use emmclab_base::Nanos;
use emmclab_base::Op::{Discard, Write};
use emmclab_device::checker::DeviceChecker;
use emmclab_device::{CommandFlags, Device, NullObserver, Observer, PageProgrammed, RequestCompleted, UnitWritten};

/// Changes events and forwards them.
struct Tampered<'a, F> {
    checker: &'a mut DeviceChecker,
    change: F,
}

impl<F: Fn(&mut PageProgrammed<'_>, &mut [UnitWritten])> Observer for Tampered<'_, F> {
    fn page_programmed(&mut self, event: &PageProgrammed<'_>) {
        let mut units = event.units.to_vec();
        let mut changed = *event;
        (self.change)(&mut changed, &mut units);
        self.checker.page_programmed(&PageProgrammed { units: &units, ..changed });
    }
}

fn verdict(change: impl Fn(&mut PageProgrammed<'_>, &mut [UnitWritten])) -> Result<(), String> {
    let mut device = Device::new(&config(&[]));
    let mut checker = DeviceChecker::of(&device);
    for request in [command(0, Write, 0, 8), command(10_000, Write, 4, 8)] {
        checker.expect(&request);
        device.submit(&request, &mut Tampered { checker: &mut checker, change: &change }).unwrap();
    }
    checker.verify(&device).map_err(|error| error.to_string())
}

#[test]
fn a_right_device_passes_and_changed_page_programs_are_seen() {
    assert_eq!(verdict(|_, _| {}), Ok(()));
    assert!(verdict(|event, _| event.page = 0).unwrap_err().contains("is programmed after page"));
    assert!(verdict(|event, _| event.page += 1).unwrap_err().contains("is programmed after page"));
    assert!(verdict(|event, _| event.begin = Nanos(0)).unwrap_err().contains("while busy"));
    // Data in the wrong place, and sectors that were not kept.
    assert!(verdict(|_, units| units[0].lpn.0 ^= 1).is_err());
    assert!(verdict(|_, units| units[0].covered &= !1).unwrap_err().contains("must hold write"));
}

#[test]
fn lost_writes_and_forgotten_discards_are_seen() {
    let mut device = Device::new(&config(&[]));
    let mut checker = DeviceChecker::of(&device);
    checker.expect(&command(0, Write, 0, 4));
    assert!(checker.verify(&device).unwrap_err().to_string().contains("never programmed"));
    let mut checker = DeviceChecker::of(&device);
    let write = command(0, Write, 0, 4);
    checker.expect(&write);
    device.submit(&write, &mut checker).unwrap();
    checker.verify(&device).unwrap();
    checker.expect(&command(5000, Discard, 0, 4));
    assert!(checker.verify(&device).is_err());
    // Data that appears without a write.
    let mut checker = DeviceChecker::of(&device);
    device.submit(&command(9000, Write, 4, 4), &mut NullObserver).unwrap();
    assert!(checker.verify(&device).is_err());
}

#[test]
fn response_times_whose_parts_do_not_add_up_are_seen() {
    let device = Device::new(&config(&[]));
    let mut checker = DeviceChecker::of(&device);
    checker.request_completed(&RequestCompleted {
        id: 0,
        op: Write,
        modifiers: CommandFlags::empty(),
        sector: 0,
        sectors: 8,
        arrival: Nanos(0),
        start: Nanos(0),
        complete: Nanos(10),
        subrequests: 1,
        waits: emmclab_device::LatencyBreakdown::default(),
    });
    assert!(checker.verify(&device).unwrap_err().to_string().contains("add up"));
}
