//! Advil (Kim & Kim, "Advil: A Pain Reliever for the Storage Performance of Mobile Devices"): logs small random writes in a reserved area
//! and later moves them to their own addresses, one clustered block at a time.
//!
//! Two features are not in the paper: log records that restore the state after a power cut (`recovery`), and a hot-data policy that keeps
//! only data that was overwritten in the log (`hot = "rewritten"`).

mod heat;
mod mover;
mod records;
mod recovery;
mod settings;

use std::borrow::Cow;
use std::io;

use emmclab_base::{BlockNote, Op, Result};

use crate::interval_map::{IntervalMap, LoggedExtent};
use crate::layer::{
    BackgroundDecision, DeferReason, DisksBelow, HostRequest, InFlightRequests, Layer, RecoveryReader, RequestDecision,
    ReservedArea,
};
use crate::plan::{CommandPlan, PlanMemory};
use crate::registry::{LayerKind, counters, read_settings, settings_of};
use heat::PageHeat;
use mover::MoverState;
use records::{AdvilJournal, AdvilRecord, AdvilRecordBody, MOST_WAITING};
use recovery::AdvilCheckpointState;
use settings::AdvilParameters;

pub use settings::{AdvilSettings, HotPolicy, InvalidationMeasure};

pub(crate) const KIND: LayerKind = LayerKind {
    name: "advil",
    about: "logs small random writes in a reserved area, keeps hot data there, moves the rest in padded blocks",
    build: |table, below| Ok(Box::new(Advil::new(KIND.name, &read_settings(KIND.name, table)?, below)?)),
    settings: settings_of::<AdvilSettings>,
};

/// The Advil layer. It logs small random writes, and later moves them to their own addresses.
pub struct Advil {
    name: &'static str,
    shape: AdvilParameters,
    map: IntervalMap,
    heat: PageHeat,
    sections: [ReservedSection; 2],
    /// Index of the section that is being filled with log records.
    current: usize,
    moving: MoverState,
    journal: AdvilJournal,
    checkpoints: AdvilCheckpointState,
    counters: LayerCounters,
    /// Values of the counters when they were last reset.
    cleared: LayerCounters,
    previous_end: u64,
    /// Whether a request was deferred because of missing space since the last move.
    pressed: bool,
}

impl Advil {
    /// Creates a layer with the name `name` on new disks.
    /// Errors: [`emmclab_base::ErrorClass::Config`] with every invalid setting.
    pub fn new(name: &'static str, settings: &AdvilSettings, below: &DisksBelow) -> Result<Self> {
        let shape = settings.shape(name, below)?;
        let heat = PageHeat::new(&shape);
        let mut sections = [0, 1].map(|i| ReservedSection::new(shape.before + i * shape.section, shape.section, shape.reach()));
        let hot = heat.first_region(shape.section);
        sections[0].open(1, shape.header, hot);
        Ok(Self {
            name,
            map: IntervalMap::new(shape.capacity),
            heat,
            sections,
            current: 0,
            moving: MoverState::default(),
            journal: AdvilJournal::default(),
            checkpoints: AdvilCheckpointState::default(),
            counters: LayerCounters::default(),
            cleared: LayerCounters::default(),
            previous_end: u64::MAX,
            pressed: false,
            shape,
        })
    }

    /// Peak memory of the map and the write counts so far, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.map.most_bytes() + self.heat.bytes() + self.checkpoints.bytes()
    }

    fn route_read(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> RequestDecision {
        self.previous_end = request.end();
        let area = self.shape.reserved;
        let mut at = request.sector;
        // Address after the last planned command in the reserved area. A run that starts at this address extends that command.
        let mut next = u64::MAX;
        let mut hits = 0;
        for run in self.map.between(request.sector, request.end()) {
            if at < run.sector {
                plan.payload(0, Op::Read, at, (at - request.sector) as u32, (run.sector - at) as u32);
                next = u64::MAX;
            }
            let from = area.sector + u64::from(run.place);
            if next != from {
                plan.begin(area.disk, Op::Read, from);
            }
            plan.piece(PlanMemory::Payload, (run.sector - request.sector) as u32, run.sectors);
            next = from + u64::from(run.sectors);
            hits += u64::from(run.sectors);
            at = run.end();
        }
        if at < request.end() {
            plan.payload(0, Op::Read, at, (at - request.sector) as u32, (request.end() - at) as u32);
        }
        self.counters.read_hits += u64::from(hits > 0);
        self.counters.read_hit_bytes += hits * 512;
        RequestDecision::Run
    }

    #[inline]
    fn route_write(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> RequestDecision {
        if request.sectors >= self.shape.small || request.sector == self.previous_end {
            return self.write_through(request, plan);
        }
        let header = self.shape.header;
        if !self.make_room(header + request.sectors, request, plan) {
            return RequestDecision::Defer(DeferReason::Full);
        }
        self.previous_end = request.end();
        let area = self.shape.reserved;
        let section = &mut self.sections[self.current];
        let place = section.log_next;
        section.log_next += header + request.sectors;
        plan.begin(area.disk, Op::Write, area.sector + u64::from(place));
        if header > 0 {
            let run = [(request.sector, request.sectors)];
            let record = AdvilRecord {
                epoch: self.journal.epoch,
                generation: section.generation,
                place,
                sectors: request.sectors,
                body: AdvilRecordBody::Data(Cow::Borrowed(&run)),
            };
            plan.record(&record.bytes(), request.sectors);
        }
        plan.piece(PlanMemory::Payload, 0, request.sectors);
        let logged = LoggedExtent { sector: request.sector, sectors: request.sectors, place: place + header };
        let rewritten = self.map.insert(logged);
        self.heat.count_write(request.sector, request.end(), rewritten);
        self.counters.logged_writes += 1;
        self.counters.logged_bytes += u64::from(request.sectors) * 512;
        self.counters.rewritten_bytes += u64::from(rewritten) * 512;
        RequestDecision::Run
    }

    /// Plans a write that goes to the original area without being logged.
    fn write_through(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> RequestDecision {
        if let Some(reason) = self.forget(request, plan) {
            return RequestDecision::Defer(reason);
        }
        self.previous_end = request.end();
        self.counters.passed_writes += 1;
        self.counters.passed_bytes += u64::from(request.sectors) * 512;
        plan.payload(0, Op::Write, request.sector, 0, request.sectors);
        self.spill(request, plan);
        RequestDecision::Run
    }

    fn route_discard(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> RequestDecision {
        if self.moving.writes(request.sector, request.end()) {
            return RequestDecision::Defer(DeferReason::Overlap);
        }
        if request.op == Op::SecureErase {
            let area = self.shape.reserved;
            for run in self.map.between(request.sector, request.end()) {
                plan.bare(area.disk, request.op, area.sector + u64::from(run.place), run.sectors);
            }
        }
        if let Some(reason) = self.forget(request, plan) {
            plan.clear();
            return RequestDecision::Defer(reason);
        }
        plan.bare(0, request.op, request.sector, request.sectors);
        self.spill(request, plan);
        RequestDecision::Run
    }

    /// Unmaps the logged data that a request to the original area replaces. Returns the reason if the request must wait instead.
    fn forget(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> Option<DeferReason> {
        if self.moving.writes(request.sector, request.end()) {
            return Some(DeferReason::Overlap);
        }
        if self.needs_tombstone(request.sector, request.end()) {
            // If too many tombstones (records of discards) wait for a flush, this request writes them to the log.
            if self.journal.pending.len() >= MOST_WAITING && !self.make_room(self.tombstone_sectors(), request, plan) {
                return Some(DeferReason::Full);
            }
            self.add_tombstone(request);
        }
        let gone = self.map.remove(request.sector, request.end(), |_| true);
        self.counters.voided_bytes += u64::from(gone) * 512;
        None
    }

    /// Plans the write of the pending tombstones (which mark ranges as no longer logged) if there are too many. A flush comes first, so
    /// that the data that replaces the logged data is durable.
    fn spill(&mut self, request: &HostRequest, plan: &mut CommandPlan) {
        if self.journal.pending.len() > MOST_WAITING {
            plan.wait();
            plan.bare(0, Op::Flush, 0, 0);
            self.write_tombstones(request.id, plan);
        }
    }

    fn route_flush(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> RequestDecision {
        let tombstones = self.journal.pending.iter().any(|pending| pending.from.is_none());
        if tombstones && !self.make_room(self.tombstone_sectors(), request, plan) {
            return RequestDecision::Defer(DeferReason::Full);
        }
        if self.journal.opener.is_some_and(|opener| opener != request.id) {
            // Recovery ignores the records of a section without a head, so the head is written first.
            self.write_section(plan);
            plan.wait();
        }
        plan.bare(0, Op::Flush, 0, 0);
        if self.shape.reserved.disk != 0 {
            plan.bare(self.shape.reserved.disk, Op::Flush, 0, 0);
        }
        if tombstones {
            self.write_tombstones(request.id, plan);
        }
        RequestDecision::Run
    }

    /// Provides space for `sectors` sectors of log, and switches to the other section if necessary. Returns false if there is no space yet.
    #[inline]
    fn make_room(&mut self, sectors: u32, request: &HostRequest, plan: &mut CommandPlan) -> bool {
        let section = &self.sections[self.current];
        if section.log_room(self.release_reserve()) >= sectors {
            return true;
        }
        // If a part of the section must not be used yet (`log_end` is before the end of the section), the request waits for a checkpoint.
        if self.moving.is_over() && section.log_end == section.end() {
            self.switch(request.id, plan);
            return self.sections[self.current].log_room(self.release_reserve()) >= sectors;
        }
        self.pressed = true;
        false
    }
}

impl Layer for Advil {
    fn name(&self) -> &'static str {
        self.name
    }

    fn capacity(&self) -> u64 {
        self.shape.capacity
    }

    fn areas(&self) -> Vec<ReservedArea> {
        vec![self.shape.reserved]
    }

    fn recover(&mut self, disks: &mut dyn RecoveryReader) -> io::Result<()> {
        if self.shape.header == 0 {
            return Err(io::Error::other("this layer was created without recovery; the logged data is lost"));
        }
        self.read_back(disks)
    }

    fn start(&mut self, plan: &mut CommandPlan) {
        self.write_start(plan);
    }

    #[inline]
    fn request(&mut self, request: &HostRequest, _: &[BlockNote], plan: &mut CommandPlan) -> RequestDecision {
        plan.flag(request.modifiers);
        match request.op {
            Op::Read => self.route_read(request, plan),
            Op::Write => self.route_write(request, plan),
            Op::Discard | Op::SecureErase => self.route_discard(request, plan),
            Op::Flush => self.route_flush(request, plan),
        }
    }

    fn completed(&mut self, id: u64) {
        self.journal.completed(id);
    }

    fn background(&mut self, in_flight: &InFlightRequests, plan: &mut CommandPlan) -> BackgroundDecision {
        self.next_move(in_flight, plan)
    }

    fn background_done(&mut self) {
        self.pressed = false;
        if !self.checkpointed() {
            self.step_done();
        }
    }

    fn drain(&mut self) {
        self.moving.drain();
    }

    fn clear_counters(&mut self) {
        // The counters continue, because the mover bases its decisions on them. Only the reported values start again: `counters` subtracts
        // this copy.
        self.cleared = self.counters.clone();
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.counters.since(&self.cleared);
        all.push(("map_entries", self.map.len()));
        all.push(("map_entries_most", self.map.most_runs));
        all.push(("memory_bytes", self.memory_bytes()));
        all.push(("hot_region_pct", u64::from(self.heat.hot_pct)));
        all
    }
}

counters! {
    /// Number of reads for which some data was in the reserved area.
    read_hits,
    /// Bytes of the reads in `read_hits` that came from the reserved area.
    read_hit_bytes,
    /// Small random writes that were logged.
    logged_writes,
    /// Bytes of `logged_writes`.
    logged_bytes,
    /// Bytes written to the log that overwrote older logged data. The older data need not be moved.
    rewritten_bytes,
    /// Writes that went to the original area.
    passed_writes,
    /// Bytes of `passed_writes`.
    passed_bytes,
    /// Bytes of logged data that became obsolete because newer data was written directly to the original area.
    voided_bytes,
    /// Number of times a section became full.
    switches,
    /// Clustered blocks, or parts of them, written back.
    moved_blocks,
    /// Bytes of logged data written back.
    moved_bytes,
    /// Write requests that wrote back logged data.
    move_writes,
    /// Number of writes in `move_writes` that covered whole clustered blocks.
    move_block_writes,
    /// Bytes of `move_block_writes`.
    move_block_bytes,
    /// Number of writes in `move_writes` that covered whole clustered pages, without covering whole clustered blocks.
    move_page_writes,
    /// Bytes of `move_page_writes`.
    move_page_bytes,
    /// Number of all other writes in `move_writes`.
    move_other_writes,
    /// Bytes of `move_other_writes`.
    move_other_bytes,
    /// Bytes of holes that were read and written to fill clustered pages and blocks.
    padded_bytes,
    /// Bytes that were read between two holes and not used.
    read_through_bytes,
    /// Clustered blocks of which all holes were filled.
    filled_blocks,
    /// Clustered pages kept in a hot region.
    hot_pages,
    /// Bytes copied for `hot_pages`.
    hot_bytes,
    /// Log records that contain no data of the host, such as section heads and start records.
    bare_records,
    /// Checkpoints written.
    checkpoints,
    /// Bytes of the checkpoints, including headers.
    checkpoint_bytes,
}

/// One half of the reserved area. Locations are sector numbers, counted from the start of the reserved area.
#[derive(Clone, Debug, Default)]
struct ReservedSection {
    /// First sector of the section, counted from the start of the reserved area.
    pub first: u32,
    pub sectors: u32,
    /// Number of the round in which the section was last opened; 0 if never.
    pub generation: u64,
    /// Sector of the reserved area where the next hot data is stored.
    pub hot_next: u32,
    /// Sector of the reserved area at which the hot region ends and the log region starts.
    pub hot_end: u32,
    /// Sector of the reserved area where the next record is stored.
    pub log_next: u32,
    /// Sector at which records must currently end: the end of the range that recovery reads, or the end of the section.
    pub log_end: u32,
    /// Sectors of log that recovery reads after a checkpoint.
    reach: u32,
}

impl ReservedSection {
    pub fn new(first: u32, sectors: u32, reach: u32) -> Self {
        Self { first, sectors, reach, ..Self::default() }
    }

    pub fn end(&self) -> u32 {
        self.first + self.sectors
    }

    pub fn holds(&self, place: u32) -> bool {
        (self.first..self.end()).contains(&place)
    }

    /// Opens the section for new records. It begins with a header of `header` sectors and a hot region of `hot` sectors; the log follows.
    pub fn open(&mut self, generation: u64, header: u32, hot: u32) {
        self.generation = generation;
        self.hot_next = self.first + header;
        self.hot_end = self.hot_next + hot;
        self.log_next = self.hot_end;
        self.log_end = self.seen_from(self.hot_end);
    }

    /// Returns the end of the range that recovery reads if the range starts at sector `place` of the reserved area.
    pub fn seen_from(&self, place: u32) -> u32 {
        place.saturating_add(self.reach).min(self.end())
    }

    /// Free sectors for records, except the last `kept` sectors, which requests must not use.
    pub fn log_room(&self, kept: u32) -> u32 {
        self.log_end.saturating_sub(self.log_next).saturating_sub(kept)
    }
}
