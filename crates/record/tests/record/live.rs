//! Recordings of this host, held against what the kernel and fio counted. Needs root.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

use std::fs;
use std::time::Duration;

use crate::common::{Counted, LoopDisk, machine, record, run, sqlite, stop, take, wait_until};
use emmclab_record::{RecordOptions, RecordTarget, TracefsRecorder};
use emmclab_trace::{Op, RequestFlags};

#[test]
fn a_sqlite_workload_is_recorded_without_loss_as_the_kernel_counts_it() {
    let Some(_alone) = machine(&["sqlite3", "mkfs.ext4", "losetup", "fstrim"]) else { return };
    let disk = LoopDisk::new();
    let before = disk.counted();
    let (requests, outcome) = record(RecordTarget::Local, &disk, || {
        let folder = disk.mount();
        sqlite(&folder);
        run(
            "dd",
            &[
                "if=/dev/zero",
                &format!("of={}/big", folder.display()),
                // Larger than a request, however few or many pieces of memory it lies in.
                "bs=8M",
                "count=1",
                "oflag=direct",
                "status=none",
            ],
        );
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
    let flushes = |recorded: &&crate::common::Recorded| {
        recorded.request.op == Op::Flush || recorded.request.flags.contains(RequestFlags::PREFLUSH)
    };
    assert!(requests.iter().filter(flushes).count() >= 40);
    let by_sqlite = requests.iter().filter(|recorded| recorded.process == "sqlite3").count();
    assert!(by_sqlite > 40, "{by_sqlite}");
    assert!(requests.iter().any(|recorded| recorded.process.starts_with("jbd2/")));
    assert_eq!(disk.instances(), 0);
}

#[test]
fn a_fio_workload_has_the_counts_bytes_and_times_that_fio_saw() {
    let Some(_alone) = machine(&["fio", "mkfs.ext4", "losetup"]) else { return };
    let disk = LoopDisk::new();
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
        report = run(
            "fio",
            &[
                "--name=mix",
                &file,
                "--size=32m",
                "--rw=randrw",
                "--bsrange=4k-64k",
                "--blockalign=4k",
                "--direct=1",
                "--ioengine=libaio",
                "--iodepth=8",
                "--thread=0",
                "--overwrite=1",
                "--fallocate=none",
                "--output-format=json",
                "--number_ios=4000",
                "--norandommap=1",
                "--io_size=128m",
                "--clocksource=clock_gettime",
            ],
        );
        run("sync", &[]);
        counted = disk.counted().since(begun);
    });
    let most = disk.counted().since(before);
    disk.unmount();
    let ledger = &outcome.ledger;
    assert_eq!((ledger.lost, ledger.unpaired), (0, 0), "{ledger}");
    // The kernel reads bitmaps of the file system in the background, perhaps just before the recording begins.
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
        // fio's time encloses that of the block layer, request by request.
        let sum: i64 = data.iter().map(|recorded| recorded.request.response().unwrap().0).sum();
        let mean = sum as f64 / data.len() as f64;
        let fio_mean = seen["lat_ns"]["mean"].as_f64().unwrap() * ios as f64 / data.len() as f64;
        assert!(mean > 0.0 && mean <= fio_mean, "{name}: {mean} ns recorded, {fio_mean} ns by fio");
    }
}

#[test]
fn a_buffer_that_overflows_is_told_by_the_ledger() {
    let Some(_alone) = machine(&["mkfs.ext4", "losetup"]) else { return };
    let disk = LoopDisk::new();
    let options = RecordOptions {
        devices: vec![disk.device.clone()],
        buffer_kb: Some(8),
        interval: Some(Duration::from_secs(1)),
        ..RecordOptions::default()
    };
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
    let Some(_alone) = machine(&["losetup", "mkfs.ext4"]) else { return };
    let disk = LoopDisk::new();
    let folder = std::path::Path::new("/sys/kernel/tracing/instances");
    let options = RecordOptions { devices: vec![disk.device.clone()], ..RecordOptions::default() };
    // Of a process that is gone, and of one that lives: process 1, by its start time.
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
    // The kernel keeps an instance while somebody else looks into it.
    wait_until("stale instances are removed", || {
        drop(TracefsRecorder::start(&options).unwrap());
        !stale.exists() && !reused.exists()
    });
    let left = alive.exists();
    let _ = fs::remove_dir(&alive);
    assert!(left);
    assert_eq!(disk.instances(), 0);

    // Two recorders of one process, and one that cannot start, leave nothing behind either.
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
    let Some(_alone) = machine(&["losetup", "mkfs.ext4"]) else { return };
    let disk = LoopDisk::new();
    let (requests, outcome) = record(RecordTarget::Local, &disk, || {
        // This very process: four pieces past the page cache's read-ahead.
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
    let Some(_alone) = machine(&["losetup", "mkfs.ext4"]) else { return };
    let disk = LoopDisk::new();
    let options = RecordOptions { devices: vec![disk.device.clone()], ..RecordOptions::default() };
    let recorder = TracefsRecorder::start(&options).unwrap();
    disk.read(100, 16);
    take(&recorder, 100);
    let stats = recorder.stats();
    let row = stats.processes.iter().find(|row| row.process == "dd" && row.op == Op::Read).unwrap();
    assert_eq!((row.requests, row.bytes.0), (100, 100 * 16384));
    assert!(row.response_p50.0 > 0 && row.response_p50 <= row.response_p99 && stats.no_wait > 0);
    assert!(recorder.stats().processes.iter().all(|row| row.process != "dd"));
}
