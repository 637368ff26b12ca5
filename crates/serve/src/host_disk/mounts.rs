//! Mounting and unmounting file systems.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use emmclab_base::{Error, ErrorClass, Result};

use super::LinuxFileSystem;
use crate::{host_programs, mount_holders};

const BETWEEN: Duration = Duration::from_millis(50);

/// A file system to mount.
#[derive(Clone, Debug)]
pub struct LinuxMountOptions {
    /// The folder; its last component is made if it is missing.
    pub folder: PathBuf,
    /// The file system; if not given, it is detected by its signature.
    pub file_system: Option<LinuxFileSystem>,
    /// Options as in `mount -o`.
    pub options: Option<String>,
    /// The partition, counted from 1; the whole device by default.
    pub partition: Option<u32>,
}

impl LinuxMountOptions {
    /// Mounts the whole device at the folder, with default options.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), file_system: None, options: None, partition: None }
    }

    /// The folder as an absolute path, because the process that cleans up has another working directory.
    pub(super) fn folder(&self) -> Result<PathBuf> {
        std::path::absolute(&self.folder).map_err(|error| Error::io(&self.folder, error))
    }
}

/// Mounts a block device. Returns the folder as an absolute path without symbolic links, as the kernel lists it.
pub(super) fn mount(device: &Path, options: &LinuxMountOptions) -> Result<PathBuf> {
    let folder = options.folder()?.canonicalize().map_err(|error| Error::io(&options.folder, error))?;
    let mut command = host_programs::tool("mount", "mount")?;
    if let Some(kind) = options.file_system {
        command.args(["-t", kind.name()]);
    }
    if let Some(options) = &options.options {
        command.args(["-o", options]);
    }
    command.arg("--").arg(device).arg(&folder);
    host_programs::run_as_asked(command).map_err(|error| {
        error.hint(
            "check that it holds a file system that this kernel knows (/proc/filesystems); `emmclab crash --guest KERNEL` mounts with \
             another kernel",
        )
    })?;
    Ok(folder)
}

/// Returns an error if the folder is not empty: the mount would hide its files. They may have been written there after a killed server had
/// left its mount point.
pub(super) fn refuse_files(folder: &Path) -> Result<()> {
    let mut entries = match folder.read_dir() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|error| Error::io(folder, error))?,
    };
    if entries.next().is_none() {
        return Ok(());
    }
    Err(Error::new(ErrorClass::Config, "the folder is not empty, and a mounted file system would hide what is in it")
        .in_file(folder)
        .hint("name an empty folder, or a new one, which is removed again at the end"))
}

/// Unmounts the file system; retries while it is busy, until `patience` has passed.
pub(super) fn unmount(folder: &Path, patience: Duration) -> Result<()> {
    let until = Instant::now() + patience;
    loop {
        let mut command = host_programs::tool("umount", "mount")?;
        command.arg("--").arg(folder);
        match host_programs::finish(command) {
            Ok(_) => return Ok(()),
            // Someone else unmounted it.
            Err(error) if error.to_string().contains("not mounted") => return Ok(()),
            Err(error) if Instant::now() > until => return Err(mount_holders::name_in(error, folder)),
            Err(_) => std::thread::sleep(BETWEEN),
        }
    }
}

/// Writes back a file system that stays mounted.
pub(super) fn write_back(folder: &Path) {
    if let Ok(mut command) = host_programs::tool("sync", "coreutils") {
        command.arg("--file-system").arg(folder);
        // If this fails, the error is reported only by unmounting.
        let _ = host_programs::finish(command);
    }
}
