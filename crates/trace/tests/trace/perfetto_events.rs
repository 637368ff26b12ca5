//! Events of a Perfetto trace beside those of the block layer: all are counted by name, and those of UFS make requests.

use emmclab_trace::{Error, ErrorClass, Op, ReadOptions, RequestFlags};

use crate::support::protobuf::Message;
use crate::support::{Trace, read_bytes};

/// Protobuf field numbers of the events in `FtraceEvent`.
const SCHED_SWITCH: u32 = 4;
const ISSUE: u32 = 45;
const COMPLETE: u32 = 125;
const GENERIC: u32 = 327;
const UFS: u32 = 406;
const F2FS_IOSTAT: u32 = 419;
const IO_START: u32 = 546;
/// One that Perfetto has no message for, and that the trace describes.
const DESCRIBED: u32 = 65_600;

fn event(ns: u64, field: u32, message: Message) -> Message {
    Message::default().number(1, ns).number(2, 7).bytes(field, message)
}

/// A trace of one bundle.
fn trace(events: &[Message], bundle: Message) -> Vec<u8> {
    let bundle = events.iter().fold(bundle.number(1, 0), |bundle, event| bundle.bytes(2, event));
    Message::default().bytes(1, Message::default().number(10, 2).bytes(1, bundle)).0
}

fn read(events: &[Message]) -> Trace {
    read_bytes(&trace(events, Message::default()), "pftrace", &ReadOptions::default()).unwrap()
}

fn refused(events: &[Message], bundle: Message) -> (String, String) {
    let error: Error = read_bytes(&trace(events, bundle), "pftrace", &ReadOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorClass::Empty, "{error}");
    (error.to_string(), error.hint_text().unwrap().to_owned())
}

#[test]
fn a_trace_without_block_events_names_those_that_it_holds() {
    let switch = |ns| event(ns, SCHED_SWITCH, Message::default().number(2, 1));
    let generic = event(4, GENERIC, Message::default().bytes(1, "thermal_temperature"));
    let described =
        Message::default().number(1, u64::from(DESCRIBED)).bytes(2, Message::default().bytes(1, "cma_alloc_start"));
    // Two switches and a waking, packed together.
    let compact = Message::default().bytes(1, [0x90, 0x01, 0x05]).bytes(7, [0x81, 0x02]);
    let bundle = Message::default().bytes(11, described).bytes(4, compact);
    let events = [
        switch(1),
        switch(2),
        event(3, F2FS_IOSTAT, Message::default().number(1, 8)),
        generic,
        event(5, DESCRIBED, Message::default().number(1, 2)),
        event(6, 900, Message::default()),
    ];
    let (problem, hint) = refused(&events, bundle);
    assert!(
        problem.ends_with(
            "but 1 f2fs_iostat, 4 sched_switch, 1 cma_alloc_start, 1 event 900 of Perfetto, 1 sched_waking, \
             1 of 1 other kinds, no block_rq_issue, no block_rq_complete"
        ),
        "{problem}"
    );
    assert!(hint.contains("ftrace_events: \"block/*\""), "{hint}");
}

#[test]
fn the_start_of_an_account_alone_names_what_is_missing() {
    let (problem, _) = refused(&[event(1, IO_START, Message::default().number(2, 8))], Message::default());
    assert!(problem.contains("1 block_io_start") && problem.contains("no block_rq_issue"), "{problem}");
}

#[test]
fn packed_events_of_the_scheduler_are_seen_and_skipped() {
    let request = Message::default().number(1, 179 << 8).number(2, 8).number(3, 8);
    let issue = event(1_000, ISSUE, request.clone().bytes(5, "W"));
    let complete = event(2_000, COMPLETE, request.bytes(5, "W"));
    let compact = Message::default().bytes(4, Message::default().bytes(1, [0x90, 0x01, 0x05]));
    let bytes = trace(&[issue, complete], compact);
    let found = read_bytes(&bytes, "pftrace", &ReadOptions::default()).unwrap();
    assert_eq!((found.requests.len(), found.ledger.seen, found.ledger.skipped), (1, 4, 2));
}

#[test]
fn an_error_is_seen_in_both_of_its_fields() {
    for field in [4, 7] {
        let request = Message::default().number(1, 179 << 8).number(2, 8).number(3, 8);
        let issue = event(1_000, ISSUE, request.clone().bytes(5, "R"));
        let complete = event(2_000, COMPLETE, request.bytes(5, "R").number(field, -5_i64 as u64));
        let found = read(&[issue, complete]);
        assert!(found.requests[0].flags.contains(RequestFlags::FAILED), "field {field}");
        assert_eq!(found.ledger.failed, 1);
    }
}

/// `ufshcd_command` of tag 1 with these steps: as a word of kernels before 5.12, or as a number.
fn ufs(ns: u64, opcode: u64, ends: bool, word: bool, place: Option<(u64, u64)>) -> Message {
    let mut message = Message::default().bytes(1, "1d84000.ufshc").number(5, opcode).number(7, 1);
    if let Some((block, bytes)) = place {
        message = message.number(4, block).number(8, bytes);
    }
    let step = if ends { "complete" } else { "send" };
    let message = if word { message.bytes(6, step) } else { message.number(9, 0).number(10, u64::from(ends)) };
    event(ns, UFS, message)
}

#[test]
fn commands_of_ufs_with_address_and_length_are_requests() {
    for word in [false, true] {
        let found = read(&[
            ufs(1_000, 0x2a, false, word, Some((3, 8192))),
            ufs(51_000, 0x2a, true, word, Some((3, 8192))),
            ufs(60_000, 0x28, false, word, Some((16, 4096))),
            ufs(61_000, 0x28, true, word, Some((16, 4096))),
        ]);
        let rows: Vec<_> = found
            .requests
            .iter()
            .map(|request| (request.op, request.sector.0, request.sectors, request.service().unwrap().0))
            .collect();
        assert_eq!(rows, [(Op::Write, 24, 16, 50_000), (Op::Read, 128, 8, 1_000)], "word: {word}");
        assert_eq!(found.devices, ["1d84000.ufshc"]);
    }
}

#[test]
fn commands_of_ufs_without_a_length_are_named_with_their_times() {
    for word in [false, true] {
        let (problem, hint) = refused(
            &[
                ufs(1_000, 0x28, false, word, None),
                ufs(1_800, 0x28, true, word, None),
                ufs(2_000, 0x2a, false, word, None),
                ufs(2_050, 0x2a, true, word, None),
            ],
            Message::default(),
        );
        assert!(problem.contains("4 ufshcd_command"), "{problem}");
        assert!(problem.ends_with("commands of 1d84000.ufshc: 1 read (800 ns), 1 write (50 ns)"), "{problem}");
        assert!(hint.contains("without its address and length"), "{hint}");
    }
}
