//! Suspension of programs of the write cache by reads, against calculations by hand.

use emmclab_base::Nanos;
use emmclab_base::Op::{Flush, Read, Write};
use emmclab_device::persistence::PersistenceTracker;
use emmclab_device::{CommandFlags, Device, DeviceCommand, DeviceConfig, Lpn, UndoLog};

use crate::common::{command, config, times_us};

const SUSPENDING: [(&str, &str); 6] = [
    ("cache.size_kb", "16"),
    ("cache.policy", "lru"),
    ("cache.write_back", "eager"),
    ("timing.suspend_us", "100"),
    ("timing.resume_us", "50"),
    ("timing.suspend_limit", "2"),
];

/// A write of 4 KB in the cache, whose program from 0 to 1,000 us is suspended from 300 us on: the read lasts from 400 to 500 us, the
/// resumption until 550 us, and the rest of the program until 1,250 us.
fn suspended() -> Vec<DeviceCommand> {
    vec![command(0, Write, 0, 4), command(300, Read, 16, 4)]
}

fn times(more: DeviceCommand) -> f64 {
    let commands = [suspended(), vec![more]].concat();
    let times = times_us(&SUSPENDING, &commands);
    assert_eq!(times[..2], [0.0, 200.0]);
    times[2]
}

#[test]
fn reads_and_flushes_take_the_times_calculated_by_hand() {
    let mut off = SUSPENDING.to_vec();
    off.truncate(3);
    assert_eq!(times_us(&off, &suspended()), [0.0, 800.0], "without suspension, the read waits for the program");
    assert_eq!(times(command(1100, Read, 0, 4)), 250.0, "the page that is programmed is read after its program");
    assert_eq!(times(command(450, Read, 24, 4)), 150.0, "the program is suspended already");
    assert_eq!(times(command(600, Read, 24, 4)), 200.0, "the program is suspended again");
    let flush = DeviceCommand::new(Nanos::from_micros(600), Flush, 0, 0);
    assert_eq!(times(flush), 650.0, "a flush waits for the end of the program");
    let durable = DeviceCommand { modifiers: CommandFlags::RELIABLE, ..command(600, Write, 32, 4) };
    assert_eq!(times(durable), 1650.0, "a program of the host begins after the suspended one");
}

#[test]
fn what_a_flush_waits_for_is_not_suspended_afterwards() {
    let flush = DeviceCommand::new(Nanos::from_micros(600), Flush, 0, 0);
    let commands = [suspended(), vec![flush, command(700, Read, 24, 4)]].concat();
    assert_eq!(times_us(&SUSPENDING, &commands), [0.0, 200.0, 650.0, 650.0]);
}

#[test]
fn a_cut_during_a_suspended_program_loses_its_data() {
    let config: DeviceConfig = config(&SUSPENDING);
    for (cut_us, is_lost) in [(999, true), (1249, true), (1250, false)] {
        let mut device = Device::new(&config);
        let (mut persistence, mut undo) = (PersistenceTracker::of(&device), UndoLog::of(&device));
        for command in suspended() {
            persistence.expect(&command);
            device.submit(&command, &mut (&mut persistence, &mut undo)).unwrap();
        }
        assert_eq!(device.counters().suspensions, [0, 0, 1]);
        assert_eq!(device.idle_from(), Nanos::from_micros(1250));
        let at = Nanos::from_micros(cut_us);
        device.advance(at, &mut undo);
        device.cut(at, &mut undo);
        assert_eq!(persistence.survives(0, at), u64::from(!is_lost), "{cut_us}");
        assert_eq!(device.lookup(Lpn(0)).is_none(), is_lost, "{cut_us}");
        assert_eq!(device.load().planes[0], 1_250_000, "1,000 us of program, 100 us of read, 150 us of suspension");
    }
}
