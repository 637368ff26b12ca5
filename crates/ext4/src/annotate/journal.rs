//! Follows the writes to a journal, and stores the logged copies of home blocks.
//!
//! A logged block can be recognised only by the descriptor before it. The kernel (`fs/jbd2/commit.c`) submits a descriptor, then its logged
//! blocks, and waits for all of them before it submits the commit block, unless the journal has `ASYNC_COMMIT`. Only one transaction is
//! written at a time. A scheduler or a device may still reorder these writes, most likely where the log wraps. A block that starts with the
//! magic number is never a logged block, because logged blocks are escaped. A logged block without a known descriptor is stored without its
//! home block number, until a descriptor of this transaction or of the next transaction refers to it.

use emmclab_base::{BlockNote, BlockRole, Error, SECTOR_BYTES, SectorSet};
use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::xxh3_64;

use super::metadata_layout::MetadataLayout;
use crate::disk::{DiskStructure, le32};
use crate::journal::{
    FastCommitRecords, FastCommitTag, JOURNAL_MAGIC, JOURNAL_SUPERBLOCK_BYTES, JournalBlockHeader, JournalBlockKind,
    JournalFeatures, JournalRecordKind, JournalSuperblock, JournalTagFlags, LogFormat, is_before,
};

const SECTOR: usize = SECTOR_BYTES as usize;

/// A logged block that a descriptor lists.
#[derive(Clone, Copy)]
struct ExpectedBlock {
    /// The home block; `None` if it is outside of the file system.
    home: Option<u64>,
    transaction: u32,
    escaped: bool,
}

/// The fields of the journal's superblock that define the log.
struct LogParameters {
    superblock: JournalSuperblock,
    format: LogFormat,
}

/// The state of the journal, which is updated by the writes to it.
#[derive(Default)]
pub(super) struct JournalFollower {
    log: Option<LogParameters>,
    /// The reason for which the superblock cannot be used.
    fault: Option<Error>,
    superblock_block: u32,
    block_bytes: usize,
    copies: LoggedCopies,
    parts: PartialBlocks,
    /// Logged blocks that descriptors have listed, by their block number in the journal.
    expected: FxHashMap<u32, ExpectedBlock>,
    /// Logged copies whose home block is not known yet, by their block number in the journal. The value is the number of commits before the
    /// copy.
    early: FxHashMap<u32, u32>,
    commits: u32,
}

impl JournalFollower {
    /// Resets the state for a journal with blocks of this size.
    pub fn reset(&mut self, block_bytes: usize, superblock_block: u32) {
        *self = Self { superblock_block, block_bytes, ..Self::default() };
        self.copies.reset(block_bytes / SECTOR);
    }

    /// Forgets the state of the log and its superblock, but keeps the stored copies of logged blocks.
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

    /// Compares sectors of a home block, from sector `within` on, with the last logged copy of the block. Returns the sectors that differ,
    /// the transaction of the copy, and whether the metadata locations in the block are already known.
    pub fn compare(&self, home: u64, within: usize, bytes: &[u8]) -> Option<(SectorSet, u32, bool)> {
        let (changed, copy) = self.copies.compare(home, within, bytes, true)?;
        Some((changed, copy.transaction, copy.locations_known))
    }

    pub fn set_locations_known(&mut self, home: u64) {
        self.copies.set_locations_known(home);
    }

    /// Drops the copy of a freed home block.
    pub fn forget(&mut self, home: u64) {
        self.copies.remove(home);
    }

    /// Handles a write that begins at sector `within` of a journal block. Returns the role of the written sectors.
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

    /// Classifies a complete block, and updates the state of the journal by it.
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

    /// Classifies the sectors of a block of which only a part has been written. The superblock of the journal is recognised by its first
    /// 1,024 bytes.
    fn partial_block(&mut self, block: u32, within: usize, bytes: &[u8], header: Option<JournalBlockHeader>) -> BlockNote {
        if block == self.superblock_block {
            if within == 0 && bytes.len() >= JOURNAL_SUPERBLOCK_BYTES {
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
        let mut note =
            BlockNote { changed: Some(not_zero(bytes)), ..BlockNote::new(BlockRole::JournalSuperblock, sectors_of(bytes)) };
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
        // A journal with another UUID starts to number its transactions again, so the known transactions are dropped.
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

    /// Handles the entry of a descriptor for a logged block. The logged block may already have been written.
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
                // According to its superblock, the log is empty, so this is no log block. Either mkfs clears the journal, or the write is
                // not part of the journal.
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

    /// Stores a copy of a block, which replaces the previous copy.
    fn put_copy(
        &mut self, key: u64, transaction: u32, escaped: bool, bytes: &[u8], layout: &mut MetadataLayout,
    ) -> Option<SectorSet> {
        let updated = self.copies.update(key, transaction, escaped, true, bytes);
        if let Some(dropped) = updated.dropped {
            layout.freed(dropped);
        }
        updated.changed
    }

    /// Drops copies whose home block is unknown, if more than one commit has followed. A descriptor that names the home block cannot arrive
    /// any more.
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
        self.superblock()
            .is_some_and(|superblock| superblock.features.contains(JournalFeatures::FAST_COMMIT) && block >= superblock.end)
    }

    /// The block of the log that follows a block; the log wraps.
    pub fn after(&self, block: u32) -> u32 {
        self.superblock().map_or(0, |known| if block + 1 >= known.end { known.first } else { block + 1 })
    }
}

fn sectors_of(bytes: &[u8]) -> u32 {
    (bytes.len() / SECTOR) as u32
}

fn not_zero(bytes: &[u8]) -> SectorSet {
    let is_set = |sector: &[u8]| sector.iter().any(|byte| *byte != 0);
    let sectors = bytes.chunks_exact(SECTOR).enumerate();
    SectorSet(sectors.fold(0, |set, (at, sector)| set | u128::from(is_set(sector)) << at))
}

/// Returns the classification of sectors of a block that starts with a journal header.
fn record_note(header: JournalBlockHeader, bytes: &[u8]) -> BlockNote {
    let role = match header.kind {
        JournalBlockKind::Descriptor => BlockRole::Descriptor,
        JournalBlockKind::Revoke => BlockRole::Revoke,
        JournalBlockKind::Commit => BlockRole::Commit,
        JournalBlockKind::SuperblockV1 | JournalBlockKind::SuperblockV2 | JournalBlockKind::Unknown => BlockRole::Logged,
    };
    let transaction = (role != BlockRole::Logged).then_some(header.sequence);
    BlockNote { transaction, changed: Some(not_zero(bytes)), ..BlockNote::new(role, sectors_of(bytes)) }
}

/// Returns the classification of a block of fast commits. The transaction is known if the block contains the tail record.
fn fast_commit(bytes: &[u8]) -> BlockNote {
    let tail = FastCommitRecords::new(bytes).find(|record| record.tag == FastCommitTag::Tail);
    BlockNote {
        transaction: tail.map(|tail| le32(tail.value, 0)),
        changed: Some(not_zero(bytes)),
        ..BlockNote::new(BlockRole::FastCommit, sectors_of(bytes))
    }
}

/// Restricts the classification of a block to some of its sectors.
fn cut(note: BlockNote, within: usize, bytes: &[u8]) -> BlockNote {
    let sectors = sectors_of(bytes);
    let changed = note.changed.map(|set| SectorSet(set.0 >> within & SectorSet::first(sectors).0));
    BlockNote { sectors, changed, home: note.home.map(|home| home + within as u64), ..note }
}

/// Maximum number of digests in memory: 64 MiB, enough for the copies of 1,048,576 blocks of 4 KB.
const MOST_DIGESTS: usize = 1 << 23;

/// A copy of a logged block, without its digests.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoggedCopy {
    /// The number of the home block. While it is not known, a key that the function [`early`] derives from the journal block.
    key: u64,
    /// The last transaction that logged the block; a placeholder while the home block is not known.
    pub transaction: u32,
    /// Whether the copy has zeros in place of the journal's magic number.
    escaped: bool,
    /// Whether the locations to which the block refers are known.
    pub locations_known: bool,
}

/// Copies of blocks in the journal, by home block. A copy of a block of 4 KB needs 100 to 164 bytes. If there are more digests than
/// [`MOST_DIGESTS`], the oldest copy is dropped.
#[derive(Default)]
pub(super) struct LoggedCopies {
    index: FxHashMap<u64, u32>,
    slots: Vec<LoggedCopy>,
    digests: Vec<u64>,
    free: Vec<u32>,
    /// Number of sectors in a block.
    sectors: usize,
    /// The copy that is dropped next if there are too many digests.
    oldest: usize,
}

/// Returns the key of a copy whose home block is not known: the number of its journal block, with the highest bit set.
pub(super) fn early(block: u32) -> u64 {
    1 << 63 | u64::from(block)
}

/// The effect of a logged block on the stored copies.
pub(super) struct CopyUpdate {
    /// The sectors that differ from the previous copy; `None` if there was no copy.
    pub changed: Option<SectorSet>,
    /// The home block of a copy that was dropped to free a slot.
    pub dropped: Option<u64>,
}

impl LoggedCopies {
    /// Removes all copies, and sets the number of sectors of a block.
    pub fn reset(&mut self, sectors: usize) {
        *self = Self { sectors, ..Self::default() };
    }

    pub fn get(&self, key: u64) -> Option<&LoggedCopy> {
        self.index.get(&key).map(|at| &self.slots[*at as usize])
    }

    /// Compares sectors of a block, from sector `within` on, with the stored copy of the block. Returns the sectors that differ, and the
    /// copy. The lowest bit of the result represents sector `within`. `at_home` is true if the bytes were written to the home block, and
    /// false if they were written to the journal.
    pub fn compare(&self, key: u64, within: usize, bytes: &[u8], at_home: bool) -> Option<(SectorSet, &LoggedCopy)> {
        let at = *self.index.get(&key)? as usize;
        let copy = &self.slots[at];
        let known = self.digests.get(at * self.sectors + within..(at + 1) * self.sectors)?;
        let mut changed = 0;
        for (place, (sector, digest)) in bytes.chunks_exact(SECTOR).zip(known).enumerate() {
            let differs = if at_home && within + place == 0 {
                escaped_digest(sector) != (*digest, copy.escaped)
            } else {
                xxh3_64(sector) != *digest
            };
            changed |= u128::from(differs) << place;
        }
        Some((SectorSet(changed), copy))
    }

    /// Stores the contents of a complete logged block as the copy of its home block. An earlier copy is replaced.
    pub fn update(&mut self, key: u64, transaction: u32, escaped: bool, learned: bool, bytes: &[u8]) -> CopyUpdate {
        let (at, dropped) = match self.index.get(&key) {
            Some(at) => (*at as usize, None),
            None => match self.insert(key) {
                Some((at, dropped)) => {
                    self.write(at, bytes);
                    self.slots[at] = LoggedCopy { key, transaction, escaped, locations_known: learned };
                    return CopyUpdate { changed: None, dropped };
                }
                None => return CopyUpdate { changed: None, dropped: None },
            },
        };
        let changed = self.write(at, bytes);
        self.slots[at] = LoggedCopy { key, transaction, escaped, locations_known: learned };
        CopyUpdate { changed: Some(changed), dropped }
    }

    /// Assigns a home block to a copy as soon as its number is known.
    pub fn claim(&mut self, from: u64, home: u64, transaction: u32, escaped: bool) {
        self.remove(home);
        if let Some(at) = self.index.remove(&from) {
            self.index.insert(home, at);
            self.slots[at as usize] = LoggedCopy { key: home, transaction, escaped, locations_known: false };
        }
    }

    /// Marks the logged copy of a block as evaluated: the locations to which its contents refer are known.
    pub fn set_locations_known(&mut self, home: u64) {
        if let Some(at) = self.index.get(&home) {
            self.slots[*at as usize].locations_known = true;
        }
    }

    pub fn remove(&mut self, key: u64) {
        if let Some(at) = self.index.remove(&key) {
            self.free.push(at);
        }
    }

    /// Stores the digests of a copy. Returns the sectors whose digests changed.
    fn write(&mut self, at: usize, bytes: &[u8]) -> SectorSet {
        let mut changed = 0;
        let known = &mut self.digests[at * self.sectors..(at + 1) * self.sectors];
        for (place, (sector, known)) in bytes.chunks_exact(SECTOR).zip(known).enumerate() {
            let digest = xxh3_64(sector);
            changed |= u128::from(digest != *known) << place;
            *known = digest;
        }
        SectorSet(changed)
    }

    /// Allocates a slot for a copy. Returns the slot, and the home block of the copy that was dropped for it, if any.
    fn insert(&mut self, key: u64) -> Option<(usize, Option<u64>)> {
        if self.sectors == 0 {
            return None;
        }
        let mut dropped = None;
        let at = if let Some(at) = self.free.pop() {
            at as usize
        } else if (self.slots.len() + 1) * self.sectors <= MOST_DIGESTS {
            self.slots.push(LoggedCopy { key, transaction: 0, escaped: false, locations_known: false });
            self.digests.resize(self.slots.len() * self.sectors, 0);
            self.slots.len() - 1
        } else {
            let at = self.oldest;
            self.oldest = (at + 1) % self.slots.len();
            let before = self.slots[at].key;
            self.index.remove(&before);
            dropped = Some(before);
            at
        };
        self.index.insert(key, at as u32);
        Some((at, dropped))
    }
}

/// Returns the digest of the first sector of a home block as the journal would store it: if the sector begins with the journal's magic
/// number, the number is replaced by zeros (escaped). Also returns whether it is escaped.
fn escaped_digest(sector: &[u8]) -> (u64, bool) {
    match sector.first_chunk::<SECTOR>() {
        Some(whole) if whole[..4] == JOURNAL_MAGIC.to_be_bytes() => {
            let mut escaped = *whole;
            escaped[..4].fill(0);
            (xxh3_64(&escaped), true)
        }
        _ => (xxh3_64(sector), false),
    }
}

/// Maximum number of incomplete blocks in memory; if there are more, the oldest is dropped.
const MOST_PARTIAL: usize = 16;

/// A block of which only some sectors were written.
pub(super) struct PartialBlock {
    block: u32,
    have: u128,
    pub bytes: Vec<u8>,
}

impl PartialBlock {
    /// The bytes of the block, if its first sector was written.
    pub fn head(&self) -> Option<&[u8]> {
        (self.have & 1 == 1).then_some(&self.bytes)
    }

    /// Whether all sectors of the block were written.
    pub fn is_whole(&self) -> bool {
        self.have == SectorSet::first((self.bytes.len() as u64 / SECTOR_BYTES) as u32).0
    }
}

#[derive(Default)]
pub(super) struct PartialBlocks {
    parts: Vec<PartialBlock>,
}

impl PartialBlocks {
    pub fn clear(&mut self) {
        self.parts.clear();
    }

    /// Removes and returns the collected sectors of a block; `None` if no sectors of the block are stored.
    pub fn take(&mut self, block: u32) -> Option<PartialBlock> {
        let at = self.parts.iter().position(|part| part.block == block)?;
        Some(self.parts.remove(at))
    }

    /// Adds sectors of a block of `size` bytes, from its sector `within` on.
    pub fn add(&mut self, block: u32, within: usize, bytes: &[u8], size: usize) -> &PartialBlock {
        let part = self.take(block).filter(|part| part.bytes.len() == size);
        let mut part = part.unwrap_or_else(|| PartialBlock { block, have: 0, bytes: vec![0; size] });
        let from = within * SECTOR_BYTES as usize;
        if let Some(room) = part.bytes.get_mut(from..from + bytes.len()) {
            room.copy_from_slice(bytes);
            part.have |= SectorSet::first((bytes.len() as u64 / SECTOR_BYTES) as u32).0 << within;
        }
        if self.parts.len() == MOST_PARTIAL {
            self.parts.remove(0);
        }
        self.parts.push(part);
        &self.parts[self.parts.len() - 1]
    }
}
