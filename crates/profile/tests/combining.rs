//! Interleaving traces on one clock.

mod common;

use std::fmt::Write as _;
use std::path::Path;

use emmclab_profile::{Combiner, Profile, ProfileOptions};
use emmclab_trace::{Kind, Nanos, ReadOptions, Sector, TraceReader};

/// A BIOtracer log of writes at these milliseconds after `epoch_s`, on sectors from `sector` on.
fn trace(folder: &Path, name: &str, epoch_s: u64, sector: u64, at_ms: &[u64]) -> TraceReader {
    let mut text = String::new();
    for (index, ms) in (0_u64..).zip(at_ms) {
        let time = |us: u64| {
            format!("{}.{:06}000", epoch_s + (ms * 1_000 + us) / 1_000_000, (ms * 1_000 + us) % 1_000_000)
        };
        let sector = sector + index * 8;
        writeln!(
            text,
            "{sector}\t\t8\t\t4096\t\t5\t\t{}\t\t{}\t\t{}\t\t{}",
            time(0),
            time(1),
            time(2),
            time(900)
        )
        .unwrap();
    }
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    TraceReader::open(&path, &ReadOptions::default()).unwrap()
}

#[test]
fn traces_start_together_and_equal_arrivals_keep_the_order_of_the_traces() {
    let folder = tempfile::tempdir().unwrap();
    let a = trace(folder.path(), "a", 1_400_000_000, 0, &[500, 510, 530]);
    let b = trace(folder.path(), "b", 1_500_000_000, 1_000, &[7, 12, 17, 47]);
    let mut combined = Combiner::new(vec![a, b]).unwrap();
    let batch = combined.next_batch().unwrap().unwrap();
    let order: Vec<_> = batch.iter().map(|request| (request.arrival, request.sector)).collect();
    let expected = [(0, 0), (0, 1_000), (5, 1_008), (10, 8), (10, 1_016), (30, 16), (40, 1_024)];
    assert_eq!(order, expected.map(|(ms, sector)| (Nanos::from_millis(ms), Sector(sector))));
    assert!(batch.iter().all(|request| request.response() == Some(Nanos::from_micros(900))));
    assert!(combined.next_batch().unwrap().is_none());
    assert_eq!((combined.ledger().seen, combined.ledger().kept), (7, 7));
    assert_eq!((combined.header().source.as_str(), combined.header().clock.as_str()), ("a + b", "relative"));
    let progress = combined.progress();
    assert!(progress.total.is_none_or(|total| progress.done <= total), "{progress:?}");
}

#[test]
fn nothing_to_combine_is_an_error() {
    assert_eq!(Combiner::new(Vec::new()).err().unwrap().kind(), Kind::Config);
}

#[test]
fn a_bad_trace_among_good_ones_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let good = trace(folder.path(), "good", 1_400_000_000, 0, &[500]);
    let path = folder.path().join("bad");
    std::fs::write(&path, "0\t\t8\t\t4096\t\t5\t\t1.0\t\t2.0\t\t3.0\t\t4.0\nnonsense\n").unwrap();
    let bad = TraceReader::open(&path, &ReadOptions::default()).unwrap();
    assert!(Combiner::new(vec![good, bad]).is_err());
}

#[test]
fn a_trace_combined_with_itself_doubles_the_data_and_halves_no_time() {
    let Some(path) = common::real_trace("nexus5/log106_Messaging.txt") else { return };
    let open = || TraceReader::open(&path, &ReadOptions::default()).unwrap();
    let mut combined = Combiner::new(vec![open(), open()]).unwrap();
    let mut profile = Profile::new(ProfileOptions::default());
    while let Some(batch) = combined.next_batch().unwrap() {
        profile.update(&batch);
    }
    let report = profile.finish(&combined.ledger(), &combined.header());
    assert_eq!((report.tables.requests, report.tables.data_size_kb), (2 * 5_702, 2.0 * 63_668.0));
    assert!((report.tables.duration_s - 589.131_035).abs() < 1e-9);
    // Each request has a twin that arrives with it.
    assert!(report.tables.no_wait_pct.unwrap() < 50.0);
    assert_eq!(report.ledger.headers_stripped, 2 * 1_155);
}
