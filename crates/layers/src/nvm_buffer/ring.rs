//! The ring of records: the valid records, the location of the next record, their format on disk, and their recovery.
//!
//! Each record has a header sector. Little-endian; each field with its byte offset (and its length): 0 magic, 8 checksum of the header
//! sector, 16 checksum of the data after it (CRC-32C both), 24 sequence number (8), 32 location in the buffer (4), 36 sectors of data that
//! follow (4), 40 kind (4), 48 two numbers, which depend on the kind (8 each). Sequence numbers are in the order of the arrival of
//! requests.
//!
//! Recovery restores the contents of the buffer from its intact and unreleased records, in the order of their sequence numbers. Records
//! that never became durable may be missing between other records. If the data of a record is incomplete, its header is overwritten before
//! any other write, because later writes could complete the data by chance.

use std::collections::VecDeque;
use std::io;

use super::NvmBuffer;
use super::write_back::place_of_head;
use crate::interval_map::LoggedExtent;
use crate::layer::RecoveryReader;
use crate::records::{AreaReader, SECTOR, has_valid_data_checksum, has_valid_header_checksum, u32_at, u64_at};

/// First sector of the ring, after two headers of the buffer of 4 KB each.
pub(super) const FIRST: u32 = 16;

/// A valid record in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingEntry {
    pub sequence: u64,
    /// First sector of the record in the buffer.
    pub place: u32,
    /// The sector after the last sector of the record.
    pub end: u32,
}

/// Records in the order of their sequence numbers. Locations are sector numbers, counted from the start of the buffer.
#[derive(Clone, Debug)]
pub(super) struct RecordRing {
    entries: VecDeque<RingEntry>,
    /// Sector of the buffer at which the next record starts, if the record fits before the end of the ring.
    head: u32,
    end: u32,
    pub next: u64,
}

/// The oldest records, as a range of sectors of the buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct OldestRecords {
    /// First sector of the oldest record, and end of the last record. If the range wraps around, the end is not above the first sector.
    range: Option<(u32, u32)>,
}

impl OldestRecords {
    pub fn contains(self, place: u32) -> bool {
        self.range.is_some_and(
            |(first, end)| {
                if first < end { (first..end).contains(&place) } else { place >= first || place < end }
            },
        )
    }
}

impl RecordRing {
    /// Creates a ring that ends at sector `end` and contains `entries` in this order; `next` is the next sequence number.
    pub fn new(end: u32, entries: VecDeque<RingEntry>, next: u64) -> Self {
        let head = entries.back().map_or(FIRST, |entry| entry.end);
        Self { entries, head, end, next }
    }

    /// Sequence number of the oldest record; if there is no record, of the next record.
    pub fn oldest_sequence(&self) -> u64 {
        self.entries.front().map_or(self.next, |entry| entry.sequence)
    }

    /// Whether the ring contains no record.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of sectors from the oldest record to the newest, including gaps.
    pub fn used(&self) -> u32 {
        self.entries.front().map_or(0, |oldest| self.distance(oldest.place))
    }

    /// Number of sectors from sector `place` to the sector at which the next record starts.
    fn distance(&self, place: u32) -> u32 {
        if place < self.head { self.head - place } else { self.end - FIRST - (place - self.head) }
    }

    /// Allocates a record of `sectors` sectors; `None` if there is no space.
    pub fn add(&mut self, sectors: u32) -> Option<RingEntry> {
        let fits = |from: u32, to: u32| to.checked_sub(from).is_some_and(|room| room >= sectors);
        let place = match self.entries.front().map(|oldest| oldest.place) {
            None if fits(self.head, self.end) => self.head,
            None if fits(FIRST, self.end) => FIRST,
            Some(tail) if tail < self.head && fits(self.head, self.end) => self.head,
            Some(tail) if tail < self.head && fits(FIRST, tail) => FIRST,
            Some(tail) if tail >= self.head && fits(self.head, tail) => self.head,
            _ => return None,
        };
        let entry = RingEntry { sequence: self.next, place, end: place + sectors };
        self.head = entry.end;
        self.next += 1;
        self.entries.push_back(entry);
        Some(entry)
    }

    pub fn before(&self, sequence: u64) -> OldestRecords {
        let count = self.entries.partition_point(|entry| entry.sequence < sequence);
        let last = count.checked_sub(1).and_then(|last| self.entries.get(last));
        OldestRecords { range: self.entries.front().zip(last).map(|(first, last)| (first.place, last.end)) }
    }

    /// Returns the sequence number before which all records must be released so that at most `sectors` sectors are in use.
    pub fn down_to(&self, sectors: u32) -> u64 {
        let stays = |entry: &&RingEntry| self.distance(entry.place) <= sectors;
        self.entries.iter().find(stays).map_or(self.next, |entry| entry.sequence)
    }

    /// Releases the records before a sequence number.
    pub fn release(&mut self, sequence: u64) {
        let count = self.entries.partition_point(|entry| entry.sequence < sequence);
        self.entries.drain(..count);
    }

    pub fn bytes(&self) -> u64 {
        (self.entries.capacity() * size_of::<RingEntry>()) as u64
    }
}

const MAGIC: &[u8; 8] = b"nvmbuff1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NvmRecordBody {
    /// The data after the header belongs to this address.
    Data { sector: u64 },
    /// A write bypassed the buffer: the device has newer data of these sectors than any earlier record.
    Past { sector: u64, sectors: u64 },
    /// The header of the buffer: all records before sequence number `oldest` have been written back, and the layer offers `capacity`
    /// sectors. Headers have their own sequence numbers.
    Head { oldest: u64, capacity: u64 },
}

/// The header sector of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NvmRecord {
    pub sequence: u64,
    pub place: u32,
    /// Number of sectors of data after the header; in a header of the buffer, number of sectors of the buffer.
    pub sectors: u32,
    pub body: NvmRecordBody,
}

impl NvmRecord {
    /// Returns the header sector without its checksums.
    pub fn bytes(&self) -> [u8; SECTOR] {
        let mut out = [0; SECTOR];
        let (kind, first, second) = match self.body {
            NvmRecordBody::Data { sector } => (1_u32, sector, 0),
            NvmRecordBody::Past { sector, sectors } => (2, sector, sectors),
            NvmRecordBody::Head { oldest, capacity } => (3, oldest, capacity),
        };
        out[..8].copy_from_slice(MAGIC);
        out[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        out[32..36].copy_from_slice(&self.place.to_le_bytes());
        out[36..40].copy_from_slice(&self.sectors.to_le_bytes());
        out[40..44].copy_from_slice(&kind.to_le_bytes());
        out[48..56].copy_from_slice(&first.to_le_bytes());
        out[56..64].copy_from_slice(&second.to_le_bytes());
        out
    }

    /// Parses a record; `None` if the sector contains none. [`crate::records::has_valid_header_checksum`] checks whether it is intact.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.get(..8)? != MAGIC {
            return None;
        }
        let (first, second) = (u64_at(bytes, 48)?, u64_at(bytes, 56)?);
        let body = match u32_at(bytes, 40)? {
            1 => NvmRecordBody::Data { sector: first },
            2 => NvmRecordBody::Past { sector: first, sectors: second },
            3 => NvmRecordBody::Head { oldest: first, capacity: second },
            _ => return None,
        };
        Some(Self { sequence: u64_at(bytes, 24)?, place: u32_at(bytes, 32)?, sectors: u32_at(bytes, 36)?, body })
    }
}

impl NvmBuffer {
    /// Rebuilds the ring and its contents. Without a header of the buffer, the layer has never promised that data is durable.
    pub(super) fn read_back(&mut self, disks: &mut dyn RecoveryReader) -> io::Result<()> {
        let area = self.shape.area;
        let mut window = AreaReader::new(disks, area);
        let mut newest: Option<NvmRecord> = None;
        for number in 0..2 {
            let place = place_of_head(number);
            let head = sealed_record(window.at(place, 1, FIRST)?, place);
            let newer = head.filter(|head| newest.is_none_or(|known| head.sequence > known.sequence));
            newest = newer.filter(|head| matches!(head.body, NvmRecordBody::Head { .. })).or(newest);
        }
        let Some(NvmRecord { sequence: number, sectors, body: NvmRecordBody::Head { oldest, capacity }, .. }) = newest else {
            return Ok(());
        };
        if (capacity, u64::from(sectors)) != (self.shape.capacity, area.sectors) {
            return Err(io::Error::other("the buffer was created with another size or for another device"));
        }
        self.head_number = number;
        self.is_recovered = true;
        let end = area.sectors as u32;
        let (mut records, mut next, mut place) = (Vec::new(), oldest, FIRST);
        while place < end {
            let mut head = [0; SECTOR];
            head.copy_from_slice(window.at(place, 1, end)?);
            let record = sealed_record(&head, place).filter(|record| record.sequence >= oldest && self.is_sane(record, end));
            let Some(record) = record else {
                place += 1;
                continue;
            };
            next = next.max(record.sequence + 1);
            let data = if record.sectors > 0 { window.at(place + 1, record.sectors, end)? } else { &[] };
            if has_valid_data_checksum(&head, data) {
                records.push(record);
                place += 1 + record.sectors;
            } else {
                self.torn.push(place);
                place += 1;
            }
        }
        records.sort_unstable_by_key(|record| record.sequence);
        let mut entries = VecDeque::with_capacity(records.len());
        for NvmRecord { sequence, place, sectors, body } in records {
            entries.push_back(RingEntry { sequence, place, end: place + 1 + sectors });
            match body {
                NvmRecordBody::Data { sector } => {
                    let extent = LoggedExtent { sector, sectors, place: place + 1 };
                    self.logged.insert(extent);
                    self.dirty.insert(extent);
                }
                NvmRecordBody::Past { sector, sectors } => {
                    self.logged.remove(sector, sector + sectors, |_| true);
                    self.dirty.remove(sector, sector + sectors, |_| true);
                }
                NvmRecordBody::Head { .. } => {}
            }
        }
        self.ring = RecordRing::new(end, entries, next);
        Ok(())
    }

    /// Whether lengths and addresses are within the disks.
    fn is_sane(&self, record: &NvmRecord, end: u32) -> bool {
        let inside =
            |sector: u64, sectors: u64| sectors > 0 && sector.checked_add(sectors).is_some_and(|end| end <= self.shape.capacity);
        record.sequence < u64::MAX
            && record.sectors < end - record.place
            && match record.body {
                NvmRecordBody::Data { sector } => inside(sector, u64::from(record.sectors)),
                NvmRecordBody::Past { sector, sectors } => record.sectors == 0 && inside(sector, sectors),
                NvmRecordBody::Head { .. } => false,
            }
    }
}

/// Returns the record at sector `place`; `None` if there is no record, or if it is damaged or was written for another location.
fn sealed_record(sector: &[u8], place: u32) -> Option<NvmRecord> {
    NvmRecord::parse(sector).filter(|record| record.place == place && has_valid_header_checksum(sector))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn records_never_overlap_and_fit_again_once_all_are_released(
            size in 40_u32..200,
            steps in prop::collection::vec((any::<bool>(), 1_u32..12), 1..300),
        ) {
            let end = FIRST + size;
            let mut ring = RecordRing::new(end, VecDeque::new(), 1);
            let mut model: VecDeque<RingEntry> = VecDeque::new();
            for (adds, number) in steps {
                if adds {
                    if let Some(entry) = ring.add(number) {
                        prop_assert!(entry.place >= FIRST && entry.end <= end);
                        let apart = |other: &RingEntry| entry.end <= other.place || other.end <= entry.place;
                        prop_assert!(model.iter().all(apart), "{:?} in {:?}", entry, model);
                        model.push_back(entry);
                    } else {
                        // The ring rejects a record only if fewer than 36 sectors are unused.
                        let used: u32 = model.iter().map(|entry| entry.end - entry.place).sum();
                        prop_assert!(used + 3 * 12 > size, "{} of {}", used, size);
                    }
                } else {
                    let until = ring.oldest_sequence() + u64::from(number);
                    let oldest = ring.before(until);
                    for entry in &model {
                        prop_assert_eq!(oldest.contains(entry.place), entry.sequence < until);
                        prop_assert_eq!(oldest.contains(entry.end - 1), entry.sequence < until);
                    }
                    ring.release(until);
                    model.retain(|entry| entry.sequence >= until);
                }
                prop_assert_eq!(ring.is_empty(), model.is_empty());
                prop_assert!(ring.used() <= size);
                let level = size / 2;
                let mut left = ring.clone();
                left.release(ring.down_to(level));
                prop_assert!(left.used() <= level);
            }
            ring.release(u64::MAX);
            prop_assert!(ring.add(size / 2).is_some());
        }
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        for body in [
            NvmRecordBody::Data { sector: 1 << 40 },
            NvmRecordBody::Past { sector: 7, sectors: 1 << 33 },
            NvmRecordBody::Head { oldest: 1 << 50, capacity: 9 },
        ] {
            let record = NvmRecord { sequence: 1 << 60, place: 99, sectors: 8, body };
            assert_eq!(NvmRecord::parse(&record.bytes()), Some(record));
        }
        assert_eq!(NvmRecord::parse(&[0; SECTOR]), None);
        assert_eq!(NvmRecord::parse(&MAGIC[..]), None);
    }
}
