//! Commands without data in every format: zone commands are neither requests nor discards, and a write of zeroes is a write,
//! because some formats do not distinguish it.

use std::fmt::Write as _;

use crate::support::{Step, Trace, read_plain, steps_in_every_format};
use emmclab_trace::{Nanos, Op, RequestFlags};

#[test]
fn commands_to_zones_are_named_and_counted() {
    const STEPS: [Step; 4] = [("ZR", 524_288, 0), ("ZRA", 0, 0), ("ZF", 1_048_576, 0), ("W", 64, 8)];
    const NOTE: &str = "commands to zones, which are not requests: 1 x zone reset, 1 x zone reset all, 1 x zone finish";
    for (bytes, ending) in steps_in_every_format(&STEPS) {
        let trace = read_plain(bytes, ending).unwrap();
        let format = &trace.header.format;
        assert_eq!(trace.header.note.as_deref(), Some(NOTE), "{format}");
        let ops = trace.rows(|request| request.op);
        assert_eq!((ops, trace.ledger.skipped, trace.ledger.unpaired), (vec![Op::Write], 6, 0), "{format}");
    }
}

#[test]
fn a_write_of_zeroes_is_a_write() {
    // Letters of a write of zeroes (Linux 6.18, earlier kernels, blkparse) at different sectors, of a discard, and of a command
    // of a program, which has no sectors.
    const STEPS: [Step; 5] = [("WZS", 0, 2048), ("NS", 8192, 2048), ("WS", 16_384, 2048), ("DS", 64, 8), ("N", 0, 0)];
    for (bytes, ending) in steps_in_every_format(&STEPS) {
        let trace = read_plain(bytes, ending).unwrap();
        let format = &trace.header.format;
        let expected = [(Op::Write, 0, 2048), (Op::Write, 8192, 2048), (Op::Write, 16_384, 2048), (Op::Discard, 64, 8)];
        assert_eq!(trace.rows(|request| (request.op, request.sector.0, request.sectors)), expected, "{format}");
        assert!(trace.requests.iter().all(|request| request.complete.is_some()), "{format}");
        let note = trace.header.note.as_deref().unwrap_or_default();
        assert!(note.contains("2 x write zeroes are recorded as writes"), "{format}: {note}");
    }
}

/// Two appends to each of two zones; the second one completes first.
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

fn check_appends(trace: &Trace) {
    let first = trace.requests[0].arrival;
    let ms = |time: Nanos| time.0 / 1_000_000;
    let written = trace.rows(|request| (ms(request.arrival - first), request.sector.0, request.response().map(ms)));
    let expected = [(0, 64, Some(4)), (1, 524_296, Some(2)), (2, 72, Some(5)), (5, 524_304, Some(1))];
    assert_eq!(written, expected, "{}", trace.header.format);
    assert!(trace.requests.iter().all(|request| request.flags.contains(RequestFlags::APPEND) && request.op == Op::Write));
    assert_eq!((trace.ledger.paired, trace.ledger.unpaired), (4, 0), "{}", trace.header.format);
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
        let _ = writeln!(blkparse, "  8,0    0 {number:>8}     0.00{number}000000     2  {letter}  ZA {sector} + 8 [{end}]");
    }
    check_appends(&read_plain(ftrace, "txt").unwrap());
    check_appends(&read_plain(blkparse, "txt").unwrap());
}
