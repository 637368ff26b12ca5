//! The device as a file in a private folder, by FUSE: a road for any user, and what a loop device is attached to.

mod file_system;
mod pending;
mod requests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use emmclab_base::{Error, Kind, Result};
use fuser::{BackgroundSession, Config, MountOption, Session};

use self::file_system::OneFile;
use self::pending::Pending;
use crate::device::{BlockDevice, Limits};
use crate::holders;
use crate::programs;
use crate::supervisor::Supervisor;

/// Time for other processes to close the file at [`FuseFile::stop`].
const PATIENCE: Duration = Duration::from_secs(2);
/// Time for the threads of a connection that was aborted.
const ABORTED: Duration = Duration::from_secs(5);

/// A block device as a file of its size, which only this user can open. Needs no root.
///
/// Reads and writes go to the device at once (direct I/O, nothing is cached), in requests of at most 1 MiB. `fsync` flushes,
/// `O_DSYNC` writes are durable (FUA), `fallocate` discards (`PUNCH_HOLE | KEEP_SIZE`) and zeroes (`ZERO_RANGE`), `SEEK_DATA`
/// and `SEEK_HOLE` tell what is allocated. A write that is no whole sectors of 512 bytes reads the sectors around it first;
/// discards and zeroes of such ranges fail with EINVAL.
///
/// Dropping it, [`Self::stop`] and the end of the process, also by SIGKILL, unmount the file and remove its folder.
///
/// A thread of the serving process may use the file only while it holds no lock that the device needs (in Python: the
/// interpreter's). A child that the process forked without exec delays the removal of the folder to its own end.
pub struct FuseFile {
    supervisor: Supervisor,
    session: Option<BackgroundSession>,
    pending: Arc<Pending>,
    limits: Limits,
}

impl FuseFile {
    /// Serves the device as a file.
    ///
    /// # Errors
    /// Where the host has no FUSE, or no `fusermount3` and the user is not root.
    pub fn start(device: Arc<dyn BlockDevice>) -> Result<Self> {
        if !Path::new("/dev/fuse").exists() {
            return Err(
                Error::new(Kind::Unsupported, "there is no /dev/fuse").hint("run `modprobe fuse` as root")
            );
        }
        let root = rustix::process::geteuid().is_root();
        if !root && programs::fusermount().is_none() {
            return Err(programs::missing("fusermount3", "fuse3"));
        }
        let limits = device.limits();
        let supervisor = Supervisor::start(&[])?;
        let pending = Arc::<Pending>::default();
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("emmclab".to_owned())];
        let file_system = OneFile::new(device, Arc::clone(&pending));
        let session = Session::new(file_system, supervisor.folder(), &config)
            .and_then(Session::spawn)
            .map_err(|error| Error::io(supervisor.folder(), error))?;
        Ok(Self { supervisor, session: Some(session), pending, limits })
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        self.supervisor.folder().join(file_system::NAME)
    }

    /// Size and abilities of the device.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Longest read or write that reaches the device, in bytes.
    pub(crate) fn longest_request(&self) -> u32 {
        file_system::longest_request(&self.limits)
    }

    pub(crate) fn supervisor(&mut self) -> &mut Supervisor {
        &mut self.supervisor
    }

    /// Unmounts the file and removes its folder. A file that other processes keep open goes away, too: they get errors from
    /// then on.
    ///
    /// # Errors
    /// Names the processes that held the file; nothing is left behind all the same.
    pub fn stop(mut self) -> Result<()> {
        self.end()
    }

    pub(crate) fn end(&mut self) -> Result<()> {
        let Some(session) = self.session.take() else { return Ok(()) };
        let folder = self.supervisor.folder().to_owned();
        let until = Instant::now() + PATIENCE;
        let mut outcome = programs::unmount_fuse(&folder);
        while outcome.is_err() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
            outcome = programs::unmount_fuse(&folder);
        }
        let outcome = outcome.map_err(|error| holders::name_in(error, &folder));
        // The supervisor aborts what could not be unmounted.
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
