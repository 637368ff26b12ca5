//! Measures the exploration of a log of 1 GB: time to read it, states per second, peak memory.
//!
//! `cargo run --release -p emmclab-crash --example crash_speed [MIB [lru|fifo [WRITES]]]`: size of the log, policy of the cache,
//! and writes between two flushes (64; 0 = no flushes).
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::sync::Arc;
use std::time::Instant;

use emmclab_base::{Nanos, Op};
use emmclab_crash::log::{CommandPort, CrashLogHeader, CrashLogRecord, CrashLogWriter, DeviceFacts};
use emmclab_crash::{CrashLogIndex, ExploreOptions, Explorer};
use emmclab_testing::{SeededRandom, peak_bytes};

const BLOCK_SECTORS: u32 = 8;

fn main() {
    let argument = |place| std::env::args().nth(place);
    let number = |place, usual: u64| argument(place).map_or(usual, |text: String| text.parse().unwrap());
    let (mib, flush_every) = (number(1, 1024), number(3, 64));
    let fifo = argument(2).is_some_and(|policy| policy == "fifo");
    let file = tempfile::NamedTempFile::new().unwrap();
    let sectors = 1 << 22;
    let device = DeviceFacts {
        name: "a device with a cache".to_owned(),
        sectors,
        unit_sectors: BLOCK_SECTORS,
        fifo,
        lies: "none".to_owned(),
        ..DeviceFacts::default()
    };
    let header = CrashLogHeader { device, sectors, ..CrashLogHeader::default() };
    let begun = Instant::now();
    let mut log = CrashLogWriter::create(file.path(), &header).unwrap();
    let (mut now, mut random) = (0, SeededRandom::new(1));
    let mut data = [0; BLOCK_SECTORS as usize * 512];
    let writes = mib * 256;
    for number in 0..writes {
        let dice = random.bits();
        // Half of each block is noise, which does not compress.
        for (place, word) in data.chunks_exact_mut(8).take(256).enumerate() {
            word.copy_from_slice(&dice.wrapping_mul(2 * place as u64 + 1).to_le_bytes());
        }
        let flush = flush_every > 0 && number % flush_every == flush_every - 1;
        let (op, sector, sectors, data) =
            if flush { (Op::Flush, 0, 0, &[][..]) } else { (Op::Write, dice % (sectors / 8) * 8, BLOCK_SECTORS, &data[..]) };
        let (port, flags, packed_after) = (CommandPort::Device, 0, 0);
        let at = Nanos(now);
        log.add(&CrashLogRecord::Command { port, number, at, op, sector, sectors, flags, packed_after, data }).unwrap();
        log.add(&CrashLogRecord::Complete { port, number, at: Nanos(now + 500) }).unwrap();
        now += 1000;
    }
    log.finish().unwrap();
    drop(log);
    let stored = fs::metadata(file.path()).unwrap().len() >> 20;
    println!("{mib} MiB written to a log of {stored} MiB in {:.1} s", begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    let run = Arc::new(CrashLogIndex::open(file.path()).unwrap());
    println!("read in {:.1} s, {} moments", begun.elapsed().as_secs_f64(), run.moments().len());
    let begun = Instant::now();
    let options = ExploreOptions { cuts: 1000, ..ExploreOptions::default() };
    let mut explorer = Explorer::new(&run, &options).unwrap();
    let (mut states, mut buffer) = (0_u64, [0; 4096]);
    while let Some(state) = explorer.next_state() {
        states += 1;
        explorer.view(&state).read(0, &mut buffer).unwrap();
    }
    let took = begun.elapsed().as_secs_f64();
    let covered = explorer.covered();
    println!(
        "{states} states of {} cuts in {took:.1} s: {:.0} states/s, {:.0} chosen per second, at most {} writes beyond promises",
        covered.cuts,
        states as f64 / took,
        covered.chosen as f64 / took,
        covered.most_unpromised,
    );
    println!("peak memory: {} kB", peak_bytes() / 1024);
}
