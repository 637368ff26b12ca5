//! fio's I/O logs: ranges in bytes, versions, and times in doubt.

use std::fmt::Write as _;

use crate::support::{Trace, read_bytes};
use emmclab_trace::{ErrorClass, Op, ReadOptions, Result};

fn log(text: &str) -> Result<Trace> {
    read_bytes(text.as_bytes(), "log", &ReadOptions::default())
}

#[test]
fn a_stream_that_does_not_lie_on_sectors_stays_sequential_and_keeps_its_length() {
    let trace =
        log("fio version 2 iolog\n/f add\n/f open\n/f write 2072348000 4000\n/f write 2072352000 4000\n/f close\n")
            .unwrap();
    let [one, other] = trace.requests.as_slice() else { panic!("{:?}", trace.requests) };
    assert_eq!(one.end(), other.sector);
    assert_eq!((one.sectors, other.sectors, trace.ledger.rounded), (8, 8, 2));
    let mut text = "fio version 2 iolog\n".to_owned();
    for at in 0..1_000 {
        let _ = writeln!(text, "/f write {} 4000", 4_000 * at);
    }
    let sectors: u32 = log(&text).unwrap().requests.iter().map(|one| one.sectors).sum();
    assert_eq!(sectors, 4_000_000 / 512);
    let small = log("fio version 2 iolog\n/f read 944111 512\n/f read 100 3\n/f read 4096 512\n").unwrap();
    assert!(small.requests.iter().all(|one| one.sectors == 1));
    assert_eq!(small.ledger.rounded, 2);
}

#[test]
fn a_log_without_its_heading_is_known_by_its_actions() {
    let trace = log("/dev/sdhu read 129521664 2048\n/dev/sdhu write 0 4096\n").unwrap();
    assert_eq!((trace.header.format.as_str(), trace.requests.len()), ("fio", 2));
    let trace = log("10 /dev/sdhu open\n20 /dev/sdhu read 0 2048\n").unwrap();
    assert_eq!(trace.requests[0].arrival.0, 20_000);
}

#[test]
fn actions_that_are_no_requests_are_skipped_or_refused_by_name() {
    let trace = log("fio version 2 iolog\n/f sync_file_range 0 4096\n/f sync\n/f datasync 0 0\n").unwrap();
    assert_eq!((trace.requests.len(), trace.ledger.skipped), (2, 1));
    assert!(trace.requests.iter().all(|one| one.op == Op::Flush));
    let error = log("fio version 3 iolog\n5 /f wait 100 0\n").unwrap_err();
    assert_eq!((error.field(), error.line()), (Some("action"), Some(2)));
    assert!(error.to_string().contains("version 3"), "{error}");
}

#[test]
fn times_of_version_3_in_another_unit_are_refused_with_the_likely_one() {
    let mut text = "fio version 3 iolog\n".to_owned();
    for at in 0..3_000_u64 {
        let _ = writeln!(text, "{} /f read {} 4096", at / 40, at * 4096);
    }
    let error = log(&text).unwrap_err();
    assert_eq!(error.kind(), ErrorClass::Unit, "{error}");
    assert!(error.hint_text().unwrap().contains("--time-unit ms"), "{:?}", error.hint_text());
    let options = ReadOptions { time_unit: Some("ms".into()), ..ReadOptions::default() };
    assert_eq!(read_bytes(text.as_bytes(), "log", &options).unwrap().requests.len(), 3_000);
}
