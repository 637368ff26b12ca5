//! Tests of merging, packing and fetching requests, and of their times.

mod below_layers;
mod kernels;

use emmclab_device::DeviceConfig;

use super::*;

fn host(settings: &[(&str, &str)]) -> HostQueue {
    let mut config = DeviceConfig::preset("nexus5").unwrap();
    config.set("host.fetch_us", "0").unwrap();
    config.set_all(settings).unwrap();
    HostQueue::new(config.settings()).unwrap()
}

fn push(host: &mut HostQueue, at: i64, op: Op, kb_from: u64, kb: u32) {
    host.push(&DeviceCommand::new(Nanos(at), op, kb_from * 2, kb * 2), &mut Vec::new());
}

/// Adds requests of 4 KB that arrive at intervals of 1 ns from time 0: operation and first KB.
fn push_all(host: &mut HostQueue, requests: &[(Op, u64)]) {
    for (at, (op, kb_from)) in (0..).zip(requests) {
        push(host, at, *op, *kb_from, if *op == Op::Flush { 0 } else { 4 });
    }
}

/// Fetched commands as (operation, first KB, length in KB).
fn fetch(host: &mut HostQueue, at: i64) -> Vec<(Op, u64, u32)> {
    let kb = |command: &DeviceCommand| (command.op, command.sector / 2, command.sectors / 2);
    let mut commands = Vec::new();
    host.fetch(Nanos(at), &mut commands);
    commands.iter().map(kb).collect()
}

#[test]
fn neighbours_are_merged_front_and_back_up_to_the_limit() {
    let mut host = host(&[("host.merge_max_kb", "16")]);
    push_all(&mut host, &[(Op::Write, 100), (Op::Write, 104), (Op::Write, 96), (Op::Read, 92)]);
    push(&mut host, 4, Op::Write, 92, 8);
    for command in [(Op::Write, 96, 12), (Op::Read, 92, 4), (Op::Write, 92, 8)] {
        assert_eq!(fetch(&mut host, 9), [command]);
    }
    assert_eq!((host.counts.merged, host.counts.commands, host.counts.packs), (2, 3, 0));
}

#[test]
fn nothing_is_merged_past_a_flush_or_the_same_sectors() {
    let mut host = host(&[("host.merge_max_kb", "512")]);
    push_all(&mut host, &[(Op::Write, 0), (Op::Read, 4), (Op::Write, 4), (Op::Flush, 0), (Op::Write, 8)]);
    assert_eq!(host.counts.merged, 0);
}

#[test]
fn consecutive_writes_are_packed_within_entries_and_size() {
    let mut host = host(&[("host.packed_writes", "3"), ("host.packed_max_kb", "64")]);
    push_all(&mut host, &[0, 1000, 2000, 3000].map(|kb| (Op::Write, kb)));
    push(&mut host, 4, Op::Write, 9000, 64);
    push(&mut host, 5, Op::Read, 0, 4);
    push(&mut host, 6, Op::Read, 8, 4);
    // 64 KB more would be too much, and reads are not packed.
    assert_eq!([9; 4].map(|at| fetch(&mut host, at).len()), [3, 1, 1, 1]);
    assert_eq!(host.counts.packs_by_entries, [0, 0, 0, 1]);
    assert_eq!((host.counts.packs, host.counts.packed_requests), (1, 3));
}

/// Returns the completion of command `id` at `complete`, for a command that starts at its arrival.
fn completed(command: &DeviceCommand, id: u64, complete: Nanos) -> RequestCompleted {
    let waits = LatencyBreakdown::default();
    RequestTiming { start: command.arrival, complete, subrequests: 1, waits }.of_request(command, id)
}

/// The completion of command `id` of 4 KB, sent at `arrival`.
fn write_completed(id: u64, arrival: i64, complete: i64) -> RequestCompleted {
    completed(&DeviceCommand::new(Nanos(arrival), Op::Write, 0, 8), id, Nanos(complete))
}

#[test]
fn one_command_at_a_time_is_fetched_when_the_last_is_complete() {
    let mut host = host(&[("host.packed_writes", "2")]);
    push(&mut host, 5, Op::Write, 0, 4);
    assert_eq!(host.ready_at(), Some(Nanos(5)));
    fetch(&mut host, 5);
    push(&mut host, 7, Op::Write, 0, 4);
    assert_eq!(host.ready_at(), None, "the first completion is unknown");
    let event = write_completed(0, 5, 100);
    let mut requests = Vec::new();
    host.completed(&event, &mut requests);
    assert_eq!(requests, [event]);
    assert_eq!(host.ready_at(), Some(Nanos(100)));
}

#[test]
fn completions_in_any_order_free_the_tags_of_their_commands() {
    let mut host = host(&[("controller.queue_depth", "2"), ("host.merge_max_kb", "8")]);
    push_all(&mut host, &[0, 1000, 2000, 3000, 3004].map(|kb| (Op::Write, kb)));
    let mut requests = Vec::new();
    fetch(&mut host, 0);
    fetch(&mut host, 1);
    assert_eq!(host.ready_at(), None);
    host.completed(&write_completed(1, 1, 50), &mut requests);
    assert_eq!(host.ready_at(), Some(Nanos(50)));
    fetch(&mut host, 50);
    host.completed(&write_completed(0, 0, 70), &mut requests);
    assert_eq!(host.ready_at(), Some(Nanos(70)));
    assert_eq!(fetch(&mut host, 70), [(Op::Write, 3000, 8)]);
    host.completed(&write_completed(3, 70, 90), &mut requests);
    host.completed(&write_completed(2, 50, 95), &mut requests);
    assert_eq!(requests.iter().map(|event| event.id).collect::<Vec<_>>(), [1, 0, 3, 4, 2]);
}

#[test]
fn data_is_widened_to_whole_blocks_and_discards_are_not() {
    let mut config = DeviceConfig::preset("small-1gb").unwrap();
    assert!(BlockAlignment::new(config.settings()).is_none());
    config.set("host.block_kb", "16").unwrap();
    let blocks = BlockAlignment::new(config.settings()).unwrap();
    let whole = |op, sector, sectors| {
        let command = blocks.align(&DeviceCommand::new(Nanos::ZERO, op, sector, sectors));
        (command.sector, command.sectors)
    };
    assert_eq!([(8, 8), (64, 32)].map(|(sector, sectors)| whole(Op::Write, sector, sectors)), [(0, 32), (64, 32)]);
    assert_eq!(whole(Op::Read, 31, 2), (0, 64));
    assert_eq!([whole(Op::Discard, 8, 8), whole(Op::Flush, 0, 0)], [(8, 8), (0, 0)]);
    let end = config.capacity().0 / 512;
    let (first, sectors) = whole(Op::Write, end - 8, 8);
    assert_eq!(first + u64::from(sectors), end);
}
