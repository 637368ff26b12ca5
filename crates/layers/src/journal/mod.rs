//! A layer below a journaling file system that recognises what its writes are (DSN 2017; the mechanisms are ours).
//!
//! A commit of ext4 flushes the whole cache of the device twice, or once with a durable commit block. The layer gives the same
//! guarantees at a lower cost, and relies only on what the device guarantees:
//!
//! - *Flush.* A flush makes all data durable that was complete when it arrived, with two exceptions: blocks of the journal whose
//!   commit was not written yet, and blocks at home that equal their last logged copy in a durable transaction that the journal
//!   still holds. If the cache holds nothing else, the layer completes the flush without the device ([`unflushed`]). Before the
//!   journal's superblock moves its tail or states that the journal is empty, the blocks at home are made durable, too.
//! - *Forcing.* Data that the next flush would have to make durable is written durably at once if that needs fewer program
//!   operations of the flash than the flush ([`forced_writes`]). Otherwise it is written normally, and the next flush is sent to the
//!   device.
//! - *Own log* ([`log`]). Blocks of the journal stay in memory until their commit arrives. They are then written as one record that
//!   holds only sectors that changed. The record's checksum replaces the ordering of writes. After a power cut the records are
//!   copied to where the file system expects its journal, before it reads there ([`recovery`]).
//!
//! If the log has no room, a transaction is written to its place in the journal.

mod commit;
mod commit_buffer;
mod counters;
mod forced_writes;
mod in_place;
mod log;
mod mode;
mod record;
mod recovery;
mod settings;
mod unflushed;

use std::io;

use emmclab_base::{BlockNote, BlockRole, CommandFlags, Op, Result};
use toml::Table;

use crate::in_flight::InFlightRequests;
use crate::layer::{BackgroundDecision, DeferReason, DisksBelow, Layer, RecoveryReader, RequestDecision, ReservedArea};
use crate::layer_kind::{LayerKind, read_settings};
use crate::layer_setting::settings_of;
use crate::plan::{CommandPlan, PlanMemory};
use crate::request::HostRequest;

use commit_buffer::CommitBuffer;
use counters::JournalLayerCounters;
use forced_writes::ForcedWritePolicy;
use log::{JournalLog, SEGMENTS};
use mode::JournalModeFeatures;
use unflushed::UnflushedWrites;

pub use mode::JournalLayerMode;
pub use settings::JournalLayerSettings;

pub(crate) const KIND: LayerKind = LayerKind {
    name: "journal",
    about: "writes the commits of an ext4 journal in other ways, to measure what they cost and how much can be saved",
    build,
    settings: settings_of::<JournalLayerSettings>,
};

/// State of draining: whether the blocks in the log are moved to their places in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DrainState {
    No,
    Asked,
    /// The plan is in progress; requests wait until it is complete.
    Running,
}

/// A layer below a journaling file system.
pub struct JournalLayer {
    features: JournalModeFeatures,
    /// Whether the mode replaces flushes by durable writes, but the disk below has no durable writes that are cheaper.
    lacks_durable_writes: bool,
    capacity: u64,
    forcing: ForcedWritePolicy,
    unflushed: UnflushedWrites,
    commit_buffer: CommitBuffer,
    log: Option<JournalLog>,
    recovered: bool,
    draining: DrainState,
    /// The first transaction that the journal has not released, and the last durable one.
    tail: Option<u32>,
    durable: Option<u32>,
    /// Commits in flight: number of the request, and transaction.
    commits: Vec<(u64, u32)>,
    /// Superblocks of the journal in flight: number of the request, and tail; `None` for an empty journal.
    tails: Vec<(u64, Option<u32>)>,
    counters: JournalLayerCounters,
}

fn build(table: &Table, below: &DisksBelow) -> Result<Box<dyn Layer>> {
    let settings: JournalLayerSettings = read_settings(KIND.name, table)?;
    Ok(Box::new(JournalLayer::new(&settings, below)?))
}

impl JournalLayer {
    /// Creates the layer for the disk below.
    ///
    /// # Errors
    /// If the log does not fit.
    pub fn new(settings: &JournalLayerSettings, below: &DisksBelow) -> Result<Self> {
        let area = settings.area(below)?;
        let asked = settings.mode.features();
        Ok(Self {
            features: JournalModeFeatures { durable_writes: asked.durable_writes && below.durable_writes, ..asked },
            lacks_durable_writes: asked.durable_writes && !below.durable_writes,
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
            counters: JournalLayerCounters::default(),
        })
    }

    /// Plans a flush, or completes it without the device if nothing has to become durable.
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

    /// Notes that the plan of a request starts with a flush of the device.
    fn flushes(&mut self, id: u64) {
        self.unflushed.flush(id);
        self.forcing.flushed();
    }

    /// Updates the state of the journal from the notes of a write.
    fn observe(&mut self, request: &HostRequest, notes: &[BlockNote]) {
        let mut sector = request.sector;
        for note in notes {
            match note.role {
                BlockRole::JournalSuperblock => {
                    // A damaged superblock has no transaction.
                    if let Some(transaction) = note.transaction {
                        self.tails.push((request.id, note.home.map(|_| transaction)));
                        self.tail = Some(transaction);
                    }
                    if let Some(log) = &mut self.log {
                        log.set_superblock(sector);
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

    /// Plans a read; blocks of the journal that are not at their own addresses are read from memory or from the log.
    fn read(&self, request: &HostRequest, plan: &mut CommandPlan) {
        let (first, end) = (request.sector, request.end());
        let Some(log) = &self.log else { return plan.forward(request) };
        // The parts of the range that are in memory or in the log; a block in memory is newer than the one in the log.
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
                        recovery::read_sectors(sectors, (PlanMemory::Payload, place), plan);
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
        let of = |log: &JournalLog| ReservedArea { disk: 0, sector: log.area().first, sectors: log.area().sectors() };
        self.log.iter().map(of).collect()
    }

    fn recover(&mut self, disks: &mut dyn RecoveryReader) -> io::Result<()> {
        if let Some(log) = &mut self.log {
            *log = recovery::recover(log.area(), disks)?;
            self.recovered = true;
        }
        Ok(())
    }

    fn start(&mut self, plan: &mut CommandPlan) {
        let Some(log) = &mut self.log else { return };
        let mut records = 1;
        if self.recovered {
            self.counters.blocks_rebuilt += log.blocks().count() as u64;
            recovery::rebuild(log, plan);
        } else {
            // Records from an earlier use of these disks must not be valid.
            records = SEGMENTS;
        }
        for _ in 0..records {
            commit::write_void(log, plan);
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
        recovery::rebuild(log, plan);
        commit::write_void(log, plan);
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
        self.counters = JournalLayerCounters::default();
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.counters.by_name()
    }
}
