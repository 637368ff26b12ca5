//! Bitmaps, and the counters of group descriptors: `ext4_mb_mark_bb`, `ext4_mb_new_blocks_simple`, `ext4_mark_inode_used`.

use emmclab_base::Result;

use super::FastCommitReplayer;
use crate::byte_fields::le16;
use crate::checksum::crc32c;
use crate::disk_structure::DiskStructure;
use crate::files::GroupDescriptor;
use crate::superblock::{Incompat, RoCompat};

const FLAGS_AT: usize = 0x12;
const INODE_UNINIT: u16 = 1;
const BLOCK_UNINIT: u16 = 2;
const CHECKSUM_AT: usize = 0x1E;

/// The offsets of the low and high half of a field of a descriptor.
type Field = (usize, usize);
const FREE_BLOCKS: Field = (0x0C, 0x2C);
const FREE_INODES: Field = (0x0E, 0x2E);
const UNUSED_INODES: Field = (0x1C, 0x32);
const BLOCK_CHECKSUM: Field = (0x18, 0x38);
const INODE_CHECKSUM: Field = (0x1A, 0x3A);

fn get(bytes: &[u8], (low, high): Field) -> u32 {
    let high = if bytes.len() >= 64 { le16(bytes, high) } else { 0 };
    u32::from(high) << 16 | u32::from(le16(bytes, low))
}

fn set(bytes: &mut [u8], (low, high): Field, value: u32) {
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
    /// Marks blocks as used or free; blocks outside of the file system are ignored.
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
                let free = get(&descriptor, FREE_BLOCKS);
                let free = if used { free.saturating_sub(changed) } else { free.saturating_add(changed) };
                set(&mut descriptor, FREE_BLOCKS, free);
                self.store_blocks(number, &mut descriptor, &bitmap)?;
            }
            at = stop;
        }
        Ok(())
    }

    /// Allocates a block that is free and not used by a later record; starts the search at group `goal`.
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
        Err(DiskStructure::Superblock.fault(0, "no free block is left for the replay of fast commits"))
    }

    /// Marks an inode as used or free.
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
            let known = if flags & INODE_UNINIT == 0 { each - get(&descriptor, UNUSED_INODES).min(each) } else { 0 };
            descriptor[FLAGS_AT..FLAGS_AT + 2].copy_from_slice(&(flags & !INODE_UNINIT).to_le_bytes());
            if bit >= known {
                set(&mut descriptor, UNUSED_INODES, each - bit - 1);
            }
        }
        let free = get(&descriptor, FREE_INODES);
        set(&mut descriptor, FREE_INODES, if used { free.saturating_sub(1) } else { free.saturating_add(1) });
        if superblock.has_checksums() {
            let computed = crc32c(superblock.seed, &bitmap[..each.div_ceil(8) as usize]);
            set(&mut descriptor, INODE_CHECKSUM, computed);
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

    /// Returns the descriptor of a group and its block bitmap; a bitmap that was never written is computed.
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
        set(&mut descriptor, FREE_BLOCKS, clusters - used);
        Ok((descriptor, bitmap))
    }

    /// Number of blocks at the start of a group that hold a superblock and descriptors.
    fn own_metadata(&self, number: u32) -> u64 {
        let superblock = self.files.superblock();
        let each = superblock.block_size / u32::from(superblock.descriptor_size);
        let copy = superblock.has_superblock(number);
        let is_meta = superblock.incompat.contains(Incompat::META_BG);
        if is_meta && number / each >= superblock.first_meta_group {
            let within = number % each;
            return u64::from(copy) + u64::from(within < 2 || within == each - 1);
        }
        let tables = if is_meta {
            u64::from(superblock.first_meta_group)
        } else {
            superblock.groups().div_ceil(u64::from(each))
        };
        if copy { 1 + tables + u64::from(superblock.spare_descriptor_blocks) } else { 0 }
    }

    fn store_blocks(&self, number: u32, descriptor: &mut [u8], bitmap: &[u8]) -> Result<()> {
        let superblock = self.files.superblock();
        if superblock.has_checksums() {
            let bits = superblock.blocks_per_group / superblock.blocks_per_cluster;
            let computed = crc32c(superblock.seed, &bitmap[..bits.div_ceil(8) as usize]);
            set(descriptor, BLOCK_CHECKSUM, computed);
        }
        let structure = DiskStructure::BlockBitmap(number);
        let offset = self.files.offset_of(GroupDescriptor::parse(number, descriptor).block_bitmap, structure)?;
        self.files.disk().write(structure, offset, bitmap)?;
        self.store_descriptor(number, descriptor)
    }
}
