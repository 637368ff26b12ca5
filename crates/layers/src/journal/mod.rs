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
//!   operations of the flash than the flush ([`forcing`]). Otherwise it is written normally, and the next flush is sent to the
//!   device.
//! - *Own log* ([`log`]). Blocks of the journal stay in memory until their commit arrives. They are then written as one record that
//!   holds only sectors that changed. The record's checksum replaces the ordering of writes. After a power cut the records are
//!   copied to where the file system expects its journal, before it reads there ([`recovery`]).
//!
//! If the log has no room, a transaction is written to its place in the journal.

mod commit;
mod counters;
mod forcing;
mod held;
mod in_place;
mod log;
mod mode;
mod record;
mod recovery;
mod settings;
mod unflushed;

use std::io;

use emmclab_base::{BlockNote, Modifiers, Op, Result, Role};
use toml::Table;

use crate::in_flight::InFlight;
use crate::kind::{Kind, read_settings};
use crate::layer::{Area, Background, Below, Decision, Defer, Layer, ReadAt};
use crate::plan::{Memory, Plan};
use crate::request::HostRequest;
use crate::setting::settings_of;

use counters::Counters;
use forcing::Forcing;
use held::Held;
use log::{Log, SEGMENTS};
use mode::Features;
use unflushed::Unflushed;

pub use mode::Mode;
pub use settings::JournalSettings;

pub(crate) const KIND: Kind = Kind {
    name: "journal",
    about: "writes the commits of an ext4 journal in other ways, to measure what they cost and how much can be saved",
    build,
    settings: settings_of::<JournalSettings>,
};

/// State of draining: whether the blocks in the log are moved to their places in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Draining {
    No,
    Asked,
    /// The plan is in progress; requests wait until it is complete.
    Running,
}

/// A layer below a journaling file system.
pub struct Journal {
    features: Features,
    /// Whether the mode replaces flushes by durable writes, but the disk below has no durable writes that are cheaper.
    lacks_durable_writes: bool,
    capacity: u64,
    forcing: Forcing,
    unflushed: Unflushed,
    held: Held,
    log: Option<Log>,
    recovered: bool,
    draining: Draining,
    /// The first transaction that the journal has not released, and the last durable one.
    tail: Option<u32>,
    durable: Option<u32>,
    /// Commits in flight: number of the request, and transaction.
    commits: Vec<(u64, u32)>,
    /// Superblocks of the journal in flight: number of the request, and tail; `None` for an empty journal.
    tails: Vec<(u64, Option<u32>)>,
    counters: Counters,
}

fn build(table: &Table, below: &Below) -> Result<Box<dyn Layer>> {
    let settings: JournalSettings = read_settings(KIND.name, table)?;
    Ok(Box::new(Journal::new(&settings, below)?))
}

impl Journal {
    /// Creates the layer for the disk below.
    ///
    /// # Errors
    /// If the log does not fit.
    pub fn new(settings: &JournalSettings, below: &Below) -> Result<Self> {
        let area = settings.area(below)?;
        let asked = settings.mode.features();
        Ok(Self {
            features: Features { durable_writes: asked.durable_writes && below.durable_writes, ..asked },
            lacks_durable_writes: asked.durable_writes && !below.durable_writes,
            capacity: area.map_or(below.main, |area| area.first),
            forcing: Forcing::new(below.program_sectors, below.cache_sectors),
            unflushed: Unflushed::default(),
            held: Held::default(),
            log: area.map(|area| Log::new(area, 0)),
            recovered: false,
            draining: Draining::No,
            tail: None,
            durable: None,
            commits: Vec::new(),
            tails: Vec::new(),
            counters: Counters::default(),
        })
    }

    /// Plans a flush, or completes it without the device if nothing has to become durable.
    fn flush(&mut self, request: &HostRequest, plan: &mut Plan) {
        self.counters.flushes += 1;
        let Features { barriers, durable_writes, .. } = self.features;
        let sets_order = request.modifiers.contains(Modifiers::BARRIER);
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
                Role::JournalSuperblock => {
                    // A damaged superblock has no transaction.
                    if let Some(transaction) = note.transaction {
                        self.tails.push((request.id, note.home.map(|_| transaction)));
                        self.tail = Some(transaction);
                    }
                    if let Some(log) = &mut self.log {
                        log.set_superblock(sector);
                    }
                }
                Role::Commit => {
                    self.counters.commits += 1;
                    self.commits.extend(note.transaction.map(|transaction| (request.id, transaction)));
                }
                _ => {}
            }
            sector += u64::from(note.sectors);
        }
    }

    /// Plans a read; blocks of the journal that are not at their own addresses are read from memory or from the log.
    fn read(&self, request: &HostRequest, plan: &mut Plan) {
        let (first, end) = (request.sector, request.end());
        let Some(log) = &self.log else { return plan.forward(request) };
        // The parts of the range that are in memory or in the log; a block in memory is newer than the one in the log.
        let mut pieces: Vec<(u64, u64, Option<u32>)> = Vec::new();
        let inside = |block: u64, sectors: u64| (block.max(first), (block + sectors).min(end));
        for (block, held) in self.held.meeting(first, end) {
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
                Some(slot) => plan.copy((Memory::Held, slot), (Memory::Payload, place), (to - from) as u32),
                None => {
                    for (block, stored) in log.meeting(from, to) {
                        let sectors = &stored.sectors[(from - block) as usize..(to - block) as usize];
                        recovery::read_sectors(sectors, (Memory::Payload, place), plan);
                    }
                }
            }
            at = to;
        }
    }
}

impl Layer for Journal {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn areas(&self) -> Vec<Area> {
        let of = |log: &Log| Area { disk: 0, sector: log.area().first, sectors: log.area().sectors() };
        self.log.iter().map(of).collect()
    }

    fn recover(&mut self, disks: &mut dyn ReadAt) -> io::Result<()> {
        if let Some(log) = &mut self.log {
            *log = recovery::recover(log.area(), disks)?;
            self.recovered = true;
        }
        Ok(())
    }

    fn start(&mut self, plan: &mut Plan) {
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

    fn accepts(&self) -> Modifiers {
        Modifiers::all()
    }

    fn reads_notes(&self) -> bool {
        true
    }

    fn request(&mut self, request: &HostRequest, notes: &[BlockNote], plan: &mut Plan) -> Decision {
        if self.draining == Draining::Running {
            return Decision::Defer(Defer::Overlap);
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
        Decision::Run
    }

    fn completed(&mut self, id: u64) {
        self.unflushed.completed(id);
        self.held.completed(id);
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

    fn background(&mut self, in_flight: &InFlight, plan: &mut Plan) -> Background {
        let Some(log) = self.log.as_mut().filter(|log| self.draining == Draining::Asked && !log.is_empty())
        else {
            return Background::None;
        };
        if !in_flight.is_empty() {
            return Background::Later;
        }
        recovery::rebuild(log, plan);
        commit::write_void(log, plan);
        self.draining = Draining::Running;
        Background::Run
    }

    fn background_done(&mut self) {
        self.draining = Draining::No;
    }

    fn drain(&mut self) {
        self.draining = Draining::Asked;
    }

    fn left_out(&self) -> &'static [&'static str] {
        if self.lacks_durable_writes { &["durable writes in place of flushes"] } else { &[] }
    }

    fn clear_counters(&mut self) {
        self.counters = Counters::default();
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.counters.named()
    }
}
