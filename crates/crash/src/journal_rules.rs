//! Checks the ordering rules of a journal on the commands of a run: what must be durable before what.
//!
//! JBD2 promises these rules to the file system, and relies on the device for them (Linux `fs/jbd2/{commit,checkpoint,recovery}.c`): All
//! blocks of a transaction are durable before its commit block can be. Home blocks of a transaction are written only after its commit block
//! is durable. The tail moves past a transaction only after its home blocks are durable. With `data=ordered`, data that a transaction makes
//! readable is durable before its commit block can be ([`OrderedDataChecker`]).

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use emmclab_base::{Error, ErrorClass, Nanos, Op, Result, SECTOR_BYTES};
use emmclab_device::CommandFlags;
use emmclab_device::contract::{DurabilityPromises, Version, VolatileExtent};
use emmclab_ext4::{
    DiskReader, Ext4FileKind, Ext4Filesystem, InodeTable, JOURNAL_MAGIC, JournalFeatures, JournalLocation, JournalRecordKind,
    JournalSuperblock, JournalTagFlags, LogFormat,
};
use emmclab_layers::DisksBelow;
use rustc_hash::{FxHashMap, FxHashSet};
use xxhash_rust::xxh3::xxh3_64;

use crate::disk_contents::{CrashDiskView, DiskContents};
use crate::log::CommandPort;
use crate::log_index::{CrashLogIndex, LoggedCommand, RunEvent, SectorSource};
use crate::recovery::HostView;

/// The mark with which a log states that its ext4 file system is mounted with `data=ordered`.
const ORDERED: &str = "data=ordered";

/// A rule of the journal that a command violates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleViolation {
    /// The moment at which the command arrived, as an index in [`CrashLogIndex::moments`].
    pub moment: usize,
    /// Name of the violated rule of the journal.
    pub rule: &'static str,
    /// The transaction to which the rule applies.
    pub transaction: u32,
    /// Describes the commands and blocks that violate the rule.
    pub detail: String,
}

struct LoggedBlock {
    /// Number of the last transaction that logged the block.
    transaction: u32,
    digest: u64,
    /// The first transaction in the latest series of consecutive transactions that logged the block with the same contents.
    since: u32,
}

#[derive(Default)]
struct LoggedTransaction {
    /// The sectors of the transaction's descriptors, logged blocks and revoke blocks, each with the version that wrote it.
    blocks: Vec<(u64, Version)>,
    commit: Option<(u64, Version)>,
}

struct JournalRuleChecker<'a> {
    run: &'a CrashLogIndex,
    location: JournalLocation,
    format: LogFormat,
    superblock: JournalSuperblock,
    block_sectors: u64,
    promises: DurabilityPromises,
    /// Completion time of each complete command, by the version number of the command.
    complete: FxHashMap<Version, Nanos>,
    transactions: FxHashMap<u32, LoggedTransaction>,
    newest: FxHashMap<u64, LoggedBlock>,
    /// Logged blocks that descriptor blocks announce. By journal block: its home block, whether the copy is escaped, and the transaction.
    expected: FxHashMap<u64, (u64, bool, u32)>,
    /// The first transaction that recovery would replay.
    tail: u32,
    /// Whether the cache is written back in order, so that a write is durable only with all writes that completed before it.
    fifo: bool,
    /// Checker for the data of files, if the file system is mounted with `data=ordered`.
    ordered: Option<OrderedDataChecker>,
    breaks: Vec<RuleViolation>,
}

/// Whether a transaction is older than another; the ids wrap around.
fn precedes(first: u32, second: u32) -> bool {
    (first.wrapping_sub(second) as i32) < 0
}

/// Checks the commands of a run against the rules of the ext4 journal that exists at moment `from`.
///
/// Returns an empty list if there is no journal inside the file system. A mark `data=ordered` states that the file system is
/// mounted in this mode, unless its superblock specifies another one.
/// Errors: if the file system at that moment cannot be read.
pub fn journal_rules(run: &Arc<CrashLogIndex>, from: usize) -> Result<Vec<RuleViolation>> {
    let layered = !run.header().layers.is_empty();
    let port = if layered { CommandPort::Host } else { CommandPort::Device };
    let rules = run.header().rules(port);
    let mut contents = if layered { DiskContents::default() } else { (**run.base()).clone() };
    for moment in &run.moments()[..from] {
        let RunEvent::Arrives(at, place) = moment.event else { continue };
        let logged = &run.commands(at)[place as usize];
        match logged.command.op {
            Op::Write if at == port => {
                for sector in logged.command.sector..logged.end() {
                    contents.set(run.spool(), sector, logged.source_of(sector));
                }
            }
            Op::Discard | Op::SecureErase if at == port => {
                contents.clear(run.spool(), logged.command.sector, logged.end());
            }
            _ => {}
        }
    }
    let sectors = run.header().sectors;
    let view = CrashDiskView::new(run, &Arc::new(contents), &Arc::default(), sectors);
    let Ok(disk) = HostView::recover(view, (&[], &DisksBelow::new(sectors, None)), sectors, None)? else {
        return Ok(Vec::new());
    };
    let filesystem = Ext4Filesystem::open(&disk)?;
    let Some(location) = JournalLocation::inside(&filesystem)? else { return Ok(Vec::new()) };
    let superblock = location.superblock(&disk)?;
    if superblock.features.contains(JournalFeatures::FAST_COMMIT) {
        return Err(Error::new(ErrorClass::Unsupported, "the journal uses fast commits, which emmclab cannot check")
            .hint("create the file system without fast commits: --mkfs-option -O --mkfs-option ^fast_commit"));
    }
    let ordered = run.marks().iter().any(|mark| &**mark == ORDERED);
    let block_sectors = u64::from(filesystem.superblock().block_size) / SECTOR_BYTES;
    let mut checker = JournalRuleChecker {
        run,
        format: LogFormat::new(&superblock),
        block_sectors,
        ordered: if ordered { OrderedDataChecker::new(disk)? } else { None },
        tail: superblock.sequence,
        fifo: rules.fifo,
        superblock,
        location,
        promises: DurabilityPromises::new(rules),
        complete: FxHashMap::default(),
        transactions: FxHashMap::default(),
        newest: FxHashMap::default(),
        expected: FxHashMap::default(),
        breaks: Vec::new(),
    };
    // The events of the whole run are visited, because a journal transaction may have started before `from`.
    for (place, moment) in run.moments().iter().enumerate() {
        if let Some(ordered) = checker.ordered.as_mut().filter(|_| place == from) {
            ordered.begin();
        }
        match moment.event {
            RunEvent::Arrives(at, command) if at == port => {
                let logged = &run.commands(port)[command as usize];
                checker.promises.arrived(&logged.command);
                checker.changed_in_place(logged, Version::from(command) + 1, place < from);
                if logged.command.op == Op::Write {
                    checker.written(place, logged, Version::from(command) + 1)?;
                }
            }
            RunEvent::Completes(at, command) if at == port => {
                checker.promises.completed(Version::from(command) + 1, moment.at);
                checker.complete.insert(Version::from(command) + 1, moment.at);
            }
            _ => {}
        }
    }
    checker.breaks.retain(|violation| violation.moment >= from);
    Ok(checker.breaks)
}

impl JournalRuleChecker<'_> {
    fn written(&mut self, moment: usize, logged: &LoggedCommand, version: Version) -> Result<()> {
        let size = self.block_sectors;
        let mut bytes = vec![0; (size * SECTOR_BYTES) as usize];
        let first = logged.command.sector.div_ceil(size);
        for block in first..logged.end() / size {
            let sector = block * size;
            let sources: Vec<SectorSource> = (sector..sector + size).map(|sector| logged.source_of(sector)).collect();
            self.run.spool().read(&sources, &mut bytes).map_err(|error| Error::io(&std::env::temp_dir(), error))?;
            match self.location.block_at(sector * SECTOR_BYTES) {
                Some(0) => self.tail(moment, logged, &bytes),
                Some(place) => self.journaled(moment, logged, version, (place, sector), &bytes)?,
                None => self.home(moment, logged, block, &bytes),
            }
        }
        Ok(())
    }

    /// Passes a write or discard outside of the journal to the checker for `data=ordered`. `before` states whether it precedes the checked
    /// part of the run.
    fn changed_in_place(&mut self, logged: &LoggedCommand, version: Version, before: bool) {
        let Some(ordered) = &mut self.ordered else { return };
        let size = self.block_sectors;
        let (first, end) = (logged.command.sector, logged.end());
        match logged.command.op {
            Op::Write => {
                for block in first / size..end.div_ceil(size) {
                    if self.location.block_at(block * size * SECTOR_BYTES).is_none() {
                        ordered.written((first.max(block * size), end.min((block + 1) * size)), version);
                        if before {
                            ordered.written_before(block);
                        }
                    }
                }
            }
            Op::Discard | Op::SecureErase => ordered.discarded((first, end)),
            Op::Read | Op::Flush => {}
        }
    }

    /// Called when the commit block of a transaction arrives. File data that becomes readable with the transaction must be durable by then.
    fn check_data(&mut self, moment: usize, transaction: u32, logged: &LoggedCommand) -> Result<()> {
        let Some(mut ordered) = self.ordered.take() else { return Ok(()) };
        let fault = ordered.committed(transaction, |sector, version| self.settled(sector, version, logged))?;
        self.ordered = Some(ordered);
        let asynchronous = self.superblock.features.contains(JournalFeatures::ASYNC_COMMIT);
        if let Some(detail) = fault.filter(|_| !asynchronous) {
            self.broken(moment, "data", transaction, detail);
        }
        Ok(())
    }

    /// Whether a version of a sector is certainly durable before the data of the command `by` can be durable.
    fn settled(&self, sector: u64, version: Version, by: &LoggedCommand) -> bool {
        if self.promises.base(sector) >= version {
            return true;
        }
        let ordered = self.fifo || by.command.modifiers.contains(CommandFlags::PREFLUSH);
        ordered && self.complete.get(&version).is_some_and(|at| *at <= by.command.arrival)
    }

    /// Called when a block of the journal's log is written.
    fn journaled(
        &mut self, moment: usize, logged: &LoggedCommand, version: Version, (place, sector): (u64, u64), bytes: &[u8],
    ) -> Result<()> {
        if let Some((home, escaped, transaction)) = self.expected.remove(&place) {
            let mut whole = Cow::from(bytes);
            if escaped {
                whole.to_mut()[..4].copy_from_slice(&JOURNAL_MAGIC.to_be_bytes());
            }
            let digest = xxh3_64(&whole);
            if let Some(ordered) = &mut self.ordered {
                ordered.logged(transaction, home, &whole);
            }
            let same = self.newest.get(&home).filter(|known| known.digest == digest);
            let since = same.map_or(transaction, |known| known.since);
            self.newest.insert(home, LoggedBlock { transaction, digest, since });
            self.transactions.entry(transaction).or_default().blocks.push((sector, version));
            return Ok(());
        }
        let Some(record) = self.format.record(bytes) else { return Ok(()) };
        let transaction = record.sequence;
        match record.kind {
            JournalRecordKind::Descriptor(tags) => {
                self.transactions.entry(transaction).or_default().blocks.push((sector, version));
                let mut at = place;
                for tag in tags {
                    at += 1;
                    if at >= u64::from(self.superblock.end) {
                        at = u64::from(self.superblock.first);
                    }
                    let escaped = tag.flags.contains(JournalTagFlags::ESCAPE);
                    self.expected.insert(at, (tag.block, escaped, transaction));
                }
            }
            JournalRecordKind::Revoke(_) => {
                self.transactions.entry(transaction).or_default().blocks.push((sector, version));
            }
            JournalRecordKind::Commit(_) => {
                let known = self.transactions.remove(&transaction).unwrap_or_default();
                if !self.superblock.features.contains(JournalFeatures::ASYNC_COMMIT) {
                    let loose = |(sector, version): &&(u64, Version)| !self.settled(*sector, *version, logged);
                    let loose = known.blocks.iter().filter(loose).count();
                    if loose > 0 {
                        let detail = format!(
                            "the commit block is written while {loose} of {} blocks of its transaction may still be lost",
                            known.blocks.len()
                        );
                        self.broken(moment, "commit", transaction, detail);
                    }
                }
                self.transactions.insert(transaction, LoggedTransaction { commit: Some((sector, version)), ..known });
                self.check_data(moment, transaction, logged)?;
            }
        }
        Ok(())
    }

    /// Called when a block is written to its home outside of the journal.
    fn home(&mut self, moment: usize, logged: &LoggedCommand, block: u64, bytes: &[u8]) {
        let Some(LoggedBlock { digest, since, .. }) = self.newest.get(&block) else { return };
        if *digest != xxh3_64(bytes) || precedes(*since, self.tail) {
            return;
        }
        let transaction = *since;
        let commit = self.transactions.get(&transaction).and_then(|known| known.commit);
        if commit.is_some_and(|(sector, version)| self.settled(sector, version, logged)) {
            return;
        }
        let detail = format!("block {block} is written home before the commit of its transaction is durable");
        self.broken(moment, "home", transaction, detail);
    }

    /// Called when the journal superblock is written. Transactions before its tail are no longer replayed. The superblock may also have new
    /// features, because the kernel sets features with the first commit after a mount.
    fn tail(&mut self, moment: usize, logged: &LoggedCommand, bytes: &[u8]) {
        let Ok(superblock) = JournalSuperblock::parse(bytes, 0) else { return };
        let tail = superblock.sequence;
        self.tail = tail;
        self.format = LogFormat::new(&superblock);
        self.superblock = superblock;
        let gone = |transaction: u32| precedes(transaction, tail);
        let pending: Vec<VolatileExtent> = self.promises.pending().filter(|extent| extent.op == Op::Write).collect();
        let mut loose = None;
        for (home, newest) in self.newest.iter().filter(|(_, newest)| gone(newest.transaction)) {
            let sector = home * self.block_sectors;
            let pending = pending.iter().find(|extent| (extent.first..extent.end).contains(&sector));
            if let Some(pending) = pending
                && !self.settled(sector, pending.version, logged)
            {
                loose = Some(newest.transaction.min(loose.unwrap_or(u32::MAX)));
            }
        }
        if let Some(transaction) = loose {
            let detail = format!("the tail moves to {tail} while home blocks may still be lost");
            self.broken(moment, "tail", transaction, detail);
        }
        self.newest.retain(|_, newest| !gone(newest.transaction));
        self.transactions.retain(|transaction, _| !gone(*transaction));
    }

    fn broken(&mut self, moment: usize, rule: &'static str, transaction: u32, detail: String) {
        self.breaks.push(RuleViolation { moment, rule, transaction, detail });
    }
}

// The rule of the journaling mode `data=ordered`: if a transaction makes a block readable in a file, the block's data is durable before the
// commit block of the transaction.
//
// ext4 promises this for regular files whose data is not journaled (Linux `fs/ext4/inode.c`, `ext4_jbd2_inode_add_write`;
// `fs/jbd2/commit.c`, `journal_finish_inode_data_buffers`): a block that becomes mapped, initialised and inside the file's size was written
// and is durable. ext4 makes no such promise for blocks that stay mapped and are overwritten. The next owner of a freed block writes it
// only after the transaction that freed it is committed, so earlier writes belong to the former owner. A block that only becomes unwritten
// (zeroed in place) stays with its owner, who may write it immediately. Blocks in the journal are not checked, nor are blocks that were
// discarded and not written since, because zeros may be the result of discards.

/// Location of the default journaling mode in the superblock: two bits here, and mount options as text.
const DEFAULT_OPTIONS: u64 = 1024 + 0x100;
const OPTIONS_TEXT: u64 = 1024 + 0x200;
const MODE_MASK: u8 = 0x60;
const ORDERED_MODE: u8 = 0x40;

/// Sorted, non-overlapping ranges of blocks, each with first block and end.
type Extents = Vec<(u64, u64)>;

/// The data blocks of a file: blocks whose data can be read, and blocks that read as zeros until they are written (unwritten extents).
#[derive(Default)]
struct MappedFileData {
    readable: Extents,
    unwritten: Extents,
}

/// For sectors of a file system, the writes that produced their current contents.
#[derive(Default)]
struct SectorVersions {
    /// For each sector, the first write since its block was freed or became unwritten, and the last write.
    sectors: FxHashMap<u64, (Version, Version)>,
    newest: Version,
    /// Version of the newest write at the time of the second last commit, and of the last commit.
    commits: [Version; 2],
}

impl SectorVersions {
    fn add(&mut self, (first, end): (u64, u64), version: Version) {
        self.newest = self.newest.max(version);
        for sector in first..end {
            self.sectors.entry(sector).or_insert((version, version)).1 = version;
        }
    }

    fn first(&self, sector: u64) -> Option<Version> {
        self.sectors.get(&sector).map(|(first, _)| *first)
    }

    /// Records that a transaction makes sectors unreadable as file data. If `stays` is true, the block remains allocated to its file, and
    /// its last write is kept if it is newer than the second last commit. Otherwise the block was freed, and its writes are forgotten.
    fn leave(&mut self, (first, end): (u64, u64), stays: bool) {
        for sector in first..end {
            match self.sectors.get_mut(&sector) {
                Some((first, last)) if stays && *last > self.commits[0] => *first = *last,
                _ => drop(self.sectors.remove(&sector)),
            }
        }
    }

    fn committed(&mut self) {
        self.commits = [self.commits[1], self.newest];
    }
}

/// The metadata of a file system as it is after the transactions committed so far.
struct CommittedMetadata {
    base: HostView,
    block_bytes: u64,
    /// The contents of each metadata block as the journal logged them last.
    logged: FxHashMap<u64, Box<[u8]>>,
}

impl DiskReader for CommittedMetadata {
    fn size(&self) -> io::Result<u64> {
        self.base.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let (block, within) = (at / self.block_bytes, at % self.block_bytes);
            let length = rest.len().min((self.block_bytes - within) as usize);
            let (now, later) = rest.split_at_mut(length);
            match self.logged.get(&block) {
                Some(bytes) => now.copy_from_slice(&bytes[within as usize..within as usize + length]),
                None => self.base.read_at(at, now)?,
            }
            (at, rest) = (at + length as u64, later);
        }
        Ok(())
    }
}

/// Checks the transactions of a run, one after another, against the rule of `data=ordered`.
pub(crate) struct OrderedDataChecker {
    metadata: CommittedMetadata,
    tables: Vec<InodeTable>,
    /// The first inode of user files; earlier inodes are reserved for the file system.
    first_inode: u32,
    inode_bytes: u64,
    /// For each inode whose blocks are known, the blocks that can be read as file data.
    readable: FxHashMap<u32, Extents>,
    written: SectorVersions,
    /// Blocks that were discarded after they were freed.
    discarded: FxHashSet<u64>,
    /// For each open transaction, the blocks that it has logged so far.
    open: FxHashMap<u32, FxHashMap<u64, Box<[u8]>>>,
}

impl OrderedDataChecker {
    /// Creates the checker of a file system; `None` if its default mode is not `data=ordered`.
    /// Errors: if the file system cannot be read.
    pub fn new(base: HostView) -> Result<Option<Self>> {
        let filesystem = Ext4Filesystem::open(&base)?;
        let (mut mode, mut text) = ([0; 1], [0; 64]);
        let fail = |error| emmclab_base::Error::io(&std::env::temp_dir(), error);
        base.read_at(DEFAULT_OPTIONS, &mut mode).map_err(fail)?;
        base.read_at(OPTIONS_TEXT, &mut text).map_err(fail)?;
        if ![0, ORDERED_MODE].contains(&(mode[0] & MODE_MASK)) || text.windows(5).any(|part| part == b"data=") {
            return Ok(None);
        }
        let tables = filesystem.inode_tables()?;
        let first_inode = filesystem.superblock().first_inode;
        let block_bytes = u64::from(filesystem.superblock().block_size);
        let inode_bytes = u64::from(filesystem.superblock().inode_size);
        Ok(Some(Self {
            metadata: CommittedMetadata { base, block_bytes, logged: FxHashMap::default() },
            tables,
            first_inode,
            inode_bytes,
            readable: FxHashMap::default(),
            written: SectorVersions::default(),
            discarded: FxHashSet::default(),
            open: FxHashMap::default(),
        }))
    }

    /// Called when a transaction logs a block.
    pub fn logged(&mut self, transaction: u32, home: u64, bytes: &[u8]) {
        self.open.entry(transaction).or_default().insert(home, bytes.into());
    }

    /// Called when sectors are written outside of the journal.
    pub fn written(&mut self, (first, end): (u64, u64), version: Version) {
        self.written.add((first, end), version);
    }

    /// Called when sectors are discarded, or set to zero without data.
    pub fn discarded(&mut self, (first, end): (u64, u64)) {
        let sectors = self.metadata.block_bytes / SECTOR_BYTES;
        self.discarded.extend(first / sectors..end.div_ceil(sectors));
    }

    /// Called when the checked part of the run begins. Earlier writes are already in the initial file system, or still in its journal.
    pub fn begin(&mut self) {
        self.written = SectorVersions::default();
        self.discarded.clear();
        self.readable.clear();
    }

    /// Called when a block is written outside of the journal before the checked part of the run begins.
    pub fn written_before(&mut self, block: u64) {
        self.metadata.logged.remove(&block);
    }

    /// Called when the commit block of a transaction arrives. `settled` returns whether a version of a sector is durable by then. Returns a
    /// description of file data that may still be lost; `None` if there is none.
    pub fn committed(&mut self, transaction: u32, settled: impl Fn(u64, Version) -> bool) -> Result<Option<String>> {
        let Some(blocks) = self.open.remove(&transaction) else { return Ok(None) };
        let inodes = self.inodes_of(blocks.keys().copied());
        let known: Vec<_> = inodes.iter().map(|inode| self.readable.remove(inode)).collect();
        let unknown = inodes.iter().zip(&known).filter(|(_, known)| known.is_none()).map(|(inode, _)| *inode);
        let mut now = self.mapped(unknown)?.into_iter().map(|mapped| mapped.map(|mapped| mapped.readable));
        let before: Vec<_> = known.into_iter().map(|known| known.or_else(|| now.next().flatten())).collect();
        let journaled: FxHashSet<u64> = blocks.keys().copied().collect();
        self.metadata.logged.extend(blocks);
        let (mut after, mut unwritten) = (Vec::new(), Vec::new());
        for mapped in self.mapped(inodes.iter().copied())? {
            unwritten.extend(mapped.iter().flat_map(|mapped| &mapped.unwritten).copied());
            after.push(mapped.map(|mapped| mapped.readable));
        }
        let was = union(before.iter().flatten());
        let is = union(after.iter().flatten());
        let sectors = self.metadata.block_bytes / SECTOR_BYTES;
        let mut fault = None;
        for ((inode, before), after) in inodes.iter().zip(before).zip(after) {
            // Inodes that could not be read after the transaction are not checked.
            let (Some(_), Some(after)) = (before, after) else { continue };
            let fresh = minus(&after, &was);
            let blocks = || fresh.iter().flat_map(|(first, end)| *first..*end);
            let loose = |block: &u64| {
                if journaled.contains(block) || self.metadata.logged.contains_key(block) {
                    return false;
                }
                let mut writes = (block * sectors..(block + 1) * sectors)
                    .filter_map(|sector| Some((sector, self.written.first(sector)?)))
                    .peekable();
                if writes.peek().is_none() {
                    return !self.discarded.contains(block);
                }
                !writes.all(|(sector, version)| settled(sector, version))
            };
            if let Some(first) = blocks().find(loose) {
                let (count, all) = (blocks().filter(loose).count(), blocks().count());
                fault.get_or_insert(format!(
                    "the commit block is written while {count} of {all} blocks that inode {inode} gains, block {first} first, may \
                     still lack their data"
                ));
            }
            self.readable.insert(*inode, after);
        }
        for block in minus(&was, &is).iter().flat_map(|(first, end)| *first..*end) {
            self.discarded.remove(&block);
            let stays = unwritten.iter().any(|(first, end)| (*first..*end).contains(&block));
            self.written.leave((block * sectors, (block + 1) * sectors), stays);
        }
        self.written.committed();
        Ok(fault)
    }

    /// Returns the numbers of the user inodes that these blocks of the inode table contain, in order.
    fn inodes_of(&self, blocks: impl Iterator<Item = u64>) -> Vec<u32> {
        let in_block = self.metadata.block_bytes / self.inode_bytes;
        let mut inodes: Vec<u32> = blocks
            .filter_map(|block| {
                let table = self.tables.iter().find(|table| table.blocks.contains(&block))?;
                let first = table.first_inode + ((block - table.blocks.start) * in_block) as u32;
                Some((first..first + in_block as u32).filter(|inode| table.holds(*inode) && *inode >= self.first_inode))
            })
            .flatten()
            .collect();
        inodes.sort_unstable();
        inodes
    }

    /// The data blocks of inodes; empty for inodes of other types than regular files, `None` if unknown.
    fn mapped(&self, inodes: impl Iterator<Item = u32>) -> Result<Vec<Option<MappedFileData>>> {
        let filesystem = Ext4Filesystem::open(&self.metadata)?;
        Ok(inodes
            .map(|inode| {
                let mut mapped = MappedFileData::default();
                if self.is_blank(inode) {
                    return Some(mapped);
                }
                let inode = filesystem.inode(inode).ok()?;
                if inode.kind() != Ext4FileKind::Regular {
                    return Some(mapped);
                }
                for run in filesystem.map(&inode) {
                    let run = run.ok()?;
                    let Some(first) = run.physical else { continue };
                    let extents = if run.unwritten { &mut mapped.unwritten } else { &mut mapped.readable };
                    extents.push((first, first + run.blocks));
                }
                mapped.readable = union(std::iter::once(&mapped.readable));
                Some(mapped)
            })
            .collect())
    }

    /// Whether an inode was never used: its bytes are zeros.
    fn is_blank(&self, inode: u32) -> bool {
        let Some(table) = self.tables.iter().find(|table| table.holds(inode)) else { return false };
        let at = table.blocks.start * self.metadata.block_bytes + u64::from(inode - table.first_inode) * self.inode_bytes;
        let mut bytes = vec![0; self.inode_bytes as usize];
        self.metadata.read_at(at, &mut bytes).is_ok() && bytes.iter().all(|byte| *byte == 0)
    }
}

/// The union of several sets of blocks.
fn union<'a>(sets: impl Iterator<Item = &'a Extents>) -> Extents {
    let mut all: Extents = sets.flatten().copied().collect();
    all.sort_unstable();
    let mut joined: Extents = Vec::new();
    for (first, end) in all {
        match joined.last_mut() {
            Some(last) if last.1 >= first => last.1 = last.1.max(end),
            _ => joined.push((first, end)),
        }
    }
    joined
}

/// The difference of two sets of blocks.
fn minus(set: &Extents, other: &Extents) -> Extents {
    let mut left = Vec::new();
    for (first, end) in set {
        let mut at = *first;
        for (from, to) in other.iter().filter(|(from, to)| from < end && to > first) {
            if *from > at {
                left.push((at, *from));
            }
            at = at.max(*to);
        }
        if at < *end {
            left.push((at, *end));
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_becomes_unwritten_keeps_what_was_written_while_its_transaction_was_open() {
        let mut writes = SectorVersions::default();
        writes.add((0, 24), 1);
        writes.committed();
        writes.committed();
        writes.add((8, 24), 2);
        writes.add((8, 16), 3);
        writes.leave((0, 16), true);
        writes.leave((16, 24), false);
        writes.committed();
        assert_eq!([0, 8, 16].map(|sector| writes.first(sector)), [None, Some(3), None]);
        writes.committed();
        writes.leave((8, 16), true);
        assert_eq!(writes.first(8), None);
    }

    #[test]
    fn sets_of_blocks_are_joined_and_taken_from_each_other() {
        let first = vec![(10, 20), (0, 5)];
        let all = union([&first, &vec![(5, 6), (18, 30)]].into_iter());
        assert_eq!(all, [(0, 6), (10, 30)]);
        assert_eq!(minus(&all, &vec![(2, 3), (6, 12), (29, 40)]), [(0, 2), (3, 6), (12, 29)]);
        assert_eq!(minus(&all, &all), []);
        assert_eq!(minus(&all, &Vec::new()), all);
    }
}
