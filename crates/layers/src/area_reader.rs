//! A buffered view of an area of a disk, through which recovery reads.

use std::io;

use emmclab_base::SECTOR_BYTES;

use crate::layer::{RecoveryReader, ReservedArea};

const SECTOR: usize = SECTOR_BYTES as usize;
/// Number of sectors that are read at once.
const CHUNK: u32 = 2048;

/// A buffered view of an area, read in chunks. Places are sectors from the start of the area.
pub(crate) struct AreaReader<'a> {
    disks: &'a mut dyn RecoveryReader,
    area: ReservedArea,
    first: u32,
    bytes: Vec<u8>,
}

impl<'a> AreaReader<'a> {
    /// A view of an area of these disks.
    pub fn new(disks: &'a mut dyn RecoveryReader, area: ReservedArea) -> Self {
        Self { disks, area, first: 0, bytes: Vec::new() }
    }

    /// Returns the sectors at a place; they must be before `end`.
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
