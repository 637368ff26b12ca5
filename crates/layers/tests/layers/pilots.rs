//! The commands of stripes and of the NVM buffer to the disks below.

use crate::support::{BELOW, MemDisk, SECTOR, count, stamp, started, striping, version};
use emmclab_base::{CommandFlags, ErrorClass, Op};
use emmclab_layers::{CommandPlan, DisksBelow, HostRequest, ImmediateStack, LayerConfig, PlanStep, RequestDecision, build_stack};

/// Operation, disk, sector and sectors of each command of a request.
fn commands(config: &LayerConfig, op: Op, sector: u64, sectors: u32) -> Vec<(Op, u8, u64, u32)> {
    commands_below(config, &BELOW, op, sector, sectors)
}

fn commands_below(config: &LayerConfig, below: &DisksBelow, op: Op, sector: u64, sectors: u32) -> Vec<(Op, u8, u64, u32)> {
    let mut layers = build_stack(std::slice::from_ref(config), below).unwrap();
    let mut plan = CommandPlan::default();
    let request = HostRequest { id: 1, op, sector, sectors, modifiers: CommandFlags::empty() };
    assert_eq!(layers[0].request(&request, &[], &mut plan), RequestDecision::Run);
    let command = |step: &PlanStep| match step {
        PlanStep::Command(command) => Some((command.op, command.disk, command.sector, command.sectors)),
        _ => None,
    };
    plan.steps().iter().filter_map(command).collect()
}

#[test]
fn stripes_send_one_command_to_each_disk_that_a_request_touches() {
    let raid = striping("4KB");
    for op in [Op::Write, Op::Read, Op::Discard] {
        assert_eq!(commands(&raid, op, 3, 4), [(op, 0, 3, 4)]);
        assert_eq!(commands(&raid, op, 12, 36), [(op, 0, 8, 16), (op, 1, 4, 20)]);
    }
    assert_eq!(commands(&raid, Op::Flush, 0, 0), [(Op::Flush, 0, 0, 0), (Op::Flush, 1, 0, 0)]);
}

#[test]
fn stripes_offer_twice_the_whole_stripes_of_the_smaller_disk_and_refuse_less_than_one() {
    let capacity = |chunk: &str, below: &DisksBelow| build_stack(&[striping(chunk)], below).map(|layers| layers[0].capacity());
    assert_eq!(capacity("64KB", &DisksBelow::new(1000, Some(5000))).unwrap(), 7 * 128 * 2);
    assert_eq!(capacity("64KB", &DisksBelow::new(5000, Some(1000))).unwrap(), 7 * 128 * 2);
    for (chunk, below, said) in [
        ("64KB", DisksBelow::new(1000, None), "no second device"),
        ("64KB", DisksBelow::new(1000, Some(127)), "the smaller disk has"),
        ("0", BELOW, "multiple of 4KB"),
        ("6KB", BELOW, "multiple of 4KB"),
    ] {
        let error = capacity(chunk, &below).unwrap_err();
        assert_eq!(error.kind(), ErrorClass::Config);
        assert!(error.to_string().contains(said) && error.hint_text().is_some(), "{error}");
    }
}

#[test]
fn parts_that_wrapping_separates_on_a_disk_are_commands_of_their_own() {
    let wrapping = striping("4KB").with("wrap_addresses", "true");
    let small = DisksBelow::new(32, Some(32));
    // Stripes 6 to 9: 6 and 8 are on disk 0, of which sectors 24 to 31 are the last.
    assert_eq!(
        commands_below(&wrapping, &small, Op::Write, 48, 32),
        [(Op::Write, 0, 24, 8), (Op::Write, 0, 0, 8), (Op::Write, 1, 24, 8), (Op::Write, 1, 0, 8)]
    );
}

/// An NVM buffer of 64 KB, for writes up to 4 KB.
fn buffer() -> LayerConfig {
    LayerConfig::named("nvm-buffer").with("size", "64KB").with("longest", "4KB")
}

fn write(executor: &mut ImmediateStack<MemDisk>, sector: u64, sectors: u64, version: u64) {
    let mut data = vec![0; sectors as usize * SECTOR];
    stamp(sector, version, &mut data);
    executor.submit(Op::Write, sector, &mut data).unwrap();
}

#[test]
fn data_that_is_overwritten_in_the_buffer_is_written_back_once() {
    let mut executor = started(&[buffer()], &BELOW);
    for version in 1..=10 {
        write(&mut executor, 800, 8, version);
    }
    assert_eq!(count(&executor, "absorbed_bytes"), 9 * 4096);
    assert!(executor.disks()[0].data.iter().all(|byte| *byte == 0), "all is in the buffer");
    executor.drain().unwrap();
    assert_eq!((count(&executor, "write_back_runs"), count(&executor, "write_back_bytes")), (1, 4096));
    assert_eq!(version(800, &executor.disks()[0].data[800 * SECTOR..801 * SECTOR]), Some(10));
}

#[test]
fn neighbours_go_home_as_one_run_in_whatever_order_they_came() {
    let mut executor = started(&[buffer().with("run", "16KB")], &BELOW);
    for (version, block) in (1..).zip([5, 2, 40, 4, 3, 41, 20]) {
        write(&mut executor, block * 8, 8, version);
    }
    executor.drain().unwrap();
    assert_eq!((count(&executor, "write_back_runs"), count(&executor, "write_back_bytes")), (3, 7 * 4096));
}

#[test]
fn a_flush_reaches_the_device_only_after_a_write_past_the_buffer() {
    let mut executor = started(&[buffer()], &BELOW);
    let flush = |executor: &mut ImmediateStack<MemDisk>| {
        let before = count(executor, "device_flushes");
        executor.submit_bare(Op::Flush, 0, 0).unwrap();
        count(executor, "device_flushes") - before
    };
    write(&mut executor, 0, 8, 1);
    assert_eq!(flush(&mut executor), 0);
    write(&mut executor, 100, 9, 2);
    assert_eq!((flush(&mut executor), flush(&mut executor)), (1, 0));
    assert_eq!((count(&executor, "buffered_writes"), count(&executor, "past_writes")), (1, 1));
}

#[test]
fn without_requests_write_back_begins_halfway_between_the_marks_and_ends_at_the_low_one() {
    let mut executor = started(&[buffer().with("high_pct", "60").with("low_pct", "30")], &BELOW);
    // The ring has 112 sectors. A record of 4 KB takes 9, and is released with all others in one step.
    for block in 0..5 {
        write(&mut executor, block * 16, 8, block + 1);
        assert!(!executor.background(0).unwrap(), "{} of 50 sectors", (block + 1) * 9);
    }
    for block in 5..7 {
        write(&mut executor, block * 16, 8, block + 1);
    }
    assert!(executor.background(0).unwrap(), "63 of 50 sectors");
    while executor.background(0).unwrap() {}
    assert_eq!(count(&executor, "releases"), 1);
    assert_eq!(count(&executor, "map_entries"), 3, "30 % are 33 sectors");
}
