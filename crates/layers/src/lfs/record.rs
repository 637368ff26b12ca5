//! Metadata of the log: records, packs of a checkpoint, and pages of the map. Little-endian.
//!
//! A *record* is a block. Its first sector: 0 magic, 8 checksum of the sector, 16 checksum of the rest (both computed by the
//! driver), 24 life of the layer (8), 32 number of the record (8), 40 place (4), 44 blocks of data after it that it covers (4), 48
//! next segment of the log of records (4), 52 runs (4). The other seven sectors hold the runs: block (4), place (4; all ones =
//! discarded), blocks (4), number of the write (8).
//!
//! A *pack* starts with a sector: 0 magic, checksums as above, 24 number of the checkpoint (8), 32 life (8), 40 number of the next
//! write (8), 48 number of the first record that is valid after the checkpoint (8), 56 segment and 60 block in it where these
//! records start, 64 the segment after that, 68 blocks of a segment, 72 segments, 76 blocks that the layer offers (4 each). After
//! it come two bits for each page of the map: 0 = never written, otherwise 1 + the valid copy.
//!
//! A *page of the map* is a block: 0 CRC-32C of the rest (4), 4 its number (4), 8 number of the checkpoint (8), then 1,020 entries
//! of 4 bytes.

use emmclab_base::SECTOR_BYTES;

use super::settings::BLOCK;
use crate::checksum::{checksum, has_valid_data_checksum, has_valid_header_checksum};

pub(super) const SECTOR: usize = SECTOR_BYTES as usize;
/// Bytes in a block.
pub(super) const BYTES: usize = BLOCK as usize * SECTOR;
/// Number of entries in a page of the map.
pub(super) const ENTRIES: u32 = 1020;
/// Maximum number of runs in a record.
pub(super) const RUNS: usize = (BYTES - SECTOR) / RUN_BYTES;
pub(super) const RUN_BYTES: usize = 20;
/// The location of a run of discarded blocks.
pub(super) const NOWHERE: u32 = u32::MAX;
const RECORD: &[u8; 8] = b"lfsrecd1";
const PACK: &[u8; 8] = b"lfspack1";

fn four(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn eight(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Blocks that are consecutive both in the address space and in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogRun {
    pub block: u32,
    pub place: u32,
    pub blocks: u32,
    /// Number of the write; the highest one of a block is valid.
    pub write: u64,
}

/// The head of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LfsRecord {
    pub life: u64,
    pub number: u64,
    pub place: u32,
    /// Blocks of data after it.
    pub data: u32,
    pub next: u32,
    pub runs: u32,
}

impl LfsRecord {
    /// The first sector, without checksums.
    pub fn head(&self) -> [u8; SECTOR] {
        let mut out = [0; SECTOR];
        out[..8].copy_from_slice(RECORD);
        out[24..32].copy_from_slice(&self.life.to_le_bytes());
        out[32..40].copy_from_slice(&self.number.to_le_bytes());
        for (at, value) in [(40, self.place), (44, self.data), (48, self.next), (52, self.runs)] {
            out[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        out
    }

    /// Parses the record at the start of a block; `None` if there is none. [`has_valid_data_checksum`] checks whether its runs and its data are
    /// intact.
    pub fn parse(block: &[u8]) -> Option<Self> {
        let head = block.get(..SECTOR)?;
        if &head[..8] != RECORD || !has_valid_header_checksum(head) {
            return None;
        }
        Some(Self {
            life: eight(head, 24)?,
            number: eight(head, 32)?,
            place: four(head, 40)?,
            data: four(head, 44)?,
            next: four(head, 48)?,
            runs: four(head, 52)?.min(RUNS as u32),
        })
    }

    /// Returns the runs of the block that has this head.
    pub fn runs_of(self, block: &[u8]) -> impl Iterator<Item = LogRun> {
        block[SECTOR..].chunks_exact(RUN_BYTES).take(self.runs as usize).filter_map(|bytes| {
            Some(LogRun {
                block: four(bytes, 0)?,
                place: four(bytes, 4)?,
                blocks: four(bytes, 8)?,
                write: eight(bytes, 12)?,
            })
        })
    }
}

/// Writes a run as [`RUN_BYTES`] bytes into a record.
pub(super) fn put_run(run: &LogRun, out: &mut [u8]) {
    for (to, value) in out.chunks_exact_mut(4).zip([run.block, run.place, run.blocks]) {
        to.copy_from_slice(&value.to_le_bytes());
    }
    out[12..RUN_BYTES].copy_from_slice(&run.write.to_le_bytes());
}

/// Locations of the packs and pages of the map, from the start of the disk: two packs, then two copies of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PackLayout {
    /// Pages of the map.
    pub pages: u32,
    /// Sectors of a pack, and sectors reserved for it.
    pub sectors: u32,
    slot: u64,
}

impl PackLayout {
    /// The layout for a map of this many blocks.
    pub fn new(blocks: u64) -> Self {
        let pages = blocks.div_ceil(u64::from(ENTRIES));
        let sectors = 1 + (pages.div_ceil(4)).div_ceil(SECTOR_BYTES);
        Self { pages: pages as u32, sectors: sectors as u32, slot: sectors.next_multiple_of(BLOCK) }
    }

    /// First sector of a pack, 0 or 1.
    pub fn pack(&self, slot: u64) -> u64 {
        slot * self.slot
    }

    /// First sector of a copy, 0 or 1, of a page.
    pub fn page(&self, copy: u8, page: u32) -> u64 {
        2 * self.slot + (u64::from(copy) * u64::from(self.pages) + u64::from(page)) * BLOCK
    }

    /// The first sector after both copies of the map.
    pub fn end(&self) -> u64 {
        self.page(2, 0)
    }
}

/// The first sector of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CheckpointPack {
    pub number: u64,
    pub life: u64,
    /// Number of the next write.
    pub write: u64,
    /// Records from this number on are valid. They start at `offset` of `segment`, and the log of records continues in `next`.
    pub record: u64,
    pub segment: u32,
    pub offset: u32,
    pub next: u32,
    /// Blocks of a segment, number of segments, and blocks that the layer offers.
    pub shape: [u32; 3],
}

impl CheckpointPack {
    /// The first sector of a pack, without checksums.
    pub fn head(&self) -> [u8; SECTOR] {
        let mut out = [0; SECTOR];
        out[..8].copy_from_slice(PACK);
        for (at, value) in [(24, self.number), (32, self.life), (40, self.write), (48, self.record)] {
            out[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        let [a, b, c] = self.shape;
        for (at, value) in (0..).zip([self.segment, self.offset, self.next, a, b, c]) {
            out[56 + at * 4..60 + at * 4].copy_from_slice(&value.to_le_bytes());
        }
        out
    }

    /// Parses a pack; `None` if there is none or it is damaged.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let head = bytes.get(..SECTOR)?;
        if &head[..8] != PACK || !has_valid_header_checksum(head) || !has_valid_data_checksum(head, &bytes[SECTOR..]) {
            return None;
        }
        Some(Self {
            number: eight(head, 24)?,
            life: eight(head, 32)?,
            write: eight(head, 40)?,
            record: eight(head, 48)?,
            segment: four(head, 56)?,
            offset: four(head, 60)?,
            next: four(head, 64)?,
            shape: [four(head, 68)?, four(head, 72)?, four(head, 76)?],
        })
    }
}

/// The bytes of a page of the map.
pub(super) fn page_bytes(page: u32, checkpoint: u64, entries: &[u32]) -> Vec<u8> {
    let mut out = vec![0; BYTES];
    out[4..8].copy_from_slice(&page.to_le_bytes());
    out[8..16].copy_from_slice(&checkpoint.to_le_bytes());
    for (to, entry) in out[16..].chunks_exact_mut(4).zip(entries) {
        to.copy_from_slice(&entry.to_le_bytes());
    }
    let sum = checksum(&out[4..]) as u32;
    out[..4].copy_from_slice(&sum.to_le_bytes());
    out
}

/// Returns the entries of a page of the map; `None` if it is damaged, is another page, or belongs to a later checkpoint.
pub(super) fn page_entries(bytes: &[u8], page: u32, checkpoint: u64) -> Option<impl Iterator<Item = u32>> {
    let good = four(bytes, 0)? == checksum(bytes.get(4..BYTES)?) as u32
        && four(bytes, 4)? == page
        && eight(bytes, 8)? <= checkpoint;
    let entry = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_le_bytes);
    good.then(|| bytes[16..BYTES].chunks_exact(4).map(entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_pages_are_read_as_they_were_written() {
        let run = LogRun { block: 7, place: NOWHERE, blocks: 1 << 20, write: 1 << 60 };
        let mut bytes = [0; BYTES];
        put_run(&run, &mut bytes[SECTOR..]);
        let record = LfsRecord { life: 1, number: 2, place: 3, data: 4, next: 5, runs: 1 };
        assert_eq!(record.runs_of(&bytes).collect::<Vec<_>>(), [run]);
        let page = page_bytes(9, 4, &[1, 2, 3]);
        assert_eq!(page_entries(&page, 9, 4).unwrap().take(4).collect::<Vec<_>>(), [1, 2, 3, 0]);
        assert!(page_entries(&page, 9, 3).is_none(), "a later checkpoint's");
        assert!(page_entries(&page, 8, 4).is_none(), "another page");
        let mut damaged = page.clone();
        damaged[4095] ^= 1;
        assert!(page_entries(&damaged, 9, 4).is_none());
    }

    #[test]
    fn what_is_not_sealed_is_neither_a_record_nor_a_pack() {
        let record = LfsRecord { life: 1, number: 2, place: 3, data: 4, next: 5, runs: 1 };
        assert!(LfsRecord::parse(&record.head()).is_none());
        let pack =
            CheckpointPack { number: 1, life: 1, write: 1, record: 1, segment: 0, offset: 0, next: 1, shape: [1; 3] };
        assert!(CheckpointPack::parse(&pack.head()).is_none());
        assert!(CheckpointPack::parse(&[0; 3]).is_none());
    }

    #[test]
    fn packs_and_copies_of_the_map_lie_apart() {
        let layout = PackLayout::new(1 << 20);
        assert_eq!((layout.pages, layout.sectors), (1029, 2));
        assert_eq!((layout.pack(1), layout.page(0, 0)), (8, 16));
        assert_eq!((layout.page(1, 0), layout.end()), (16 + 1029 * 8, 16 + 2 * 1029 * 8));
    }
}
