//! Interleaving traces on one clock.

use std::fmt::Write as _;
use std::path::Path;

use emmclab_trace::{Combiner, Kind, Nanos, Sector, TraceInput};

/// A BIOtracer log of writes at these milliseconds after `epoch_s`, on sectors from `sector` on.
fn trace(folder: &Path, name: &str, epoch_s: u64, sector: u64, at_ms: &[u64]) -> TraceInput {
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
    TraceInput { path, ..TraceInput::default() }
}

#[test]
fn traces_start_together_and_equal_arrivals_keep_the_order_of_the_traces() {
    let folder = tempfile::tempdir().unwrap();
    let a = trace(folder.path(), "a", 1_400_000_000, 0, &[500, 510, 530]);
    let b = trace(folder.path(), "b", 1_500_000_000, 1_000, &[7, 12, 17, 47]);
    let mut combined = Combiner::open(vec![a, b], 1).unwrap();
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
    assert_eq!(Combiner::open(Vec::new(), 1).err().unwrap().kind(), Kind::Config);
}

#[test]
fn a_bad_trace_among_good_ones_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let good = trace(folder.path(), "good", 1_400_000_000, 0, &[500]);
    let path = folder.path().join("bad");
    std::fs::write(&path, "0\t\t8\t\t4096\t\t5\t\t1.0\t\t2.0\t\t3.0\t\t4.0\nnonsense\n").unwrap();
    let bad = TraceInput { path, ..TraceInput::default() };
    assert!(Combiner::open(vec![good, bad], 1).is_err());
}

#[test]
fn a_second_pass_begins_one_mean_gap_after_the_first_and_an_offset_delays_its_trace() {
    let folder = tempfile::tempdir().unwrap();
    let a = trace(folder.path(), "a", 1_400_000_000, 0, &[500, 510, 530]);
    let b = TraceInput {
        start_offset: Nanos::from_millis(4),
        ..trace(folder.path(), "b", 1_500_000_000, 80, &[7])
    };
    let mut combined = Combiner::open(vec![a, b], 2).unwrap();
    let batch = combined.next_batch().unwrap().unwrap();
    let order: Vec<_> = batch.iter().map(|request| (request.arrival.0 / 100_000, request.sector.0)).collect();
    // Four requests in 30 ms: a mean gap of 7.5 ms.
    let expected = [(0, 0), (40, 80), (100, 8), (300, 16), (375, 0), (415, 80), (475, 8), (675, 16)];
    assert_eq!(order, expected);
    assert!(combined.next_batch().unwrap().is_none());
    assert_eq!(combined.ledger().kept, 8);
}

#[test]
fn a_single_trace_read_once_passes_through_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let a = trace(folder.path(), "a", 1_400_000_000, 0, &[500]);
    let mut combined = Combiner::open(vec![a], 1).unwrap();
    let batch = combined.next_batch().unwrap().unwrap();
    assert_eq!(batch.get(0).arrival, Nanos(1_400_000_000_500_000_000));
    assert_eq!(combined.header().clock, "unix");
}
