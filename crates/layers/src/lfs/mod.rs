//! A log-structured block device: data is written to segments sequentially and never in place, as zones require.
//!
//! Blocks of 4 KB are written to one of several logs, according to their number of rewrites. A map in memory stores the location of each
//! block ([`map`]). Changes become durable by *records* in a separate log ([`records`]). A flush flushes the disk and then writes a record
//! of all complete changes. A durable write is a record together with its data, under one checksum. A checkpoint writes the changed pages
//! of the map, each over the older of its two copies, and then writes a pack with the numbers of the valid copies twice. Cleaning moves
//! live blocks of a segment to the cold log. A segment is reset when a durable checkpoint records that it has no live blocks
//! ([`segments`]). After a power cut, recovery starts from the newest pack and applies the records that were written after it
//! ([`recovery`]).
//!
//! Blocks that were never written or were discarded read as zeros. Recovery never restores securely erased data, although its bytes stay in
//! the log until their segment is reset.

mod background;
mod map;
mod records;
mod recovery;
mod segments;
mod settings;

use std::io;

use emmclab_base::{BlockNote, CommandFlags, Op};

use crate::layer::{
    BackgroundDecision, DeferReason, HostRequest, InFlightRequests, Layer, RecoveryReader, RequestDecision, ReservedArea,
};
use crate::plan::{CommandPlan, PlanMemory};
use crate::registry::{LayerKind, counters, read_settings, settings_of};
use background::LfsBackgroundState;
use map::{BlockMap, UnrecordedChanges};
use records::{BYTES, LogRun, NOWHERE, RUNS, SYNC, SyncLog};
use recovery::LfsCheckpointState;
use segments::{OpenSegment, SegmentTable};
use settings::{BLOCK, FOR_CLEANING, LfsParameters, LfsSettings};

pub(crate) const KIND: LayerKind = LayerKind {
    name: "lfs",
    about: "writes a log of segments, as zones require: nothing is written in place, and live data is moved out of old segments",
    build: |table, below| {
        let settings: LfsSettings = read_settings(KIND.name, table)?;
        Ok(Box::new(LfsLayer::new(settings.shape(KIND.name, below)?)))
    },
    settings: settings_of::<LfsSettings>,
};

counters! {
    /// Blocks of 4 KB that requests wrote.
    host_blocks,
    /// Blocks of 4 KB that requests discarded.
    discarded_blocks,
    /// Blocks written to the logs, including those counted in `record_blocks`, `cleaned_blocks` and `padded_blocks`.
    log_blocks,
    /// Blocks of records written to the logs.
    record_blocks,
    cleaned_blocks,
    padded_blocks,
    /// Blocks of the map and of packs that checkpoints wrote.
    checkpoint_blocks,
    /// Number of checkpoints.
    checkpoints,
    /// Blocks that cleaning read.
    cleaning_reads,
    /// Segments that were cleaned while requests waited for space or were about to wait.
    segments_cleaned_in_foreground,
    segments_cleaned_in_background,
    /// Segments that were reset.
    resets,
    /// Records that flushes and durable writes have written.
    records,
    /// Blocks that were read although they had never been written.
    unwritten_blocks,
    /// Writes of part of a block, for which the rest of the block was read first.
    partial_writes,
}

/// Maximum number of changes that are stored for the next flush.
const MOST_PENDING: u32 = 16_384;

struct LfsLayer {
    shape: LfsParameters,
    table: BlockMap,
    segments: SegmentTable,
    /// The open segments of the data logs. The first log receives the blocks that cleaning moves.
    logs: [OpenSegment; 5],
    sync: SyncLog,
    pending: UnrecordedChanges,
    flights: LfsRequestTable,
    checkpoints: LfsCheckpointState,
    work: LfsBackgroundState,
    /// Number of the newest write.
    write: u64,
    /// Segments that must be reset after recovery, before any other work.
    first_resets: Vec<u32>,
    /// Sectors that must be padded because a power cut left their blocks partly written: (first sector, number of sectors).
    first_fills: Vec<(u64, u64)>,
    /// Runs of a record in preparation; the memory is reused.
    runs: Vec<LogRun>,
    counters: LayerCounters,
    /// Values of the counters when they were last reset.
    cleared: LayerCounters,
}

impl LfsLayer {
    /// Creates the layer on new disks.
    fn new(shape: LfsParameters) -> Self {
        // Limits the number of pending map changes, so that the records of these changes take at most a quarter of a segment.
        let most = (shape.segment / 4).max(1).saturating_mul(RUNS as u32 - 1).min(MOST_PENDING);
        Self {
            table: BlockMap::new(shape.blocks),
            segments: SegmentTable::new(shape.segments, shape.segment),
            logs: [OpenSegment::NONE; 5],
            sync: SyncLog::default(),
            pending: UnrecordedChanges::new(most as usize),
            flights: LfsRequestTable::default(),
            checkpoints: LfsCheckpointState::new(shape.pack.pages),
            work: LfsBackgroundState::default(),
            write: 0,
            first_resets: Vec::new(),
            first_fills: Vec::new(),
            runs: Vec::new(),
            counters: LayerCounters::default(),
            cleared: LayerCounters::default(),
            shape,
        }
    }

    /// Maps a block to a new location in the log; `None` unmaps it. The block at the old location becomes invalid.
    fn map(&mut self, block: u32, place: Option<u32>, is_moved: bool) {
        if let Some(old) = self.table.place(block) {
            self.segments.drop_place(old);
        }
        match place {
            Some(place) if is_moved => self.table.relocate(block, place),
            Some(place) => self.table.write(block, place),
            None => self.table.discard(block),
        }
        if let Some(place) = place {
            self.segments.add_live(place);
        }
    }

    /// Whether a log has space for `blocks` blocks in addition to the reserve for cleaning and records.
    fn has_room(&self, head: OpenSegment, blocks: u32) -> bool {
        let more = blocks.saturating_sub(self.segments.room(head)).div_ceil(self.shape.segment);
        more == 0 || more + FOR_CLEANING < self.segments.clean()
    }

    fn read(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> RequestDecision {
        plan.flag(request.modifiers);
        let (first, end) = touched_blocks(request);
        let mut unwritten = false;
        let mut block = first;
        while block < end {
            let place = self.table.place(block);
            let mut blocks = 1;
            while block + blocks < end && self.table.place(block + blocks) == place.map(|place| place + blocks) {
                blocks += 1;
            }
            let (from, to) = sectors_of(request, block, blocks);
            let at = place.unwrap_or(block);
            if place.is_none() {
                self.counters.unwritten_blocks += u64::from(blocks);
                unwritten = true;
            }
            if place.is_some() || self.shape.read_unwritten {
                let sector = self.shape.sector(at) + (from - u64::from(block) * BLOCK);
                plan.payload(0, Op::Read, sector, (from - request.sector) as u32, (to - from) as u32);
            }
            block += blocks;
        }
        if unwritten {
            plan.wait();
            for block in first..end {
                if self.table.place(block).is_none() {
                    let (from, to) = sectors_of(request, block, 1);
                    plan.zeros((PlanMemory::Payload, (from - request.sector) as u32), (to - from) as u32);
                }
            }
        }
        RequestDecision::Run
    }

    fn write(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> RequestDecision {
        let (first, end) = touched_blocks(request);
        // Two writes may change the same block without sharing a sector, so the later one is deferred.
        if self.flights.change(first, end) {
            return RequestDecision::Defer(DeferReason::Overlap);
        }
        if request.modifiers.durable() || request.modifiers.contains(CommandFlags::PREFLUSH) {
            return self.write_durably(request, (first, end), plan);
        }
        let log = 1 + (self.table.heat(first) as usize).min(self.shape.logs - 2);
        let wanted = (end - first).next_multiple_of(self.shape.align);
        if self.flights.lock(log) {
            return RequestDecision::Defer(DeferReason::Overlap);
        }
        if !self.has_room(self.logs[log], wanted) {
            self.work.request_segments(wanted.div_ceil(self.shape.segment));
            return RequestDecision::Defer(DeferReason::Full);
        }
        self.write += 1;
        self.counters.host_blocks += u64::from(end - first);
        let mut flight = self.flights.begin(request.id, RequestEffect::Written, (first, end), self.write);
        let rest = self.plan_remainder(request, plan);
        flight.locks = (rest.is_some() && self.shape.is_zoned).then_some(log);
        let mut head = self.logs[log];
        let mut block = first;
        while block < end {
            if self.segments.room(head) == 0 {
                // A clean segment is available, because `has_room` checked this.
                let Some(next) = self.segments.open() else { break };
                head = next;
            }
            let left = (end - block).next_multiple_of(self.shape.align);
            let taken = left.min(self.segments.room(head));
            let place = self.take(&mut head, taken, &mut flight);
            let data = taken.min(end - block);
            plan.flag(request.modifiers.intersection(CommandFlags::META));
            plan.begin(0, Op::Write, self.shape.sector(place));
            plan_data(request, (block, data), rest.unwrap_or_default(), plan);
            self.pad(taken - data, plan);
            flight.blocks.push((block, place, data));
            self.set_owners(block, place, data);
            block += data;
        }
        self.logs[log] = head;
        self.flights.all.push(flight);
        RequestDecision::Run
    }

    /// Allocates blocks in an open segment for a request. Returns the location of the first one.
    fn take(&mut self, head: &mut OpenSegment, blocks: u32, flight: &mut LfsRequest) -> u32 {
        let place = self.segments.take(head, blocks, self.write);
        flight.allocated.push((place, blocks));
        self.counters.log_blocks += u64::from(blocks);
        self.checkpoints.add_logged(blocks);
        place
    }

    /// Records which blocks are written to the locations from `place` on.
    fn set_owners(&mut self, block: u32, place: u32, blocks: u32) {
        for step in 0..blocks {
            self.segments.set_owner(place + step, block + step);
        }
    }

    /// Extends the last write of the plan by blocks of zeros.
    fn pad(&mut self, blocks: u32, plan: &mut CommandPlan) {
        for _ in 0..blocks {
            plan.metadata(&[0; BYTES]);
        }
        self.counters.padded_blocks += u64::from(blocks);
    }

    /// Plans to read the parts of the first and last block that a write does not cover. The write waits for these reads.
    fn plan_remainder(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> Option<BlockRemainder> {
        let (before, after) = ((request.sector % BLOCK) as u32, request.end() % BLOCK);
        let after = if after == 0 { 0 } else { (BLOCK - after) as u32 };
        if before == 0 && after == 0 {
            return None;
        }
        self.counters.partial_writes += 1;
        plan.flag(CommandFlags::empty());
        let mut rest = BlockRemainder::default();
        let mut reads = false;
        for (to, sector, sectors) in
            [(&mut rest.before, request.sector - u64::from(before), before), (&mut rest.after, request.end(), after)]
        {
            if sectors == 0 {
                continue;
            }
            *to = plan.scratch(sectors);
            if let Some(place) = self.table.place((sector / BLOCK) as u32) {
                plan.begin(0, Op::Read, self.shape.sector(place) + sector % BLOCK);
                plan.piece(PlanMemory::Scratch, *to, sectors);
                reads = true;
            } else {
                plan.zeros((PlanMemory::Scratch, *to), sectors);
            }
        }
        if reads {
            plan.wait();
        }
        Some(rest)
    }

    /// Plans a discard or a secure erase. Blocks that the request covers only in part do not change.
    fn discard(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> RequestDecision {
        let (first, end) = (request.sector.div_ceil(BLOCK) as u32, (request.end() / BLOCK) as u32);
        if first >= end {
            return RequestDecision::Run;
        }
        if self.flights.change(first, end) {
            return RequestDecision::Defer(DeferReason::Overlap);
        }
        let secure = request.op == Op::SecureErase;
        if secure && let Some(why) = self.record_blocked_by(1, 0, true) {
            self.work.request_segments(1);
            return RequestDecision::Defer(why);
        }
        self.write += 1;
        let effect = if secure { RequestEffect::Erased } else { RequestEffect::Discarded };
        let mut flight = self.flights.begin(request.id, effect, (first, end), self.write);
        if secure {
            self.runs.clear();
            self.runs.push(LogRun { block: first, place: NOWHERE, blocks: end - first, write: self.write });
            self.plan_records(None, CommandFlags::RELIABLE, &mut flight, plan);
        }
        self.flights.all.push(flight);
        RequestDecision::Run
    }

    /// Returns the reason why a request must wait before it writes its records; `None` if it need not wait. The records describe `runs`
    /// runs of blocks and `data` blocks of data. `itself` is true for a durable write or a secure erase, because each of them writes its
    /// own records.
    fn record_blocked_by(&self, runs: usize, data: u32, itself: bool) -> Option<DeferReason> {
        if self.flights.lock(SYNC) || itself && self.checkpoints.waits {
            return Some(DeferReason::Overlap);
        }
        self.sync.has_room(&self.segments, runs, data, self.shape.align).err()
    }
}

impl Layer for LfsLayer {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn capacity(&self) -> u64 {
        u64::from(self.shape.blocks) * settings::BLOCK
    }

    fn areas(&self) -> Vec<ReservedArea> {
        vec![ReservedArea { disk: 0, sector: 0, sectors: self.shape.log_sector }]
    }

    fn recover(&mut self, disks: &mut dyn RecoveryReader) -> io::Result<()> {
        self.read_back(disks)
    }

    fn start(&mut self, plan: &mut CommandPlan) {
        self.begin_life(plan);
    }

    fn accepts(&self) -> CommandFlags {
        // The layer implements these flags itself. A durable write needs no flush, because it contains its own map entry and all data is on
        // one disk.
        CommandFlags::DURABLE | CommandFlags::PREFLUSH
    }

    fn request(&mut self, request: &HostRequest, _: &[BlockNote], plan: &mut CommandPlan) -> RequestDecision {
        match request.op {
            Op::Read => self.read(request, plan),
            Op::Write => self.write(request, plan),
            Op::Discard | Op::SecureErase => self.discard(request, plan),
            Op::Flush => self.flush(request, plan),
        }
    }

    /// Called when a request is complete. Applies its changes to the map.
    fn completed(&mut self, id: u64) {
        self.sync.waiting.retain(|(waiting, _)| *waiting != id);
        let Some(flight) = self.flights.take(id) else { return };
        match flight.effect {
            RequestEffect::Written | RequestEffect::Recorded => {
                let recorded = flight.effect == RequestEffect::Recorded;
                for (first, from, blocks) in flight.blocks.iter().copied() {
                    for step in 0..blocks {
                        let (block, place) = (first + step, from + step);
                        self.map(block, Some(place), false);
                        if recorded {
                            self.pending.mark_dead(block);
                        } else {
                            self.pending.change(block, Some(place), flight.write);
                        }
                    }
                }
            }
            RequestEffect::Discarded | RequestEffect::Erased => {
                for block in flight.first..flight.end {
                    if flight.effect == RequestEffect::Erased {
                        self.pending.mark_dead(block);
                    }
                    if self.table.place(block).is_none() {
                        continue;
                    }
                    self.map(block, None, false);
                    self.counters.discarded_blocks += 1;
                    if flight.effect == RequestEffect::Discarded {
                        self.pending.change(block, None, flight.write);
                    }
                }
            }
            RequestEffect::Nothing => {}
        }
        for (place, blocks) in flight.allocated.iter().copied() {
            self.segments.written(place, blocks);
        }
        if let Some((order, segment)) = flight.records {
            self.pending.recorded(order);
            self.sync.confirm(segment);
        }
        self.flights.spare.push(flight);
    }

    fn background(&mut self, in_flight: &InFlightRequests, plan: &mut CommandPlan) -> BackgroundDecision {
        self.next_work(in_flight, plan)
    }

    fn background_done(&mut self) {
        self.work_done();
    }

    fn drain(&mut self) {
        self.checkpoints.want();
    }

    fn clear_counters(&mut self) {
        self.cleared = self.counters.clone();
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.counters.since(&self.cleared);
        let of = |name: &str| all.iter().find(|(key, _)| *key == name).map_or(0, |(_, count)| *count);
        let written = of("log_blocks") + of("checkpoint_blocks");
        all.push(("write_amplification_pct", (written * 100).checked_div(of("host_blocks")).unwrap_or(0)));
        all.push(("mapped_blocks", self.table.mapped));
        all.push(("free_segments", self.segments.free().into()));
        all.push(("memory_bytes", self.table.bytes() + self.segments.bytes() + self.pending.bytes()));
        all
    }
}

/// Offsets, in the plan's buffer, of the parts of the first and last block that a write does not cover.
#[derive(Clone, Copy, Debug, Default)]
struct BlockRemainder {
    before: u32,
    after: u32,
}

/// The blocks that a request overlaps, as (first, end).
fn touched_blocks(request: &HostRequest) -> (u32, u32) {
    ((request.sector / BLOCK) as u32, request.end().div_ceil(BLOCK) as u32)
}

/// Returns the sectors of blocks from `block` on that a request covers, as (first, end).
fn sectors_of(request: &HostRequest, block: u32, blocks: u32) -> (u64, u64) {
    let first = u64::from(block) * BLOCK;
    (first.max(request.sector), (first + u64::from(blocks) * BLOCK).min(request.end()))
}

/// Adds whole blocks of data to the last write of the plan. Sectors that the request does not cover come from the plan's buffer, at the
/// offsets `rest`.
fn plan_data(request: &HostRequest, (block, blocks): (u32, u32), rest: BlockRemainder, plan: &mut CommandPlan) {
    let (first, end) = (u64::from(block) * BLOCK, u64::from(block + blocks) * BLOCK);
    let (from, to) = sectors_of(request, block, blocks);
    if first < from {
        plan.piece(PlanMemory::Scratch, rest.before, (from - first) as u32);
    }
    plan.piece(PlanMemory::Payload, (from - request.sector) as u32, (to - from) as u32);
    if to < end {
        plan.piece(PlanMemory::Scratch, rest.after, (end - to) as u32);
    }
}

/// The change of the map that a request causes when it completes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RequestEffect {
    /// The blocks of the request are mapped to the locations that the request wrote. The next flush records this change.
    #[default]
    Written,
    /// The blocks of the request are mapped to the locations that the request wrote. The request's own record contains this change.
    Recorded,
    /// The blocks of the request are discarded. The next flush records this change.
    Discarded,
    /// The blocks of the request are discarded. The record that the request itself writes contains this change.
    Erased,
    /// The map does not change.
    Nothing,
}

/// Consecutive blocks: (first block, location of the first block in the log, number of blocks).
type Blocks = (u32, u32, u32);

#[derive(Clone, Debug, Default)]
struct LfsRequest {
    pub id: u64,
    pub effect: RequestEffect,
    /// Blocks that the request changes, as (first, end).
    pub first: u32,
    pub end: u32,
    pub write: u64,
    /// The log that is reserved for this request until the request is complete. The request reads data before it writes to the log, so no
    /// other request may write to it.
    pub locks: Option<usize>,
    /// Number of the last map change that is recorded when the request is complete, and sequence number of the segment with the last record
    /// of the request.
    pub records: Option<(u64, u64)>,
    pub blocks: Vec<Blocks>,
    /// Locations in the log that the request writes with data, records or padding: (first location, number of blocks).
    pub allocated: Vec<(u32, u32)>,
}

#[derive(Clone, Debug, Default)]
struct LfsRequestTable {
    all: Vec<LfsRequest>,
    /// Unused entries, which are reused to avoid allocations.
    spare: Vec<LfsRequest>,
}

impl LfsRequestTable {
    /// Creates the entry of a new request, but does not add it to the requests in progress.
    pub fn begin(&mut self, id: u64, effect: RequestEffect, (first, end): (u32, u32), write: u64) -> LfsRequest {
        let mut flight = self.spare.pop().unwrap_or_default();
        flight.blocks.clear();
        flight.allocated.clear();
        LfsRequest { id, effect, first, end, write, locks: None, records: None, ..flight }
    }

    /// Removes and returns a complete request.
    pub fn take(&mut self, id: u64) -> Option<LfsRequest> {
        let place = self.all.iter().position(|flight| flight.id == id)?;
        Some(self.all.swap_remove(place))
    }

    /// Whether a request in progress changes a block in `first..end`.
    pub fn change(&self, first: u32, end: u32) -> bool {
        self.all.iter().any(|flight| flight.first < end && first < flight.end)
    }

    /// Whether a request in progress prevents other requests from writing to a log.
    pub fn lock(&self, log: usize) -> bool {
        self.all.iter().any(|flight| flight.locks == Some(log))
    }
}
