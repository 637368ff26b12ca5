//! Replays a journal in three passes, by the rules of Linux `fs/jbd2/recovery.c` (6.12): SCAN determines the end of the log, REVOKE
//! collects the blocks that must not be replayed, REPLAY processes the others.
//!
//! Less obvious rules of the replay:
//!
//! - A transaction is valid if its commit block is at the expected place with its sequence number. Sequence numbers are compared by the
//!   sign of their difference, so that they may wrap.
//! - A descriptor or revoke block may have a bad checksum. If the time of the next commit is earlier than that of the previous one, the
//!   block is a leftover of an older log, and the log ends there. Otherwise the journal is damaged, and nothing is replayed.
//! - A commit block with a bad checksum is a leftover by the same rule, or it ends the log before its transaction. With `ASYNC_COMMIT` the
//!   scan continues after it. With versions 2 and 3, a later bad commit block then moves the end of the log there.
//! - A logged block with a bad checksum is left out; the rest is replayed, and Linux refuses to mount.
//! - A revoke of transaction N applies to copies of N and of earlier transactions.
//! - The log wraps at its end, before the blocks of fast commits.

use std::io;

use emmclab_base::{Error, Result};
use rustc_hash::FxHashMap;

use super::JournalLocation;
use super::format::{
    COMMIT_CHECKSUM_AT, JOURNAL_MAGIC, JOURNAL_SUPERBLOCK_BYTES, JournalChecksums, JournalFeatures, JournalRecordKind,
    JournalSuperblock, JournalTagFlags, LogFormat, TAIL, empty_log,
};
use crate::disk::{CRC32_BE, CrcShift, DiskReader, DiskStructure, be32, crc32c};
use crate::fast_commits::{self, Edits, FastCommitScan, FastCommitScanner, lay_over};
use crate::files::Ext4Filesystem;
use crate::superblock::{self, Incompat};

/// Replays journals in memory. An instance that is used for several disks reuses its memory and the checksums that are already known.
pub struct JournalRecovery {
    verified: ChecksumCache,
    overlay: ReplayOverlay,
    /// Blocks that must not be replayed, each with the last transaction that revokes it.
    revoked: FxHashMap<u64, u32>,
    /// Descriptors and revoke blocks of the log, in order.
    blocks: Vec<LogBlock>,
    buffer: Vec<u8>,
}

/// A descriptor or revoke block.
#[derive(Clone, Copy)]
struct LogBlock {
    block: u64,
    sequence: u32,
    is_revoke: bool,
}

/// A journal and its location.
struct RecoveryLog<'a> {
    disk: &'a dyn DiskReader,
    location: &'a JournalLocation,
    superblock: JournalSuperblock,
    format: LogFormat,
    /// Number of blocks on the disk of the file system.
    home_blocks: u64,
}

/// The results of the SCAN pass.
struct LogScan {
    end: u32,
    failed_commit: Option<(u32, u64)>,
}

impl Default for JournalRecovery {
    fn default() -> Self {
        Self::new()
    }
}

impl JournalRecovery {
    /// Creates a recovery without known checksums.
    pub fn new() -> Self {
        Self {
            verified: ChecksumCache::new(),
            overlay: ReplayOverlay::default(),
            revoked: FxHashMap::default(),
            blocks: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// Returns the disk as Linux leaves it after it has replayed the internal journal, if the superblock requests a replay. A file system
    /// without a journal is returned unchanged.
    /// Errors: if Linux refuses to mount and nothing can be replayed: damaged superblocks, a damaged journal inode, or a damaged log; if no
    /// fast commit is complete; if features are unsupported; or if the journal is on another device.
    pub fn replay<'a>(&'a mut self, disk: &'a dyn DiskReader) -> Result<ReplayedDisk<'a>> {
        let filesystem = Ext4Filesystem::open(disk)?;
        if let Some(location) = JournalLocation::inside(&filesystem)? {
            return self.replay_log(disk, disk, &location, &filesystem);
        }
        if filesystem.superblock().journal_uuid != [0; 16] {
            let problem = "the journal is on another device";
            let hint = "specify the journal device of the file system";
            return Err(DiskStructure::Superblock.unsupported(crate::superblock::OFFSET + 0xD0, problem).hint(hint));
        }
        self.clear(filesystem.superblock().block_size as usize);
        Ok(ReplayedDisk { disk, journal: disk, overlay: &self.overlay, replay: JournalReplaySummary::default() })
    }

    /// Like [`Self::replay`], for a journal on a separate device.
    /// Errors: as for [`Self::replay`]; also if the device is not a journal device, or is the journal of another file system.
    pub fn replay_external<'a>(&'a mut self, disk: &'a dyn DiskReader, journal: &'a dyn DiskReader) -> Result<ReplayedDisk<'a>> {
        let filesystem = Ext4Filesystem::open(disk)?;
        let location = JournalLocation::external(journal, filesystem.superblock())?;
        self.replay_log(disk, journal, &location, &filesystem)
    }

    fn clear(&mut self, block_size: usize) {
        self.overlay.copies.clear();
        self.overlay.edits.clear();
        self.overlay.block_size = block_size as u64;
        self.revoked.clear();
        self.blocks.clear();
        self.buffer.resize(block_size, 0);
        self.verified.set_block_size(block_size);
    }

    fn replay_log<'a, B: DiskReader>(
        &'a mut self, disk: &'a dyn DiskReader, journal: &'a dyn DiskReader, location: &JournalLocation,
        filesystem: &Ext4Filesystem<B>,
    ) -> Result<ReplayedDisk<'a>> {
        let superblock = location.superblock(journal)?;
        self.clear(superblock.block_size as usize);
        let mut replay =
            JournalReplaySummary { first: superblock.sequence, end: superblock.sequence, ..JournalReplaySummary::default() };
        if superblock.start != 0 && filesystem.superblock().incompat.contains(Incompat::RECOVER) {
            let format = LogFormat::new(&superblock);
            let home_blocks = filesystem.superblock().disk_blocks;
            let log = RecoveryLog { disk: journal, location, superblock, format, home_blocks };
            let scanned = self.scan(&log)?;
            replay.end = scanned.end;
            let fast = self.scan_fast_commits(&log, scanned.end, filesystem.superblock().inode_size)?;
            self.collect_revokes(&log, scanned.end, &mut replay)?;
            replay.refused = scanned.failed_commit.map(|(sequence, block)| {
                let problem =
                    format!("the commit block of transaction {sequence} has a bad checksum, and the log ends before it");
                DiskStructure::JournalBlock(block).fault(location.offset(block).unwrap_or_default(), problem)
            });
            self.take_blocks(&log, scanned.end, &mut replay)?;
            if replay.refused.is_none() && fast.commits > 0 {
                replay.fast_commits = fast.commits;
                let logged = ReplayedDisk { disk, journal, overlay: &self.overlay, replay: JournalReplaySummary::default() };
                let (edits, refused) = fast_commits::replay(&logged, fast)?;
                self.overlay.edits = edits;
                replay.refused = refused;
            }
        }
        Ok(ReplayedDisk { disk, journal, overlay: &self.overlay, replay })
    }

    /// The SCAN pass: determines the end of the log, and collects its descriptors and revoke blocks.
    fn scan(&mut self, log: &RecoveryLog<'_>) -> Result<LogScan> {
        let first = log.superblock.sequence;
        let has_v1 = log.superblock.checksums == JournalChecksums::V1;
        let is_async = log.superblock.features.contains(JournalFeatures::ASYNC_COMMIT);
        let (mut next, mut block) = (first, u64::from(log.superblock.start));
        // As in Linux, 0 stands for no end: a bad commit of transaction 0 does not end the log.
        let mut end = 0;
        let mut failed_commit = None;
        // The first block of the current transaction whose checksum is wrong.
        let mut suspect: Option<u64> = None;
        let mut last_commit = 0;
        let mut crc = CRC32_BE.digest();
        // If the scan takes more steps than the log has blocks, it reads blocks again and would never end.
        for _ in 0..=log.superblock.blocks {
            log.read(block, &mut self.buffer)?;
            let here = block;
            block = log.after(block, 1);
            let Some(record) = log.format.record(&self.buffer).filter(|record| record.sequence == next) else {
                return Ok(LogScan { end: if end == 0 { next } else { end }, failed_commit });
            };
            let holds = |verified: &mut ChecksumCache, block: &[u8], at: usize| {
                let seed = log.format.checksums.per_block().then_some(log.format.seed);
                let holds = |seed| Ok(verified.seal_holds(log.disk, log.offset(here)?, block, at, seed));
                seed.map_or(Ok(true), holds)
            };
            match record.kind {
                JournalRecordKind::Descriptor(tags) => {
                    if !holds(&mut self.verified, &self.buffer, self.buffer.len() - TAIL)? {
                        suspect = suspect.or(Some(here));
                    }
                    self.blocks.push(LogBlock { block: here, sequence: next, is_revoke: false });
                    let count = tags.count() as u64;
                    if has_v1 && end == 0 {
                        crc.update(&self.buffer);
                        for _ in 0..count {
                            log.read(block, &mut self.buffer)?;
                            crc.update(&self.buffer);
                            block = log.after(block, 1);
                        }
                    } else {
                        block = log.after(block, count);
                    }
                }
                JournalRecordKind::Revoke(_) => {
                    if !holds(&mut self.verified, &self.buffer, self.buffer.len() - TAIL)? {
                        suspect = suspect.or(Some(here));
                    }
                    self.blocks.push(LogBlock { block: here, sequence: next, is_revoke: true });
                }
                JournalRecordKind::Commit(commit) => {
                    let is_leftover = commit.seconds < last_commit;
                    if let Some(bad) = suspect {
                        if is_leftover {
                            return Ok(LogScan { end: if end == 0 { next } else { end }, failed_commit });
                        }
                        let problem = format!("bad checksum in transaction {next}, which was committed");
                        let offset = log.location.offset(bad).unwrap_or_default();
                        return Err(DiskStructure::JournalBlock(bad).fault(offset, problem));
                    }
                    let holds = if has_v1 {
                        if end != 0 {
                            // The journal is damaged, because another commit follows a commit with a wrong checksum. The transaction number
                            // is not incremented.
                            failed_commit = failed_commit.or(Some((end, here)));
                            continue;
                        }
                        let matches = commit.matches_v1(crc.clone().finalize());
                        if matches {
                            crc = CRC32_BE.digest();
                        }
                        matches
                    } else {
                        holds(&mut self.verified, &self.buffer, COMMIT_CHECKSUM_AT)?
                    };
                    if !holds {
                        if is_leftover {
                            return Ok(LogScan { end: if end == 0 { next } else { end }, failed_commit });
                        }
                        end = next;
                        if !is_async {
                            failed_commit = Some((next, here)).filter(|_| next != 0);
                            continue;
                        }
                    }
                    last_commit = commit.seconds;
                    next = next.wrapping_add(1);
                }
            }
        }
        let offset = log.location.offset(u64::from(log.superblock.start)).unwrap_or_default();
        let problem = format!("the log of transaction {next} has no end");
        Err(DiskStructure::JournalBlock(u64::from(log.superblock.start)).fault(offset, problem))
    }

    /// Determines the fast commits on top of the log.
    fn scan_fast_commits(&mut self, log: &RecoveryLog<'_>, end: u32, inode_size: u16) -> Result<FastCommitScan> {
        if !log.superblock.features.contains(JournalFeatures::FAST_COMMIT) {
            return Ok(FastCommitScan::default());
        }
        // One block between the log and the fast-commit area is unused.
        let first = u64::from(log.superblock.end) + 1;
        let mut scan = FastCommitScanner::new(end, inode_size);
        for block in first..u64::from(log.superblock.blocks) {
            log.read(block, &mut self.buffer)?;
            if scan.block(&self.buffer, block, log.offset(block)?, block == first)? {
                return Ok(scan.finish());
            }
        }
        // Linux 6.18 rejects this journal, because its loop over the fast-commit blocks runs one block too far.
        let problem = "fast commits fill all of their blocks, and Linux, which reads one more, does not mount this";
        Err(DiskStructure::FastCommit(u64::from(log.superblock.blocks)).fault(0, problem))
    }

    /// The REVOKE pass: collects the blocks that revoke records list.
    fn collect_revokes(&mut self, log: &RecoveryLog<'_>, end: u32, replay: &mut JournalReplaySummary) -> Result<()> {
        for at in self.blocks.iter().filter(|at| at.is_revoke && is_before(at.sequence, end)) {
            log.read(at.block, &mut self.buffer)?;
            let revoked = log.format.revoked(&self.buffer);
            if revoked.overlong {
                let offset = log.location.offset(at.block).unwrap_or_default();
                let problem = "the revoke block states that it uses more bytes than a block has";
                return Err(DiskStructure::JournalBlock(at.block).fault(offset + 12, problem));
            }
            for block in revoked {
                replay.revokes += 1;
                let last = self.revoked.entry(block).or_insert(at.sequence);
                if is_before(*last, at.sequence) {
                    *last = at.sequence;
                }
            }
        }
        Ok(())
    }

    /// The REPLAY pass: determines the newest copy of each home block.
    fn take_blocks(&mut self, log: &RecoveryLog<'_>, end: u32, replay: &mut JournalReplaySummary) -> Result<()> {
        for at in self.blocks.iter().filter(|at| !at.is_revoke && is_before(at.sequence, end)) {
            log.read(at.block, &mut self.buffer)?;
            // The checksum of a logged block begins with the seed and the number of its transaction.
            let state = crc32c(log.format.seed, &at.sequence.to_be_bytes());
            let mut next = at.block;
            next = log.after(next, 1);
            for tag in log.format.tags(&self.buffer) {
                let block = next;
                next = log.after(next, 1);
                let structure = DiskStructure::JournalBlock(block);
                let offset = log.offset(block)?;
                if self.revoked.get(&tag.block).is_some_and(|last| !is_before(*last, at.sequence)) {
                    replay.revoked += 1;
                    continue;
                }
                if log.format.checksums.per_block() {
                    let computed = self.verified.logged(log.disk, offset, structure, state)?;
                    if !tag.matches(&log.format, computed) {
                        replay.bad_blocks += 1;
                        replay.refused.get_or_insert_with(|| {
                            let problem = format!("the copy of block {} has a bad checksum, and is not replayed", tag.block);
                            structure.fault(offset, problem)
                        });
                        continue;
                    }
                }
                if tag.block >= log.home_blocks {
                    let problem = format!("block {} is outside of the disk of {} blocks", tag.block, log.home_blocks);
                    replay.refused = Some(structure.fault(offset, problem));
                    return Ok(());
                }
                let escaped = tag.flags.contains(JournalTagFlags::ESCAPE);
                self.overlay.copies.insert(tag.block, JournalCopy { offset, escaped });
                replay.blocks += 1;
            }
        }
        Ok(())
    }
}

/// Whether a transaction precedes another one. Transaction numbers may wrap.
pub(crate) fn is_before(sequence: u32, other: u32) -> bool {
    sequence.wrapping_sub(other).cast_signed() < 0
}

impl RecoveryLog<'_> {
    fn offset(&self, block: u64) -> Result<u64> {
        let inside = Some(block).filter(|block| *block < u64::from(self.superblock.blocks));
        inside.and_then(|block| self.location.offset(block)).ok_or_else(|| self.outside(block))
    }

    fn outside(&self, block: u64) -> Error {
        let problem =
            format!("a transaction refers to a block after the end of the journal of {} blocks", self.superblock.blocks);
        DiskStructure::JournalBlock(block).fault(0, problem)
    }

    fn read(&self, block: u64, buffer: &mut [u8]) -> Result<()> {
        DiskStructure::JournalBlock(block).read(self.disk, self.offset(block)?, buffer)
    }

    /// The block that is `count` blocks after another block. The log wraps at most once.
    fn after(&self, block: u64, count: u64) -> u64 {
        let next = block + count;
        let (first, end) = (u64::from(self.superblock.first), u64::from(self.superblock.end));
        if next >= end { next - (end - first) } else { next }
    }
}

/// The counts of a replay. Transaction numbers have 32 bits and wrap around to 0.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct JournalReplaySummary {
    /// The first transaction of the log, according to the journal superblock.
    pub first: u32,
    /// The first transaction that was not replayed; equals `first` if none was.
    pub end: u32,
    /// Number of logged blocks that were replayed. If a block was logged several times, each copy counts.
    pub blocks: u64,
    /// Number of revoke entries in the replayed transactions.
    pub revokes: u64,
    /// Logged blocks left out because of a revoke entry.
    pub revoked: u64,
    /// Logged blocks left out because of a bad checksum.
    pub bad_blocks: u64,
    /// Fast commits on top of the log that were replayed.
    pub fast_commits: u64,
    /// The reason why Linux refuses to mount, although blocks were replayed (e2fsck replays them too): a bad checksum of a commit block or
    /// a logged block, or a home block outside of the disk.
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

/// A disk after the replay of its journal. Nothing is copied: home blocks are read from their copies in the journal.
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
    /// Errors: if the journal cannot be read, or `write` fails.
    pub fn write_to(&self, mut write: impl FnMut(u64, &[u8]) -> io::Result<()>) -> Result<()> {
        let size = self.overlay.block_size;
        let mut bytes = vec![0; usize::try_from(size).unwrap_or_default()];
        for block in self.home_blocks() {
            let structure = DiskStructure::HomeBlock(block);
            structure.read(self, block * size, &mut bytes)?;
            write(block * size, &bytes).map_err(|error| structure.fault(block * size, format!("not written: {error}")))?;
        }
        Ok(())
    }

    /// Returns the superblocks to write to the disk after a replay, each with its location in bytes. The superblock of the file system no
    /// longer requests a replay. The superblock of an internal journal states that the log is empty.
    /// Errors: if the disk cannot be read.
    pub fn superblocks_after(&self) -> Result<Vec<(u64, Vec<u8>)>> {
        let mut bytes = [0; superblock::BYTES];
        DiskStructure::Superblock.read(self, superblock::OFFSET, &mut bytes)?;
        superblock::clear_recover(&mut bytes);
        let mut out = vec![(superblock::OFFSET, bytes.to_vec())];
        if let Some(location) = JournalLocation::inside(&Ext4Filesystem::open(self.disk)?)?
            && let Some(at) = location.offset(location.superblock_block())
            && location.superblock(self.disk)?.start != 0
        {
            let mut bytes = [0; JOURNAL_SUPERBLOCK_BYTES];
            DiskStructure::JournalSuperblock.read(self.disk, at, &mut bytes)?;
            empty_log(&mut bytes, self.replay.end.wrapping_add(1));
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
    /// Reads the disk, replacing home blocks by their copies in the log.
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
            let logged = copy(block);
            // Consecutive blocks that are not in the journal are read together.
            while logged.is_none() && blocks * size < within + rest.len() as u64 && copy(block + blocks).is_none() {
                blocks += 1;
            }
            let length = usize::try_from(blocks * size - within).unwrap_or(usize::MAX).min(rest.len());
            let (part, after) = rest.split_at_mut(length);
            match logged {
                None => self.disk.read_at(at, part)?,
                Some(copy) => {
                    self.journal.read_at(copy.offset + within, part)?;
                    if copy.escaped {
                        let magic = JOURNAL_MAGIC.to_be_bytes();
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

/// Checksums of blocks, computed from the initial CRC state 0 and valid for any journal and transaction. The key is a number that
/// identifies the contents of a block.
pub(super) struct ChecksumCache {
    logged: FxHashMap<u64, u32>,
    /// Checksums of descriptor, revoke and commit blocks, with zeros in place of the stored checksum.
    checksummed: FxHashMap<u64, u32>,
    shift: CrcShift,
    block: Vec<u8>,
}

impl ChecksumCache {
    pub fn new() -> Self {
        let (logged, sealed) = (FxHashMap::default(), FxHashMap::default());
        Self { logged, checksummed: sealed, shift: CrcShift::new(0), block: Vec::new() }
    }

    /// Sets the block size. If it changes, all known checksums are dropped.
    pub fn set_block_size(&mut self, bytes: usize) {
        if self.shift.bytes() != bytes {
            self.logged.clear();
            self.checksummed.clear();
            self.shift = CrcShift::new(bytes);
            self.block.resize(bytes, 0);
        }
    }

    /// Returns the checksum of a logged block at byte `offset` of the disk, continued from `state`.
    pub fn logged(&mut self, disk: &dyn DiskReader, offset: u64, structure: DiskStructure, state: u32) -> Result<u32> {
        let name = disk.content(offset, self.block.len());
        let plain = if let Some(known) = name.and_then(|name| self.logged.get(&name)) {
            *known
        } else {
            structure.read(disk, offset, &mut self.block)?;
            let computed = crc32c(0, &self.block);
            name.and_then(|name| self.logged.insert(name, computed));
            computed
        };
        Ok(self.shift.over_zeros(state) ^ plain)
    }

    /// Whether the checksum at byte `at` of a block is correct. The block was read from byte `offset` of the disk.
    pub fn seal_holds(&mut self, disk: &dyn DiskReader, offset: u64, block: &[u8], at: usize, seed: u32) -> bool {
        let name = disk.content(offset, block.len());
        let plain = if let Some(known) = name.and_then(|name| self.checksummed.get(&name)) {
            *known
        } else {
            let state = crc32c(0, block.get(..at).unwrap_or_default());
            let computed = crc32c(crc32c(state, &[0; 4]), block.get(at + 4..).unwrap_or_default());
            name.and_then(|name| self.checksummed.insert(name, computed));
            computed
        };
        self.shift.over_zeros(seed) ^ plain == be32(block, at)
    }
}
