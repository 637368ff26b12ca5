//! The locations of the metadata of a file system, read from the metadata itself when it is written or logged.

use emmclab_base::{BlockRole, SECTOR_BYTES, SectorSet};
use rustc_hash::FxHashMap;

use super::block_runs::{BlockLookup, BlockRun, BlockRunKind, BlockRunMap};
use super::directories::{DirectoryRuns, is_directory, runs_of};
use crate::disk_structure::DiskStructure;
use crate::files::{FileBlockRun, GroupDescriptor};
use crate::superblock::{BYTES, Compat, Ext4Superblock, Incompat, OFFSET};

const SECTOR: usize = SECTOR_BYTES as usize;
/// Maximum number of block groups: 512 TB in groups of 128 MB.
const MOST_GROUPS: u64 = 1 << 22;

/// The layout of a file system, as far as it is known.
pub(super) struct MetadataLayout {
    superblock: Ext4Superblock,
    runs: BlockRunMap,
    /// Bitmaps and inode table of each known group.
    groups: FxHashMap<u32, [u64; 3]>,
    /// The same for descriptors beyond the size in the superblock, which is written later.
    groups_to_come: FxHashMap<u32, [u64; 3]>,
    /// Runs of blocks to which the inode of a directory refers directly, by inode.
    directories: FxHashMap<u32, Vec<(u64, u64)>>,
    /// The inode of the journal.
    journal_inode: Option<Vec<u8>>,
    journal_moved: bool,
    /// Location of the journal, if it is known and in this file system.
    journal_runs: Vec<FileBlockRun>,
}

/// Checks that the layout in a superblock is valid and supported, on a disk of `size` bytes (`u64::MAX` if unknown).
pub(super) fn check(superblock: &Ext4Superblock, size: u64) -> emmclab_base::Result<()> {
    superblock.check_groups(size)?;
    if superblock.groups() > MOST_GROUPS {
        let problem = format!("{} block groups, at most {MOST_GROUPS} are supported", superblock.groups());
        return Err(DiskStructure::Superblock.unsupported(OFFSET + 0x20, problem));
    }
    Ok(())
}

impl MetadataLayout {
    /// The layout of a file system of which only the superblock is known; it must have passed [`check`].
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

    /// The block that holds the superblock.
    fn superblock_block(&self) -> u64 {
        OFFSET / u64::from(self.superblock.block_size)
    }

    pub fn at(&self, block: u64) -> BlockLookup {
        self.runs.at(block)
    }

    /// Whether the journal's inode, or its entry in the superblock, changed since the last call.
    pub fn take_journal_moved(&mut self) -> bool {
        std::mem::take(&mut self.journal_moved)
    }

    pub fn journal_inode(&self) -> Option<&[u8]> {
        self.journal_inode.as_deref()
    }

    /// Updates the superblock. Returns false if it describes another layout of blocks; then a new layout is needed.
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
            self.drop_groups();
            self.place_tables();
            for (number, group) in std::mem::take(&mut self.groups_to_come) {
                self.place_group(number, group);
            }
        }
        true
    }

    /// Called when another file system with the same layout was made: forgets everything that is not at a fixed place.
    pub fn forget_learned(&mut self) {
        self.runs.retain(|kind| !matches!(kind, BlockRunKind::Learned(_) | BlockRunKind::Journal));
        self.directories.clear();
        self.journal_inode = None;
        self.journal_moved = true;
        self.journal_runs.clear();
    }

    /// Stores the locations in a group descriptor; its checksum is not checked.
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
            // resize2fs writes the descriptors before the superblock.
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

    /// Sets the location of the journal in this file system; returns whether it changed.
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

    /// Notes that blocks belong to a directory.
    pub fn learn_directory(&mut self, start: u64, end: u64) {
        self.runs.learn(start, end.min(self.superblock.blocks), BlockRole::Directory);
    }

    /// Called when a block is logged; `changed` are the sectors that differ from its previous copy.
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

    /// Called for a block that was logged, but whose contents are no longer available.
    pub fn logged_unread(&mut self, home: u64) {
        if matches!(self.runs.at(home), BlockLookup::Gap(_)) {
            self.runs.learn(home, home + 1, BlockRole::Metadata);
        }
    }

    /// Reads locations from metadata: the sectors of a block from `within` on, of which those in `changed` are new.
    pub fn learn(&mut self, place: BlockRun, block: u64, within: usize, bytes: &[u8], changed: Option<SectorSet>) {
        match place.kind {
            BlockRunKind::Descriptors => {
                let size = usize::from(self.superblock.descriptor_size);
                let first = place.number(block) * u64::from(self.superblock.block_size) / size as u64;
                // The place of these descriptors may have been unknown until now, so that even unchanged ones must be read.
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

    /// Called when a block is free, or was never logged.
    pub fn freed(&mut self, home: u64) {
        self.runs.forget(home, home + 1, None);
    }

    /// Called when blocks are discarded; calls `freed` for each one that was known as metadata.
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
        // If the inode refers to further blocks through other blocks, the known runs are still part of the directory.
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
            && check(&superblock, u64::MAX).is_ok()
        {
            self.update(superblock);
        }
    }

    /// Number of blocks in the inode table of a group.
    fn table_blocks(&self) -> u64 {
        let bytes = u64::from(self.superblock.inodes_per_group) * u64::from(self.superblock.inode_size);
        bytes.div_ceil(u64::from(self.superblock.block_size))
    }

    /// Forgets the groups beyond the last one.
    fn drop_groups(&mut self) {
        let (count, table_blocks) = (self.superblock.groups(), self.table_blocks());
        for (_, [block_bitmap, inode_bitmap, table]) in self.groups.extract_if(|number, _| u64::from(*number) >= count)
        {
            self.runs.remove(block_bitmap, block_bitmap + 1);
            self.runs.remove(inode_bitmap, inode_bitmap + 1);
            self.runs.remove(table, table + table_blocks);
        }
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

    /// Sets the places of the superblock and of all descriptors, except their backups.
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

    /// Sets the places of the backups of superblock and descriptors in a group.
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
        // Blocks of descriptors that are not common are stored in the first, second and last group that they describe.
        let within = u64::from(group) % each;
        if table >= common && (within == 1 || within == each - 1) && within != 0 {
            self.runs.set(at, at + 1, descriptors, 0);
        }
    }
}

/// Returns the structures of `size` bytes that are completely inside the given sectors, which start at sector `within` of a block;
/// with their numbers in the block. Structures without a sector in `changed` are left out.
fn records(
    within: usize,
    bytes: &[u8],
    size: usize,
    changed: Option<SectorSet>,
) -> impl Iterator<Item = (usize, &[u8])> {
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
