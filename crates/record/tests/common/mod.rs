//! What live tests share: whether they can run, a disk to record, and what the kernel counted on it.
#![allow(clippy::unwrap_used, dead_code, reason = "a test may, and each uses a part of it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use emmclab_record::{Outcome, RecordOptions, Recorder, Target};
use emmclab_trace::{Batch, Op, Request};

/// What takes longer than this on the slowest machine does not come.
const PATIENCE: Duration = Duration::from_mins(1);

/// One live test at a time, also of other runs: a loop device that one gives back is the next one's.
static ALONE: Mutex<()> = Mutex::new(());

/// Holds the machine for a test.
pub struct Alone {
    _here: MutexGuard<'static, ()>,
    _elsewhere: fs::File,
}

impl Alone {
    fn wait() -> Self {
        let here = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let lock = fs::File::create(std::env::temp_dir().join("emmclab-live-tests.lock")).unwrap();
        lock.lock().unwrap();
        Self { _here: here, _elsewhere: lock }
    }
}

/// Takes the machine for a test; `None`, with the reason printed, where it cannot run. With `CI=true` that is a failure.
pub fn machine(tools: &[&str]) -> Option<Alone> {
    let missing = tools.iter().find(|tool| !has(tool)).map(|tool| format!("`{tool}` is not installed"));
    let root = rustix::process::geteuid().is_root();
    let instances = Path::new("/sys/kernel/tracing/instances");
    if root && !instances.is_dir() {
        // The recorder mounts it, too, but a test may look first.
        let _ = Command::new("mount").args(["-t", "tracefs", "nodev", "/sys/kernel/tracing"]).status();
    }
    let traced = instances.is_dir();
    let reason = match (root, traced, missing) {
        (false, _, _) => "not root".to_owned(),
        (_, false, _) => "no tracefs".to_owned(),
        (_, _, Some(missing)) => missing,
        _ => return Some(Alone::wait()),
    };
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{reason}");
    eprintln!("skipped: {reason}");
    None
}

/// Whether a program can be found.
pub fn has(tool: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':').chain(["/usr/sbin", "/sbin"]).any(|folder| Path::new(folder).join(tool).exists())
}

pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", output.status);
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// An ext4 file system on a loop device over tmpfs.
pub struct LoopDisk {
    work: tempfile::TempDir,
    pub device: String,
}

impl LoopDisk {
    pub fn new() -> Self {
        let work = tempfile::tempdir().unwrap();
        let path = |name: &str| work.path().join(name).to_str().unwrap().to_owned();
        run("mount", &["-t", "tmpfs", "-o", "size=512m", "none", &path("")]);
        fs::create_dir(path("mnt")).unwrap();
        run("truncate", &["-s", "256M", &path("image")]);
        let device = run("losetup", &["-f", "--show", &path("image")]);
        // Without its background initialisation, which would go on between two looks at the counters.
        run("mkfs.ext4", &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", &device]);
        Self { work, device }
    }

    pub fn mount(&self) -> PathBuf {
        let point = self.work.path().join("mnt");
        run("mount", &[&self.device, point.to_str().unwrap()]);
        point
    }

    pub fn unmount(&self) {
        run("umount", &[self.work.path().join("mnt").to_str().unwrap()]);
    }

    /// What the kernel has counted on the device.
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

/// Requests and sectors. The kernel counts a flush as a write of nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub reads: u64,
    pub read_sectors: u64,
    pub writes: u64,
    pub written_sectors: u64,
    pub discards: u64,
    pub discarded_sectors: u64,
}

impl Counted {
    /// From the text of `/sys/block/X/stat`.
    pub fn parse(stat: &str) -> Self {
        let field = |i: usize| stat.split_whitespace().nth(i).unwrap().parse::<u64>().unwrap();
        Self {
            reads: field(0),
            read_sectors: field(2),
            writes: field(4),
            written_sectors: field(6),
            discards: field(11),
            discarded_sectors: field(13),
        }
    }

    pub fn since(self, before: Counted) -> Self {
        Self {
            reads: self.reads - before.reads,
            read_sectors: self.read_sectors - before.read_sectors,
            writes: self.writes - before.writes,
            written_sectors: self.written_sectors - before.written_sectors,
            discards: self.discards - before.discards,
            discarded_sectors: self.discarded_sectors - before.discarded_sectors,
        }
    }

    pub fn of(requests: &[Recorded]) -> Self {
        let mut out = Self::default();
        for Recorded { request, .. } in requests {
            let sectors = u64::from(request.sectors);
            let (count, total) = match request.op {
                Op::Read => (&mut out.reads, &mut out.read_sectors),
                Op::Write | Op::Flush => (&mut out.writes, &mut out.written_sectors),
                Op::Discard | Op::SecureErase => (&mut out.discards, &mut out.discarded_sectors),
            };
            *count += 1;
            *total += sectors;
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
    let recorded =
        |request: Request| Recorded { process: request.process.map(name).unwrap_or_default(), request };
    batch.iter().map(recorded).collect()
}

/// Records `work` on a disk by `target`; all requests and the outcome.
pub fn record(target: Target, disk: &LoopDisk, work: impl FnOnce()) -> (Vec<Recorded>, Outcome) {
    record_with(
        &RecordOptions { target, devices: vec![disk.device.clone()], ..RecordOptions::default() },
        work,
    )
}

pub fn record_with(options: &RecordOptions, work: impl FnOnce()) -> (Vec<Recorded>, Outcome) {
    record_elsewhere(options, || {
        assert_eq!(instances(&options.devices[0]), 1);
        work();
    })
}

/// As [`record_with`], of another kernel.
pub fn record_elsewhere(options: &RecordOptions, work: impl FnOnce()) -> (Vec<Recorded>, Outcome) {
    let recorder = Recorder::start(options).unwrap();
    work();
    stop(recorder, Vec::new())
}

/// Ends a recording: the requests, from those on that were taken before, and the outcome, which says the same.
pub fn stop(recorder: Recorder, mut requests: Vec<Recorded>) -> (Vec<Recorded>, Outcome) {
    let rest = |batch: Batch| {
        requests.extend(recorded(&batch));
        Ok(())
    };
    let outcome = recorder.stop(rest).unwrap();
    assert_eq!(requests.len() as u64, outcome.ledger.kept);
    assert!(requests.is_sorted_by_key(|recorded| recorded.request.arrival));
    (requests, outcome)
}

/// Takes what a running recording gives until it has given so many requests.
pub fn take(recorder: &Recorder, at_least: usize) -> Vec<Recorded> {
    let mut requests = Vec::new();
    wait_until(|| {
        requests.extend(recorder.next_batch(Duration::ZERO).iter().flat_map(recorded));
        requests.len() >= at_least
    });
    requests
}

/// Waits until something is so, or for as long as it may take: then the test says what is not.
pub fn wait_until(mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// How many instances record this disk; others on the machine are not of this test.
pub fn instances(device: &str) -> usize {
    let name = device.rsplit('/').next().unwrap();
    let number = fs::read_to_string(format!("/sys/block/{name}/dev")).unwrap();
    let (major, minor) = number.trim().split_once(':').unwrap();
    let device = major.parse::<u32>().unwrap() << 20 | minor.parse::<u32>().unwrap();
    let filter = format!("dev == {device}");
    let all = fs::read_dir("/sys/kernel/tracing/instances").unwrap();
    let of_disk = |entry: &fs::DirEntry| {
        let text = fs::read_to_string(entry.path().join("events/block/block_rq_issue/filter"));
        text.is_ok_and(|text| text.split("||").any(|part| part.trim() == filter))
    };
    all.flatten().filter(of_disk).count()
}

/// Waits for the helper to notice that nobody listens any more.
pub fn wait_for_no_instance(device: &str) {
    wait_until(|| instances(device) == 0);
    assert_eq!(instances(device), 0);
}

/// SQLite in rollback and write-ahead mode, as message applications use it.
pub fn sqlite(folder: &Path) {
    for mode in ["delete", "wal"] {
        let file = folder.join(format!("{mode}.db"));
        let file = file.to_str().unwrap();
        // Not by this process, whose requests are left out.
        run("rm", &["-f", file]);
        run(
            "sqlite3",
            &[file, &format!("PRAGMA journal_mode={mode}; CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")],
        );
        for _ in 0..10 {
            run("sqlite3", &[file, "INSERT INTO t(v) VALUES(randomblob(3000))"]);
        }
    }
}

/// Records a workload whose every request must come out, and compares with the kernel's counters.
pub fn complete_recording(target: Target, disk: &LoopDisk) -> Outcome {
    let before = disk.counted();
    let (requests, outcome) = record(target, disk, || {
        let folder = disk.mount();
        sqlite(&folder);
        disk.unmount();
        let source = format!("if={}", disk.device);
        run("dd", &[&source, "of=/dev/null", "bs=4k", "count=3000", "iflag=direct", "status=none"]);
    });
    assert!(outcome.interrupted.is_none(), "{:?}", outcome.interrupted);
    let ledger = &outcome.ledger;
    assert_eq!((ledger.lost, ledger.unpaired, ledger.skipped), (0, 0, 0), "{ledger}");
    assert_eq!(Counted::of(&requests), disk.counted().since(before));
    assert_eq!(instances(&disk.device), 0);
    outcome
}
