//! The persistence contract, held against the flash after any stream of commands and a cut at any moment.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use common::{command, config};
use emmclab_base::{Nanos, Op};
use emmclab_device::checker::Checker;
use emmclab_device::persistence::Persistence;
use emmclab_device::{Command, Device, DeviceConfig, Modifiers};
use proptest::prelude::*;

fn cached(settings: &[(&str, &str)]) -> DeviceConfig {
    let mut all = vec![("cache.size_kb", "64"), ("cache.write_back", "when_full")];
    all.extend_from_slice(settings);
    config(&all)
}

/// Runs commands on a new device; gives the completion of each.
fn run(config: &DeviceConfig, commands: &[Command]) -> (Persistence, Vec<Nanos>) {
    let mut device = Device::new(config);
    let mut persistence = Persistence::of(&device);
    let mut completions = Vec::new();
    for command in commands {
        persistence.expect(command);
        completions.push(device.submit(command, &mut persistence).unwrap().unwrap());
    }
    (persistence, completions)
}

fn with(modifiers: Modifiers, command: Command) -> Command {
    Command { modifiers, ..command }
}

const MOMENT: Nanos = Nanos(1);

#[test]
fn a_plain_write_in_the_cache_is_lost_and_nothing_was_promised() {
    let (persistence, _) = run(&cached(&[]), &[command(0, Op::Write, 0, 4)]);
    assert_eq!((persistence.promised(0, Nanos::MAX), persistence.survives(0, Nanos::MAX)), (0, 0));
}

#[test]
fn without_a_cache_completion_is_the_promise() {
    let (persistence, done) = run(&config(&[]), &[command(0, Op::Write, 0, 4)]);
    assert_eq!((persistence.promised(0, done[0]), persistence.survives(0, done[0])), (1, 1));
    assert_eq!(
        (persistence.promised(0, done[0] - MOMENT), persistence.survives(0, done[0] - MOMENT)),
        (0, 0)
    );
    let transferred = config(&[("timing.write_complete", "transferred")]);
    let (persistence, done) = run(&transferred, &[command(0, Op::Write, 0, 4)]);
    assert_eq!((persistence.promised(0, done[0]), persistence.survives(0, done[0])), (0, 0));
}

#[test]
fn a_flush_promises_what_was_complete_when_it_came() {
    let flush = Command::new(Nanos::from_micros(50), Op::Flush, 0, 0);
    let (persistence, done) = run(&cached(&[]), &[command(0, Op::Write, 0, 4), flush]);
    assert_eq!(persistence.promised(0, done[1] - MOMENT), 0);
    assert_eq!((persistence.promised(0, done[1]), persistence.survives(0, done[1])), (1, 1));
    assert!(done[1] - flush.arrival >= Nanos::from_millis(1), "the flush waits for the program");
}

#[test]
fn reliable_and_forced_writes_are_durable_on_completion_and_plain_ones_around_them_not() {
    for modifiers in [Modifiers::RELIABLE, Modifiers::FORCED] {
        let commands = [
            command(0, Op::Write, 0, 4),
            with(modifiers, command(10, Op::Write, 4, 4)),
            // Over data that is still in the cache.
            with(modifiers, command(2000, Op::Write, 0, 2)),
        ];
        let (persistence, done) = run(&cached(&[]), &commands);
        assert_eq!((persistence.promised(8, done[1]), persistence.survives(8, done[1])), (2, 2));
        assert_eq!((persistence.promised(0, done[1]), persistence.survives(0, done[1])), (0, 0));
        assert_eq!((persistence.promised(0, done[2]), persistence.survives(0, done[2])), (3, 3));
        assert_eq!(persistence.survives(4, done[2]), 1, "the old data of the unit went first");
        assert_eq!(persistence.broken(Nanos::MAX), None);
    }
}

#[test]
fn a_barrier_keeps_order_without_waiting() {
    let barrier = with(Modifiers::BARRIER, Command::new(Nanos::from_micros(10), Op::Flush, 0, 0));
    let mut commands = vec![command(0, Op::Write, 0, 16), barrier];
    // 64 KB more than fit: something has to leave.
    commands.extend((0u32..16).map(|i| command(20 + i64::from(i), Op::Write, 32 + u64::from(i) * 4, 4)));
    let (persistence, done) = run(&cached(&[]), &commands);
    assert!(done[1] - barrier.arrival < Nanos::from_micros(1));
    let early = (0..32).map(|sector| persistence.survives(sector, Nanos::MAX)).min();
    assert_eq!(early, Some(1), "what came before the barrier leaves first");
    assert!((64..192).all(|sector| persistence.survives(sector, Nanos::MAX) == 0));
}

#[test]
fn the_cache_hides_the_program_and_the_flush_pays_it() {
    let slow = config(&[]);
    let (_, without) = run(&slow, &[command(0, Op::Write, 0, 4)]);
    let (_, with) = run(&cached(&[]), &[command(0, Op::Write, 0, 4)]);
    assert_eq!(without[0] - with[0], Nanos::from_millis(1));
}

/// Gap in us, operation, place, length in sectors, modifiers.
type Step = (u16, u8, u16, u8, u8);

fn stream(steps: &[Step], sectors: u64) -> Vec<Command> {
    let mut now = 0;
    steps
        .iter()
        .map(|(gap, op, place, length, modifiers)| {
            now += i64::from(*gap) * 1000;
            let op = match op {
                0..=190 => Op::Write,
                191..=210 => Op::Read,
                211..=225 => Op::Discard,
                _ => Op::Flush,
            };
            let length = u64::from(*length % 40 + 1).min(sectors);
            let sector = u64::from(*place) % (sectors - length + 1);
            let modifiers = match (op, modifiers) {
                (Op::Write, 0..=20) => Modifiers::RELIABLE,
                (Op::Write, 21..=40) => Modifiers::FORCED,
                (Op::Write, 41..=60) => Modifiers::PREFLUSH,
                (Op::Flush, 0..=120) => Modifiers::BARRIER,
                _ => Modifiers::empty(),
            };
            let (sector, length) = if op == Op::Flush { (0, 0) } else { (sector, length as u32) };
            Command { modifiers, ..Command::new(Nanos(now), op, sector, length) }
        })
        .collect()
}

/// Cuts power at and just before each of these completions and each moment that can make a difference.
fn holds_at(persistence: &Persistence, completions: &[Nanos]) -> Result<(), TestCaseError> {
    for cut in completions.iter().copied().chain(persistence.moments()) {
        for at in [cut - MOMENT, cut] {
            prop_assert_eq!(persistence.broken(at), None, "power cut at {}", at);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// Packs of any size, alone and between single writes: entries become durable in order, and together with the rest
    /// of the contract that is tried at every cut.
    #[test]
    fn packs_become_durable_in_order(
        shared in prop::sample::select(vec!["false", "true"]),
        complete in prop::sample::select(vec!["programmed", "transferred"]),
        page_kb in prop::sample::select(vec!["4", "8", "16"]),
        channels in prop::sample::select(vec!["1", "2"]),
        sizes in prop::collection::vec(1usize..9, 1..9),
        steps in prop::collection::vec(any::<Step>(), 1..60),
    ) {
        let config = config(&[
            ("host.packed_writes", "63"),
            ("controller.share_packed_pages", shared),
            ("controller.queue_depth", "1"),
            ("timing.write_complete", complete),
            ("timing.bus_ns_per_byte", "5"),
            ("geometry.channels", channels),
            ("geometry.block_groups.0.page_kb", page_kb),
            ("gc.policy", "greedy"),
            ("capacity.over_provisioning_pct", "250"),
        ]);
        let mut device = Device::new(&config);
        let geometry = device.geometry();
        let sectors = u64::from(geometry.logical_units) * u64::from(geometry.unit_sectors);
        let (mut persistence, mut checker) = (Persistence::of(&device), Checker::of(&device));
        let commands = stream(&steps, sectors);
        let (mut cuts, mut at) = (Vec::new(), 0);
        for size in sizes.iter().cycle() {
            let Some(head) = commands.get(at) else { break };
            let packable = |command: &&Command| command.op == Op::Write && command.modifiers.is_empty();
            let count = commands[at..].iter().take(*size).take_while(packable).count().max(1);
            let pack = &commands[at..at + count];
            let arrival = pack[count - 1].arrival.max(head.arrival);
            let pack: Vec<_> = pack.iter().map(|command| Command { arrival, ..*command }).collect();
            at += count;
            persistence.expect_packed(&pack);
            for command in &pack {
                checker.expect(command);
            }
            let done = device.submit_packed(&pack, &mut (&mut persistence, &mut checker)).unwrap();
            prop_assert!(device.stop().is_none());
            checker.verify(&device).map_err(|error| TestCaseError::fail(error.to_string()))?;
            cuts.extend(done);
        }
        holds_at(&persistence, &cuts)?;
        device.power_off(&mut persistence);
        prop_assert_eq!(persistence.lost(), None);
    }

    /// Every cut that can make a difference is tried: at and just before each program and completion.
    #[test]
    fn what_is_promised_is_there_after_a_cut_at_any_moment(
        kb in prop::sample::select(vec![0u32, 16, 32, 128]),
        policy in prop::sample::select(vec!["fifo", "lru", "block_lru"]),
        write_back in prop::sample::select(vec!["eager", "when_full"]),
        complete in prop::sample::select(vec!["programmed", "transferred"]),
        page_kb in prop::sample::select(vec!["4", "8"]),
        channels in prop::sample::select(vec!["1", "2"]),
        depth in prop::sample::select(vec!["0", "1", "4"]),
        steps in prop::collection::vec(any::<Step>(), 1..60),
    ) {
        let config = config(&[
            ("cache.size_kb", &kb.to_string()),
            ("cache.policy", policy),
            ("cache.write_back", write_back),
            ("timing.write_complete", complete),
            ("timing.bus_ns_per_byte", "5"),
            ("geometry.channels", channels),
            ("geometry.block_groups.0.page_kb", page_kb),
            ("controller.queue_depth", depth),
            ("gc.policy", "greedy"),
            ("capacity.over_provisioning_pct", "250"),
        ]);
        let mut device = Device::new(&config);
        let geometry = device.geometry();
        let sectors = u64::from(geometry.logical_units) * u64::from(geometry.unit_sectors);
        let mut persistence = Persistence::of(&device);
        let mut cuts = Vec::new();
        for command in stream(&steps, sectors) {
            persistence.expect(&command);
            let done = device.submit(&command, &mut persistence).unwrap();
            prop_assert!(device.stop().is_none());
            cuts.extend(done);
        }
        holds_at(&persistence, &cuts)?;
        // In good order nothing is lost.
        device.power_off(&mut persistence);
        prop_assert_eq!(persistence.broken(Nanos::MAX), None);
        prop_assert_eq!(persistence.lost(), None);
    }
}

/// Whether the contract is broken at some moment of a run with a device that tells this lie.
fn is_caught(lie: &str, commands: &[Command]) -> bool {
    let (persistence, done) = run(&cached(&[("cache.lies", lie)]), commands);
    let cuts = done.iter().copied().chain(persistence.moments());
    cuts.into_iter().any(|at| persistence.broken(at).is_some())
}

#[test]
fn a_device_that_lies_breaks_the_contract() {
    let flush = |modifiers| with(modifiers, Command::new(Nanos::from_micros(10), Op::Flush, 0, 0));
    let plain = command(0, Op::Write, 0, 16);
    let flushed = [plain, flush(Modifiers::empty())];
    assert!(is_caught("flush", &flushed) && !is_caught("none", &flushed));
    let reliable = [with(Modifiers::RELIABLE, plain)];
    assert!(is_caught("fua", &reliable) && !is_caught("none", &reliable));
    let mut ordered = vec![plain, flush(Modifiers::BARRIER)];
    ordered.push(with(Modifiers::RELIABLE, command(20, Op::Write, 32, 4)));
    assert!(is_caught("barrier", &ordered) && !is_caught("none", &ordered));
}
