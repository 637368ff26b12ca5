//! The locations of the blocks of a file: extent trees, or twelve direct blocks and three levels of indirect blocks.
//!
//! Source: Linux `Documentation/filesystems/ext4/ifork.rst`; checks of `fs/ext4/extents.c`; `fs/ext4/indirect.c`.

use emmclab_base::Result;

use super::inode::InodeFlags;
use super::{Ext4Filesystem, Inode};
use crate::disk::{DiskReader, DiskStructure, crc32c, le16, le32, wide};

/// A run of consecutive blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileBlockRun {
    /// The first block, counted from the start of the file.
    pub logical: u64,
    /// Number of blocks; at least one.
    pub blocks: u64,
    /// The first block on the disk, as a block of the file system; `None` for a hole.
    pub physical: Option<u64>,
    /// Whether the blocks are allocated but read as zeros.
    pub unwritten: bool,
}

impl FileBlockRun {
    /// The block after the last one, counted from the start of the file.
    pub fn end(&self) -> u64 {
        self.logical + self.blocks
    }
}

/// Maps the blocks of a file. It keeps the last block that was read at each level of the extent tree or of the indirect blocks, so that
/// mapping a file in order reads no block twice.
pub(super) struct BlockMapper<'a, B> {
    pub filesystem: &'a Ext4Filesystem<B>,
    pub inode: &'a Inode,
    pub levels: Vec<MapLevel>,
}

#[derive(Default)]
pub(super) struct MapLevel {
    pub block: Option<u64>,
    pub bytes: Vec<u8>,
}

impl<B: DiskReader> BlockMapper<'_, B> {
    pub fn at(&mut self, logical: u64) -> Result<FileBlockRun> {
        if self.inode.flags.contains(InodeFlags::EXTENTS) { extent_at(self, logical) } else { indirect_at(self, logical) }
    }
}

impl<B: DiskReader> Ext4Filesystem<B> {
    pub(super) fn runs<'a>(&'a self, inode: &'a Inode) -> BlockMapper<'a, B> {
        BlockMapper { filesystem: self, inode, levels: Vec::new() }
    }

    /// Returns all runs of blocks that an inode with extents maps, including runs beyond its size, but no holes. Also returns the blocks of
    /// the extent tree itself.
    pub(crate) fn all_runs(&self, inode: &Inode) -> Result<(Vec<FileBlockRun>, Vec<u64>)> {
        let mut mapper = self.runs(inode);
        let (mut runs, mut tree): (Vec<FileBlockRun>, Vec<u64>) = (Vec::new(), Vec::new());
        let mut before: Vec<Option<u64>> = Vec::new();
        let mut at = 0;
        while at < MAP_END {
            let run = mapper.at(at)?;
            before.resize(mapper.levels.len(), None);
            for (level, before) in mapper.levels.iter().zip(&mut before) {
                if level.block != *before {
                    *before = level.block;
                    tree.extend(level.block);
                }
            }
            at = run.end();
            runs.extend(Some(run).filter(|run| run.physical.is_some()));
        }
        Ok((runs, tree))
    }

    /// Returns the runs of a file in order, including holes. Returns none if the contents are stored in the inode.
    /// Errors: if extents or indirect blocks are damaged; the iterator ends there.
    pub fn map<'a>(&'a self, inode: &'a Inode) -> impl Iterator<Item = Result<FileBlockRun>> + 'a {
        let block_size = u64::from(self.superblock().block_size);
        let end = if inode.has_map() { inode.size.div_ceil(block_size) } else { 0 };
        let mut mapper = self.runs(inode);
        let mut at = 0;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let run = mapper.at(at).map(|run| FileBlockRun { blocks: run.blocks.min(end - at), ..run });
            at = run.as_ref().map_or(end, FileBlockRun::end);
            Some(run)
        })
    }
}

/// The magic number at the start of a node of an extent tree.
pub(crate) const EXTENT_MAGIC: u16 = 0xF30A;
const MAX_DEPTH: u16 = 5;
/// Number of bytes in the header of a node, and in each entry.
pub(crate) const EXTENT_BYTES: usize = 12;
/// Maximum length of a written extent. A larger stored length marks an unwritten extent, whose number of blocks is the stored length minus
/// this constant.
const MAX_LENGTH: u16 = 32768;
/// Number of blocks that a file can have: their numbers have 32 bits.
pub(super) const MAP_END: u64 = 1 << 32;

struct ExtentHeader {
    entries: usize,
    depth: u16,
}

pub(super) fn extent_at<B: DiskReader>(mapper: &mut BlockMapper<'_, B>, logical: u64) -> Result<FileBlockRun> {
    let structure = DiskStructure::Inode(mapper.inode.number);
    let mut header = check_node(&mapper.inode.map, structure, mapper.inode.offset + 0x28, None)?;
    let mut hole_end = MAP_END;
    let mut level = 0;
    loop {
        let bytes: &[u8] = match level {
            0 => &mapper.inode.map,
            below => &mapper.levels[below - 1].bytes,
        };
        let keys = |entry: usize| u64::from(le32(bytes, EXTENT_BYTES * (entry + 1)));
        let after = partition(header.entries, |entry| keys(entry) <= logical);
        if after < header.entries {
            hole_end = hole_end.min(keys(after));
        }
        let Some(entry) = after.checked_sub(1).map(|entry| &bytes[EXTENT_BYTES * (entry + 1)..EXTENT_BYTES * (entry + 2)]) else {
            return hole(mapper, logical, hole_end);
        };
        if header.depth == 0 {
            let first = u64::from(le32(entry, 0));
            let (blocks, unwritten) = extent_length(le16(entry, 4));
            let end = first + u64::from(blocks);
            if logical >= end {
                return hole(mapper, logical, hole_end);
            }
            let physical = wide(le16(entry, 6), le32(entry, 8));
            let structure = DiskStructure::ExtentBlock(mapper.inode.number);
            mapper.filesystem.offset_of(physical, structure)?;
            mapper.filesystem.offset_of(physical + u64::from(blocks) - 1, structure)?;
            let physical = Some(physical + logical - first);
            return Ok(FileBlockRun { logical, blocks: end - logical, physical, unwritten });
        }
        let block = wide(le16(entry, 8), le32(entry, 4));
        header = descend(mapper, level, block, header.depth - 1)?;
        level += 1;
    }
}

/// Decodes the length of an extent: the number of blocks, and whether they are unwritten.
pub(crate) fn extent_length(stored: u16) -> (u16, bool) {
    if stored > MAX_LENGTH { (stored - MAX_LENGTH, true) } else { (stored, false) }
}

fn hole<B: DiskReader>(mapper: &BlockMapper<'_, B>, logical: u64, end: u64) -> Result<FileBlockRun> {
    if logical >= end {
        let problem = format!("block {logical} of the file is beyond what extents can map, or keys are not in order");
        return Err(DiskStructure::Inode(mapper.inode.number).fault(mapper.inode.offset, problem));
    }
    Ok(FileBlockRun { logical, blocks: end - logical, physical: None, unwritten: false })
}

/// Returns the number of entries that satisfy the condition. Entries that satisfy it must precede all others.
fn partition(entries: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, entries);
    while low < high {
        let middle = low.midpoint(high);
        if holds(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

/// Reads and checks the block below `level`, unless it was the last block read at that level.
fn descend<B: DiskReader>(mapper: &mut BlockMapper<'_, B>, level: usize, block: u64, depth: u16) -> Result<ExtentHeader> {
    let structure = DiskStructure::ExtentBlock(mapper.inode.number);
    let offset = mapper.filesystem.offset_of(block, structure)?;
    if mapper.levels.len() == level {
        mapper.levels.push(MapLevel::default());
    }
    let known = &mut mapper.levels[level];
    if known.block == Some(block) {
        return Ok(ExtentHeader { entries: usize::from(le16(&known.bytes, 2)), depth: le16(&known.bytes, 6) }).and_then(
            |header| {
                if header.depth == depth { Ok(header) } else { Err(wrong_depth(structure, offset, header.depth, depth)) }
            },
        );
    }
    known.block = None;
    known.bytes.resize(mapper.filesystem.superblock().block_size as usize, 0);
    structure.read(mapper.filesystem.disk(), offset, &mut known.bytes)?;
    let header = check_node(&known.bytes, structure, offset, Some(depth))?;
    if mapper.filesystem.superblock().has_checksums() {
        // The checksum of an extent block follows the space for all its entries.
        let tail = EXTENT_BYTES * (usize::from(le16(&known.bytes, 4)) + 1);
        let stored = le32(&known.bytes, tail);
        let computed = crc32c(mapper.filesystem.seed_of(mapper.inode), &known.bytes[..tail]);
        if stored != computed {
            return Err(structure.bad_checksum(offset, stored, computed));
        }
    }
    known.block = Some(block);
    Ok(header)
}

fn wrong_depth(structure: DiskStructure, offset: u64, depth: u16, wanted: u16) -> emmclab_base::Error {
    structure.fault(offset + 6, format!("depth {depth} of the extent tree, {wanted} expected"))
}

/// Checks a complete node: its keys must be in order, without overlaps.
fn check_node(bytes: &[u8], structure: DiskStructure, offset: u64, depth: Option<u16>) -> Result<ExtentHeader> {
    let fault = |at: usize, problem: String| Err(structure.fault(offset + at as u64, problem));
    let (magic, entries, most) = (le16(bytes, 0), le16(bytes, 2), le16(bytes, 4));
    let header = ExtentHeader { entries: usize::from(entries), depth: le16(bytes, 6) };
    if magic != EXTENT_MAGIC {
        return fault(0, format!("magic number {magic:#06x} of an extent tree is not {EXTENT_MAGIC:#06x}"));
    }
    if header.depth > MAX_DEPTH {
        return fault(6, format!("depth {} of the extent tree, at most {MAX_DEPTH}", header.depth));
    }
    if let Some(depth) = depth.filter(|depth| *depth != header.depth) {
        return Err(wrong_depth(structure, offset, header.depth, depth));
    }
    if entries > most || EXTENT_BYTES * (usize::from(most) + 1) > bytes.len() {
        return fault(2, format!("{entries} entries of at most {most} in {} bytes", bytes.len()));
    }
    let mut free = 0;
    for entry in 1..=header.entries {
        let at = EXTENT_BYTES * entry;
        let key = u64::from(le32(bytes, at));
        if key < free {
            return fault(at, format!("key {key} of an extent, but at least {free} is expected"));
        }
        let length = if header.depth == 0 { le16(bytes, at + 4) } else { 1 };
        if length == 0 {
            return fault(at + 4, "the extent has no blocks".to_owned());
        }
        free = key + u64::from(extent_length(length).0);
    }
    Ok(header)
}

const DIRECT: u64 = 12;
const LEVELS: u32 = 3;

pub(super) fn indirect_at<B: DiskReader>(mapper: &mut BlockMapper<'_, B>, logical: u64) -> Result<FileBlockRun> {
    let structure = DiskStructure::IndirectBlock(mapper.inode.number);
    let each = u64::from(mapper.filesystem.superblock().block_size / 4);
    let run = |blocks: u64, block: u32| -> Result<FileBlockRun> {
        let physical = (block != 0).then_some(u64::from(block));
        if let Some(block) = physical {
            mapper.filesystem.offset_of(block, structure)?;
        }
        Ok(FileBlockRun { logical, blocks, physical, unwritten: false })
    };
    if logical < DIRECT {
        return run(1, le32(&mapper.inode.map, 4 * logical as usize));
    }
    let mut within = logical - DIRECT;
    let mut depth = 1;
    while within >= each.pow(depth) {
        within -= each.pow(depth);
        depth += 1;
        if depth > LEVELS {
            let problem = format!("block {logical} of the file is beyond what indirect blocks can map");
            return Err(DiskStructure::Inode(mapper.inode.number).fault(mapper.inode.offset, problem));
        }
    }
    let mut block = le32(&mapper.inode.map, 4 * (DIRECT as usize + depth as usize - 1));
    for level in 0..depth as usize {
        // Number of blocks that an entry of this level maps.
        let below = each.pow(depth - 1 - level as u32);
        if block == 0 {
            let span = below * each;
            return Ok(FileBlockRun { logical, blocks: span - within % span, physical: None, unwritten: false });
        }
        let offset = mapper.filesystem.offset_of(u64::from(block), structure)?;
        if mapper.levels.len() == level {
            mapper.levels.push(MapLevel::default());
        }
        let known = &mut mapper.levels[level];
        if known.block != Some(u64::from(block)) {
            known.block = None;
            known.bytes.resize(4 * each as usize, 0);
            structure.read(mapper.filesystem.disk(), offset, &mut known.bytes)?;
            known.block = Some(u64::from(block));
        }
        block = le32(&known.bytes, 4 * (within / below % each) as usize);
    }
    let physical = (block != 0).then_some(u64::from(block));
    if let Some(block) = physical {
        mapper.filesystem.offset_of(block, structure)?;
    }
    Ok(FileBlockRun { logical, blocks: 1, physical, unwritten: false })
}
