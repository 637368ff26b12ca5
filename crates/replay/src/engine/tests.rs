//! Tests of a disk whose device reports completions late, and of the parts that an engine adds to its disks.

use emmclab_device::CommandFlags;
use emmclab_trace::{Nanos, Op};
use proptest::prelude::*;

use super::*;

fn config(settings: &[(&str, &str)]) -> DeviceConfig {
    let mut config = DeviceConfig::preset("small-1gb").unwrap();
    config.set("geometry.block_groups.0.pages_per_block", "16").unwrap();
    config.set_all(settings).unwrap();
    config
}

/// A device that lets reads pass writes, below a host queue. The settings refuse this combination, because such a device accepts commands
/// without limit; a command queue that reorders would behave like this.
fn reordering_behind_a_queue(depth: &str, packed: &str) -> SimulatedDisk {
    let device = config(&[("controller.scheduling", "read_first")]);
    let queue = config(&[
        ("controller.queue_depth", depth),
        ("host.merge_max_kb", "64"),
        ("host.packed_writes", packed),
        ("host.packed_reads", packed),
    ]);
    SimulatedDisk::for_run(device.settings(), Device::new(&device), true).with_host_of(queue.settings())
}

/// Drives a disk through commands; returns the completions in the order in which they became known.
fn drive(disk: &mut SimulatedDisk, commands: &[DeviceCommand]) -> Vec<RequestCompleted> {
    let mut known = Vec::new();
    for command in commands {
        disk.advance(command.arrival, &mut NullObserver).unwrap();
        disk.submit(std::slice::from_ref(command), &mut NullObserver).unwrap();
        disk.take_completed(&mut known);
    }
    disk.advance(Nanos::MAX, &mut NullObserver).unwrap();
    disk.take_completed(&mut known);
    disk.power_off(&mut NullObserver).unwrap();
    disk.verify().unwrap();
    known
}

fn command(at_us: i64, op: Op, sector: u64, sectors: u32) -> DeviceCommand {
    DeviceCommand {
        modifiers: CommandFlags::empty(),
        ..DeviceCommand::new(Nanos::from_micros(at_us), op, sector, sectors)
    }
}

#[test]
fn a_tag_is_free_when_the_late_completion_is_known() {
    let mut disk = reordering_behind_a_queue("1", "0");
    let writes: Vec<_> = (0..20).map(|i| command(i, Op::Write, i as u64 * 64, 8)).collect();
    let known = drive(&mut disk, &writes);
    assert_eq!(known.iter().map(|event| event.id).collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
    for pair in known.windows(2) {
        assert!(pair[1].start >= pair[0].complete, "one command at a time");
    }
}

#[test]
fn the_entries_of_a_pack_are_commands_of_their_own_where_the_device_reorders() {
    let mut disk = reordering_behind_a_queue("1", "8");
    let writes: Vec<_> = (0..9).map(|i| command(i, Op::Write, i as u64 * 64, 8)).collect();
    let known = drive(&mut disk, &writes);
    let counts = disk.host_counts().unwrap();
    assert_eq!((counts.packs, counts.packed_requests, known.len()), (1, 8, 9));
    assert_eq!(disk.device().counters().packs, 0);
    assert!(known[1].complete < known[8].complete, "each completes by itself");
}

#[test]
fn both_disks_of_a_checked_run_have_a_checker_and_the_queue_of_their_settings() {
    let plain = config(&[]);
    let queued = config(&[("controller.queue_depth", "1"), ("host.merge_max_kb", "64")]);
    let layer = LayerConfig::named("pair").with("routing", "striping");
    let second = SimulatedDisk::for_run(queued.settings(), Device::new(&queued), true);
    let engine =
        ReplayEngine::for_run(&plain, Device::new(&plain), true).with_layers(&[layer], Some(second), 0).unwrap();
    let second = engine.second.unwrap();
    assert!(engine.main.has_checker() && second.has_checker());
    assert!(engine.main.host_counts().is_none() && second.host_counts().is_some());
}

/// Gap in us, operation, address, length in units of 4 KB.
type Drawn = (u16, u8, u16, u8);

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(60), ..ProptestConfig::default() })]

    /// Runs with the checker, which checks the contents of every sector.
    #[test]
    fn every_request_through_a_queue_to_a_reordering_device_completes_once(
        (depth, packed) in prop::sample::select(vec![("1", "0"), ("4", "0"), ("32", "0"), ("1", "8")]),
        steps in prop::collection::vec(any::<Drawn>(), 1..300),
    ) {
        let mut disk = reordering_behind_a_queue(depth, packed);
        let mut now = 0;
        let commands: Vec<_> = steps.iter().map(|(gap, op, place, length)| {
            now += i64::from(*gap % 1000);
            let op = match op { 0..=150 => Op::Write, 151..=225 => Op::Read, 226..=240 => Op::Discard, _ => Op::Flush };
            let sectors = if op == Op::Flush { 0 } else { u32::from(length % 4 + 1) * 8 };
            command(now, op, u64::from(*place % 300) * 8, sectors)
        }).collect();
        let mut known = drive(&mut disk, &commands);
        known.sort_by_key(|event| event.id);
        prop_assert_eq!(known.len(), commands.len());
        for (event, command) in known.iter().zip(&commands) {
            prop_assert_eq!((event.op, event.sector, event.sectors), (command.op, command.sector, command.sectors));
            prop_assert_eq!(event.arrival, command.arrival);
            prop_assert!(event.arrival <= event.start && event.start <= event.complete);
        }
    }
}
