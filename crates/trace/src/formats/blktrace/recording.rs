//! The files of a recording: one for each CPU.

use std::fs;
use std::path::{Path, PathBuf};

const MIDDLE: &str = ".blktrace.";

/// The path before `.blktrace.N`; `None` for other paths.
pub(super) fn prefix(path: &Path) -> Option<String> {
    let text = path.to_str()?;
    let at = text.rfind(MIDDLE)?;
    let number = text[at + MIDDLE.len()..].split('.').next()?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then(|| text[..at].to_owned())
}

/// The file to open for `path`: `path` itself, or the file of the first CPU if `path` is their common beginning.
pub(in crate::formats) fn first_of(path: &Path) -> PathBuf {
    if !path.exists()
        && let Some(first) = path.to_str().and_then(|prefix| processors(prefix).into_iter().next())
    {
        return first;
    }
    path.to_owned()
}

/// The files of the recording at `path`: `path` itself, or the files of all CPUs.
pub(in crate::formats) fn files(path: &Path) -> Vec<PathBuf> {
    let first = first_of(path);
    prefix(&first).map(|prefix| processors(&prefix)).filter(|all| !all.is_empty()).unwrap_or(vec![first])
}

/// All files of a recording, in the order of CPU numbers.
pub(super) fn processors(prefix: &str) -> Vec<PathBuf> {
    numbered(prefix).into_iter().map(|(_, path)| path).collect()
}

/// The files of a recording with their CPU numbers.
fn numbered(prefix: &str) -> Vec<(u32, PathBuf)> {
    let whole = Path::new(prefix);
    let folder = whole.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let stem = format!("{}{MIDDLE}", whole.file_name().unwrap_or_default().to_string_lossy());
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let number = name.strip_prefix(&stem)?.split('.').next()?.parse().ok()?;
            Some((number, folder.join(name)))
        })
        .collect();
    found.sort();
    found
}

/// The CPUs whose files are missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MissingCpus {
    /// The only CPU whose file exists here; there may be others.
    alone: Option<u32>,
    /// CPU numbers below the highest that have no file.
    gaps: Vec<u32>,
}

impl MissingCpus {
    /// Finds the CPUs whose files are missing from a recording.
    pub fn of(prefix: &str) -> Self {
        /// No machine has more CPUs.
        const MOST: u32 = 1 << 13;
        let numbers: Vec<u32> = numbered(prefix).into_iter().map(|(number, _)| number).collect();
        match numbers.as_slice() {
            [only] => Self { alone: Some(*only), gaps: Vec::new() },
            [.., last] => {
                let gaps = (0..(*last).min(MOST)).filter(|number| numbers.binary_search(number).is_err()).collect();
                Self { alone: None, gaps }
            }
            [] => Self::default(),
        }
    }

    /// A sentence on the missing files; `None` if none is missing. A single file may be the whole recording: this is assumed if
    /// `complete`, which is whether all requests have an issue and a completion.
    pub fn note(&self, prefix: &str, complete: bool) -> Option<String> {
        const NAMED: usize = 8;
        if let Some(only) = self.alone.filter(|_| !complete) {
            return Some(format!(
                "only the file of processor {only} is here, so that events of others are missing: copy all of {prefix}{MIDDLE}*"
            ));
        }
        if self.gaps.is_empty() {
            return None;
        }
        let named: Vec<_> = self.gaps.iter().take(NAMED).map(u32::to_string).collect();
        let more = if self.gaps.len() > NAMED { ", ..." } else { "" };
        Some(format!("the files of processors {}{more} are missing, and with them their events", named.join(", ")))
    }
}
