//! What a test needs of the machine and may lack: root, programs, real traces, a guest.
//!
//! A test that lacks something is skipped. Each skip appends the line `WHAT is missing; COMMAND` to the file that
//! `EMMCLAB_SKIPPED` names, so that the end of a run can count them: `cargo test` shows nothing of what a passed test prints.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Debian's packages, with the programs whose names differ from theirs.
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

/// Whether a program can be found; those of the administrator count, too.
pub fn has_tool(name: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':').chain(["/usr/sbin", "/sbin"]).any(|folder| Path::new(folder).join(name).exists())
}

/// Whether these programs are there; where one is not, the test is to be skipped.
pub fn has_tools(names: &[&str]) -> bool {
    let Some(missing) = names.iter().find(|name| !has_tool(name)) else { return true };
    let package = PACKAGES.iter().find(|(_, tools)| tools.contains(missing));
    skip(missing, &format!("apt-get install {}", package.map_or(*missing, |(package, _)| package)));
    false
}

/// Whether the test runs as root; it is to be skipped where not.
pub fn has_root() -> bool {
    let is_root = fs::metadata("/proc/self").is_ok_and(|of_us| of_us.uid() == 0);
    if !is_root {
        skip("root", "run the tests with sudo");
    }
    is_root
}

/// A real trace in the folder that `EMMCLAB_TRACES` names, or else in `../shared/traces` beside the repository; where it is not
/// there, the test is to be skipped.
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

/// Says that the test is skipped and why: what is missing, and the command that brings it. A failure where `CI=true`.
pub fn skip(missing: &str, command: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{missing} is missing, and CI=true; {command}");
    skip_always(missing, command);
}

/// As [`skip`], of what not every machine of the continuous integration can have: a guest, a driver of the kernel.
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
