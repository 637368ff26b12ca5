//! What is recorded beside the requests, held against what fio counted: waits for durability, journals, and the
//! distribution of response times. Needs root.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::{LoopDisk, Recorded, machine, record, run};
use emmclab_record::{RecordOutcome, RecordTarget, helper_command};
use emmclab_trace::{Nanos, Op, RecordedActivity, Request, RequestFlags};
use serde_json::Value;

/// Runs one job of fio on a file and gives its report; `json+` holds the histograms.
fn fio(folder: &Path, options: &[&str]) -> Value {
    let file = format!("--filename={}/data", folder.display());
    let fixed =
        ["--name=job", &file, "--size=16m", "--randseed=1", "--output-format=json+", "--clocksource=clock_gettime"];
    let report = run("fio", &[&fixed[..], options].concat());
    let report: Value = serde_json::from_str(&report).unwrap();
    report["jobs"][0].clone()
}

fn syncs_are_those_of_fio(target: RecordTarget) -> (Vec<Recorded>, RecordOutcome) {
    let disk = LoopDisk::new();
    let folder = disk.mount();
    let mut job = Value::Null;
    let (requests, outcome) = record(target, &disk, || {
        job = fio(&folder, &["--rw=randwrite", "--bs=4k", "--number_ios=200", "--fsync=4", "--fallocate=none"]);
        run("sync", &[]);
    });
    disk.unmount();
    assert_eq!((outcome.ledger.lost, outcome.ledger.unpaired), (0, 0), "{}", outcome.ledger);
    let calls = job["sync"]["total_ios"].as_u64().unwrap();
    assert!(calls >= 40, "{calls}");
    let activity = &outcome.activity;
    let row = activity.syncs.iter().find(|row| row.process == "fio").unwrap();
    // fio makes one more call of its own when it ends the file.
    assert!((calls..=calls + 1).contains(&row.calls), "{row:?}, {calls} by fio");
    assert_eq!((&*row.file_system, row.errors), ("ext4", 0));
    // fio's time encloses that of the kernel, call by call; it has no time of the last call.
    let fio_sum = job["sync"]["lat_ns"]["mean"].as_f64().unwrap() * calls as f64;
    let last = if row.calls > calls { row.longest.0 as f64 } else { 0.0 };
    let sum = row.time.0 as f64;
    assert!(sum > 0.0 && sum <= fio_sum + last, "{sum} ns recorded, {fio_sum} ns by fio, {last} ns at its end");
    assert!(row.longest.0 as f64 >= sum / row.calls as f64);
    // The journal is that of the disk, and the header holds the same.
    let [journal] = &activity.journals[..] else { unreachable!("{activity:?}") };
    assert_eq!(journal.device, disk.device.rsplit('/').next().unwrap());
    assert!(journal.commits > 0 && journal.blocks >= 2 * journal.commits, "{journal:?}");
    let stored: RecordedActivity = serde_json::from_str(outcome.header.activity.as_ref().unwrap()).unwrap();
    assert_eq!(&stored, activity);
    (requests, outcome)
}

#[test]
fn syncs_by_process_are_those_that_fio_made_and_the_journal_is_marked() {
    let Some(_alone) = machine(&["fio", "mkfs.ext4", "losetup"]) else { return };
    let (requests, outcome) = syncs_are_those_of_fio(RecordTarget::Local);
    let journal = |recorded: &Recorded| recorded.request.flags.contains(RequestFlags::JOURNAL);
    for recorded in &requests {
        assert_eq!(journal(recorded), recorded.process.starts_with("jbd2/"), "{recorded:?}");
    }
    // A file system of this size has blocks of 1 KB; each commit is ended by a block of its own, made durable.
    let written: u64 = requests.iter().filter(|it| journal(it)).map(|it| it.request.bytes().0 / 1024).sum();
    assert!(written >= outcome.activity.journals[0].blocks, "{written} blocks, {:?}", outcome.activity);
    let commits =
        requests.iter().filter(|it| journal(it) && it.request.flags.contains(RequestFlags::FUA)).count() as u64;
    assert_eq!(commits, outcome.activity.journals[0].commits);
}

#[test]
fn syncs_are_recorded_by_the_helper_too() {
    let Some(_alone) = machine(&["fio", "mkfs.ext4", "losetup"]) else { return };
    let shell = ["sh", "-c", &helper_command()].map(str::to_owned);
    syncs_are_those_of_fio(RecordTarget::Command(shell.to_vec()));
}

/// How many of these times are no longer than the limit.
fn at_most(times: &BTreeMap<i64, u64>, limit: i64) -> u64 {
    times.range(..=limit).map(|(_, count)| count).sum()
}

#[test]
fn no_response_is_longer_than_fio_saw_it() {
    let Some(_alone) = machine(&["fio", "mkfs.ext4", "losetup"]) else { return };
    let disk = LoopDisk::new();
    let folder = disk.mount();
    fio(&folder, &["--rw=write", "--bs=1m", "--end_fsync=1"]);
    let mut job = Value::Null;
    let (requests, outcome) = record(RecordTarget::Local, &disk, || {
        let options = ["--rw=randread", "--bs=64k", "--direct=1", "--ioengine=psync", "--number_ios=3000"];
        job = fio(&folder, &[&options[..], &["--norandommap=1", "--io_size=256m"]].concat());
    });
    disk.unmount();
    assert_eq!((outcome.ledger.lost, outcome.ledger.unpaired), (0, 0), "{}", outcome.ledger);
    let by_fio = |it: &&Recorded| it.process == "fio" && it.request.op == Op::Read && it.request.sectors == 128;
    let count = |time: fn(&Request) -> Option<Nanos>| {
        let mut times: BTreeMap<i64, u64> = BTreeMap::new();
        for recorded in requests.iter().filter(by_fio) {
            *times.entry(time(&recorded.request).unwrap().0).or_default() += 1;
        }
        times
    };
    let bins = job["read"]["clat_ns"]["bins"].as_object().unwrap();
    let theirs: BTreeMap<i64, u64> =
        bins.iter().map(|(time, count)| (time.parse().unwrap(), count.as_u64().unwrap())).collect();
    for (name, ours) in [("response", count(Request::response)), ("service", count(Request::service))] {
        assert_eq!((ours.values().sum::<u64>(), theirs.values().sum::<u64>()), (3000, 3000));
        // fio's time encloses the block layer's, request by request; its bins are 1/64 wide, and named by their middle.
        for limit in theirs.keys() {
            assert!(at_most(&ours, limit + limit / 64) >= at_most(&theirs, *limit), "{name} at {limit} ns");
        }
    }
}
