//! A guest with Debian's kernel and QEMU's UFS behind the real driver, recorded over ssh, with the request list of UFSHCI 3 and
//! with the queues of UFSHCI 4. Needs a QEMU with this device (8.2 or later); `make test-guest` provides it.

use std::collections::BTreeMap;

use crate::common::guest::{Clock, Guest, Machine, folder};
use crate::common::{Counted, Recorded, record_elsewhere};
use emmclab_record::RecordOutcome;
use emmclab_trace::{CommandCounts, CommandKind, Nanos, Op, RequestFlags};

/// Number and bytes of commands by kind, from the kernel's text of the events.
fn printed(text: &str) -> BTreeMap<CommandKind, (u64, u64)> {
    let mut result = BTreeMap::new();
    for line in text.lines().filter(|line| line.contains(": send_req: ")) {
        let field = |name: &str| line.split_once(name)?.1.split([',', ' ']).next();
        let kind = match (field("opcode: 0x"), field("cmd: 0x")) {
            (Some("28" | "88"), _) => CommandKind::Read,
            (Some("2a" | "8a"), _) => CommandKind::Write,
            (Some("35"), _) => CommandKind::Flush,
            (Some("42" | "93"), _) => CommandKind::Discard,
            (Some("1b"), _) => CommandKind::Sleep,
            (None, Some("17")) => CommandKind::Hibernate,
            (None, Some("18")) => CommandKind::WakeUp,
            _ => CommandKind::Other,
        };
        let bytes = field("size: ").and_then(|size| size.parse().ok()).unwrap_or(0);
        let row: &mut (u64, u64) = result.entry(kind).or_default();
        *row = (row.0 + 1, row.1 + bytes);
    }
    result
}

/// Boots a guest whose UFS has these options and records its work; also returns the output of the work.
fn recorded(options: &str) -> Option<(Vec<Recorded>, RecordOutcome, String)> {
    let folder = folder()?;
    let machine = Machine::with_ufs(&folder, options)?;
    let guest = Guest::boot_as(&folder, Clock::Host, &machine);
    let mut work = String::new();
    let (requests, outcome) = record_elsewhere(&guest.recording_of("sda"), || work = guest.ssh("sh /ufs").unwrap());
    assert!(!work.contains("FAILED"), "{work}");
    assert_eq!(guest.ssh("ls /sys/kernel/tracing/instances").unwrap(), "");
    Some((requests, outcome, work))
}

fn check(options: &str) {
    let Some((requests, outcome, work)) = recorded(options) else { return };
    assert!(outcome.interrupted.is_none() && outcome.remarks.is_empty(), "{outcome:?}");
    let ledger = &outcome.ledger;
    assert_eq!((ledger.lost, ledger.unpaired, ledger.skipped), (0, 0, 0), "{ledger}");
    eprintln!("{options}: {}: {ledger}", outcome.header.source);

    // The requests are those that the kernel counted; those of the work are known.
    let disk = Counted::printed(&work, "AFTER").since(Counted::printed(&work, "BEFORE"));
    assert_eq!(Counted::of(&requests), disk);
    assert_eq!(disk.discards.1, (64 << 20) / 512);
    assert!(disk.reads.0 >= 66 && disk.writes.0 >= 21, "{disk:?}");

    // The commands of each kind are those in the kernel's text, and have the bytes of the requests.
    let commands: Vec<&CommandCounts> = outcome.activity.hosts.iter().flat_map(|host| &host.commands).collect();
    eprintln!("{commands:?}");
    let seen: BTreeMap<_, _> = commands.iter().map(|row| (row.kind, (row.count, row.bytes.0))).collect();
    assert_eq!(seen, printed(&work), "{work}");
    let bytes = |kind| seen[&kind].1;
    assert_eq!((bytes(CommandKind::Read) / 512, bytes(CommandKind::Write) / 512), (disk.reads.1, disk.writes.1));
    assert!(seen[&CommandKind::Read].0 == disk.reads.0 && seen[&CommandKind::Discard].0 == disk.discards.0);
    assert!(commands.iter().all(|row| row.errors == 0 && row.time >= row.longest && row.count > 0));
    assert!(outcome.activity.hosts.iter().all(|host| host.unpaired == 0 && host.busy.0 > 0));

    // Each file was made durable by a commit, with a flush before it and FUA.
    let forced = requests.iter().filter(|recorded| recorded.request.flags.contains(RequestFlags::FUA)).count();
    let flushes = requests.iter().filter(|recorded| recorded.request.op == Op::Flush).count() as u64;
    assert!(forced >= 5, "{forced} requests with FUA");
    assert!(flushes <= seen[&CommandKind::Flush].0 && seen[&CommandKind::Flush].0 >= 5);
    let sync = outcome.activity.syncs.iter().find(|row| row.process == "dd").unwrap();
    assert_eq!((&*sync.file_system, sync.calls, sync.errors), ("ext4", 5, 0));
    assert!(outcome.activity.journals[0].commits >= 5, "{:?}", outcome.activity);

    // The disk hibernated before each of the last two reads, which waited for the wake-up of the link.
    let row = |kind| commands.iter().find(|row| row.kind == kind).unwrap();
    assert!(row(CommandKind::Hibernate).count >= 2 && row(CommandKind::WakeUp).count >= 2);
    let late: Vec<Nanos> = requests
        .iter()
        .filter(|recorded| recorded.request.op == Op::Read && recorded.request.sectors == 8)
        .filter(|recorded| [2001 * 8, 2002 * 8].contains(&recorded.request.sector.0))
        .map(|recorded| Nanos(recorded.request.complete.unwrap().0 - recorded.request.arrival.0))
        .collect();
    let wake = row(CommandKind::WakeUp);
    let shortest = wake.time.0 - wake.longest.0 * (wake.count as i64 - 1);
    assert!(late.len() == 2 && late.iter().all(|time| time.0 > shortest), "{late:?} {wake:?}");
}

#[test]
fn a_ufs_of_a_guest_is_recorded_with_its_commands_and_its_hibernation() {
    check("mcq=off");
}

#[test]
fn a_ufs_with_a_queue_for_each_processor_is_recorded_alike() {
    check("mcq=on,mcq-maxq=3");
}
