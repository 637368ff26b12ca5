//! The device as a block device of this host, with file systems made and mounted on it.

mod file_system;
mod loop_device;
mod mounts;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use emmclab_base::{Error, Kind, Result};

pub use self::file_system::{FileSystem, Mkfs};
pub use self::loop_device::LoopOptions;
pub use self::mounts::MountOptions;
use crate::device::BlockDevice;
use crate::fuse::FuseFile;
use crate::programs;
use crate::supervisor::Supervisor;
use crate::ublk::{Ublk, UblkOptions};

/// The driver that makes the block device.
enum Driver {
    /// A loop device on this file.
    Loop(FuseFile),
    Ublk(Ublk),
}

impl Driver {
    fn supervisor(&mut self) -> &mut Supervisor {
        match self {
            Self::Loop(file) => file.supervisor(),
            Self::Ublk(ublk) => ublk.supervisor(),
        }
    }
}

/// A block device of this host, as `/dev/loopN` or `/dev/ublkbN`. Needs root; without it there are [`FuseFile`] and NBD.
///
/// Its requests come to the device whole, up to 512 KiB or the device's own limit. A device without a volatile cache gets no
/// flushes. On a loop device, FUA comes as a flush after the write; on a ublk device, as FUA.
///
/// Dropping it, [`Self::stop`] and the end of the process, also by SIGKILL, unmount the file systems and remove the block device.
/// After SIGKILL that is a power cut: what was not written back is lost.
///
/// ```no_run
/// # fn main() -> emmclab_base::Result<()> {
/// use std::process::Command;
/// use std::sync::Arc;
///
/// use emmclab_serve::{FileSystem, FuseFile, HostDisk, LoopOptions, MemoryDevice, Mkfs, MountOptions};
///
/// let file = FuseFile::start(Arc::new(MemoryDevice::new(1 << 20)))?;
/// let mut disk = HostDisk::on_loop(file, &LoopOptions::default())?;
/// println!("{}", disk.path().display()); // /dev/loop0
/// disk.mkfs(&Mkfs::new(FileSystem::named("ext4")?))?;
/// disk.mount(&MountOptions::at("/mnt/phone"))?;
/// let status = disk.run(Command::new("cp").args(["-r", "/etc", "/mnt/phone"]))?;
/// assert!(status.success());
/// disk.stop()
/// # }
/// ```
pub struct HostDisk {
    driver: Driver,
    device: PathBuf,
    /// Folders with file systems, in the order of mounting.
    mounts: Vec<PathBuf>,
    patience: Duration,
    attached: bool,
}

impl HostDisk {
    /// Attaches a free loop device to the file.
    ///
    /// # Errors
    /// Without root, without loop devices, or where the kernel refuses direct I/O.
    pub fn on_loop(file: FuseFile, options: &LoopOptions) -> Result<Self> {
        loop_device::check(&file, options)?;
        let limits = file.limits();
        let device = loop_device::attach(&file.path(), options.block_bytes, options.partitions)?;
        let longest = file.longest_request();
        let disk = Self {
            driver: Driver::Loop(file),
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
    /// Without root, without the driver `ublk_drv`, or where it refuses the options.
    pub fn on_ublk(device: &Arc<dyn BlockDevice>, options: &UblkOptions) -> Result<Self> {
        let ublk = Ublk::start(device, options)?;
        let (device, patience) = (ublk.path(), options.patience);
        Ok(Self { driver: Driver::Ublk(ublk), device, mounts: Vec::new(), patience, attached: true })
    }

    /// The block device.
    pub fn path(&self) -> &Path {
        &self.device
    }

    /// The block device of a partition, or the whole one.
    fn part(&self, partition: Option<u32>) -> Result<PathBuf> {
        let Some(number) = partition else { return Ok(self.device.clone()) };
        let mut path = self.device.clone().into_os_string();
        path.push(format!("p{number}"));
        let path = PathBuf::from(path);
        if path.exists() {
            return Ok(path);
        }
        Err(Error::new(Kind::Config, "there is no such partition").in_file(&path).hint(
            "a loop device shows them on request only; the kernel must know its kind of partition table",
        ))
    }

    /// Has the kernel show a part of the device as a partition, without a table on the device.
    ///
    /// # Errors
    /// Where the part is taken or does not lie on the device.
    pub fn add_partition(&self, number: u32, first_sector: u64, sectors: u64) -> Result<()> {
        let mut command = programs::tool("addpart", "util-linux")?;
        command.arg(&self.device).args([number.to_string(), first_sector.to_string(), sectors.to_string()]);
        programs::run(command).map(drop)
    }

    /// Makes a file system.
    ///
    /// # Errors
    /// Where its tool is missing or fails, or would overwrite something that [`Mkfs::overwrite`] does not give up.
    pub fn mkfs(&self, mkfs: &Mkfs) -> Result<()> {
        mkfs.make(&self.part(mkfs.partition)?)
    }

    /// Mounts a file system at a folder, which is made where it is missing, and removed again at the end.
    ///
    /// # Errors
    /// Where `mount` fails.
    pub fn mount(&mut self, options: &MountOptions) -> Result<()> {
        let device = self.part(options.partition)?;
        self.driver.supervisor().make_folder(&options.folder()?)?;
        self.mounts.push(mounts::mount(&device, options)?);
        Ok(())
    }

    /// The folders with file systems, in the order of mounting.
    pub fn mounts(&self) -> &[PathBuf] {
        &self.mounts
    }

    /// Runs a command with the streams that it names (this process's by default) to its end. It finds the block device in the
    /// environment as `EMMCLAB_DEVICE` and the last file system that was mounted as `EMMCLAB_MOUNT`.
    ///
    /// # Errors
    /// Where it cannot be started, and where the caller wants the work to end ([`emmclab_base::interrupt`]): then it is ended.
    pub fn run(&mut self, command: &mut Command) -> Result<ExitStatus> {
        self.driver.supervisor().own(command);
        command.env("EMMCLAB_DEVICE", &self.device);
        if let Some(folder) = self.mounts.last() {
            command.env("EMMCLAB_MOUNT", folder);
        }
        programs::run_for_user(command)
    }

    /// Unmounts the file systems, the last first. Their data is written to the device before this returns.
    ///
    /// # Errors
    /// Names the processes that keep one busy for longer than the patience of the options; it stays mounted then.
    pub fn unmount(&mut self) -> Result<()> {
        while let Some(folder) = self.mounts.last() {
            mounts::unmount(folder, self.patience)?;
            self.mounts.pop();
        }
        Ok(())
    }

    /// Unmounts the file systems and removes the block device. A file system that stays busy is written back and taken away
    /// from the processes that use it, which get errors from then on.
    ///
    /// # Errors
    /// Names those processes; nothing is left behind all the same.
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
            Driver::Loop(file) => {
                // A busy one goes with the file.
                let detached = if free { loop_device::detach(&self.device, &file.path()) } else { Ok(()) };
                let stopped = file.end();
                detached.and(stopped)
            }
            Driver::Ublk(ublk) => ublk.end(),
        };
        unmounted.and(removed)
    }
}

impl Drop for HostDisk {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
