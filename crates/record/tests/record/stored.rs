//! Streams of the helper from several kernels are processed by the whole recorder. Needs no root.

use std::io::Write;

use crate::common::{Counted, Recorded, stop, wait_until};
use crate::containers::fixture;
use emmclab_record::{RecordOptions, RecordOutcome, RecordTarget, TracefsRecorder};
use emmclab_trace::CommandKind;

/// Replays a stored stream as if a machine sent it.
fn play(name: &str, device: &str) -> (Vec<Recorded>, RecordOutcome) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&fixture(name)).unwrap();
    play_by(&["cat", file.path().to_str().unwrap()], device)
}

/// Processes the output of a command as the stream of a machine; takes batches only after its end.
fn play_by(command: &[&str], device: &str) -> (Vec<Recorded>, RecordOutcome) {
    let target = RecordTarget::Command(command.iter().map(|word| (*word).to_owned()).collect());
    let options = RecordOptions { target, devices: vec![device.to_owned()], ..RecordOptions::default() };
    let recorder = TracefsRecorder::start(&options).unwrap();
    wait_until("the stream ends", || recorder.has_ended());
    stop(recorder, Vec::new())
}

#[test]
fn the_hosts_stream_gives_every_request() {
    let (requests, outcome) = play("host.stream.zst", "loop0");
    let ledger = &outcome.ledger;
    assert!(outcome.interrupted.is_none());
    assert_eq!((ledger.lost, ledger.unpaired, ledger.skipped), (0, 0, 0), "{ledger}");
    assert_eq!(ledger.kept, requests.len() as u64);
    assert!(ledger.split >= 3 && ledger.merged > 200 && requests.len() > 200, "{ledger}");
}

/// Checks a stream of an SD card; `expected` is from `/sys/block/mmcblk0/stat` of the guest before and after (see `guest/work`).
fn sd_card(name: &str, release: &str, expected: Counted) {
    let (requests, outcome) = play(name, "mmcblk0");
    let ledger = &outcome.ledger;
    assert!(outcome.header.source.ends_with(release), "{}", outcome.header.source);
    assert_eq!((ledger.lost, ledger.unpaired, ledger.skipped, ledger.ambiguous), (0, 0, 0, 0), "{ledger}");
    assert_eq!(Counted::of(&requests), expected);
    // The MMC driver reports when the card received the data, which is after the driver fetched the request.
    for Recorded { request, .. } in requests.iter().filter(|recorded| recorded.request.op.has_data()) {
        let (start, issue, complete) = (request.start.unwrap(), request.issue.unwrap(), request.complete.unwrap());
        assert!(start < issue && issue < complete, "{request:?}");
    }
    assert!(requests.iter().any(|recorded| recorded.process.starts_with("jbd2/mmcblk0")));

    // Commands: one for each request with data; each write is followed by a query whether the card is still busy.
    let [host] = &outcome.activity.hosts[..] else { unreachable!("{:?}", outcome.activity) };
    let row = |kind| host.commands.iter().find(|row| row.kind == kind).unwrap();
    let (read, write) = (row(CommandKind::Read), row(CommandKind::Write));
    assert_eq!((&*host.host, host.unpaired), ("mmc0", 0));
    assert_eq!((read.count, read.bytes.0), (expected.reads.0, expected.reads.1 * 512));
    assert_eq!((write.count, write.bytes.0), (expected.writes.0, expected.writes.1 * 512));
    assert_eq!(row(CommandKind::Status).count, write.count);
    // The start of the range, its end, and the erase.
    assert_eq!(row(CommandKind::Discard).count, 3 * expected.discards.0);
    assert!(host.commands.iter().all(|row| row.errors == 0 && row.longest.0 > 0 && row.longest <= row.time));
    let busy: i64 = host.commands.iter().map(|row| row.time.0).sum();
    assert!(0 < host.busy.0 && host.busy.0 <= busy, "{host:?}");

    let syncs: Vec<_> = outcome.activity.syncs.iter().map(|row| (&*row.process, &*row.file_system, row.calls)).collect();
    assert_eq!(syncs, [("dd", "ext4", 5), ("dd", "f2fs", 5)]);
    let [journal] = &outcome.activity.journals[..] else { unreachable!("{:?}", outcome.activity) };
    assert_eq!((&*journal.device, journal.commits, journal.blocks), ("mmcblk0p1", 5, 41));
}

#[test]
fn an_sd_card_of_kernel_6_1_is_recorded_with_the_times_of_its_driver() {
    let expected = Counted { reads: (94, 2264), writes: (54, 2814), discards: (2, 24) };
    sd_card("debian-6.1-mmc.stream.zst", "6.1.0-56-amd64", expected);
}

#[test]
fn an_sd_card_of_kernel_6_12_is_recorded_with_the_times_of_its_driver() {
    let expected = Counted { reads: (94, 2264), writes: (52, 2798), discards: (2, 16) };
    sd_card("debian-6.12-mmc.stream.zst", "6.12.117+deb12-amd64", expected);
}

/// The stream in pieces, each up to the end of a round with pages.
fn rounds(stream: &[u8]) -> Vec<&[u8]> {
    let start = b"@@stream\n";
    let mut at = stream.windows(start.len()).position(|text| text == start).unwrap() + start.len();
    let (mut pieces, mut begin, mut has_pages) = (Vec::new(), 0, false);
    loop {
        let line = stream[at..].split(|byte| *byte == b'\n').next().unwrap();
        at += line.len() + 1;
        let mut words = std::str::from_utf8(line).unwrap().split(' ');
        match words.next() {
            Some("P") => {
                at += 4096 * words.nth(1).unwrap().parse::<usize>().unwrap();
                has_pages = true;
            }
            Some("R") if has_pages => {
                pieces.push(&stream[begin..at]);
                (begin, has_pages) = (at, false);
            }
            Some("R") => {}
            _ => break,
        }
    }
    pieces.push(&stream[begin..]);
    pieces
}

#[test]
fn a_recording_ends_though_nobody_takes_its_batches() {
    let (folder, stream) = (tempfile::tempdir().unwrap(), fixture("debian-6.1-mmc.stream.zst"));
    let pieces = rounds(&stream);
    assert_eq!(pieces.concat(), stream);
    assert!(pieces.len() >= 10);
    for (number, piece) in pieces.iter().enumerate() {
        std::fs::write(folder.path().join(format!("{number:02}")), piece).unwrap();
    }
    // After each pause, the requests so far can be returned; more than a few batches must wait.
    let script = format!(r#"for part in {}/*; do cat "$part"; sleep 0.3; done"#, folder.path().display());
    let (requests, outcome) = play_by(&["sh", "-c", &script], "mmcblk0");
    assert!(outcome.interrupted.is_none());
    assert_eq!((outcome.ledger.lost, outcome.ledger.unpaired), (0, 0), "{}", outcome.ledger);
    assert_eq!(Counted::of(&requests).reads.0, 94);
}
