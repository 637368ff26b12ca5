//! What tests of live exports share: whether they can run, devices that answer late, and a process that serves until killed.
#![allow(clippy::unwrap_used, dead_code, reason = "a test may, and each uses a part of it")]

pub mod guest;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use emmclab_serve::{
    AllocationExtent, BlockAction, BlockDevice, BlockDeviceLimits, CompletionReceiver, MemoryDevice, ServedCompletion,
    ServedRequest,
};

/// A test that waits longer than this hangs; a busy machine is no failure.
pub const PATIENCE: Duration = Duration::from_mins(10);

/// Whether the host can run a test that needs FUSE, root, and these tools; it is skipped where not.
pub fn live(tools: &[&str]) -> bool {
    if !emmclab_testing::has_root() || !emmclab_testing::has_tools(tools) {
        return false;
    }
    let has_fuse = Path::new("/dev/fuse").exists();
    if !has_fuse {
        emmclab_testing::skip("/dev/fuse", "modprobe fuse");
    }
    has_fuse
}

/// Waits until `done` holds.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs a program to its end; what it printed.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {}: {said}", output.status);
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// An attribute of a block device.
pub fn attribute(device: &Path, name: &str) -> String {
    let folder = Path::new("/sys/block").join(device.file_name().unwrap());
    fs::read_to_string(folder.join(name)).unwrap().trim().to_owned()
}

/// Loop devices whose file is below the folder.
pub fn loops_below(folder: &Path) -> Vec<String> {
    let blocks = fs::read_dir("/sys/block").unwrap().flatten();
    let backing = blocks.filter_map(|entry| fs::read_to_string(entry.path().join("loop/backing_file")).ok());
    backing.filter(|file| Path::new(file.trim_end()).starts_with(folder)).collect()
}

/// Mount points below the folder.
pub fn mounts_below(folder: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let points = table.lines().map(|line| line.split(' ').nth(4).unwrap());
    points.filter(|point| Path::new(point).starts_with(folder)).map(str::to_owned).collect()
}

/// What is left of exports whose temporary folder this is: mounts, loop devices and folders.
pub fn left_in(temporary: &Path) -> Vec<String> {
    let mut left = mounts_below(temporary);
    left.extend(loops_below(temporary));
    let entries = fs::read_dir(temporary).unwrap().flatten();
    left.extend(entries.map(|entry| entry.path().display().to_string()));
    left
}

/// A device that notes the requests that come to it.
pub struct Noted {
    pub memory: MemoryDevice,
    pub limits: BlockDeviceLimits,
    pub requests: Mutex<Vec<ServedRequest>>,
}

impl Noted {
    pub fn new(sectors: u64) -> Self {
        let memory = MemoryDevice::new(sectors);
        Self { limits: memory.limits(), memory, requests: Mutex::default() }
    }
}

impl BlockDevice for Noted {
    fn limits(&self) -> BlockDeviceLimits {
        self.limits
    }

    fn submit(&self, requests: &mut Vec<ServedRequest>, completions: &Arc<dyn CompletionReceiver>) {
        self.requests.lock().unwrap().extend(requests.iter().cloned());
        self.memory.submit(requests, completions);
    }

    fn extents(&self, sector: u64, sectors: u64, most: usize, found: &mut Vec<AllocationExtent>) {
        self.memory.extents(sector, sectors, most, found);
    }
}

type Late = (Vec<ServedCompletion>, Arc<dyn CompletionReceiver>);

/// A device that completes requests later, from another thread, and not in their order.
pub struct LateDevice {
    memory: MemoryDevice,
    late: Sender<Late>,
}

/// Keeps what is complete.
#[derive(Default)]
struct Kept(Mutex<Vec<ServedCompletion>>);

impl CompletionReceiver for Kept {
    fn complete(&self, completed: &mut Vec<ServedCompletion>) {
        self.0.lock().unwrap().append(completed);
    }
}

impl LateDevice {
    pub fn new(sectors: u64) -> Self {
        let (late, receiver) = channel::<Late>();
        std::thread::spawn(move || {
            while let Ok(first) = receiver.recv() {
                // Others come in the meantime; the last of them is complete first.
                std::thread::sleep(Duration::from_micros(300));
                let mut batch = vec![first];
                batch.extend(receiver.try_iter());
                for (mut completed, completions) in batch.into_iter().rev() {
                    completed.reverse();
                    completions.complete(&mut completed);
                }
            }
        });
        Self { memory: MemoryDevice::new(sectors), late }
    }
}

impl BlockDevice for LateDevice {
    fn limits(&self) -> BlockDeviceLimits {
        BlockDeviceLimits { max_sectors: 64, ..self.memory.limits() }
    }

    fn submit(&self, requests: &mut Vec<ServedRequest>, completions: &Arc<dyn CompletionReceiver>) {
        let kept = Arc::new(Kept::default());
        let keeper: Arc<dyn CompletionReceiver> = kept.clone();
        self.memory.submit(requests, &keeper);
        let completed = std::mem::take(&mut *kept.0.lock().unwrap());
        self.late.send((completed, Arc::clone(completions))).unwrap();
    }

    fn extents(&self, sector: u64, sectors: u64, most: usize, found: &mut Vec<AllocationExtent>) {
        self.memory.extents(sector, sectors, most, found);
    }
}

/// This test binary again, to run only `test`, with `TMPDIR` below `temporary`.
pub fn again(test: &str, temporary: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--include-ignored"]).env("TMPDIR", temporary);
    command
}

/// A folder for the test, by its path without links.
pub fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    (folder, path)
}

/// A commit block of ext4's journal: magic number and type, the highest byte first.
pub fn commits(request: &ServedRequest) -> bool {
    let commit = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2];
    matches!(&request.action, BlockAction::Write(data) if data.chunks(512).any(|sector| sector.starts_with(&commit)))
}
