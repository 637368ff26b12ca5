//! Text of recorders as users paste it: other columns, names, headings, stacks, losses, broken lines and foreign lines.

use crate::support::{Trace, read_plain};
use emmclab_trace::{Error, ErrorClass, Nanos};

fn read(text: &str) -> Trace {
    read_plain(text, "txt").unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn refused(text: &str) -> Error {
    read_plain(text, "txt").unwrap_err()
}

/// Times from issue to completion in microseconds.
fn latencies(trace: &Trace) -> Vec<i64> {
    trace.rows(|request| (request.complete.unwrap() - request.start.unwrap()).0 / 1000)
}

#[test]
fn names_of_tasks_are_whole_whatever_they_hold() {
    let trace = read(
        "  pool[1]-76     [002] ..... 5.000000: block_rq_issue: 8,0 WS 4096 () 80 + 8 rt,4 [pool[1]]\n\
         \x20 <idle>-0       [007] d.h1. 5.000300: block_rq_complete: 8,0 WS () 80 + 8 rt,4 [0]\n\
         \x20 Service[C-93   (   93) [005] ..... 5.001000: block_rq_issue: 8,0 RA 4096 () 90 + 8 rt,4 [Service[C]\n\
         \x20 <idle>-0       (-----) [005] d.h1. 5.001500: block_rq_complete: 8,0 RA () 90 + 8 rt,4 [0]\n\
         #x y: [3] z-7     [001] ..... 5.002000: block_rq_issue: 8,0 R 4096 () 99 + 8 none,0 [#x y: [3] z]\n\
         \x20 <idle>-0       [001] d.h1. 5.002200: block_rq_complete: 8,0 R () 99 + 8 none,0 [0]\n",
    );
    assert_eq!(trace.processes, ["pool[1]", "<idle>", "Service[C", "#x y: [3] z"]);
    assert_eq!(latencies(&trace), [300, 500, 200]);
    assert_eq!((trace.ledger.skipped, trace.ledger.seen), (0, 6));
}

#[test]
fn stacks_and_losses_of_trace_cmd_are_counted_and_nothing_is_skipped_for_them() {
    let trace = read(
        "version = 6\ncpus=24\nCPU 3 is empty\n\
         \x20 zstd-73 [010]  1579.534840: block_rq_issue:       8,0 WS 4096 () 80 + 8 [zstd]\n\
         irq/307-qcom-mc-402 [010]  1579.535338: block_rq_complete:    8,0 WS () 80 + 8 [0]\n\
         dog-74 [017]  1719.423853: block_rq_issue:       8,0 R 4096 () 2048 + 8 [dog]\n\
         dog-74 [017]  1719.423853: kernel_stack:         <stack trace >\n\
         => __schedule (ffffffc0110a0b1c)\n=> io_schedule (ffffffc0110a1200)\n\
         CPU 10: [LOST 431 EVENTS]\nCPU:3 [5 EVENTS DROPPED]\nCPU:3 [EVENTS DROPPED]\n\
         \x20  <idle>-0     [017]  1719.424099: block_rq_complete:    8,0 R () 2048 + 8 [0]\n",
    );
    assert_eq!(latencies(&trace), [498, 246]);
    let ledger = &trace.ledger;
    assert_eq!((ledger.lost, ledger.stack_lines, ledger.foreign, ledger.skipped), (437, 2, 0, 1));
}

#[test]
fn events_that_the_heading_says_are_overwritten_are_lost_and_not_counted_twice() {
    let text = "# tracer: nop\n#\n# entries-in-buffer/entries-written: 2/102   #P:8\n#\nCPU:0 [LOST 60 EVENTS]\n\
         \x20 dd-2 [000] ..... 1.000000: block_rq_issue: 8,0 R 4096 () 8 + 8 [dd]\n\
         \x20 dd-2 [000] ..... 1.000100: block_rq_complete: 8,0 R () 8 + 8 [0]\n";
    assert_eq!(read(text).ledger.lost, 100);
    assert_eq!(read(&text.replace("2/102", "2/2")).ledger.lost, 60);
}

#[test]
fn perf_script_is_read_with_stacks_periods_and_without_cpus() {
    let trace = read(
        "# ========\n# captured on    : Tue Nov 25 10:00:00 2025\n# ========\n#\n\
         mysqld  1965 [001] 1605.158573: block:block_rq_issue: 259,0 WS 12288 () 10 + 24 [mysqld]\n\
         \x20       ffffffffb12d5040 blk_mq_start_request+0xa0 ([kernel.kallsyms])\n\
         \x20           7f1b2c3d4e5f fsync+0x3f (/usr/lib/libpthread-2.31.so)\n\n\
         swapper     0 [001] 1605.158700:          1 block:block_rq_complete: 259,0 WS () 10 + 24 [0]\n\
         \x20       ffffffffb12d1234 blk_mq_end_request+0x24 ([kernel.kallsyms])\n\n\
         graph_traverse_ 1264 1606.601500:          1 major-faults:      55d0c0de1000 main+0x10 (/tmp/graph)\n\
         Chrome IO  4096/4097 1606.700000: block:block_rq_issue: 259,0   WS 0 ()     90 + 8 [Chrome IO]\n\
         swapper     0 1606.700186: block:block_rq_complete: 259,0 WS ()      90 + 8 [0]\n",
    );
    assert_eq!(latencies(&trace), [127, 186]);
    let ledger = &trace.ledger;
    assert_eq!((ledger.seen, ledger.skipped, ledger.stack_lines, ledger.foreign), (5, 1, 3, 0));
    assert_eq!(trace.requests[1].pid, Some(4097));
}

#[test]
fn perf_trace_is_read_in_both_of_its_forms() {
    let old = "     0.000 dd/2100 block:block_rq_issue:179,0 W 524288 () 2048 + 1024 [dd]\n\
         \x20    9.133 kworker/0:1H/95 block:block_rq_complete:179,0 W () 2048 + 1024 [0]\n";
    let new = "     0.000 (         ): dd/2100 block:block_rq_issue(dev: 187695104, sector: 2048, nr_sector: 1024, bytes: 524288, rwbs: \"W\", comm: \"dd\", cmd: \"\")\n\
         \x20    9.133 (         ): kworker/0:1H/95 block:block_rq_complete(dev: 187695104, sector: 2048, nr_sector: 1024, rwbs: \"W\", cmd: \"\")\n";
    for text in [old, new] {
        let trace = read(text);
        assert_eq!((latencies(&trace), trace.devices.as_slice()), (vec![9_133], &["179,0".to_owned()][..]), "{text}");
        let request = trace.requests[0];
        assert_eq!((request.sector.0, request.sectors, request.pid), (2048, 1024, Some(2100)));
        assert_eq!(trace.header.clock, "relative");
    }
}

const WRAPPED: &str = "    kworker/u16:3 25003 [004] 5433.164811:   block:block_rq_insert: 259,0 RM 4096 ()\n2564656 + 8 [kworker/u16:3]\n\
     \x20   kworker/u16:3 25003 [004] 5433.164815:   block:block_rq_issue: 259,0 RM 4096 ()\n2564656 + 8 [kworker/u16:3]\n\
     \x20         swapper     0 [004] 5433.164887:   block:block_rq_complete: 259,0 RM ()\n2564656 + 8 [0]\n";

#[test]
fn lines_that_a_mail_program_broke_are_joined_and_counted() {
    let trace = read(WRAPPED);
    assert_eq!((latencies(&trace), trace.ledger.joined, trace.ledger.seen), (vec![72], 3, 3));
    let quoted: String = WRAPPED.lines().map(|line| format!("> {line}\n")).collect();
    assert_eq!(read(&quoted).requests, trace.requests);
    // Terminals break lines at a column, inside names and numbers.
    for width in [38, 40, 44, 57, 63, 70, 79] {
        let whole = "swapper-1 [004] d..1. 5433.164815: block_rq_issue: 259,0 RM 4096 () 2564656 + 128 [swapper]\n\
             swapper-1 [004] d..1. 5433.164887: block_rq_complete: 259,0 RM () 2564656 + 128 [0]\n";
        let broken: String = whole
            .lines()
            .flat_map(|line| line.as_bytes().chunks(width).map(|part| format!("{}\n", String::from_utf8_lossy(part))))
            .collect();
        let joined = read(&broken);
        assert_eq!(joined.requests, read(whole).requests, "{width}: {broken}");
        assert!(joined.ledger.joined >= 2, "{width}");
    }
}

#[test]
fn a_long_event_in_many_pieces_is_joined() {
    let trace = read(
        "mmcqd/0-89   [000] d..2   474.223046: block_rq_issue: 179,0 WFS 0 () 4717976 + 8 [mmcqd/0]\n\n\
         mmcqd/0-89   [000] ...1   474.223072: mmc_request_start: mmc0: start struct mmc_request\n\
         [c669d954]: cmd_opcode=25 cmd_arg=0x47fd98 cmd_flags=0xb5 cmd_retries=0 stop_opcode=12 \n\
         stop_arg=0x0 stop_flags=0x49d stop_retries=0 sbc_opcode=23 sbc_arg=0x80000008 sbc_flags=0x15 \n\
         sbc_retires=0 blocks=8 block_size=512 data_flags=0x100 can_retune=0 doing_retune=0 \n\
         retune_now=0 need_retune=0 hold_retune=1 retune_period=0\n",
    );
    assert_eq!((trace.ledger.joined, trace.ledger.foreign, trace.ledger.skipped), (4, 0, 0));
    assert_eq!(trace.requests[0].issue, Some(Nanos(474_223_072_000)));
}

#[test]
fn a_broken_line_whose_rest_is_missing_is_named_by_its_number() {
    let text = WRAPPED.replacen("2564656 + 8 [kworker/u16:3]\n", "", 1);
    let error = refused(&text);
    assert_eq!((error.kind(), error.line()), (ErrorClass::Syntax, Some(1)), "{error}");
    let rest_elsewhere = "a-1 [004] 5.1: block_rq_issue: 259,0 RM 4096 ()\n\n2564656 + 8 [a]\n";
    assert_eq!(refused(rest_elsewhere).line(), Some(1));
}

#[test]
fn foreign_lines_around_a_trace_are_counted_and_change_nothing() {
    let events = "dd-2 [000] ..... 1.000000: block_rq_issue: 8,0 R 4096 () 8 + 8 [dd]\n\
         dd-2 [000] ..... 1.000100: block_rq_complete: 8,0 R () 8 + 8 [0]\n";
    let around = format!(
        "$ fio job.fio & perf record -e block:block_rq_issue -a\njob: (g=0): rw=read, bs=(R) 4096B-4096B\nfio-3.33\n\n{events}\
         \x20 read: IOPS=256, BW=1026KiB/s (1050kB/s)(10.0MiB/9980msec)\n1+0 records out\n"
    );
    let (plain, trace) = (read(events), read(&around));
    assert_eq!(trace.requests, plain.requests);
    assert_eq!((trace.ledger.foreign, trace.ledger.seen, trace.ledger.skipped), (5, 2, 0));
}

#[test]
fn a_damaged_event_is_an_error_and_not_foreign() {
    for bad in [
        "dd-2 [00x] ..... 1.000100: block_rq_complete: 8,0 R () 8 + 8 [0]",
        "dd-2 [000] ..... 1.000100: block_rq_complete: 8,0 R () x + 8 [0]",
        "dd-2 [000] ..... 1.0001x0: block_rq_complete: 8,0 R () 8 + 8 [0]",
        "dd_2 [000] ..... 1.000100: block_rq_complete: 8,0 R () 8 + 8 [0]",
    ] {
        let text = format!("dd-2 [000] ..... 1.000000: block_rq_issue: 8,0 R 4096 () 8 + 8 [dd]\n{bad}\n");
        assert_eq!(refused(&text).line(), Some(2), "{bad}");
    }
}

#[test]
fn the_tracer_blk_is_read_in_both_of_its_forms() {
    let default = "# tracer: blk\n#\n\
         \x20 dd-2391    [001] .....  5021.104400: 179,0    A   W 1056768 + 8 <- (179,1) 1048576\n\
         \x20 dd-2391    [001] .....  5021.104401: 179,0    Q   W 1056768 + 8 [dd]\n\
         \x20 dd-2391    [001] .....  5021.104406: 179,0    P   N [dd]\n\
         \x20 kworker-95 [001] .....  5021.104440: 179,0    D   W 1056768 + 8 [kworker]\n\
         \x20 mmc-77     [001] d..1.  5021.105210: 179,0    C   W 1056768 + 8 [0]\n\
         \x20 kworker-95 [001] .....  5021.119000: 179,0    Q   D 2048 + 2048 [dd]\n\
         \x20 kworker-95 [001] .....  5021.120000: 179,0    D   D 2048 + 2048 [kworker]\n\
         \x20 mmc-77     [001] d..1.  5021.121000: 179,0    C   D 2048 + 2048 [0]\n";
    let classic = "# tracer: blk\n# DEV   CPU TIMESTAMP     PID ACT FLG\n#  |     |     |           |   |   |\n\
         179,0    1  5021.104401000  2391  Q   W 1056768 + 8 [dd]\n\
         179,0    1  5021.104440000    95  D   W 1056768 + 8 [kworker]\n\
         179,0    1  5021.105210000    77  C   W 1056768 + 8 [0]\n\
         179,0    1  5021.119000000  2391  Q   D 2048 + 2048 [dd]\n\
         179,0    1  5021.120000000    95  D   D 2048 + 2048 [kworker]\n\
         179,0    1  5021.121000000    77  C   D 2048 + 2048 [0]\n";
    for (text, format, skipped) in [(default, "ftrace", 2), (classic, "blkparse", 0)] {
        let trace = read(text);
        assert_eq!(trace.header.format, format);
        assert_eq!(latencies(&trace), [770, 1000], "{format}");
        assert_eq!(trace.ledger.skipped, skipped, "{format}");
    }
}

#[test]
fn blkparse_is_read_with_headings_separators_summaries_and_foreign_lines() {
    let events = "8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n\
         8,0    3        2     0.000010000   697  D   W 223490 + 8 [kjournald]\n\
         8,0    3        3     0.000510000     0  C   W 223490 + 8 [0]\n\
         8,0    3        4     0.000520000   697  D   R 36 (12 00 00 00 24 00) [udevd]\n";
    let summary = "CPU3 (8,0):\n Reads Queued:           0,        0KiB\n\nTotal (8,0):\n\
         Throughput (R/W): 0KiB/s / 8KiB/s\nEvents (8,0): 4 entries\nSkips: 4 forward (4 -   0.0%)\n";
    let later = events.replace("0.000", "1.000").replace("223490", "99");
    let text = format!(
        "#Maj,Mn CPU   SeqNo     Seconds     PID  Evt Typ Sector   +Len Description\n#------ --- -------\n\
         Input file sda.blktrace.0 added\n$ dd if=x of=/dev/sda\n{events}{summary}----------\n{later}\
         === sda ===\n  CPU  3:                    4 events,        1 KiB data\n  Total:                     4 events (dropped 7),        1 KiB data\n"
    );
    let trace = read(&text);
    assert_eq!(latencies(&trace), [500, 500]);
    let ledger = &trace.ledger;
    assert_eq!((ledger.seen, ledger.skipped, ledger.lost, ledger.foreign), (8, 2, 11, 1));
}

#[test]
fn broken_lines_of_blkparse_are_joined() {
    let text = "8,0    3        1     0.000000000   697  D   W\n223490 + 8 [kjournald]\n\
         8,0    3        3     0.000510000     0  C   W 2234\n90 + 8 [0]\n";
    let trace = read(text);
    assert_eq!((latencies(&trace), trace.ledger.joined), (vec![510], 2));
    let error =
        refused("8,0    3        1     0.000000000   697  D   W\n8,0    3        3     0.000510000     0  C   W 8 + 8 [0]\n");
    assert_eq!(error.line(), Some(1), "{error}");
}

#[test]
fn utf_16_reads_like_utf_8() {
    let text = "dd-2 [000] ..... 1.000000: block_rq_issue: 8,0 R 4096 () 8 + 8 [dd]\r\n\
         dd-2 [000] ..... 1.000100: block_rq_complete: 8,0 R () 8 + 8 [0]\r\n";
    let plain = read(text);
    for mark in ["", "\u{feff}"] {
        let units: Vec<u16> = mark.encode_utf16().chain(text.encode_utf16()).collect();
        for bytes in [
            units.iter().flat_map(|unit| unit.to_le_bytes()).collect::<Vec<u8>>(),
            units.iter().flat_map(|unit| unit.to_be_bytes()).collect(),
        ] {
            let trace = read_plain(&bytes, "txt").unwrap();
            assert_eq!((trace.requests, trace.ledger), (plain.requests.clone(), plain.ledger.clone()));
        }
    }
}

#[test]
fn the_number_of_an_error_is_in_the_note_of_the_trace() {
    let of = |code: &str| {
        let ftrace = format!(
            "dd-2 [000] ..... 1.0: block_rq_issue: 8,0 R 4096 () 8 + 8 [dd]\n\
             dd-2 [000] ..... 1.1: block_rq_complete: 8,0 R () 8 + 8 [{code}]\n"
        );
        let blkparse = format!("8,0 3 1 0.0 9 D R 8 + 8 [dd]\n8,0 3 2 0.1 0 C R 8 + 8 [{code}]\n");
        [read(&ftrace), read(&blkparse)].map(|trace| (trace.ledger.failed, trace.header.note))
    };
    for (code, named) in [("-5", "1 x -5 (EIO)"), ("5", "1 x -5 (EIO)"), ("65475", "1 x -61 (ENODATA)")] {
        for (failed, note) in of(code) {
            assert_eq!(failed, 1);
            assert!(note.as_deref().unwrap_or_default().ends_with(named), "{code}: {note:?}");
        }
    }
    assert_eq!(of("0"), [(0, None), (0, None)]);
}

#[test]
fn io_that_md_passes_on_counts_once_though_md_completes_it() {
    let trace = read(
        "9,0 1 1 0.000000 7 Q W 100 + 8 [dd]\n8,16 1 2 0.000001 7 A W 300 + 8 <- (9,0) 100\n\
         8,16 1 3 0.000002 7 Q W 300 + 8 [dd]\n8,16 1 4 0.000003 7 D W 300 + 8 [dd]\n\
         8,16 1 5 0.000500 0 C W 300 + 8 [0]\n9,0 1 6 0.000501 0 C W 100 + 8 [0]\n",
    );
    let devices = trace.rows(|request| trace.devices[request.device.unwrap().0 as usize].as_str());
    assert_eq!((devices, trace.ledger.unpaired, trace.ledger.skipped), (vec!["8,16"], 0, 2));
}
