//! Commands of drivers: without block events they become requests; with block events their ends are the served times of requests.

use std::fmt::Write as _;

use emmclab_trace::{CommandKind, Nanos, Op, RecordedActivity, Request, RequestFlags};

use crate::support::{Trace, read_plain};

const BASE: i64 = 49_000_000_000;

/// Reads lines `microseconds event: payload` in the form of the kernel's tracer.
fn read(events: &str) -> Trace {
    let mut text = "# tracer: nop\n#\n".to_owned();
    for line in events.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (time, event) = line.split_once(' ').unwrap();
        let _ = writeln!(text, "  mmcqd/0-82    [000] ...1    49.{time:0>6}: {event}");
    }
    read_plain(text, "txt").unwrap()
}

/// Operation, first sector, length, and times in microseconds after the 49th second; -1 for missing times.
fn rows(trace: &Trace) -> Vec<(Op, u64, u32, [i64; 3])> {
    let time = |time: Option<Nanos>| time.map_or(-1, |Nanos(time)| (time - BASE) / 1_000);
    let row = |request: &Request| {
        let times = [time(Some(request.arrival)), time(request.issue), time(request.complete)];
        (request.op, request.sector.0, request.sectors, times)
    };
    trace.rows(row)
}

#[test]
fn commands_of_androids_mmc_block_driver_are_requests() {
    let trace = read(
        "10 mmc_blk_rw_start: cmd=25,addr=0x002c6518,size=0x00000010
         250 mmc_blk_rw_end: cmd=25,addr=0x002c6518,size=0x00000010
         300 mmc_blk_rw_start: cmd=18,addr=0x001ad578,size=0x00000020
         400 mmc_blk_rw_end: cmd=18,addr=0x001ad578,size=0x00000020
         500 mmc_blk_erase_start: cmd=3,addr=0x0002f0a8,size=0x0003af58
         900 mmc_blk_erase_end: cmd=3,addr=0x0002f0a8,size=0x0003af58",
    );
    assert_eq!(
        rows(&trace),
        [
            (Op::Write, 0x2c_6518, 16, [10, 10, 250]),
            (Op::Read, 0x1a_d578, 32, [300, 300, 400]),
            (Op::Discard, 0x2_f0a8, 0x3_af58, [500, 500, 900])
        ]
    );
    assert_eq!(trace.devices, ["mmc"]);
    let note = "requests are the commands of the driver, as no block events were recorded";
    assert_eq!(trace.header.note.as_deref(), Some(note));
    assert_eq!((trace.ledger.paired, trace.ledger.unpaired, trace.ledger.skipped), (3, 0, 0));
}

#[test]
fn both_steps_of_a_secure_trim_are_one_request() {
    let step = |from: u32, to: u32, argument: u32| {
        format!(
            "{from} mmc_blk_erase_start: cmd={argument},addr=0x8,size=0x10\n{to} mmc_blk_erase_end: cmd={argument},addr=0x8,size=0x10\n"
        )
    };
    let trace = read(&(step(10, 20, 0x8000_0001) + &step(30, 50, 0x8000_8000) + &step(60, 70, 0x8000_0000)));
    assert_eq!(rows(&trace), [(Op::SecureErase, 8, 16, [10, 10, 50]), (Op::SecureErase, 8, 16, [60, 60, 70])]);
}

/// An event `mmc_request_start` with this request, command, argument and data.
fn start(time: u32, request: &str, opcode: u32, argument: u32, data: &str) -> String {
    format!(
        "{time} mmc_request_start: mmc0: start struct mmc_request[{request}]: cmd_opcode={opcode} cmd_arg=0x{argument:x} \
         cmd_flags=0xb5 cmd_retries=0 stop_opcode=12 stop_arg=0x0 stop_flags=0x49d stop_retries=0 {data} can_retune=0\n"
    )
}

fn done(time: u32, request: &str, opcode: u32, error: i32, retries: u32) -> String {
    format!(
        "{time} mmc_request_done: mmc0: end struct mmc_request[{request}]: cmd_opcode={opcode} cmd_err={error} \
         cmd_resp=0x900 0x0 0x0 0x0 cmd_retries={retries} stop_opcode=12 stop_err=0 sbc_opcode=23 sbc_err=0 bytes_xfered=0 \
         data_err=0\n"
    )
}

const NO_DATA: &str = "sbc_opcode=0 sbc_arg=0x0 blocks=0 block_size=0 blk_addr=0 data_flags=0x0";

#[test]
fn commands_of_the_mmc_core_are_requests_with_their_count_and_stop() {
    let write = "sbc_opcode=23 sbc_arg=0x80000008 blocks=8 block_size=512 data_flags=0x100";
    let trace = read(&[start(100, "a", 25, 0x47_fd98, write), done(400, "a", 25, 0, 0)].concat());
    assert_eq!(rows(&trace), [(Op::Write, 0x47_fd98, 8, [100, 100, 400])]);
    assert_eq!(trace.requests[0].flags, RequestFlags::FUA);
    assert_eq!(trace.devices, ["mmc0"]);
}

#[test]
fn an_erase_of_three_commands_is_one_discard_that_ends_when_the_device_is_ready() {
    let events = [
        start(100, "a", 35, 0x1000, NO_DATA),
        done(110, "a", 35, 0, 0),
        start(120, "a", 36, 0x1fff, NO_DATA),
        done(130, "a", 36, 0, 0),
        start(140, "a", 38, 1, NO_DATA),
        done(150, "a", 38, 0, 0),
        start(160, "a", 13, 0x1_0000, NO_DATA),
        done(170, "a", 13, 0, 0),
        start(900, "a", 13, 0x1_0000, NO_DATA),
        done(910, "a", 13, 0, 0),
        start(950, "a", 6, 0x0320_0101, NO_DATA),
        done(990, "a", 6, 0, 0),
        start(1000, "a", 6, 0x03b9_0101, NO_DATA),
        done(1010, "a", 6, 0, 0),
    ];
    let trace = read(&events.concat());
    assert_eq!(rows(&trace), [(Op::Discard, 0x1000, 0x1000, [100, 140, 910]), (Op::Flush, 0, 0, [950, 950, 990])]);
    let activity = RecordedActivity::from_json(&trace.header.activity.unwrap()).unwrap();
    assert!(activity.hosts[0].commands.iter().any(|row| row.kind == CommandKind::Status && row.count == 2));
}

#[test]
fn a_packed_command_is_one_write_without_its_header() {
    let write = "sbc_opcode=23 sbc_arg=0x40000019 blocks=25 block_size=512 data_flags=0x100";
    let trace = read(&[start(100, "a", 25, 64, write), done(400, "a", 25, 0, 0)].concat());
    assert_eq!(rows(&trace), [(Op::Write, 64, 24, [100, 100, 400])]);
    assert_eq!((trace.requests[0].flags, trace.ledger.headers_stripped), (RequestFlags::PACKED, 1));
}

#[test]
fn a_command_that_is_repeated_stays_one_request_and_one_that_fails_is_marked() {
    let read_8 = "sbc_opcode=0 sbc_arg=0x0 blocks=8 block_size=512 blk_addr=64 data_flags=0x200";
    let trace = read(
        &[
            start(100, "a", 18, 64, read_8),
            done(200, "a", 18, -110, 2),
            start(210, "a", 18, 64, read_8),
            done(300, "a", 18, 0, 2),
            start(400, "a", 18, 64, read_8),
            done(500, "a", 18, -84, 0),
        ]
        .concat(),
    );
    assert_eq!(rows(&trace), [(Op::Read, 64, 8, [100, 210, 300]), (Op::Read, 64, 8, [400, 400, 500])]);
    assert_eq!(trace.rows(|row| row.flags), [RequestFlags(0), RequestFlags::FAILED]);
    assert_eq!(trace.ledger.requeued, 1);
}

#[test]
fn requests_of_the_command_queue_engine_are_told_by_their_data() {
    let data = |flags: &str, tag| {
        format!("sbc_opcode=0 sbc_arg=0x0 blocks=8 block_size=512 blk_addr={} data_flags={flags} tag={tag}", 64 * tag)
    };
    let trace = read(
        &[
            start(100, "a", 0, 0, &data("0x200", 1)),
            start(110, "b", 0, 0, &data("0x100", 2)),
            done(150, "b", 0, 0, 0),
            done(190, "a", 0, 0, 0),
        ]
        .concat(),
    );
    assert_eq!(rows(&trace), [(Op::Read, 64, 8, [100, 100, 190]), (Op::Write, 128, 8, [110, 110, 150])]);
}

#[test]
fn commands_of_a_ufs_controller_are_requests_in_sectors() {
    // Kernel 4.19 counts sectors, 5.15 and later count logical blocks of 4 KiB, as three commands show.
    let old = read(
        "10 ufshcd_command: send: 624000.ufshc: tag: 3, DB: 0x8, size: 4096, IS: 0, LBA: 80, opcode: 0x2a
         20 ufshcd_command: send: 624000.ufshc: tag: 5, DB: 0x8, size: 8192, IS: 0, LBA: 800, opcode: 0x28
         90 ufshcd_command: complete: 624000.ufshc: tag: 3, DB: 0x0, size: 4096, IS: 0, LBA: 80, opcode: 0x2a
         95 ufshcd_command: complete: 624000.ufshc: tag: 5, DB: 0x0, size: 8192, IS: 0, LBA: 800, opcode: 0x28",
    );
    assert_eq!(rows(&old), [(Op::Write, 80, 8, [10, 10, 90]), (Op::Read, 800, 16, [20, 20, 95])]);
    assert_eq!(old.devices, ["624000.ufshc"]);
    let new = read(
        "10 ufshcd_command: send_req: 1d84000.ufshc: tag: 3, DB: 0x0, size: 4096, IS: 0, LBA: 3, opcode: 0x2a (WRITE_10), group_id: 0x16, hwq_id: 2
         15 ufshcd_command: send_req: 1d84000.ufshc: tag: 4, DB: 0x0, size: -1, IS: 0, LBA: 0, opcode: 0x35 (SYNC), group_id: 0x0, hwq_id: 2
         20 ufshcd_command: send_req: 1d84000.ufshc: tag: 5, DB: 0x0, size: 65536, IS: 0, LBA: 16, opcode: 0x42 (UNMAP), group_id: 0x0, hwq_id: 1
         90 ufshcd_command: complete_rsp: 1d84000.ufshc: tag: 3, DB: 0x0, size: 4096, IS: 0, LBA: 3, opcode: 0x2a (WRITE_10), group_id: 0x16, hwq_id: 2
         95 ufshcd_command: complete_rsp: 1d84000.ufshc: tag: 4, DB: 0x0, size: -1, IS: 0, LBA: 0, opcode: 0x35 (SYNC), group_id: 0x0, hwq_id: 2
         99 ufshcd_command: complete_rsp: 1d84000.ufshc: tag: 5, DB: 0x0, size: 65536, IS: 0, LBA: 16, opcode: 0x42 (UNMAP), group_id: 0x0, hwq_id: 1",
    );
    assert_eq!(
        rows(&new),
        [(Op::Write, 24, 8, [10, 10, 90]), (Op::Flush, 0, 0, [15, 15, 95]), (Op::Discard, 128, 128, [20, 20, 99])]
    );
    assert!(new.header.note.unwrap().contains("blocks of 4 KiB"));
}

#[test]
fn beside_block_events_commands_give_times_and_no_requests() {
    let trace = read(
        "5 mmc_blk_rw_end: cmd=18,addr=0x100,size=0x8
         10 block_bio_queue: 179,0 R 64 + 8 [app]
         20 block_rq_issue: 179,0 R 0 () 64 + 8 [mmcqd/0]
         30 mmc_blk_rw_start: cmd=18,addr=0x40,size=0x8
         80 mmc_blk_rw_end: cmd=18,addr=0x40,size=0x8
         90 block_rq_complete: 179,0 R () 64 + 8 [0]",
    );
    assert_eq!(rows(&trace), [(Op::Read, 64, 8, [10, 30, 90])]);
    assert_eq!((trace.devices, trace.header.note), (vec!["179,0".to_owned()], None));
}

#[test]
fn commands_of_which_no_end_was_recorded_are_kept_without_a_completion() {
    let trace = read(
        "10 mmc_blk_rw_start: cmd=25,addr=0x8,size=0x10
         20 mmc_blk_rw_start: cmd=25,addr=0x80,size=0x10",
    );
    assert_eq!(rows(&trace), [(Op::Write, 8, 16, [10, 10, -1]), (Op::Write, 128, 16, [20, 20, -1])]);
    let trace = read(
        "10 mmc_blk_rw_start: cmd=25,addr=0x8,size=0x10
         20 mmc_blk_rw_end: cmd=25,addr=0x8,size=0x10
         30 mmc_blk_rw_start: cmd=25,addr=0x80,size=0x10",
    );
    assert_eq!((trace.requests.len(), trace.ledger.unpaired), (1, 1));
}

#[test]
fn without_completions_the_end_of_the_command_is_the_end_of_the_request() {
    let write = "sbc_opcode=23 sbc_arg=0x80000008 blocks=8 block_size=512 data_flags=0x100";
    let issue = "46 block_rq_issue: 179,0 WFS 0 () 4717976 + 8 [mmcqd/0]\n".to_owned();
    let trace = read(&(issue + &start(72, "a", 25, 0x47_fd98, write) + &done(269_701, "a", 25, 0, 0)));
    assert_eq!(rows(&trace), [(Op::Write, 4_717_976, 8, [46, 72, 269_701])]);
}

#[test]
fn commands_of_ufs_tell_when_the_device_got_a_request_of_a_scsi_disk() {
    let trace = read(
        "10 block_rq_issue: 8,0 W 4096 () 24 + 8 [app]
         30 ufshcd_command: send_req: 1d84000.ufshc: tag: 3, DB: 0x0, size: 4096, IS: 0, LBA: 3, opcode: 0x2a (WRITE_10), group_id: 0x0
         80 ufshcd_command: complete_rsp: 1d84000.ufshc: tag: 3, DB: 0x0, size: 4096, IS: 0, LBA: 3, opcode: 0x2a (WRITE_10), group_id: 0x0
         90 block_rq_complete: 8,0 W () 24 + 8 [0]",
    );
    assert_eq!(rows(&trace), [(Op::Write, 24, 8, [10, 30, 90])]);
}

#[test]
fn requests_are_made_of_block_io_events_where_no_other_block_events_are() {
    let io = "10 block_io_start: 179,0 R 4096 () 64 + 8 be,0,4 [app]
              15 block_io_start: 179,0 FF 0 () 0 + 0 be,0,4 [app]
              40 block_io_done: 179,0 R 0 () 64 + 0 be,0,4 [kworker/0:1]
              60 block_io_done: 179,0 FF 0 () 0 + 0 be,0,4 [kworker/0:1]";
    let trace = read(io);
    assert_eq!(rows(&trace), [(Op::Read, 64, 8, [10, -1, 40]), (Op::Flush, 0, 0, [15, -1, 60])]);
    assert_eq!((trace.processes.as_slice(), trace.ledger.unpaired), (&["mmcqd/0".to_owned()][..], 0));
    let trace =
        read(&format!("{io}\n70 block_rq_issue: 179,0 R 4096 () 8 + 8 [app]\n80 block_rq_complete: 179,0 R () 8 + 8 [0]"));
    assert_eq!((rows(&trace), trace.ledger.skipped), (vec![(Op::Read, 8, 8, [70, 70, 80])], 4));
}

#[test]
fn a_completion_with_an_error_is_a_failed_request_and_in_no_latency() {
    let trace = read(
        "10 block_rq_issue: 179,0 R 4096 () 64 + 8 [app]
         20 block_rq_issue: 179,0 R 4096 () 8 + 8 [app]
         40 block_rq_complete: 179,0 R () 64 + 8 [-5]
         60 block_rq_complete: 179,0 R () 8 + 8 [0]",
    );
    assert_eq!(trace.rows(|row| row.flags), [RequestFlags::FAILED, RequestFlags(0)]);
    assert_eq!((trace.requests[0].response(), trace.ledger.failed), (None, 1));
}

#[test]
fn commands_of_scsi_disks_are_requests_in_blocks_of_the_disk() {
    let command =
        |lba: u32, count: u32| format!("cmnd=(WRITE_10 lba={lba} txlen={count} protect=0 raw=2a 00 00 00 00 00 00 00 00 00)");
    let disk = "host_no=0 channel=0 id=0 lun=0 data_sgl=1 prot_sgl=0 prot_op=SCSI_PROT_NORMAL";
    let good = "result=(driver=DRIVER_OK host=DID_OK message=COMMAND_COMPLETE status=SAM_STAT_GOOD)";
    let bad = "result=(driver=DRIVER_OK host=DID_OK message=COMMAND_COMPLETE status=SAM_STAT_CHECK_CONDITION)";
    let sync = "cmnd=(SYNCHRONIZE_CACHE - raw=35 00 00 00 00 00 00 00 00 00)";
    let (first, second) = (command(2048, 8), command(4096, 64));
    let trace = read(&format!(
        "10 scsi_dispatch_cmd_start: {disk} {first}
         20 scsi_dispatch_cmd_start: {disk} driver_tag=5 scheduler_tag=7 {second}
         40 scsi_dispatch_cmd_done: {disk} {first} {good}
         60 scsi_dispatch_cmd_done: {disk} driver_tag=5 scheduler_tag=7 {second} {bad} sense=(key=0x3 asc=0x11 ascq=0x0)
         70 scsi_dispatch_cmd_start: {disk} {sync}
         90 scsi_dispatch_cmd_done: {disk} {sync} {good}"
    ));
    assert_eq!(
        rows(&trace),
        [(Op::Write, 2048, 8, [10, 10, 40]), (Op::Write, 4096, 64, [20, 20, 60]), (Op::Flush, 0, 0, [70, 70, 90])]
    );
    assert_eq!(trace.requests[1].flags, RequestFlags::FAILED);
    assert_eq!(trace.devices, ["scsi 0:0:0:0"]);
}

/// Start, issue, served and complete in microseconds after the 49th second; -1 for missing times.
fn served_times(request: &Request) -> [i64; 4] {
    let times = [request.start, request.issue, request.served, request.complete];
    times.map(|time| time.map_or(-1, |Nanos(time)| (time - BASE) / 1_000))
}

/// A write of these sectors by the MMC driver, from the first time to the second one.
fn written(from: u32, to: u32, sector: u32, blocks: u32) -> String {
    let data = format!("sbc_opcode=23 sbc_arg=0x{blocks:x} blocks={blocks} block_size=512 blk_addr={sector} data_flags=0x100");
    start(from, "a", 25, sector, &data) + &done(to, "a", 25, 0, 0)
}

#[test]
fn service_is_that_of_the_device_where_its_driver_tells_both_ends() {
    let trace = read(&format!(
        "10 block_rq_issue: 179,0 W 4096 () 64 + 8 [dd]
         {}
         320 block_rq_complete: 179,0 W () 64 + 8 [0]
         400 block_rq_issue: 179,0 R 4096 () 800 + 8 [dd]
         500 block_rq_complete: 179,0 R () 800 + 8 [0]",
        written(35, 300, 64, 8),
    ));
    // The command of the second request is not recorded, so its service time is the time of the driver.
    let expected = [([10, 35, 300, 320], Some(Nanos(265_000))), ([400, 400, -1, 500], Some(Nanos(100_000)))];
    assert_eq!(trace.rows(|request| (served_times(request), request.service())), expected);
}

#[test]
fn a_request_that_took_several_commands_has_no_end_of_its_command() {
    let trace = read(&format!(
        "10 block_rq_issue: 179,0 W 8192 () 64 + 16 [dd]
         {}
         110 block_rq_complete: 179,0 W () 64 + 8 [0]
         {}
         210 block_rq_complete: 179,0 W () 72 + 8 [0]",
        written(20, 100, 64, 8),
        written(120, 200, 72, 8),
    ));
    assert_eq!(trace.requests.len(), 1);
    assert_eq!((trace.requests[0].served, trace.requests[0].complete), (None, Some(Nanos(BASE + 210_000))));
}

#[test]
fn a_request_that_was_given_back_is_served_by_its_last_command() {
    let trace = read(&format!(
        "10 block_rq_issue: 179,0 W 4096 () 64 + 8 [dd]
         {}
         40 block_rq_requeue: 179,0 W () 64 + 8 [0]
         50 block_rq_issue: 179,0 W 4096 () 64 + 8 [dd]
         {}
         95 block_rq_complete: 179,0 W () 64 + 8 [0]",
        written(20, 30, 64, 8),
        written(60, 90, 64, 8),
    ));
    assert_eq!(served_times(&trace.requests[0]), [10, 60, 90, 95]);
}
