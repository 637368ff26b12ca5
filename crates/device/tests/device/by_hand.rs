//! Cases small enough to compute on paper. Page read 100 us, program 1,000 us, erase 5,000 us unless stated otherwise.

use emmclab_base::Op::{Flush, Read, Write};
use emmclab_base::{Nanos, Op};
use emmclab_device::{
    BlockId, CacheFlushed, CommandFlags, Device, DeviceCommand, DeviceConfig, Lpn, NullObserver, Observer, RequestCompleted,
};

use crate::common::{Completions, PLAIN, command, config, responses_us, run, times_us};

#[test]
fn one_request_takes_its_array_time() {
    let (_, events) = run(&config(&[]), &[command(50, Write, 0, 4), command(5000, Read, 0, 4)]);
    assert_eq!(responses_us(&events), [1000.0, 100.0]);
    assert_eq!(events[1].waits.array, Nanos::from_micros(100));
}

#[test]
fn a_burst_queues_on_one_chip_and_spreads_over_two() {
    let burst = [command(0, Write, 0, 4), command(0, Write, 4, 4), command(100, Write, 8, 8)];
    let (_, events) = run(&config(&[]), &burst);
    assert_eq!(responses_us(&events), [1000.0, 2000.0, 3900.0]);
    assert_eq!(events[2].waits.queue, Nanos::from_micros(2900));
    assert_eq!(times_us(&[("geometry.channels", "2")], &burst), [1000.0, 1000.0, 1900.0]);
}

#[test]
fn parallelism_decides_what_runs_beside_what() {
    let pages = [command(0, Write, 0, 16)];
    let time = |parallelism: &str| {
        let settings = [("geometry.dies_per_chip", "2"), ("geometry.planes_per_die", "2"), ("timing.parallelism", parallelism)];
        times_us(&settings, &pages)[0]
    };
    // Four pages on one chip of two dies of two planes.
    assert_eq!(time("none"), 4000.0);
    assert_eq!(time("interleave"), 2000.0);
    assert_eq!(time("multi_plane"), 2000.0);
    assert_eq!(time("both"), 1000.0);
}

#[test]
fn under_the_same_offset_rule_planes_join_only_on_equal_pages() {
    let settings = [("geometry.planes_per_die", "2"), ("timing.parallelism", "multi_plane"), ("timing.same_offset", "true")];
    // Pages 0 and 0 of both planes, then 1 and 1.
    assert_eq!(times_us(&settings, &[command(0, Write, 0, 16)]), [2000.0]);
    // One page is written first: the next two are at different offsets.
    assert_eq!(times_us(&settings, &[command(0, Write, 0, 4), command(2000, Write, 4, 8)]), [1000.0, 2000.0]);
}

#[test]
fn the_bus_is_shared_by_the_chips_of_a_channel() {
    // 4 KB at 250 ns per byte are 1,024 us: bus and array overlap on different chips.
    let settings = [("geometry.chips_per_channel", "2"), ("timing.bus_ns_per_byte", "250")];
    let (_, events) = run(&config(&settings), &[command(0, Write, 0, 4), command(0, Write, 4, 4)]);
    assert_eq!(responses_us(&events), [2024.0, 3048.0]);
    assert_eq!((events[1].waits.bus, events[1].waits.array), (Nanos::from_micros(2048), Nanos::from_micros(1000)));
    // A read senses first and then crosses the bus.
    assert_eq!(times_us(&settings, &[command(0, Write, 0, 4), command(9000, Read, 0, 4)])[1], 1124.0);
}

#[test]
fn the_way_to_the_flash_may_be_slower_than_the_way_out() {
    let settings = [("timing.bus_ns_per_byte", "50"), ("timing.bus_write_extra_ns_per_byte", "25")];
    let commands = [command(0, Write, 0, 4), command(9000, Read, 0, 4)];
    assert_eq!(times_us(&settings, &commands), [4.096 * 75.0 + 1000.0, 100.0 + 4.096 * 50.0]);
}

#[test]
fn a_short_transfer_slips_into_a_gap_of_the_bus() {
    // A read of chip 1 senses for 100 us; meanwhile a page for chip 0 crosses the same bus (41 us).
    let settings = [("geometry.chips_per_channel", "2"), ("timing.bus_ns_per_byte", "10"), ("allocation.policy", "static")];
    let commands = [command(0, Write, 4, 4), command(5000, Read, 4, 4), command(5010, Write, 0, 4)];
    assert_eq!(times_us(&settings, &commands)[1..], [140.96, 1040.96]);
}

#[test]
fn cache_program_hides_the_bus_behind_the_array() {
    let settings = [("timing.bus_ns_per_byte", "50")]; // 204.8 us a page
    let four = [command(0, Write, 0, 16)];
    assert_eq!(times_us(&settings, &four), [4.0 * 1204.8]);
    assert_eq!(times_us(&[settings[0], ("timing.cache_program", "true")], &four), [204.8 + 4000.0]);
}

#[test]
fn transferred_writes_are_done_before_the_cells_but_the_next_one_waits() {
    let settings = [("timing.bus_ns_per_byte", "10"), ("timing.write_complete", "transferred")];
    let commands = [command(0, Write, 0, 4), command(0, Write, 4, 4), command(0, Flush, 0, 0)];
    assert_eq!(times_us(&settings, &commands), [40.96, 1081.92, 2081.92]);
}

#[test]
fn reads_go_before_writes_that_have_not_begun() {
    let commands = [command(0, Write, 0, 4), command(2000, Write, 4, 4), command(2000, Write, 8, 4), command(2100, Read, 0, 4)];
    assert_eq!(times_us(&[], &commands), [1000.0, 1000.0, 2000.0, 2000.0]);
    assert_eq!(times_us(&[("controller.scheduling", "read_first")], &commands), [1000.0, 1000.0, 2100.0, 1000.0]);
}

#[test]
fn a_read_of_data_that_waits_gets_the_new_data_after_it_is_written() {
    let commands = [command(0, Write, 0, 4), command(0, Write, 4, 4), command(10, Read, 4, 4)];
    assert_eq!(times_us(&[("controller.scheduling", "read_first")], &commands), [1000.0, 2000.0, 2090.0]);
}

#[test]
fn a_queue_of_depth_one_takes_one_request_at_a_time() {
    let settings = [("geometry.channels", "2"), ("controller.queue_depth", "1"), ("controller.write_overhead_us", "10")];
    let (_, events) = run(&config(&settings), &[command(0, Write, 0, 4), command(5, Write, 4, 4)]);
    assert_eq!(responses_us(&events), [1010.0, 2015.0]);
    assert_eq!(events[1].complete - events[1].start, Nanos::from_micros(1010));
    assert_eq!(events[1].waits.controller, Nanos::from_micros(10));
}

#[test]
fn whoever_comes_after_a_pause_waits_for_the_device_to_wake() {
    let settings = [("power.sleep_after_us", "200000"), ("power.wake_us", "3000")];
    let (device, events) =
        run(&config(&settings), &[command(0, Write, 0, 4), command(200_000, Write, 4, 4), command(402_000, Write, 8, 4)]);
    assert_eq!(responses_us(&events), [1000.0, 1000.0, 4000.0]);
    assert_eq!(events[2].waits.wake_up, Nanos::from_millis(3));
    assert_eq!((device.counters().wake_ups, device.counters().asleep_ns), (1, 1_000_000));
}

#[test]
fn the_exit_time_is_that_of_the_last_stage_of_sleep_that_has_begun() {
    let stages = "[{after_us=1000, wake_us=500}, {after_us=50000, wake_us=12000}]";
    let arrivals_us = [0, 2000, 3001, 5000, 56_000, 119_000];
    let (device, events) = run(&config(&[("power.stages", stages)]), &arrivals_us.map(|at| command(at, Write, 4, 4)));
    // Idle before each: none, 1,000, 1, 999, 50,000 and 61,500 us. A stage begins after its idle time, not with it.
    assert_eq!(responses_us(&events), [1000.0, 1000.0, 1000.0, 1000.0, 1500.0, 13_000.0]);
    let stages = device.counters().sleep_stages;
    assert_eq!(stages[..2].iter().map(|stage| stage.wake_ups).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(stages[0].asleep_ns + stages[1].asleep_ns, device.counters().asleep_ns);
}

#[test]
fn a_partial_overwrite_reads_the_rest_first() {
    let settings = [("mapping.unit_kb", "8"), ("geometry.block_groups.0.page_kb", "8")];
    let (device, events) = run(&config(&settings), &[command(0, Write, 0, 8), command(5000, Write, 4, 4)]);
    assert_eq!(responses_us(&events), [1000.0, 1100.0]);
    assert_eq!(device.counters().read_modify_writes, 1);
    // With a finer map, the other half stays at its location.
    let settings = [("mapping.unit_kb", "4"), settings[1]];
    let (device, events) = run(&config(&settings), &[command(0, Write, 0, 8), command(5000, Write, 4, 4)]);
    assert_eq!(responses_us(&events), [1000.0, 1000.0]);
    assert_eq!((device.counters().read_modify_writes, device.block(BlockId(0)).valid), (0, 2));
}

#[test]
fn collection_is_felt_by_the_write_that_needs_the_space() {
    let settings = [("gc.policy", "greedy"), ("capacity.over_provisioning_pct", "50"), ("geometry.block_groups.0.blocks", "6")];
    // 24 pages, 16 of them logical. Five blocks of writes to one page leave blocks without valid pages.
    let commands: Vec<_> = (0..21).map(|i| command(i * 10_000, Write, 0, 4)).collect();
    let (device, events) = run(&config(&settings), &commands);
    assert!(responses_us(&events)[..20].iter().all(|time| *time == 1000.0));
    assert_eq!(responses_us(&events)[20], 6000.0);
    assert_eq!(events[20].waits.gc, Nanos::from_millis(5));
    assert_eq!((device.counters().gc_count, device.counters().block_erases()), (1, 1));
}

#[test]
fn cached_pages_leave_the_register_in_order() {
    let group = PLAIN.find("[[geometry.block_groups]]").unwrap();
    let mut config = DeviceConfig::from_toml(&[PLAIN, &PLAIN[group..]].concat()).unwrap();
    let settings = [
        ("geometry.chips_per_channel", "2"),
        ("geometry.block_groups.0.read_us", "0"),
        ("geometry.block_groups.1.page_kb", "8"),
        ("timing.cache_read", "true"),
        ("timing.bus_ns_per_byte", "5"),
    ];
    config.set_all(&settings).unwrap();
    // The 8 KB of one chip use the bus from 100 to 140.96 us. The 4 KB of the other chip do not fit before that. The 512 bytes after these
    // would fit, but the register is not free for them.
    let small = DeviceCommand::new(Nanos::from_micros(91), Read, 4, 1);
    let (_, events) = run(&config, &[command(0, Read, 8, 8), command(90, Read, 0, 4), small]);
    assert_eq!(responses_us(&events), [140.96, 161.44 - 90.0, 164.0 - 91.0]);
}

#[test]
fn the_bus_mode_gives_the_time_of_a_sector() {
    let commands = [command(0, Write, 0, 4), command(10_000, Read, 0, 4)];
    for (mode, ns) in [("hs52", 78_769), ("ddr52", 39_384), ("hs200", 20_480), ("hs400", 10_240)] {
        let (_, events) = run(&config(&[("controller.bus_mode", mode)]), &commands);
        // 4,096 bytes at 52, 104, 200, 400 million bytes a second.
        assert_eq!(events[0].waits.controller, Nanos(ns), "{mode}");
        assert_eq!(events[1].complete - events[1].arrival, Nanos(100_000 + ns), "{mode}");
    }
}

#[test]
fn a_queue_of_two_lets_two_commands_work_at_once() {
    let burst: Vec<_> = (0..4).map(|i| command(0, Write, i * 4, 4)).collect();
    let response = |depth: &str| times_us(&[("geometry.channels", "4"), ("controller.queue_depth", depth)], &burst);
    assert_eq!(response("1"), [1000.0, 2000.0, 3000.0, 4000.0]);
    assert_eq!(response("2"), [1000.0, 1000.0, 2000.0, 2000.0]);
    assert_eq!(response("32"), [1000.0; 4]);
}

/// A device with pages of 8 KB, in which entries of a packed write share pages (`shared` = "true") or do not.
fn packing(shared: &str) -> Device {
    Device::new(&config(&[
        ("controller.queue_depth", "1"),
        ("host.packed_writes", "63"),
        ("controller.share_packed_pages", shared),
        ("geometry.block_groups.0.page_kb", "8"),
    ]))
}

fn pack(device: &mut Device, at_us: i64, places_kb: &[u64]) -> Vec<RequestCompleted> {
    let entries: Vec<_> = places_kb.iter().map(|kb| command(at_us, Write, *kb, 4)).collect();
    let mut told = Completions::default();
    device.submit_packed(&entries, &mut told).unwrap();
    told.0
}

#[test]
fn entries_of_a_pack_share_pages_where_they_may() {
    for (shared, programs) in [("false", 4), ("true", 2)] {
        let mut device = packing(shared);
        let events = pack(&mut device, 0, &[0, 16, 32, 64]);
        assert_eq!(responses_us(&events), [f64::from(programs) * 1000.0; 4]);
        assert_eq!(device.counters().all_page_programs(), programs as u64);
        let subrequests: u32 = events.iter().map(|event| event.subrequests).sum();
        assert_eq!(subrequests, programs as u32, "a shared page is told once");
        // Reads of 4 KB from pages that two entries share: each is a page read.
        let mut told = Completions::default();
        device.submit(&command(10_000, Read, 16, 4), &mut told).unwrap();
        assert_eq!(responses_us(&told.0), [100.0]);
    }
}

#[test]
fn a_unit_that_comes_again_in_a_pack_begins_a_new_page() {
    let mut device = packing("true");
    pack(&mut device, 0, &[0, 0, 16, 32]);
    // Pages: 0; 0 and 16; 32. If both versions of 0 were merged, the third entry could survive without the first.
    assert_eq!(device.counters().all_page_programs(), 3);
}

#[test]
fn a_reliable_write_pays_its_own_time() {
    let write = DeviceCommand { modifiers: CommandFlags::RELIABLE, ..command(0, Write, 0, 4) };
    assert_eq!(times_us(&[("controller.reliable_write_us", "300")], &[write]), [1300.0]);
}

#[test]
fn a_flush_and_a_discard_pay_their_own_time_also_without_a_cache() {
    let settings = [("cache.flush_us", "3000"), ("controller.discard_us", "12000"), ("controller.write_overhead_us", "50")];
    let commands = [command(0, Write, 0, 4), command(2_000, Flush, 0, 0), command(10_000, Op::Discard, 0, 4)];
    assert_eq!(times_us(&settings, &commands), [1050.0, 3050.0, 12_050.0]);
}

#[test]
fn one_write_in_four_stalls_and_the_same_ones_each_time() {
    let points = "[{up_to_pct=75, us=0}, {up_to_pct=75.01, us=500}, {up_to_pct=100, us=500}]";
    let writes: Vec<_> = (0..400).map(|i| command(i * 50_000, Write, 0, 4)).collect();
    // Nothing is collected, so each write needs a page of its own.
    let blocks = ("geometry.block_groups.0.blocks", "100");
    let usual = times_us(&[blocks], &writes);
    let stalling = [blocks, ("controller.write_stalls", points)];
    let times = times_us(&stalling, &writes);
    let beyond: Vec<_> = times.iter().zip(&usual).map(|(time, usual)| time - usual).collect();
    let stalls = beyond.iter().filter(|us| **us == 500.0).count();
    let usually = beyond.iter().filter(|us| **us == 0.0).count();
    assert!((80..120).contains(&stalls) && usually + stalls >= 399, "{stalls} stalls, {usually} usual: {beyond:?}");
    assert_eq!(times_us(&stalling, &writes), times);
    let reads: Vec<_> = (1..40).map(|i| command(i * 50_000, Read, 0, 4)).collect();
    let times = times_us(&stalling, &[&writes[..1], &reads[..]].concat());
    assert!(times[1..].iter().all(|us| *us == 100.0), "{times:?}");
}

#[test]
fn where_reliable_writes_and_barriers_are_missing_a_flush_takes_their_place() {
    let last_us = |settings: &[(&str, &str)], op, modifiers| {
        let cached = [&[("cache.size_kb", "64"), ("cache.write_back", "when_full")], settings].concat();
        let kb = if op == Write { 4 } else { 0 };
        let flagged = DeviceCommand { modifiers, ..command(10, op, 32, kb) };
        times_us(&cached, &[command(0, Write, 0, 4), flagged])[1]
    };
    let reliable = [("controller.reliable_write_us", "300")];
    let (without, plain) = ([("features.reliable_write", "false"), reliable[0]], [("features.barrier", "false")]);
    // The previous write stays in the cache, unless a flush writes it too; one plane programs one page at a time.
    assert_eq!(last_us(&reliable, Write, CommandFlags::RELIABLE), 1300.0);
    assert_eq!(last_us(&without, Write, CommandFlags::RELIABLE), 2000.0);
    assert_eq!(last_us(&without, Write, CommandFlags::FORCED), 1000.0);
    assert_eq!(last_us(&[], Flush, CommandFlags::BARRIER), 0.0);
    assert_eq!(last_us(&plain, Flush, CommandFlags::BARRIER), 1000.0);
}

#[test]
fn an_eager_cache_writes_back_while_the_next_write_is_transferred() {
    let last_us = |write_back| {
        let cached = [("cache.size_kb", "8"), ("cache.write_back", write_back), ("controller.host_us_per_kb", "250")];
        let commands: Vec<_> = (0..4).map(|i| command(i * 2000, Write, i as u64 * 8, 8)).collect();
        times_us(&cached, &commands)[3]
    };
    // The transfer takes 2,000 us, in which two pages of the previous write are programmed; otherwise the write waits for both.
    assert_eq!((last_us("eager"), last_us("when_full")), (2000.0, 4000.0));
}

#[test]
fn what_leaves_for_a_long_write_leaves_together() {
    let cached = [
        ("cache.size_kb", "16"),
        ("cache.write_back", "when_full"),
        ("geometry.planes_per_die", "4"),
        ("timing.parallelism", "both"),
    ];
    let times = times_us(&cached, &[command(0, Write, 0, 16), command(10, Write, 64, 16)]);
    assert_eq!(times, [0.0, 1000.0], "four pages on four planes take the time of one");
}

#[test]
fn the_cache_waits_for_room_and_counts_what_it_saves() {
    let cached = config(&[("cache.size_kb", "8"), ("cache.write_back", "when_full"), ("cache.policy", "lru")]);
    // Room for two units: the third write waits until the first is programmed; an overwrite does not wait.
    let burst = [0, 4, 4, 8].map(|kb| command(0, Write, kb, 4));
    let (device, events) = run(&cached, &burst);
    assert_eq!(responses_us(&events), [0.0, 0.0, 0.0, 1000.0]);
    let counters = device.counters();
    assert_eq!((counters.cache_written, counters.cache_overwritten), (4, 1));
    assert_eq!(counters.all_page_programs(), 1);
    // Written data is read from RAM, other data from the flash.
    let (device, events) = run(&cached, &[command(0, Write, 0, 4), command(10, Read, 0, 8)]);
    assert_eq!(responses_us(&events), [0.0, 100.0]);
    assert_eq!((device.counters().cache_read, device.counters().cache_read_hits), (2, 1));
}

#[test]
fn an_eager_cache_writes_at_once_and_an_idle_one_after_its_time() {
    let programs = |write_back: &str, idle_us: &str, at_us: i64| {
        let settings = [("cache.size_kb", "64"), ("cache.write_back", write_back), ("cache.idle_after_us", idle_us)];
        let (device, _) = run(&config(&settings), &[command(0, Write, 0, 4), command(at_us, Read, 64, 4)]);
        device.counters().all_page_programs()
    };
    assert_eq!(programs("eager", "0", 1), 1);
    assert_eq!(programs("idle", "500", 400), 0);
    assert_eq!(programs("idle", "500", 600), 1);
    assert_eq!(programs("when_full", "0", 1_000_000), 0);
}

#[test]
fn the_policies_let_different_data_go() {
    // Room for four pages; the first is written again, then a fifth is written. Which page is programmed?
    let left = |policy: &str| {
        let settings = [("cache.size_kb", "16"), ("cache.write_back", "when_full"), ("cache.policy", policy)];
        let order = [0, 16, 32, 48, 0, 64];
        let commands: Vec<_> = order.iter().enumerate().map(|(i, kb)| command(i as i64, Write, *kb, 4)).collect();
        let (device, _) = run(&config(&settings), &commands);
        (0..20).find(|unit| device.lookup(Lpn(*unit)).is_some()).map(|unit| unit * 4)
    };
    assert_eq!(left("fifo"), Some(0));
    assert_eq!(left("lru"), Some(16));
    // Erase blocks of 16 KB: each page is in its own block.
    assert_eq!(left("block_lru"), Some(16));
}

#[test]
fn data_read_before_comes_from_ram() {
    let settings = [("cache.read_kb", "8")];
    let reads = [0, 0, 4, 8, 0].map(|kb| command(0, Read, kb, 4));
    let (device, events) = run(&config(&settings), &reads);
    // The last one was evicted by two others.
    assert_eq!(responses_us(&events), [100.0, 0.0, 200.0, 300.0, 400.0]);
    assert_eq!(device.counters().cache_read_hits, 1);
}

#[test]
fn a_read_cache_of_pages_needs_one_flash_read_for_sequential_reads_of_a_page() {
    let settings = [("cache.read_kb", "64"), ("geometry.block_groups.0.page_kb", "16"), ("cache.read_pages", "true")];
    let mut commands = vec![command(0, Write, 0, 16), command(0, Write, 16, 16)];
    // The last read goes back to the first page, whose first unit was read before, and not behind it.
    commands.extend([0, 4, 8, 12, 16, 20, 0].map(|kb| command(1_000_000, Read, kb, 4)));
    // A write replaces the data that was kept behind an earlier read.
    commands.extend([command(2_000_000, Read, 16, 4), command(3_000_000, Write, 20, 4), command(4_000_000, Read, 20, 4)]);
    let (device, events) = run(&config(&settings), &commands);
    assert_eq!(device.counters().cache_read_hits, 6);
    let responses = responses_us(&events);
    assert_eq!(responses[2..9], [100.0, 0.0, 0.0, 0.0, 200.0, 0.0, 0.0]);
    assert_eq!([responses[9], responses[11]], [0.0, 100.0]);
}

/// A device of six blocks of four pages, five of which hold one page of old data each.
fn used(settings: &[(&str, &str)]) -> Device {
    let base = [("gc.policy", "greedy"), ("capacity.over_provisioning_pct", "250"), ("gc.high_watermark", "3")];
    let mut device = Device::new(&config(&[&base, settings].concat()));
    // Pages that stay valid alternate with pages that are overwritten.
    for i in 0..20u64 {
        let page = if i % 4 == 0 { i / 4 + 1 } else { 0 };
        device.submit(&command(0, Write, page * 4, 4), &mut NullObserver).unwrap();
    }
    device
}

#[test]
fn idle_collection_is_interrupted_after_a_page_with_hpi_and_after_a_block_without() {
    let response = |settings: &[(&str, &str)]| {
        let mut device = used(settings);
        let before = device.idle_from().0;
        // Collection began 1,000 us earlier: it reads (100 us), programs (1,000 us) and erases (5,000 us).
        let at = Nanos(before + 2_000_000);
        let done = device.submit(&DeviceCommand::new(at, Op::Read, 56, 8), &mut NullObserver).unwrap().unwrap();
        ((done - at).0 / 1000, device.counters().gc_interruptions)
    };
    let idle = ("gc.idle_after_us", "1000");
    assert_eq!(response(&[]), (100, 0));
    // The page move of 1,100 us that began at 1,000 us ends at 2,100 us.
    assert_eq!(response(&[idle]), (200, 1));
    // The time of the interruption overlaps with that.
    assert_eq!(response(&[idle, ("gc.hpi_us", "70")]), (200, 1));
    assert_eq!(response(&[idle, ("gc.hpi_us", "170")]), (270, 1));
    // The collection of the block ends with its erase at 7,100 us.
    assert_eq!(response(&[idle, ("gc.hpi", "false")]).0, 5200);
}

#[test]
fn urgent_collection_does_not_wait_for_idle_time() {
    let collected = |settings: &[(&str, &str)]| {
        let mut device = used(settings);
        let at = Nanos(device.idle_from().0 + 1);
        device.submit(&DeviceCommand::new(at, Op::Read, 56, 8), &mut NullObserver).unwrap();
        device.counters().gc_count
    };
    assert_eq!(collected(&[("gc.idle_after_us", "1000")]), 0);
    assert!(collected(&[("gc.idle_after_us", "1000"), ("gc.urgent_free_blocks", "3")]) > 0);
}

#[test]
fn the_device_stays_awake_while_it_collects() {
    let asleep = |settings: &[(&str, &str)]| {
        let mut device = used(&[&[("power.sleep_after_us", "10"), ("power.wake_us", "3")], settings].concat());
        let before = device.counters().asleep_ns;
        let at = Nanos(device.idle_from().0 + 1_000_000_000);
        device.submit(&DeviceCommand::new(at, Op::Read, 56, 8), &mut NullObserver).unwrap();
        device.counters().asleep_ns - before
    };
    assert_eq!(asleep(&[]), 999_990_000);
    assert!(asleep(&[("gc.idle_after_us", "5")]) < 999_990_000 - 5_000_000);
}

fn slc(settings: &[(&str, &str)]) -> DeviceConfig {
    let base = [
        ("gc.policy", "greedy"),
        ("capacity.over_provisioning_pct", "50"),
        ("geometry.block_groups.0.blocks", "16"),
        ("geometry.block_groups.0.pages_per_block", "8"),
        ("slc.blocks", "5"),
        ("slc.program_us", "200"),
        ("slc.read_us", "25"),
        ("slc.erase_us", "1500"),
    ];
    config(&[&base, settings].concat())
}

#[test]
fn an_slc_cache_takes_small_writes_and_counts_nothing_towards_the_capacity() {
    let cache = slc(&[("slc.mode", "cache"), ("slc.max_kb", "8")]);
    let (device, events) = run(&cache, &[command(0, Write, 0, 8), command(5000, Write, 8, 12)]);
    assert_eq!(responses_us(&events), [400.0, 3000.0]);
    // 11 blocks of 8 pages, less a third.
    assert_eq!(device.geometry().logical_units, 58);
    assert_eq!(device.blocks().count(), 16);
    let (_, events) = run(&cache, &[command(0, Write, 0, 4), command(5000, Read, 0, 4)]);
    assert_eq!(responses_us(&events), [200.0, 25.0]);
}

#[test]
fn an_slc_region_holds_the_first_addresses_at_half_the_pages() {
    let region = slc(&[("slc.mode", "region")]);
    let (device, events) = run(&region, &[command(0, Write, 0, 8), command(5000, Write, 200, 4)]);
    // 5 blocks of 4 pages, and 11 of 8, less a third.
    assert_eq!((device.geometry().slc_units, device.geometry().logical_units), (13, 72));
    assert_eq!(responses_us(&events), [400.0, 1000.0]);
    // A write across the border has pages on both sides.
    let (_, events) = run(&region, &[command(0, Write, 12 * 4, 8)]);
    assert_eq!(responses_us(&events), [1200.0]);
}

#[test]
fn an_slc_cache_is_folded_in_idle_time_or_passed_by_when_full() {
    let writes = |gap_us: i64| -> Vec<DeviceCommand> {
        (0..24).map(|i| command(i64::from(i) * gap_us, Write, u64::from(i as u32) * 4, 4)).collect()
    };
    let folding = slc(&[("slc.mode", "cache"), ("slc.fold_after_us", "100000")]);
    let (device, events) = run(&folding, &writes(0));
    // 4 of 5 blocks of 4 pages become full; later data is written to other blocks.
    let array: Vec<_> = events.iter().map(|event| event.waits.array.0 / 1000).collect();
    assert_eq!((array[..16].iter().max(), array[16..].iter().min()), (Some(&200), Some(&1000)));
    assert_eq!(device.counters().folds, 0);
    let (device, events) = run(&folding, &writes(200_000));
    assert!(events.iter().all(|event| event.waits.array == Nanos::from_micros(200)));
    assert!(device.counters().folds >= 4);
    // Without idle folding, a full cache is folded while the write waits.
    let (device, events) = run(&slc(&[("slc.mode", "cache")]), &writes(0));
    assert!(device.counters().folds > 0 && events.iter().any(|event| event.waits.queue + event.waits.gc > Nanos::from_millis(5)));
}

#[test]
fn flushes_of_an_empty_cache_are_free() {
    assert_eq!(times_us(&[("cache.size_kb", "64")], &[command(0, Flush, 0, 0)]), [0.0]);
}

/// For each flush of the cache: whether the host requested it, and the number of units that it found.
#[derive(Default)]
struct Flushes(Vec<(bool, u32)>);

impl Observer for Flushes {
    fn cache_flushed(&mut self, event: &CacheFlushed) {
        self.0.push((event.asked_for, event.units));
    }
}

#[test]
fn flushes_with_data_are_those_that_the_host_asks_for_and_that_find_written_data() {
    let cached = [("cache.size_kb", "64"), ("cache.write_back", "when_full")];
    let ends = |more: &[(&str, &str)]| {
        let mut device = Device::new(&config(&[&cached, more].concat()));
        let mut told = Flushes::default();
        let commands = [
            // The cache is empty.
            command(0, Flush, 0, 0),
            command(10_000, Write, 0, 8),
            command(20_000, Flush, 0, 0),
            command(30_000, Flush, 0, 0),
            command(40_000, Write, 0, 4),
            // Its preflush finds the previous write.
            DeviceCommand { modifiers: CommandFlags::PREFLUSH, ..command(50_000, Write, 4, 4) },
        ];
        for one in &commands {
            device.submit(one, &mut told).unwrap();
        }
        // The orderly power-off writes the rest, without a command.
        device.power_off(&mut told);
        (device.counters().cache_flushes, told.0)
    };
    let asked = [(true, 0), (true, 2), (true, 0), (true, 1), (false, 1)];
    assert_eq!(ends(&[]), (2, asked.to_vec()));
    // A device that skips flushes counts none, but its power-off is orderly and writes both units.
    assert_eq!(ends(&[("cache.lies", "flush")]), (0, vec![(false, 2)]));
}
