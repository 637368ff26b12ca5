//! Contents of the device's cells during a run, and the promises that they violate.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use emmclab_base::Nanos;
use emmclab_device::LateTrims;
use emmclab_device::contract::Version;
use rustc_hash::FxHashMap;

use crate::disk_contents::{BLOCK, Block, DiskContents};
use crate::log_index::LoggedCommand;
use crate::spool::{SectorSource, Spool};

/// A promise of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DevicePromise {
    /// A write that is complete is durable: the device has no cache.
    Completion,
    /// A flush makes everything durable that was complete when it arrived.
    Flush,
    /// A reliable or forced write is durable when it is complete.
    Fua,
    /// A write after a barrier, after an entry of its packed command, or later in a FIFO cache, is durable only if those before it
    /// are.
    Order,
    /// A reliable write that is interrupted is on the disk completely or not at all.
    Whole,
    /// Data that was erased securely never returns.
    Erased,
}

impl DevicePromise {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Completion => "completion",
            Self::Flush => "flush",
            Self::Fua => "fua",
            Self::Order => "order",
            Self::Whole => "whole",
            Self::Erased => "erased",
        }
    }
}

/// A promise that the cells violate at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromiseViolation {
    /// The promise.
    pub promise: DevicePromise,
    /// The first sector.
    pub sector: u64,
    /// Number of sectors to which this applies.
    pub sectors: u64,
    /// The version that is promised.
    pub version: Version,
    /// The version on the disk; 0 = none.
    pub present: Version,
}

/// Contents of the cells, updated with each program event.
pub(crate) struct DurableCells {
    contents: Arc<DiskContents>,
    /// Version of each sector, by block; a discard has a version, too.
    versions: FxHashMap<u64, [Version; BLOCK as usize]>,
    /// Ranges that were discarded: first, end, version.
    discards: Vec<(u64, u64, Version)>,
    /// Sectors whose cells hold an older version than promised.
    missing: BTreeMap<u64, (Version, DevicePromise)>,
    /// Programs in progress: command, sector, sectors; recorded only for a device that tears.
    in_progress: Vec<(u32, u64, u32)>,
    /// The late discards, for a device that repeats them after a cut.
    repeated: Option<RepeatedDiscards>,
}

/// The discards that a cut may repeat, and the promises that were fulfilled by writes after them.
#[derive(Default)]
struct RepeatedDiscards {
    /// The discarded sectors, and the version of the discard.
    trims: LateTrims<(Range<u64>, Version)>,
    /// Fulfilled promises by sector.
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

    /// Called when the cells hold what is promised of a sector.
    fn note_fulfilled(&mut self, sector: u64, version: Version, promise: DevicePromise) {
        if self.trims.all().any(|(sectors, trim)| sectors.contains(&sector) && *trim < version) {
            self.fulfilled.insert(sector, (version, promise));
        }
    }

    /// Returns the ranges of sectors that a cut discards again.
    fn discarded_again(&self, cut: Nanos) -> impl Iterator<Item = Range<u64>> {
        self.trims.repeated(cut).map(|(sectors, _)| sectors.clone())
    }
}

impl DurableCells {
    /// Cells at the start of a run; `repeats` states whether the device repeats discards after a cut.
    pub fn new(base: &Arc<DiskContents>, repeats: bool) -> Self {
        Self {
            contents: base.clone(),
            versions: FxHashMap::default(),
            discards: Vec::new(),
            missing: BTreeMap::new(),
            in_progress: Vec::new(),
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

    /// Called when command `command` discards sectors: they hold nothing, and nothing is promised of them.
    pub fn discarded(&mut self, spool: &Spool, command: u32, at: Nanos, (first, end): (u64, u64)) {
        let version = Version::from(command) + 1;
        if let Some(late) = &mut self.repeated {
            late.discarded(at, (first, end), version);
        }
        self.discards.retain(|(from, to, _)| *from < first || *to > end);
        self.discards.push((first, end, version));
        Arc::make_mut(&mut self.contents).clear(spool, first, end);
        let gone: Vec<u64> = self.missing.range(first..end).map(|(sector, _)| *sector).collect();
        for sector in gone {
            self.missing.remove(&sector);
        }
    }

    /// Called when sectors of a command are programmed; a version never replaces a newer one.
    pub fn programmed(&mut self, spool: &Spool, logged: &LoggedCommand, command: u32, (first, end): (u64, u64)) {
        self.in_progress.retain(|(other, sector, _)| (*other, *sector) != (command, first));
        let version = Version::from(command) + 1;
        for sector in first..end {
            if self.version(sector) < version {
                let block = self.versions.entry(sector / BLOCK).or_default();
                block[(sector % BLOCK) as usize] = version;
                Arc::make_mut(&mut self.contents).set(spool, sector, logged.source_of(sector));
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

    /// Called when sectors are promised to hold a version or a newer one.
    pub fn promised(&mut self, (first, end): (u64, u64), version: Version, promise: DevicePromise) {
        for sector in first..end {
            if self.version(sector) < version {
                self.missing.insert(sector, (version, promise));
            } else if let Some(late) = &mut self.repeated {
                late.note_fulfilled(sector, version, promise);
            }
        }
    }

    /// Returns the promises that the cells violate after a cut, with adjacent sectors joined. For a device that tears, this
    /// includes reliable writes of which only a part is left.
    pub fn broken(&self, cut: Nanos, reliable: impl Fn(u32) -> bool) -> Vec<PromiseViolation> {
        let mut all: Vec<PromiseViolation> = Vec::new();
        let mut lost = Cow::Borrowed(&self.missing);
        let mut taken = BTreeSet::new();
        for (late, range) in
            self.repeated.iter().flat_map(|late| late.discarded_again(cut).map(move |range| (late, range)))
        {
            for (sector, promised) in late.fulfilled.range(range) {
                lost.to_mut().entry(*sector).or_insert(*promised);
                taken.insert(*sector);
            }
        }
        for (sector, (version, promise)) in lost.as_ref() {
            let found = if taken.contains(sector) { 0 } else { self.version(*sector) };
            match all.last_mut() {
                Some(last)
                    if last.sector + last.sectors == *sector
                        && (last.promise, last.version, last.present) == (*promise, *version, found) =>
                {
                    last.sectors += 1;
                }
                _ => all.push(PromiseViolation {
                    promise: *promise,
                    sector: *sector,
                    sectors: 1,
                    version: *version,
                    present: found,
                }),
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

    /// Returns the blocks in which the contents after a cut differ from the cells: programs in progress leave the first half of
    /// their sectors, and discards are repeated.
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
