//! Perfetto traces, which are encoded here by its message definitions. The tests of `emmclab-record` encode real recordings.

use std::io::Write;
use std::sync::Arc;

use crate::support::{Message, Trace, batch_of, lenient, read_bytes, read_plain, scratch, write_batches};
use emmclab_trace::{
    CommandKind, Error, ErrorClass, Ledger, Nanos, Op, ReadOptions, RecordedActivity, Request, RequestFlags, Sector, TraceHeader,
    picture_file,
};

const DISK: u64 = 179 << 8;

/// Number of an event in descriptions.
const MMC_ID: u32 = 65_541;

/// A `TracePacket` with a bundle of one CPU.
fn bundle(cpu: u64, events: impl IntoIterator<Item = Message>) -> Message {
    events.into_iter().fold(Message::default().number(1, cpu), |bundle, event| bundle.bytes(2, event))
}

fn packet(bundle: impl AsRef<[u8]>) -> Message {
    Message::default().number(10, 2).bytes(1, bundle)
}

fn trace(packets: impl IntoIterator<Item = Message>) -> Vec<u8> {
    packets.into_iter().fold(Message::default(), |trace, packet| trace.bytes(1, packet)).0
}

fn pack(packets: &[Message]) -> Message {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&trace(packets.to_vec())).unwrap();
    Message::default().bytes(50, encoder.finish().unwrap())
}

fn open(bytes: &[u8]) -> Trace {
    read_plain(bytes, "pftrace").unwrap()
}

/// A write of 4 KB to sector 64: queueing, issue and completion as events, a microsecond apart, the first at `ns`.
fn request(ns: u64, device: u64) -> [Message; 3] {
    let range = || Message::default().number(1, device).number(2, 64).number(3, 8);
    let event = |ns, field, message: Message| Message::default().number(1, ns).number(2, 1_234).bytes(field, message);
    [
        event(ns, 119, range().bytes(4, "WS").bytes(5, "Thread-7")),
        event(ns + 1_000, ISSUE, range().number(4, 4096).bytes(5, "WS").bytes(6, "Thread-7")),
        event(ns + 2_000, COMPLETE, range().number(4, 0).bytes(5, "WS")),
    ]
}

fn times(request: &Request) -> [Option<Nanos>; 4] {
    [Some(request.arrival), request.start, request.issue, request.complete]
}

/// An event `mmc_request_start` for sector 64, encoded as in [`described`].
fn mmc(ns: u64, host: &str, opcode: u64, blocks: u64) -> Message {
    let flags = if opcode == 18 { 1 << 9 } else { 1 << 8 };
    let values = (1..).zip([opcode, 64, blocks, 64, 512, flags]);
    let message = values.fold(Message::default(), |message, (number, value)| message.number(number, value));
    Message::default().number(1, ns).number(2, 77).bytes(MMC_ID, message.bytes(7, host))
}

/// A packet with the names of the fields of [`mmc`] in a `GenericEventDescriptor`.
fn described() -> Message {
    let names = ["cmd_opcode", "cmd_arg", "blocks", "blk_addr", "blksz", "data_flags", "name"];
    let fields = (1..).zip(names).map(|(number, name)| Message::default().bytes(1, name).number(3, number));
    let message = fields.fold(Message::default().bytes(1, "mmc_request_start"), |message, field| message.bytes(2, field));
    packet(bundle(0, []).bytes(11, Message::default().number(1, u64::from(MMC_ID)).bytes(2, message)))
}

/// A description, and a packet for each of `count` writes, alternately of four CPUs.
fn packets(count: u64) -> Vec<Message> {
    let writes = (0..count).map(|number| {
        let [queue, issue, complete] = request(10_000 * number, DISK);
        let command = mmc(10_000 * number + 1_500, "mmc0", 25, 8);
        packet(bundle(number % 4, [queue, issue, command, complete]))
    });
    std::iter::once(described()).chain(writes).collect()
}

#[test]
fn packets_within_packets_are_read_like_packets() {
    let plain = open(&trace(packets(20)));
    assert_eq!((plain.header.format.as_str(), plain.header.clock.as_str()), ("perfetto", "monotonic"));
    assert_eq!((plain.requests.len(), plain.ledger.seen), (20, 80));
    let compressed: Vec<_> = packets(20).chunks(7).map(pack).collect();
    assert_eq!(open(&trace(compressed)).requests, plain.requests);
}

#[test]
fn the_mmc_driver_tells_when_the_card_got_it() {
    let [queue, issue, complete] = request(10_000, DISK);
    let events = [
        queue,
        issue,
        mmc(11_200, "mmc0", 18, 8), // a read of this sector, which is another request
        mmc(11_300, "mmc0", 13, 0), // a command without data
        mmc(11_500, "mmc0", 25, 8),
        complete,
    ];
    let result = open(&trace([described(), packet(bundle(0, events))]));
    let expected = [10_000, 11_000, 11_500, 12_000].map(|time| Some(Nanos(time)));
    assert_eq!(times(&result.requests[0]), expected);
    assert_eq!((result.requests.len(), result.ledger.seen, result.ledger.skipped), (1, 6, 0));
    let activity: RecordedActivity = serde_json::from_str(&result.header.activity.unwrap()).unwrap();
    let kinds: Vec<_> = activity.hosts[0].commands.iter().map(|row| (row.kind, row.count)).collect();
    assert_eq!(kinds, [(CommandKind::Read, 1), (CommandKind::Write, 1), (CommandKind::Status, 1)]);
}

/// Events contain hosts, not disks, and the numbers of disks do not show their hosts.
#[test]
fn of_several_cards_the_one_with_such_a_request_got_the_command() {
    let (emmc, card) = (DISK, DISK + 96);
    let issues =
        |read: &Trace| read.rows(|request| (read.devices[request.device.unwrap().0 as usize].clone(), request.issue.unwrap().0));
    let named = |found: &Trace, expected: [(&str, i64); 3]| {
        assert_eq!(issues(found), expected.map(|(disk, time)| (disk.to_owned(), time)));
    };
    let [a1, a2, a3] = request(10_000, emmc);
    let [b1, b2, b3] = request(20_000, card);
    let [c1, c2, c3] = request(20_100, emmc);
    let first = [a1, a2, mmc(11_500, "mmc0", 25, 8), a3];
    // Now both disks have a write at this sector: mmc0 is known to be the first disk, mmc1 is not known.
    for (host, issued) in [("mmc0", 21_500), ("mmc1", 21_100)] {
        let then = [b1.clone(), c1.clone(), b2.clone(), c2.clone(), mmc(21_500, host, 25, 8), b3.clone(), c3.clone()];
        let result = open(&trace([described(), packet(bundle(0, first.iter().cloned().chain(then)))]));
        named(&result, [("179,0", 11_500), ("179,96", 21_000), ("179,0", issued)]);
        assert_eq!((result.ledger.ambiguous, result.ledger.skipped), (1, 0), "{host}");
    }
    // A disk that is not a card never matches.
    let [d1, d2, d3] = request(10_000, 8 << 8);
    let result = open(&trace([described(), packet(bundle(0, [d1, d2, mmc(11_500, "mmc0", 25, 8), d3]))]));
    assert_eq!(issues(&result), [("8,0".to_owned(), 11_000)]);
}

#[test]
fn who_waits_for_a_file_is_known_by_the_process_tree_or_its_own_events() {
    let process = Message::default().number(1, 1_200).bytes(3, "com.example.chat");
    let thread = Message::default().number(1, 1_240).number(3, 1_200);
    let tree = Message::default().bytes(2, Message::default().bytes(1, process).bytes(2, thread));
    let sync = |ns: u64, pid: u64, field, fields: &[(u32, i64)]| {
        let device = Message::default().number(1, DISK | 3);
        let message = fields.iter().fold(device, |message, (number, value)| message.number(*number, *value as u64));
        Message::default().number(1, ns).number(2, pid).bytes(field, message)
    };
    let events = [
        sync(1_000, 1_240, 43, &[(4, 1)]),
        sync(2_000, 1_234, 255, &[]),
        sync(3_000, 99, 43, &[]),
        sync(4_500, 1_240, 44, &[(3, -5)]),
        sync(5_500, 1_234, 256, &[(5, 0)]),
        sync(6_000, 99, 44, &[(3, 0)]),
    ];
    let result = open(&trace([packet(bundle(0, events.into_iter().chain(request(10_000, DISK)))), tree]));
    let activity: RecordedActivity = serde_json::from_str(&result.header.activity.unwrap()).unwrap();
    let rows: Vec<_> =
        activity.syncs.iter().map(|row| (&*row.process, &*row.file_system, row.calls, row.errors, row.time.0)).collect();
    assert_eq!(
        rows,
        [("Thread-7", "f2fs", 1, 0, 3_500), ("com.example.chat", "ext4", 1, 1, 3_500), ("pid 99", "ext4", 1, 0, 3_000)]
    );
    assert_eq!((result.ledger.skipped, result.ledger.seen), (0, 9));
}

#[test]
fn the_process_tree_names_the_application() {
    let process = Message::default().number(1, 1_200).bytes(3, "com.example.chat").bytes(3, "--flag");
    let thread = Message::default().number(1, 1_234).bytes(2, "Thread-7").number(3, 1_200);
    let tree = Message::default().bytes(2, Message::default().bytes(1, process).bytes(2, thread));
    let events = packet(bundle(0, request(10_000, DISK)));
    // The tree may follow the events in the file.
    for packets in [[tree.clone(), events.clone()], [events.clone(), tree]] {
        let result = open(&trace(packets));
        assert_eq!(result.processes, ["com.example.chat"]);
        assert_eq!((result.requests[0].pid, result.devices[0].as_str()), (Some(1_234), "179,0"));
    }
    assert_eq!(open(&trace([events])).processes, ["Thread-7"]);
}

#[test]
fn what_was_lost_is_counted_and_named() {
    let statistics = |phase: u64, overrun: u64| {
        let cpu = Message::default().number(1, 3).number(2, 9).number(3, overrun).number(8, 1);
        Message::default().bytes(34, Message::default().number(1, phase).bytes(2, cpu))
    };
    let lost = bundle(0, request(10_000, DISK)).number(3, 1);
    let dropped = packet(bundle(0, request(50_000, DISK))).number(42, 1);
    let first = packet(bundle(0, request(1_000, DISK))).number(42, 1);
    let result = open(&trace([statistics(1, 100), first, packet(lost), dropped, statistics(2, 117)]));
    assert_eq!((result.requests.len(), result.ledger.lost), (3, 17 + 1 + 1));
    let note = result.header.note.unwrap();
    assert_eq!(note, "CPU 0 lost 1 events; CPU 3 lost 17 events; Perfetto dropped 1 packets or more");
}

#[test]
fn other_clocks_are_brought_to_the_boot_clock() {
    let clock = |bundle: Message, clock, ftrace, boot| bundle.number(5, clock).number(6, ftrace).number(7, boot);
    let first = clock(bundle(0, request(10_000, DISK)), 2, 500, 1_000_500);
    // The next reading of the two clocks differs slightly, which must not change response times.
    let second = clock(bundle(0, request(20_000, DISK)), 2, 600, 1_000_617);
    let result = open(&trace([packet(first), packet(second)]));
    assert_eq!(result.rows(|request| request.arrival.0), [1_010_000, 1_020_000]);
    let reading = |id: u64, time: u64| Message::default().number(1, id).number(2, time);
    let snapshot = [reading(1, 1_700_000_000_000_000_000), reading(5, 4_000), reading(6, 5_000_000_000)];
    let snapshot = snapshot.into_iter().fold(Message::default(), |all, clock| all.bytes(1, clock));
    let raw = bundle(0, request(10_000, DISK)).number(5, 4);
    let result = open(&trace([Message::default().bytes(6, snapshot), packet(raw)]));
    assert_eq!(result.requests[0].arrival.0, 10_000 + 5_000_000_000 - 4_000);
    assert_eq!(result.header.note.unwrap(), "time 0 is 1699999995.000000000 s of Unix time");
}

#[test]
fn a_mapped_device_passes_its_requests_on() {
    let queued = |device| request(10_000, device).into_iter().take(1);
    let result = open(&trace([packet(bundle(0, queued(253 << 8 | 5).chain(request(11_000, DISK))))]));
    assert_eq!((result.requests.len(), result.devices[0].as_str()), (1, "253,5"));
    assert_eq!((result.ledger.skipped, result.ledger.paired, result.ledger.unpaired), (1, 1, 0));
    // Without events of issue or completion, only arrivals are known.
    let result = open(&trace([packet(bundle(0, queued(DISK).chain(queued(253 << 8 | 5))))]));
    assert_eq!((result.requests.len(), result.requests[0].complete), (2, None));
}

/// An `FtraceEvent` with this time, field and message.
fn timed(ns: u64, field: u32, message: Message) -> Message {
    Message::default().number(1, ns).number(2, 7).bytes(field, message)
}

#[test]
fn requests_are_made_of_block_io_events_where_there_are_no_others() {
    let start = Message::default().number(1, DISK).number(2, 44_920_176).number(3, 56).bytes(6, "RA").bytes(7, "app");
    let done = Message::default().number(1, DISK).number(2, 44_920_176).number(3, 0).bytes(6, "RA").bytes(7, "kworker");
    let bundle = Message::default().bytes(2, timed(1000, 546, start)).bytes(2, timed(2400, 547, done));
    let trace = open(&trace([packet(bundle)]));
    let [request] = trace.requests[..] else { panic!("{trace:?}") };
    assert_eq!((request.arrival, request.complete), (Nanos(1000), Some(Nanos(2400))));
    assert_eq!((request.op, request.sectors, &*trace.devices[0]), (Op::Read, 56, "179,0"));
    assert!(trace.header.note.unwrap().contains("block_io_start"));
}

/// Protobuf field numbers of the events in `FtraceEvent`.
const SCHED_SWITCH: u32 = 4;
const ISSUE: u32 = 45;
const COMPLETE: u32 = 125;
const GENERIC: u32 = 327;
const UFS: u32 = 406;
const F2FS_IOSTAT: u32 = 419;
const IO_START: u32 = 546;
/// An event without its own message, which the trace describes.
const DESCRIBED: u32 = 65_600;

/// A trace of one bundle with these events.
fn trace_of(events: &[Message], bundle: Message) -> Vec<u8> {
    let bundle = events.iter().fold(bundle.number(1, 0), |bundle, event| bundle.bytes(2, event));
    trace([packet(bundle)])
}

fn read(events: &[Message]) -> Trace {
    open(&trace_of(events, Message::default()))
}

fn refused(events: &[Message], bundle: Message) -> (String, String) {
    let error: Error = read_plain(trace_of(events, bundle), "pftrace").unwrap_err();
    assert_eq!(error.kind(), ErrorClass::Empty, "{error}");
    (error.to_string(), error.hint_text().unwrap().to_owned())
}

#[test]
fn a_trace_without_block_events_names_those_that_it_holds() {
    let switch = |ns| timed(ns, SCHED_SWITCH, Message::default().number(2, 1));
    let generic = timed(4, GENERIC, Message::default().bytes(1, "thermal_temperature"));
    let described = Message::default().number(1, u64::from(DESCRIBED)).bytes(2, Message::default().bytes(1, "cma_alloc_start"));
    // Two switches and a wakeup, packed together.
    let compact = Message::default().bytes(1, [0x90, 0x01, 0x05]).bytes(7, [0x81, 0x02]);
    let bundle = Message::default().bytes(11, described).bytes(4, compact);
    let events = [
        switch(1),
        switch(2),
        timed(3, F2FS_IOSTAT, Message::default().number(1, 8)),
        generic,
        timed(5, DESCRIBED, Message::default().number(1, 2)),
        timed(6, 900, Message::default()),
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
    let (problem, _) = refused(&[timed(1, IO_START, Message::default().number(2, 8))], Message::default());
    assert!(problem.contains("1 block_io_start") && problem.contains("no block_rq_issue"), "{problem}");
}

#[test]
fn packed_events_of_the_scheduler_are_seen_and_skipped() {
    let request = Message::default().number(1, 179 << 8).number(2, 8).number(3, 8);
    let issue = timed(1_000, ISSUE, request.clone().bytes(5, "W"));
    let complete = timed(2_000, COMPLETE, request.bytes(5, "W"));
    let compact = Message::default().bytes(4, Message::default().bytes(1, [0x90, 0x01, 0x05]));
    let result = open(&trace_of(&[issue, complete], compact));
    assert_eq!((result.requests.len(), result.ledger.seen, result.ledger.skipped), (1, 4, 2));
}

#[test]
fn an_error_is_seen_in_both_of_its_fields() {
    for field in [4, 7] {
        let request = Message::default().number(1, 179 << 8).number(2, 8).number(3, 8);
        let issue = timed(1_000, ISSUE, request.clone().bytes(5, "R"));
        let complete = timed(2_000, COMPLETE, request.bytes(5, "R").number(field, -5_i64 as u64));
        let result = read(&[issue, complete]);
        assert!(result.requests[0].flags.contains(RequestFlags::FAILED), "field {field}");
        assert_eq!(result.ledger.failed, 1);
    }
}

const HOST: &str = "1d84000.ufshc";

/// An event `ufshcd_command` of tag 1, in which the step is a word (kernels before 5.12) or a number.
fn ufs(host: &str, ns: u64, opcode: u64, ends: bool, word: bool, place: Option<(u64, u64)>) -> Message {
    let mut message = Message::default().bytes(1, host).number(5, opcode).number(7, 1);
    if let Some((block, bytes)) = place {
        message = message.number(4, block).number(8, bytes);
    }
    let step = if ends { "complete" } else { "send" };
    let message = if word { message.bytes(6, step) } else { message.number(9, 0).number(10, u64::from(ends)) };
    timed(ns, UFS, message)
}

#[test]
fn commands_of_ufs_with_address_and_length_are_requests() {
    // Some kernels do not report the host.
    for (host, device, word) in [(HOST, HOST, false), (HOST, HOST, true), ("", "ufs", false)] {
        let result = read(&[
            ufs(host, 1_000, 0x2a, false, word, Some((3, 8192))),
            ufs(host, 51_000, 0x2a, true, word, Some((3, 8192))),
            ufs(host, 60_000, 0x28, false, word, Some((16, 4096))),
            ufs(host, 61_000, 0x28, true, word, Some((16, 4096))),
        ]);
        let rows = result.rows(|request| (request.op, request.sector.0, request.sectors, request.service().unwrap().0));
        assert_eq!(rows, [(Op::Write, 24, 16, 50_000), (Op::Read, 128, 8, 1_000)], "word: {word}");
        assert_eq!(result.devices, [device]);
    }
}

#[test]
fn commands_of_ufs_without_a_length_are_named_with_their_times() {
    for word in [false, true] {
        let (problem, hint) = refused(
            &[
                ufs(HOST, 1_000, 0x28, false, word, None),
                ufs(HOST, 1_800, 0x28, true, word, None),
                ufs(HOST, 2_000, 0x2a, false, word, None),
                ufs(HOST, 2_050, 0x2a, true, word, None),
            ],
            Message::default(),
        );
        assert!(problem.contains("4 ufshcd_command"), "{problem}");
        assert!(problem.ends_with("commands of 1d84000.ufshc: 1 read (800 ns), 1 write (50 ns)"), "{problem}");
        assert!(hint.contains("without its address and length"), "{hint}");
    }
}

#[test]
fn cpus_that_were_read_too_far_apart_are_refused() {
    let late: Vec<_> = (0..40).map(|i| packet(bundle(0, request(1_000_000 - 10_000 * i, DISK)))).collect();
    let bytes = trace(late);
    assert_eq!(open(&bytes).requests.len(), 40);
    let options = ReadOptions { reorder_window: Some(20), ..ReadOptions::default() };
    let error = read_bytes(&bytes, "pftrace", &options).unwrap_err();
    assert_eq!(error.kind(), ErrorClass::Order);
    assert!(error.to_string().contains("byte"), "{error}");
}

#[test]
fn a_trace_cut_anywhere_is_an_error_or_read_up_to_there() {
    let bytes = trace(packets(20));
    let whole = open(&bytes);
    for end in (1..bytes.len()).step_by(11) {
        let cut = &bytes[..end];
        let forced = ReadOptions { format: Some("perfetto".into()), ..ReadOptions::default() };
        if let Ok(found) = read_bytes(cut, "pftrace", &forced) {
            // The file is truncated between two packets.
            assert!(found.ledger.seen < whole.ledger.seen, "{end}");
        }
        if let Ok(found) = read_bytes(cut, "pftrace", &ReadOptions { lenient: true, ..forced }) {
            assert!(found.requests.len() <= whole.requests.len(), "{end}");
        }
    }
    let end = bytes.len() - 5;
    let result = read_bytes(&bytes[..end], "pftrace", &lenient()).unwrap();
    assert!(!result.requests.is_empty() && result.ledger.skipped == 1, "{}", result.ledger);
}

#[test]
fn any_byte_changed_never_panics() {
    let few = packets(3);
    for bytes in [trace(few.clone()), trace([pack(&few)])] {
        for at in 0..bytes.len() {
            for byte in [0, 0x0a, 0xff] {
                let mut bytes = bytes.clone();
                bytes[at] = byte;
                let options = ReadOptions { format: Some("perfetto".into()), lenient: at % 2 == 0, ..ReadOptions::default() };
                let _ = read_bytes(&bytes, "pftrace", &options);
            }
        }
    }
}

#[test]
fn a_huge_length_takes_no_memory() {
    for length in [&b"\xff\xff\xff\xff\x0f"[..], b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"] {
        let bytes = [b"\x0a", length, b"\x0a\x05abc"].concat();
        let forced = ReadOptions { format: Some("perfetto".into()), ..ReadOptions::default() };
        let error = read_bytes(&bytes, "pftrace", &forced).unwrap_err();
        assert!(matches!(error.kind(), ErrorClass::Syntax | ErrorClass::Truncated), "{error}");
    }
}

/// The trace as a file for Perfetto's UI.
fn picture(requests: &[Request]) -> Vec<u8> {
    let (_folder, path) = scratch("t.pftrace");
    let batches: Vec<_> = requests.chunks(1).map(|rows| batch_of(rows, &Arc::default(), &Arc::default())).collect();
    write_batches(&path, &batches, &Ledger::default(), &TraceHeader::default()).unwrap();
    std::fs::read(&path).unwrap()
}

#[test]
fn a_picture_is_known_as_one_and_is_no_trace() {
    let complete = Some(Nanos(900));
    let request = Request { complete, ..Request::new(Nanos(-5), Op::Read, Sector(8), 8) };
    let error = read_plain(picture(&[request]), "pftrace").unwrap_err();
    assert_eq!(error.kind(), ErrorClass::Unsupported, "{error}");
    assert!(error.to_string().contains("for display"), "{error}");
    let error = read_plain(picture(&[]), "pftrace").unwrap_err();
    assert_eq!(error.kind(), ErrorClass::Empty, "{error}");
}

#[test]
fn a_picture_has_the_name_of_one() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["t.pftrace", "t.perfetto-trace", "T.PFTRACE.gz"] {
        assert!(picture_file(&folder.path().join(name)).is_ok(), "{name}");
    }
    for name in ["t.json", "t", "pftrace", "t.parquet.gz"] {
        let error = picture_file(&folder.path().join(name)).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorClass::Config, "{name}: {error}");
        assert!(error.hint_text().unwrap().contains(".pftrace"), "{name}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
