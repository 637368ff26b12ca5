//! blktrace's binary files: they are merged by time, in either byte order, and errors on damage contain its offset.

use std::fs;
use std::path::Path;

use crate::support::{lenient, read, read_bytes, read_plain, scratch};
use emmclab_trace::formats::files;
use emmclab_trace::{ErrorClass, Nanos, Op, RequestFlags, Sector};

/// A record of version 7 in little-endian order.
fn record(sequence: u32, time: u64, sector: u64, bytes: u32, action: u32, cpu: u32, payload: &[u8]) -> Vec<u8> {
    let head = [0x6561_7407, sequence].map(u32::to_le_bytes).concat();
    let place = [time, sector].map(u64::to_le_bytes).concat();
    let words = [bytes, action, 42, 179 << 20 | 1, cpu].map(u32::to_le_bytes).concat();
    let ends = [0, payload.len() as u16].map(u16::to_le_bytes).concat();
    [&head[..], &place, &words, &ends, payload].concat()
}

const WRITE: u32 = 1 << 17;
const QUEUE: u32 = 1 | 1 << 20 | WRITE;
const ISSUE: u32 = 7 | 1 << 22 | WRITE;
const SPLIT: u32 = 0xd | WRITE;
const COMPLETE: u32 = 8 | 1 << 23 | WRITE;
const NOTIFY: u32 = 1 << 26;
const CGROUP: u32 = 1 << 8;

/// Files of two processors: the first one queues and issues, the second one completes. A record of the first one is missing.
fn recording(folder: &Path) {
    let name = record(0, 0, 0, 0, NOTIFY, 0, b"sqlite\0\0\0\0\0\0\0\0\0\0");
    let clock = record(0, 1, 0, 0, NOTIFY | 1, 0, &[2, 0, 0, 0, 5, 0, 0, 0]);
    let first = [name, clock, record(1, 10, 8, 4096, QUEUE, 0, &[]), record(3, 20, 8, 4096, ISSUE, 0, &[])].concat();
    fs::write(folder.join("run.blktrace.0"), first).unwrap();
    fs::write(folder.join("run.blktrace.1"), b"").unwrap();
    fs::write(folder.join("run.blktrace.2"), record(1, 30, 8, 4096, COMPLETE | CGROUP, 2, &[0; 8])).unwrap();
}

#[test]
fn all_processors_are_merged_whichever_is_named() {
    let folder = tempfile::tempdir().unwrap();
    recording(folder.path());
    for name in ["run", "run.blktrace.0", "run.blktrace.2"] {
        let path = folder.path().join(name);
        let behind: Vec<_> = files(&path).iter().map(|file| file.extension().unwrap().to_owned()).collect();
        assert_eq!(behind, ["0", "1", "2"], "the files behind {name}");
        let trace = read(&path).unwrap();
        let request = trace.requests[0];
        assert_eq!((request.arrival, request.start, request.complete), (Nanos(10), Some(Nanos(20)), Some(Nanos(30))));
        assert_eq!((request.sector, request.sectors, request.op, request.pid), (Sector(8), 8, Op::Write, Some(42)));
        assert_eq!((trace.processes, trace.devices), (vec!["sqlite".into()], vec!["179,1".into()]));
        assert_eq!((trace.ledger.seen, trace.ledger.paired, trace.ledger.lost), (3, 1, 1));
        assert_eq!(trace.header.source, "run");
        assert_eq!(trace.header.note.as_deref(), Some("recording began at Unix time 2.000000005"));
    }
    let error = read(&folder.path().join("walk")).unwrap_err();
    assert_eq!(error.kind(), ErrorClass::Io);
}

#[test]
fn a_recording_cut_at_any_byte_says_where() {
    let whole = [
        record(1, 10, 8, 4096, QUEUE, 0, &[]),
        record(2, 20, 8, 4096, ISSUE, 0, &[1, 2, 3]),
        record(3, 30, 8, 4096, COMPLETE, 0, &[]),
    ]
    .concat();
    for length in 1..whole.len() {
        let result = read_plain(&whole[..length], "bin");
        if length == 48 || length == 48 + 51 {
            // The file is truncated between records: one open request in a recording without completions.
            assert_eq!(result.unwrap().requests.len(), 1);
        } else if length < 4 {
            assert_eq!(result.unwrap_err().kind(), ErrorClass::UnknownFormat);
        } else {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorClass::Truncated, "{length}: {error}");
            assert!(error.to_string().contains("byte "), "{error}");
        }
        if length >= 48 {
            assert_eq!(read_bytes(&whole[..length], "bin", &lenient()).unwrap().requests.len(), 1, "{length}");
        }
    }
}

#[test]
fn any_byte_changed_never_panics() {
    let whole = [
        record(1, 10, 8, 4096, QUEUE, 0, &[]),
        record(2, 15, 8, 0, SPLIT, 0, &12u64.to_be_bytes()),
        record(3, 20, 8, 2048, ISSUE, 0, &[]),
        record(4, 30, 8, 2048, COMPLETE, 0, &[]),
    ]
    .concat();
    for at in 0..whole.len() {
        for mask in [0x01, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= mask;
            let _ = read_plain(&bytes, "bin");
            let _ = read_bytes(&bytes, "bin", &lenient());
        }
    }
}

#[test]
fn another_version_is_refused_by_its_number() {
    let mut bytes = record(1, 10, 8, 4096, QUEUE, 0, &[]);
    bytes[0] = 6;
    let error = read_plain(&bytes, "bin").unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorClass::Unsupported, Some("version")));
}

/// A record of version 8; `category` is the part above the lower 16 bits of the action.
fn wide(sequence: u32, time: u64, sector: u64, bytes: u32, act: u64, category: u64) -> Vec<u8> {
    let head = [0x6561_7408, sequence].map(u32::to_le_bytes).concat();
    let place = [time, sector].map(u64::to_le_bytes).concat();
    let size_and_pid = [bytes, 42].map(u32::to_le_bytes).concat();
    let action = (act | category << 16).to_le_bytes();
    let device = (179_u32 << 20 | 1).to_le_bytes();
    [&head[..], &place, &size_and_pid, &action, &device, &[0; 20]].concat()
}

/// Queue, issue and completion of a request in version 8. If the request is a zone append, its completion has another sector.
fn wide_request(time: u64, (sector, end): (u64, u64), bytes: u32, category: u64) -> Vec<u8> {
    let first = time as u32 / 1_000 * 3;
    [
        wide(first, time, sector, bytes, 1, category | 1 << 4),
        wide(first + 1, time + 10, sector, bytes, 7, category | 1 << 6),
        wide(first + 2, time + 100, end, bytes, 8, category | 1 << 7),
    ]
    .concat()
}

const WRITES: u64 = 1 << 1;

#[test]
fn version_8_is_read_with_appends_where_they_were_written_and_commands_to_zones_by_name() {
    let bytes = [
        wide_request(1_000, (0, 0), 0, WRITES | 1 << 17),
        wide_request(2_000, (0, 0), 4096, WRITES),
        wide_request(3_000, (0, 64), 4096, WRITES | 1 << 16),
        wide_request(4_000, (2048, 2048), 1 << 20, WRITES | 1 << 22),
        wide_request(5_000, (0, 0), 0, WRITES | 1 << 19),
        wide_request(6_000, (8, 8), 4096, 1),
    ]
    .concat();
    let trace = read_plain(&bytes, "bin").unwrap();
    let expected = [(2_000, 0, 8, Op::Write), (3_000, 64, 8, Op::Write), (4_000, 2048, 2048, Op::Write), (6_000, 8, 8, Op::Read)];
    assert_eq!(trace.rows(|request| (request.arrival.0, request.sector.0, request.sectors, request.op)), expected);
    assert!(trace.requests.iter().all(|request| request.response() == Some(Nanos(100))));
    let note = trace.header.note.unwrap();
    assert!(note.contains("1 x zone reset, 1 x zone finish") && note.contains("1 x write zeroes"), "{note}");
    assert_eq!((trace.ledger.skipped, trace.ledger.unpaired, trace.ledger.lost), (6, 0, 0));
    for length in 1..64 {
        assert!(read_plain(&bytes[..length], "bin").is_err());
    }
}

#[test]
fn files_of_processors_that_are_missing_are_named() {
    let folder = tempfile::tempdir().unwrap();
    recording(folder.path());
    let note = |path: &Path| read(path).unwrap().header.note.unwrap();
    let named = folder.path().join("run.blktrace.0");
    assert!(!note(&named).contains("processor"));
    fs::remove_file(folder.path().join("run.blktrace.1")).unwrap();
    assert!(note(&named).contains("the files of processors 1 are missing"), "{}", note(&named));
    fs::remove_file(folder.path().join("run.blktrace.2")).unwrap();
    assert!(note(&named).contains("only the file of processor 0 exists here"), "{}", note(&named));
    assert!(note(&named).contains("copy all of run.blktrace.*"), "{}", note(&named));
}

#[test]
fn an_error_of_a_completion_marks_the_request_as_failed() {
    let mut complete = record(2, 30, 8, 4096, COMPLETE, 0, &[]);
    complete[44..46].copy_from_slice(&(-5_i16).to_le_bytes());
    let trace = read_plain([record(1, 20, 8, 4096, ISSUE, 0, &[]), complete].concat(), "bin").unwrap();
    assert!(trace.requests[0].flags.contains(RequestFlags::FAILED));
    assert_eq!((trace.ledger.failed, trace.requests[0].response()), (1, None));
}

#[test]
fn a_file_alone_without_a_request_names_its_records_and_what_is_missing() {
    let (_folder, path) = scratch("run.blktrace.3");
    // A completion after the issue of another request, and the issue of a third request that the driver returns.
    let records = [record(1, 10, 8, 4096, ISSUE, 3, &[]), record(2, 20, 800, 4096, COMPLETE, 3, &[])];
    fs::write(&path, records.concat()).unwrap();
    let error = read(&path).unwrap_err();
    assert!(error.to_string().ends_with("the trace contains no request, but 1 C, 1 D"), "{error}");
    let hint = error.hint_text().unwrap();
    assert!(hint.starts_with("only the file of processor 3 exists here"), "{hint}");
}
