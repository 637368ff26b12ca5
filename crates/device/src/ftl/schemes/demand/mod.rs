//! A mapping table on the flash, a part of which is cached in RAM.
//!
//! The table is divided into pages, which are written to separate blocks and located through a directory in RAM. A required entry is read
//! with its page. A dirty entry that is evicted is written back together with all other dirty entries of its page. Garbage collection
//! changes cached entries in RAM, and rewrites the pages of the others. Pages of the table are map units that follow those of the host, so
//! that block counts, garbage collection and wear levelling treat both alike. A [cache policy](cache) determines which entries are cached,
//! and in which form.

mod cache;
mod dftl;
mod leaftl;
mod rqftl;
mod tpftl;

use emmclab_base::Nanos;
use emmclab_settings::{DeviceSettings, PolicyDescription};
use rustc_hash::FxHashMap;

use crate::events::{MapConsulted, MapHinted, MapLookedUp, MapMispredicted, MapPrefetched, Observer, OperationCause};
use crate::ftl::allocation::PageRequest;
use crate::ftl::commit::{ProgrammedPages, UnitRun};
use crate::ftl::core::{FtlCore, StopReason};
use crate::ftl::pool::WriteStream;
use crate::ftl::request_state::RequestState;
use crate::ftl::write::{ProgramTarget, RequestSectors, all_sectors};
use crate::geometry::Geometry;
use crate::ids::{Lpn, Ppn};
use crate::lru::{BitSet, LruSet};
use crate::nand::{Nand, PageOperationTimes};
use cache::{LOOKUP_NS, MapCache, MapCachePolicyEntry, MapMiss, MapPageLayout, POLICIES, StaleMapPages};

pub(crate) use cache::HPB_PAGES;
pub use cache::{LOOKUP_NJ, MapCacheSummary};

/// The mapping schemes with a table on the flash, one for each cache policy.
pub(super) fn kinds() -> impl Iterator<Item = PolicyDescription> {
    POLICIES.iter().map(|policy| policy.kind)
}

/// Whether a scheme stores its mapping table on the flash.
pub(crate) fn maps_on_demand(scheme: &str) -> bool {
    find(scheme).is_some()
}

fn find(scheme: &str) -> Option<&'static MapCachePolicyEntry> {
    POLICIES.iter().find(|policy| policy.kind.name == scheme)
}

/// Size of an entry in the directory of mapping table pages, in bytes.
const DIRECTORY_BYTES: u64 = 4;

/// Empty sector range, for a page that contains no host data.
const NO_SECTORS: RequestSectors = RequestSectors { first: 0, end: 0 };

/// A mapping table on the flash, with a cache in RAM.
pub(crate) struct DemandMapping {
    cache: Box<dyn MapCache>,
    /// Mapping table entries that the host caches (HPB); `None` without HPB.
    hints: Option<HpbHints>,
    /// Whether cached entries may point to a wrong page, because the policy stores approximate locations.
    may_mislead: bool,
    /// Layout of the mapping table in pages. The map units of these pages are numbered after those of the host.
    layout: MapPageLayout,
    /// Number of map units that a page of the mapping table occupies.
    units: u32,
    /// Block group for pages of the mapping table: the group with the smallest pages.
    group: u8,
    lookup: Nanos,
    stale: StaleMapPages,
}

impl Clone for DemandMapping {
    fn clone(&self) -> Self {
        Self { cache: self.cache.copy(), hints: self.hints.clone(), stale: self.stale.clone(), ..*self }
    }
}

impl DemandMapping {
    /// Creates the mapping table of a scheme; `None` if the scheme does not store its table on the flash.
    pub fn new(settings: &DeviceSettings, geometry: &Geometry) -> Option<Self> {
        let policy = find(&settings.mapping.scheme)?;
        let group = geometry.by_size[geometry.by_size.len() - 1];
        let kind = &geometry.groups[usize::from(group)];
        let layout = MapPageLayout::new(geometry.logical_units, kind.page_bytes / policy.flash_bytes);
        let options = &settings.mapping.options;
        let cache = (policy.make)(settings, geometry, layout);
        Some(Self {
            may_mislead: cache.may_mislead(),
            cache,
            hints: HpbHints::new(HPB_PAGES.count(options), layout.per_page(), layout.pages() as usize),
            layout,
            units: kind.units_per_page(),
            group,
            lookup: Nanos(i64::from(LOOKUP_NS.count(options))),
            stale: StaleMapPages::new(layout.pages()),
        })
    }

    /// Number of map units that the mapping table occupies. Their numbers follow those of the host's map units.
    pub fn map_units(&self) -> u32 {
        self.layout.pages() * self.units
    }

    /// Bytes of device RAM for cached entries and the directory.
    pub fn ram_bytes(&self) -> u64 {
        self.cache.ram_bytes() + u64::from(self.layout.pages()) * DIRECTORY_BYTES
    }

    /// State of the cached part of the mapping table.
    pub fn figures(&self) -> MapCacheSummary {
        self.cache.figures()
    }

    /// The cached entries, encoded as words of a device image.
    pub fn words(&self) -> Vec<u32> {
        self.cache.words()
    }

    /// Restores the cached entries from a device image; `None` if the words are invalid.
    pub fn restore(&mut self, words: &mut dyn Iterator<Item = u32>) -> Option<()> {
        self.cache.restore(words)
    }

    /// Writes the whole mapping table to the flash, with the locations of all units of the host; nothing of it is cached.
    pub fn write_whole<L: Observer>(&mut self, core: &mut FtlCore, nand: &mut Nand, log: &mut L) {
        for page in 0..self.layout.pages() {
            let tables = &core.tables;
            let mapped = self.layout.units_of(page).map(Lpn).filter(|unit| tables.lookup(*unit).is_some());
            core.changed_entries.get_or_insert_default().extend(mapped);
            self.follow(core);
        }
        self.settle(core, nand, Nanos::ZERO, log);
    }

    /// Describes the first inconsistency between the cache and the mapping tables; `None` if there is none.
    pub fn fault(&self, core: &FtlCore) -> Option<String> {
        self.cache.fault(core)
    }

    /// Writes the data of a request, and loads and updates the mapping table entries that it needs.
    pub fn write<L: Observer>(
        &mut self, core: &mut FtlCore, nand: &mut Nand, request: &mut RequestState, span: RequestSectors, log: &mut L,
    ) {
        let units = span.units(core.geometry.unit_shift);
        self.look_up(core, nand, request, units, Some(span), log);
        if core.stop.is_none() {
            core.write_pages(nand, request, span, log);
            self.cache.update_written(core, units, &mut self.stale);
            self.settle(core, nand, request.ready, log);
        }
    }

    /// Loads the mapping table entries of units that will be read into the cache.
    pub fn look_up_to_read<L: Observer>(
        &mut self, core: &mut FtlCore, nand: &mut Nand, request: &mut RequestState, units: (Lpn, u32), log: &mut L,
    ) {
        self.look_up(core, nand, request, units, None, log);
        self.settle(core, nand, request.ready, log);
    }

    /// Updates the mapping table entries that garbage collection or discards changed.
    pub fn follow(&mut self, core: &mut FtlCore) {
        let Some(changed) = core.changed_entries.as_mut().filter(|changed| !changed.is_empty()) else {
            return;
        };
        let mut changed = std::mem::take(changed);
        if let Some(hints) = &mut self.hints {
            for unit in &changed {
                hints.change(unit.0);
            }
        }
        changed.retain(|unit| unit.0 < self.layout.units);
        self.cache.update_moved(core, &mut changed, &mut self.stale);
        changed.clear();
        // The memory of the vector is reused for later changes.
        core.changed_entries = Some(changed);
    }

    /// Rewrites the stale pages of the mapping table after garbage collection or discards, and evicts entries if the cache exceeds its
    /// limit. Later commands wait for these operations.
    pub fn settle<L: Observer>(&mut self, core: &mut FtlCore, nand: &mut Nand, ready: Nanos, log: &mut L) {
        self.follow(core);
        // Rewriting a map page may collect garbage, which makes other map pages stale. If this does not end, the device is full.
        let mut patience = 16 * self.stale.all() + 16;
        while core.stop.is_none()
            && let Some(page) = self.cache.make_room(core, None).or_else(|| self.stale.pop())
        {
            if patience == 0 {
                core.stop = Some(StopReason::Full);
                return;
            }
            patience -= 1;
            self.write_page(core, nand, page, ready, log);
        }
    }

    /// Looks up the mapping table entries of units that will be read or, if `writes` is `Some`, written.
    fn look_up<L: Observer>(
        &mut self, core: &mut FtlCore, nand: &mut Nand, request: &mut RequestState, (first, units): (Lpn, u32),
        writes: Option<RequestSectors>, log: &mut L,
    ) {
        let changes = writes.is_some();
        let mut fetched = FetchedMapPages::default();
        let mut wrong = MispredictedReads::default();
        // Whether a cached entry needs no further work after its lookup.
        let plain = self.hints.is_none() && !self.may_mislead;
        let (mut unit, end) = (first, first.plus(units));
        while unit < end {
            let mut most = end.0 - unit.0;
            if !changes && let Some(hints) = &mut self.hints {
                if hints.has_current_entry(unit.0) {
                    log.map_hinted(&MapHinted { lpn: unit });
                    unit = unit.plus(1);
                    continue;
                }
                // The host may hold the entry of the next unit, which then needs no lookup. Therefore, one entry is looked up at a time.
                most = 1;
            }
            let hits = self.cache.touch(unit, most, changes);
            if plain {
                request.spend(Nanos(self.lookup.0 * i64::from(hits)));
                (0..hits).for_each(|_| log.map_looked_up(&MapLookedUp { hit: true }));
            } else {
                for unit in (unit.0..unit.0 + hits).map(Lpn) {
                    request.spend(self.lookup);
                    log.map_looked_up(&MapLookedUp { hit: true });
                    self.use_entry(core, nand, request, (unit, writes), &mut wrong, log);
                }
            }
            unit = unit.plus(hits);
            if hits < most {
                request.spend(self.lookup);
                log.map_looked_up(&MapLookedUp { hit: false });
                let wanted = MapMiss { unit, rest: end.0 - unit.0 };
                self.fetch(core, nand, request, wanted, (changes, &mut fetched), log);
                self.use_entry(core, nand, request, (unit, writes), &mut wrong, log);
                unit = unit.plus(1);
            }
        }
        log.map_consulted(&MapConsulted { missed: fetched.any });
        if let Some(op) = wrong.last {
            request.look_up(&op);
        }
    }

    /// Uses the mapping table entry of a unit. If the entry points to the wrong page, that page is read first.
    #[inline]
    fn use_entry<L: Observer>(
        &mut self, core: &FtlCore, nand: &mut Nand, request: &RequestState, (unit, writes): (Lpn, Option<RequestSectors>),
        wrong: &mut MispredictedReads, log: &mut L,
    ) {
        if writes.is_some()
            && let Some(hints) = &mut self.hints
        {
            hints.change(unit.0);
        }
        if self.may_mislead && reads(core, unit, writes) {
            self.read_wrong_page(core, nand, request, unit, wrong, log);
        }
    }

    /// Loads a mapping table entry into the cache.
    fn fetch<L: Observer>(
        &mut self, core: &mut FtlCore, nand: &mut Nand, request: &mut RequestState, wanted: MapMiss,
        (changes, fetched): (bool, &mut FetchedMapPages), log: &mut L,
    ) {
        let page = self.layout.page(wanted.unit);
        while let Some(evicted) = self.cache.make_room(core, Some(wanted)) {
            let Some(op) = self.write_page(core, nand, evicted, request.ready, log) else { continue };
            request.look_up(&op);
        }
        if fetched.last != Some(page)
            && let Some(ppn) = core.tables.lookup(self.home(page))
        {
            let op = read_map_page(core, nand, ppn, request.ready, log);
            request.look_up(&op);
            fetched.any = true;
            if let Some(hints) = &mut self.hints {
                hints.cache_page(page);
            }
        }
        fetched.last = Some(page);
        let count = self.cache.load(core, wanted, changes);
        if count > 0 {
            log.map_prefetched(&MapPrefetched { count });
        }
    }

    /// If the mapping table entry of a unit points to a wrong page, reads this page.
    fn read_wrong_page<L: Observer>(
        &self, core: &FtlCore, nand: &mut Nand, request: &RequestState, unit: Lpn, wrong: &mut MispredictedReads, log: &mut L,
    ) {
        let Some((ppn, mispredicted)) = core.tables.lookup(unit).zip(self.cache.wrong_page(core, unit)) else { return };
        if wrong.page.replace(mispredicted.page) == Some(mispredicted.page) {
            return;
        }
        log.map_mispredicted(&MapMispredicted { lpn: unit });
        let group = nand.group(core.geometry.block_of(ppn));
        let (bytes, shift) = (core.geometry.unit_bytes, core.geometry.groups[usize::from(group)].page_shift);
        let page = (mispredicted.page / core.geometry.planes) & ((1 << (core.geometry.stride_shift - shift)) - 1);
        let op = FtlCore::read_unplaced(nand, (mispredicted.plane, group, page), request.ready, bytes, OperationCause::Map, log);
        if wrong.last.is_none_or(|last| last.end < op.end) {
            wrong.last = Some(op);
        }
    }

    /// Handles a restart of the device, at which the host drops its cached mapping table entries.
    pub fn power_cycle(&mut self) {
        if let Some(hints) = &mut self.hints {
            hints.clear();
        }
    }

    /// The first map unit that a page of the mapping table occupies.
    fn home(&self, page: u32) -> Lpn {
        Lpn(self.layout.units + page * self.units)
    }

    /// Writes a page of the mapping table with all changed entries to a new location; `None` if the device is full.
    fn write_page<L: Observer>(
        &mut self, core: &mut FtlCore, nand: &mut Nand, page: u32, ready: Nanos, log: &mut L,
    ) -> Option<PageOperationTimes> {
        let first = self.home(page);
        let mut at = ready;
        if let Some(ppn) = core.tables.lookup(first) {
            at = read_map_page(core, nand, ppn, ready, log).end;
        }
        let request = PageRequest { ready: at, first, group: self.group };
        let place = core.allocate(nand, request, WriteStream::Map, log);
        // The allocation may have collected blocks, and thereby changed more entries of this map page.
        self.follow(core);
        let Some(ProgramTarget { group, block, .. }) = place else {
            core.stop_full();
            return None;
        };
        self.stale.remove(page);
        self.cache.mark_page_clean(core, page);
        let bytes = self.units * core.geometry.unit_bytes;
        let next = nand.program_next(block, at, bytes);
        let programmed = ProgrammedPages::next(block, group, &next, bytes, OperationCause::Map, WriteStream::Map);
        let unit_sectors = core.geometry.unit_sectors;
        let units = UnitRun { first, units: self.units, span: NO_SECTORS, unit_sectors, command: None };
        core.commit_page(programmed, &units, log);
        Some(next.op)
    }
}

/// The pages of the mapping table that a request required.
#[derive(Default)]
struct FetchedMapPages {
    /// The page of the mapping table that was required last.
    last: Option<u32>,
    /// Whether a page of the mapping table was read from the flash.
    any: bool,
}

/// The flash pages that a request has read in vain.
#[derive(Default)]
struct MispredictedReads {
    /// The last page that was read in vain.
    page: Option<u32>,
    /// Times of the page read in vain that ends last.
    last: Option<PageOperationTimes>,
}

/// Whether a request must read the old data of a unit: always for a read, and for a write that covers only a part of the unit.
#[inline]
fn reads(core: &FtlCore, unit: Lpn, writes: Option<RequestSectors>) -> bool {
    let sectors = core.geometry.unit_sectors;
    writes.is_none_or(|span| !span.is_whole(sectors) && span.covered(unit, sectors) != all_sectors(sectors))
}

fn read_map_page<L: Observer>(core: &mut FtlCore, nand: &mut Nand, ppn: Ppn, ready: Nanos, log: &mut L) -> PageOperationTimes {
    let group = nand.block(core.geometry.block_of(ppn)).group;
    let bytes = core.geometry.groups[usize::from(group)].page_bytes;
    core.read_page(nand, ppn, ready, bytes, OperationCause::Map, log)
}

// Hints of the host (HPB, JESD220-3): the host caches pages of the map in its memory and sends the cached entry with a read, so that the
// device need not read the map page. Whenever the device reads a map page, the host caches that page too. The device records changes of
// entries, so it recognises outdated ones.

/// Pages of the mapping table that the host caches (HPB), in the order of their last use.
#[derive(Clone)]
struct HpbHints {
    pages: LruSet,
    most: usize,
    per_page: u32,
    /// For each page that the host caches, the entries that have become outdated.
    changed: FxHashMap<u32, BitSet>,
}

impl HpbHints {
    /// Creates the cache of a host for at most `most` pages of the mapping table; `None` if `most` is 0.
    pub fn new(most: u32, per_page: u32, pages: usize) -> Option<Self> {
        let most = (most as usize).min(pages);
        (most > 0).then(|| Self { pages: LruSet::new(pages, most), most, per_page, changed: FxHashMap::default() })
    }

    /// Whether the host sends the mapping table entry of a unit with a read and this entry is current.
    pub fn has_current_entry(&mut self, unit: u32) -> bool {
        let (page, entry) = self.place(unit);
        self.changed.get(&page).is_some_and(|changed| !changed.has(entry)) && self.pages.touch(page)
    }

    /// Records that the host caches a page of the mapping table that the device has just read.
    pub fn cache_page(&mut self, page: u32) {
        if self.pages.touch(page) {
            if let Some(changed) = self.changed.get_mut(&page) {
                changed.clear();
            }
            return;
        }
        let dropped = if self.pages.len() == self.most { self.pages.pop() } else { None };
        let mut changed = dropped.and_then(|page| self.changed.remove(&page)).unwrap_or_else(|| BitSet::new(self.per_page));
        changed.clear();
        self.pages.push(page);
        self.changed.insert(page, changed);
    }

    /// Records that the mapping table entry of a unit has changed.
    pub fn change(&mut self, unit: u32) {
        let (page, entry) = self.place(unit);
        if let Some(changed) = self.changed.get_mut(&page) {
            changed.insert(entry);
        }
    }

    /// Removes all pages from the host's cache when the host restarts.
    pub fn clear(&mut self) {
        self.pages.clear();
        self.changed.clear();
    }

    /// The page of the mapping table that contains the entry of a unit, and the index of the entry in the page.
    fn place(&self, unit: u32) -> (u32, u32) {
        (unit / self.per_page, unit % self.per_page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_given_until_it_changes_and_again_after_its_page_was_taken() {
        let mut hints = HpbHints::new(2, 100, 10).unwrap();
        assert!(!hints.has_current_entry(250));
        hints.cache_page(2);
        assert!(hints.has_current_entry(250) && hints.has_current_entry(299) && !hints.has_current_entry(300));
        hints.change(250);
        assert!(!hints.has_current_entry(250) && hints.has_current_entry(251));
        hints.cache_page(2);
        assert!(hints.has_current_entry(250));
    }

    #[test]
    fn the_page_not_used_for_longest_makes_room() {
        let mut hints = HpbHints::new(2, 100, 10).unwrap();
        hints.cache_page(1);
        hints.change(150);
        hints.cache_page(2);
        assert!(hints.has_current_entry(199));
        hints.cache_page(3);
        assert!(!hints.has_current_entry(250) && hints.has_current_entry(199) && hints.has_current_entry(350));
        hints.cache_page(2);
        assert!(!hints.has_current_entry(150) && hints.has_current_entry(250), "changes in another page do not affect this one");
        assert!(HpbHints::new(0, 100, 10).is_none());
    }
}
