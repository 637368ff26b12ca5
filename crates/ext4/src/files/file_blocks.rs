//! The locations of the blocks of a file.

use emmclab_base::Result;

use super::inode::InodeFlags;
use super::{Ext4Filesystem, Inode, extents, indirect};
use crate::disk_reader::DiskReader;

/// Consecutive blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileBlockRun {
    /// The first block, counted from the start of the file.
    pub logical: u64,
    /// Number of blocks; at least one.
    pub blocks: u64,
    /// The first block on the disk, as a block of the file system; `None` for a hole.
    pub physical: Option<u64>,
    /// Allocated, but reads as zeros.
    pub unwritten: bool,
}

impl FileBlockRun {
    /// The block after the last one, counted from the start of the file.
    pub fn end(&self) -> u64 {
        self.logical + self.blocks
    }
}

/// Maps a file and keeps the last block that was read at each level of its extent tree or indirect blocks, so that mapping it in
/// order reads no block twice.
pub(super) struct BlockMapper<'a, B> {
    pub filesystem: &'a Ext4Filesystem<B>,
    pub inode: &'a Inode,
    pub levels: Vec<MapLevel>,
}

/// A block of the map.
#[derive(Default)]
pub(super) struct MapLevel {
    pub block: Option<u64>,
    pub bytes: Vec<u8>,
}

impl<B: DiskReader> BlockMapper<'_, B> {
    /// Returns the run from a block of the file on.
    pub fn at(&mut self, logical: u64) -> Result<FileBlockRun> {
        if self.inode.flags().contains(InodeFlags::EXTENTS) {
            extents::at(self, logical)
        } else {
            indirect::at(self, logical)
        }
    }
}

impl<B: DiskReader> Ext4Filesystem<B> {
    pub(super) fn runs<'a>(&'a self, inode: &'a Inode) -> BlockMapper<'a, B> {
        BlockMapper { filesystem: self, inode, levels: Vec::new() }
    }

    /// Returns all blocks that an inode with extents maps, beyond its size too, without holes; and the blocks of the tree itself.
    pub(crate) fn all_runs(&self, inode: &Inode) -> Result<(Vec<FileBlockRun>, Vec<u64>)> {
        let mut mapper = self.runs(inode);
        let (mut runs, mut tree): (Vec<FileBlockRun>, Vec<u64>) = (Vec::new(), Vec::new());
        let mut before: Vec<Option<u64>> = Vec::new();
        let mut at = 0;
        while at < extents::END {
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

    /// Returns the blocks of a file in order, including holes; nothing if the contents are stored in the inode.
    ///
    /// # Errors
    ///
    /// Damaged extents or indirect blocks; the iterator ends there.
    pub fn map<'a>(&'a self, inode: &'a Inode) -> impl Iterator<Item = Result<FileBlockRun>> + 'a {
        let block_size = u64::from(self.superblock().block_size);
        let end = if inode.has_map() { inode.size().div_ceil(block_size) } else { 0 };
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
