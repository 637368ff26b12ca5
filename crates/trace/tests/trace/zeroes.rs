//! A write of zeroes is a write in every format, as some formats do not tell it from other writes.

use std::fmt::Write as _;

use emmclab_trace::{Op, ReadOptions};

use crate::support::read_bytes;
use crate::support::steps::{self, Step};

/// Letters of a write of zeroes (Linux 6.18, earlier kernels, blkparse), each of a request at another sector; of a discard;
/// and of a command of a program, which has no sectors.
const STEPS: [Step; 5] = [("WZS", 0, 2048), ("NS", 8192, 2048), ("WS", 16_384, 2048), ("DS", 64, 8), ("N", 0, 0)];

fn check(bytes: &[u8], ending: &str) {
    let found = read_bytes(bytes, ending, &ReadOptions::default()).unwrap();
    let format = &found.header.format;
    let seen: Vec<_> = found.requests.iter().map(|one| (one.op, one.sector.0, one.sectors)).collect();
    let expected = [(Op::Write, 0, 2048), (Op::Write, 8192, 2048), (Op::Write, 16_384, 2048), (Op::Discard, 64, 8)];
    assert_eq!(seen, expected, "{format}");
    assert!(found.requests.iter().all(|request| request.complete.is_some()), "{format}");
    let note = found.header.note.as_deref().unwrap_or_default();
    assert!(note.contains("2 x write zeroes are recorded as writes"), "{format}: {note}");
}

#[test]
fn in_the_text_of_the_tracer_and_of_perf() {
    let (mut tracer, mut perf) = (String::new(), String::new());
    for (number, (letters, sector, length)) in STEPS.into_iter().enumerate() {
        for (moment, name, end) in [("0", "issue", "[dd]"), ("9", "complete", "[0]")] {
            let bytes = if name == "issue" { format!("{} ", length * 512) } else { String::new() };
            let event = format!("8,0 {letters} {bytes}() {sector} + {length} {end}");
            let _ = writeln!(tracer, "  dd-2 [000] ..... 1.{number}00{moment}00: block_rq_{name}: {event}");
            let _ = writeln!(perf, "dd     2 [000]     1.{number}00{moment}00: block:block_rq_{name}: {event}");
        }
    }
    check(tracer.as_bytes(), "txt");
    check(perf.as_bytes(), "txt");
}

#[test]
fn in_the_text_of_blkparse() {
    check(steps::blkparse(&STEPS).as_bytes(), "txt");
}

#[test]
fn in_a_trace_of_perfetto() {
    check(&steps::perfetto(&STEPS), "pftrace");
}
