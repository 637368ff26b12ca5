//! Temporary files that are renamed to their place when complete. Their names have a common prefix, and they are locked while
//! they are written, so that those of killed writers can be recognised and removed.
//!
//! The kernel releases the lock when the writer ends, however it ends, so a file that can be locked has no writer. Process ids
//! would not be enough: they are reused, and differ between containers that share a folder.

use std::collections::BTreeSet;
use std::fs::{File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tempfile::{Builder, NamedTempFile};

/// Prefix of the names of temporary files and folders.
const PREFIX: &str = ".emmclab-";

/// Folders in which this process has removed the files of killed writers.
static SWEPT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Creates a locked temporary file in `folder`, with the permissions `mode` less the umask. The first call for a folder in a
/// process also removes what killed writers left there.
pub(crate) fn create(folder: &Path, mode: u32) -> io::Result<NamedTempFile> {
    if SWEPT.lock().unwrap_or_else(PoisonError::into_inner).insert(folder.to_owned()) {
        sweep(folder);
    }
    loop {
        let file =
            Builder::new().prefix(PREFIX).permissions(Permissions::from_mode(mode)).tempfile_in(folder)?;
        // A failure is harmless: on a file system without locks, `sweep` removes nothing.
        let _ = file.as_file().lock();
        // Another process may have removed the file before it was locked.
        if file.path().exists() {
            return Ok(file);
        }
    }
}

/// Removes what killed writers left in `folder`; files and folders of living processes stay, as does what cannot be removed.
pub fn sweep(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if !entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) || kind.is_symlink() {
            continue;
        }
        let path = entry.path();
        let Ok(Some(_lock)) = lock(&path) else { continue };
        let _ = if kind.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
    }
}

/// Locks an existing file or folder; `None` if a living process has locked it.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = File::open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_killed_writers_left_goes_and_what_living_ones_write_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mine = create(folder.path(), 0o600).unwrap();
        std::fs::write(at(".emmclab-Xy12Zk"), "half").unwrap();
        std::fs::create_dir(at(".emmclab-dir")).unwrap();
        std::fs::write(at(".emmclab-dir").join("rows"), "half").unwrap();
        std::fs::write(at("emmclab-results"), "whole").unwrap();
        std::os::unix::fs::symlink(at("emmclab-results"), at(".emmclab-link")).unwrap();
        sweep(folder.path());
        assert!(mine.path().exists());
        let mut left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().flatten().map(|e| e.path()).collect();
        left.sort();
        let mut kept = vec![mine.path().to_owned(), at(".emmclab-link"), at("emmclab-results")];
        kept.sort();
        assert_eq!(left, kept);
    }

    #[test]
    fn a_process_sweeps_a_folder_when_it_first_writes_there() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join(".emmclab-Xy12Zk");
        for swept in [true, false] {
            std::fs::write(&left, "half").unwrap();
            drop(create(folder.path(), 0o600).unwrap());
            assert_eq!(!left.exists(), swept);
        }
    }
}
