//! Where the driver's events stand beside those of the block layer, a request has the end of its command: the time of the device.

use std::fmt::Write as _;

use emmclab_trace::{Nanos, ReadOptions, Request};

use crate::support::{Trace, read_bytes};

const BASE: i64 = 49_000_000_000;

/// Lines `microseconds event: payload` as the tracer writes them.
fn read(events: &str) -> Trace {
    let mut text = "# tracer: nop\n#\n".to_owned();
    for line in events.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (time, event) = line.split_once(' ').unwrap();
        let _ = writeln!(text, "  kworker/0:1H-82    [000] ...1    49.{time:0>6}: {event}");
    }
    read_bytes(text.as_bytes(), "txt", &ReadOptions::default()).unwrap()
}

/// Start, issue, served and complete in microseconds; -1 where missing.
fn times(request: &Request) -> [i64; 4] {
    [request.start, request.issue, request.served, request.complete]
        .map(|time| time.map_or(-1, |Nanos(time)| (time - BASE) / 1_000))
}

fn command(request: u32, sector: u64, blocks: u32) -> String {
    format!(
        "mmc_request_start: mmc0: start struct mmc_request[{request:08x}]: cmd_opcode=25 cmd_arg=0x{sector:x} cmd_flags=0xb5 \
         cmd_retries=0 stop_opcode=12 stop_arg=0x0 stop_flags=0x49d stop_retries=0 sbc_opcode=23 sbc_arg=0x{blocks:x} \
         sbc_flags=0x15 sbc_retires=0 blocks={blocks} block_size=512 blk_addr={sector} data_flags=0x100 tag=-1 can_retune=0 \
         doing_retune=0 retune_now=0 need_retune=0 hold_retune=1 retune_period=0"
    )
}

fn done(request: u32) -> String {
    format!(
        "mmc_request_done: mmc0: end struct mmc_request[{request:08x}]: cmd_opcode=25 cmd_err=0 cmd_resp=0x900 0x0 0x0 0x0 \
         cmd_retries=0 stop_opcode=12 stop_err=0 stop_resp=0x0 0x0 0x0 0x0 stop_retries=0 sbc_opcode=23 sbc_err=0 \
         sbc_resp=0x900 0x0 0x0 0x0 sbc_retries=0 bytes_xfered=4096 data_err=0 tag=-1 can_retune=0 doing_retune=0 \
         retune_now=0 need_retune=0 hold_retune=1 retune_period=0"
    )
}

#[test]
fn service_is_that_of_the_device_where_its_driver_tells_both_ends() {
    let trace = read(&format!(
        "10 block_rq_issue: 179,0 W 4096 () 64 + 8 [dd]
         35 {}
         300 {}
         320 block_rq_complete: 179,0 W () 64 + 8 [0]
         400 block_rq_issue: 179,0 R 4096 () 800 + 8 [dd]
         500 block_rq_complete: 179,0 R () 800 + 8 [0]",
        command(1, 64, 8),
        done(1),
    ));
    let rows: Vec<_> = trace.requests.iter().map(|request| (times(request), request.service())).collect();
    assert_eq!(
        rows,
        [
            ([10, 35, 300, 320], Some(Nanos(265_000))),
            // Its command was not recorded: the time that the driver took is the best that is known.
            ([400, 400, -1, 500], Some(Nanos(100_000)))
        ]
    );
}

#[test]
fn a_request_that_took_several_commands_has_no_end_of_its_command() {
    let trace = read(&format!(
        "10 block_rq_issue: 179,0 W 8192 () 64 + 16 [dd]
         20 {}
         100 {}
         110 block_rq_complete: 179,0 W () 64 + 8 [0]
         120 {}
         200 {}
         210 block_rq_complete: 179,0 W () 72 + 8 [0]",
        command(1, 64, 8),
        done(1),
        command(2, 72, 8),
        done(2),
    ));
    assert_eq!(trace.requests.len(), 1);
    assert_eq!((trace.requests[0].served, trace.requests[0].complete), (None, Some(Nanos(BASE + 210_000))));
}

#[test]
fn a_request_that_was_given_back_is_served_by_its_last_command() {
    let trace = read(&format!(
        "10 block_rq_issue: 179,0 W 4096 () 64 + 8 [dd]
         20 {}
         30 {}
         40 block_rq_requeue: 179,0 W () 64 + 8 [0]
         50 block_rq_issue: 179,0 W 4096 () 64 + 8 [dd]
         60 {}
         90 {}
         95 block_rq_complete: 179,0 W () 64 + 8 [0]",
        command(1, 64, 8),
        done(1),
        command(2, 64, 8),
        done(2),
    ));
    assert_eq!(times(&trace.requests[0]), [10, 60, 90, 95]);
}
