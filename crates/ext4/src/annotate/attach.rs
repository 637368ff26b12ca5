//! Initialises an annotator from the contents of a disk.

use emmclab_base::{BlockRole, ErrorClass as ErrorKind, Result};

use super::block_runs::BlockLookup;
use super::metadata_layout::{self, MetadataLayout};
use super::status::AnnotatorStatus;
use super::{Annotator, JournalPlacement, directories};
use crate::disk_reader::DiskReader;
use crate::disk_structure::DiskStructure;
use crate::files::{Ext4Filesystem, GroupDescriptor};
use crate::journal::{JournalLocation, JournalRecovery};
use crate::superblock::{BYTES, Compat, Ext4Superblock, Incompat, OFFSET};

impl Annotator {
    /// Forgets everything and reads the file system that is on a disk; a disk without one is not an error. Reads the group
    /// descriptors, the inodes in use, and the journal if it must be replayed.
    ///
    /// # Errors
    ///
    /// If the disk cannot be read. Damaged structures are not an error: they are not followed, and [`Self::status`] reports them.
    pub fn attach(&mut self, disk: &dyn DiskReader) -> Result<()> {
        let mut recovery = JournalRecovery::new();
        match recovery.replay(disk) {
            Ok(replayed) => {
                let end = replayed.replay().end;
                self.learn_disk(&replayed)?;
                self.learn_journal(disk, Some(end))
            }
            Err(error) if error.kind() == ErrorKind::Io => Err(error),
            Err(_) => {
                self.learn_disk(disk)?;
                self.learn_journal(disk, None)
            }
        }
    }

    /// Like [`Self::attach`], for a journal on a separate device; writes to that device are passed to [`Self::write_journal`].
    ///
    /// # Errors
    ///
    /// If a device cannot be read, or `journal` is not the journal of this file system.
    pub fn attach_external(&mut self, disk: &dyn DiskReader, journal: &dyn DiskReader) -> Result<()> {
        let mut recovery = JournalRecovery::new();
        let end = match recovery.replay_external(disk, journal) {
            Ok(replayed) => {
                self.learn_disk(&replayed)?;
                Some(replayed.replay().end)
            }
            Err(error) if error.kind() == ErrorKind::Io => return Err(error),
            Err(_) => {
                self.learn_disk(disk)?;
                None
            }
        };
        let Some(layout) = &mut self.layout else { return Ok(()) };
        layout.take_journal_moved();
        self.journal_placement = JournalPlacement::Elsewhere;
        let location = JournalLocation::external(journal, layout.superblock())?;
        self.set_external(&location);
        self.read_log(journal, &location, end)
    }

    /// Reads the layout of a file system after the replay of its journal, as far as possible.
    fn learn_disk(&mut self, disk: &dyn DiskReader) -> Result<()> {
        *self = Self::new();
        if disk.size().is_ok_and(|size| size < OFFSET + BYTES as u64) {
            return Ok(());
        }
        DiskStructure::Superblock.read(disk, OFFSET, &mut self.superblock[..])?;
        let size = disk.size().unwrap_or(u64::MAX);
        let superblock = Ext4Superblock::read(disk).and_then(|superblock| {
            metadata_layout::check(&superblock, size)?;
            Ok(superblock)
        });
        let superblock = match superblock {
            Ok(superblock) => superblock,
            Err(error) if error.kind() == ErrorKind::Io => return Err(error),
            Err(error) => {
                self.refused = AnnotatorStatus::of_superblock(&self.superblock[..], &error);
                return Ok(());
            }
        };
        self.journal.reset(superblock.block_size as usize, 0);
        let mut layout = MetadataLayout::new(superblock.clone());
        let filesystem = Ext4Filesystem::with_superblock(disk, superblock);
        let groups = filesystem.superblock().groups() as u32;
        let known: Vec<(u32, GroupDescriptor)> =
            (0..groups).filter_map(|number| Some((number, filesystem.group(number).ok()?))).collect();
        for (number, group) in &known {
            layout.set_group(*number, group);
        }
        for (_, group) in &known {
            learn_inodes(&mut layout, &filesystem, group)?;
        }
        self.layout = Some(layout);
        Ok(())
    }

    /// Locates the journal inside a known file system, and reads its log up to transaction `end`.
    fn learn_journal(&mut self, disk: &dyn DiskReader, end: Option<u32>) -> Result<()> {
        let Some(layout) = &mut self.layout else { return Ok(()) };
        layout.take_journal_moved();
        let superblock = layout.superblock().clone();
        if superblock.compat.contains(Compat::HAS_JOURNAL) && superblock.journal_inode == 0 {
            self.journal_placement = JournalPlacement::Elsewhere;
            return Ok(());
        }
        match JournalLocation::inside(&Ext4Filesystem::with_superblock(disk, superblock)) {
            Ok(Some(location)) => {
                layout.set_journal(location.runs());
                self.journal.relocate(location.superblock_block() as u32);
                self.journal_placement = JournalPlacement::Inside;
                self.read_log(disk, &location, end)
            }
            Ok(None) => {
                self.journal_placement = JournalPlacement::None;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Io => Err(error),
            Err(error) => {
                self.journal_placement = JournalPlacement::Inside;
                self.journal.set_fault(error);
                Ok(())
            }
        }
    }

    /// Reads the log that is still to be replayed, up to transaction `end`: these are the copies that a replay writes to their home
    /// blocks.
    fn read_log(&mut self, disk: &dyn DiskReader, location: &JournalLocation, end: Option<u32>) -> Result<()> {
        let superblock = match location.superblock(disk) {
            Ok(superblock) => superblock,
            Err(error) if error.kind() == ErrorKind::Io => return Err(error),
            Err(error) => {
                self.journal.set_fault(error);
                return Ok(());
            }
        };
        let (first, start) = (superblock.sequence, superblock.start);
        let (block_bytes, blocks) = (superblock.block_size as usize, superblock.blocks);
        self.journal.set_superblock(superblock);
        let Some(layout) = &mut self.layout else { return Ok(()) };
        let needs_recovery = layout.superblock().incompat.contains(Incompat::RECOVER);
        self.recovering = start != 0 && needs_recovery;
        let Some(end) = end.filter(|end| self.recovering && *end != first) else { return Ok(()) };
        let mut bytes = vec![0; block_bytes];
        let mut block = start;
        for _ in 0..blocks {
            let Some(offset) = location.offset(u64::from(block)) else { break };
            DiskStructure::JournalBlock(u64::from(block)).read(disk, offset, &mut bytes)?;
            let note = self.journal.write(block, 0, &bytes, layout);
            if note.role == BlockRole::Commit && note.transaction.is_some_and(|of| of.wrapping_add(1) == end) {
                break;
            }
            block = self.journal.after(block);
        }
        self.journal.forget_transactions();
        Ok(())
    }
}

/// Reads the layout from the inodes of a group that are in use.
fn learn_inodes<B: DiskReader>(
    layout: &mut MetadataLayout,
    filesystem: &Ext4Filesystem<B>,
    group: &GroupDescriptor,
) -> Result<()> {
    // If the bitmap is damaged, all inodes are read.
    let used = match filesystem.inode_bitmap(group) {
        Ok(None) => return Ok(()),
        used => used.ok().flatten(),
    };
    let superblock = filesystem.superblock();
    let size = superblock.block_size as usize;
    let per_block = superblock.block_size / u32::from(superblock.inode_size);
    let mut bytes = vec![0; size];
    for at in 0..superblock.inodes_per_group.div_ceil(per_block) {
        let bit = |bit: u32| {
            used.as_ref().is_none_or(|used| used.get(bit as usize / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1))
        };
        if !(at * per_block..(at + 1) * per_block).any(bit) {
            continue;
        }
        let block = group.inode_table + u64::from(at);
        let BlockLookup::Place(place) = layout.at(block) else { continue };
        let first = group.first_inode(superblock) + at * per_block;
        DiskStructure::Inode(first).read(filesystem.disk(), block * size as u64, &mut bytes)?;
        layout.learn(place, block, 0, &bytes, None);
        for (slot, bytes) in (0..).zip(bytes.chunks_exact(usize::from(superblock.inode_size))) {
            if !directories::runs_of(bytes).is_some_and(|runs| runs.is_deep) {
                continue;
            }
            let Ok(inode) = filesystem.inode(first + slot) else { continue };
            for run in filesystem.map(&inode).map_while(Result::ok) {
                if let Some(start) = run.physical {
                    layout.learn_directory(start, start + run.blocks);
                }
            }
        }
    }
    Ok(())
}
