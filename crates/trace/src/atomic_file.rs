//! Writes regular files atomically; devices and pipes are written directly. Compresses them as the extension of their name tells.
//!
//! A file is written under a temporary name and renamed when it is complete. The temporary names have a common prefix, and the
//! files are locked while they are written, so that the files of killed writers can be recognised and removed.
//!
//! The kernel releases a lock when its process ends in any way, so a file that can be locked has no writer. Process ids would not
//! suffice: they are reused, and they differ between containers that share a folder.

use std::collections::BTreeSet;
use std::fs::{File, Metadata, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use emmclab_base::{open_pipe, wait_writable};
use flate2::write::GzEncoder;
use liblzma::write::XzEncoder;
use rustix::fs::OFlags;
use rustix::process::geteuid;
use tempfile::{Builder, NamedTempFile};

use crate::{Error, Result};

/// An output file. A regular file is written under a temporary name, which [`AtomicFile::commit`] syncs and renames; without a
/// commit it is deleted when dropped. `/dev/null`, a pipe or any other file is written directly. A new file has the permissions
/// of the umask, a replaced file keeps its permissions.
pub struct AtomicFile {
    path: PathBuf,
    /// The final path, after symbolic links are resolved.
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
            // The wrapper of `tempfile` is bypassed, because its errors contain the path of the temporary file.
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
    /// Starts a file that will be at `path`. An existing file is not changed before the commit. Fails if `path` is a directory,
    /// or its folder does not exist or is not writable.
    pub fn create(path: &Path) -> Result<Self> {
        if path.is_dir() {
            return Err(Error::io(path, io::Error::from(io::ErrorKind::IsADirectory)).hint("name a file, not a folder"));
        }
        // If the path is a symbolic link, such as /dev/stdout, its target is written, and the link is not replaced.
        let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let there = path.metadata().ok();
        let out = if there.as_ref().is_some_and(|there| !there.is_file()) {
            open_pipe(path).map(OutputTarget::Straight)
        } else {
            let folder = match target.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            };
            // The new file is private until it has the permissions of the file that it replaces.
            create_locked(folder, if there.is_some() { 0o600 } else { 0o666 }).map(OutputTarget::Aside)
        };
        let out = out.map_err(|error| Error::io(path, error))?;
        Ok(Self { path: path.to_owned(), target, out: CompressingWriter::Plain(BufWriter::with_capacity(1 << 18, out)) })
    }

    /// Starts to write to the standard output, which is written directly even if it is a file. Fails if it is closed.
    pub fn stdout() -> Result<Self> {
        let path = PathBuf::from("standard output");
        let out = io::stdout().as_fd().try_clone_to_owned().map_err(|error| Error::io(&path, error))?;
        let out = CompressingWriter::Plain(BufWriter::with_capacity(1 << 18, OutputTarget::Straight(File::from(out))));
        Ok(Self { target: path.clone(), path, out })
    }

    /// Compresses the output; must be called before the first write. Fails if the encoder cannot start.
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

    /// Makes the content durable and renames the file. Fails if the disk is full or has an error; an existing file is then not changed.
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

/// Copies the permissions of the replaced file to `file`, and its owner and group if the system allows it.
fn keep_permissions(replaced: &Path, file: &File) -> io::Result<()> {
    let Ok(old) = replaced.metadata() else { return Ok(()) };
    // Only root may change the owner. Group and owner are set separately, because a user may set the group to one of the user's own.
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

/// Prefix of the names of temporary files and folders. Only emmclab uses such names, so that these may be removed.
pub const ASIDE_PREFIX: &str = ".emmclab-tmp-";

/// Folders in which this process has removed the files of killed writers.
static SWEPT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Creates a locked temporary file in `folder` with the permissions `mode` minus the umask. The first call for a folder in a
/// process also removes what killed writers left there.
pub(crate) fn create_locked(folder: &Path, mode: u32) -> io::Result<NamedTempFile> {
    if SWEPT.lock().unwrap_or_else(PoisonError::into_inner).insert(folder.to_owned()) {
        sweep(folder);
    }
    loop {
        let file = Builder::new().prefix(ASIDE_PREFIX).permissions(Permissions::from_mode(mode)).tempfile_in(folder)?;
        // An error of the lock is ignored. On a file system without locks, no process removes temporary files of other processes.
        let _ = file.as_file().lock();
        // Another process may have removed the file before it was locked.
        if file.path().exists() {
            return Ok(file);
        }
    }
}

/// Removes the temporary files that killed writers of this user left in `folder`. Files of living processes stay, and so do files that
/// cannot be removed.
///
/// In a folder of several users, another user may have created anything with such a name: links are not followed, and pipes and devices are
/// not opened.
pub fn sweep(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().as_encoded_bytes().starts_with(ASIDE_PREFIX.as_bytes()) {
            continue;
        }
        let path = entry.path();
        let Some(left) = lock(&path) else { continue };
        let is_dir = left.metadata().is_ok_and(|metadata| metadata.is_dir());
        let _ = if is_dir { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
    }
}

/// Locks an existing regular file or folder of this user; `None` for anything else, and if a living process has the lock.
fn lock(path: &Path) -> Option<File> {
    let is_own = |metadata: &Metadata| metadata.uid() == geteuid().as_raw() && (metadata.is_file() || metadata.is_dir());
    if !is_own(&path.symlink_metadata().ok()?) {
        return None;
    }
    // The path may be replaced after the first check, so links are not followed, and the opened file is checked again.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
    (is_own(&file.metadata().ok()?) && file.try_lock().is_ok()).then_some(file)
}

/// Compression level of xz, which is the default of the `xz` command.
const XZ_LEVEL: u32 = 6;

/// The compression of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputCompression {
    /// gzip.
    Gzip,
    /// Zstandard.
    Zstd,
    /// xz.
    Xz,
}

impl OutputCompression {
    /// Extensions of file names, without the dot. Extensions of the same compression are adjacent, the usual one first.
    pub const ENDINGS: [(&'static str, OutputCompression); 4] =
        [("gz", Self::Gzip), ("zst", Self::Zstd), ("zstd", Self::Zstd), ("xz", Self::Xz)];

    /// Splits off the extension of a compression and returns the name and the compression; `None` if there is no such extension.
    pub fn split(name: &str) -> (&str, Option<OutputCompression>) {
        let ended = name.rsplit_once('.').and_then(|(rest, ending)| {
            let ending = ending.to_ascii_lowercase();
            Self::ENDINGS.iter().find(|(known, _)| *known == ending).map(|(_, compression)| (rest, *compression))
        });
        ended.map_or((name, None), |(rest, compression)| (rest, Some(compression)))
    }
}

/// Compresses parts of a file with zstd and adds a checksum, which `zstd::decode_all` verifies; by default, zstd adds none. Fails if there
/// is not enough memory.
pub fn compress_checked(parts: &[&[u8]], level: i32) -> io::Result<Vec<u8>> {
    let mut encoder = zstd::Encoder::new(Vec::new(), level)?;
    encoder.include_checksum(true)?;
    encoder.set_pledged_src_size(Some(parts.iter().map(|part| part.len() as u64).sum()))?;
    parts.iter().try_for_each(|part| encoder.write_all(part))?;
    encoder.finish()
}

/// A writer that compresses, or writes the bytes unchanged.
pub(crate) enum CompressingWriter<W: Write> {
    Plain(W),
    Gzip(GzEncoder<W>),
    Zstd(zstd::Encoder<'static, W>),
    Xz(XzEncoder<W>),
}

impl<W: Write> CompressingWriter<W> {
    /// Starts compressing into `out`. The same input always results in the same output: no time or name is stored.
    pub(crate) fn new(out: W, compression: Option<OutputCompression>) -> io::Result<Self> {
        Ok(match compression {
            None => Self::Plain(out),
            Some(OutputCompression::Gzip) => Self::Gzip(GzEncoder::new(out, flate2::Compression::default())),
            Some(OutputCompression::Zstd) => {
                let mut encoder = zstd::Encoder::new(out, zstd::DEFAULT_COMPRESSION_LEVEL)?;
                encoder.include_checksum(true)?;
                Self::Zstd(encoder)
            }
            Some(OutputCompression::Xz) => Self::Xz(XzEncoder::new(out, XZ_LEVEL)),
        })
    }

    /// Ends the compressed stream and returns the inner writer.
    pub(crate) fn finish(self) -> io::Result<W> {
        match self {
            Self::Plain(out) => Ok(out),
            Self::Gzip(encoder) => encoder.finish(),
            Self::Zstd(encoder) => encoder.finish(),
            Self::Xz(encoder) => encoder.finish(),
        }
    }

    fn inner(&mut self) -> &mut dyn Write {
        match self {
            Self::Plain(out) => out,
            Self::Gzip(encoder) => encoder,
            Self::Zstd(encoder) => encoder,
            Self::Xz(encoder) => encoder,
        }
    }
}

impl<W: Write> Write for CompressingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner().flush()
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
            let aside = aside.filter(|path| path.to_string_lossy().contains(ASIDE_PREFIX));
            assert_eq!(aside.map(|path| mode(&path) & 0o077).max(), Some(0), "private until it is in place");
            file.commit().unwrap();
            assert_eq!(mode(&path), old);
        }
    }

    #[test]
    fn a_refused_write_names_no_temporary_path() {
        let folder = tempfile::tempdir().unwrap();
        let file = create_locked(folder.path(), 0o600).unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut out = OutputTarget::Aside(NamedTempFile::from_parts(full, file.into_temp_path()));
        let message = out.write(b"text").unwrap_err().to_string();
        assert!(!message.contains(ASIDE_PREFIX), "{message}");
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

    #[test]
    fn what_killed_writers_left_goes_and_everything_else_stays() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mine = create_locked(folder.path(), 0o600).unwrap();
        std::fs::write(at(".emmclab-tmp-Xy12Zk"), "half").unwrap();
        std::fs::create_dir(at(".emmclab-tmp-dir")).unwrap();
        std::fs::write(at(".emmclab-tmp-dir").join("rows"), "half").unwrap();
        let mut kept = vec![mine.path().to_owned()];
        for name in ["emmclab-results", ".emmclab-notes", ".emmclab-backup"] {
            std::fs::write(at(name), "whole").unwrap();
            kept.push(at(name));
        }
        let link = at(".emmclab-tmp-link");
        std::os::unix::fs::symlink(at("emmclab-results"), &link).unwrap();
        // Opening a named pipe would wait forever for a writer.
        let pipe = at(".emmclab-tmp-pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::from(0o666), 0).unwrap();
        kept.extend([link, pipe]);
        if geteuid().is_root() {
            for (name, is_dir) in [(".emmclab-tmp-others", false), (".emmclab-tmp-folder", true)] {
                if is_dir { std::fs::create_dir(at(name)) } else { std::fs::write(at(name), "") }.unwrap();
                std::os::unix::fs::chown(at(name), Some(12_345), None).unwrap();
                kept.push(at(name));
            }
        }
        sweep(folder.path());
        let mut left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().map(|e| e.path()).collect();
        left.sort();
        kept.sort();
        assert_eq!(left, kept);
    }

    #[test]
    fn a_process_sweeps_a_folder_when_it_first_writes_there() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join(".emmclab-tmp-Xy12Zk");
        for swept in [true, false] {
            std::fs::write(&left, "half").unwrap();
            drop(create_locked(folder.path(), 0o600).unwrap());
            assert_eq!(!left.exists(), swept);
        }
    }
}
