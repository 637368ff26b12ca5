//! Allocation of blocks and inodes. Small files share runs that are preallocated per flex group; each large file gets aligned runs of its
//! own (multiblock allocation).

use std::collections::BTreeSet;

use emmclab_base::{BlockRole, Error, ErrorClass, Result, SectorRangeMap};

use super::Ext4;
use crate::config::Mount;
use crate::core::HostCore;

/// Maximum number of blocks of a file that shares a preallocated run (`mb_stream_req`).
const SMALL: u64 = 16;
/// Number of blocks in a preallocated run for small files (`mb_group_prealloc`).
const SHARED_RUN: u64 = 512;
/// Number of extents that fit into an inode.
const INODE_EXTENTS: u64 = 4;
/// Number of extents that fit into a block of an extent tree.
const LEAF_EXTENTS: u64 = 340;

/// A run of blocks; `to` is exclusive.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BlockRange {
    pub from: u64,
    pub to: u64,
}

/// The inodes of a group. The lowest free inode is allocated first.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupInodes {
    freed: BTreeSet<u64>,
    next: u64,
}

impl GroupInodes {
    /// Reserves the first `count` inodes.
    pub fn keep(&mut self, count: u64) {
        self.next = self.next.max(count);
    }

    /// Index of the inode that is allocated next.
    pub fn peek(&self) -> u64 {
        self.freed.first().copied().unwrap_or(self.next)
    }

    /// Whether no inode of the group was ever allocated. If so, its bitmap need not be read.
    pub fn is_untouched(&self) -> bool {
        self.next == 0
    }

    /// The blocks of the group's inode table that are read together with the block of an inode; `table` is the first block of the table.
    pub fn read_together(&self, table: u64, index: u64) -> std::ops::RangeInclusive<u64> {
        let block = table + index / INODES_PER_BLOCK;
        let first = (block / INODE_READ_AHEAD * INODE_READ_AHEAD).max(table);
        first..=(first + INODE_READ_AHEAD).min(table + self.next / INODES_PER_BLOCK)
    }

    /// Whether no other inode in the same block of the inode table is in use. If so, the block need not be read.
    pub fn is_alone(&self, index: u64) -> bool {
        let first = index / INODES_PER_BLOCK * INODES_PER_BLOCK;
        let mut used = first..(first + INODES_PER_BLOCK).min(self.next);
        used.all(|inode| inode == index || self.freed.contains(&inode))
    }

    pub fn take(&mut self) -> u64 {
        self.freed.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    pub fn free(&mut self, index: u64) {
        self.freed.insert(index);
    }

    /// Number of inodes in use.
    pub fn used(&self) -> u64 {
        self.next - self.freed.len() as u64
    }
}

/// The allocation state of a file.
#[derive(Debug, Default)]
pub(super) struct Ext4File {
    pub group: u64,
    pub index: u64,
    /// Extents of the file, by page number. The value of an extent is its block number minus its page number.
    pub extents: SectorRangeMap<i64>,
    /// The first page after the allocated pages, and the blocks that are preallocated for the pages from there on.
    set_aside: Option<(u64, BlockRange)>,
    /// Blocks of the file's extent tree.
    leaves: Vec<u64>,
    /// The last transaction that changed the inode.
    pub changed: u32,
    /// The last transaction that changed metadata needed to find the file's data.
    pub data_changed: u32,
    /// Time of the last change of the inode's times, in ticks.
    pub tick: i64,
}

impl Ext4File {
    /// A new file that has the inode `index` of a group.
    pub fn new(group: u64, index: u64) -> Self {
        Self { group, index, tick: i64::MIN, ..Self::default() }
    }
}

impl Ext4 {
    /// The first group with a free inode for a file in a folder of `group`: the search begins with the flex group of the folder.
    pub(super) fn inode_group(&self, group: u64) -> u64 {
        let (group, groups) = (group / FLEX * FLEX, self.layout.groups);
        let candidates = (0..groups).map(|step| (group + step) % groups);
        candidates.into_iter().find(|at| self.inodes[*at as usize].peek() < self.layout.inodes_per_group).unwrap_or(group)
    }

    /// Returns the block at which the search for free blocks starts for all files of the same folder.
    fn data_start(&self, inode: u32) -> u64 {
        Ext4Layout::group_start(self.layout.data_group(self.files[inode as usize].group))
    }

    /// Finds a free run of `want` blocks: the smallest sufficient buddy in the first group that has one, beginning with the group of
    /// `from`; the first group of a flex group, which has the tables, only if no other group has one. If no group has such a buddy, finds any
    /// free run of this length, or otherwise the longest free run.
    fn find(&self, from: u64, want: u64) -> (u64, u64) {
        let groups = self.layout.groups;
        let first = Ext4Layout::group_of(from);
        for step in 0..2 * groups {
            let group = (first + step) % groups;
            if group.is_multiple_of(FLEX) != (step >= groups) {
                continue;
            }
            let start = Ext4Layout::group_start(group);
            if let Some(block) = self.free.find_buddy(start, start + GROUP_BLOCKS, want) {
                return (block, want);
            }
        }
        self.free.find(from, want, 1).unwrap_or((from, 0))
    }

    /// Returns the preferred block for a page: the block after the block of the previous page or, if the previous page has no block, the
    /// block at which searches for the folder start.
    pub(super) fn goal(&self, inode: u32, page: u64) -> u64 {
        let file = &self.files[inode as usize];
        let before = page.checked_sub(1).and_then(|page| file.extents.get(page).map(|delta| page as i64 + delta));
        before.map_or_else(|| self.data_start(inode), |block| block as u64 + 1)
    }

    /// Allocates up to `count` blocks for the pages of a file from `page` on; `size` is its length in pages.
    fn take_blocks(&mut self, inode: u32, page: u64, count: u64, size: u64) -> BlockRange {
        let file = &mut self.files[inode as usize];
        if let Some((expected, run)) = &mut file.set_aside
            && *expected == page
            && run.from < run.to
        {
            let taken = BlockRange { from: run.from, to: run.to.min(run.from + count) };
            (*expected, run.from) = (page + taken.to - taken.from, taken.to);
            return taken;
        }
        self.drop_set_aside(inode);
        let goal = self.goal(inode, page);
        if size <= SMALL {
            return self.take_shared(self.data_start(inode), count);
        }
        // The run is sized for the expected growth of the file: it ends at the next multiple of a power of two up to 8 MB.
        let window = size.next_power_of_two().min(if size <= 1024 { 512 } else { 2048 });
        let want = (window - page % window).max(count.min(GROUP_BLOCKS / 2));
        let (from, length) = if page > 0 && self.free.free_at(goal, want) == want {
            (goal, want)
        } else {
            // The search for the blocks of a large file starts in the group of the last allocation (Linux: `s_mb_last_group`).
            self.find(Ext4Layout::group_start(self.last_group), want)
        };
        // A run of blocks does not extend beyond its block group.
        let end = (Ext4Layout::group_of(from) + 1) * GROUP_BLOCKS;
        let run = BlockRange { from, to: (from + length).min(end) };
        self.free.take(run.from, run.to);
        let taken = BlockRange { from, to: run.to.min(from + count) };
        if taken.to < run.to {
            let rest = BlockRange { from: taken.to, to: run.to };
            self.files[inode as usize].set_aside = Some((page + taken.to - taken.from, rest));
        }
        taken
    }

    fn take_shared(&mut self, goal: u64, count: u64) -> BlockRange {
        let flex = (Ext4Layout::group_of(goal) / super::allocate::FLEX) as usize;
        let run = self.shared[flex];
        if run.to - run.from < count {
            if run.from < run.to {
                self.free.give(run.from, run.to);
            }
            // The first allocation in a group preallocates nothing, because Linux has not yet read the bitmap of the group.
            let fresh = std::mem::take(&mut self.fresh[Ext4Layout::group_of(goal) as usize]);
            let want = if fresh { count } else { SHARED_RUN.max(count) };
            let (from, length) = self.find(goal, want);
            let end = (Ext4Layout::group_of(from) + 1) * GROUP_BLOCKS;
            let run = BlockRange { from, to: (from + length).min(end) };
            self.free.take(run.from, run.to);
            self.shared[flex] = run;
        }
        let run = &mut self.shared[flex];
        let taken = BlockRange { from: run.from, to: run.to.min(run.from + count) };
        run.from = taken.to;
        taken
    }

    /// Releases the blocks that are preallocated for a file.
    pub(super) fn drop_set_aside(&mut self, inode: u32) {
        if let Some((_, run)) = self.files[inode as usize].set_aside.take()
            && run.from < run.to
        {
            self.free.give(run.from, run.to);
        }
    }

    /// Releases all preallocated runs, because there is not enough other free space.
    fn drop_all(&mut self) {
        for inode in 0..self.files.len() {
            self.drop_set_aside(inode as u32);
        }
        for run in &mut self.shared {
            if run.from < run.to {
                self.free.give(run.from, run.to);
            }
            *run = BlockRange::default();
        }
    }

    /// Allocates blocks for at most `count` pages of a file, from `page` on. Returns the allocated run of blocks.
    pub(super) fn allocate(&mut self, core: &HostCore, inode: u32, page: u64, count: u64, logged: bool) -> BlockRange {
        let size = core.cache.inode(inode).end.div_ceil(4096).max(page + count);
        let mut run = self.take_blocks(inode, page, count, size);
        if run.from >= run.to {
            self.drop_all();
            run = self.take_blocks(inode, page, count, size);
        }
        assert!(run.from < run.to, "space was set aside for every page");
        let taken = run.to - run.from;
        self.last_group = Ext4Layout::group_of(run.from);
        self.touched[self.last_group as usize] = true;
        self.used += taken;
        let file = &mut self.files[inode as usize];
        file.extents.set(page, page + taken, run.from as i64 - page as i64);
        if logged {
            let group = Ext4Layout::group_of(run.from);
            self.log(core, self.layout.block_bitmap(group), BlockRole::BlockBitmap);
            self.log_descriptor(core, group);
            self.grow_leaves(core, inode);
        }
        run
    }

    /// Adds blocks to the extent tree if the number of extents requires it, and logs the last block of the tree in the journal.
    fn grow_leaves(&mut self, core: &HostCore, inode: u32) {
        let file = &self.files[inode as usize];
        let extents = file.extents.len() as u64;
        let needed = if extents <= INODE_EXTENTS { 0 } else { extents.div_ceil(LEAF_EXTENTS) };
        while (self.files[inode as usize].leaves.len() as u64) < needed {
            let goal = self.goal(inode, 0);
            let run = self.take_shared(goal, 1);
            if run.from >= run.to {
                return;
            }
            self.used += 1;
            self.buffers.add(run.from, BlockRole::Metadata);
            self.files[inode as usize].leaves.push(run.from);
            self.log(core, self.layout.block_bitmap(Ext4Layout::group_of(run.from)), BlockRole::BlockBitmap);
        }
        if needed > 0
            && let Some(leaf) = self.files[inode as usize].leaves.last().copied()
        {
            self.log(core, leaf, BlockRole::Metadata);
        }
    }

    /// Frees the pages of a file from `page` on. Their blocks can be reused when the transaction is committed.
    pub(super) fn free_from(&mut self, core: &HostCore, inode: u32, page: u64) {
        self.drop_set_aside(inode);
        let runs: Vec<(u64, u64)> = {
            let block = |page: u64, delta: i64| (page as i64 + delta) as u64;
            let file = &self.files[inode as usize];
            file.extents.find(page, u64::MAX).map(|(from, to, delta)| (block(from, *delta), block(to, *delta))).collect()
        };
        self.files[inode as usize].extents.remove(page, u64::MAX);
        for (from, to) in runs {
            self.free_run(core, from, to);
        }
        if page == 0 || self.files[inode as usize].extents.len() as u64 <= INODE_EXTENTS {
            for leaf in std::mem::take(&mut self.files[inode as usize].leaves) {
                self.revoke(leaf);
                self.free_run(core, leaf, leaf + 1);
            }
        }
    }

    fn free_run(&mut self, core: &HostCore, from: u64, to: u64) {
        self.journal.running.freed.push((from, to));
        let (first, last) = (Ext4Layout::group_of(from), Ext4Layout::group_of(to - 1));
        for group in first..=last {
            self.log(core, self.layout.block_bitmap(group), BlockRole::BlockBitmap);
            self.log_descriptor(core, group);
        }
    }
}

// The on-disk layout that mke2fs chooses: block groups with their descriptors, bitmaps and inode tables, and the journal.

pub(super) const GROUP_BLOCKS: u64 = 32_768;
/// Number of groups whose bitmaps and inode tables are stored together (flex group).
pub(super) const FLEX: u64 = 16;
pub(super) const INODES_PER_BLOCK: u64 = 16;
/// Maximum number of blocks of an inode table that are read together (`inode_readahead_blks`).
const INODE_READ_AHEAD: u64 = 32;
/// Number of data blocks that mke2fs uses: the root folder, `lost+found`, and the list of blocks that are reserved for descriptors.
pub(super) const FIRST_BLOCKS: u64 = 6;
const DESCRIPTORS_PER_BLOCK: u64 = 64;

/// The layout of a file system with blocks of 4 KB, inodes of 256 bytes, `flex_bg` and `sparse_super`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ext4Layout {
    pub blocks: u64,
    pub groups: u64,
    pub inodes_per_group: u64,
    /// Number of blocks of group descriptors, including those reserved for growth.
    descriptors: u64,
    pub journal: u64,
    pub journal_blocks: u64,
}

impl Ext4Layout {
    /// Computes the layout of a partition.
    /// Errors: if the partition is too small.
    pub fn new(mount: &Mount) -> Result<Self> {
        let blocks = mount.sectors / 8;
        let groups = blocks.div_ceil(GROUP_BLOCKS);
        let inodes = (blocks * 4096 / inode_ratio(blocks)).max(64);
        let inodes_per_group = inodes.div_ceil(groups).next_multiple_of(INODES_PER_BLOCK);
        let descriptors = groups.div_ceil(DESCRIPTORS_PER_BLOCK);
        // Blocks for group descriptors are reserved for growth of the file system by a factor of 1024. At most 1024 blocks are reserved,
        // because one block of addresses must refer to all of them.
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
            return Err(Error::new(ErrorClass::Config, "the partition is too small for ext4 with a journal of at least 4 MB")
                .of_field("sectors", 0, mount.sectors.to_string().as_bytes())
                .hint(format!("use a partition of {least} sectors or more, and `journal_mb` of 4 or more")));
        }
        layout.journal = layout.first_free(layout.journal_group());
        if layout.journal + journal_blocks > blocks {
            layout.journal = blocks - journal_blocks;
        }
        Ok(layout)
    }

    /// The group in which mke2fs begins the journal: in the middle of the file system, beside the tables of a flex group.
    fn journal_group(&self) -> u64 {
        let middle = Self::group_of(self.blocks / 2);
        let first = if middle > FLEX { Self::flex_of(middle) } else { middle.saturating_sub(1) };
        let free = |group: u64| (Self::group_start(group + 1).min(self.blocks)).saturating_sub(self.first_free(group));
        let last = if middle > FLEX { first + 1 } else { middle + 1 };
        (first..=last.min(self.groups - 1)).rev().max_by_key(|group| free(*group)).unwrap_or(0)
    }

    /// The first block of a group that mke2fs leaves free.
    fn first_free(&self, group: u64) -> u64 {
        if group == 0 {
            return self.first_data() + FIRST_BLOCKS;
        }
        let (first, groups) = self.tables(group);
        let tables = if group.is_multiple_of(FLEX) { first + groups * (2 + self.inode_blocks()) } else { 0 };
        tables.max(Self::group_start(group) + self.overhead(group))
    }

    /// The blocks that a mount reads: the superblock, the descriptors, and the inodes that are read together with that of the root folder.
    pub fn mounted_blocks(&self) -> impl Iterator<Item = u64> + use<> {
        let table = self.inode_block(0, 0);
        let last = table + INODE_READ_AHEAD.min(self.inode_blocks() - 1);
        (0..=self.groups.div_ceil(DESCRIPTORS_PER_BLOCK)).chain(table..=last)
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

    /// Number of blocks in a group for backups of the superblock and the group descriptors; 0 for most groups.
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

    pub fn inode_block(&self, group: u64, index: u64) -> u64 {
        let (first, groups) = self.tables(group);
        first + 2 * groups + group % FLEX * self.inode_blocks() + index / INODES_PER_BLOCK
    }

    /// The group of a block of an inode table, and the index of its first inode; `None` for other blocks.
    pub fn inode_position(&self, block: u64) -> Option<(u64, u64)> {
        let flex = Self::flex_of(Self::group_of(block));
        let (first, groups) = self.tables(flex);
        let at = block.checked_sub(first + 2 * groups).filter(|at| *at < groups * self.inode_blocks())?;
        Some((flex + at / self.inode_blocks(), at % self.inode_blocks() * INODES_PER_BLOCK))
    }

    /// Returns the first block after the bitmaps and inode tables of the first flex group. It is the first block of the root folder.
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

    /// The first group for data of regular files in a flex group: the second group, because bitmaps and inode tables fill the first.
    pub fn data_group(&self, group: u64) -> u64 {
        let flex = Self::flex_of(group);
        if flex + 1 < self.groups { flex + 1 } else { group }
    }
}

/// Number of bytes of the file system per inode, as in the file `mke2fs.conf` of e2fsprogs.
fn inode_ratio(blocks: u64) -> u64 {
    match blocks {
        ..0x2_0000 => 4_096,
        0x2_0000..0x4000_0000 => 16_384,
        0x4000_0000..0x1_0000_0000 => 32_768,
        _ => 65_536,
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
    use crate::config::{FilesystemKind, MountOptions};

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

    /// Blocks that e2fsprogs 1.47 chose, as shown by `dumpe2fs` and `debugfs`: inodes of a group, bitmaps, first table, root, journal.
    #[test]
    fn a_partition_below_512_mb_has_four_times_as_many_inodes() {
        for (mb, blocks) in [(400, [25_600, 51, 55, 59, 6_459, 65_536]), (145, [18_560, 20, 22, 24, 2_344, 2_350])] {
            let mount =
                Mount { filesystem: FilesystemKind::Ext4, first_sector: 0, sectors: mb << 11, options: MountOptions::default() };
            let layout = Ext4Layout::new(&mount).unwrap();
            let [block_bitmap, inode_bitmap] = [layout.block_bitmap(0), layout.inode_bitmap(0)];
            let (inodes, table) = (layout.inodes_per_group, layout.inode_block(0, 0));
            assert_eq!([inodes, block_bitmap, inode_bitmap, table, layout.first_data(), layout.journal], blocks, "{mb} MB");
        }
    }
}
