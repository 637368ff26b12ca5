//! The layer's own log: assigns places to records, and finds the sectors of the journal's blocks in them.
//!
//! The log is divided into segments. Records are appended to a segment, and the whole segment is reused after the journal has
//! released all of its transactions. The first copy of a block in a segment is complete, later copies hold only the sectors that
//! changed. A segment can therefore be read without the others.

use std::collections::BTreeMap;

use emmclab_base::SectorSet;

use super::commit_buffer::BufferedBlock;
use super::record::{JournalLogRecord, JournalRecordEntry, head_sectors};

/// A location that means that the sector is all zeros and is not stored.
pub(super) const ZEROS: u64 = u64::MAX;
/// Records start and end at multiples of this many sectors, so that a device with a mapping unit of 4 KB writes them without
/// reading.
pub(super) const ALIGN: u32 = 8;
/// Number of segments of a log.
pub(super) const SEGMENTS: u32 = 8;

/// A block of the journal in the log: the location of each of its sectors on the disk below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JournalBlockLocation {
    pub transaction: u32,
    pub sectors: Box<[u64]>,
}

/// A copy of a home in a record.
#[derive(Clone, Debug)]
struct HomeCopy {
    /// The location of each sector on the disk below.
    sectors: Box<[u64]>,
    /// Whether the file system has logged no newer copy since.
    is_last: bool,
}

/// Location of the log, and the size of its segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogArea {
    /// First sector on disk 0.
    pub first: u64,
    /// Sectors of a segment, a multiple of [`ALIGN`].
    pub segment: u32,
}

impl LogArea {
    /// First sector of a segment.
    pub fn start(&self, segment: u32) -> u64 {
        self.first + u64::from(segment) * u64::from(self.segment)
    }

    /// Length of the log in sectors.
    pub fn sectors(&self) -> u64 {
        u64::from(self.segment) * u64::from(SEGMENTS)
    }
}

/// The state of the log.
#[derive(Debug)]
pub(super) struct JournalLog {
    area: LogArea,
    /// The newest transaction of each segment that the journal has not released yet.
    newest: [Option<u32>; SEGMENTS as usize],
    current: u32,
    /// The place of the next record in the current segment.
    next: u32,
    generation: u64,
    blocks: BTreeMap<u64, JournalBlockLocation>,
    /// The last copy of each home in the current segment.
    copies: BTreeMap<u64, HomeCopy>,
    /// First sector of the journal's superblock, once it is known.
    superblock: Option<u64>,
}

/// A record with the place where it is to be written.
#[derive(Debug)]
pub(super) struct RecordPlacement {
    pub record: JournalLogRecord,
    /// First sector on disk 0.
    pub sector: u64,
}

/// Whether transaction `one` is older than `other`; numbers wrap around, as in JBD2.
pub(super) fn before(one: u32, other: u32) -> bool {
    one.wrapping_sub(other).cast_signed() < 0
}

impl JournalLog {
    /// An empty log whose segments get generations after `generation`.
    pub fn new(area: LogArea, generation: u64) -> Self {
        Self {
            area,
            newest: [None; SEGMENTS as usize],
            current: 0,
            next: 0,
            generation,
            blocks: BTreeMap::new(),
            copies: BTreeMap::new(),
            superblock: None,
        }
    }

    /// Location and division of the log.
    pub fn area(&self) -> LogArea {
        self.area
    }

    /// Sets the first sector of the journal's superblock.
    pub fn set_superblock(&mut self, sector: u64) {
        self.superblock = Some(sector);
    }

    /// Whether the location of the journal's superblock is known; recovery needs it.
    pub fn is_ready(&self) -> bool {
        self.superblock.is_some()
    }

    /// Whether no record is valid.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.newest.iter().all(Option::is_none)
    }

    /// Called when the file system logs a home; returns whether the previous copy that it logged is the one in the log.
    pub fn is_home_logged(&mut self, home: u64) -> bool {
        self.copies.get_mut(&home).is_some_and(|copy| std::mem::take(&mut copy.is_last))
    }

    /// Creates a record with these blocks of a transaction; `None` if the log has no room.
    ///
    /// With `one_more`, the same segment must also have room for another record of one block. With `delta`, the record holds only
    /// sectors of logged blocks that changed since their last copy, and only sectors of other blocks that are not zero.
    pub fn place(
        &mut self,
        transaction: u32,
        blocks: &[(u64, BufferedBlock)],
        (delta, one_more): (bool, bool),
    ) -> Option<RecordPlacement> {
        let superblock = self.superblock?;
        let block_sectors = blocks.first()?.1.sectors;
        if blocks.iter().any(|(_, held)| held.sectors != block_sectors) {
            return None;
        }
        let behind = if one_more { (1 + block_sectors).next_multiple_of(ALIGN) } else { 0 };
        let mut entries = self.entries(blocks, delta);
        let mut sectors = record_sectors(&entries);
        if self.next + sectors + behind > self.area.segment {
            let following = (self.current + 1) % SEGMENTS;
            if self.newest[following as usize].is_some() {
                return None;
            }
            self.open(following);
            entries = self.entries(blocks, delta);
            sectors = record_sectors(&entries);
            if sectors + behind > self.area.segment {
                return None;
            }
        }
        let (place, current) = (self.next, self.current);
        let record = JournalLogRecord {
            generation: self.generation,
            place,
            length: sectors - 1,
            transaction,
            superblock,
            block_sectors,
            entries,
        };
        self.next += sectors;
        let newest = &mut self.newest[current as usize];
        *newest = newest.filter(|newest| !before(*newest, transaction)).or(Some(transaction));
        let sector = self.area.start(current) + u64::from(place);
        self.add(&record, sector);
        Some(RecordPlacement { record, sector })
    }

    /// Creates a record that voids all earlier ones, at the start of a segment.
    pub fn void(&mut self) -> RecordPlacement {
        self.forget(None);
        self.open((self.current + 1) % SEGMENTS);
        let record = JournalLogRecord {
            generation: self.generation,
            place: 0,
            length: ALIGN - 1,
            transaction: 0,
            superblock: 0,
            block_sectors: 0,
            entries: Vec::new(),
        };
        self.next = ALIGN;
        RecordPlacement { record, sector: self.area.start(self.current) }
    }

    fn open(&mut self, segment: u32) {
        self.current = segment;
        self.next = 0;
        self.generation += 1;
        self.copies.clear();
    }

    fn entries(&self, blocks: &[(u64, BufferedBlock)], delta: bool) -> Vec<JournalRecordEntry> {
        let of = |(block, held): &(u64, BufferedBlock)| {
            let whole = SectorSet::first(held.sectors);
            let known = match held.home {
                Some(home) => held.follows_copy && self.copies.contains_key(&home),
                None => true,
            };
            let sectors = held.changed.filter(|_| delta && known).unwrap_or(whole);
            JournalRecordEntry { block: *block, home: held.home, sectors }
        };
        blocks.iter().map(of).collect()
    }

    /// Adds the blocks of a record at `sector` to the map.
    pub fn add(&mut self, record: &JournalLogRecord, sector: u64) {
        let mut at = sector + u64::from(head_sectors(record.entries.len()));
        for entry in &record.entries {
            let copy = entry.home.and_then(|home| self.copies.get(&home));
            let mut sectors = match copy {
                Some(copy) if copy.sectors.len() == record.block_sectors as usize => copy.sectors.clone(),
                _ => vec![ZEROS; record.block_sectors as usize].into(),
            };
            for (i, place) in (0..).zip(sectors.iter_mut()) {
                if entry.sectors.contains(i) {
                    *place = at;
                    at += 1;
                }
            }
            if let Some(home) = entry.home {
                self.copies.insert(home, HomeCopy { sectors: sectors.clone(), is_last: true });
            }
            self.blocks.insert(entry.block, JournalBlockLocation { transaction: record.transaction, sectors });
        }
    }

    /// Drops the transactions before `tail`, which the journal has released; with `None` drops all.
    pub fn forget(&mut self, tail: Option<u32>) {
        let gone = |transaction: u32| tail.is_none_or(|tail| before(transaction, tail));
        self.blocks.retain(|_, stored| !gone(stored.transaction));
        for newest in &mut self.newest {
            *newest = newest.filter(|newest| !gone(*newest));
        }
    }

    /// Drops the blocks of a range of the journal that was written outside the log.
    pub fn overwritten(&mut self, sector: u64, end: u64) {
        let gone: Vec<u64> = self.meeting(sector, end).map(|(block, _)| block).collect();
        for block in gone {
            self.blocks.remove(&block);
        }
    }

    /// Returns the blocks in the log that overlap a range of sectors.
    pub fn meeting(&self, sector: u64, end: u64) -> impl Iterator<Item = (u64, &JournalBlockLocation)> {
        let from = sector.saturating_sub(u64::from(u128::BITS) - 1);
        let blocks = self.blocks.range(from..end.max(from)).map(|(block, stored)| (*block, stored));
        blocks.filter(move |(block, stored)| block + stored.sectors.len() as u64 > sector)
    }

    /// All blocks in the log.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, &JournalBlockLocation)> {
        self.blocks.iter().map(|(block, stored)| (*block, stored))
    }

    /// Called before recovery reads the next segment: copies in other segments do not count for its records.
    pub fn begin_segment(&mut self) {
        self.copies.clear();
    }
}

fn record_sectors(entries: &[JournalRecordEntry]) -> u32 {
    let held: u32 = entries.iter().map(|entry| entry.sectors.len()).sum();
    (head_sectors(entries.len()) + held).next_multiple_of(ALIGN)
}
