//! A layer below a journaling file system that recognises the types of its writes (DSN 2017; the mechanisms are our own).
//!
//! A commit of ext4 flushes the whole cache of the device twice, or once with a durable commit block. The layer gives the same guarantees
//! at a lower cost, and relies only on the guarantees of the device:
//!
//! - *Flush.* A flush makes all data durable that was complete when it arrived, with two exceptions: journal blocks before their commit
//!   block is written, and blocks at their home locations that equal a durable copy in the journal. If the cache contains nothing else, the
//!   layer completes the flush without the device ([`writes`]). Before the journal's superblock moves its tail or marks the journal as
//!   empty, the blocks at their home locations are made durable.
//! - *Forcing.* Data that the next flush would have to make durable is written durably at once if that needs fewer program operations of
//!   the flash than the flush ([`writes`]). Otherwise it is written normally, and the next flush is sent to the device.
//! - *Own log* ([`log`]). Journal blocks stay in memory until their commit arrives. They are then written as one record that contains only
//!   changed sectors. The record's checksum replaces the ordering of writes. After a power cut, the records are copied to the journal
//!   before the file system reads it.
//!
//! If the log has no space, a transaction is written to its place in the journal.

mod log;
mod writes;

use std::io;

use emmclab_base::{BlockNote, BlockRole, ByteSize, CommandFlags, Error, ErrorClass, Op, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::layer::{
    BackgroundDecision, DeferReason, DisksBelow, HostRequest, InFlightRequests, Layer, RecoveryReader, RequestDecision,
    ReservedArea,
};
use crate::plan::{CommandPlan, PlanMemory};
use crate::registry::{LayerKind, counters, read_settings, settings_of};
use log::{ALIGN, JournalLog, LogArea, SEGMENTS};
use writes::{CommitBuffer, ForcedWritePolicy, UnflushedWrites};

pub(crate) const KIND: LayerKind = LayerKind {
    name: "journal",
    about: "writes the commits of an ext4 journal in several ways, to measure their cost and possible savings",
    build: |table, below| Ok(Box::new(JournalLayer::new(&read_settings(KIND.name, table)?, below)?)),
    settings: settings_of::<JournalLayerSettings>,
};

/// Progress of draining, which moves the blocks in the log to their own addresses in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DrainState {
    No,
    Asked,
    /// The log is being drained. Requests wait until this is complete.
    Running,
}

/// A layer below a journaling file system.
pub(crate) struct JournalLayer {
    features: JournalModeFeatures,
    /// Whether the mode uses durable writes instead of flushes, although durable writes are not cheaper than flushes on the disk below.
    lacks_durable_writes: bool,
    capacity: u64,
    forcing: ForcedWritePolicy,
    unflushed: UnflushedWrites,
    commit_buffer: CommitBuffer,
    log: Option<JournalLog>,
    recovered: bool,
    draining: DrainState,
    /// The first transaction that the journal has not released.
    tail: Option<u32>,
    /// The last durable transaction.
    durable: Option<u32>,
    /// Commits in flight: (number of the request, transaction).
    commits: Vec<(u64, u32)>,
    /// Writes of the journal's superblock in flight: (number of the request, tail); the tail is `None` for an empty journal.
    tails: Vec<(u64, Option<u32>)>,
    counters: LayerCounters,
}

impl JournalLayer {
    fn new(settings: &JournalLayerSettings, below: &DisksBelow) -> Result<Self> {
        let area = settings.area(below)?;
        let features = settings.mode.features();
        Ok(Self {
            features: JournalModeFeatures { durable_writes: features.durable_writes && below.durable_writes, ..features },
            lacks_durable_writes: features.durable_writes && !below.durable_writes,
            capacity: area.map_or(below.main, |area| area.first),
            forcing: ForcedWritePolicy::new(below.program_sectors, below.cache_sectors),
            unflushed: UnflushedWrites::default(),
            commit_buffer: CommitBuffer::default(),
            log: area.map(|area| JournalLog::new(area, 0)),
            recovered: false,
            draining: DrainState::No,
            tail: None,
            durable: None,
            commits: Vec::new(),
            tails: Vec::new(),
            counters: LayerCounters::default(),
        })
    }

    /// Plans a flush, or completes it without the device if no data must become durable.
    fn flush(&mut self, request: &HostRequest, plan: &mut CommandPlan) {
        self.counters.flushes += 1;
        let JournalModeFeatures { barriers, durable_writes, .. } = self.features;
        let sets_order = request.modifiers.contains(CommandFlags::BARRIER);
        let needed = match durable_writes {
            _ if !barriers => false,
            true if sets_order => !self.unflushed.is_durable(),
            true => !self.unflushed.is_clean(),
            false => true,
        };
        if !sets_order {
            self.forcing.flush_asked();
        }
        if !needed {
            self.counters.flushes_saved += 1;
            return;
        }
        if !sets_order {
            self.flushes(request.id);
        }
        plan.flag(request.modifiers);
        plan.forward(request);
    }

    /// Records that the commands of a request start with a flush of the device.
    fn flushes(&mut self, id: u64) {
        self.unflushed.flush(id);
        self.forcing.flushed();
    }

    /// Updates the known state of the journal from the notes of a write, which describe its blocks.
    fn observe(&mut self, request: &HostRequest, notes: &[BlockNote]) {
        let mut sector = request.sector;
        for note in notes {
            match note.role {
                BlockRole::JournalSuperblock => {
                    // A damaged journal superblock contains no transaction number.
                    if let Some(transaction) = note.transaction {
                        self.tails.push((request.id, note.home.map(|_| transaction)));
                        self.tail = Some(transaction);
                    }
                    if let Some(log) = &mut self.log {
                        log.superblock = Some(sector);
                    }
                }
                BlockRole::Commit => {
                    self.counters.commits += 1;
                    self.commits.extend(note.transaction.map(|transaction| (request.id, transaction)));
                }
                _ => {}
            }
            sector += u64::from(note.sectors);
        }
    }

    /// Plans a read. Some journal blocks are not stored at their own addresses. They are read from memory or from the log of the layer.
    fn read(&self, request: &HostRequest, plan: &mut CommandPlan) {
        let (first, end) = (request.sector, request.end());
        let Some(log) = &self.log else { return plan.forward(request) };
        // Parts of the range that are in memory or in the log, not at their own addresses: start, end, and slot in memory (`None` for the
        // log).
        let mut pieces: Vec<(u64, u64, Option<u32>)> = Vec::new();
        let inside = |block: u64, sectors: u64| (block.max(first), (block + sectors).min(end));
        for (block, held) in self.commit_buffer.overlapping(first, end) {
            let (from, to) = inside(block, u64::from(held.sectors));
            pieces.push((from, to, Some(held.slot + (from - block) as u32)));
        }
        for (block, stored) in log.meeting(first, end) {
            let (from, to) = inside(block, stored.sectors.len() as u64);
            if !pieces.iter().any(|piece| piece.0 < to && from < piece.1) {
                pieces.push((from, to, None));
            }
        }
        pieces.sort_unstable_by_key(|piece| piece.0);
        let mut at = first;
        let rest = (end, end, Some(0));
        for (from, to, held) in pieces.into_iter().chain([rest]) {
            if at < from {
                plan.payload(0, Op::Read, at, (at - first) as u32, (from - at) as u32);
            }
            let place = (from - first) as u32;
            match held {
                Some(_) if from == to => {}
                Some(slot) => {
                    plan.copy((PlanMemory::Held, slot), (PlanMemory::Payload, place), (to - from) as u32);
                }
                None => {
                    for (block, stored) in log.meeting(from, to) {
                        let sectors = &stored.sectors[(from - block) as usize..(to - block) as usize];
                        log::read_sectors(sectors, (PlanMemory::Payload, place), plan);
                    }
                }
            }
            at = to;
        }
    }
}

impl Layer for JournalLayer {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn areas(&self) -> Vec<ReservedArea> {
        let of = |log: &JournalLog| ReservedArea { disk: 0, sector: log.area.first, sectors: log.area.sectors() };
        self.log.iter().map(of).collect()
    }

    fn recover(&mut self, disks: &mut dyn RecoveryReader) -> io::Result<()> {
        if let Some(log) = &mut self.log {
            *log = log::recover(log.area, disks)?;
            self.recovered = true;
        }
        Ok(())
    }

    fn start(&mut self, plan: &mut CommandPlan) {
        let Some(log) = &mut self.log else { return };
        let mut records = 1;
        if self.recovered {
            self.counters.blocks_rebuilt += log.blocks.len() as u64;
            log::rebuild(log, plan);
        } else {
            // Records of an earlier use of these disks must become invalid.
            records = SEGMENTS;
        }
        for _ in 0..records {
            writes::write_void(log, plan);
        }
    }

    fn accepts(&self) -> CommandFlags {
        CommandFlags::all()
    }

    fn reads_notes(&self) -> bool {
        true
    }

    fn request(&mut self, request: &HostRequest, notes: &[BlockNote], plan: &mut CommandPlan) -> RequestDecision {
        if self.draining == DrainState::Running {
            return RequestDecision::Defer(DeferReason::Overlap);
        }
        plan.flag(request.modifiers);
        match request.op {
            Op::Read => self.read(request, plan),
            Op::Flush => self.flush(request, plan),
            Op::Discard | Op::SecureErase => {
                self.forget_range(request, plan);
                plan.forward(request);
            }
            Op::Write => {
                self.counters.unknown_writes += u64::from(notes.is_empty());
                self.observe(request, notes);
                self.forget_range(request, plan);
                if !self.features.journal {
                    self.write_without_journal(request, notes, plan);
                } else if self.log.is_some() {
                    self.write_logged(request, notes, plan);
                } else {
                    self.write_in_place(request, 0, notes, plan);
                }
            }
        }
        RequestDecision::Run
    }

    fn completed(&mut self, id: u64) {
        self.unflushed.completed(id);
        self.commit_buffer.completed(id);
        let Self { commits, durable, tails, log, .. } = self;
        commits.retain(|(request, transaction)| {
            if *request == id {
                *durable = Some(*transaction);
            }
            *request != id
        });
        tails.retain(|(request, tail)| {
            if *request == id
                && let Some(log) = log
            {
                log.forget(*tail);
            }
            *request != id
        });
    }

    fn background(&mut self, in_flight: &InFlightRequests, plan: &mut CommandPlan) -> BackgroundDecision {
        let Some(log) = self.log.as_mut().filter(|log| self.draining == DrainState::Asked && !log.is_empty()) else {
            return BackgroundDecision::None;
        };
        if !in_flight.is_empty() {
            return BackgroundDecision::Later;
        }
        log::rebuild(log, plan);
        writes::write_void(log, plan);
        self.draining = DrainState::Running;
        BackgroundDecision::Run
    }

    fn background_done(&mut self) {
        self.draining = DrainState::No;
    }

    fn drain(&mut self) {
        self.draining = DrainState::Asked;
    }

    fn left_out(&self) -> &'static [&'static str] {
        if self.lacks_durable_writes { &["durable writes in place of flushes"] } else { &[] }
    }

    fn clear_counters(&mut self) {
        self.counters = LayerCounters::default();
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.counters.since(&LayerCounters::default())
    }
}

/// Treatment of a file system's journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum JournalMode {
    /// Unchanged: each commit has a flush before it, and a durable commit block.
    Legacy,
    /// No data is made durable: flushes and flags are dropped. Unsafe, for comparison only.
    NoBarrier,
    /// Journal blocks are not written. Unsafe: this mode only shows the maximum gain, for comparison with other modes.
    NoJournal,
    /// The blocks of a commit are written durably (forced programming), and the commit block as a reliable write. The cache is flushed only
    /// if other data must also become durable.
    OrderedFua,
    /// Only the changed sectors of a logged block are written, into the log of the layer.
    Delta,
    /// A transaction and its commit block are written to the log of the layer with one write.
    Packed,
    /// `ordered_fua`, `delta` and `packed` combined.
    #[default]
    Aware,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a feature by itself")]
struct JournalModeFeatures {
    /// Whether flushes and durable writes of the file system are executed rather than dropped.
    pub barriers: bool,
    /// Whether journal blocks are written rather than dropped.
    pub journal: bool,
    /// Whether durable writes replace flushes.
    pub durable_writes: bool,
    /// Whether only changed sectors are logged.
    pub delta: bool,
    pub one_write: bool,
}

impl JournalMode {
    const fn features(self) -> JournalModeFeatures {
        let legacy = JournalModeFeatures { barriers: true, journal: true, durable_writes: false, delta: false, one_write: false };
        match self {
            Self::Legacy => legacy,
            Self::NoBarrier => JournalModeFeatures { barriers: false, ..legacy },
            Self::NoJournal => JournalModeFeatures { journal: false, ..legacy },
            Self::OrderedFua => JournalModeFeatures { durable_writes: true, ..legacy },
            Self::Delta => JournalModeFeatures { delta: true, ..legacy },
            Self::Packed => JournalModeFeatures { one_write: true, ..legacy },
            Self::Aware => JournalModeFeatures { durable_writes: true, delta: true, one_write: true, ..legacy },
        }
    }
}

/// Settings of the layer below a journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct JournalLayerSettings {
    /// How the commits of the journal are written.
    pub mode: JournalMode,
    /// Size of the log of the layer, at the end of the device. Modes without a log of the layer ignore it.
    pub log: ByteSize,
}

impl Default for JournalLayerSettings {
    fn default() -> Self {
        Self { mode: JournalMode::default(), log: ByteSize::mb(16) }
    }
}

impl JournalLayerSettings {
    /// Returns the log area; `None` for a mode without a log.
    fn area(&self, below: &DisksBelow) -> Result<Option<LogArea>> {
        let JournalModeFeatures { delta, one_write, .. } = self.mode.features();
        if !delta && !one_write {
            return Ok(None);
        }
        let segment = self.log.sectors() / u64::from(SEGMENTS * ALIGN) * u64::from(ALIGN);
        let fault = |problem: String, hint: &str| Err(Error::new(ErrorClass::Config, problem).hint(hint));
        let Some(segment) = u32::try_from(segment).ok().filter(|segment| *segment >= 4 * ALIGN) else {
            return fault(
                format!("layer `journal`: a log of {} is too small or too large", self.log),
                "use at least 128 KB, for example --set journal.log=16MB",
            );
        };
        let area = LogArea { first: 0, segment };
        let Some(first) = below.main.checked_sub(area.sectors()).filter(|first| *first > 0) else {
            return fault(
                format!("layer `journal`: its log of {} occupies the whole device", self.log),
                "use a smaller log, for example --set journal.log=16MB",
            );
        };
        let first = first / u64::from(ALIGN) * u64::from(ALIGN);
        Ok(Some(LogArea { first, ..area }))
    }
}

counters! {
    /// Commits of the journal.
    commits,
    /// Flushes from the host, including preflushes.
    flushes,
    /// Flushes from the host that were not sent to the device.
    flushes_saved,
    /// Writes that were made durable although the request did not require it.
    forced_writes,
    /// Home blocks that were written, but that the next flush need not make durable.
    home_blocks_left,
    /// Writes without notes that describe their blocks.
    unknown_writes,
    /// Records in the log of the layer.
    log_records,
    /// Sectors of the records in the log of the layer.
    log_sectors,
    journal_sectors_logged,
    /// Transactions that the layer wrote to their usual place in the journal, because its own log had no space.
    commits_in_place,
    /// Blocks that were copied from the log to their own addresses in the journal after a power cut.
    blocks_rebuilt,
    /// Blocks of the journal that were not written to the device.
    blocks_dropped,
}
