//! Recovery: restores the contents of the buffer from its intact records that are not released, in the order of their sequence
//! numbers.
//!
//! Records that never became durable may be missing between others. If the data of a record is incomplete, its header is
//! overwritten before any other write, because later writes could complete the data by chance.

use std::collections::VecDeque;
use std::io;

use super::NvmBuffer;
use super::record::{NvmRecord, NvmRecordBody, SECTOR};
use super::ring::{FIRST, RecordRing, RingEntry};
use super::write_back::place_of_head;
use crate::area_reader::AreaReader;
use crate::checksum::{has_valid_data_checksum, has_valid_header_checksum};
use crate::interval_map::LoggedExtent;
use crate::layer::RecoveryReader;

impl NvmBuffer {
    /// Rebuilds the ring and its contents. Without a header, no data was ever promised to be durable.
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
        let Some(NvmRecord { sequence: number, sectors, body: NvmRecordBody::Head { oldest, capacity }, .. }) = newest
        else {
            return Ok(());
        };
        if (capacity, u64::from(sectors)) != (self.shape.capacity, area.sectors) {
            return Err(io::Error::other("the buffer was set up with another size or for another device"));
        }
        self.head_number = number;
        self.is_recovered = true;
        let end = area.sectors as u32;
        let (mut found, mut next, mut place) = (Vec::new(), oldest, FIRST);
        while place < end {
            let mut head = [0; SECTOR];
            head.copy_from_slice(window.at(place, 1, end)?);
            let record =
                sealed_record(&head, place).filter(|record| record.sequence >= oldest && self.is_sane(record, end));
            let Some(record) = record else {
                place += 1;
                continue;
            };
            next = next.max(record.sequence + 1);
            let data = if record.sectors > 0 { window.at(place + 1, record.sectors, end)? } else { &[] };
            if has_valid_data_checksum(&head, data) {
                found.push(record);
                place += 1 + record.sectors;
            } else {
                self.torn.push(place);
                place += 1;
            }
        }
        found.sort_unstable_by_key(|record| record.sequence);
        let mut entries = VecDeque::with_capacity(found.len());
        for NvmRecord { sequence, place, sectors, body } in found {
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

    /// Whether lengths and addresses are inside the disks.
    fn is_sane(&self, record: &NvmRecord, end: u32) -> bool {
        let inside = |sector: u64, sectors: u64| {
            sectors > 0 && sector.checked_add(sectors).is_some_and(|end| end <= self.shape.capacity)
        };
        record.sequence < u64::MAX
            && record.sectors < end - record.place
            && match record.body {
                NvmRecordBody::Data { sector } => inside(sector, u64::from(record.sectors)),
                NvmRecordBody::Past { sector, sectors } => record.sectors == 0 && inside(sector, sectors),
                NvmRecordBody::Head { .. } => false,
            }
    }
}

/// Returns the record at a place; `None` if there is none, or it is damaged or belongs to another place.
fn sealed_record(sector: &[u8], place: u32) -> Option<NvmRecord> {
    NvmRecord::parse(sector).filter(|record| record.place == place && has_valid_header_checksum(sector))
}
