//! The persistence contract of a UFS, compared with the flash after a cut at any time.

use emmclab_base::{Nanos, Op};
use emmclab_device::contract::{ContractRules, DurabilityPromises};
use emmclab_device::{CommandFlags, DeviceCommand, InterfaceKind};
use proptest::prelude::*;

use super::ufs;
use crate::common::command;
use crate::persistence::{Rig, Step, stream};

const RULES: ContractRules = ContractRules { write_through: false, fifo: false, interface: InterfaceKind::Ufs, unit_sectors: 8 };

/// Flushes of a UFS: every second one of a range, and never a barrier.
fn synchronize(command: &mut DeviceCommand, (_, _, place, length, _): Step, sectors: u64) {
    if command.op == Op::Flush {
        command.modifiers = CommandFlags::empty();
        if length % 2 == 0 {
            command.sectors = (u64::from(length) % 64 + 1).min(sectors) as u32;
            command.sector = u64::from(place) % (sectors - u64::from(command.sectors) + 1);
        }
    }
}

#[test]
fn a_flush_of_a_range_promises_the_sectors_in_it() {
    let mut promises = DurabilityPromises::new(RULES);
    let write = promises.arrived(&command(0, Op::Write, 0, 8));
    promises.completed(write, Nanos::from_micros(1));
    let flush = promises.arrived(&command(2, Op::Flush, 2, 4));
    promises.completed(flush, Nanos::from_micros(3));
    let promised: Vec<_> = (0..16).map(|sector| promises.promised(sector)).collect();
    assert_eq!(promised, [vec![0; 4], vec![write; 8], vec![0; 4]].concat());
    let flush = promises.arrived(&command(4, Op::Flush, 0, 0));
    promises.completed(flush, Nanos::from_micros(5));
    assert!((0..16).all(|sector| promises.promised(sector) == write));
}

#[test]
fn fua_is_durable_when_it_is_complete_and_not_atomic_before() {
    for (interface, torn) in [(InterfaceKind::Emmc, false), (InterfaceKind::Ufs, true)] {
        let mut promises = DurabilityPromises::new(ContractRules { interface, ..RULES });
        let write = DeviceCommand { modifiers: CommandFlags::RELIABLE, ..command(0, Op::Write, 0, 4) };
        let version = promises.arrived(&write);
        assert_eq!(promises.leaves_undefined(version), torn, "{interface:?}");
        promises.completed(version, Nanos::from_micros(9));
        assert_eq!(promises.promised(0), version);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(150), ..ProptestConfig::default() })]

    #[test]
    fn what_a_ufs_promised_is_there_after_a_cut_at_any_moment(
        kb in prop::sample::select(vec![0u32, 16, 32, 128]),
        policy in prop::sample::select(vec!["lru", "block_lru"]),
        write_back in prop::sample::select(vec!["eager", "when_full"]),
        scheduling in prop::sample::select(vec!["fifo", "read_first"]),
        page_kb in prop::sample::select(vec!["4", "8"]),
        channels in prop::sample::select(vec!["1", "2"]),
        (queues, depth) in prop::sample::select(vec![("0", "1"), ("0", "4"), ("0", "32"), ("4", "8")]),
        lie in prop::sample::select(vec!["none", "none", "none", "flush", "fua"]),
        booster in prop::sample::select(vec!["off", "off", "none", "fifo", "lru", "pinned"]),
        event in any::<bool>(),
        steps in prop::collection::vec(any::<Step>(), 1..60),
    ) {
        let lie = if kb == 0 { "none" } else { lie };
        let mut config = ufs(&[
            ("cache.size_kb", &kb.to_string()),
            ("cache.lies", lie),
            ("cache.policy", policy),
            ("cache.write_back", write_back),
            ("controller.scheduling", if kb == 0 { scheduling } else { "fifo" }),
            ("timing.bus_ns_per_byte", "5"),
            ("geometry.channels", channels),
            ("geometry.block_groups.0.page_kb", page_kb),
            ("interface.queues", queues),
            ("interface.command_us", "7"),
            ("controller.queue_depth", depth),
            ("gc.policy", "greedy"),
            ("capacity.over_provisioning_pct", "250"),
        ]);
        if booster != "off" {
            let flush = if event { ("slc.flush", "event") } else { ("slc.fold_after_us", "500") };
            let mut all = vec![
                ("geometry.block_groups.0.blocks", "24"),
                ("slc.mode", "cache"),
                ("slc.blocks", "5"),
                ("slc.max_kb", "64"),
                flush,
                ("slc.flush_at_pct", "60"),
                ("slc.partial_flush", booster),
                ("slc.preserve_user_space", "true"),
                ("slc.resize", "hint"),
            ];
            all.extend((booster != "none").then_some(("slc.keep_pct", "40")));
            all.extend((booster == "pinned").then_some(("slc.pinned_to_mb", "1")));
            config.set_all(&all).unwrap();
        }
        let mut rig = Rig::new(&config, lie == "none");
        for (mut command, step) in stream(&steps, rig.sectors).into_iter().zip(&steps) {
            synchronize(&mut command, *step, rig.sectors);
            rig.submit(std::slice::from_ref(&command), step.3 % 4 == 0)?;
        }
        rig.end()?;
    }
}
