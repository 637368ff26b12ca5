//! Allocation of blocks and inodes. Small files share runs that are preallocated per flex group; large files get aligned runs of their own
//! (multiblock allocation).

use std::collections::BTreeSet;

use emmclab_base::{BlockRole, SectorRangeMap};

use crate::core::HostCore;

use super::Ext4;
use super::layout::{Ext4Layout, GROUP_BLOCKS, INODES_PER_BLOCK};

/// Files of up to this many blocks share a run (`mb_stream_req`).
const SMALL: u64 = 16;
/// Blocks of a run for small files (`mb_group_prealloc`).
const SHARED_RUN: u64 = 512;
/// Extents in an inode, and in a block of its extent tree.
const INODE_EXTENTS: u64 = 4;
const LEAF_EXTENTS: u64 = 340;

/// A run of blocks, preallocated or allocated; `to` is exclusive.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BlockRange {
    pub from: u64,
    pub to: u64,
}

/// The inodes of a group; the lowest free one is allocated first.
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

    /// The inode that is allocated next.
    pub fn peek(&self) -> u64 {
        self.freed.first().copied().unwrap_or(self.next)
    }

    /// Whether no inode of the group was ever allocated, so that its bitmap needs no read.
    pub fn is_untouched(&self) -> bool {
        self.next == 0
    }

    /// Whether no other inode in the block of this one is in use, so that the block needs no read.
    pub fn is_alone(&self, index: u64) -> bool {
        let first = index / INODES_PER_BLOCK * INODES_PER_BLOCK;
        let mut used = first..(first + INODES_PER_BLOCK).min(self.next);
        used.all(|one| one == index || self.freed.contains(&one))
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
}

/// The allocation state of a file.
#[derive(Debug, Default)]
pub(super) struct Ext4File {
    pub group: u64,
    pub index: u64,
    /// Extents by page; the value is the block number minus the page number.
    pub extents: SectorRangeMap<i64>,
    /// The page that follows its last allocation, and the blocks that are preallocated from that page on.
    set_aside: Option<(u64, BlockRange)>,
    /// Blocks of its extent tree.
    leaves: Vec<u64>,
    /// The last transactions that changed the inode, and that changed what is needed to find its data.
    pub changed: u32,
    pub data_changed: u32,
    /// When its times were last changed, in ticks.
    pub tick: i64,
}

impl Ext4File {
    /// A new file with this inode of a group.
    pub fn new(group: u64, index: u64) -> Self {
        Self { group, index, tick: i64::MIN, ..Self::default() }
    }
}

impl Ext4 {
    /// The first group with a free inode, from `group` on.
    pub(super) fn inode_group(&self, group: u64) -> u64 {
        let groups = self.layout.groups;
        let candidates = (0..groups).map(|step| (group + step) % groups);
        candidates
            .into_iter()
            .find(|at| self.inodes[*at as usize].peek() < self.layout.inodes_per_group)
            .unwrap_or(group)
    }

    /// The block from which blocks for files in this file's folder are searched.
    fn data_start(&self, inode: u32) -> u64 {
        Ext4Layout::group_start(self.layout.data_group(self.files[inode as usize].group))
    }

    /// Finds a free run of `want` blocks: the smallest sufficient buddy in the first group, from that of `from` on, that has one. Otherwise
    /// any run of this length, or else the longest one found.
    fn find(&self, from: u64, want: u64) -> (u64, u64) {
        let groups = self.layout.groups;
        let first = Ext4Layout::group_of(from);
        for step in 0..groups {
            let start = Ext4Layout::group_start((first + step) % groups);
            if let Some(block) = self.free.find_buddy(start, start + GROUP_BLOCKS, want) {
                return (block, want);
            }
        }
        self.free.find(from, want, 1).unwrap_or((from, 0))
    }

    /// The preferred block for a page: after the block of the previous page, or else where the search for its folder starts.
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
        // Enough for the expected growth of the file: a power of two up to 8 MB, less the part of that window before the page.
        let window = size.next_power_of_two().min(if size <= 1024 { 512 } else { 2048 });
        let want = (window - page % window).max(count.min(GROUP_BLOCKS / 2));
        let (from, length) = if page > 0 && self.free.free_at(goal, want) == want {
            (goal, want)
        } else {
            // Large files are allocated where the last allocation was (`s_mb_last_group`, and the groups whose buddies are known).
            self.find(Ext4Layout::group_start(self.last_group), want)
        };
        // A run ends with its group.
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
        let flex = (Ext4Layout::group_of(goal) / super::layout::FLEX) as usize;
        let run = self.shared[flex];
        if run.to - run.from < count {
            if run.from < run.to {
                self.free.give(run.from, run.to);
            }
            // The first allocation in a group preallocates nothing: its bitmap was not read when the run was searched for.
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

    /// Releases all preallocated runs, since there is not enough other free space.
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

    /// Allocates blocks for pages of a file, from `page` on. Returns the run, which may be shorter than `count`.
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

    /// Adds blocks to the extent tree if the number of extents requires it, and logs the last one.
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

    /// Frees the pages of a file from `page` on. Their blocks can be used again once the transaction is committed.
    pub(super) fn free_from(&mut self, core: &HostCore, inode: u32, page: u64) {
        self.drop_set_aside(inode);
        let runs: Vec<(u64, u64)> = {
            let block = |page: u64, delta: i64| (page as i64 + delta) as u64;
            let file = &self.files[inode as usize];
            file.extents
                .find(page, u64::MAX)
                .map(|(from, to, delta)| (block(from, *delta), block(to, *delta)))
                .collect()
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
