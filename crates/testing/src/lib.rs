//! Helpers for the tests of all crates: the path of real traces, which are not part of the project, the tools of the machine, a
//! small device, and a seeded random number generator.
//!
//! A test is skipped if the machine lacks something that it needs. Each skip appends the line `WHAT is missing; COMMAND` to the
//! file `$EMMCLAB_SKIPPED`, so that a test run can count them: `cargo test` hides the output of passed tests.
#![allow(clippy::panic, reason = "helpers of tests fail as tests do")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Shell commands that unmount the mounts of other tests in a new mount namespace. The namespace has its own copies of these mounts. The
/// copies would keep the disks busy after the other tests have unmounted them.
pub const LEAVE_FOREIGN_MOUNTS: &str = r#"cat /proc/mounts | while read -r from at kind _; do case "$from:$kind" in /dev/loop*|*:fuse*) umount -l "$at";; esac; done"#;

/// Settings of a device of about 10 MB, which a test can fill until garbage collection runs: two channels, pages of 8 KB.
pub const SMALL_DEVICE: &str = "gc.policy = \"greedy\"
[capacity]
over_provisioning_pct = 60
[geometry]
channels = 2
[[geometry.block_groups]]
page_kb = 8
blocks = 40
pages_per_block = 16
read_us = 100
program_us = 1000
erase_us = 5000
";

/// Settings that make an eMMC a UFS: a link of one lane with 583.04 million bytes per second in each direction, and 32 tags.
pub const UFS: [(&str, &str); 8] = [
    ("interface.kind", "ufs"),
    ("interface.lanes", "1"),
    ("interface.gear", "hs_g3"),
    ("controller.queue_depth", "32"),
    ("features.reliable_write", "false"),
    ("features.barrier", "false"),
    ("features.packed_writes", "0"),
    ("features.packed_reads", "0"),
];

/// Settings of a UFS with zones of 2 planes x 1 block x 6 pages of 16 KB: 192 KB, of which 8 are sequential and 1 is conventional.
pub const ZONED: [(&str, &str); 16] = [
    ("geometry.channels", "2"),
    ("geometry.block_groups.0.page_kb", "16"),
    ("geometry.block_groups.0.blocks", "26"),
    ("geometry.block_groups.0.pages_per_block", "6"),
    ("geometry.block_groups.0.cell_mode", "tlc"),
    ("slc.mode", "region"),
    ("slc.blocks", "14"),
    ("slc.read_us", "20"),
    ("slc.program_us", "200"),
    ("gc.policy", "greedy"),
    ("gc.low_watermark", "1"),
    ("capacity.over_provisioning_pct", "50"),
    ("timing.bus_ns_per_byte", "1"),
    ("zones.blocks", "1"),
    ("zones.conventional", "1"),
    ("cache.size_kb", "64"),
];

/// Time limit of a wait in a test; it is long, so that a busy machine causes no failure.
pub const PATIENCE: Duration = Duration::from_mins(10);

/// Waits until the condition `is_so` is true; panics after [`PATIENCE`]. `what` names the condition in the message.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}: still false after {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A lock on a resource that all tests on this machine share, such as loop devices.
pub struct MachineLock {
    _here: MutexGuard<'static, ()>,
    _elsewhere: File,
}

impl MachineLock {
    /// Takes the lock with this name; waits for other tests that have it, also in other test runs.
    pub fn take(name: &str) -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let here = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let locked = File::create(std::env::temp_dir().join(name)).and_then(|lock| lock.lock().map(|()| lock));
        Self { _here: here, _elsewhere: locked.unwrap_or_else(|error| panic!("{name}: {error}")) }
    }
}

/// Runs a program to its end and returns what it printed.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {}: {stderr}", output.status);
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// The number of random cases that a test draws: `all`, scaled by the environment variable `PROPTEST_CASES` relative to 256 (the default of
/// proptest), but at least one.
pub fn cases(all: u32) -> u32 {
    let of_256 = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(256_u64);
    (u64::from(all) * of_256).div_ceil(256).clamp(1, u64::from(u32::MAX)) as u32
}

/// A seeded random number generator (splitmix64) for tests without proptest. It gives the same numbers on every machine.
pub struct SeededRandom(u64);

impl SeededRandom {
    /// A generator with this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A random number below `sides`.
    pub fn below(&mut self, sides: usize) -> usize {
        (self.bits() % sides as u64) as usize
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// The peak resident memory of this process so far in bytes, from the kernel.
pub fn peak_bytes() -> u64 {
    status_bytes("VmHWM:")
}

/// The resident memory of this process in bytes, from the kernel.
pub fn resident_bytes() -> u64 {
    status_bytes("VmRSS:")
}

fn status_bytes(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024
}

/// The processor time of this thread, from the kernel, which depends less on other work than the time on the clock.
pub fn processor_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0))
}

/// A message in the wire format of Protocol Buffers.
#[derive(Clone, Default)]
pub struct ProtobufMessage(
    /// The encoded bytes.
    pub Vec<u8>,
);

impl ProtobufMessage {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Adds an integer field.
    #[must_use]
    pub fn number(mut self, field: u32, value: u64) -> Self {
        self.varint(u64::from(field) << 3);
        self.varint(value);
        self
    }

    /// Adds a field of bytes: a text, or another message.
    #[must_use]
    pub fn bytes(mut self, field: u32, bytes: impl AsRef<[u8]>) -> Self {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.as_ref().len() as u64);
        self.0.extend(bytes.as_ref());
        self
    }
}

impl AsRef<[u8]> for ProtobufMessage {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Debian packages whose programs do not have the name of the package, with the names of these programs.
const PACKAGES: [(&str, &[&str]); 15] = [
    ("btrfs-progs", &["btrfs", "mkfs.btrfs"]),
    ("coreutils", &["dd"]),
    ("dosfstools", &["mkfs.vfat", "fsck.vfat"]),
    ("e2fsprogs", &["mkfs.ext4", "e2fsck", "debugfs", "tune2fs", "dumpe2fs", "resize2fs"]),
    ("f2fs-tools", &["mkfs.f2fs", "fsck.f2fs"]),
    ("fuse3", &["fusermount3"]),
    ("libnbd-bin", &["nbdcopy", "nbdinfo"]),
    ("mount", &["losetup", "mount", "umount"]),
    ("openssh-client", &["ssh", "ssh-keygen"]),
    ("openssh-server", &["sshd"]),
    ("python3-libnbd", &["nbdsh"]),
    ("qemu-system-x86", &["qemu-system-x86_64"]),
    ("qemu-utils", &["qemu-img", "qemu-io", "qemu-nbd"]),
    ("util-linux", &["addpart", "blkdiscard", "blkid", "fstrim", "setpriv", "unshare"]),
    ("xfsprogs", &["mkfs.xfs", "xfs_repair"]),
];

/// The path of a program in `PATH` or the `sbin` folders; `None` if it is not installed.
///
/// Start commands by this path. For a command that sets its own `PATH`, the standard library uses `fork`, which copies the page tables of
/// this process; with large images in memory, that takes longer than most programs run.
pub fn find_tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':').chain(["/usr/sbin", "/sbin"]).map(|folder| Path::new(folder).join(name)).find(|path| path.exists())
}

/// Whether a program is installed.
pub fn has_tool(name: &str) -> bool {
    find_tool(name).is_some()
}

/// Whether these programs are installed. If a program is missing, the skip is reported and the test must return.
pub fn has_tools(names: &[&str]) -> bool {
    let Some(missing) = names.iter().find(|name| !has_tool(name)) else { return true };
    let package = PACKAGES.iter().find(|(_, tools)| tools.contains(missing));
    skip(missing, &format!("apt-get install {}", package.map_or(*missing, |(package, _)| package)));
    false
}

/// Whether the test runs as root. If not, the skip is reported and the test must return.
pub fn has_root() -> bool {
    let is_root = fs::metadata("/proc/self").is_ok_and(|of_us| of_us.uid() == 0);
    if !is_root {
        skip("root", "run the tests with sudo");
    }
    is_root
}

/// The path of a real trace in the folder `$EMMCLAB_TRACES`, by default `../shared/traces` next to the repository. `None` if it
/// does not exist; then the skip is reported and the test must return.
pub fn real_trace(name: &str) -> Option<PathBuf> {
    let sibling = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let folder = std::env::var_os("EMMCLAB_TRACES").map_or(sibling, PathBuf::from);
    let path = folder.join(name);
    if path.exists() {
        return Some(path);
    }
    skip("the folder of real traces", "set EMMCLAB_TRACES to it");
    None
}

/// Reports that the test is skipped: what is missing, and the command that installs it. Fails if `CI=true`.
pub fn skip(missing: &str, command: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{missing} is missing, and CI=true; {command}");
    skip_always(missing, command);
}

/// Like [`skip`], but never fails: for requirements that some machines of the continuous integration do not meet, such as a guest or a
/// kernel driver.
pub fn skip_always(missing: &str, command: &str) {
    eprintln!("skipped: {missing} is missing; {command}");
    if let Some(file) = std::env::var_os("EMMCLAB_SKIPPED") {
        note(&file, missing, command);
    }
}

/// Appends a line about a skipped test to `file` in one write, so that lines of several processes do not mix.
fn note(file: &OsStr, missing: &str, command: &str) {
    let line = format!("{missing} is missing; {command}\n");
    let written = File::options().append(true).create(true).open(file);
    let written = written.and_then(|mut file| file.write_all(line.as_bytes()));
    assert!(written.is_ok(), "EMMCLAB_SKIPPED names a file that cannot be written: {written:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_skip_is_a_line_with_what_is_missing_and_what_brings_it() {
        let file = std::env::temp_dir().join(format!("emmclab-skipped-{}", std::process::id()));
        note(file.as_os_str(), "fio", "apt-get install fio");
        note(file.as_os_str(), "root", "run the tests with sudo");
        let lines = fs::read_to_string(&file);
        let _ = fs::remove_file(&file);
        assert_eq!(lines.unwrap_or_default(), "fio is missing; apt-get install fio\nroot is missing; run the tests with sudo\n");
    }
}
