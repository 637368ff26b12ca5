//! Removes the remains of a ublk device whose disk has been removed: mounts, and the device itself after a kill.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use emmclab_base::{Error, Result};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::control::{PATH, UblkControl};

/// How long to wait for processes to close a removed disk. Tools open new disks for a moment to probe them.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Decodes a path of `/proc/self/mountinfo`, where a space or a backslash is a backslash and three octal digits.
fn unescaped(field: &str) -> PathBuf {
    let mut parts = field.split('\\');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let byte = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(byte.unwrap_or(b'\\'));
        bytes.extend_from_slice(&part.as_bytes()[if byte.is_some() { 3 } else { 0 }..]);
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Mount points of the disk and its partitions in the mount table, the last mounted first.
fn mounts(table: &str, device: u32) -> Vec<PathBuf> {
    let disk = format!("/dev/ublkb{device}");
    let of_disk = |source: &str| {
        let Some(rest) = source.strip_prefix(&disk) else { return false };
        let partition = |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        rest.is_empty() || rest.strip_prefix('p').is_some_and(partition)
    };
    let found = table.lines().filter_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        of_disk(file_system.split(' ').nth(1)?).then(|| mount.split(' ').nth(4)).flatten()
    });
    let mut found: Vec<_> = found.map(unescaped).collect();
    found.reverse();
    found
}

/// Detaches the file systems of a removed disk; processes that use them get errors.
pub(super) fn unmount_all(device: u32) {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for point in mounts(&table, device) {
        // Another process may have unmounted it before.
        let _ = unmount(point, UnmountFlags::DETACH);
    }
}

/// Deletes the ublk devices that a killed process made with this token, and their mounts. The kernel itself only removes the disks. See
/// [`crate::UblkOptions::cleaner`].
///
/// # Errors
/// If the driver cannot be reached.
pub fn delete_left_ublk(token: u64) -> Result<()> {
    let devices = fs::read_dir("/sys/class/ublk-char").into_iter().flatten().flatten();
    let devices = devices.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("ublkc")?.parse().ok());
    let devices: Vec<u32> = devices.collect();
    if devices.is_empty() {
        return Ok(());
    }
    let mut control = UblkControl::open()?;
    for device in devices {
        if control.info(device).is_ok_and(|info| info.token == token) {
            // Deleting also stops the device.
            let _ = control.stop(device);
            unmount_all(device);
            match control.delete(device, PATIENCE) {
                // A process that has the disk open keeps its number in use; the device is deleted all the same.
                Ok(()) | Err(Errno::TIMEDOUT | Errno::NODEV) => {}
                Err(errno) => return Err(Error::io(Path::new(PATH), errno.into())),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_a_disk_are_those_of_it_and_its_partitions() {
        let table = "36 1 259:0 / /mnt/a\\040b rw - ext4 /dev/ublkb1 rw\n\
            37 1 259:1 / /mnt/p rw shared:1 - vfat /dev/ublkb1p2 rw\n\
            38 1 259:2 / /mnt/x rw - ext4 /dev/ublkb10 rw\n\
            39 1 0:5 / /proc rw - proc proc rw\n";
        assert_eq!(mounts(table, 1), [PathBuf::from("/mnt/p"), PathBuf::from("/mnt/a b")]);
        assert!(mounts(table, 0).is_empty());
    }
}
