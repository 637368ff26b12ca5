//! Temporary files that are renamed to their place when complete. Their names have a common prefix, and they are locked while
//! they are written, so that those of killed writers can be recognised and removed.
//!
//! The kernel releases the lock when the writer ends, however it ends, so a file that can be locked has no writer. Process ids
//! would not be enough: they are reused, and differ between containers that share a folder.

use std::collections::BTreeSet;
use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::OFlags;
use rustix::process::geteuid;
use tempfile::{Builder, NamedTempFile};

/// Prefix of the names of temporary files and folders. Only emmclab gives such names, so what has one may be removed.
pub const ASIDE_PREFIX: &str = ".emmclab-tmp-";

/// Folders in which this process has removed the files of killed writers.
static SWEPT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Creates a locked temporary file in `folder`, with the permissions `mode` less the umask. The first call for a folder in a
/// process also removes what killed writers left there.
pub(crate) fn create(folder: &Path, mode: u32) -> io::Result<NamedTempFile> {
    if SWEPT.lock().unwrap_or_else(PoisonError::into_inner).insert(folder.to_owned()) {
        sweep(folder);
    }
    loop {
        let file = Builder::new().prefix(ASIDE_PREFIX).permissions(Permissions::from_mode(mode)).tempfile_in(folder)?;
        // A failure is harmless: on a file system without locks, `sweep` removes nothing.
        let _ = file.as_file().lock();
        // Another process may have removed the file before it was locked.
        if file.path().exists() {
            return Ok(file);
        }
    }
}

/// Removes what killed writers of this user left in `folder`. What living processes write stays, as does what cannot be removed.
///
/// In a folder of several users, another user may have given such a name to anything: links are not followed, and pipes and devices
/// are not opened.
pub fn sweep(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().as_encoded_bytes().starts_with(ASIDE_PREFIX.as_bytes()) {
            continue;
        }
        let path = entry.path();
        let Some(left) = lock(&path) else { continue };
        let is_dir = left.metadata().is_ok_and(|found| found.is_dir());
        let _ = if is_dir { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
    }
}

/// Locks an existing regular file or folder of this user; `None` for anything else, and if a living process has locked it.
fn lock(path: &Path) -> Option<File> {
    let is_own = |found: &Metadata| found.uid() == geteuid().as_raw() && (found.is_file() || found.is_dir());
    if !is_own(&path.symlink_metadata().ok()?) {
        return None;
    }
    // The flags and the second look are for a path that is replaced meanwhile.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
    (is_own(&file.metadata().ok()?) && file.try_lock().is_ok()).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_killed_writers_left_goes_and_everything_else_stays() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mine = create(folder.path(), 0o600).unwrap();
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
        // Opening a pipe would wait for its writer for ever.
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
            drop(create(folder.path(), 0o600).unwrap());
            assert_eq!(!left.exists(), swept);
        }
    }
}
