//! Log records on disk: a header sector and the data that it describes, with checksums of both.
//!
//! Fields of the header by byte offset, little-endian:
//!
//! - 0: magic (8 bytes)
//! - 8: checksum of the header (CRC-32C)
//! - 16: checksum of the data (CRC-32C)
//! - 24: generation (8 bytes)
//! - 32: location in the reserved area (4 bytes)
//! - 36: number of data sectors that follow (4 bytes)
//! - 40: epoch (4 bytes)
//! - 44: kind (1 byte)
//! - 45: count (1 byte)
//! - 48: entries
//!
//! Records are stored in the order of their writes. In each section, the hot region with copies from the previous section precedes the log
//! region.

use std::borrow::Cow;

use emmclab_base::Op;

use super::Advil;
use super::settings::AdvilParameters;
use crate::layer::HostRequest;
use crate::plan::CommandPlan;
use crate::records::{SECTOR, u32_at, u64_at};

const MAGIC: &[u8; 8] = b"advilog1";
const ENTRIES: usize = 48;

/// Maximum number of runs in one record of data.
pub(super) const MOST_RUNS: usize = 32;
/// Maximum number of ranges in one record of tombstones, which mark ranges that are no longer logged.
pub(super) const MOST_TOMBSTONES: usize = 16;

/// A range of the original area that is no longer logged. Recovery ignores records of this range that are older than a point in the log:
/// sector `through` of `generation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tombstone {
    pub sector: u64,
    pub sectors: u32,
    /// The tombstone covers all records of earlier generations (rounds of the log).
    pub generation: u64,
    /// The tombstone also covers records of its own generation that start before this sector.
    pub through: u32,
}

/// A position in the log, within the generation of the record that contains this structure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LogPoint {
    pub sequence: u64,
    /// Records up to this generation are released.
    pub released: u64,
    /// Sector at which the next hot data is stored. If all hot data was copied, it is the end of the hot region.
    pub hot_next: u32,
    /// Sector of the next record at this point.
    pub log_next: u32,
    /// Number of runs of the map; `None` if they do not fit into a checkpoint.
    pub runs: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AdvilRecordBody<'a> {
    /// A section starts, with a hot region of this many sectors.
    Section { hot: u32 },
    /// Data follows. Each run has its first sector and its length.
    Data(Cow<'a, [(u64, u32)]>),
    /// Ranges that are no longer logged.
    Tombstones(Vec<Tombstone>),
    /// Records up to the generation `through` are released, because their data is in the original area.
    Released { through: u64 },
    /// The layer was started. Contains its capacity and the sizes of the reserved area and of a checkpoint slot, in sectors.
    Start { capacity: u64, reserved: u64, slot: u32 },
    /// The map at a point of the log follows.
    Checkpoint(LogPoint),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AdvilRecord<'a> {
    /// How many times Advil had been started when the record was written, including the current start.
    pub epoch: u32,
    pub generation: u64,
    /// First sector of the record, counted from the start of the reserved area.
    pub place: u32,
    /// Number of sectors of data after the header.
    pub sectors: u32,
    pub body: AdvilRecordBody<'a>,
}

impl AdvilRecord<'_> {
    /// Returns the header sector without its checksums.
    pub fn bytes(&self) -> [u8; SECTOR] {
        let mut out = [0; SECTOR];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, MAGIC);
        put(40, &self.epoch.to_le_bytes());
        put(24, &self.generation.to_le_bytes());
        put(32, &self.place.to_le_bytes());
        put(36, &self.sectors.to_le_bytes());
        let (kind, count) = match &self.body {
            AdvilRecordBody::Section { hot } => {
                put(ENTRIES, &hot.to_le_bytes());
                (1, 0)
            }
            AdvilRecordBody::Data(runs) => {
                for (i, (sector, sectors)) in runs.iter().enumerate() {
                    put(ENTRIES + 12 * i, &sector.to_le_bytes());
                    put(ENTRIES + 12 * i + 8, &sectors.to_le_bytes());
                }
                (2, runs.len())
            }
            AdvilRecordBody::Tombstones(tombstones) => {
                for (i, tombstone) in tombstones.iter().enumerate() {
                    let at = ENTRIES + 24 * i;
                    put(at, &tombstone.sector.to_le_bytes());
                    put(at + 8, &tombstone.generation.to_le_bytes());
                    put(at + 16, &tombstone.sectors.to_le_bytes());
                    put(at + 20, &tombstone.through.to_le_bytes());
                }
                (3, tombstones.len())
            }
            AdvilRecordBody::Released { through } => {
                put(ENTRIES, &through.to_le_bytes());
                (4, 0)
            }
            AdvilRecordBody::Start { capacity, reserved, slot } => {
                put(ENTRIES, &capacity.to_le_bytes());
                put(ENTRIES + 8, &reserved.to_le_bytes());
                put(ENTRIES + 16, &slot.to_le_bytes());
                (5, 0)
            }
            AdvilRecordBody::Checkpoint(point) => {
                put(ENTRIES, &point.sequence.to_le_bytes());
                put(ENTRIES + 8, &point.released.to_le_bytes());
                put(ENTRIES + 16, &point.hot_next.to_le_bytes());
                put(ENTRIES + 20, &point.log_next.to_le_bytes());
                put(ENTRIES + 24, &point.runs.unwrap_or(u32::MAX).to_le_bytes());
                (6, 0)
            }
        };
        put(44, &[kind, count as u8]);
        out
    }

    /// Parses the header of a record; `None` if the sector contains none. `has_valid_header_checksum` checks whether it is intact.
    pub fn parse(bytes: &[u8]) -> Option<AdvilRecord<'static>> {
        let (four, eight) = (|at| u32_at(bytes, at), |at| u64_at(bytes, at));
        if bytes.get(..8)? != MAGIC {
            return None;
        }
        let count = usize::from(bytes[45]);
        let body = match bytes[44] {
            1 => AdvilRecordBody::Section { hot: four(ENTRIES)? },
            2 => AdvilRecordBody::Data(
                (0..count).map(|i| Some((eight(ENTRIES + 12 * i)?, four(ENTRIES + 12 * i + 8)?))).collect::<Option<_>>()?,
            ),
            3 => AdvilRecordBody::Tombstones(
                (0..count)
                    .map(|i| {
                        let at = ENTRIES + 24 * i;
                        Some(Tombstone {
                            sector: eight(at)?,
                            generation: eight(at + 8)?,
                            sectors: four(at + 16)?,
                            through: four(at + 20)?,
                        })
                    })
                    .collect::<Option<_>>()?,
            ),
            4 => AdvilRecordBody::Released { through: eight(ENTRIES)? },
            5 => AdvilRecordBody::Start { capacity: eight(ENTRIES)?, reserved: eight(ENTRIES + 8)?, slot: four(ENTRIES + 16)? },
            6 => AdvilRecordBody::Checkpoint(LogPoint {
                sequence: eight(ENTRIES)?,
                released: eight(ENTRIES + 8)?,
                hot_next: four(ENTRIES + 16)?,
                log_next: four(ENTRIES + 20)?,
                runs: four(ENTRIES + 24).filter(|runs| *runs != u32::MAX),
            }),
            _ => return None,
        };
        Some(AdvilRecord { epoch: four(40)?, generation: eight(24)?, place: four(32)?, sectors: four(36)?, body })
    }
}

/// Maximum number of tombstones that may wait for the next flush.
pub(super) const MOST_WAITING: usize = 12;

/// A tombstone that is not on disk yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingTombstone {
    tombstone: Tombstone,
    /// Number of the request that replaces the logged data in the original area; `None` when this request is complete. The tombstone is
    /// written only afterwards, because a power cut may lose the data of an incomplete request.
    pub from: Option<u64>,
    /// Number of the request that writes the tombstone to the log, if any.
    writer: Option<u64>,
}

/// The tombstones that are not on disk yet, and the number of times Advil was started.
#[derive(Clone, Debug)]
pub(super) struct AdvilJournal {
    /// How many times Advil was started.
    pub epoch: u32,
    pub pending: Vec<PendingTombstone>,
    /// Number of the request that is writing the head of the current section.
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
    /// Called when a request is complete. Removes the tombstones that the request wrote. Tombstones that were created for the request may
    /// be written from now on.
    #[inline]
    pub fn completed(&mut self, id: u64) {
        self.opener = self.opener.filter(|opener| *opener != id);
        if self.pending.is_empty() {
            return;
        }
        self.pending.retain(|pending| pending.writer != Some(id));
        let created = |pending: &PendingTombstone| pending.from == Some(id);
        if let Some(place) = self.pending.iter().position(created) {
            self.pending[place].from = None;
            // Tombstones of adjacent ranges are merged.
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
    /// Writes a record without data at the current end of the log.
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

    /// Writes the start record before anything else. The record has a new epoch, by which recovery recognises records of earlier epochs.
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

    pub(super) fn start_body(&self) -> AdvilRecordBody<'static> {
        let AdvilParameters { capacity, reserved, slot, .. } = self.shape;
        AdvilRecordBody::Start { capacity, reserved: reserved.sectors, slot }
    }

    /// Number of sectors at the end of a log region that requests must not use. The record that releases the previous section needs them.
    pub(super) fn release_reserve(&self) -> u32 {
        self.shape.header
    }

    /// Whether a write to the original area leaves stale records of this range on disk.
    pub(super) fn needs_tombstone(&self, sector: u64, end: u64) -> bool {
        self.shape.header > 0 && (!self.map.is_free(sector, end) || self.moving.may_be_moved(sector))
    }

    /// Adds a tombstone for the range of a request to the original area. If the list is full, the caller has already provided space in the
    /// log for the tombstones.
    pub(super) fn add_tombstone(&mut self, &HostRequest { id, sector, sectors, .. }: &HostRequest) {
        let section = &self.sections[self.current];
        let through = if self.map.is_free(sector, sector + u64::from(sectors)) { 0 } else { section.log_next };
        let tombstone = Tombstone { sector, sectors, generation: section.generation, through };
        self.journal.pending.push(PendingTombstone { tombstone, from: Some(id), writer: None });
    }

    /// Number of log sectors needed for all pending tombstones and an additional one.
    pub(super) fn tombstone_sectors(&self) -> u32 {
        (self.journal.pending.len() / MOST_TOMBSTONES) as u32 + 1
    }

    /// Writes the tombstones of complete requests and of request `id`, after all previous commands are complete.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let tombstone = |i: usize| Tombstone { sector: i as u64, sectors: 9, generation: 7, through: 5 };
        for body in [
            AdvilRecordBody::Section { hot: 77 },
            AdvilRecordBody::Data((0..MOST_RUNS).map(|i| (1 << 40 | i as u64, 8)).collect()),
            AdvilRecordBody::Tombstones((0..MOST_TOMBSTONES).map(tombstone).collect()),
            AdvilRecordBody::Released { through: 12 },
            AdvilRecordBody::Start { capacity: 1 << 40, reserved: 5, slot: 16 },
            AdvilRecordBody::Checkpoint(LogPoint { sequence: 1 << 50, released: 9, hot_next: 1, log_next: 2, runs: None }),
            AdvilRecordBody::Checkpoint(LogPoint { runs: Some(77), ..LogPoint::default() }),
        ] {
            let record = AdvilRecord { epoch: 3, generation: 1 << 33, place: 99, sectors: 8, body };
            assert_eq!(AdvilRecord::parse(&record.bytes()), Some(record));
        }
        assert_eq!(AdvilRecord::parse(&[0; SECTOR]), None);
        let mut cut =
            AdvilRecord { epoch: 0, generation: 0, place: 0, sectors: 0, body: AdvilRecordBody::Section { hot: 0 } }.bytes();
        cut[44..46].copy_from_slice(&[2, 255]);
        assert_eq!(AdvilRecord::parse(&cut), None);
    }
}
