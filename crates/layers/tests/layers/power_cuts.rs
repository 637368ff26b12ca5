//! With recovery, a power cut at any moment loses no data that was flushed or written with a flag for durability, and restores no data that
//! such a write replaced, even with torn writes and with writes that become durable in any order.

use std::cell::Cell;
use std::collections::HashSet;
use std::rc::Rc;

use crate::support::{BELOW, CutDisk, SECTOR, small, stamp, striping, version};
use emmclab_base::{CommandFlags, Op};
use emmclab_layers::{DiskZones, DisksBelow, ImmediateStack, LayerConfig, RunningPlan, build_stack};
use emmclab_testing::{SeededRandom, cases};

const SPAN: u64 = 400;

/// A request in progress.
struct Active {
    running: RunningPlan,
    sector: u64,
    data: Vec<u8>,
    /// Sectors, each with the version that is durable when the request is complete.
    durable: Vec<(u64, u64)>,
}

impl Active {
    fn meets(&self, sector: u64, sectors: usize) -> bool {
        sector < self.sector + (self.data.len() / SECTOR) as u64 && self.sector < sector + sectors as u64
    }
}

/// Permitted contents of each sector: the version that was last flushed, and the versions written since.
struct Model {
    flushed: Vec<u64>,
    since: Vec<Vec<u64>>,
    /// Newest version whose write is complete.
    complete: Vec<u64>,
    clock: u64,
    /// Whether the layers are drained from time to time.
    drains: bool,
    /// Whether blocks of 4 KB are discarded, which then read as zeros; and the versions that are discards.
    discards: bool,
    discarded: HashSet<u64>,
}

impl Model {
    fn new(drains: bool, discards: bool) -> Self {
        let (none, empty) = (vec![0; SPAN as usize], vec![Vec::new(); SPAN as usize]);
        Self { flushed: none.clone(), since: empty, complete: none, clock: 0, drains, discards, discarded: HashSet::new() }
    }

    /// Records a complete request.
    fn completed(&mut self, one: &Active) {
        for i in 0..one.data.len() / SECTOR {
            let at = one.sector as usize + i;
            self.complete[at] = *self.since[at].last().unwrap_or(&self.flushed[at]);
        }
        for (sector, version) in &one.durable {
            let at = *sector as usize;
            // A version that was written concurrently with the flush may be durable or not.
            if let Some(place) = self.since[at].iter().position(|since| since == version) {
                self.flushed[at] = *version;
                self.since[at].drain(..=place);
            }
        }
    }

    /// Completes a request. Returns false if the power was cut.
    fn finish(&mut self, executor: &mut ImmediateStack<CutDisk>, mut one: Active) -> bool {
        loop {
            match executor.advance(&mut one.running, &mut one.data) {
                Ok(false) => {}
                Ok(true) => break,
                Err(_) => return false,
            }
        }
        self.completed(&one);
        true
    }

    /// Submits requests, with up to `beside` in parallel, until the power is cut. Returns false if it was not cut.
    fn drive(&mut self, executor: &mut ImmediateStack<CutDisk>, requests: usize, beside: usize, die: &mut SeededRandom) -> bool {
        let mut active: Vec<Active> = Vec::new();
        for _ in 0..requests {
            let roll = die.below(20);
            if roll == 2 && self.drains && die.below(4) == 0 {
                if executor.drain().is_err() {
                    return true;
                }
                continue;
            }
            if (2..7).contains(&roll) {
                if executor.background(0).is_err() {
                    return true;
                }
                continue;
            }
            let (mut op, mut sectors) = match roll {
                0..2 => (Op::Flush, 0),
                7..9 => (Op::Write, 16 + die.below(48)),
                _ => (Op::Write, 1 + die.below(10)),
            };
            let mut modifiers = match (op, die.below(10)) {
                (Op::Write, 0) => CommandFlags::RELIABLE,
                (Op::Write, 1) => CommandFlags::FORCED | CommandFlags::META,
                (Op::Write, 2) => CommandFlags::PREFLUSH | CommandFlags::RELIABLE,
                (Op::Write, 3) => CommandFlags::META,
                _ => CommandFlags::empty(),
            };
            let mut sector = if sectors > 0 { die.below(SPAN as usize - sectors) as u64 } else { 0 };
            if self.discards && die.below(16) == 0 {
                op = [Op::Discard, Op::SecureErase][die.below(2)];
                (sector, sectors, modifiers) = (die.below(40) as u64 * 8, 8 + die.below(9) * 8, CommandFlags::empty());
            }
            // A request that overlaps another waits, as the driver guarantees, and so does one that is executed as several.
            let alone = !executor.layer(0).accepts().contains(modifiers - CommandFlags::META);
            while let Some(which) = active.iter().position(|one| alone || one.meets(sector, sectors)) {
                if !self.finish(executor, active.remove(which)) {
                    return true;
                }
            }
            let running = loop {
                if let Some(running) = executor.begin(op, sector, sectors as u32, modifiers) {
                    break running;
                }
                match executor.background(0) {
                    Err(_) => return true,
                    Ok(true) => {}
                    Ok(false) => {
                        // A layer may have found free space without a command.
                        if let Some(running) = executor.begin(op, sector, sectors as u32, modifiers) {
                            break running;
                        }
                        assert!(!active.is_empty(), "deferred for ever");
                        if !self.finish(executor, active.remove(0)) {
                            return true;
                        }
                    }
                }
            };
            self.clock += 1;
            let mut data = vec![0; sectors * SECTOR];
            if matches!(op, Op::Discard | Op::SecureErase) {
                self.discarded.insert(self.clock);
            }
            stamp(sector, self.clock, &mut data);
            self.since[sector as usize..][..sectors].iter_mut().for_each(|since| since.push(self.clock));
            let mut durable: Vec<(u64, u64)> = Vec::new();
            if op == Op::Flush || modifiers.contains(CommandFlags::PREFLUSH) {
                durable.extend((0..).zip(self.complete.iter().copied()));
            }
            if modifiers.durable() || op == Op::SecureErase {
                durable.extend((sector..sector + sectors as u64).map(|sector| (sector, self.clock)));
            }
            let mut one = Active { running, sector, data, durable };
            // The first stage of a plan is sent before the next plan is created.
            match executor.advance(&mut one.running, &mut one.data) {
                Err(_) => return true,
                Ok(true) => self.completed(&one),
                Ok(false) => active.push(one),
            }
            while active.len() >= beside || alone && !active.is_empty() {
                if !self.finish(executor, active.remove(die.below(active.len()))) {
                    return true;
                }
            }
        }
        active.into_iter().any(|one| !self.finish(executor, one))
    }

    /// The contents of a sector after a version.
    fn shown(&self, version: u64) -> u64 {
        if self.discarded.contains(&version) { 0 } else { version }
    }

    /// Reads all sectors. Their contents are the new expected state.
    fn check(&mut self, executor: &mut ImmediateStack<CutDisk>, what: &str) {
        let mut data = vec![0; SPAN as usize * SECTOR];
        executor.submit(Op::Read, 0, &mut data).unwrap();
        for (i, part) in data.chunks(SECTOR).enumerate() {
            let found = version(i as u64, part);
            let is_it = |version: &u64| found == Some(self.shown(*version));
            let newer = self.since[i].iter().copied().find(is_it);
            let is_flushed = is_it(&self.flushed[i]);
            assert!(
                is_flushed || newer.is_some(),
                "{what}: sector {i} holds {found:?}, not {} or {:?} (discards: {:?})",
                self.flushed[i],
                self.since[i],
                self.discarded
            );
            // A version that was read after a cut may still not be durable, so the older one also remains permitted.
            self.since[i].clear();
            self.since[i].extend(newer.filter(|_| !is_flushed));
            self.complete[i] = *self.since[i].last().unwrap_or(&self.flushed[i]);
        }
    }
}

/// How the power is cut.
#[derive(Clone, Copy)]
struct Cuts {
    /// Requests of each life, and number of parallel requests.
    requests: usize,
    beside: usize,
    lives: usize,
    /// The first life ends after 0, `step`, 2 `step`, ... writes and flushes, or at random ones of these if fewer cases are requested.
    step: u64,
    seed: u64,
    /// Whether the layers are drained from time to time.
    drains: bool,
    /// Whether blocks are discarded.
    discards: bool,
    below: DisksBelow,
}

fn cut_everywhere(stack: &[LayerConfig], cuts: Cuts) {
    let Cuts { requests, beside, lives, step, seed, drains, discards, below } = cuts;
    let disk = |sectors: u64, zones| CutDisk::new(vec![0; sectors as usize * SECTOR], Rc::default()).zoned(zones);
    let fresh = || [disk(below.main, below.zones), disk(below.second.unwrap(), None)];
    let stride = 256 / cases(256).min(256) as usize;
    let mut cut = 0;
    loop {
        let mut die = SeededRandom::new(seed ^ cut);
        let mut model = Model::new(drains, discards);
        let mut disks = fresh();
        let mut was_cut = true;
        for life in 0..lives {
            // The first life ends at the tested write, later ones at a random write.
            let left = Rc::new(Cell::new(if life == 0 { cut } else { die.below(200) as u64 }));
            let layers = build_stack(stack, &below).unwrap();
            let on: Vec<_> = disks.iter().map(|disk| disk.again(left.clone())).collect();
            let after = |disks: Vec<CutDisk>, die: &mut SeededRandom| {
                disks.into_iter().map(|disk| disk.after(&mut |sides| die.below(sides))).collect::<Vec<_>>()
            };
            // A cut during the start leaves disks that the next start must accept.
            let mut executor = ImmediateStack::stopped(layers, on);
            if executor.wake(life > 0).is_err() {
                disks = after(executor.into_disks(), &mut die).try_into().unwrap();
                continue;
            }
            if life > 0 {
                model.check(&mut executor, &format!("seed {seed}, cut {cut}, life {life}"));
            }
            let ended = model.drive(&mut executor, requests, beside, &mut die);
            if life == 0 {
                was_cut = ended;
            }
            disks = after(executor.into_disks(), &mut die).try_into().unwrap();
        }
        let left = Rc::new(Cell::new(u64::MAX));
        let on = disks.iter().map(|disk| disk.again(left.clone())).collect();
        let mut executor = ImmediateStack::start(build_stack(stack, &below).unwrap(), on, true).unwrap();
        model.check(&mut executor, &format!("seed {seed}, cut {cut}, at the end"));
        // Afterwards, all data can be moved to its own addresses.
        for _ in 0..600 {
            executor.background(0).unwrap();
        }
        model.check(&mut executor, &format!("seed {seed}, cut {cut}, moved home"));
        if !was_cut {
            break;
        }
        cut += step * (1 + die.below(2 * stride - 1) as u64);
    }
    assert!(cut > 100, "only {cut} writes were tried");
}

fn once(seed: u64) -> Cuts {
    Cuts { requests: 260, beside: 1, lives: 1, step: 1, seed, drains: false, discards: false, below: BELOW }
}

fn advil(checkpoint: &str) -> LayerConfig {
    small("advil").with("recovery", "true").with("checkpoint", checkpoint)
}

#[test]
fn a_cut_after_any_write_loses_nothing_flushed() {
    for (seed, hot) in ["paper", "rewritten", "none"].into_iter().enumerate() {
        for (shift, checkpoint) in ["0", "12KB"].into_iter().enumerate() {
            let layer = advil(checkpoint).with("hot", hot).with("second_device", "true");
            cut_everywhere(&[layer], once((seed + 10 * shift) as u64));
        }
    }
}

#[test]
fn so_on_one_device() {
    cut_everywhere(&[advil("32KB")], once(77));
    cut_everywhere(&[small("ressd").with("recovery", "true")], once(78));
}

#[test]
fn so_with_requests_under_way() {
    for (seed, hot) in ["paper", "none"].into_iter().enumerate() {
        for (checkpoint, beside) in [("0", 3), ("0", 6), ("12KB", 3), ("12KB", 6)] {
            let layer = advil(checkpoint).with("hot", hot).with("second_device", "true");
            cut_everywhere(&[layer], Cuts { beside, ..once(200 + beside as u64 + seed as u64) });
        }
    }
}

#[test]
fn so_when_the_map_is_too_large_for_a_checkpoint() {
    let tiny = advil("20KB").with("reserved", "512KB").with("small", "1024");
    cut_everywhere(&[tiny], Cuts { requests: 2500, step: 23, lives: 2, ..once(300) });
}

#[test]
fn so_while_the_log_is_drained() {
    for (seed, hot) in ["paper", "none"].into_iter().enumerate() {
        for (checkpoint, beside) in [("0", 1), ("12KB", 1), ("0", 4), ("12KB", 4)] {
            let layer = advil(checkpoint).with("hot", hot).with("second_device", "true");
            let cuts = Cuts { beside, drains: true, lives: 2, ..once(400 + beside as u64 + seed as u64) };
            cut_everywhere(&[layer], cuts);
        }
    }
}

#[test]
fn cuts_may_follow_each_other() {
    for seed in 0..6 {
        let layer = advil(["0", "12KB"][seed as usize % 2]).with("hot", "paper");
        let cuts = Cuts { requests: 200, beside: 1 + seed as usize, lives: 5, step: 3, ..once(1000 + seed) };
        cut_everywhere(&[layer], cuts);
    }
}

#[test]
fn and_with_layers_above_each_other() {
    let upper = advil("16KB").with("second_device", "true");
    let lower = small("ressd").with("recovery", "true");
    cut_everywhere(&[upper, lower], Cuts { lives: 3, step: 5, ..once(5) });
}

/// A small buffer. The model writes less and more than its maximum write.
fn nvm_buffer() -> LayerConfig {
    LayerConfig::named("nvm-buffer").with("size", "32KB").with("longest", "3KB").with("run", "8KB")
}

#[test]
fn an_nvm_buffer_loses_nothing_flushed() {
    for (seed, depth) in ["1", "3"].into_iter().enumerate() {
        for beside in [1, 4] {
            let layer = nvm_buffer().with("depth", depth);
            let seed = 500 + 10 * seed as u64 + beside as u64;
            cut_everywhere(std::slice::from_ref(&layer), Cuts { beside, ..once(seed) });
            let on_one = layer.with("second_device", "false");
            cut_everywhere(&[on_one], Cuts { beside, drains: true, ..once(seed + 100) });
        }
    }
}

#[test]
fn so_where_cuts_of_an_nvm_buffer_follow_each_other() {
    for seed in 0..6 {
        let cuts = Cuts { requests: 200, beside: 1 + seed as usize, lives: 5, step: 3, ..once(1200 + seed) };
        cut_everywhere(&[nvm_buffer()], cuts);
    }
}

#[test]
fn so_with_an_nvm_buffer_above_a_log_and_stripes_below_it() {
    let buffer = nvm_buffer().with("second_device", "false");
    let lower = small("ressd").with("recovery", "true");
    cut_everywhere(&[buffer.clone(), lower], Cuts { lives: 3, step: 5, beside: 3, ..once(6) });
    let stripes = striping("4KB");
    cut_everywhere(&[buffer, stripes], Cuts { lives: 3, step: 5, beside: 3, ..once(7) });
}

#[test]
fn stripes_lose_nothing_flushed() {
    cut_everywhere(&[striping("8KB")], Cuts { beside: 3, ..once(8) });
}

/// A log on a disk that is so small that the log wraps around many times and cleans continuously.
fn log(logs: &str) -> LayerConfig {
    LayerConfig::named("lfs")
        .with("logs", logs)
        .with("low_pct", "100")
        .with("idle_pct", "100")
        .with("checkpoint", "128KB")
        .with("step", "12KB")
}

/// A disk of 24 segments of 32 KB, with or without zones. Writes end at multiples of `write_sectors`.
fn segments(write_sectors: Option<u32>) -> DisksBelow {
    let zones = write_sectors.map(|write_sectors| DiskZones {
        first: 64,
        sectors: 64,
        count: 24,
        write_sectors,
        max_open: 4,
        max_active: 4,
    });
    DisksBelow { zones, ..DisksBelow::new(25 * 64, Some(8)) }
}

#[test]
fn a_log_loses_nothing_flushed() {
    for (seed, logs) in ["2", "3", "5"].into_iter().enumerate() {
        for beside in [1, 4] {
            let seed = 600 + 10 * seed as u64 + beside as u64;
            let cuts = Cuts { beside, discards: true, below: segments(None), ..once(seed) };
            cut_everywhere(&[log(logs).with("segment", "32KB")], cuts);
        }
    }
}

#[test]
fn a_log_of_zones_keeps_their_rules_and_loses_nothing_flushed() {
    for (seed, write_sectors) in [1, 8, 16].into_iter().enumerate() {
        for (beside, durable_writes) in [(1, true), (4, true), (4, false)] {
            let below = DisksBelow { durable_writes, ..segments(Some(write_sectors)) };
            let seed = 650 + 10 * seed as u64 + beside as u64;
            let cuts = Cuts { beside, discards: true, below, requests: 500, step: 2, ..once(seed) };
            cut_everywhere(&[log("3")], cuts);
        }
    }
}

#[test]
fn so_where_cuts_of_a_log_follow_each_other() {
    for seed in 0..6 {
        let zoned = [None, Some(8), Some(16)][seed as usize % 3];
        let config = if zoned.is_some() { log("2") } else { log("3").with("segment", "32KB") };
        let (requests, drains) = (300, seed % 2 == 0);
        let cuts = Cuts { requests, beside: 1 + seed as usize, lives: 6, step: 5, drains, ..once(1300 + seed) };
        cut_everywhere(&[config], Cuts { below: segments(zoned), discards: true, ..cuts });
    }
}

#[test]
fn so_with_a_log_above_and_below_others() {
    let plain = log("3").with("segment", "32KB");
    let buffer = nvm_buffer().with("second_device", "false");
    cut_everywhere(&[buffer.clone(), plain.clone()], Cuts { lives: 3, step: 5, beside: 3, ..once(9) });
    cut_everywhere(&[plain, buffer], Cuts { lives: 3, step: 5, beside: 3, ..once(10) });
}
