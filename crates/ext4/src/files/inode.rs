//! Inodes: kind, size, times, the words of the block map, and extended attributes, which are stored after the extra fields of the inode and
//! in a separate block.
//!
//! Source: Linux `Documentation/filesystems/ext4/inodes.rst`, `inlinedata.rst` and `attributes.rst`; `fs/ext4/inode.c`, `inline.c`
//! and `xattr.h`.

use std::ops::Range;

use bitflags::bitflags;
use emmclab_base::Result;

use super::Ext4Filesystem;
use super::directory::Ext4FileKind;
use crate::disk::{DiskReader, DiskStructure, crc32c, le16, le32, wide};
use crate::superblock::Incompat;

/// Number of bytes in the area of an inode that contains the block map or a short symbolic link.
pub(crate) const MAP_BYTES: usize = 60;
/// Offset of the block map in an inode, in bytes.
pub(crate) const MAP_AT: usize = 0x28;
const CHECKSUM_LOW: usize = 0x7C;
const CHECKSUM_HIGH: usize = 0x82;
/// Number of bytes in an inode without extra fields.
pub(super) const PLAIN_BYTES: usize = 128;

bitflags! {
    /// Flags of an inode.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct InodeFlags: u32 {
        /// Names or contents are encrypted.
        const ENCRYPT = 0x800;
        /// A directory with a hash tree.
        const INDEX = 0x1000;
        /// Blocks are mapped by extents. Without this flag, they are mapped by indirect blocks.
        const EXTENTS = 0x8_0000;
        /// Allocated space is counted in blocks of the file system instead of sectors.
        const HUGE_FILE = 0x4_0000;
        /// Contents are stored in the inode.
        const INLINE_DATA = 0x1000_0000;
        /// A directory that ignores case.
        const CASEFOLD = 0x4000_0000;
        const _ = !0;
    }
}

/// The description of a file, directory or link by its inode.
#[derive(Clone, Debug)]
pub struct Inode {
    /// The number of the inode.
    pub number: u32,
    /// Kind and permissions, as in `stat`.
    pub mode: u16,
    /// Size of the contents in bytes.
    pub size: u64,
    /// Number of names that refer to the inode.
    pub links: u16,
    /// Numbers of the owner and of the group.
    pub owners: (u32, u32),
    /// Space that is allocated to the file, in sectors of 512 bytes, as in `stat`.
    pub sectors: u64,
    /// Time of the last change of the contents: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
    /// Flags of the inode.
    pub flags: InodeFlags,
    /// The contents, if they are stored in the inode.
    pub(super) inline: Option<Vec<u8>>,
    /// The block of extended attributes; 0 if there is none.
    pub(crate) attribute_block: u64,
    pub(super) generation: u32,
    pub(super) map: [u8; MAP_BYTES],
    /// The location of the inode on the disk, in bytes.
    pub(crate) offset: u64,
}

impl Inode {
    /// The kind of file.
    pub fn kind(&self) -> Ext4FileKind {
        Ext4FileKind::of_mode(self.mode)
    }

    /// The target of a symbolic link, if it is stored in the inode.
    pub(super) fn short_link(&self) -> Option<&[u8]> {
        let elsewhere = self.flags.intersects(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA);
        if elsewhere || self.kind() != Ext4FileKind::Symlink {
            return None;
        }
        self.map[..MAP_BYTES - 1].get(..usize::try_from(self.size).ok()?)
    }

    /// Whether the inode contains a block map: false for devices, pipes and short symbolic links.
    pub(super) fn has_map(&self) -> bool {
        let kinds = [Ext4FileKind::Regular, Ext4FileKind::Directory, Ext4FileKind::Symlink];
        kinds.contains(&self.kind()) && self.inline.is_none() && self.short_link().is_none()
    }
}

/// The location of the inodes of a block group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InodeTable {
    /// The blocks of the table.
    pub blocks: Range<u64>,
    /// The number of the first inode.
    pub first_inode: u32,
    /// Number of inodes in the table.
    pub inodes: u32,
}

impl InodeTable {
    /// Whether the table contains an inode.
    pub fn holds(&self, inode: u32) -> bool {
        inode.checked_sub(self.first_inode).is_some_and(|index| index < self.inodes)
    }
}

impl<B: DiskReader> Ext4Filesystem<B> {
    /// Returns the locations of the inodes, group by group.
    /// Errors: if the checksum of a group descriptor is wrong.
    pub fn inode_tables(&self) -> Result<Vec<InodeTable>> {
        let superblock = self.superblock();
        let inodes = superblock.inodes_per_group;
        let bytes = u64::from(inodes) * u64::from(superblock.inode_size);
        let blocks = bytes.div_ceil(u64::from(superblock.block_size));
        let tables = (0..superblock.inodes / inodes).map(|number| {
            let first = self.group(number)?.inode_table;
            let blocks = first..first.saturating_add(blocks);
            Ok(InodeTable { blocks, first_inode: number * inodes + 1, inodes })
        });
        tables.collect()
    }

    /// Reads the inode with this number; numbers start at 1.
    /// Errors: if the number does not exist in the file system, or the checksum of the inode or of its group descriptor is wrong.
    pub fn inode(&self, number: u32) -> Result<Inode> {
        let structure = DiskStructure::Inode(number);
        let superblock = self.superblock();
        let size = usize::from(superblock.inode_size);
        let offset = self.inode_place(number)?;
        // Nearly all inodes have 256 bytes, so these are read into an array without an allocation.
        let (mut short, mut long) = ([0; 256], Vec::new());
        let bytes = if size <= short.len() {
            &mut short[..size]
        } else {
            long.resize(size, 0);
            &mut long[..]
        };
        structure.read(&self.disk, offset, bytes)?;
        self.parse_inode(number, bytes, offset)
    }

    /// The location of an inode on the disk, in bytes.
    pub(crate) fn inode_place(&self, number: u32) -> Result<u64> {
        let structure = DiskStructure::Inode(number);
        let superblock = self.superblock();
        let Some(index) = number.checked_sub(1).filter(|_| number <= superblock.inodes) else {
            return Err(structure.fault(0, format!("the file system has inodes 1 to {}", superblock.inodes)));
        };
        let group = self.group(index / superblock.inodes_per_group)?;
        let size = usize::from(superblock.inode_size);
        let within = u64::from(index % superblock.inodes_per_group) * size as u64;
        let block_size = u64::from(superblock.block_size);
        let block = group.inode_table.saturating_add(within / block_size);
        Ok(self.offset_of(block, structure)? + within % block_size)
    }

    /// Updates the checksum in the bytes of an inode.
    pub(crate) fn seal_inode(&self, number: u32, bytes: &mut [u8]) {
        if !self.superblock().has_checksums() {
            return;
        }
        let extra = if bytes.len() > PLAIN_BYTES { usize::from(le16(bytes, 0x80)) } else { 0 };
        let has_high = extra >= CHECKSUM_HIGH + 2 - PLAIN_BYTES;
        let computed = self.inode_checksum(number, le32(bytes, 0x64), bytes, has_high);
        bytes[CHECKSUM_LOW..CHECKSUM_LOW + 2].copy_from_slice(&(computed as u16).to_le_bytes());
        if has_high {
            bytes[CHECKSUM_HIGH..CHECKSUM_HIGH + 2].copy_from_slice(&((computed >> 16) as u16).to_le_bytes());
        }
    }

    /// Parses an inode from its bytes, which are at byte `offset` of the disk.
    pub(crate) fn parse_inode(&self, number: u32, bytes: &[u8], offset: u64) -> Result<Inode> {
        let structure = DiskStructure::Inode(number);
        let extra = if bytes.len() > PLAIN_BYTES { usize::from(le16(bytes, 0x80)) } else { 0 };
        if PLAIN_BYTES + extra > bytes.len() || !extra.is_multiple_of(4) {
            return Err(structure.fault(offset + 0x80, format!("{extra} bytes of extra fields")));
        }
        let generation = le32(bytes, 0x64);
        if self.superblock().has_checksums() {
            let has_high = extra >= CHECKSUM_HIGH + 2 - PLAIN_BYTES;
            let high = if has_high { u32::from(le16(bytes, CHECKSUM_HIGH)) << 16 } else { 0 };
            let stored = high | u32::from(le16(bytes, CHECKSUM_LOW));
            let computed = self.inode_checksum(number, generation, bytes, has_high);
            if stored != computed {
                return Err(structure.bad_checksum(offset, stored, computed));
            }
        }
        let mode = le16(bytes, 0x0);
        let has_high_size =
            Ext4FileKind::of_mode(mode) == Ext4FileKind::Regular || self.superblock().incompat.contains(Incompat::LARGEDIR);
        let size = wide(if has_high_size { le32(bytes, 0x6C) } else { 0 }, le32(bytes, 0x4));
        // Two bits of the extra timestamp field extend the range of seconds beyond 2038.
        let more = if extra >= 0x8C - PLAIN_BYTES { le32(bytes, 0x88) } else { 0 };
        let seconds = i64::from(le32(bytes, 0x10).cast_signed()) + (i64::from(more & 3) << 32);
        let mut map = [0; MAP_BYTES];
        map.copy_from_slice(&bytes[MAP_AT..MAP_AT + MAP_BYTES]);
        let flags = InodeFlags::from_bits_retain(le32(bytes, 0x20));
        let inline = if flags.contains(InodeFlags::INLINE_DATA) {
            let contents = inline_contents(bytes, &map, PLAIN_BYTES + extra);
            Some(contents.map_err(|(at, problem)| structure.fault(offset + at as u64, problem))?)
        } else {
            None
        };
        if inline.as_ref().is_some_and(|inline| size > inline.len() as u64) {
            return Err(structure.fault(offset + 0x4, format!("{size} bytes of contents do not fit into an inode")));
        }
        let units = wide(u32::from(le16(bytes, 0x74)), le32(bytes, 0x1C));
        let is_huge = flags.contains(InodeFlags::HUGE_FILE);
        Ok(Inode {
            number,
            mode,
            size,
            links: le16(bytes, 0x1A),
            owners: [(0x2, 0x78), (0x18, 0x7A)]
                .map(|(low, high)| u32::from(le16(bytes, high)) << 16 | u32::from(le16(bytes, low)))
                .into(),
            sectors: if is_huge { units * u64::from(self.superblock().block_size / 512) } else { units },
            modified: (seconds, more >> 2),
            flags,
            inline,
            attribute_block: wide(u32::from(le16(bytes, 0x76)), le32(bytes, 0x68)),
            generation,
            map,
            offset,
        })
    }

    fn inode_checksum(&self, number: u32, generation: u32, bytes: &[u8], has_high: bool) -> u32 {
        let state = crc32c(self.superblock().seed, &number.to_le_bytes());
        let state = crc32c(state, &generation.to_le_bytes());
        let state = crc32c(crc32c(state, &bytes[..CHECKSUM_LOW]), &[0, 0]);
        let state = crc32c(state, &bytes[CHECKSUM_LOW + 2..PLAIN_BYTES]);
        if bytes.len() == PLAIN_BYTES {
            return state & 0xFFFF;
        }
        let state = crc32c(state, &bytes[PLAIN_BYTES..CHECKSUM_HIGH]);
        if has_high {
            crc32c(crc32c(state, &[0, 0]), &bytes[CHECKSUM_HIGH + 2..])
        } else {
            crc32c(state, &bytes[CHECKSUM_HIGH..]) & 0xFFFF
        }
    }
}

const ATTRIBUTE_MAGIC: u32 = 0xEA02_0000;
/// Number of bytes in an attribute entry before its name.
const ENTRY_BYTES: usize = 16;
/// The number of the prefix `system.`.
const SYSTEM: u8 = 7;

/// Returns the contents of an inode whose attributes start at byte `at`. An error consists of an offset and a description.
pub(crate) fn inline_contents(
    bytes: &[u8], map: &[u8; MAP_BYTES], at: usize,
) -> std::result::Result<Vec<u8>, (usize, &'static str)> {
    let mut out = map.to_vec();
    if le32(bytes, at) != ATTRIBUTE_MAGIC {
        return Ok(out);
    }
    let first = at + 4;
    let mut entry = first;
    // The list of extended attributes ends with four zero bytes, or at the end of the inode.
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

/// Number of bytes in the header of an attribute block.
const BLOCK_HEAD: usize = 32;
/// The prefixes of attribute names, by their number.
const PREFIXES: [&str; 9] = [
    "", "user.", "system.posix_acl_access", "system.posix_acl_default", "trusted.", "", "security.", "system.", "system.richacl",
];

/// An extended attribute: full name and value.
pub type Attribute = (Vec<u8>, Vec<u8>);

impl<B: DiskReader> Ext4Filesystem<B> {
    /// Returns the extended attributes of an inode, beginning with those stored in the inode.
    /// Errors: if an entry extends beyond the end of its block, or a value is stored in a separate inode, which is not supported.
    pub fn attributes(&self, inode: &Inode) -> Result<Vec<Attribute>> {
        let structure = DiskStructure::Attributes(inode.number);
        let mut out = Vec::new();
        let mut bytes = vec![0; usize::from(self.superblock().inode_size)];
        structure.read(self.disk(), inode.offset, &mut bytes)?;
        // Extended attributes in the inode follow its extra fields, whose length was checked when the inode was read.
        let extra = if bytes.len() > PLAIN_BYTES { usize::from(le16(&bytes, 0x80)) } else { 0 };
        let from = PLAIN_BYTES + extra;
        if bytes.len() >= from + 4 && le32(&bytes, from) == ATTRIBUTE_MAGIC {
            let at = inode.offset + from as u64 + 4;
            Self::read_attributes(structure, &bytes[from + 4..], 0, at, &mut out)?;
        }
        if inode.attribute_block != 0 {
            let offset = self.offset_of(inode.attribute_block, structure)?;
            let mut block = vec![0; self.superblock().block_size as usize];
            structure.read(self.disk(), offset, &mut block)?;
            if le32(&block, 0) != ATTRIBUTE_MAGIC {
                return Err(structure.fault(offset, format!("the block begins with {:#010x}", le32(&block, 0))));
            }
            Self::read_attributes(structure, &block, BLOCK_HEAD, offset, &mut out)?;
        }
        Ok(out)
    }

    /// Reads attribute entries from byte `at` on. Offsets of values are relative to `bytes`, which is at byte `offset` of the disk.
    fn read_attributes(
        structure: DiskStructure, bytes: &[u8], mut at: usize, offset: u64, out: &mut Vec<Attribute>,
    ) -> Result<()> {
        while bytes.len() >= at + 4 && le32(bytes, at) != 0 {
            let beyond = || structure.fault(offset + at as u64, "an entry extends beyond the end");
            let head = bytes.get(at..at + ENTRY_BYTES).ok_or_else(beyond)?;
            let (length, index) = (usize::from(head[0]), usize::from(head[1]));
            if le32(head, 4) != 0 {
                return Err(structure.unsupported(offset + at as u64, "a value is stored in its own inode"));
            }
            let name = bytes.get(at + ENTRY_BYTES..at + ENTRY_BYTES + length).ok_or_else(beyond)?;
            let (from, size) = (usize::from(le16(head, 2)), le32(head, 8) as usize);
            let value = from.checked_add(size).and_then(|end| bytes.get(from..end)).ok_or_else(beyond)?;
            let prefix = PREFIXES.get(index).copied().unwrap_or_default();
            out.push(([prefix.as_bytes(), name].concat(), value.to_vec()));
            at += (ENTRY_BYTES + length).next_multiple_of(4);
        }
        Ok(())
    }
}
