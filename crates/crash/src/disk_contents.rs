//! Contents of a disk, stored as references to the data in a crash log. They represent the contents of the device's flash cells during a
//! run, and the contents after a power cut. After a power cut, each zone that is written sequentially contains a prefix of its data, and
//! its write pointer is at the end of this prefix.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::Arc;

use emmclab_base::{Nanos, SECTOR_BYTES};
use emmclab_device::LateTrims;
use emmclab_device::contract::Version;
use emmclab_layers::DiskZones;
use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128};

use crate::log_index::{CrashLogIndex, LoggedCommand, SectorSource, Spool};

/// Number of sectors in a block of disk contents.
pub(crate) const BLOCK: u64 = 8;

pub(crate) type Block = [SectorSource; BLOCK as usize];

/// The source of each sector of a disk. A sector that was never written has no source, and reads as zeros.
#[derive(Clone, Debug, Default)]
pub(crate) struct DiskContents {
    blocks: FxHashMap<u64, Block>,
    /// Sum of a hash of address and digest over all sectors that are not zeros. Equal contents have equal sums.
    sum: u128,
}

/// Returns the term that a sector contributes to the hash sum of the disk contents.
fn term(spool: &Spool, sector: u64, source: SectorSource) -> u128 {
    let (digest, nothing) = (spool.digest(source), spool.digest(SectorSource::ZEROS));
    if digest == nothing {
        return 0;
    }
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&sector.to_le_bytes());
    bytes[8..].copy_from_slice(&digest.to_le_bytes());
    xxh3_128(&bytes)
}

impl DiskContents {
    pub fn block(&self, block: u64) -> Block {
        self.blocks.get(&block).copied().unwrap_or_default()
    }

    pub fn sector(&self, sector: u64) -> SectorSource {
        self.block(sector / BLOCK)[(sector % BLOCK) as usize]
    }

    /// The hash sum over all sectors. Equal contents have equal sums.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// The blocks that were ever written or cleared, in no particular order.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, &Block)> {
        self.blocks.iter().map(|(block, sources)| (*block, sources))
    }

    pub fn set(&mut self, spool: &Spool, sector: u64, source: SectorSource) {
        let place = &mut self.blocks.entry(sector / BLOCK).or_default()[(sector % BLOCK) as usize];
        let before = std::mem::replace(place, source);
        if before != source {
            self.sum = self.sum.wrapping_sub(term(spool, sector, before)).wrapping_add(term(spool, sector, source));
        }
    }

    /// Returns the blocks in a range of sectors that were ever written or cleared, with the sources of their sectors. The work is at most
    /// proportional to the number of such blocks on the disk.
    pub fn blocks_in(&self, sectors: &Range<u64>) -> Vec<(u64, Block)> {
        let blocks = sectors.start / BLOCK..sectors.end.div_ceil(BLOCK);
        if blocks.end - blocks.start < self.blocks.len() as u64 {
            blocks.filter_map(|block| Some((block, *self.blocks.get(&block)?))).collect()
        } else {
            self.blocks().filter(|(block, _)| blocks.contains(block)).map(|(block, all)| (block, *all)).collect()
        }
    }

    /// Sets sectors to zeros. The work is at most proportional to the number of blocks that were ever set.
    pub fn clear(&mut self, spool: &Spool, first: u64, end: u64) {
        for (block, _) in self.blocks_in(&(first..end)) {
            for sector in first.max(block * BLOCK)..end.min((block + 1) * BLOCK) {
                self.set(spool, sector, SectorSource::ZEROS);
            }
        }
    }

    /// Returns what the hash sum of the disk contents would be if the sectors of a block had other sources.
    pub fn sum_with(&self, spool: &Spool, sum: u128, block: u64, sources: &Block) -> u128 {
        let before = self.block(block);
        (0..BLOCK).zip(before.iter().zip(sources)).filter(|(_, (old, new))| old != new).fold(sum, |sum, (i, (old, new))| {
            let sector = block * BLOCK + i;
            sum.wrapping_sub(term(spool, sector, *old)).wrapping_add(term(spool, sector, *new))
        })
    }
}

/// A view of the disk in a possible state after a power cut: the disk contents at this time of the run, and the blocks in which the state
/// differs from these contents.
#[derive(Clone)]
pub struct CrashDiskView {
    run: Arc<CrashLogIndex>,
    base: Arc<DiskContents>,
    changes: Arc<BTreeMap<u64, Block>>,
    sectors: u64,
}

impl CrashDiskView {
    pub(crate) fn new(
        run: &Arc<CrashLogIndex>, base: &Arc<DiskContents>, changes: &Arc<BTreeMap<u64, Block>>, sectors: u64,
    ) -> Self {
        Self { run: run.clone(), base: base.clone(), changes: changes.clone(), sectors }
    }

    /// Size of the disk in sectors.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    fn block(&self, block: u64) -> Block {
        self.changes.get(&block).copied().unwrap_or_else(|| self.base.block(block))
    }

    pub(crate) fn source(&self, sector: u64) -> SectorSource {
        self.block(sector / BLOCK)[(sector % BLOCK) as usize]
    }

    /// Fills `buffer` with whole sectors from `sector` on.
    /// Errors: if the range is beyond the end of the disk, or the file with the data cannot be read.
    pub fn read(&self, sector: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = sector.saturating_add(buffer.len() as u64 / SECTOR_BYTES);
        if end > self.sectors {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (mut at, mut rest) = (sector, buffer);
        while at < end {
            let stop = end.min((at / BLOCK + 1) * BLOCK);
            let sources = self.block(at / BLOCK);
            let part = &sources[(at % BLOCK) as usize..][..(stop - at) as usize];
            let (now, later) = rest.split_at_mut(part.len() * SECTOR_BYTES as usize);
            self.run.spool().read(part, now)?;
            (at, rest) = (stop, later);
        }
        Ok(())
    }

    /// Returns a number that is equal for equal contents of a range within a block, so that equal contents are checked only once.
    pub fn identity(&self, sector: u64, sectors: u64) -> u64 {
        let digest = |sector| self.run.spool().digest(self.source(sector));
        (sector..sector + sectors).fold(0xcbf2_9ce4_8422_2325, |sum: u64, sector| {
            (sum ^ digest(sector)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
        })
    }

    /// Whether a block of eight sectors contains only zeros, according to the digests of its sectors.
    pub(crate) fn is_zero(&self, block: u64) -> bool {
        let zeros = self.run.spool().digest(SectorSource::ZEROS);
        self.block(block).iter().all(|source| self.run.spool().digest(*source) == zeros)
    }

    pub(crate) fn write_pointers(&self, zones: &DiskZones) -> Vec<u64> {
        write_pointers(zones, &self.base, &self.changes)
    }

    /// Returns the numbers of the blocks of eight sectors that may contain data, in order.
    pub fn written(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.base.blocks().map(|(block, _)| block).collect();
        all.extend(self.changes.keys());
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// A promise of a device about what survives a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DevicePromise {
    /// A complete write is durable, because the device has no cache.
    Completion,
    /// A flush makes all writes durable that were complete when the flush arrived.
    Flush,
    /// A reliable or forced write is durable as soon as it is complete.
    Fua,
    /// A write is durable only if certain earlier writes are durable: those before a barrier, those of earlier entries of its packed
    /// command or, with a FIFO cache, all earlier writes.
    Order,
    /// An interrupted reliable write is completely on the disk, or not at all.
    Whole,
    /// Data that was erased securely never reappears after a power cut.
    Erased,
    /// Data that is on the flash is not damaged by a power cut during the program of another page.
    Paired,
}

impl DevicePromise {
    /// The name of the promise in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Completion => "completion",
            Self::Flush => "flush",
            Self::Fua => "fua",
            Self::Order => "order",
            Self::Whole => "whole",
            Self::Erased => "erased",
            Self::Paired => "paired",
        }
    }
}

/// A durability promise that the data in the flash cells violates after a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromiseViolation {
    /// The violated promise.
    pub promise: DevicePromise,
    /// The first sector that violates the promise.
    pub sector: u64,
    /// Number of sectors that violate the promise.
    pub sectors: u64,
    /// The promised version of the data, numbered by the write that produced it.
    pub version: Version,
    /// The version of the data on the disk; 0 if the sectors were never written. Of [`DevicePromise::Paired`]: the damaged version, which is
    /// on the disk if the device protects paired pages.
    pub present: Version,
}

/// The contents of the flash cells, updated with each program event of the log.
pub(crate) struct DurableCells {
    contents: Arc<DiskContents>,
    /// Version of the data in each sector, by block. A discard also has a version number.
    versions: FxHashMap<u64, [Version; BLOCK as usize]>,
    /// Discarded ranges, each with first sector, end and version number of the discard.
    discards: Vec<(u64, u64, Version)>,
    /// Sectors whose flash cells contain older data than promised, with the version that was promised.
    missing: BTreeMap<u64, (Version, DevicePromise)>,
    /// Page programs in progress: command, first sector and number of sectors of each. Recorded only if the device leaves interrupted
    /// writes half done.
    in_progress: Vec<(u32, u64, u32)>,
    /// Whole map units that a power cut now damages.
    pub endangered: Vec<Range<u64>>,
    /// Recent discards that a power cut may repeat; `None` unless the device repeats discards after a power cut.
    repeated: Option<RepeatedDiscards>,
}

/// Discards that a power cut may repeat, and promised data that was written after these discards.
#[derive(Default)]
struct RepeatedDiscards {
    /// The discarded sectors, with the version of the discard.
    trims: LateTrims<(Range<u64>, Version)>,
    /// Fulfilled promises by sector, each with the promised version.
    fulfilled: BTreeMap<u64, (Version, DevicePromise)>,
}

impl RepeatedDiscards {
    fn discarded(&mut self, at: Nanos, (first, end): (u64, u64), version: Version) {
        self.trims.retire(at);
        if self.trims.is_empty() {
            self.fulfilled.clear();
        }
        self.fulfilled.retain(|sector, _| !(first..end).contains(sector));
        self.trims.add(at, (first..end, version));
    }

    /// Called when the flash contains the version of a sector that the device has promised to keep.
    fn note_fulfilled(&mut self, sector: u64, version: Version, promise: DevicePromise) {
        if self.trims.all().any(|(sectors, trim)| sectors.contains(&sector) && *trim < version) {
            self.fulfilled.insert(sector, (version, promise));
        }
    }

    /// Returns the ranges of sectors that the device discards again after a power cut.
    fn discarded_again(&self, cut: Nanos) -> impl Iterator<Item = Range<u64>> {
        self.trims.repeated(cut).map(|(sectors, _)| sectors.clone())
    }
}

impl DurableCells {
    /// Creates the flash contents at the start of a run. `repeats` states whether the device repeats discards after a power cut.
    pub fn new(base: &Arc<DiskContents>, repeats: bool) -> Self {
        Self {
            contents: base.clone(),
            versions: FxHashMap::default(),
            discards: Vec::new(),
            missing: BTreeMap::new(),
            in_progress: Vec::new(),
            endangered: Vec::new(),
            repeated: repeats.then(RepeatedDiscards::default),
        }
    }

    pub fn contents(&self) -> &Arc<DiskContents> {
        &self.contents
    }

    fn version(&self, sector: u64) -> Version {
        let written = self.versions.get(&(sector / BLOCK)).map_or(0, |all| all[(sector % BLOCK) as usize]);
        let covers = |(first, end, _): &&(u64, u64, Version)| (*first..*end).contains(&sector);
        let discarded = self.discards.iter().rfind(covers).map_or(0, |(.., version)| *version);
        written.max(discarded)
    }

    pub fn begins(&mut self, command: u32, sector: u64, sectors: u32) {
        self.in_progress.push((command, sector, sectors));
    }

    /// Called when a power cut no longer damages a map unit.
    pub fn safe(&mut self, unit: &Range<u64>) {
        if let Some(place) = self.endangered.iter().position(|other| other == unit) {
            self.endangered.swap_remove(place);
        }
    }

    /// The sectors with data that a power cut now damages.
    fn damaged(&self) -> impl Iterator<Item = u64> {
        let sectors: BTreeSet<u64> = self.endangered.iter().cloned().flatten().collect();
        sectors.into_iter().filter(|sector| self.contents.block(sector / BLOCK)[(sector % BLOCK) as usize] != SectorSource::ZEROS)
    }

    /// Called when `command` discards sectors. Afterwards they contain no data, and the device promises nothing about their contents.
    pub fn discarded(&mut self, spool: &Spool, command: u32, at: Nanos, (first, end): (u64, u64)) {
        let version = Version::from(command) + 1;
        if let Some(late) = &mut self.repeated {
            late.discarded(at, (first, end), version);
        }
        self.endangered.retain(|unit| unit.end <= first || end <= unit.start);
        self.discards.retain(|(from, to, _)| *from < first || *to > end);
        self.discards.push((first, end, version));
        Arc::make_mut(&mut self.contents).clear(spool, first, end);
        let gone: Vec<u64> = self.missing.range(first..end).map(|(sector, _)| *sector).collect();
        for sector in gone {
            self.missing.remove(&sector);
        }
    }

    /// Called when sectors of a command are programmed. Older data never replaces newer data of a sector.
    pub fn programmed(&mut self, spool: &Spool, logged: &LoggedCommand, command: u32, (first, end): (u64, u64)) {
        self.in_progress.retain(|(other, sector, _)| (*other, *sector) != (command, first));
        let version = Version::from(command) + 1;
        for sector in first..end {
            if self.version(sector) < version {
                let block = self.versions.entry(sector / BLOCK).or_default();
                block[(sector % BLOCK) as usize] = version;
                Arc::make_mut(&mut self.contents).set(spool, sector, logged.source_of(sector));
                self.endangered.retain(|unit| !unit.contains(&sector));
                if let Some((promised, promise)) = self.missing.get(&sector).copied()
                    && promised <= version
                {
                    self.missing.remove(&sector);
                    if let Some(late) = &mut self.repeated {
                        late.note_fulfilled(sector, promised, promise);
                    }
                }
            }
        }
    }

    /// Called when the device promises that sectors contain a version of their data. Newer data also fulfils the promise.
    pub fn promised(&mut self, (first, end): (u64, u64), version: Version, promise: DevicePromise) {
        for sector in first..end {
            if self.version(sector) < version {
                self.missing.insert(sector, (version, promise));
            } else if let Some(late) = &mut self.repeated {
                late.note_fulfilled(sector, version, promise);
            }
        }
    }

    /// Returns the durability promises that the data in the flash cells violates after a power cut. Equal violations of adjacent sectors
    /// are joined. If the device can leave a write half done, this includes reliable writes of which only a part is on the disk.
    pub fn broken(&self, cut: Nanos, reliable: impl Fn(u32) -> bool) -> Vec<PromiseViolation> {
        let mut all: Vec<PromiseViolation> = Vec::new();
        let mut lost = Cow::Borrowed(&self.missing);
        let mut taken = BTreeSet::new();
        for (late, range) in self.repeated.iter().flat_map(|late| late.discarded_again(cut).map(move |range| (late, range))) {
            for (sector, promised) in late.fulfilled.range(range) {
                lost.to_mut().entry(*sector).or_insert(*promised);
                taken.insert(*sector);
            }
        }
        let lost = lost.iter().map(|(sector, (version, promise))| (*sector, *promise, *version));
        let damaged = self.damaged().map(|sector| (sector, DevicePromise::Paired, self.version(sector)));
        for (sector, promise, version) in lost.chain(damaged) {
            let present = if taken.contains(&sector) { 0 } else { self.version(sector) };
            match all.last_mut() {
                Some(last)
                    if (last.sector + last.sectors, last.promise, last.version, last.present)
                        == (sector, promise, version, present) =>
                {
                    last.sectors += 1;
                }
                _ => all.push(PromiseViolation { promise, sector, sectors: 1, version, present }),
            }
        }
        let torn = self.in_progress.iter().filter(|(command, _, sectors)| *sectors > 1 && reliable(*command));
        all.extend(torn.map(|(command, sector, sectors)| PromiseViolation {
            promise: DevicePromise::Whole,
            sector: *sector,
            sectors: u64::from(*sectors),
            version: Version::from(*command) + 1,
            present: self.version(*sector),
        }));
        all
    }

    /// Returns the blocks that a power cut changes, with their contents afterwards. A program operation in progress leaves the first half
    /// of its sectors. The device may also repeat discards, which leaves zeros, or damage paired pages, which leaves garbage.
    pub fn cut(&self, cut: Nanos, commands: &[LoggedCommand]) -> BTreeMap<u64, Block> {
        let mut changes = BTreeMap::new();
        for range in self.repeated.iter().flat_map(|late| late.discarded_again(cut)) {
            for (block, sources) in self.contents.blocks_in(&range) {
                let sources: &mut Block = changes.entry(block).or_insert(sources);
                for sector in range.start.max(block * BLOCK)..range.end.min((block + 1) * BLOCK) {
                    sources[(sector % BLOCK) as usize] = SectorSource::ZEROS;
                }
            }
        }
        for sector in self.damaged() {
            let block = changes.entry(sector / BLOCK).or_insert_with(|| self.contents.block(sector / BLOCK));
            block[(sector % BLOCK) as usize] = SectorSource::garbage(xxh3_64_with_seed(&sector.to_le_bytes(), cut.0 as u64));
        }
        for (command, first, sectors) in &self.in_progress {
            for sector in *first..first + u64::from(sectors / 2) {
                if self.version(sector) <= Version::from(*command) {
                    let block = changes.entry(sector / BLOCK).or_insert_with(|| self.contents.block(sector / BLOCK));
                    block[(sector % BLOCK) as usize] = commands[*command as usize].source_of(sector);
                }
            }
        }
        changes
    }
}

/// Returns the write pointer of each zone: the sector after the last one that contains data. The work is proportional to the number of
/// blocks that were ever written.
pub(crate) fn write_pointers(zones: &DiskZones, base: &DiskContents, changes: &BTreeMap<u64, Block>) -> Vec<u64> {
    let mut pointers: Vec<u64> = (0..zones.count).map(|zone| zones.start(zone)).collect();
    let unchanged = base.blocks().filter(|(block, _)| !changes.contains_key(block));
    for (block, sources) in unchanged.chain(changes.iter().map(|(block, sources)| (*block, sources))) {
        let Some(zone) = zones.zone_of(block * BLOCK) else { continue };
        if let Some(last) = sources.iter().rposition(|source| *source != SectorSource::ZEROS) {
            let pointer = &mut pointers[zone as usize];
            *pointer = (*pointer).max(block * BLOCK + last as u64 + 1);
        }
    }
    pointers
}

/// Removes the data after the first gap in each zone. Programs end in any order, and the device recovers only the data before the gap.
pub(crate) fn keep_beginnings(zones: &DiskZones, base: &DiskContents, changes: &mut BTreeMap<u64, Block>) {
    let mut blocks: Vec<u64> = base.blocks().map(|(block, _)| block).chain(changes.keys().copied()).collect();
    blocks.retain(|block| zones.zone_of(block * BLOCK).is_some());
    blocks.sort_unstable();
    blocks.dedup();
    // `present` is the zone of the current block, and `end` is the first sector of the zone without data. Data after `end` is removed.
    let (mut present, mut end) = (None, 0);
    for block in blocks {
        let zone = zones.zone_of(block * BLOCK);
        if zone != present {
            (present, end) = (zone, zone.map_or(0, |zone| zones.start(zone)));
        }
        let mut sources = changes.get(&block).copied().unwrap_or_else(|| base.block(block));
        let before = sources;
        for (sector, source) in (block * BLOCK..).zip(&mut sources) {
            if sector == end && *source != SectorSource::ZEROS {
                end += 1;
            } else {
                *source = SectorSource::ZEROS;
            }
        }
        if sources != before {
            changes.insert(block, sources);
        }
    }
}
