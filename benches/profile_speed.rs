//! Measures speed and memory of a complete profile.
//!
//! ```text
//! cargo run --release -p emmclab-profile --example profile_speed [-- --requests N] [TRACE...]
//! ```
//!
//! Profiles a synthetic stream (by default 50 million requests over 32 GB) and each trace in the arguments, repeated with increasing
//! times to ten million requests, or to N if that is less. Prints requests per second of one core, and the peak resident memory of
//! the process.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use emmclab_profile::{Profile, ProfileOptions};
use emmclab_testing::{SeededRandom, peak_bytes, processor_time};
use emmclab_trace::{BATCH_ROWS, Batch, BatchBuilder, Ledger, Nanos, Op, ReadOptions, Request, Sector, TraceHeader, TraceReader};

const REPEATED: u64 = 10_000_000;
const DEVICE_SECTORS: u64 = 32 << 21;

fn main() -> Result<(), Box<dyn Error>> {
    let mut requests = 50_000_000;
    let mut arguments = std::env::args().skip(1);
    println!("{:<28} {:>12} {:>9} {:>14} {:>10}", "stream", "requests", "CPU s", "requests/s", "peak MB");
    let mut paths = Vec::new();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--requests" => requests = arguments.next().ok_or("--requests needs a number")?.parse()?,
            _ => paths.push(argument),
        }
    }
    for path in paths {
        let batches = read(&path)?;
        let once: u64 = batches.iter().map(|batch| batch.len() as u64).sum();
        let times = REPEATED.min(requests).div_ceil(once);
        let span = span(&batches);
        measure(&path, (0..times).flat_map(|round| batches.iter().map(move |batch| later(batch, round as i64 * span))));
    }
    let mut random = SeededRandom::new(1);
    let mut now = 0;
    let full = (0..requests / BATCH_ROWS as u64).map(|_| synthetic(&mut random, &mut now));
    measure("synthetic over 32 GB", full);
    Ok(())
}

fn read(path: &str) -> Result<Vec<Batch>, emmclab_trace::Error> {
    let mut reader = TraceReader::open(path.as_ref(), &ReadOptions::default())?;
    let mut batches = Vec::new();
    while let Some(batch) = reader.next_batch()? {
        batches.push(batch);
    }
    Ok(batches)
}

/// Returns the time from the first arrival to the last completion, plus a second.
fn span(batches: &[Batch]) -> i64 {
    let times = || batches.iter().flat_map(Batch::iter);
    let first = times().next().map_or(0, |request| request.arrival.0);
    times().map(|request| request.complete.unwrap_or(request.arrival).0).max().unwrap_or(0) - first + 1_000_000_000
}

/// Returns the batch with all times shifted.
fn later(batch: &Batch, by: i64) -> Batch {
    let mut builder = BatchBuilder::default();
    let put = |time: Nanos| Nanos(time.0 + by);
    for request in batch {
        builder.push(&Request {
            arrival: put(request.arrival),
            start: request.start.map(put),
            issue: request.issue.map(put),
            served: request.served.map(put),
            complete: request.complete.map(put),
            ..request
        });
    }
    builder.finish(batch.processes(), batch.devices())
}

/// Generates a phone-like mix: 75 % writes, sizes of 4 to 64 KB, 25 % sequential, gaps of 0.01 to 400 ms, and half of the random
/// requests in a hot sixteenth of the device.
fn synthetic(random: &mut SeededRandom, now: &mut i64) -> Batch {
    let mut builder = BatchBuilder::default();
    let mut next = 0;
    for _ in 0..BATCH_ROWS {
        let bits = random.bits();
        let sectors = 8 << [0, 0, 0, 0, 0, 1, 2, 4][(bits & 7) as usize];
        let range = if bits >> 3 & 1 == 0 { DEVICE_SECTORS } else { DEVICE_SECTORS / 16 };
        let sector = if (bits >> 4).is_multiple_of(4) { next } else { random.bits() % (range - 256) / 8 * 8 };
        *now += 10_000 << (bits >> 6 & 15);
        let at = |us: i64| Some(Nanos(*now + us * 1_000));
        let service = 150 + (bits >> 10 & 1_023) as i64;
        let op = if (bits >> 20).is_multiple_of(4) { Op::Read } else { Op::Write };
        let request = Request::new(Nanos(*now), op, Sector(sector), sectors);
        builder.push(&Request { start: at(20), issue: at(40), complete: at(40 + service), ..request });
        next = (sector + u64::from(sectors)) % (DEVICE_SECTORS - 256);
    }
    builder.finish(&Arc::default(), &Arc::default())
}

/// Measures the profile of the batches, without the time to generate them.
fn measure(name: &str, batches: impl Iterator<Item = Batch>) {
    let mut profile = Profile::new(ProfileOptions { name: name.to_owned(), ..ProfileOptions::default() });
    let (mut spent, mut requests) = (Duration::ZERO, 0);
    for batch in batches {
        requests += batch.len();
        let begun = processor_time();
        profile.update(&batch);
        spent += processor_time().saturating_sub(begun);
    }
    let begun = processor_time();
    let report = profile.finish(&Ledger::default(), &TraceHeader::default());
    spent += processor_time().saturating_sub(begun);
    let counted = report.by_operation.iter().filter(|row| row.op != "all").map(|row| row.requests);
    assert_eq!(counted.sum::<u64>(), requests as u64, "every request is in the profile");
    tell(name.rsplit('/').next().unwrap_or(name), requests, spent);
}

fn tell(name: &str, requests: usize, spent: Duration) {
    let spent_s = spent.as_secs_f64();
    let per_s = requests as f64 / spent_s;
    println!("{name:<28} {requests:>12} {spent_s:>9.2} {per_s:>14.0} {:>10.1}", peak_bytes() as f64 / 1_048_576.0);
}
