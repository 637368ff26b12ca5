//! Contents that are stored in an inode: in the words of the block map, then in the value of the extended attribute `system.data`.
//!
//! Source: Linux `Documentation/filesystems/ext4/inlinedata.rst` and `attributes.rst`; `fs/ext4/inline.c`.

use super::inode::MAP_BYTES;
use crate::byte_fields::{le16, le32};

const ATTRIBUTE_MAGIC: u32 = 0xEA02_0000;
const ENTRY_BYTES: usize = 16;
/// The number of the prefix `system.`.
const SYSTEM: u8 = 7;

/// Returns the contents of an inode whose attributes start at byte `at`; on an error, the offset and a description.
pub(super) fn contents(bytes: &[u8], map: &[u8; MAP_BYTES], at: usize) -> Result<Vec<u8>, (usize, &'static str)> {
    let mut out = map.to_vec();
    if le32(bytes, at) != ATTRIBUTE_MAGIC {
        return Ok(out);
    }
    let first = at + 4;
    let mut entry = first;
    // The list ends with four zero bytes, or at the end of the inode.
    while bytes.len() >= entry + ENTRY_BYTES && le32(bytes, entry) != 0 {
        let name_length = usize::from(bytes[entry]);
        let name = bytes.get(entry + ENTRY_BYTES..entry + ENTRY_BYTES + name_length);
        let name = name.ok_or((entry, "the name of an extended attribute is outside of the inode"))?;
        if bytes[entry + 1] == SYSTEM && name == b"data" {
            let from = first + usize::from(le16(bytes, entry + 2));
            let length = le32(bytes, entry + 8) as usize;
            let value = from.checked_add(length).and_then(|end| bytes.get(from..end));
            out.extend(value.ok_or((entry, "the value of system.data is outside of the inode"))?);
            return Ok(out);
        }
        entry += (ENTRY_BYTES + name_length).next_multiple_of(4);
    }
    Ok(out)
}
