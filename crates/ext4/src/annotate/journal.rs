//! Follows the journal as it is written, and keeps what it holds of the home blocks.
//!
//! A logged block can be recognised only by the descriptor before it. The kernel (`fs/jbd2/commit.c`) submits a descriptor, then
//! its logged blocks, and waits for all of them before it submits the commit block, unless the journal has `ASYNC_COMMIT`. Only one
//! transaction is written at a time. A scheduler or a device may still reorder these writes, most likely where the log wraps. A
//! block that starts with the magic number is never a logged block, because these are escaped. A logged block whose descriptor was
//! not seen is kept as a copy without a home until the descriptor of this transaction or of the next one refers to it.

use emmclab_base::{BlockNote, BlockRole, Error, SECTOR_BYTES, SectorSet};
use rustc_hash::FxHashMap;

use super::logged_copies::{LoggedCopies, early};
use super::metadata_layout::MetadataLayout;
use super::partial_blocks::PartialBlocks;
use crate::byte_fields::le32;
use crate::disk_structure::DiskStructure;
use crate::journal::{
    FastCommitRecords, FastCommitTag, HeaderKind, JournalBlockHeader, JournalFeatures, JournalRecordKind,
    JournalSuperblock, JournalTagFlags, LogFormat, is_before,
};

/// Bytes of the journal's superblock that are used.
const SUPERBLOCK_BYTES: usize = 1024;
const SECTOR: usize = SECTOR_BYTES as usize;

/// A logged block to which a descriptor refers.
#[derive(Clone, Copy)]
struct ExpectedBlock {
    /// Its home, as a block; `None` outside of the file system.
    home: Option<u64>,
    transaction: u32,
    escaped: bool,
}

/// The fields of the journal's superblock.
struct LogParameters {
    superblock: JournalSuperblock,
    format: LogFormat,
}

/// The journal, as a stream of writes.
#[derive(Default)]
pub(super) struct JournalFollower {
    log: Option<LogParameters>,
    /// The reason why the superblock cannot be used.
    fault: Option<Error>,
    /// The block that holds the superblock.
    superblock_block: u32,
    block_bytes: usize,
    copies: LoggedCopies,
    parts: PartialBlocks,
    /// Logged blocks that descriptors have announced, by their block in the journal.
    expected: FxHashMap<u32, ExpectedBlock>,
    /// Copies without a home, by their block in the journal; each with the number of commits when it was written.
    early: FxHashMap<u32, u32>,
    commits: u32,
}

impl JournalFollower {
    /// Forgets everything; the journal has blocks of this size from now on.
    pub fn reset(&mut self, block_bytes: usize, superblock_block: u32) {
        *self = Self { superblock_block, block_bytes, ..Self::default() };
        self.copies.reset(block_bytes / SECTOR);
    }

    /// Forgets the state of the log and its superblock; the copies stay.
    pub fn relocate(&mut self, superblock_block: u32) {
        self.superblock_block = superblock_block;
        self.log = None;
        self.fault = None;
        self.forget_transactions();
    }

    pub fn superblock(&self) -> Option<&JournalSuperblock> {
        self.log.as_ref().map(|log| &log.superblock)
    }

    pub fn fault(&self) -> Option<&Error> {
        self.fault.as_ref()
    }

    /// Compares sectors of a home block, from sector `within` on, with its copy. Returns the sectors that differ, the transaction
    /// of the copy, and whether the locations to which the block refers are known.
    pub fn compare(&self, home: u64, within: usize, bytes: &[u8]) -> Option<(SectorSet, u32, bool)> {
        let (changed, copy) = self.copies.compare(home, within, bytes, true)?;
        Some((changed, copy.transaction, copy.locations_known))
    }

    pub fn set_locations_known(&mut self, home: u64) {
        self.copies.set_locations_known(home);
    }

    /// Drops the copy of a home block that is free.
    pub fn forget(&mut self, home: u64) {
        self.copies.remove(home);
    }

    /// Handles a write to sectors of a block of the journal, from its sector `within` on; returns their note.
    pub fn write(&mut self, block: u32, within: usize, bytes: &[u8], layout: &mut MetadataLayout) -> BlockNote {
        if bytes.len() == self.block_bytes {
            self.parts.take(block);
            return self.whole_block(block, bytes, layout);
        }
        let part = self.parts.add(block, within, bytes, self.block_bytes);
        let header = part.head().and_then(JournalBlockHeader::parse);
        if part.is_whole()
            && let Some(part) = self.parts.take(block)
        {
            let note = self.whole_block(block, &part.bytes, layout);
            return cut(note, within, bytes);
        }
        self.partial_block(block, within, bytes, header)
    }

    /// Classifies a whole block and updates the state of the journal from it.
    fn whole_block(&mut self, block: u32, bytes: &[u8], layout: &mut MetadataLayout) -> BlockNote {
        if block == self.superblock_block {
            return self.superblock_written(bytes);
        }
        let Some(log) = &self.log else { return BlockNote::new(BlockRole::Data, sectors_of(bytes)) };
        if self.is_fast_commit(block) {
            return fast_commit(bytes);
        }
        let format = log.format;
        let Some(header) = JournalBlockHeader::parse(bytes) else { return self.logged(block, bytes, layout) };
        self.expected.remove(&block);
        let Some(record) = format.record(bytes) else { return record_note(header, bytes) };
        match record.kind {
            JournalRecordKind::Descriptor(tags) => {
                let mut at = block;
                for tag in tags {
                    at = self.after(at);
                    let home = Some(tag.block).filter(|home| *home < layout.superblock().blocks);
                    let escaped = tag.flags.contains(JournalTagFlags::ESCAPE);
                    self.expect(at, ExpectedBlock { home, transaction: record.sequence, escaped }, layout);
                }
            }
            JournalRecordKind::Revoke(revoked) => {
                for home in revoked {
                    let newer = |transaction| is_before(record.sequence, transaction);
                    if !self.copies.get(home).is_some_and(|copy| newer(copy.transaction)) {
                        self.copies.remove(home);
                        layout.freed(home);
                    }
                }
            }
            JournalRecordKind::Commit(_) => {
                self.commits = self.commits.wrapping_add(1);
                self.drop_early();
            }
        }
        record_note(header, bytes)
    }

    /// Classifies sectors of a block that is not complete yet. For a superblock, the first 1,024 bytes are enough.
    fn partial_block(
        &mut self,
        block: u32,
        within: usize,
        bytes: &[u8],
        header: Option<JournalBlockHeader>,
    ) -> BlockNote {
        if block == self.superblock_block {
            if within == 0 && bytes.len() >= SUPERBLOCK_BYTES {
                return self.superblock_written(bytes);
            }
            let changed = Some(not_zero(bytes));
            return BlockNote { changed, ..BlockNote::new(BlockRole::JournalSuperblock, sectors_of(bytes)) };
        }
        let plain = BlockNote::new(BlockRole::Logged, sectors_of(bytes));
        if self.log.is_none() {
            return BlockNote { role: BlockRole::Data, ..plain };
        }
        if self.is_fast_commit(block) {
            let changed = Some(not_zero(bytes));
            return BlockNote { role: BlockRole::FastCommit, changed, ..plain };
        }
        if let Some(header) = header {
            return record_note(header, bytes);
        }
        let Some(expected) = self.expected.get(&block) else { return plain };
        let size = (self.block_bytes / SECTOR) as u64;
        let compared = expected.home.and_then(|home| self.copies.compare(home, within, bytes, false));
        BlockNote {
            home: expected.home.map(|home| home * size + within as u64),
            transaction: Some(expected.transaction),
            changed: compared.map(|(changed, _)| changed),
            ..plain
        }
    }

    fn superblock_written(&mut self, bytes: &[u8]) -> BlockNote {
        let mut note = BlockNote {
            changed: Some(not_zero(bytes)),
            ..BlockNote::new(BlockRole::JournalSuperblock, sectors_of(bytes))
        };
        match JournalSuperblock::parse(bytes, 0) {
            Ok(superblock) if superblock.block_size as usize == self.block_bytes => {
                note.transaction = Some(superblock.sequence);
                let start = u64::from(superblock.start) * (self.block_bytes / SECTOR) as u64;
                note.home = (start > 0).then_some(start);
                self.set_superblock(superblock);
            }
            Ok(superblock) => {
                let problem = format!("blocks of {} bytes", superblock.block_size);
                self.set_fault(DiskStructure::JournalSuperblock.fault(0xC, problem));
            }
            Err(fault) => self.set_fault(fault),
        }
        note
    }

    pub fn set_superblock(&mut self, superblock: JournalSuperblock) {
        // A journal with another UUID starts its transaction numbers again.
        if self.superblock().is_some_and(|known| known.uuid != superblock.uuid) {
            self.copies.reset(self.block_bytes / SECTOR);
            self.forget_transactions();
        }
        if superblock.start == 0 {
            self.forget_transactions();
        }
        self.fault = None;
        self.log = Some(LogParameters { format: LogFormat::new(&superblock), superblock });
    }

    pub fn set_fault(&mut self, fault: Error) {
        self.log = None;
        self.fault = Some(fault);
        self.copies.reset(self.block_bytes / SECTOR);
        self.forget_transactions();
    }

    pub fn forget_transactions(&mut self) {
        self.expected.clear();
        self.parts.clear();
        for (block, _) in self.early.drain() {
            self.copies.remove(early(block));
        }
    }

    /// Handles a logged block to which a descriptor refers; the block may have been written already.
    fn expect(&mut self, block: u32, expected: ExpectedBlock, layout: &mut MetadataLayout) {
        if self.early.remove(&block).is_none() {
            self.expected.insert(block, expected);
            return;
        }
        match expected.home {
            Some(home) => {
                self.copies.claim(early(block), home, expected.transaction, expected.escaped);
                layout.logged_unread(home);
            }
            None => self.copies.remove(early(block)),
        }
    }

    fn logged(&mut self, block: u32, bytes: &[u8], layout: &mut MetadataLayout) -> BlockNote {
        let plain = BlockNote::new(BlockRole::Logged, sectors_of(bytes));
        let Some(ExpectedBlock { home, transaction, escaped }) = self.expected.remove(&block) else {
            if self.superblock().is_none_or(|superblock| superblock.start == 0) {
                // The log is empty: mkfs is clearing it, or the write does not belong to the journal.
                return BlockNote { role: BlockRole::Data, ..plain };
            }
            self.put_copy(early(block), 0, false, bytes, layout);
            self.early.insert(block, self.commits);
            return plain;
        };
        let note = BlockNote { transaction: Some(transaction), ..plain };
        let Some(home) = home else { return note };
        let changed = self.put_copy(home, transaction, escaped, bytes, layout);
        layout.logged(home, bytes, changed);
        let size = (self.block_bytes / SECTOR) as u64;
        BlockNote { home: Some(home * size), changed, ..note }
    }

    /// Stores a copy in place of the previous one.
    fn put_copy(
        &mut self,
        key: u64,
        transaction: u32,
        escaped: bool,
        bytes: &[u8],
        layout: &mut MetadataLayout,
    ) -> Option<SectorSet> {
        let updated = self.copies.update(key, transaction, escaped, true, bytes);
        if let Some(dropped) = updated.dropped {
            layout.freed(dropped);
        }
        updated.changed
    }

    /// Drops copies without a home whose descriptor can no longer arrive.
    fn drop_early(&mut self) {
        let commits = self.commits;
        self.early.retain(|block, since| {
            let is_old = commits.wrapping_sub(*since) > 1;
            if is_old {
                self.copies.remove(early(*block));
            }
            !is_old
        });
    }

    fn is_fast_commit(&self, block: u32) -> bool {
        self.superblock().is_some_and(|superblock| {
            superblock.features.contains(JournalFeatures::FAST_COMMIT) && block >= superblock.end
        })
    }

    /// The block of the log that follows a block.
    pub fn after(&self, block: u32) -> u32 {
        self.superblock().map_or(0, |known| if block + 1 >= known.end { known.first } else { block + 1 })
    }
}

fn sectors_of(bytes: &[u8]) -> u32 {
    (bytes.len() / SECTOR) as u32
}

/// The sectors that are not all zeros.
fn not_zero(bytes: &[u8]) -> SectorSet {
    let is_set = |sector: &[u8]| sector.iter().any(|byte| *byte != 0);
    let sectors = bytes.chunks_exact(SECTOR).enumerate();
    SectorSet(sectors.fold(0, |set, (at, sector)| set | u128::from(is_set(sector)) << at))
}

/// The note of sectors of a block that starts with a header.
fn record_note(header: JournalBlockHeader, bytes: &[u8]) -> BlockNote {
    let role = match header.kind {
        HeaderKind::Descriptor => BlockRole::Descriptor,
        HeaderKind::Revoke => BlockRole::Revoke,
        HeaderKind::Commit => BlockRole::Commit,
        HeaderKind::SuperblockV1 | HeaderKind::SuperblockV2 | HeaderKind::Unknown => BlockRole::Logged,
    };
    let transaction = (role != BlockRole::Logged).then_some(header.sequence);
    BlockNote { transaction, changed: Some(not_zero(bytes)), ..BlockNote::new(role, sectors_of(bytes)) }
}

/// The note of a block of fast commits; the block that holds the tail gives the transaction.
fn fast_commit(bytes: &[u8]) -> BlockNote {
    let tail = FastCommitRecords::new(bytes).find(|record| record.tag == FastCommitTag::Tail);
    BlockNote {
        transaction: tail.map(|tail| le32(tail.value, 0)),
        changed: Some(not_zero(bytes)),
        ..BlockNote::new(BlockRole::FastCommit, sectors_of(bytes))
    }
}

/// Restricts the note of a block to some of its sectors.
fn cut(note: BlockNote, within: usize, bytes: &[u8]) -> BlockNote {
    let sectors = sectors_of(bytes);
    let changed = note.changed.map(|set| SectorSet(set.0 >> within & SectorSet::first(sectors).0));
    BlockNote { sectors, changed, home: note.home.map(|home| home + within as u64), ..note }
}
