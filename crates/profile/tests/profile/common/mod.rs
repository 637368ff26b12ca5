//! Shared by the tests: real traces, and profiles of hand-written requests.

use std::path::Path;
use std::sync::Arc;

use emmclab_profile::{Profile, ProfileOptions, ProfileReport};
pub use emmclab_testing::real_trace;
use emmclab_trace::{Batch, BatchBuilder, Ledger, NameTable, Nanos, Op, ReadOptions, Request, Sector, TraceHeader, TraceReader};

/// The batches of a trace, with its ledger and header.
pub fn read(path: &Path) -> (Vec<Batch>, Ledger, TraceHeader) {
    let mut reader = TraceReader::open(path, &ReadOptions::default()).unwrap();
    let mut batches = Vec::new();
    while let Some(batch) = reader.next_batch().unwrap() {
        batches.push(batch);
    }
    (batches, reader.ledger(), reader.header())
}

pub fn report_of_file(path: &Path) -> ProfileReport {
    let (batches, ledger, header) = read(path);
    let mut profile = Profile::new(ProfileOptions::default());
    for batch in &batches {
        profile.update(batch);
    }
    profile.finish(&ledger, &header)
}

/// A request with times in microseconds: its arrival, and start, issue and completion relative to it.
pub fn request(op: Op, arrival_us: i64, times_us: [i64; 3], sector: u64, sectors: u32) -> Request {
    let at = |after| Some(Nanos::from_micros(arrival_us + after));
    Request {
        start: at(times_us[0]),
        issue: at(times_us[1]),
        complete: at(times_us[2]),
        ..Request::new(Nanos::from_micros(arrival_us), op, Sector(sector), sectors)
    }
}

pub fn batch(requests: &[Request]) -> Batch {
    let mut devices = NameTable::default();
    let mut processes = NameTable::default();
    for index in 0..4 {
        devices.intern(&format!("mmcblk{index}"));
        processes.intern(&format!("process-{index}"));
    }
    let mut builder = BatchBuilder::default();
    for request in requests {
        builder.push(request);
    }
    builder.finish(&Arc::new(processes), &Arc::new(devices))
}

pub fn profile_of(requests: &[Request]) -> Profile {
    let mut profile = Profile::new(ProfileOptions::default());
    profile.update(&batch(requests));
    profile
}

pub fn report_of(requests: &[Request]) -> ProfileReport {
    profile_of(requests).finish(&Ledger::default(), &TraceHeader::default())
}
