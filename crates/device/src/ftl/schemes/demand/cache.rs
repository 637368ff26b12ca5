//! What a map on the flash has in memory: the interface of the cache policies, and their registry.
//!
//! [`Demand`](super::Demand) reads and writes pages of the map; a cache policy decides which entries are in memory, in which form, and what
//! has to be written back first. A policy is one file and one entry in [`POLICIES`].

use crate::ftl::core::Core;
use crate::geometry::Geometry;
use crate::ids::{Lpn, PlaneId};
use emmclab_settings::{PolicyKind, PolicySetting, Settings};

/// Every policy.
pub(super) const POLICIES: [Policy; 4] =
    [super::dftl::POLICY, super::tpftl::POLICY, super::leaftl::POLICY, super::rqftl::POLICY];

/// A cache policy in the registry: a scheme of its own in the settings.
pub(super) struct Policy {
    pub kind: PolicyKind,
    /// Bytes of the map on the flash for a unit, at most.
    pub flash_bytes: u32,
    pub make: fn(&Settings, &Geometry, Layout) -> Box<dyn MapCache>,
}

/// Pages of the map that the host of a UFS holds.
pub(crate) const HPB_PAGES: PolicySetting = PolicySetting {
    key: "hpb_pages",
    about: "Pages of the map that the host of a UFS holds (HPB), so that reads bring their entries along; 0 = no HPB.",
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

/// Memory of the policies whose entries differ in size.
pub(super) const CACHE_KB: PolicySetting = PolicySetting {
    key: "map_cache_kb",
    about: "Memory for entries of the map in KB, in the form in which the scheme keeps them.",
    default: 32,
    range: (4, 1 << 21),
};

/// How the map is cut into pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Units of the host.
    pub units: u32,
    /// Logarithm of the units whose entries are in one page of the map.
    shift: u32,
}

impl Layout {
    /// A map with the entries of `per_page` units in each page: a power of two, as pages and entries are.
    pub fn new(units: u32, per_page: u32) -> Self {
        debug_assert!(per_page.is_power_of_two());
        Self { units, shift: per_page.trailing_zeros() }
    }

    /// Units whose entries are in one page of the map.
    pub fn per_page(self) -> u32 {
        1 << self.shift
    }

    /// Page of the map with the entry of a unit.
    #[inline]
    pub fn page(self, unit: Lpn) -> u32 {
        unit.0 >> self.shift
    }

    /// Units of a page of the map.
    #[inline]
    pub fn units_of(self, page: u32) -> std::ops::Range<u32> {
        let first = page << self.shift;
        first..(first + self.per_page()).min(self.units)
    }

    pub fn pages(self) -> u32 {
        self.units.div_ceil(self.per_page())
    }
}

/// An entry that is needed and not in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub unit: Lpn,
    /// Units of the request from this one on.
    pub rest: u32,
}

/// The page that a read goes to in vain, because an approximate segment predicted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WrongPage {
    /// Number of the page, as [`Places::page`](super::places::Places::page) counts them.
    pub page: u32,
    pub plane: PlaneId,
}

/// What a policy says of its memory, beyond its size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapFigures {
    /// Bytes that the entries in memory take.
    pub cached_bytes: u64,
    /// Learned segments, or runs, of the map as far as the policy has made them.
    pub segments: u64,
    /// Units whose places these give.
    pub segment_units: u64,
}

/// Pages of the map with entries that changed outside of memory, which have to be rewritten.
#[derive(Clone, Debug)]
pub(super) struct Stale {
    pages: Vec<u32>,
    is_stale: Vec<bool>,
}

impl Stale {
    pub fn new(pages: u32) -> Self {
        Self { pages: Vec::with_capacity(pages as usize), is_stale: vec![false; pages as usize] }
    }

    #[inline]
    pub fn add(&mut self, page: u32) {
        if !std::mem::replace(&mut self.is_stale[page as usize], true) {
            self.pages.push(page);
        }
    }

    /// The page was rewritten.
    pub fn remove(&mut self, page: u32) {
        self.is_stale[page as usize] = false;
    }

    /// One that has to be rewritten; it stays stale until it was.
    pub fn pop(&mut self) -> Option<u32> {
        while let Some(page) = self.pages.pop() {
            if self.is_stale[page as usize] {
                return Some(page);
            }
        }
        None
    }

    /// Pages of the map.
    pub fn all(&self) -> usize {
        self.is_stale.len()
    }
}

/// The part of the map in memory. The places themselves are in the core's tables, which `core` shows: a policy keeps which of them are
/// in memory, and what it says of them.
pub(super) trait MapCache: Send + Sync {
    /// Looks up the entries of consecutive units, from `unit` on, until one is not in memory; returns how many were, at most `most`. With
    /// `changes` the host is about to change them.
    fn touch(&mut self, unit: Lpn, most: u32, changes: bool) -> u32;

    /// Makes room for an entry that is wanted and what comes with it, or, without one, for what has grown. Returns a page of the map that
    /// has to be written first, after which it is asked again; `None` if there is room.
    fn make_room(&mut self, core: &Core, wanted: Option<Wanted>) -> Option<u32>;

    /// Takes up the entry of a unit from its page, for which there is room; returns how many others came along.
    fn load(&mut self, core: &Core, wanted: Wanted, changes: bool) -> u32;

    /// Entries changed by collection or discards, in any order; pages whose entries are not in memory have to be rewritten.
    fn changed(&mut self, core: &Core, units: &mut Vec<Lpn>, stale: &mut Stale);

    /// The host has written units that were looked up. Entries by unit have nothing to do: they were marked before.
    fn wrote(&mut self, core: &Core, units: (Lpn, u32), stale: &mut Stale);

    /// A page of the map was written with every change.
    fn written(&mut self, core: &Core, page: u32);

    /// Whether entries may lead to another page than that of their unit.
    fn may_mislead(&self) -> bool {
        false
    }

    /// The page that a read of a unit goes to first where its entry leads to another than that of the unit.
    fn wrong_page(&self, _core: &Core, _unit: Lpn) -> Option<WrongPage> {
        None
    }

    /// Bytes of memory.
    fn ram_bytes(&self) -> u64;

    /// Its figures.
    fn figures(&self) -> MapFigures;

    /// The state as words, for an image.
    fn words(&self) -> Vec<u32>;

    /// Takes up such a state; `None` if it is not one.
    fn restore(&mut self, words: &mut dyn Iterator<Item = u32>) -> Option<()>;

    /// The first thing in which it contradicts the tables.
    fn fault(&self, _core: &Core) -> Option<String> {
        None
    }

    /// A copy, behind a pointer of its own.
    fn copy(&self) -> Box<dyn MapCache>;
}
