//! Commands to zones are no requests and no discards: each format names and counts them.

use std::fmt::Write as _;

use emmclab_trace::{Op, ReadOptions, RequestFlags};

use crate::support::steps::{self, Step};
use crate::support::{Trace, read_bytes};

const NOTE: &str = "commands to zones, which are no requests here: 1 x zone reset, 1 x zone reset all, 1 x zone finish";

fn read(bytes: &[u8], ending: &str) -> Trace {
    read_bytes(bytes, ending, &ReadOptions::default()).unwrap()
}

fn check(found: &Trace) {
    assert_eq!(found.header.note.as_deref(), Some(NOTE), "{}", found.header.format);
    let ops: Vec<_> = found.requests.iter().map(|request| request.op).collect();
    assert_eq!(ops, [Op::Write], "{}", found.header.format);
    assert_eq!((found.ledger.skipped, found.ledger.unpaired), (6, 0), "{}", found.header.format);
}

/// Letters, sector and length of the commands, and of a write.
const STEPS: [Step; 4] = [("ZR", 524_288, 0), ("ZRA", 0, 0), ("ZF", 1_048_576, 0), ("W", 64, 8)];

#[test]
fn in_the_text_of_the_tracer() {
    let mut text = String::new();
    for (number, (letters, sector, length)) in STEPS.into_iter().enumerate() {
        let _ = write!(
            text,
            "  dd-2 [000] ..... 1.{number}00000: block_rq_issue: 8,0 {letters} 0 () {sector} + {length} none,0,0 [dd]\n  \
             dd-2 [000] ..... 1.{number}00900: block_rq_complete: 8,0 {letters} () {sector} + {length} none,0,0 [0]\n"
        );
    }
    check(&read(text.as_bytes(), "txt"));
}

#[test]
fn in_the_text_of_blkparse() {
    check(&read(steps::blkparse(&STEPS).as_bytes(), "txt"));
}

#[test]
fn in_a_trace_of_perfetto() {
    check(&read(&steps::perfetto(&STEPS), "pftrace"));
}

/// Two appends to each of two zones, of which the second completes first.
const APPENDS: [(&str, &str, u64); 8] = [
    ("issue", "D", 0),
    ("issue", "D", 524_288),
    ("issue", "D", 0),
    ("complete", "C", 524_296),
    ("complete", "C", 64),
    ("issue", "D", 524_288),
    ("complete", "C", 524_304),
    ("complete", "C", 72),
];

fn check_appends(found: &Trace) {
    let first = found.requests[0].arrival.0;
    let written: Vec<_> = (found.requests.iter())
        .map(|one| ((one.arrival.0 - first) / 1_000_000, one.sector.0, one.response().map(|time| time.0 / 1_000_000)))
        .collect();
    let expected = [(0, 64, Some(4)), (1, 524_296, Some(2)), (2, 72, Some(5)), (5, 524_304, Some(1))];
    assert_eq!(written, expected, "{}", found.header.format);
    assert!(found.requests.iter().all(|one| one.flags.contains(RequestFlags::APPEND) && one.op == Op::Write));
    assert_eq!((found.ledger.paired, found.ledger.unpaired), (4, 0), "{}", found.header.format);
}

#[test]
fn an_append_is_a_write_where_it_was_written_in_the_text_of_the_tracer_and_of_blkparse() {
    let (mut ftrace, mut blkparse) = (String::new(), String::new());
    for (number, (event, letter, sector)) in APPENDS.into_iter().enumerate() {
        let (bytes, end) = if letter == "D" { ("4096 ", "dd") } else { ("", "0") };
        let _ = writeln!(
            ftrace,
            "  dd-2 [000] ..... 1.00{number}000: block_rq_{event}: 8,0 ZA {bytes}() {sector} + 8 none,0,0 [{end}]"
        );
        let _ = writeln!(
            blkparse,
            "  8,0    0 {number:>8}     0.00{number}000000     2  {letter}  ZA {sector} + 8 [{end}]"
        );
    }
    check_appends(&read(ftrace.as_bytes(), "txt"));
    check_appends(&read(blkparse.as_bytes(), "txt"));
}
