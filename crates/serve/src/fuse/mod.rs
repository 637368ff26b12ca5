//! The device as a file in a private folder, by FUSE. Any user can use it without root; loop devices are attached to it.

mod file_system;
mod pending;
mod requests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use emmclab_base::{Error, ErrorClass, Result};
use fuser::{BackgroundSession, Config, MountOption, Session};

use self::file_system::FuseFileSystem;
use self::pending::PendingFuseReplies;
use crate::device::{BlockDevice, BlockDeviceLimits};
use crate::host_programs;
use crate::mount_holders;
use crate::supervisor::Supervisor;

/// How long [`FuseFile::stop`] waits for other processes to close the file.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long to wait for the threads of an aborted connection.
const ABORTED: Duration = Duration::from_secs(5);

/// A block device as a file of its size, which only this user can open. Needs no root.
///
/// Reads and writes are passed directly to the device (direct I/O, nothing is cached), in requests of at most 1 MiB. `fsync` flushes,
/// `O_DSYNC` writes are durable (FUA), `fallocate` discards (`PUNCH_HOLE | KEEP_SIZE`) and zeroes (`ZERO_RANGE`), `SEEK_DATA` and
/// `SEEK_HOLE` report what is allocated. A write that is not aligned to sectors of 512 bytes first reads the sectors around it; discards
/// and zeroes of unaligned ranges fail with EINVAL.
///
/// The file is unmounted and its folder removed when this is dropped, by [`Self::stop`], and when the process ends, also by SIGKILL.
///
/// A thread of the serving process may use the file only while it does not hold a lock that the device needs (in Python: the interpreter
/// lock). If the process forked a child without exec, the folder is removed only when the child ends.
pub struct FuseFile {
    supervisor: Supervisor,
    session: Option<BackgroundSession>,
    pending: Arc<PendingFuseReplies>,
    limits: BlockDeviceLimits,
}

impl FuseFile {
    /// Serves the device as a file.
    ///
    /// # Errors
    /// If the host has no FUSE, or if there is no `fusermount3` and the user is not root.
    pub fn start(device: Arc<dyn BlockDevice>) -> Result<Self> {
        if !Path::new("/dev/fuse").exists() {
            return Err(
                Error::new(ErrorClass::Unsupported, "there is no /dev/fuse").hint("run `modprobe fuse` as root")
            );
        }
        let root = rustix::process::geteuid().is_root();
        if !root && host_programs::fusermount().is_none() {
            return Err(host_programs::missing("fusermount3", "fuse3"));
        }
        let limits = device.limits();
        let supervisor = Supervisor::start(&[])?;
        let pending = Arc::<PendingFuseReplies>::default();
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("emmclab".to_owned())];
        let file_system = FuseFileSystem::new(device, Arc::clone(&pending));
        let session = Session::new(file_system, supervisor.folder(), &config)
            .and_then(Session::spawn)
            .map_err(|error| Error::io(supervisor.folder(), error))?;
        Ok(Self { supervisor, session: Some(session), pending, limits })
    }

    /// The path of the file.
    pub fn path(&self) -> PathBuf {
        self.supervisor.folder().join(file_system::NAME)
    }

    /// Size and capabilities of the device.
    pub fn limits(&self) -> BlockDeviceLimits {
        self.limits
    }

    /// Maximum length of a read or write that reaches the device, in bytes.
    pub(crate) fn longest_request(&self) -> u32 {
        file_system::longest_request(&self.limits)
    }

    pub(crate) fn supervisor(&mut self) -> &mut Supervisor {
        &mut self.supervisor
    }

    /// Unmounts the file and removes its folder. If other processes keep the file open, it is removed all the same, and they get errors
    /// from then on.
    ///
    /// # Errors
    /// Names the processes that held the file. The file and its folder are removed even then.
    pub fn stop(mut self) -> Result<()> {
        self.end()
    }

    pub(crate) fn end(&mut self) -> Result<()> {
        let Some(session) = self.session.take() else { return Ok(()) };
        let folder = self.supervisor.folder().to_owned();
        let until = Instant::now() + PATIENCE;
        let mut outcome = host_programs::unmount_fuse(&folder);
        while outcome.is_err() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
            outcome = host_programs::unmount_fuse(&folder);
        }
        let outcome = outcome.map_err(|error| mount_holders::name_in(error, &folder));
        // The supervisor aborts the connection of a file system that could not be unmounted.
        self.supervisor.end();
        self.pending.close();
        let until = Instant::now() + ABORTED;
        while !session.guard.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        outcome
    }
}

impl Drop for FuseFile {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
