//! Output files are written atomically; devices and pipes are written directly.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use emmclab_base::{open_pipe, wait_writable};
use tempfile::NamedTempFile;

use crate::compression::CompressingWriter;
use crate::temporary_file;
use crate::{Error, OutputCompression, Result};

/// A temporary file that [`AtomicFile::commit`] syncs and renames to its place; without a commit it is deleted when dropped.
/// `/dev/null`, a pipe and anything else that is not a regular file is written directly. A new file has the permissions of the
/// umask, and a replaced file keeps its permissions.
pub struct AtomicFile {
    path: PathBuf,
    /// The target of a symbolic link.
    target: PathBuf,
    out: CompressingWriter<BufWriter<OutputTarget>>,
}

enum OutputTarget {
    Aside(NamedTempFile),
    Straight(File),
}

impl Write for OutputTarget {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            // `tempfile` is bypassed, because its errors contain the path of the temporary file.
            OutputTarget::Aside(file) => file.as_file_mut().write(bytes),
            OutputTarget::Straight(file) => {
                wait_writable(file)?;
                file.write(bytes)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            OutputTarget::Aside(file) => file.flush(),
            OutputTarget::Straight(file) => file.flush(),
        }
    }
}

impl AtomicFile {
    /// Starts a file that will appear at `path`. An existing file there is unchanged until the commit.
    ///
    /// # Errors
    /// If `path` is a directory, or its folder is missing or not writable.
    pub fn create(path: &Path) -> Result<Self> {
        if path.is_dir() {
            return Err(Error::io(path, io::Error::from(io::ErrorKind::IsADirectory)).hint("name a file"));
        }
        // A symbolic link, such as /dev/stdout, stays a link.
        let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let there = path.metadata().ok();
        let out = if there.as_ref().is_some_and(|there| !there.is_file()) {
            open_pipe(path).map(OutputTarget::Straight)
        } else {
            let folder = match target.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            };
            // The new file is private until it has the permissions of the replaced file.
            temporary_file::create(folder, if there.is_some() { 0o600 } else { 0o666 }).map(OutputTarget::Aside)
        };
        let out = out.map_err(|error| Error::io(path, error))?;
        Ok(Self {
            path: path.to_owned(),
            target,
            out: CompressingWriter::Plain(BufWriter::with_capacity(1 << 18, out)),
        })
    }

    /// Starts writing to the standard output, which is written directly even if it is a file.
    ///
    /// # Errors
    /// If the standard output is closed.
    pub fn stdout() -> Result<Self> {
        let path = PathBuf::from("standard output");
        let out = io::stdout().as_fd().try_clone_to_owned().map_err(|error| Error::io(&path, error))?;
        let out = CompressingWriter::Plain(BufWriter::with_capacity(1 << 18, OutputTarget::Straight(File::from(out))));
        Ok(Self { target: path.clone(), path, out })
    }

    /// Compresses the output; must be called before the first write.
    ///
    /// # Errors
    /// If the encoder cannot start.
    pub fn compressed(self, compression: Option<OutputCompression>) -> Result<Self> {
        let Self { path, target, out } = self;
        let encoded = out.finish().and_then(|out| CompressingWriter::new(out, compression));
        match encoded {
            Ok(out) => Ok(Self { path, target, out }),
            Err(error) => Err(Error::io(&path, error)),
        }
    }

    /// The path of the final file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the content durable and renames the file to its place.
    ///
    /// # Errors
    /// If the disk is full or fails; the old file, if any, is then untouched.
    pub fn commit(self) -> Result<()> {
        let path = self.path;
        let out = self.out.finish().map_err(|error| Error::io(&path, error))?;
        let out = out.into_inner().map_err(|error| Error::io(&path, error.into_error()))?;
        let OutputTarget::Aside(temp) = out else { return Ok(()) };
        keep_permissions(&self.target, temp.as_file()).map_err(|error| Error::io(&path, error))?;
        temp.as_file().sync_all().map_err(|error| Error::io(&path, error))?;
        temp.persist(&self.target).map_err(|error| Error::io(&path, error.error))?;
        Ok(())
    }
}

/// Copies the permissions to `file`, and if the system allows it the owner, of the file that it will replace.
fn keep_permissions(replaced: &Path, file: &File) -> io::Result<()> {
    let Ok(old) = replaced.metadata() else { return Ok(()) };
    // Only root may change the owner. Group and owner are set separately, because a user may set the group to one of their own.
    let _ = fchown(file, None, Some(old.gid()));
    let _ = fchown(file, Some(old.uid()), None);
    file.set_permissions(Permissions::from_mode(old.mode() & 0o777))
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(path: &Path) -> Result<()> {
        let mut file = AtomicFile::create(path)?;
        file.write_all(b"text").map_err(|error| Error::io(path, error))?;
        file.commit()
    }

    #[test]
    fn a_device_stays_a_device() {
        let folder = tempfile::tempdir().unwrap();
        for (device, fits) in [("/dev/null", true), ("/dev/full", false)] {
            let path = folder.path().join("out");
            std::os::unix::fs::symlink(device, &path).unwrap();
            assert_eq!(written(&path).is_ok(), fits, "{device}");
            assert_eq!(std::fs::read_link(&path).unwrap(), Path::new(device));
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_link_leads_to_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        written(&link).unwrap();
        assert_eq!(std::fs::read_link(&link).unwrap(), file);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "text");
    }

    #[test]
    fn a_replaced_file_keeps_its_permissions_and_a_new_one_has_those_of_the_umask() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        let (path, made) = (folder.path().join("out"), folder.path().join("made"));
        File::create(&made).unwrap();
        written(&path).unwrap();
        assert_eq!(mode(&path), mode(&made));
        for old in [0o600, 0o640, 0o444, 0o777] {
            std::fs::set_permissions(&path, Permissions::from_mode(old)).unwrap();
            let file = AtomicFile::create(&path).unwrap();
            let aside = std::fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.path());
            let aside = aside.filter(|path| path.to_string_lossy().contains(temporary_file::ASIDE_PREFIX));
            assert_eq!(aside.map(|path| mode(&path) & 0o077).max(), Some(0), "private until it is in place");
            file.commit().unwrap();
            assert_eq!(mode(&path), old);
        }
    }

    #[test]
    fn a_refused_write_names_no_temporary_path() {
        let folder = tempfile::tempdir().unwrap();
        let file = temporary_file::create(folder.path(), 0o600).unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut out = OutputTarget::Aside(NamedTempFile::from_parts(full, file.into_temp_path()));
        let said = out.write(b"text").unwrap_err().to_string();
        assert!(!said.contains(temporary_file::ASIDE_PREFIX), "{said}");
    }

    #[test]
    fn a_pipe_gets_what_is_written() {
        let (reader, writer) = io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer));
        written(Path::new(&path)).unwrap();
        drop(writer);
        assert_eq!(io::read_to_string(reader).unwrap(), "text");
    }

    #[test]
    fn a_file_appears_at_the_commit_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        std::fs::write(&path, "old").unwrap();
        drop(AtomicFile::create(&path).unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        written(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "text");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
