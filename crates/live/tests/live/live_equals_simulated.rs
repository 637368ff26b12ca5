//! A layer that uses the journal sends the same writes live as in a replay of the host's trace. The trace has only the number of
//! changed sectors of a block, the live annotator also which they are: the writes to the device depend only on the number.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

#[path = "../../../ext4/tests/ext4/support/mod.rs"]
mod ext4;

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};

use crate::support::{Client, options};
use emmclab_base::CommandFlags;
use emmclab_crash::log::{CommandPort, CrashLogReader, CrashLogRecord};
use emmclab_device::{DeviceConfig, Observer, RequestCompleted};
use emmclab_layers::LayerConfig;
use emmclab_live::{LiveDevice, LiveOptions};
use emmclab_replay::{ComputeCost, ReplayMode, ReplayOptions, Simulation, SimulationResult};
use emmclab_serve::BlockAction;
use emmclab_testing::SeededRandom;
use emmclab_trace::formats::ReadOptions;
use emmclab_trace::{Op, TraceReader};
use ext4::Images;
use ext4::journal::{Fault, Fill, Form, Part, Transaction, Writer, Wrote, journal_blocks};

const BLOCK: usize = 4096;
const SECTORS: u64 = 8;
/// Modes in which the journal is still written.
const MODES: [&str; 6] = ["legacy", "no_barrier", "ordered_fua", "delta", "packed", "aware"];

/// A request of the host.
#[derive(Clone)]
enum Asked {
    Write(u64, Vec<u8>, CommandFlags),
    Flush,
}

/// Transactions that are not checkpointed: first block in the journal, number, and the blocks to write home.
type Live = VecDeque<(u32, u32, Vec<(u64, Fill)>)>;

/// The requests of mkfs and of `transactions` transactions of ext4 in ordered mode: half of them use preflush and FUA, half
/// flushes. Data precedes each transaction, and checkpoints move the tail of the log or empty it.
fn stream(transactions: usize) -> Vec<Asked> {
    let images = Images::new();
    let path = images.make("base", 24 << 20, &["-b", "4096", "-N", "64", "-J", "size=4"]);
    let image = std::fs::read(&path).unwrap();
    let map = journal_blocks(&path);
    let mut asked = Vec::new();
    for (number, block) in image.chunks(BLOCK).enumerate() {
        if block.iter().any(|byte| *byte != 0) {
            asked.push(Asked::Write(number as u64 * SECTORS, block.to_vec(), CommandFlags::empty()));
        }
    }
    asked.push(Asked::Flush);
    let blocks = (image.len() / BLOCK) as u64;
    let superblock = image[map[0] * BLOCK..][..BLOCK].to_vec();
    let place = |block: usize| map.iter().position(|one| *one == block).unwrap() as u32;
    let tail = |start: u32, sequence: u32| {
        let mut bytes = superblock.clone();
        bytes[0x18..0x1C].copy_from_slice(&sequence.to_be_bytes());
        bytes[0x1C..0x20].copy_from_slice(&start.to_be_bytes());
        Asked::Write(map[0] as u64 * SECTORS, bytes, CommandFlags::empty())
    };
    let form = Form { checksums: 0, wide: false, is_async: false, fast_commit: false };
    let mut writer = Writer::new(image, BLOCK, map.clone(), form, 0, 1);
    asked.push(tail(1, 1));
    let mut die = SeededRandom::new(7);
    let mut live: Live = VecDeque::new();
    for number in 0..transactions {
        for _ in 0..die.below(3) {
            let at = blocks - 400 + die.below(300) as u64;
            let data = vec![number as u8; BLOCK * (1 + die.below(4))];
            asked.push(Asked::Write(at * SECTORS, data, CommandFlags::empty()));
        }
        let mut homes: Vec<u64> = (0..=die.below(9)).map(|_| blocks - 1 - die.below(24) as u64).collect();
        homes.sort_unstable();
        homes.dedup();
        let fill = |die: &mut SeededRandom| match die.below(8) {
            0 => Fill::Escaped(number as u8),
            1 => Fill::Byte(number as u8),
            _ => Fill::Sectors(3, die.below(256) as u8),
        };
        let logged: Vec<(u64, Fill)> = homes.iter().map(|home| (*home, fill(&mut die))).collect();
        writer.transaction(&Transaction {
            blocks: logged.clone(),
            revokes: if die.below(5) == 0 { vec![blocks - 30] } else { Vec::new() },
            seconds: number as u64,
            fault: Fault::None,
            uuids: false,
        });
        let wrote = std::mem::take(&mut writer.writes);
        live.push_back((place(wrote[0].block), wrote[0].transaction, logged));
        commit(&wrote, die.below(2) == 0, &mut asked);
        if number % 16 == 15 {
            checkpoint(&mut live, if number % 64 == 63 { 0 } else { 6 }, &mut asked);
            let (start, sequence) = live.front().map_or((0, number as u32 + 2), |one| (one.0, one.1));
            asked.push(tail(start, sequence));
            asked.push(Asked::Flush);
            if start == 0 {
                writer.move_tail();
            }
        }
    }
    asked
}

/// Sends the blocks of a transaction, adjacent blocks in one request, and the writes that commit it.
fn commit(wrote: &[Wrote], by_flags: bool, asked: &mut Vec<Asked>) {
    let (last, blocks) = wrote.split_last().unwrap();
    assert!(last.part == Part::Commit);
    for run in blocks.chunk_by(|one, next| one.block + 1 == next.block) {
        let data = run.iter().flat_map(|one| one.bytes.iter().copied()).collect();
        asked.push(Asked::Write(run[0].block as u64 * SECTORS, data, CommandFlags::META));
    }
    let at = last.block as u64 * SECTORS;
    if by_flags {
        let flags = CommandFlags::PREFLUSH | CommandFlags::RELIABLE;
        asked.push(Asked::Write(at, last.bytes.clone(), flags));
    } else {
        asked.push(Asked::Flush);
        asked.push(Asked::Write(at, last.bytes.clone(), CommandFlags::empty()));
        asked.push(Asked::Flush);
    }
}

/// Writes the blocks of all but the newest `left` transactions home.
fn checkpoint(live: &mut Live, left: usize, asked: &mut Vec<Asked>) {
    while live.len() > left {
        let (_, _, logged) = live.pop_front().unwrap();
        for (home, fill) in logged {
            if !live.iter().any(|(_, _, later)| later.iter().any(|(other, _)| *other == home)) {
                asked.push(Asked::Write(home * SECTORS, fill.block(BLOCK), CommandFlags::META));
            }
        }
    }
}

fn config() -> DeviceConfig {
    DeviceConfig::preset("emmc51-cache").unwrap().with_capacity(256 << 20, "256MB").unwrap()
}

/// Serves the requests, each when the one before it is complete, on a clock on which the host takes no time.
fn serve(layers: &[LayerConfig], asked: &[Asked], folder: &Path) -> (PathBuf, PathBuf, SimulationResult) {
    let (trace, log) = (folder.join("live.parquet"), folder.join("live.log"));
    let options = LiveOptions { layers: layers.to_vec(), record: Some(trace.clone()), log: Some(log.clone()), ..options() };
    let device = LiveDevice::new(&config(), &options, None).unwrap();
    let client = Client::of(&device);
    for one in asked.iter().cloned() {
        match one {
            Asked::Flush => client.flush(),
            Asked::Write(sector, data, flags) => {
                let sectors = (data.len() / 512) as u32;
                client.ask(BlockAction::Write(data), sector, sectors, flags)
            }
        }
        .unwrap();
    }
    // Excludes the flush with which the shutdown makes everything durable.
    let result = device.result();
    device.stop().unwrap();
    (trace, log, result)
}

/// Writes that reached a device, in order: first sector and length.
fn writes_of(log: &Path) -> Vec<(u64, u32)> {
    let mut reader = CrashLogReader::open(log).unwrap();
    let mut result = Vec::new();
    while let Some(records) = reader.next_block().unwrap() {
        for record in records {
            if let CrashLogRecord::Command { port: CommandPort::Device, op: Op::Write, sector, sectors, .. } = record.unwrap() {
                result.push((sector, sectors));
            }
        }
    }
    result
}

/// Collects the response times of requests.
#[derive(Default)]
struct Responses(Vec<i64>);

impl Observer for Responses {
    fn request_completed(&mut self, event: &RequestCompleted) {
        self.0.push(event.complete.0 - event.arrival.0);
    }
}

fn responses_of(trace: &Path) -> Vec<i64> {
    let mut reader = TraceReader::open(trace, &ReadOptions::default()).unwrap();
    let mut result = Vec::new();
    while let Some(batch) = reader.next_batch().unwrap() {
        result.extend(batch.range(0..batch.len()).map(|one| one.complete.unwrap().0 - one.arrival.0));
    }
    result
}

/// Replays the trace of a host, each request when the one before it is complete.
fn simulate(layers: &[LayerConfig], trace: &Path) -> (SimulationResult, Responses) {
    let options = ReplayOptions { mode: ReplayMode::Closed, check: true, first_writes: u32::MAX, ..ReplayOptions::default() };
    let mut simulation = Simulation::new(&config(), &options, None).unwrap().with_layers(layers, None).unwrap();
    let mut responses = Responses::default();
    let mut reader = TraceReader::open(trace, &ReadOptions::default()).unwrap();
    while let Some(batch) = reader.next_batch().unwrap() {
        assert!(simulation.feed(&batch, &mut responses).unwrap());
    }
    let mut result = simulation.finish(None, &mut responses).unwrap();
    result.computing = ComputeCost::default();
    (result, responses)
}

#[test]
fn a_replay_of_the_host_s_trace_sends_the_commands_that_the_live_layer_sends() {
    if Images::if_possible(false, &[]).is_none() {
        return;
    }
    let asked = stream(160);
    let folder = tempfile::tempdir().unwrap();
    let (plain, _, _) = serve(&[], &asked, folder.path());
    let mut different = HashSet::new();
    for mode in MODES {
        let layers = [LayerConfig::named("journal").with("mode", mode).with("log", "2MB")];
        let own = folder.path().join(mode);
        std::fs::create_dir(&own).unwrap();
        let (trace, log, live) = serve(&layers, &asked, &own);
        let (simulated, responses) = simulate(&layers, &plain);
        let writes = writes_of(&log);
        // The log begins when the layer has started.
        let (started, sent) = simulated.first_writes.split_at(simulated.first_writes.len() - writes.len());
        assert_eq!(sent, writes, "{mode}: writes in order");
        assert!(started.len() <= 8, "{mode}: {started:?}");
        assert_eq!(simulated.layers[0].counters, live.layers[0].counters, "{mode}");
        assert_eq!(simulated.layers[0].counters["commits"], 160, "{mode}");
        // Flushes, FUA and reliable writes take other times than plain writes, and the comparison is exact to the nanosecond. The
        // first request of a live device waits for the start of the layer, which a replay counts separately.
        assert_eq!(responses.0[1..], responses_of(&trace)[1..], "{mode}: response times, ns");
        different.insert(responses.0);
    }
    assert_eq!(different.len(), MODES.len(), "each mode sends other commands");
}
