//! `LeaFTL`: the map as learned segments (Sun et al., "`LeaFTL`: a learning-based flash translation layer for solid-state drives",
//! ASPLOS 2023).
//!
//! After each write, and each move by collection, the groups of 256 units that it touches learn linear segments. A segment is exact, or its
//! locations are off by at most `gamma` map units. If a read goes to the wrong page, it finds the right location in the spare area of that
//! page and reads again. The segments of the most recently used groups are cached; all others are in pages of the map, with 2 KB for each
//! group, which is the maximum after a merge of levels. There is no buffer that sorts data, so data is written in the order of the
//! commands.

mod group;
mod segment;
mod segments;

use super::cache::{
    CACHE_KB, HPB_PAGES, LOOKUP_NJ, LOOKUP_NS, Layout, MapCache, MapFigures, Policy, Stale, Wanted, WrongPage,
};
use super::places::{NOWHERE, Places};
use crate::ftl::core::Core;
use crate::geometry::Geometry;
use crate::ids::Lpn;
use crate::lru::Lru;
use emmclab_settings::{PolicyKind, PolicyOptions, PolicySetting};
use group::{Found, Group, Scratch};
use segment::{GROUP, Point, Segment};

pub(super) const POLICY: Policy = Policy {
    kind: PolicyKind {
        name: "leaftl",
        about: "As `dftl`, but the map is made of learned segments of 8 bytes (Sun et al., ASPLOS 2023).",
        settings: &[CACHE_KB, GAMMA, COMPACT_AFTER, HPB_PAGES, LOOKUP_NS, LOOKUP_NJ],
    },
    flash_bytes: 8,
    make: |settings, geometry, layout| Box::new(Learned::new(&settings.mapping.options, geometry, layout)),
};

const GAMMA: PolicySetting = PolicySetting {
    key: "gamma",
    about: "Maximum error of a place that a learned segment predicts, in map units; 0 = exact segments only.",
    default: 0,
    range: (0, 64),
};

const COMPACT_AFTER: PolicySetting = PolicySetting {
    key: "compact_after",
    about: "Segments that a group of 256 units learns before its levels are merged (the paper merges all groups every million writes).",
    default: 32,
    range: (1, 1000),
};

/// Bytes of a cached group besides its segments: number of the group, and location of the segments.
const GROUP_BYTES: u64 = 8;

/// The learned segments of all groups, and which groups are cached.
#[derive(Clone)]
struct Learned {
    layout: Layout,
    places: Places,
    groups: Vec<Group>,
    /// Cached groups in the order of their last use, which of them are dirty, and their bytes.
    cached: Lru,
    dirty: Vec<bool>,
    bytes: u64,
    budget: u64,
    gamma: u32,
    compact_after: u16,
    points: Vec<Point>,
    scratch: Scratch,
}

const fn group_of(unit: Lpn) -> u32 {
    unit.0 / GROUP
}

impl Learned {
    fn new(options: &PolicyOptions, geometry: &Geometry, layout: Layout) -> Self {
        let groups = layout.units.div_ceil(GROUP) as usize;
        Self {
            layout,
            places: Places::new(geometry),
            groups: vec![Group::default(); groups],
            cached: Lru::new(groups, 0),
            dirty: vec![false; groups],
            bytes: 0,
            budget: CACHE_KB.of(options) * 1024,
            gamma: GAMMA.count(options),
            compact_after: COMPACT_AFTER.count(options) as u16,
            points: Vec::with_capacity(GROUP as usize),
            scratch: Scratch::default(),
        }
    }

    fn page(&self, group: u32) -> u32 {
        self.layout.page(Lpn(group * GROUP))
    }

    fn size(&self, group: u32) -> u64 {
        GROUP_BYTES + self.groups[group as usize].bytes()
    }

    /// Learns a run of consecutive locations for a group or, if `run` is `None`, the locations in `points`.
    fn learn(&mut self, core: &Core, group: u32, run: Option<Segment>, stale: &mut Stale) {
        let before = self.size(group);
        match run {
            Some(run) => self.groups[group as usize].learn_run(run),
            None => self.groups[group as usize].learn(&self.points, self.gamma),
        }
        if self.groups[group as usize].is_due(self.compact_after) {
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

    fn compact(&mut self, core: &Core, group: u32) {
        let place = |unit: u8| self.places.number(core.lookup(Lpn(group * GROUP + u32::from(unit))));
        self.groups[group as usize].compact(place, &mut self.scratch);
    }

    fn find(&self, unit: Lpn) -> Found {
        let found = self.groups[group_of(unit) as usize].find((unit.0 % GROUP) as u8);
        found.unwrap_or(Found { place: NOWHERE, exact: true })
    }

    fn point(&self, core: &Core, unit: Lpn) -> Point {
        ((unit.0 % GROUP) as u8, self.places.number(core.lookup(unit)))
    }
}

impl MapCache for Learned {
    fn touch(&mut self, unit: Lpn, most: u32, changes: bool) -> u32 {
        let mut group = group_of(unit);
        while group * GROUP < unit.0 + most && self.cached.touch(group) {
            self.dirty[group as usize] |= changes;
            group += 1;
        }
        (group * GROUP).saturating_sub(unit.0).min(most)
    }

    /// Evicts the least recently used groups; dirty ones are written back.
    fn make_room(&mut self, core: &Core, wanted: Option<Wanted>) -> Option<u32> {
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

    fn load(&mut self, _: &Core, wanted: Wanted, changes: bool) -> u32 {
        let group = group_of(wanted.unit);
        self.cached.push(group);
        self.bytes += self.size(group);
        self.dirty[group as usize] = changes;
        0
    }

    fn changed(&mut self, core: &Core, units: &mut Vec<Lpn>, stale: &mut Stale) {
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

    fn wrote(&mut self, core: &Core, (first, units): (Lpn, u32), stale: &mut Stale) {
        let mut at = first.0;
        while at < first.0 + units {
            let end = ((at / GROUP + 1) * GROUP).min(first.0 + units);
            let (place, count) = self.places.run(core, at, end);
            if count == end - at && place != NOWHERE {
                let run = Segment::run((at % GROUP) as u8, count, place);
                self.learn(core, at / GROUP, Some(run), stale);
            } else {
                self.points.clear();
                let (places, mut before) = (&self.places, None);
                self.points.extend((at..end).map(|unit| {
                    let place = places.next_number(&mut before, core.lookup(Lpn(unit)));
                    ((unit % GROUP) as u8, place)
                }));
                self.learn(core, at / GROUP, None, stale);
            }
            at = end;
        }
    }

    fn written(&mut self, core: &Core, page: u32) {
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

    fn wrong_page(&self, core: &Core, unit: Lpn) -> Option<WrongPage> {
        if !self.groups[group_of(unit) as usize].is_approximate() {
            return None;
        }
        let Found { place, exact: false } = self.find(unit) else { return None };
        let ppn = core.lookup(unit)?;
        let page = self.places.page(place, ppn);
        (page != self.places.page(self.places.number(Some(ppn)), ppn))
            .then(|| WrongPage { page, plane: self.places.plane(page) })
    }

    fn ram_bytes(&self) -> u64 {
        self.budget
    }

    fn figures(&self) -> MapFigures {
        MapFigures {
            cached_bytes: self.bytes,
            segments: self.groups.iter().map(|group| group.segments() as u64).sum(),
            segment_units: self.groups.iter().map(Group::units).sum(),
        }
    }

    /// The segments of each group, then the cached groups from the least recently used one on, each with whether it is dirty.
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
            *group = Group::of_words(words)?;
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

    fn fault(&self, core: &Core) -> Option<String> {
        (0..self.layout.units).map(Lpn).find_map(|unit| {
            let (found, place) = (self.find(unit), self.places.number(core.lookup(unit)));
            let off = (found.place as i32).wrapping_sub(place as i32).unsigned_abs();
            let most = if found.exact { 0 } else { self.gamma };
            (off > most).then(|| format!("the learned segments map unit {unit} to another place"))
        })
    }

    fn copy(&self) -> Box<dyn MapCache> {
        Box::new(self.clone())
    }
}
