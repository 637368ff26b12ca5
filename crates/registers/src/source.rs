//! The files that a device's registers are read from.

use std::path::Path;

/// A file with what a device says of itself, or one of several in a folder.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Its path, which messages name; of a tree, with the folders that say what it is.
    pub path: &'a Path,
    /// Its contents.
    pub bytes: &'a [u8],
}

/// The bytes as a text, where they are one: without control characters but those of lines, colours and the end of a string.
pub(crate) fn text_of(bytes: &[u8]) -> Option<String> {
    let is_text = |byte: u8| byte >= b' ' || matches!(byte, b'\n' | b'\r' | b'\t' | 0x0c | 0x1b);
    // A file of sysfs that tar has kept is filled up with zeros to the size that it announced.
    let end = bytes.iter().rposition(|byte| *byte != 0).map(|last| last + 1);
    let bytes = bytes.get(..end.unwrap_or(usize::from(!bytes.is_empty())))?;
    if !bytes.iter().all(|byte| is_text(*byte)) || is_mostly_foreign(bytes) {
        return None;
    }
    Some(String::from_utf8_lossy(bytes).into_owned())
}

/// Whether bytes above ASCII that are no UTF-8 are frequent, as in a raw register.
fn is_mostly_foreign(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err()
        && bytes.iter().filter(|byte| **byte >= 0x80).count() * 8 > bytes.len()
}
