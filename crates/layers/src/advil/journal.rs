//! What must be written so that the state comes back after a cut of power: ranges that are void, and where starts are
//! counted. Idle without `recovery`.

use emmclab_trace::Op;

use super::Advil;
use super::record::{Body, MOST_VOIDS, Record, Void};
use crate::plan::Plan;

/// Voids that may wait for a flush.
const MOST_WAITING: usize = 12;

/// Voids that are not on disk yet.
#[derive(Clone, Debug)]
pub(super) struct Journal {
    /// Starts of Advil so far.
    pub life: u32,
    pub pending: Vec<Void>,
    /// The request that is writing the first so many of them.
    writing: Option<(u64, usize)>,
    /// Whether there was an earlier life.
    pub recovered: bool,
}

impl Default for Journal {
    fn default() -> Self {
        Self { life: 1, pending: Vec::with_capacity(MOST_VOIDS), writing: None, recovered: false }
    }
}

impl Journal {
    /// A request is complete; voids that it wrote are on disk.
    #[inline]
    pub fn completed(&mut self, id: u64) {
        if let Some((writer, count)) = self.writing
            && writer == id
        {
            self.pending.drain(..count);
            self.writing = None;
        }
    }

    fn push(&mut self, void: Void) {
        // The ones that are being written are counted from the front and stay as they are.
        let fixed = self.writing.map_or(0, |(_, count)| count);
        if let Some(last) = self.pending[fixed..].last_mut()
            && last.generation == void.generation
            && last.through == void.through
            && last.sector + u64::from(last.sectors) == void.sector
            && let Some(sectors) = last.sectors.checked_add(void.sectors)
        {
            last.sectors = sectors;
        } else {
            self.pending.push(void);
        }
    }
}

impl Advil {
    /// A record without data, at the next place of the log.
    pub(super) fn write_bare(&mut self, body: Body<'_>, plan: &mut Plan) {
        let section = &mut self.sections[self.current];
        let place = section.log_next;
        section.log_next += 1;
        let record =
            Record { life: self.journal.life, generation: section.generation, place, sectors: 0, body };
        self.write_record(&record, plan);
    }

    pub(super) fn write_record(&mut self, record: &Record<'_>, plan: &mut Plan) {
        self.counters.bare_records += 1;
        let area = self.shape.reserved;
        plan.begin(area.disk, Op::Write, area.sector + u64::from(record.place));
        plan.record(&record.bytes(), 0);
    }

    /// The head of the current section.
    pub(super) fn write_section(&mut self, plan: &mut Plan) {
        let section = &self.sections[self.current];
        let record = Record {
            life: self.journal.life,
            generation: section.generation,
            place: section.first,
            sectors: 0,
            body: Body::Section { hot: section.hot_end - section.first - self.shape.header },
        };
        self.write_record(&record, plan);
    }

    /// What a new or recovered Advil writes before anything else: records that an earlier life left must never be taken
    /// for those of this one.
    pub(super) fn write_start(&mut self, plan: &mut Plan) {
        if self.shape.header == 0 {
            return;
        }
        let disk = self.shape.reserved.disk;
        let body = Body::Start { capacity: self.shape.capacity, reserved: self.shape.reserved.sectors };
        let life = self.journal.life;
        self.write_record(&Record { life, generation: 0, place: life % 2, sectors: 0, body }, plan);
        if !self.journal.recovered {
            self.write_section(plan);
        }
        plan.wait();
        plan.bare(disk, Op::Flush, 0, 0);
    }

    /// Sectors at the end of a log region that requests leave alone: the release of the section before goes there.
    pub(super) fn kept(&self) -> u32 {
        self.shape.header
    }

    /// Whether a write past the log between two sectors makes records on disk void.
    pub(super) fn voids(&self, sector: u64, end: u64) -> bool {
        self.shape.header > 0 && (!self.map.is_free(sector, end) || self.moving.passed(sector))
    }

    /// Notes that a range is written past the log. Where the voids are full, the caller has made sure of room.
    pub(super) fn void(&mut self, sector: u64, sectors: u32) {
        let section = &self.sections[self.current];
        let through =
            if self.map.is_free(sector, sector + u64::from(sectors)) { 0 } else { section.log_next };
        self.journal.push(Void { sector, sectors, generation: section.generation, through });
    }

    /// Whether there are as many voids as wait for the next flush: the request that adds one writes them.
    pub(super) fn voids_full(&self) -> bool {
        self.journal.pending.len() >= MOST_WAITING
    }

    /// Whether there are more.
    pub(super) fn voids_spill(&self) -> bool {
        self.journal.pending.len() > MOST_WAITING
    }

    /// Sectors that writing the voids takes, with one more.
    pub(super) fn void_sectors(&self) -> u32 {
        (self.journal.pending.len() / MOST_VOIDS) as u32 + 1
    }

    /// Writes the pending voids for a request, once everything before is durable.
    pub(super) fn write_voids(&mut self, id: u64, plan: &mut Plan) {
        let disk = self.shape.reserved.disk;
        plan.wait();
        for voids in self.journal.pending.clone().chunks(MOST_VOIDS) {
            self.write_bare(Body::Voids(voids.to_vec()), plan);
        }
        plan.wait();
        plan.bare(disk, Op::Flush, 0, 0);
        self.journal.writing = Some((id, self.journal.pending.len()));
    }
}
