//! DFTL: a page map that lies on the flash, with the entries in use in memory (Gupta, Kim and Urgaonkar, "DFTL: a flash translation
//! layer employing demand-based selective caching of page-level address mappings", ASPLOS 2009).
//!
//! The map is cut into pages, which are written to blocks of their own and found through a directory in memory. An entry that is
//! needed is read with its page; a changed one that has to make room is written back, and with it every other changed
//! entry of its page. Collection changes entries in memory where they are, and rewrites the pages of the others. Pages of the map
//! are units behind those of the host: block counts, collection and wear see no difference.

mod cache;

use crate::config::Settings;
use crate::controller::Progress;
use crate::device::{Device, Stop};
use crate::event::{Cause, Observer, PageProgrammed, UnitWritten};
use crate::ftl::mapping::Mapping;
use crate::ftl::place::{MAX_SLOTS, Place};
use crate::geometry::Geometry;
use crate::nand::{Operation, Stream};
use cache::Cache;

/// Bytes of an entry on the flash, and of one in memory: logical and physical address.
const ENTRY_BYTES: u32 = 4;
const CACHED_BYTES: u64 = 8;

/// A map on demand.
pub(crate) struct Demand {
    cache: Cache,
    /// First unit of the map; the host's lie before it.
    base: u32,
    /// Entries and map units in a page of the map.
    per_page: u32,
    units: u32,
    /// Group of the map's pages: the smallest.
    group: u8,
    /// Pages with entries that changed outside the cache and have to be rewritten; whether a page is among them.
    stale: Vec<u32>,
    is_stale: Vec<bool>,
}

impl Demand {
    pub fn new(settings: &Settings, geometry: &Geometry) -> Self {
        let group = geometry.by_size[geometry.by_size.len() - 1];
        let kind = &geometry.groups[usize::from(group)];
        let per_page = kind.page_bytes / ENTRY_BYTES;
        let pages = geometry.logical_units.div_ceil(per_page) as usize;
        Self {
            cache: Cache::new(settings.mapping.cached_entries, geometry.logical_units),
            base: geometry.logical_units,
            per_page,
            units: kind.slots_per_page(),
            group,
            stale: Vec::with_capacity(pages),
            is_stale: vec![false; pages],
        }
    }

    /// Units that the map takes behind those of the host.
    pub fn map_units(&self) -> u32 {
        self.is_stale.len() as u32 * self.units
    }

    /// Bytes of memory: cached entries and the directory.
    pub fn ram_bytes(&self) -> u64 {
        u64::from(self.cache.most()) * CACHED_BYTES + self.is_stale.len() as u64 * u64::from(ENTRY_BYTES)
    }

    /// The entry of a host unit changed.
    pub fn changed(&mut self, unit: u32) {
        let page = unit / self.per_page;
        if unit < self.base && !self.cache.mark(unit) && !self.is_stale[page as usize] {
            self.is_stale[page as usize] = true;
            self.stale.push(page);
        }
    }

    /// The cached entries from the one used longest ago on, as unit and twice whether changed.
    pub fn words(&self) -> Vec<u32> {
        self.cache.words()
    }

    /// Takes up such entries; `None` where they are none.
    pub fn restore(&mut self, words: &mut dyn Iterator<Item = u32>) -> Option<()> {
        self.cache.restore(words)
    }

    fn written(&mut self, page: u32) {
        self.is_stale[page as usize] = false;
        let first = page * self.per_page;
        for unit in first..(first + self.per_page).min(self.base) {
            self.cache.clean(unit);
        }
    }
}

impl Device {
    /// Brings the entries of host units into memory, and says that they change where they do.
    pub(super) fn look_up_on_demand<O: Observer>(
        &mut self,
        progress: &mut Progress,
        first: u32,
        units: u32,
        changes: bool,
        observer: &mut O,
    ) {
        let mut fetched = None;
        for unit in first..first + units {
            let Mapping::Demand(map) = &mut self.mapping else { return };
            let page = unit / map.per_page;
            if map.cache.touch(unit) {
                self.counters.map_hits += 1;
            } else {
                self.counters.map_misses += 1;
                let evicted = map.cache.make_room();
                let home = map.base + page * map.units;
                let per_page = map.per_page;
                if let Some(evicted) = evicted
                    && let Some(op) = self.write_map_page(evicted / per_page, progress.ready, observer)
                {
                    progress.look_up(&op);
                }
                if fetched != Some(page)
                    && let Some(slot) = self.lookup(home)
                {
                    let op = self.read_map_page(slot, progress.ready, observer);
                    progress.look_up(&op);
                }
                fetched = Some(page);
                if let Mapping::Demand(map) = &mut self.mapping {
                    map.cache.insert(unit);
                }
            }
            if changes && let Mapping::Demand(map) = &mut self.mapping {
                map.cache.mark(unit);
            }
        }
    }

    fn read_map_page<O: Observer>(&mut self, slot: u32, ready: i64, observer: &mut O) -> Operation {
        let group = self.blocks[self.geometry.block_of(slot) as usize].group;
        let bytes = self.geometry.groups[usize::from(group)].page_bytes;
        self.read_page(slot, ready, bytes, Cause::Map, observer)
    }

    /// Writes a page of the map anew, with all changed entries; `None` where the device is full.
    fn write_map_page<O: Observer>(&mut self, page: u32, ready: i64, observer: &mut O) -> Option<Operation> {
        let Mapping::Demand(map) = &self.mapping else { return None };
        let (first, units, group) = (map.base + page * map.units, map.units, map.group);
        let mut at = ready;
        if let Some(slot) = self.lookup(first) {
            at = self.read_map_page(slot, ready, observer).end;
        }
        let Some(place) = self.place(at, first, group, Stream::Map, observer) else {
            self.stop.get_or_insert(Stop::Full);
            return None;
        };
        let Place { plane, group, pool, block } = place;
        // Finding a place may have collected, and changed more entries of this very page.
        let Mapping::Demand(map) = &mut self.mapping else { return None };
        map.written(page);
        let number = self.blocks[block as usize].written;
        let kind = &self.geometry.groups[usize::from(group)];
        let bytes = units * self.geometry.unit_bytes;
        let op = self.flash.program(plane, kind, number, at, bytes);
        let slot = self.geometry.first_slot(block) + (number << kind.page_shift);
        self.counters.bus_bytes += u64::from(bytes);
        self.counters.programmed(Cause::Map, group, kind.page_bytes, 1);
        if O::UNITS {
            let mut written = [UnitWritten::default(); MAX_SLOTS];
            for i in 0..units {
                let logical = first + i;
                written[i as usize] = UnitWritten { logical, from: self.lookup(logical), covered: 0 };
            }
            let units = &written[..units as usize];
            let (begin, end) = (op.begin, op.end);
            observer.page_programmed(&PageProgrammed {
                block,
                page: number,
                cause: Cause::Map,
                units,
                begin,
                end,
            });
        }
        self.books().remap(first, units, slot);
        self.books().fill(pool, block, 1, units, Stream::Map);
        self.last_program = self.last_program.max(op.end);
        Some(op)
    }

    /// Rewrites the pages of the map that collection or discards left stale; those who come next wait for it.
    pub(super) fn write_stale_map<O: Observer>(&mut self, ready: i64, observer: &mut O) {
        let Mapping::Demand(map) = &self.mapping else { return };
        // Collection on the way makes pages stale again, but ever fewer; a device on which that does not end is full.
        let mut patience = 16 * map.is_stale.len() + 16;
        while self.stop.is_none()
            && let Mapping::Demand(map) = &mut self.mapping
            && let Some(page) = map.stale.pop()
        {
            if !map.is_stale[page as usize] {
                continue;
            }
            if patience == 0 {
                self.stop = Some(Stop::Full);
                return;
            }
            patience -= 1;
            self.write_map_page(page, ready, observer);
        }
    }
}
