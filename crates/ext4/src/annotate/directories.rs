//! Directories, recognised by their inodes and by their blocks.
//!
//! Source: Linux `Documentation/filesystems/ext4/directory.rst` and `ifork.rst`.

use crate::byte_fields::{le16, le32, wide};
use crate::files::{
    EXTENT_BYTES, EXTENT_MAGIC, Ext4FileKind, InodeFlags, MAP_AT, MAP_BYTES, extent_length, record_length,
};

/// Maximum number of runs of blocks in an inode: 4 extents, or 12 direct blocks.
const MOST_RUNS: usize = 12;

/// The blocks of a directory to which its inode refers directly, as runs: first block, and block after the last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DirectoryRuns {
    blocks: [(u64, u64); MOST_RUNS],
    count: usize,
    /// Whether other blocks of the disk refer to further blocks of the directory.
    pub is_deep: bool,
}

impl DirectoryRuns {
    pub fn as_slice(&self) -> &[(u64, u64)] {
        &self.blocks[..self.count]
    }

    fn push(&mut self, start: u64, length: u64) {
        if self.count < MOST_RUNS && start != 0 && length != 0 {
            self.blocks[self.count] = (start, start + length);
            self.count += 1;
        }
    }
}

/// Returns the blocks of the directory of an inode; `None` if the inode is not a directory, or was deleted.
pub(super) fn runs_of(inode: &[u8]) -> Option<DirectoryRuns> {
    let links = le16(inode, 0x1A);
    if Ext4FileKind::of_mode(le16(inode, 0)) != Ext4FileKind::Directory || links == 0 {
        return None;
    }
    let flags = InodeFlags::from_bits_retain(le32(inode, 0x20));
    let mut out = DirectoryRuns::default();
    if flags.contains(InodeFlags::INLINE_DATA) {
        return Some(out);
    }
    let map = inode.get(MAP_AT..MAP_AT + MAP_BYTES).unwrap_or_default();
    if !flags.contains(InodeFlags::EXTENTS) {
        for at in 0..MOST_RUNS {
            out.push(u64::from(le32(map, 4 * at)), 1);
        }
        out.is_deep = (12..15).any(|at| le32(map, 4 * at) != 0);
        return Some(out);
    }
    if le16(map, 0) != EXTENT_MAGIC {
        return Some(out);
    }
    if le16(map, 6) > 0 {
        out.is_deep = true;
        return Some(out);
    }
    for entry in map[EXTENT_BYTES..].chunks_exact(EXTENT_BYTES).take(usize::from(le16(map, 2))) {
        let length = le16(entry, 4);
        let blocks = extent_length(length).0;
        out.push(wide(le16(entry, 6), le32(entry, 8)), u64::from(blocks));
    }
    Some(out)
}

/// Whether a block belongs to a directory: it consists of entries without gaps, and at least one of them has a name or fills the
/// block.
pub(super) fn is_directory(block: &[u8], has_types: bool) -> bool {
    let mut at = 0;
    let mut named = false;
    while at < block.len() {
        let rest = &block[at..];
        let stored = le16(rest, 4);
        // Linux reads a length of 0 as a whole block of 64 KB, but writes 0xFFFF.
        let length = if stored == 0 { 0 } else { record_length(stored, block.len() as u32) };
        let name = if has_types { usize::from(rest.get(6).copied().unwrap_or(0)) } else { le16(rest, 6).into() };
        if length < 8 || !length.is_multiple_of(4) || length > rest.len() || 8 + name > length {
            return false;
        }
        if le32(rest, 0) != 0 {
            // A name contains neither a zero byte nor a slash; `.` and `..` count as names here.
            let name = &rest[8..8 + name];
            if name.is_empty() || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
                return false;
            }
            named = true;
        } else if at == 0 && length + 12 >= block.len() {
            // An empty block, or a node of the hash tree.
            named = true;
        }
        at += length;
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(block: &mut [u8], at: usize, length: u16, inode: u32, name: &[u8]) {
        block[at..at + 4].copy_from_slice(&inode.to_le_bytes());
        block[at + 4..at + 6].copy_from_slice(&length.to_le_bytes());
        block[at + 6] = name.len() as u8;
        block[at + 8..at + 8 + name.len()].copy_from_slice(name);
    }

    #[test]
    fn a_directory_is_entries_from_end_to_end() {
        let mut block = vec![0; 1024];
        assert!(!is_directory(&block, true) && !is_directory(&vec![0; 1 << 16], true), "zeros");
        entry(&mut block, 0, 12, 2, b".");
        entry(&mut block, 12, 1012, 2, b"..");
        assert!(is_directory(&block, true));
        block[16] ^= 4;
        assert!(!is_directory(&block, true), "a gap at the end");
        let mut node = vec![0; 1024];
        entry(&mut node, 0, 1024, 0, b"");
        node[8..].fill(0x5A);
        assert!(is_directory(&node, true), "a node of the hash tree");
        assert!(!is_directory(&[0x0A, 0xF3, 1, 0, 84, 0, 0, 0].repeat(128), true), "an extent block");
        assert!(!is_directory(&b"some text of a file\n".repeat(51), true));
    }
}
