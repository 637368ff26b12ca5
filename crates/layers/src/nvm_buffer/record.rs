//! Records of the buffer: a header sector with checksums of itself and of the data after it.
//!
//! Little-endian, by byte: 0 magic, 8 checksum of the header sector, 16 checksum of the data (CRC-32C both), 24 sequence number
//! (8), 32 place (4), 36 sectors of data that follow (4), 40 kind (4), 48 two numbers, which depend on the kind (8 each). Sequence
//! numbers are in the order in which the requests arrived.

use emmclab_base::SECTOR_BYTES;

pub(super) const SECTOR: usize = SECTOR_BYTES as usize;
const MAGIC: &[u8; 8] = b"nvmbuff1";

/// The contents of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NvmRecordBody {
    /// The data that follows belongs to this address.
    Data { sector: u64 },
    /// The device holds newer data of these sectors than any earlier record.
    Past { sector: u64, sectors: u64 },
    /// The header of the buffer: all records before this sequence number have been written back, and the layer offers this many
    /// sectors. Headers have sequence numbers of their own.
    Head { oldest: u64, capacity: u64 },
}

/// The header sector of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NvmRecord {
    pub sequence: u64,
    pub place: u32,
    /// Sectors of data after it; in a header of the buffer, sectors of the buffer.
    pub sectors: u32,
    pub body: NvmRecordBody,
}

impl NvmRecord {
    /// The sector, without checksums.
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

    /// Parses a record; `None` if the sector has none. [`crate::checksum::has_valid_header_checksum`] checks whether it is intact.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let four = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let eight = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        if bytes.get(..8)? != MAGIC {
            return None;
        }
        let (first, second) = (eight(48)?, eight(56)?);
        let body = match four(40)? {
            1 => NvmRecordBody::Data { sector: first },
            2 => NvmRecordBody::Past { sector: first, sectors: second },
            3 => NvmRecordBody::Head { oldest: first, capacity: second },
            _ => return None,
        };
        Some(Self { sequence: eight(24)?, place: four(32)?, sectors: four(36)?, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
