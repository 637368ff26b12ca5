//! Replays these changes of fast commits:
//!
//! - changes of inodes (`ext4_fc_replay_inode`), and the deletion of a file whose last name was removed;
//! - blocks that are added to or removed from files;
//! - changes of bitmaps and of counters in group descriptors (`ext4_mb_mark_bb`, `ext4_mb_new_blocks_simple`, `ext4_mark_inode_used`).
//!
//! A block map is read as a list of runs, changed, and written as a new extent tree. Linux edits the tree instead, but readers see the
//! same.

use emmclab_base::Result;

use super::FastCommitReplayer;
use crate::disk::{DiskStructure, crc32c, le16, le32, wide};
use crate::files::{
    EXTENT_BYTES, EXTENT_MAGIC, Ext4FileKind, FileBlockRun, GroupDescriptor, Inode, InodeFlags, MAP_AT, MAP_BYTES, ROOT,
    extent_length,
};
use crate::superblock::{Incompat, RoCompat};

/// Offset of the fields after the block map of an inode.
const BEHIND: usize = MAP_AT + MAP_BYTES;
const LINKS: usize = 0x1A;
const HUGE_FILE: u32 = 0x4_0000;

impl FastCommitReplayer<'_> {
    fn is_number(&self, number: u32) -> bool {
        let superblock = self.files.superblock();
        (number >= superblock.first_inode || number == ROOT) && number <= superblock.inodes
    }

    fn raw(&self, number: u32) -> Result<(u64, Vec<u8>)> {
        let offset = self.files.inode_place(number)?;
        let mut bytes = vec![0; usize::from(self.files.superblock().inode_size)];
        DiskStructure::Inode(number).read(self.files.disk(), offset, &mut bytes)?;
        Ok((offset, bytes))
    }

    /// Returns the inode if it is in use and can be read. Its checksum is ignored while fast commits are replayed.
    pub(super) fn live(&self, number: u32) -> Result<Option<Inode>> {
        if !self.is_number(number) {
            return Ok(None);
        }
        let (offset, mut bytes) = self.raw(number)?;
        if le16(&bytes, LINKS) == 0 {
            return Ok(None);
        }
        self.files.seal_inode(number, &mut bytes);
        let inode = self.files.parse_inode(number, &bytes, offset).ok();
        Ok(inode.filter(|inode| {
            let is_tree = !inode.flags.contains(InodeFlags::EXTENTS) || le16(&bytes, MAP_AT) == EXTENT_MAGIC;
            inode.kind() != Ext4FileKind::Unknown && is_tree
        }))
    }

    /// Changes bytes of an inode and updates its checksum.
    pub(super) fn change_inode(&self, number: u32, change: impl FnOnce(&mut [u8])) -> Result<()> {
        let (offset, mut bytes) = self.raw(number)?;
        change(&mut bytes);
        self.files.seal_inode(number, &mut bytes);
        self.files.disk().write(DiskStructure::Inode(number), offset, &bytes)
    }

    pub(super) fn set_links(&self, number: u32, links: u16) -> Result<()> {
        self.change_inode(number, |bytes| bytes[LINKS..LINKS + 2].copy_from_slice(&links.to_le_bytes()))
    }

    pub(super) fn record_modified(&mut self, number: u32) {
        if !self.modified.contains(&number) {
            self.modified.push(number);
        }
    }

    /// Marks the blocks of an inode as free or used. With `keep`, they are not allocated for other purposes.
    pub(super) fn mark_file(&self, inode: &Inode, used: bool, keep: bool) -> Result<()> {
        if !inode.flags.contains(InodeFlags::EXTENTS) || inode.flags.contains(InodeFlags::INLINE_DATA) {
            return Ok(());
        }
        let Ok((runs, tree)) = self.files.all_runs(inode) else { return Ok(()) };
        let data = runs.iter().filter_map(|run| run.physical.map(|first| (first, run.blocks)));
        for (first, blocks) in tree.into_iter().map(|block| (block, 1)).chain(data) {
            self.mark(first, blocks, used)?;
            if keep {
                self.regions.borrow_mut().push((first, blocks));
            }
        }
        Ok(())
    }

    /// Replays a record that contains a whole inode. The block map on the disk is kept, because other records change it.
    pub(super) fn inode(&mut self, value: &[u8]) -> Result<()> {
        let (number, new) = (le32(value, 0), &value[4..]);
        if let Some(inode) = self.live(number)? {
            self.mark_file(&inode, false, true)?;
        }
        self.record_modified(number);
        // As in Linux, records of inodes that do not exist in the file system are ignored.
        if number == 0 || number > self.files.superblock().inodes {
            return Ok(());
        }
        self.change_inode(number, |bytes| {
            bytes[..MAP_AT].copy_from_slice(&new[..MAP_AT]);
            bytes[BEHIND..new.len()].copy_from_slice(&new[BEHIND..]);
            let flags = InodeFlags::from_bits_retain(le32(bytes, 0x20));
            if flags.contains(InodeFlags::EXTENTS) {
                if le16(bytes, MAP_AT) != EXTENT_MAGIC {
                    bytes[MAP_AT..MAP_AT + 12].fill(0);
                    bytes[MAP_AT..MAP_AT + 2].copy_from_slice(&EXTENT_MAGIC.to_le_bytes());
                    bytes[MAP_AT + 4] = 4;
                }
            } else if flags.contains(InodeFlags::INLINE_DATA) {
                bytes[MAP_AT..BEHIND].copy_from_slice(&new[MAP_AT..BEHIND]);
            }
        })?;
        if !self.is_number(number) || number == ROOT && ROOT < self.files.superblock().first_inode {
            return Ok(());
        }
        self.mark_inode(number, true)?;
        let Some(inode) = self.live(number)? else {
            let problem = "a fast commit contains an inode that has no name: Linux does not mount this";
            let offset = self.files.inode_place(number)?;
            return Err(DiskStructure::Inode(number).fault(offset, problem));
        };
        if inode.flags.contains(InodeFlags::EXTENTS)
            && let Ok((runs, tree)) = self.files.all_runs(&inode)
        {
            let blocks = runs.iter().map(|run| run.blocks).sum::<u64>() + tree.len() as u64;
            let sectors = blocks * u64::from(self.files.superblock().block_size / 512);
            self.change_inode(number, |bytes| {
                let flags = le32(bytes, 0x20) & !HUGE_FILE;
                bytes[0x20..0x24].copy_from_slice(&flags.to_le_bytes());
                bytes[0x1C..0x20].copy_from_slice(&(sectors as u32).to_le_bytes());
                bytes[0x74..0x76].copy_from_slice(&((sectors >> 32) as u16).to_le_bytes());
            })?;
        }
        Ok(())
    }

    /// Deletes an inode that has no names.
    pub(super) fn delete(&self, inode: &Inode) -> Result<()> {
        self.mark_file(inode, false, false)?;
        if inode.attribute_block != 0 {
            self.drop_attributes(inode)?;
        }
        let number = inode.number;
        self.change_inode(number, |bytes| {
            bytes[0x4..0x8].fill(0);
            bytes[0x6C..0x70].fill(0);
            if inode.flags.contains(InodeFlags::EXTENTS) {
                bytes[MAP_AT + 2..MAP_AT + 4].fill(0);
                bytes[MAP_AT + 6..MAP_AT + 8].fill(0);
            }
        })?;
        self.mark_inode(number, false)
    }

    /// Decrements the reference count of an inode's block of extended attributes, and frees the block when the count becomes 0.
    fn drop_attributes(&self, inode: &Inode) -> Result<()> {
        let structure = DiskStructure::Attributes(inode.number);
        let block = inode.attribute_block;
        let offset = self.files.offset_of(block, structure)?;
        let mut bytes = vec![0; self.files.superblock().block_size as usize];
        structure.read(self.files.disk(), offset, &mut bytes)?;
        let count = le32(&bytes, 4);
        if count <= 1 {
            return self.mark(block, 1, false);
        }
        bytes[4..8].copy_from_slice(&(count - 1).to_le_bytes());
        if self.files.superblock().has_checksums() {
            let state = crc32c(self.files.superblock().seed, &block.to_le_bytes());
            let state = crc32c(crc32c(state, &bytes[..16]), &[0; 4]);
            let sum = crc32c(state, &bytes[20..]);
            bytes[16..20].copy_from_slice(&sum.to_le_bytes());
        }
        self.files.disk().write(structure, offset, &bytes)
    }
}

const IN_INODE: usize = 4;
const MAP_RANGE: std::ops::Range<usize> = MAP_AT..MAP_AT + MAP_BYTES;

impl FastCommitReplayer<'_> {
    /// Replays a record that adds blocks to a file.
    pub(super) fn add_range(&mut self, value: &[u8]) -> Result<()> {
        let (blocks, unwritten) = extent_length(le16(value, 8));
        let first = u64::from(le32(value, 4));
        let physical = wide(le16(value, 10), le32(value, 12));
        let run = FileBlockRun { logical: first, blocks: u64::from(blocks), physical: Some(physical), unwritten };
        self.change_range(le32(value, 0), run)
    }

    /// Replays a record that removes blocks from a file.
    pub(super) fn delete_range(&mut self, value: &[u8]) -> Result<()> {
        let (logical, blocks) = (u64::from(le32(value, 4)), u64::from(le32(value, 8)));
        self.change_range(le32(value, 0), FileBlockRun { logical, blocks, physical: None, unwritten: false })
    }

    fn change_range(&mut self, number: u32, new: FileBlockRun) -> Result<()> {
        let Some(inode) = self.live(number)? else { return Ok(()) };
        self.record_modified(number);
        if inode.flags.contains(InodeFlags::INLINE_DATA) {
            return Ok(());
        }
        if !inode.flags.contains(InodeFlags::EXTENTS) {
            let problem = "fast commits change a file that is mapped by indirect blocks";
            return Err(DiskStructure::Inode(number).unsupported(inode.offset, problem));
        }
        // As in Linux, an extent map that cannot be read is left unchanged.
        let Ok((runs, tree)) = self.files.all_runs(&inode) else { return Ok(()) };
        let mut left = Vec::with_capacity(runs.len() + 2);
        for run in runs {
            let (from, to) = (run.logical.max(new.logical), run.end().min(new.end()));
            if from >= to {
                left.push(run);
                continue;
            }
            let part = |start: u64, end: u64| FileBlockRun {
                logical: start,
                blocks: end - start,
                physical: run.physical.map(|first| first + start - run.logical),
                ..run
            };
            if run.logical < from {
                left.push(part(run.logical, from));
            }
            let lost = part(from, to);
            let stays = new.physical.map(|first| first + from - new.logical) == lost.physical;
            if let Some(first) = lost.physical.filter(|_| !stays) {
                self.mark(first, lost.blocks, false)?;
            }
            if to < run.end() {
                left.push(part(to, run.end()));
            }
        }
        if new.physical.is_some() && new.blocks > 0 {
            let place = left.partition_point(|run| run.logical < new.logical);
            left.insert(place, new);
        }
        self.write_map(&inode, &left, &tree)
    }

    /// Writes the block map of an inode. `tree` has the blocks of its current extent tree.
    pub(super) fn write_map(&self, inode: &Inode, runs: &[FileBlockRun], tree: &[u64]) -> Result<()> {
        let mut entries: Vec<(u64, [u8; EXTENT_BYTES])> = Vec::new();
        let mut joined: Option<FileBlockRun> = None;
        let flush = |run: FileBlockRun, entries: &mut Vec<(u64, [u8; EXTENT_BYTES])>| {
            let most = if run.unwritten { 0x7FFF } else { 0x8000 };
            let mut done = 0;
            while done < run.blocks {
                let blocks = most.min(run.blocks - done);
                let physical = run.physical.unwrap_or_default() + done;
                let stored = blocks as u16 + if run.unwritten { 0x8000 } else { 0 };
                let mut entry = [0; EXTENT_BYTES];
                entry[..4].copy_from_slice(&((run.logical + done) as u32).to_le_bytes());
                entry[4..6].copy_from_slice(&stored.to_le_bytes());
                entry[6..8].copy_from_slice(&((physical >> 32) as u16).to_le_bytes());
                entry[8..].copy_from_slice(&(physical as u32).to_le_bytes());
                entries.push((run.logical + done, entry));
                done += blocks;
            }
        };
        for run in runs {
            match &mut joined {
                Some(last)
                    if last.end() == run.logical
                        && last.unwritten == run.unwritten
                        && last.physical.map(|first| first + last.blocks) == run.physical =>
                {
                    last.blocks += run.blocks;
                }
                last => {
                    if let Some(last) = last.replace(*run) {
                        flush(last, &mut entries);
                    }
                }
            }
        }
        if let Some(last) = joined {
            flush(last, &mut entries);
        }
        let mut free = tree.iter().copied();
        let size = self.files.superblock().block_size as usize;
        let room = (size - EXTENT_BYTES) / EXTENT_BYTES;
        let mut depth = 0_u16;
        while entries.len() > IN_INODE {
            let mut above = Vec::new();
            for part in entries.chunks(room) {
                let block = match free.next() {
                    Some(block) => block,
                    None => self.allocate((inode.number - 1) / self.files.superblock().inodes_per_group)?,
                };
                let mut bytes = vec![0; size];
                node(&mut bytes, part, room, depth);
                if self.files.superblock().has_checksums() {
                    let tail = EXTENT_BYTES * (room + 1);
                    let sum = crc32c(self.files.seed_of(inode), &bytes[..tail]);
                    bytes[tail..tail + 4].copy_from_slice(&sum.to_le_bytes());
                }
                let structure = DiskStructure::ExtentBlock(inode.number);
                self.files.disk().write(structure, block * size as u64, &bytes)?;
                let mut entry = [0; EXTENT_BYTES];
                entry[..4].copy_from_slice(&(part[0].0 as u32).to_le_bytes());
                entry[4..8].copy_from_slice(&(block as u32).to_le_bytes());
                entry[8..10].copy_from_slice(&((block >> 32) as u16).to_le_bytes());
                above.push((part[0].0, entry));
            }
            entries = above;
            depth += 1;
        }
        for block in free {
            self.mark(block, 1, false)?;
        }
        self.change_inode(inode.number, |bytes| {
            bytes[MAP_RANGE].fill(0);
            node(&mut bytes[MAP_RANGE], &entries, IN_INODE, depth);
        })
    }
}

/// Writes a node of the extent tree.
fn node(bytes: &mut [u8], entries: &[(u64, [u8; EXTENT_BYTES])], room: usize, depth: u16) {
    for (at, value) in [(0, EXTENT_MAGIC), (2, entries.len() as u16), (4, room as u16), (6, depth)] {
        bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
    for (number, (_, entry)) in entries.iter().enumerate() {
        bytes[EXTENT_BYTES * (number + 1)..EXTENT_BYTES * (number + 2)].copy_from_slice(entry);
    }
}

const FLAGS_AT: usize = 0x12;
const INODE_UNINIT: u16 = 1;
const BLOCK_UNINIT: u16 = 2;
const CHECKSUM_AT: usize = 0x1E;

/// The offsets of the low and the high half of a field in a group descriptor.
type Field = (usize, usize);
const FREE_BLOCKS: Field = (0x0C, 0x2C);
const FREE_INODES: Field = (0x0E, 0x2E);
const UNUSED_INODES: Field = (0x1C, 0x32);
const BLOCK_CHECKSUM: Field = (0x18, 0x38);
const INODE_CHECKSUM: Field = (0x1A, 0x3A);

fn field(bytes: &[u8], (low, high): Field) -> u32 {
    let high = if bytes.len() >= 64 { le16(bytes, high) } else { 0 };
    u32::from(high) << 16 | u32::from(le16(bytes, low))
}

fn set_field(bytes: &mut [u8], (low, high): Field, value: u32) {
    bytes[low..low + 2].copy_from_slice(&(value as u16).to_le_bytes());
    if bytes.len() >= 64 {
        bytes[high..high + 2].copy_from_slice(&((value >> 16) as u16).to_le_bytes());
    }
}

fn has_bit(bitmap: &[u8], bit: u32) -> bool {
    bitmap[bit as usize / 8] >> (bit % 8) & 1 == 1
}

fn set_bit(bitmap: &mut [u8], bit: u32, value: bool) {
    let mask = 1 << (bit % 8);
    if value { bitmap[bit as usize / 8] |= mask } else { bitmap[bit as usize / 8] &= !mask }
}

impl FastCommitReplayer<'_> {
    /// Marks blocks as used or free. Blocks outside of the file system are ignored.
    pub(super) fn mark(&self, first: u64, count: u64, used: bool) -> Result<()> {
        let superblock = self.files.superblock();
        let start = u64::from(superblock.first_block);
        let (mut at, end) = (first.max(start), first.saturating_add(count).min(superblock.blocks));
        while at < end {
            let each = u64::from(superblock.blocks_per_group);
            let number = ((at - start) / each) as u32;
            let stop = end.min(superblock.group_start(number) + each);
            let cluster = |block: u64| ((block - start) % each / u64::from(superblock.blocks_per_cluster)) as u32;
            let (from, to) = (cluster(at), cluster(stop - 1));
            let (mut descriptor, mut bitmap) = self.block_bitmap(number)?;
            let changed = (from..=to).filter(|bit| has_bit(&bitmap, *bit) != used).count() as u32;
            if changed > 0 {
                (from..=to).for_each(|bit| set_bit(&mut bitmap, bit, used));
                let free = field(&descriptor, FREE_BLOCKS);
                let free = if used { free.saturating_sub(changed) } else { free.saturating_add(changed) };
                set_field(&mut descriptor, FREE_BLOCKS, free);
                self.store_blocks(number, &mut descriptor, &bitmap)?;
            }
            at = stop;
        }
        Ok(())
    }

    /// Allocates a block that is free and not used by a later record. The search starts at group `goal`.
    pub(super) fn allocate(&self, goal: u32) -> Result<u64> {
        let superblock = self.files.superblock();
        let groups = superblock.groups() as u32;
        for number in (goal..groups).chain(0..goal) {
            let (_, bitmap) = self.block_bitmap(number)?;
            let clusters = superblock.blocks_per_group / superblock.blocks_per_cluster;
            for bit in (0..clusters).filter(|bit| !has_bit(&bitmap, *bit)) {
                let block = superblock.group_start(number) + u64::from(bit) * u64::from(superblock.blocks_per_cluster);
                let is_kept = self
                    .regions
                    .borrow()
                    .iter()
                    .any(|(first, count)| block.checked_sub(*first).is_some_and(|behind| behind < *count));
                if !is_kept && block < superblock.blocks {
                    self.mark(block, 1, true)?;
                    return Ok(block);
                }
            }
        }
        Err(DiskStructure::Superblock.fault(0, "the replay of fast commits found no free block"))
    }

    pub(super) fn mark_inode(&self, inode: u32, used: bool) -> Result<()> {
        let superblock = self.files.superblock();
        let each = superblock.inodes_per_group;
        let (number, bit) = ((inode - 1) / each, (inode - 1) % each);
        let mut descriptor = self.descriptor(number)?;
        let group = GroupDescriptor::parse(number, &descriptor);
        let structure = DiskStructure::InodeBitmap(number);
        let offset = self.files.offset_of(group.inode_bitmap, structure)?;
        let mut bitmap = vec![0; superblock.block_size as usize];
        let flags = le16(&descriptor, FLAGS_AT);
        if flags & INODE_UNINIT == 0 {
            structure.read(self.files.disk(), offset, &mut bitmap)?;
        } else {
            bitmap[each.div_ceil(8) as usize..].fill(0xFF);
        }
        if has_bit(&bitmap, bit) == used {
            return Ok(());
        }
        if used && flags & BLOCK_UNINIT != 0 {
            let (mut descriptor, blocks) = self.block_bitmap(number)?;
            self.store_blocks(number, &mut descriptor, &blocks)?;
            return self.mark_inode(inode, used);
        }
        set_bit(&mut bitmap, bit, used);
        if used {
            let known = if flags & INODE_UNINIT == 0 { each - field(&descriptor, UNUSED_INODES).min(each) } else { 0 };
            descriptor[FLAGS_AT..FLAGS_AT + 2].copy_from_slice(&(flags & !INODE_UNINIT).to_le_bytes());
            if bit >= known {
                set_field(&mut descriptor, UNUSED_INODES, each - bit - 1);
            }
        }
        let free = field(&descriptor, FREE_INODES);
        set_field(&mut descriptor, FREE_INODES, if used { free.saturating_sub(1) } else { free.saturating_add(1) });
        if superblock.has_checksums() {
            let computed = crc32c(superblock.seed, &bitmap[..each.div_ceil(8) as usize]);
            set_field(&mut descriptor, INODE_CHECKSUM, computed);
        }
        self.files.disk().write(structure, offset, &bitmap)?;
        self.store_descriptor(number, &mut descriptor)
    }

    fn descriptor(&self, number: u32) -> Result<Vec<u8>> {
        let superblock = self.files.superblock();
        let mut bytes = vec![0; usize::from(superblock.descriptor_size)];
        DiskStructure::Group(number).read(self.files.disk(), superblock.descriptor_offset(number), &mut bytes)?;
        Ok(bytes)
    }

    fn store_descriptor(&self, number: u32, bytes: &mut [u8]) -> Result<()> {
        if let Some(checksum) = self.files.descriptor_checksum(number, bytes) {
            bytes[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&checksum.to_le_bytes());
        }
        let offset = self.files.superblock().descriptor_offset(number);
        self.files.disk().write(DiskStructure::Group(number), offset, bytes)
    }

    /// Returns the descriptor of a group and its block bitmap. A bitmap that was never written is computed.
    fn block_bitmap(&self, number: u32) -> Result<(Vec<u8>, Vec<u8>)> {
        let mut descriptor = self.descriptor(number)?;
        let group = GroupDescriptor::parse(number, &descriptor);
        let superblock = self.files.superblock();
        let structure = DiskStructure::BlockBitmap(number);
        let mut bitmap = vec![0; superblock.block_size as usize];
        let flags = le16(&descriptor, FLAGS_AT);
        let sums = superblock.has_checksums() || superblock.ro_compat.contains(RoCompat::GDT_CSUM);
        if flags & BLOCK_UNINIT == 0 || !sums {
            structure.read(self.files.disk(), self.files.offset_of(group.block_bitmap, structure)?, &mut bitmap)?;
            return Ok((descriptor, bitmap));
        }
        let start = superblock.group_start(number);
        let each = u64::from(superblock.blocks_per_group);
        let end = (start + each).min(superblock.blocks);
        let per_cluster = u64::from(superblock.blocks_per_cluster);
        let mut use_blocks = |first: u64, count: u64| {
            for block in first.max(start)..first.saturating_add(count).min(end) {
                set_bit(&mut bitmap, ((block - start) / per_cluster) as u32, true);
            }
        };
        use_blocks(start, self.own_metadata(number));
        use_blocks(group.block_bitmap, 1);
        use_blocks(group.inode_bitmap, 1);
        let table = u64::from(superblock.inodes_per_group) * u64::from(superblock.inode_size);
        use_blocks(group.inode_table, table.div_ceil(u64::from(superblock.block_size)));
        let clusters = ((end - start).div_ceil(per_cluster)) as u32;
        let used = (0..clusters).filter(|bit| has_bit(&bitmap, *bit)).count() as u32;
        (clusters..8 * superblock.block_size).for_each(|bit| set_bit(&mut bitmap, bit, true));
        descriptor[FLAGS_AT..FLAGS_AT + 2].copy_from_slice(&(flags & !BLOCK_UNINIT).to_le_bytes());
        set_field(&mut descriptor, FREE_BLOCKS, clusters - used);
        Ok((descriptor, bitmap))
    }

    /// Number of blocks at the start of a group that contain a superblock and descriptors.
    fn own_metadata(&self, number: u32) -> u64 {
        let superblock = self.files.superblock();
        let each = superblock.block_size / u32::from(superblock.descriptor_size);
        let copy = superblock.has_superblock(number);
        let is_meta = superblock.incompat.contains(Incompat::META_BG);
        if is_meta && number / each >= superblock.first_meta_group {
            let within = number % each;
            return u64::from(copy) + u64::from(within < 2 || within == each - 1);
        }
        let tables = if is_meta { u64::from(superblock.first_meta_group) } else { superblock.groups().div_ceil(u64::from(each)) };
        if copy { 1 + tables + u64::from(superblock.spare_descriptor_blocks) } else { 0 }
    }

    fn store_blocks(&self, number: u32, descriptor: &mut [u8], bitmap: &[u8]) -> Result<()> {
        let superblock = self.files.superblock();
        if superblock.has_checksums() {
            let bits = superblock.blocks_per_group / superblock.blocks_per_cluster;
            let computed = crc32c(superblock.seed, &bitmap[..bits.div_ceil(8) as usize]);
            set_field(descriptor, BLOCK_CHECKSUM, computed);
        }
        let structure = DiskStructure::BlockBitmap(number);
        let offset = self.files.offset_of(GroupDescriptor::parse(number, descriptor).block_bitmap, structure)?;
        self.files.disk().write(structure, offset, bitmap)?;
        self.store_descriptor(number, descriptor)
    }
}
