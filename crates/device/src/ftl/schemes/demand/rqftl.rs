//! RQFTL: caches runs of mapping table entries, which are searched by range (Marcus et al., "Space-efficient FTL for mobile storage via
//! tiny neural nets", SYSTOR 2024).
//!
//! A run consists of consecutive units that are stored at consecutive physical pages, or that are all unmapped. A miss reads the page of
//! the mapping table and caches the longest run around the unit in that page, or all runs of the page (`whole_page`). Written data forms a run, or extends the run that it
//! continues. The least recently used runs are evicted. The paper searches a run with small neural nets, which are trained again after
//! changes. This module searches sorted lists instead. The setting `index_pct` determines how much memory the index occupies.

use std::ops::Range;

use emmclab_settings::{PolicyDescription, PolicyOptions, PolicySetting};

use super::cache::{
    CACHE_KB, HPB_PAGES, LOOKUP_NJ, LOOKUP_NS, LocationNumbering, MapCache, MapCachePolicyEntry, MapCacheSummary, MapMiss,
    MapPageLayout, NOWHERE, StaleMapPages,
};
use crate::ftl::core::FtlCore;
use crate::geometry::Geometry;
use crate::ids::Lpn;
use crate::lru::{LinkedLists, ListEnds};

pub(super) const POLICY: MapCachePolicyEntry = MapCachePolicyEntry {
    kind: PolicyDescription {
        name: "rqftl",
        about: "As `dftl`, but entries in memory are runs of units at consecutive places, found by range (Marcus et al., SYSTOR 2024).",
        settings: &[CACHE_KB, INDEX_PCT, WHOLE_PAGE, HPB_PAGES, LOOKUP_NS, LOOKUP_NJ],
    },
    flash_bytes: 4,
    make: |settings, geometry, layout| Box::new(RqftlCache::new(&settings.mapping.options, geometry, layout)),
};

const INDEX_PCT: PolicySetting = PolicySetting {
    key: "index_pct",
    about: "Memory of the index over the runs, in percent of the runs themselves. Assumed: the abstract of the paper gives no size.",
    default: 10,
    range: (0, 1000),
};

const WHOLE_PAGE: PolicySetting = PolicySetting {
    key: "whole_page",
    about: "1 = a miss loads all runs of its page of the map that fit into the memory; 0 = only the run around the unit. The abstract of \
            the paper does not say what a miss loads.",
    default: 0,
    range: (0, 1),
};

/// Size of a run in RAM, in bytes: first unit, first physical page number, number of units.
const RUN_BYTES: u64 = 10;

/// A run: consecutive units of one page of the mapping table. Their physical page numbers are consecutive, or all are unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MapRun {
    first: u32,
    count: u32,
    number: u32,
    /// Whether the run is dirty, which means that it differs from the mapping table on the flash.
    changed: bool,
}

impl MapRun {
    fn end(self) -> u32 {
        self.first + self.count
    }

    fn place_of(self, unit: u32) -> u32 {
        if self.number == NOWHERE { NOWHERE } else { self.number + (unit - self.first) }
    }

    /// Whether the next unit continues the run if its physical page number is `place`.
    fn is_continued_at(self, place: u32) -> bool {
        if self.number == NOWHERE { place == NOWHERE } else { place == self.number + self.count }
    }

    fn part(self, first: u32, end: u32) -> Self {
        Self { first, count: end - first, number: self.place_of(first), changed: self.changed }
    }
}

/// An entry in the list of runs of a page of the mapping table.
#[derive(Clone, Copy)]
struct IndexedRun {
    /// First unit of the run, stored here so that a search needs only the list.
    first: u32,
    index: u32,
}

#[derive(Clone)]
struct RqftlCache {
    layout: MapPageLayout,
    numbering: LocationNumbering,
    /// Maximum number of cached runs.
    most: usize,
    budget: u64,
    /// Whether a miss loads all runs of its page of the mapping table.
    whole_page: bool,
    /// With `whole_page`: the unit for which room is being made, and the number of runs of its page that the memory can hold.
    wanted: Option<(Lpn, usize)>,
    /// Memory for the runs that a miss loads.
    found: Vec<MapRun>,
    indexed: Vec<IndexedRun>,
    runs: LinkedLists<MapRun>,
    used: ListEnds,
    /// For each page of the mapping table, its cached runs (ranges of consecutive units), in order of units.
    pages: Vec<Vec<IndexedRun>>,
    /// First unit and number of units of the most recently used run; [`NO_RUN`] if the run may have changed since its last use.
    last: (u32, u32),
}

/// A run without units, as first unit and number of units.
const NO_RUN: (u32, u32) = (0, 0);

impl RqftlCache {
    fn new(options: &PolicyOptions, geometry: &Geometry, layout: MapPageLayout) -> Self {
        let budget = CACHE_KB.of(options) * 1024;
        let most = (budget * 100 / (RUN_BYTES * (100 + INDEX_PCT.of(options)))) as usize;
        Self {
            layout,
            numbering: LocationNumbering::new(geometry),
            most,
            budget,
            whole_page: WHOLE_PAGE.of(options) == 1,
            wanted: None,
            found: Vec::new(),
            indexed: Vec::new(),
            runs: LinkedLists::new(most),
            used: ListEnds::EMPTY,
            pages: vec![Vec::new(); layout.pages() as usize],
            last: NO_RUN,
        }
    }

    /// Number of cached runs, in the unit's page of the mapping table, that begin at or before the unit.
    #[inline]
    fn up_to(&self, unit: u32) -> usize {
        self.pages[self.layout.page(Lpn(unit)) as usize].partition_point(|run| run.first <= unit)
    }

    /// Index of the cached run that contains a unit. Only the last of the first `up_to` runs of its page can contain it.
    #[inline]
    fn with(&self, unit: u32, up_to: usize) -> Option<u32> {
        let place = self.pages[self.layout.page(Lpn(unit)) as usize][up_to.checked_sub(1)?].index;
        (unit < self.runs.get(place).end()).then_some(place)
    }

    /// Index of the cached run that contains a unit; `None` if there is none.
    #[inline]
    fn find(&self, unit: u32) -> Option<u32> {
        self.with(unit, self.up_to(unit))
    }

    fn number(&self, core: &FtlCore, unit: u32) -> u32 {
        self.numbering.number(core.tables.lookup(Lpn(unit)))
    }

    /// The longest run of consecutive mapping table entries that contains the unit and stays within the range of units.
    fn run_around(&self, core: &FtlCore, unit: u32, range: Range<u32>) -> MapRun {
        let (number, count) = self.numbering.run(core, unit, range.end);
        let lookup = |other: u32| core.tables.lookup(Lpn(other));
        let before = (range.start..unit).rev();
        let down = if let Some(at) = lookup(unit) {
            let mut next = (at, number);
            let follows = |(other, number): &(u32, u32)| {
                lookup(*other).is_some_and(|at| self.numbering.previous_number(&mut next, at) == *number)
            };
            before.zip((0..number).rev()).take_while(follows).count()
        } else {
            before.take_while(|other| lookup(*other).is_none()).count()
        };
        let down = down as u32;
        let place = if number == NOWHERE { NOWHERE } else { number - down };
        MapRun { first: unit - down, count: down + count, number: place, changed: false }
    }

    /// Number of runs that a miss loads at most.
    fn runs_to_load(&mut self, core: &FtlCore, unit: Lpn) -> usize {
        if !self.whole_page {
            return 1;
        }
        if let Some((_, runs)) = self.wanted.filter(|(wanted, _)| *wanted == unit) {
            return runs;
        }
        let units = self.layout.units_of(self.layout.page(unit));
        let (mut at, mut runs) = (units.start, 0);
        while at < units.end && runs < self.most {
            at += self.numbering.run(core, at, units.end).1;
            runs += 1;
        }
        self.wanted = Some((unit, runs));
        runs
    }

    /// Caches the runs of these units of a page of the mapping table that are not cached, the first ones if there is not room for all.
    /// Of the loaded runs, the last ones are evicted first. Returns the number of their units.
    fn load_rest(&mut self, core: &FtlCore, page: u32, units: Range<u32>) -> u32 {
        self.last = NO_RUN;
        let (mut at, mut loaded) = (units.start, 0);
        while at < units.end && self.runs.len() < self.most {
            let up_to = self.up_to(at);
            if let Some(place) = self.with(at, up_to) {
                at = self.runs.get(place).end();
                continue;
            }
            let list = &mut self.pages[page as usize];
            let end = list.get(up_to).map_or(units.end, |next| next.first.min(units.end));
            let from = at;
            while at < end && self.runs.len() + self.found.len() < self.most {
                let (number, count) = self.numbering.run(core, at, end);
                self.found.push(MapRun { first: at, count, number, changed: false });
                at += count;
            }
            loaded += at - from;
            let (runs, used) = (&mut self.runs, &mut self.used);
            self.indexed
                .extend(self.found.drain(..).rev().map(|run| IndexedRun { first: run.first, index: runs.add(used, run) }));
            list.splice(up_to..up_to, self.indexed.drain(..).rev());
        }
        loaded
    }

    /// Inserts a run. It replaces cached entries of its units. Adjacent runs are merged with it if they continue it.
    fn put(&mut self, run: MapRun) {
        self.put_at(run, self.up_to(run.first));
    }

    /// Inserts a run. `up_to` counts the cached runs in the same page of the mapping table that begin at or before the new run.
    fn put_at(&mut self, mut run: MapRun, up_to: usize) {
        self.last = NO_RUN;
        let list = &mut self.pages[self.layout.page(Lpn(run.first)) as usize];
        let mut from = up_to;
        // An earlier run that overlaps the new run keeps its part before the new run.
        if let Some(IndexedRun { first, index: place }) = up_to.checked_sub(1).map(|at| list[at]) {
            let old = self.runs.get(place);
            if old.first < run.first && old.end() > run.end() {
                let tail = self.runs.add(&mut self.used, old.part(run.end(), old.end()));
                list.insert(from, IndexedRun { first: run.end(), index: tail });
            }
            if first == run.first {
                from -= 1;
            } else if old.end() > run.first {
                *self.runs.get_mut(place) = old.part(first, run.first);
            }
        }
        let mut to = from;
        while let Some(IndexedRun { first, index: place }) = list.get_mut(to) {
            if *first >= run.end() {
                break;
            }
            let old = self.runs.get(*place);
            if old.end() > run.end() {
                *self.runs.get_mut(*place) = old.part(run.end(), old.end());
                *first = run.end();
                break;
            }
            self.runs.remove(&mut self.used, *place);
            to += 1;
        }
        if let Some(before) = from.checked_sub(1).map(|at| self.runs.get(list[at].index))
            && before.end() == run.first
            && before.is_continued_at(run.number)
        {
            from -= 1;
            self.runs.remove(&mut self.used, list[from].index);
            let changed = run.changed || before.changed;
            run = MapRun { first: before.first, count: before.count + run.count, number: before.number, changed };
        }
        if let Some(after) = list.get(to).map(|next| self.runs.get(next.index))
            && after.first == run.end()
            && run.is_continued_at(after.number)
        {
            self.runs.remove(&mut self.used, list[to].index);
            to += 1;
            run = MapRun { count: run.count + after.count, changed: run.changed || after.changed, ..run };
        }
        let indexed = IndexedRun { first: run.first, index: self.runs.add(&mut self.used, run) };
        if from < to {
            list[from] = indexed;
            list.drain(from + 1..to);
        } else {
            list.insert(from, indexed);
        }
    }
}

impl MapCache for RqftlCache {
    /// Looks up cached runs of map entries, and marks them as used. It does not matter whether the entries will change, because the write
    /// inserts its own run later.
    fn touch(&mut self, unit: Lpn, most: u32, _: bool) -> u32 {
        let (mut at, end) = (unit.0, unit.0 + most);
        while at < end {
            let (first, count) = self.last;
            if at.wrapping_sub(first) < count {
                // The same run was used last, so its position in the LRU list does not change.
                at = first + count;
                continue;
            }
            let Some(place) = self.find(at) else { break };
            self.runs.renew(&mut self.used, place);
            let run = self.runs.get(place);
            self.last = (run.first, run.count);
        }
        at.min(end) - unit.0
    }

    /// Evicts the least recently used runs until there is room. For dirty runs, returns the page of the mapping table that must be written.
    fn make_room(&mut self, core: &FtlCore, wanted: Option<MapMiss>) -> Option<u32> {
        let most = self.most - wanted.map_or(0, |wanted| self.runs_to_load(core, wanted.unit));
        while self.runs.len() > most {
            self.last = NO_RUN;
            let place = self.used.oldest;
            let first = self.runs.get(place).first;
            let page = self.layout.page(Lpn(first));
            let list = &mut self.pages[page as usize];
            list.remove(list.partition_point(|other| other.first < first));
            let run = self.runs.remove(&mut self.used, place);
            if run.changed {
                return Some(page);
            }
        }
        None
    }

    /// Caches the longest run of mapping table entries that contains the wanted unit and no unit that is already cached; with `whole_page`
    /// also the other runs of the page, those behind the unit first. The wanted run counts as the most recently used one.
    fn load(&mut self, core: &FtlCore, wanted: MapMiss, _: bool) -> u32 {
        let unit = wanted.unit.0;
        let page = self.layout.page(wanted.unit);
        let (mut range, list) = (self.layout.units_of(page), &self.pages[page as usize]);
        let up_to = self.up_to(unit);
        if let Some(before) = up_to.checked_sub(1) {
            range.start = self.runs.get(list[before].index).end();
        }
        if let Some(next) = list.get(up_to) {
            range.end = next.first;
        }
        let run = self.run_around(core, unit, range);
        self.put_at(run, up_to);
        if !self.whole_page {
            return run.count - 1;
        }
        self.wanted = None;
        let units = self.layout.units_of(page);
        let rest = self.load_rest(core, page, run.end()..units.end) + self.load_rest(core, page, units.start..run.first);
        if let Some(place) = self.find(unit) {
            self.runs.renew(&mut self.used, place);
        }
        run.count - 1 + rest
    }

    fn update_moved(&mut self, core: &FtlCore, units: &mut Vec<Lpn>, stale: &mut StaleMapPages) {
        for unit in units.drain(..) {
            let up_to = self.up_to(unit.0);
            if self.with(unit.0, up_to).is_some() {
                let place = self.number(core, unit.0);
                self.put_at(MapRun { first: unit.0, count: 1, number: place, changed: true }, up_to);
            } else {
                stale.add(self.layout.page(unit));
            }
        }
    }

    /// Caches runs for the written data, even if the old entries of the units were not cached.
    fn update_written(&mut self, core: &FtlCore, (first, units): (Lpn, u32), _: &mut StaleMapPages) {
        let end = first.0 + units;
        let mut from = first.0;
        while from < end {
            let page_end = self.layout.units_of(self.layout.page(Lpn(from))).end.min(end);
            let (place, count) = self.numbering.run(core, from, page_end);
            self.put(MapRun { first: from, count, number: place, changed: true });
            from += count;
        }
    }

    fn mark_page_clean(&mut self, _: &FtlCore, page: u32) {
        for run in &self.pages[page as usize] {
            self.runs.get_mut(run.index).changed = false;
        }
    }

    fn ram_bytes(&self) -> u64 {
        self.budget
    }

    fn figures(&self) -> MapCacheSummary {
        let units = self.runs.places(self.used).map(|place| self.runs.get(place));
        let units = units.filter(|run| run.number != NOWHERE).map(|run| u64::from(run.count)).sum();
        let runs = self.runs.len() as u64;
        MapCacheSummary { cached_bytes: runs * self.budget / self.most as u64, segments: runs, segment_units: units }
    }

    /// The cached runs, from the least recently used one on, encoded as words of a device image.
    fn words(&self) -> Vec<u32> {
        let mut out = vec![self.runs.len() as u32];
        for place in self.runs.places(self.used) {
            let run = self.runs.get(place);
            out.extend([run.first, run.count, run.number, u32::from(run.changed)]);
        }
        out
    }

    fn restore(&mut self, words: &mut dyn Iterator<Item = u32>) -> Option<()> {
        for _ in 0..words.next()? {
            let (first, count) = (words.next()?, words.next()?);
            let (place, changed) = (words.next()?, words.next()? == 1);
            let end = first.checked_add(count).filter(|end| *end > first && *end <= self.layout.units)?;
            let whole = self.layout.page(Lpn(first)) == self.layout.page(Lpn(end - 1));
            let fits = place == NOWHERE || place.checked_add(count).is_some();
            (whole && fits).then_some(())?;
            let at = self.runs.add(&mut self.used, MapRun { first, count, number: place, changed });
            self.pages[self.layout.page(Lpn(first)) as usize].push(IndexedRun { first, index: at });
        }
        let runs = &self.runs;
        for list in &mut self.pages {
            list.sort_unstable_by_key(|run| run.first);
            let apart = |pair: &[IndexedRun]| runs.get(pair[0].index).end() <= pair[1].first;
            list.windows(2).all(apart).then_some(())?;
        }
        Some(())
    }

    fn fault(&self, core: &FtlCore) -> Option<String> {
        let runs = self.runs.places(self.used).map(|place| self.runs.get(place));
        let mut units = runs.flat_map(|run| (run.first..run.end()).map(move |unit| (unit, run.place_of(unit))));
        let (unit, _) = units.find(|(unit, place)| self.number(core, *unit) != *place)?;
        Some(format!("a run in memory maps unit {unit} to the wrong location"))
    }

    fn copy(&self) -> Box<dyn MapCache> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::DeviceConfig;

    proptest! {
        #[test]
        fn runs_give_what_was_put_in_last_and_are_as_few_as_can_be(
            puts in prop::collection::vec((0u32..100, 1u32..30, 0u32..3), 1..40),
        ) {
            let config = DeviceConfig::preset("small-1gb").unwrap();
            let layout = MapPageLayout::new(128, 64);
            let mut ranges = RqftlCache::new(&PolicyOptions::new(), &Geometry::new(config.settings()), layout);
            let mut truth = [None; 128];
            for (first, count, base) in puts {
                let end = (first + count).min((first / 64 + 1) * 64);
                let place = if base == 0 { NOWHERE } else { base * 1000 + first };
                let run = MapRun { first, count: end - first, number: place, changed: false };
                ranges.put(run);
                (first..end).for_each(|unit| truth[unit as usize] = Some(run.place_of(unit)));
                for unit in 0..128u32 {
                    let run = ranges.find(unit).map(|place| ranges.runs.get(place));
                    prop_assert_eq!(run.map(|run| run.place_of(unit)), truth[unit as usize]);
                }
                let goes_on = |unit: usize| !unit.is_multiple_of(64) && match (truth[unit - 1], truth[unit]) {
                    (Some(NOWHERE), Some(place)) => place == NOWHERE,
                    (Some(before), Some(place)) => before + 1 == place,
                    _ => false,
                };
                let runs = (0..128).filter(|unit| truth[*unit].is_some() && !goes_on(*unit)).count();
                prop_assert_eq!(ranges.runs.len(), runs);
            }
        }
    }
}
