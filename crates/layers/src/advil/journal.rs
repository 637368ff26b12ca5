//! Records that recovery needs in addition to logged data: section heads, start records, and tombstones for ranges that are no
//! longer logged. Nothing is written without the setting `recovery`.

use emmclab_base::Op;

use super::Advil;
use super::record::{AdvilRecord, AdvilRecordBody, MOST_TOMBSTONES, Tombstone};
use super::settings::AdvilParameters;
use crate::plan::CommandPlan;
use crate::request::HostRequest;

/// Maximum number of tombstones that may wait for the next flush.
const MOST_WAITING: usize = 12;

/// A tombstone that is not on disk yet.
#[derive(Clone, Copy, Debug)]
struct PendingTombstone {
    tombstone: Tombstone,
    /// The request that wrote to the original area and so made the tombstone; `None` once that is complete. Until then its data may
    /// still be lost, so the tombstone must not be written.
    from: Option<u64>,
    /// The request that writes the tombstone to the log, if one does.
    writer: Option<u64>,
}

/// The tombstones that are not on disk yet, and the count of starts.
#[derive(Clone, Debug)]
pub(super) struct AdvilJournal {
    /// Starts of Advil so far.
    pub epoch: u32,
    pending: Vec<PendingTombstone>,
    /// The request that is writing the head of the current section.
    pub opener: Option<u64>,
    /// Whether the state was recovered from an earlier epoch.
    pub recovered: bool,
}

impl Default for AdvilJournal {
    fn default() -> Self {
        Self { epoch: 1, pending: Vec::with_capacity(MOST_TOMBSTONES), opener: None, recovered: false }
    }
}

impl AdvilJournal {
    /// Whether a flush must write tombstones.
    pub fn has_tombstones(&self) -> bool {
        self.pending.iter().any(|pending| pending.from.is_none())
    }

    /// Called when a request is complete: the tombstones that it wrote are removed, and the tombstones that it made may be written.
    #[inline]
    pub fn completed(&mut self, id: u64) {
        self.opener = self.opener.filter(|opener| *opener != id);
        if self.pending.is_empty() {
            return;
        }
        self.pending.retain(|pending| pending.writer != Some(id));
        let made = |pending: &PendingTombstone| pending.from == Some(id);
        if let Some(place) = self.pending.iter().position(made) {
            self.pending[place].from = None;
            // Tombstones of adjacent ranges are joined.
            if let [.., last, this] = &mut self.pending[..=place]
                && last.from.is_none()
                && last.writer.is_none()
                && last.tombstone.generation == this.tombstone.generation
                && last.tombstone.through == this.tombstone.through
                && last.tombstone.sector + u64::from(last.tombstone.sectors) == this.tombstone.sector
                && let Some(sectors) = last.tombstone.sectors.checked_add(this.tombstone.sectors)
            {
                last.tombstone.sectors = sectors;
                self.pending.remove(place);
            }
        }
    }
}

impl Advil {
    /// Writes a record without data at the next place of the log.
    pub(super) fn write_bare(&mut self, body: AdvilRecordBody<'_>, plan: &mut CommandPlan) {
        let section = &mut self.sections[self.current];
        let place = section.log_next;
        section.log_next += 1;
        let record = AdvilRecord { epoch: self.journal.epoch, generation: section.generation, place, sectors: 0, body };
        self.write_record(&record, plan);
    }

    pub(super) fn write_record(&mut self, record: &AdvilRecord<'_>, plan: &mut CommandPlan) {
        self.counters.bare_records += 1;
        let area = self.shape.reserved;
        plan.begin(area.disk, Op::Write, area.sector + u64::from(record.place));
        plan.record(&record.bytes(), 0);
    }

    /// Writes the head of the current section.
    pub(super) fn write_section(&mut self, plan: &mut CommandPlan) {
        let section = &self.sections[self.current];
        let record = AdvilRecord {
            epoch: self.journal.epoch,
            generation: section.generation,
            place: section.first,
            sectors: 0,
            body: AdvilRecordBody::Section { hot: section.hot_end - section.first - self.shape.header },
        };
        self.write_record(&record, plan);
    }

    /// Writes the start record before anything else. Its epoch is new, so that recovery never mistakes records of an earlier epoch
    /// for records of this one.
    pub(super) fn write_start(&mut self, plan: &mut CommandPlan) {
        if self.shape.header == 0 {
            return;
        }
        let disk = self.shape.reserved.disk;
        let body = self.start_body();
        let epoch = self.journal.epoch;
        self.write_record(&AdvilRecord { epoch, generation: 0, place: epoch % 2, sectors: 0, body }, plan);
        if !self.journal.recovered {
            self.write_section(plan);
        }
        plan.wait();
        plan.bare(disk, Op::Flush, 0, 0);
    }

    /// The body of a start record.
    pub(super) fn start_body(&self) -> AdvilRecordBody<'static> {
        let AdvilParameters { capacity, reserved, slot, .. } = self.shape;
        AdvilRecordBody::Start { capacity, reserved: reserved.sectors, slot }
    }

    /// Sectors at the end of a log region that requests must not use: they are for the record that releases the previous section.
    pub(super) fn release_reserve(&self) -> u32 {
        self.shape.header
    }

    /// Whether a write to the original area leaves stale records of this range on disk.
    pub(super) fn needs_tombstone(&self, sector: u64, end: u64) -> bool {
        self.shape.header > 0 && (!self.map.is_free(sector, end) || self.moving.may_be_moved(sector))
    }

    /// Adds a tombstone for the range of a request to the original area. If the list is full, the caller has made room in the log
    /// to write it.
    pub(super) fn add_tombstone(&mut self, &HostRequest { id, sector, sectors, .. }: &HostRequest) {
        let section = &self.sections[self.current];
        let through = if self.map.is_free(sector, sector + u64::from(sectors)) { 0 } else { section.log_next };
        let tombstone = Tombstone { sector, sectors, generation: section.generation, through };
        self.journal.pending.push(PendingTombstone { tombstone, from: Some(id), writer: None });
    }

    /// Whether the list of waiting tombstones is full; the request that adds another one writes them all.
    pub(super) fn tombstones_full(&self) -> bool {
        self.journal.pending.len() >= MOST_WAITING
    }

    /// Whether more tombstones wait than allowed.
    pub(super) fn tombstones_spill(&self) -> bool {
        self.journal.pending.len() > MOST_WAITING
    }

    /// Sectors of log needed to write all tombstones and one more.
    pub(super) fn tombstone_sectors(&self) -> u32 {
        (self.journal.pending.len() / MOST_TOMBSTONES) as u32 + 1
    }

    /// Writes the tombstones of complete requests and of request `id`, after everything before is complete.
    pub(super) fn write_tombstones(&mut self, id: u64, plan: &mut CommandPlan) {
        let disk = self.shape.reserved.disk;
        plan.wait();
        let mut tombstones = Vec::with_capacity(self.journal.pending.len());
        for pending in &mut self.journal.pending {
            if pending.from.is_none_or(|from| from == id) {
                pending.writer = Some(id);
                tombstones.push(pending.tombstone);
            }
        }
        for tombstones in tombstones.chunks(MOST_TOMBSTONES) {
            self.write_bare(AdvilRecordBody::Tombstones(tombstones.to_vec()), plan);
        }
        plan.wait();
        plan.bare(disk, Op::Flush, 0, 0);
    }
}
