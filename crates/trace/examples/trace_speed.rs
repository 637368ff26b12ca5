//! Measures how fast one core reads traces: `trace_speed FILE...`. `trace_speed --make FILE ROWS` writes a Parquet trace with
//! that many requests.

use std::path::Path;
use std::time::Instant;

use emmclab_testing::{SeededRandom, peak_bytes};
use emmclab_trace::{
    BATCH_ROWS, BatchBuilder, Ledger, NameTable, Nanos, Op, ReadOptions, Request, RequestFlags, Result, Sector, TraceHeader,
    TraceReader, TraceWriter, WriteOptions,
};

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, path, rows] = arguments.as_slice()
        && flag == "--make"
    {
        return Ok(make(Path::new(path), rows.parse()?)?);
    }
    println!("{:>10} {:>12} {:>8} {:>8} {:>9}  file", "requests", "bytes", "s", "MB/s", "Mreq/s");
    for path in &arguments {
        let begin = Instant::now();
        let (requests, bytes) = read(Path::new(path))?;
        let seconds = begin.elapsed().as_secs_f64();
        println!(
            "{requests:>10} {bytes:>12} {seconds:>8.3} {:>8.1} {:>9.2}  {path}",
            bytes as f64 / 1e6 / seconds,
            requests as f64 / 1e6 / seconds,
        );
    }
    println!("peak memory: {} kB", peak_bytes() / 1024);
    Ok(())
}

/// Number of requests and bytes in a trace.
fn read(path: &Path) -> Result<(u64, u64)> {
    let mut reader = TraceReader::open(path, &ReadOptions::default())?;
    let mut requests = 0;
    while let Some(batch) = reader.next_batch()? {
        requests += batch.len() as u64;
    }
    Ok((requests, reader.progress().done))
}

/// Writes a trace with a value in every column, similar to that of a phone, from a fixed generator.
fn make(path: &Path, rows: u64) -> Result<()> {
    let header = TraceHeader { source: "made".into(), clock: "relative".into(), ..TraceHeader::default() };
    let mut writer = TraceWriter::create(path, &header, &WriteOptions::default())?;
    let mut processes = NameTable::default();
    let names: Vec<_> = (0..40).map(|i| processes.intern(&format!("process{i}"))).collect();
    let mut devices = NameTable::default();
    let device = devices.intern("179,0");
    let (processes, devices) = (processes.into(), devices.into());
    let mut random = SeededRandom::new(1);
    let mut now = 1_398_406_382_756_832_000i64;
    let mut builder = BatchBuilder::default();
    for i in 0..rows {
        now += (random.bits() % 3_000_000) as i64;
        let wait = (random.bits() % 50_000) as i64;
        builder.push(&Request {
            start: Some(Nanos(now + wait)),
            issue: Some(Nanos(now + wait + 15_000 + (random.bits() % 4096) as i64)),
            complete: Some(Nanos(now + wait + 500_000 + (random.bits() % 1_000_000) as i64)),
            flags: RequestFlags((random.bits() % 8) as u16),
            pid: Some((random.bits() % 300) as i32),
            process: Some(names[(random.bits() % 40) as usize]),
            device: Some(device),
            ..Request::new(
                Nanos(now),
                if random.bits() % 10 < 7 { Op::Write } else { Op::Read },
                Sector(random.bits() % (8 << 20) * 8),
                8 << (random.bits() % 6),
            )
        });
        if builder.len() == BATCH_ROWS || i + 1 == rows {
            writer.write(&builder.finish(&processes, &devices))?;
        }
    }
    writer.finish(&Ledger { seen: rows, kept: rows, ..Ledger::default() }, &header)
}
