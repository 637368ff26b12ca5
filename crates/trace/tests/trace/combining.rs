//! Interleaving of traces on one clock.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use crate::support::{batch_of, convert, write_batches};
use emmclab_trace::{
    ErrorClass, Ledger, Nanos, Op, ReadOptions, Request, RequestFlags, Sector, TraceCombiner, TraceHeader, TraceInput,
};

/// A BIOtracer log of writes at these times, in milliseconds after `epoch_s`, to sectors from `sector` on.
fn trace(folder: &Path, name: &str, epoch_s: u64, sector: u64, at_ms: &[u64]) -> TraceInput {
    let mut text = String::new();
    for (index, ms) in (0_u64..).zip(at_ms) {
        let time = |us: u64| format!("{}.{:06}000", epoch_s + (ms * 1_000 + us) / 1_000_000, (ms * 1_000 + us) % 1_000_000);
        let sector = sector + index * 8;
        writeln!(text, "{sector}\t\t8\t\t4096\t\t5\t\t{}\t\t{}\t\t{}\t\t{}", time(0), time(1), time(2), time(900)).unwrap();
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
    let mut combined = TraceCombiner::open(vec![a, b], 1).unwrap();
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
fn the_note_of_combined_traces_tells_when_each_begins() {
    let folder = tempfile::tempdir().unwrap();
    let note = |offset_ms: i64| {
        let a = trace(folder.path(), "a", 1_400_000_000, 0, &[500]);
        let b = TraceInput { start_offset: Nanos::from_millis(offset_ms), ..trace(folder.path(), "b", 1_500_000_000, 80, &[7]) };
        TraceCombiner::open(vec![a, b], 1).unwrap().header().note.unwrap()
    };
    assert_eq!(note(0), "2 traces combined, all from time 0");
    assert_eq!(note(1_500), "2 traces combined, from 0 s, 1.5 s");
}

#[test]
fn nothing_to_combine_is_an_error() {
    assert_eq!(TraceCombiner::open(Vec::new(), 1).err().unwrap().kind(), ErrorClass::Config);
}

#[test]
fn a_bad_trace_among_good_ones_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let good = trace(folder.path(), "good", 1_400_000_000, 0, &[500]);
    let path = folder.path().join("bad");
    std::fs::write(&path, "0\t\t8\t\t4096\t\t5\t\t1.0\t\t2.0\t\t3.0\t\t4.0\nnonsense\n").unwrap();
    let bad = TraceInput { path, ..TraceInput::default() };
    assert!(TraceCombiner::open(vec![good, bad], 1).is_err());
}

#[test]
fn a_second_pass_begins_one_mean_gap_after_the_first_and_an_offset_delays_its_trace() {
    let folder = tempfile::tempdir().unwrap();
    let a = trace(folder.path(), "a", 1_400_000_000, 0, &[500, 510, 530]);
    let b = TraceInput { start_offset: Nanos::from_millis(4), ..trace(folder.path(), "b", 1_500_000_000, 80, &[7]) };
    let mut combined = TraceCombiner::open(vec![a, b], 2).unwrap();
    let batch = combined.next_batch().unwrap().unwrap();
    let order: Vec<_> = batch.iter().map(|request| (request.arrival.0 / 100_000, request.sector.0)).collect();
    // Four requests in 30 ms have a mean gap of 7.5 ms.
    let expected = [(0, 0), (40, 80), (100, 8), (300, 16), (375, 0), (415, 80), (475, 8), (675, 16)];
    assert_eq!(order, expected);
    assert!(combined.next_batch().unwrap().is_none());
    assert_eq!(combined.ledger().kept, 8);
}

#[test]
fn a_single_trace_read_once_passes_through_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let a = trace(folder.path(), "a", 1_400_000_000, 0, &[500]);
    let mut combined = TraceCombiner::open(vec![a], 1).unwrap();
    let batch = combined.next_batch().unwrap().unwrap();
    assert_eq!(batch.get(0).arrival, Nanos(1_400_000_000_500_000_000));
    assert_eq!(combined.header().clock, "unix");
}

#[test]
fn the_files_of_a_recording_count_once() {
    let input = |name: &str| TraceInput { path: crate::support::fixture(name), ..TraceInput::default() };
    let kept = |inputs: Vec<TraceInput>| {
        let mut combined = TraceCombiner::open(inputs, 1).unwrap();
        while combined.next_batch().unwrap().is_some() {}
        combined.ledger().kept
    };
    let alone = kept(vec![input("little")]);
    assert!(alone > 0);
    let files = || vec![input("little.blktrace.0.gz"), input("little.blktrace.1.gz"), input("little")];
    assert_eq!(kept(files()), alone);
    assert_eq!(kept([files(), vec![input("big.blktrace.0.gz")]].concat()), alone + kept(vec![input("big")]));
    // A trace that is listed twice is read twice.
    assert_eq!(kept(vec![input("little"), input("little")]), 2 * alone);
}

/// The rows of a trace in two parts, each with the metadata of the whole, as other tools write them.
fn parts(folder: &Path) -> [TraceInput; 2] {
    let requests: Vec<_> =
        (0..6_i64).map(|at| Request::new(Nanos(7_000_000 + at * 1_000), Op::Write, Sector(at as u64 * 8), 8)).collect();
    let header = TraceHeader { source: "chat".into(), format: "record".into(), ..TraceHeader::default() };
    let ledger = Ledger { seen: 40, kept: 6, merged: 9, ..Ledger::default() };
    [&requests[..4], &requests[4..]].map(|rows| {
        let path = folder.join(format!("part-{}.parquet", rows.len()));
        write_batches(&path, &[batch_of(rows, &Arc::default(), &Arc::default())], &ledger, &header).unwrap();
        TraceInput { path, ..TraceInput::default() }
    })
}

#[test]
fn parts_of_one_trace_keep_their_distance_and_count_once() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = parts(folder.path());
    let mut combined = TraceCombiner::open(vec![second.clone(), first.clone()], 1).unwrap();
    let batch = combined.next_batch().unwrap().unwrap();
    let arrivals: Vec<_> = batch.iter().map(|request| request.arrival.0).collect();
    assert_eq!(arrivals, [0, 1_000, 2_000, 3_000, 4_000, 5_000]);
    assert!(combined.next_batch().unwrap().is_none());
    let ledger = combined.ledger();
    assert_eq!((ledger.seen, ledger.kept, ledger.merged), (40, 6, 9));
    assert_eq!(combined.header().note.as_deref(), Some("2 parts of one trace"));
    let mut alone = TraceCombiner::open(vec![second], 1).unwrap();
    while alone.next_batch().unwrap().is_some() {}
    assert_eq!((alone.requests_of_whole_trace(), alone.ledger().kept), (Some(6), 2));
    let note = alone.header().note.unwrap();
    assert_eq!(note, "a part of a trace: 2 of 6 requests");
}

/// The header after reading all these files.
fn read_header(paths: &[&Path]) -> TraceHeader {
    let inputs = paths.iter().map(|path| TraceInput { path: path.to_path_buf(), ..TraceInput::default() });
    let mut combined = TraceCombiner::open(inputs.collect(), 1).unwrap();
    while combined.next_batch().unwrap().is_some() {}
    combined.header()
}

#[test]
fn what_a_trace_records_is_kept_by_a_conversion_and_of_several_traces_what_all_record() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let log = trace(folder.path(), "log", 1_400_000_000, 0, &[500]).path;
    let blocks = path("blocks.txt");
    std::fs::write(&blocks, "  8,0 3 1 0.000001000 697 Q WS 8 + 8 [a]\n  8,0 3 2 0.000002000 697 C WS 8 + 8 [0]\n").unwrap();
    for (input, output) in [(&log, path("log.parquet")), (&blocks, path("blocks.parquet"))] {
        convert(input, &ReadOptions::default(), &output);
        assert_eq!(read_header(&[&output]).recorded, read_header(&[input]).recorded);
        assert!(read_header(&[input]).recorded.is_some());
    }
    let known = |header: &TraceHeader| (header.recorded().has_op(Op::Flush), header.recorded().has(RequestFlags::SYNC));
    assert_eq!(known(&read_header(&[&log])), (false, false));
    assert_eq!(known(&read_header(&[&blocks])), (true, true));
    let both = read_header(&[&blocks, &log]);
    assert_eq!(known(&both), (false, false));
    assert!(!both.recorded().has(RequestFlags::PACKED));
}

#[test]
fn a_table_records_the_operations_and_flags_that_it_contains() {
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("table.csv");
    std::fs::write(&table, "arrival_ns,op,sector,sectors\n1,R,8,8\n2,WS,16,8\n3,flush,0,0\n").unwrap();
    let recorded = read_header(&[&table]).recorded();
    assert!(recorded.has_op(Op::Flush) && recorded.has(RequestFlags::SYNC));
    assert!(!recorded.has_op(Op::Discard) && !recorded.has(RequestFlags::FUA));
}
