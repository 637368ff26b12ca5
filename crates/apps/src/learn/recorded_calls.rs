//! Recognises recordings of only some system calls (`strace -e trace=...`), of which a program would lack the others.

use std::collections::BTreeMap;

use emmclab_base::{Error, ErrorClass, Result};

use super::HOW;
use super::recording::is_wait;

/// Calls that every program makes when it begins, allocates memory or ends, or that its threads make.
const USUAL: &[&str] =
    &["execve", "brk", "mmap", "mmap2", "munmap", "mprotect", "mremap", "madvise", "clone", "clone3", "fork", "vfork"];
/// Calls that write, or through which writes are not seen.
const WRITES: &[&str] = &[
    "write",
    "writev",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "sendfile",
    "sendfile64",
    "copy_file_range",
    "splice",
    "fallocate",
    "truncate",
    "truncate64",
    "ftruncate",
    "ftruncate64",
    "io_submit",
    "io_uring_enter",
];
const SYNCS: &[&str] = &["fsync", "fdatasync", "sync_file_range", "sync", "syncfs", "msync"];

/// The kinds of calls of a recording, if it is of these only; empty for a recording of all calls.
///
/// # Errors
/// [`ErrorClass::Value`] if such a recording holds syncs and no writes.
pub(super) fn only(calls: &BTreeMap<String, u64>) -> Result<Vec<String>> {
    let has = |names: &[&str]| names.iter().any(|name| calls.contains_key(*name));
    if has(USUAL) || calls.keys().any(|name| is_wait(name)) {
        return Ok(Vec::new());
    }
    let names: Vec<_> = calls.keys().cloned().collect();
    if has(SYNCS) && !has(WRITES) {
        let problem =
            format!("the recording holds syncs and no writes: it is of these calls only: {}", names.join(", "));
        return Err(Error::new(ErrorClass::Value, problem).hint(format!("{HOW}, without -e, which leaves calls out")));
    }
    Ok(names)
}
