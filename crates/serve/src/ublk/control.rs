//! Commands on `/dev/ublk-control` that create, start, stop and delete ublk devices, and the removal of devices that a killed
//! process left behind.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use emmclab_base::{Error, ErrorClass, Result};
use io_uring::squeue::Entry128;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::abi::{self, IOCTL_NUMBERS, UblkControlCommand, UblkDeviceInfo};

/// The result of a command; the error is an errno.
type UblkResult<T> = std::result::Result<T, Errno>;

/// The device file for the commands.
pub(super) const PATH: &str = "/dev/ublk-control";
/// Interval at which the callback `gives_up` is called while a command runs.
const POLL: Timespec = Timespec::new().nsec(50_000_000);

fn ring() -> io::Result<IoUring<Entry128>> {
    IoUring::builder().build(4)
}

/// The error if `io_uring` cannot be used.
pub(super) fn no_ring(error: &io::Error) -> Error {
    let problem = format!("io_uring, which ublk needs, is not available: {error}");
    Error::new(ErrorClass::Unsupported, problem).hint("set `sysctl kernel.io_uring_disabled` to 0, or to 1 to allow only root")
}

/// The error if the kernel has no ublk or its module is not loaded.
fn no_ublk_error() -> Error {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Error::new(ErrorClass::Unsupported, format!("there is no {PATH}; this kernel is Linux {}", release.trim())).hint(
        "run `modprobe ublk_drv` as root; the driver needs Linux 6.0 or later with CONFIG_BLK_DEV_UBLK. A loop device needs neither",
    )
}

/// The connection to the ublk driver.
pub(super) struct UblkControl {
    ring: IoUring<Entry128>,
    file: File,
    /// Whether the driver expects ioctl numbers for its commands.
    ioctl_numbers: bool,
}

impl UblkControl {
    pub(super) fn open() -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(PATH).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => no_ublk_error(),
            _ => Error::io(Path::new(PATH), error),
        })?;
        Ok(Self { ring: ring().map_err(|error| no_ring(&error))?, file, ioctl_numbers: true })
    }

    /// Sends a command and waits until it is complete. If `gives_up` returns true first, the command is cancelled and the error is TIMEDOUT.
    #[expect(unsafe_code, reason = "the kernel is given the address of the buffer")]
    fn send(
        &mut self, command: UblkControlCommand, device: u32, buffer: Option<&mut [u8]>, value: u64,
        mut gives_up: impl FnMut() -> bool,
    ) -> UblkResult<()> {
        let bounded = buffer.is_none();
        let buffer = buffer.map_or((0, 0), |buffer| (buffer.as_mut_ptr().expose_provenance() as u64, buffer.len() as u16));
        let number = command.number(self.ioctl_numbers);
        let entry = opcode::UringCmd80::new(Fd(self.file.as_raw_fd()), number).cmd(abi::control(device, buffer, value)).build();
        // SAFETY: the file and the buffer outlive the command, because this function waits until a command with a buffer is complete.
        unsafe { self.ring.submission().push(&entry) }.map_err(|_| Errno::BUSY)?;
        loop {
            if let Some(done) = self.ring.completion().next() {
                return if done.result() < 0 { Err(Errno::from_raw_os_error(-done.result())) } else { Ok(()) };
            }
            if bounded && gives_up() {
                // The kernel ends pending commands when their ring is closed, so the ring is replaced.
                if let Ok(ring) = ring() {
                    self.ring = ring;
                }
                return Err(Errno::TIMEDOUT);
            }
            // An error of the wait, such as a signal or a timeout, does not mean that the command failed.
            let _ = self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&POLL));
        }
    }

    /// Creates a device; returns its parameters as adjusted by the driver.
    pub(super) fn add(&mut self, wanted: &UblkDeviceInfo) -> UblkResult<UblkDeviceInfo> {
        let mut bytes = wanted.bytes();
        let mut add = |this: &mut Self| this.send(UblkControlCommand::Add, wanted.device, Some(&mut bytes), 0, || false);
        if let Err(first) = add(self) {
            // Kernels before Linux 6.4 support only the old command numbers, and later kernels may not support them.
            self.ioctl_numbers = false;
            add(self).map_err(|errno| if errno == Errno::OPNOTSUPP { first } else { errno })?;
        }
        let info = UblkDeviceInfo::parse(&bytes);
        self.ioctl_numbers = info.flags & IOCTL_NUMBERS != 0;
        Ok(info)
    }

    /// The description of a device.
    pub(super) fn info(&mut self, device: u32) -> UblkResult<UblkDeviceInfo> {
        let mut bytes = [0; UblkDeviceInfo::BYTES];
        let mut info = |this: &mut Self| this.send(UblkControlCommand::GetInfo, device, Some(&mut bytes), 0, || false);
        if info(self).is_err() {
            self.ioctl_numbers = !self.ioctl_numbers;
            info(self)?;
        }
        Ok(UblkDeviceInfo::parse(&bytes))
    }

    pub(super) fn set_parameters(&mut self, device: u32, mut parameters: [u8; 64]) -> UblkResult<()> {
        self.send(UblkControlCommand::SetParameters, device, Some(&mut parameters), 0, || false)
    }

    /// Starts the disk when every queue of this process accepts requests; stops waiting if `gives_up` returns true.
    pub(super) fn start(&mut self, device: u32, gives_up: impl FnMut() -> bool) -> UblkResult<()> {
        self.send(UblkControlCommand::Start, device, None, u64::from(std::process::id()), gives_up)
    }

    /// Stops the disk and waits for the requests in the device.
    pub(super) fn stop(&mut self, device: u32) -> UblkResult<()> {
        self.send(UblkControlCommand::Stop, device, None, 0, || false)
    }

    /// Deletes the device. The error TIMEDOUT means that it is deleted, but its number is still in use because a process has its disk open.
    pub(super) fn delete(&mut self, device: u32, patience: Duration) -> UblkResult<()> {
        let until = Instant::now() + patience;
        self.send(UblkControlCommand::Delete, device, None, 0, || Instant::now() > until)
    }
}

/// Time that processes get to close a removed disk. Some tools briefly open every new disk to probe it.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Decodes a path of `/proc/self/mountinfo`, in which spaces and backslashes are encoded as a backslash and three octal digits.
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

/// Mount points of the disk and its partitions in the mount table, most recent first.
fn mounts(table: &str, device: u32) -> Vec<PathBuf> {
    let disk = format!("/dev/ublkb{device}");
    let of_disk = |source: &str| {
        let Some(rest) = source.strip_prefix(&disk) else { return false };
        let partition = |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        rest.is_empty() || rest.strip_prefix('p').is_some_and(partition)
    };
    let points = table.lines().filter_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        of_disk(file_system.split(' ').nth(1)?).then(|| mount.split(' ').nth(4)).flatten()
    });
    let mut points: Vec<_> = points.map(unescaped).collect();
    points.reverse();
    points
}

/// Detaches the file systems of a removed disk; later operations of processes that use them fail.
pub(super) fn unmount_all(device: u32) {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for point in mounts(&table, device) {
        // Another process may already have unmounted the file system.
        let _ = unmount(point, UnmountFlags::DETACH);
    }
}

/// Deletes the ublk devices that a killed process created with this token, and unmounts their file systems. The kernel itself
/// only removes the disks. See [`crate::UblkOptions::cleaner`].
/// Errors: if the driver cannot be reached.
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
            // Deleting a device also stops it, so errors of the stop command are ignored.
            let _ = control.stop(device);
            unmount_all(device);
            match control.delete(device, PATIENCE) {
                // If a process has the disk open, the device number stays in use, but the device is deleted.
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
