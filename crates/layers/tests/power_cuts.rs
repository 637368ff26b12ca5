//! With recovery, a cut of power at any moment loses nothing that was flushed and brings nothing back that was overwritten
//! and flushed, with torn writes and with writes that came to be in any order.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::cell::Cell;
use std::rc::Rc;

use emmclab_layers::{Executor, LayerConfig, build_stack};
use emmclab_trace::Op;
use support::{BELOW, CutDisk, SECTOR, small, stamp, version};

/// Small, fast and the same everywhere (splitmix64).
struct Die(u64);

impl Die {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % sides as u64) as usize
    }
}

const SPAN: u64 = 400;

/// What a sector may hold: the version that was flushed last, and those written since.
struct Model {
    flushed: Vec<u64>,
    since: Vec<Vec<u64>>,
    clock: u64,
}

impl Model {
    fn new() -> Self {
        Self { flushed: vec![0; SPAN as usize], since: vec![Vec::new(); SPAN as usize], clock: 0 }
    }

    fn flush(&mut self) {
        for (flushed, since) in self.flushed.iter_mut().zip(&mut self.since) {
            if let Some(newest) = since.last() {
                *flushed = *newest;
                since.clear();
            }
        }
    }

    /// Drives requests until power is cut; false if it never was.
    fn drive(&mut self, executor: &mut Executor<CutDisk>, requests: usize, die: &mut Die) -> bool {
        for _ in 0..requests {
            let done = match die.roll(20) {
                0..2 => match executor.submit_bare(Op::Flush, 0, 0) {
                    Ok(()) => {
                        self.flush();
                        Ok(())
                    }
                    cut => cut,
                },
                2..7 => executor.background(0).map(|_| ()),
                roll => {
                    let sectors = if roll < 9 { 16 + die.roll(48) } else { 1 + die.roll(10) };
                    let sector = die.roll(SPAN as usize - sectors) as u64;
                    self.clock += 1;
                    let mut data = vec![0; sectors * SECTOR];
                    for (i, part) in data.chunks_mut(SECTOR).enumerate() {
                        stamp(sector + i as u64, self.clock, part);
                        self.since[sector as usize + i].push(self.clock);
                    }
                    executor.submit(Op::Write, sector, &mut data)
                }
            };
            if done.is_err() {
                return true;
            }
        }
        false
    }

    /// Reads everything; what is there is what counts from now on.
    fn check(&mut self, executor: &mut Executor<CutDisk>, what: &str) {
        let mut data = vec![0; SPAN as usize * SECTOR];
        executor.submit(Op::Read, 0, &mut data).unwrap();
        for (i, part) in data.chunks(SECTOR).enumerate() {
            let found = version(i as u64, part);
            let allowed =
                found.is_some_and(|found| found == self.flushed[i] || self.since[i].contains(&found));
            assert!(
                allowed,
                "{what}: sector {i} holds {found:?}, not {} or {:?}",
                self.flushed[i], self.since[i]
            );
            // A version seen after a cut may still be one that is not durable, so the older one stays allowed too.
            if let Some(found) = found.filter(|found| *found != self.flushed[i]) {
                self.since[i] = vec![found];
            } else {
                self.since[i].clear();
            }
        }
    }
}

fn cut_everywhere(stack: &[LayerConfig], requests: usize, lives: usize, step: u64, seed: u64) {
    let fresh = || [BELOW.main, BELOW.second.unwrap()].map(|sectors| vec![0; sectors as usize * SECTOR]);
    let mut cut = 0;
    loop {
        let mut die = Die(seed ^ cut);
        let mut model = Model::new();
        let mut disks = fresh();
        let mut was_cut = true;
        for life in 0..lives {
            // The first life ends at the write being tried, later ones anywhere.
            let left = Rc::new(Cell::new(if life == 0 { cut } else { die.roll(200) as u64 }));
            let layers = build_stack(stack, &BELOW).unwrap();
            let on: Vec<_> = disks.iter().map(|data| CutDisk::new(data.clone(), left.clone())).collect();
            let after = |disks: Vec<CutDisk>, die: &mut Die| {
                disks.into_iter().map(|disk| disk.after(&mut |sides| die.roll(sides))).collect::<Vec<_>>()
            };
            // A cut during the start itself leaves disks that the next start finds.
            let mut executor = Executor::stopped(layers, on);
            if executor.wake(life > 0).is_err() {
                disks = after(executor.into_disks(), &mut die).try_into().unwrap();
                continue;
            }
            if life > 0 {
                model.check(&mut executor, &format!("seed {seed}, cut {cut}, life {life}"));
            }
            let ended = model.drive(&mut executor, requests, &mut die);
            if life == 0 {
                was_cut = ended;
            }
            disks = after(executor.into_disks(), &mut die).try_into().unwrap();
        }
        let left = Rc::new(Cell::new(u64::MAX));
        let on = disks.map(|data| CutDisk::new(data, left.clone())).into_iter().collect();
        let mut executor = Executor::start(build_stack(stack, &BELOW).unwrap(), on, true).unwrap();
        model.check(&mut executor, &format!("seed {seed}, cut {cut}, at the end"));
        // Everything can be moved home afterwards.
        for _ in 0..600 {
            executor.background(0).unwrap();
        }
        model.check(&mut executor, &format!("seed {seed}, cut {cut}, moved home"));
        if !was_cut {
            break;
        }
        cut += step;
    }
    assert!(cut > 100, "only {cut} writes were tried");
}

#[test]
fn a_cut_after_any_write_loses_nothing_flushed() {
    for (seed, hot) in ["paper", "rewritten", "none"].into_iter().enumerate() {
        let layer = small("advil").with("recovery", "true").with("hot", hot).with("second_device", "true");
        cut_everywhere(&[layer], 260, 1, 1, seed as u64);
    }
}

#[test]
fn so_on_one_device() {
    let layer = small("advil").with("recovery", "true");
    cut_everywhere(&[layer], 260, 1, 1, 77);
    cut_everywhere(&[small("ressd").with("recovery", "true")], 260, 1, 1, 78);
}

#[test]
fn cuts_may_follow_each_other() {
    for seed in 0..6 {
        let layer = small("advil").with("recovery", "true").with("hot", "paper");
        cut_everywhere(&[layer], 200, 5, 3, 1000 + seed);
    }
}

#[test]
fn and_with_layers_above_each_other() {
    let upper = small("advil").with("recovery", "true").with("second_device", "true");
    let lower = small("ressd").with("recovery", "true");
    cut_everywhere(&[upper, lower], 260, 3, 5, 5);
}
