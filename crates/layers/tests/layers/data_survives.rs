//! After any requests through any stack of layers, every sector reads back the last written data.

use crate::support::{BELOW, MemDisk, SECTOR, small, stamp, started, version};
use emmclab_base::{CommandFlags, Op};
use emmclab_layers::{ImmediateStack, LayerConfig, RunningPlan, layers};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Event {
    /// First sector, number of sectors, and flags.
    Write(u64, u32, u8),
    Read(u64, u32),
    /// First sector, number of sectors, and whether the discard is secure.
    Discard(u64, u32, bool),
    Flush,
    /// Executes a stage of the background work of this level.
    Background(usize),
    /// Drains the layers as far as requests in progress permit.
    Drain,
    /// Executes a stage of this request in progress.
    Advance(usize),
}

/// Small and large requests, mostly at a few addresses so that they overlap; some are consecutive.
fn place() -> impl Strategy<Value = (u64, u32)> {
    let sectors = prop_oneof![6 => Just(8_u32), 3 => 1_u32..16, 1 => 16_u32..120];
    let sector = prop_oneof![3 => 0_u64..200, 2 => (0_u64..40).prop_map(|i| i * 64), 1 => 0_u64..2500];
    (sector, sectors)
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        10 => (place(), 0_u8..64).prop_map(|((sector, sectors), flags)| Event::Write(sector, sectors, flags)),
        4 => place().prop_map(|(sector, sectors)| Event::Read(sector, sectors)),
        1 => (place(), any::<bool>()).prop_map(|((sector, sectors), secure)| Event::Discard(sector, sectors, secure)),
        1 => Just(Event::Flush),
        5 => (0_usize..3).prop_map(Event::Background),
        1 => Just(Event::Drain),
        8 => (0_usize..4).prop_map(Event::Advance),
    ]
}

fn stacks() -> impl Strategy<Value = Vec<LayerConfig>> {
    let hot = prop_oneof![Just("paper"), Just("rewritten"), Just("none")];
    let one =
        (hot, any::<[bool; 6]>(), 0..layers().len()).prop_map(|(hot, [page, block, recovery, idle, through, data], kind)| {
            // Any layer; those with a reserved area have a small one.
            let name = layers()[kind].name;
            let layer = match name {
                "advil" => small(name)
                    .with("hot", hot)
                    .with("hot_invalidated", if data { "data" } else { "pages" })
                    .with("read_through", if through { "4KB" } else { "0" })
                    .with("page_padding", if page { "true" } else { "false" })
                    .with("block_padding", if block { "true" } else { "false" }),
                "ressd" => small(name),
                "journal" => {
                    let mode = ["legacy", "ordered_fua", "delta", "packed", "aware", "no_barrier"];
                    let mode = mode[usize::from(page) * 3 + usize::from(block) + usize::from(idle)];
                    return LayerConfig::named(name).with("log", "128KB").with("mode", mode);
                }
                "pair" => return LayerConfig::named(name).with("chunk", if idle { "4KB" } else { "32KB" }),
                "nvm-buffer" => {
                    return LayerConfig::named(name)
                        .with("second_device", "false")
                        .with("size", if block { "36KB" } else { "128KB" })
                        .with("longest", if page { "4KB" } else { "2KB" })
                        .with("run", if idle { "4KB" } else { "64KB" })
                        .with("depth", if through { "3" } else { "1" });
                }
                "lfs" => {
                    return LayerConfig::named(name)
                        .with("segment", "32KB")
                        .with("logs", if page { "2" } else { "4" })
                        .with("step", if through { "4KB" } else { "512KB" })
                        .with("checkpoint", if block { "64KB" } else { "256MB" })
                        .with("low_pct", if data { "100" } else { "25" })
                        .with("idle_pct", "100")
                        .with("idle", if idle { "greedy" } else { "cost_benefit" })
                        .with("read_unwritten", if recovery { "true" } else { "false" });
                }
                name => return LayerConfig::named(name),
            };
            let mover = if idle { "idle" } else { "thread" };
            layer.with("recovery", if recovery { "true" } else { "false" }).with("mover", mover)
        });
    let routing = prop_oneof![Just("striping"), Just("by_file")];
    (proptest::collection::vec(one, 1..4), any::<bool>(), routing).prop_map(|(mut stack, second, routing)| {
        // A layer that reads notes must be on top.
        if let Some(place) = stack.iter().position(|layer| layer.name == "journal") {
            let journal = stack.remove(place);
            stack.retain(|layer| layer.name != "journal");
            stack.insert(0, journal);
        }
        // A log needs its minimum number of segments, so there is at most one.
        if let Some(first) = stack.iter().position(|layer| layer.name == "lfs") {
            let mut place = 0..;
            stack.retain(|layer| place.next() == Some(first) || layer.name != "lfs");
        }
        // At most one layer may use the second device.
        let has_use = |layer: &&mut LayerConfig| !["journal", "pass-through", "lfs"].contains(&layer.name.as_str());
        if let Some(layer) = stack.iter_mut().find(has_use).filter(|_| second) {
            *layer = match layer.name.as_str() {
                "pair" => layer.clone().with("routing", routing).with("border", "256KB"),
                _ => layer.clone().with("second_device", "true"),
            };
        }
        if stack.is_empty() {
            stack.push(LayerConfig::named("pass-through"));
        }
        stack
    })
}

struct Active {
    running: RunningPlan,
    op: Op,
    sector: u64,
    data: Vec<u8>,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(150), ..ProptestConfig::default() })]

    #[test]
    fn every_sector_reads_back_what_was_last_written(
        stack in stacks(),
        events in proptest::collection::vec(event(), 1..400),
    ) {
        let levels = stack.len();
        let mut executor = started(&stack, &BELOW);
        let capacity = executor.layer(0).capacity();
        // Version of each sector; discarded sectors may contain anything.
        let mut model: Vec<Option<u64>> = vec![Some(0); capacity as usize];
        let mut active: Vec<Active> = Vec::new();
        let mut clock = 0;
        let check = |model: &[Option<u64>], sector: u64, data: &[u8]| {
            for (at, part) in (sector..).zip(data.chunks(SECTOR)) {
                if let Some(wanted) = model[at as usize] {
                    assert_eq!(version(at, part), Some(wanted), "sector {at}");
                }
            }
        };
        let finish = |executor: &mut ImmediateStack<MemDisk>, mut one: Active, model: &[Option<u64>]| {
            while !executor.advance(&mut one.running, &mut one.data).unwrap() {}
            if one.op == Op::Read {
                check(model, one.sector, &one.data);
            }
        };
        for event in events {
            let mut modifiers = CommandFlags::empty();
            let (op, sector, sectors) = match event {
                Event::Write(sector, sectors, flags) => {
                    modifiers = CommandFlags::from_bits_truncate(flags).of(Op::Write);
                    (Op::Write, sector, sectors)
                }
                Event::Read(sector, sectors) => (Op::Read, sector, sectors),
                Event::Discard(sector, sectors, secure) => (if secure { Op::SecureErase } else { Op::Discard }, sector, sectors),
                Event::Flush => (Op::Flush, 0, 0),
                Event::Background(level) => {
                    if level < levels {
                        executor.background(level).unwrap();
                    }
                    continue;
                }
                Event::Drain => {
                    executor.drain().unwrap();
                    continue;
                }
                Event::Advance(which) => {
                    let Some(one) = active.get_mut(which) else { continue };
                    if executor.advance(&mut one.running, &mut one.data).unwrap() {
                        let one = active.remove(which);
                        if one.op == Op::Read {
                            check(&model, one.sector, &one.data);
                        }
                    }
                    continue;
                }
            };
            let sectors = u64::from(sectors).min(capacity) as u32;
            let sector = sector.min(capacity - u64::from(sectors));
            // A request that overlaps another waits, as the driver guarantees, and so does one that is executed as several.
            let alone = !executor.layer(0).accepts().contains(modifiers - CommandFlags::META);
            while let Some(which) = active.iter().position(|one| {
                let end = one.sector + (one.data.len() / SECTOR) as u64;
                alone || one.sector < sector + u64::from(sectors) && sector < end
            }) {
                finish(&mut executor, active.remove(which), &model);
            }
            let mut data = vec![0; sectors as usize * SECTOR];
            if op == Op::Write {
                clock += 1;
                stamp(sector, clock, &mut data);
                model[sector as usize..][..sectors as usize].fill(Some(clock));
            } else if op != Op::Read {
                model[sector as usize..][..sectors as usize].fill(None);
            }
            let running = loop {
                if let Some(running) = executor.begin(op, sector, sectors, modifiers) {
                    break running;
                }
                // Deferred: background work, or a request for which it waits, continues.
                if !executor.background(0).unwrap() {
                    if let Some(running) = executor.begin(op, sector, sectors, modifiers) {
                        break running;
                    }
                    assert!(!active.is_empty(), "deferred for ever");
                    finish(&mut executor, active.remove(0), &model);
                }
            };
            active.push(Active { running, op, sector, data });
            if alone || active.len() > 3 {
                finish(&mut executor, active.remove(0), &model);
            }
        }
        while let Some(one) = active.pop() {
            finish(&mut executor, one, &model);
        }
        for sector in (0..capacity).step_by(8) {
            let mut data = vec![0; 8.min(capacity - sector) as usize * SECTOR];
            executor.submit(Op::Read, sector, &mut data).unwrap();
            check(&model, sector, &data);
        }
        executor.drain().unwrap();
        for level in 0..levels {
            let kept = executor.layer(level).counters().into_iter().find(|(name, _)| *name == "map_entries");
            assert!(kept.is_none_or(|(_, entries)| entries == 0), "level {level} keeps data");
        }
        let mut data = vec![0; capacity as usize * SECTOR];
        executor.submit(Op::Read, 0, &mut data).unwrap();
        check(&model, 0, &data);
    }
}
