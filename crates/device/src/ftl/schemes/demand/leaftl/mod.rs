//! `LeaFTL`: represents the mapping table by learned segments (Sun et al., "`LeaFTL`: a learning-based flash translation layer for
//! solid-state drives", ASPLOS 2023).
//!
//! The mapping table is divided into groups of 256 units. Each write and each move by garbage collection learns linear segments for the
//! affected groups. A segment is exact, or its locations are off by at most `gamma` map units. If a read accesses the wrong page, it gets
//! the right location from the spare area of that page and reads again.
//!
//! The segments of the most recently used groups are cached. All other segments are in pages of the mapping table on the flash. Each group
//! has 2 KB there, which is its maximum size after a merge of levels. There is no buffer that sorts data, so data is written in the order
//! of commands.

mod group;
mod segment;

use emmclab_settings::{PolicyDescription, PolicyOptions, PolicySetting};

use super::cache::{
    CACHE_KB, HPB_PAGES, LOOKUP_NJ, LOOKUP_NS, LocationNumbering, MapCache, MapCachePolicyEntry, MapCacheSummary, MapMiss,
    MapPageLayout, MispredictedPage, NOWHERE, StaleMapPages,
};
use crate::ftl::core::FtlCore;
use crate::geometry::Geometry;
use crate::ids::Lpn;
use crate::lru::LruSet;
use group::{CompactionScratch, SegmentGroup, SegmentLookup};
use segment::{GROUP, LearnedSegment, Point};

pub(super) const POLICY: MapCachePolicyEntry = MapCachePolicyEntry {
    kind: PolicyDescription {
        name: "leaftl",
        about: "As `dftl`, but the map is made of learned segments of 8 bytes (Sun et al., ASPLOS 2023).",
        settings: &[CACHE_KB, GAMMA, COMPACT_AFTER, HPB_PAGES, LOOKUP_NS, LOOKUP_NJ],
    },
    flash_bytes: 8,
    make: |settings, geometry, layout| Box::new(LeaFtlCache::new(&settings.mapping.options, geometry, layout)),
};

const GAMMA: PolicySetting = PolicySetting {
    key: "gamma",
    about: "Maximum error of a location that a learned segment predicts, in map units; 0 = exact segments only.",
    default: 0,
    range: (0, 64),
};

const COMPACT_AFTER: PolicySetting = PolicySetting {
    key: "compact_after",
    about: "Segments that a group of 256 units learns before its levels are merged (the paper merges all groups every million writes).",
    default: 32,
    range: (1, 1000),
};

/// Bytes that a cached group needs in addition to its segments: number of the group, and location of the segments.
const GROUP_BYTES: u64 = 8;

/// The learned segments of all groups, and which groups are cached.
#[derive(Clone)]
struct LeaFtlCache {
    layout: MapPageLayout,
    numbering: LocationNumbering,
    groups: Vec<SegmentGroup>,
    /// Cached groups in the order of their last use.
    cached: LruSet,
    dirty: Vec<bool>,
    bytes: u64,
    budget: u64,
    gamma: u32,
    compact_after: u16,
    points: Vec<Point>,
    scratch: CompactionScratch,
}

const fn group_of(unit: Lpn) -> u32 {
    unit.0 / GROUP
}

impl LeaFtlCache {
    fn new(options: &PolicyOptions, geometry: &Geometry, layout: MapPageLayout) -> Self {
        let groups = layout.units.div_ceil(GROUP) as usize;
        Self {
            layout,
            numbering: LocationNumbering::new(geometry),
            groups: vec![SegmentGroup::default(); groups],
            cached: LruSet::new(groups, 0),
            dirty: vec![false; groups],
            bytes: 0,
            budget: CACHE_KB.of(options) * 1024,
            gamma: GAMMA.count(options),
            compact_after: COMPACT_AFTER.count(options) as u16,
            points: Vec::with_capacity(GROUP as usize),
            scratch: CompactionScratch::default(),
        }
    }

    fn page(&self, group: u32) -> u32 {
        self.layout.page(Lpn(group * GROUP))
    }

    fn size(&self, group: u32) -> u64 {
        GROUP_BYTES + self.groups[group as usize].bytes()
    }

    /// Updates the segments of a group. Inserts the segment `run`; if it is `None`, learns segments from the locations in `points`.
    fn learn(&mut self, core: &FtlCore, group: u32, run: Option<LearnedSegment>, stale: &mut StaleMapPages) {
        let before = self.size(group);
        match run {
            Some(run) => self.groups[group as usize].learn_run(run),
            None => self.groups[group as usize].learn(&self.points, self.gamma),
        }
        if self.groups[group as usize].learned >= self.compact_after {
            self.compact(core, group);
        }
        if self.cached.holds(group) {
            self.dirty[group as usize] = true;
            self.bytes = self.bytes + self.size(group) - before;
        } else {
            self.compact(core, group);
            stale.add(self.page(group));
        }
    }

    fn compact(&mut self, core: &FtlCore, group: u32) {
        let place = |unit: u8| self.numbering.number(core.tables.lookup(Lpn(group * GROUP + u32::from(unit))));
        self.groups[group as usize].compact(place, &mut self.scratch);
    }

    fn find(&self, unit: Lpn) -> SegmentLookup {
        let lookup = self.groups[group_of(unit) as usize].find((unit.0 % GROUP) as u8);
        lookup.unwrap_or(SegmentLookup { number: NOWHERE, exact: true })
    }

    fn point(&self, core: &FtlCore, unit: Lpn) -> Point {
        ((unit.0 % GROUP) as u8, self.numbering.number(core.tables.lookup(unit)))
    }
}

impl MapCache for LeaFtlCache {
    fn touch(&mut self, unit: Lpn, most: u32, changes: bool) -> u32 {
        let mut group = group_of(unit);
        while group * GROUP < unit.0 + most && self.cached.touch(group) {
            self.dirty[group as usize] |= changes;
            group += 1;
        }
        (group * GROUP).saturating_sub(unit.0).min(most)
    }

    /// Evicts the least recently used groups until there is room. If an evicted group is dirty, returns the page of the mapping table that
    /// must be written.
    fn make_room(&mut self, core: &FtlCore, wanted: Option<MapMiss>) -> Option<u32> {
        let (needed, stay) = wanted.map_or((0, 1), |wanted| (self.size(group_of(wanted.unit)), 0));
        while self.bytes + needed > self.budget && self.cached.len() > stay {
            let group = self.cached.pop()?;
            self.bytes -= self.size(group);
            if std::mem::take(&mut self.dirty[group as usize]) {
                self.compact(core, group);
                return Some(self.page(group));
            }
        }
        None
    }

    fn load(&mut self, _: &FtlCore, wanted: MapMiss, changes: bool) -> u32 {
        let group = group_of(wanted.unit);
        self.cached.push(group);
        self.bytes += self.size(group);
        self.dirty[group as usize] = changes;
        0
    }

    fn update_moved(&mut self, core: &FtlCore, units: &mut Vec<Lpn>, stale: &mut StaleMapPages) {
        units.sort_unstable();
        units.dedup();
        for run in units.chunk_by(|a, b| group_of(*a) == group_of(*b)) {
            self.points.clear();
            for unit in run {
                let point = self.point(core, *unit);
                self.points.push(point);
            }
            self.learn(core, group_of(run[0]), None, stale);
        }
    }

    fn update_written(&mut self, core: &FtlCore, (first, units): (Lpn, u32), stale: &mut StaleMapPages) {
        let mut at = first.0;
        while at < first.0 + units {
            let end = ((at / GROUP + 1) * GROUP).min(first.0 + units);
            let (place, count) = self.numbering.run(core, at, end);
            if count == end - at && place != NOWHERE {
                let run = LearnedSegment::run((at % GROUP) as u8, count, place);
                self.learn(core, at / GROUP, Some(run), stale);
            } else {
                self.points.clear();
                let (places, mut before) = (&self.numbering, None);
                self.points.extend((at..end).map(|unit| {
                    let place = places.next_number(&mut before, core.tables.lookup(Lpn(unit)));
                    ((unit % GROUP) as u8, place)
                }));
                self.learn(core, at / GROUP, None, stale);
            }
            at = end;
        }
    }

    fn mark_page_clean(&mut self, core: &FtlCore, page: u32) {
        let units = self.layout.units_of(page);
        for group in units.start / GROUP..units.end.div_ceil(GROUP) {
            if std::mem::take(&mut self.dirty[group as usize]) {
                self.bytes -= self.size(group);
                self.compact(core, group);
                self.bytes += self.size(group);
            }
        }
    }

    fn may_mislead(&self) -> bool {
        self.gamma > 0
    }

    fn wrong_page(&self, core: &FtlCore, unit: Lpn) -> Option<MispredictedPage> {
        if !self.groups[group_of(unit) as usize].is_approximate() {
            return None;
        }
        let SegmentLookup { number: place, exact: false } = self.find(unit) else { return None };
        let ppn = core.tables.lookup(unit)?;
        let page = self.numbering.page(place, ppn);
        (page != self.numbering.page(self.numbering.number(Some(ppn)), ppn))
            .then(|| MispredictedPage { page, plane: self.numbering.plane(page) })
    }

    fn ram_bytes(&self) -> u64 {
        self.budget
    }

    fn figures(&self) -> MapCacheSummary {
        MapCacheSummary {
            cached_bytes: self.bytes,
            segments: self.groups.iter().map(|group| group.segments() as u64).sum(),
            segment_units: self.groups.iter().map(SegmentGroup::units).sum(),
        }
    }

    /// Encodes the state for an image: the segments of each group, then the cached groups with their dirty state, oldest use first.
    fn words(&self) -> Vec<u32> {
        let mut out = Vec::new();
        self.groups.iter().for_each(|group| group.words(&mut out));
        out.push(self.cached.len() as u32);
        for group in self.cached.iter() {
            out.extend([group, u32::from(self.dirty[group as usize])]);
        }
        out
    }

    fn restore(&mut self, words: &mut dyn Iterator<Item = u32>) -> Option<()> {
        for group in &mut self.groups {
            *group = SegmentGroup::of_words(words)?;
        }
        for _ in 0..words.next()? {
            let (group, changed) = (words.next()?, words.next()?);
            if group as usize >= self.groups.len() || self.cached.holds(group) {
                return None;
            }
            self.cached.push(group);
            self.bytes += self.size(group);
            self.dirty[group as usize] = changed == 1;
        }
        Some(())
    }

    fn fault(&self, core: &FtlCore) -> Option<String> {
        (0..self.layout.units).map(Lpn).find_map(|unit| {
            let (lookup, place) = (self.find(unit), self.numbering.number(core.tables.lookup(unit)));
            let off = (lookup.number as i32).wrapping_sub(place as i32).unsigned_abs();
            let most = if lookup.exact { 0 } else { self.gamma };
            (off > most).then(|| format!("the learned segments map unit {unit} to another place"))
        })
    }

    fn copy(&self) -> Box<dyn MapCache> {
        Box::new(self.clone())
    }
}
