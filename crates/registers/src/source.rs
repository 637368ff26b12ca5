//! The files that a device's registers are read from.

use std::path::Path;

/// A file with registers of a device; there may be several in a folder.
#[derive(Clone, Copy, Debug)]
pub struct RegisterSource<'a> {
    /// Its path, for messages. In a tree, it includes the folders that identify the device and the kind of file.
    pub path: &'a Path,
    /// Its contents.
    pub bytes: &'a [u8],
}

/// The bytes as a text. `None` if they are binary: control characters other than those of lines and colours, or mostly no UTF-8.
pub(crate) fn text_of(bytes: &[u8]) -> Option<String> {
    let is_text = |byte: u8| byte >= b' ' || matches!(byte, b'\n' | b'\r' | b'\t' | 0x0c | 0x1b);
    // In a tar archive, a file of sysfs is padded with zeros to the size that the file system reported.
    let end = bytes.iter().rposition(|byte| *byte != 0).map(|last| last + 1);
    let bytes = bytes.get(..end.unwrap_or(usize::from(!bytes.is_empty())))?;
    if !bytes.iter().all(|byte| is_text(*byte)) || is_mostly_foreign(bytes) {
        return None;
    }
    Some(String::from_utf8_lossy(bytes).into_owned())
}

/// Whether the bytes are not UTF-8 and many of them are above ASCII, as in a raw register.
fn is_mostly_foreign(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err() && bytes.iter().filter(|byte| **byte >= 0x80).count() * 8 > bytes.len()
}
