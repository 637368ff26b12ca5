//! The cached part of a map on the flash: the interface of the cache policies, and their registry.
//!
//! [`Demand`](super::DemandMapping) reads and writes pages of the map. A cache policy decides which entries are cached, in which form, and what
//! has to be written back first. A policy is one file and one entry in [`POLICIES`].

use crate::ftl::core::FtlCore;
use crate::geometry::Geometry;
use crate::ids::{Lpn, PlaneId};
use emmclab_settings::{DeviceSettings, PolicyDescription, PolicySetting};

/// All cache policies.
pub(super) const POLICIES: [MapCachePolicyEntry; 4] =
    [super::dftl::POLICY, super::tpftl::POLICY, super::leaftl::POLICY, super::rqftl::POLICY];

/// A cache policy in the registry; in the settings it is a mapping scheme.
pub(super) struct MapCachePolicyEntry {
    pub kind: PolicyDescription,
    /// Maximum bytes of the map on the flash for each unit.
    pub flash_bytes: u32,
    pub make: fn(&DeviceSettings, &Geometry, MapPageLayout) -> Box<dyn MapCache>,
}

/// Number of pages of the map that the host of a UFS caches.
pub(crate) const HPB_PAGES: PolicySetting = PolicySetting {
    key: "hpb_pages",
    about: "Pages of the map that the host of a UFS caches (HPB); reads of these pages carry the map entries with them. 0 = no HPB.",
    default: 0,
    range: (0, 1 << 20),
};

/// Time of a lookup.
pub(crate) const LOOKUP_NS: PolicySetting = PolicySetting {
    key: "lookup_ns",
    about: "Time that the controller takes to look up an entry of the map in memory, in ns.",
    default: 0,
    range: (0, 1_000_000),
};

/// Energy of a lookup.
pub const LOOKUP_NJ: PolicySetting = PolicySetting {
    key: "lookup_nj",
    about: "Energy that the controller takes to look up an entry of the map in memory, in nJ.",
    default: 0,
    range: (0, 1_000_000),
};

/// Memory for the policies whose entries have different sizes.
pub(super) const CACHE_KB: PolicySetting = PolicySetting {
    key: "map_cache_kb",
    about: "Memory in KB for entries of the map, in the form in which the scheme stores them.",
    default: 32,
    range: (4, 1 << 21),
};

/// The division of the map into pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapPageLayout {
    /// Units of the host.
    pub units: u32,
    /// Base-2 logarithm of the units whose entries are in one page of the map.
    shift: u32,
}

impl MapPageLayout {
    /// A map with the entries of `per_page` units in each page. This is a power of two, because the sizes of pages and entries are.
    pub fn new(units: u32, per_page: u32) -> Self {
        debug_assert!(per_page.is_power_of_two());
        Self { units, shift: per_page.trailing_zeros() }
    }

    /// Number of units whose entries are in one page of the map.
    pub fn per_page(self) -> u32 {
        1 << self.shift
    }

    /// The page of the map with the entry of a unit.
    #[inline]
    pub fn page(self, unit: Lpn) -> u32 {
        unit.0 >> self.shift
    }

    /// The units with entries in a page of the map.
    #[inline]
    pub fn units_of(self, page: u32) -> std::ops::Range<u32> {
        let first = page << self.shift;
        first..(first + self.per_page()).min(self.units)
    }

    pub fn pages(self) -> u32 {
        self.units.div_ceil(self.per_page())
    }
}

/// An entry that is needed and not cached.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapMiss {
    pub unit: Lpn,
    /// Number of units of the request from this one on.
    pub rest: u32,
}

/// The page that is read in vain, because an approximate segment predicted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MispredictedPage {
    /// Number of the page, as defined by [`LocationNumbering::page`](super::location_numbering::LocationNumbering::page).
    pub page: u32,
    pub plane: PlaneId,
}

/// Figures of the cached part of a map, besides its configured size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapCacheSummary {
    /// Bytes of the cached entries.
    pub cached_bytes: u64,
    /// Number of learned segments or runs of the map, as far as the policy has created them.
    pub segments: u64,
    /// Number of units whose locations these describe.
    pub segment_units: u64,
}

/// Pages of the map with changed entries that are not cached; these pages have to be rewritten.
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

    /// Marks a page as rewritten.
    pub fn remove(&mut self, page: u32) {
        self.is_stale[page as usize] = false;
    }

    /// Removes and returns a page that has to be rewritten. It counts as stale until [`StaleMapPages::remove`].
    pub fn pop(&mut self) -> Option<u32> {
        while let Some(page) = self.pages.pop() {
            if self.is_stale[page as usize] {
                return Some(page);
            }
        }
        None
    }

    /// Number of pages of the map.
    pub fn all(&self) -> usize {
        self.is_stale.len()
    }
}

/// The cached part of the map. The locations themselves are in the core's tables, which are available through `core`. A policy only tracks
/// which of them are cached, and their state.
pub(super) trait MapCache: Send + Sync {
    /// Looks up the entries of consecutive units from `unit` on until one is not cached; returns how many were, at most `most`. With
    /// `changes`, the host is about to change them.
    fn touch(&mut self, unit: Lpn, most: u32, changes: bool) -> u32;

    /// Makes room for the entry `wanted` and those loaded with it; with `None`, for entries that have grown. Returns a page of the map that
    /// has to be written first, after which this is called again; `None` if there is room.
    fn make_room(&mut self, core: &FtlCore, wanted: Option<MapMiss>) -> Option<u32>;

    /// Loads the entry of a unit, for which there is room, from its page; returns how many other entries were loaded along.
    fn load(&mut self, core: &FtlCore, wanted: MapMiss, changes: bool) -> u32;

    /// Updates entries that collection or discards changed, in any order; adds pages whose entries are not cached to `stale`.
    fn update_moved(&mut self, core: &FtlCore, units: &mut Vec<Lpn>, stale: &mut StaleMapPages);

    /// Updates the entries of units that the host has written after they were looked up. Policies with one entry per unit have nothing to
    /// do: they have already marked the entries.
    fn update_written(&mut self, core: &FtlCore, units: (Lpn, u32), stale: &mut StaleMapPages);

    /// Marks the entries of a page as clean, after the page was written with every change.
    fn mark_page_clean(&mut self, core: &FtlCore, page: u32);

    /// Whether entries may point to another page than that of their unit.
    fn may_mislead(&self) -> bool {
        false
    }

    /// The page that a read of a unit reads first, if the entry points to another page than that of the unit.
    fn wrong_page(&self, _core: &FtlCore, _unit: Lpn) -> Option<MispredictedPage> {
        None
    }

    /// Bytes of memory.
    fn ram_bytes(&self) -> u64;

    /// Its figures.
    fn figures(&self) -> MapCacheSummary;

    /// The state as words, for an image.
    fn words(&self) -> Vec<u32>;

    /// Restores the state from an image; `None` if the words are not valid.
    fn restore(&mut self, words: &mut dyn Iterator<Item = u32>) -> Option<()>;

    /// The first contradiction to the tables.
    fn fault(&self, _core: &FtlCore) -> Option<String> {
        None
    }

    /// A boxed copy.
    fn copy(&self) -> Box<dyn MapCache>;
}
