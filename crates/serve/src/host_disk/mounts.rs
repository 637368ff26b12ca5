//! Mounting and unmounting file systems.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use emmclab_base::{Error, Kind, Result};

use super::FileSystem;
use crate::{holders, programs};

const BETWEEN: Duration = Duration::from_millis(50);

/// A file system to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The folder; its last part is made where it is missing.
    pub folder: PathBuf,
    /// The file system; found by its signature where it is not given.
    pub file_system: Option<FileSystem>,
    /// Options as `mount -o` takes them.
    pub options: Option<String>,
    /// The partition, counted from 1; the whole device by default.
    pub partition: Option<u32>,
}

impl MountOptions {
    /// The whole device at the folder, with default options.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), file_system: None, options: None, partition: None }
    }

    /// The folder as an absolute path: the process that cleans up has another current folder.
    pub(super) fn folder(&self) -> Result<PathBuf> {
        std::path::absolute(&self.folder).map_err(|error| Error::io(&self.folder, error))
    }
}

/// Mounts a block device; gives the folder as an absolute path without links, as the kernel lists it.
pub(super) fn mount(device: &Path, options: &MountOptions) -> Result<PathBuf> {
    let folder = options.folder()?.canonicalize().map_err(|error| Error::io(&options.folder, error))?;
    refuse_files(&folder)?;
    let mut command = programs::tool("mount", "mount")?;
    if let Some(kind) = options.file_system {
        command.args(["-t", kind.name()]);
    }
    if let Some(options) = &options.options {
        command.args(["-o", options]);
    }
    command.arg("--").arg(device).arg(&folder);
    programs::run_as_asked(command).map_err(|error| {
        error.hint("check that it holds a file system that this kernel knows (/proc/filesystems)")
    })?;
    Ok(folder)
}

/// Refuses a folder with files: they could not be seen behind the file system, and may be what was written when a server that was killed
/// had its file system there.
fn refuse_files(folder: &Path) -> Result<()> {
    let mut entries = folder.read_dir().map_err(|error| Error::io(folder, error))?;
    if entries.next().is_none() {
        return Ok(());
    }
    Err(Error::new(
        Kind::Config,
        "the folder is not empty, and a mounted file system would hide what is in it",
    )
    .in_file(folder)
    .hint("name an empty folder, or a new one, which is removed again at the end"))
}

/// Unmounts the file system; tries again while it is busy.
pub(super) fn unmount(folder: &Path, patience: Duration) -> Result<()> {
    let until = Instant::now() + patience;
    loop {
        let mut command = programs::tool("umount", "mount")?;
        command.arg("--").arg(folder);
        match programs::finish(command) {
            Ok(_) => return Ok(()),
            // Someone else unmounted it.
            Err(error) if error.to_string().contains("not mounted") => return Ok(()),
            Err(error) if Instant::now() > until => return Err(holders::name_in(error, folder)),
            Err(_) => std::thread::sleep(BETWEEN),
        }
    }
}

/// Writes the data of a file system that stays mounted to the device.
pub(super) fn write_back(folder: &Path) {
    if let Ok(mut command) = programs::tool("sync", "coreutils") {
        command.arg("--file-system").arg(folder);
        // Where it fails, only the error of unmounting can report it.
        let _ = programs::finish(command);
    }
}
