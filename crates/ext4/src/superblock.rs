//! The superblock: sizes, features, and the locations of the group descriptors.
//!
//! Source: Linux `Documentation/filesystems/ext4/super.rst`; checks of `fs/ext4/super.c`.

use bitflags::bitflags;
use emmclab_base::Result;

use crate::disk::{DiskReader, DiskStructure, crc32c, le16, le32, uuid, wide};

/// Offset of the superblock on the disk, in bytes.
pub(crate) const OFFSET: u64 = 1024;
/// Length of the superblock in bytes.
pub(crate) const BYTES: usize = 1024;

pub(crate) const MAGIC: u16 = 0xEF53;
const CRC32C: u8 = 1;

bitflags! {
    /// Features that a reader may ignore.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Compat: u32 {
        /// There is a journal.
        const HAS_JOURNAL = 4;
        /// The superblock has at most two backups, in two groups.
        const SPARSE_SUPER2 = 0x200;
        /// The journal may contain fast commits.
        const FAST_COMMIT = 0x400;
        const _ = !0;
    }

    /// Features that a reader must support.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Incompat: u32 {
        /// Directory entries store the type of the file.
        const FILETYPE = 2;
        /// The journal must be replayed.
        const RECOVER = 4;
        /// The device contains a journal and no files.
        const JOURNAL_DEV = 8;
        /// Descriptors are stored in the groups that they describe.
        const META_BG = 0x10;
        /// Files may be mapped by extents.
        const EXTENTS = 0x40;
        /// Block numbers have 64 bits.
        const WIDE = 0x80;
        /// Multiple mount protection.
        const MMP = 0x100;
        /// Metadata of several groups is stored together.
        const FLEX_BG = 0x200;
        /// Extended attributes may be stored in separate inodes.
        const EA_INODE = 0x400;
        /// The seed of checksums is stored in the superblock.
        const CSUM_SEED = 0x2000;
        /// Directories may be over 2 GB, or have hash trees of three levels.
        const LARGEDIR = 0x4000;
        /// Small files may be stored in the inode.
        const INLINE_DATA = 0x8000;
        /// Files may be encrypted.
        const ENCRYPT = 0x1_0000;
        /// Directories may ignore case.
        const CASEFOLD = 0x2_0000;
    }

    /// Features that a reader may ignore, but a writer must support.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RoCompat: u32 {
        /// Only some groups have backups of the superblock.
        const SPARSE_SUPER = 1;
        /// Group descriptors have checksums (CRC-16).
        const GDT_CSUM = 0x10;
        /// A bit of the block bitmap represents a cluster of blocks.
        const BIGALLOC = 0x200;
        /// All metadata has checksums (CRC32C).
        const METADATA_CSUM = 0x400;
        const _ = !0;
    }
}

/// The fields of the superblock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ext4Superblock {
    /// Size of a block in bytes: 1,024 to 65,536.
    pub block_size: u32,
    /// Number of blocks of the file system.
    pub blocks: u64,
    /// The first block of group 0: 1 if blocks have 1,024 bytes and there are no clusters, otherwise 0.
    pub first_block: u32,
    /// Number of blocks in a group.
    pub blocks_per_group: u32,
    /// Number of blocks in a cluster; 1 without `BIGALLOC`.
    pub blocks_per_cluster: u32,
    /// Number of inodes of the file system.
    pub inodes: u32,
    /// Number of inodes in a group.
    pub inodes_per_group: u32,
    /// Size of an inode in bytes.
    pub inode_size: u16,
    /// Size of a group descriptor in bytes.
    pub descriptor_size: u16,
    /// Features that a reader may ignore.
    pub compat: Compat,
    /// Features that a reader must support.
    pub incompat: Incompat,
    /// Features that a reader may ignore, but a writer must support.
    pub ro_compat: RoCompat,
    /// UUID of the file system.
    pub uuid: [u8; 16],
    /// UUID of an external journal; zeros if the journal is internal.
    pub journal_uuid: [u8; 16],
    /// The inode of an internal journal, usually 8; 0 if the journal is external.
    pub journal_inode: u32,
    /// Number of blocks of the disk from which the superblock was read: at least `blocks`.
    pub(crate) disk_blocks: u64,
    pub(crate) seed: u32,
    /// The first inode that is not reserved for the file system.
    pub first_inode: u32,
    /// The first block of descriptors that is stored in the groups that it describes.
    pub(crate) first_meta_group: u32,
    /// Number of blocks after the descriptors that are reserved for descriptors of future groups.
    pub(crate) spare_descriptor_blocks: u32,
    backup_groups: [u32; 2],
}

/// Clears the flag that requests a replay of the journal in a superblock, and updates the checksum.
pub(crate) fn clear_recover(bytes: &mut [u8; BYTES]) {
    let features = le32(bytes, 0x60) & !Incompat::RECOVER.bits();
    bytes[0x60..0x64].copy_from_slice(&features.to_le_bytes());
    if RoCompat::from_bits_retain(le32(bytes, 0x64)).contains(RoCompat::METADATA_CSUM) {
        let checksum = crc32c(!0, &bytes[..0x3FC]);
        bytes[0x3FC..].copy_from_slice(&checksum.to_le_bytes());
    }
}

impl Ext4Superblock {
    /// Reads and checks the superblock of a file system.
    /// Errors: if the magic number, checksum or a size is wrong, or features are unsupported, which the error lists.
    pub fn read(disk: &(impl DiskReader + ?Sized)) -> Result<Self> {
        let mut bytes = [0; BYTES];
        DiskStructure::Superblock.read(disk, OFFSET, &mut bytes)?;
        let mut out = Self::parse(&bytes, DiskStructure::Superblock, OFFSET)?;
        let size = disk
            .size()
            .map_err(|error| DiskStructure::Superblock.fault(OFFSET, format!("the size of the disk is unknown: {error}")))?;
        if out.incompat.contains(Incompat::JOURNAL_DEV) {
            let hint = "specify the device of the file system, and this device as its journal";
            return Err(DiskStructure::Superblock.unsupported(OFFSET, "this is a journal device").hint(hint));
        }
        out.check_groups(size)?;
        out.disk_blocks = size / u64::from(out.block_size);
        Ok(out)
    }

    /// Parses the fields that a file system and a journal device share.
    pub(crate) fn parse(bytes: &[u8], structure: DiskStructure, offset: u64) -> Result<Self> {
        let fault = |at: u64, problem: String| Err(structure.fault(offset + at, problem));
        let magic = le16(bytes, 0x38);
        if magic != MAGIC {
            return fault(0x38, format!("magic number {magic:#06x} is not {MAGIC:#06x}"));
        }
        let wide_features = le32(bytes, 0x4C) > 0;
        let features = |at| if wide_features { le32(bytes, at) } else { 0 };
        let unknown = features(0x60) & !Incompat::all().bits();
        if unknown != 0 {
            return Err(structure.unsupported(offset + 0x60, format!("incompatible features {}", named(unknown))));
        }
        let incompat = Incompat::from_bits_retain(features(0x60));
        let ro_compat = RoCompat::from_bits_retain(features(0x64));
        let own_uuid = uuid(bytes, 0x68);
        let mut seed = crc32c(!0, &own_uuid);
        if ro_compat.contains(RoCompat::METADATA_CSUM) {
            let kind = bytes.get(0x175).copied().unwrap_or(0);
            if kind != CRC32C {
                return fault(0x175, format!("checksum type {kind} is unknown, 1 (crc32c) is known"));
            }
            let (stored, computed) = (le32(bytes, 0x3FC), crc32c(!0, bytes.get(..0x3FC).unwrap_or_default()));
            if stored != computed {
                return Err(structure.bad_checksum(offset, stored, computed));
            }
            if incompat.contains(Incompat::CSUM_SEED) {
                seed = le32(bytes, 0x270);
            }
        }
        let log_size = le32(bytes, 0x18);
        if log_size > 6 {
            return fault(0x18, format!("blocks of 2^{log_size} KB, at most 2^6"));
        }
        let block_size = 1024_u32 << log_size;
        let is_wide = incompat.contains(Incompat::WIDE);
        let high = if is_wide { le32(bytes, 0x150) } else { 0 };
        let log_cluster = le32(bytes, 0x1C).wrapping_sub(log_size);
        let clustered = ro_compat.contains(RoCompat::BIGALLOC);
        if clustered && log_cluster > 20 {
            return fault(0x1C, format!("clusters of 2^{} KB", le32(bytes, 0x1C)));
        }
        Ok(Self {
            block_size,
            blocks: wide(high, le32(bytes, 0x4)),
            first_block: le32(bytes, 0x14),
            blocks_per_group: le32(bytes, 0x20),
            blocks_per_cluster: if clustered { 1 << log_cluster } else { 1 },
            inodes: le32(bytes, 0x0),
            inodes_per_group: le32(bytes, 0x28),
            inode_size: if wide_features { le16(bytes, 0x58) } else { 128 },
            descriptor_size: if is_wide { le16(bytes, 0xFE) } else { 32 },
            compat: Compat::from_bits_retain(features(0x5C)),
            incompat,
            ro_compat,
            uuid: own_uuid,
            journal_uuid: uuid(bytes, 0xD0),
            journal_inode: le32(bytes, 0xE0),
            disk_blocks: 0,
            seed,
            first_inode: if wide_features { le32(bytes, 0x54) } else { 11 },
            first_meta_group: le32(bytes, 0x104),
            spare_descriptor_blocks: u32::from(le16(bytes, 0xCE)),
            backup_groups: [le32(bytes, 0x24C), le32(bytes, 0x250)],
        })
    }

    /// Checks the fields that determine the locations of metadata, on a disk of `size` bytes.
    pub(crate) fn check_groups(&self, size: u64) -> Result<()> {
        let fault = |at: u64, problem: String| Err(DiskStructure::Superblock.fault(OFFSET + at, problem));
        let bits = 8 * self.block_size;
        if self.blocks > size / u64::from(self.block_size) {
            return fault(0x4, format!("{} blocks do not fit into {size} bytes", self.blocks));
        }
        if u64::from(self.first_block) >= self.blocks {
            return fault(0x14, format!("the first block {} is not below {}", self.first_block, self.blocks));
        }
        if self.blocks_per_group == 0 || self.blocks_per_group / self.blocks_per_cluster > bits {
            return fault(0x20, format!("{} blocks in a group", self.blocks_per_group));
        }
        if self.inodes_per_group == 0 || self.inodes_per_group > bits {
            return fault(0x28, format!("{} inodes in a group", self.inodes_per_group));
        }
        if self.groups() > u64::from(u32::MAX) || u64::from(self.inodes) > self.groups() * u64::from(self.inodes_per_group) {
            return fault(0x0, format!("{} inodes in {} groups", self.inodes, self.groups()));
        }
        let inode = u32::from(self.inode_size);
        if !inode.is_power_of_two() || inode < 128 || inode > self.block_size {
            return fault(0x58, format!("inodes of {inode} bytes"));
        }
        let descriptor = self.descriptor_size;
        let least = if self.incompat.contains(Incompat::WIDE) { 64 } else { 32 };
        if !descriptor.is_power_of_two() || descriptor < least || descriptor > 1024 {
            return fault(0xFE, format!("group descriptors of {descriptor} bytes"));
        }
        Ok(())
    }

    /// Number of block groups.
    pub fn groups(&self) -> u64 {
        (self.blocks - u64::from(self.first_block)).div_ceil(u64::from(self.blocks_per_group))
    }

    /// Whether metadata has CRC32C checksums.
    pub fn has_checksums(&self) -> bool {
        self.ro_compat.contains(RoCompat::METADATA_CSUM)
    }

    /// The location of a group's descriptor, in bytes.
    pub(crate) fn descriptor_offset(&self, group: u32) -> u64 {
        let each = self.block_size / u32::from(self.descriptor_size);
        let (table_block, place) = (group / each, group % each);
        let block = if self.incompat.contains(Incompat::META_BG) && table_block >= self.first_meta_group {
            let first = table_block * each;
            // With clusters (`bigalloc`), blocks of 1,024 bytes are counted from 0, so the superblock is in the second block.
            let boot = self.block_size == 1024 && table_block == 0 && self.first_block == 0;
            self.group_start(first) + u64::from(self.has_superblock(first)) + u64::from(boot)
        } else {
            OFFSET / u64::from(self.block_size) + u64::from(table_block) + 1
        };
        block.saturating_mul(u64::from(self.block_size)) + u64::from(place) * u64::from(self.descriptor_size)
    }

    /// The first block of a group.
    pub(crate) fn group_start(&self, group: u32) -> u64 {
        u64::from(self.first_block) + u64::from(group) * u64::from(self.blocks_per_group)
    }

    /// Whether a group starts with a superblock: the primary one or a copy.
    pub(crate) fn has_superblock(&self, group: u32) -> bool {
        let power_of = |base: u32| {
            let mut rest = group;
            while rest > 1 && rest.is_multiple_of(base) {
                rest /= base;
            }
            rest == 1
        };
        if group == 0 {
            true
        } else if self.compat.contains(Compat::SPARSE_SUPER2) {
            self.backup_groups.contains(&group)
        } else if self.ro_compat.contains(RoCompat::SPARSE_SUPER) {
            [3, 5, 7].into_iter().any(power_of)
        } else {
            true
        }
    }
}

/// Lists the names of unsupported features, or their bits if they have no name.
fn named(bits: u32) -> String {
    let known = [(1, "compression"), (0x1000, "dirdata")];
    let names = known.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| (*name).to_owned());
    let rest = bits & !0x1001;
    let rest = (rest != 0).then(|| format!("{rest:#x}"));
    let all: Vec<String> = names.chain(rest).collect();
    format!("{} are not supported", all.join(", "))
}
