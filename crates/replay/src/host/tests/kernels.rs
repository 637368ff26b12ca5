//! The commands into which kernels translate the flags of requests.

use emmclab_device::{CommandFlags, LatencyBreakdown};

use super::*;

const CACHE: (&str, &str) = ("cache.size_kb", "512");

/// Creates the host queue of a kernel, with additional settings, above a device with a cache.
fn kernel(name: &str, settings: &[(&str, &str)]) -> HostQueue {
    host(&[&[("host.kernel", name), CACHE], settings].concat())
}

/// Returns the commands of one request with their flags. The request arrives at time 0, and each command takes 100 ns.
fn commands(host: &mut HostQueue, op: Op, flags: CommandFlags) -> Vec<(Op, CommandFlags)> {
    let (sector, sectors) = if op == Op::Flush { (0, 0) } else { (8, 8) };
    let (mut now, mut out, mut done) = (Nanos(0), Vec::new(), Vec::new());
    let request = DeviceCommand { modifiers: flags, ..DeviceCommand::new(now, op, sector, sectors) };
    host.push(&request, &mut done);
    while let Some(at) = host.ready_at() {
        assert_eq!(at, now, "a command is sent when the previous one is complete");
        let mut sent = Vec::new();
        host.fetch(at, &mut sent);
        let [command] = sent.as_slice() else { panic!("{sent:?} is one command") };
        out.push((command.op, command.modifiers));
        now += Nanos(100);
        let waits = LatencyBreakdown { array: Nanos(100), ..LatencyBreakdown::default() };
        let event = RequestCompleted { waits, ..completed(command, out.len() as u64 - 1, now) };
        host.completed(&event, &mut done);
    }
    let [done] = done.as_slice() else { panic!("{done:?} is one request") };
    assert_eq!((done.op, done.sector, done.sectors), (op, sector, sectors));
    assert_eq!((done.complete, done.waits.total(), done.subrequests), (now, now, out.len() as u32));
    out
}

const NONE: CommandFlags = CommandFlags::empty();
const RELIABLE: CommandFlags = CommandFlags::RELIABLE;
const COMMIT: CommandFlags = CommandFlags::PREFLUSH.union(CommandFlags::RELIABLE);

#[test]
fn a_commit_is_a_flush_and_a_reliable_write_where_fua_is_one() {
    for name in ["linux_3.10", "linux_4.9", "linux_5.10"] {
        let sent = commands(&mut kernel(name, &[]), Op::Write, COMMIT);
        assert_eq!(sent, [(Op::Flush, NONE), (Op::Write, RELIABLE)], "{name}");
    }
    let flushed = [(Op::Flush, NONE), (Op::Write, NONE), (Op::Flush, NONE)];
    assert_eq!(commands(&mut kernel("linux_no_fua", &[]), Op::Write, COMMIT), flushed);
    let without = [("features.reliable_write", "false")];
    assert_eq!(commands(&mut kernel("linux_5.10", &without), Op::Write, COMMIT), flushed);
}

#[test]
fn a_vendor_kernel_sends_a_barrier_before_a_commit_unless_the_cache_keeps_order() {
    let sent = |settings: &[(&str, &str)], flags| commands(&mut kernel("vendor_barrier", settings), Op::Write, flags);
    assert_eq!(sent(&[], COMMIT), [(Op::Flush, CommandFlags::BARRIER), (Op::Write, RELIABLE)]);
    assert_eq!(sent(&[("cache.policy", "fifo")], COMMIT), [(Op::Write, RELIABLE)]);
    assert_eq!(sent(&[("features.barrier", "false")], COMMIT), [(Op::Flush, NONE), (Op::Write, RELIABLE)]);
    // The completion of a write with preflush but without FUA promises that earlier data is durable. A barrier only sets an order.
    assert_eq!(sent(&[], CommandFlags::PREFLUSH), [(Op::Flush, NONE), (Op::Write, NONE)]);
}

#[test]
fn metadata_went_by_reliable_write_until_4_4() {
    let sent = |name| commands(&mut kernel(name, &[]), Op::Write, CommandFlags::META);
    assert_eq!(sent("linux_3.10"), [(Op::Write, CommandFlags::META.union(RELIABLE))]);
    assert_eq!(sent("linux_4.9"), [(Op::Write, CommandFlags::META)]);
    let mut host = kernel("linux_3.10", &[]);
    assert_eq!(commands(&mut host, Op::Read, CommandFlags::META), [(Op::Read, CommandFlags::META)]);
    assert_eq!(host.counts().driver.unwrap().reliable_writes, 0);
}

#[test]
fn a_flush_of_a_device_without_a_cache_needs_no_command() {
    let mut host = host(&[("host.kernel", "linux_5.10")]);
    assert_eq!(commands(&mut host, Op::Flush, NONE), []);
    assert_eq!(commands(&mut host, Op::Write, COMMIT), [(Op::Write, RELIABLE)]);
    assert_eq!(host.counts().driver.unwrap().without_command, 1);
}

#[test]
fn only_old_kernels_pack_and_up_to_what_the_device_takes() {
    let entries = |name, settings: &[(&str, &str)]| {
        let mut host = kernel(name, settings);
        push_all(&mut host, &std::array::from_fn::<_, 9, _>(|i| (Op::Write, 1000 * i as u64)));
        fetch(&mut host, 9).len()
    };
    assert_eq!((entries("linux_3.10", &[]), entries("linux_5.10", &[])), (9, 1));
    assert_eq!(entries("linux_4.9", &[("features.packed_writes", "4")]), 4);
    assert_eq!(entries("linux_4.9", &[("host.packed_writes", "2")]), 2);
    assert_eq!(entries("vendor_barrier", &[("controller.queue_depth", "2")]), 1);
}

#[test]
fn reliable_writes_are_entries_of_a_pack_and_a_flush_ends_one() {
    let mut host = kernel("linux_4.9", &[]);
    let write = |at, flags| DeviceCommand { modifiers: flags, ..DeviceCommand::new(Nanos(at), Op::Write, at as u64 * 800, 8) };
    let mut done = Vec::new();
    for (at, flags) in [(0, NONE), (1, RELIABLE), (2, COMMIT), (3, NONE)] {
        host.push(&write(at, flags), &mut done);
    }
    assert_eq!(fetch(&mut host, 9).len(), 2, "each entry has its own CMD23 argument");
    assert_eq!(fetch(&mut host, 9), [(Op::Flush, 0, 0)]);
}

#[test]
fn what_follows_a_command_waits_for_it_and_holds_up_no_request_that_came_before() {
    let mut host = kernel("linux_no_fua", &[("controller.queue_depth", "2")]);
    let mut done = Vec::new();
    let fua = DeviceCommand { modifiers: RELIABLE, ..DeviceCommand::new(Nanos(0), Op::Write, 8, 8) };
    host.push(&fua, &mut done);
    assert_eq!(fetch(&mut host, 0), [(Op::Write, 4, 4)]);
    // The completion is already reported here, but its time (500 ns) is in the future.
    host.completed(&write_completed(0, 0, 500), &mut done);
    push(&mut host, 100, Op::Read, 1000, 4);
    assert_eq!(host.ready_at(), Some(Nanos(100)));
    assert_eq!(fetch(&mut host, 100), [(Op::Read, 1000, 4)]);
    assert_eq!((host.ready_at(), done.len()), (Some(Nanos(500)), 0));
    assert_eq!(fetch(&mut host, 500), [(Op::Flush, 0, 0)]);
}
