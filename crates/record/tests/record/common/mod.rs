//! Helpers of live tests: whether they can run, a disk to record, and the kernel's counters of it.

pub mod guest;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use emmclab_record::{RecordOptions, RecordOutcome, RecordTarget, TracefsRecorder};
use emmclab_testing::MachineLock;
pub use emmclab_testing::{PATIENCE, run, wait_until};
use emmclab_trace::{Batch, Op, Request};

const INSTANCES: &str = "/sys/kernel/tracing/instances";

/// Locks the machine for a test; `None` if the test must be skipped.
pub fn machine(tools: &[&str]) -> Option<MachineLock> {
    if !emmclab_testing::has_root() || !emmclab_testing::has_tools(tools) {
        return None;
    }
    // Only one live test at a time: a loop device that one test releases is the next test's.
    let alone = MachineLock::take("emmclab-live-tests.lock");
    if !Path::new(INSTANCES).is_dir() {
        // The recorder also mounts it, but a test may need it earlier.
        let _ = Command::new("mount").args(["-t", "tracefs", "nodev", "/sys/kernel/tracing"]).status();
    }
    if !Path::new(INSTANCES).is_dir() {
        emmclab_testing::skip("tracefs", "use a kernel with CONFIG_FTRACE");
        return None;
    }
    Some(alone)
}

/// An ext4 file system on a loop device over tmpfs.
pub struct LoopDisk {
    work: tempfile::TempDir,
    pub device: String,
    /// Earlier instances for a disk of this number, which were not removed.
    before: BTreeSet<String>,
    _alone: MachineLock,
}

impl LoopDisk {
    /// Locks the machine and makes a disk; `None` if the test must be skipped, for example because a tool is missing.
    pub fn of_machine(tools: &[&str]) -> Option<Self> {
        let alone = machine(&[&["mkfs.ext4", "losetup"][..], tools].concat())?;
        let work = tempfile::tempdir().unwrap();
        let path = |name: &str| work.path().join(name).to_str().unwrap().to_owned();
        run("mount", &["-t", "tmpfs", "-o", "size=512m", "none", &path("")]);
        fs::create_dir(path("mnt")).unwrap();
        run("truncate", &["-s", "256M", &path("image")]);
        let device = run("losetup", &["-f", "--show", &path("image")]);
        // Without background initialisation, which could run between two reads of the counters.
        run("mkfs.ext4", &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", &device]);
        let before = instances_of(&device).collect();
        Some(Self { work, device, before, _alone: alone })
    }

    /// Options of a recording of this disk.
    pub fn options(&self, target: RecordTarget) -> RecordOptions {
        RecordOptions { target, devices: vec![self.device.clone()], ..RecordOptions::default() }
    }

    /// Number of instances that record this disk; other instances do not belong to this test.
    pub fn instances(&self) -> usize {
        instances_of(&self.device).filter(|name| !self.before.contains(name)).count()
    }

    /// Waits until the helper has noticed that its connection is closed.
    pub fn wait_for_no_instance(&self) {
        wait_until("the instance is removed", || self.instances() == 0);
    }

    /// Makes another process, `dd`, read `blocks` blocks of `kb` KB one after the other.
    pub fn read(&self, blocks: usize, kb: usize) {
        let (source, size, count) = (format!("if={}", self.device), format!("bs={kb}k"), format!("count={blocks}"));
        run("dd", &[&source, "of=/dev/null", &size, &count, "iflag=direct", "status=none"]);
    }

    pub fn mount(&self) -> PathBuf {
        let point = self.work.path().join("mnt");
        run("mount", &[&self.device, point.to_str().unwrap()]);
        point
    }

    pub fn unmount(&self) {
        run("umount", &[self.work.path().join("mnt").to_str().unwrap()]);
    }

    /// The kernel's counters of the device.
    pub fn counted(&self) -> Counted {
        let name = self.device.rsplit('/').next().unwrap();
        let text = fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
        Counted::parse(&text)
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let mount = self.work.path().join("mnt");
        for (program, argument) in [
            ("umount", mount.to_str().unwrap()),
            ("losetup", self.device.as_str()),
            ("umount", self.work.path().to_str().unwrap()),
        ] {
            let mut command = Command::new(program);
            if program == "losetup" {
                command.arg("-d");
            }
            let _ = command.arg(argument).stderr(Stdio::null()).status();
        }
    }
}

/// Number of requests and their sectors. The kernel counts a flush as a write without sectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub reads: (u64, u64),
    pub writes: (u64, u64),
    pub discards: (u64, u64),
}

impl Counted {
    /// Parses the text of `/sys/block/X/stat`.
    pub fn parse(stat: &str) -> Self {
        let field = |i: usize| stat.split_whitespace().nth(i).unwrap().parse::<u64>().unwrap();
        let [reads, writes, discards] = [0, 4, 11].map(|i| (field(i), field(i + 2)));
        Self { reads, writes, discards }
    }

    /// The figures after `word` in the output of a workload.
    pub fn printed(text: &str, word: &str) -> Self {
        Self::parse(text.lines().find_map(|line| line.strip_prefix(word)).unwrap())
    }

    pub fn since(self, before: Counted) -> Self {
        let less = |now: (u64, u64), then: (u64, u64)| (now.0 - then.0, now.1 - then.1);
        Self {
            reads: less(self.reads, before.reads),
            writes: less(self.writes, before.writes),
            discards: less(self.discards, before.discards),
        }
    }

    /// Whether each count is between those of `least` and `most`.
    pub fn is_between(self, least: Counted, most: Counted) -> bool {
        let counts = |of: Counted| [of.reads, of.writes, of.discards].map(|(requests, sectors)| [requests, sectors]).concat();
        let (own, least, most) = (counts(self), counts(least), counts(most));
        (0..own.len()).all(|i| (least[i]..=most[i]).contains(&own[i]))
    }

    pub fn of(requests: &[Recorded]) -> Self {
        let mut out = Self::default();
        for Recorded { request, .. } in requests {
            let counts = match request.op {
                Op::Read => &mut out.reads,
                Op::Write | Op::Flush => &mut out.writes,
                Op::Discard | Op::SecureErase => &mut out.discards,
            };
            *counts = (counts.0 + 1, counts.1 + u64::from(request.sectors));
        }
        out
    }
}

/// A request and the name of its process.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub request: Request,
    pub process: String,
}

/// The requests of a batch with the names of their processes.
pub fn recorded(batch: &Batch) -> Vec<Recorded> {
    let name = |id| batch.processes().get(id).unwrap_or_default().to_owned();
    let recorded = |request: Request| Recorded { process: request.process.map(name).unwrap_or_default(), request };
    batch.iter().map(recorded).collect()
}

/// Records `work` on a disk with `target`; returns all requests and the outcome.
pub fn record(target: RecordTarget, disk: &LoopDisk, work: impl FnOnce()) -> (Vec<Recorded>, RecordOutcome) {
    record_elsewhere(&disk.options(target), || {
        assert_eq!(disk.instances(), 1);
        work();
    })
}

/// Like [`record`], for another kernel.
pub fn record_elsewhere(options: &RecordOptions, work: impl FnOnce()) -> (Vec<Recorded>, RecordOutcome) {
    let recorder = TracefsRecorder::start(options).unwrap();
    work();
    stop(recorder, Vec::new())
}

/// Ends a recording; returns all requests, beginning with those received before, and the outcome, whose counts must agree.
pub fn stop(recorder: TracefsRecorder, mut requests: Vec<Recorded>) -> (Vec<Recorded>, RecordOutcome) {
    let rest = |batch: Batch| {
        requests.extend(recorded(&batch));
        Ok(())
    };
    let outcome = recorder.stop(rest).unwrap();
    assert_eq!(requests.len() as u64, outcome.ledger.kept);
    assert!(requests.is_sorted_by_key(|recorded| recorded.request.arrival));
    (requests, outcome)
}

/// Receives requests of a running recording until `at_least` are of `dd`; other processes may read the disk, too.
pub fn take(recorder: &TracefsRecorder, at_least: usize) -> Vec<Recorded> {
    let mut requests = Vec::new();
    wait_until("the requests are recorded", || {
        requests.extend(recorder.next_batch(Duration::ZERO).iter().flat_map(recorded));
        by_dd(&requests).count() >= at_least
    });
    requests
}

pub fn by_dd(requests: &[Recorded]) -> impl Iterator<Item = &Request> {
    requests.iter().filter(|recorded| recorded.process == "dd").map(|recorded| &recorded.request)
}

/// Names of the instances that record only the disk of this number; recordings of all disks do not belong to these tests.
fn instances_of(device: &str) -> impl Iterator<Item = String> {
    let name = device.rsplit('/').next().unwrap();
    let number = fs::read_to_string(format!("/sys/block/{name}/dev")).unwrap();
    let (major, minor) = number.trim().split_once(':').unwrap();
    let device = major.parse::<u32>().unwrap() << 20 | minor.parse::<u32>().unwrap();
    let filter = format!("dev == {device}");
    let of_disk = move |entry: &fs::DirEntry| {
        let text = fs::read_to_string(entry.path().join("events/block/block_rq_issue/filter"));
        text.is_ok_and(|text| text.trim() == filter)
    };
    let all = fs::read_dir(INSTANCES).unwrap().flatten();
    all.filter(of_disk).map(|entry| entry.file_name().to_string_lossy().into_owned())
}

/// Runs SQLite in rollback and write-ahead mode, as messaging applications use it.
pub fn sqlite(folder: &Path) {
    for mode in ["delete", "wal"] {
        let file = folder.join(format!("{mode}.db"));
        let file = file.to_str().unwrap();
        // By another process, because requests of this process are omitted.
        run("rm", &["-f", file]);
        run("sqlite3", &[file, &format!("PRAGMA journal_mode={mode}; CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")]);
        for _ in 0..10 {
            run("sqlite3", &[file, "INSERT INTO t(v) VALUES(randomblob(3000))"]);
        }
    }
}

/// Records a workload of which no request may be missing, and compares with the kernel's counters.
pub fn complete_recording(target: RecordTarget, disk: &LoopDisk) -> RecordOutcome {
    let before = disk.counted();
    let (requests, outcome) = record(target, disk, || {
        let folder = disk.mount();
        sqlite(&folder);
        disk.unmount();
        disk.read(3000, 4);
    });
    assert!(outcome.interrupted.is_none(), "{:?}", outcome.interrupted);
    let ledger = &outcome.ledger;
    assert_eq!((ledger.lost, ledger.unpaired, ledger.skipped), (0, 0, 0), "{ledger}");
    assert_eq!(Counted::of(&requests), disk.counted().since(before));
    assert_eq!(disk.instances(), 0);
    outcome
}
