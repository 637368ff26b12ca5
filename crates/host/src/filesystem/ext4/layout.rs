//! The on-disk layout that mke2fs chooses: block groups with their descriptors, bitmaps and inode tables, and the journal.

use emmclab_base::{Error, ErrorClass, Result};

use crate::mount::Mount;

/// Blocks per group.
pub(super) const GROUP_BLOCKS: u64 = 32_768;
/// Groups whose bitmaps and inode tables are stored together (flex group).
pub(super) const FLEX: u64 = 16;
/// Inodes per block, 256 bytes each.
pub(super) const INODES_PER_BLOCK: u64 = 16;
/// Bytes of the file system per inode.
const INODE_RATIO: u64 = 16_384;
const DESCRIPTORS_PER_BLOCK: u64 = 64;

/// The layout of a file system with blocks of 4 KB, inodes of 256 bytes, `flex_bg` and `sparse_super`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ext4Layout {
    pub blocks: u64,
    pub groups: u64,
    pub inodes_per_group: u64,
    /// Blocks of group descriptors, including those that are reserved for growth.
    descriptors: u64,
    pub journal: u64,
    pub journal_blocks: u64,
}

impl Ext4Layout {
    /// The layout of a partition.
    ///
    /// # Errors
    /// For a partition that is too small.
    pub fn new(mount: &Mount) -> Result<Self> {
        let blocks = mount.sectors / 8;
        let groups = blocks.div_ceil(GROUP_BLOCKS);
        let inodes = (blocks * 4096 / INODE_RATIO).max(64);
        let inodes_per_group = inodes.div_ceil(groups).next_multiple_of(INODES_PER_BLOCK);
        let descriptors = groups.div_ceil(DESCRIPTORS_PER_BLOCK);
        // Space for growth by a factor of 1024, up to what one block of addresses can refer to.
        let kept = (blocks * 1024).div_ceil(GROUP_BLOCKS).div_ceil(DESCRIPTORS_PER_BLOCK).min(1024 + descriptors);
        let journal_blocks = match mount.options.journal_mb {
            Some(mb) => u64::from(mb) << 8,
            None => default_journal(blocks),
        };
        let mut layout =
            Self { blocks, groups, inodes_per_group, descriptors: kept.max(descriptors), journal: 0, journal_blocks };
        let needed = layout.first_data() + journal_blocks + 64;
        if blocks < needed || journal_blocks < 1024 {
            let least = needed.max(2048) * 8;
            return Err(Error::new(ErrorClass::Config, "too small for ext4 with a journal of at least 4 MB")
                .of_field("sectors", 0, mount.sectors.to_string().as_bytes())
                .hint(format!("use a partition of {least} sectors or more, and `journal_mb` of 4 or more")));
        }
        // The journal is in the middle, after the tables of its flex group.
        let group = groups / 2 / FLEX * FLEX;
        layout.journal = if groups > 2 * FLEX {
            Ext4Layout::group_start(group + 1) + layout.overhead(group + 1)
        } else {
            layout.first_data() + 5
        };
        if layout.journal + journal_blocks > blocks {
            layout.journal = blocks - journal_blocks;
        }
        Ok(layout)
    }

    pub fn group_start(group: u64) -> u64 {
        group * GROUP_BLOCKS
    }

    pub fn group_of(block: u64) -> u64 {
        block / GROUP_BLOCKS
    }

    fn flex_of(group: u64) -> u64 {
        group / FLEX * FLEX
    }

    /// Number of blocks of a group's superblock and descriptor copies; 0 for most groups.
    fn overhead(&self, group: u64) -> u64 {
        let power = |base: u64| {
            let mut at = base;
            while at < group {
                at *= base;
            }
            at == group
        };
        if group <= 1 || power(3) || power(5) || power(7) { 1 + self.descriptors } else { 0 }
    }

    fn tables(&self, group: u64) -> (u64, u64) {
        let flex = Self::flex_of(group);
        let groups = (self.groups - flex).min(FLEX);
        (Self::group_start(flex) + self.overhead(flex), groups)
    }

    /// The block with a group's descriptor.
    pub fn descriptor(group: u64) -> u64 {
        1 + group / DESCRIPTORS_PER_BLOCK
    }

    pub fn block_bitmap(&self, group: u64) -> u64 {
        self.tables(group).0 + group % FLEX
    }

    pub fn inode_bitmap(&self, group: u64) -> u64 {
        let (first, groups) = self.tables(group);
        first + groups + group % FLEX
    }

    fn inode_blocks(&self) -> u64 {
        self.inodes_per_group / INODES_PER_BLOCK
    }

    /// The block with an inode of a group.
    pub fn inode_block(&self, group: u64, index: u64) -> u64 {
        let (first, groups) = self.tables(group);
        first + 2 * groups + group % FLEX * self.inode_blocks() + index / INODES_PER_BLOCK
    }

    /// The first block after the tables of the first flex group; it contains the root folder.
    pub fn first_data(&self) -> u64 {
        let (first, groups) = self.tables(0);
        first + groups * (2 + self.inode_blocks())
    }

    /// The ranges of blocks that the file system itself uses.
    pub fn metadata_ranges(&self) -> Vec<(u64, u64)> {
        let mut taken = Vec::new();
        for group in 0..self.groups {
            let start = Self::group_start(group);
            taken.push((start, start + self.overhead(group)));
            if group % FLEX == 0 {
                let (first, groups) = self.tables(group);
                taken.push((first, first + groups * (2 + self.inode_blocks())));
            }
        }
        taken.push((self.journal, self.journal + self.journal_blocks));
        taken.retain(|(from, to)| from < to);
        taken
    }

    /// The first group for data of regular files of a flex group: the second one, since the tables fill the first.
    pub fn data_group(&self, group: u64) -> u64 {
        let flex = Self::flex_of(group);
        if flex + 1 < self.groups { flex + 1 } else { group }
    }
}

/// Default size of the journal in blocks, as in mke2fs 1.47.
fn default_journal(blocks: u64) -> u64 {
    let mb = match blocks {
        ..32_768 => 4,
        32_768..262_144 => 16,
        262_144..524_288 => 32,
        524_288..4_194_304 => 64,
        4_194_304..8_388_608 => 128,
        8_388_608..16_777_216 => 256,
        16_777_216..33_554_432 => 512,
        _ => 1024,
    };
    mb << 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::{FilesystemKind, MountOptions};

    /// Addresses that e2fsprogs 1.47 chose for 16 GB, as shown by `dumpe2fs` and by traces of Linux 6.18.
    #[test]
    fn a_partition_of_16_gb_is_laid_out_as_mke2fs_does() {
        let options = MountOptions { journal_mb: Some(128), ..MountOptions::default() };
        let mount = Mount { filesystem: FilesystemKind::Ext4, first_sector: 0, sectors: 16 << 21, options };
        let layout = Ext4Layout::new(&mount).unwrap();
        assert_eq!(layout.inodes_per_group, 8192);
        assert_eq!(layout.block_bitmap(1) * 8, 8_224);
        assert_eq!(layout.inode_bitmap(0) * 8, 8_344);
        assert_eq!(layout.inode_block(0, 1) * 8, 8_472);
        assert_eq!(layout.first_data() * 8, 74_008);
        assert_eq!(layout.journal * 8, 17_039_360);
        assert_eq!(layout.inode_block(16, 0) * 8, 4_194_560);
    }
}
