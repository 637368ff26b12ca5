//! What must be written so that the state comes back after a cut of power: ranges that are void, and where starts are
//! counted. Idle without `recovery`.

use emmclab_base::Op;

use super::Advil;
use super::record::{Body, MOST_VOIDS, Record, Void};
use super::settings::Shape;
use crate::plan::Plan;
use crate::request::HostRequest;

/// Voids that may wait for a flush.
const MOST_WAITING: usize = 12;

/// A void that is not on disk yet.
#[derive(Clone, Copy, Debug)]
struct Pending {
    void: Void,
    /// The request past the log that made it; none once that is complete. Before, its data may still be lost, and the void
    /// must not be written.
    from: Option<u64>,
    /// The request that writes it.
    writer: Option<u64>,
}

/// Voids that are not on disk yet.
#[derive(Clone, Debug)]
pub(super) struct Journal {
    /// Starts of Advil so far.
    pub life: u32,
    pending: Vec<Pending>,
    /// The request that is writing the head of the current section.
    pub opener: Option<u64>,
    /// Whether there was an earlier life.
    pub recovered: bool,
}

impl Default for Journal {
    fn default() -> Self {
        Self { life: 1, pending: Vec::with_capacity(MOST_VOIDS), opener: None, recovered: false }
    }
}

impl Journal {
    /// Whether a flush has voids to write.
    pub fn has_voids(&self) -> bool {
        self.pending.iter().any(|pending| pending.from.is_none())
    }

    /// A request is complete: what it wrote is on disk, and voids that it made may be written.
    #[inline]
    pub fn completed(&mut self, id: u64) {
        self.opener = self.opener.filter(|opener| *opener != id);
        if self.pending.is_empty() {
            return;
        }
        self.pending.retain(|pending| pending.writer != Some(id));
        let made = |pending: &Pending| pending.from == Some(id);
        if let Some(place) = self.pending.iter().position(made) {
            self.pending[place].from = None;
            // One after the other they become one.
            if let [.., last, this] = &mut self.pending[..=place]
                && last.from.is_none()
                && last.writer.is_none()
                && last.void.generation == this.void.generation
                && last.void.through == this.void.through
                && last.void.sector + u64::from(last.void.sectors) == this.void.sector
                && let Some(sectors) = last.void.sectors.checked_add(this.void.sectors)
            {
                last.void.sectors = sectors;
                self.pending.remove(place);
            }
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
        let body = self.start_body();
        let life = self.journal.life;
        self.write_record(&Record { life, generation: 0, place: life % 2, sectors: 0, body }, plan);
        if !self.journal.recovered {
            self.write_section(plan);
        }
        plan.wait();
        plan.bare(disk, Op::Flush, 0, 0);
    }

    /// What a start says of the areas.
    pub(super) fn start_body(&self) -> Body<'static> {
        let Shape { capacity, reserved, slot, .. } = self.shape;
        Body::Start { capacity, reserved: reserved.sectors, slot }
    }

    /// Sectors at the end of a log region that requests leave alone: the release of the section before goes there.
    pub(super) fn kept(&self) -> u32 {
        self.shape.header
    }

    /// Whether a write past the log between two sectors makes records on disk void.
    pub(super) fn voids(&self, sector: u64, end: u64) -> bool {
        self.shape.header > 0 && (!self.map.is_free(sector, end) || self.moving.passed(sector))
    }

    /// Notes that a request past the log makes its range void. Where the voids are full, the caller has made sure of room.
    pub(super) fn void(&mut self, &HostRequest { id, sector, sectors, .. }: &HostRequest) {
        let section = &self.sections[self.current];
        let through =
            if self.map.is_free(sector, sector + u64::from(sectors)) { 0 } else { section.log_next };
        let void = Void { sector, sectors, generation: section.generation, through };
        self.journal.pending.push(Pending { void, from: Some(id), writer: None });
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

    /// Writes the voids of complete requests, and those of this one, once everything before is durable.
    pub(super) fn write_voids(&mut self, id: u64, plan: &mut Plan) {
        let disk = self.shape.reserved.disk;
        plan.wait();
        let mut voids = Vec::with_capacity(self.journal.pending.len());
        for pending in &mut self.journal.pending {
            if pending.from.is_none_or(|from| from == id) {
                pending.writer = Some(id);
                voids.push(pending.void);
            }
        }
        for voids in voids.chunks(MOST_VOIDS) {
            self.write_bare(Body::Voids(voids.to_vec()), plan);
        }
        plan.wait();
        plan.bare(disk, Op::Flush, 0, 0);
    }
}
