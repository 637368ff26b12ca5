//! blktrace's binary files: merged by time, in either byte order, and damage is named with its offset.

use std::fs;
use std::path::Path;

use crate::support::{fixture, lenient, read, read_bytes, read_with};
use emmclab_trace::formats::files;
use emmclab_trace::{Kind, Nanos, Op, ReadOptions, Sector};

/// A record of version 7 in little-endian order.
fn record(
    sequence: u32,
    time: u64,
    sector: u64,
    bytes: u32,
    action: u32,
    cpu: u32,
    payload: &[u8],
) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [0x6561_7407, sequence] {
        out.extend(word.to_le_bytes());
    }
    out.extend(time.to_le_bytes());
    out.extend(sector.to_le_bytes());
    for word in [bytes, action, 42, 179 << 20 | 1, cpu] {
        out.extend(word.to_le_bytes());
    }
    out.extend(0u16.to_le_bytes());
    out.extend((payload.len() as u16).to_le_bytes());
    out.extend(payload);
    out
}

const WRITE: u32 = 1 << 17;
const QUEUE: u32 = 1 | 1 << 20 | WRITE;
const ISSUE: u32 = 7 | 1 << 22 | WRITE;
const SPLIT: u32 = 0xd | WRITE;
const COMPLETE: u32 = 8 | 1 << 23 | WRITE;
const NOTIFY: u32 = 1 << 26;
const CGROUP: u32 = 1 << 8;

/// Two processors: the first queues and issues, the second completes; one record of the first is missing.
fn recording(folder: &Path) {
    let name = record(0, 0, 0, 0, NOTIFY, 0, b"sqlite\0\0\0\0\0\0\0\0\0\0");
    let clock = record(0, 1, 0, 0, NOTIFY | 1, 0, &[2, 0, 0, 0, 5, 0, 0, 0]);
    let first =
        [name, clock, record(1, 10, 8, 4096, QUEUE, 0, &[]), record(3, 20, 8, 4096, ISSUE, 0, &[])].concat();
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
        assert_eq!(
            (request.arrival, request.start, request.complete),
            (Nanos(10), Some(Nanos(20)), Some(Nanos(30)))
        );
        assert_eq!(
            (request.sector, request.sectors, request.op, request.pid),
            (Sector(8), 8, Op::Write, Some(42))
        );
        assert_eq!((trace.processes, trace.devices), (vec!["sqlite".into()], vec!["179,1".into()]));
        assert_eq!((trace.ledger.seen, trace.ledger.paired, trace.ledger.lost), (3, 1, 1));
        assert_eq!(trace.header.source, "run");
        assert_eq!(trace.header.note.as_deref(), Some("recording began at Unix time 2.000000005"));
    }
    let error = read(&folder.path().join("walk")).unwrap_err();
    assert_eq!(error.kind(), Kind::Io);
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
        let result = read_bytes(&whole[..length], "bin", &ReadOptions::default());
        if length == 48 || length == 48 + 51 {
            // Cut between records: an open request of a recording without completions.
            assert_eq!(result.unwrap().requests.len(), 1);
        } else if length < 4 {
            assert_eq!(result.unwrap_err().kind(), Kind::UnknownFormat);
        } else {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), Kind::Truncated, "{length}: {error}");
            assert!(error.to_string().contains("byte "), "{error}");
        }
        if length >= 48 {
            assert_eq!(
                read_bytes(&whole[..length], "bin", &lenient()).unwrap().requests.len(),
                1,
                "{length}"
            );
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
            let _ = read_bytes(&bytes, "bin", &ReadOptions::default());
            let _ = read_bytes(&bytes, "bin", &lenient());
        }
    }
}

#[test]
fn another_version_is_refused_by_its_number() {
    let mut bytes = record(1, 10, 8, 4096, QUEUE, 0, &[]);
    bytes[0] = 6;
    let error = read_bytes(&bytes, "bin", &ReadOptions::default()).unwrap_err();
    assert_eq!((error.kind(), error.field()), (Kind::Unsupported, Some("version")));
}

#[test]
fn both_byte_orders_read_the_same() {
    let [little, big] =
        ["little", "big"].map(|name| read_with(&fixture(name), &ReadOptions::default()).unwrap());
    assert_eq!(little.requests, big.requests);
    assert_eq!((little.ledger, little.processes), (big.ledger, big.processes));
}
