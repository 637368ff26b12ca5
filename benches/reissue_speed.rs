//! Reads Parquet traces with and without judging re-issues; `benches/reissue_cost.py` counts the instructions of both.
//!
//! ```text
//! cargo run --release -p emmclab-trace --example reissue_speed -- --make FOLDER REQUESTS
//! cargo run --release -p emmclab-trace --example reissue_speed -- FILE...
//! ```
//!
//! `--make` writes pairs of traces: `KIND-judged.parquet` is judged as it is read, `KIND-stored.parquet` has the same rows
//! and says that no request is a re-issue. Kinds: `processes`, `completions` and `both` are recorded. One request in five is
//! a kernel worker's, sectors are within 64 MB, so that ranges repeat, and 50,000 requests arrive in a second.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use emmclab_trace::{
    BATCH_ROWS, BatchBuilder, Ledger, NameTable, Nanos, Op, ReadOptions, Request, Sector, TraceHeader,
    TraceReader, TraceWriter, WriteOptions,
};

/// Kinds of traces: name, whether processes are recorded, and whether completions are.
const KINDS: [(&str, bool, bool); 3] =
    [("processes", true, false), ("completions", false, true), ("both", true, true)];
const PAGES: u64 = (64 << 20) / 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, folder, requests] = arguments.as_slice()
        && flag == "--make"
    {
        let requests = requests.parse()?;
        for kind in KINDS {
            for (state, reissued) in [("judged", None), ("stored", Some(0))] {
                let path = Path::new(folder).join(format!("{}-{state}.parquet", kind.0));
                make(&path, requests, kind, reissued)?;
            }
        }
        return Ok(());
    }
    println!("{:>10} {:>9} {:>8}  file", "requests", "reissued", "s");
    for path in &arguments {
        let begin = Instant::now();
        let mut reader = TraceReader::open(path.as_ref(), &ReadOptions::default())?;
        let mut requests = 0;
        while let Some(batch) = reader.next_batch()? {
            requests += batch.len();
        }
        let reissued = reader.ledger().reissued.unwrap_or(0);
        println!("{requests:>10} {reissued:>9} {:>8.3}  {path}", begin.elapsed().as_secs_f64());
    }
    Ok(())
}

fn make(
    path: &Path,
    requests: u64,
    (_, processes, completions): (&str, bool, bool),
    reissued: Option<u64>,
) -> emmclab_trace::Result<()> {
    let header = TraceHeader { source: "made".into(), clock: "relative".into(), ..TraceHeader::default() };
    let mut writer = TraceWriter::create(path, &header, &WriteOptions::default())?;
    let mut names = NameTable::default();
    let (app, worker) = (names.intern("app"), names.intern("kworker/u17:1"));
    let names = if processes { Arc::new(names) } else { Arc::default() };
    let mut state = 1_u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut builder = BatchBuilder::default();
    for number in 0..requests {
        let arrival = Nanos(number.cast_signed() * 20_000);
        let op = if random().is_multiple_of(4) { Op::Read } else { Op::Write };
        let by_worker = random().is_multiple_of(5);
        builder.push(&Request {
            process: processes.then_some(if by_worker { worker } else { app }),
            pid: processes.then_some(if by_worker { 9 } else { 7 }),
            complete: completions.then_some(Nanos(arrival.0 + 200_000)),
            ..Request::new(arrival, op, Sector(random() % PAGES * 8), 8)
        });
        if (number + 1).is_multiple_of(BATCH_ROWS as u64) || number + 1 == requests {
            writer.write(&builder.finish(&names, &Arc::default()))?;
        }
    }
    writer.finish(&Ledger { seen: requests, kept: requests, reissued, ..Ledger::default() }, &header)
}
