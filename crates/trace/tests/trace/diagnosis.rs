//! Traces without a request: the message lists what they contain, and following the hint gives requests.

use crate::support::{SAMPLES, lenient, read_bytes, read_plain};
use emmclab_trace::{Error, ErrorClass, ReadOptions};

const ISSUE: &str = "dd-2 [000] ..... 1.000000: block_rq_issue: 8,0 R 4096 () 8 + 8 [dd]\n";
const COMPLETE: &str = "dd-2 [000] ..... 1.000100: block_rq_complete: 8,0 R () 8 + 8 [0]\n";
const SWITCH: &str = "dd-2 [000] ..... 1.000050: sched_switch: prev_comm=dd prev_pid=2 ==> next_comm=x next_pid=3\n";

fn refused(text: &str) -> (String, String) {
    let error: Error = read_plain(text, "txt").unwrap_err();
    assert_eq!(error.kind(), ErrorClass::Empty, "{error}");
    (error.to_string(), error.hint_text().unwrap().to_owned())
}

fn requests(text: &str) -> usize {
    read_plain(text, "txt").unwrap().requests.len()
}

#[test]
fn a_trace_without_block_events_names_those_that_it_holds() {
    let (problem, hint) = refused(&format!("{SWITCH}{SWITCH}"));
    assert!(problem.ends_with("but 2 sched_switch, no block_rq_issue, no block_rq_complete"), "{problem}");
    assert!(hint.contains("trace-cmd record -e block"), "{hint}");
    assert!(!hint.contains("--"), "it names an option: {hint}");
    // The recording that the hint suggests.
    assert_eq!(requests(&format!("{ISSUE}{SWITCH}{COMPLETE}")), 1);
}

#[test]
fn packets_of_programs_are_named_and_no_pairing_is_blamed() {
    let blkparse = "8,0 3 1 0.000000 9 D R 36 (12 00 00 24 00) [udevd]\n8,0 3 2 0.000100 0 C R (12 00 00 24 00) [0]\n\
                    8,0 3 3 0.000200 9 D R 36 (12 00 00 24 00) [udevd]\n8,0 3 4 0.000300 0 C R (12 00 00 24 00) [0]\n";
    let ftrace = "x-2 [000] ..... 1.000000: block_rq_issue: 8,0 N 512 (a1 08 0e 00) 0 + 1 [smartctl]\n\
                  x-2 [000] ..... 1.000100: block_rq_complete: 8,0 N (a1 08 0e 00) 0 + 1 [0]\n";
    let plain = ftrace.replace("a1 08 0e 00", "").replace("0 + 1", "18446744073709551615 + 0");
    for (text, packets) in [
        (blkparse, "2 packets of programs (2 x SCSI 0x12)"),
        (ftrace, "1 packet of programs (1 x SCSI 0xa1)"),
        (&plain, "1 packet of programs (1 x without data)"),
    ] {
        let (problem, hint) = refused(text);
        assert!(problem.ends_with(&format!("no read or write, but {packets}")), "{problem}");
        assert!(hint.contains("while files are read or written"), "{hint}");
        // The recording that the hint suggests.
        assert_eq!(requests(&format!("{ISSUE}{COMPLETE}{ftrace}")), 1);
    }
}

#[test]
fn another_tracer_is_named() {
    let (problem, hint) = refused("# tracer: function\n#\n dd-2 [000] ..... 1.000050: schedule <-do_syscall\n");
    assert!(problem.contains("no block_rq_issue"), "{problem}");
    assert!(hint.contains("`function`"), "{hint}");
}

#[test]
fn completions_that_belong_to_no_issue_are_not_paired_and_named() {
    let other = ISSUE.replace("8 + 8", "800 + 8");
    let (problem, hint) = refused(&format!("{other}CPU:0 [LOST 9 EVENTS]\n{COMPLETE}"));
    assert!(problem.contains("1 block_rq_complete, 1 block_rq_issue"), "{problem}");
    assert!(hint.contains("9 events were lost"), "{hint}");
}

#[test]
fn skipping_bad_lines_is_advised_where_it_helps_and_only_there() {
    for sample in SAMPLES.iter().filter(|sample| !sample.line.is_empty()) {
        let options = ReadOptions { format: Some(sample.format.into()), ..ReadOptions::default() };
        let lenient = ReadOptions { format: Some(sample.format.into()), ..lenient() };
        let bad = "no such record\n";
        for text in [
            format!("{}{bad}", sample.text),
            format!("{}{bad}{}", sample.heading, sample.text.replacen(sample.heading, "", 1)),
            format!("{}{bad}{bad}", sample.heading),
        ] {
            let Err(error) = read_bytes(text.as_bytes(), sample.ending, &options) else { continue };
            let hint = error.hint_text().unwrap_or_default().to_owned();
            if !hint.contains("--lenient") && !hint.starts_with("the lines after it") {
                continue;
            }
            let result = read_bytes(text.as_bytes(), sample.ending, &lenient);
            assert_eq!(hint.contains("--lenient"), result.is_ok(), "{}: {error}; {hint}", sample.format);
        }
    }
}

#[test]
fn a_bad_first_line_before_good_ones_can_be_skipped() {
    let text = format!("dd-2 [000] ..... 1.000000: block_rq_issue: 8,0 K 4096 () 8 + 8 [dd]\n{ISSUE}{COMPLETE}");
    let error = read_plain(&text, "txt").unwrap_err();
    assert!(error.hint_text().unwrap().contains("--lenient"), "{error}");
    let trace = read_bytes(text.as_bytes(), "txt", &lenient()).unwrap();
    assert_eq!((trace.requests.len(), trace.ledger.skipped), (1, 1));
}

#[test]
fn files_that_are_no_traces_are_named() {
    let error = read_plain(b"PK\x03\x04\x14\0\0\0\x08\0", "zip").unwrap_err();
    assert_eq!(error.kind(), ErrorClass::UnknownFormat);
    assert!(error.to_string().contains("this is no trace, but a zip archive"), "{error}");
    let page = b"<!doctype html>\n<html lang=\"en\">\n<head>\n<title>chat - emmclab</title>\n";
    let error = read_plain(page, "html").unwrap_err();
    assert!(error.to_string().contains("a report page of emmclab"), "{error}");
}
