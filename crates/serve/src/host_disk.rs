//! Provides the device as a block device of this host, on which file systems can be created and mounted.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use emmclab_base::{Error, ErrorClass, Result};

use crate::device::BlockDevice;
use crate::fuse::FuseFile;
use crate::host_programs::Supervisor;
use crate::ublk::{UblkDevice, UblkOptions};
use crate::{SECTOR, host_programs};

/// The driver of the kernel that provides the block device.
enum HostDiskDriver {
    /// A loop device that is attached to this file.
    Loop(FuseFile),
    Ublk(UblkDevice),
}

impl HostDiskDriver {
    fn supervisor(&mut self) -> &mut Supervisor {
        match self {
            Self::Loop(file) => &mut file.supervisor,
            Self::Ublk(ublk) => &mut ublk.supervisor,
        }
    }
}

/// A block device of this host, as `/dev/loopN` or `/dev/ublkbN`. It needs root; without root, use [`FuseFile`] or NBD.
///
/// Requests up to 512 KiB or the limit of the device are not split. A device without a volatile cache receives no flushes. FUA is
/// passed on by a ublk device; a loop device sends a flush after the write instead.
///
/// The file systems are unmounted and the block device is removed by [`Self::stop`], when this is dropped, and when the process
/// ends, also by SIGKILL. SIGKILL is like a power cut: data that was not written back is lost.
///
/// ```no_run
/// # fn main() -> emmclab_base::Result<()> {
/// use std::process::Command;
/// use std::sync::Arc;
///
/// use emmclab_serve::{FuseFile, HostDisk, LinuxFileSystem, LinuxMountOptions, LoopOptions, MemoryDevice, MkfsOptions};
///
/// let file = FuseFile::start(Arc::new(MemoryDevice::new(1 << 20)))?;
/// let mut disk = HostDisk::on_loop(file, &LoopOptions::default())?;
/// println!("{}", disk.path().display()); // /dev/loop0
/// disk.mkfs(&MkfsOptions::new(LinuxFileSystem::named("ext4")?))?;
/// disk.mount(&LinuxMountOptions::at("/mnt/phone"))?;
/// let status = disk.run(Command::new("cp").args(["-r", "/etc", "/mnt/phone"]))?;
/// assert!(status.success());
/// disk.stop()
/// # }
/// ```
pub struct HostDisk {
    driver: HostDiskDriver,
    device: PathBuf,
    /// Mount points, in the order of mounting.
    mounts: Vec<PathBuf>,
    patience: Duration,
    attached: bool,
}

impl HostDisk {
    /// Attaches a free loop device to the file.
    /// Errors: without root, without loop devices, or if the kernel does not support direct I/O on the file.
    pub fn on_loop(file: FuseFile, options: &LoopOptions) -> Result<Self> {
        check(&file, options)?;
        let limits = file.limits();
        let device = attach(&file.path(), options.block_bytes, options.partitions)?;
        let longest = file.longest_request();
        let disk =
            Self { driver: HostDiskDriver::Loop(file), device, mounts: Vec::new(), patience: options.patience, attached: true };
        if !fs::read_to_string(attributes(&disk.device).join("loop/dio")).is_ok_and(|value| value.trim() == "1") {
            // Without direct I/O on the loop device, reads and writes would go through the page cache of its file.
            return Err(Error::new(ErrorClass::Unsupported, "the kernel refuses direct I/O on the loop device")
                .in_file(&disk.device)
                .hint("serve the device with blocks of 4096 bytes"));
        }
        // The maximum request size and the cache mode must be set, because the kernel keeps the values of the previous user of the loop
        // device. Flushes are sent only if the cache is volatile.
        set(&disk.device, "queue/max_sectors_kb", &(longest.min(LONGEST_BYTES) / 1024).to_string())?;
        set(&disk.device, "queue/write_cache", if limits.write_cache { "write back" } else { "write through" })?;
        if let Some(bytes) = options.dirty_bytes {
            let refused = |error: Error| error.hint("use Linux 6.2 or later, which can limit the dirty data of one disk");
            set(&disk.device, "bdi/strict_limit", "1").map_err(refused)?;
            set(&disk.device, "bdi/max_bytes", &bytes.to_string()).map_err(refused)?;
        }
        // Linux takes a loop device for a rotating disk: its allocator and read-ahead would not be those of flash. The window of read-ahead
        // is set last, because a change of the limits above raises it. A later user of the device gets the defaults of the kernel.
        set(&disk.device, "queue/rotational", "0")?;
        set(&disk.device, "queue/read_ahead_kb", &options.readahead_kb.to_string())?;
        Ok(disk)
    }

    /// Creates a ublk device.
    /// Errors: without root, without the driver `ublk_drv`, or if the driver rejects the options.
    pub fn on_ublk(device: &Arc<dyn BlockDevice>, options: &UblkOptions) -> Result<Self> {
        let ublk = UblkDevice::start(device, options)?;
        let (device, patience) = (ublk.path(), options.patience);
        Ok(Self { driver: HostDiskDriver::Ublk(ublk), device, mounts: Vec::new(), patience, attached: true })
    }

    /// The path of the block device.
    pub fn path(&self) -> &Path {
        &self.device
    }

    /// Returns the path of a partition, or of the whole device if `partition` is `None`.
    fn part(&self, partition: Option<u32>) -> Result<PathBuf> {
        let Some(number) = partition else { return Ok(self.device.clone()) };
        let mut path = self.device.clone().into_os_string();
        path.push(format!("p{number}"));
        let path = PathBuf::from(path);
        if path.exists() {
            return Ok(path);
        }
        Err(Error::new(ErrorClass::Config, "the device has no partition with this number")
            .in_file(&path)
            .hint("attach the loop device with partitions, and check that the kernel supports this kind of partition table"))
    }

    /// Makes the kernel present a range of the device as a partition; no partition table is needed.
    /// Errors: if the partition number or the range is in use, or the range is not on the device.
    pub fn add_partition(&self, number: u32, first_sector: u64, sectors: u64) -> Result<()> {
        let mut command = host_programs::tool("addpart", "util-linux")?;
        command.arg(&self.device).args([number.to_string(), first_sector.to_string(), sectors.to_string()]);
        host_programs::run(ErrorClass::Io, command).map(drop)
    }

    /// Creates a file system.
    /// Errors: if the tool is missing or fails, or data would be overwritten without [`MkfsOptions::overwrite`].
    pub fn mkfs(&self, mkfs: &MkfsOptions) -> Result<()> {
        mkfs.make(&self.part(mkfs.partition)?)
    }

    /// Mounts a file system at a folder. A missing folder is created, and removed at the end.
    /// Errors: if `mount` fails.
    pub fn mount(&mut self, options: &LinuxMountOptions) -> Result<()> {
        let device = self.part(options.partition)?;
        refuse_files(&options.folder()?)?;
        self.driver.supervisor().make_folder(&options.folder()?)?;
        self.mounts.push(mount(&device, options)?);
        Ok(())
    }

    /// The mount points, in the order of mounting.
    pub fn mounts(&self) -> &[PathBuf] {
        &self.mounts
    }

    /// Runs a command to its end, with the standard streams that it sets (by default those of this process). `EMMCLAB_DEVICE` in
    /// its environment is the block device, `EMMCLAB_MOUNT` the last mount point.
    /// Errors: if the command cannot be started, or the caller is interrupted ([`emmclab_base::interrupt`]); then the command is ended.
    pub fn run(&mut self, command: &mut Command) -> Result<ExitStatus> {
        command.env("EMMCLAB_DEVICE", &self.device);
        if let Some(folder) = self.mounts.last() {
            command.env("EMMCLAB_MOUNT", folder);
        }
        let program = PathBuf::from(command.get_program());
        let child = self.driver.supervisor().start_supervised(command, Command::spawn);
        let failed = |error| Error::io(&program, error);
        host_programs::interruptible(child.map_err(failed)?, |mut child| child.wait())?.map_err(failed)
    }

    /// Unmounts the file systems in reverse order, which writes their data to the device.
    /// Errors: if processes keep a file system busy for longer than the patience of the options, with their names. The file system stays
    /// mounted.
    pub fn unmount(&mut self) -> Result<()> {
        while let Some(folder) = self.mounts.last() {
            unmount(folder, self.patience)?;
            self.mounts.pop();
        }
        Ok(())
    }

    /// Unmounts the file systems and removes the block device. A busy file system is written back and detached; later operations
    /// of the processes that use it fail.
    /// Errors: if processes kept a file system busy, with their names. The file systems and the device are removed in this case, too.
    pub fn stop(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.attached) {
            return Ok(());
        }
        let unmounted = self.unmount();
        let free = unmounted.is_ok();
        for folder in self.mounts.drain(..) {
            write_back(&folder);
        }
        let removed = match &mut self.driver {
            HostDiskDriver::Loop(file) => {
                // A busy loop device is not detached here. It is removed when its file is removed.
                let detached = if free { detach(&self.device, &file.path()) } else { Ok(()) };
                let stopped = file.end();
                detached.and(stopped)
            }
            HostDiskDriver::Ublk(ublk) => ublk.end(),
        };
        unmounted.and(removed)
    }
}

impl Drop for HostDisk {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// A file system that can be created and mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinuxFileSystem {
    /// ext4.
    Ext4,
    /// XFS, on at least 300 MB.
    Xfs,
    /// Btrfs, on at least 109 MiB.
    Btrfs,
    /// F2FS. Mounting requires support by the kernel.
    F2fs,
    /// FAT. Mounting requires support by the kernel.
    Vfat,
}

impl LinuxFileSystem {
    /// All supported file systems.
    pub const ALL: [Self; 5] = [Self::Ext4, Self::Xfs, Self::Btrfs, Self::F2fs, Self::Vfat];

    /// The name that `mount -t` takes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::F2fs => "f2fs",
            Self::Vfat => "vfat",
        }
    }

    /// The file system with this name.
    /// Errors: if there is no file system with this name; the error lists the names.
    pub fn named(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::new(ErrorClass::Config, format!("no file system is named `{name}`")).hint(format!("use one of {names}"))
        })
    }

    /// The package of the mkfs tool, and arguments with which the tool is quiet, overwrites existing data and accepts a whole disk.
    const fn tool(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Ext4 => ("e2fsprogs", &["-q", "-F"]),
            Self::Xfs => ("xfsprogs", &["-q", "-f"]),
            Self::Btrfs => ("btrfs-progs", &["-q", "-f"]),
            Self::F2fs => ("f2fs-tools", &["-q", "-f"]),
            Self::Vfat => ("dosfstools", &["-I"]),
        }
    }
}

/// A file system to create.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// The file system.
    pub file_system: LinuxFileSystem,
    /// Additional arguments of the mkfs tool.
    pub options: Vec<OsString>,
    /// Whether an existing file system or partition table may be overwritten.
    pub overwrite: bool,
    /// Number of the partition, from 1; `None` for the whole device.
    pub partition: Option<u32>,
}

impl MkfsOptions {
    /// Describes a file system with the defaults of the tool, on the whole device; existing data is not overwritten.
    pub const fn new(file_system: LinuxFileSystem) -> Self {
        Self { file_system, options: Vec::new(), overwrite: false, partition: None }
    }

    /// Creates the file system on a block device with mkfs.
    fn make(&self, device: &Path) -> Result<()> {
        let kind = self.file_system;
        let (package, arguments) = kind.tool();
        let mut command = host_programs::tool(&format!("mkfs.{}", kind.name()), package)?;
        if !self.overwrite
            && let Some(contents) = existing_signature(device)?
        {
            let problem = format!("the device contains {contents}, which a new {} would overwrite", kind.name());
            return Err(Error::new(ErrorClass::Config, problem).in_file(device).hint("overwrite the device with --overwrite"));
        }
        command.args(arguments).args(&self.options).arg(device);
        host_programs::run(ErrorClass::Config, command).map(drop)
    }
}

/// What a device contains according to its signatures; `None` if no signature was found.
fn existing_signature(device: &Path) -> Result<Option<String>> {
    let mut command = host_programs::tool("blkid", "util-linux")?;
    command.args(["--probe", "--output", "export"]).arg(device);
    let output = match host_programs::run(ErrorClass::Io, command) {
        Ok(output) => output,
        // blkid exits with status 2 if the device has no signature.
        Err(error) if error.to_string().contains("exit status: 2") => return Ok(None),
        Err(error) => return Err(error),
    };
    let value = |key: &str| output.lines().find_map(|line| line.strip_prefix(key)).map(str::to_owned);
    let table = value("PTTYPE=").map(|kind| format!("a partition table ({kind})"));
    Ok(value("TYPE=").or(table).or_else(|| Some("several signatures".to_owned())))
}

/// Maximum number of attempts to get a free loop device, because another process may take it first.
const ATTEMPTS: u32 = 200;
/// Time limit for a loop device to release its file.
const DETACH: Duration = Duration::from_secs(5);
const BETWEEN: Duration = Duration::from_millis(20);
/// Maximum length of a request of a loop device, in bytes: 128 segments, in the worst case a page of 4096 bytes each. Longer requests would
/// be split at offsets that depend on the location of the pages.
const LONGEST_BYTES: u32 = 512 << 10;

/// The window of read-ahead of Linux for a disk that states none (`VM_READAHEAD_PAGES`), in KB.
const READAHEAD_KB: u32 = 128;

/// Options of a loop device.
#[derive(Clone, Debug)]
pub struct LoopOptions {
    /// Logical block size: 512, 1024, 2048 or 4096 bytes.
    pub block_bytes: u32,
    /// Whether the kernel looks for partitions (`/dev/loopNp1` ...).
    pub partitions: bool,
    /// Maximum amount of the loop device's dirty data in the page cache of the host, in bytes; `None` for the limit of the host.
    pub dirty_bytes: Option<u64>,
    /// Largest window of read-ahead, in KB.
    pub readahead_kb: u32,
    /// How long unmounting waits for processes that use a file system.
    pub patience: Duration,
}

impl Default for LoopOptions {
    fn default() -> Self {
        Self {
            block_bytes: 512,
            partitions: false,
            dirty_bytes: None,
            readahead_kb: READAHEAD_KB,
            patience: Duration::from_secs(10),
        }
    }
}

/// The folder of a loop device in `/sys/block`.
fn attributes(device: &Path) -> PathBuf {
    Path::new("/sys/block").join(device.file_name().unwrap_or_default())
}

/// Sets an attribute of a block device.
fn set(device: &Path, attribute: &str, value: &str) -> Result<()> {
    let path = attributes(device).join(attribute);
    fs::write(&path, value).map_err(|error| Error::io(&path, error))
}

/// Checks that a loop device for this file can have these options.
fn check(file: &FuseFile, options: &LoopOptions) -> Result<()> {
    let block = options.block_bytes;
    if !rustix::process::geteuid().is_root() {
        return Err(Error::new(ErrorClass::Unsupported, "a loop device needs root")
            .hint("run emmclab as root, or use the FUSE file without a loop device"));
    }
    if !matches!(block, 512 | 1024 | 2048 | 4096) {
        return Err(Error::new(ErrorClass::Config, format!("a loop device cannot have blocks of {block} bytes"))
            .hint("choose a block size of 512, 1024, 2048 or 4096 bytes"));
    }
    let sectors = file.limits().sectors;
    if sectors == 0 || !sectors.is_multiple_of(u64::from(block) / SECTOR as u64) {
        let problem = format!("{sectors} sectors of 512 bytes are not a whole number of blocks of {block} bytes");
        return Err(Error::new(ErrorClass::Config, problem).hint("choose another device size or smaller blocks"));
    }
    Ok(())
}

/// Attaches a free loop device to the file, with direct I/O.
fn attach(file: &Path, block_bytes: u32, partitions: bool) -> Result<PathBuf> {
    let mut attempt = 1;
    loop {
        let mut command = host_programs::tool("losetup", "mount")?;
        command.args(["--find", "--show", "--direct-io=on", "--sector-size", &block_bytes.to_string()]);
        if partitions {
            command.arg("--partscan");
        }
        command.arg("--").arg(file);
        match host_programs::finish(command) {
            Ok(device) => return Ok(PathBuf::from(device)),
            Err(error) if attempt < ATTEMPTS && is_attach_race(&error) => std::thread::sleep(BETWEEN),
            Err(error) => return Err(error.hint("use a kernel that supports loop devices (CONFIG_BLK_DEV_LOOP)")),
        }
        attempt += 1;
    }
}

/// Whether another process took the free device, or the node of a new device does not exist yet.
fn is_attach_race(error: &Error) -> bool {
    let message = error.to_string();
    ["busy", "temporarily unavailable", "No such device", "No such file"].iter().any(|why| message.contains(why))
}

/// Detaches the device from the file and waits until the file is released.
fn detach(device: &Path, file: &Path) -> Result<()> {
    let backing = attributes(device).join("loop/backing_file");
    let held = || fs::read_to_string(&backing).is_ok_and(|path| Path::new(path.trim_end_matches('\n')) == file);
    if !held() {
        return Ok(());
    }
    // The kernel keeps these values for later users of the loop device, so the defaults are restored.
    set(device, "queue/write_cache", "write back")?;
    set(device, "queue/max_sectors_kb", "0")?;
    if attributes(device).join("bdi/strict_limit").exists() {
        set(device, "bdi/strict_limit", "0")?;
        set(device, "bdi/max_ratio", "100")?;
    }
    let mut command = host_programs::tool("losetup", "mount")?;
    command.arg("-d").arg(device);
    host_programs::finish(command)?;
    // A busy device is detached when it is closed. The request is not repeated, because it could detach a device that another process uses
    // by then.
    let until = Instant::now() + DETACH;
    while held() {
        if Instant::now() > until {
            return Err(Error::new(ErrorClass::Io, "the loop device is in use by another process")
                .in_file(device)
                .hint("end the process that uses the loop device, then detach the device: `losetup -d`"));
        }
        std::thread::sleep(BETWEEN);
    }
    Ok(())
}

const UNMOUNT_PAUSE: Duration = Duration::from_millis(50);

/// A file system to mount.
#[derive(Clone, Debug)]
pub struct LinuxMountOptions {
    /// The folder; its last component is created if it does not exist.
    pub folder: PathBuf,
    /// The file system; `None` to detect it by its signature.
    pub file_system: Option<LinuxFileSystem>,
    /// Options for `mount -o`.
    pub options: Option<String>,
    /// Number of the partition, from 1; `None` for the whole device.
    pub partition: Option<u32>,
}

impl LinuxMountOptions {
    /// Mounts the whole device at the folder, with default options.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), file_system: None, options: None, partition: None }
    }

    /// The folder as an absolute path, because the process that unmounts it has another working directory.
    fn folder(&self) -> Result<PathBuf> {
        std::path::absolute(&self.folder).map_err(|error| Error::io(&self.folder, error))
    }
}

/// Mounts a block device. Returns the folder as an absolute path without symbolic links, which is how the kernel lists it.
fn mount(device: &Path, options: &LinuxMountOptions) -> Result<PathBuf> {
    let folder = options.folder()?.canonicalize().map_err(|error| Error::io(&options.folder, error))?;
    let mut command = host_programs::tool("mount", "mount")?;
    if let Some(kind) = options.file_system {
        command.args(["-t", kind.name()]);
    }
    if let Some(options) = &options.options {
        command.args(["-o", options]);
    }
    command.arg("--").arg(device).arg(&folder);
    host_programs::run(ErrorClass::Config, command).map_err(|error| {
        error.hint(
            "check that it contains a file system that this kernel supports (/proc/filesystems); `emmclab crash --guest KERNEL` mounts with \
             another kernel",
        )
    })?;
    Ok(folder)
}

/// Returns an error if the folder is not empty, because the mount would hide its files. After a server was killed, a program may have
/// written files to the folder instead of the disk.
fn refuse_files(folder: &Path) -> Result<()> {
    let mut entries = match folder.read_dir() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|error| Error::io(folder, error))?,
    };
    if entries.next().is_none() {
        return Ok(());
    }
    Err(Error::new(ErrorClass::Config, "the folder is not empty, and a mounted file system would hide its files")
        .in_file(folder)
        .hint("name an empty folder, or a new folder, which is removed again at the end"))
}

/// Unmounts the file system; repeats this while it is busy, until `patience` has passed.
fn unmount(folder: &Path, patience: Duration) -> Result<()> {
    let until = Instant::now() + patience;
    loop {
        let mut command = host_programs::tool("umount", "mount")?;
        command.arg("--").arg(folder);
        match host_programs::finish(command) {
            Ok(_) => return Ok(()),
            // Another process has already unmounted the file system.
            Err(error) if error.to_string().contains("not mounted") => return Ok(()),
            Err(error) if Instant::now() > until => return Err(host_programs::name_holders_in(error, folder)),
            Err(_) => std::thread::sleep(UNMOUNT_PAUSE),
        }
    }
}

/// Writes back a file system that stays mounted.
fn write_back(folder: &Path) {
    if let Ok(mut command) = host_programs::tool("sync", "coreutils") {
        command.arg("--file-system").arg(folder);
        // An error is ignored here, because the later unmount reports it.
        let _ = host_programs::finish(command);
    }
}
