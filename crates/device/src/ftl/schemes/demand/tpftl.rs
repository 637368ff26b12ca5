//! TPFTL: groups cached mapping table entries by their page of the table (Zhou et al., "An efficient page-level FTL to optimize address
//! translation in flash memory", `EuroSys` 2015).
//!
//! Pages with cached entries are in the order of their last use, and so are the entries of each page. Entries of the least recently used
//! page are evicted, clean ones first. If all of its entries are dirty, one write of the page writes all of them back. A miss also loads
//! the entries of the rest of its request. While the number of pages with cached entries falls, a miss also prefetches following entries:
//! as many as there are cached entries directly before the missing one. Prefetched entries evict entries of one page only. The paper sorts
//! pages by the mean of the last uses of their entries; this module uses the latest.

use std::ops::Range;

use emmclab_settings::PolicyDescription;

use super::cache::{
    CACHE_KB, HPB_PAGES, LOOKUP_NJ, LOOKUP_NS, MapCache, MapCachePolicyEntry, MapCacheSummary, MapMiss, MapPageLayout,
    StaleMapPages,
};
use crate::ftl::core::FtlCore;
use crate::ids::Lpn;
use crate::lru::{BitSet, LinkedLists, ListEnds, LruSet, NO_NODE};

pub(super) const POLICY: MapCachePolicyEntry = MapCachePolicyEntry {
    kind: PolicyDescription {
        name: "tpftl",
        about: "As `dftl`, but entries in memory are grouped by page of the map, prefetched and written back together (Zhou et al., EuroSys 2015).",
        settings: &[CACHE_KB, HPB_PAGES, LOOKUP_NS, LOOKUP_NJ],
    },
    flash_bytes: 4,
    make: |settings, _, layout| Box::new(TpftlCache::new(CACHE_KB.of(&settings.mapping.options) * 1024, layout)),
};

/// Size of a cached entry in bytes. The entry stores its unit relative to its page of the mapping table.
const ENTRY_BYTES: u64 = 6;
const PAGE_BYTES: u64 = 8;

/// Prefetching by preceding entries is switched on or off when the number of pages with cached entries has changed by this amount.
const THRESHOLD: i32 = 3;

/// The cached entries of a page of the mapping table.
#[derive(Clone, Copy)]
struct TranslationPageNode {
    entries: ListEnds,
    /// List node of the oldest clean entry: all older entries are dirty. [`NO_NODE`] if all entries are dirty.
    unchanged: u32,
    count: u32,
    changed: u32,
}

/// Which entries a cache miss loads.
#[derive(Clone, Copy)]
struct PrefetchPlan {
    /// Maximum number of entries to prefetch after the missing one.
    reach: u32,
    extra: u32,
    /// The page of the mapping table whose entries are evicted for the miss.
    victim: Option<u32>,
}

#[derive(Clone)]
struct TpftlCache {
    layout: MapPageLayout,
    budget: u64,
    /// Units of cached entries, in lists by page.
    entries: LinkedLists<u32>,
    places: Vec<u32>,
    changed: BitSet,
    nodes: Vec<TranslationPageNode>,
    /// Pages of the mapping table with cached entries, in the order of their last use.
    pages: LruSet,
    plan: Option<PrefetchPlan>,
    /// Number of mapping-table pages added to the cache minus number of pages removed from it, since the last decision on `follows`.
    balance: i32,
    /// Whether prefetching by preceding entries is on: a miss loads as many following entries as there are cached entries right before it.
    follows: bool,
}

impl TpftlCache {
    fn new(budget: u64, layout: MapPageLayout) -> Self {
        let pages = layout.pages() as usize;
        Self {
            layout,
            budget,
            entries: LinkedLists::new((budget / ENTRY_BYTES).min(u64::from(layout.units)) as usize),
            places: vec![0; layout.units as usize],
            changed: BitSet::new(layout.units),
            nodes: vec![TranslationPageNode { entries: ListEnds::EMPTY, unchanged: NO_NODE, count: 0, changed: 0 }; pages],
            pages: LruSet::new(pages, 0),
            plan: None,
            balance: 0,
            follows: false,
        }
    }

    fn holds(&self, unit: u32) -> bool {
        self.places[unit as usize] != 0
    }

    fn mark(&mut self, unit: u32) {
        if !self.changed.has(unit) {
            self.changed.insert(unit);
            self.nodes[self.layout.page(Lpn(unit)) as usize].changed += 1;
        }
    }

    fn bytes(&self) -> u64 {
        self.entries.len() as u64 * ENTRY_BYTES + self.pages.len() as u64 * PAGE_BYTES
    }

    fn plan(&self, wanted: MapMiss) -> PrefetchPlan {
        let MapMiss { unit: Lpn(unit), rest } = wanted;
        let page = self.layout.units_of(self.layout.page(Lpn(unit)));
        let mut reach = rest - 1;
        if self.follows {
            let before = (page.start..unit).rev().take_while(|unit| self.holds(*unit)).count();
            reach = reach.max(before as u32);
        }
        let reach = reach.min(page.end - 1 - unit);
        let behind = &self.places[unit as usize + 1..][..reach as usize];
        let extra = behind.iter().filter(|place| **place == 0).count() as u32;
        PrefetchPlan { reach, extra, victim: None }
    }

    /// Number of bytes that a miss of a unit needs in the cache, with `extra` prefetched entries.
    fn needed(&self, unit: Lpn, extra: u32) -> u64 {
        let page = if self.pages.holds(self.layout.page(unit)) { 0 } else { PAGE_BYTES };
        page + (1 + u64::from(extra)) * ENTRY_BYTES
    }

    /// Adds an entry to the list of its page, as the most recently used entry.
    #[inline]
    fn add(&mut self, page: u32, unit: u32) {
        let node = &mut self.nodes[page as usize];
        node.count += 1;
        let place = self.entries.add(&mut node.entries, unit);
        if node.unchanged == NO_NODE {
            node.unchanged = place;
        }
        self.places[unit as usize] = place + 1;
    }

    /// Marks a page as the most recently used page. The page may not have entries yet.
    fn use_page(&mut self, page: u32) {
        if !self.pages.touch(page) {
            self.pages.push(page);
            self.count_page(1);
        }
    }

    /// Marks entries of a page as used. All of them must be cached.
    fn use_entries(&mut self, page: u32, units: Range<u32>, changes: bool) {
        self.pages.touch(page);
        let node = &mut self.nodes[page as usize];
        let places = &self.places[units.start as usize..units.end as usize];
        // `unchanged` is the oldest clean entry of the page. Used entries move to the newest end of the list. Therefore the oldest clean
        // entry is then the first one that is not used.
        let mut unchanged = node.unchanged;
        while unchanged != NO_NODE && units.contains(&self.entries.get(unchanged)) {
            unchanged = self.entries.newer(unchanged);
        }
        if node.unchanged != NO_NODE {
            node.unchanged = if unchanged == NO_NODE { places[0] - 1 } else { unchanged };
        }
        self.entries.renew_all(&mut node.entries, places.iter().map(|place| place - 1));
        if changes {
            node.changed += self.changed.insert_range(units);
        }
    }

    /// Evicts at most `most` clean entries of a page of the mapping table, the least recently used first. If all entries are dirty, evicts
    /// the least recently used entry and returns false. The caller must then write the page first.
    fn give_up(&mut self, page: u32, most: u32) -> bool {
        let node = &mut self.nodes[page as usize];
        let unchanged = node.count - node.changed;
        if unchanged == 0 {
            let oldest = node.entries.oldest;
            if node.unchanged == oldest {
                node.unchanged = self.entries.newer(oldest);
            }
            let unit = self.entries.remove(&mut node.entries, oldest);
            self.places[unit as usize] = 0;
            self.changed.remove(unit);
            node.changed -= 1;
            node.count -= 1;
        }
        let mut left = unchanged.min(most);
        node.count -= left;
        let mut place = node.unchanged;
        while left > 0 {
            while self.changed.has(self.entries.get(place)) {
                place = self.entries.newer(place);
            }
            let (first, mut last, mut count) = (place, place, 0);
            while count < left {
                let unit = self.entries.get(place);
                if self.changed.has(unit) {
                    break;
                }
                self.places[unit as usize] = 0;
                last = place;
                place = self.entries.newer(place);
                count += 1;
            }
            self.entries.remove_chain(&mut node.entries, (first, last), count);
            left -= count;
        }
        node.unchanged = place;
        if node.count == 0 {
            self.pages.remove(page);
            self.count_page(-1);
        }
        unchanged > 0
    }

    fn count_page(&mut self, change: i32) {
        self.balance += change;
        if self.balance.abs() >= THRESHOLD {
            self.follows = self.balance < 0;
            self.balance = 0;
        }
    }
}

impl MapCache for TpftlCache {
    fn touch(&mut self, unit: Lpn, most: u32, changes: bool) -> u32 {
        let (mut at, end) = (unit.0, unit.0 + most);
        while at < end {
            let page = self.layout.page(Lpn(at));
            let page_end = self.layout.units_of(page).end.min(end);
            let places = &self.places[at as usize..page_end as usize];
            let there = places.iter().take_while(|place| **place != 0).count();
            if there > 0 {
                self.use_entries(page, at..at + there as u32, changes);
            }
            at += there as u32;
            if at < page_end {
                break;
            }
        }
        at - unit.0
    }

    fn make_room(&mut self, _: &FtlCore, wanted: Option<MapMiss>) -> Option<u32> {
        let wanted = wanted?;
        let mut plan = self.plan.unwrap_or_else(|| self.plan(wanted));
        let mut page_to_write = None;
        while self.bytes() + self.needed(wanted.unit, plan.extra) > self.budget {
            let Some(coldest) = self.pages.oldest() else { break };
            if *plan.victim.get_or_insert(coldest) != coldest && plan.extra > 0 {
                // Prefetching must not evict entries of a second map page, so fewer entries are prefetched.
                let free = self.budget.saturating_sub(self.bytes() + self.needed(wanted.unit, 0));
                plan.extra = plan.extra.min((free / ENTRY_BYTES) as u32);
                plan.victim = Some(coldest);
                continue;
            }
            let missing = self.bytes() + self.needed(wanted.unit, plan.extra) - self.budget;
            if !self.give_up(coldest, missing.div_ceil(ENTRY_BYTES) as u32) {
                page_to_write = Some(coldest);
                break;
            }
        }
        self.plan = Some(plan);
        page_to_write
    }

    fn load(&mut self, _: &FtlCore, wanted: MapMiss, changes: bool) -> u32 {
        let plan = self.plan.take().unwrap_or(PrefetchPlan { reach: 0, extra: 0, victim: None });
        let unit = wanted.unit.0;
        let page = self.layout.page(wanted.unit);
        self.use_page(page);
        let node = &mut self.nodes[page as usize];
        let (mut list, mut loaded) = (node.entries, 0);
        for other in unit + 1..=unit + plan.reach {
            if loaded == plan.extra {
                break;
            }
            let place = &mut self.places[other as usize];
            if *place == 0 {
                *place = self.entries.add(&mut list, other) + 1;
                loaded += 1;
            }
        }
        let place = self.entries.add(&mut list, unit);
        self.places[unit as usize] = place + 1;
        if node.unchanged == NO_NODE {
            // Prefetched entries count as older than the requested entry.
            node.unchanged = if node.entries.newest == NO_NODE { list.oldest } else { self.entries.newer(node.entries.newest) };
        }
        node.entries = list;
        node.count += loaded + 1;
        if changes {
            self.mark(unit);
        }
        loaded
    }

    fn update_moved(&mut self, _: &FtlCore, units: &mut Vec<Lpn>, stale: &mut StaleMapPages) {
        for unit in units.drain(..) {
            if self.holds(unit.0) {
                self.mark(unit.0);
            } else {
                stale.add(self.layout.page(unit));
            }
        }
    }

    fn update_written(&mut self, _: &FtlCore, _: (Lpn, u32), _: &mut StaleMapPages) {}

    fn mark_page_clean(&mut self, _: &FtlCore, page: u32) {
        let node = &mut self.nodes[page as usize];
        if std::mem::take(&mut node.changed) > 0 {
            node.unchanged = node.entries.oldest;
            self.changed.remove_range(self.layout.units_of(page));
        }
    }

    fn ram_bytes(&self) -> u64 {
        self.budget
    }

    fn figures(&self) -> MapCacheSummary {
        MapCacheSummary { cached_bytes: self.bytes(), ..MapCacheSummary::default() }
    }

    /// Encodes the state for a device image: each page from the least recently used one on, with its entries and whether they are dirty.
    fn words(&self) -> Vec<u32> {
        let mut out = vec![self.balance as u32, u32::from(self.follows), self.pages.len() as u32];
        for page in self.pages.iter() {
            let node = &self.nodes[page as usize];
            out.extend([page, node.count]);
            for place in self.entries.places(node.entries) {
                let unit = self.entries.get(place);
                out.extend([unit, u32::from(self.changed.has(unit))]);
            }
        }
        out
    }

    fn restore(&mut self, words: &mut dyn Iterator<Item = u32>) -> Option<()> {
        let (balance, follows, pages) = (words.next()? as i32, words.next()?, words.next()?);
        for _ in 0..pages {
            let (page, count) = (words.next()?, words.next()?);
            let known = page < self.layout.pages() && !self.pages.holds(page) && count > 0;
            known.then_some(())?;
            self.use_page(page);
            for _ in 0..count {
                let (unit, changed) = (words.next()?, words.next()?);
                let own = self.layout.units_of(page).contains(&unit) && !self.holds(unit);
                own.then_some(())?;
                self.add(page, unit);
                if changed == 1 {
                    self.mark(unit);
                }
            }
        }
        (self.balance, self.follows) = (balance, follows == 1);
        (balance.abs() < THRESHOLD && self.bytes() <= self.budget.max(ENTRY_BYTES + PAGE_BYTES)).then_some(())
    }

    fn copy(&self) -> Box<dyn MapCache> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a cache with room for this number of entries and pages. A page of the mapping table has 1,024 entries.
    fn cache(entries: u64, pages: u64) -> TpftlCache {
        let layout = MapPageLayout::new(8192, 1024);
        TpftlCache::new(entries * ENTRY_BYTES + pages * PAGE_BYTES, layout)
    }

    /// Simulates a cache miss of a unit. Returns the page that was written back, if any, and the number of prefetched entries.
    fn miss(cache: &mut TpftlCache, core: &FtlCore, unit: u32, rest: u32, changes: bool) -> (Option<u32>, u32) {
        let wanted = MapMiss { unit: Lpn(unit), rest };
        assert_eq!(cache.touch(wanted.unit, 1, changes), 0);
        let page = cache.make_room(core, Some(wanted));
        if let Some(page) = page {
            cache.mark_page_clean(core, page);
            assert_eq!(cache.make_room(core, Some(wanted)), None);
        }
        (page, cache.load(core, wanted, changes))
    }

    #[test]
    fn a_miss_brings_the_entries_of_its_request_along_up_to_the_end_of_the_page() {
        let (mut cache, core) = (cache(100, 2), crate::ftl::tests::core());
        assert_eq!(miss(&mut cache, &core, 1020, 10, false), (None, 3));
        assert_eq!(cache.touch(Lpn(1020), 10, false), 4);
    }

    #[test]
    fn clean_entries_make_room_first_and_changed_ones_of_a_page_are_written_together() {
        let (mut cache, core) = (cache(3, 1), crate::ftl::tests::core());
        for (unit, changes) in [(1, true), (2, false), (3, true)] {
            assert_eq!(miss(&mut cache, &core, unit, 1, changes).0, None);
        }
        assert_eq!(miss(&mut cache, &core, 4, 1, true), (None, 0));
        assert!(cache.holds(1) && !cache.holds(2), "the clean entry was evicted");
        assert_eq!(miss(&mut cache, &core, 5, 1, false), (Some(0), 0));
        assert_eq!(cache.nodes[0].changed, 0, "the other two were written back too");
        assert_eq!(miss(&mut cache, &core, 6, 1, false), (None, 0));
    }

    #[test]
    fn units_behind_a_stream_come_along_while_fewer_pages_are_in_use() {
        let (mut cache, core) = (cache(8, 6), crate::ftl::tests::core());
        for page in 0..6 {
            miss(&mut cache, &core, page * 1024, 1, false);
        }
        assert!(!cache.follows);
        for unit in 1..12 {
            if cache.touch(Lpn(5 * 1024 + unit), 1, false) == 0 {
                miss(&mut cache, &core, 5 * 1024 + unit, 1, false);
            }
        }
        assert!(cache.follows, "the entries of one page replaced those of five");
        let next = (1..1024).find(|unit| !cache.holds(5 * 1024 + unit) && cache.holds(5 * 1024 + unit - 1)).unwrap();
        assert!(miss(&mut cache, &core, 5 * 1024 + next, 1, false).1 > 0);
    }
}
