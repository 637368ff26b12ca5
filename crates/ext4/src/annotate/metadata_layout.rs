//! The locations of the metadata of a file system. They are read from metadata blocks when these are written or logged.

use std::collections::BTreeMap;

use emmclab_base::{BlockRole, SECTOR_BYTES, SectorSet};
use rustc_hash::FxHashMap;

use crate::disk::{DiskStructure, le16, le32, wide};
use crate::files::{
    EXTENT_BYTES, EXTENT_MAGIC, Ext4FileKind, FileBlockRun, GroupDescriptor, InodeFlags, MAP_AT, MAP_BYTES, extent_length,
    record_length,
};
use crate::superblock::{BYTES, Compat, Ext4Superblock, Incompat, OFFSET};

const SECTOR: usize = SECTOR_BYTES as usize;
/// Maximum number of block groups: 512 TB in groups of 128 MB.
const MOST_GROUPS: u64 = 1 << 22;

/// The known part of the layout of a file system.
pub(super) struct MetadataLayout {
    superblock: Ext4Superblock,
    runs: BlockRunMap,
    /// First blocks of the two bitmaps and of the inode table of each known group.
    groups: FxHashMap<u32, [u64; 3]>,
    /// Bitmaps and inode tables of groups that do not exist yet according to the known superblock. When a file system grows, the group
    /// descriptors are written before the superblock.
    groups_to_come: FxHashMap<u32, [u64; 3]>,
    /// Runs of blocks to which the inode of a directory refers directly, by inode number.
    directories: FxHashMap<u32, Vec<(u64, u64)>>,
    journal_inode: Option<Vec<u8>>,
    journal_moved: bool,
    /// Location of the journal, if it is known and inside this file system.
    journal_runs: Vec<FileBlockRun>,
}

/// Checks that the layout in a superblock is valid and supported, on a disk of `size` bytes (`u64::MAX` if unknown).
pub(super) fn check_layout(superblock: &Ext4Superblock, size: u64) -> emmclab_base::Result<()> {
    superblock.check_groups(size)?;
    if superblock.groups() > MOST_GROUPS {
        let problem = format!("{} block groups, at most {MOST_GROUPS} are supported", superblock.groups());
        return Err(DiskStructure::Superblock.unsupported(OFFSET + 0x20, problem));
    }
    Ok(())
}

impl MetadataLayout {
    /// The layout of a file system whose superblock alone is known. The superblock must have passed [`check_layout`].
    pub fn new(superblock: Ext4Superblock) -> Self {
        let mut out = Self {
            superblock,
            runs: BlockRunMap::default(),
            groups: FxHashMap::default(),
            groups_to_come: FxHashMap::default(),
            directories: FxHashMap::default(),
            journal_inode: None,
            journal_moved: true,
            journal_runs: Vec::new(),
        };
        out.place_tables();
        out
    }

    pub fn superblock(&self) -> &Ext4Superblock {
        &self.superblock
    }

    fn superblock_block(&self) -> u64 {
        OFFSET / u64::from(self.superblock.block_size)
    }

    pub fn at(&self, block: u64) -> BlockLookup {
        self.runs.at(block)
    }

    /// Whether the journal's inode, or its number in the superblock, has changed since the last call.
    pub fn take_journal_moved(&mut self) -> bool {
        std::mem::take(&mut self.journal_moved)
    }

    pub fn journal_inode(&self) -> Option<&[u8]> {
        self.journal_inode.as_deref()
    }

    /// Updates the superblock. Returns false if it describes a different layout of blocks, for which a new layout must be created.
    pub fn update(&mut self, superblock: Ext4Superblock) -> bool {
        let form = |of: &Ext4Superblock| {
            let sizes = (of.block_size, of.inode_size, of.descriptor_size, of.first_block);
            let groups = (of.blocks_per_group, of.inodes_per_group, of.first_meta_group);
            (sizes, groups, of.incompat & (Incompat::META_BG | Incompat::WIDE))
        };
        if form(&self.superblock) != form(&superblock) {
            return false;
        }
        let tables = |of: &Ext4Superblock| (of.blocks, of.spare_descriptor_blocks);
        let journal = |of: &Ext4Superblock| (of.compat & Compat::HAS_JOURNAL, of.journal_inode, of.journal_uuid);
        let moved = tables(&self.superblock) != tables(&superblock);
        self.journal_moved |= journal(&self.superblock) != journal(&superblock);
        self.superblock = superblock;
        if moved {
            // Forgets groups that are beyond the last group of the file system.
            let (count, table_blocks) = (self.superblock.groups(), self.table_blocks());
            for (_, [block_bitmap, inode_bitmap, table]) in self.groups.extract_if(|number, _| u64::from(*number) >= count) {
                self.runs.remove(block_bitmap, block_bitmap + 1);
                self.runs.remove(inode_bitmap, inode_bitmap + 1);
                self.runs.remove(table, table + table_blocks);
            }
            self.place_tables();
            for (number, group) in std::mem::take(&mut self.groups_to_come) {
                self.place_group(number, group);
            }
        }
        true
    }

    /// Forgets everything except metadata at fixed locations. Called when mkfs creates another file system with the same layout.
    pub fn forget_learned(&mut self) {
        self.runs.retain(|kind| !matches!(kind, BlockRunKind::Learned(_) | BlockRunKind::Journal));
        self.directories.clear();
        self.journal_inode = None;
        self.journal_moved = true;
        self.journal_runs.clear();
    }

    /// Stores the locations from a group descriptor. The checksum of the descriptor is not checked.
    pub fn set_group(&mut self, number: u32, group: &GroupDescriptor) {
        let known = [group.block_bitmap, group.inode_bitmap, group.inode_table];
        if self.groups.get(&number) != Some(&known) {
            self.place_group(number, known);
        }
    }

    fn place_group(&mut self, number: u32, group: [u64; 3]) {
        let table_blocks = self.table_blocks();
        let first = u64::from(self.superblock.first_block);
        let inside = |block: u64, blocks: u64| block > first && block.saturating_add(blocks) <= self.superblock.blocks;
        if u64::from(number) >= self.superblock.groups()
            || !(inside(group[0], 1) && inside(group[1], 1) && inside(group[2], table_blocks))
        {
            // resize2fs writes the group descriptors before the superblock, so descriptors of groups that do not exist yet are kept for
            // later.
            if group != [0; 3] && u64::from(number) < MOST_GROUPS {
                self.groups_to_come.insert(number, group);
            }
            return;
        }
        self.groups.insert(number, group);
        self.runs.set(group[0], group[0] + 1, BlockRunKind::Fixed(BlockRole::BlockBitmap), 0);
        self.runs.set(group[1], group[1] + 1, BlockRunKind::Fixed(BlockRole::InodeBitmap), 0);
        self.runs.set(group[2], group[2] + table_blocks, BlockRunKind::Inodes, u64::from(number) << 32);
        self.place_backups(number);
    }

    /// Sets the location of the journal inside this file system. Returns whether it changed.
    pub fn set_journal(&mut self, runs: &[FileBlockRun]) -> bool {
        if self.journal_runs == runs {
            return false;
        }
        self.runs.retain(|kind| kind != BlockRunKind::Journal);
        for run in runs {
            if let Some(start) = run.physical {
                self.runs.set(start, start + run.blocks, BlockRunKind::Journal, run.logical);
            }
        }
        self.journal_runs = runs.to_vec();
        true
    }

    /// Records that blocks belong to a directory.
    pub fn learn_directory(&mut self, start: u64, end: u64) {
        self.runs.learn(start, end.min(self.superblock.blocks), BlockRole::Directory);
    }

    /// Called when a block is logged. `changed` contains the sectors that differ from the previous logged copy of the block.
    pub fn logged(&mut self, home: u64, bytes: &[u8], changed: Option<SectorSet>) {
        if changed.is_some_and(SectorSet::is_empty) {
            return;
        }
        match self.runs.at(home) {
            BlockLookup::Gap(_) | BlockLookup::Place(BlockRun { kind: BlockRunKind::Learned(_), .. }) => {
                let has_types = self.superblock.incompat.contains(Incompat::FILETYPE);
                let role = if is_directory(bytes, has_types) { BlockRole::Directory } else { BlockRole::Metadata };
                self.runs.learn(home, home + 1, role);
            }
            BlockLookup::Place(place) => {
                if home == self.superblock_block() {
                    self.superblock_logged(bytes);
                }
                self.learn(place, home, 0, bytes, changed);
            }
        }
    }

    /// Marks a logged block as metadata if nothing is known about it. Called if the contents of the logged block are no longer available.
    pub fn logged_unread(&mut self, home: u64) {
        if matches!(self.runs.at(home), BlockLookup::Gap(_)) {
            self.runs.learn(home, home + 1, BlockRole::Metadata);
        }
    }

    /// Reads the locations of other metadata from sectors of a metadata block, from sector `within` on. `changed` contains the sectors that
    /// differ from the previous contents; `None` if these are unknown.
    pub fn learn(&mut self, place: BlockRun, block: u64, within: usize, bytes: &[u8], changed: Option<SectorSet>) {
        match place.kind {
            BlockRunKind::Descriptors => {
                let size = usize::from(self.superblock.descriptor_size);
                let first = place.number(block) * u64::from(self.superblock.block_size) / size as u64;
                // All descriptors in these sectors are read, even if they did not change: their location may have been unknown until now.
                for (slot, bytes) in records(within, bytes, size, None) {
                    let number = first + slot as u64;
                    self.set_group(number as u32, &GroupDescriptor::parse(number as u32, bytes));
                }
            }
            BlockRunKind::Inodes => {
                let size = usize::from(self.superblock.inode_size);
                let (group, table_block) = (place.number(block) >> 32, place.number(block) & u64::from(u32::MAX));
                let first = group * u64::from(self.superblock.inodes_per_group)
                    + table_block * u64::from(self.superblock.block_size) / size as u64;
                for (slot, bytes) in records(within, bytes, size, changed) {
                    let number = first + slot as u64 + 1;
                    if number <= u64::from(self.superblock.inodes) {
                        self.learn_inode(number as u32, bytes);
                    }
                }
            }
            BlockRunKind::Fixed(_) | BlockRunKind::Journal | BlockRunKind::Learned(_) => {}
        }
    }

    /// Removes a block from the known metadata, because it has been freed or was never logged.
    pub fn freed(&mut self, home: u64) {
        self.runs.forget(home, home + 1, None);
    }

    /// Called when blocks are discarded. Calls `freed` for each block that was known as metadata.
    pub fn discarded(&mut self, start: u64, end: u64, mut freed: impl FnMut(u64)) {
        let mut at = start;
        while at < end {
            at = match self.runs.at(at) {
                BlockLookup::Gap(until) => until,
                BlockLookup::Place(place) => {
                    let stop = place.end.min(end);
                    if matches!(place.kind, BlockRunKind::Learned(_)) {
                        (at..stop).for_each(&mut freed);
                    }
                    stop
                }
            };
        }
        self.runs.forget(start, end, None);
    }

    fn learn_inode(&mut self, number: u32, bytes: &[u8]) {
        if number == self.superblock.journal_inode && self.journal_inode.as_deref() != Some(bytes) {
            self.journal_inode = Some(bytes.to_vec());
            self.journal_moved = true;
        }
        let runs = runs_of(bytes);
        let now = runs.as_ref().map(DirectoryRuns::as_slice);
        let known = self.directories.get(&number);
        // If the block map of the inode continues in other blocks (extent or indirect blocks), the known runs remain valid.
        if known.map(Vec::as_slice) == now || runs.is_some_and(|runs| runs.is_deep) {
            return;
        }
        for (start, end) in self.directories.remove(&number).unwrap_or_default() {
            self.runs.forget(start, end, Some(BlockRole::Directory));
        }
        let Some(now) = now else { return };
        let inside = |(start, end): &&(u64, u64)| start < end && *end <= self.superblock.blocks;
        let now: Vec<(u64, u64)> = now.iter().filter(inside).copied().collect();
        for (start, end) in &now {
            self.runs.learn(*start, *end, BlockRole::Directory);
        }
        self.directories.insert(number, now);
    }

    fn superblock_logged(&mut self, bytes: &[u8]) {
        let from = (OFFSET % u64::from(self.superblock.block_size)) as usize;
        let Some(bytes) = bytes.get(from..from + BYTES) else { return };
        let parsed = Ext4Superblock::parse(bytes, DiskStructure::Superblock, OFFSET);
        if let Ok(superblock) = parsed
            && superblock.uuid == self.superblock.uuid
            && check_layout(&superblock, u64::MAX).is_ok()
        {
            self.update(superblock);
        }
    }

    /// Number of blocks in the inode table of a group.
    fn table_blocks(&self) -> u64 {
        let bytes = u64::from(self.superblock.inodes_per_group) * u64::from(self.superblock.inode_size);
        bytes.div_ceil(u64::from(self.superblock.block_size))
    }

    /// Number of descriptors in a block.
    fn per_block(&self) -> u64 {
        u64::from(self.superblock.block_size / u32::from(self.superblock.descriptor_size))
    }

    /// Number of blocks of descriptors that follow each copy of the superblock.
    fn common_tables(&self) -> u64 {
        let tables = self.superblock.groups().div_ceil(self.per_block());
        if self.superblock.incompat.contains(Incompat::META_BG) {
            tables.min(u64::from(self.superblock.first_meta_group))
        } else {
            tables
        }
    }

    /// Sets the locations of the superblock and of all descriptors, without their backups.
    fn place_tables(&mut self) {
        let (own, common) = (self.superblock_block(), self.common_tables());
        let end = own + 1 + common;
        self.runs.set(own, own + 1, BlockRunKind::Fixed(BlockRole::Superblock), 0);
        let spare = u64::from(self.superblock.spare_descriptor_blocks);
        self.runs.set(own + 1, end, BlockRunKind::Descriptors, 0);
        self.runs.set(end, end + spare, BlockRunKind::Fixed(BlockRole::GroupDescriptors), 0);
        for table in common..self.superblock.groups().div_ceil(self.per_block()) {
            let group = (table * self.per_block()) as u32;
            let block = self.superblock.descriptor_offset(group) / u64::from(self.superblock.block_size);
            self.runs.set(block, block + 1, BlockRunKind::Descriptors, table);
        }
    }

    /// Sets the locations of the backups of superblock and descriptors in a group.
    fn place_backups(&mut self, group: u32) {
        let (each, common) = (self.per_block(), self.common_tables());
        let table = u64::from(group) / each;
        let mut at = self.superblock.group_start(group);
        let descriptors = BlockRunKind::Fixed(BlockRole::GroupDescriptors);
        if group != 0 && self.superblock.has_superblock(group) {
            self.runs.set(at, at + 1, BlockRunKind::Fixed(BlockRole::Superblock), 0);
            at += 1;
            if table < common || !self.superblock.incompat.contains(Incompat::META_BG) {
                let end = at + common + u64::from(self.superblock.spare_descriptor_blocks);
                self.runs.set(at, end, descriptors, 0);
            }
        }
        // With `META_BG`, each descriptor block is stored in the first, second and last of the groups that it describes.
        let within = u64::from(group) % each;
        if table >= common && (within == 1 || within == each - 1) && within != 0 {
            self.runs.set(at, at + 1, descriptors, 0);
        }
    }
}

/// Returns the structures of `size` bytes that are completely inside the given sectors, each with its index in the block. The sectors start
/// at sector `within` of the block. Structures without a sector in `changed` are omitted.
fn records(within: usize, bytes: &[u8], size: usize, changed: Option<SectorSet>) -> impl Iterator<Item = (usize, &[u8])> {
    let start = within * SECTOR;
    (start.div_ceil(size)..)
        .map_while(move |slot| {
            let from = slot * size - start;
            Some((slot, from, bytes.get(from..from + size)?))
        })
        .filter(move |(_, from, _)| {
            let mut sectors = (from / SECTOR..(from + size).div_ceil(SECTOR)).map(|sector| sector as u32);
            changed.is_none_or(|changed| sectors.any(|sector| changed.contains(sector)))
        })
        .map(|(slot, _, bytes)| (slot, bytes))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockRunKind {
    /// Metadata at a fixed location that refers to no other metadata.
    Fixed(BlockRole),
    /// Blocks of group descriptors, numbered by their position in the table of descriptors.
    Descriptors,
    /// Blocks of inode tables, numbered by group (high 32 bits) and by position in the table of the group.
    Inodes,
    /// Blocks of the journal, numbered by their position in the journal.
    Journal,
    /// Metadata that was found by reading other metadata. It may be freed later.
    Learned(BlockRole),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockRun {
    /// The first block.
    pub start: u64,
    /// The block after the last block.
    pub end: u64,
    pub kind: BlockRunKind,
    /// The number of the first block; its meaning depends on the [`BlockRunKind`].
    pub first: u64,
}

impl BlockRun {
    pub fn number(&self, block: u64) -> u64 {
        self.first + (block - self.start)
    }
}

/// The result of looking up a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockLookup {
    Place(BlockRun),
    /// Nothing is known about the blocks from the requested block up to this block.
    Gap(u64),
}

#[derive(Clone, Copy)]
struct BlockRunEntry {
    end: u64,
    kind: BlockRunKind,
    first: u64,
}

/// Runs of blocks by their first block, without overlaps.
#[derive(Default)]
pub(super) struct BlockRunMap {
    runs: BTreeMap<u64, BlockRunEntry>,
}

impl BlockRunMap {
    /// Returns what is known about a block.
    pub fn at(&self, block: u64) -> BlockLookup {
        let before = self.runs.range(..=block).next_back().filter(|(_, run)| run.end > block);
        if let Some((start, run)) = before {
            return BlockLookup::Place(BlockRun { start: *start, end: run.end, kind: run.kind, first: run.first });
        }
        BlockLookup::Gap(self.runs.range(block..).next().map_or(u64::MAX, |(start, _)| *start))
    }

    /// Assigns the blocks from `start` to before `end` to a run of this kind, which replaces earlier runs.
    pub fn set(&mut self, start: u64, end: u64, kind: BlockRunKind, first: u64) {
        if start < end {
            self.remove(start, end);
            self.runs.insert(start, BlockRunEntry { end, kind, first });
        }
    }

    /// Marks blocks as metadata whose location was read from other metadata. Blocks in runs of other kinds are not changed.
    pub fn learn(&mut self, start: u64, end: u64, role: BlockRole) {
        let mut at = start;
        while at < end {
            at = match self.at(at) {
                BlockLookup::Gap(until) => {
                    self.add_learned(at, until.min(end), role);
                    until.min(end)
                }
                BlockLookup::Place(place) => {
                    let stop = place.end.min(end);
                    if matches!(place.kind, BlockRunKind::Learned(known) if known != role) {
                        self.remove(at, stop);
                        self.add_learned(at, stop, role);
                    }
                    stop
                }
            };
        }
    }

    /// Removes blocks with learnt locations; if a role is given, only those of that role.
    pub fn forget(&mut self, start: u64, end: u64, role: Option<BlockRole>) {
        let mut at = start;
        while at < end {
            at = match self.at(at) {
                BlockLookup::Gap(until) => until,
                BlockLookup::Place(place) => {
                    let stop = place.end.min(end);
                    if matches!(place.kind, BlockRunKind::Learned(known) if role.is_none_or(|role| role == known)) {
                        self.remove(at, stop);
                    }
                    stop
                }
            };
        }
    }

    /// Keeps only the runs whose kind fulfils the condition.
    pub fn retain(&mut self, keep: impl Fn(BlockRunKind) -> bool) {
        self.runs.retain(|_, run| keep(run.kind));
    }

    /// Number of runs.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Adds a run of metadata blocks to a gap between known runs, and joins it with adjacent runs of the same role.
    fn add_learned(&mut self, start: u64, end: u64, role: BlockRole) {
        let kind = BlockRunKind::Learned(role);
        let (mut start, mut end) = (start, end);
        if let Some((before, run)) = self.runs.range(..start).next_back()
            && run.end == start
            && run.kind == kind
        {
            start = *before;
        }
        if let Some(run) = self.runs.get(&end).filter(|run| run.kind == kind) {
            let after = run.end;
            self.runs.remove(&end);
            end = after;
        }
        self.runs.insert(start, BlockRunEntry { end, kind, first: 0 });
    }

    /// Removes blocks from all runs.
    pub fn remove(&mut self, start: u64, end: u64) {
        if let Some((before, run)) = self.runs.range_mut(..start).next_back()
            && run.end > start
        {
            let old = *run;
            run.end = start;
            if old.end > end {
                let first = old.first + (end - before);
                self.runs.insert(end, BlockRunEntry { first, ..old });
            }
        }
        while let Some((at, run)) = self.runs.range(start..end).next().map(|(at, run)| (*at, *run)) {
            self.runs.remove(&at);
            if run.end > end {
                self.runs.insert(end, BlockRunEntry { first: run.first + (end - at), ..run });
            }
        }
    }
}

/// Maximum number of runs of blocks in an inode: 4 extents, or 12 direct blocks.
const MOST_RUNS: usize = 12;

/// The blocks of a directory to which its inode refers directly, as runs of first block and block after the last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DirectoryRuns {
    blocks: [(u64, u64); MOST_RUNS],
    count: usize,
    /// Whether further blocks of the directory are reached through other blocks of the disk.
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

/// Returns the blocks to which the inode of a directory refers; `None` if the inode is not a directory, or was deleted.
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

/// Whether a block belongs to a directory: it consists of entries without gaps, at least one of which has a name or fills the block.
pub(super) fn is_directory(block: &[u8], has_types: bool) -> bool {
    let mut at = 0;
    let mut named = false;
    while at < block.len() {
        let rest = &block[at..];
        let stored = le16(rest, 4);
        // Linux reads a record length of 0 as 64 KB, but never writes it (it writes 0xFFFF), so 0 is rejected here.
        let length = if stored == 0 { 0 } else { record_length(stored, block.len() as u32) };
        let name = if has_types { usize::from(rest.get(6).copied().unwrap_or(0)) } else { le16(rest, 6).into() };
        if length < 8 || !length.is_multiple_of(4) || length > rest.len() || 8 + name > length {
            return false;
        }
        if le32(rest, 0) != 0 {
            // A name contains neither a zero byte nor a slash. `.` and `..` count as names here.
            let name = &rest[8..8 + name];
            if name.is_empty() || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
                return false;
            }
            named = true;
        } else if at == 0 && length + 12 >= block.len() {
            // An empty directory block, or a node of the hash tree.
            named = true;
        }
        at += length;
    }
    named
}

#[cfg(test)]
mod block_runs_tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Set(BlockRunKind, u64),
        Learn(BlockRole),
        Forget(Option<BlockRole>),
    }

    fn step() -> impl Strategy<Value = Step> {
        let role = prop_oneof![Just(BlockRole::Directory), Just(BlockRole::Metadata)];
        prop_oneof![
            (
                prop_oneof![
                    Just(BlockRunKind::Journal),
                    Just(BlockRunKind::Inodes),
                    Just(BlockRunKind::Fixed(BlockRole::Superblock))
                ],
                0..9_u64
            )
                .prop_map(|(kind, first)| Step::Set(kind, first)),
            role.clone().prop_map(Step::Learn),
            prop::option::of(role).prop_map(Step::Forget),
        ]
    }

    proptest! {
        #[test]
        fn places_agree_with_a_table_of_blocks(steps in prop::collection::vec((step(), 0..40_u64, 0..12_u64), 1..60)) {
            let mut places = BlockRunMap::default();
            let mut table: Vec<Option<(BlockRunKind, u64)>> = vec![None; 60];
            for (step, start, length) in steps {
                let end = start + length;
                match step {
                    Step::Set(kind, first) => places.set(start, end, kind, first),
                    Step::Learn(role) => places.learn(start, end, role),
                    Step::Forget(role) => places.forget(start, end, role),
                }
                for block in start..end {
                    let entry = &mut table[block as usize];
                    match step {
                        Step::Set(kind, first) => *entry = Some((kind, first + block - start)),
                        Step::Learn(role) => {
                            if matches!(entry, None | Some((BlockRunKind::Learned(_), _))) {
                                *entry = Some((BlockRunKind::Learned(role), 0));
                            }
                        }
                        Step::Forget(role) => {
                            let known = match entry { Some((BlockRunKind::Learned(known), _)) => Some(*known), _ => None };
                            if known.is_some_and(|known| role.is_none_or(|role| role == known)) {
                                *entry = None;
                            }
                        }
                    }
                }
                for (block, entry) in table.iter().enumerate() {
                    match (places.at(block as u64), entry) {
                        (BlockLookup::Gap(until), None) => {
                            let next = table[block..].iter().position(Option::is_some);
                            prop_assert_eq!(until, next.map_or(u64::MAX, |next| (block + next) as u64));
                        }
                        (BlockLookup::Place(place), Some((kind, number))) => {
                            prop_assert_eq!(place.kind, *kind);
                            if !matches!(kind, BlockRunKind::Learned(_)) {
                                prop_assert_eq!(place.number(block as u64), *number);
                            }
                        }
                        (actual, wanted) => prop_assert!(false, "{block}: {actual:?}, {wanted:?}"),
                    }
                }
            }
            // Adjacent runs with the same role are merged, so there are not more runs than steps.
            prop_assert!(places.len() <= 60);
        }
    }
}

#[cfg(test)]
mod directories_tests {
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
