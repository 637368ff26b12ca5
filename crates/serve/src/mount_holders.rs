//! Finds the processes that keep a mount busy, in `/proc`.

use std::fs;
use std::path::{Path, PathBuf};

use emmclab_base::Error;

/// Maximum number of processes that a message names; the others are only counted.
const NAMED: usize = 5;

/// Whether a process uses something below `folder`. Links and maps are compared as text, so that nothing blocks on the mount.
fn uses(process: &Path, folder: &Path) -> bool {
    let below = |link: PathBuf| fs::read_link(link).is_ok_and(|target| target.starts_with(folder));
    let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten().map(|entry| entry.path());
    let links = ["cwd", "root", "exe"].into_iter().map(|name| process.join(name));
    links.chain(files).any(below)
        || fs::read_to_string(process.join("maps")).is_ok_and(|maps| {
            // A line has five fields, then the path, which may contain spaces.
            maps.lines().any(|line| line.find('/').is_some_and(|at| Path::new(&line[at..]).starts_with(folder)))
        })
}

/// Processes that use the mount at `folder`, as `NAME (pid N)`. Processes of other users are found only by root.
pub(crate) fn of(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if uses(&entry.path(), folder) {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            found.push(format!("{} (pid {pid})", name.trim_end()));
        }
    }
    found
}

/// Other mounts below `folder`, which keep it busy, too.
fn mounts(folder: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    points
        .filter(|point| Path::new(point).starts_with(folder) && Path::new(point) != folder)
        .map(|point| format!("the mount {point}"))
        .collect()
}

/// A sentence that names the first few of these holders and counts the others; `None` if there are none.
pub(crate) fn holder_sentence(mut found: Vec<String>) -> Option<String> {
    let more = found.len().saturating_sub(NAMED);
    found.truncate(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!found.is_empty()).then(|| format!("it is in use by {}{more}", found.join(", ")))
}

/// Adds to an error which processes and mounts keep the mount at `folder` busy.
pub(crate) fn name_in(error: Error, folder: &Path) -> Error {
    let mut found = of(folder);
    found.extend(mounts(folder));
    match holder_sentence(found) {
        None => error,
        Some(problem) => {
            Error::new(error.kind(), problem).in_file(folder).hint("end these processes, or let them leave the folder")
        }
    }
}
