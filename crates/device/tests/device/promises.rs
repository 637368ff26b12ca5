//! The promises of the contract without a device: cases by hand, and a comparison with a simple model of every sector.

use std::collections::BTreeSet;

use crate::common::command;
use crate::common::contract::Contract;
use emmclab_base::{Nanos, Op, SectorRangeMap};
use emmclab_device::contract::{BrokenPromise, ContractRules, DurabilityOrder, DurabilityPromises, SectorContent, Version};
use emmclab_device::{CommandFlags, DeviceCommand, InterfaceKind};
use proptest::prelude::*;

const CACHED: ContractRules =
    ContractRules { write_through: false, fifo: false, interface: InterfaceKind::Emmc, unit_sectors: 8 };

fn flush(at_us: i64, modifiers: CommandFlags) -> DeviceCommand {
    DeviceCommand { modifiers, ..DeviceCommand::new(Nanos::from_micros(at_us), Op::Flush, 0, 0) }
}

/// A command that is complete on arrival.
fn done(promises: &mut DurabilityPromises, command: &DeviceCommand) -> Version {
    let version = promises.arrived(command);
    promises.completed(version, command.arrival);
    version
}

fn left(runs: &[(u64, u64, SectorContent)]) -> SectorRangeMap<SectorContent> {
    let mut left = SectorRangeMap::default();
    for (first, end, content) in runs {
        left.set(*first, *end, *content);
    }
    left
}

fn held(runs: &[(u64, u64, Version)]) -> SectorRangeMap<SectorContent> {
    left(&runs.iter().map(|(first, end, version)| (*first, *end, SectorContent::Data(*version))).collect::<Vec<_>>())
}

#[test]
fn a_flush_promises_what_was_complete_when_it_came_and_not_when_it_ended() {
    let mut promises = DurabilityPromises::new(CACHED);
    let early = promises.arrived(&command(0, Op::Write, 0, 4));
    let late = promises.arrived(&command(1, Op::Write, 4, 4));
    promises.completed(early, Nanos::from_micros(10));
    let flush = promises.arrived(&flush(10, CommandFlags::empty()));
    promises.completed(late, Nanos::from_micros(11));
    assert_eq!(promises.promised(0), 0);
    promises.completed(flush, Nanos::from_micros(20));
    assert_eq!((promises.promised(0), promises.promised(8)), (early, 0));
    let pending: Vec<_> = promises.pending().map(|extent| (extent.first, extent.version)).collect();
    assert_eq!(pending, [(8, late)]);
    promises.power_off();
    assert_eq!(promises.promised(8), late);
}

#[test]
fn a_gigabyte_that_is_discarded_is_one_range() {
    let mut promises = DurabilityPromises::new(CACHED);
    for i in 0..64 {
        done(&mut promises, &command(i, Op::Write, i as u64 * 8, 4));
    }
    done(&mut promises, &flush(100, CommandFlags::empty()));
    assert_eq!(promises.extents().count(), 64);
    done(&mut promises, &command(101, Op::Discard, 0, 1 << 20));
    assert_eq!((promises.extents().count(), promises.pending().count()), (0, 1));
    assert_eq!((promises.promised(0), promises.base(0)), (0, 1));
    assert_eq!(promises.broken(&SectorRangeMap::default()), None);
}

#[test]
fn a_write_that_nothing_flushed_stays_pending_until_a_newer_one_is_promised() {
    let mut promises = DurabilityPromises::new(CACHED);
    for i in 0..1000 {
        done(&mut promises, &command(i, Op::Write, 0, 4));
        done(&mut promises, &DeviceCommand { modifiers: CommandFlags::RELIABLE, ..command(i, Op::Write, 0, 8) });
    }
    assert_eq!(promises.pending().count(), 0);
    assert_eq!(promises.extents().collect::<Vec<_>>(), [(0, 16, 2000)]);
}

#[test]
fn a_barrier_holds_what_was_complete_before_it_once_something_later_is_there() {
    let mut promises = DurabilityPromises::new(CACHED);
    let before = done(&mut promises, &command(0, Op::Write, 0, 4));
    done(&mut promises, &flush(1, CommandFlags::BARRIER));
    // A second barrier adds no order.
    done(&mut promises, &flush(2, CommandFlags::BARRIER));
    assert_eq!(promises.orders().count(), 1);
    let after = done(&mut promises, &command(3, Op::Write, 4, 4));
    assert_eq!(promises.broken(&held(&[(0, 8, before)])), None);
    assert_eq!(promises.broken(&held(&[(0, 8, before), (8, 16, after)])), None);
    let broken = BrokenPromise { first: 4, end: 8, actual: 0, promised: before };
    assert_eq!(promises.broken(&held(&[(0, 4, before), (8, 16, after)])), Some(broken));
    done(&mut promises, &flush(4, CommandFlags::empty()));
    assert_eq!(promises.orders().count(), 0);
}

#[test]
fn what_a_fifo_cache_leaves_is_a_prefix_of_complete_writes() {
    let mut promises = DurabilityPromises::new(ContractRules { fifo: true, ..CACHED });
    for (at, kb) in [(0, 0), (1, 4), (2, 0)] {
        done(&mut promises, &command(at, Op::Write, kb, 4));
    }
    let allowed = |states: &[(u64, u64, Version)]| promises.broken(&held(states)).is_none();
    assert!(allowed(&[]) && allowed(&[(0, 8, 1)]) && allowed(&[(0, 8, 1), (8, 16, 2)]));
    assert!(allowed(&[(0, 8, 3), (8, 16, 2)]));
    assert!(!allowed(&[(8, 16, 2)]), "write 2 without write 1");
    assert!(!allowed(&[(0, 8, 3)]), "write 3 without write 2");
}

#[test]
fn after_a_secure_erase_no_older_version_returns_and_after_a_discard_any_may() {
    for (op, returns) in [(Op::Discard, true), (Op::SecureErase, false)] {
        let mut promises = DurabilityPromises::new(CACHED);
        done(&mut promises, &DeviceCommand { modifiers: CommandFlags::RELIABLE, ..command(0, Op::Write, 0, 8) });
        let erase = promises.arrived(&DeviceCommand::new(Nanos::from_micros(1), op, 4, 12));
        let old = held(&[(0, 16, 1)]);
        assert_eq!(promises.broken(&old), None, "it may not have begun");
        assert_eq!(
            promises.broken(&left(&[(0, 8, SectorContent::Data(1)), (8, 16, SectorContent::Nothing(erase))])),
            None,
            "or be at work"
        );
        promises.completed(erase, Nanos::from_micros(2));
        let broken = BrokenPromise { first: 8, end: 16, actual: 1, promised: erase };
        assert_eq!(promises.broken(&old), (!returns).then_some(broken), "{op:?}");
        assert_eq!(promises.broken(&left(&[(0, 8, SectorContent::Data(1)), (8, 16, SectorContent::Nothing(erase))])), None);
        let newer = done(&mut promises, &command(3, Op::Write, 4, 4));
        assert_eq!(promises.broken(&held(&[(0, 8, 1), (8, 16, newer)])), None);
    }
}

const SECTORS: usize = 48;

/// Sectors with the versions that orders require.
fn owed(promises: &DurabilityPromises, orders: impl Iterator<Item = DurabilityOrder>) -> BTreeSet<(u64, Version)> {
    let extents = orders.flat_map(|order| promises.required_sectors(&order).collect::<Vec<_>>());
    extents.flat_map(|(first, end, version)| (first..end).map(move |sector| (sector, version))).collect()
}

#[test]
fn undefined_data_is_left_by_plain_and_forced_writes_until_they_are_complete_and_by_nothing_else() {
    let mut promises = DurabilityPromises::new(CACHED);
    let with = |op, modifiers| DeviceCommand { modifiers, ..command(0, op, 0, 4) };
    for (command, undefined) in [
        (with(Op::Write, CommandFlags::empty()), true),
        (with(Op::Write, CommandFlags::FORCED), true),
        (with(Op::Write, CommandFlags::PREFLUSH), true),
        (with(Op::Write, CommandFlags::RELIABLE), false),
        (with(Op::Discard, CommandFlags::empty()), false),
        (with(Op::SecureErase, CommandFlags::empty()), false),
        (with(Op::Read, CommandFlags::empty()), false),
    ] {
        let version = promises.arrived(&command);
        assert_eq!(promises.leaves_undefined(version), undefined, "{command:?}");
        promises.completed(version, Nanos::from_micros(1));
        assert!(!promises.leaves_undefined(version), "{command:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(400), ..ProptestConfig::default() })]

    #[test]
    fn promises_in_ranges_are_those_of_every_sector(
        (write_through, fifo, interface) in prop::sample::select(vec![
            (true, false, InterfaceKind::Emmc),
            (false, false, InterfaceKind::Emmc),
            (false, true, InterfaceKind::Emmc),
            (true, false, InterfaceKind::Ufs),
            (false, false, InterfaceKind::Ufs),
        ]),
        unit_sectors in prop::sample::select(vec![1u32, 8]),
        // Whether completions are reported at their time, or directly after the arrival with a future time.
        known in any::<bool>(),
        steps in prop::collection::vec((any::<u8>(), 0..SECTORS as u64, 1u64..20, any::<u8>(), any::<u8>()), 1..60),
        states in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), SECTORS), 60),
    ) {
        let rules = ContractRules { write_through, fifo, interface, unit_sectors };
        let ufs = interface == InterfaceKind::Ufs;
        let mut promises = DurabilityPromises::new(rules);
        let mut model = Contract::new(rules);
        let mut in_flight: Vec<Version> = Vec::new();
        let mut now = 0;
        for ((kind, place, length, modifiers, later), state) in steps.into_iter().zip(states) {
            now += 10;
            if kind < 90 && !in_flight.is_empty() {
                let version = in_flight.remove(usize::from(later) % in_flight.len());
                promises.completed(version, Nanos(now));
                model.commands[version as usize - 1].1 = Some(Nanos(now));
            } else {
                let op = [Op::Write, Op::Write, Op::Write, Op::Write, Op::Flush, Op::Discard, Op::SecureErase, Op::Read]
                    [usize::from(kind) % 8];
                let modifiers = match (op, modifiers % 8) {
                    (Op::Write, 0) => CommandFlags::RELIABLE,
                    (Op::Write, 1) => CommandFlags::PREFLUSH,
                    (Op::Flush, 0..=4) if !ufs => CommandFlags::BARRIER,
                    _ => CommandFlags::empty(),
                };
                let length = length.min(SECTORS as u64 - place) as u32;
                let ranged = ufs && later % 2 == 0;
                let (sector, length) = if op == Op::Flush && !ranged { (0, 0) } else { (place, length) };
                let command = DeviceCommand { modifiers, ..DeviceCommand::new(Nanos(now), op, sector, length) };
                let packed = write_through && !ufs && op == Op::Write && later % 4 == 0;
                let entries = if packed { vec![command; 3] } else { vec![command] };
                let versions = if packed {
                    promises.arrived_packed(&entries)
                } else {
                    let version = promises.arrived(&command);
                    version..version + 1
                };
                if packed {
                    model.packs.push(versions.clone());
                }
                for (version, command) in versions.zip(&entries) {
                    let complete = known.then_some(Nanos(now + i64::from(later)));
                    model.commands.push((*command, complete));
                    match complete {
                        Some(complete) => promises.completed(version, complete),
                        None => in_flight.push(version),
                    }
                }
            }
            // Completions that are known in advance count at once.
            let at = if known { Nanos::MAX } else { Nanos(now) };
            let promised: Vec<_> = (0..SECTORS as u64).map(|sector| model.promised(sector, at)).collect();
            let found: Vec<_> = (0..SECTORS as u64).map(|sector| promises.promised(sector)).collect();
            prop_assert_eq!(&found, &promised);
            for version in 1..promises.next_version() {
                let all = promises.orders().filter(|order| order.after.contains(&version));
                prop_assert_eq!(owed(&promises, promises.orders_of(version)), owed(&promises, all));
                let barriers = promises.orders().filter(|order| order.complete_by.is_some());
                let needed = promises.prerequisites().filter(|(.., with)| *with <= version);
                let needed = needed.flat_map(|(first, end, needed, _)| (first..end).map(move |at| (at, needed)));
                let before = barriers.filter(|order| order.after.contains(&version));
                prop_assert_eq!(needed.collect::<BTreeSet<_>>(), owed(&promises, before));
            }
            // Contents close to the promises, in which some sectors may be too old.
            let next = promises.next_version() as usize;
            let found = |(sector, index): (usize, &prop::sample::Index)| {
                let version = index.index(next * 2) as Version;
                if version < next as Version { version } else { promised[sector] }
            };
            let versions: Vec<Version> = state.iter().enumerate().map(found).collect();
            for versions in [&versions, &promised] {
                let content = |version: &Version| match *version {
                    0 => None,
                    version if model.erases(version) => Some(SectorContent::Nothing(version)),
                    version => Some(SectorContent::Data(version)),
                };
                let sectors: Vec<_> = versions.iter().map(content).collect();
                let mut left = SectorRangeMap::default();
                for (sector, content) in (0..).zip(&sectors) {
                    left.update(sector, sector + 1, |_| *content);
                }
                let broken = promises.broken(&left).map(|broken| broken.first);
                prop_assert_eq!(broken, model.broken(&sectors, at), "{:?}", versions);
            }
            // All unpromised writes are listed in sectors without a newer promise. Apart from them, only commands that revoked promises are
            // listed.
            let mut pending = vec![Vec::new(); SECTORS];
            for extent in promises.pending() {
                let (command, complete) = model.commands[extent.version as usize - 1];
                prop_assert_eq!((extent.op, extent.complete), (command.op, complete));
                (extent.first..extent.end).for_each(|sector| pending[sector as usize].push(extent.version));
            }
            for (sector, listed) in (0..).zip(&pending) {
                let base = promises.base(sector);
                let open = (1..).zip(&model.commands).filter(|(version, (command, _))| {
                    let covers = (command.sector..command.sector + u64::from(command.sectors)).contains(&sector);
                    *version > base && command.op == Op::Write && covers
                });
                let open = open.map(|(version, _)| version);
                let taken = Some(model.taken(sector, at)).filter(|taken| *taken > base);
                let mut expected: Vec<Version> = open.chain(taken).collect();
                expected.sort_unstable();
                prop_assert_eq!(listed, &expected, "sector {}", sector);
            }
            let versions: Vec<_> = promises.pending().map(|extent| extent.version).collect();
            prop_assert!(versions.is_sorted());
        }
    }
}
