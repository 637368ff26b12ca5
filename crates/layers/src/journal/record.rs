//! Records of the layer's own log: a head that describes the sectors after it, with checksums of itself and of those sectors.
//!
//! Little-endian, by byte: 0 magic, 8 checksum of the first sector, 16 checksum of all sectors after it (CRC-32C both), 24
//! generation of the segment (8), 32 place in the segment (4), 36 sectors after the first one (4), 40 transaction (4), 44 blocks
//! (4), 48 first sector of the journal's superblock (8), 56 sectors of a block (4), 64 one entry of 32 bytes for each block,
//! continued in the next sectors. An entry: 0 first sector of the block in the journal (8), 8 first sector of its home (8, all ones
//! for none), 16 the sectors of it that follow (16, one bit each). After the head come these sectors, block by block, and zeros up
//! to the end of the record.

use emmclab_base::{SECTOR_BYTES, SectorSet};

use crate::checksum::checksum;
use crate::plan::CommandPlan;

pub(super) const SECTOR: usize = SECTOR_BYTES as usize;
const MAGIC: &[u8; 8] = b"jrnldlt1";
const ENTRIES: usize = 64;
const ENTRY: usize = 32;
const NO_HOME: u64 = u64::MAX;

/// A block in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JournalRecordEntry {
    /// Its first sector in the journal.
    pub block: u64,
    /// First sector of the home of a logged block.
    pub home: Option<u64>,
    /// The sectors of it that the record holds; the others equal the last copy of the same home, or are zeros if there is none.
    pub sectors: SectorSet,
}

/// The head of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JournalLogRecord {
    /// Generation of the segment; the highest is the newest.
    pub generation: u64,
    /// Its place in the segment, in sectors.
    pub place: u32,
    /// Sectors after the first one.
    pub length: u32,
    /// The transaction of the journal.
    pub transaction: u32,
    /// First sector of the journal's superblock; 0 in a record without blocks, which voids all earlier records.
    pub superblock: u64,
    /// Sectors of a block.
    pub block_sectors: u32,
    /// Its blocks.
    pub entries: Vec<JournalRecordEntry>,
}

/// Sectors that the head of a record of this many blocks needs.
pub(super) const fn head_sectors(blocks: usize) -> u32 {
    (ENTRIES + blocks * ENTRY).div_ceil(SECTOR) as u32
}

impl JournalLogRecord {
    /// The head in whole sectors, without checksums.
    pub fn head(&self) -> Vec<u8> {
        let mut out = vec![0; head_sectors(self.entries.len()) as usize * SECTOR];
        out[..8].copy_from_slice(MAGIC);
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(24, &self.generation.to_le_bytes());
        put(32, &self.place.to_le_bytes());
        put(36, &self.length.to_le_bytes());
        put(40, &self.transaction.to_le_bytes());
        put(44, &(self.entries.len() as u32).to_le_bytes());
        put(48, &self.superblock.to_le_bytes());
        put(56, &self.block_sectors.to_le_bytes());
        for (i, entry) in self.entries.iter().enumerate() {
            let at = ENTRIES + i * ENTRY;
            put(at, &entry.block.to_le_bytes());
            put(at + 8, &entry.home.unwrap_or(NO_HOME).to_le_bytes());
            put(at + 16, &entry.sectors.0.to_le_bytes());
        }
        out
    }

    /// Reads the first sector of a head and returns the number of sectors after it; `None` if it is not a head or is damaged.
    pub fn length(first: &[u8]) -> Option<u32> {
        let stored = u64_at(first, CommandPlan::CHECKSUM_AT)?;
        let mut own: [u8; SECTOR] = first.get(..SECTOR)?.try_into().ok()?;
        own[CommandPlan::CHECKSUM_AT..CommandPlan::CHECKSUM_AT + 8].fill(0);
        (first.starts_with(MAGIC) && checksum(&own) == stored).then_some(())?;
        u32_at(first, 36)
    }

    /// Parses a whole record; `None` if there is none or it is damaged.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let length = Self::length(bytes)?;
        let behind = bytes.get(SECTOR..SECTOR * (1 + length as usize))?;
        (checksum(behind) == u64_at(bytes, CommandPlan::DATA_CHECKSUM_AT)?).then_some(())?;
        let blocks = u32_at(bytes, 44)? as usize;
        (head_sectors(blocks) <= 1 + length).then_some(())?;
        let entry = |i: usize| {
            let at = ENTRIES + i * ENTRY;
            let home = u64_at(bytes, at + 8)?;
            let sectors = bytes.get(at + 16..at + 32)?.try_into().ok()?;
            Some(JournalRecordEntry {
                block: u64_at(bytes, at)?,
                home: (home != NO_HOME).then_some(home),
                sectors: SectorSet(u128::from_le_bytes(sectors)),
            })
        };
        let entries: Vec<JournalRecordEntry> = (0..blocks).map(entry).collect::<Option<_>>()?;
        let block_sectors = u32_at(bytes, 56)?;
        let held: u64 = entries.iter().map(|entry| u64::from(entry.sectors.len())).sum();
        let fits = u64::from(head_sectors(blocks)) + held <= 1 + u64::from(length);
        (fits && block_sectors <= u128::BITS).then_some(())?;
        Some(Self {
            generation: u64_at(bytes, 24)?,
            place: u32_at(bytes, 32)?,
            length,
            transaction: u32_at(bytes, 40)?,
            superblock: u64_at(bytes, 48)?,
            block_sectors,
            entries,
        })
    }
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
