//! Commands to zones are no requests and no discards: each format names and counts them.

use std::fmt::Write as _;

use emmclab_trace::{Op, ReadOptions};

use crate::support::steps::{self, Step};
use crate::support::{Trace, read_bytes};

const NOTE: &str =
    "commands to zones, which are no requests here: 1 x zone reset, 1 x zone reset all, 1 x zone finish";

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
