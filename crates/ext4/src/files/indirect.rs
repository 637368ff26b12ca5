//! Block maps without extents: twelve direct blocks, then one, two and three levels of indirect blocks.
//!
//! Source: Linux `Documentation/filesystems/ext4/ifork.rst`; `fs/ext4/indirect.c`.

use emmclab_base::Result;

use super::file_blocks::{BlockMapper, FileBlockRun, MapLevel};
use crate::byte_fields::le32;
use crate::disk_reader::DiskReader;
use crate::disk_structure::DiskStructure;

const DIRECT: u64 = 12;
const LEVELS: u32 = 3;

pub(super) fn at<B: DiskReader>(mapper: &mut BlockMapper<'_, B>, logical: u64) -> Result<FileBlockRun> {
    let structure = DiskStructure::IndirectBlock(mapper.inode.number());
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
            return Err(DiskStructure::Inode(mapper.inode.number()).fault(mapper.inode.offset, problem));
        }
    }
    let mut block = le32(&mapper.inode.map, 4 * (DIRECT as usize + depth as usize - 1));
    for level in 0..depth as usize {
        // Number of blocks that one entry of this level maps.
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
