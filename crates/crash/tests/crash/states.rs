//! The states of a cut are those that the contract allows. If the device keeps the contract, its own state is among them.

use std::sync::Arc;

use crate::support::{ALL_WAYS, CHOSEN_WAYS, Toy, disk_in, disks, explorer, filled, header, position};
use emmclab_base::{Op, SECTOR_BYTES};
use emmclab_crash::log::{CommandPort, CrashLogHeader};
use emmclab_crash::{ChoiceMethod, CrashLogIndex, ExploreOptions, Explorer, HostView, RecoveryReadCache, RunEvent, TearMode};
use emmclab_device::CommandFlags;
use proptest::collection::vec;
use proptest::prelude::*;

const BLOCKS: u64 = 6;

/// A step of the host of the toy device.
#[derive(Clone, Copy, Debug)]
enum Step {
    Write(u64),
    Durable(u64),
    Flush,
    Discard(u64),
    /// The device writes a block from the cache to the cells.
    WriteBack(u64),
    Complete,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..BLOCKS).prop_map(Step::Write),
        1 => (0..BLOCKS).prop_map(Step::Durable),
        1 => Just(Step::Flush),
        1 => (0..BLOCKS).prop_map(Step::Discard),
        3 => (0..BLOCKS).prop_map(Step::WriteBack),
        4 => Just(Step::Complete),
    ]
}

/// Runs the steps on a toy device with a cache. If `lies` is set, the device ignores flushes.
fn run_of(steps: &[Step], lies: bool, path: &std::path::Path) -> Arc<CrashLogIndex> {
    run_on(&header(BLOCKS * 8), steps, lies, path)
}

fn run_on(header: &CrashLogHeader, steps: &[Step], lies: bool, path: &std::path::Path) -> Arc<CrashLogIndex> {
    let mut toy = Toy::new(path, header);
    for (i, step) in steps.iter().enumerate() {
        let byte = i as u8 + 1;
        match *step {
            Step::Write(block) => {
                let number = toy.write(block * 8, byte, CommandFlags::empty());
                toy.cache.insert(block, number);
                toy.open.push_back(number);
            }
            Step::Durable(block) => {
                let number = toy.write(block * 8, byte, CommandFlags::RELIABLE);
                toy.cache.remove(&block);
                toy.programmed(number, block * 8, 8);
                toy.open.push_back(number);
            }
            Step::Flush => {
                let number = toy.flush();
                if !lies {
                    toy.write_back_all();
                }
                toy.open.push_back(number);
            }
            Step::Discard(block) => toy.discard(block, 1),
            Step::WriteBack(block) => toy.write_back(block),
            Step::Complete => toy.complete_next(),
        }
    }
    toy.run(path)
}

/// The header of a log without the contents of the cells, so that steps may write back in any order.
fn without_cells(fifo: bool) -> CrashLogHeader {
    let header = header(BLOCKS * 8);
    let device = emmclab_crash::log::DeviceFacts { fifo, ..header.device };
    CrashLogHeader { cells: false, device, ..header }
}

/// For each block, the bytes that it may contain after a cut at a moment, according to a simple implementation of the contract.
fn allowed(run: &CrashLogIndex, cut: usize) -> Vec<Vec<u8>> {
    let commands = run.commands(CommandPort::Device);
    let byte = |place: u32| {
        let mut data = [0; SECTOR_BYTES as usize];
        run.spool().read(&[commands[place as usize].source], &mut data).unwrap();
        data[0]
    };
    let complete = |place: u32| position(run, RunEvent::Completes(CommandPort::Device, place)).filter(|at| *at <= cut);
    let arrived = |place: u32| position(run, RunEvent::Arrives(CommandPort::Device, place)).unwrap();
    (0..BLOCKS)
        .map(|block| {
            let (mut may, mut ever) = (vec![0], vec![0]);
            for (place, logged) in commands.iter().enumerate() {
                let place = place as u32;
                let touches = logged.command.sector == block * 8 && logged.command.sectors > 0;
                if !touches || arrived(place) > cut {
                    continue;
                }
                let discards = logged.command.op == Op::Discard;
                let durable = complete(place).is_some_and(|own| {
                    let flushed = (0..commands.len() as u32).any(|flush| {
                        commands[flush as usize].command.op == Op::Flush && arrived(flush) > own && complete(flush).is_some()
                    });
                    !discards && (logged.command.modifiers.durable() || flushed)
                });
                if durable {
                    may.clear();
                }
                if discards {
                    // Any older version may reappear.
                    may.extend(&ever);
                } else {
                    ever.push(byte(place));
                    may.push(byte(place));
                }
            }
            may
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(emmclab_testing::cases(96)))]

    #[test]
    fn every_state_is_one_that_a_plain_reading_of_the_contract_allows(steps in vec(step(), 1..40)) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let run = run_of(&steps, false, file.path());
        prop_assume!(!run.moments().is_empty());
        let mut explorer = explorer(&run, ALL_WAYS, TearMode::default());
        while let Some(state) = explorer.next_state() {
            prop_assert!(state.broken.is_empty(), "an honest device breaks {:?} at {}", state.broken, state.cut);
            let disk = disk_in(&explorer, &state, BLOCKS as u32 * 8);
            for (block, may) in allowed(&run, state.cut).iter().enumerate() {
                let present = disk[block * 8 * 512];
                prop_assert!(disk[block * 8 * 512..][..8 * 512].iter().all(|byte| *byte == present));
                prop_assert!(
                    may.contains(&present),
                    "{:?} at cut {}: block {block} holds {present}, may hold {may:?}", state.way, state.cut
                );
            }
        }
        let covered = explorer.covered();
        prop_assert_eq!(covered.cuts, covered.moments);
        prop_assert!(covered.legal_log10 >= (covered.cuts as f64).log10() - 1e-9);
    }

    #[test]
    fn a_state_that_is_pruned_has_the_outcome_that_its_recovery_would_have(
        steps in vec(step(), 1..60),
        most_reads in 1..4_usize,
    ) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let run = run_of(&steps, false, file.path());
        prop_assume!(!run.moments().is_empty());
        let mut explorer = explorer(&run, ALL_WAYS, TearMode::default());
        let (mut known, mut outcomes) = (RecoveryReadCache::default(), Vec::new());
        while let Some(state) = explorer.next_state() {
            let below = run.header().below();
            let host = HostView::recover(explorer.view(&state), (&[], &below), BLOCKS * 8, None).unwrap().unwrap();
            // A recovery whose next block depends on the contents of the previous one.
            let mut buffer = filled(0, 8);
            let (mut reads, mut outcome, mut at) = (Vec::new(), Vec::new(), 0);
            for _ in 0..most_reads {
                host.read(at * 8, &mut buffer).unwrap();
                reads.push(at);
                outcome.push(buffer[0]);
                at = (at + u64::from(buffer[0])) % BLOCKS;
            }
            if let Some(number) = known.outcome("all", &host) {
                prop_assert_eq!(&outcomes[number], &outcome);
                continue;
            }
            known.learn("all", &host, reads, outcomes.len());
            outcomes.push(outcome);
            prop_assert_eq!(known.outcome("all", &host), Some(outcomes.len() - 1));
            prop_assert_eq!(known.outcome("other", &host), None);
        }
    }

    #[test]
    fn of_a_fifo_cache_a_write_is_there_only_with_all_that_was_complete_when_it_came(
        steps in vec(step(), 1..60),
    ) {
        let steps: Vec<Step> = steps.into_iter().filter(|step| !matches!(step, Step::Discard(_))).collect();
        let file = tempfile::NamedTempFile::new().unwrap();
        let run = run_on(&without_cells(true), &steps, false, file.path());
        prop_assume!(!run.moments().is_empty());
        let mut explorer = explorer(&run, CHOSEN_WAYS, TearMode::default());
        let commands = run.commands(CommandPort::Device);
        // Each write has a byte of its own, in ascending order.
        let writes: Vec<(u32, usize, u8)> = (0..).zip(commands).filter(|(_, logged)| logged.command.op == Op::Write)
            .map(|(place, logged)| {
                let mut data = [0; SECTOR_BYTES as usize];
                run.spool().read(&[logged.source], &mut data).unwrap();
                (place, logged.command.sector as usize / 8, data[0])
            }).collect();
        while let Some(state) = explorer.next_state() {
            let disk = disk_in(&explorer, &state, BLOCKS as u32 * 8);
            let there = |block: usize| disk[block * 8 * 512];
            for (place, block, _) in writes.iter().filter(|(_, block, byte)| there(*block) == *byte) {
                let came = position(&run, RunEvent::Arrives(CommandPort::Device, *place)).unwrap();
                for (other, needed, byte) in &writes {
                    let complete = position(&run, RunEvent::Completes(CommandPort::Device, *other));
                    prop_assert!(
                        complete.is_none_or(|complete| complete > came) || there(*needed) >= *byte,
                        "{:?} at cut {}: block {block} holds command {place}, block {needed} lacks {other}",
                        state.way, state.cut,
                    );
                }
            }
        }
    }

    #[test]
    fn garbage_is_only_where_a_write_is_in_flight_that_is_not_reliable(steps in vec(step(), 1..40)) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let run = run_on(&without_cells(false), &steps, false, file.path());
        prop_assume!(!run.moments().is_empty());
        let mut explorer = explorer(&run, CHOSEN_WAYS, TearMode::Inside);
        let commands = run.commands(CommandPort::Device);
        while let Some(state) = explorer.next_state() {
            let disk = disk_in(&explorer, &state, BLOCKS as u32 * 8);
            let allowed = allowed(&run, state.cut);
            let in_flight = |block: usize| (0..).zip(commands).any(|(place, logged)| {
                let happened = |what| position(&run, what).is_some_and(|at| at <= state.cut);
                logged.command.op == Op::Write
                    && !logged.command.modifiers.contains(CommandFlags::RELIABLE)
                    && logged.command.sector as usize == block * 8
                    && happened(RunEvent::Arrives(CommandPort::Device, place))
                    && !happened(RunEvent::Completes(CommandPort::Device, place))
            });
            let mut garbled = 0;
            for (number, sector) in disk.chunks_exact(512).enumerate() {
                if sector.iter().any(|byte| *byte != sector[0]) {
                    garbled += 1;
                    prop_assert!(in_flight(number / 8), "sector {number} is garbled at {}", state.cut);
                } else {
                    prop_assert!(allowed[number / 8].contains(&sector[0]));
                }
            }
            let named = explorer.omitted(&state).into_iter().filter(|write| write.garbled).map(|write| write.sectors);
            prop_assert_eq!(named.sum::<u64>(), garbled);
        }
    }

    #[test]
    fn shares_together_are_the_whole_and_the_same_seed_gives_the_same_states(
        steps in vec(step(), 1..30),
        shares in 2u64..5,
        cuts in 1usize..20,
    ) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let run = run_of(&steps, false, file.path());
        prop_assume!(!run.moments().is_empty());
        let states = |share: (u64, u64)| {
            let options = ExploreOptions { cuts, share, ..ExploreOptions::default() };
            let mut explorer = Explorer::new(&run, &options).unwrap();
            let mut all = Vec::new();
            while let Some(state) = explorer.next_state() {
                all.push((state.index, state.cut, state.number));
            }
            (all, explorer.covered())
        };
        let (whole, covered) = states((0, 1));
        let mut parts = Vec::new();
        for share in 0..shares {
            let (part, same) = states((share, shares));
            prop_assert_eq!(same, covered);
            parts.extend(part);
        }
        parts.sort_unstable();
        prop_assert_eq!(&parts, &whole);
        for (_, cut, number) in whole {
            let only = Some((cut, Some(number)));
            let options = ExploreOptions { cuts, only, ..ExploreOptions::default() };
            let mut explorer = Explorer::new(&run, &options).unwrap();
            let repeated = explorer.next_state().unwrap();
            prop_assert_eq!((repeated.cut, repeated.number), (cut, number));
            prop_assert!(explorer.next_state().is_none());
        }
    }
}

#[test]
fn a_device_that_ignores_flushes_is_caught_by_its_own_state() {
    let steps = [Step::Write(1), Step::Complete, Step::Flush, Step::Complete, Step::Write(2)];
    let file = tempfile::NamedTempFile::new().unwrap();
    for lies in [false, true] {
        let run = run_of(&steps, lies, file.path());
        let mut explorer = explorer(&run, "device", TearMode::default());
        let mut broken = 0;
        while let Some(state) = explorer.next_state() {
            assert_eq!(state.way, ChoiceMethod::Device);
            broken += usize::from(!state.broken.is_empty());
        }
        assert_eq!(broken > 0, lies);
    }
}

#[test]
fn a_write_with_preflush_is_never_there_without_what_was_complete_before() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut toy = Toy::new(file.path(), &header(64));
    toy.write_and_complete(0, 1, CommandFlags::empty());
    toy.write(8, 2, CommandFlags::PREFLUSH | CommandFlags::RELIABLE);
    let run = toy.run(file.path());
    let disks = disks(explorer(&run, "boundary,omit1:99,only1:99,random:99", TearMode::default()), 16);
    let mut seen: Vec<_> = disks.iter().map(|disk| (disk[0], disk[8 * 512])).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, [(0, 0), (1, 0), (1, 2)]);
}

#[test]
fn a_plain_write_in_flight_is_garbled_in_each_way_and_the_same_again_and_a_reliable_one_never() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for (flags, may) in [(CommandFlags::empty(), true), (CommandFlags::FORCED, true), (CommandFlags::RELIABLE, false)] {
        let mut toy = Toy::new(file.path(), &CrashLogHeader { cells: false, ..header(64) });
        toy.write(0, 1, flags);
        let run = toy.run(file.path());
        for way in ["boundary", "omit1:99", "only1", "random:99"] {
            let states = || disks(explorer(&run, way, TearMode::Inside), 8);
            let garbled = states().iter().any(|disk| disk.iter().any(|byte| *byte > 1));
            assert_eq!(garbled, may, "{flags:?} {way}");
            assert_eq!(states(), states());
        }
    }
}
