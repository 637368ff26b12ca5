//! One recording in the files of every tool: each file gives the same requests and the same activity.
//! Needs no root.

use std::io::Write;

use crate::containers::{Packing, Unknown, capture, fixture, perfetto_trace, version_6_of, version_7_of};
use emmclab_record::{Files, KernelByteOrder, open_trace};
use emmclab_trace::{CommandKind, Ledger, Nanos, ReadOptions, RecordedActivity, Request, RequestFlags};

const CARD: &str = "debian-6.12-card.stream.zst";

/// The contents of a file: requests with the names of process and device, and everything else.
#[derive(Debug, PartialEq)]
struct Read {
    requests: Vec<(Request, String, String)>,
    ledger: Ledger,
    activity: RecordedActivity,
}

fn read(bytes: &[u8], format: &str) -> Read {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let mut reader =
        open_trace(file.path(), &ReadOptions { further: emmclab_record::FORMATS, ..ReadOptions::default() }).unwrap();
    let mut requests = Vec::new();
    while let Some(batch) = reader.next_batch().unwrap() {
        for request in &batch {
            let process = batch.processes().get(request.process.unwrap()).unwrap().to_owned();
            let device = batch.devices().get(request.device.unwrap()).unwrap().to_owned();
            requests.push((Request { process: None, device: None, ..request }, process, device));
        }
    }
    let header = reader.header();
    assert_eq!(header.format, format);
    let activity = header.activity.map_or_else(RecordedActivity::default, |text| serde_json::from_str(&text).unwrap());
    // Files of trace-cmd and Perfetto are in order of arrival or of completion, which is not tested here.
    let ledger = Ledger { reordered: 0, ..reader.ledger() };
    Read { requests, ledger, activity }
}

/// A stored stream: raw pages, with the names of tasks that the kernel gave at the end.
fn recording(name: &str) -> (Files, Vec<Vec<u8>>) {
    let (mut files, cpus, after) = capture(name);
    files.extend(after.into_iter().filter(|(name, _)| name == "saved_cmdlines"));
    (files, cpus)
}

/// The card of the guest in a file of trace-cmd.
fn trace_dat() -> Read {
    let (files, cpus) = recording(CARD);
    read(&version_6_of(KernelByteOrder::Little, &files, &cpus, None), "trace-cmd")
}

#[test]
fn a_recording_of_a_card_is_used_in_full() {
    let Read { requests, ledger, activity } = trace_dat();
    // The figures are those of `/sys/block/mmcblk0/stat` in the guest (see `guest/work`).
    let [host] = &activity.hosts[..] else { panic!("{activity:?}") };
    let row = |kind| host.commands.iter().find(|row| row.kind == kind).unwrap();
    let (read, write) = (row(CommandKind::Read), row(CommandKind::Write));
    assert_eq!((&*host.host, host.unpaired), ("mmc0", 0));
    assert_eq!((read.count, read.bytes.0, write.count, write.bytes.0), (94, 2264 * 512, 52, 2798 * 512));
    assert_eq!((ledger.skipped, ledger.unpaired, ledger.ambiguous, ledger.lost), (0, 0, 0, 0), "{ledger}");
    let syncs: Vec<_> = activity.syncs.iter().map(|row| (&*row.process, &*row.file_system, row.calls)).collect();
    assert_eq!(syncs, [("dd", "ext4", 5), ("dd", "f2fs", 5)]);
    let [journal] = &activity.journals[..] else { panic!("{activity:?}") };
    assert_eq!((&*journal.device, journal.commits, journal.blocks), ("179,1", 5, 41));
    // The trace does not contain the disk of the host; the requests identify it.
    for (request, process, _) in &requests {
        assert_eq!(request.flags.contains(RequestFlags::JOURNAL), process.starts_with("jbd2/"), "{process}");
        if request.op.has_data() {
            assert!(request.start < request.issue && request.issue < request.complete, "{request:?}");
            // A request with flushes of the kernel is served by several commands.
            assert_eq!(request.served.is_none(), request.flags.contains(RequestFlags::PREFLUSH), "{request:?}");
            assert!(request.served.is_none_or(|end| request.issue < Some(end) && Some(end) < request.complete));
        }
    }
}

#[test]
fn trace_cmd_and_perfetto_say_the_same() {
    for name in [CARD, "debian-6.12-mmc.stream.zst", "debian-6.1-mmc.stream.zst", "host.stream.zst"] {
        let (files, cpus) = recording(name);
        let expected = read(&version_6_of(KernelByteOrder::Little, &files, &cpus, None), "trace-cmd");
        assert_eq!(read(&version_7_of(Packing::Zstd, &[("", &cpus)], &files), "trace-cmd"), expected);
        for (unknown, period) in [(Unknown::Named, 50), (Unknown::Described, 400), (Unknown::Described, 10_000)] {
            let trace = read(&perfetto_trace(&files, &cpus, unknown, period), "perfetto");
            assert_eq!(trace, expected, "{name}, rounds of {period}");
        }
    }
}

#[test]
fn the_kernels_own_text_says_the_same_to_the_microsecond() {
    let text = fixture("debian-6.12-card.trace.zst");
    let page = [b"<!DOCTYPE html>\n<html>\n<script class=\"trace-data\" type=\"application/text\">\n", &text[..], b"</script>\n"];
    let mut expected = trace_dat();
    for time in times(&mut expected) {
        // The kernel rounds to the nearest microsecond.
        time.0 = (time.0 + 500) / 1_000 * 1_000;
    }
    for (bytes, format) in [(text.clone(), "ftrace"), (page.concat(), "systrace")] {
        let mut trace = read(&bytes, format);
        assert_eq!(trace.ledger, expected.ledger, "{format}");
        for ((trace, expected), process) in trace.requests.iter().zip(&expected.requests).map(|(a, b)| ((&a.0, &b.0), &a.1)) {
            assert_eq!(trace, expected, "{format}: {process}");
        }
        assert_eq!(trace.requests, expected.requests, "{format}");
        // Each of the 204 commands may differ by a microsecond.
        let mut whole = expected.activity.clone();
        for (trace, expected) in durations(&mut trace.activity).into_iter().zip(durations(&mut whole)) {
            assert!((trace.0 - expected.0).abs() <= 204_000, "{trace:?}, {expected:?}");
            *trace = *expected;
        }
        assert_eq!(trace.activity, whole, "{format}");
    }
}

fn times(read: &mut Read) -> impl Iterator<Item = &mut Nanos> {
    read.requests.iter_mut().flat_map(|(request, ..)| {
        let Request { arrival, start, issue, served, complete, .. } = request;
        let others = [start, issue, served, complete].into_iter().filter_map(Option::as_mut);
        std::iter::once(arrival).chain(others)
    })
}

fn durations(activity: &mut RecordedActivity) -> Vec<&mut Nanos> {
    let mut out = Vec::new();
    for host in &mut activity.hosts {
        out.push(&mut host.busy);
        out.extend(host.commands.iter_mut().flat_map(|row| [&mut row.time, &mut row.longest]));
    }
    out.extend(activity.syncs.iter_mut().flat_map(|row| [&mut row.time, &mut row.longest]));
    out.extend(activity.waits.iter_mut().flat_map(|row| [&mut row.start, &mut row.time]));
    out
}
