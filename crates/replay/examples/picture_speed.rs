//! Prints how fast pictures for Perfetto are written, and in how much memory:
//! `cargo run --release -p emmclab-replay --example picture_speed -- convert|simulate|quiet REQUESTS`.
//!
//! `convert` draws a trace, `simulate` a run on nexus5, `quiet` is that run without a picture. Each is a process of its own, so
//! that the peak memory is its own. Requests are 4 KB to 32 KB, 60 % writes, of 8 processes, 1 ms apart.

use std::time::Instant;

use emmclab_device::DeviceConfig;
use emmclab_replay::{ReplayOptions, RunRecorder, RunTracks, Simulation};
use emmclab_testing::SeededRandom;
use emmclab_trace::{
    BATCH_ROWS, Batch, BatchBuilder, Error, ErrorClass, Ledger, NameTable, Nanos, Op, Request, Result,
    Sector, TraceHeader, TraceWriter, WriteOptions,
};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, requests] = arguments.as_slice() else { return Err(usage()) };
    let requests: u64 = requests.parse().map_err(|_| usage())?;
    let path = std::env::temp_dir().join(format!("emmclab-{}.pftrace", std::process::id()));
    let begin = Instant::now();
    match what.as_str() {
        "convert" => {
            let mut writer = TraceWriter::create(&path, &TraceHeader::default(), &WriteOptions::default())?;
            for batch in batches(requests) {
                writer.write(&batch)?;
            }
            writer.finish(&Ledger::default(), &TraceHeader::default())?;
        }
        "simulate" | "quiet" => {
            let config = DeviceConfig::preset("nexus5")?;
            let mut simulation = Simulation::new(&config, &ReplayOptions::default(), None)?;
            let mut recorder = RunRecorder::default();
            if what == "simulate" {
                let mut tracks = RunTracks::create(path.clone())?;
                tracks.begin(config.name(), simulation.device(), Nanos::ZERO)?;
                recorder.tracks = Some(tracks);
            }
            for batch in batches(requests) {
                recorder.feed(&mut simulation, &batch)?;
            }
            let mut result = recorder.end(simulation, None)?;
            recorder.finish(&mut result, None)?;
        }
        _ => return Err(usage()),
    }
    let seconds = begin.elapsed().as_secs_f64();
    let bytes = std::fs::metadata(&path).map_or(0, |file| file.len());
    let _ = std::fs::remove_file(&path);
    println!(
        "{what} {requests} requests: {seconds:.2} s, {:.3} million requests/s, {:.1} MB ({:.0} B a request), peak {:.1} MB",
        requests as f64 / seconds / 1e6,
        bytes as f64 / 1_048_576.0,
        bytes as f64 / requests as f64,
        peak_kb() as f64 / 1024.0
    );
    Ok(())
}

fn usage() -> Error {
    Error::new(ErrorClass::Config, "give what to do and how many requests")
        .hint("convert|simulate|quiet REQUESTS")
}

fn batches(requests: u64) -> impl Iterator<Item = Batch> {
    let mut names = NameTable::default();
    let ids: Vec<_> = (0..8).map(|number| names.intern(&format!("process-{number}"))).collect();
    let names = std::sync::Arc::new(names);
    let mut die = SeededRandom::new(2015);
    let rows = BATCH_ROWS as u64;
    (0..requests.div_ceil(rows)).map(move |batch| {
        let mut builder = BatchBuilder::default();
        for number in batch * rows..requests.min((batch + 1) * rows) {
            let op = if die.below(10) < 6 { Op::Write } else { Op::Read };
            let sector = Sector(die.below(500_000) as u64 * 8);
            let arrival = Nanos::from_millis(number as i64);
            builder.push(&Request {
                start: Some(arrival + Nanos::from_micros(20)),
                complete: Some(arrival + Nanos::from_micros(200 + die.below(2_000) as i64)),
                process: Some(ids[die.below(8)]),
                ..Request::new(arrival, op, sector, 8 << die.below(4))
            });
        }
        builder.finish(&names, &std::sync::Arc::default())
    })
}

/// Peak resident memory of this process, from the kernel.
fn peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").trim().parse().unwrap_or(0)
}
