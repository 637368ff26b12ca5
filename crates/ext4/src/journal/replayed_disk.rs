//! A disk in its state after the replay of its journal. Nothing is copied: home blocks are read from their places in the journal.

use std::io;

use emmclab_base::{Error, Result};
use rustc_hash::FxHashMap;

use super::location::JournalLocation;
use super::records::MAGIC;
use crate::disk_reader::DiskReader;
use crate::disk_structure::DiskStructure;
use crate::fast_commits::{Edits, lay_over};
use crate::files::Ext4Filesystem;
use crate::superblock;

/// The counts of a replay. Transaction numbers have 32 bits and wrap to 0.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct JournalReplaySummary {
    /// The first transaction that the journal superblock states.
    pub first: u32,
    /// The first transaction that was not replayed; equals `first` if none was.
    pub end: u32,
    /// Logged blocks that were replayed; every copy of a home block counts.
    pub blocks: u64,
    /// Revoke entries.
    pub revokes: u64,
    /// Logged blocks left out because of a revoke entry.
    pub revoked: u64,
    /// Logged blocks left out because of a bad checksum.
    pub bad_blocks: u64,
    /// Fast commits on top of the log that were replayed.
    pub fast_commits: u64,
    /// The reason why Linux refuses to mount although something was replayed, as e2fsck does: a bad checksum of a commit block or a
    /// logged block, or a home block outside of the disk.
    pub refused: Option<Error>,
}

/// Location of the newest copy of a home block in the journal.
#[derive(Clone, Copy)]
pub(super) struct JournalCopy {
    pub offset: u64,
    pub escaped: bool,
}

/// Home blocks that have a copy in the journal, by their number.
#[derive(Default)]
pub(super) struct ReplayOverlay {
    pub copies: FxHashMap<u64, JournalCopy>,
    /// Blocks that fast commits changed, in their final state.
    pub edits: Edits,
    pub block_size: u64,
}

/// A disk after its journal was replayed.
pub struct ReplayedDisk<'a> {
    pub(super) disk: &'a dyn DiskReader,
    pub(super) journal: &'a dyn DiskReader,
    pub(super) overlay: &'a ReplayOverlay,
    pub(super) replay: JournalReplaySummary,
}

impl ReplayedDisk<'_> {
    /// The counts of the replay.
    pub fn replay(&self) -> &JournalReplaySummary {
        &self.replay
    }

    /// Returns the home blocks that the replay changes, in order.
    pub fn home_blocks(&self) -> Vec<u64> {
        let mut out: Vec<u64> = self.overlay.copies.keys().chain(self.overlay.edits.keys()).copied().collect();
        out.sort_unstable();
        out.dedup();
        out
    }

    /// Calls `write` with each replayed home block in order: its location in bytes, and its contents.
    ///
    /// # Errors
    ///
    /// Errors of reading the journal, and of `write`.
    pub fn write_to(&self, mut write: impl FnMut(u64, &[u8]) -> io::Result<()>) -> Result<()> {
        let size = self.overlay.block_size;
        let mut bytes = vec![0; usize::try_from(size).unwrap_or_default()];
        for block in self.home_blocks() {
            let structure = DiskStructure::HomeBlock(block);
            structure.read(self, block * size, &mut bytes)?;
            write(block * size, &bytes)
                .map_err(|error| structure.fault(block * size, format!("not written: {error}")))?;
        }
        Ok(())
    }

    /// Returns the superblocks for a disk to which the replay was written: the location of each in bytes, and its bytes. That of
    /// the file system asks for no replay, and that of an internal journal states an empty log.
    ///
    /// # Errors
    ///
    /// Errors of reading the disk.
    pub fn superblocks_after(&self) -> Result<Vec<(u64, Vec<u8>)>> {
        let mut bytes = [0; superblock::BYTES];
        DiskStructure::Superblock.read(self, superblock::OFFSET, &mut bytes)?;
        superblock::clear_recover(&mut bytes);
        let mut out = vec![(superblock::OFFSET, bytes.to_vec())];
        if let Some(location) = JournalLocation::inside(&Ext4Filesystem::open(self.disk)?)?
            && let Some(at) = location.offset(location.superblock_block())
            && location.superblock(self.disk)?.start != 0
        {
            let mut bytes = [0; super::superblock::BYTES];
            DiskStructure::JournalSuperblock.read(self.disk, at, &mut bytes)?;
            super::superblock::empty_log(&mut bytes, self.replay.end.wrapping_add(1));
            out.push((at, bytes.to_vec()));
        }
        Ok(out)
    }
}

impl DiskReader for ReplayedDisk<'_> {
    fn size(&self) -> io::Result<u64> {
        self.disk.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let size = self.overlay.block_size;
        if size == 0 {
            return self.disk.read_at(offset, buffer);
        }
        self.read_logged(offset, buffer)?;
        lay_over(&self.overlay.edits, size, offset, buffer);
        Ok(())
    }
}

impl ReplayedDisk<'_> {
    /// Reads the disk, with copies from the log in place of the home blocks.
    fn read_logged(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let size = self.overlay.block_size;
        if self.overlay.copies.is_empty() {
            return self.disk.read_at(offset, buffer);
        }
        let mut at = offset;
        let mut rest = buffer;
        while !rest.is_empty() {
            let copy = |block: u64| self.overlay.copies.get(&block);
            let (block, within) = (at / size, at % size);
            let mut blocks = 1;
            let found = copy(block);
            // Consecutive blocks that are not in the journal are read together.
            while found.is_none() && blocks * size < within + rest.len() as u64 && copy(block + blocks).is_none() {
                blocks += 1;
            }
            let length = usize::try_from(blocks * size - within).unwrap_or(usize::MAX).min(rest.len());
            let (part, after) = rest.split_at_mut(length);
            match found {
                None => self.disk.read_at(at, part)?,
                Some(copy) => {
                    self.journal.read_at(copy.offset + within, part)?;
                    if copy.escaped {
                        let magic = MAGIC.to_be_bytes();
                        let from = usize::try_from(within).unwrap_or(usize::MAX);
                        part.iter_mut().zip(magic.iter().skip(from)).for_each(|(byte, magic)| *byte = *magic);
                    }
                }
            }
            at += length as u64;
            rest = after;
        }
        Ok(())
    }
}
