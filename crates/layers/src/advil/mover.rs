//! The mover: empties the previous section in the background, and fills holes (padding).
//!
//! The mover first copies hot clustered pages to the hot region of the current section. Then it writes the other data to the original area,
//! one clustered block after the other in ascending order, and releases the section. Until a copy is complete, the map refers to the old
//! location of the data. Draining empties both sections, including hot data.

use emmclab_base::Op;

use super::Advil;
use super::heat::HotPageCandidate;
use super::records::{AdvilRecord, AdvilRecordBody, MOST_RUNS};
use super::settings::HotPolicy;
use crate::interval_map::LoggedExtent;
use crate::layer::{BackgroundDecision, InFlightRequests};
use crate::plan::{CommandPlan, PlanMemory};

/// Request number of background work; no request of the host has this number.
const BACKGROUND: u64 = 0;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum MoverPhase {
    /// Nothing is being moved: the section that is not being filled is free.
    #[default]
    Over,
    /// Hot pages are being copied to the current section; the value is the number of pages copied so far.
    Hot(usize),
    /// Clustered blocks are being written back; the value is the next sector of the original area.
    Evict(u64),
    /// All data is moved. The section is not free yet, because requests up to this number may still read it; `None` = number not known yet.
    Settle(Option<u64>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MoverStep {
    /// Copies hot pages up to this index.
    Hot(usize),
    /// Writes the header of the section that was just opened. The full section can then be emptied.
    Open,
    /// Writes back the clustered block between two sectors.
    Evict(u64, u64),
    Release,
}

#[derive(Clone, Debug, Default)]
pub(super) struct MoverState {
    pub phase: MoverPhase,
    /// Kind of step that the current plan executes.
    step: Option<MoverStep>,
    hot: Vec<HotPageCandidate>,
    /// Copies of the current step: source, and first sector of the copy in the reserved area.
    copies: Vec<(LoggedExtent, u32)>,
    /// Buffer for runs, which is reused to avoid allocations.
    pub runs: Vec<LoggedExtent>,
    relocated: Vec<LoggedExtent>,
    /// Total bytes moved and total bytes logged at the time when the last section became full.
    switch_totals: (u64, u64),
    /// Whether all data is to be moved, including hot data.
    draining: bool,
}

impl MoverState {
    /// Whether the section that is not being filled is free.
    pub fn is_over(&self) -> bool {
        self.phase == MoverPhase::Over
    }

    /// Whether the current step of the mover writes to any of the sectors `sector..end` at their own addresses, outside of the log.
    pub fn writes(&self, sector: u64, end: u64) -> bool {
        matches!(self.step, Some(MoverStep::Evict(first, last)) if first < end && sector < last)
    }

    /// Whether data at or after `sector` may already have been moved although its log records are not released yet.
    pub fn may_be_moved(&self, sector: u64) -> bool {
        match self.phase {
            MoverPhase::Over | MoverPhase::Hot(_) => false,
            MoverPhase::Evict(next) => sector < next,
            MoverPhase::Settle(_) => true,
        }
    }

    /// Starts draining: moves all logged data, until nothing is logged.
    pub fn drain(&mut self) {
        self.draining = true;
    }
}

impl Advil {
    /// Opens the free section for a request, and starts to empty the full section.
    pub(super) fn switch(&mut self, request: u64, plan: &mut CommandPlan) {
        let full = &self.sections[self.current];
        let candidates = self.candidates(full.first, full.end());
        let (sectors, generation) = (full.sectors, full.generation + 1);
        let cost = self.cost();
        let (hot, region) = self.heat.choose(candidates, sectors, cost);
        self.current = 1 - self.current;
        self.sections[self.current].open(generation, self.shape.header, region);
        self.moving.hot = hot;
        self.moving.phase = MoverPhase::Hot(0);
        self.counters.switches += 1;
        if self.shape.header > 0 {
            self.journal.opener = Some(request);
            self.write_section(plan);
        }
    }

    /// Whether draining continues. It ends when nothing is logged.
    fn is_draining(&mut self) -> bool {
        self.moving.draining &= self.map.len() > 0;
        self.moving.draining
    }

    /// Switches to the other section, which is free. Then the previous section can be emptied before it is full. Returns whether steps were
    /// added to `plan`.
    fn open_to_drain(&mut self, plan: &mut CommandPlan) -> bool {
        let generation = self.sections[self.current].generation + 1;
        self.current = 1 - self.current;
        self.sections[self.current].open(generation, self.shape.header, 0);
        self.moving.phase = MoverPhase::Evict(0);
        if self.shape.header == 0 {
            return false;
        }
        // This step writes the head of the section. A flush that arrives during the step writes the head, too.
        self.journal.opener = Some(BACKGROUND);
        self.write_section(plan);
        self.moving.step = Some(MoverStep::Open);
        true
    }

    /// Returns the bytes that background moves read and wrote for each KB logged, since the sections were last switched.
    fn cost(&mut self) -> u64 {
        let counts = &self.counters;
        let work = 2 * (counts.moved_bytes + counts.padded_bytes + counts.hot_bytes);
        let (work_before, logged_before) = std::mem::replace(&mut self.moving.switch_totals, (work, counts.logged_bytes));
        (work - work_before) * 1024 / (self.moving.switch_totals.1 - logged_before).max(1)
    }

    /// Returns the clustered pages that have data in a section.
    fn candidates(&self, first: u32, end: u32) -> Vec<HotPageCandidate> {
        let mut candidates: Vec<HotPageCandidate> = Vec::new();
        if self.heat.policy == HotPolicy::None {
            return candidates;
        }
        let page_sectors = u64::from(self.shape.page);
        let header = self.shape.header;
        for run in self.map.between(0, self.shape.capacity) {
            if !(first..end).contains(&run.place) {
                continue;
            }
            let mut at = run.sector;
            while at < run.end() {
                let page = (at / page_sectors) as u32;
                let next = run.end().min((u64::from(page) + 1) * page_sectors);
                // Counts one header for each run, as if each run were stored in its own record.
                let sectors = (next - at) as u32 + header;
                match candidates.last_mut() {
                    Some(last) if last.page == page => last.sectors += sectors,
                    _ => candidates.push(HotPageCandidate { page, sectors }),
                }
                at = next;
            }
        }
        candidates
    }

    pub(super) fn next_move(&mut self, in_flight: &InFlightRequests, plan: &mut CommandPlan) -> BackgroundDecision {
        let checkpoint = self.checkpoint_due();
        if self.moving.phase == MoverPhase::Over && !checkpoint && !self.is_draining() {
            return BackgroundDecision::None;
        }
        if self.shape.idle_only && !self.pressed && !in_flight.is_empty() {
            return BackgroundDecision::Later;
        }
        if checkpoint {
            return self.checkpoint(in_flight, plan);
        }
        loop {
            match self.moving.phase {
                MoverPhase::Over => {
                    if !self.is_draining() {
                        return BackgroundDecision::None;
                    }
                    if self.open_to_drain(plan) {
                        return BackgroundDecision::Run;
                    }
                }
                MoverPhase::Hot(_) if self.moving.draining => self.moving.phase = MoverPhase::Evict(0),
                MoverPhase::Hot(done) if done >= self.moving.hot.len() => {
                    self.moving.phase = MoverPhase::Evict(0);
                }
                MoverPhase::Hot(done) => return self.copy_hot(done, in_flight, plan),
                MoverPhase::Evict(from) => {
                    let Some((first, end)) = self.next_block(from) else {
                        self.moving.phase = MoverPhase::Settle(None);
                        continue;
                    };
                    if in_flight.changes(first, end) {
                        return BackgroundDecision::Later;
                    }
                    self.moving.step = Some(MoverStep::Evict(first, end));
                    self.fill(first, end, plan);
                    return BackgroundDecision::Run;
                }
                MoverPhase::Settle(None) => {
                    self.moving.phase = MoverPhase::Settle(in_flight.newest().or(Some(0)));
                }
                MoverPhase::Settle(Some(newest)) if in_flight.oldest().is_some_and(|oldest| oldest <= newest) => {
                    return BackgroundDecision::Later;
                }
                MoverPhase::Settle(Some(_)) if self.shape.header == 0 => self.moving.phase = MoverPhase::Over,
                MoverPhase::Settle(Some(_)) => {
                    self.moving.step = Some(MoverStep::Release);
                    self.release(plan);
                    return BackgroundDecision::Run;
                }
            }
        }
    }

    /// Called when a step is complete. The map then refers to the new places of the moved data.
    pub(super) fn step_done(&mut self) {
        match self.moving.step.take() {
            None => {}
            Some(MoverStep::Hot(done)) => {
                let Self { map, moving, .. } = self;
                for (from, to) in moving.copies.drain(..) {
                    map.relocate(&from, to, &mut moving.relocated);
                }
                moving.phase = MoverPhase::Hot(done);
            }
            Some(MoverStep::Open) => {
                self.journal.opener = self.journal.opener.filter(|opener| *opener != BACKGROUND);
            }
            Some(MoverStep::Evict(first, end)) => {
                let before = &self.sections[1 - self.current];
                self.map.remove(first, end, |run| before.holds(run.place));
                self.moving.phase = MoverPhase::Evict(end);
            }
            Some(MoverStep::Release) => self.moving.phase = MoverPhase::Over,
        }
    }

    /// Plans the next copy of hot pages, about as much data as a clustered block.
    fn copy_hot(&mut self, done: usize, in_flight: &InFlightRequests, plan: &mut CommandPlan) -> BackgroundDecision {
        let page_sectors = u64::from(self.shape.page);
        let area = self.shape.reserved;
        let before = self.sections[1 - self.current].clone();
        let mut next = done;
        let mut gathered = 0;
        let mut runs = std::mem::take(&mut self.moving.runs);
        runs.clear();
        while let Some(candidate) = self.moving.hot.get(next) {
            let first = u64::from(candidate.page) * page_sectors;
            let end = (first + page_sectors).min(self.shape.capacity);
            if gathered + candidate.sectors > self.shape.block.max(candidate.sectors) {
                break;
            }
            if in_flight.changes(first, end) {
                if next == done {
                    self.moving.runs = runs;
                    return BackgroundDecision::Later;
                }
                break;
            }
            runs.extend(self.map.between(first, end).filter(|run| before.holds(run.place)));
            gathered += candidate.sectors;
            next += 1;
            self.counters.hot_pages += 1;
        }
        // The hot pages are copied through a buffer. Reads are planned in the order of addresses in the log, and writes in the order in
        // which the pages were chosen.
        let scratch = plan.scratch(runs.iter().map(|run| run.sectors).sum());
        let mut offset = scratch;
        let mut reads: Vec<(LoggedExtent, u32)> = Vec::with_capacity(runs.len());
        for run in &runs {
            reads.push((*run, offset));
            offset += run.sectors;
        }
        self.read_runs(&mut reads, plan);
        plan.wait();
        let section = &mut self.sections[self.current];
        let mut offset = scratch;
        let mut place = section.hot_next;
        if !runs.is_empty() {
            plan.begin(area.disk, Op::Write, area.sector + u64::from(place));
        }
        for group in runs.chunks(MOST_RUNS) {
            let sectors = group.iter().map(|run| run.sectors).sum();
            if self.shape.header > 0 {
                let record = AdvilRecord {
                    epoch: self.journal.epoch,
                    generation: section.generation,
                    place,
                    sectors,
                    body: AdvilRecordBody::Data(group.iter().map(|run| (run.sector, run.sectors)).collect()),
                };
                plan.record(&record.bytes(), sectors);
                place += 1;
            }
            for run in group {
                plan.piece(PlanMemory::Scratch, offset, run.sectors);
                self.moving.copies.push((*run, place));
                offset += run.sectors;
                place += run.sectors;
            }
        }
        section.hot_next = place;
        self.counters.hot_bytes += u64::from(offset - scratch) * 512;
        self.moving.runs = runs;
        self.moving.step = Some(MoverStep::Hot(next));
        BackgroundDecision::Run
    }

    /// Returns the first sector and the end of the next clustered block that has data in the previous section. The end is at most the
    /// capacity.
    fn next_block(&self, from: u64) -> Option<(u64, u64)> {
        let before = &self.sections[1 - self.current];
        let run = self.map.between(from, self.shape.capacity).find(|run| before.holds(run.place))?;
        let block = u64::from(self.shape.block);
        let first = run.sector / block * block;
        Some((first, (first + block).min(self.shape.capacity)))
    }

    /// Plans to release all records of earlier sections, after their data is durable elsewhere.
    fn release(&mut self, plan: &mut CommandPlan) {
        let disk = self.shape.reserved.disk;
        plan.bare(0, Op::Flush, 0, 0);
        if disk != 0 {
            plan.bare(disk, Op::Flush, 0, 0);
        }
        plan.wait();
        let through = self.sections[self.current].generation - 1;
        self.write_bare(AdvilRecordBody::Released { through }, plan);
        plan.wait();
        plan.bare(disk, Op::Flush, 0, 0);
    }

    /// Plans to move data from the log to its own addresses: the data of the clustered block `first..end` that is logged in the previous
    /// section.
    pub(super) fn fill(&mut self, first: u64, end: u64, plan: &mut CommandPlan) {
        let before = &self.sections[1 - self.current];
        let mut runs = std::mem::take(&mut self.moving.runs);
        runs.clear();
        runs.extend(self.map.between(first, end).filter(|run| before.holds(run.place)));
        let filled = self.shape.fill_over.is_some_and(|over| self.dirty_pages(&runs) > over);
        // Runs of sectors that are written with one command each: first sector, end, and offset in the plan's buffer.
        let mut writes: Vec<(u64, u64, u32)> = Vec::new();
        let mut reads: Vec<(LoggedExtent, u32)> = Vec::with_capacity(runs.len());
        let page = u64::from(self.shape.page);
        let mut dirty = 0;
        for run in &runs {
            let (from, to) = if filled {
                (first, end)
            } else if self.shape.page_padding {
                (run.sector / page * page, (run.end().div_ceil(page) * page).min(end))
            } else {
                (run.sector, run.end())
            };
            match writes.last_mut() {
                // The previous run may already have added this clustered page.
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => writes.push((from, to, 0)),
            }
            dirty += u64::from(run.sectors);
        }
        let mut holes: Vec<(u64, u64)> = Vec::new();
        let mut next = runs.iter().peekable();
        for (from, to, offset) in &mut writes {
            *offset = plan.scratch((*to - *from) as u32);
            let mut at = *from;
            while let Some(run) = next.next_if(|run| run.sector < *to) {
                if at < run.sector {
                    holes.push((at, run.sector));
                }
                reads.push((*run, *offset + (run.sector - *from) as u32));
                at = run.end();
            }
            if at < *to {
                holes.push((at, *to));
            }
        }
        let mut padded = 0;
        let most = u64::from(self.shape.read_through);
        // Buffer range for the data between two holes. The data is read only so that a single command reads both holes.
        let mut unused = None;
        let mut last_end = None;
        for (from, to) in holes {
            let home = writes.iter().find(|(first, end, _)| (*first..*end).contains(&from));
            let Some((first, _, offset)) = home else { continue };
            match last_end.map(|end| from - end).filter(|between| *between <= most) {
                None => plan.begin(0, Op::Read, from),
                Some(between) => {
                    let unused = *unused.get_or_insert_with(|| plan.scratch(self.shape.read_through));
                    plan.piece(PlanMemory::Scratch, unused, between as u32);
                    self.counters.read_through_bytes += between * 512;
                }
            }
            last_end = Some(to);
            plan.piece(PlanMemory::Scratch, offset + (from - first) as u32, (to - from) as u32);
            padded += to - from;
        }
        self.read_runs(&mut reads, plan);
        plan.wait();
        for (from, to, offset) in &writes {
            plan.begin(0, Op::Write, *from);
            plan.piece(PlanMemory::Scratch, *offset, (to - from) as u32);
            self.count_write(*from, *to);
        }
        self.counters.moved_blocks += 1;
        self.counters.filled_blocks += u64::from(filled);
        self.counters.moved_bytes += dirty * 512;
        self.counters.move_writes += writes.len() as u64;
        self.counters.padded_bytes += padded * 512;
        self.moving.runs = runs;
    }

    /// Counts a write of moved data by its alignment: to clustered blocks, to clustered pages, or to neither.
    fn count_write(&mut self, from: u64, to: u64) {
        let whole = |size: u32| from.is_multiple_of(u64::from(size)) && to.is_multiple_of(u64::from(size));
        let counts = &mut self.counters;
        let (writes, bytes) = if whole(self.shape.block) {
            (&mut counts.move_block_writes, &mut counts.move_block_bytes)
        } else if whole(self.shape.page) {
            (&mut counts.move_page_writes, &mut counts.move_page_bytes)
        } else {
            (&mut counts.move_other_writes, &mut counts.move_other_bytes)
        };
        *writes += 1;
        *bytes += (to - from) * 512;
    }

    /// Plans to read logged runs in the order of their location in the log. Runs that are adjacent in the log are read with a single
    /// command.
    pub(super) fn read_runs(&self, reads: &mut [(LoggedExtent, u32)], plan: &mut CommandPlan) {
        reads.sort_unstable_by_key(|(run, _)| run.place);
        let area = self.shape.reserved;
        let mut next = None;
        for (run, offset) in reads {
            if next != Some(run.place) {
                plan.begin(area.disk, Op::Read, area.sector + u64::from(run.place));
            }
            plan.piece(PlanMemory::Scratch, *offset, run.sectors);
            next = Some(run.place + run.sectors);
        }
    }

    /// Number of clustered pages that the runs of a block overlap.
    fn dirty_pages(&self, runs: &[LoggedExtent]) -> u32 {
        let page = u64::from(self.shape.page);
        let mut count = 0;
        let mut next = 0;
        for run in runs {
            let from = (run.sector / page).max(next);
            next = run.end().div_ceil(page).max(next);
            count += (next - from.min(next)) as u32;
        }
        count
    }
}
