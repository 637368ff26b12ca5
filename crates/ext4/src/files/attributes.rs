//! Extended attributes, which are stored in the inode after its extra fields and in a separate block.
//!
//! Source: Linux `Documentation/filesystems/ext4/attributes.rst`; `fs/ext4/xattr.h`.

use emmclab_base::Result;

use super::inode::PLAIN_BYTES;
use super::{Ext4Filesystem, Inode};
use crate::byte_fields::{le16, le32};
use crate::disk_reader::DiskReader;
use crate::disk_structure::DiskStructure;

const MAGIC: u32 = 0xEA02_0000;
/// Bytes of the header of a block of attributes.
const BLOCK_HEAD: usize = 32;
/// Bytes of an entry before its name.
const ENTRY: usize = 16;
/// The name prefixes, by their number.
const PREFIXES: [&str; 9] = [
    "",
    "user.",
    "system.posix_acl_access",
    "system.posix_acl_default",
    "trusted.",
    "",
    "security.",
    "system.",
    "system.richacl",
];

/// An extended attribute: its full name, and its value.
pub type Attribute = (Vec<u8>, Vec<u8>);

impl<B: DiskReader> Ext4Filesystem<B> {
    /// Returns the extended attributes of an inode, those in the inode first.
    ///
    /// # Errors
    ///
    /// Entries beyond the end of their block; values in a separate inode, which are not supported.
    pub fn attributes(&self, inode: &Inode) -> Result<Vec<Attribute>> {
        let structure = DiskStructure::Attributes(inode.number());
        let mut out = Vec::new();
        let mut bytes = vec![0; usize::from(self.superblock().inode_size)];
        structure.read(self.disk(), inode.offset, &mut bytes)?;
        // They follow the extra fields, whose length was checked when the inode was read.
        let extra = if bytes.len() > PLAIN_BYTES { usize::from(le16(&bytes, 0x80)) } else { 0 };
        let from = PLAIN_BYTES + extra;
        if bytes.len() >= from + 4 && le32(&bytes, from) == MAGIC {
            let at = inode.offset + from as u64 + 4;
            Self::read_attributes(structure, &bytes[from + 4..], 0, at, &mut out)?;
        }
        if inode.attribute_block() != 0 {
            let offset = self.offset_of(inode.attribute_block(), structure)?;
            let mut block = vec![0; self.superblock().block_size as usize];
            structure.read(self.disk(), offset, &mut block)?;
            if le32(&block, 0) != MAGIC {
                return Err(structure.fault(offset, format!("the block begins with {:#010x}", le32(&block, 0))));
            }
            Self::read_attributes(structure, &block, BLOCK_HEAD, offset, &mut out)?;
        }
        Ok(out)
    }

    /// Reads entries from `at` on. Offsets of values count from the start of `bytes`, which are at byte `offset` of the disk.
    fn read_attributes(
        structure: DiskStructure,
        bytes: &[u8],
        mut at: usize,
        offset: u64,
        out: &mut Vec<Attribute>,
    ) -> Result<()> {
        while bytes.len() >= at + 4 && le32(bytes, at) != 0 {
            let beyond = || structure.fault(offset + at as u64, "an entry extends beyond the end");
            let head = bytes.get(at..at + ENTRY).ok_or_else(beyond)?;
            let (length, index) = (usize::from(head[0]), usize::from(head[1]));
            if le32(head, 4) != 0 {
                return Err(structure.unsupported(offset + at as u64, "a value is stored in its own inode"));
            }
            let name = bytes.get(at + ENTRY..at + ENTRY + length).ok_or_else(beyond)?;
            let (from, size) = (usize::from(le16(head, 2)), le32(head, 8) as usize);
            let value = from.checked_add(size).and_then(|end| bytes.get(from..end)).ok_or_else(beyond)?;
            let prefix = PREFIXES.get(index).copied().unwrap_or_default();
            out.push(([prefix.as_bytes(), name].concat(), value.to_vec()));
            at += (ENTRY + length).next_multiple_of(4);
        }
        Ok(())
    }
}
