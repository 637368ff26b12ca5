//! The persistence contract, compared with the flash after any commands and a cut at any time.

use emmclab_base::{Nanos, Op};
use emmclab_device::checker::DeviceChecker;
use emmclab_device::contract::{BrokenPromise, ContractRules, SectorContent};
use emmclab_device::persistence::PersistenceTracker;
use emmclab_device::{CacheLie, CommandFlags, Device, DeviceCommand, DeviceConfig, NullObserver, RECENT_MS};
use proptest::prelude::*;

use crate::common::contract::{Contract, Facts};
use crate::common::{Completions, command, config};

fn cached(settings: &[(&str, &str)]) -> DeviceConfig {
    let base = [("cache.size_kb", "64"), ("cache.write_back", "when_full"), ("cache.policy", "lru")];
    config(&[&base, settings].concat())
}

/// Executes commands on a new device. Returns the completion of each.
fn run(config: &DeviceConfig, commands: &[DeviceCommand]) -> (PersistenceTracker, Vec<Nanos>) {
    run_on(&mut Device::new(config), commands)
}

fn run_on(device: &mut Device, commands: &[DeviceCommand]) -> (PersistenceTracker, Vec<Nanos>) {
    let mut persistence = PersistenceTracker::of(device);
    let mut completions = Vec::new();
    for command in commands {
        persistence.expect(command);
        completions.push(device.submit(command, &mut persistence).unwrap().unwrap());
    }
    (persistence, completions)
}

fn with(modifiers: CommandFlags, command: DeviceCommand) -> DeviceCommand {
    DeviceCommand { modifiers, ..command }
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
    assert_eq!((persistence.promised(0, done[0] - MOMENT), persistence.survives(0, done[0] - MOMENT)), (0, 0));
    let transferred = config(&[("timing.write_complete", "transferred")]);
    let (persistence, done) = run(&transferred, &[command(0, Op::Write, 0, 4)]);
    assert_eq!((persistence.promised(0, done[0]), persistence.survives(0, done[0])), (0, 0));
}

#[test]
fn a_flush_promises_what_was_complete_when_it_came() {
    let flush = DeviceCommand::new(Nanos::from_micros(50), Op::Flush, 0, 0);
    let (persistence, done) = run(&cached(&[]), &[command(0, Op::Write, 0, 4), flush]);
    assert_eq!(persistence.promised(0, done[1] - MOMENT), 0);
    assert_eq!((persistence.promised(0, done[1]), persistence.survives(0, done[1])), (1, 1));
    assert!(done[1] - flush.arrival >= Nanos::from_millis(1), "the flush waits for the program");
}

#[test]
fn reliable_and_forced_writes_are_durable_on_completion_and_plain_ones_around_them_not() {
    for modifiers in [CommandFlags::RELIABLE, CommandFlags::FORCED] {
        let commands = [
            command(0, Op::Write, 0, 4),
            with(modifiers, command(10, Op::Write, 4, 4)),
            // Overwrites data that is still in the cache.
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
    let barrier = with(CommandFlags::BARRIER, DeviceCommand::new(Nanos::from_micros(10), Op::Flush, 0, 0));
    let mut commands = vec![command(0, Op::Write, 0, 16), barrier];
    // 64 KB more than the size of the cache, so some data must leave.
    commands.extend((0u32..16).map(|i| command(20 + i64::from(i), Op::Write, 32 + u64::from(i) * 4, 4)));
    let (persistence, done) = run(&cached(&[]), &commands);
    assert!(done[1] - barrier.arrival < Nanos::from_micros(1));
    let early = (0..32).map(|sector| persistence.survives(sector, Nanos::MAX)).min();
    assert_eq!(early, Some(1), "what came before the barrier leaves first");
    assert!((64..192).all(|sector| persistence.survives(sector, Nanos::MAX) == 0));
}

/// A FIFO cache of two pages, above two channels.
fn fifo(settings: &[(&str, &str)]) -> DeviceConfig {
    cached(&[&[("cache.policy", "fifo"), ("cache.size_kb", "8"), ("geometry.channels", "2")], settings].concat())
}

#[test]
fn data_that_is_written_again_leaves_a_fifo_cache_before_its_successor_comes() {
    let writes = [0, 4, 0, 8].map(|kb| command(0, Op::Write, kb, 4));
    let (persistence, _) = run(&fifo(&[]), &writes);
    let there: Vec<_> = [0, 8, 16].map(|sector| persistence.survives(sector, Nanos::MAX)).into();
    assert_eq!(there, [1, 2, 0], "write 3 waits behind write 2");
    // A cache without an order writes the data at its old position.
    let (persistence, _) = run(&fifo(&[("cache.lies", "barrier")]), &writes);
    assert_eq!([0, 8].map(|sector| persistence.survives(sector, Nanos::MAX)), [3, 0]);
    let broken = BrokenPromise { first: 8, end: 16, actual: 0, promised: 2 };
    assert_eq!(persistence.broken(Nanos::MAX), Some(broken));
}

#[test]
fn data_behind_the_last_in_its_page_joins_it_in_a_fifo_cache() {
    let settings = [("geometry.block_groups.0.page_kb", "8"), ("cache.size_kb", "64")];
    let programs = |places: &[u64]| {
        let mut device = Device::new(&fifo(&settings));
        for kb in places {
            device.submit(&command(0, Op::Write, *kb, 2), &mut NullObserver).unwrap();
        }
        device.power_off(&mut NullObserver);
        device.counters().all_page_programs()
    };
    assert_eq!(programs(&[0, 2, 4, 6]), 1);
    assert_eq!(programs(&[0, 4, 2, 6]), 4, "2 has to wait for 4, and gaps of sectors are not programmed");
    assert_eq!(programs(&[0, 16, 4]), 3, "4 has to wait for 16");
}

#[test]
fn sectors_below_the_last_in_a_unit_wait_in_a_fifo_cache() {
    // The gap between them causes two programs; without an order, the lower sectors would be programmed first.
    let writes = [command(0, Op::Write, 2, 2), command(0, Op::Write, 0, 1), command(10, Op::Flush, 0, 0)];
    let (persistence, _) = run(&fifo(&[]), &writes);
    for at in persistence.moments().flat_map(|at| [at - MOMENT, at]) {
        assert!(persistence.survives(4, at) == 1 || persistence.survives(0, at) == 0, "at {at}");
        assert_eq!(persistence.broken(at), None);
    }
    assert_eq!([0, 4].map(|sector| persistence.survives(sector, Nanos::MAX)), [2, 1]);
}

#[test]
fn a_reliable_write_goes_after_what_a_fifo_cache_holds() {
    let writes = [command(0, Op::Write, 0, 4), with(CommandFlags::RELIABLE, command(1, Op::Write, 8, 4))];
    let (persistence, done) = run(&fifo(&[]), &writes);
    assert_eq!([0, 16].map(|sector| persistence.survives(sector, done[1])), [1, 2]);
    assert_eq!([0, 16].map(|sector| persistence.promised(sector, done[1])), [0, 2]);
    assert_eq!(persistence.broken(done[1]), None);
}

#[test]
fn a_barrier_is_nothing_to_a_fifo_cache() {
    let barrier = with(CommandFlags::BARRIER, DeviceCommand::new(Nanos::from_micros(1), Op::Flush, 0, 0));
    let writes = [0, 4, 8, 12].map(|kb| command(2, Op::Write, kb, 4));
    let plain = run(&fifo(&[]), &writes).1;
    let ordered = [writes[0], barrier, writes[1], barrier, writes[2], writes[3]];
    let (_, done) = run(&fifo(&[]), &ordered.map(|command| DeviceCommand { arrival: Nanos::from_micros(2), ..command }));
    assert_eq!([done[0], done[2], done[4], done[5]], plain[..]);
    assert_eq!(done[1], barrier.arrival + Nanos::from_micros(1));
}

#[test]
fn no_older_version_returns_after_a_secure_erase() {
    for settings in [cached(&[]), config(&[]), fifo(&[])] {
        let commands = [
            with(CommandFlags::RELIABLE, command(0, Op::Write, 0, 8)),
            command(3000, Op::Write, 0, 8),
            // One and a half units. The half unit is not erased.
            DeviceCommand::new(Nanos::from_micros(3001), Op::SecureErase, 0, 12),
        ];
        let (persistence, done) = run(&settings, &commands);
        assert_eq!([0, 8].map(|sector| persistence.promised(sector, done[2])), [3, persistence.promised(8, done[2] - MOMENT)]);
        for at in done.iter().copied().chain(persistence.moments()) {
            assert_eq!(persistence.broken(at), None);
        }
        assert!((0..8).all(|sector| persistence.survives(sector, Nanos::MAX) == 0));
        // A flash that still has the old version would be detected.
        let mut left = persistence.contents_after_cut(done[2]);
        left.set(0, 8, SectorContent::Data(1));
        let broken = persistence.promises(done[2]).broken(&left).unwrap();
        assert_eq!((broken.first, broken.actual, broken.promised), (0, 1, 3));
    }
}

#[test]
fn a_gigabyte_that_is_discarded_costs_a_few_ranges() {
    let large = config(&[("geometry.block_groups.0.blocks", "1024"), ("geometry.block_groups.0.pages_per_block", "256")]);
    let mut device = Device::new(&large);
    let sectors = device.geometry().sectors() as u32;
    assert_eq!(sectors, 2 << 20, "1 GB");
    let commands = [
        command(0, Op::Write, 0, 64),
        DeviceCommand::new(Nanos::from_millis(50), Op::Discard, 0, sectors),
        command(51_000, Op::Write, 8, 4),
    ];
    let (mut persistence, _) = run_on(&mut device, &commands);
    assert!(persistence.ranges() < 50, "{}", persistence.ranges());
    assert_eq!(persistence.broken(Nanos::MAX), None);
    persistence.retire(Nanos::MAX);
    assert_eq!(persistence.ranges(), 0);
}

#[test]
fn what_is_kept_follows_what_no_flush_made_durable() {
    let mut device = Device::new(&cached(&[("gc.policy", "greedy"), ("capacity.over_provisioning_pct", "100")]));
    let mut persistence = PersistenceTracker::of(&device);
    let mut most = 0;
    for i in 0..2000i64 {
        let at = 5000 * i;
        let write = command(at, Op::Write, (i as u64 * 20) % 60, 4);
        let flush = DeviceCommand::new(Nanos::from_micros(at), Op::Flush, 0, 0);
        let command = if i % 10 == 9 { flush } else { write };
        persistence.expect(&command);
        device.submit(&command, &mut persistence).unwrap();
        persistence.retire(command.arrival);
        assert_eq!(persistence.broken(command.arrival), None);
        most = most.max(persistence.ranges());
    }
    assert!(most < 40, "{most}");
}

/// Gap in us, operation, address, length in sectors, modifiers.
pub type Step = (u16, u8, u16, u8, u8);

pub fn stream(steps: &[Step], sectors: u64) -> Vec<DeviceCommand> {
    let mut now = 0;
    steps
        .iter()
        .map(|(gap, op, place, length, modifiers)| {
            now += i64::from(*gap) * 1000;
            let op = match op {
                0..=165 => Op::Write,
                166..=210 => Op::Read,
                211..=222 => Op::Discard,
                223..=228 => Op::SecureErase,
                _ => Op::Flush,
            };
            let length = u64::from(*length % 40 + 1).min(sectors);
            let sector = u64::from(*place) % (sectors - length + 1);
            let modifiers = match (op, modifiers) {
                (Op::Write, 0..=20) => CommandFlags::RELIABLE,
                (Op::Write, 21..=40) => CommandFlags::FORCED,
                (Op::Write, 41..=60) => CommandFlags::PREFLUSH,
                (Op::Flush, 0..=120) => CommandFlags::BARRIER,
                _ => CommandFlags::empty(),
            };
            let (sector, length) = if op == Op::Flush { (0, 0) } else { (sector, length as u32) };
            DeviceCommand { modifiers, ..DeviceCommand::new(Nanos(now), op, sector, length) }
        })
        .collect()
}

/// A device; its persistence, with and without calls of `retire`; and the contract and the contents of each sector.
pub struct Rig {
    device: Device,
    pub sectors: u64,
    persistence: PersistenceTracker,
    retired: PersistenceTracker,
    contract: Contract,
    facts: Facts,
    checker: DeviceChecker,
    completions: Completions,
    /// Whether the device keeps all its promises.
    honest: bool,
    orders_packs: bool,
}

impl Rig {
    pub fn new(config: &DeviceConfig, honest: bool) -> Self {
        let device = Device::new(config);
        let mut facts = Facts::of(&device);
        let rules = ContractRules::of(&device);
        if config.settings().cache.lies == CacheLie::Recent {
            facts.counts_after = Nanos::from_millis(RECENT_MS);
        }
        if rules.fifo && !matches!(config.settings().cache.lies, CacheLie::Barrier | CacheLie::Reorder) {
            facts.in_order = Some(Nanos::MIN);
        }
        if config.settings().cache.lies == CacheLie::PairedPages {
            facts.pair(config.settings().geometry.block_groups[0].cell_mode.bits());
        }
        Self {
            sectors: device.geometry().sectors(),
            persistence: PersistenceTracker::of(&device),
            retired: PersistenceTracker::of(&device),
            contract: Contract::new(rules),
            facts,
            checker: DeviceChecker::of(&device),
            completions: Completions::default(),
            honest,
            orders_packs: device.promises_on_completion(),
            device,
        }
    }

    pub fn submit(&mut self, pack: &[DeviceCommand], retire: bool) -> Result<(), TestCaseError> {
        let [first, ..] = pack else { return Ok(()) };
        if retire {
            self.retired.retire(first.arrival - MOMENT);
        }
        let versions = self.persistence.expect_packed(pack);
        prop_assert_eq!(&self.retired.expect_packed(pack), &versions);
        for (version, command) in versions.clone().zip(pack) {
            self.facts.expect(version, command);
            self.checker.expect(command);
            self.contract.commands.push((*command, None));
        }
        let ordered = pack.len() > 1 && self.orders_packs;
        if ordered {
            self.contract.packs.push(versions);
            self.facts.in_order = Some(Nanos::MIN);
        }
        let observed = &mut (&mut self.persistence, &mut self.retired);
        let modelled = &mut (&mut self.facts, &mut self.completions);
        self.device.submit_packed(pack, &mut (observed, (modelled, &mut self.checker))).unwrap();
        if ordered {
            self.facts.in_order = None;
        }
        prop_assert!(self.device.stop().is_none());
        self.checker.verify(&self.device).map_err(|error| TestCaseError::fail(error.to_string()))?;
        for (event, command) in self.completions.0.iter().zip(&mut self.contract.commands) {
            command.1 = Some(event.complete);
        }
        if retire {
            self.cut(first.arrival)?;
        }
        Ok(())
    }

    /// Cuts the power at `at`. All implementations must agree about every sector.
    fn cut(&self, at: Nanos) -> Result<(), TestCaseError> {
        let left: Vec<_> = (0..self.sectors).map(|sector| self.facts.left(sector, at)).collect();
        let (promises, in_ranges) = (self.persistence.promises(at), self.persistence.contents_after_cut(at));
        for (sector, content) in (0..).zip(&left) {
            prop_assert_eq!(in_ranges.get(sector), content.as_ref(), "sector {} at {}", sector, at);
            let survives = if let Some(SectorContent::Data(version)) = content { *version } else { 0 };
            prop_assert_eq!(self.persistence.survives(sector, at), survives);
            prop_assert_eq!(promises.promised(sector), self.contract.promised(sector, at), "sector {} at {}", sector, at);
        }
        let (broken, retired) = (self.persistence.broken(at), self.retired.broken(at));
        prop_assert_eq!(broken.map(|broken| broken.first), self.contract.broken(&left, at), "at {}", at);
        // Several promises about a sector may be broken, and versions that were forgotten are not reported.
        let first = |broken: BrokenPromise| broken.first;
        prop_assert_eq!(broken.map(first), retired.map(first), "at {}", at);
        Ok(())
    }

    /// Cuts the power at and just before each completion and each relevant time, up to the end.
    pub fn end(mut self) -> Result<(), TestCaseError> {
        self.device.settle(&mut (&mut (&mut self.persistence, &mut self.retired), &mut (&mut self.facts, &mut self.completions)));
        for (event, command) in self.completions.0.iter().zip(&mut self.contract.commands) {
            command.1 = Some(event.complete);
        }
        let completions = self.completions.0.iter().map(|event| event.complete);
        let mut moments: Vec<_> = completions.chain(self.persistence.moments()).flat_map(|at| [at - MOMENT, at]).collect();
        moments.sort_unstable();
        moments.dedup();
        if self.honest {
            for at in &moments {
                prop_assert_eq!(self.persistence.broken(*at), None, "power cut at {}", at);
            }
        }
        let last = self.contract.commands.last().map_or(Nanos::ZERO, |(command, _)| command.arrival);
        let later: Vec<_> = moments.into_iter().filter(|at| *at >= last).collect();
        for at in later.iter().step_by(later.len() / 10 + 1) {
            self.cut(*at)?;
        }
        self.device.power_off(&mut (&mut self.persistence, &mut self.retired));
        if self.honest {
            // An orderly power-off loses nothing, and makes all written data durable.
            prop_assert_eq!(self.persistence.broken_after_power_off(), None);
            self.retired.retire(Nanos::MAX);
            if self.contract.rules.write_through {
                prop_assert_eq!(self.retired.ranges(), 0);
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(100), ..ProptestConfig::default() })]

    /// Packed commands of any size, alone and between single writes. Entries become durable in order. The rest of the contract is also
    /// checked at every cut.
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
        let mut rig = Rig::new(&config, true);
        let (commands, mut at) = (stream(&steps, rig.sectors), 0);
        for size in sizes.iter().cycle() {
            let Some(head) = commands.get(at) else { break };
            let packable = |command: &&DeviceCommand| command.op == Op::Write && command.modifiers.is_empty();
            let count = commands[at..].iter().take(*size).take_while(packable).count().max(1);
            let pack = &commands[at..at + count];
            let arrival = pack[count - 1].arrival.max(head.arrival);
            let pack: Vec<_> = pack.iter().map(|command| DeviceCommand { arrival, ..*command }).collect();
            at += count;
            rig.submit(&pack, size % 4 == 0)?;
        }
        rig.end()?;
    }

    /// Tests all relevant cuts: at and just before each program and completion.
    #[test]
    fn what_is_promised_is_there_after_a_cut_at_any_moment(
        kb in prop::sample::select(vec![0u32, 16, 32, 128]),
        policy in prop::sample::select(vec!["fifo", "lru", "block_lru"]),
        write_back in prop::sample::select(vec!["eager", "when_full"]),
        complete in prop::sample::select(vec!["programmed", "transferred"]),
        page_kb in prop::sample::select(vec!["4", "8"]),
        channels in prop::sample::select(vec!["1", "2"]),
        depth in prop::sample::select(vec!["0", "1", "4"]),
        (reads_first, suspend_limit) in prop::sample::select(vec![(false, "0"), (true, "0"), (false, "2"), (false, "9")]),
        lie in prop::sample::select(vec!["none", "none", "none", "flush", "fua", "barrier", "early_flush", "reorder", "recent", "paired_pages"]),
        (cell_mode, times, types) in prop::sample::select(vec![
            ("mlc", ("100", "1000"), "[]"),
            ("qlc", ("100", "1000"), "[]"),
            ("tlc", ("0", "0"), "[{read_us=50,program_us=400},{read_us=70,program_us=900},{read_us=90,program_us=2000}]"),
        ]),
        (reliable, barrier) in prop::sample::select(vec![("true", "true"), ("true", "true"), ("false", "true"), ("false", "false")]),
        steps in prop::collection::vec(any::<Step>(), 1..60),
    ) {
        let lie = if kb == 0 && lie != "paired_pages" { "none" } else { lie };
        let suspend_limit = if lie == "none" { suspend_limit } else { "0" };
        // A cache or a limited queue contradicts "read_first".
        let scheduling = if reads_first && kb == 0 && depth == "0" { "read_first" } else { "fifo" };
        let config = config(&[
            ("cache.size_kb", &kb.to_string()),
            ("cache.lies", lie),
            ("cache.policy", policy),
            ("cache.write_back", write_back),
            ("features.reliable_write", reliable),
            ("features.barrier", barrier),
            ("timing.write_complete", complete),
            ("timing.bus_ns_per_byte", "5"),
            ("geometry.channels", channels),
            ("geometry.block_groups.0.page_kb", page_kb),
            ("geometry.block_groups.0.cell_mode", cell_mode),
            ("geometry.block_groups.0.read_us", times.0),
            ("geometry.block_groups.0.program_us", times.1),
            ("geometry.block_groups.0.page_types", types),
            ("controller.queue_depth", depth),
            ("controller.scheduling", scheduling),
            ("timing.suspend_limit", suspend_limit),
            ("gc.policy", "greedy"),
            ("capacity.over_provisioning_pct", "250"),
        ]);
        let mut rig = Rig::new(&config, lie == "none");
        // Reads meet programs that they can suspend only if commands follow each other soon.
        let gaps = if suspend_limit == "0" { 1 } else { 64 };
        for (command, step) in stream(&steps, rig.sectors).iter().zip(&steps) {
            let command = DeviceCommand { arrival: Nanos(command.arrival.0 / gaps), ..*command };
            rig.submit(&[command], step.3 % 4 == 0)?;
        }
        rig.end()?;
    }
}

#[test]
fn a_cut_damages_the_earlier_pages_of_the_word_line_that_is_programmed() {
    // Pages of a block in program order, 4 KB each: 0, 1, 2, 3, ... The cut is in the middle of the last program.
    let cases: [(&str, &str, u64, &[u64]); 9] = [
        ("mlc", "paired_pages", 1, &[]),
        ("mlc", "paired_pages", 2, &[0]),
        ("mlc", "paired_pages", 3, &[]),
        ("mlc", "paired_pages", 4, &[2]),
        ("tlc", "paired_pages", 3, &[0, 1]),
        ("tlc", "paired_pages", 5, &[3]),
        ("qlc", "paired_pages", 4, &[0, 1, 2]),
        ("qlc", "none", 4, &[]),
        ("mlc", "none", 2, &[]),
    ];
    for (cell_mode, lie, pages, damaged) in cases {
        let pages_per_block = ("geometry.block_groups.0.pages_per_block", "6");
        let config = config(&[("geometry.block_groups.0.cell_mode", cell_mode), ("cache.lies", lie), pages_per_block]);
        let writes: Vec<_> = (0..pages).map(|page| command(2000 * page as i64, Op::Write, 4 * page, 4)).collect();
        let (mut persistence, done) = run(&config, &writes);
        let (last, end) = (*writes.last().unwrap(), *done.last().unwrap());
        let during = last.arrival + Nanos((end - last.arrival).0 / 2);
        for at in [last.arrival - MOMENT, end] {
            assert_eq!(persistence.damaged(at).count(), 0, "{cell_mode}, {lie}, {pages} pages, not during a program");
            assert_eq!(persistence.broken(at), None);
        }
        for retired in [Nanos::MIN, last.arrival] {
            persistence.retire(retired);
            let mut found: Vec<_> = persistence.damaged(during).map(|(first, end)| (first / 8, end / 8)).collect();
            found.sort_unstable();
            assert_eq!(
                found,
                damaged.iter().map(|page| (*page, page + 1)).collect::<Vec<_>>(),
                "{cell_mode}, {lie}, {pages} pages"
            );
            let broken =
                damaged.first().map(|page| BrokenPromise { first: page * 8, end: page * 8 + 8, actual: 0, promised: page + 1 });
            assert_eq!(persistence.broken(during), broken);
        }
    }
}

#[test]
fn a_unit_that_left_its_word_line_is_not_damaged() {
    let base = [("cache.lies", "paired_pages"), ("geometry.block_groups.0.cell_mode", "tlc")];
    let discard = DeviceCommand::new(Nanos::from_millis(2), Op::Discard, 0, 8);
    for (second, damaged) in [(command(2000, Op::Write, 0, 4), 1), (discard, 0), (command(2000, Op::Write, 8, 4), 2)] {
        let (persistence, done) = run(&config(&base), &[command(0, Op::Write, 0, 4), second, command(4000, Op::Write, 4, 4)]);
        let mut found: Vec<_> = persistence.damaged(done[2] - MOMENT).collect();
        found.dedup();
        assert_eq!(found.len(), damaged, "{second:?}");
    }
    let slc = config(&[("geometry.block_groups.0.cell_mode", "slc")]).set_all(&[("cache.lies", "paired_pages")]);
    assert!(slc.is_err(), "there are no shared cells");
}

/// Whether the contract is broken at some time of a run, on a device with this lie.
fn is_caught(lie: &str, commands: &[DeviceCommand]) -> bool {
    let (persistence, done) = run(&cached(&[("cache.lies", lie)]), commands);
    let cuts = done.iter().copied().chain(persistence.moments());
    cuts.into_iter().any(|at| persistence.broken(at).is_some())
}

#[test]
fn a_device_that_lies_breaks_the_contract() {
    let flush = |modifiers| with(modifiers, DeviceCommand::new(Nanos::from_micros(10), Op::Flush, 0, 0));
    let plain = command(0, Op::Write, 0, 16);
    let flushed = [plain, flush(CommandFlags::empty())];
    assert!(is_caught("flush", &flushed) && !is_caught("none", &flushed));
    let reliable = [with(CommandFlags::RELIABLE, plain)];
    assert!(is_caught("fua", &reliable) && !is_caught("none", &reliable));
    let mut ordered = vec![plain, flush(CommandFlags::BARRIER)];
    ordered.push(with(CommandFlags::RELIABLE, command(20, Op::Write, 32, 4)));
    assert!(is_caught("barrier", &ordered) && !is_caught("none", &ordered));
    for lie in ["reorder", "recent"] {
        assert!(is_caught(lie, &flushed), "{lie}");
    }
    let erased = [plain, flushed[1], command(10_000, Op::SecureErase, 0, 16)];
    assert!(is_caught("trim", &erased) && !is_caught("none", &erased));
}

#[test]
fn the_checker_sees_that_discarded_data_stayed() {
    for (lie, is_seen) in [("none", false), ("trim", true)] {
        let mut device = Device::new(&config(&[("cache.lies", lie)]));
        let mut checker = DeviceChecker::of(&device);
        for command in [command(0, Op::Write, 0, 16), command(9000, Op::Discard, 0, 16)] {
            checker.expect(&command);
            device.submit(&command, &mut checker).unwrap();
        }
        assert_eq!(checker.verify(&device).is_err(), is_seen, "{lie}");
    }
}

#[test]
fn a_flush_before_the_first_write_spoils_later_ones_until_the_power_is_off() {
    let flush = |us| DeviceCommand::new(Nanos::from_micros(us), Op::Flush, 0, 0);
    let flushed = [command(0, Op::Write, 0, 16), flush(10)];
    let early = [vec![flush(0)], flushed.to_vec()].concat();
    assert!(is_caught("early_flush", &early) && !is_caught("none", &early));
    assert!(!is_caught("early_flush", &flushed), "the first command is a write");
    let config = cached(&[("cache.lies", "early_flush")]);
    let mut device = Device::new(&config);
    device.submit(&flush(0), &mut NullObserver).unwrap();
    device.rewind();
    let (persistence, _) = run_on(&mut device, &flushed);
    assert_eq!(persistence.broken(Nanos::MAX), None, "the power was off in between");
}

#[test]
fn what_was_programmed_in_the_last_milliseconds_is_lost_and_older_data_is_not() {
    let commands = [command(0, Op::Write, 0, 16), DeviceCommand::new(Nanos::from_micros(10), Op::Flush, 0, 0)];
    let (persistence, done) = run(&cached(&[("cache.lies", "recent")]), &commands);
    assert!(persistence.broken(done[1]).is_some());
    assert_eq!(persistence.broken(done[1] + Nanos::from_millis(RECENT_MS)), None);
}
