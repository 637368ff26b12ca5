//! ADMA2 with addresses of 32 bits (SD Host Controller Simplified Specification 2.00, 1.13).

use super::memory::GuestMemory;

/// Maximum number of descriptors in one transfer. It ends a table that links back to itself.
const MOST_DESCRIPTORS: u32 = 1 << 18;

/// States of the engine that the error register reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdmaState {
    Stop = 0,
    FetchDescriptor = 1,
    Transfer = 3,
}

/// A piece of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DmaSegment {
    pub address: u64,
    pub bytes: usize,
}

/// Reads a table of descriptors.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdmaTableReader {
    address: u32,
    descriptors_read: u32,
    ended: bool,
    /// Whether a descriptor asked for an interrupt.
    pub interrupt: bool,
}

impl AdmaTableReader {
    pub fn new(address: u32) -> Self {
        Self { address, descriptors_read: 0, ended: false, interrupt: false }
    }

    /// The address of the descriptor after the last one that was read.
    pub fn address(&self) -> u32 {
        self.address
    }

    /// The next piece of memory; `None` after the end of the table. An error if a descriptor cannot be read or is not valid.
    pub fn next(&mut self, memory: &mut dyn GuestMemory) -> Result<Option<DmaSegment>, AdmaState> {
        while !self.ended {
            let mut descriptor = [0; 8];
            self.descriptors_read += 1;
            // Descriptors must be aligned to four bytes.
            if self.descriptors_read > MOST_DESCRIPTORS || !self.address.is_multiple_of(4) {
                return Err(AdmaState::FetchDescriptor);
            }
            memory.read(self.address.into(), &mut descriptor).map_err(|_| AdmaState::FetchDescriptor)?;
            let [attributes, _, low, high, address @ ..] = descriptor;
            let (length, address) = (u16::from_le_bytes([low, high]), u32::from_le_bytes(address));
            let [valid, end, interrupt] = [0, 1, 2].map(|bit| attributes >> bit & 1 == 1);
            if !valid {
                return Err(AdmaState::FetchDescriptor);
            }
            self.ended = end;
            self.interrupt |= interrupt;
            let link = attributes >> 4 & 0b11 == 0b11;
            self.address = if link { address } else { self.address.wrapping_add(8) };
            if attributes >> 4 & 0b11 == 0b10 {
                // A length of 0 means 65536 bytes.
                let bytes = if length == 0 { 1 << 16 } else { usize::from(length) };
                return Ok(Some(DmaSegment { address: address.into(), bytes }));
            }
        }
        Ok(None)
    }

    /// Total bytes of the table; an error if there are more than `most`.
    pub fn total(mut self, memory: &mut dyn GuestMemory, most: usize) -> Result<usize, AdmaState> {
        let mut total = 0;
        while let Some(segment) = self.next(memory)? {
            total += segment.bytes;
            if total > most {
                return Err(AdmaState::FetchDescriptor);
            }
        }
        Ok(total)
    }
}
