//! Common parts of the records of all layers: checksums, numbers, and a buffered reader for recovery.

use std::io;

use emmclab_base::SECTOR_BYTES;

use crate::layer::{RecoveryReader, ReservedArea};
use crate::plan::CommandPlan;

/// Returns the CRC-32C (Castagnoli) of the bytes, in the lower half of the word. It detects torn and misplaced records.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    u64::from(crc32c::crc32c(bytes))
}

pub(crate) fn has_valid_header_checksum(header: &[u8]) -> bool {
    u64_at(header, CommandPlan::CHECKSUM_AT).is_some_and(|stored| {
        let mut bare = header.to_vec();
        bare[CommandPlan::CHECKSUM_AT..CommandPlan::CHECKSUM_AT + 8].fill(0);
        checksum(&bare) == stored
    })
}

/// Whether the data after a header matches the checksum in the header.
pub(crate) fn has_valid_data_checksum(header: &[u8], data: &[u8]) -> bool {
    u64_at(header, CommandPlan::DATA_CHECKSUM_AT) == Some(checksum(data))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Bytes of a sector.
pub(crate) const SECTOR: usize = SECTOR_BYTES as usize;
/// Number of sectors that are read at once.
const CHUNK: u32 = 2048;

/// A buffered reader of an area of a disk. Locations are sector numbers, counted from the start of the area.
pub(crate) struct AreaReader<'a> {
    disks: &'a mut dyn RecoveryReader,
    area: ReservedArea,
    first: u32,
    bytes: Vec<u8>,
}

impl<'a> AreaReader<'a> {
    pub fn new(disks: &'a mut dyn RecoveryReader, area: ReservedArea) -> Self {
        Self { disks, area, first: 0, bytes: Vec::new() }
    }

    /// Returns `sectors` sectors from sector `place` on. They must not extend beyond `end`.
    pub fn at(&mut self, place: u32, sectors: u32, end: u32) -> io::Result<&[u8]> {
        let held = (self.bytes.len() / SECTOR) as u32;
        if place < self.first || place + sectors > self.first + held {
            self.bytes.resize(CHUNK.min(end - place).max(sectors) as usize * SECTOR, 0);
            self.disks.read_at(self.area.disk, self.area.sector + u64::from(place), &mut self.bytes)?;
            self.first = place;
        }
        let from = (place - self.first) as usize * SECTOR;
        Ok(&self.bytes[from..from + sectors as usize * SECTOR])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_value_is_the_standard_one() {
        assert_eq!(checksum(b"123456789"), 0xE306_9283, "the check value of the CRC catalogue");
        assert_eq!(checksum(&[0; 32]), 0x8A91_36AA, "RFC 3720, B.4");
    }

    #[test]
    fn every_bit_and_the_order_of_words_count() {
        let mut bytes = [7_u8; 1024];
        bytes[0] = 1;
        let whole = checksum(&bytes);
        for bit in 0..8192 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(checksum(&bytes), whole);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        bytes.swap(0, 512);
        assert_ne!(checksum(&bytes), whole);
    }
}
