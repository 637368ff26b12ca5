//! Outputs appear whole or not at all.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::{Error, Result};

/// A file written aside, synced, and renamed into place by [`AtomicFile::commit`]; dropped without it, it is gone.
pub struct AtomicFile {
    path: PathBuf,
    temp: BufWriter<NamedTempFile>,
}

impl AtomicFile {
    /// Starts a file that will appear at `path`. An existing file there stays as it is until the commit.
    ///
    /// # Errors
    /// Where `path` is a directory, or its folder is missing or not writable.
    pub fn create(path: &Path) -> Result<Self> {
        if path.is_dir() {
            return Err(Error::io(path, io::Error::from(io::ErrorKind::IsADirectory)).hint("name a file"));
        }
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let temp = tempfile::Builder::new()
            .prefix(".emmclab-")
            .tempfile_in(folder)
            .map_err(|error| Error::io(path, error))?;
        Ok(Self { path: path.to_owned(), temp: BufWriter::with_capacity(1 << 18, temp) })
    }

    /// Where the file will appear.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the content durable and puts it in place.
    ///
    /// # Errors
    /// Where the disk is full or fails; the old file, if any, is then untouched.
    pub fn commit(self) -> Result<()> {
        let path = self.path;
        let temp = self.temp.into_inner().map_err(|error| Error::io(&path, error.into_error()))?;
        set_default_permissions(temp.as_file()).map_err(|error| Error::io(&path, error))?;
        temp.as_file().sync_all().map_err(|error| Error::io(&path, error))?;
        temp.persist(&path).map_err(|error| Error::io(&path, error.error))?;
        Ok(())
    }
}

/// A temporary file is private to its owner; an output is not.
fn set_default_permissions(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.temp.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.temp.flush()
    }
}
