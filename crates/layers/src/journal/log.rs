//! The log of the layer: assigns locations to records, and maps sectors of journal blocks to these locations.
//!
//! The log is divided into segments. Records are appended to a segment, and the whole segment is reused after the journal has released all
//! of its transactions. The first copy of a block in a segment is complete; later copies contain only changed sectors. Therefore a segment
//! can be read without the other segments.
//!
//! A record is a head that describes the sectors after it. Little-endian; each field with its byte offset (and its length): 0 magic, 8
//! checksum of the first sector, 16 checksum of all sectors after it (CRC-32C both), 24 generation of the segment (8), 32 offset in the
//! segment (4), 36 sectors after the first one (4), 40 transaction (4), 44 blocks (4), 48 first sector of the journal's superblock (8), 56
//! sectors of a block (4), 64 one entry of 32 bytes for each block, continued in the next sectors. An entry: 0 first sector of the block in
//! the journal (8), 8 first sector of its home (8, all ones for none), 16 its sectors in the record (16, one bit each). After the head come
//! these sectors, block by block, and zeros up to the end of the record.

use std::collections::BTreeMap;
use std::io;

use emmclab_base::{CommandFlags, Op, SectorSet};

use super::writes::BufferedBlock;
use crate::layer::RecoveryReader;
use crate::plan::{CommandPlan, PlanMemory};
use crate::records::{SECTOR, has_valid_data_checksum, has_valid_header_checksum, u32_at, u64_at};

/// Location of a sector that is all zeros and is not stored.
pub(super) const ZEROS: u64 = u64::MAX;
/// Records start and end at multiples of this many sectors, so a device with map units of 4 KB writes them without reading.
pub(super) const ALIGN: u32 = 8;
/// Number of segments of a log.
pub(super) const SEGMENTS: u32 = 8;

/// A journal block that is stored in the log: the location of each of its sectors on the disk below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JournalBlockLocation {
    pub transaction: u32,
    pub sectors: Box<[u64]>,
}

#[derive(Clone, Debug)]
struct HomeCopy {
    /// The location of each sector on the disk below.
    sectors: Box<[u64]>,
    /// Whether this is the newest logged version of the home block.
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

#[derive(Debug)]
pub(super) struct JournalLog {
    pub area: LogArea,
    /// For each segment, the newest transaction that the journal has not released yet.
    newest: [Option<u32>; SEGMENTS as usize],
    current: u32,
    /// Sector of the current segment at which the next record starts.
    next: u32,
    generation: u64,
    pub blocks: BTreeMap<u64, JournalBlockLocation>,
    /// Last logged copy of each home block in the current segment.
    copies: BTreeMap<u64, HomeCopy>,
    /// First sector of the journal's superblock, if it is known. Recovery needs it.
    pub superblock: Option<u64>,
}

/// A record and its location.
#[derive(Debug)]
pub(super) struct RecordPlacement {
    pub record: JournalLogRecord,
    /// First sector on disk 0.
    pub sector: u64,
}

/// Whether transaction `first` is older than `other`; numbers wrap around, as in JBD2.
pub(super) fn before(first: u32, other: u32) -> bool {
    first.wrapping_sub(other).cast_signed() < 0
}

impl JournalLog {
    /// Returns an empty log. The generations of its segments continue after `generation`.
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

    /// Whether the log contains no valid record.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.newest.iter().all(Option::is_none)
    }

    /// Called when the file system logs the block with the home location `home` in its journal. Returns whether the previous copy of this
    /// block is in the log of the layer.
    pub fn is_home_logged(&mut self, home: u64) -> bool {
        self.copies.get_mut(&home).is_some_and(|copy| std::mem::take(&mut copy.is_last))
    }

    /// Creates a record with these blocks of a transaction; `None` if the log has no space.
    ///
    /// With `one_more`, the same segment must also have space for another record of one block. With `delta`, the record contains only the
    /// sectors of logged blocks that changed since their last copy, and only the non-zero sectors of other blocks.
    pub fn place(
        &mut self, transaction: u32, blocks: &[(u64, BufferedBlock)], (delta, one_more): (bool, bool),
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

    /// Creates a record at the start of a segment, which invalidates all earlier records.
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

    /// Drops the transactions before `tail`, which the journal has released; `None` drops all transactions.
    pub fn forget(&mut self, tail: Option<u32>) {
        let gone = |transaction: u32| tail.is_none_or(|tail| before(transaction, tail));
        self.blocks.retain(|_, stored| !gone(stored.transaction));
        for newest in &mut self.newest {
            *newest = newest.filter(|newest| !gone(*newest));
        }
    }

    /// Drops the stored blocks that overlap a range of the journal, because this range was written without the log.
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
}

fn record_sectors(entries: &[JournalRecordEntry]) -> u32 {
    let held: u32 = entries.iter().map(|entry| entry.sectors.len()).sum();
    (head_sectors(entries.len()) + held).next_multiple_of(ALIGN)
}

const MAGIC: &[u8; 8] = b"jrnldlt1";
const ENTRIES: usize = 64;
const ENTRY: usize = 32;
const NO_HOME: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JournalRecordEntry {
    /// First sector of the block in the journal of the file system.
    pub block: u64,
    /// First sector of the home block of a logged block; `None` for other blocks.
    pub home: Option<u64>,
    /// Sectors of the block that the record contains. The other sectors equal those of the last copy of the home block; if there is no
    /// copy, they are zeros.
    pub sectors: SectorSet,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JournalLogRecord {
    /// Generation of the segment. The highest is the newest.
    pub generation: u64,
    /// Offset of the record in the segment, in sectors.
    pub place: u32,
    /// Number of sectors of the record after the first one.
    pub length: u32,
    pub transaction: u32,
    /// First sector of the journal's superblock; 0 in a record without blocks, which invalidates all earlier records.
    pub superblock: u64,
    pub block_sectors: u32,
    pub entries: Vec<JournalRecordEntry>,
}

/// Number of sectors of the head of a record with `blocks` blocks.
pub(super) const fn head_sectors(blocks: usize) -> u32 {
    (ENTRIES + blocks * ENTRY).div_ceil(SECTOR) as u32
}

impl JournalLogRecord {
    /// Returns the head of the record in whole sectors, without checksums.
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

    /// Reads the first sector of a head. Returns the number of sectors after it; `None` if it is not a head or is damaged.
    pub fn length(first: &[u8]) -> Option<u32> {
        let first = first.get(..SECTOR)?;
        (first.starts_with(MAGIC) && has_valid_header_checksum(first)).then_some(())?;
        u32_at(first, 36)
    }

    /// Parses a whole record; `None` if there is none or it is damaged.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let length = Self::length(bytes)?;
        let behind = bytes.get(SECTOR..SECTOR * (1 + length as usize))?;
        has_valid_data_checksum(bytes, behind).then_some(())?;
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

/// Magic number of JBD2.
const JOURNAL_MAGIC: u32 = 0xC03B_3998;
/// Types of JBD2 blocks that are superblocks.
const SUPERBLOCKS: [u32; 2] = [3, 4];

/// Restores the log from its area on disk. Keeps the blocks of transactions that are valid according to the journal's superblock.
pub(super) fn recover(area: LogArea, disks: &mut dyn RecoveryReader) -> io::Result<JournalLog> {
    let mut segments = Vec::new();
    for segment in 0..SEGMENTS {
        let records = records(area, segment, disks)?;
        if let Some((first, _)) = records.first() {
            segments.push((first.generation, records));
        }
    }
    segments.sort_by_key(|(generation, _)| *generation);
    let newest = segments.last().map_or(0, |(generation, _)| *generation);
    let mut log = JournalLog::new(area, newest);
    let mut superblock = None;
    for (_, records) in segments {
        // Records of a segment do not refer to copies in other segments, so the copies of the previous segment are dropped.
        log.copies.clear();
        for (record, sector) in records {
            if record.entries.is_empty() {
                log.forget(None);
            } else {
                superblock = Some(record.superblock);
                log.add(&record, sector);
            }
        }
    }
    let Some(superblock) = superblock else { return Ok(log) };
    log.forget(tail(superblock, disks)?);
    log.superblock = Some(superblock);
    Ok(log)
}

/// Returns the records of a segment, with their first sectors.
fn records(area: LogArea, segment: u32, disks: &mut dyn RecoveryReader) -> io::Result<Vec<(JournalLogRecord, u64)>> {
    let mut records: Vec<(JournalLogRecord, u64)> = Vec::new();
    let mut place = 0;
    let mut bytes = vec![0; SECTOR];
    while place + ALIGN <= area.segment {
        let sector = area.start(segment) + u64::from(place);
        bytes.resize(SECTOR, 0);
        disks.read_at(0, sector, &mut bytes)?;
        let Some(length) = JournalLogRecord::length(&bytes).filter(|length| place + 1 + length <= area.segment) else {
            break;
        };
        bytes.resize((1 + length as usize) * SECTOR, 0);
        disks.read_at(0, sector, &mut bytes)?;
        let follows = |record: &JournalLogRecord| {
            record.place == place && records.first().is_none_or(|(first, _)| first.generation == record.generation)
        };
        let Some(record) = JournalLogRecord::parse(&bytes).filter(follows) else { break };
        place += 1 + record.length;
        records.push((record, sector));
    }
    Ok(records)
}

/// Returns the first transaction that the file system must replay; `None` if the journal is empty or does not exist.
fn tail(superblock: u64, disks: &mut dyn RecoveryReader) -> io::Result<Option<u32>> {
    let mut bytes = vec![0; SECTOR];
    disks.read_at(0, superblock, &mut bytes)?;
    let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let journal = word(0) == JOURNAL_MAGIC && SUPERBLOCKS.contains(&word(4));
    let (sequence, start) = (word(0x18), word(0x1C));
    Ok((journal && start != 0).then_some(sequence))
}

/// Plans the writes that durably store every block of the log at its own address in the journal.
pub(super) fn rebuild(log: &JournalLog, plan: &mut CommandPlan) {
    let mut placed = Vec::new();
    for (block, stored) in &log.blocks {
        let length = stored.sectors.len() as u32;
        let scratch = plan.scratch(length);
        read_sectors(&stored.sectors, (PlanMemory::Scratch, scratch), plan);
        placed.push((*block, scratch, length));
    }
    if placed.is_empty() {
        return;
    }
    plan.wait();
    for (block, scratch, length) in placed {
        plan.begin(0, Op::Write, block);
        plan.piece(PlanMemory::Scratch, scratch, length);
    }
    plan.wait();
    plan.flag(CommandFlags::empty());
    plan.bare(0, Op::Flush, 0, 0);
    plan.wait();
}

/// Plans to read the sectors of a block from their locations in the log into memory.
pub(super) fn read_sectors(places: &[u64], (memory, first): (PlanMemory, u32), plan: &mut CommandPlan) {
    let mut done = 0;
    while let Some(&place) = places.get(done) {
        let rest = &places[done..];
        let to = (memory, first + done as u32);
        let run = if place == ZEROS {
            let run = rest.iter().take_while(|place| **place == ZEROS).count();
            plan.zeros(to, run as u32);
            run
        } else {
            let run = rest.iter().zip(place..).take_while(|(place, expected)| **place == *expected).count();
            plan.begin(0, Op::Read, place);
            plan.piece(memory, to.1, run as u32);
            run
        };
        done += run;
    }
}
