//! Cases small enough to compute on paper. Page read 100 us, program 1,000 us; 4,096 bytes take 7,025 ns on the link.

use emmclab_base::Op::{Discard, Flush, Read, Write};
use emmclab_base::{Nanos, Op};
use emmclab_device::{CommandFlags, Device, DeviceCommand};

use super::ufs;
use crate::common::{Completions, command, config, responses_us, run};

/// Time of a 4 KB transfer.
const TRANSFER: Nanos = Nanos(7025);

#[test]
fn lanes_and_gear_give_the_time_of_a_transfer() {
    for (lanes, gear, ns) in
        [("1", "hs_g1", 28_100), ("2", "hs_g3", 3_512), ("1", "hs_g3", 7_025), ("2", "hs_g4", 1_756), ("2", "hs_g5", 878)]
    {
        let config = ufs(&[("interface.lanes", lanes), ("interface.gear", gear)]);
        let (_, events) = run(&config, &[command(0, Write, 0, 4), command(10_000, Read, 0, 4)]);
        assert_eq!(events[0].waits.controller, Nanos(ns), "{lanes} {gear}");
        assert_eq!(events[1].complete - events[1].arrival, Nanos(100_000 + ns), "{lanes} {gear}");
    }
}

#[test]
fn a_direction_carries_one_transfer_at_a_time_and_both_carry_data_at_once() {
    let config = ufs(&[("geometry.channels", "4")]);
    let writes: Vec<_> = (0..3).map(|i| command(0, Write, i * 4, 4)).collect();
    let (_, events) = run(&config, &writes);
    for (i, event) in (1..).zip(&events) {
        assert_eq!(event.complete, Nanos(1_000_000 + i * TRANSFER.0), "the data of a write follows that of the one before");
    }
    // The data of the read crosses the link at the same time as that of a long write in the other direction.
    let both = [command(0, Read, 0, 4), command(60, Write, 64, 64)];
    let (device, events) = run(&config, &both);
    assert_eq!(events[0].complete, Nanos(100_000) + TRANSFER);
    let [to_device, to_host] = device.counters().link;
    assert_eq!((to_device.bytes, to_host.bytes), (64 << 10, 4 << 10));
    assert_eq!((to_device.wait_ns, to_host.wait_ns), (0, 0));
    assert!(events[1].waits.controller > Nanos(100_000), "the write was on the link meanwhile");
}

#[test]
fn data_that_is_ready_first_goes_first() {
    // The data of the second read is ready first, because its way is free.
    let config = ufs(&[("geometry.channels", "2")]);
    let commands = [command(0, Write, 0, 4), command(10, Read, 0, 4), command(20, Read, 4, 4)];
    let (_, events) = run(&config, &commands);
    assert!(events[2].complete < events[1].complete, "{events:?}");
    assert_eq!(events[2].complete - events[2].arrival, Nanos(100_000) + TRANSFER);
}

#[test]
fn no_more_commands_are_in_flight_than_there_are_tags() {
    let burst: Vec<_> = (0..4).map(|i| command(0, Write, i * 4, 4)).collect();
    let response = |depth: &str| {
        let config = ufs(&[("geometry.channels", "4"), ("controller.queue_depth", depth)]);
        let (device, events) = run(&config, &burst);
        (device.counters().commands.most_in_flight, responses_us(&events)[3] as u64 / 1000)
    };
    assert_eq!([response("1"), response("2"), response("32")], [(1, 4), (2, 2), (4, 1)]);
}

#[test]
fn a_queue_hands_over_one_command_at_a_time() {
    let burst: Vec<_> = (0..4).map(|i| command(0, Read, i * 4, 4)).collect();
    let waited = |queues: &str| {
        let settings = [("interface.queues", queues), ("interface.command_us", "10"), ("geometry.channels", "4")];
        let (device, events) = run(&ufs(&settings), &burst);
        let commands = device.counters().commands;
        let last = events.iter().map(|event| event.complete).max().unwrap();
        (commands.queue_wait_ns, last - Nanos(100_000) - TRANSFER)
    };
    assert_eq!(waited("0"), (60_000, Nanos(40_000)), "0, 10, 20 and 30 us");
    assert_eq!(waited("2"), (20_000, Nanos(10_000 + 3 * TRANSFER.0)), "two by two, whose data shares the link");
}

#[test]
fn all_that_come_while_the_link_leaves_hibernation_wait_for_it() {
    let config = ufs(&[("power.sleep_after_us", "5000"), ("power.wake_us", "400"), ("geometry.channels", "4")]);
    let commands =
        [command(0, Read, 0, 4), command(50_000, Read, 0, 4), command(50_100, Read, 4, 4), command(51_000, Read, 8, 4)];
    let (device, events) = run(&config, &commands);
    let wakes: Vec<_> = events.iter().map(|event| event.waits.wake_up).collect();
    assert_eq!(wakes, [0, 400, 300, 0].map(Nanos::from_micros));
    assert_eq!(device.counters().wake_ups, 1);
}

#[test]
fn fua_goes_to_the_flash_past_the_cache_and_pays_its_own_time() {
    let cached = [("cache.size_kb", "64"), ("cache.write_back", "when_full"), ("interface.fua_us", "300")];
    let fua = DeviceCommand { modifiers: CommandFlags::RELIABLE, ..command(0, Write, 0, 4) };
    let (_, events) = run(&ufs(&cached), &[fua, command(10_000, Write, 4, 4)]);
    assert_eq!(events[0].complete - events[0].arrival, Nanos(1_300_000) + TRANSFER);
    assert_eq!(events[1].complete - events[1].arrival, TRANSFER, "a plain write ends in the cache");
}

#[test]
fn a_flush_of_a_range_writes_what_is_in_it() {
    let config = ufs(&[("cache.size_kb", "64"), ("cache.write_back", "when_full")]);
    let mut device = Device::new(&config);
    let mut told = Completions::default();
    for kb in [0, 4, 8] {
        device.submit(&command(0, Write, kb, 4), &mut told).unwrap();
    }
    let flush = |at_us, kb, kb_long| command(at_us, Flush, kb, kb_long);
    device.submit(&flush(100, 4, 4), &mut told).unwrap();
    assert_eq!((device.counters().all_page_programs(), device.counters().cache_flushes), (1, 1));
    assert!(device.lookup(emmclab_device::Lpn(1)).is_some() && device.lookup(emmclab_device::Lpn(0)).is_none());
    device.submit(&flush(5000, 0, 0), &mut told).unwrap();
    assert_eq!(device.counters().all_page_programs(), 3);
}

#[test]
fn a_ufs_takes_no_packed_command() {
    let mut device = Device::new(&ufs(&[]));
    let entries = [command(0, Op::Write, 0, 4), command(0, Op::Write, 4, 4)];
    let error = device.submit_packed(&entries, &mut emmclab_device::NullObserver).unwrap_err();
    assert!(error.to_string().contains("packed"), "{error}");
}

#[test]
fn a_read_passes_writes_that_wait_but_only_as_many_as_there_are_tags() {
    // One way: four writes of 1 ms each, then continuous reads.
    let config = ufs(&[("controller.scheduling", "read_first"), ("controller.queue_depth", "4")]);
    let mut commands: Vec<_> = (0..3).map(|i| command(0, Write, i * 4, 4)).collect();
    commands.push(command(10, Read, 64, 4));
    let (_, events) = run(&config, &commands);
    let read = events[3].complete;
    assert_eq!(read - events[0].complete, Nanos(100_000) + TRANSFER, "only the write that had begun goes first");
    assert!(events[1].complete > read && events[2].complete > read);
    let mut commands: Vec<_> = (0..2).map(|i| command(0, Write, i * 4, 4)).collect();
    commands.extend((0..40).map(|i| command(10 + i, Read, 64, 4)));
    let (_, events) = run(&config, &commands);
    let passed = events[2..].iter().filter(|event| event.complete < events[1].complete).count();
    assert!((1..=8).contains(&passed), "{passed} reads passed the second write");
}

/// A device with one map entry in RAM, so nearly every read must read the map.
fn hinted(pages: &str) -> Device {
    Device::new(&ufs(&[
        ("geometry.block_groups.0.blocks", "24"),
        ("gc.policy", "greedy"),
        ("capacity.over_provisioning_pct", "60"),
        ("mapping.scheme", "dftl"),
        ("mapping.cached_entries", "1"),
        ("mapping.hpb_pages", pages),
    ]))
}

/// Times in us of reads of these addresses in KB, after the first 40 KB were written.
fn reads(device: &mut Device, between: &[(emmclab_base::Op, u64)]) -> Vec<u64> {
    let (mut told, mut at) = (Completions::default(), 0);
    let writes = (0..10).map(|page| (Write, page * 4));
    for (op, kb) in writes.chain(between.iter().copied()) {
        at += 100_000;
        device.submit(&command(at, op, kb, 4), &mut told).unwrap();
    }
    let events = told.0.iter().skip(10).filter(|event| event.op == Read);
    events.map(|event| (event.complete - event.arrival).0 as u64 / 1000).collect()
}

#[test]
fn a_read_with_a_hint_reads_no_map() {
    let asked = [(Read, 0), (Read, 4), (Read, 12), (Read, 0)];
    // The first read also writes back the entry that the last write changed.
    assert_eq!(reads(&mut hinted("0"), &asked)[1..], [207; 3]);
    let mut device = hinted("1");
    assert_eq!(reads(&mut device, &asked), [107; 4], "writes read the map, too, and the host took it");
    assert_eq!(device.counters().map_hints, 4);
}

#[test]
fn a_hint_that_is_out_of_date_is_not_taken() {
    let asked = [(Read, 0), (Write, 4), (Read, 4), (Read, 0), (Discard, 8), (Read, 12), (Read, 8)];
    let mut device = hinted("1");
    let before = reads(&mut device, &asked);
    // The entry of 4 KB is cached after the write. That of 8 KB was changed by the discard, so the map is read.
    assert_eq!(before[..4], [107, 107, 107, 107]);
    assert!(device.counters().map_hints < 5, "{:?}", device.counters());
}

#[test]
fn an_emmc_has_no_hpb() {
    let text = config(&[("mapping.scheme", "dftl")]).set_all(&[("mapping.hpb_pages", "4")]).unwrap_err();
    assert!(text.to_string().contains("`mapping.hpb_pages` is 4"), "{text}");
}
