//! Helpers of tests of live exports: whether they can run, devices that complete late, and a process that serves until it is killed.
#![allow(clippy::unwrap_used, clippy::panic, dead_code, unused_imports, reason = "a test may, and each uses a part of it")]

pub mod devices;
pub mod guest;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use emmclab_serve::{BlockAction, ServedRequest};
pub use emmclab_testing::{PATIENCE, run, wait_until};

/// Whether the host can run a test that needs FUSE, root and these tools; otherwise the test must be skipped.
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

/// An attribute of a block device.
pub fn attribute(device: &Path, name: &str) -> String {
    let folder = Path::new("/sys/block").join(device.file_name().unwrap());
    fs::read_to_string(folder.join(name)).unwrap().trim().to_owned()
}

/// Loop devices whose file is in the folder.
pub fn loops_below(folder: &Path) -> Vec<String> {
    let blocks = fs::read_dir("/sys/block").unwrap().flatten();
    let backing = blocks.filter_map(|entry| fs::read_to_string(entry.path().join("loop/backing_file")).ok());
    backing.filter(|file| Path::new(file.trim_end()).starts_with(folder)).collect()
}

pub fn mounts_below(folder: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let points = table.lines().map(|line| line.split(' ').nth(4).unwrap());
    points.filter(|point| Path::new(point).starts_with(folder)).map(str::to_owned).collect()
}

/// What remains of exports with this temporary folder: mounts, loop devices and folders.
pub fn left_in(temporary: &Path) -> Vec<String> {
    let mut left = mounts_below(temporary);
    left.extend(loops_below(temporary));
    let entries = fs::read_dir(temporary).unwrap().flatten();
    left.extend(entries.map(|entry| entry.path().display().to_string()));
    left
}

/// This test program as a command that runs only `test`, with `TMPDIR` in `temporary`.
pub fn again(test: &str, temporary: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--include-ignored"]).env("TMPDIR", temporary);
    command
}

/// A process in this folder, which has a file with unwritten data open there.
pub fn busy_in(folder: &Path) -> Child {
    let script = "exec 3>held; echo data >&3; echo ready; exec sleep 1000";
    let mut busy = Command::new("sh").args(["-c", script]).current_dir(folder).stdout(Stdio::piped()).spawn().unwrap();
    BufReader::new(busy.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    busy
}

/// A folder for the test, and its path without symbolic links.
pub fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    (folder, path)
}

/// Whether a request writes a commit block of ext4's journal: magic number and type, in big-endian order.
pub fn commits(request: &ServedRequest) -> bool {
    let commit = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2];
    matches!(&request.action, BlockAction::Write(data) if data.chunks(512).any(|sector| sector.starts_with(&commit)))
}
