//! Prints how fast layers decide, how much memory they use, and how much recovery after a power cut reads:
//! `cargo run --release -p emmclab-layers --example layer_speed`; a name after `--` selects the measurements whose names begin with it.

use std::io;

use emmclab_base::{BlockNote, BlockRole, CommandFlags, Op, Result, SectorSet};
use emmclab_layers::{
    BackgroundDecision, CommandPlan, DisksBelow, HostRequest, ImmediateStack, InFlightRequests, Layer, LayerConfig,
    RequestDecision, SectorDisk, build_stack,
};
use emmclab_testing::{processor_time, resident_bytes};

/// 12 GB, as in the paper, in sectors; and the card.
const BELOW: DisksBelow = DisksBelow::new(12 << 21, Some(32 << 21));

fn main() -> Result<()> {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let advil = || LayerConfig::named("advil").with("second_device", "true");
    if "pass-through".starts_with(&wanted) {
        drive("pass-through", &LayerConfig::named("pass-through"), 40_000_000, u64::MAX)?;
    }
    for (what, config) in [
        ("advil", advil()),
        ("advil, hot rewritten", advil().with("hot", "rewritten")),
        ("advil, recovery", advil().with("recovery", "true")),
        ("advil, recovery without checkpoints", advil().with("recovery", "true").with("checkpoint", "0")),
        ("ressd", LayerConfig::named("ressd").with("second_device", "true")),
        ("lfs", LayerConfig::named("lfs")),
    ] {
        if !what.starts_with(&wanted) {
            continue;
        }
        drive(&format!("{what}, 4 KB writes in 1 GB"), &config, 4_000_000, 1 << 21)?;
        drive(&format!("{what}, 4 KB writes in 12 GB"), &config, 4_000_000, 12 << 21)?;
    }
    if !wanted.is_empty() {
        return Ok(());
    }
    for mode in ["legacy", "no_barrier", "no_journal", "ordered_fua", "delta", "packed", "aware"] {
        commits(mode, 500_000)?;
    }
    for checkpoint in ["0", "8MB", "32MB"] {
        for logged_mb in [8, 32, 64, 128, 512] {
            come_back(checkpoint, logged_mb)?;
        }
    }
    Ok(())
}

/// A disk without contents, or one in memory; counts the bytes that are read.
struct Counted {
    data: Option<Vec<u8>>,
    reads: u64,
    bytes: u64,
}

impl SectorDisk for Counted {
    fn read(&mut self, sector: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.reads += 1;
        self.bytes += buffer.len() as u64;
        match &self.data {
            Some(data) => buffer.copy_from_slice(&data[sector as usize * 512..][..buffer.len()]),
            None => buffer.fill(0),
        }
        Ok(())
    }

    fn write(&mut self, sector: u64, bytes: &[u8], _: CommandFlags) -> io::Result<()> {
        if let Some(data) = &mut self.data {
            data[sector as usize * 512..][..bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }

    fn discard(&mut self, _sector: u64, _sectors: u32, _secure: bool) -> io::Result<()> {
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Recovery after this amount (MB) of durable random 4 KB writes within 12 GB, with a reserved area of 256 MB.
fn come_back(checkpoint: &str, logged_mb: u64) -> Result<()> {
    let config = LayerConfig::named("advil")
        .with("second_device", "true")
        .with("original", "12GB")
        .with("recovery", "true")
        .with("checkpoint", checkpoint);
    let below = DisksBelow::new(BELOW.main, Some(256 << 11));
    let layers = || build_stack(std::slice::from_ref(&config), &below);
    let second = Counted { data: Some(vec![0; 256 << 20]), reads: 0, bytes: 0 };
    let disks = vec![Counted { data: None, reads: 0, bytes: 0 }, second];
    let said = |error: io::Error| emmclab_base::Error::new(emmclab_base::ErrorClass::Config, error.to_string());
    let mut executor = ImmediateStack::start(layers()?, disks, false).map_err(said)?;
    let mut data = [7; 4096];
    let mut seed = 1_u64;
    for i in 0..logged_mb * 256 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let sector = ((u128::from(seed) * u128::from(below.main / 8)) >> 64) as u64 * 8;
        executor.submit(emmclab_base::Op::Write, sector, &mut data).map_err(said)?;
        if i % 16 == 0 {
            executor.background(0).map_err(said)?;
        }
    }
    let counters = executor.layer(0).counters();
    let written = counters.iter().find(|(name, _)| *name == "checkpoint_bytes").map_or(0, |(_, bytes)| *bytes);
    let mut disks = executor.into_disks();
    (disks[1].reads, disks[1].bytes) = (0, 0);
    let begin = processor_time();
    let mut executor = ImmediateStack::start(layers()?, disks, true).map_err(said)?;
    let took = processor_time().saturating_sub(begin).as_secs_f64();
    let disk = &executor.disks()[1];
    println!(
        "recovery, checkpoint {checkpoint}, {logged_mb} MB logged: {} reads of {:.1} MB, {:.1} ms in memory, {:.1} MB of checkpoints written",
        disk.reads,
        disk.bytes as f64 / 1_048_576.0,
        took * 1e3,
        written as f64 / 1_048_576.0
    );
    Ok(())
}

/// Random 4 KB writes below `span` sectors, each request with the background work that it causes.
fn drive(what: &str, config: &LayerConfig, requests: u64, span: u64) -> Result<()> {
    let mut best = f64::MAX;
    let mut memory = 0;
    let mut counters = Vec::new();
    for _ in 0..3 {
        let before = resident_bytes();
        let mut layers = build_stack(std::slice::from_ref(config), &BELOW)?;
        let layer = &mut *layers[0];
        let mut plan = CommandPlan::default();
        let mut background = CommandPlan::default();
        let in_flight = InFlightRequests::default();
        layer.start(&mut plan);
        let units = span.min(layer.capacity()) / 8;
        let mut seed = 1_u64;
        let begin = processor_time();
        for id in 0..requests {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let sector = ((u128::from(seed) * u128::from(units)) >> 64) as u64 * 8;
            let modifiers = CommandFlags::empty();
            let request = HostRequest { id, op: Op::Write, sector, sectors: 8, modifiers };
            loop {
                plan.clear();
                if layer.request(&request, &[], &mut plan) == RequestDecision::Run {
                    break;
                }
                work(layer, &in_flight, &mut background);
            }
            std::hint::black_box(plan.steps());
            layer.completed(id);
            // Background moves run now and then, as with a device.
            if id % 64 == 0 {
                work(layer, &in_flight, &mut background);
            }
        }
        best = best.min(processor_time().saturating_sub(begin).as_secs_f64());
        memory = memory.max(resident_bytes().saturating_sub(before));
        counters = layer.counters();
    }
    println!("{what}: {:.2} million requests/s, {:.2} MB more resident", requests as f64 / best / 1e6, memory as f64 / 1e6);
    for (name, count) in counters.iter().filter(|(name, _)| name.contains("map") || name.contains("memory")) {
        println!("    {name} {count}");
    }
    Ok(())
}

fn work(layer: &mut dyn Layer, in_flight: &InFlightRequests, plan: &mut CommandPlan) {
    plan.clear();
    if layer.background(in_flight, plan) == BackgroundDecision::Run {
        std::hint::black_box(plan.steps());
        layer.background_done();
    }
}

/// Sectors of the journal of [`commits`], and where it begins; its superblock lies before.
const JOURNAL: (u64, u64) = (1 << 20, 1 << 15);

/// Transactions as ext4 sends them: data, a descriptor with four logged blocks in which two sectors changed, and a commit block with
/// preflush and FUA. The tail of the journal moves every 512 transactions. Each request completes before the next is sent.
fn commits(mode: &str, transactions: u64) -> Result<()> {
    let config = LayerConfig::named("journal").with("mode", mode);
    let mut best = f64::MAX;
    let mut requests = 0;
    let mut counters = Vec::new();
    for _ in 0..3 {
        let mut layers = build_stack(std::slice::from_ref(&config), &BELOW)?;
        let layer = &mut *layers[0];
        let mut plan = CommandPlan::default();
        layer.start(&mut plan);
        let mut id = 0;
        let mut send = |sector: u64, modifiers: CommandFlags, notes: &[BlockNote]| {
            let sectors = notes.iter().map(|note| note.sectors).sum();
            plan.clear();
            layer.request(&HostRequest { id, op: Op::Write, sector, sectors, modifiers }, notes, &mut plan);
            std::hint::black_box(plan.steps());
            layer.completed(id);
            id += 1;
        };
        let begin = processor_time();
        for number in 0..transactions {
            let transaction = Some(number as u32 + 1);
            let note = |role, home, changed| BlockNote {
                transaction,
                home,
                changed: Some(SectorSet(changed)),
                ..BlockNote::new(role, 8)
            };
            let at = JOURNAL.0 + number * 48 % JOURNAL.1 / 48 * 48;
            send(8 * (number % 4096), CommandFlags::empty(), &[BlockNote::new(BlockRole::Data, 8)]);
            let logged = (0..4).map(|i| note(BlockRole::Logged, Some((4096 + (number * 3 + i) % 64) * 8), 3));
            let blocks: Vec<BlockNote> = [note(BlockRole::Descriptor, None, 1)].into_iter().chain(logged).collect();
            send(at, CommandFlags::META, &blocks);
            send(at + 40, CommandFlags::PREFLUSH | CommandFlags::RELIABLE, &[note(BlockRole::Commit, None, 1)]);
            if number % 512 == 511 {
                send(JOURNAL.0 - 8, CommandFlags::empty(), &[note(BlockRole::JournalSuperblock, Some(at), 1)]);
            }
        }
        best = best.min(processor_time().saturating_sub(begin).as_secs_f64());
        requests = id;
        counters = layer.counters();
    }
    println!(
        "journal:{mode}, commits of four blocks: {:.0} ns a request, {:.2} million requests/s",
        best * 1e9 / requests as f64,
        requests as f64 / best / 1e6
    );
    for (name, count) in counters.iter().filter(|(name, _)| ["log_records", "commits_in_place"].contains(name)) {
        println!("    {name} {count}");
    }
    Ok(())
}
