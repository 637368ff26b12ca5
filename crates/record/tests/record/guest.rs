//! A guest with Debian's kernel and an SD card behind the real MMC driver, recorded over ssh. Needs QEMU and the folder that
//! `tests/guest/build.sh` builds from Debian's packages; `make test-guest` provides both.

use crate::common::guest::{Clock, Guest, folder};
use crate::common::{Counted, record_elsewhere, stop, take, wait_until};
use emmclab_record::TracefsRecorder;
use emmclab_trace::{CommandKind, RequestFlags, SyncCounts};

#[test]
fn an_sd_card_of_a_guest_is_recorded_over_ssh_as_its_kernel_counts() {
    let Some(folder) = folder() else { return };
    let guest = Guest::boot(&folder, Clock::Host);
    let mut work = String::new();
    let (requests, outcome) = record_elsewhere(&guest.recording_of("mmcblk0"), || work = guest.ssh("sh /work").unwrap());
    assert!(!work.contains("FAILED"), "{work}");
    assert!(outcome.interrupted.is_none() && outcome.remarks.is_empty(), "{outcome:?}");
    let ledger = &outcome.ledger;
    assert_eq!((ledger.lost, ledger.unpaired, ledger.skipped), (0, 0, 0), "{ledger}");
    eprintln!("{}: {ledger}", outcome.header.source);
    let card = Counted::printed(&work, "AFTER").since(Counted::printed(&work, "BEFORE"));
    assert_eq!(Counted::of(&requests), card);

    // The issue times come from the driver, which counted the same bytes.
    assert!(requests.iter().any(|recorded| recorded.request.start < recorded.request.issue));
    let [host] = &outcome.activity.hosts[..] else { unreachable!("{:?}", outcome.activity) };
    eprintln!("{host:?}");
    let bytes = |kind| host.commands.iter().filter(|row| row.kind == kind).map(|row| row.bytes.0).sum::<u64>();
    assert_eq!(&*host.host, "mmc0");
    assert_eq!((bytes(CommandKind::Read) / 512, bytes(CommandKind::Write) / 512), (card.reads.1, card.writes.1));
    assert!(host.commands.iter().all(|row| row.errors == 0 && row.time >= row.longest && row.count > 0));
    assert!(host.busy.0 > 0);

    // Each dd waited once for the durability of its file, on ext4 and on f2fs; ext4 committed its journal.
    for file_system in ["ext4", "f2fs"] {
        let calls = |row: &&SyncCounts| row.file_system == file_system && row.process == "dd";
        let row = outcome.activity.syncs.iter().find(calls).unwrap();
        assert_eq!((row.calls, row.errors), (5, 0), "{row:?}");
    }
    let [journal] = &outcome.activity.journals[..] else { unreachable!("{:?}", outcome.activity) };
    assert!(journal.device == "mmcblk0p1" && journal.commits >= 5, "{journal:?}");
    assert!(requests.iter().any(|recorded| recorded.request.flags.contains(RequestFlags::JOURNAL)));
    // The recorder leaves nothing behind in the guest.
    assert_eq!(guest.ssh("ls /sys/kernel/tracing/instances").unwrap(), "");
}

#[test]
fn a_guest_that_dies_leaves_what_came_before() {
    let Some(folder) = folder() else { return };
    let mut guest = Guest::boot(&folder, Clock::Host);
    let recorder = TracefsRecorder::start(&guest.recording_of("mmcblk0")).unwrap();
    for _ in 0..3 {
        guest.ssh("dd if=/dev/mmcblk0 of=/dev/null bs=16k count=40 iflag=direct").unwrap();
    }
    let requests = take(&recorder, 100);
    guest.kill();
    wait_until("the recording ends", || recorder.has_ended());
    let (requests, outcome) = stop(recorder, requests);
    assert!(requests.len() >= 100, "{outcome:?}");
    assert!(requests.iter().all(|recorded| recorded.request.complete.is_some()));
    assert!(outcome.interrupted.is_some() && outcome.header.note.unwrap().contains("ended early"));
    assert_eq!(outcome.ledger.lost, 0);
}
