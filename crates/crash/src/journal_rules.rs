//! Checks the ordering rules of a journal on the commands of a run: what must be durable before what.
//!
//! JBD2 promises these rules to the file system, and needs the device to keep them (Linux
//! `fs/jbd2/{commit,checkpoint,recovery}.c`): Every block of a transaction is durable before its commit block can be. Home blocks
//! of a transaction are written only after its commit block is durable. The tail moves past a transaction only after its home
//! blocks are durable. With `data=ordered`, data that a transaction makes readable is durable before its commit block can be
//! ([`OrderedDataChecker`]).

use std::borrow::Cow;
use std::sync::Arc;

use emmclab_base::{Error, ErrorClass, Nanos, Op, Result, SECTOR_BYTES};
use emmclab_device::CommandFlags;
use emmclab_device::contract::{DurabilityPromises, Version, VolatileExtent};
use emmclab_ext4::{
    Ext4Filesystem, JOURNAL_MAGIC, JournalFeatures, JournalLocation, JournalRecordKind, JournalSuperblock,
    JournalTagFlags, LogFormat,
};
use emmclab_layers::DisksBelow;
use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::xxh3_64;

use crate::disk_contents::DiskContents;
use crate::disk_view::CrashDiskView;
use crate::host_view::HostView;
use crate::log::CommandPort;
use crate::log_index::{CrashLogIndex, LoggedCommand, RunEvent};
use crate::ordered_data::OrderedDataChecker;
use crate::spool::SectorSource;

/// The mark of a run on an ext4 that is mounted with `data=ordered`.
const ORDERED: &str = "data=ordered";

/// A rule of the journal that a command violates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleViolation {
    /// The moment of the command, by its index in [`CrashLogIndex::moments`].
    pub moment: usize,
    /// The name of the rule.
    pub rule: &'static str,
    /// The transaction.
    pub transaction: u32,
    /// The commands and blocks in question.
    pub detail: String,
}

/// A block that a transaction logged.
struct LoggedBlock {
    /// The last transaction that logged it.
    transaction: u32,
    digest: u64,
    /// The first transaction in the latest sequence of transactions that logged this same content.
    since: u32,
}

/// A transaction in the log.
#[derive(Default)]
struct LoggedTransaction {
    /// The sectors of its descriptors, logged blocks and revoke blocks, each with the version that wrote it.
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
    /// Time of completion of each complete command.
    complete: FxHashMap<Version, Nanos>,
    transactions: FxHashMap<u32, LoggedTransaction>,
    /// Logged blocks by home block.
    newest: FxHashMap<u64, LoggedBlock>,
    /// Logged blocks announced by descriptors: by journal block, the home, whether it is escaped, and the transaction.
    expected: FxHashMap<u64, (u64, bool, u32)>,
    /// The first transaction that would be replayed.
    tail: u32,
    /// Whether the cache is written back in order, so that a write is durable only with all writes that were complete before it.
    fifo: bool,
    /// Checks the data of files if the file system is mounted with `data=ordered`.
    ordered: Option<OrderedDataChecker>,
    breaks: Vec<RuleViolation>,
}

/// Whether a transaction is older than another; the numbers wrap.
fn precedes(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}

/// Checks the commands of a run against the rules of the ext4 journal that exists at moment `from`.
///
/// Returns an empty list if there is no journal inside the file system. A mark `data=ordered` states that the file system is
/// mounted in this mode, unless its superblock specifies another one.
///
/// # Errors
/// If the file system at that moment cannot be read.
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
        return Err(Error::new(ErrorClass::Unsupported, "the journal has fast commits, whose rules are not checked")
            .hint("make the file system without: --mkfs-option -O --mkfs-option ^fast_commit"));
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
    // A transaction may have started before moment `from`.
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
    checker.breaks.retain(|found| found.moment >= from);
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

    /// Reports writes and discards outside of the journal to the judge of ordered data.
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

    /// Called when the commit block of a transaction arrives: data that becomes readable with it must be durable.
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

    /// Whether a version is certainly durable before the command `by` can be.
    fn settled(&self, sector: u64, version: Version, by: &LoggedCommand) -> bool {
        if self.promises.base(sector) >= version {
            return true;
        }
        let ordered = self.fifo || by.command.modifiers.contains(CommandFlags::PREFLUSH);
        ordered && self.complete.get(&version).is_some_and(|at| *at <= by.command.arrival)
    }

    /// Called when a block of the log is written.
    fn journaled(
        &mut self,
        moment: usize,
        logged: &LoggedCommand,
        version: Version,
        (place, sector): (u64, u64),
        bytes: &[u8],
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

    /// Called when a block outside of the journal is written.
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

    /// Called when the journal superblock is written: transactions before its tail are no longer replayed. The kernel sets features
    /// with the first commit after a mount.
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
