//! Random devices and random requests against the reference model, which is verified after every request.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::fmt::Write;

use emmclab_device::checker::Checker;
use emmclab_device::ftl::gc::{NONE, POLICIES};
use emmclab_device::{Command, Device, DeviceConfig, Modifiers, Stop};
use emmclab_trace::{Nanos, Op};
use proptest::prelude::*;

/// Over-provisioning at which each plane has blocks enough for every open block, at most a third of them with data.
const ROOMY_PCT: f64 = 250.0;

fn collects(policy: &str) -> bool {
    policy != NONE
}

/// A device of any shape with at most so many channels, chips, dies and planes of each.
fn devices(most: u32) -> impl Strategy<Value = DeviceConfig> {
    let shape = (1..=most, 1..=most, 1..=most, 1..=most);
    let groups = prop::collection::vec((prop::sample::select(vec![4u32, 8, 16]), 6u32..=9, 2u32..=9), 1..=3);
    let policy =
        prop::sample::select(POLICIES.iter().map(|policy| policy.name).chain([NONE]).collect::<Vec<_>>());
    let words = (
        prop::sample::select(vec!["none", "interleave", "multi_plane", "both"]),
        prop::sample::select(vec!["programmed", "transferred"]),
        prop::sample::select(vec!["fifo", "read_first"]),
        prop::sample::select(vec!["dynamic", "static"]),
        prop::sample::select(vec!["none", "dynamic", "static"]),
        prop::sample::select(vec!["blocking", "incremental"]),
    );
    let numbers = (
        prop::sample::select(vec![4u32, 8]),
        0u32..=1,
        0u32..=1,
        prop_oneof![5u32..=60, Just(ROOMY_PCT as u32)],
        0u32..=30,
        0u32..=2,
    );
    let cache = (
        prop::sample::select(vec![0u32, 0, 16, 40, 200]),
        prop::sample::select(vec![0u32, 0, 16, 64]),
        prop::sample::select(vec!["fifo", "lru", "block_lru"]),
        prop::sample::select(vec!["eager", "idle", "when_full"]),
        any::<bool>(),
        0u32..=2,
        prop::sample::select(vec!["off", "off", "region", "cache"]),
        0u32..=1,
    );
    (shape, groups, policy, words, numbers, any::<[bool; 4]>(), cache).prop_map(
        |(shape, groups, policy, words, numbers, flags, cache)| {
            let (cache_kb, read_kb, replace, write_back, hpi, urgent, slc, fold) = cache;
            let slc = if collects(policy) { slc } else { "off" };
            let (parallelism, complete, scheduling, allocation, levelling, mode) = words;
            let (unit_kb, bus, idle, share, limit, hot) = numbers;
            let [same_offset, copy_back, cache_read, cache_program] = flags;
            let collects = collects(policy);
            let mut text = format!(
                "name = 'random'
                 [geometry]
                 channels = {}
                 chips_per_channel = {}
                 dies_per_chip = {}
                 planes_per_die = {}
                 [capacity]
                 over_provisioning_pct = {share}
                 [timing]
                 parallelism = '{parallelism}'
                 same_offset = {}
                 copy_back = {copy_back}
                 cache_read = {cache_read}
                 cache_program = {}
                 command_ns = {}
                 bus_ns_per_byte = {}
                 write_complete = '{complete}'
                 [controller]
                 scheduling = '{scheduling}'
                 [mapping]
                 unit_kb = {unit_kb}
                 [allocation]
                 policy = '{allocation}'
                 hot_max_kb = {}
                 [gc]
                 policy = '{policy}'
                 mode = '{mode}'
                 soft_free_blocks = 3
                 hard_free_blocks = 1
                 choices = 3
                 window = 2
                 idle_after_us = {}
                 hpi = {}
                 hpi_us = {}
                 urgent_free_blocks = {}
                 [wear]
                 levelling = '{}'
                 threshold = 3\n",
                shape.0,
                shape.1,
                shape.2,
                shape.3,
                same_offset && (parallelism == "multi_plane" || parallelism == "both"),
                cache_program && complete == "programmed",
                bus * 100,
                bus * 5,
                hot * 4,
                if collects { idle * 500 } else { 0 },
                hpi || !collects || idle == 0,
                if collects && idle > 0 && hpi { 50 } else { 0 },
                if collects { urgent } else { 0 },
                if collects || levelling != "static" { levelling } else { "none" },
            );
            if scheduling == "fifo" {
                let _ = write!(
                    text,
                    "[cache]
                     size_kb = {cache_kb}
                     policy = '{replace}'
                     read_kb = {read_kb}
                     write_back = '{write_back}'
                     idle_after_us = {}\n",
                    if cache_kb > 0 && write_back == "idle" { 400 } else { 0 },
                );
            }
            if slc != "off" {
                let _ = write!(
                    text,
                    "[slc]
                     mode = '{slc}'
                     blocks = 5
                     fold_after_us = {}\n",
                    if slc == "cache" { fold * 300 } else { 0 },
                );
            }
            for (index, (page_kb, blocks, pages)) in groups.into_iter().enumerate() {
                let blocks = if slc != "off" && index == 0 { blocks + 5 } else { blocks };
                let limit = if limit > 20 { limit } else { 0 };
                let _ = write!(
                    text,
                    "[[geometry.block_groups]]
                     page_kb = {}
                     blocks = {blocks}
                     pages_per_block = {pages}
                     read_us = 100
                     program_us = 1000
                     erase_us = 3000
                     erase_limit = {limit}
                     spare_blocks = {}\n",
                    page_kb.max(unit_kb),
                    u32::from(limit > 0),
                );
            }
            DeviceConfig::from_toml(&text).unwrap()
        },
    )
}

/// Time step in us, operation, place and length as shares of the device; lengths are in sectors.
type Step = (u16, u8, u16, u16);

fn command(device: &Device, now: &mut i64, (gap, op, place, length): Step) -> Command {
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
        (Op::Write, 0) => Modifiers::RELIABLE,
        (Op::Write, 1) => Modifiers::FORCED,
        (Op::Write, 2) => Modifiers::PREFLUSH.with(Modifiers::RELIABLE),
        (Op::Write, 3) => Modifiers::PREFLUSH,
        (Op::Flush, 0..=7) => Modifiers::BARRIER,
        _ => Modifiers::NONE,
    };
    let length = if op == Op::Flush { 0 } else { length as u32 };
    Command { modifiers, ..Command::new(Nanos(*now), op, sector, length) }
}

fn drive(config: &DeviceConfig, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut device = Device::new(config);
    let mut checker = Checker::of(&device);
    let mut now = 0;
    for step in steps {
        let command = command(&device, &mut now, *step);
        checker.expect(&command);
        let done = device.submit(&command, &mut checker);
        prop_assert!(done.is_ok());
        checker.verify(&device).map_err(|error| TestCaseError::fail(format!("{error} at {command:?}")))?;
        if let Some(stop) = device.stop() {
            // Collection always finds space on a device that is mostly empty.
            let roomy = config.settings().capacity.over_provisioning_pct >= ROOMY_PCT;
            let wears = device.geometry().groups[0].erase_limit > 0;
            let collects = config.settings().gc.policy != "none";
            prop_assert!(stop == Stop::Full || wears, "worn out without wear");
            prop_assert!(!(roomy && collects) || wears, "full with room to spare");
            return Ok(());
        }
    }
    device.settle(&mut checker);
    device.power_off(&mut checker);
    if device.stop().is_some() {
        return Ok(());
    }
    checker.verify(&device).map_err(|error| TestCaseError::fail(error.to_string()))?;
    let image = device.to_image();
    let mut copy =
        Device::from_image(config, &image).map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert_eq!(&copy.to_image(), &image);
    let mut checker = Checker::of(&copy);
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn every_sector_reads_back_what_was_last_written(
        config in devices(2),
        steps in prop::collection::vec(any::<Step>(), 1..400),
    ) {
        drive(&config, &steps)?;
    }

    /// One plane, so that collection and wear levelling have much to do.
    #[test]
    fn so_it_does_after_much_collection(
        config in devices(1),
        steps in prop::collection::vec(any::<Step>(), 1000..2000),
    ) {
        drive(&config, &steps)?;
    }
}
