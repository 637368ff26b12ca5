//! Changes of settings of a device in use: their effects, and what must not change.

use emmclab_base::{Nanos, Op};
use emmclab_device::checker::DeviceChecker;
use emmclab_device::{CHANGEABLE, Device, DeviceCommand, DeviceConfig, Lpn, NullObserver, is_changeable};
use proptest::prelude::*;

fn config(settings: &[(&str, &str)]) -> DeviceConfig {
    let base = [
        ("gc.policy", "greedy"),
        ("capacity.over_provisioning_pct", "40"),
        ("cache.size_kb", "64"),
        ("cache.write_back", "when_full"),
        ("geometry.channels", "2"),
        ("geometry.block_groups.0.page_kb", "8"),
        ("geometry.block_groups.0.blocks", "20"),
        ("geometry.block_groups.0.pages_per_block", "16"),
    ];
    crate::common::config(&[&base, settings].concat())
}

/// Response time of a command that arrives at an idle device.
fn response(device: &mut Device, op: Op, sector: u64, at: Nanos) -> Nanos {
    let done = device.submit(&DeviceCommand::new(at, op, sector, 16), &mut NullObserver).unwrap();
    done.unwrap() - at
}

#[test]
fn commands_from_then_on_take_the_times_of_the_new_settings() {
    let slow = config(&[("cache.size_kb", "0"), ("cache.write_back", "eager")]);
    let mut fast = slow.clone();
    let pairs = [("geometry.block_groups.0.program_us", "300"), ("geometry.block_groups.0.read_us", "40")];
    fast.set_all(&pairs).unwrap();
    let mut device = Device::new(&slow);
    assert_eq!(response(&mut device, Op::Write, 0, Nanos(0)), Nanos(1_000_000));
    let at = Nanos::from_secs(1);
    device.advance(at, &mut NullObserver);
    let changes = device.reconfigure(&slow, &fast, at).unwrap();
    let keys: Vec<_> = changes.iter().map(|change| (change.key.as_str(), change.from.as_str())).collect();
    let wanted = [("geometry.block_groups.0.program_us", "1000.0"), ("geometry.block_groups.0.read_us", "100.0")];
    assert_eq!(keys, wanted);
    assert!((changes[0].at_s - 1.0).abs() < 1e-12);
    assert_eq!(response(&mut device, Op::Write, 16, at), Nanos(300_000));
    assert_eq!(response(&mut device, Op::Read, 0, Nanos::from_secs(2)), Nanos(40_000));
    assert!(device.reconfigure(&fast, &fast, Nanos::from_secs(3)).unwrap().is_empty());
}

#[test]
fn a_cache_that_begins_to_write_back_does_so_from_then_on() {
    let (lazy, mut eager) = (config(&[]), config(&[]));
    eager.set("cache.write_back", "eager").unwrap();
    let mut device = Device::new(&lazy);
    response(&mut device, Op::Write, 0, Nanos(0));
    let at = Nanos::from_secs(5);
    device.advance(at, &mut NullObserver);
    assert_eq!(device.lookup(Lpn(0)), None);
    device.reconfigure(&lazy, &eager, at).unwrap();
    device.advance(at + Nanos(1), &mut NullObserver);
    assert!(device.lookup(Lpn(0)).is_some());
    assert_eq!(device.idle_from(), at + Nanos::from_millis(1), "it programs after the change, not before");
}

#[test]
fn a_flush_lies_from_then_on() {
    let (honest, mut liar) = (config(&[]), config(&[]));
    liar.set("cache.lies", "flush").unwrap();
    let mut device = Device::new(&honest);
    device.reconfigure(&honest, &liar, Nanos(0)).unwrap();
    response(&mut device, Op::Write, 0, Nanos(0));
    device.submit(&DeviceCommand::new(Nanos::from_secs(1), Op::Flush, 0, 0), &mut NullObserver).unwrap();
    assert_eq!(device.lookup(Lpn(0)), None);
    device.reconfigure(&liar, &honest, Nanos::from_secs(2)).unwrap();
    device.submit(&DeviceCommand::new(Nanos::from_secs(2), Op::Flush, 0, 0), &mut NullObserver).unwrap();
    assert!(device.lookup(Lpn(0)).is_some());
}

#[test]
fn every_other_setting_is_refused_with_its_reason_and_nothing_changes() {
    let before = config(&[]);
    let mut device = Device::new(&before);
    for (key, value, reason) in [
        ("geometry.block_groups.0.pages_per_block", "32", "layout"),
        ("capacity.over_provisioning_pct", "50", "layout"),
        ("mapping.unit_kb", "8", "map"),
        ("cache.size_kb", "128", "buffers"),
        ("controller.queue_depth", "4", "order of commands"),
        ("gc.policy", "fifo", "lists"),
        ("wear.levelling", "dynamic", "lists"),
        ("power.idle_mw", "3", "energy"),
        ("host.fetch_us", "3", "replay"),
        ("name", "other", "names"),
    ] {
        let mut after = before.clone();
        after.set_all(&[("geometry.block_groups.0.read_us", "7"), (key, value)]).unwrap();
        let error = device.reconfigure(&before, &after, Nanos(0)).unwrap_err().to_string();
        assert!(error.contains(key) && error.contains(reason), "{error}");
    }
    assert_eq!(response(&mut device, Op::Read, 0, Nanos(0)), Nanos(100_000));
}

#[test]
fn every_key_that_can_change_is_one_of_a_device() {
    let mut rows = config(&[]).explain();
    let types = "[{read_us=1, program_us=1}, {read_us=1, program_us=1}]";
    let times = [("read_us", "0"), ("program_us", "0"), ("page_types", types)];
    let typed = times.map(|(key, value)| (format!("geometry.block_groups.0.{key}"), value));
    rows.extend(config(&typed.each_ref().map(|(key, value)| (key.as_str(), *value))).explain());
    for known in CHANGEABLE {
        let key = known.replace('*', "0");
        assert!(rows.iter().any(|row| row.key == key), "{key}");
        assert!(is_changeable(&key));
    }
    assert!(!is_changeable("geometry.block_groups.x.read_us"));
    assert!(
        is_changeable("geometry.block_groups.1.page_types.2.read_us") && !is_changeable("geometry.block_groups.1.page_types")
    );
    assert!(!is_changeable("geometry.block_groups.0.blocks"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(70), ..ProptestConfig::default() })]

    /// Changes settings of a working device: all invariants hold, no work begins before the change, and every written unit can be read.
    #[test]
    fn a_device_stays_whole_whatever_changes_when(
        steps in prop::collection::vec((any::<u16>(), 1u32..32, 0i64..20_000_000, 0usize..24), 1..120),
    ) {
        let choices = [
            ("cache.write_back", "eager"), ("cache.write_back", "when_full"), ("gc.idle_after_us", "1000"),
            ("gc.idle_after_us", "0"), ("gc.low_watermark", "2"), ("gc.low_watermark", "1"),
            ("gc.high_watermark", "8"), ("gc.high_watermark", "3"), ("gc.urgent_free_blocks", "2"),
            ("gc.urgent_free_blocks", "0"), ("gc.hpi", "false"), ("power.sleep_after_us", "500"),
            ("geometry.block_groups.0.program_us", "50"), ("geometry.block_groups.0.program_us", "3000"),
            ("controller.write_overhead_us", "20"), ("timing.bus_ns_per_byte", "9.5"),
        ];
        let mut now_config = config(&[]);
        let mut device = Device::new(&now_config);
        let mut checker = DeviceChecker::of(&device);
        let (mut now, mut written) = (Nanos(0), std::collections::BTreeSet::new());
        let sectors = device.geometry().sectors();
        for (place, length, wait, choice) in steps {
            now += Nanos(wait);
            device.advance(now, &mut checker);
            if let Some(pair) = choices.get(choice) {
                let mut next = now_config.clone();
                if next.set_all(&[*pair]).is_err() {
                    continue;
                }
                let counted = device.counters().clone();
                device.reconfigure(&now_config, &next, now).unwrap();
                device.advance(now, &mut checker);
                prop_assert_eq!(&counted, device.counters(), "work begins before its cause");
                now_config = next;
            }
            let sector = u64::from(place) % (sectors - 64) / 8 * 8;
            let command = DeviceCommand::new(now, Op::Write, sector, length);
            checker.expect(&command);
            device.submit(&command, &mut checker).unwrap();
            written.extend(sector / 8..(sector + u64::from(length)).div_ceil(8));
        }
        device.power_off(&mut checker);
        checker.verify(&device).unwrap();
        prop_assert!(written.iter().all(|unit| device.lookup(Lpn(*unit as u32)).is_some()));
    }
}
