//! Requirements of tests that a machine may not meet: root, programs, real traces, a guest.
//!
//! A test that lacks something is skipped. Each skip appends the line `WHAT is missing; COMMAND` to the file that
//! `EMMCLAB_SKIPPED` names, so that the end of a run can count them: `cargo test` hides the output of passed tests.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Debian packages, with those of their programs that have another name than the package.
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

/// The path of a program, which may be in the folders for the administrator; `None` if it is not installed.
///
/// Commands should be started by this path. A command that is given its own `PATH` is started by `fork`, which copies the page tables of
/// this process; if a test holds images in memory, that takes longer than most programs run.
pub fn find_tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':').chain(["/usr/sbin", "/sbin"]).map(|folder| Path::new(folder).join(name)).find(|path| path.exists())
}

/// Whether a program is installed.
pub fn has_tool(name: &str) -> bool {
    find_tool(name).is_some()
}

/// Whether these programs are installed. If one is missing, the skip is reported, and the test must return.
pub fn has_tools(names: &[&str]) -> bool {
    let Some(missing) = names.iter().find(|name| !has_tool(name)) else { return true };
    let package = PACKAGES.iter().find(|(_, tools)| tools.contains(missing));
    skip(missing, &format!("apt-get install {}", package.map_or(*missing, |(package, _)| package)));
    false
}

/// Whether the test runs as root. If not, the skip is reported, and the test must return.
pub fn has_root() -> bool {
    let is_root = fs::metadata("/proc/self").is_ok_and(|of_us| of_us.uid() == 0);
    if !is_root {
        skip("root", "run the tests with sudo");
    }
    is_root
}

/// A real trace in the folder that `EMMCLAB_TRACES` names, or else in `../shared/traces` beside the repository; `None` if it
/// does not exist: then the skip is reported, and the test must return.
pub fn real_trace(name: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let folder = std::env::var_os("EMMCLAB_TRACES").map_or(beside, PathBuf::from);
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

/// As [`skip`], but does not fail with `CI=true`: for what not every machine of the continuous integration has, such as a guest or a driver
/// of the kernel.
pub fn skip_always(missing: &str, command: &str) {
    eprintln!("skipped: {missing} is missing; {command}");
    if let Some(file) = std::env::var_os("EMMCLAB_SKIPPED") {
        note(&file, missing, command);
    }
}

/// Appends the line of a skip in one write, so that those of several processes do not mix.
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
        assert_eq!(
            lines.unwrap_or_default(),
            "fio is missing; apt-get install fio\nroot is missing; run the tests with sudo\n"
        );
    }
}
