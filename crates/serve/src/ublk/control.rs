//! Commands on `/dev/ublk-control` that create, start, stop and delete ublk devices, and the removal of devices that a killed process left
//! behind. Constants and layouts of the interface of `ublk_drv` (`linux/ublk_cmd.h`), in the byte order of the machine.

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

use crate::device::BlockDeviceLimits;

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
        let entry = opcode::UringCmd80::new(Fd(self.file.as_raw_fd()), number).cmd(control(device, buffer, value)).build();
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

/// Size of `struct ublksrv_ctrl_cmd` in bytes.
const CONTROL_BYTES: usize = 32;
/// Size of `struct ublksrv_io_cmd` in bytes.
pub(super) const IO_BYTES: usize = 16;
pub(super) const DESCRIPTION_BYTES: usize = 24;
/// `UBLK_MAX_QUEUE_DEPTH`. The mapped file has space for this number of descriptions for each queue.
pub(super) const MOST_DEPTH: u16 = 4096;
/// `UBLK_F_CMD_IOCTL_ENCODE`: commands have the numbers of ioctls (Linux 6.4 and later).
pub(super) const IOCTL_NUMBERS: u64 = 1 << 6;

/// A command on `/dev/ublk-control`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UblkControlCommand {
    GetInfo = 0x02,
    Add = 0x04,
    Delete = 0x05,
    Start = 0x06,
    Stop = 0x07,
    SetParameters = 0x08,
}

/// A command on `/dev/ublkcN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UblkIoCommand {
    Fetch = 0x20,
    CommitAndFetch = 0x21,
}

/// The number of an ioctl of type `u` (`_IOC` of linux/ioctl.h) that reads data from the kernel and, with `writes`, also writes data to it.
const fn ioctl(number: u32, bytes: usize, writes: bool) -> u32 {
    (2 | writes as u32) << 30 | (bytes as u32) << 16 | (b'u' as u32) << 8 | number
}

impl UblkControlCommand {
    /// The number of the command, for a kernel that uses ioctl numbers or for an older kernel.
    pub(super) const fn number(self, ioctl_numbers: bool) -> u32 {
        let writes = !matches!(self, Self::GetInfo);
        if ioctl_numbers { ioctl(self as u32, CONTROL_BYTES, writes) } else { self as u32 }
    }
}

impl UblkIoCommand {
    /// Like [`UblkControlCommand::number`].
    pub(super) const fn number(self, ioctl_numbers: bool) -> u32 {
        if ioctl_numbers { ioctl(self as u32, IO_BYTES, true) } else { self as u32 }
    }
}

/// Encodes `struct ublksrv_ctrl_cmd` in the 80 bytes of a ring entry: device, buffer (address and length), and a value.
pub(super) fn control(device: u32, buffer: (u64, u16), value: u64) -> [u8; 80] {
    let mut bytes = [0; 80];
    bytes[..4].copy_from_slice(&device.to_ne_bytes());
    // The queue number `u16::MAX` means that the command is not for a specific queue.
    bytes[4..6].copy_from_slice(&u16::MAX.to_ne_bytes());
    bytes[6..8].copy_from_slice(&buffer.1.to_ne_bytes());
    bytes[8..16].copy_from_slice(&buffer.0.to_ne_bytes());
    bytes[16..24].copy_from_slice(&value.to_ne_bytes());
    bytes
}

/// Encodes `struct ublksrv_io_cmd`.
pub(super) fn io(queue: u16, tag: u16, result: i32, address: u64) -> [u8; IO_BYTES] {
    let mut bytes = [0; IO_BYTES];
    bytes[..2].copy_from_slice(&queue.to_ne_bytes());
    bytes[2..4].copy_from_slice(&tag.to_ne_bytes());
    bytes[4..8].copy_from_slice(&result.to_ne_bytes());
    bytes[8..].copy_from_slice(&address.to_ne_bytes());
    bytes
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|index| bytes.get(at + index).copied().unwrap_or_default())
}

/// `struct ublksrv_ctrl_dev_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UblkDeviceInfo {
    pub(super) queues: u16,
    pub(super) depth: u16,
    /// Maximum length of a read or write in bytes.
    pub(super) buffer_bytes: u32,
    /// N of `/dev/ublkbN`; `u32::MAX` requests a free number.
    pub(super) device: u32,
    /// Feature flags of the driver.
    pub(super) flags: u64,
    /// A number chosen by the server, which the driver stores (`ublksrv_flags`).
    pub(super) token: u64,
}

impl UblkDeviceInfo {
    pub(super) const BYTES: usize = 64;

    pub(super) fn bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..2].copy_from_slice(&self.queues.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.depth.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.buffer_bytes.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.device.to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.flags.to_ne_bytes());
        bytes[32..40].copy_from_slice(&self.token.to_ne_bytes());
        bytes
    }

    pub(super) fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            queues: u16::from_ne_bytes(field(bytes, 0)),
            depth: u16::from_ne_bytes(field(bytes, 2)),
            buffer_bytes: u32::from_ne_bytes(field(bytes, 8)),
            device: u32::from_ne_bytes(field(bytes, 12)),
            flags: u64::from_ne_bytes(field(bytes, 24)),
            token: u64::from_ne_bytes(field(bytes, 32)),
        }
    }
}

/// `struct ublk_params` with basic and discard parameters, derived from the limits of the device.
pub(super) fn parameters(limits: &BlockDeviceLimits, buffer_bytes: u32) -> [u8; 64] {
    /// Attributes of a disk with a volatile cache: `UBLK_ATTR_VOLATILE_CACHE` and `UBLK_ATTR_FUA`. The kernel sends no flushes to other
    /// disks.
    const CACHED: u32 = 1 << 2 | 1 << 3;
    const SECTOR_SHIFT: u32 = 9;
    let page_shift = SECTOR_SHIFT + limits.preferred_sectors.max(1).ilog2();
    // File systems do not support physical blocks larger than a memory page.
    let shifts = [SECTOR_SHIFT, page_shift.min(12), page_shift, page_shift];
    let granularity = limits.discard_sectors.clamp(1, u32::MAX >> SECTOR_SHIFT);
    // Longer discards are split at multiples of the discard granularity.
    let most = (limits.max_sectors / granularity * granularity).max(1);
    let mut bytes = [0; 64];
    let mut put = |at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    put(0, 64);
    // Types of the parameters that follow: UBLK_PARAM_TYPE_BASIC and UBLK_PARAM_TYPE_DISCARD.
    put(4, 1 | 1 << 1);
    put(8, if limits.write_cache { CACHED } else { 0 });
    put(16, buffer_bytes >> SECTOR_SHIFT);
    put(44, granularity << SECTOR_SHIFT);
    put(48, most);
    put(52, most);
    // Each discard request contains a single range of sectors.
    bytes[56..58].copy_from_slice(&1_u16.to_ne_bytes());
    bytes[12..16].copy_from_slice(&shifts.map(|shift| shift as u8));
    bytes[24..32].copy_from_slice(&limits.sectors.to_ne_bytes());
    bytes
}

/// `struct ublksrv_io_desc`: a request of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UblkIoDescriptor {
    /// Operation of the request, one of `UBLK_IO_OP_*`.
    pub(super) operation: u8,
    /// Flags of the request, `UBLK_IO_F_*`.
    pub(super) flags: u32,
    pub(super) sectors: u32,
    pub(super) sector: u64,
}

impl UblkIoDescriptor {
    pub(super) const READ: u8 = 0;
    pub(super) const WRITE: u8 = 1;
    pub(super) const FLUSH: u8 = 2;
    pub(super) const DISCARD: u8 = 3;
    pub(super) const WRITE_ZEROES: u8 = 5;
    pub(super) const META: u32 = 1 << 11;
    pub(super) const FUA: u32 = 1 << 13;
    /// Flag of a write-zeroes request: the sectors stay allocated.
    pub(super) const NO_UNMAP: u32 = 1 << 15;

    pub(super) fn parse(bytes: &[u8; DESCRIPTION_BYTES]) -> Self {
        let word = u32::from_ne_bytes(field(bytes, 0));
        Self {
            operation: word as u8,
            flags: word & !0xff,
            sectors: u32::from_ne_bytes(field(bytes, 4)),
            sector: u64::from_ne_bytes(field(bytes, 8)),
        }
    }

    /// Number of bytes in the buffer of the request; 0 if it has no data.
    pub(super) fn data_bytes(&self) -> usize {
        match self.operation {
            Self::READ | Self::WRITE => self.sectors as usize * crate::SECTOR,
            _ => 0,
        }
    }
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

    #[test]
    fn numbers_are_those_of_the_kernels_header() {
        assert_eq!(UblkControlCommand::Add.number(true), 0xc020_7504);
        assert_eq!(UblkControlCommand::GetInfo.number(true), 0x8020_7502);
        assert_eq!(UblkControlCommand::Delete.number(false), 5);
        assert_eq!(UblkIoCommand::Fetch.number(true), 0xc010_7520);
        assert_eq!(UblkIoCommand::CommitAndFetch.number(false), 0x21);
    }

    #[test]
    fn the_token_and_the_number_of_a_device_come_back() {
        let info = UblkDeviceInfo { queues: 2, depth: 64, buffer_bytes: 1 << 19, device: 7, flags: 1 << 6, token: u64::MAX - 3 };
        assert_eq!(UblkDeviceInfo::parse(&info.bytes()), info);
    }

    #[test]
    fn a_cut_discard_cuts_no_unit_and_physical_blocks_are_at_most_a_page() {
        let limits = BlockDeviceLimits {
            sectors: 1 << 20,
            preferred_sectors: 32,
            max_sectors: 1000,
            discard_sectors: 24,
            write_cache: false,
        };
        let bytes = parameters(&limits, 1 << 18);
        let word = |at| u32::from_ne_bytes(field(&bytes, at));
        assert_eq!((word(8), word(16), word(44), word(48), word(52)), (0, 512, 24 * 512, 984, 984));
        assert_eq!(bytes[12..16], [9, 12, 14, 14]);
        let cached = parameters(&BlockDeviceLimits { write_cache: true, ..limits }, 1 << 18);
        assert_eq!(u32::from_ne_bytes(field(&cached, 8)), 0b1100);
    }

    #[test]
    fn a_description_is_read_field_by_field() {
        let mut bytes = [0; DESCRIPTION_BYTES];
        bytes[..4].copy_from_slice(&(1 | UblkIoDescriptor::FUA | UblkIoDescriptor::META).to_ne_bytes());
        bytes[4..8].copy_from_slice(&8_u32.to_ne_bytes());
        bytes[8..16].copy_from_slice(&(1_u64 << 33).to_ne_bytes());
        let parsed = UblkIoDescriptor::parse(&bytes);
        let flags = UblkIoDescriptor::FUA | UblkIoDescriptor::META;
        assert_eq!(parsed, UblkIoDescriptor { operation: UblkIoDescriptor::WRITE, flags, sectors: 8, sector: 1 << 33 });
        assert_eq!(parsed.data_bytes(), 4096);
    }
}
