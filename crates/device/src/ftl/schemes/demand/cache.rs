//! The cached part of a mapping table on the flash: the interface of cache policies, and the list of them.
//!
//! [`Demand`](super::DemandMapping) reads and writes pages of the mapping table. A cache policy determines which entries are cached, in
//! which form, and what must be written back before an eviction. A policy consists of one file and one entry in [`POLICIES`].

use emmclab_settings::{DeviceSettings, PolicyDescription, PolicySetting};

use crate::ftl::core::FtlCore;
use crate::geometry::Geometry;
use crate::ids::{Lpn, PlaneId, Ppn};

/// All cache policies.
pub(super) const POLICIES: [MapCachePolicyEntry; 4] =
    [super::dftl::POLICY, super::tpftl::POLICY, super::leaftl::POLICY, super::rqftl::POLICY];

/// A cache policy in the list of available policies. Each policy is a mapping scheme in the settings.
pub(super) struct MapCachePolicyEntry {
    pub kind: PolicyDescription,
    /// Maximum number of bytes in the mapping table on the flash for each map unit.
    pub flash_bytes: u32,
    pub make: fn(&DeviceSettings, &Geometry, MapPageLayout) -> Box<dyn MapCache>,
}

/// Setting for the number of mapping table pages that the host of a UFS caches (HPB).
pub(crate) const HPB_PAGES: PolicySetting = PolicySetting {
    key: "hpb_pages",
    about: "Pages of the map that the host of a UFS caches (HPB); reads of these pages carry the map entries with them. 0 = no HPB.",
    default: 0,
    range: (0, 1 << 20),
};

/// Setting for the time of a mapping table lookup.
pub(crate) const LOOKUP_NS: PolicySetting = PolicySetting {
    key: "lookup_ns",
    about: "Time that the controller takes to look up an entry of the map in memory, in ns.",
    default: 0,
    range: (0, 1_000_000),
};

/// Setting for the energy of a mapping table lookup.
pub const LOOKUP_NJ: PolicySetting = PolicySetting {
    key: "lookup_nj",
    about: "Energy that the controller takes to look up an entry of the map in memory, in nJ.",
    default: 0,
    range: (0, 1_000_000),
};

/// Setting for the memory of cache policies whose entries have different sizes.
pub(super) const CACHE_KB: PolicySetting = PolicySetting {
    key: "map_cache_kb",
    about: "Memory in KB for entries of the map, in the form in which the scheme stores them.",
    default: 32,
    range: (4, 1 << 21),
};

/// The division of the mapping table into pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapPageLayout {
    pub units: u32,
    /// Base-2 logarithm of the number of units whose entries are in one page of the mapping table.
    shift: u32,
}

impl MapPageLayout {
    /// Creates a layout for `units` units with `per_page` entries in each page. `per_page` must be a power of two.
    pub fn new(units: u32, per_page: u32) -> Self {
        debug_assert!(per_page.is_power_of_two());
        Self { units, shift: per_page.trailing_zeros() }
    }

    /// Number of units whose entries are in one page of the mapping table.
    pub fn per_page(self) -> u32 {
        1 << self.shift
    }

    /// The page of the mapping table that contains the entry of a unit.
    #[inline]
    pub fn page(self, unit: Lpn) -> u32 {
        unit.0 >> self.shift
    }

    /// The units whose entries are in a page of the mapping table.
    #[inline]
    pub fn units_of(self, page: u32) -> std::ops::Range<u32> {
        let first = page << self.shift;
        first..(first + self.per_page()).min(self.units)
    }

    pub fn pages(self) -> u32 {
        self.units.div_ceil(self.per_page())
    }
}

/// A required mapping table entry that is not cached.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapMiss {
    pub unit: Lpn,
    /// Number of units in the remaining part of the request, from `unit` on.
    pub rest: u32,
}

/// A flash page that is read in vain, because an approximate segment of the mapping table predicted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MispredictedPage {
    /// Number of the flash page that is read in vain, as defined by [`LocationNumbering::page`].
    pub page: u32,
    pub plane: PlaneId,
}

/// State of the cached part of a mapping table, which depends on the workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapCacheSummary {
    /// Size of the cached entries in bytes.
    pub cached_bytes: u64,
    /// Number of learned segments or runs that the mapping policy has created.
    pub segments: u64,
    /// Number of units whose locations are described by learned segments or runs.
    pub segment_units: u64,
}

/// Pages of the mapping table that must be rewritten. Some of their entries have changed and are not in the cache.
#[derive(Clone, Debug)]
pub(super) struct StaleMapPages {
    pages: Vec<u32>,
    is_stale: Vec<bool>,
}

impl StaleMapPages {
    pub fn new(pages: u32) -> Self {
        Self { pages: Vec::with_capacity(pages as usize), is_stale: vec![false; pages as usize] }
    }

    #[inline]
    pub fn add(&mut self, page: u32) {
        if !std::mem::replace(&mut self.is_stale[page as usize], true) {
            self.pages.push(page);
        }
    }

    /// Marks a page of the mapping table as rewritten.
    pub fn remove(&mut self, page: u32) {
        self.is_stale[page as usize] = false;
    }

    /// Removes and returns a page of the mapping table that must be rewritten. The page counts as stale until [`StaleMapPages::remove`].
    pub fn pop(&mut self) -> Option<u32> {
        while let Some(page) = self.pages.pop() {
            if self.is_stale[page as usize] {
                return Some(page);
            }
        }
        None
    }

    /// Number of pages of the whole mapping table.
    pub fn all(&self) -> usize {
        self.is_stale.len()
    }
}

/// The cached part of the mapping table. A policy records only which entries are cached, and their state; the locations themselves are in
/// the tables of `core`.
pub(super) trait MapCache: Send + Sync {
    /// Looks up the map entries of consecutive units from `unit` on, up to `most` or until one is not cached. Returns how many were cached.
    /// `changes` is true if the host is about to change them.
    fn touch(&mut self, unit: Lpn, most: u32, changes: bool) -> u32;

    /// Makes room for the missing entry `wanted` and for the entries that are loaded with it. If `wanted` is `None`, makes room for entries
    /// that have grown. Returns `None` if there is room. Otherwise returns a page of the mapping table; the caller must write this page and
    /// call again.
    fn make_room(&mut self, core: &FtlCore, wanted: Option<MapMiss>) -> Option<u32>;

    /// Loads the entry of a unit from its page of the mapping table. The caller makes room with `make_room` first. Returns the number of
    /// other entries that were loaded with it.
    fn load(&mut self, core: &FtlCore, wanted: MapMiss, changes: bool) -> u32;

    /// Updates map entries that garbage collection or discards changed; `units` may be in any order. Pages with changed entries that are
    /// not cached are added to `stale`.
    fn update_moved(&mut self, core: &FtlCore, units: &mut Vec<Lpn>, stale: &mut StaleMapPages);

    /// Updates the entries of units that the host has looked up and written. Policies with one entry per unit do nothing here, because they
    /// mark these entries during the lookup.
    fn update_written(&mut self, core: &FtlCore, units: (Lpn, u32), stale: &mut StaleMapPages);

    /// Marks the cached entries of a page of the mapping table as clean, after the page was written with all changes.
    fn mark_page_clean(&mut self, core: &FtlCore, page: u32);

    /// Whether an entry may point to a wrong page, because the policy stores approximate locations.
    fn may_mislead(&self) -> bool {
        false
    }

    /// The wrong page that is read first when a unit is read; `None` if the entry points to the right page.
    fn wrong_page(&self, _core: &FtlCore, _unit: Lpn) -> Option<MispredictedPage> {
        None
    }

    fn ram_bytes(&self) -> u64;

    fn figures(&self) -> MapCacheSummary;

    /// The state of the cache, encoded as words of a device image.
    fn words(&self) -> Vec<u32>;

    /// Restores the state of the cache from a device image; `None` if the words are invalid.
    fn restore(&mut self, words: &mut dyn Iterator<Item = u32>) -> Option<()>;

    /// Describes the first inconsistency between the cache and the mapping tables; `None` if there is none.
    fn fault(&self, _core: &FtlCore) -> Option<String> {
        None
    }

    fn copy(&self) -> Box<dyn MapCache>;
}

/// The location number that stands for an unmapped unit.
pub(super) const NOWHERE: u32 = u32::MAX;

/// Numbers flash locations in the order in which striped writes fill them, so that sequentially written data has consecutive numbers.
/// Mapping tables that describe runs of locations use these numbers.
#[derive(Clone, Debug)]
pub(super) struct LocationNumbering {
    /// Position of each plane in the striping order.
    positions: Vec<u32>,
    planes: Vec<PlaneId>,
    blocks_per_plane: u32,
    stride_shift: u32,
    /// For each block group, its first block in a plane, and the base-2 logarithm of the number of units in a page.
    groups: Vec<(u32, u32)>,
    /// Mask of the location bits within the smallest page.
    within: u32,
}

impl LocationNumbering {
    pub fn new(geometry: &Geometry) -> Self {
        let mut positions = vec![0; geometry.planes as usize];
        for (position, plane) in (0..).zip(&geometry.stripe) {
            positions[plane.index()] = position;
        }
        Self {
            positions,
            planes: geometry.stripe.clone(),
            blocks_per_plane: geometry.blocks_per_plane,
            stride_shift: geometry.stride_shift,
            within: (1 << geometry.groups.iter().map(|group| group.page_shift).min().unwrap_or(0)) - 1,
            groups: geometry.groups.iter().map(|group| (group.first_block, group.page_shift)).collect(),
        }
    }

    /// Returns the number of a location; [`NOWHERE`] if the location is `None`.
    #[inline]
    pub fn number(&self, ppn: Option<Ppn>) -> u32 {
        let Some(Ppn(ppn)) = ppn else { return NOWHERE };
        let (block, offset) = (ppn >> self.stride_shift, ppn & ((1 << self.stride_shift) - 1));
        let (plane, index) = (block / self.blocks_per_plane, block % self.blocks_per_plane);
        let shift = self.page_shift(index);
        let row = (index << (self.stride_shift - shift)) | (offset >> shift);
        let page = row * self.planes.len() as u32 + self.positions[plane as usize];
        (page << shift) | (offset & ((1 << shift) - 1))
    }

    /// Returns the location number of a unit, and the length of the run that begins with this unit. A run, which ends at `end` at the
    /// latest, consists of units with consecutive location numbers or, if the first unit is unmapped, of unmapped units.
    pub fn run(&self, core: &FtlCore, unit: u32, end: u32) -> (u32, u32) {
        let Some(first) = core.tables.lookup(Lpn(unit)) else {
            let empty = (unit..end).take_while(|unit| core.tables.lookup(Lpn(*unit)).is_none());
            return (NOWHERE, empty.count() as u32);
        };
        let number = self.number(Some(first));
        let (mut at, mut ppn) = (unit, first);
        loop {
            let most = (self.within + 1 - (ppn.0 & self.within)).min(end - at);
            let count = core.tables.consecutive(Lpn(at), most);
            at += count;
            if count < most || at == end {
                break;
            }
            match core.tables.lookup(Lpn(at)) {
                Some(next) if self.number(Some(next)) == number + (at - unit) => ppn = next,
                _ => break,
            }
        }
        (number, at - unit)
    }

    /// Returns the number of a location. `before` contains the previous location and its number. If `ppn` is the next location of the same
    /// page, the number is derived from `before`. Then stores this location and its number in `before`.
    #[inline]
    pub fn next_number(&self, before: &mut Option<(Ppn, u32)>, ppn: Option<Ppn>) -> u32 {
        let Some(at) = ppn else { return NOWHERE };
        // Each page begins at a multiple of the number of units in the smallest page. A location that is no such multiple is in the same
        // page as the location before it.
        let number = match *before {
            Some((last, number)) if at.0 & self.within != 0 && last.0 + 1 == at.0 => number + 1,
            _ => self.number(ppn),
        };
        *before = Some((at, number));
        number
    }

    /// Returns the number of the location `ppn`. `behind` contains the location of the previous call and its number. If `ppn` directly
    /// precedes this location in the same page, its number is one less. Stores `ppn` and its number in `behind`.
    #[inline]
    pub fn previous_number(&self, behind: &mut (Ppn, u32), ppn: Ppn) -> u32 {
        let number = match *behind {
            (next, number) if next.0 & self.within != 0 && ppn.0 + 1 == next.0 => number - 1,
            _ => self.number(Some(ppn)),
        };
        *behind = (ppn, number);
        number
    }

    /// Returns the number of the page that contains the location `number`. The location belongs to the block group of `ppn`.
    #[inline]
    pub fn page(&self, number: u32, ppn: Ppn) -> u32 {
        let index = (ppn.0 >> self.stride_shift) % self.blocks_per_plane;
        number >> self.page_shift(index)
    }

    pub fn plane(&self, page: u32) -> PlaneId {
        self.planes[page as usize % self.planes.len()]
    }

    #[inline]
    fn page_shift(&self, index: u32) -> u32 {
        if let [(_, shift)] = self.groups[..] {
            return shift;
        }
        self.groups.iter().rfind(|(first, _)| *first <= index).map_or(0, |(_, shift)| *shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceConfig;

    #[test]
    fn pages_that_are_written_in_turn_have_consecutive_numbers_and_none_is_given_twice() {
        let config = DeviceConfig::preset("iiswc15-8ps").unwrap();
        let geometry = Geometry::new(config.settings());
        let places = LocationNumbering::new(&geometry);
        let ppn = &|position: u32, page: u32, unit: u32| {
            let block = geometry.striped(position).0 * geometry.blocks_per_plane;
            Some(Ppn((block << geometry.stride_shift) + (page << geometry.groups[0].page_shift) + unit))
        };
        let (planes, units) = (geometry.planes, geometry.groups[0].units_per_page());
        let all = || (0..2).flat_map(move |page| (0..planes).flat_map(move |at| (0..units).map(move |unit| ppn(at, page, unit))));
        let first: Vec<u32> = all().map(|place| places.number(place)).collect();
        assert_eq!(first, (0..first.len() as u32).collect::<Vec<_>>());
        // `next_number` must return the same numbers as `number`.
        let mut before = None;
        let counted: Vec<u32> = all().map(|place| places.next_number(&mut before, place)).collect();
        assert_eq!(counted, first);
        assert_eq!(places.next_number(&mut before, ppn(0, 0, 1)), places.number(ppn(0, 0, 1)));
        // Assigns logical units to these locations in ascending order, except that units 5 and 6 are exchanged.
        let mut core = crate::ftl::tests::core_of(&config);
        let mut lpns: Vec<u32> = (0..counted.len() as u32).collect();
        lpns.swap(5, 6);
        for (lpn, place) in lpns.iter().zip(all()) {
            assert!(core.tables.restore_entry(Lpn(*lpn), place.unwrap()));
        }
        let end = counted.len() as u32;
        assert_eq!(places.run(&core, 0, end), (0, 5));
        assert_eq!(places.run(&core, 5, end), (6, 1));
        assert_eq!(places.run(&core, 7, end), (7, end - 7));
        assert_eq!(places.run(&core, 7, 9), (7, 2));
        assert_eq!(places.run(&core, end, end + 3), (NOWHERE, 3));
        let last = ppn(3, 1, 0).unwrap();
        let page = places.page(places.number(Some(last)), last);
        assert_eq!((page, places.plane(page)), (geometry.planes + 3, geometry.striped(3)));
        assert_eq!(places.number(None), NOWHERE);
    }
}
