//! The layer's own log: where records go, and where the sectors of the journal's blocks are.
//!
//! The log is cut into segments. A segment is written from its start, record after record, and used again as a whole once the journal
//! has forgotten all its transactions. The first copy of a block in a segment is whole; later ones hold what changed, so that a
//! segment says all by itself.

use std::collections::BTreeMap;

use emmclab_base::SectorSet;

use super::held::HeldBlock;
use super::record::{Entry, Record, head_sectors};

/// Stands for a sector of zeros among the places of sectors.
pub(super) const ZEROS: u64 = u64::MAX;
/// Records begin and end at multiples of this, so that a device that maps 4 KB reads nothing to write one.
pub(super) const ALIGN: u32 = 8;
/// Segments of a log.
pub(super) const SEGMENTS: u32 = 8;

/// A block of the journal in the log: for each sector, where it lies on the disk below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub transaction: u32,
    pub sectors: Box<[u64]>,
}

/// A copy of a home in a record.
#[derive(Clone, Debug)]
struct Copied {
    /// For each sector, where it lies on the disk below.
    sectors: Box<[u64]>,
    /// Whether the file system has logged no other since.
    is_last: bool,
}

/// Where the log lies, and how it is cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    /// First sector on disk 0.
    pub first: u64,
    /// Sectors of a segment, a multiple of [`ALIGN`].
    pub segment: u32,
}

impl Area {
    /// First sector of a segment.
    pub fn start(&self, segment: u32) -> u64 {
        self.first + u64::from(segment) * u64::from(self.segment)
    }

    /// Sectors in all.
    pub fn sectors(&self) -> u64 {
        u64::from(self.segment) * u64::from(SEGMENTS)
    }
}

/// The state of the log.
#[derive(Debug)]
pub(super) struct Log {
    area: Area,
    /// The newest transaction of each segment that the journal has not forgotten.
    newest: [Option<u32>; SEGMENTS as usize],
    current: u32,
    /// Place of the next record in the current segment.
    next: u32,
    generation: u64,
    blocks: BTreeMap<u64, Stored>,
    /// The last copy of each home in the current segment.
    copies: BTreeMap<u64, Copied>,
    /// First sector of the journal's superblock, once it was written.
    superblock: Option<u64>,
}

/// A record that is to be written.
#[derive(Debug)]
pub(super) struct Placed {
    pub record: Record,
    /// First sector on disk 0.
    pub sector: u64,
}

/// Whether transaction `one` comes before `other`; numbers wrap around, as in JBD2.
pub(super) fn before(one: u32, other: u32) -> bool {
    one.wrapping_sub(other).cast_signed() < 0
}

impl Log {
    /// A log without records that go on from a generation.
    pub fn new(area: Area, generation: u64) -> Self {
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

    /// Where it lies.
    pub fn area(&self) -> Area {
        self.area
    }

    /// The journal's superblock begins at this sector.
    pub fn set_superblock(&mut self, sector: u64) {
        self.superblock = Some(sector);
    }

    /// Whether the place of the journal's superblock is known, which recovery needs.
    pub fn is_ready(&self) -> bool {
        self.superblock.is_some()
    }

    /// Whether no record counts.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.newest.iter().all(Option::is_none)
    }

    /// The file system logs a home: whether the last copy that it logged before is the one in the log.
    pub fn logs(&mut self, home: u64) -> bool {
        self.copies.get_mut(&home).is_some_and(|copy| std::mem::take(&mut copy.is_last))
    }

    /// A record with these blocks of a transaction, where the log has room for it and, in the same segment, for another one of a
    /// single block where `one_more`. With `delta`, it has of logged blocks only what changed since their last copy, of others what is
    /// not zero.
    pub fn place(
        &mut self,
        transaction: u32,
        blocks: &[(u64, HeldBlock)],
        (delta, one_more): (bool, bool),
    ) -> Option<Placed> {
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
        let record = Record {
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
        Some(Placed { record, sector })
    }

    /// A record that makes all before it void, at the start of a segment.
    pub fn void(&mut self) -> Placed {
        self.forget(None);
        self.open((self.current + 1) % SEGMENTS);
        let record = Record {
            generation: self.generation,
            place: 0,
            length: ALIGN - 1,
            transaction: 0,
            superblock: 0,
            block_sectors: 0,
            entries: Vec::new(),
        };
        self.next = ALIGN;
        Placed { record, sector: self.area.start(self.current) }
    }

    fn open(&mut self, segment: u32) {
        self.current = segment;
        self.next = 0;
        self.generation += 1;
        self.copies.clear();
    }

    fn entries(&self, blocks: &[(u64, HeldBlock)], delta: bool) -> Vec<Entry> {
        let of = |(block, held): &(u64, HeldBlock)| {
            let whole = SectorSet::first(held.sectors);
            let known = match held.home {
                Some(home) => held.follows_copy && self.copies.contains_key(&home),
                None => true,
            };
            let sectors = held.changed.filter(|_| delta && known).unwrap_or(whole);
            Entry { block: *block, home: held.home, sectors }
        };
        blocks.iter().map(of).collect()
    }

    /// Takes the blocks of a record that lies at `sector` into the map.
    pub fn add(&mut self, record: &Record, sector: u64) {
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
                self.copies.insert(home, Copied { sectors: sectors.clone(), is_last: true });
            }
            self.blocks.insert(entry.block, Stored { transaction: record.transaction, sectors });
        }
    }

    /// The journal forgets the transactions before `tail`, or all.
    pub fn forget(&mut self, tail: Option<u32>) {
        let gone = |transaction: u32| tail.is_none_or(|tail| before(transaction, tail));
        self.blocks.retain(|_, stored| !gone(stored.transaction));
        for newest in &mut self.newest {
            *newest = newest.filter(|newest| !gone(*newest));
        }
    }

    /// A range of the journal was written past the log.
    pub fn overwritten(&mut self, sector: u64, end: u64) {
        let gone: Vec<u64> = self.meeting(sector, end).map(|(block, _)| block).collect();
        for block in gone {
            self.blocks.remove(&block);
        }
    }

    /// The blocks in the log that meet a range of sectors.
    pub fn meeting(&self, sector: u64, end: u64) -> impl Iterator<Item = (u64, &Stored)> {
        let from = sector.saturating_sub(u64::from(u128::BITS) - 1);
        let blocks = self.blocks.range(from..end.max(from)).map(|(block, stored)| (*block, stored));
        blocks.filter(move |(block, stored)| block + stored.sectors.len() as u64 > sector)
    }

    /// All blocks in the log.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, &Stored)> {
        self.blocks.iter().map(|(block, stored)| (*block, stored))
    }

    /// A segment is read again from its start: copies of other segments say nothing in it.
    pub fn begin_segment(&mut self) {
        self.copies.clear();
    }
}

fn record_sectors(entries: &[Entry]) -> u32 {
    let held: u32 = entries.iter().map(|entry| entry.sectors.len()).sum();
    (head_sectors(entries.len()) + held).next_multiple_of(ALIGN)
}
