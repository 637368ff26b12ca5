//! Blocks that are added to or removed from files. The map is read as a list of runs, changed, and written as a new tree of
//! extents. Linux edits the tree in place; the result is the same for a reader.

use emmclab_base::Result;

use super::FastCommitReplayer;
use crate::byte_fields::{le16, le32, wide};
use crate::checksum::crc32c;
use crate::disk_structure::DiskStructure;
use crate::files::{
    EXTENT_BYTES as EACH, EXTENT_MAGIC, FileBlockRun, Inode, InodeFlags, MAP_AT, MAP_BYTES, extent_length,
};

const IN_INODE: usize = 4;
const MAP: std::ops::Range<usize> = MAP_AT..MAP_AT + MAP_BYTES;

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
        if inode.flags().contains(InodeFlags::INLINE_DATA) {
            return Ok(());
        }
        if !inode.flags().contains(InodeFlags::EXTENTS) {
            let problem = "fast commits change a file that is mapped by indirect blocks";
            return Err(DiskStructure::Inode(number).unsupported(inode.offset, problem));
        }
        // As in Linux, a map that cannot be read is left unchanged.
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

    /// Writes the map of an inode; `tree` are the blocks of its current extent tree.
    pub(super) fn write_map(&self, inode: &Inode, runs: &[FileBlockRun], tree: &[u64]) -> Result<()> {
        let mut entries: Vec<(u64, [u8; EACH])> = Vec::new();
        let mut joined: Option<FileBlockRun> = None;
        let flush = |run: FileBlockRun, entries: &mut Vec<(u64, [u8; EACH])>| {
            let most = if run.unwritten { 0x7FFF } else { 0x8000 };
            let mut done = 0;
            while done < run.blocks {
                let blocks = most.min(run.blocks - done);
                let physical = run.physical.unwrap_or_default() + done;
                let stored = blocks as u16 + if run.unwritten { 0x8000 } else { 0 };
                let mut entry = [0; EACH];
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
        let room = (size - EACH) / EACH;
        let mut depth = 0_u16;
        while entries.len() > IN_INODE {
            let mut above = Vec::new();
            for part in entries.chunks(room) {
                let block = match free.next() {
                    Some(block) => block,
                    None => self.allocate((inode.number() - 1) / self.files.superblock().inodes_per_group)?,
                };
                let mut bytes = vec![0; size];
                node(&mut bytes, part, room, depth);
                if self.files.superblock().has_checksums() {
                    let tail = EACH * (room + 1);
                    let sum = crc32c(self.files.seed_of(inode), &bytes[..tail]);
                    bytes[tail..tail + 4].copy_from_slice(&sum.to_le_bytes());
                }
                let structure = DiskStructure::ExtentBlock(inode.number());
                self.files.disk().write(structure, block * size as u64, &bytes)?;
                let mut entry = [0; EACH];
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
        self.change_inode(inode.number(), |bytes| {
            bytes[MAP].fill(0);
            node(&mut bytes[MAP], &entries, IN_INODE, depth);
        })
    }
}

/// Fills a node of the tree.
fn node(bytes: &mut [u8], entries: &[(u64, [u8; EACH])], room: usize, depth: u16) {
    for (at, value) in [(0, EXTENT_MAGIC), (2, entries.len() as u16), (4, room as u16), (6, depth)] {
        bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
    for (number, (_, entry)) in entries.iter().enumerate() {
        bytes[EACH * (number + 1)..EACH * (number + 2)].copy_from_slice(entry);
    }
}
