//! Remains of a ublk device once its disk is gone: mounts, and after a kill the device itself.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use emmclab_base::{Error, Result};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::control::{Control, PATH};

/// Time for processes to close a disk that is gone. Tools that look at new disks do so for a moment.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// A path in `/proc/self/mountinfo`, where a blank or a backslash is a backslash and three octal digits.
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

/// Mount points of the disk and its partitions in the table, the last mounted first.
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

/// Takes the file systems of a disk that is gone away; processes that use them get errors.
pub(super) fn unmount_all(device: u32) {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for point in mounts(&table, device) {
        // Another process may have been first.
        let _ = unmount(point, UnmountFlags::DETACH);
    }
}

/// Deletes the ublk devices that were made with this token by a process that was killed, with their mounts. The kernel removes
/// their disks by itself, but nothing else. See [`crate::UblkOptions::cleaner`].
///
/// # Errors
/// Where the driver cannot be asked.
pub fn delete_left_ublk(token: u64) -> Result<()> {
    let devices = fs::read_dir("/sys/class/ublk-char").into_iter().flatten().flatten();
    let devices = devices.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("ublkc")?.parse().ok());
    let devices: Vec<u32> = devices.collect();
    if devices.is_empty() {
        return Ok(());
    }
    let mut control = Control::open()?;
    for device in devices {
        if control.info(device).is_ok_and(|info| info.token == token) {
            // Deleting stops, too.
            let _ = control.stop(device);
            unmount_all(device);
            match control.delete(device, PATIENCE) {
                // A process that holds the disk keeps its number; the device is gone from this host all the same.
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
