//! Power loss during operation: afterwards the device is consistent, and its map contains the programmed data.

use crate::common::config;
use crate::common::model::{little_memory, on_demand};
use emmclab_base::{Nanos, Op};
use emmclab_device::checker::DeviceChecker;
use emmclab_device::persistence::PersistenceTracker;
use emmclab_device::{CommandFlags, Device, DeviceCommand, DeviceConfig, Lpn, UndoLog};
use proptest::prelude::*;

fn device(scheme: &str, cache_kb: u32, policy: &str, scheduling: &str, page_kb: &str) -> DeviceConfig {
    let mut config = config(&[
        ("gc.policy", "greedy"),
        ("capacity.over_provisioning_pct", "150"),
        ("geometry.block_groups.0.page_kb", page_kb),
        ("geometry.block_groups.0.blocks", "24"),
    ]);
    let cache = cache_kb.to_string();
    let own: &[(&str, &str)] = match scheme {
        "page" if scheduling == "fifo" && page_kb == "4" => &[
            ("cache.size_kb", &cache),
            ("cache.policy", policy),
            ("timing.suspend_limit", "3"),
            ("timing.suspend_us", "200"),
            ("timing.resume_us", "300"),
        ],
        "page" if scheduling == "fifo" => &[("cache.size_kb", &cache), ("cache.policy", policy)],
        "page" => &[("controller.scheduling", scheduling)],
        _ => &little_memory(scheme),
    };
    config.set_all(own).unwrap();
    config
}

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(600), ..ProptestConfig::default() })]

    #[test]
    fn a_device_is_whole_after_every_cut_and_maps_what_was_programmed(
        scheme in prop::sample::select(vec!["page", "page", "page", "block", "bast", "fast", "superblock", "dftl", "tpftl", "leaftl", "rqftl"]),
        cache_kb in prop::sample::select(vec![0u32, 16, 64]),
        policy in prop::sample::select(vec!["fifo", "lru", "block_lru"]),
        scheduling in prop::sample::select(vec!["fifo", "read_first"]),
        page_kb in prop::sample::select(vec!["4", "8"]),
        // Gap in us, address, length in sectors, kind of command, and the time in us after which power is lost.
        steps in prop::collection::vec(
            (0u16..6000, any::<u16>(), 0u8..40, any::<u8>(), prop::option::weighted(0.15, 0u16..8000)), 1..80),
    ) {
        let config = device(scheme, cache_kb, policy, scheduling, page_kb);
        let mut device = Device::new(&config);
        let (unit_sectors, units) = (u64::from(device.geometry().unit_sectors), device.geometry().logical_units);
        let sectors = u64::from(units) * unit_sectors;
        let (mut persistence, mut undo) = (PersistenceTracker::of(&device), UndoLog::of(&device));
        let mut checker = DeviceChecker::of(&device);
        let mut now = Nanos::ZERO;
        // Merges of a block-mapped scheme move units before their programs end, and the scheme does not know their previous versions.
        let mut moved = scheme != "page" && !on_demand(scheme);
        for (gap, place, length, kind, cut) in steps {
            now += Nanos::from_micros(i64::from(gap));
            let length = (u64::from(length) + 1).min(sectors);
            let sector = u64::from(place) % (sectors - length + 1);
            let (op, modifiers) = match kind {
                0..=170 => (Op::Write, CommandFlags::empty()),
                171..=185 => (Op::Write, CommandFlags::RELIABLE),
                186..=210 => (Op::Read, CommandFlags::empty()),
                211..=224 => (Op::Discard, CommandFlags::empty()),
                225..=230 => (Op::SecureErase, CommandFlags::empty()),
                _ => (Op::Flush, CommandFlags::empty()),
            };
            let (sector, length) = if op == Op::Flush { (0, 0) } else { (sector, length as u32) };
            let command = DeviceCommand { modifiers, ..DeviceCommand::new(now, op, sector, length) };
            persistence.expect(&command);
            checker.expect(&command);
            device.submit(&command, &mut (&mut persistence, (&mut undo, &mut checker))).unwrap();
            prop_assert!(device.stop().is_none());
            undo.retire(now);
            let Some(later) = cut else { continue };
            now += Nanos::from_micros(i64::from(later));
            device.advance(now, &mut (&mut persistence, (&mut undo, &mut checker)));
            checker.verify(&device).map_err(|error| TestCaseError::fail(error.to_string()))?;
            moved |= device.counters().gc_count > 0;
            device.cut(now, &mut undo);
            if !moved {
                for unit in 0..units {
                    let first = u64::from(unit) * unit_sectors;
                    let held = (first..first + unit_sectors).any(|sector| persistence.survives(sector, now) > 0);
                    prop_assert_eq!(device.lookup(Lpn(unit)).is_some(), held, "unit {} after a cut at {}", unit, now);
                }
            }
            checker = DeviceChecker::of(&device);
            checker.verify(&device).map_err(|error| TestCaseError::fail(error.to_string()))?;
            // The contract treats the device after the cut as a new one.
            moved = true;
            persistence = PersistenceTracker::of(&device);
        }
        device.power_off(&mut (&mut persistence, &mut checker));
        checker.verify(&device).map_err(|error| TestCaseError::fail(error.to_string()))?;
    }
}
