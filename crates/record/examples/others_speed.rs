//! How fast traces of other recorders are read on one core, and in how much memory: `others_speed FOLDER [REQUESTS]`.
//!
//! Writes large traces into the folder (some GB for 10,000,000 requests) and removes them: a Perfetto trace of block events
//! alone, one with eight scheduler events beside each request as a phone's has, the same with its packets compressed, and a
//! `trace.dat` of the pages of a real kernel, again and again.

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use emmclab_record::{Files, HelperFrame, HelperStream, open_trace};
use emmclab_trace::ReadOptions;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PAGE: usize = 4096;
const CPUS: u64 = 8;
/// Requests in a bundle: some 30 KB of events.
const BUNDLE: u64 = 128;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("usage: others_speed FOLDER [REQUESTS]")?;
    let requests: u64 = arguments.next().map_or(Ok(2_000_000), |number| number.parse())?;
    println!(
        "{:<28} {:>11} {:>10} {:>10} {:>7} {:>7} {:>9}",
        "trace", "bytes", "events", "requests", "CPU s", "MB/s", "Mevents/s"
    );
    let path = Path::new(&folder).join("others_speed.trace");
    for (name, others, packed) in
        [("perfetto, block", 0, false), ("perfetto, with sched", 8, false), ("perfetto, compressed", 8, true)]
    {
        perfetto(&path, requests, others, packed)?;
        measure(name, &path)?;
    }
    trace_dat(&path, requests)?;
    measure("trace.dat", &path)?;
    std::fs::remove_file(&path)?;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    println!("{}", status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("VmHWM: unknown"));
    Ok(())
}

fn measure(name: &str, path: &Path) -> Result<()> {
    let begin = processor_time();
    let mut reader = open_trace(path, &ReadOptions::default())?;
    let mut requests = 0;
    while let Some(batch) = reader.next_batch()? {
        requests += batch.len();
    }
    let seconds = processor_time().saturating_sub(begin).as_secs_f64();
    let (bytes, events) = (path.metadata()?.len(), reader.ledger().seen);
    println!(
        "{name:<28} {bytes:>11} {events:>10} {requests:>10} {seconds:>7.2} {:>7.0} {:>9.2}",
        bytes as f64 / 1e6 / seconds,
        events as f64 / 1e6 / seconds
    );
    Ok(())
}

/// Time that this thread has had a processor: other work on the machine does not count.
fn processor_time() -> Duration {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(statistics.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0))
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn number(out: &mut Vec<u8>, field: u64, value: u64) {
    varint(out, field << 3);
    varint(out, value);
}

fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    varint(out, field << 3 | 2);
    varint(out, value.len() as u64);
    out.extend(value);
}

/// An `FtraceEvent` into a bundle: a block event (`field` 119, 45 or 125) of the request at `sector`, or `sched_switch` (4).
fn event(out: &mut Vec<u8>, time: u64, field: u64, sector: u64) {
    let (mut message, mut inner) = (Vec::new(), Vec::new());
    number(&mut message, 1, time);
    number(&mut message, 2, 4_321);
    if field == 4 {
        bytes(&mut inner, 1, b"RenderThread");
        for (field, value) in [(2, 4_321), (3, 120), (4, 1), (6, 0), (7, 120)] {
            number(&mut inner, field, value);
        }
        bytes(&mut inner, 5, b"swapper/3");
    } else {
        for (field, value) in [(1, 179 << 8), (2, sector), (3, 8)] {
            number(&mut inner, field, value);
        }
        bytes(&mut inner, if field == 119 { 4 } else { 5 }, b"WS");
        if field != 125 {
            bytes(&mut inner, if field == 119 { 5 } else { 6 }, b"Thread-7");
        }
    }
    bytes(&mut message, field, &inner);
    bytes(out, 2, &message);
}

/// A request each 200 microseconds, on all CPUs in turn, with `others` events beside each.
fn perfetto(path: &Path, requests: u64, others: u64, packed: bool) -> Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut round = Vec::new();
    let bundles = requests.div_ceil(BUNDLE);
    for number_of in 0..bundles {
        let (mut bundle, mut packet) = (Vec::new(), Vec::new());
        let (cpu, begin) = (number_of % CPUS, number_of / CPUS * CPUS * BUNDLE * 200_000);
        number(&mut bundle, 1, cpu);
        for i in 0..BUNDLE {
            let time = begin + (i * CPUS + cpu) * 200_000;
            let sector = (number_of * BUNDLE + i) * 7_919 % 7_800_000 * 8;
            for (step, field) in [119, 45, 125].into_iter().enumerate() {
                event(&mut bundle, time + 40_000 * step as u64, field, sector);
            }
            for other in 0..others {
                event(&mut bundle, time + 90_000 + other * 10_000, 4, 0);
            }
        }
        number(&mut packet, 10, 2);
        bytes(&mut packet, 1, &bundle);
        bytes(&mut round, 1, &packet);
        if cpu + 1 == CPUS || number_of + 1 == bundles {
            if packed {
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(&round)?;
                let (mut packet, mut out) = (Vec::new(), Vec::new());
                bytes(&mut packet, 50, &encoder.finish()?);
                bytes(&mut out, 1, &packet);
                round = out;
            }
            file.write_all(&round)?;
            round.clear();
        }
    }
    Ok(file.into_inner()?.sync_all()?)
}

/// A version 6 file: the pages of a kept recording, each time later by its span.
fn trace_dat(path: &Path, requests: u64) -> Result<()> {
    /// Requests in the recording, and a time that it does not exceed.
    const REQUESTS: u64 = 245;
    const SPAN: u64 = 1_000_000_000;
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/host.stream.zst");
    let stream = zstd::decode_all(File::open(kept)?)?;
    let mut stream = HelperStream::new(&stream[..]);
    let files = stream.texts("ready")?;
    stream.texts("stream")?;
    let mut cpus = [Vec::new(), Vec::new()];
    while let HelperFrame::Pages { cpu, count } = stream.frame()? {
        for _ in 0..count {
            let mut page = vec![0; PAGE];
            stream.page(&mut page)?;
            cpus[cpu].push(page);
        }
    }
    let times = requests.div_ceil(REQUESTS);
    let mut head = head_of_version_6(&files);
    let mut at = (head.len() as u64 + 32).next_multiple_of(PAGE as u64);
    for cpu in &cpus {
        let size = times * (cpu.len() * PAGE) as u64;
        head.extend([at.to_le_bytes(), size.to_le_bytes()].concat());
        at += size;
    }
    head.resize(head.len().next_multiple_of(PAGE), 0);
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    file.write_all(&head)?;
    for pages in &cpus {
        for time in 0..times {
            for page in pages {
                let begin = page[..8].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
                file.write_all(&(begin + time * SPAN).to_le_bytes())?;
                file.write_all(&page[8..])?;
            }
        }
    }
    Ok(file.into_inner()?.sync_all()?)
}

/// All up to the table of CPUs.
fn head_of_version_6(files: &Files) -> Vec<u8> {
    let mut head = b"\x17\x08\x44tracing6\0\0\x08\0\x10\0\0".to_vec();
    let text = |head: &mut Vec<u8>, text: &str| {
        head.extend((text.len() as u64).to_le_bytes());
        head.extend(text.as_bytes());
    };
    for name in ["header_page", "header_event"] {
        head.extend([name.as_bytes(), b"\0"].concat());
        text(&mut head, &files[&format!("events/{name}")]);
    }
    let events: Vec<_> = files.iter().filter(|(name, _)| name.starts_with("events/block/")).collect();
    head.extend([&[0; 4][..], &[1, 0, 0, 0], b"block\0", &(events.len() as u32).to_le_bytes()].concat());
    for (_, format) in events {
        text(&mut head, format);
    }
    head.extend([&[0; 16][..], &[2, 0, 0, 0], b"flyrecord\0"].concat());
    head
}
