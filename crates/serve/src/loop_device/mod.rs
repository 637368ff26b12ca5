//! The device as a block device of this host: a loop device on the FUSE file, with file systems made and mounted on it.

mod attach;
mod file_system;
mod mounts;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use emmclab_base::{Error, Kind, Result};

pub use self::file_system::{FileSystem, Mkfs};
pub use self::mounts::MountOptions;
use crate::SECTOR;
use crate::fuse::FuseFile;
use crate::programs;

/// Properties of the loop device.
#[derive(Clone, Debug)]
pub struct LoopOptions {
    /// Logical block size: 512, 1024, 2048 or 4096 bytes.
    pub block_bytes: u32,
    /// Whether the kernel looks for partitions (`/dev/loopNp1` ...).
    pub partitions: bool,
    /// Most data in the host's page cache that is yet to be written to it; as the host has it without.
    pub dirty_bytes: Option<u64>,
    /// Time for processes to leave a file system before unmounting fails.
    pub patience: Duration,
}

impl Default for LoopOptions {
    fn default() -> Self {
        Self { block_bytes: 512, partitions: false, dirty_bytes: None, patience: Duration::from_secs(10) }
    }
}

/// A block device as `/dev/loopN`. Needs root; without it there is [`FuseFile`].
///
/// Its requests come to the device whole, up to 512 KiB or the device's own limit. FUA comes as a flush behind the
/// write. A device without a volatile cache gets no flushes.
///
/// Dropping it, [`Self::stop`] and the end of the process, also by SIGKILL, unmount the file systems, detach the loop device
/// and unmount the file. After SIGKILL that is a power cut: what was not written back is lost.
///
/// ```no_run
/// # fn main() -> emmclab_base::Result<()> {
/// use std::process::Command;
/// use std::sync::Arc;
///
/// use emmclab_serve::{FileSystem, FuseFile, LoopDisk, LoopOptions, MemoryDevice, Mkfs, MountOptions};
///
/// let file = FuseFile::start(Arc::new(MemoryDevice::new(1 << 20)))?;
/// let mut disk = LoopDisk::attach(file, &LoopOptions::default())?;
/// println!("{}", disk.path().display()); // /dev/loop0
/// disk.mkfs(&Mkfs::new(FileSystem::named("ext4")?))?;
/// disk.mount(&MountOptions::at("/mnt/phone"))?;
/// let status = disk.run(Command::new("cp").args(["-r", "/etc", "/mnt/phone"]))?;
/// assert!(status.success());
/// disk.stop()
/// # }
/// ```
pub struct LoopDisk {
    file: FuseFile,
    device: PathBuf,
    /// Folders with file systems, in the order of mounting.
    mounts: Vec<PathBuf>,
    patience: Duration,
    attached: bool,
}

impl LoopDisk {
    /// Attaches a free loop device to the file.
    ///
    /// # Errors
    /// Without root, without loop devices, or where the kernel refuses direct I/O.
    pub fn attach(file: FuseFile, options: &LoopOptions) -> Result<Self> {
        let block = options.block_bytes;
        if !rustix::process::geteuid().is_root() {
            return Err(Error::new(Kind::Unsupported, "a loop device needs root")
                .hint("run it as root, or use the FUSE file without a loop device"));
        }
        if !matches!(block, 512 | 1024 | 2048 | 4096) {
            return Err(Error::new(Kind::Config, format!("a loop device has no blocks of {block} bytes"))
                .hint("512, 1024, 2048 or 4096"));
        }
        let limits = file.limits();
        if limits.sectors == 0 || !limits.sectors.is_multiple_of(u64::from(block) / SECTOR as u64) {
            let problem = format!("{} sectors of 512 bytes are no whole blocks of {block}", limits.sectors);
            return Err(Error::new(Kind::Config, problem).hint("choose another size or smaller blocks"));
        }
        let device = attach::attach(&file.path(), block, options.partitions)?;
        let longest = file.longest_request();
        let disk = Self { file, device, mounts: Vec::new(), patience: options.patience, attached: true };
        if !attach::is_direct(&disk.device) {
            return Err(Error::new(Kind::Unsupported, "the kernel refuses direct I/O on the loop device")
                .in_file(&disk.device)
                .hint("blocks of 4096 bytes may help"));
        }
        attach::limit(&disk.device, longest, limits.write_cache)?;
        if let Some(bytes) = options.dirty_bytes {
            attach::limit_dirty(&disk.device, bytes)?;
        }
        Ok(disk)
    }

    /// The block device, `/dev/loopN`.
    pub fn path(&self) -> &Path {
        &self.device
    }

    /// The FUSE file below it.
    pub fn file(&self) -> &FuseFile {
        &self.file
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
        Err(Error::new(Kind::Config, "there is no such partition")
            .in_file(&path)
            .hint("attach it with partitions; the kernel must know its kind of partition table"))
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
        self.file.supervisor().make_folder(&options.folder()?)?;
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
    pub fn run(&self, command: &mut Command) -> Result<ExitStatus> {
        command.env("EMMCLAB_DEVICE", &self.device);
        if let Some(folder) = self.mounts.last() {
            command.env("EMMCLAB_MOUNT", folder);
        }
        programs::run_for_user(command)
    }

    /// Unmounts the file systems, the last first. Their data is written to the device before this returns.
    ///
    /// # Errors
    /// Names the processes that keep one busy beyond [`LoopOptions::patience`]; it stays mounted then.
    pub fn unmount(&mut self) -> Result<()> {
        while let Some(folder) = self.mounts.last() {
            mounts::unmount(folder, self.patience)?;
            self.mounts.pop();
        }
        Ok(())
    }

    /// Unmounts the file systems, detaches the loop device and unmounts the file. A file system that stays busy is written
    /// back and taken away from the processes that use it, which get errors from then on.
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
        let mut outcome = self.unmount();
        if outcome.is_err() {
            for folder in self.mounts.drain(..) {
                mounts::write_back(&folder);
            }
        } else {
            outcome = attach::detach(&self.device, &self.file.path());
        }
        // What is left goes with the file.
        let stopped = self.file.end();
        outcome.and(stopped)
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
