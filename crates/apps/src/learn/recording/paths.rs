//! Paths in the arguments of calls.

use super::UNKNOWN_FOLDER;

/// Folders whose files are not stored on a device.
const VIRTUAL: &[&str] = &["/proc/", "/sys/", "/dev/", "/run/", "/acct/", "anon_inode:"];

/// Whether a folder argument is the working folder of the process.
pub(super) fn is_here(word: &str) -> bool {
    word.contains("AT_FDCWD") || word == "-100" || word.trim_start_matches("0x").trim_start_matches('f') == "9c"
}

/// Normalises a path: without `.`, `..` and empty components.
pub(super) fn plain(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != ".." && *last != UNKNOWN_FOLDER) => {
                parts.pop();
            }
            ".." if path.starts_with('/') => {}
            part => parts.push(part),
        }
    }
    let root = if path.starts_with('/') { "/" } else { "" };
    format!("{root}{}", parts.join("/"))
}

pub(super) fn is_virtual(path: &str) -> bool {
    VIRTUAL.iter().any(|folder| path.starts_with(folder))
}
