//! DFTL: caches the most recently used mapping table entries individually (Gupta, Kim and Urgaonkar, "DFTL: a flash translation layer
//! employing demand-based selective caching of page-level address mappings", ASPLOS 2009). The cached mapping table (CMT) contains the
//! entries in the order of their last use, and which of them are dirty.

use emmclab_settings::{PolicyDescription, PolicySetting};

use super::cache::{
    HPB_PAGES, LOOKUP_NJ, LOOKUP_NS, MapCache, MapCachePolicyEntry, MapCacheSummary, MapMiss, MapPageLayout, StaleMapPages,
};
use crate::ftl::core::FtlCore;
use crate::ids::Lpn;
use crate::lru::{BitSet, LruSet};

pub(super) const POLICY: MapCachePolicyEntry = MapCachePolicyEntry {
    kind: PolicyDescription {
        name: "dftl",
        about: "As `page`, but the map is on the flash and the entries in use are in memory (Gupta et al., ASPLOS 2009).",
        settings: &[CACHED_ENTRIES, HPB_PAGES, LOOKUP_NS, LOOKUP_NJ],
    },
    flash_bytes: 4,
    make: |settings, _, layout| Box::new(DftlCache::new(CACHED_ENTRIES.count(&settings.mapping.options), layout)),
};

const CACHED_ENTRIES: PolicySetting =
    PolicySetting { key: "cached_entries", about: "Map entries in memory.", default: 4096, range: (1, 1 << 28) };

/// Size of a cached entry in RAM, in bytes: logical and physical address.
const CACHED_BYTES: u64 = 8;

/// The cached mapping table entries of at most `most` units.
#[derive(Clone, Debug)]
struct DftlCache {
    layout: MapPageLayout,
    most: u32,
    entries: LruSet,
    /// Units whose cached entries are dirty, which means that they differ from the entries on the flash.
    changed: BitSet,
}

impl DftlCache {
    fn new(most: u32, layout: MapPageLayout) -> Self {
        let most = most.min(layout.units);
        let changed = BitSet::new(layout.units);
        Self { layout, most, entries: LruSet::new(layout.units as usize, most as usize), changed }
    }

    fn mark(&mut self, unit: Lpn) {
        self.changed.insert(unit.0);
    }
}

impl MapCache for DftlCache {
    fn touch(&mut self, unit: Lpn, most: u32, changes: bool) -> u32 {
        let there = self.entries.touch_all(unit.0, most);
        if changes {
            self.changed.insert_range(unit.0..unit.0 + there);
        }
        there
    }

    /// Evicts the least recently used entry if the cache is full. If it is dirty, returns the page of the table that must be written.
    fn make_room(&mut self, _: &FtlCore, wanted: Option<MapMiss>) -> Option<u32> {
        if wanted.is_none() || self.entries.len() < self.most as usize {
            return None;
        }
        let unit = self.entries.pop()?;
        let changed = self.changed.has(unit);
        self.changed.remove(unit);
        changed.then(|| self.layout.page(Lpn(unit)))
    }

    fn load(&mut self, _: &FtlCore, wanted: MapMiss, changes: bool) -> u32 {
        self.entries.push(wanted.unit.0);
        if changes {
            self.mark(wanted.unit);
        }
        0
    }

    fn update_moved(&mut self, _: &FtlCore, units: &mut Vec<Lpn>, stale: &mut StaleMapPages) {
        for unit in units.drain(..) {
            if self.entries.holds(unit.0) {
                self.mark(unit);
            } else {
                stale.add(self.layout.page(unit));
            }
        }
    }

    fn update_written(&mut self, _: &FtlCore, _: (Lpn, u32), _: &mut StaleMapPages) {}

    fn mark_page_clean(&mut self, _: &FtlCore, page: u32) {
        self.changed.remove_range(self.layout.units_of(page));
    }

    fn ram_bytes(&self) -> u64 {
        u64::from(self.most) * CACHED_BYTES
    }

    fn figures(&self) -> MapCacheSummary {
        MapCacheSummary { cached_bytes: self.entries.len() as u64 * CACHED_BYTES, ..MapCacheSummary::default() }
    }

    /// Encodes the state for an image: the number of entries, then unit and dirty state of each, from the least recently used one on.
    fn words(&self) -> Vec<u32> {
        let mut out = vec![self.entries.len() as u32];
        for unit in self.entries.iter() {
            out.extend([unit, u32::from(self.changed.has(unit))]);
        }
        out
    }

    fn restore(&mut self, words: &mut dyn Iterator<Item = u32>) -> Option<()> {
        let count = words.next()?;
        if count > self.most {
            return None;
        }
        for _ in 0..count {
            let (unit, changed) = (words.next()?, words.next()?);
            if unit >= self.layout.units || self.entries.holds(unit) {
                return None;
            }
            self.entries.push(unit);
            if changed == 1 {
                self.mark(Lpn(unit));
            }
        }
        Some(())
    }

    fn copy(&self) -> Box<dyn MapCache> {
        Box::new(self.clone())
    }
}
