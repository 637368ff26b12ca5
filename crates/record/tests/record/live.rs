//! Recordings of this host, compared with the counters of the kernel and fio: requests, waits for durability, journals and
//! response times. Also disks that appear and disappear during a recording. Needs root.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use emmclab_record::{RecordOptions, RecordOutcome, RecordTarget, TracefsRecorder};
use emmclab_trace::{Nanos, Op, RecordedActivity, Request, RequestFlags};
use serde_json::Value;

use crate::common::{Counted, LoopDisk, Recorded, machine, record, run, sqlite, stop, take, wait_until};
use crate::remote::through;

#[test]
fn a_sqlite_workload_is_recorded_without_loss_as_the_kernel_counts_it() {
    let Some(disk) = LoopDisk::of_machine(&["sqlite3", "fstrim"]) else { return };
    let before = disk.counted();
    let (requests, outcome) = record(RecordTarget::Local, &disk, || {
        let folder = disk.mount();
        sqlite(&folder);
        // Larger than a request, in however many segments its memory is.
        let file = format!("of={}/big", folder.display());
        run("dd", &["if=/dev/zero", &file, "bs=8M", "count=1", "oflag=direct", "status=none"]);
        run("rm", &[&format!("{}/big", folder.display())]);
        run("sync", &[]);
        run("fstrim", &[folder.to_str().unwrap()]);
        disk.unmount();
    });
    let ledger = &outcome.ledger;
    assert_eq!((ledger.lost, ledger.unpaired, ledger.skipped), (0, 0, 0), "{ledger}");
    assert!(ledger.split > 0 && ledger.merged > 0, "{ledger}");
    assert_eq!(Counted::of(&requests), disk.counted().since(before));
    for recorded in &requests {
        let request = &recorded.request;
        let (start, issue, complete) = (request.start.unwrap(), request.issue.unwrap(), request.complete.unwrap());
        assert!(request.arrival <= start && start <= issue && issue <= complete, "{request:?}");
    }
    // Each insertion syncs: rollback mode several times, write-ahead mode once.
    let flushes =
        |recorded: &&Recorded| recorded.request.op == Op::Flush || recorded.request.flags.contains(RequestFlags::PREFLUSH);
    assert!(requests.iter().filter(flushes).count() >= 40);
    let by_sqlite = requests.iter().filter(|recorded| recorded.process == "sqlite3").count();
    assert!(by_sqlite > 40, "{by_sqlite}");
    assert!(requests.iter().any(|recorded| recorded.process.starts_with("jbd2/")));
    assert_eq!(disk.instances(), 0);
}

#[test]
fn a_fio_workload_has_the_counts_bytes_and_times_that_fio_saw() {
    let Some(disk) = LoopDisk::of_machine(&["fio"]) else { return };
    let folder = disk.mount();
    let path = folder.to_str().unwrap();
    let file = format!("--filename={path}/data");
    run("fio", &["--name=fill", &file, "--size=32m", "--rw=write", "--bs=1m", "--end_fsync=1", "--output=/dev/null"]);
    run("sync", &[]);
    let before = disk.counted();
    let mut report = String::new();
    let mut counted = before;
    let (requests, outcome) = record(RecordTarget::Local, &disk, || {
        let begun = disk.counted();
        let fixed = "--name=mix --size=32m --rw=randrw --bsrange=4k-64k --blockalign=4k --direct=1 --ioengine=libaio --iodepth=8 --thread=0 \
                     --overwrite=1 --fallocate=none --output-format=json --number_ios=4000 --norandommap=1 --io_size=128m \
                     --clocksource=clock_gettime";
        report = run("fio", &[&[&*file], &fixed.split_whitespace().collect::<Vec<_>>()[..]].concat());
        run("sync", &[]);
        counted = disk.counted().since(begun);
    });
    let most = disk.counted().since(before);
    disk.unmount();
    let ledger = &outcome.ledger;
    assert_eq!((ledger.lost, ledger.unpaired), (0, 0), "{ledger}");
    // The kernel reads bitmaps of the file system in the background, possibly just before the recording begins.
    let recorded = Counted::of(&requests);
    assert!(recorded.is_between(counted, most), "{recorded:?} is not from {counted:?} to {most:?}");

    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    for (op, name) in [(Op::Read, "read"), (Op::Write, "write")] {
        let seen = &report["jobs"][0][name];
        let (ios, bytes) = (seen["total_ios"].as_u64().unwrap(), seen["io_bytes"].as_u64().unwrap());
        let data: Vec<_> = requests
            .iter()
            .filter(|recorded| recorded.process == "fio" && recorded.request.op == op)
            .filter(|recorded| !recorded.request.flags.contains(RequestFlags::META))
            .collect();
        let recorded_bytes: u64 = data.iter().map(|recorded| recorded.request.bytes().0).sum();
        assert!(ios > 500);
        assert_eq!(recorded_bytes, bytes, "{name}");
        // For each request, the time of fio includes the time of the block layer.
        let sum: i64 = data.iter().map(|recorded| recorded.request.response().unwrap().0).sum();
        let mean = sum as f64 / data.len() as f64;
        let fio_mean = seen["lat_ns"]["mean"].as_f64().unwrap() * ios as f64 / data.len() as f64;
        assert!(mean > 0.0 && mean <= fio_mean, "{name}: {mean} ns recorded, {fio_mean} ns by fio");
    }
}

#[test]
fn a_buffer_that_overflows_is_told_by_the_ledger() {
    let Some(disk) = LoopDisk::of_machine(&[]) else { return };
    let interval = Some(Duration::from_secs(1));
    let options = RecordOptions { buffer_kb: Some(8), interval, ..disk.options(RecordTarget::Local) };
    let recorder = TracefsRecorder::start(&options).unwrap();
    wait_until("the buffer overflows", || {
        disk.read(4000, 4);
        recorder.stats().ledger.lost > 1000
    });
    let (requests, outcome) = stop(recorder, Vec::new());
    assert!(outcome.ledger.lost > 1000, "{}", outcome.ledger);
    assert_eq!(outcome.ledger.lost, outcome.cpus.iter().map(|cpu| cpu.lost).sum::<u64>());
    assert!(outcome.header.note.unwrap().contains("lost"));
    assert!(!requests.is_empty());
}

#[test]
fn an_instance_goes_away_with_its_recorder_and_stale_ones_with_the_next() {
    let Some(disk) = LoopDisk::of_machine(&[]) else { return };
    let folder = std::path::Path::new("/sys/kernel/tracing/instances");
    let options = disk.options(RecordTarget::Local);
    // Instances of a process that has ended, and of one that runs: process 1, by its start time.
    let stat = fs::read_to_string("/proc/1/stat").unwrap();
    let born = stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap();
    let own = std::process::id();
    let (stale, reused, alive) = (
        folder.join(format!("emmclab-4194303-{own}")),
        folder.join(format!("emmclab-1-99999999999{own}")),
        folder.join(format!("emmclab{own}-1-{born}")),
    );
    for path in [&stale, &reused, &alive] {
        fs::create_dir(path).unwrap();
    }
    // The kernel keeps an instance while another process has it open.
    wait_until("stale instances are removed", || {
        drop(TracefsRecorder::start(&options).unwrap());
        !stale.exists() && !reused.exists()
    });
    let left = alive.exists();
    let _ = fs::remove_dir(&alive);
    assert!(left);
    assert_eq!(disk.instances(), 0);

    // Two recorders in one process, and one that cannot start, leave nothing behind.
    let (first, second) = (TracefsRecorder::start(&options).unwrap(), TracefsRecorder::start(&options).unwrap());
    assert_eq!(disk.instances(), 2);
    drop((first, second));
    let unknown = RecordOptions { devices: vec!["/dev/nothing".to_owned()], ..RecordOptions::default() };
    let error = TracefsRecorder::start(&unknown).err().unwrap();
    assert!(error.hint_text().unwrap().contains("loop"), "{error}");
    assert_eq!(disk.instances(), 0);
}

#[test]
fn what_the_recorder_itself_reads_and_writes_is_left_out() {
    let Some(disk) = LoopDisk::of_machine(&[]) else { return };
    let (requests, outcome) = record(RecordTarget::Local, &disk, || {
        // Requests of this process: four pieces beyond the read-ahead of the page cache.
        use std::os::unix::fs::FileExt;
        let file = fs::File::open(&disk.device).unwrap();
        let mut bytes = [0; 4096];
        for piece in 1..5 {
            file.read_exact_at(&mut bytes, piece * (33 << 20)).unwrap();
        }
    });
    assert!(outcome.ledger.skipped >= 4, "{}", outcome.ledger);
    let this = fs::read_to_string("/proc/thread-self/comm").unwrap();
    assert!(requests.iter().all(|recorded| recorded.process != this.trim()), "{requests:?}");
}

#[test]
fn live_figures_name_the_processes_of_the_interval() {
    let Some(disk) = LoopDisk::of_machine(&[]) else { return };
    let recorder = TracefsRecorder::start(&disk.options(RecordTarget::Local)).unwrap();
    disk.read(100, 16);
    take(&recorder, 100);
    let stats = recorder.stats();
    let row = stats.processes.iter().find(|row| row.process == "dd" && row.op == Op::Read).unwrap();
    assert_eq!((row.requests, row.bytes.0), (100, 100 * 16384));
    assert!(row.response_p50.0 > 0 && row.response_p50 <= row.response_p99 && stats.no_wait > 0);
    assert!(recorder.stats().processes.iter().all(|row| row.process != "dd"));
}

/// A loop device of 16 MB, possibly mounted.
struct Loop {
    _file: tempfile::NamedTempFile,
    point: tempfile::TempDir,
    mounted: bool,
    device: Option<String>,
}

impl Loop {
    fn new() -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(16 << 20).unwrap();
        let device = run("losetup", &["-f", "--show", file.path().to_str().unwrap()]);
        Self { _file: file, point: tempfile::tempdir().unwrap(), mounted: false, device: Some(device) }
    }

    /// A loop device with a mounted file system.
    fn mounted() -> Self {
        let mut disk = Self::new();
        run("mkfs.ext4", &["-q", disk.device()]);
        run("mount", &[disk.device(), disk.point.path().to_str().unwrap()]);
        disk.mounted = true;
        disk
    }

    fn device(&self) -> &str {
        self.device.as_deref().unwrap()
    }

    fn name(&self) -> &str {
        self.device().rsplit('/').next().unwrap()
    }

    /// Makes another process read 50 blocks; returns its id.
    fn read(&self) -> i32 {
        let source = format!("if={}", self.device());
        let mut dd = Command::new("dd");
        dd.args([&source, "of=/dev/null", "bs=4k", "count=50", "iflag=direct", "status=none"]);
        let mut dd = dd.spawn().unwrap();
        assert!(dd.wait().unwrap().success());
        dd.id() as i32
    }

    fn remove(&mut self) {
        if std::mem::take(&mut self.mounted) {
            run("umount", &[self.point.path().to_str().unwrap()]);
        }
        if let Some(device) = self.device.take() {
            run("losetup", &["-d", &device]);
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.remove();
    }
}

#[test]
fn a_recording_ends_with_its_last_disk_and_holds_what_came_before() {
    let Some(_alone) = machine(&["losetup"]) else { return };
    let mut disk = Loop::new();
    let options = RecordOptions { devices: vec![disk.device().to_owned()], ..RecordOptions::default() };
    let recorder = TracefsRecorder::start(&options).unwrap();
    let name = disk.name().to_owned();
    let reader = disk.read();
    disk.remove();
    // The kernel may immediately give the number to another disk, whose requests are recorded until this is detected.
    wait_until("the recording ends", || recorder.has_ended());
    let (requests, outcome) = stop(recorder, Vec::new());
    let read: Vec<_> = requests.iter().filter(|recorded| recorded.request.pid == Some(reader)).collect();
    assert_eq!(read.len(), 50, "{}", outcome.ledger);
    assert!(read.iter().all(|recorded| recorded.request.complete.is_some()));
    assert_eq!(outcome.interrupted.unwrap().to_string(), format!("no recorded disk exists any more: {name}"));
    assert!(outcome.header.note.unwrap().contains("no recorded disk exists"));
}

#[test]
fn a_recording_ends_where_another_disk_takes_the_number_of_its_last() {
    let Some(_alone) = machine(&["losetup"]) else { return };
    let mut disk = Loop::new();
    let options = RecordOptions { devices: vec![disk.device().to_owned()], ..RecordOptions::default() };
    let recorder = TracefsRecorder::start(&options).unwrap();
    // The same device node with another file.
    let (device, other) = (disk.device().to_owned(), tempfile::NamedTempFile::new().unwrap());
    other.as_file().set_len(16 << 20).unwrap();
    run("losetup", &["-d", &device]);
    let attach = || Command::new("losetup").args([device.as_str(), other.path().to_str().unwrap()]).status();
    if !attach().unwrap().success() {
        // The number was given to another device, which is also a valid case.
        disk.device = None;
    }
    wait_until("the recording ends", || recorder.has_ended());
    let (_, outcome) = stop(recorder, Vec::new());
    assert!(outcome.interrupted.unwrap().to_string().starts_with("no recorded disk exists"));
}

#[test]
fn disks_that_come_or_go_are_named_at_the_end() {
    let Some(_alone) = machine(&["losetup", "mkfs.ext4"]) else { return };
    for target in [RecordTarget::Local, through(&["sh"])] {
        let (mut old, unused) = (Loop::mounted(), Loop::new());
        // If no disk is named, all disks are recorded except unused loop devices.
        let recorder = TracefsRecorder::start(&RecordOptions { target, ..RecordOptions::default() }).unwrap();
        assert!(recorder.disks.iter().any(|disk| disk.name == old.name()));
        assert!(recorder.disks.iter().all(|disk| disk.name != unused.name()));
        assert!(recorder.choice_reason.as_ref().unwrap().contains(unused.name()));
        let (new, gone) = (Loop::mounted(), old.name().to_owned());
        old.remove();
        new.read();
        let (_, outcome) = stop(recorder, Vec::new());
        let remarks = outcome.remarks.join("\n");
        assert!(remarks.contains(&format!("{gone} was removed during the recording")), "{remarks}");
        assert!(remarks.contains(&format!("{} was added during the recording", new.name())), "{remarks}");
        assert!(outcome.interrupted.is_none());
    }
}

/// Runs a job of fio on a file and returns its report; `json+` contains the histograms.
fn fio(folder: &Path, options: &[&str]) -> Value {
    let file = format!("--filename={}/data", folder.display());
    let fixed = ["--name=job", &file, "--size=16m", "--randseed=1", "--output-format=json+", "--clocksource=clock_gettime"];
    let report = run("fio", &[&fixed[..], options].concat());
    let report: Value = serde_json::from_str(&report).unwrap();
    report["jobs"][0].clone()
}

/// Compares a recording of a workload with fio's own report; `None` if the test must be skipped.
fn syncs_are_those_of_fio(target: RecordTarget) -> Option<(Vec<Recorded>, RecordOutcome)> {
    let disk = LoopDisk::of_machine(&["fio"])?;
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
    // fio makes an additional call when it closes the file.
    assert!((calls..=calls + 1).contains(&row.calls), "{row:?}, {calls} by fio");
    assert_eq!((&*row.file_system, row.errors), ("ext4", 0));
    // For each call, the time of fio includes the time of the kernel; fio has no time of the last call.
    let fio_sum = job["sync"]["lat_ns"]["mean"].as_f64().unwrap() * calls as f64;
    let last = if row.calls > calls { row.longest.0 as f64 } else { 0.0 };
    let sum = row.time.0 as f64;
    assert!(sum > 0.0 && sum <= fio_sum + last, "{sum} ns recorded, {fio_sum} ns by fio, {last} ns at its end");
    assert!(row.longest.0 as f64 >= sum / row.calls as f64);
    // The journal is that of the disk, and the header contains the same activity.
    let [journal] = &activity.journals[..] else { unreachable!("{activity:?}") };
    assert_eq!(journal.device, disk.device.rsplit('/').next().unwrap());
    assert!(journal.commits > 0 && journal.blocks >= 2 * journal.commits, "{journal:?}");
    let stored: RecordedActivity = serde_json::from_str(outcome.header.activity.as_ref().unwrap()).unwrap();
    assert_eq!(&stored, activity);
    Some((requests, outcome))
}

#[test]
fn syncs_by_process_are_those_that_fio_made_and_the_journal_is_marked() {
    let Some((requests, outcome)) = syncs_are_those_of_fio(RecordTarget::Local) else { return };
    let journal = |recorded: &Recorded| recorded.request.flags.contains(RequestFlags::JOURNAL);
    for recorded in &requests {
        assert_eq!(journal(recorded), recorded.process.starts_with("jbd2/"), "{recorded:?}");
    }
    // A file system of this size has blocks of 1 KB; each commit ends with a durable block.
    let written: u64 = requests.iter().filter(|it| journal(it)).map(|it| it.request.bytes().0 / 1024).sum();
    assert!(written >= outcome.activity.journals[0].blocks, "{written} blocks, {:?}", outcome.activity);
    let commits = requests.iter().filter(|it| journal(it) && it.request.flags.contains(RequestFlags::FUA)).count() as u64;
    assert_eq!(commits, outcome.activity.journals[0].commits);
}

#[test]
fn syncs_are_recorded_by_the_helper_too() {
    syncs_are_those_of_fio(through(&["sh"]));
}

/// Number of times that do not exceed the limit.
fn at_most(times: &BTreeMap<i64, u64>, limit: i64) -> u64 {
    times.range(..=limit).map(|(_, count)| count).sum()
}

#[test]
fn no_response_is_longer_than_fio_saw_it() {
    let Some(disk) = LoopDisk::of_machine(&["fio"]) else { return };
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
    let theirs: BTreeMap<i64, u64> = bins.iter().map(|(time, count)| (time.parse().unwrap(), count.as_u64().unwrap())).collect();
    for (name, ours) in [("response", count(Request::response)), ("service", count(Request::service))] {
        assert_eq!((ours.values().sum::<u64>(), theirs.values().sum::<u64>()), (3000, 3000));
        // For each request, the time of fio includes that of the block layer; the bins of fio are 1/64 wide and are identified by
        // their middle.
        for limit in theirs.keys() {
            assert!(at_most(&ours, limit + limit / 64) >= at_most(&theirs, *limit), "{name} at {limit} ns");
        }
    }
}
