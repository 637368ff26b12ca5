//! The mover: empties the previous section in the background.
//!
//! It first copies hot clustered pages to the hot region of the current section. It then writes the other data to the original
//! area, one clustered block after the other in ascending order, and releases the section. The map refers to the old place of moved
//! data until the new copy is complete. Draining empties both sections, hot data included.

use emmclab_base::Op;

use super::Advil;
use super::heat::Candidate;
use super::record::{Body, MOST_RUNS, Record};
use crate::in_flight::InFlight;
use crate::interval_map::Extent;
use crate::layer::Background;
use crate::plan::{Memory, Plan};

/// The request number of background work; no request of the host has it.
const BACKGROUND: u64 = 0;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// The other section is free.
    #[default]
    Over,
    /// Hot pages are being copied; this many are copied.
    Hot(usize),
    /// Blocks are being moved, from this sector on.
    Evict(u64),
    /// Everything is moved; requests up to this number, once it is known, may still read the section.
    Settle(Option<u64>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Copies hot pages, up to this index.
    Hot(usize),
    /// Writes the head of the section that was opened so that the other one can be emptied.
    Open,
    /// Writes back the clustered block between two sectors.
    Evict(u64, u64),
    Release,
}

/// State of the mover.
#[derive(Clone, Debug, Default)]
pub(super) struct Moving {
    phase: Phase,
    /// The purpose of the current plan.
    step: Option<Step>,
    hot: Vec<Candidate>,
    /// Copies made by the current step: the source, and the place of the copy.
    copies: Vec<(Extent, u32)>,
    /// Buffers that are kept to reuse their memory.
    pub runs: Vec<Extent>,
    relocated: Vec<Extent>,
    /// Bytes moved and logged until the last switch.
    counted: (u64, u64),
    /// Whether everything is to be moved, hot data too.
    draining: bool,
}

impl Moving {
    /// Whether the other section is free.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Whether the step in progress writes between two sectors of the original area.
    pub fn writes(&self, sector: u64, end: u64) -> bool {
        matches!(self.step, Some(Step::Evict(first, last)) if first < end && sector < last)
    }

    /// Whether hot pages are still to be copied.
    pub fn copies_hot(&self) -> bool {
        matches!(self.phase, Phase::Hot(_))
    }

    /// Whether a block at or after this sector may have been moved whose records are not released yet.
    pub fn passed(&self, sector: u64) -> bool {
        match self.phase {
            Phase::Over | Phase::Hot(_) => false,
            Phase::Evict(next) => sector < next,
            Phase::Settle(_) => true,
        }
    }

    /// Starts draining: all logged data is moved, until nothing is logged.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Continues after a power cut: the previous section is emptied without copying hot pages.
    pub fn resume(&mut self) {
        self.phase = Phase::Evict(0);
    }
}

impl Advil {
    /// Opens the other section, which is free, for a request, and starts to empty the full one.
    pub(super) fn switch(&mut self, request: u64, plan: &mut Plan) {
        let full = &self.sections[self.current];
        let candidates = self.candidates(full.first, full.end());
        let (sectors, generation) = (full.sectors, full.generation + 1);
        let cost = self.cost();
        let (hot, region) = self.heat.choose(candidates, sectors, cost);
        self.current = 1 - self.current;
        self.sections[self.current].open(generation, self.shape.header, region);
        self.moving.hot = hot;
        self.moving.phase = Phase::Hot(0);
        self.counters.switches += 1;
        if self.shape.header > 0 {
            self.journal.opener = Some(request);
            self.write_section(plan);
        }
    }

    /// Whether draining continues; it ends when nothing is logged.
    fn drains(&mut self) -> bool {
        self.moving.draining &= self.map.len() > 0;
        self.moving.draining
    }

    /// Opens the other section, which is free, so that the current one can be emptied before it is full. Returns whether the plan
    /// has to run.
    fn open_to_drain(&mut self, plan: &mut Plan) -> bool {
        let generation = self.sections[self.current].generation + 1;
        self.current = 1 - self.current;
        self.sections[self.current].open(generation, self.shape.header, 0);
        self.moving.phase = Phase::Evict(0);
        if self.shape.header == 0 {
            return false;
        }
        // A flush that arrives in the meantime writes the head, too.
        self.journal.opener = Some(BACKGROUND);
        self.write_section(plan);
        self.moving.step = Some(Step::Open);
        true
    }

    /// Bytes that the mover read and wrote since the last switch for each KB logged.
    fn cost(&mut self) -> u64 {
        let counts = &self.counters;
        let work = 2 * (counts.moved_bytes + counts.padded_bytes + counts.hot_bytes);
        let (work_before, logged_before) =
            std::mem::replace(&mut self.moving.counted, (work, counts.logged_bytes));
        (work - work_before) * 1024 / (self.moving.counted.1 - logged_before).max(1)
    }

    /// Returns the clustered pages that have data in a section.
    fn candidates(&self, first: u32, end: u32) -> Vec<Candidate> {
        let mut candidates: Vec<Candidate> = Vec::new();
        if !self.heat.keeps() {
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
                // Counts headers as if every run had its own record.
                let sectors = (next - at) as u32 + header;
                match candidates.last_mut() {
                    Some(last) if last.page == page => last.sectors += sectors,
                    _ => candidates.push(Candidate { page, sectors }),
                }
                at = next;
            }
        }
        candidates
    }

    /// Plans the next step.
    pub(super) fn next_move(&mut self, in_flight: &InFlight, plan: &mut Plan) -> Background {
        let checkpoint = self.checkpoint_due();
        if self.moving.phase == Phase::Over && !checkpoint && !self.drains() {
            return Background::None;
        }
        if self.shape.idle_only && !self.pressed && !in_flight.is_empty() {
            return Background::Later;
        }
        if checkpoint {
            return self.checkpoint(in_flight, plan);
        }
        loop {
            match self.moving.phase {
                Phase::Over => {
                    if !self.drains() {
                        return Background::None;
                    }
                    if self.open_to_drain(plan) {
                        return Background::Run;
                    }
                }
                Phase::Hot(_) if self.moving.draining => self.moving.phase = Phase::Evict(0),
                Phase::Hot(done) if done >= self.moving.hot.len() => self.moving.phase = Phase::Evict(0),
                Phase::Hot(done) => return self.copy_hot(done, in_flight, plan),
                Phase::Evict(from) => {
                    let Some((first, end)) = self.next_block(from) else {
                        self.moving.phase = Phase::Settle(None);
                        continue;
                    };
                    if in_flight.changes(first, end) {
                        return Background::Later;
                    }
                    self.moving.step = Some(Step::Evict(first, end));
                    self.fill(first, end, plan);
                    return Background::Run;
                }
                Phase::Settle(None) => self.moving.phase = Phase::Settle(in_flight.newest().or(Some(0))),
                Phase::Settle(Some(newest)) if in_flight.oldest().is_some_and(|oldest| oldest <= newest) => {
                    return Background::Later;
                }
                Phase::Settle(Some(_)) if self.shape.header == 0 => self.moving.phase = Phase::Over,
                Phase::Settle(Some(_)) => {
                    self.moving.step = Some(Step::Release);
                    self.release(plan);
                    return Background::Run;
                }
            }
        }
    }

    /// Called when a step is complete: the map now refers to the new places of the moved data.
    pub(super) fn moved(&mut self) {
        match self.moving.step.take() {
            None => {}
            Some(Step::Hot(done)) => {
                let Self { map, moving, .. } = self;
                for (from, to) in moving.copies.drain(..) {
                    map.relocate(&from, to, &mut moving.relocated);
                }
                moving.phase = Phase::Hot(done);
            }
            Some(Step::Open) => {
                self.journal.opener = self.journal.opener.filter(|opener| *opener != BACKGROUND);
            }
            Some(Step::Evict(first, end)) => {
                let before = &self.sections[1 - self.current];
                self.map.remove(first, end, |run| before.holds(run.place));
                self.moving.phase = Phase::Evict(end);
            }
            Some(Step::Release) => self.moving.phase = Phase::Over,
        }
    }

    /// Plans to copy hot pages, about one clustered block of them.
    fn copy_hot(&mut self, done: usize, in_flight: &InFlight, plan: &mut Plan) -> Background {
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
                    return Background::Later;
                }
                break;
            }
            runs.extend(self.map.between(first, end).filter(|run| before.holds(run.place)));
            gathered += candidate.sectors;
            next += 1;
            self.counters.hot_pages += 1;
        }
        // Reads are in the order of their places, writes in the order in which the pages were chosen.
        let scratch = plan.scratch(runs.iter().map(|run| run.sectors).sum());
        let mut offset = scratch;
        let mut reads: Vec<(Extent, u32)> = Vec::with_capacity(runs.len());
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
                let record = Record {
                    epoch: self.journal.epoch,
                    generation: section.generation,
                    place,
                    sectors,
                    body: Body::Data(group.iter().map(|run| (run.sector, run.sectors)).collect()),
                };
                plan.record(&record.bytes(), sectors);
                place += 1;
            }
            for run in group {
                plan.piece(Memory::Scratch, offset, run.sectors);
                self.moving.copies.push((*run, place));
                offset += run.sectors;
                place += run.sectors;
            }
        }
        section.hot_next = place;
        self.counters.hot_bytes += u64::from(offset - scratch) * 512;
        self.moving.runs = runs;
        self.moving.step = Some(Step::Hot(next));
        Background::Run
    }

    /// Returns the next clustered block with data in the previous section, cut to the original area.
    fn next_block(&self, from: u64) -> Option<(u64, u64)> {
        let before = &self.sections[1 - self.current];
        let run = self.map.between(from, self.shape.capacity).find(|run| before.holds(run.place))?;
        let block = u64::from(self.shape.block);
        let first = run.sector / block * block;
        Some((first, (first + block).min(self.shape.capacity)))
    }

    /// Plans to release all records of earlier sections, after their data is durable elsewhere.
    fn release(&mut self, plan: &mut Plan) {
        let disk = self.shape.reserved.disk;
        plan.bare(0, Op::Flush, 0, 0);
        if disk != 0 {
            plan.bare(disk, Op::Flush, 0, 0);
        }
        plan.wait();
        let through = self.sections[self.current].generation - 1;
        self.write_bare(Body::Released { through }, plan);
        plan.wait();
        plan.bare(disk, Op::Flush, 0, 0);
    }
}
