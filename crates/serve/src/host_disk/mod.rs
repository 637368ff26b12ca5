//! The device as a block device of this host, on which file systems can be made and mounted.

mod file_system;
mod loop_device;
mod mounts;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use emmclab_base::{Error, ErrorClass, Result};

pub use self::file_system::{LinuxFileSystem, MkfsOptions};
pub use self::loop_device::LoopOptions;
pub use self::mounts::LinuxMountOptions;
use crate::device::BlockDevice;
use crate::fuse::FuseFile;
use crate::host_programs;
use crate::supervisor::Supervisor;
use crate::ublk::{UblkDevice, UblkOptions};

/// The driver that provides the block device.
enum HostDiskDriver {
    /// A loop device on this file.
    Loop(FuseFile),
    Ublk(UblkDevice),
}

impl HostDiskDriver {
    fn supervisor(&mut self) -> &mut Supervisor {
        match self {
            Self::Loop(file) => file.supervisor(),
            Self::Ublk(ublk) => ublk.supervisor(),
        }
    }
}

/// A block device of this host, as `/dev/loopN` or `/dev/ublkbN`. It needs root; without root, use [`FuseFile`] or NBD.
///
/// Requests reach the device unsplit, up to 512 KiB or the device's own limit. A device without a volatile cache gets no flushes. On a loop
/// device, FUA arrives as a flush after the write; on a ublk device, as FUA.
///
/// When this is dropped, by [`Self::stop`], and when the process ends (also by SIGKILL), the file systems are unmounted and the block
/// device is removed. After SIGKILL this is like a power cut: data that was not written back is lost.
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
    ///
    /// # Errors
    /// Without root, without loop devices, or if the kernel refuses direct I/O.
    pub fn on_loop(file: FuseFile, options: &LoopOptions) -> Result<Self> {
        loop_device::check(&file, options)?;
        let limits = file.limits();
        let device = loop_device::attach(&file.path(), options.block_bytes, options.partitions)?;
        let longest = file.longest_request();
        let disk = Self {
            driver: HostDiskDriver::Loop(file),
            device,
            mounts: Vec::new(),
            patience: options.patience,
            attached: true,
        };
        loop_device::check_direct(&disk.device)?;
        loop_device::limit(&disk.device, longest, limits.write_cache)?;
        if let Some(bytes) = options.dirty_bytes {
            loop_device::limit_dirty(&disk.device, bytes)?;
        }
        Ok(disk)
    }

    /// Makes a ublk device.
    ///
    /// # Errors
    /// Without root, without the driver `ublk_drv`, or if the driver refuses the options.
    pub fn on_ublk(device: &Arc<dyn BlockDevice>, options: &UblkOptions) -> Result<Self> {
        let ublk = UblkDevice::start(device, options)?;
        let (device, patience) = (ublk.path(), options.patience);
        Ok(Self { driver: HostDiskDriver::Ublk(ublk), device, mounts: Vec::new(), patience, attached: true })
    }

    /// The path of the block device.
    pub fn path(&self) -> &Path {
        &self.device
    }

    /// The path of a partition, or of the whole device for `None`.
    fn part(&self, partition: Option<u32>) -> Result<PathBuf> {
        let Some(number) = partition else { return Ok(self.device.clone()) };
        let mut path = self.device.clone().into_os_string();
        path.push(format!("p{number}"));
        let path = PathBuf::from(path);
        if path.exists() {
            return Ok(path);
        }
        Err(Error::new(ErrorClass::Config, "there is no such partition").in_file(&path).hint(
            "a loop device shows partitions only on request, and the kernel must support its kind of partition table",
        ))
    }

    /// Makes the kernel present a range of the device as a partition, without a partition table on the device.
    ///
    /// # Errors
    /// If the partition number or the range is already in use, or if the range is not on the device.
    pub fn add_partition(&self, number: u32, first_sector: u64, sectors: u64) -> Result<()> {
        let mut command = host_programs::tool("addpart", "util-linux")?;
        command.arg(&self.device).args([number.to_string(), first_sector.to_string(), sectors.to_string()]);
        host_programs::run(command).map(drop)
    }

    /// Makes a file system.
    ///
    /// # Errors
    /// If the tool is missing or fails, or if it would overwrite something without [`MkfsOptions::overwrite`].
    pub fn mkfs(&self, mkfs: &MkfsOptions) -> Result<()> {
        mkfs.make(&self.part(mkfs.partition)?)
    }

    /// Mounts a file system at a folder. A missing folder is made, and removed again at the end.
    ///
    /// # Errors
    /// If `mount` fails.
    pub fn mount(&mut self, options: &LinuxMountOptions) -> Result<()> {
        let device = self.part(options.partition)?;
        mounts::refuse_files(&options.folder()?)?;
        self.driver.supervisor().make_folder(&options.folder()?)?;
        self.mounts.push(mounts::mount(&device, options)?);
        Ok(())
    }

    /// The mount points, in the order of mounting.
    pub fn mounts(&self) -> &[PathBuf] {
        &self.mounts
    }

    /// Runs a command to its end, with its own choice of standard streams (by default those of this process). The environment variable
    /// `EMMCLAB_DEVICE` names the block device, `EMMCLAB_MOUNT` the last mount point.
    ///
    /// # Errors
    /// If the command cannot be started, or if the caller is interrupted ([`emmclab_base::interrupt`]); the command is ended then.
    pub fn run(&mut self, command: &mut Command) -> Result<ExitStatus> {
        command.env("EMMCLAB_DEVICE", &self.device);
        if let Some(folder) = self.mounts.last() {
            command.env("EMMCLAB_MOUNT", folder);
        }
        let program = PathBuf::from(command.get_program());
        let child = self.driver.supervisor().start_supervised(command, Command::spawn);
        host_programs::wait_for_user(child.map_err(|error| Error::io(&program, error))?, &program)
    }

    /// Unmounts the file systems in reverse order. Their data is written to the device before this returns.
    ///
    /// # Errors
    /// Names the processes that keep a file system busy for longer than the patience of the options. The file system stays mounted then.
    pub fn unmount(&mut self) -> Result<()> {
        while let Some(folder) = self.mounts.last() {
            mounts::unmount(folder, self.patience)?;
            self.mounts.pop();
        }
        Ok(())
    }

    /// Unmounts the file systems and removes the block device. A file system that stays busy is written back and detached; processes that
    /// use it get errors from then on.
    ///
    /// # Errors
    /// Names those processes. The file systems and the device are removed even then.
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
            mounts::write_back(&folder);
        }
        let removed = match &mut self.driver {
            HostDiskDriver::Loop(file) => {
                // A busy loop device is removed together with the file.
                let detached = if free { loop_device::detach(&self.device, &file.path()) } else { Ok(()) };
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
