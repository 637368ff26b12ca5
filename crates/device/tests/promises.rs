//! The persistence contract at the present, without a device: by hand, and against a plain model that keeps every sector.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use common::command;
use emmclab_base::{Nanos, Op, Ranges};
use emmclab_device::contract::{Broken, Promises, Rules, Version};
use emmclab_device::{Command, Modifiers};
use proptest::prelude::*;

const CACHED: Rules = Rules { write_through: false, fifo: false, unit_sectors: 8 };

fn flush(at_us: i64, modifiers: Modifiers) -> Command {
    Command { modifiers, ..Command::new(Nanos::from_micros(at_us), Op::Flush, 0, 0) }
}

/// A command that is complete at once.
fn done(promises: &mut Promises, command: &Command) -> Version {
    let version = promises.arrived(command);
    promises.completed(version, command.arrival);
    version
}

fn held(runs: &[(u64, u64, Version)]) -> Ranges<Version> {
    let mut held = Ranges::default();
    runs.iter().for_each(|(first, end, version)| held.set(*first, *end, *version));
    held
}

#[test]
fn a_flush_promises_what_was_complete_when_it_came_and_not_when_it_ended() {
    let mut promises = Promises::new(CACHED);
    let early = promises.arrived(&command(0, Op::Write, 0, 4));
    let late = promises.arrived(&command(1, Op::Write, 4, 4));
    promises.completed(early, Nanos::from_micros(10));
    let flush = promises.arrived(&flush(10, Modifiers::empty()));
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
    let mut promises = Promises::new(CACHED);
    for i in 0..64 {
        done(&mut promises, &command(i, Op::Write, i as u64 * 8, 4));
    }
    done(&mut promises, &flush(100, Modifiers::empty()));
    assert_eq!(promises.extents().count(), 64);
    done(&mut promises, &command(101, Op::Discard, 0, 1 << 20));
    assert_eq!((promises.extents().count(), promises.pending().count()), (0, 1));
    assert_eq!((promises.promised(0), promises.base(0)), (0, 1));
    assert_eq!(promises.broken(&Ranges::default()), None);
}

#[test]
fn a_write_that_nothing_flushed_stays_pending_until_a_newer_one_is_promised() {
    let mut promises = Promises::new(CACHED);
    for i in 0..1000 {
        done(&mut promises, &command(i, Op::Write, 0, 4));
        done(&mut promises, &Command { modifiers: Modifiers::RELIABLE, ..command(i, Op::Write, 0, 8) });
    }
    assert_eq!(promises.pending().count(), 0);
    assert_eq!(promises.extents().collect::<Vec<_>>(), [(0, 16, 2000)]);
}

#[test]
fn a_barrier_holds_what_was_complete_before_it_once_something_later_is_there() {
    let mut promises = Promises::new(CACHED);
    let before = done(&mut promises, &command(0, Op::Write, 0, 4));
    done(&mut promises, &flush(1, Modifiers::BARRIER));
    // Nothing more stands before a second one.
    done(&mut promises, &flush(2, Modifiers::BARRIER));
    assert_eq!(promises.orders().count(), 1);
    let after = done(&mut promises, &command(3, Op::Write, 4, 4));
    assert_eq!(promises.broken(&held(&[(0, 8, before)])), None);
    assert_eq!(promises.broken(&held(&[(0, 8, before), (8, 16, after)])), None);
    let broken = Broken { first: 4, end: 8, found: 0, promised: before };
    assert_eq!(promises.broken(&held(&[(0, 4, before), (8, 16, after)])), Some(broken));
    done(&mut promises, &flush(4, Modifiers::empty()));
    assert_eq!(promises.orders().count(), 0);
}

#[test]
fn what_a_fifo_cache_leaves_is_a_prefix_of_complete_writes() {
    let mut promises = Promises::new(Rules { fifo: true, ..CACHED });
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
        let mut promises = Promises::new(CACHED);
        done(&mut promises, &Command { modifiers: Modifiers::RELIABLE, ..command(0, Op::Write, 0, 8) });
        let erase = promises.arrived(&Command::new(Nanos::from_micros(1), op, 4, 12));
        let old = held(&[(0, 16, 1)]);
        assert_eq!(promises.broken(&old), None, "it may not have begun");
        assert_eq!(promises.broken(&held(&[(0, 8, 1), (8, 16, erase)])), None, "or be at work");
        promises.completed(erase, Nanos::from_micros(2));
        let broken = Broken { first: 8, end: 16, found: 1, promised: erase };
        assert_eq!(promises.broken(&old), (!returns).then_some(broken), "{op:?}");
        assert_eq!(promises.broken(&held(&[(0, 8, 1), (8, 16, erase)])), None);
        let newer = done(&mut promises, &command(3, Op::Write, 4, 4));
        assert_eq!(promises.broken(&held(&[(0, 8, 1), (8, 16, newer)])), None);
    }
}

/// The contract word by word: every sector, every write, every order is kept.
#[derive(Default)]
struct Model {
    promised: Vec<Version>,
    /// By sector: writes that a flush may promise, and when they were complete.
    plain: Vec<Vec<(Version, Option<Nanos>)>>,
    /// By sector: the newest command that took promises back.
    taken: Vec<Version>,
    /// Where any of these versions is there, these sectors hold at least these versions.
    orders: Vec<(std::ops::Range<Version>, Vec<(usize, Version)>)>,
}

impl Model {
    fn arrive(&mut self, command: &Command, version: Version, rules: Rules) {
        let (first, end) = (command.sector, command.sector + u64::from(command.sectors));
        match command.op {
            Op::Write => {
                if rules.fifo {
                    let before = self.complete_by(command.arrival);
                    self.orders.push((version..Version::MAX, before));
                }
                (first..end).for_each(|sector| self.plain[sector as usize].push((version, None)));
            }
            Op::Discard | Op::SecureErase => {
                for sector in self.whole_units(first, end, rules) {
                    self.promised[sector] = 0;
                    self.taken[sector] = version;
                    self.plain[sector].clear();
                    self.orders.iter_mut().for_each(|(_, before)| before.retain(|(at, _)| *at != sector));
                }
            }
            Op::Flush if command.modifiers.contains(Modifiers::BARRIER) => {
                let before = self.complete_by(command.arrival);
                self.orders.push((version + 1..Version::MAX, before));
            }
            Op::Flush | Op::Read => {}
        }
    }

    fn whole_units(&self, first: u64, end: u64, rules: Rules) -> Vec<usize> {
        let unit = u64::from(rules.unit_sectors);
        let whole = |sector: &u64| sector / unit * unit >= first && sector / unit * unit + unit <= end;
        (first..end).filter(whole).map(|sector| sector as usize).collect()
    }

    fn complete_by(&self, at: Nanos) -> Vec<(usize, Version)> {
        let by = |complete: Option<Nanos>| complete.is_some_and(|complete| complete <= at);
        let sectors = self.plain.iter().enumerate();
        let writes = sectors.flat_map(|(sector, writes)| writes.iter().map(move |write| (sector, *write)));
        writes.filter(|(_, (_, complete))| by(*complete)).map(|(sector, (v, _))| (sector, v)).collect()
    }

    fn promise(&mut self, sector: usize, version: Version) {
        if version >= self.taken[sector] {
            self.promised[sector] = self.promised[sector].max(version);
        }
    }

    fn flush(&mut self, came: Nanos) {
        for (sector, version) in self.complete_by(came) {
            self.promise(sector, version);
        }
    }

    fn complete(&mut self, command: &Command, version: Version, at: Nanos, rules: Rules) {
        let (first, end) = (command.sector, command.sector + u64::from(command.sectors));
        match command.op {
            Op::Write => {
                if command.modifiers.contains(Modifiers::PREFLUSH) {
                    self.flush(command.arrival);
                }
                for sector in first as usize..end as usize {
                    if rules.write_through || command.modifiers.durable() {
                        self.promise(sector, version);
                    }
                    for (write, complete) in &mut self.plain[sector] {
                        if *write == version {
                            *complete = Some(at);
                        }
                    }
                }
            }
            Op::Flush if !command.modifiers.contains(Modifiers::BARRIER) => self.flush(command.arrival),
            Op::SecureErase => {
                for sector in self.whole_units(first, end, rules) {
                    self.promise(sector, version);
                }
            }
            Op::Flush | Op::Read | Op::Discard => {}
        }
    }

    fn broken(&self, held: &[Version]) -> Option<usize> {
        let promised = (0..held.len()).filter(|sector| held[*sector] < self.promised[*sector]);
        let holds =
            self.orders.iter().filter(|(after, _)| held.iter().any(|version| after.contains(version)));
        let ordered = holds.flat_map(|(_, before)| before);
        let ordered = ordered.filter(|(sector, version)| held[*sector] < *version).map(|(sector, _)| *sector);
        promised.chain(ordered).min()
    }
}

const SECTORS: usize = 48;

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn promises_in_ranges_are_those_of_every_sector(
        (write_through, fifo) in prop::sample::select(vec![(true, false), (false, false), (false, true)]),
        unit_sectors in prop::sample::select(vec![1u32, 8]),
        // Completions as they come, or right after the arrival with the time to come.
        known in any::<bool>(),
        steps in prop::collection::vec((any::<u8>(), 0..SECTORS as u64, 1u64..20, any::<u8>(), any::<u8>()), 1..60),
        states in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), SECTORS), 60),
    ) {
        let rules = Rules { write_through, fifo, unit_sectors };
        let mut promises = Promises::new(rules);
        let mut model = Model {
            promised: vec![0; SECTORS],
            plain: vec![Vec::new(); SECTORS],
            taken: vec![0; SECTORS],
            orders: Vec::new(),
        };
        let mut in_flight: Vec<(Version, Command)> = Vec::new();
        let mut now = 0;
        for ((kind, place, length, modifiers, later), state) in steps.into_iter().zip(states) {
            now += 10;
            if kind < 90 && !in_flight.is_empty() {
                let (version, command) = in_flight.remove(usize::from(later) % in_flight.len());
                promises.completed(version, Nanos(now));
                model.complete(&command, version, Nanos(now), rules);
            } else {
                let op = [Op::Write, Op::Write, Op::Write, Op::Write, Op::Flush, Op::Discard, Op::SecureErase, Op::Read]
                    [usize::from(kind) % 8];
                let modifiers = match (op, modifiers % 8) {
                    (Op::Write, 0) => Modifiers::RELIABLE,
                    (Op::Write, 1) => Modifiers::PREFLUSH,
                    (Op::Flush, 0..=4) => Modifiers::BARRIER,
                    _ => Modifiers::empty(),
                };
                let length = length.min(SECTORS as u64 - place) as u32;
                let (sector, length) = if op == Op::Flush { (0, 0) } else { (place, length) };
                let command = Command { modifiers, ..Command::new(Nanos(now), op, sector, length) };
                let packed = write_through && op == Op::Write && later % 4 == 0;
                let entries = if packed { vec![command; 3] } else { vec![command] };
                let versions = if packed {
                    promises.arrived_packed(&entries)
                } else {
                    let version = promises.arrived(&command);
                    version..version + 1
                };
                for (version, command) in versions.clone().zip(&entries) {
                    model.arrive(command, version, rules);
                    if packed {
                        let sectors = command.sector as usize..(command.sector + u64::from(command.sectors)) as usize;
                        let before = (versions.start..version)
                            .flat_map(|earlier| sectors.clone().map(move |sector| (sector, earlier)));
                        model.orders.push((version..versions.end, before.collect()));
                    }
                    if known {
                        let complete = Nanos(now + i64::from(later));
                        promises.completed(version, complete);
                        model.complete(command, version, complete, rules);
                    } else {
                        in_flight.push((version, *command));
                    }
                }
            }
            for sector in 0..SECTORS {
                prop_assert_eq!(promises.promised(sector as u64), model.promised[sector], "sector {}", sector);
            }
            // A state near the promises, some sectors of which may be too old.
            let next = promises.next_version() as usize;
            let found = |(sector, index): (usize, &prop::sample::Index)| {
                let version = index.index(next * 2) as Version;
                if version < next as Version { version } else { model.promised[sector] }
            };
            let versions: Vec<Version> = state.iter().enumerate().map(found).collect();
            for versions in [&versions, &model.promised] {
                let mut held = Ranges::default();
                for (sector, version) in (0..).zip(versions) {
                    held.set(sector, sector + 1, *version);
                }
                let broken = promises.broken(&held).map(|broken| broken.first as usize);
                prop_assert_eq!(broken, model.broken(versions), "{:?}", versions);
            }
            for extent in promises.pending() {
                let sectors = extent.first as usize..extent.end as usize;
                for sector in sectors {
                    prop_assert!(extent.version > promises.base(sector as u64));
                    if extent.op == Op::Write && extent.version > model.taken[sector] {
                        prop_assert!(model.plain[sector].contains(&(extent.version, extent.complete)));
                    }
                }
            }
            for (sector, plain) in (0..).zip(&model.plain) {
                let open = plain.iter().filter(|(version, _)| *version > promises.base(sector));
                for (version, _) in open {
                    let listed = |extent: &emmclab_device::contract::Extent| {
                        extent.version == *version && (extent.first..extent.end).contains(&sector)
                    };
                    prop_assert!(promises.pending().any(|extent| listed(&extent)), "{} at {}", version, sector);
                }
            }
            let versions: Vec<_> = promises.pending().map(|extent| extent.version).collect();
            prop_assert!(versions.is_sorted());
        }
    }
}
