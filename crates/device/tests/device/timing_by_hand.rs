//! Cases small enough to compute on paper. Page read 100 us, program 1,000 us, erase 5,000 us unless stated otherwise.

use crate::common::{command, config, responses_us, run};
use emmclab_base::Nanos;
use emmclab_base::Op::{Flush, Read, Write};
use emmclab_device::{BlockId, DeviceCommand, DeviceConfig};

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
    let (_, events) = run(&config(&[("geometry.channels", "2")]), &burst);
    assert_eq!(responses_us(&events), [1000.0, 1000.0, 1900.0]);
}

#[test]
fn parallelism_decides_what_runs_beside_what() {
    let pages = [command(0, Write, 0, 16)];
    let time = |parallelism: &str| {
        let settings =
            [("geometry.dies_per_chip", "2"), ("geometry.planes_per_die", "2"), ("timing.parallelism", parallelism)];
        responses_us(&run(&config(&settings), &pages).1)[0]
    };
    // Four pages on one chip of two dies of two planes.
    assert_eq!(time("none"), 4000.0);
    assert_eq!(time("interleave"), 2000.0);
    assert_eq!(time("multi_plane"), 2000.0);
    assert_eq!(time("both"), 1000.0);
}

#[test]
fn under_the_same_offset_rule_planes_join_only_on_equal_pages() {
    let settings =
        [("geometry.planes_per_die", "2"), ("timing.parallelism", "multi_plane"), ("timing.same_offset", "true")];
    // Pages 0 and 0 of both planes, then 1 and 1.
    let (_, events) = run(&config(&settings), &[command(0, Write, 0, 16)]);
    assert_eq!(responses_us(&events), [2000.0]);
    // One page is written first: the next two are at different offsets.
    let (_, events) = run(&config(&settings), &[command(0, Write, 0, 4), command(2000, Write, 4, 8)]);
    assert_eq!(responses_us(&events), [1000.0, 2000.0]);
}

#[test]
fn the_bus_is_shared_by_the_chips_of_a_channel() {
    // 4 KB at 250 ns per byte are 1,024 us: bus and array overlap on different chips.
    let settings = [("geometry.chips_per_channel", "2"), ("timing.bus_ns_per_byte", "250")];
    let (_, events) = run(&config(&settings), &[command(0, Write, 0, 4), command(0, Write, 4, 4)]);
    assert_eq!(responses_us(&events), [2024.0, 3048.0]);
    assert_eq!((events[1].waits.bus, events[1].waits.array), (Nanos::from_micros(2048), Nanos::from_micros(1000)));
    // A read senses first and then crosses the bus.
    let (_, events) = run(&config(&settings), &[command(0, Write, 0, 4), command(9000, Read, 0, 4)]);
    assert_eq!(responses_us(&events)[1], 1124.0);
}

#[test]
fn the_way_to_the_flash_may_be_slower_than_the_way_out() {
    let settings = [("timing.bus_ns_per_byte", "50"), ("timing.bus_write_extra_ns_per_byte", "25")];
    let commands = [command(0, Write, 0, 4), command(9000, Read, 0, 4)];
    let (_, events) = run(&config(&settings), &commands);
    assert_eq!(responses_us(&events), [4.096 * 75.0 + 1000.0, 100.0 + 4.096 * 50.0]);
}

#[test]
fn a_short_transfer_slips_into_a_gap_of_the_bus() {
    // A read of chip 1 senses for 100 us; meanwhile a page for chip 0 crosses the same bus (41 us).
    let settings =
        [("geometry.chips_per_channel", "2"), ("timing.bus_ns_per_byte", "10"), ("allocation.policy", "static")];
    let (_, events) =
        run(&config(&settings), &[command(0, Write, 4, 4), command(5000, Read, 4, 4), command(5010, Write, 0, 4)]);
    assert_eq!(responses_us(&events)[1..], [140.96, 1040.96]);
}

#[test]
fn cache_program_hides_the_bus_behind_the_array() {
    let settings = [("timing.bus_ns_per_byte", "50")]; // 204.8 us a page
    let four = [command(0, Write, 0, 16)];
    let (_, plain) = run(&config(&settings), &four);
    let (_, cached) = run(&config(&[settings[0], ("timing.cache_program", "true")]), &four);
    assert_eq!(responses_us(&plain), [4.0 * 1204.8]);
    assert_eq!(responses_us(&cached), [204.8 + 4000.0]);
}

#[test]
fn transferred_writes_are_done_before_the_cells_but_the_next_one_waits() {
    let settings = [("timing.bus_ns_per_byte", "10"), ("timing.write_complete", "transferred")];
    let (_, events) =
        run(&config(&settings), &[command(0, Write, 0, 4), command(0, Write, 4, 4), command(0, Flush, 0, 0)]);
    assert_eq!(responses_us(&events), [40.96, 1081.92, 2081.92]);
}

#[test]
fn reads_go_before_writes_that_have_not_begun() {
    let commands =
        [command(0, Write, 0, 4), command(2000, Write, 4, 4), command(2000, Write, 8, 4), command(2100, Read, 0, 4)];
    let (_, events) = run(&config(&[]), &commands);
    assert_eq!(responses_us(&events), [1000.0, 1000.0, 2000.0, 2000.0]);
    let (_, events) = run(&config(&[("controller.scheduling", "read_first")]), &commands);
    assert_eq!(responses_us(&events), [1000.0, 1000.0, 2100.0, 1000.0]);
}

#[test]
fn a_read_of_data_that_waits_gets_the_new_data_after_it_is_written() {
    let commands = [command(0, Write, 0, 4), command(0, Write, 4, 4), command(10, Read, 4, 4)];
    let (_, events) = run(&config(&[("controller.scheduling", "read_first")]), &commands);
    assert_eq!(responses_us(&events), [1000.0, 2000.0, 2090.0]);
}

#[test]
fn a_queue_of_depth_one_takes_one_request_at_a_time() {
    let settings =
        [("geometry.channels", "2"), ("controller.queue_depth", "1"), ("controller.write_overhead_us", "10")];
    let (_, events) = run(&config(&settings), &[command(0, Write, 0, 4), command(5, Write, 4, 4)]);
    assert_eq!(responses_us(&events), [1010.0, 2015.0]);
    assert_eq!(events[1].complete - events[1].start, Nanos::from_micros(1010));
    assert_eq!(events[1].waits.controller, Nanos::from_micros(10));
}

#[test]
fn whoever_comes_after_a_pause_waits_for_the_device_to_wake() {
    let settings = [("power.sleep_after_us", "200000"), ("power.wake_us", "3000")];
    let (device, events) = run(
        &config(&settings),
        &[command(0, Write, 0, 4), command(200_000, Write, 4, 4), command(402_000, Write, 8, 4)],
    );
    assert_eq!(responses_us(&events), [1000.0, 1000.0, 4000.0]);
    assert_eq!(events[2].waits.wake_up, Nanos::from_millis(3));
    assert_eq!((device.counters().wake_ups, device.counters().asleep_ns), (1, 1_000_000));
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
    let settings =
        [("gc.policy", "greedy"), ("capacity.over_provisioning_pct", "50"), ("geometry.block_groups.0.blocks", "6")];
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
    let mut config = DeviceConfig::from_toml(
        "gc.policy = \"none\"
         [capacity]
         over_provisioning_pct = 0
         [geometry]
         channels = 1
         chips_per_channel = 2
         [[geometry.block_groups]]
         page_kb = 4
         blocks = 8
         pages_per_block = 4
         read_us = 0
         program_us = 1000
         erase_us = 5000
         [[geometry.block_groups]]
         page_kb = 8
         blocks = 8
         pages_per_block = 4
         read_us = 100
         program_us = 1000
         erase_us = 5000",
    )
    .unwrap();
    config.set_all(&[("timing.cache_read", "true"), ("timing.bus_ns_per_byte", "5")]).unwrap();
    // The 8 KB of one chip use the bus from 100 to 140.96 us. The 4 KB of the other chip do not fit before that. The 512 bytes after these
    // would fit, but the register is not free for them.
    let small = DeviceCommand::new(Nanos::from_micros(91), Read, 4, 1);
    let (_, events) = run(&config, &[command(0, Read, 8, 8), command(90, Read, 0, 4), small]);
    assert_eq!(responses_us(&events), [140.96, 161.44 - 90.0, 164.0 - 91.0]);
}
